"""Typed functions as tools: `@tool(effect="read")` above a function.

    @tool(effect="read")
    def opening_hours(depot: str, day: Annotated[str, "in English"] = "Monday") -> str:
        "Say when a depot is open."

The signature is the input schema, the return annotation the output schema, the docstring what the model reads. A text
beside an annotation describes the parameter; `Url`, `ReadPath`, `WritePath`, `Text` and `AnyText` say what a string is.
A parameter `io` gets the io of the attempt, and one of the type `Context[Deps]` the caller's own object: the model is
offered neither. A generator function with `agents=[...]` starts agents by `yield`.
"""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final, Generic, TypedDict, TypeVar, Unpack, overload

from msgspec import Meta

from ...fail.errors import ToolError, did_you_mean, listed
from ..schema.python_types import object_schema, plain_type, read_as, result_schema, written
from .contract import Run, Tool

Deps = TypeVar("Deps")
_IO: Final = "io"
_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Context(Generic[Deps]):
    """What the caller of a run gives to its tools. It is in no schema and in no record.

    Attributes:
        deps: The caller's own object.
    """

    def __init__(self, deps: Deps) -> None:
        self.deps = deps


class ToolOptions(TypedDict, total=False):
    """What is said of a function that is made a tool; each as of `Tool`.

    Attributes:
        effect: As of `Tool`; `external` where nothing is said.
        name: The name of the function where nothing is said.
        description: The docstring where nothing is said.
        idempotent: Whether a repeated call does no harm.
        transient: Builtin exceptions after which another attempt is worthwhile.
        timeout_s: Seconds an attempt may take.
        probe: Tells whether an attempt took place whose outcome was lost; gets the arguments as plain data, and `io`.
        agents: Tools that start agents, made by `as_tool`. The function then is a generator function, which starts one
            of them by `result = yield NAME, TASK`; the result is what a model would read.
    """

    effect: str
    name: str
    description: str
    idempotent: bool
    transient: Sequence[type[Exception]]
    timeout_s: float | None
    probe: Run | None
    agents: Sequence[Tool]


@overload
def tool(function: Callable[..., Any], /, **options: Unpack[ToolOptions]) -> Tool: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]) -> Any:
    """Make a typed function a Tool; as a decorator, with options or without, or called with the function.

    Args:
        function: A function, a coroutine function or a bound method.
        **options: `effect`, `name`, `description`, `idempotent`, `transient`, `timeout_s`, `probe` and `agents`, see
            ToolOptions.

    Raises:
        ToolError: The function cannot be a tool, for all the reasons that are told in one line.
    """
    # annotations that are texts may name classes of the function in which the tool is made
    made = functools.partial(_tool, options=options, names=dict(sys._getframe(1).f_locals))
    return made if function is None else made(function)


def _tool(function: Callable[..., Any], options: ToolOptions, names: dict[str, Any]) -> Tool:
    if isinstance(function, type) or not all(hasattr(function, it) for it in ("__name__", "__annotations__")):
        what = f"{getattr(function, '__name__', type(function).__name__)} is not a function"
        remedy = 'write @tool(effect="pure") above a function, with another effect if need be'
        raise ToolError(what, remedy=remedy)
    known = [*ToolOptions.__annotations__]
    for odd in sorted(options.keys() - {*known}):
        remedy = did_you_mean(odd, known, f"the options are {', '.join(known)}")
        raise ToolError(f"there is no option {odd!r}", file=f"tool {function.__name__!r}", remedy=remedy)
    given: dict[str, Any] = {"effect": "external", "name": function.__name__, **options}
    given.setdefault("description", inspect.getdoc(function) or "")
    problems: list[str] = []
    if not isinstance(given["description"], str) or not given["description"].strip():
        problems.append("nothing says what it does: write a docstring, or give `description`")
    hints = _hints(function, names, problems)
    contexts = [name for name, hint in hints.items() if Context in (hint, typing.get_origin(hint))]
    if len(contexts) > 1:
        problems.append(f"{' and '.join(map(repr, contexts))} are each the Context: take one")
    offered = {name: hint for name, hint in hints.items() if name not in contexts}
    returned = hints.get("return", Any)
    if inner := tuple(listed(given.pop("agents", ()), "`agents`")):
        given |= {"inner": inner, "effect": "write", "idempotent": True}
        returned = (*typing.get_args(returned)[2:], Any)[0]
        more = options.keys() - {"agents", "name", "description"} or contexts
        if more or _IO in inspect.signature(function).parameters or not inspect.isgeneratorfunction(function):
            problems.append("`agents` need a generator function without io, Context, options: make it one")
        working = [it for it in inner if isinstance(it, Tool) and it.agent is not None]
        if len({it.name for it in working if "task" in it.input_schema["properties"]}) < len(inner):
            raise ToolError("`agents` holds what starts no agent, or a name twice", remedy="use as_tool")
    elif inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        problems.append("it yields, and has no `agents` that it could start: let it return its result")
    types, given["input_schema"] = _input_schema(function, offered, problems)
    given["output_schema"], is_wrapped = result_schema(returned, "serialization", problems)
    try:
        made = Tool(**given, run=_run_of(function, types, contexts, is_wrapped=is_wrapped))
        made.function = function
    except ToolError as error:
        problems.append(f"{error.message}; {error.remedy}")
    if problems:
        raise ToolError("; ".join(problems), file=f"tool {given['name']!r}")
    return made


