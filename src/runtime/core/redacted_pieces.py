"""Redact a text that comes in pieces: nothing is handed on that could be a part of a secret."""

from __future__ import annotations

import re
from typing import Final

from .redaction import Redactor

# no kind of secret spans more words than this; a name, a mark and a value beside one another are three
WORDS: Final = 6
# a word, or a character that stands in no secret and so is a word of its own
_WORD: Final = re.compile(r"[\x21-\x7e]+|[^\x00-\x7f]")


class RedactedPieces:
    """Takes the pieces of one text, and gives back what can be shown of it.

    The last words are held back, since more of a secret may follow, and so is a secret whose end may not be there. No
    number of the run is given out: what is shown anticipates those that the record gives when the text is whole.

    Args:
        redact: The redactor of the run.
    """

    def __init__(self, redact: Redactor) -> None:
        self._redact = redact.ahead()
        self._words, self._length = redact.longest(WORDS)
        self._held = ""
        self._enough = (
            0  # how much is held before it is looked at again, so that a long word costs no square of it
        )

    def add(self, piece: str) -> str:
        """Return what can be shown once this piece is there; often nothing, and never a part of a secret."""
        if self._redact.is_noop:
            return piece
        self._held += piece
        if len(self._held) < self._enough:
            return ""
        shown = self._take(self._redact.whole_until(self._held, self._last_words()))
        self._enough = len(self._held) + len(self._held) // 8
        return shown

    def rest(self) -> str:
        """Return what is left when the text is whole."""
        self._enough = 0
        return self._take(len(self._held))

    def _take(self, end: int) -> str:
        text, self._held = self._held[:end], self._held[end:]
        return self._redact(text)

    def _last_words(self) -> int:
        """Return where the words begin that are held back."""
        begins = [word.start() for word in _WORD.finditer(self._held)]
        most = len(self._held) - self._length
        return max((begin for begin in begins[: -self._words] if begin <= most), default=0)
