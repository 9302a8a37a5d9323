"""What a person is told of drift, as plain data: the runs by gravity, each with its first difference in context.

Foreign text is in here as it is. Whoever shows it makes it inert: `drift_text` for a terminal, `drift_page` for
a browser, `annotations` for a forge.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ..evidence.cause import Cause, causes, in_words
from ..evidence.check import by_gravity
from ..evidence.compare import BROKEN, Findings
from ..evidence.drift import CLASSES, Divergence
from ..evidence.manifest import STATE
from .parting import Row, parting

QUIET: Final = "DIGEST-ONLY"
MENDED: Final = "nothing to accept: mend the files named above"
_AT: Final = re.compile(r"([A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)*):([0-9]{1,7})")
_MAX_POLICY: Final = 1 << 20
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

    def record(self) -> Line:
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
class Story:
    """One run that drifted."""

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

    @property
    def downstream(self) -> str:
        """What comes behind the first difference, by class: `3 EFFECT, 1 ANSWER`; empty where nothing does."""
        return ", ".join(f"{self.behind[name]} {name}" for name in CLASSES if self.behind[name])

    def record(self) -> Line:
        """As plain data."""
        return {
            "run": self.run,
            "class": self.kind,
            "causes": list(self.causes),
            "first": self.first.record() if self.first else None,
            "gravest": self.grave.record() if self.grave else None,
            "downstream": dict(self.behind),
            "notes": list(self.notes),
            "edited_by_hand": self.tampered,
            "made_again": self.judged,
            "accept": self.accept,
        }


@dataclass(frozen=True)
class Review:
    """A whole check: `stories` the gravest first, `index` where runs, tasks and index disagree, `secrets` found."""

    total: int
    stories: tuple[Story, ...]
    causes: tuple[Cause, ...]
    index: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    option: str = ""
    loud: tuple[Story, ...] = field(init=False)
    quiet: tuple[Story, ...] = field(init=False)

    def __post_init__(self) -> None:
        quiet = [story for story in self.stories if story.kind == QUIET] if len(self.stories) > 1 else []
        object.__setattr__(self, "quiet", tuple(quiet))
        object.__setattr__(self, "loud", tuple(story for story in self.stories if story not in quiet))

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
        if len(self.stories) == 1:
            return self.stories[0].accept
        if any(story.accept is not None and _takes(story.accept) for story in self.stories):
            return f'tachograph accept --all --reason "..."{self.option}'
        return None

    def record(self) -> Line:
        """As plain data."""
        return {
            "runs": self.total,
            "cause": in_words(self.causes),
            "causes": [cause.record() for cause in self.causes],
            "drifted": {story.run: list(story.lines) for story in self.stories},
            "first": {story.run: story.first.record() for story in self.stories if story.first is not None},
            "findings": [story.record() for story in self.stories],
            "classes": {story.run: story.kind for story in self.stories},
            "accept": {story.run: story.accept for story in self.stories},
            "accept_all": self.accept,
            "index": [*self.index, *self.secrets],
        }


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
    stories = tuple(_story(item, root, every, option) for item in bad)
    return Review(len(found), stories, tuple(every), tuple(index), tuple(secrets), option)


def _story(found: Findings, root: Path, every: Sequence[Cause], option: str) -> Story:
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
    accept = found.accept
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
    )


# ---- what was going on where two ledgers part --------------------------------------------------------------


def _part(found: Findings, item: Divergence, told: str, root: Path) -> Part:
    side = item.record()
    return Part(
        item.line,
        item.step,
        item.pointer,
        item.kind,
        told,
        side["before"],
        side["after"],
        tuple(parting(item.before, item.after)),
        tuple(_facts(found, item, root)),
    )


def _facts(found: Findings, item: Divergence, root: Path) -> list[tuple[str, str]]:
    """What the step was about: the call, its decision, the lines of the policy behind that, or what the model said."""
    then, now = item.sides
    here = now if isinstance(now, dict) else then
    if not isinstance(here, dict) or here.get("type") != "step":
        return []
    number = _number(item, then, now)
    calls = [_call(side, number) for side in (then, now)]
    decisions = [_decision(side, number) for side in (then, now)]
    facts = [("call", _both(*calls))] if any(calls) else [("model", _said(here))]
    if any(decisions):
        facts.append(("decision", _both(*map(_in_words, decisions))))
    for side, decision in (("then", decisions[0]), ("now", decisions[1])):
        at = decision.get("at") if decision else None
        text = _policy_line(found, root, at, known=side == "now")
        if text is not None:
            facts.append((f"policy {side}", f"{at}  {text}"))
    if len(facts) > 3 and facts[-1][1] == facts[-2][1]:
        facts[-2:] = [("policy", facts[-1][1])]
    return facts


def _number(item: Divergence, then: Any, now: Any) -> int | None:
    """Which call of its step a difference is about."""
    parts = item.pointer.split("/")[1:]
    at = int(parts[1]) if len(parts) > 1 and parts[1].isdecimal() else None
    if not parts or parts[0] not in ("policy_decisions", "tool_results", "intended_tool_calls") or at is None:
        return None
    if parts[0] != "policy_decisions":
        return at
    for side in (now, then):
        ids = [call.get("id") for call in _list(side, "intended_tool_calls")]
        decisions = _list(side, "policy_decisions")
        name = decisions[at].get("id") if at < len(decisions) else None
        if name in ids:
            return ids.index(name)
    return None


def _list(side: Any, key: str) -> list[Line]:
    listed = side.get(key) if isinstance(side, dict) else None
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []


def _call(side: Any, number: int | None) -> str | None:
    calls = _list(side, "intended_tool_calls")
    if number is None or number >= len(calls):
        return None
    call = calls[number]
    given = call.get("arguments")
    text = (
        call.get("arguments_text") if given is None else json.dumps(given, ensure_ascii=False, sort_keys=True)
    )
    return f"{call.get('name')} {text or ''}"


def _decision(side: Any, number: int | None) -> Line | None:
    """The decision that a call met: the one that denied it, else the first."""
    calls = _list(side, "intended_tool_calls")
    decisions = _list(side, "policy_decisions")
    if number is not None:
        name = calls[number].get("id") if number < len(calls) else None
        decisions = [entry for entry in decisions if entry.get("id") == name]
    return next(
        (entry for entry in decisions if entry.get("decision") == "deny"), next(iter(decisions), None)
    )


def _in_words(decision: Line | None) -> str | None:
    if decision is None:
        return None
    return f"{decision.get('decision')} by {decision.get('rule_id')} ({decision.get('at')})"


def _both(then: str | None, now: str | None) -> str:
    return str(now) if then == now else f"{then or 'none'} -> {now or 'none'}"


def _said(step: Line) -> str:
    output = step.get("llm_output")
    if not isinstance(output, dict):
        return "was not asked" if not step.get("llm_attempts") else "gave no reply"
    if output.get("final_answer") is not None:
        return f"answers: {output['final_answer']}"
    return (
        f"says: {output['text']}"
        if output.get("text")
        else f"proposes {len(_list(step, 'intended_tool_calls'))} calls"
    )


def _policy_line(found: Findings, root: Path, at: Any, *, known: bool) -> str | None:
    """The text of a policy line as it is now; None where it is not what `at` spoke of, or not there."""
    match = _AT.fullmatch(at) if isinstance(at, str) else None
    if match is None or found.roles.get(match[1]) != "policy" or (not known and match[1] in found.moved):
        return None
    path = root / match[1]
    try:
        if not path.resolve().is_relative_to(root.resolve()) or path.stat().st_size > _MAX_POLICY:
            return None
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return None
    return lines[int(match[2]) - 1].strip() if 0 < int(match[2]) <= len(lines) else None
