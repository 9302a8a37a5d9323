"""The tool contract: what a tool must have, checked when a `Tool` is made.

A tool is a plain module that imports nothing of ours:

- `DESCRIPTION` str, for the model
- `INPUT_SCHEMA`, `OUTPUT_SCHEMA` JSON Schemas (Draft 2020-12) of objects with `additionalProperties: false`
- `EFFECT` one of `pure`, `read`, `write`, `network`, `external`; `IDEMPOTENT` bool
- `TRANSIENT` tuple of builtin exception types that are worth another attempt
- `run(args: dict, io) -> dict`, or the same as a coroutine function
- optional: `TIMEOUT_S` seconds an attempt may take,
  `probe(args, io) -> "done" | "not_done" | "unknown"`, asked whether an attempt took place whose outcome was lost

A string in `INPUT_SCHEMA` that names a resource says so with `"x-resource": "url"`, `"path:read"` or `"path:write"`; an
`external` tool says of every other string that it is `"text"` or `"any"`, or the policy does.
"""

from __future__ import annotations

import builtins
import copy
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from ...fail.errors import ToolError
from ..formats import strict_json
from ..log.values import Call, ToolOffer
from ..resources.url import Malformed, parse_url
from ..schema.defaults import fill_in
from ..schema.places import Place, fits, places_of
from ..schema.validator import SchemaValidator, pruned, shape_of, validator_of

# what a tool of each effect kind may use of its `io`; what it does beside `io` only `external` covers
USES: Final[Mapping[str, frozenset[str]]] = {
    "pure": frozenset(),
    "read": frozenset({"read", "list"}),
    "write": frozenset({"read", "list", "write"}),
    "network": frozenset({"read", "list", "write", "get"}),
    "external": frozenset({"read", "list", "write", "get"}),
}
EFFECTS: Final = tuple(USES)
# what is the schema of an object without properties, and what every schema of a tool has
CLOSED: Final[Mapping[str, Any]] = {"type": "object", "additionalProperties": False}
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")

Run = Callable[[dict[str, Any], Any], Any]
"""The function of a tool: of its arguments and `io`, to its result."""


class StartsAgent(Protocol):
    """An agent that a call may start."""

    @property
    def tools(self) -> Sequence[Tool]:
        """Its own tools."""

    def start(self, place: str, arguments: dict[str, Any]) -> Any:
        """Return the RunSpec of such an agent, given its place in the run and the arguments of the call."""


