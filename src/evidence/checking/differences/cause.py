"""What made runs drift: the causes of each run, then of all runs together.

Where runs cannot be made again with their inputs as recorded (`checking.experiment`), the causes are guessed. A changed
input is not always the cause: editing a comment in the policy changes an input of every run. The first
differences therefore select among the changed inputs: a decision depends on the policy file that it names, a
result on the documents that the call read or on its tool, a hook's answer on the file with the hooks, a reply on the
task's script. If no changed input can have caused a difference, the code did.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from typing import Any, Final

from ....light_dataclasses import dataclass
from ....runtime.core.lines import Line
from ....runtime.core.outcome_codec import pairs_from_dict
from ....runtime.formats.escape import escape_terminal
from ...files.json_diff import CLASSES
from ...files.manifest import MANIFEST
from .compare import Findings
from .drift import Divergence
from .found_cause import CLAIM, CODE, DEPENDENCY, GUESS, HAND, TRIED, FoundCause

CODE_CHANGED: Final = "--code-changed"
EXPOSE: Final = "--expose-secrets"
OWN_TASK: Final = "the task of each"  # in place of the names of several tasks
SEVERAL: Final = 3  # the number of causes named in one line
_SURENESS: Final = (TRIED, CLAIM, GUESS)
_ORDER: Final = {name: i for i, name in enumerate(CLASSES)}

# the inputs that a place in a line depends on, the likeliest first; `at`, `read` and `tool` depend on the place
_RESTS: Final = (
    ("run", "policy", ("policy",)),
    ("run", "tools", ("tool of the list", "task")),
    ("run", "request_parts", ("tools", "policy", "task")),
    ("run", "mounts", ("task", "policy")),
    ("run", "hooks", ("hooks", "task")),
    ("run", "", ("task",)),
    ("step", "hooks", ("hooks", "policy", "task", "tools")),
    ("step", "policy_decisions", ("at", "policy", "tool", "task", "hooks")),
    ("step", "tool_results", ("read", "tool", "task", "policy", "hooks")),
    ("step", "intended_tool_calls", ("task",)),
    ("step", "llm_input", ("policy", "tools", "task")),
    ("step", "request_parts", ("policy", "tools", "task")),
    ("step", "llm", ("task", "policy")),
    ("step", "stamps", ("task", "policy")),
    ("step", "", ("task", "policy", "tools", "hooks")),
    ("end", "", ("task", "policy", "tools", "hooks", "documents")),
)


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause of drift.

    Attributes:
        source: Path of an input, or of several that are behind it together, `CODE`, `DEPENDENCY` or `HAND`.
        runs: Names of the runs that drifted because of it.
        classes: Classes of their differences.
        alone: Whether it is the only cause, and no input changed.
        certainty: The least sure of `TRIED`, `CLAIM` and `GUESS` among its runs.
        diff: Lines on how the input differs from what was recorded; none where that is not known.
    """

    source: str
    runs: tuple[str, ...]
    classes: tuple[str, ...]
    alone: bool
    certainty: str = GUESS
    diff: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the cause as plain data."""
        return {
            "what": self.source,
            "runs": list(self.runs),
            "classes": list(self.classes),
            "certainty": self.certainty,
            "diff": list(self.diff),
        }

    def __str__(self) -> str:
        if self.source == CODE and self.alone:
            return f"{CODE}, as {MANIFEST} claims (no input moved)"
        word = escape_terminal(self.source)
        if self.source in (CODE, DEPENDENCY):
            word = f"{word}, as {MANIFEST} claims"
        elif self.source != HAND:
            word = f"{word} moved"
        return f"{word} ({len(self.runs)} of them)"


def causes(drifted: Sequence[Findings]) -> list[Cause]:
    """Return the causes of drift in all runs, the gravest first."""
    by_source: dict[str, list[tuple[Findings, FoundCause]]] = {}
    with_own_task = sum(any(_is_own_task(item, found) for found in found_causes(item)) for item in drifted)
    for item in drifted:
        for found in found_causes(item):
            own = with_own_task > 1 and _is_own_task(item, found)
            by_source.setdefault(_generally(item, found) if own else found.source, []).append((item, found))
    alone = len(by_source) == 1 and not any(item.moved for item in drifted)
    grouped = [
        Cause(
            source,
            tuple(sorted(item.run for item, _ in pairs)),
            tuple(sorted({item.kind for item, _ in pairs}, key=lambda kind: _ORDER.get(kind, -1))),
            alone,
            max((found.certainty for _, found in pairs), key=_SURENESS.index),
            next((found.diff for _, found in pairs if found.diff), ()),
        )
        for source, pairs in by_source.items()
    ]
    return sorted(grouped, key=lambda cause: (_gravity(cause), -len(cause.runs), cause.source))


def _is_own_task(findings: Findings, found: FoundCause) -> bool:
    return any(findings.roles.get(source) == "task" for source in found.sources)


def _generally(findings: Findings, found: FoundCause) -> str:
    """Return a cause in words in which a run's own task is not named, so that runs of several tasks share it."""
    names = sorted(OWN_TASK if findings.roles.get(name) == "task" else name for name in found.sources)
    return FoundCause(tuple(names), found.certainty).source


