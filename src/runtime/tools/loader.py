"""Load the tools of a project: each a plain module, compiled from the very bytes that are digested."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

from msgspec import Struct

from ...fail.errors import ToolError, asks_to_end, class_of, line_in, system_reason
from ..formats.documents import read_plain
from ..formats.strict_json import digest
from .contract import CLOSED, Tool, refusal
from .project_modules import project_modules

_MOST: Final = 1 << 20
# what a module needs, each with what stands for it while the rest is looked at
_NEEDED: Final[dict[str, Any]] = {
    "DESCRIPTION": "", "INPUT_SCHEMA": CLOSED, "OUTPUT_SCHEMA": CLOSED, "EFFECT": "pure", "IDEMPOTENT": False,
}  # fmt: skip


class LoadedTools(Struct, frozen=True):
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
            what = f"{name[:80]!a} is not a name of a tool"
            raise ToolError(what, file="tools", remedy="use letters, digits, - and _, a letter first")
        if name in loaded.modules:
            raise ToolError("the tool is named twice", file=label, remedy="name it once")
        module, source = load_module(label, root)
        loaded.tools.append(_tool(module, name, label, source))
        loaded.modules[name] = project_modules(source, root)
    return loaded


def load_module(label: str, root: Path) -> tuple[Any, bytes]:
    """Return a module of a project and the bytes that it was compiled from. Raises ToolError."""
    try:
        source = read_plain(root / label, _MOST)
    except OSError as error:
        what = f"cannot be read ({system_reason(error)})"
        raise ToolError(what, file=label, remedy="name an existing module") from None
    if len(source) > _MOST:
        raise ToolError(f"the file has more than {_MOST} bytes", file=label, remedy="split it")
    return _imported(source, root / label, label), source


def _tool(module: Any, name: str, label: str, source: bytes) -> Tool:
    """Return the tool that a module is. Raises ToolError with all that it lacks."""
    run, transient = getattr(module, "run", None), getattr(module, "TRANSIENT", ())
    given: dict[str, Any] = {what: getattr(module, what, None) for what in _NEEDED}
    lacks = {what: type(it).__name__ for what, it in _NEEDED.items() if not isinstance(given[what], type(it))}
    lacks |= {} if callable(run) else {"run": "function"}
    lacks |= {} if isinstance(transient, tuple) else {"TRANSIENT": "tuple"}
    wrong = []
    if lacks:
        needed = ", ".join(f"{what} ({kind})" for what, kind in lacks.items())
        wrong.append(f"the module needs {needed}; add each, of that type")
    if callable(run):
        try:
            inspect.signature(run).bind({}, None)
        except (TypeError, ValueError):
            wrong.append("run does not take (args, io); write it so")
    fine: dict[str, Any] = {what: other if what in lacks else given[what] for what, other in _NEEDED.items()}
    try:
        tool = Tool(
            name,
            fine["DESCRIPTION"],
            fine["INPUT_SCHEMA"],
            fine["OUTPUT_SCHEMA"],
            fine["EFFECT"],
            run if callable(run) else lambda args, io: {},
            idempotent=fine["IDEMPOTENT"],
            transient=() if "TRANSIENT" in lacks else transient,
            timeout_s=getattr(module, "TIMEOUT_S", None),
            probe=getattr(module, "probe", None),
            digest=digest(source),
            file=label,
        )
    except ToolError as error:
        wrong.append(f"{error.message}; {error.remedy}")
    if wrong:
        raise refusal(wrong, label)
    return tool


def _imported(source: bytes, path: Path, label: str) -> Any:
    module = ModuleType(f"tachograph_tool_{path.stem}")
    module.__file__ = str(path)
    try:
        exec(_compiled(source, label), module.__dict__)  # noqa: S102 - code of the project
    except BaseException as error:
        if asks_to_end(error):
            raise
        line = error.lineno if isinstance(error, SyntaxError) else line_in(error, label)
        module_name = f" for {error.name!r}" if isinstance(error, ModuleNotFoundError) else ""
        what = f"importing it raised {class_of(error)}{module_name}"
        raise ToolError(what, file=label, line=line, remedy="fix the module") from error
    return module


@lru_cache(maxsize=256)
def _compiled(source: bytes, label: str) -> CodeType:
    """Compile without cached bytecode, which is matched by second and size only."""
    return compile(source, label, "exec", dont_inherit=True)