def _hints(function: Callable[..., Any], names: dict[str, Any], problems: list[str]) -> dict[str, Any]:
    """Return the annotations, each resolved by itself, so that all that cannot be are told."""
    found: dict[str, Any] = {}
    in_module = getattr(inspect.unwrap(function), "__globals__", {})
    for name, text in function.__annotations__.items():
        alone: Any = SimpleNamespace(__annotations__={name: text})
        try:
            hint = typing.get_type_hints(alone, in_module, names, include_extras=True)[name]
            found[name] = plain_type(hint)  # here, and not in each call
        except Exception as error:  # noqa: BLE001 - evaluates foreign text
            problems.append(f"the annotation of {name!r} cannot be resolved ({error}): import what it names")
    return found


def _input_schema(
    function: Callable[..., Any], hints: Mapping[str, Any], problems: list[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the types of the parameters that the model may give, and the schema of the arguments."""
    parameters, types = inspect.signature(function).parameters, {}
    for name, parameter in parameters.items():
        if parameter.kind not in _NAMED:
            problems.append(f"{name!r} cannot be given by its name: write it without * and /")
        elif name not in function.__annotations__ and name != _IO:
            remedy = "use `tool(...)(obj.method)`" if name == "self" else "annotate it, such as str"
            problems.append(f"{name!r} has no type: {remedy}")
        elif name in hints and name != _IO:
            types[name] = hints[name]
    schema = object_schema(types, "validation", problems)
    for name, part in schema["properties"].items():
        for item in getattr(types[name], "__metadata__", ()):
            if isinstance(item, str):
                part["description"] = item
            elif not isinstance(item, Meta):
                problem = f"{name!r} has a {type(item).__name__} beside its type: use msgspec.Meta"
                problems += [problem] if problem not in problems else []
        default = parameters[name].default
        if default is not inspect.Parameter.empty:
            schema["required"].remove(name)
            part["default"] = written(default)  # so that a call that writes it out is the same call
            try:
                read_as(types[name], part["default"])
            except Exception:  # noqa: BLE001 - code of the type runs here
                problems.append(f"the default of {name!r} is not of its type")
    return types, schema


def _run_of(
    function: Callable[..., Any], types: Mapping[str, Any], contexts: list[str], *, is_wrapped: bool
) -> Run:
    """Return the `run` of a tool; the gate has judged the arguments before."""
    takes_io = _IO in inspect.signature(function).parameters

    def values(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
        read = {name: read_as(types[name], value) for name, value in arguments.items()}
        return read | ({_IO: io} if takes_io else {}) | {name: Context(io.deps) for name in contexts}

    def result(value: Any) -> Any:
        return {"result": written(value)} if is_wrapped else written(value)

    @functools.wraps(function)
    async def run_async(arguments: dict[str, Any], io: Any) -> Any:
        return result(await function(**values(arguments, io)))

    @functools.wraps(function)
    def run(arguments: dict[str, Any], io: Any) -> Any:
        return result(function(**values(arguments, io)))

    @functools.wraps(function)
    def run_generator(arguments: dict[str, Any], io: Any) -> Any:
        return result((yield from function(**values(arguments, io))))

    if inspect.isgeneratorfunction(function):
        return run_generator
    # the world awaits a coroutine function, and calls any other in a thread
    return run_async if inspect.iscoroutinefunction(function) else run
