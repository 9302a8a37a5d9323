"""The tool contract: what a tool must have, checked when a `Tool` is made.

A tool is a plain module that imports nothing of ours:

- `DESCRIPTION` str, for the model
- `INPUT_SCHEMA`, `OUTPUT_SCHEMA` JSON Schema (Draft 2020-12) of objects with `additionalProperties: false`
- `EFFECT` one of `pure`, `read`, `write`, `network`, `external`; `IDEMPOTENT` bool
- `TRANSIENT` tuple of builtin exception types that are worth another attempt
- `run(args: dict, io) -> dict`, or the same as a coroutine function
- optional: `PARALLEL` whether a call of it may run beside other calls of the same reply, by default for `pure` and
  `read`; `IMPORTS` names of modules that it needs beside the listed ones (`source_scan`), `TIMEOUT_S` seconds an
  attempt may take, `ISOLATE` True for a worker process of its own,
  `probe(args, io) -> "done" | "not_done" | "unknown"`, asked whether an attempt took place whose outcome was lost,
  `EXAMPLES` arguments of a call that works, under `"good"`, and of one that does not fit, under `"bad"` (`examples`)

A string in `INPUT_SCHEMA` that names a resource says so with `"x-resource": "url"`, `"path:read"` or
`"path:write"`; one that only looks like a resource says `"x-resource": "none"`.
"""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any, Final

from ...fail.errors import ToolError
from ...light_dataclasses import dataclass, field
from ..formats import canonical_json
from ..resources.http_methods import METHODS, SAFE_METHODS
from ..schema.dialect import check_input, check_output, shape, without_extensions
from ..schema.number_limits import place_beyond, without_unreachable
from ..schema.resource_places import Resource
from ..schema.schema_errors import did_you_mean
from ..schema.validator import SchemaValidator, place_of_schema_error
from .coroutines import is_async

# what a tool of each effect kind may use of its `io`; what it does beside `io` only `external` covers
USES: Final[Mapping[str, frozenset[str]]] = {
    "pure": frozenset(),
    "read": frozenset({"read", "list"}),
    "write": frozenset({"read", "list", "write"}),
    "network": frozenset({"read", "list", "write", "get", *(f"request:{method}" for method in SAFE_METHODS)}),
    "external": frozenset({"read", "list", "write", "get", *(f"request:{method}" for method in METHODS)}),
}
EFFECTS: Final = tuple(USES)
EXTERNAL: Final = "external"
SHIPPED: Final = ("search", "fetch", "read", "write", "summarize")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}\Z")


Run = Callable[[dict[str, Any], Any], Any]
"""A tool's function: of its arguments and `io`, to its result."""

RunAsync = Callable[[dict[str, Any], Any], Awaitable[Any]]
"""The same for an event loop."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a worker makes a tool's module from.

    Attributes:
        source: The source of the module.
        module: The module's name in this process.
        label: What messages call it.
        file: The path of its file, None if it has none.
        package: The package that it imports from, None for a module that no import made.
        run: What the tool runs in this process.
    """

    source: bytes
    module: str
    label: str
    file: str | None
    package: str | None
    run: Run


