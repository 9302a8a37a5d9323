"""Load the tools of a project: each a plain module, compiled from the very bytes that are digested."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

from ...fail.errors import ToolError, asks_to_end, system_reason
from ..formats.documents import read_plain
from ..formats.strict_json import digest
from .contract import Tool

_MOST: Final = 1 << 20
_NEEDED: Final = ("DESCRIPTION", "INPUT_SCHEMA", "OUTPUT_SCHEMA", "EFFECT", "IDEMPOTENT", "run")


def load_tool(path: Path, label: str) -> Tool:
    """Load a tool from a file, which `label` stands for in messages and records.

    Raises:
        ToolError: The file cannot be read or imported, or the module breaks the contract.
    """
    try:
        source = read_plain(path, _MOST)
    except OSError as error:
        raise ToolError(
            f"cannot be read ({system_reason(error)})", file=label, remedy="name an existing tool"
        ) from None
    module = _imported(source, path, label)
    missing = [name for name in _NEEDED if not hasattr(module, name)]
    if missing:
        raise ToolError(
            f"the module lacks {', '.join(missing)}", file=label, remedy="add what the tool contract asks for"
        )
    return Tool(
        path.stem,
        module.DESCRIPTION,
        module.INPUT_SCHEMA,
        module.OUTPUT_SCHEMA,
        module.EFFECT,
        module.run,
        idempotent=module.IDEMPOTENT,
        transient=getattr(module, "TRANSIENT", ()),
        timeout_s=getattr(module, "TIMEOUT_S", None),
        probe=getattr(module, "probe", None),
        digest=digest(source),
        file=label,
    )


def load_tools(names: Iterable[str], root: Path) -> list[Tool]:
    """Load tools by name from the folder `tools` of a project. Raises ToolError."""
    return [load_tool(root / "tools" / f"{name}.py", f"tools/{name}.py") for name in names]


def _imported(source: bytes, path: Path, label: str) -> Any:
    module = ModuleType(f"tachograph_tool_{path.stem}")
    module.__file__ = str(path)
    try:
        exec(_compiled(source, label), module.__dict__)  # noqa: S102 - code of the project
    except BaseException as error:
        if asks_to_end(error):
            raise
        line = error.lineno if isinstance(error, SyntaxError) else None
        what = f"importing it raised {type(error).__name__}"
        raise ToolError(what, file=label, line=line, remedy="fix the module") from error
    return module


@lru_cache(maxsize=256)
def _compiled(source: bytes, label: str) -> CodeType:
    """Compile without cached bytecode, which is matched by second and size only."""
    return compile(source, label, "exec", dont_inherit=True)
