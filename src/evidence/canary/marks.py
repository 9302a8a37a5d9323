"""Marked values: made for one trial, of the shape of a GitHub token, a different one for each way in."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from typing import Final

from ...light_dataclasses import dataclass
from ...runtime.core.run_ids import new_key

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RANDOM: Final = 30
PREFIX: Final = "ghp_"

# what a value can come in by -> where the trial puts it
WAYS: Final[Mapping[str, str]] = {
    "question": "the question of the run",
    "instructions": "the instructions of the agent",
    "variable": "the value of a variable in the instructions",
    "history": "a message before the question",
    "history_call_id": "the id of a call in the messages before the question",
    "reply": "the text of a reply",
    "reply_model": "the name of the model in a reply",
    "reply_finish": "the finish reason of a reply",
    "reply_usage": "a key of the usage of a reply",
    "reply_raw": "what an adapter keeps of a reply",
    "answer": "the final answer",
    "answer_misfit": "a name in an answer that does not fit its schema",
    "model_error": "the message of the model's service about a failure",
    "model_exception": "the text of an exception of the model",
    "tool_name": "the name of a tool that there is not",
    "argument": "the value of an argument",
    "argument_name": "the name of an argument",
    "argument_text": "arguments that are no JSON",
    "tool_result": "the result of a tool",
    "tool_result_name": "a name in the result of a tool",
    "environment": "an environment variable that a tool returns",
    "tool_error": "the text of an exception of a tool",
    "tool_error_note": "a note on an exception of a tool",
    "tool_error_class": "the class of an exception of a tool",
    "url": "a URL that a tool asks for",
    "request_header": "a header of a request",
    "url_denied": "a URL that the policy denies",
    "redirect": "the target of a redirect",
    "redirect_denied": "the target of a redirect that the policy denies",
    "response_header": "a header of a response",
    "response_body": "the body of a response",
    "file_name": "the name of a file that a tool writes and reads",
    "file_denied": "the name of a file that the policy denies",
    "file_text": "the text of a file",
    "approval_reason": "the reason of whoever answers a question",
    "approval_name": "the name of whoever answers a question",
    "approval_signature": "the signature of whoever answers a question",
    "hook_reason": "the reason of a hook that denies a call",
    "hook_arguments": "arguments that a hook gives to a call",
    "hook_result": "a result that a hook gives to a call",
    "hook_error": "the text of an exception of a hook",
    "hook_message": "the message of a hook that sends the agent back",
}


@dataclass(frozen=True)
class Found:
    """A marked value, or a part of it, that stands somewhere.

    Attributes:
        way: The way in of WAYS that it was put in by.
        place: Where it stands: a file, the name of a file, a stream, or a request body.
    """

    way: str
    place: str


def marked_values() -> dict[str, str]:
    """Return a new marked value for each way in."""
    return {way: _value() for way in WAYS}


def _value() -> str:
    body = _in_base_62(int(new_key() + new_key(), 16))[-_RANDOM:]
    # the checksum that ends a GitHub token
    return PREFIX + body + _in_base_62(zlib.crc32(body.encode("ascii"))).rjust(6, "0")


def _in_base_62(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits


class Search:
    """Finds marked values and parts of them: no half of one may stand anywhere.

    Args:
        values: The marked values by way in.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        half = _RANDOM // 2
        self._ways: dict[bytes, str] = {}
        for way, value in values.items():
            body = value.removeprefix(PREFIX)[:_RANDOM]
            for part in (body[:half], body[half:]):
                # as letter case is folded in some places, such as the names of headers
                self._ways[part.lower().encode("ascii")] = way
        self._pattern = re.compile(b"|".join(self._ways))

    def found(self, places: Iterable[tuple[str, bytes]]) -> list[Found]:
        """Return each way in of which something stands in some (place, bytes), once for each place."""
        out = {
            Found(self._ways[match], place): None
            for place, data in places
            for match in self._pattern.findall(data.lower())
        }
        return list(out)