class Tool:
    """A tool, checked when it is made.

    Args:
        name: Letters, digits, `-` and `_`, starting with a letter, at most 64.
        description: What the model reads about it.
        input_schema: JSON Schema of its arguments.
        output_schema: JSON Schema of its result.
        effect: `pure`, `read`, `write`, `network` or `external`.
        run: The function, called with arguments and `io`.
        idempotent: Whether a repeated call does no harm; a `pure` or `read` tool is always idempotent.
        transient: Builtin exceptions after which another attempt is worthwhile.
        timeout_s: Seconds an attempt may take, None for no limit.
        probe: Tells whether an attempt took place whose outcome was lost.
        digest: SHA-256 of the source of its module, "" for one made in code.
        file: What messages call its file, "" for one made in code.
        is_foreign: Whether a server executes it. It is external, unless a policy says that it only reads.
        agent: The agent that a call starts, in the place of a function.
        hands_over: Whether that agent goes on in the place of the one that calls.
        stays: Whether that agent waits for more after each answer, as a team mate of the name of the tool.
        inner: Tools that start agents, for the function alone, which then is a generator function. The loop carries it
            out, and it may yield the name of one of them with a task.
        answer: What answers in the place of a function, given the agent that calls (its RunState) and the arguments.

    Attributes:
        function: The function that it was made from, which a call in Python calls.
        uses: The methods of `io` that its effect kind covers.
        acts_beside_io: Whether it does what nobody sees: its texts are judged, and a check takes its results from the
            record.
        is_once: Whether its effect must not happen twice, so that its beginning is recorded before it.

    Raises:
        ToolError: The tool breaks the contract.
    """

    def __init__(
        self,
        name: str,
        description: str,
        input_schema: Mapping[str, Any],
        output_schema: Mapping[str, Any],
        effect: str,
        run: Run,
        *,
        idempotent: bool = False,
        transient: Sequence[type[Exception]] = (),
        timeout_s: float | None = None,
        probe: Run | None = None,
        digest: str = "",
        file: str = "",
        is_foreign: bool = False,
        agent: StartsAgent | None = None,
        hands_over: bool = False,
        stays: bool = False,
        inner: Sequence[Tool] = (),
        answer: Callable[[Any, dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        self.file = file or f"tool {name!r}"
        wrong: list[str] = []  # whoever writes a tool is told all of it at once
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            wrong.append(f"{name!r:.80} is no name; use up to 64 letters, digits, - or _, a letter first")
        if effect not in EFFECTS:
            wrong.append(f"EFFECT is {effect!r}; use one of {', '.join(EFFECTS)}")
        if not all(map(callable, (run, probe or run))):
            wrong.append("run and probe must be functions; give a function run(args, io)")
        if timeout_s is not None and (type(timeout_s) not in (int, float) or not 0 < timeout_s <= 86_400):
            wrong.append("TIMEOUT_S must be more than 0 and at most 86400; give seconds, such as 20")
        if not isinstance(transient, list | tuple) or not all(map(_is_builtin_exception, transient)):
            wrong.append("TRANSIENT must be a tuple of builtin exception types; fix TRANSIENT")
        self.input_schema, self._input_text = _schema("INPUT_SCHEMA", input_schema, wrong)
        self.output_schema, output_text = _schema("OUTPUT_SCHEMA", output_schema, wrong)
        try:
            self.marked = self.places = places_of(self.input_schema)
        except ValueError as error:
            wrong.append(f"INPUT_SCHEMA: {error}; fix the schema")
        if wrong:
            raise refusal(wrong, self.file)
        self.name, self.description, self.run, self.probe = name, description, run, probe
        self.function: Callable[..., Any] = run
        self.transient, self.timeout_s = tuple(transient), timeout_s
        self.digest, self.is_foreign, self.answer = digest, is_foreign, answer
        self._set_effect(effect, idempotent)
        self.agent, self.hands_over, self.stays = agent, hands_over, stays
        self.inner = {it.name: it for it in inner}
        self.output_validator = validator_of(output_text)
        self._has_defaults = b'"default"' in self._input_text

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function as Python does, such as in a test of it: nothing is decided, and nothing recorded."""
        return self.function(*arguments, **named)

    def texts(self, arguments: Any) -> list[tuple[str, str]]:
        """Return what each text at a place among some arguments is judged as, and the text."""
        return [found for place in self.places for found in place.find(arguments)]

    def under(self, places: tuple[Place, ...], effect: str) -> Tool:
        """Return the tool as a policy has it.

        Args:
            places: The places that the policy names, for a tool that acts beside `io`.
            effect: The effect that the policy gives to a tool of a server; "" for none.
        """
        if not self.acts_beside_io:
            return self
        tool = copy.copy(self)
        tool.places = self.marked + places
        if self.is_foreign:  # it may come from under another policy
            tool._set_effect(effect or "external", effect == "read")
        return tool

    def starting(self, agents: Sequence[Tool]) -> Tool:
        """Return the tool with agents that its function may start.

        Args:
            agents: Tools that start agents.

        Raises:
            ToolError: Its function is not a generator function.
        """
        if not inspect.isgeneratorfunction(self.run):
            what = "run can start no agents, since it is not a generator function"
            raise ToolError(what, file=self.file, remedy="let it `yield NAME, TASK`")
        tool = copy.copy(self)
        tool.inner = {it.name: it for it in agents}
        return tool

    def _set_effect(self, effect: str, idempotent: bool) -> None:
        self.effect, self.uses = effect, USES[effect]
        self.idempotent = idempotent or effect in ("pure", "read")  # which change nothing
        self.acts_beside_io = self.is_foreign or effect == "external"
        self.is_once = effect == "external" or (effect in ("write", "network") and not idempotent)

    def input_validator(self, *, strict: bool) -> SchemaValidator:
        """Return the validator of its arguments; without `strict` it drops limits on values."""
        schema = self._input_text if strict else strict_json.canonical(shape_of(self.input_schema))
        return validator_of(schema)

    def filled(self, arguments: dict[str, Any], *, keeps_null: bool = True) -> dict[str, Any]:
        """Return arguments with the defaults of the input schema in the place of what is absent.

        Args:
            arguments: The arguments.
            keeps_null: Whether a null that is the default stays. A condition of a policy does not judge it, as it does
                not judge what is absent.
        """
        if not self._has_defaults:
            return arguments
        full = copy.deepcopy(arguments)
        fill_in(full, self.input_schema, keeps_null=keeps_null)
        return full

    def offer(self) -> ToolOffer:
        """Return the tool as the model is offered it."""
        is_of_loop = self.agent is not None or self.answer is not None or self.inner
        effect = "agent" if is_of_loop else self.effect
        return ToolOffer(self.name, self.description, effect, without_marks(self.input_schema))


def call_key(call: Call, tool: Tool | None) -> str:
    """Return the identity of a call, the same however its URLs are spelled and whether defaults are written out."""
    arguments: Any = call.arguments
    if arguments is None:
        return strict_json.digest(strict_json.canonical([call.name, None, call.text]))
    if tool is not None:
        arguments = tool.filled(arguments)
        for place in tool.places:
            if place.kind in ("url", "text"):
                arguments = _spelled(arguments, place.path, place)
    return strict_json.digest(strict_json.canonical([call.name, arguments]))


def _spelled(value: Any, path: tuple[str, ...], place: Place) -> Any:
    """Return a value with the URLs at a place spelled as the parser spells them."""
    if not path:
        if isinstance(value, str) and place.kind_of(value) == "url":
            with suppress(Malformed):
                return parse_url(value).url
        return value
    head, rest = path[0], path[1:]
    if isinstance(value, dict):
        return value | {key: _spelled(it, rest, place) for key, it in value.items() if fits(head, key)}
    if isinstance(value, list) and head == "*":
        return [_spelled(item, rest, place) for item in value]
    return value


def not_run(args: dict[str, Any], io: Any) -> dict[str, Any]:
    """Stand for the function of a tool that was only read, or whose calls the loop itself carries out."""
    raise RuntimeError("this tool has no function that could be run")


def without_marks(schema: Any) -> Any:
    """Return a schema without our `x-` keywords; of some by name, the names stay."""
    # a mark is a text, and what stands by a name is none
    return pruned(schema, lambda key, it, is_name: key[:2] == "x-" and (not is_name or isinstance(it, str)))


def refusal(wrong: list[str], file: str) -> ToolError:
    """Return the error that names all that is wrong with a tool, each as `what; what to do`."""
    message, _, remedy = "; ".join(wrong).rpartition("; ")
    return ToolError(message, file=file, remedy=remedy)


def _is_builtin_exception(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Exception) and kind.__module__ == builtins.__name__


def _schema(which: str, schema: Mapping[str, Any], wrong: list[str]) -> tuple[dict[str, Any], bytes]:
    """Return a copy of a schema, so that changes by the caller change nothing, and its text; note what is wrong."""
    try:
        plain = strict_json.as_json(dict(schema) if isinstance(schema, Mapping) else {})
    except strict_json.NotJson as error:
        wrong.append(f"{which} is not JSON: {error.reason}; fix the schema")
        plain = {}
    else:
        if plain.get("type") != "object" or plain.get("additionalProperties") is not False:
            wrong.append(f"{which} must be an object schema with additionalProperties: false; add it")
    text = strict_json.canonical(plain)
    try:
        validator_of(text)
    except ValueError as error:
        wrong.append(f"{which} is {error}; fix the schema")
        plain = {}
    return plain, text
