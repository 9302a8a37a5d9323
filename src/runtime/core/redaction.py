"""Secrets become typed placeholders where they enter a run, so that loop, gate, tools and record see the same.

`<secret:KIND:N>` is numbered by first appearance in the run; equal secrets share a number. Text that looks
like a placeholder already is escaped: `<secret:` becomes `<secret::`, which no placeholder begins with.

While a group of calls is performed, a secret that a call is the first to meet gets a number for the time being, from
`PROVISIONAL` on. `settle` gives it its number in the record, in the order of the calls.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ...fail.errors import InputError
from ..formats import canonical_json
from ..formats.canonical_json import Fragment
from .branch_numbers import PROVISIONAL, BranchNumbers
from .branches import BRANCH, MAX_CALLS, Branch
from .effects import Outcome
from .outcome_codec import map_texts, outcome_to_dict
from .secret_kinds import SHORTEST
from .secret_search import search_for

MARK: Final = "<secret:"
_LOOKS_LIKE: Final = re.compile(r"<secret:(?:([a-z_]+):([1-9][0-9]*)>)?")
# a placeholder, and what was escaped because it looked like one
_PLACEHOLDER: Final = re.compile(r"<secret:(:*)([a-z_]+):([1-9][0-9]*)>")

_ONE_WORD: Final = re.compile(r"[\x21-\x7e]+")


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
        # numbered since the journal was told last: kind, number, and the secret or its keyed digest
        self._untold: list[tuple[str, int, str | None, str]] = []
        self._branches: dict[Branch, BranchNumbers] = {}
        # keyed digests of secrets with a number of an earlier process that was not settled
        self._provisional: dict[tuple[str, int], str] = {}
        # known texts first, then in the table's order, so that the more special kind is tried first
        self._known = {value: kind for kind, value in values if value}
        self._values = [re.escape(value) for value in sorted(self._known, key=len, reverse=True)]
        self._search = search_for(tuple(kinds), tuple((patterns or {}).items()))
        self._compiled: dict[frozenset[str], re.Pattern[str] | None] = {}

    @property
    def is_noop(self) -> bool:
        """Whether there is nothing to look for."""
        return not self._search.parts and not self._known

    def __call__(self, text: str) -> str:
        """`text` with each secret replaced; text without secrets comes back as it is."""
        if self.is_noop:
            return text
        escaped = self.escaped(text)
        pattern = self.pattern_for(escaped)
        return escaped if pattern is None else pattern.sub(self._replace, escaped)

    def kind_in(self, text: str) -> str | None:
        """Return the kind of the first secret in a text, or None."""
        pattern = self.pattern_for(text)
        match = None if pattern is None else pattern.search(text)
        return None if match is None else self._kind(match)

    def pattern_for(self, text: str) -> re.Pattern[str] | None:
        """Return the pattern of all that a text may hold, or None where it can hold no secret."""
        present = self._search.present(text)
        if present not in self._compiled:
            parts = [*self._values, *(part for group, part in self._search.parts.items() if group in present)]
            self._compiled[present] = re.compile("|".join(parts)) if parts else None
        return self._compiled[present]

    def for_model_output(self) -> Redactor:
        """Return a redactor for what a model says: it has read placeholders, and may repeat those given out."""
        return _Repeating(self)

    def ahead(self) -> Redactor:
        """Return a redactor for what a model is saying: it numbers as this one will, and gives out no number of it."""
        return _Ahead(self)

    @property
    def longest_own(self) -> int:
        """How many characters a secret of the policy's own patterns may have."""
        return self._search.longest_own

    @property
    def phrases(self) -> tuple[str, ...]:
        """The known secrets that are more than one word."""
        return tuple(value for value in self._known if not _ONE_WORD.fullmatch(value))

    def escaped(self, text: str) -> str:
        """Return text in which what looks like a placeholder looks like none."""
        return text.replace(MARK, f"{MARK}:")

    def data(self, data: Fragment) -> Fragment:
        """Canonical data with every string of it, keys included, redacted. Raises NotJson.

        A key may be the name that tells a secret, as `aws_secret_access_key` does; then it is looked at with its value.
        """
        if self.is_noop:
            return data
        return canonical_json.freeze(canonical_json.map_strings(data.value(), self, self._beside))

    def _beside(self, name: str, text: str) -> str:
        """Return the redacted text that stands under a name."""
        redacted, lower = self(text), name.lower()
        if redacted != self.escaped(text) or not any(needle in lower for needle in self._search.telling):
            return redacted
        whole, begin = f"{name}={text}", len(name) + 1
        pattern = self.pattern_for(whole)
        for match in pattern.finditer(whole) if pattern is not None else ():
            start, end = self.secret_of(match)
            if start >= begin:
                rest = self.escaped(whole[end:])
                return self.escaped(whole[begin:start]) + self.stand_in(match) + rest
        return redacted

    def _kind(self, match: re.Match[str]) -> str:
        group = str(match.lastgroup)
        known = self._known.get(match.group())
        if known is not None or group not in self._search.kinds:
            return known or group
        if (
            f"value_{group}" in match.re.groupindex
        ):  # beside a name may stand a secret that tells its kind itself
            value = match[f"value_{group}"]
            pattern = self.pattern_for(value)
            inner = None if pattern is None else pattern.match(value)
            if inner is not None:
                return self._kind(inner)
        return self._search.kinds[group]

    def _replace(self, match: re.Match[str]) -> str:
        start, end = self.secret_of(match)
        whole, begin = match.group(), match.start()
        return whole[: start - begin] + self.stand_in(match) + whole[end - begin :]

    def secret_of(self, match: re.Match[str]) -> tuple[int, int]:
        """Return where the secret begins and ends in what `pattern_for` matched."""
        value = f"value_{match.lastgroup}"
        is_whole = match.group() in self._known or value not in match.re.groupindex
        return match.span() if is_whole else match.span(value)

    def stand_in(self, match: re.Match[str]) -> str:
        """Return the placeholder of the secret in what `pattern_for` matched."""
        start, end = self.secret_of(match)
        return self._placeholder(self._kind(match), match.string[start:end])

    def _placeholder(self, kind: str, secret: str) -> str:
        key = (kind, secret)
        number = self._numbers.get(key)
        if number is None:
            number = self._earlier.get((kind, self._digest(secret))) if self._earlier else None
            branch = BRANCH.get()
            if number is None and branch is not None:
                return f"{MARK}{kind}:{self._number_in(branch, key)}>"
            number = self._number(key, number)
        return f"{MARK}{kind}:{number}>"

    def _number(self, key: tuple[str, str], earlier: int | None) -> int:
        """Give a secret its number in the record: the one that an earlier process gave it, or the next."""
        kind, secret = key
        if earlier is None:
            self._counts[kind] = earlier = self._counts.get(kind, 0) + 1
        self._numbers[key] = earlier
        self._untold.append((kind, earlier, secret, ""))
        return earlier

    # ---- numbers over a resume ---------------------------------------------------------------------------

    def _digest(self, secret: str) -> str:
        return hmac.new(self._key, secret.encode("utf-8", "backslashreplace"), "sha256").hexdigest()

    def restore_counters(self, counts: Mapping[str, int]) -> None:
        """Count on from the numbers that a run has given out before, by kind; in a group, once it is settled."""
        branch = BRANCH.get()
        if branch is not None:
            self._in_branch(branch).counts.append(dict(counts))
            return
        for kind, count in counts.items():
            self._counts[kind] = max(count, self._counts.get(kind, 0))

    def restore_numbers(self, key: bytes, earlier: Iterable[Sequence[Any]]) -> None:
        """Give the secrets that an earlier process of the run numbered the same numbers again.

        Args:
            key: The key of the run's digests, which its journal holds.
            earlier: What `new_numbers` returned then.
        """
        self._key = key
        numbers = [(str(kind), int(number), str(digest)) for kind, number, digest in earlier]
        self._earlier = {(kind, digest): number for kind, number, digest in numbers if number < PROVISIONAL}
        self._provisional = {
            (kind, number): digest for kind, number, digest in numbers if number >= PROVISIONAL
        }

    def new_numbers(self) -> list[list[Any]]:
        """Return (kind, number, keyed digest) of each secret numbered since the last call, for a journal."""
        branch = BRANCH.get()
        told = self._untold if branch is None else self._in_branch(branch).untold
        untold = [
            [kind, number, digest if secret is None else self._digest(secret)]
            for kind, number, secret, digest in told
        ]
        told.clear()
        return untold

    # ---- numbers of a group ------------------------------------------------------------------------------

    def _in_branch(self, branch: Branch) -> BranchNumbers:
        if branch not in self._branches:
            step, index = branch
            base = PROVISIONAL * (step * (MAX_CALLS + 1) + index)
            taken = [number for _, number in self._provisional if base <= number < base + PROVISIONAL]
            self._branches[branch] = BranchNumbers(max(taken, default=base - 1) + 1, base)
        return self._branches[branch]

    def _number_in(self, branch: Branch, key: tuple[str, str]) -> int:
        """Return the number for the time being of a secret that a call of a group has met."""
        met = self._in_branch(branch)
        if key not in met.numbers:
            digest = self._digest(key[1]) if self._provisional else ""
            same = (n for (kind, n), one in self._provisional.items() if (kind, one) == (key[0], digest))
            met.add(key, next((n for n in same if met.base <= n < met.base + PROVISIONAL), None))
        return met.numbers[key]

    def settle(self, branch: Branch, outcome: Outcome) -> Outcome:
        """Return an outcome of a call of a group with the numbers that its placeholders have in the record.

        To be asked in the order of the calls, and within one in the order of its outcomes.
        """
        met = self._in_branch(branch)
        while met.counts:
            self.restore_counters(met.counts.pop())

        if not met.secrets and not self._provisional:
            return outcome
        found = _PLACEHOLDER.finditer(canonical_json.encode(outcome_to_dict(outcome)))
        # in the order in which the call met them
        for kind, number in sorted(
            {_meant(match) for match in found if not match.group(1)}, key=lambda key: key[1]
        ):
            final = self._final(met, kind, number)
            if final is not None:
                met.final[kind, number] = final

        def settled(match: re.Match[str]) -> str:
            final = None if match.group(1) else met.final.get(_meant(match))
            return match.group() if final is None else f"{MARK}{match.group(2)}:{final}>"

        return map_texts(outcome, lambda text: _PLACEHOLDER.sub(settled, text))

    def _final(self, met: BranchNumbers, kind: str, number: int) -> int | None:
        """Return the number in the record for a provisional one, None for any other."""
        secret = met.secrets.get((kind, number))
        if secret is not None:
            known = self._numbers.get((kind, secret))
            return known or self._number((kind, secret), self._earlier.get((kind, self._digest(secret))))
        digest = self._provisional.get((kind, number))
        return None if digest is None else self._number_of_digest(kind, digest)

    def _number_of_digest(self, kind: str, digest: str) -> int:
        """Return the number of a secret that an earlier process met in a group that it did not settle."""
        number = self._earlier.get((kind, digest))
        if number is None:
            same = (n for (k, s), n in self._numbers.items() if k == kind and self._digest(s) == digest)
            number = next(same, None)
        if number is None:
            self._counts[kind] = number = self._counts.get(kind, 0) + 1
            self._untold.append((kind, number, None, digest))
        self._earlier[kind, digest] = number
        return number

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
        if match.group(1) is not None and int(match.group(2)) < PROVISIONAL:
            found[match.group(1)] = max(int(match.group(2)), found.get(match.group(1), 0))
    return found


class _Repeating(Redactor):
    """Shares the numbers of another redactor, and leaves the placeholders that it gave out as they are."""

    def __init__(self, whole: Redactor) -> None:
        self.__dict__.update(whole.__dict__)

    def escaped(self, text: str) -> str:
        """See `Redactor.escaped`."""
        return _LOOKS_LIKE.sub(self._repeated, text)

    def _repeated(self, match: re.Match[str]) -> str:
        kind, number = match.groups()
        known = kind is not None and int(number) <= self._counts.get(kind, 0)
        return match.group() if known else match.group().replace(MARK, f"{MARK}:", 1)


class _Ahead(_Repeating):
    """Numbers as another redactor would if it were asked now, and leaves that one's numbers alone."""

    def __init__(self, whole: Redactor) -> None:
        super().__init__(whole)
        self._numbers, self._counts, self._untold = self._numbers.copy(), self._counts.copy(), []
