"""Small pieces of mapping that the services share, and strict reading of what they send."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final, TypeVar

from ....fail.errors import InvalidModelOutput
from ...formats import strict_json
from ..types import LLMOutput, Message, ToolCall

JsonObject = dict[str, Any]
T = TypeVar("T")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")


class Cut(Exception):
    """A stream ended, in good order, before the reply did."""


class Service:
    """How a kind of service is spoken to.

    Args:
        sdk: The SDK.
        limit_name: What the service calls the most tokens of a reply.
    """

    def __init__(self, sdk: Any, limit_name: str) -> None:
        self.sdk, self.limit_name = sdk, limit_name


# ---- out -------------------------------------------------------------------------------------------------------------


def wire_name(name: str) -> str:
    """Return a tool's name as the services accept it: a model may have invented one that they would refuse."""
    return _NOT_IN_NAMES.sub("_", name)[:64] or "_"


def arguments_object(text: str) -> JsonObject:
    """Return the arguments of an earlier call as an object; other text is wrapped as the model wrote it."""
    try:
        value = strict_json.parse(text)
    except strict_json.NotJson:
        value = None
    return value if isinstance(value, dict) else {"unparsed": text}


def settings(options: JsonObject, limit_name: str, limit: int, *, has_tools: bool) -> JsonObject:
    """Return the settings of one request: none on tools where there are none."""
    left_out = ["max_tokens", "extra_body", *([] if has_tools else ["tool_choice", "parallel_tool_calls"])]
    body = {name: value for name, value in options.items() if name not in left_out}
    return {**body, **options.get("extra_body", {}), limit_name: limit}


# ---- what goes back with the next request ----------------------------------------------------------------------------


def kept_for(provider: str, kept: Any) -> JsonObject:
    """Return what is to go back, with a digest, since a service refuses signed parts that were changed."""
    try:
        kept = strict_json.as_json(kept)
    except strict_json.NotJson as error:
        raise InvalidModelOutput(f"the reply has a part that is not JSON: {error.reason}") from None
    return {"provider": provider, "kept": kept, "seal": _seal(kept)}


def kept_in(message: Message, provider: str) -> Any:
    """Return what is to go back to this provider, None where there is nothing or a secret was replaced in it."""
    raw: Any = message.get("raw")
    is_ours = isinstance(raw, dict) and raw.get("provider") == provider
    return raw["kept"] if is_ours and raw.get("seal") == _seal(raw.get("kept")) else None


def _seal(kept: Any) -> str:
    return strict_json.digest(strict_json.canonical(kept))


# ---- in --------------------------------------------------------------------------------------------------------------


class Reply:
    """A reply as it arrives.

    Attributes:
        finishes: The service's words for why it stopped, and what they mean.
        begun: Whether some of it has come.
        over: Whether the service has said that it is whole.
        stop: Why the service stopped, in its own word.
        model: The model, as the service says.
        usage: Tokens, as the service says.
    """

    finishes: ClassVar[dict[str, str]]

    def __init__(self) -> None:
        self.begun = self.over = False
        self.stop: object = None
        self.model: object = None
        self.usage: JsonObject = {}

    def whole(self, text: str, calls: list[ToolCall], usage: JsonObject, raw: Any) -> LLMOutput:
        """Return the reply as the loop reads it.

        Args:
            text: The visible text.
            calls: The calls; of a refusal none is kept.
            usage: How many tokens the service has read and written, as of LLMOutput.
            raw: What goes back with the next request.
        """
        finish = self.finishes.get(self.stop, "other") if isinstance(self.stop, str) else "other"
        if calls and finish == "stop":
            finish = "tool_calls"
        elif finish == "tool_calls" and not calls:
            finish = "other"
        if finish == "refusal":
            calls = []
        goes_on = bool(calls) or finish == "pause"
        is_answer = not goes_on and (text or finish in ("refusal", "length"))
        return LLMOutput(
            text=text or None if goes_on else None,
            tool_calls=calls,
            final_answer=text if is_answer else None,
            usage={name: count for name, count in usage.items() if count is not None},
            finish_reason=finish,
            model=self.model if isinstance(self.model, str) else None,
            raw=raw if goes_on else None,
        )


def read(value: object, kind: type[T]) -> T:
    """Return a part of a reply, an empty one for None. Raises InvalidModelOutput for another kind."""
    if not isinstance(value, kind | None):
        raise InvalidModelOutput(f"the reply has something else where a {kind.__name__} belongs")
    return kind() if value is None else value


def read_list(value: object) -> list[JsonObject]:
    """Return a list of objects of a reply, an empty one for None. Raises InvalidModelOutput for anything else."""
    return [read(item, dict) for item in read(value, list)]
