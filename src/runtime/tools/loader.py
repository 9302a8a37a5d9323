"""Load the tools of a project: each a plain module, compiled from the very bytes that are digested."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final, NamedTuple

from ...fail.errors import ToolError, asks_to_end, system_reason
from ..formats.documents import read_plain
from ..formats.strict_json import digest
from .contract import Tool
from .project_modules import project_modules

_MOST: Final = 1 << 20
_NEEDED: Final = {
    "DESCRIPTION": str, "INPUT_SCHEMA": dict, "OUTPUT_SCHEMA": dict, "EFFECT": str, "IDEMPOTENT": bool,
}  # fmt: skip


class LoadedTools(NamedTuple):
    """The tools of a project.

    Attributes:
        tools: The tools.
        modules: By tool, path and SHA-256 of each module of the project that it imports.
    """

    tools: list[Tool]
    modules: dict[str, dict[str, str]]


def load_tools(names: Iterable[str], root: Path) -> LoadedTools:
    """Load tools by name from the folder `tools` of a project. Raises ToolError."""
    loaded = LoadedTools([], {})
    for name in names:
        label = f"tools/{name}.py"
        # a path would lead out of the folder
        if not (name.isascii() and name.replace("-", "_").isidentifier()):
            raise ToolError(
                f"{name[:80]!a} is no name of a tool", file="tools", remedy="use letters, digits, - and _"
            )
        if name in loaded.modules:
            raise ToolError("the tool is named twice", file=label, remedy="name it once")
        module, source = load_module(label, root)
        loaded.tools.append(_tool(module, name, label, source))
        loaded.modules[name] = project_modules(source, root)
    return loaded


def load_module(label: str, root: Path) -> tuple[Any, bytes]:
    """Return a module of a project and the bytes that it was compiled from. Raises ToolError."""
    source = _source(root / label, label)
    return _imported(source, root / label, label), source


def _source(path: Path, label: str) -> bytes:
    try:
        source = read_plain(path, _MOST)
    except OSError as error:
        raise ToolError(
            f"cannot be read ({system_reason(error)})", file=label, remedy="name an existing tool"
        ) from None
    if len(source) > _MOST:
        raise ToolError(f"the file has more than {_MOST} bytes", file=label, remedy="split it")
    return source


def _tool(module: Any, name: str, label: str, source: bytes) -> Tool:
    wrong = [
        f"{what} ({kind.__name__})"
        for what, kind in _NEEDED.items()
        if not isinstance(getattr(module, what, None), kind)
    ]
    if not callable(getattr(module, "run", None)):
        wrong.append("run (function)")
    if not isinstance(getattr(module, "TRANSIENT", ()), tuple):
        wrong.append("TRANSIENT (tuple)")
    if wrong:
        raise ToolError(f"the module needs {', '.join(wrong)}", file=label, remedy="add each, of that type")
    try:
        inspect.signature(module.run).bind({}, None)
    except (TypeError, ValueError):
        raise ToolError("run does not take (args, io)", file=label, remedy="write it so") from None
    return Tool(
        name,
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


def _imported(source: bytes, path: Path, label: str) -> Any:
    module = ModuleType(f"tachograph_tool_{path.stem}")
    module.__file__ = str(path)
    try:
        exec(_compiled(source, label), module.__dict__)  # noqa: S102 - code of the project
    except BaseException as error:
        if asks_to_end(error):
            raise
        frames = [it.lineno for it in traceback.extract_tb(error.__traceback__) if it.filename == label]
        line = error.lineno if isinstance(error, SyntaxError) else (frames or [None])[-1]
        module_name = f" for {error.name!r}" if isinstance(error, ModuleNotFoundError) else ""
        what = f"importing it raised {type(error).__name__}{module_name}"
        raise ToolError(what, file=label, line=line, remedy="fix the module") from error
    return module


@lru_cache(maxsize=256)
def _compiled(source: bytes, label: str) -> CodeType:
    """Compile without cached bytecode, which is matched by second and size only."""
    return compile(source, label, "exec", dont_inherit=True)
