"""A plain typed Python function as a governed tool."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ..fail.errors import ToolError
from ..runtime.tools.contract import Tool
from .common import Foreign, finished, governed
from .hints import Hint, Reader, closed, converted, with_default
from .results import UNSAID

_IO: Final = "io"
_ARGUMENT: Final = re.compile(r"(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


def tool_from_function(
    function: Callable[..., Any],
    *,
    effect: str,
    idempotent: bool,
    resources: Mapping[str, str] | None = None,
    transient: Iterable[type[BaseException]] = (),
    timeout_s: float | None = None,
    name: str | None = None,
    description: str | None = None,
    returns: Any = UNSAID,
    paths: str | None = None,
) -> Tool:
    """A function as a Tool: its annotations are the schema, its docstring says what it does.

    `effect` and `idempotent` are what the tool contract asks. `resources` says of an argument what it is, as
    `Annotated[str, resource("url")]` does beside the annotation. A parameter named `io` gets the run's
    workspace and is not offered to the model; a coroutine function is run to its end. `transient` may hold
    exceptions of any library. `returns` stands in for the return annotation. `paths` says what a path becomes
    for a function that takes no `io`: `"copy"` a private copy to read, `"text"` the mount path as text.

    The result is `{"result": ...}`. Raises ToolError, one line, for what has no exact schema.
    """
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise ToolError(f"{type(function).__name__} is no function", remedy="give a def, or a bound method")
    called = name or function.__name__
    label = f"tool {called!r}"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolError("yields its results", file=label, remedy="return them, such as a list")
    reader = Reader(label)
    named = reader.named(function, "the function")
    summary, said = documented(inspect.getdoc(function) or "")
    fields: dict[str, Hint] = {}
    properties: dict[str, Any] = {}
    required: list[str] = []
    parameters = inspect.signature(function).parameters
    for parameter in parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise reader.refuse(str(parameter), "cannot be given by its name", "name each parameter")
        if parameter.name == _IO:
            continue
        if parameter.name not in named:
            raise reader.refuse(parameter.name, "has no annotation")
        fields[parameter.name] = hint = reader.read(named[parameter.name], parameter.name)
        schema = hint.schema
        if parameter.name in said:
            schema = {"description": said[parameter.name], **schema}
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        else:
            schema = with_default(schema, parameter.default)
        properties[parameter.name] = schema
    takes_io = _IO in parameters

    def call(arguments: dict[str, Any], io: Any) -> Any:
        values = converted(fields, arguments)
        if takes_io:
            values[_IO] = io
        if inspect.iscoroutinefunction(function):
            return finished(lambda: function(**values))
        return function(**values)

    foreign = Foreign(
        name=called,
        description=description or summary,
        parameters=closed(properties, required),
        call=call,
        source=function,
        returns=named.get("return", Any) if returns is UNSAID else returns,
        takes_io=takes_io,
        resources=resources or {},
    )
    return governed(
        foreign,
        effect=effect,
        idempotent=idempotent,
        transient=transient,
        timeout_s=timeout_s,
        paths=paths,
    )


def documented(doc: str) -> tuple[str, dict[str, str]]:
    """The first paragraph of a docstring, and what a Google-style `Args:` says of each argument."""
    first = " ".join(doc.split("\n\n", 1)[0].split())
    said: dict[str, list[str]] = {}
    lines = doc.splitlines()
    starts = [i for i, line in enumerate(lines) if line in ("Args:", "Arguments:")]
    own = None
    words: list[str] = []
    for line in lines[starts[0] + 1 :] if starts else ():
        indent = len(line) - len(line.lstrip())
        if line.strip() and not indent:
            break
        own = indent if own is None else own
        found = _ARGUMENT.fullmatch(line.strip()) if indent == own else None
        if found:
            words = said[found[1]] = []
            line = found[2]
        words += line.split()
    return first, {name: " ".join(text) for name, text in said.items() if text}
