"""Secrets become typed placeholders where they enter a run, so that loop, gate, tools and record see the same.

`<secret:KIND:N>` is numbered by first appearance in the run; equal secrets share a number. Text that looks
like a placeholder already is escaped: `<secret:` becomes `<secret::`, which no placeholder begins with.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ...fail.errors import InputError
from ..formats import canonical_json
from ..formats.canonical_json import Fragment
from .secret_kinds import NEEDLES, PATTERNS, SHORTEST

MARK: Final = "<secret:"
_LOOKS_LIKE: Final = re.compile(r"<secret:(?:([a-z_]+):([1-9][0-9]*)>)?")
# a placeholder, and what was escaped because it looked like one
_PLACEHOLDER: Final = re.compile(r"<secret:(:*)([a-z_]+):([1-9][0-9]*)>")


class Redactor:
    """Replaces secrets by placeholders. Holds the numbers given out in one run."""

    def __init__(
        self,
        kinds: Sequence[str],
        values: Sequence[tuple[str, str]] = (),
        patterns: Mapping[str, str] | None = None,
    ) -> None:
        """Make a redactor that has given out no number yet.

        Args:
            kinds: Names of PATTERNS.
            values: (kind, secret) pairs that are known by their very text.
            patterns: Further kinds, each with its regular expression, which has no group.

        Raises:
            InputError: A value is so short that replacing it would tear up ordinary text.
        """
        if any(0 < len(value) < SHORTEST for _, value in values):
            raise InputError(
                f"a secret has fewer than {SHORTEST} characters",
                remedy="leave it out: it cannot be told apart from ordinary text",
            )
        self._numbers: dict[tuple[str, str], int] = {}
        self._counts: dict[str, int] = {}
        self._key = b""
        self._earlier: dict[
            tuple[str, str], int
        ] = {}  # numbers of an earlier process, by kind and keyed digest
        self._untold: list[tuple[str, str]] = []  # numbered since the journal was told last
        # known texts first, then in the table's order, so that the more special kind is tried first
        self._known = {value: kind for kind, value in values if value}
        self._values = [re.escape(value) for value in sorted(self._known, key=len, reverse=True)]
        own = {kind: PATTERNS[kind] for kind in PATTERNS if kind in kinds}
        self._parts = {kind: f"(?P<{kind}>{text})" for kind, text in {**(patterns or {}), **own}.items()}
        self._always = frozenset(patterns or {})
        self._needles = {kind: NEEDLES[kind] for kind in own}
        self._compiled: dict[frozenset[str], re.Pattern[str] | None] = {}

    @property
    def is_noop(self) -> bool:
        """Whether there is nothing to look for."""
        return not self._parts and not self._known

    def __call__(self, text: str) -> str:
        """`text` with each secret replaced; text without secrets comes back as it is."""
        if self.is_noop:
            return text
        escaped = self._escape(text)
        pattern = self.pattern_for(escaped)
        return escaped if pattern is None else pattern.sub(self._replace, escaped)

    def kind_in(self, text: str) -> str | None:
        """Return the kind of the first secret in a text, or None."""
        pattern = self.pattern_for(text)
        match = None if pattern is None else pattern.search(text)
        return None if match is None else self._kind(match)

    def pattern_for(self, text: str) -> re.Pattern[str] | None:
        """Return the pattern of all that a text may hold, or None where it can hold no secret."""
        lower = text.lower()
        present = self._always | {
            kind for kind, needles in self._needles.items() if any(needle in lower for needle in needles)
        }
        if present not in self._compiled:
            parts = [*self._values, *(part for kind, part in self._parts.items() if kind in present)]
            self._compiled[present] = re.compile("|".join(parts)) if parts else None
        return self._compiled[present]

    def for_model_output(self) -> Redactor:
        """Return a redactor for what a model says: it has read placeholders, and may repeat those given out."""
        return _Repeating(self)

    def _escape(self, text: str) -> str:
        return text.replace(MARK, f"{MARK}:")

    def data(self, data: Fragment) -> Fragment:
        """Canonical data with every string of it, keys included, redacted. Raises NotJson."""
        if self.is_noop:
            return data
        return canonical_json.freeze(canonical_json.map_strings(data.value(), self))

    def _kind(self, match: re.Match[str]) -> str:
        return self._known.get(match.group()) or str(match.lastgroup)

    def _replace(self, match: re.Match[str]) -> str:
        kind = self._kind(match)
        value = f"value_{kind}"
        if match.group() in self._known or value not in match.re.groupindex:
            return self._placeholder(kind, match.group())
        whole, (start, end) = match.group(), match.span(value)
        before, after = start - match.start(), end - match.start()
        return whole[:before] + self._placeholder(kind, match.group(value)) + whole[after:]

    def _placeholder(self, kind: str, secret: str) -> str:
        key = (kind, secret)
        if key not in self._numbers:
            earlier = self._earlier.get((kind, self._digest(secret))) if self._earlier else None
            if earlier is None:
                self._counts[kind] = self._counts.get(kind, 0) + 1
            self._numbers[key] = earlier or self._counts[kind]
            self._untold.append(key)
        return f"{MARK}{kind}:{self._numbers[key]}>"

    # ---- numbers over a resume ---------------------------------------------------------------------------

    def _digest(self, secret: str) -> str:
        return hmac.new(self._key, secret.encode("utf-8", "backslashreplace"), "sha256").hexdigest()

    def restore_counters(self, counts: Mapping[str, int]) -> None:
        """Count on from the numbers that a run has given out before, by kind."""
        for kind, count in counts.items():
            self._counts[kind] = max(count, self._counts.get(kind, 0))

    def restore_numbers(self, key: bytes, earlier: Iterable[Sequence[Any]]) -> None:
        """Give the secrets that an earlier process of the run numbered the same numbers again.

        Args:
            key: The key of the run's digests, which its journal holds.
            earlier: What `new_numbers` returned then.
        """
        self._key = key
        self._earlier = {(str(kind), str(digest)): int(number) for kind, number, digest in earlier}

    def new_numbers(self) -> list[list[Any]]:
        """Return (kind, number, keyed digest) of each secret numbered since the last call, for a journal."""
        untold = [[kind, self._numbers[kind, secret], self._digest(secret)] for kind, secret in self._untold]
        self._untold.clear()
        return untold

    # ---- back to what placeholders stand for -------------------------------------------------------------

    def reveal(self, data: Any, kinds: Container[str]) -> tuple[Any, tuple[str, int] | None]:
        """Put secrets back in the place of placeholders.

        Returns:
            The data with placeholders of these kinds resolved, and None; or the data as it was, and kind and number of
            the first placeholder of which this process does not know what it stands for.
        """
        secrets = {(kind, number): secret for (kind, secret), number in self._numbers.items()}
        wanted = [_meant(match) for match in _all(data) if not match.group(1) and match.group(2) in kinds]
        unknown = next((meant for meant in wanted if meant not in secrets), None)
        if unknown is not None:
            return data, unknown

        def put_back(match: re.Match[str]) -> str:
            is_ours = not match.group(1) and _meant(match) in wanted
            return secrets[_meant(match)] if is_ours else match.group()

        return canonical_json.map_strings(data, lambda text: _PLACEHOLDER.sub(put_back, text)), None


def placeholders(data: Any) -> Iterator[tuple[str, bool]]:
    """Yield (kind, whether the run gave it out) of each placeholder in the strings of JSON data, keys included."""
    for match in _all(data):
        yield match.group(2), not match.group(1)


def _meant(match: re.Match[str]) -> tuple[str, int]:
    return match.group(2), int(match.group(3))


def _all(data: Any) -> list[re.Match[str]]:
    found: list[re.Match[str]] = []

    def look(text: str) -> str:
        found.extend(_PLACEHOLDER.finditer(text))
        return text

    canonical_json.map_strings(data, look)
    return found


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
        self.__dict__.update(whole.__dict__)

    def _escape(self, text: str) -> str:
        return _LOOKS_LIKE.sub(self._repeated, text)

    def _repeated(self, match: re.Match[str]) -> str:
        kind, number = match.groups()
        known = kind is not None and int(number) <= self._counts.get(kind, 0)
        return match.group() if known else match.group().replace(MARK, f"{MARK}:", 1)
