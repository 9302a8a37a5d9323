"""What the model sees: the messages of the run so far."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

from msgspec import json

from ..formats.strict_json import canonical, digest
from ..log.events import ModelReplied
from ..log.values import Call
from ..models.failure_messages import NO_WORDS, reply_again, unusable_reply
from ..models.types import Message, Messages, call_text

_LONG: Final = 200  # bytes of a message whose result is worth a label


def _as_told(call: Call) -> Message:
    return {"id": call.id, "name": call.name, "arguments": call_text(call)}


def _label(content: bytes) -> dict[str, Any]:
    return {"left_out": len(content), "sha256": digest(content)[:12]}


class Window:
    """The messages so far, as canonical texts.

    Attributes:
        size: Bytes of all of them.
        most: Bytes of a result beyond which its beginning alone is shown; 0 for any number.
        cut: Of how many that was so.
    """

    def __init__(self) -> None:
        self._texts: list[bytes] = []
        self._turns: list[int] = []  # at which of them each turn begins
        self.size = self.most = self.cut = 0
        self._added = sha256()

    def add(self, message: Message) -> None:
        """Add a message."""
        text = canonical(message)
        self._texts.append(text)
        self.size += len(text)
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
        text = self.shown(canonical(told).decode())
        self.add({"role": "tool", "tool_call_id": call.id, "name": call.name, "content": text})

    def shown(self, text: str) -> str:
        """Return a result or a message of an agent as the model is shown it."""
        content = text.encode() if self.most else b""
        if self.most >= len(content):
            return text
        beginning = content[: self.most].decode(errors="ignore")
        cut = canonical({"beginning": beginning, "bytes": len(content), "sha256": _label(content)["sha256"]})
        self.cut += len(cut) < len(content)
        return min(cut, content, key=len).decode()

    def messages(self) -> Messages:
        """Return the messages as a model gets them."""
        return Messages(self._texts, self.size)

    def leave_out_results(self, keep: int) -> int:
        """Put labels in the place of results, but for the last messages. Returns of how many."""
        texts, left_out = [*self._texts], 0
        for number, text in enumerate(texts[: max(0, len(texts) - keep)]):
            if len(text) > _LONG and (message := json.decode(text))["role"] == "tool":
                content = message["content"].encode()
                texts[number] = canonical({**message, "content": canonical(_label(content)).decode()})
                left_out += len(texts[number]) < len(text)
        self._put(texts)
        return left_out

    def older_half(self, keep: int) -> int:
        """Return of how many messages a summary may stand in the place, so that results stay with their calls.

        0 where these hold no more than a quarter of all bytes, which is not worth asking a model.
        """
        size = found = saved = 0
        for number, text in enumerate(self._texts[: max(0, len(self._texts) - keep + 1)]):
            if json.decode(text)["role"] != "tool":
                found, saved = number, size
                if size * 2 >= self.size:
                    break
            size += len(text)
        return found if saved * 4 > self.size else 0

    def first(self, number: int, more: Message) -> Messages:
        """Return the first messages, and one more behind them."""
        return Messages([*self._texts[:number], canonical(more)])

    def sum_up(self, number: int, summary: Message) -> None:
        """Put a summary in the place of the first messages."""
        text = canonical(summary)
        self._added.update(text)
        self._put([text, *self._texts[number:]])
        self._turns = [turn - number + 1 for turn in self._turns if turn >= number]

    def begin_turn(self) -> None:
        """Note that a turn of a conversation begins with what is added next."""
        self._turns.append(len(self._texts))

    def take_back(self) -> int:
        """Leave out the last turn, unless it stands in a summary. Returns of how many messages it was."""
        begin = self._turns.pop() if self._turns else len(self._texts)
        left_out = len(self._texts) - begin
        self._put(self._texts[:begin])
        return left_out

    def _put(self, texts: list[bytes]) -> None:
        # another list, since a model may still hold the messages of before
        self._texts, self.size = texts, sum(map(len, texts))

    def take_digest(self) -> tuple[str, int]:
        """Return a digest of what was added since this was asked last, and of how much the beginning alone.

        Where all digests are equal, so was each request.
        """
        digest, self._added = self._added.hexdigest()[:12], sha256()
        cut, self.cut = self.cut, 0
        return digest, cut
