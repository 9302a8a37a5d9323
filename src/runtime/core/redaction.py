"""Secrets become typed placeholders where they enter a run, so that loop, gate, tools and record see the same.

`<secret:KIND:N>` is numbered by first appearance in the run; equal secrets share a number. Text that looks
like a placeholder already is escaped: `<secret:` becomes `<secret::`, which no placeholder begins with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from ..formats import canonical_json
from ..formats.canonical_json import Fragment

PATTERNS: Final[dict[str, str]] = {
    "anthropic_key": r"sk-ant-[A-Za-z0-9_-]{16,}",
    "aws_access_key": r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])",
    "bearer_token": r"(?i:(?<![A-Za-z0-9])(?:bearer|basic))\s+[A-Za-z0-9._~+/-]{16,}=*",
    "email": r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}",
    "github_token": r"(?<![A-Za-z])(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})",
    "google_key": r"(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{35}",
    # the first part is read as a whole and once: "eyJ-eyJ-..." would else be scanned from each "eyJ" on
    "jwt": r"(?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]*?eyJ[A-Za-z0-9_-]{8})[A-Za-z0-9_-]++"
    r"\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    "openai_key": r"(?<![A-Za-z0-9])sk-(?!ant-)[A-Za-z0-9_-]{20,}",
    "private_key": r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----[\s\S]*?"
    r"(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
    "slack_token": r"(?<![A-Za-z0-9])xox[abeoprs]-[A-Za-z0-9-]{10,}",
}


class Redactor:
    """Replaces the named kinds of secrets. Holds the numbers given out in one run."""

    def __init__(self, kinds: Sequence[str], values: Sequence[tuple[str, str]] = ()) -> None:
        """`kinds` are names of PATTERNS; `values` are (kind, secret) pairs that are known by their very text."""
        self._numbers: dict[tuple[str, str], int] = {}
        self._counts: dict[str, int] = {}
        # known texts first, then in the table's order, so that the more special kind is tried first
        self._known = {value: kind for kind, value in values if value}
        parts = [re.escape(value) for value in sorted(self._known, key=len, reverse=True)]
        parts += [f"(?P<{kind}>{PATTERNS[kind]})" for kind in PATTERNS if kind in kinds]
        self._pattern = re.compile("|".join(parts)) if parts else None

    @property
    def is_noop(self) -> bool:
        """Whether there is nothing to look for."""
        return self._pattern is None

    def __call__(self, text: str) -> str:
        """`text` with each secret replaced; text without secrets comes back as it is."""
        if self._pattern is None:
            return text
        return self._pattern.sub(self._placeholder, self._escape(text))

    def kind_in(self, text: str) -> str | None:
        """Return the kind of the first secret in a text, or None."""
        match = self._pattern.search(text) if self._pattern is not None else None
        return None if match is None else self._known.get(match.group()) or str(match.lastgroup)

    def restore_counters(self, counts: Mapping[str, int]) -> None:
        """Count on from the numbers that a run has given out before; what they stood for is not known any more."""
        for kind, count in counts.items():
            self._counts[kind] = max(count, self._counts.get(kind, 0))

    def for_model_output(self) -> Redactor:
        """Return a redactor for what a model says: it has read placeholders, and may repeat those given out."""
        return _Repeating(self)

    def _escape(self, text: str) -> str:
        return text.replace("<secret:", "<secret::")

    def data(self, data: Fragment) -> Fragment:
        """Canonical data with every string of it, keys included, redacted. Raises NotJson."""
        if self._pattern is None:
            return data
        return canonical_json.freeze(canonical_json.map_strings(data.value(), self))

    def _placeholder(self, match: re.Match[str]) -> str:
        kind = self._known.get(match.group()) or str(match.lastgroup)
        key = (kind, match.group())
        if key not in self._numbers:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._numbers[key] = self._counts[kind]
        return f"<secret:{kind}:{self._numbers[key]}>"


_LOOKS_LIKE: Final = re.compile(r"<secret:(?:([a-z_]+):([1-9][0-9]*)>)?")


def placeholder_counts(text: str) -> dict[str, int]:
    """Return the highest number of each kind of placeholder in a text."""
    found: dict[str, int] = {}
    for match in _LOOKS_LIKE.finditer(text):
        if match.group(1) is not None:
            found[match.group(1)] = max(int(match.group(2)), found.get(match.group(1), 0))
    return found


class _Repeating(Redactor):
    """Shares the numbers of another redactor, and leaves the placeholders that it gave out as they are."""

    def __init__(self, whole: Redactor) -> None:
        self._pattern = whole._pattern
        self._known = whole._known
        self._numbers = whole._numbers
        self._counts = whole._counts

    def _escape(self, text: str) -> str:
        return _LOOKS_LIKE.sub(self._repeated, text)

    def _repeated(self, match: re.Match[str]) -> str:
        kind, number = match.groups()
        known = kind is not None and int(number) <= self._counts.get(kind, 0)
        return match.group() if known else match.group().replace("<secret:", "<secret::", 1)
