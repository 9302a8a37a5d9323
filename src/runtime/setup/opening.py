"""What a run opens with beside its question: instructions, the values of their variables, and earlier messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from ...fail.errors import InputError
from ...light_dataclasses import dataclass, field
from ..core.lines import Line, RunLine
from ..core.redaction import Redactor
from ..formats import canonical_json
from ..formats.canonical_json import NotJson
from ..models.types import Message

# characters of instructions, and of the value of a variable; a larger text is data, and belongs into a mount
MAX_TEXT: Final = 200_000
MAX_MESSAGES: Final = 10_000
# `{name}` stands for a variable, `{{name}}` for the text `{name}`; every other brace is text
_VARIABLE: Final = re.compile(r"\{\{([A-Za-z_][A-Za-z0-9_]*)\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEYS: Final = {
    "user": ({"role", "content"}, set()),
    "assistant": ({"role", "content"}, {"tool_calls", "raw"}),
    "tool": ({"role", "tool_call_id", "content"}, {"name"}),
}
_SHAPES: Final = (
    '{"role": "user", "content": TEXT}, {"role": "assistant", "content": TEXT, "tool_calls": [{"id", "name", '
    '"arguments": JSON TEXT}]} or {"role": "tool", "tool_call_id", "content": TEXT}'
)


@dataclass(frozen=True)
class Opening:
    """What a run opens with.

    Attributes:
        instructions: The text that the model gets as its system message, variables filled in; None without one.
        variables: The values of the variables, by name.
        file: Path and SHA-256 of the file that the instructions are from, None where they are from no file.
        history: The messages before the question, as `History` holds them.
    """

    instructions: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    file: Mapping[str, str] | None = None
    history: tuple[Message, ...] = ()

    @classmethod
    def of_line(cls, run: Line | RunLine) -> Opening:
        """Return what the run line of a record opens with."""
        run = cast(dict[str, Any], run)
        texts = [entry["text"] for entry in run.get("request_parts", {}).get("instructions", ())]
        source = run.get("instructions", {})
        file = {"path": str(source["file"]), "sha256": ""} if "file" in source else None
        return cls(
            texts[0] if texts else None,
            dict(source.get("variables", {})),
            file,
            tuple(run.get("history", ())),
        )

    def without_secrets(self, redact: Redactor) -> Opening:
        """Return this with each secret in it replaced."""
        return Opening(
            None if self.instructions is None else redact(self.instructions),
            {name: redact(value) for name, value in self.variables.items()},
            self.file,
            tuple(_redacted(message, redact) for message in self.history),
        )

    def run_line_keys(self) -> dict[str, Any]:
        """Return the keys that stand in a run line for this; none for a run that opens with its question."""
        source: dict[str, Any] = {}
        if self.file is not None:
            source["file"] = self.file["path"]
        if self.variables:
            source["variables"] = dict(self.variables)
        keys: dict[str, Any] = {"instructions": source} if source else {}
        if self.history:
            keys["history"] = [dict(message) for message in self.history]
        return keys

    def as_text(self) -> str:
        """Return the texts of this as canonical JSON, to be compared."""
        return canonical_json.encode(
            [self.instructions, dict(self.variables), [dict(message) for message in self.history]]
        )


def opening_of(
    template: str | None, variables: Mapping[str, str] | None, history: Iterable[Mapping[str, Any]] | None
) -> Opening:
    """Return what a run opens with.

    Args:
        template: The instructions, in which `{name}` stands for a variable; None without any.
        variables: The values of the variables.
        history: The messages before the question.

    Raises:
        InputError: A variable has no value or is not named, or the history is none that a model can be sent.
    """
    values = _checked_values(variables or {})
    return Opening(_filled(template, values), values, None, _checked_history(history or ()))


# ---- instructions ------------------------------------------------------------------------------------------


def check_question(question: object) -> None:
    """Raise InputError for a question that no record can hold."""
    try:
        cast(str, question).encode("utf-8")
    except (AttributeError, UnicodeEncodeError):
        raise InputError("the question must be text", remedy="give a str without lone surrogates") from None


def check_template(template: object) -> None:
    """Raise InputError for instructions that no model can be sent."""
    if not isinstance(template, str) or not template.strip():
        raise InputError("the instructions must be a text", remedy="give a str that is not empty, or none")
    _check_text(template, "the instructions")


def variables_in(template: str | None) -> set[str]:
    """Return the names of the variables in instructions."""
    return {match[2] for match in _VARIABLE.finditer(template or "") if match[2] is not None}


def _filled(template: str | None, values: Mapping[str, str]) -> str | None:
    used: set[str] = set()

    def value(match: re.Match[str]) -> str:
        literal, name = match.groups()
        if literal is not None:
            return f"{{{literal}}}"
        used.add(name)
        if name not in values:
            raise InputError(
                f"the instructions name the variable {name!r}, which has no value",
                remedy=f"give variables={{{name!r}: TEXT}} or --variable {name}=TEXT, or write {{{{{name}}}}} for the "
                "text itself",
            )
        return values[name]

    text = None if template is None else _VARIABLE.sub(value, template)
    unused = sorted(values.keys() - used)
    if unused:
        raise InputError(
            f"the instructions do not name the variable {unused[0]!r}",
            remedy=f"write {{{unused[0]}}} where its value belongs, or leave it out of variables",
        )
    return text


def _checked_values(variables: object) -> dict[str, str]:
    if not isinstance(variables, Mapping):
        raise InputError("variables must be a mapping", remedy="give a dict of texts by name")
    for name, value in variables.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InputError(
                f"{str(name)[:80]!r} is not the name of a variable", remedy="use letters, digits and _"
            )
        if not isinstance(value, str):
            raise InputError(f"the variable {name!r} is not a text", remedy="give a str")
        _check_text(value, f"the variable {name!r}")
    return {name: variables[name] for name in sorted(variables)}


def _check_text(text: str, what: str) -> None:
    if len(text) > MAX_TEXT:
        raise InputError(f"{what}: more than {MAX_TEXT:,} characters", remedy="put data into a mount")
    try:
        canonical_json.encode(text)
    except NotJson as error:
        raise InputError(f"{what}: {error.reason}", remedy="give text without lone surrogates") from None


# ---- history -----------------------------------------------------------------------------------------------


def _checked_history(history: object) -> tuple[Message, ...]:
    """Return messages in the form of our own, their calls named by place. Raises InputError."""
    if isinstance(history, str | Mapping) or not isinstance(history, Iterable):
        raise InputError("the history must be a list of messages", remedy=_SHAPES)
    out: list[Mapping[str, Any]] = []
    open_calls: dict[str, tuple[str, str]] = {}  # id -> our own id, name
    count = 0
    for number, message in enumerate(history, start=1):
        if number > MAX_MESSAGES:
            raise InputError(
                f"the history has more than {MAX_MESSAGES:,} messages", remedy="leave out old ones"
            )
        _check_message(number, message)
        if message["role"] == "tool":
            known = open_calls.pop(message["tool_call_id"], None)
            if known is None:
                raise _wrong(number, "is the result of no call before it", "let each result follow its call")
            if message.get("name", known[1]) != known[1]:
                raise _wrong(number, f"is the result of a call of {known[1]!r}", "give the tool's own name")
            own, name = known
            out.append({"role": "tool", "tool_call_id": own, "name": name, "content": message["content"]})
            continue
        if open_calls:
            raise _wrong(number, f"comes before the result of {next(iter(open_calls))!r}", _RESULT_EACH)
        made = {key: message[key] for key in ("role", "content", "raw") if key in message}
        calls = []
        for call in message.get("tool_calls", ()):
            if call["id"] in open_calls:
                raise _wrong(number, f"has two calls {call['id']!r}", "give each call an id of its own")
            open_calls[call["id"]] = (f"hc_{count}", call["name"])
            calls.append({"id": f"hc_{count}", "name": call["name"], "arguments": call["arguments"]})
            count += 1
        out.append({**made, "tool_calls": calls} if calls else made)
    if open_calls:
        raise _wrong(len(out), f"has the call {next(iter(open_calls))!r} without a result", _RESULT_EACH)
    try:
        return tuple(json.loads(canonical_json.encode(message)) for message in out)
    except NotJson as error:
        raise InputError(f"the history is not JSON: {error.reason}", remedy=_SHAPES) from None


_RESULT_EACH: Final = "let the result of each call follow it, before the next message"


def _check_message(number: int, message: object) -> None:
    """Raise InputError for a message that is of none of the three shapes."""
    role = message.get("role") if isinstance(message, Mapping) else None
    if not isinstance(message, Mapping) or not isinstance(role, str) or role not in _KEYS:
        raise _wrong(number, "is of no role that a history has", _SHAPES)
    needed, allowed = _KEYS[role]
    if not needed <= message.keys() or not message.keys() <= needed | allowed:
        raise _wrong(number, "has other keys than its role", _SHAPES)
    texts = [message["content"], message.get("tool_call_id", ""), message.get("name", "")]
    calls = message.get("tool_calls", [])
    if not isinstance(calls, list | tuple):
        raise _wrong(number, "has tool_calls that are no list", _SHAPES)
    for call in calls:
        if not isinstance(call, Mapping) or call.keys() != {"id", "name", "arguments"}:
            raise _wrong(number, "has a call with other keys than id, name and arguments", _SHAPES)
        texts += call.values()
    if not all(isinstance(text, str) for text in texts):
        raise _wrong(number, "holds something else where text belongs", _SHAPES)


def _wrong(number: int, what: str, remedy: str) -> InputError:
    return InputError(f"message {number} of the history {what}", remedy=remedy)


def _redacted(message: Message, redact: Redactor) -> Message:
    """Return a message with each secret replaced; within JSON text the strings are looked at, as the tools see them."""
    out = message.copy()
    out["content"] = _json_text(out["content"], redact) if out["role"] == "tool" else redact(out["content"])
    if "tool_calls" in out:
        out["tool_calls"] = [
            {
                "id": call["id"],
                "name": redact(call["name"]),
                "arguments": _json_text(call["arguments"], redact),
            }
            for call in out["tool_calls"]
        ]
    if "name" in out:
        out["name"] = redact(out["name"])
    if "raw" in out:
        out["raw"] = redact.data(canonical_json.freeze(out["raw"])).value()
    return out


def _json_text(text: str, redact: Redactor) -> str:
    try:
        return redact.data(canonical_json.parse(text)).text
    except NotJson:
        return redact(text)
