"""Find what made runs drift: the cause of each run's first difference, then the causes of all runs together.

A changed input is not always the cause: editing a comment in the policy changes an input of every run. The first
differences therefore select among the changed inputs: a decision depends on the policy file that it names, a
result on the documents that the call read or on its tool, a hook's answer on the file with the hooks, a reply on the
task's script. If no changed input can have caused a difference, the code did.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from ....light_dataclasses import dataclass
from ....runtime.core.lines import Line
from ....runtime.core.outcome_codec import pairs_from_dict
from ....runtime.formats.escape import escape_terminal
from ...files.json_diff import CLASSES
from .compare import Findings
from .drift import Divergence

CODE: Final = "the code"
HAND: Final = "the record was edited by hand"
SEVERAL: Final = 3  # the number of causes named in one line
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
        source: Path of an input, `CODE` or `HAND`.
        runs: Names of the runs that drifted because of it.
        classes: Classes of their differences.
        alone: Whether it is the only cause, and no input changed.
    """

    source: str
    runs: tuple[str, ...]
    classes: tuple[str, ...]
    alone: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the cause as plain data."""
        return {"what": self.source, "runs": list(self.runs), "classes": list(self.classes)}

    def __str__(self) -> str:
        if self.source == CODE and self.alone:
            return f"{CODE} (no input moved)"
        word = (
            escape_terminal(self.source)
            if self.source in (CODE, HAND)
            else f"{escape_terminal(self.source)} moved"
        )
        return f"{word} ({len(self.runs)} of them)"


def causes(drifted: Sequence[Findings]) -> list[Cause]:
    """Return the causes of drift in all runs, the gravest first."""
    by_source: dict[str, list[Findings]] = {}
    for item in drifted:
        for source in causes_of(item):
            by_source.setdefault(source, []).append(item)
    alone = len(by_source) == 1 and not any(item.moved for item in drifted)
    grouped = [
        Cause(
            source,
            tuple(sorted(item.run for item in items)),
            tuple(sorted({item.kind for item in items}, key=lambda kind: _ORDER.get(kind, -1))),
            alone,
        )
        for source, items in by_source.items()
    ]
    return sorted(grouped, key=lambda cause: (_gravity(cause), -len(cause.runs), cause.source))


def in_words(all_causes: Sequence[Cause]) -> str | None:
    """Return the likeliest causes in one line, or None if there are none."""
    named = [str(cause) for cause in all_causes[:SEVERAL]]
    more = f" and {len(all_causes) - SEVERAL} more" if len(all_causes) > SEVERAL else ""
    return ", ".join(named) + more if named else None


def _gravity(cause: Cause) -> int:
    return min((_ORDER.get(kind, -1) for kind in cause.classes), default=len(CLASSES))


def causes_of(findings: Findings) -> list[str]:
    """Return what made one run drift: changed inputs, `CODE` or `HAND`; empty if it is unknown."""
    if findings.tampered:
        return [HAND]
    if not findings.judged:
        return sorted(findings.moved)
    if not findings.moved:
        return [CODE] if findings.drift is not None or findings.fresh is not None else []
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
