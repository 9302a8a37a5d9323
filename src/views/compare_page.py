"""Two runs side by side as one page: where they first part, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..evidence.checking.differences.drift import Divergence, Drift, class_of, compare
from ..evidence.files.json_diff import differences
from ..pages.render import render
from ..runtime.core.lines import Line
from .model import Run, Step, of_known_shape
from .page import HELPERS, ending_of, numbers_of

Difference = tuple[str, Any, Any, str]  # pointer, left, right, class


@dataclass(frozen=True, slots=True)
class Pair:
    """The steps of one number in both runs, and how they differ."""

    number: int
    left: Step | None
    right: Step | None
    differences: list[Difference]

    @property
    def substance(self) -> list[Difference]:
        """The differences other than of digests alone."""
        return [item for item in self.differences if item[3] != "DIGEST-ONLY"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs compared.

    Attributes:
        drift: how differently they went.
        setup: how differently they were set up.
        pairs: their steps, side by side.
        timed: whether times were compared too, which is of no use with a real clock.
    """

    left: Run
    right: Run
    drift: Drift
    setup: list[Difference]
    pairs: list[Pair]
    timed: bool

    @property
    def first(self) -> Divergence | None:
        """The first difference of substance."""
        first = self.drift.first
        return first if first is not None and first.kind != "DIGEST-ONLY" else None

    @property
    def setup_changes(self) -> list[Difference]:
        """How their set-up differs, their names aside."""
        return [item for item in self.setup if item[0] not in ("/run_id", "/prev", "/task/id")]

    def state_of(self, pair: Pair) -> tuple[str, str, str]:
        """Return (word, sign, class of the step) for a pair."""
        if pair.left is not None and pair.right is not None and not pair.substance:
            return "the same", "other", "good"
        is_first = self.first is not None and self.first.step == pair.number
        word, sign, mark = (
            ("first divergence", "deny", "bad") if is_first else ("downstream", "escalate", "follows")
        )
        if pair.left is None or pair.right is None:
            word = f"only in {'A' if pair.right is None else 'B'}: {word}"
        return word, sign, mark


def compared(left: Run, right: Run) -> Comparison:
    """Compare two runs step by step. Raises RecordError for a ledger of an unknown shape."""
    with of_known_shape(f"{left.name} or {right.name}"):
        return _compared(left, right)


def _compared(left: Run, right: Run) -> Comparison:
    timed = all(run.run["clock"]["kind"] == "virtual" for run in (left, right))
    a, b = ([line if timed else _untimed(line) for line in run.lines] for run in (left, right))
    steps = [[line for line in lines if line["type"] == "step"] for lines in (a, b)]
    pairs = []
    for number in range(max(len(left.steps), len(right.steps))):
        one, other = (run.steps[number] if number < len(run.steps) else None for run in (left, right))
        step_differences = _differences("step", steps[0][number], steps[1][number]) if one and other else []
        pairs.append(Pair(number + 1, one, other, step_differences))
    # the set-up is compared apart, so that the first difference is one in what the runs did with it
    drift = compare([{"type": "run"}, *a[1:]], [{"type": "run"}, *b[1:]])
    return Comparison(left, right, drift, _differences("run", a[0], b[0]), pairs, timed)


def _untimed(line: Line) -> Line:
    return {key: value for key, value in line.items() if key not in ("stamps", "stamp", "clock")}


def _differences(kind: str, before: Line, after: Line) -> list[Difference]:
    return [(at, a, b, class_of(kind, at)) for at, a, b in differences(before, after)]


def compare_page(both: Comparison) -> str:
    """Return the page of two runs. Raises RecordError for a ledger of an unknown shape."""
    runs = (("A", both.left), ("B", both.right))
    with of_known_shape(f"{both.left.name} or {both.right.name}"):
        return render(
            "compare.html",
            title=f"{both.left.title} and {both.right.title} · compared",
            style="page.css",
            scripts=("page.js",),
            kind="run",
            home=None,
            skip="steps",
            places=("steps", "setup"),
            both=both,
            sides=[(letter, run, ending_of(run), numbers_of(run)) for letter, run in runs],
            values=both.first.to_dict() if both.first is not None else None,
            **HELPERS,
        )
