"""A plain typed Python function as a governed tool."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Unpack

from ..fail.errors import ToolError
from ..runtime.schema.subschemas import JsonSchema
from ..runtime.tools.contract import EFFECTS, Tool
from ..runtime.tools.coroutines import run_coroutine
from .common import Foreign, ToolOptions, checked_options, govern
from .plain_hints import Hint, NotPlain, plain_argument, type_hints
from .schemas import closed, require_module

if TYPE_CHECKING:
    from .annotations import Argument

_IO: Final = "io"
_ARGUMENT: Final = re.compile(r"(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


def tool_from_function(function: Callable[..., Any], **options: Unpack[ToolOptions]) -> Tool:
    """Return a function as a Tool: its annotations are the schema, its docstring says what it does.

    `Annotated[str, resource("url")]` says beside an annotation what a string is, as `resources` does. A parameter
    named `io` gets the run's workspace and is not offered to the model; a coroutine function is awaited by
    an async run, and run to its end by any other. The result is `{"result": ...}`.

    Args:
        function: A function or bound method whose parameters are annotated.
        **options: See ToolOptions.

    Raises:
        ToolError: Something has no exact schema, in one line.
        InputError: An annotation needs pydantic, and it is not installed.
    """
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise ToolError(
            f"{type(function).__name__} is not a function", remedy="give a def, or a bound method"
        )
    said = checked_options(options)
    name = said.get("name") or function.__name__
    label = f"tool {name!r}"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolError("yields its results", file=label, remedy="return them, such as a list")
    hints = type_hints(function, "the function", label)
    summary, described = documented(inspect.getdoc(function) or "")
    arguments = _arguments(function, hints, described, label)
    parameters = inspect.signature(function).parameters
    takes_io = _IO in parameters

    def begun(given: dict[str, Any], io: Any) -> Any:
        values = {key: arguments[key].read(value) for key, value in given.items()}
        if takes_io:
            values[_IO] = io
        return function(**values)

    awaits = inspect.iscoroutinefunction(function)

    def call(given: dict[str, Any], io: Any) -> Any:
        return run_coroutine(lambda: begun(given, io)) if awaits else begun(given, io)

    required = [key for key in arguments if parameters[key].default is inspect.Parameter.empty]
    foreign = Foreign(
        name=name,
        description=summary,
        parameters=closed({key: argument.schema for key, argument in arguments.items()}, required),
        call=call,
        source=function,
        returns=hints.get("return", Any),
        takes_io=takes_io,
        call_async=begun if awaits else None,
    )
    return govern(foreign, said)


def tool(function: Callable[..., Any] | None = None, **options: Unpack[ToolOptions]) -> Any:
    """Make the function below it a Tool: `@tool(effect="read")`.

    Annotations and docstring are read as by `tool_from_function`.

    Args:
        function: The function; none where options are given.
        **options: See ToolOptions. `effect` must be there.

    Raises:
        ToolError: There is no effect, or something has no exact schema, in one line.
        InputError: An annotation needs pydantic, and it is not installed.

    Example:
        >>> from tachograph import tool
        >>> @tool(effect="pure")
        ... def double(number: int) -> int:
        ...     "Double a number."
        ...     return 2 * number
        >>> double.run({"number": 21}, None)
        {'result': 42}
    """
    if "effect" not in options:
        name = getattr(function, "__name__", "the function")
        raise ToolError(
            f"@tool does not say what effect {name} has",
            remedy=f'write @tool(effect="read"), the effect one of {", ".join(EFFECTS)}',
        )
    if function is not None:
        return tool_from_function(function, **options)
    return lambda given: tool_from_function(given, **options)


def _arguments(
    function: Callable[..., Any], hints: Mapping[str, Any], described: Mapping[str, str], label: str
) -> dict[str, Argument | Hint]:
    """Return what the model may give, by parameter."""
    found: dict[str, Argument | Hint] = {}
    for key, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ToolError(
                f"{parameter} cannot be given by its name", file=label, remedy="name each parameter"
            )
        if key == _IO:
            continue
        if key not in hints:
            raise ToolError(f"{key} has no annotation", file=label, remedy="annotate it, such as str")
        field: JsonSchema = {}
        if key in described:
            field["description"] = described[key]
        if parameter.default is not parameter.empty:
            field["default"] = parameter.default
        found[key] = _argument(hints[key], label, key, field)
    return found


def _argument(annotation: Any, label: str, key: str, field: JsonSchema) -> Argument | Hint:
    """Return a parameter, read without pydantic where its annotation is plain."""
    try:
        return plain_argument(annotation, field)
    except NotPlain:
        require_module("pydantic", "pydantic", "functions")
        from .annotations import Argument  # imports pydantic

        return Argument(annotation, label, key, field)


def documented(doc: str) -> tuple[str, dict[str, str]]:
    """Return the first paragraph of a docstring, and what a Google-style `Args:` says of each argument."""
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
