"""Redact a text that comes in pieces: nothing is handed on that could be a part of a secret."""

from __future__ import annotations

import re
from typing import Final

from .redaction import Redactor

# up to the last character that stands in no word of a secret
_WHOLE_WORDS: Final = re.compile(r"(?s).*[^\x21-\x7e]")
_SHOWN: Final = 400  # characters of what was shown: a name there may say that what comes next is a secret


class RedactedPieces:
    """Takes the pieces of one text, and gives back what can be shown of it.

    A word is held back until it is whole, and a secret of several words until its end is there. A word is judged
    together with those before it, such as the name of a password. No number of the run is given out: what is shown
    anticipates those that the record gives when the text is whole.

    Args:
        redact: The redactor of the run.
    """

    def __init__(self, redact: Redactor) -> None:
        self._redact = redact.ahead()
        self._shown = ""  # as it came, with its secrets
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
        shown = self._take(self._whole_until())
        self._enough = 0 if shown else len(self._held) + len(self._held) // 8
        return shown

    def rest(self) -> str:
        """Return what is left when the text is whole."""
        return self._take(len(self._held))

    def _whole_until(self) -> int:
        """Return up to where what is held can be shown."""
        match = _WHOLE_WORDS.match(self._held)
        end = 0 if match is None else match.end()
        if self._redact.longest_own:
            begun = max(0, len(self._held) - self._redact.longest_own)
            match = _WHOLE_WORDS.match(self._held, 0, begun)
            end = min(end, 0 if match is None else match.end())
        for phrase in self._redact.phrases:
            first = max(0, len(self._held) - len(phrase))
            begins = (at for at in range(first, end) if phrase.startswith(self._held[at:]))
            end = min(end, next(begins, end))
        return self._outside_secrets(end) if end else 0

    def _outside_secrets(self, end: int) -> int:
        """Return `end`, or where the secret begins that goes on behind it or whose end may not be there."""
        text, before = self._shown + self._held, len(self._shown)
        pattern = self._redact.pattern_for(text)
        for match in pattern.finditer(text) if pattern is not None else ():
            if match.start() < before + end and (match.end() > before + end or match.end() == len(text)):
                return max(0, match.start() - before)
        return end

    def _take(self, end: int) -> str:
        if not end:
            return ""
        text, at = self._shown + self._held, len(self._shown)
        last = at + end
        out = []
        pattern = self._redact.pattern_for(text)
        for match in pattern.finditer(text, 0, last) if pattern is not None else ():
            begin, finish = self._redact.secret_of(match)
            if finish > at:
                out += [self._redact.escaped(text[at : max(at, begin)]), self._redact.stand_in(match)]
                at = finish
        out.append(self._redact.escaped(text[at:last]))
        self._shown, self._held = text[:last][-_SHOWN:], text[last:]
        return "".join(out)
