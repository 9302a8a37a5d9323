"""Which kinds of secrets a text may hold, and the pattern that finds them.

A text is first searched for needles: most texts hold none, and need no pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from .secret_kinds import NEEDLES, PATTERNS, WORD, secret_rules

_LONG_WORD: Final = re.compile(WORD)
_MANY: Final = 10_000  # characters: no pattern of a policy matches more
# characters of which most needles hold one, and most prose few: without it no needle of its group is looked for
_MARKS: Final = "_-:/."

_Needles = tuple[tuple[str, list[tuple[str, str]]], ...]


class SecretSearch:
    """Searches for secrets of some kinds.

    Attributes:
        parts: Name of a group -> its pattern; a group is a kind, or a rule of one.
        kinds: Name of a group -> its kind, where that is another name.
        telling: Texts of which one, in lower case, stands in a name that tells of a secret beside it.
        longest_own: How many characters a secret of the policy's own patterns may have.
    """

    def __init__(self, kinds: Sequence[str], patterns: Mapping[str, str]) -> None:
        texts = {kind: PATTERNS[kind] for kind in PATTERNS if kind in kinds}
        anywhere: dict[str, Sequence[str]] = {kind: NEEDLES[kind] for kind in texts}
        in_words: dict[str, Sequence[str]] = {}
        self.kinds: dict[str, str] = {}
        self._hints: dict[str, re.Pattern[str]] = {}
        for number, rule in enumerate(secret_rules()):
            if rule.kind in kinds:
                group = f"{rule.kind}_{number}"  # no kind of a policy has a digit
                texts[group] = rule.pattern.replace("(?P<value>", f"(?P<value_{group}>")
                (anywhere if rule.across_words else in_words)[group] = rule.needles
                self.kinds[group] = rule.kind
                if rule.hint is not None:
                    self._hints[group] = re.compile(rule.hint)
        # in the order of the tables, so that the more special kind is tried first
        self.parts = {group: f"(?P<{group}>{text})" for group, text in {**patterns, **texts}.items()}
        telling = (group for group in anywhere if f"(?P<value_{group}>" in texts[group])
        self.telling = tuple(dict.fromkeys(needle for group in telling for needle in anywhere[group]))
        self.longest_own = max(map(_length, patterns.values()), default=0)
        self._always = frozenset(patterns)
        self._anywhere, self._in_words = _by_mark(anywhere), _by_mark(in_words)

    def present(self, text: str) -> frozenset[str]:
        """Return the groups of which there may be a secret in a text."""
        lower = text.lower()
        words = " ".join(_LONG_WORD.findall(lower))
        return self._always.union(self._found(self._anywhere, lower), self._found(self._in_words, words))

    def _found(self, groups: _Needles, lower: str) -> Iterator[str]:
        for mark, needles in groups:
            if mark in lower:
                for needle, group in needles:
                    if needle in lower and (group not in self._hints or self._hints[group].search(lower)):
                        yield group


@lru_cache(maxsize=32)
def search_for(kinds: tuple[str, ...], patterns: tuple[tuple[str, str], ...]) -> SecretSearch:
    """Return the search for some kinds and for further ones, each with its pattern."""
    return SecretSearch(kinds, dict(patterns))


def _by_mark(needles: Mapping[str, Sequence[str]]) -> _Needles:
    """Return needles, each with its group, by a mark that each of them holds; "" for none."""
    by_mark: dict[str, list[tuple[str, str]]] = {}
    for group, texts in needles.items():
        for needle in texts:
            mark = next((mark for mark in _MARKS if mark in needle), "")
            by_mark.setdefault(mark, []).append((needle, group))
    return tuple(by_mark.items())


def _length(pattern: str) -> int:
    """Return how many characters a pattern may match; many where the standard library's parser does not say."""
    parser: Any = getattr(re, "_parser", None)
    return _MANY if parser is None else min(_MANY, parser.parse(pattern).getwidth()[1])
