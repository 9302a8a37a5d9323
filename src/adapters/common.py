"""A foreign tool as a governed `Tool`: what all adapters share."""

from __future__ import annotations

import builtins
import contextlib
import inspect
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypedDict

from ..fail.errors import ToolError
from ..runtime.formats import canonical_json
from ..runtime.formats.escape import escape_terminal
from ..runtime.resources.mount_path import parse_path
from ..runtime.resources.url import parse_url
from ..runtime.schema.resource_places import Resource
from ..runtime.tools.contract import EXTERNAL, USES, Run, RunAsync, Tool
from .plain_hints import output_schema, to_data
from .schemas import adopt

_PATHS: Final = ("copy", "text")


class ToolOptions(TypedDict, total=False):
    """What is said of a foreign tool beside its own description.

    Attributes:
        effect: `pure`, `read`, `write`, `network` or `external`, which is the default. Nothing checks it.
        idempotent: Whether the same call may be made twice; by default not.
        resources: What a string is (`url`, `path:read`, `path:write`, `none`), by argument name or by a place such
            as `/items/*/path`.
        transient: Exceptions worth another attempt, of any library.
        parallel: Whether a call may run beside others of the same reply; by default for `pure` and `read`.
        timeout_s: Seconds that an attempt may take.
        name: Instead of the tool's own.
        description: Instead of the tool's own.
        returns: The type of the result, instead of the annotation.
        paths: What a path becomes for a tool that takes no `io`: `"copy"` a private copy to read, `"text"` the
            mount path as text.
    """

    effect: str
    idempotent: bool
    resources: Mapping[str, str] | None
    transient: Iterable[type[BaseException]]
    timeout_s: float | None
    parallel: bool | None
    name: str | None
    description: str | None
    returns: Any
    paths: str | None


