"""Classify the differences of two ledgers of one run by their consequence.

Classes, gravest first: EXPOSURE (a secret that was kept out), VERDICT (a decision), EFFECT (a call, a result, something
written), ANSWER, ASKED (what a live model was asked with), ENDING, BUDGET (tokens, totals, limits), RETRY (attempts,
waits), SHAPE (steps, times, settings), TEXT (text without consequence), DIGEST-ONLY (only digests of inputs changed).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice, zip_longest
from typing import Any, Final

from ....light_dataclasses import dataclass, field
from ....runtime.core.lines import Line
from ....runtime.formats.escape import escape_terminal, truncate
from ...files.json_diff import ABSENT, CLASSES, differences
from .exposure import EXPOSURE, is_exposed
from .requests import asked_pattern, moved_parts

# the first pattern that matches a pointer (prefixed by its line's type) gives the class
_TABLE: Final = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"\w+/(prev|run_id|schema)\b", "DIGEST-ONLY"),
        (
            r"run/(policy/(version|files)|tools/\d+/\w*digest|task/sha256|model/script_digest|modules)",
            "DIGEST-ONLY",
        ),
        (r"run/policy/limits/(max_retries|backoff_\w+)", "RETRY"),
        (r"run/policy/limits", "BUDGET"),
        (r"run/(question|model)", "TEXT"),
        (r"(run|step)/request_parts", "DIGEST-ONLY"),
        (r"run/", "SHAPE"),
        (r"step/policy_decisions/\d+/(decision|rule_id|approval/answer)", "VERDICT"),
        (r"step/policy_decisions/\d+/approval/digest", "DIGEST-ONLY"),
        (r"step/policy_decisions/\d+/(at|reason|approval)", "TEXT"),
        (r"step/policy_decisions/\d+/facts/malformed", "TEXT"),  # why it cannot be read, in our words
        (r"step/policy_decisions/\d+/facts", "SHAPE"),
        (r"step/policy_decisions", "VERDICT"),
        (r"step/tool_results/\d+/attempts/\d+/reads", "DIGEST-ONLY"),
        (r"step/tool_results/\d+/attempts/\d+/(writes|checks)", "EFFECT"),
        (r"step/tool_results/\d+/attempts", "RETRY"),
        (r"step/tool_results/\d+/told/reason", "TEXT"),
        (r"step/(tool_results|intended_tool_calls)", "EFFECT"),
        (r"step/llm_output/final_answer", "ANSWER"),
        (r"step/llm_attempts", "RETRY"),
        (r"step/(usage|llm_output/usage)", "BUDGET"),
        (r"step/llm_input/(digest|tools|instructions|options)", "DIGEST-ONLY"),
        (r"step/llm_input/max_output_tokens", "BUDGET"),
        (r"step/llm_output", "TEXT"),
        (r"step/hooks/\d+/answer/arguments", "EFFECT"),  # those that the tool is called with
        (
            r"step/hooks/\d+/answer/\w+$",
            "TEXT",
        ),  # what follows from it stands in the decisions and the results
        (r"step/(failure_mode|stopped)", "ENDING"),
        (r"step/errors/\d+/(problem|pointer|keyword|limit)", "TEXT"),
        (r"step/errors", "RETRY"),
        (r"step/", "SHAPE"),
        (r"end/final_answer", "ANSWER"),
        (r"end/(terminal_reason|failure_mode)", "ENDING"),
        (r"end/totals/(denials|tool_calls|steps)", "SHAPE"),
        (r"end/totals/(attempts|retries)", "RETRY"),
        (r"end/totals", "BUDGET"),
        (r"end/inputs", "DIGEST-ONLY"),
    )
)


_LIMIT: Final = 10_000  # differences counted: two unrelated ledgers would give millions


@dataclass(frozen=True, slots=True)
class Divergence:
    """One difference of two ledgers.

    Attributes:
        line: Number of the ledger line, from 1.
        step: Index of the step, None outside a step.
        pointer: JSON Pointer into the line.
        before: The old value.
        after: The new value.
        kind: Its class.
        sides: The two ledger lines, None where a ledger has no such line.
    """

    line: int
    step: int | None
    pointer: str
    before: Any
    after: Any
    kind: str
    sides: tuple[Any, Any] = field(default=(None, None), repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as plain data, values shortened."""
        before, after = _side_by_side(self.before, self.after)
        return {
            "line": self.line,
            "step": self.step,
            "pointer": self.pointer,
            "before": before,
            "after": after,
            "class": self.kind,
        }

    def __str__(self) -> str:
        where = f"step {escape_terminal(str(self.step))}" if self.step is not None else f"line {self.line}"
        before, after = _side_by_side(self.before, self.after)
        return f"{where} {escape_terminal(self.pointer)}: {before} -> {after}"