def in_words(all_causes: Sequence[Cause]) -> str | None:
    """Return the likeliest causes in one line, or None if there are none."""
    named = [str(cause) for cause in all_causes[:SEVERAL]]
    more = f" and {len(all_causes) - SEVERAL} more" if len(all_causes) > SEVERAL else ""
    return ", ".join(named) + more if named else None


def _gravity(cause: Cause) -> int:
    return min((_ORDER.get(kind, -1) for kind in cause.classes), default=len(CLASSES))


def causes_of(findings: Findings) -> list[str]:
    """Return what made one run drift, in words: inputs, `CODE`, `DEPENDENCY` or `HAND`; empty if it is unknown."""
    return [cause.source for cause in found_causes(findings)]


def found_causes(findings: Findings) -> list[FoundCause]:
    """Return what is behind the drift of one run: as found by trying, else as it is guessed."""
    return guessed(findings) if findings.causes is None else findings.causes


def guessed(findings: Findings) -> list[FoundCause]:
    """Return the likely causes of the drift of one run, as its record and its differences tell them."""
    if findings.tampered:
        return [FoundCause((HAND,), TRIED)]
    if findings.judged and not findings.moved:
        claims = [FoundCause((DEPENDENCY,), CLAIM)] if findings.moved_packages else []
        if findings.code is not None and findings.code[0] != findings.code[1]:
            claims.insert(0, FoundCause((CODE,), CLAIM))
        differs = findings.drift is not None or findings.fresh is not None
        return claims or ([FoundCause((CODE,), CLAIM)] if differs else [])
    return [FoundCause((source,), CLAIM if source == CODE else GUESS) for source in _likely(findings)]


def offer_to_accept(findings: Findings) -> None:
    """Set the command that accepts a run, if it can be accepted.

    It needs a flag of its own where only the manifest claims what is behind the drift, and where secrets enter records
    that were kept out of them: the person has to know it.
    """
    if findings.fresh is not None and not findings.asked_otherwise:
        claimed = any(cause.certainty == CLAIM for cause in found_causes(findings))
        flag = (f" {CODE_CHANGED}" if claimed else "") + (f" {EXPOSE}" if findings.is_exposure else "")
        findings.accept = f'tachograph accept {shlex.quote(findings.run)}{flag} --reason "..."'


def _likely(findings: Findings) -> list[str]:
    """Return the changed inputs that the differences can depend on, or `CODE`."""
    if not findings.judged:
        return sorted(findings.moved)
    drift = findings.drift
    if drift is None or drift.kind == "DIGEST-ONLY" or drift.first is None:
        return sorted(findings.moved)
    grounds = set(_behind(findings, drift.first))
    # the gravest difference usually follows from the first, unless it decides the same call differently
    if drift.grave is not None and (not grounds or _is_about_equal_calls(drift.grave)):
        grounds.update(_behind(findings, drift.grave))
    return sorted(grounds) or [CODE]


