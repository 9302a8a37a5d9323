"""What a person is told of drift, as plain data: the runs by gravity, each with its first difference in context.

Foreign text is in here as it is. Whoever shows it makes it inert: `drift_text` for a terminal, `drift_page` for
a browser, `annotations` for a forge.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ...evidence.checking.cause import Cause, causes, in_words
from ...evidence.checking.check import by_gravity
from ...evidence.checking.compare import BROKEN, Findings
from ...evidence.checking.drift import Divergence, counted
from ...evidence.files import accepted
from ...evidence.files.json_diff import CLASSES
from ...evidence.files.manifest import STATE
from .context import facts_of, policy_line
from .excerpt import Row, parting

QUIET: Final = "DIGEST-ONLY"
MENDED: Final = "nothing to accept: mend the files named above"
LINES_ONLY: Final = "in which only the lines of the policy have other numbers"
# why a run is not accepted: of one run, of several
_LEFT: Final = {
    "hand": ("was changed by hand and is to be restored", "were changed by hand and are to be restored"),
    "again": ("cannot be made again", "cannot be made again"),
    "task": ("needs its task mended first", "need their task mended first"),
    "model": ("needs its model again", "need their model again"),
}
Line = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """One difference with what is around it: `facts` are (name, text) pairs, `rows` show where the values part."""

    line: int
    step: int | None
    pointer: str
    kind: str
    told: str
    before: str
    after: str
    rows: tuple[Row, ...]
    facts: tuple[tuple[str, str], ...]

    def to_dict(self) -> Line:
        """As plain data."""
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
class Shift:
    """A policy line that has another number: `file:line` then and now, and its text today where that is known."""

    then: str
    now: str
    text: str | None

    @property
    def told(self) -> str:
        """`policy/v1.yaml:7 -> :6`."""
        return f"{self.then} -> :{self.now.rpartition(':')[2]}"

    def to_dict(self) -> Line:
        """As plain data."""
        return {"then": self.then, "now": self.now, "text": self.text}


@dataclass(frozen=True)
class Story:
    """One run that drifted. `shifts` is not empty where nothing but the numbers of policy lines moved; `left` is why
    the run is not accepted, a key of what `Review.takes` says in words.
    """

    run: str
    kind: str
    causes: tuple[str, ...]
    first: Part | None
    grave: Part | None
    behind: Counter[str]
    lines: tuple[str, ...]
    notes: tuple[str, ...]
    tampered: bool
    judged: bool
    accept: str | None
    shifts: tuple[Shift, ...] = ()
    left: str | None = None

    @property
    def downstream(self) -> str:
        """What comes behind the first difference, by class: `3 EFFECT, 1 ANSWER`; empty where nothing does."""
        return ", ".join(f"{self.behind[name]} {name}" for name in CLASSES if self.behind[name])

    def to_dict(self) -> Line:
        """As plain data."""
        return {
            "run": self.run,
            "class": self.kind,
            "causes": list(self.causes),
            "first": self.first.to_dict() if self.first else None,
            "gravest": self.grave.to_dict() if self.grave else None,
            "downstream": dict(self.behind),
            "notes": list(self.notes),
            "edited_by_hand": self.tampered,
            "made_again": self.judged,
            "accept": self.accept,
            "lines_moved": [shift.to_dict() for shift in self.shifts],
        }


@dataclass(frozen=True)
class Review:
    """A whole check: `stories` the gravest first, `index` where runs, tasks and index disagree, `secrets` found.

    `blocked` is why nothing at all can be accepted now. Each story is in one of three: `loud`, told by itself;
    `shifted`, several in which only numbers of policy lines moved; `quiet`, several in which only digests did.
    """

    total: int
    stories: tuple[Story, ...]
    causes: tuple[Cause, ...]
    index: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    option: str = ""
    blocked: str | None = None
    loud: tuple[Story, ...] = field(init=False)
    shifted: tuple[Story, ...] = field(init=False)
    quiet: tuple[Story, ...] = field(init=False)

    def __post_init__(self) -> None:
        quiet = [story for story in self.stories if story.kind == QUIET] if len(self.stories) > 1 else []
        moved = [story for story in self.stories if story.shifts]
        moved = moved if len(moved) > 1 else []
        object.__setattr__(self, "quiet", tuple(quiet))
        object.__setattr__(self, "shifted", tuple(moved))
        rest = (story for story in self.stories if story not in quiet and story not in moved)
        object.__setattr__(self, "loud", tuple(rest))

    @property
    def ok(self) -> bool:
        return not (self.stories or self.index or self.secrets)

    @property
    def judged(self) -> bool:
        """Whether what is wrong is known: not so where runs could not be made again and none of the others drifted."""
        return self.ok or not self.stories or any(story.judged for story in self.stories)

    @property
    def head(self) -> str:
        """The first line: how many runs drifted, and the likely cause."""
        cause = in_words(self.causes)
        because = f"; likely cause: {cause}" if cause else ""
        return f"check: {len(self.stories)} of {self.total} runs drifted{because}"

    @property
    def accept(self) -> str | None:
        """The command that accepts all that can be accepted; None where nothing can."""
        if self.blocked is not None:
            return None
        if len(self.stories) == 1:
            return self.stories[0].accept
        if any(story.accept is not None and _takes(story.accept) for story in self.stories):
            return f'tachograph accept --all --reason "..."{self.option}'
        return None

    @property
    def takes(self) -> str | None:
        """How many runs the command takes and why not the others; None where it takes all, or there is none."""
        left = Counter(story.left for story in self.stories if story.left is not None)
        if self.accept is None or not left:
            return None
        why = ", ".join(f"{left[key]} {words[left[key] > 1]}" for key, words in _LEFT.items() if left[key])
        taken = len(self.stories) - left.total()
        return f"accept takes {counted(taken, 'run')}; {why}"

    @property
    def mended(self) -> str:
        """What is said where nothing can be accepted."""
        return MENDED if self.blocked is None else f"nothing can be accepted: {self.blocked}"

    @property
    def shifts(self) -> tuple[Shift, ...]:
        """The policy lines that have other numbers in `shifted`, each once, in their order."""
        every = {shift: None for story in self.shifted for shift in story.shifts}
        return tuple(sorted(every, key=lambda shift: _order(shift.then)))

    def to_dict(self) -> Line:
        """As plain data."""
        return {
            "runs": self.total,
            "cause": in_words(self.causes),
            "causes": [cause.to_dict() for cause in self.causes],
            "drifted": {story.run: list(story.lines) for story in self.stories},
            "first": {story.run: story.first.to_dict() for story in self.stories if story.first is not None},
            "findings": [story.to_dict() for story in self.stories],
            "classes": {story.run: story.kind for story in self.stories},
            "accept": {story.run: story.accept for story in self.stories},
            "accept_all": self.accept,
            "accept_takes": self.takes,
            "index": [*self.index, *self.secrets],
        }


def _order(place: str) -> tuple[str, int, str]:
    file, _, line = place.rpartition(":")
    return file, int(line), place


def _takes(command: str) -> bool:
    return command.startswith("tachograph accept ")


def review(
    found: Sequence[Findings],
    root: Path,
    *,
    index: Sequence[str] = (),
    secrets: Sequence[str] = (),
    given_root: str | None = None,
) -> Review:
    """What is to be told of the findings of a check of the project at `root`."""
    bad = by_gravity([item for item in found if not item.ok])
    option = f" --root {shlex.quote(given_root)}" if given_root is not None else ""
    every = causes(bad)
    wrong = accepted.history(root).wrong if bad else []
    blocked = wrong[0] if wrong else None
    stories = tuple(_story(item, root, every, option, blocked) for item in bad)
    return Review(len(found), stories, tuple(every), tuple(index), tuple(secrets), option, blocked)


def _story(found: Findings, root: Path, every: Sequence[Cause], option: str, blocked: str | None) -> Story:
    drift = found.drift
    told = drift.told(STATE) if drift is not None else []
    texts = iter(told)
    first = (
        _part(found, drift.first, next(texts), root)
        if drift is not None and drift.first is not None
        else None
    )
    grave = (
        _part(found, drift.grave, next(texts), root)
        if drift is not None and drift.grave is not None
        else None
    )
    accept = found.accept if blocked is None else None
    shifts = drift.shifts if drift is not None and found.kind == "TEXT" and not found.broken else ()
    return Story(
        found.run,
        found.kind,
        tuple(cause.what for cause in every if found.run in cause.runs),
        first,
        grave,
        drift.behind if drift is not None else Counter(),
        tuple(found.lines),
        tuple(line for line in found.lines if line not in told),
        found.tampered or (found.kind == BROKEN and found.judged and not found.missed),
        found.judged,
        f"{accept}{option}" if accept is not None and _takes(accept) else accept,
        tuple(Shift(then, now, policy_line(found, root, now, known=True)) for then, now in shifts),
        _left(found),
    )


def _left(found: Findings) -> str | None:
    """Why `tachograph accept` does not take a run, in the order in which it asks; None where it does."""
    if found.accept is not None and _takes(found.accept):
        return None
    if found.tampered:
        return "hand"
    if not found.judged:
        return "again"
    return "task" if found.missed else "model"


def _part(found: Findings, item: Divergence, told: str, root: Path) -> Part:
    side = item.to_dict()
    return Part(
        item.line,
        item.step,
        item.pointer,
        item.kind,
        told,
        side["before"],
        side["after"],
        tuple(parting(item.before, item.after)),
        tuple(facts_of(found, item, root)),
    )