@dataclass(frozen=True)
class Tool:
    """A tool, checked when it is made. Raises ToolError where it breaks the contract.

    Attributes:
        name: Letters, digits, `-` and `_`, starting with a letter, at most 64.
        description: What the model reads about it.
        input_schema: JSON Schema of its arguments, a copy of what was given.
        output_schema: JSON Schema of its result, a copy of what was given.
        effect: One of EFFECTS.
        idempotent: Whether a repeated call does no harm.
        run: The function, called with arguments and `io`.
        transient: Builtin exceptions after which another attempt is worthwhile.
        digest: SHA-256 of its module's source, None for one made in code.
        file: What messages call its file.
        timeout_s: Seconds an attempt may take, None for no limit.
        isolate: Whether it runs in a worker process.
        origin: What a worker makes its module from, None if there is no source.
        probe: Tells whether an attempt took place whose outcome was lost.
        run_async: What `run` does, as a coroutine function, for an event loop to await; `run` may be one itself.
        imports: The modules outside the project that it says it needs.
        parallel: Whether a call may run beside others of the same reply; None for what its effect kind says.
        examples: Arguments of a call that works, under `good`, and of one that does not fit, under `bad`.
        modules: Modules of its project that it needs: path and SHA-256; None if its source was not looked through.
        resources: Where its arguments hold URLs and paths.
        schema_texts: Input and output schema as canonical JSON, as they were when the tool was made.

    Example:
        >>> from tachograph import Tool
        >>> properties = {"text": {"type": "string"}}
        >>> schema = {"type": "object", "properties": properties, "additionalProperties": False}
        >>> def run(arguments, io):
        ...     return {"text": arguments["text"].upper()}
        >>> tool = Tool("upper", "Return upper case.", schema, schema, "pure", True, run)
        >>> tool.run({"text": "stop"}, None)
        {'text': 'STOP'}
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any]
    effect: str
    idempotent: bool
    run: Run
    transient: tuple[type[BaseException], ...] = ()
    digest: str | None = None
    file: str | None = None
    timeout_s: float | None = None
    isolate: bool = False
    origin: Origin | None = field(default=None, repr=False, compare=False)
    probe: Run | None = None
    imports: tuple[str, ...] = ()
    modules: tuple[tuple[str, str], ...] | None = None
    parallel: bool | None = None
    examples: Mapping[str, Mapping[str, Any]] | None = None
    run_async: RunAsync | None = field(default=None, repr=False, compare=False)
    resources: tuple[Resource, ...] = field(init=False, default=())
    schema_texts: tuple[str, str] = field(init=False, repr=False, compare=False, default=("", ""))

    def __post_init__(self) -> None:
        texts = _check(self)
        object.__setattr__(self, "schema_texts", texts)
        # what the caller does with the given schemas from here on changes nothing
        object.__setattr__(self, "input_schema", json.loads(texts[0]))
        object.__setattr__(self, "output_schema", json.loads(texts[1]))
        object.__setattr__(self, "resources", _check_schemas(*texts, _label(self)))

    @property
    def is_external(self) -> bool:
        """Whether its effect is never performed again where a record stands."""
        return self.effect == EXTERNAL

    @property
    def is_parallel(self) -> bool:
        """Whether a call of it may run beside other calls of the same reply: as declared, else if it only reads."""
        return self.effect in ("pure", "read") if self.parallel is None else self.parallel

    @property
    def awaitable_run(self) -> Run | None:
        """What an event loop awaits, None for a tool without a coroutine function."""
        return self.run_async or (self.run if is_async(self.run) else None)

    @property
    def is_declared(self) -> bool:
        """Whether its effect kind is only declared: its source was not looked through."""
        return not self.is_external and self.modules is None

    @property
    def uses(self) -> frozenset[str]:
        """The methods of `io` that its effect kind covers."""
        return USES[self.effect]

    @cached_property
    def has_defaults(self) -> bool:
        """Whether its input schema may give a property a default."""
        return '"default":' in self.schema_texts[0]

    @cached_property
    def schema_digest(self) -> str:
        """SHA-256 of description, input and output schema in canonical JSON: what model and gate rely on."""
        return canonical_json.digest(
            canonical_json.encode([self.description, *map(canonical_json.Fragment, self.schema_texts)])
        )

    @cached_property
    def input_validator(self) -> SchemaValidator:
        """The validator of arguments."""
        return _validator(self.schema_texts[0])

    @cached_property
    def shape_validator(self) -> SchemaValidator:
        """The input schema without limits on values; types, required and undeclared properties remain."""
        return _validator(canonical_json.encode(shape(json.loads(self.schema_texts[0]))))

    @cached_property
    def output_validator(self) -> SchemaValidator:
        """The validator of results."""
        return _validator(self.schema_texts[1])

    @cached_property
    def offered_schema(self) -> str:
        """The input schema as the model sees it, canonical JSON without our `x-` keywords."""
        return _offered(self.schema_texts[0])


@lru_cache(maxsize=256)
def _validator(schema: str) -> SchemaValidator:
    """Return the validator of a schema, given as canonical JSON: one for all tools that have it.

    Cached, since compiling one costs as much as hundreds of calls, and a check of many runs loads the same tools.
    """
    return SchemaValidator(json.loads(schema))


@lru_cache(maxsize=256)
def _offered(schema: str) -> str:
    return canonical_json.encode(without_extensions(json.loads(schema)))


def _label(tool: Tool) -> str:
    """Return what messages call a tool."""
    return tool.file or f"tool {tool.name!r}"


def _check(tool: Tool) -> tuple[str, str]:
    """Return the schemas of a tool as canonical JSON. Raises ToolError where the tool breaks the contract."""
    label = _label(tool)
    if not _NAME.match(tool.name):
        raise ToolError(
            f"{tool.name[:80]!r} is not a valid tool name", file=label, remedy="use letters, digits, - and _"
        )
    if tool.effect not in EFFECTS:
        raise ToolError(
            f"EFFECT must be one of {', '.join(EFFECTS)}",
            file=label,
            remedy=did_you_mean(tool.effect, EFFECTS) or f"use one of {', '.join(EFFECTS)}",
        )
    if not callable(tool.run):
        raise ToolError("run must be callable", file=label, remedy="give a function run(args, io)")
    _check_limits(tool, label)
    for kind in tool.transient:
        if not (
            isinstance(kind, type) and issubclass(kind, Exception) and kind.__module__ == builtins.__name__
        ):
            raise ToolError(
                "TRANSIENT may hold builtin exception types only", file=label, remedy="fix TRANSIENT"
            )
    texts = []
    for which in ("input_schema", "output_schema"):
        try:
            texts.append(_canonical(tool, which))
        except canonical_json.NotJson as error:
            big = error.reason == canonical_json.TOO_BIG
            where = f" at {place_beyond(getattr(tool, which))}" if big else ""
            raise ToolError(
                f"{which.upper()} is not JSON: {error.reason}{where}",
                file=label,
                remedy="leave it out, no argument is such a number" if big else "fix the schema",
            ) from None
    return texts[0], texts[1]


def _canonical(tool: Tool, which: str) -> str:
    """Return a schema as canonical JSON, without limits that no number of canonical JSON reaches.

    Raises NotJson.
    """
    schema = dict(getattr(tool, which))
    try:
        return canonical_json.encode(schema)
    except canonical_json.NotJson as error:
        if error.reason != canonical_json.TOO_BIG:
            raise
    try:
        text = canonical_json.encode(without_unreachable(schema))
    except RecursionError:
        raise canonical_json.NotJson("nested too deeply") from None
    return text


def _check_limits(tool: Tool, label: str) -> None:
    seconds = tool.timeout_s
    if seconds is not None and (type(seconds) not in (int, float) or not 0 < seconds <= 86_400):
        raise ToolError(
            "TIMEOUT_S must be more than 0 and at most 86400", file=label, remedy="give seconds, such as 20"
        )
    if type(tool.isolate) is not bool:
        raise ToolError("ISOLATE must be True or False", file=label, remedy="write ISOLATE = True")
    if tool.parallel is not None and type(tool.parallel) is not bool:
        raise ToolError("PARALLEL must be True or False", file=label, remedy="write PARALLEL = True")
    if tool.isolate and (tool.origin is None or tool.origin.run is not tool.run):
        raise ToolError(
            "cannot run in a worker: its run is not the function of its module",
            file=label,
            remedy="load it from a file, or drop ISOLATE",
        )
    if tool.isolate and is_async(tool.run):
        raise ToolError(
            "a coroutine function cannot run in a worker", file=label, remedy="write def run, or drop ISOLATE"
        )
    if tool.probe is not None and not callable(tool.probe):
        raise ToolError("probe must be callable", file=label, remedy="give a function probe(args, io)")


@lru_cache(maxsize=256)
def _check_schemas(input_schema: str, output_schema: str, label: str) -> tuple[Resource, ...]:
    """Return the resources that the input schema declares. Raises ToolError.

    Cached, since a check of many runs loads the same tools.
    """
    resources: tuple[Resource, ...] = ()
    for which, text in (("INPUT_SCHEMA", input_schema), ("OUTPUT_SCHEMA", output_schema)):
        schema = json.loads(text)
        error_place = place_of_schema_error(schema)
        if error_place is not None:
            raise ToolError(
                f"{which} is not a valid schema at {error_place[0]} ({error_place[1]})",
                file=label,
                remedy="fix the schema",
            )
        if schema.get("type") != "object" or schema.get("additionalProperties") is not False:
            raise ToolError(
                f"{which} must be an object schema with additionalProperties: false",
                file=label,
                remedy="add it",
            )
        if which == "OUTPUT_SCHEMA":
            check_output(schema, f"{label}: {which}")
        else:
            resources = check_input(schema, f"{label}: {which}")
        try:
            _validator(text)
        except (
            ValueError,
            RecursionError,
        ) as error:  # no call could be judged by what the library cannot compile
            raise ToolError(
                f"{which} cannot be compiled ({type(error).__name__})", file=label, remedy="fix the schema"
            ) from None
    return resources