def _is_about_equal_calls(item: Divergence) -> bool:
    before, after = (_calls(side, item) for side in item.sides)
    return item.pointer.startswith("/policy_decisions/") and bool(before) and before == after


def _behind(findings: Findings, item: Divergence) -> list[str]:
    """Return the changed inputs of the likeliest ground of a difference that has any."""
    line: Line = next((line for line in reversed(item.sides) if line is not None), {})
    key = item.pointer.split("/")[1] if "/" in item.pointer else ""
    kinds = ((start, rests) for kind, start, rests in _RESTS if line.get("type") == kind)
    for ground in next((rests for start, rests in kinds if key.startswith(start)), ()):
        moved = sorted(path for path in _inputs(findings, ground, item) if path in findings.moved)
        if moved:
            return moved
    return []


def _inputs(findings: Findings, ground: str, item: Divergence) -> Iterable[str]:
    """Return the inputs of a run that a ground stands for."""
    roles = findings.roles
    if ground == "at":
        return {str(entry.get("at", "")).partition("#")[0] for entry in _entries(item, "policy_decisions")}
    if ground == "read":
        return _read(findings, item)
    if ground == "tool":
        names = {f"tool {call.get('name')}" for side in item.sides for call in _calls(side, item)}
        return [path for path, role in roles.items() if role in names]
    if ground == "tool of the list":
        return {str(entry.get("file")) for entry in _entries(item, "tools")}
    if ground == "tools":
        return [path for path, role in roles.items() if role.startswith("tool ")]
    if ground == "documents":
        return [path for path in findings.moved if path not in roles]
    # the module of an agent in code says what a task says otherwise, and may hold the policy
    alike = (ground, "agent") if ground in ("task", "policy") else (ground,)
    return [path for path, role in roles.items() if role in alike]


def _at(item: Divergence) -> int | None:
    """Return the index of the list entry that a difference is in, or None if it is in the list itself."""
    part = item.pointer.split("/")[2:3]
    return int(part[0]) if part and part[0].isdecimal() else None


def _entries(item: Divergence, key: str) -> list[Line]:
    """Return the entries of the list `key` that a difference is in, on both sides; all if it is the list itself."""
    return [entry for side in item.sides for entry in _listed(side, key, _at(item))]


def _listed(side: Any, key: str, at: int | None = None) -> list[Line]:
    listed = side.get(key) if isinstance(side, dict) else None
    entries = enumerate(listed if isinstance(listed, list) else ())
    return [entry for i, entry in entries if at in (None, i) and isinstance(entry, dict)]


def _calls(side: Any, item: Divergence) -> list[Line]:
    """Return the calls of a ledger line that a difference is about."""
    key = item.pointer.split("/")[1] if "/" in item.pointer else ""
    ids = [entry.get("id") for entry in _entries(item, key)]
    return [call for call in _listed(side, "intended_tool_calls") if call.get("id") in ids]


def _read(findings: Findings, item: Divergence) -> set[str]:
    """Return the documents that the call read; if it reads none, those that it names."""
    before, after = (_reads(side, _at(item)) for side in item.sides)
    if before or after:
        return before | after
    named = json.dumps([_calls(side, item) for side in item.sides], ensure_ascii=False)
    documents = [path for path in findings.moved if path not in findings.roles]
    return {path for path in documents if path.rpartition("/")[2] in named}


def _reads(side: Any, at: int | None) -> set[str]:
    attempts = [
        entry for result in _listed(side, "tool_results", at) for entry in _listed(result, "attempts")
    ]
    return {str(path) for attempt in attempts for path, _ in pairs_from_dict(attempt, "reads")}