@dataclass(frozen=True, slots=True)
class Drift:
    """How two ledgers differ.

    Attributes:
        first: The first difference other than DIGEST-ONLY, if there is one, else the first of all.
        counts: Number of differences by class.
        gravest: The first difference of the gravest class.
        behind: Number of differences after the first, by class; most of them follow from it.
        parts: The parts of the model's requests that moved, in words.
    """

    first: Divergence | None
    counts: Counter[str] = field(default_factory=Counter)
    gravest: Divergence | None = None
    behind: Counter[str] = field(default_factory=Counter)
    parts: tuple[str, ...] = ()

    @property
    def kind(self) -> str | None:
        """The gravest class, None if nothing differs."""
        return next((name for name in CLASSES if self.counts[name]), None)

    @property
    def follow_ups(self) -> int:
        """Number of differences after the first, DIGEST-ONLY aside; most of them follow from it."""
        return max(sum(n for name, n in self.counts.items() if name != "DIGEST-ONLY") - 1, 0)

    def summary_lines(self, file: str) -> list[str]:
        """Return a line on the first difference in `file`, and one on the gravest if that is of another class."""
        out = []
        if self.first is not None:
            behind = "which may follow" if self.follow_ups == 1 else "most of which follow"
            more = f"; {self.follow_ups} more, {behind} from it" if self.follow_ups else ""
            out.append(
                f"{file} line {self.first.line}: first difference: {self.first} [{self.first.kind}]{more}"
            )
        if self.grave is not None:
            out.append(f"{file} line {self.grave.line}: gravest: {self.grave} [{self.grave.kind}]")
        return out

    @property
    def grave(self) -> Divergence | None:
        """The first difference of the gravest class, unless the first of all is of that class."""
        same = self.first is not None and self.gravest is not None and self.gravest.kind == self.first.kind
        return None if same else self.gravest


def shorten(value: Any) -> str:
    """Return a value as it stands in a message: escaped, at most 80 characters."""
    if value is ABSENT:
        return "nothing"
    text = escape_terminal(
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    )
    return truncate(text, 80)


def _side_by_side(before: Any, after: Any) -> tuple[str, str]:
    """Return two values shortened; long texts that begin alike are cut shortly before they differ."""
    if isinstance(before, str) and isinstance(after, str):
        pairs = enumerate(zip(before, after, strict=False))
        same = next((i for i, (a, b) in pairs if a != b), min(len(before), len(after)))
        if same > 40 and max(len(before), len(after)) > 80:
            before, after = (f"…{text[same - 20 :]}" for text in (before, after))
    return shorten(before), shorten(after)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 run`, `2 runs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def class_of(line_type: str, pointer: str) -> str:
    """Return the class of a difference at a JSON Pointer of a line of type `line_type`."""
    place = line_type + pointer
    return next((name for pattern, name in _TABLE if pattern.match(place)), "SHAPE")


def compare(before: list[Line], after: list[Line]) -> Drift:
    """Compare two ledgers, each a list of decoded lines."""
    first: Divergence | None = None
    heads: dict[str, Divergence] = {}  # the first of each class
    counts: Counter[str] = Counter()
    behind: Counter[str] = Counter()
    for divergence in islice(divergences(before, after), _LIMIT):
        counts[divergence.kind] += 1
        heads.setdefault(divergence.kind, divergence)
        if first is not None:
            behind[divergence.kind] += 1
        elif divergence.kind != "DIGEST-ONLY":
            first = divergence
    gravest = next((heads[name] for name in CLASSES if name in heads), None)
    return Drift(first or gravest, counts, gravest, behind, moved_parts(before, after))


def divergences(before: list[Line], after: list[Line]) -> Iterator[Divergence]:
    """Yield every difference of two ledgers, line by line."""
    asked = asked_pattern(before)
    for number, a, b in _pairs(before, after):
        line = a if isinstance(a, dict) else b if isinstance(b, dict) else {}
        step = line.get("step_index") if line.get("type") == "step" else None
        if not isinstance(a, dict) or not isinstance(b, dict) or a.get("type") != b.get("type"):
            yield Divergence(
                number, step, "", _kind_of_line(a), _kind_of_line(b), "SHAPE", (_line(a), _line(b))
            )
            continue
        for pointer, left, right in differences(a, b):
            place = str(a["type"]) + pointer
            kind = "ASKED" if asked is not None and asked.match(place) else class_of(str(a["type"]), pointer)
            if is_exposed(left, right):
                kind = EXPOSURE
            yield Divergence(number, step, pointer, left, right, kind, (_line(a), _line(b)))


def _pairs(before: list[Line], after: list[Line]) -> Iterator[tuple[int, Any, Any]]:
    """Yield (line number, left, right): line by line, but the last line of one ledger with that of the other."""
    old, old_end = _without_end(before)
    new, new_end = _without_end(after)
    for number, (a, b) in enumerate(zip_longest(old, new, fillvalue=ABSENT), start=1):
        yield number, a, b
    if old_end is not ABSENT or new_end is not ABSENT:
        yield len(before if old_end is not ABSENT else after), old_end, new_end


def _without_end(lines: list[Line]) -> tuple[list[Line], Any]:
    if lines and lines[-1].get("type") == "end":
        return lines[:-1], lines[-1]
    return lines, ABSENT


def _line(side: Any) -> Any:
    return side if isinstance(side, dict) else None


def _kind_of_line(line: Any) -> Any:
    return f"a line of type {line.get('type')}" if isinstance(line, dict) else ABSENT
