"""What a check reports of drift, as plain data: the runs that drifted, the gravest first, each difference in context.

Untrusted text is in here as it is. Each renderer makes it harmless: `text` for a terminal, `page` for a browser,
`annotations` for a forge.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ...evidence.checking.check import by_gravity
from ...evidence.checking.differences.cause import CODE_CHANGED, EXPOSE, Cause, causes, in_words
from ...evidence.checking.differences.compare import BROKEN, Findings
from ...evidence.checking.differences.drift import Divergence, counted
from ...evidence.checking.differences.found_cause import GUESS
from ...evidence.checking.experiment.find import find_causes
from ...evidence.files import accepted
from ...evidence.files.json_diff import CLASSES
from ...evidence.files.manifest import STATE
from ...runtime.core.lines import Line
from .context import facts_of
from .excerpt import Row, excerpt

QUIET: Final = "DIGEST-ONLY"
NOTHING_TO_ACCEPT: Final = "nothing to accept: fix the inputs named above, or restore the run's folder"
# why a run is not accepted: of one run, of several
_NOT_ACCEPTED: Final = {
    "hand": ("was changed by hand and is to be restored", "were changed by hand and are to be restored"),
    "again": ("cannot be made again", "cannot be made again"),
    "task": ("needs its task fixed first", "need their task fixed first"),
    "effect": ("needs its effects performed again", "need their effects performed again"),
    "code": ("needs --code-changed", "need --code-changed"),
    "exposure": ("needs --expose-secrets", "need --expose-secrets"),
    "model": ("needs its model again", "need their model again"),
}
# flag of `accept` -> why runs are not accepted without it
_FLAGS: Final = {CODE_CHANGED: "code", EXPOSE: "exposure"}


@dataclass(frozen=True)
class DifferenceContext:
    """One difference and what is around it.

    Attributes:
        line: number of the ledger's line.
        step: number of the step; None outside of one.
        pointer: JSON Pointer of the differing value in that line.
        kind: class of the difference.
        summary: the difference on one line.
        before, after: the two values, shortened.
        rows: an excerpt of both values around the place where they differ.
        facts: (name, text) pairs: the call, its decision, the line of the rule behind it.
    """

    line: int
    step: int | None
    pointer: str
    kind: str
    summary: str
    before: str
    after: str
    rows: tuple[Row, ...]
    facts: tuple[tuple[str, str], ...]

    def to_dict(self) -> Line:
        """Return it as plain data."""
        return {
            "line": self.line,
            "step": self.step,
            "pointer": self.pointer,
            "class": self.kind,
            "before": self.before,
            "after": self.after,
            "rows": [list(row) for row in self.rows],
            "context": dict(self.facts),
        }


@dataclass(frozen=True)
class DriftedRun:
    """One run that drifted.

    Attributes:
        kind: class of the gravest difference.
        first, gravest: differences in context; `gravest` is None where it is the first.
        follow_up_counts: differences after the first one, by class.
        lines: everything that was found; `notes` without the lines on `first` and `gravest`.
        judged: whether the run could be made again.
        accept: the command that accepts or records it anew, if any.
        guess: why the causes could not be found by trying, if they could not.
        not_accepted: why `tachograph accept` does not take it, a key of what `DriftReport.takes` puts in words.
    """

    run: str
    kind: str
    causes: tuple[str, ...]
    first: DifferenceContext | None
    gravest: DifferenceContext | None
    follow_up_counts: Counter[str]
    lines: tuple[str, ...]
    notes: tuple[str, ...]
    edited_by_hand: bool
    judged: bool
    accept: str | None
    not_accepted: str | None = None
    guess: str | None = None

    @property
    def differences(self) -> tuple[DifferenceContext, ...]:
        """The first difference and the gravest, as far as there are any."""
        return tuple(item for item in (self.first, self.gravest) if item is not None)

    @property
    def follow_ups(self) -> str:
        """What comes after the first difference, by class: `3 EFFECT, 1 ANSWER`; empty where nothing does."""
        counts = self.follow_up_counts
        return ", ".join(f"{counts[name]} {name}" for name in CLASSES if counts[name])

    def to_dict(self) -> Line:
        """Return it as plain data."""
        return {
            "run": self.run,
            "class": self.kind,
            "causes": list(self.causes),
            "first": self.first.to_dict() if self.first else None,
            "gravest": self.gravest.to_dict() if self.gravest else None,
            "downstream": dict(self.follow_up_counts),
            "notes": list(self.notes),
            "edited_by_hand": self.edited_by_hand,
            "made_again": self.judged,
            "guess": self.guess,
            "accept": self.accept,
        }


@dataclass(frozen=True)
class DriftReport:
    """A whole check.

    Attributes:
        total: number of runs checked.
        runs: those that drifted, the gravest first.
        index: places where runs, tasks and index disagree.
        secrets: places that hold what looks like a secret, and files that could not be searched.
        option: `--root ...` for the commands that are offered, if it was given.
        blocked: why nothing at all can be accepted now.
        quiet: several runs in which only digests changed.
        loud: all other runs that drifted; each is reported by itself.
    """

    total: int
    runs: tuple[DriftedRun, ...]
    causes: tuple[Cause, ...]
    index: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    option: str = ""
    blocked: str | None = None
    loud: tuple[DriftedRun, ...] = field(init=False)
    quiet: tuple[DriftedRun, ...] = field(init=False)

    def __post_init__(self) -> None:
        quiet = [run for run in self.runs if run.kind == QUIET] if len(self.runs) > 1 else []
        loud = [run for run in self.runs if run not in quiet]
        for name, runs in (("quiet", quiet), ("loud", loud)):
            object.__setattr__(self, name, tuple(runs))

    @property
    def ok(self) -> bool:
        """Whether nothing at all is wrong."""
        return not (self.runs or self.index or self.secrets)

    @property
    def judged(self) -> bool:
        """Whether what is wrong is known; not if runs could not be made again and none of the others drifted."""
        return self.ok or not self.runs or any(run.judged for run in self.runs)

    @property
    def head(self) -> str:
        """The first line: how many runs drifted, and the cause, or the likely one if it is a guess."""
        cause = in_words(self.causes)
        word = "likely cause" if any(item.certainty == GUESS for item in self.causes) else "cause"
        because = f"; {word}: {cause}" if cause else ""
        return f"check: {len(self.runs)} of {self.total} runs drifted{because}"

    @property
    def guesses(self) -> list[str]:
        """Why causes could not be found by trying, each reason with the number of runs if there are several."""
        reasons = Counter(run.guess for run in self.runs if run.guess is not None)
        every = len(self.runs) == reasons.total() and len(reasons) == 1
        whose = {why: "" if every else f" for {counted(number, 'run')}" for why, number in reasons.items()}
        return [f"the cause was not found by trying{runs}: {why}" for why, runs in whose.items()]

    @property
    def accept(self) -> str | None:
        """The command that accepts all that can be accepted; None where nothing can."""
        if self.blocked is not None:
            return None
        if len(self.runs) == 1:
            return self.runs[0].accept
        if any(run.not_accepted is None for run in self.runs):
            return f'tachograph accept --all --reason "..."{self.option}'
        flags = {flag for run in self.runs for flag in _flags(run.accept)}
        return (
            f'tachograph accept --all {" ".join(sorted(flags))} --reason "..."{self.option}'
            if flags
            else None
        )

    @property
    def takes(self) -> str | None:
        """How many runs the command takes and why not the others; None where it takes all, or there is none."""
        given = {_FLAGS[flag] for flag in _flags(self.accept)}
        left = Counter(run.not_accepted for run in self.runs if run.not_accepted not in {None, *given})
        if self.accept is None or not left:
            return None
        why = ", ".join(
            f"{left[key]} {words[left[key] > 1]}" for key, words in _NOT_ACCEPTED.items() if left[key]
        )
        return f"accept takes {counted(len(self.runs) - left.total(), 'run')}; {why}"

    @property
    def nothing_to_accept(self) -> str:
        """What is said where nothing can be accepted."""
        return NOTHING_TO_ACCEPT if self.blocked is None else f"nothing can be accepted: {self.blocked}"

    def to_dict(self) -> Line:
        """Return it as plain data."""
        return {
            "runs": self.total,
            "cause": in_words(self.causes),
            "causes": [cause.to_dict() for cause in self.causes],
            "drifted": {run.run: list(run.lines) for run in self.runs},
            "first": {run.run: run.first.to_dict() for run in self.runs if run.first is not None},
            "findings": [run.to_dict() for run in self.runs],
            "classes": {run.run: run.kind for run in self.runs},
            "accept": {run.run: run.accept for run in self.runs},
            "accept_all": self.accept,
            "accept_takes": self.takes,
            "index": [*self.index, *self.secrets],
        }


def _flags(command: str | None) -> list[str]:
    """Return the flags of a command by which a person says that they know what is accepted."""
    return [word for word in (command or "").split() if word in _FLAGS]


def _is_accept(command: str) -> bool:
    return command.startswith("tachograph accept ")


def drift_report(
    findings: Sequence[Findings],
    root: Path,
    *,
    index: Sequence[str] = (),
    secrets: Sequence[str] = (),
    given_root: str | None = None,
) -> DriftReport:
    """Return the report on the findings of a check of the project at `root`."""
    bad = [item for item in findings if not item.ok]
    find_causes(bad, root)
    bad = by_gravity(bad)
    option = f" --root {shlex.quote(given_root)}" if given_root is not None else ""
    every = causes(bad)
    wrong = accepted.history(root).wrong if bad else []
    blocked = wrong[0] if wrong else None
    runs = tuple(_drifted_run(item, root, every, option, blocked) for item in bad)
    return DriftReport(len(findings), runs, tuple(every), tuple(index), tuple(secrets), option, blocked)


def _drifted_run(
    findings: Findings, root: Path, every: Sequence[Cause], option: str, blocked: str | None
) -> DriftedRun:
    drift = findings.drift
    summaries = drift.summary_lines(STATE) if drift is not None else []
    first, gravest = (drift.first, drift.grave) if drift is not None else (None, None)
    accept = findings.accept if blocked is None else None
    return DriftedRun(
        findings.run,
        findings.kind,
        tuple(cause.source for cause in every if findings.run in cause.runs),
        _context(findings, first, summaries[0], root) if first is not None else None,
        _context(findings, gravest, summaries[-1], root) if gravest is not None else None,
        drift.behind if drift is not None else Counter(),
        tuple(findings.lines),
        tuple(line for line in findings.lines if line not in summaries),
        findings.tampered or (findings.kind == BROKEN and findings.judged and not findings.missed),
        findings.judged,
        f"{accept}{option}" if accept is not None and _is_accept(accept) else accept,
        _not_accepted(findings),
        findings.guess,
    )


def _not_accepted(findings: Findings) -> str | None:
    """Return why `tachograph accept` does not take a run, in the order in which it asks; None where it does."""
    if findings.accept is not None and _is_accept(findings.accept):
        return "code" if findings.rests_on_a_claim else "exposure" if findings.is_exposure else None
    if findings.tampered:
        return "hand"
    if not findings.judged:
        return "again"
    if findings.unrecorded:
        return "effect"
    return "task" if findings.missed else "model"


def _context(findings: Findings, item: Divergence, summary: str, root: Path) -> DifferenceContext:
    side = item.to_dict()
    return DifferenceContext(
        item.line,
        item.step,
        item.pointer,
        item.kind,
        summary,
        side["before"],
        side["after"],
        tuple(excerpt(item.before, item.after)),
        tuple(facts_of(findings, item, root)),
    )