@dataclass(frozen=True)
class Foreign:
    """A tool as its framework has it.

    Attributes:
        parameters: The JSON Schema of its arguments.
        call: Called with the arguments and our `io`; returns the result.
        source: What is digested as its code.
        returns: The annotation of its result.
        takes_io: Whether it opens files and connections through `io`.
        call_async: What `call` does, as a coroutine function; None for a tool that has none.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    call: Run
    source: object
    returns: Any
    takes_io: bool = False
    call_async: RunAsync | None = None


def checked_options(options: ToolOptions) -> ToolOptions:
    """Return the options. Raises TypeError as Python does for a keyword that is unknown."""
    known = ToolOptions.__annotations__
    for name in options.keys() - known.keys():
        raise TypeError(f"got an unexpected keyword argument {name!r}")
    return options


def govern(foreign: Foreign, options: ToolOptions) -> Tool:
    """Return the Tool that our loader accepts. Raises ToolError, one line, where it does not."""
    label = escape_terminal(f"tool {foreign.name!r}")
    paths = options.get("paths")
    description = options.get("description") or foreign.description
    if not description:
        raise ToolError("has no description", file=label, remedy="write a docstring, or give description=")
    if paths is not None and paths not in _PATHS:
        raise ToolError(f"paths={paths!r} is unknown", file=label, remedy=f"use one of {', '.join(_PATHS)}")
    kinds, others = _transient(options.get("transient", ()), label)
    declared: list[Resource] = []

    def read(arguments: dict[str, Any]) -> dict[str, Any]:
        for item in declared:
            arguments = changed(arguments, item.path, _canonical_reader(item.kind))
        return arguments

    def run(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
        given = read(arguments)
        try:
            if paths == "copy":
                return {"result": _with_copies(foreign.call, given, io, declared)}
            return {"result": to_data(foreign.call(given, io))}
        except others as error:
            raise _as_connection_error(error) from error

    run.__wrapped__ = foreign.source  # type: ignore[attr-defined]  # whose file is guarded like that of any tool

    async def run_async(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
        assert foreign.call_async is not None
        try:
            return {"result": to_data(await foreign.call_async(read(arguments), io))}
        except others as error:
            raise _as_connection_error(error) from error

    try:
        tool = Tool(
            name=foreign.name,
            description=description,
            input_schema=adopt(foreign.parameters, options.get("resources") or {}, label),
            output_schema=output_schema(options.get("returns", foreign.returns)),
            effect=options.get("effect", EXTERNAL),
            idempotent=options.get("idempotent", False),
            run=run,
            transient=kinds,
            digest=digest_of(foreign.source),
            timeout_s=options.get("timeout_s"),
            parallel=options.get("parallel"),
            # private copies are files, which are written and removed in a thread
            run_async=None if foreign.call_async is None or paths == "copy" else run_async,
        )
    except ToolError as error:
        raise _with_remedy(error) from None
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ToolError(
            f"its schema cannot be read ({type(error).__name__})", file=label, remedy="fix the schema"
        ) from None
    declared += tool.resources
    _check_paths(tool, foreign.takes_io, paths, label)
    return tool


def _with_remedy(error: ToolError) -> ToolError:
    """Return a refusal of the loader with a remedy for someone who did not write the schema."""
    remedy = error.remedy or ""
    if "OUTPUT_SCHEMA" in f"{error.file} {error.message}":
        remedy = "say what it returns with returns=, such as returns=typing.Any"
    elif "x-resource" in remedy:
        place = error.message.split(" ", 1)[0]
        name = place[1:] if place.count("/") == 1 else place
        kinds = '"none"' if "through" in error.message else '"url" (or "path:read", "path:write", "none")'
        remedy = f"say what it is: resources={{{name!r}: {kinds}}}"
    return ToolError(
        escape_terminal(error.message),
        file=escape_terminal(error.file or ""),
        remedy=escape_terminal(remedy) or None,
    )


def _check_paths(tool: Tool, takes_io: bool, paths: str | None, label: str) -> None:
    """Raise ToolError if a tool that opens files by itself takes a path of a mount, which means nothing to it."""
    if takes_io or paths == "text":
        return
    for item in tool.resources:
        if not item.kind.startswith("path:"):
            continue
        where = "/" + "/".join(item.path)
        if paths == "copy" and item.kind == "path:write":
            raise ToolError(
                f"{where} is a path to write, and a copy is read-only",
                file=label,
                remedy="write through io, in a function that takes io",
            )
        if paths == "copy" and "read" not in USES[tool.effect]:
            raise ToolError(
                f"{where} is copied from a mount, which a {tool.effect} tool may not read",
                file=label,
                remedy='say effect="read"',
            )
        if paths is None:
            raise ToolError(
                f"{where} is a path in a mount, and this tool opens files by itself",
                file=label,
                remedy='take io in a function, or say paths="copy" (or "text")',
            )


def _transient(
    given: Iterable[type[BaseException]], label: str
) -> tuple[tuple[type[BaseException], ...], tuple[type[Exception], ...]]:
    """Return the built-in exceptions among `given`, and the others, which are raised as ConnectionError."""
    own: list[type[BaseException]] = []
    others: list[type[Exception]] = []
    for kind in given:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise ToolError(
                "transient= contains something that is not an exception class",
                file=label,
                remedy="name exception classes",
            )
        if kind.__module__ == builtins.__name__:
            own.append(kind)
        else:
            others.append(kind)
    if others and ConnectionError not in own:
        own.append(ConnectionError)
    return tuple(own), tuple(others)


def _as_connection_error(error: Exception) -> Exception:
    """Return a `ConnectionError` that a record shows under the name of the foreign exception."""
    made: Exception = type(type(error).__name__, (ConnectionError,), {})(str(error))
    return made


# ---- arguments -------------------------------------------------------------------------------------------


def changed(value: Any, path: Sequence[str], change: Callable[[str], str]) -> Any:
    """Return a copy of arguments with `change` applied to each text at a resource's place."""
    if not path:
        return change(value) if isinstance(value, str) else value
    head, rest = path[0], path[1:]
    if isinstance(value, dict):
        at = value if head == "*" else ([head] if head in value else [])
        return {k: changed(item, rest, change) if k in at else item for k, item in value.items()}
    if isinstance(value, list):
        return [
            changed(item, rest, change) if head == "*" or head == str(i) else item
            for i, item in enumerate(value)
        ]
    return value


def _canonical_reader(kind: str) -> Callable[[str], str]:
    """Return a function from what the model wrote to what the gate read: another parser may read it differently."""
    if kind == "url":
        return lambda text: parse_url(text).url
    return lambda text: parse_path(text).text


def _with_copies(
    call: Run,
    arguments: dict[str, Any],
    io: Any,
    declared: Iterable[Resource],
) -> Any:
    """Call a tool with private copies of the files it reads; their folder is removed from its result."""
    with tempfile.TemporaryDirectory(prefix="tachograph-copy-", ignore_cleanup_errors=True) as folder:
        home = os.path.realpath(folder)

        def copied(path: str) -> str:
            place = Path(home, path)
            text = io.read(path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8", newline="")
            return str(place)

        given = arguments
        for item in declared:
            if item.kind == "path:read":
                given = changed(given, item.path, copied)
        return _without(to_data(call(given, io)), f"{home}/")


def _without(value: Any, text: str) -> Any:
    if isinstance(value, str):
        return value.replace(text, "")
    if isinstance(value, dict):
        return {_without(key, text): _without(item, text) for key, item in value.items()}
    return [_without(item, text) for item in value] if isinstance(value, list) else value


# ---- code ------------------------------------------------------------------------------------------------


def digest_of(source: object) -> str | None:
    """Return the SHA-256 of the source of a function or class, else of its module's file, None without either."""
    with contextlib.suppress(OSError, TypeError):
        return canonical_json.digest(inspect.getsource(source).encode("utf-8"))  # type: ignore[arg-type]
    with contextlib.suppress(OSError, TypeError):
        return canonical_json.digest(Path(inspect.getfile(source)).read_bytes())  # type: ignore[arg-type]
    return None
