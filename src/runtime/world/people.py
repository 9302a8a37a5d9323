"""People: whoever is asked about a call, and what they may say."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from msgspec import Struct

from ..effects import AskPerson
from ..log.events import Answered
from ..models.types import clean_text


class Answer(Struct, frozen=True, forbid_unknown_fields=True):
    """What a person says about a call.

    Attributes:
        decision: `allow` or `deny`.
        by: Who says it.
        why: Why.
    """

    decision: Literal["allow", "deny"]
    by: str = ""
    why: str = ""


Approve = Callable[[AskPerson], Answer | bool | Awaitable[Answer | bool]]
"""Asks a person about a call, as a plain function in a thread or as a coroutine function."""


def answered(at: str, said: Any) -> Answered:
    """Return what was said as a line; anything but a clear answer is silence, which refuses the call."""
    if isinstance(said, bool):
        said = Answer("allow" if said else "deny")
    if not isinstance(said, Answer) or said.decision not in ("allow", "deny"):
        why = f"{type(said).__name__[:100]} is not an answer"
        if isinstance(said, Answer):
            why = f"{clean_text(str(said.decision))[:100]!r} is neither allow nor deny"
        return Answered(at=at, answer="silence", why=why)
    by, why = (clean_text(str(words)) for words in (said.by, said.why))
    return Answered(at=at, answer="allow" if said.decision == "allow" else "deny", by=by, why=why)
