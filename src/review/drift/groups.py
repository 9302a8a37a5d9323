"""Drifted runs in groups of one cause, and what is told of a group to whoever decides on it."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...evidence.checking.differences.cause import CODE, HAND
from ...evidence.checking.differences.compare import Findings
from ...evidence.checking.differences.drift import counted
from ...evidence.files import accepted
from ...evidence.files.git_objects import GitObjects
from ...evidence.files.json_diff import CLASSES
from ...runtime.formats.escape import escape_terminal
from ...runtime.formats.read_file import NotPlain, read_unlinked
from .accept import refusal
from .report import DriftedRun, DriftReport

_NAMES: Final = 8  # runs that are named in the head of a group
_WORDS: Final = 400  # characters of a line
_CHANGED_LINES: Final = 200  # lines shown of what changed in an input
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

    causes: tuple[str, ...]
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


def groups(
    report: DriftReport, findings: Sequence[Findings], folders: Sequence[Path], root: Path
) -> list[Group]:
    """Return the drifted runs of a report by their causes, the group with the gravest difference first."""
    found = {item.run: (item, folder) for item, folder in zip(findings, folders, strict=True)}
    by_causes: dict[tuple[str, ...], list[Member]] = {}
    for run in report.runs:
        item, folder = found[run.run]
        member = Member(folder, item, run, refusal(item, folder, root))
        by_causes.setdefault(tuple(sorted(run.causes)), []).append(member)
    return [Group(causes, tuple(members)) for causes, members in by_causes.items()]


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


def explanation(group: Group, root: Path) -> Iterator[str]:
    """Yield why the runs of a group drifted: the rules behind it, what changed in the inputs, what accepting means."""
    for cause in group.causes or ("",):
        yield from _why(cause, group, root)
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
    moved = [escape_terminal(name) for name in group.causes if name not in (CODE, HAND)]
    others = [name for name in group.causes if name in (CODE, HAND)]
    return " and ".join([*([f"{', '.join(moved)} changed"] if moved else []), *others])


def _why(cause: str, group: Group, root: Path) -> Iterator[str]:
    if cause == CODE:
        yield "the code: no changed input explains the differences, so the code that makes the runs did it"
    elif cause == HAND:
        yield "the record was edited by hand: what stands in it is not what was recorded; restore it from git"
    elif not cause:
        yield "no cause is known: the runs cannot be made again as they are"
    else:
        yield f"{escape_terminal(cause)} changed after the runs were recorded"
        yield from _changed_lines(cause, group, root)


def _changed_lines(path: str, group: Group, root: Path) -> Iterator[str]:
    """Yield the lines of an input that changed, as far as git has what the runs were recorded with."""
    pairs = [member.findings.digests[path] for member in group.members if path in member.findings.digests]
    if not pairs:
        return
    before, after = pairs[0]
    if before is None:
        yield "  the runs did not depend on it when they were recorded"
        return
    old, new = _recorded(path, before, root), _present(path, after, root)
    if old is None:
        yield "  what it was when they were recorded is not in the history of this repository"
        return
    if new is None:
        yield "  the runs do not depend on it any more, or it is gone"
        return
    rows = list(difflib.unified_diff(old.splitlines(), new.splitlines(), "recorded", "now", n=2, lineterm=""))
    if not rows:
        yield "  only its line ends, or bytes that are no text, differ"
    yield from (f"  {escape_terminal(row, _WORDS)}".rstrip() for row in rows[:_CHANGED_LINES])
    if len(rows) > _CHANGED_LINES:
        yield f"  and {counted(len(rows) - _CHANGED_LINES, 'line')} more"


def _recorded(path: str, digest: str, root: Path) -> str | None:
    """Return the text that an input had when its digest was recorded; None where git does not have it."""
    repository = GitObjects.around(root)
    if repository is None:
        return None
    with repository:
        name = repository.inside(root / path)
        for blob in repository.blobs_of(name) if name is not None else ():
            data = repository.read(blob)
            if data is not None and hashlib.sha256(data).hexdigest() == digest:
                return data.decode("utf-8", "replace")
    return None


def _present(path: str, digest: str | None, root: Path) -> str | None:
    """Return the text of an input as it is now; None where it is not the one that the check read."""
    if digest is None:
        return None
    try:
        data = read_unlinked(root / path)
    except (OSError, NotPlain, ValueError):
        return None
    return data.decode("utf-8", "replace") if hashlib.sha256(data).hexdigest() == digest else None


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
