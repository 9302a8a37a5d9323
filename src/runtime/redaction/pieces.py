"""Redacts a text that comes in pieces: nothing is handed on that could be a part of a secret."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from .kinds import KNOWN
from .redactor import Redactor
from .search import Span, views

# behind which the next word may be a part of the same secret: no rule lets more than 20 blanks stand there, or more
# than 300 characters between the name of a command and the password that it is given in the same line
_GOES_ON: Final = (
    r"(?i)(?:(?:[:=>;&]|bearer|basic|ssws|splunk|(?:token|key|secret|pass(?:in|out|code|word|wd|phrase)?|pwd)"
    r"(?:[\"']?,?|\s+(?:is|was))|identified(?:\s+by)?|securestring\",|[a-z]=\S{1,80}"
    r"|(?:machine|login|account)(?:\s+\S{1,80}){0,5}|cookie[\"']?\s?[:=][^\r\n]{1,600};)\s+"
    r"|(?:true|false)\t(?:\d+\t(?:\S{1,64}\t)?)?|-----?\s|----[ -](?:BEGIN|END)[A-Z0-9.+ -]*"
    r"|\b(?:curl|echo|printf|docker|podman|nerdctl|buildah|skopeo|oras|oc|az|helm|twine|define\(\s?\S+"
    r"|(?:mysql|mariadb|mongo|ldap)[a-z]*|mariadb-dump|sshpass|redis-cli|https?|(?:un)?zip|7z[a-z]?|rar"
    r"|unrar|sqlplus|smbclient|htpasswd|requirepass|masterauth|snmp-server)\s(?=[\s\S]{0,300}+\Z)"
    r"(?:[^\r\n]++|(?<=\\)\r?\n)*+|(?-i:(?<![A-Za-z0-9+/_-])"
    r"[A-Za-z0-9+/]{60,76}\r?\n[ \t]*(?:[A-Za-z0-9+/=]{1,76}\r?\n[ \t]*)?))\Z"
)
_LONGEST_TAIL: Final = 1_000  # characters that may tell so, with their escapes
_WORD_BEGINS: Final = re.compile(r"(?<=\s)[^\s:=%\\&]")
_TRIED: Final = 50  # beginnings of words, before more of the text is waited for


class Pieces:
    """Takes the pieces of one text, and gives back what can be shown of it.

    A word is held back until it is whole, and whatever may be a secret of several words until its end. All that is
    given back, put together, is what `redactor.text` makes of the whole. No placeholder is given out: what is held back
    of a text that broke off is not to be asked for.

    Args:
        redactor: The redactor of the run.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = [""]
        # how much is held, and how much before it is looked at again: so a long word costs no square of it
        self._size = self._enough = 0

    def feed(self, piece: str) -> str:
        """Return what can be shown once this piece is there; often nothing, and never a part of a secret."""
        self._held.append(piece)
        self._size += len(piece)
        if self._size < self._enough:
            return ""
        held = "".join(self._held)
        end = len(held) if self._redactor.is_empty else self._whole_until(held)
        self._held, self._size = [held[end:]], len(held) - end
        self._enough = 0 if end else self._size + self._size // 8
        return self._redacted(held[:end])

    def end(self) -> str:
        """Return the rest when the text is whole."""
        return self._redacted("".join(self._held))

    def _redacted(self, text: str) -> str:
        return self._redactor.hide(text, "", self._redactor.given_out, {})

    def _whole_until(self, held: str) -> int:
        """Return up to where what is held can be shown: the last beginning of a word that no secret goes on over."""
        begins = [match.start() for match in _WORD_BEGINS.finditer(held)][-_TRIED:]
        secrets = [*self._redactor.search.spans(held), *self._begun_phrases(held)] if begins else []
        for at in reversed(begins):
            tail = held[max(0, at - _LONGEST_TAIL) : at]
            goes_on = any(re.search(_GOES_ON, view) for view, _ in views(tail))
            if not goes_on and not any(start < at < end for start, end, _ in secrets):
                return at
        return 0

    def _begun_phrases(self, held: str) -> Iterator[Span]:
        """Yield where what is held ends in the beginning of a known value of several words."""
        for view, places in views(held):
            for phrase in self._redactor.search.phrases:
                first = max(0, len(view) - len(phrase) + 1)
                begun = next((at for at in range(first, len(view)) if phrase.startswith(view[at:])), None)
                if begun is not None:
                    yield places[begun], len(held), KNOWN
