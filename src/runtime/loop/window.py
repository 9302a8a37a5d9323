"""What the model sees: the messages of the run so far."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from ..formats.strict_json import canonical
from ..log.events import ModelReplied
from ..log.values import Call
from ..models.failure_messages import NO_WORDS, reply_again, unusable_reply
from ..models.types import Message, Messages, call_text


def _as_told(call: Call) -> Message:
    return {"id": call.id, "name": call.name, "arguments": call_text(call)}


class Window:
    """The messages so far, as canonical texts."""

    def __init__(self) -> None:
        self._texts: list[bytes] = []
        self._size = 0
        self._added = sha256()

    def add(self, message: Message) -> None:
        """Add a message."""
        text = canonical(message)
        self._texts.append(text)
        self._size += len(text)
        self._added.update(text)

    def add_reply(self, reply: ModelReplied) -> None:
        """Add a reply of the model."""
        message: Message = {"role": "assistant", "content": reply.text or reply.answer or ""}
        if reply.calls:
            message["tool_calls"] = [_as_told(call) for call in reply.calls]
        if reply.raw is not None:
            message["raw"] = reply.raw
        self.add(message)

    def add_unusable(self, problem: str, reply: ModelReplied | None) -> None:
        """Add a reply that cannot be used, and why; each of its calls gets a message in the place of a result."""
        calls = reply.calls if reply is not None else []
        text = reply.text or reply.answer if reply is not None else ""
        message: Message = {"role": "assistant", "content": text or ("" if calls else NO_WORDS)}
        if calls:
            message["tool_calls"] = [_as_told(call) for call in calls]
        self.add(message)
        for call in calls:
            self.add_result(call, unusable_reply(problem))
        if not calls:
            self.add(reply_again(problem))

    def add_result(self, call: Call, told: Any) -> None:
        """Add what the model reads of a call."""
        text = canonical(told).decode()
        self.add({"role": "tool", "tool_call_id": call.id, "name": call.name, "content": text})

    def messages(self) -> Messages:
        """Return the messages as a model gets them."""
        return Messages(self._texts, self._size)

    def take_digest(self) -> str:
        """Return a digest of what was added since this was asked last; where all are equal, so was each request."""
        digest, self._added = self._added.hexdigest()[:12], sha256()
        return digest
