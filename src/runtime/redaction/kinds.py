"""The kinds of secrets, each with the rules that find it.

The rules are data, in `secret_rules.json`, with the source of what each one says. All are linear in the length of a
text: what repeats is bounded, possessive, or ends where the match ends.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

import msgspec


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule that finds secrets of one sort, such as the tokens of one vendor.

    Attributes:
        name: The sort.
        kind: The kind, as policies and placeholders name it; many sorts may be of one kind.
        needles: Texts of which one stands in whatever it finds, once that is in lower case.
        pattern: A regular expression; a group `value` is the secret, else all of it.
        source: Where it is written what such secrets look like.
        hint: A regular expression that matches in the lower case of each text in which it finds something, where the
            needles are in many texts.
        may_be_words: Whether a secret may consist of words, as a password does.
    """

    name: str
    kind: str
    needles: tuple[str, ...]
    pattern: str
    source: str
    hint: str = ""
    may_be_words: bool = False

    def find(self, text: str, lower: str) -> list[tuple[int, int]]:
        """Return where the secrets begin and end in a text that holds a needle, given its lower case too."""
        if not _compiled(self.hint).search(lower):
            return []
        pattern = _compiled(self.pattern)
        group = "value" if "value" in pattern.groupindex else 0
        found = pattern.finditer(text)
        return [it.span(group) for it in found if self.may_be_words or not self._is_name(it[group])]

    def _is_name(self, secret: str) -> bool:
        """Return whether all of it behind a needle is words and short numbers: that is a name, and no key."""
        needle = next(filter(secret.lower().startswith, self.needles), "")
        return _WORDS.fullmatch(secret, len(needle)) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


# words and short numbers, such as years, between dashes, underscores and dots
_WORDS: Final = re.compile(
    r"(?:[-_.]++|(?:[A-Z]{1,15}+|[A-Z]?[a-z]{1,15}+[0-9]{0,4}+|[0-9]{1,4}+)(?![A-Za-z0-9]))++"
)
# of secrets that begin at the same place the first rule gives the kind
RULES: Final = msgspec.json.decode(
    Path(__file__).with_name("secret_rules.json").read_bytes(), type=tuple[Rule, ...]
)
KINDS: Final = tuple(sorted({rule.kind for rule in RULES}))
# the kind of values that are known by their very text, such as those of the environment
KNOWN: Final = "env"
# characters of a known value: to replace a shorter one would tear up ordinary text
SHORTEST: Final = 8
# the kind of what stands beside the name of a password
PASSWORD: Final = "service_token"  # noqa: S105 - a kind, and no password
