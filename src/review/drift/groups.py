"""Drifted runs in groups of one cause, and what is told of a group to whoever decides on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...evidence.checking.differences.cause import Cause
from ...evidence.checking.differences.compare import Findings
from ...evidence.checking.differences.drift import counted
from ...evidence.checking.differences.found_cause import CODE, DEPENDENCY, GUESS, HAND
from ...evidence.files import accepted
from ...evidence.files.json_diff import CLASSES
from ...runtime.formats.escape import escape_terminal
from .accept import refusal
from .report import DriftedRun, DriftReport

_NAMES: Final = 8  # runs that are named in the head of a group
_WORDS: Final = 400  # characters of a line
_EVERY: Final = {name: i for i, name in enumerate(CLASSES)}


@dataclass(frozen=True)
class Member:
    """One run of a group; `refused` says why it cannot be accepted, and is None where it can."""

    folder: Path
    findings: Findings
    run: DriftedRun
    refused: str | None


@dataclass(frozen=True)
class Group:
    """The runs that drifted for the same causes, the gravest first."""

    causes: tuple[Cause, ...]
    members: tuple[Member, ...]

    @property
    def acceptable(self) -> tuple[Member, ...]:
        """The runs that can be accepted."""
        return tuple(member for member in self.members if member.refused is None)

    @property
    def verdicts(self) -> int:
        """How many decisions of the gate would change in the runs that can be accepted."""
        drifts = [member.findings.drift for member in self.acceptable]
        return sum(drift.counts["VERDICT"] for drift in drifts if drift is not None)

    @property
    def claims(self) -> int:
        """How many of the runs that can be accepted differ by what only their manifests claim."""
        return sum(member.findings.rests_on_a_claim for member in self.acceptable)

    @property
    def exposures(self) -> int:
        """How many of the runs that can be accepted let in secrets that were kept out of them."""
        return sum(member.findings.is_exposure for member in self.acceptable)


def groups(
    report: DriftReport, findings: Sequence[Findings], folders: Sequence[Path], root: Path
) -> list[Group]:
    """Return the drifted runs of a report by their causes, the group with the gravest difference first."""
    found = {item.run: (item, folder) for item, folder in zip(findings, folders, strict=True)}
    by_causes: dict[tuple[str, ...], list[Member]] = {}
    for run in report.runs:
        item, folder = found[run.run]
        member = Member(folder, item, run, refusal(item, folder, root, code_changed=True, expose=True))
        by_causes.setdefault(tuple(sorted(run.causes)), []).append(member)
    causes = {cause.source: cause for cause in report.causes}
    return [
        Group(tuple(causes[name] for name in names), tuple(members)) for names, members in by_causes.items()
    ]


def head(group: Group) -> Iterator[str]:
    """Yield what is told of a group before it is asked about."""
    yield f"{_cause_words(group)}: {counted(len(group.members), 'run')}"
    by_class: dict[str, list[str]] = {}
    for member in group.members:
        by_class.setdefault(member.run.kind, []).append(member.run.run)
    for kind in sorted(by_class, key=lambda name: _EVERY.get(name, -1)):
        names = [escape_terminal(name, 200) for name in by_class[kind]]
        more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
        yield f"  {kind}  {' '.join(names[:_NAMES])}{more}"
    first = next((member.run.first for member in group.members if member.run.first is not None), None)
    lines = group.members[0].run.lines
    if first is not None or lines:
        yield f"  {escape_terminal(first.summary if first is not None else lines[0], _WORDS)}"


def explanation(group: Group) -> Iterator[str]:
    """Yield why the runs of a group drifted: the rules behind it, what changed in the inputs, what accepting means."""
    for cause in group.causes:
        yield from _why(cause)
    if not group.causes:
        yield "no cause is known: the runs cannot be made again as they are"
    guesses = dict.fromkeys(member.run.guess for member in group.members if member.run.guess is not None)
    yield from (f"the cause was not found by trying: {escape_terminal(why, _WORDS)}" for why in guesses)
    rules = dict.fromkeys(
        f"  {name}: {escape_terminal(text, _WORDS)}"
        for member in group.members
        for item in member.run.differences
        for name, text in item.facts
        if name.startswith("rule")
    )
    if rules:
        yield "the rules behind the first and the gravest difference of each run:"
        yield from rules
    yield from _consequence(group)


def refusals(group: Group) -> Iterator[str]:
    """Yield the runs of a group that cannot be accepted, and why."""
    for member in group.members:
        if member.refused is not None:
            yield f"  {escape_terminal(member.run.run, 200)}: {escape_terminal(member.refused, _WORDS)}"


def _cause_words(group: Group) -> str:
    if not group.causes:
        return "no cause is known"
    return ", ".join(
        escape_terminal(cause.source, _WORDS)
        + ("" if _is_no_input(cause) else " changed")
        + (" (a guess)" if cause.certainty == GUESS else "")
        for cause in group.causes
    )


def _is_no_input(cause: Cause) -> bool:
    return cause.source in (CODE, DEPENDENCY, HAND)


def _why(cause: Cause) -> Iterator[str]:
    if cause.source == HAND:
        yield "the record was edited by hand: what stands in it is not what was recorded; restore it from git"
    elif _is_no_input(cause):
        yield f"{cause.source}: no input explains the differences, and only the manifest claims that this was another"
    else:
        yield f"{escape_terminal(cause.source, _WORDS)} changed after the runs were recorded"
        yield from (f"  {escape_terminal(row, _WORDS)}".rstrip() for row in cause.diff)


def _consequence(group: Group) -> Iterator[str]:
    takes = group.acceptable
    if not takes:
        yield "none of these runs can be accepted:"
        yield from refusals(group)
        return
    verdicts = group.verdicts
    number = counted(verdicts, "verdict") if verdicts else "no verdict"
    gives = "it gives" if len(takes) == 1 else "they give"
    yield (
        f"accepting replaces {counted(len(takes), 'recorded run')} by what {gives} now and adds "
        f"{counted(len(takes), 'line')} with your reason to {accepted.ACCEPTED}; "
        f"{number} of the gate change{'s' * (verdicts < 2)}"
    )
    if len(takes) < len(group.members):
        yield "these are left as they are:"
        yield from refusals(group)
