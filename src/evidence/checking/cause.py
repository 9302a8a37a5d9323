"""Why runs drifted: for each run what its first difference rests on, then the causes of all of them together.

An input that moved is not yet a cause: a policy whose remark was changed moved in every run. So a run's first
differences choose among its moved inputs: a decision rests on the policy file that it names, a result on the
documents that this very call read or on its tool, a reply on the task's script. Where none of what moved can
have brought a difference, the code has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...runtime.core.lines import Line
from ..files.json_diff import CLASSES
from ..files.report import visible
from .compare import Findings
from .drift import Divergence

CODE: Final = "the code"
HAND: Final = "the record was edited by hand"
SEVERAL: Final = 3  # as many causes are named in one line
_ORDER: Final = {name: i for i, name in enumerate(CLASSES)}

# what a place in a line rests on, the likeliest first; `at`, `read` and `tool` depend on the place itself
_RESTS: Final = (
    ("run", "policy", ("policy",)),
    ("run", "tools", ("tool of the list",)),
    ("run", "mounts", ("task", "policy")),
    ("run", "", ("task",)),
    ("step", "policy_decisions", ("at", "policy", "tool", "task")),
    ("step", "tool_results", ("read", "tool", "task", "policy")),
    ("step", "intended_tool_calls", ("task",)),
    ("step", "llm_input", ("policy", "tools", "task")),
    ("step", "llm", ("task", "policy")),
    ("step", "stamps", ("task", "policy")),
    ("step", "", ("task", "policy", "tools")),
    ("end", "", ("task", "policy", "tools", "documents")),
)


@dataclass(frozen=True, slots=True)
class Cause:
    """`what` is an input's path, the code or a hand; `runs` drifted for it, with these `classes`."""

    what: str
    runs: tuple[str, ...]
    classes: tuple[str, ...]
    alone: bool

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {"what": self.what, "runs": list(self.runs), "classes": list(self.classes)}

    def __str__(self) -> str:
        if self.what == CODE and self.alone:
            return f"{CODE} (no input moved)"
        word = visible(self.what) if self.what in (CODE, HAND) else f"{visible(self.what)} moved"
        return f"{word} ({len(self.runs)} of them)"


def causes(drifted: Sequence[Findings]) -> list[Cause]:
    """The causes of all the drift there is, the gravest first."""
    found: dict[str, list[Findings]] = {}
    for item in drifted:
        for what in causes_of(item):
            found.setdefault(what, []).append(item)
    alone = len(found) == 1 and not any(item.moved for item in drifted)
    made = [
        Cause(
            what,
            tuple(sorted(item.run for item in items)),
            tuple(sorted({item.kind for item in items}, key=lambda kind: _ORDER.get(kind, -1))),
            alone,
        )
        for what, items in found.items()
    ]
    return sorted(made, key=lambda cause: (_gravity(cause), -len(cause.runs), cause.what))


def in_words(found: Sequence[Cause]) -> str | None:
    """The likeliest causes in one line, None where there is none."""
    told = [str(cause) for cause in found[:SEVERAL]]
    more = f" and {len(found) - SEVERAL} more" if len(found) > SEVERAL else ""
    return ", ".join(told) + more if told else None


def _gravity(cause: Cause) -> int:
    return min((_ORDER.get(kind, -1) for kind in cause.classes), default=len(CLASSES))


def causes_of(found: Findings) -> list[str]:
    """What made one run drift: inputs that moved, the code, a hand; none where none is known."""
    if found.tampered:
        return [HAND]
    if not found.judged:
        return sorted(found.moved)
    if not found.moved:
        return [CODE] if found.drift is not None or found.made is not None else []
    drift = found.drift
    if drift is None or drift.kind == "DIGEST-ONLY" or drift.first is None:
        return sorted(found.moved)
    grounds = set(_behind(found, drift.first))
    # the gravest follows from the first as a rule; not where the same call is decided otherwise
    if drift.grave is not None and (not grounds or _is_of_a_same_call(drift.grave)):
        grounds.update(_behind(found, drift.grave))
    return sorted(grounds) or [CODE]


def _is_of_a_same_call(item: Divergence) -> bool:
    then, now = (_calls(side, item) for side in item.sides)
    return item.pointer.startswith("/policy_decisions/") and bool(then) and then == now


def _behind(found: Findings, item: Divergence) -> list[str]:
    """The moved inputs that the likeliest ground of a difference names; none where no ground moved."""
    there: Line = next((line for line in reversed(item.sides) if line is not None), {})
    key = item.pointer.split("/")[1] if "/" in item.pointer else ""
    kinds = ((start, rests) for kind, start, rests in _RESTS if there.get("type") == kind)
    for ground in next((rests for start, rests in kinds if key.startswith(start)), ()):
        moved = sorted(path for path in _inputs(found, ground, item) if path in found.moved)
        if moved:
            return moved
    return []


def _inputs(found: Findings, ground: str, item: Divergence) -> Iterable[str]:
    """The inputs of a run that a ground stands for."""
    roles = found.roles
    if ground == "at":
        return {str(entry.get("at", "")).rpartition(":")[0] for entry in _entries(item, "policy_decisions")}
    if ground == "read":
        return _read(found, item)
    if ground == "tool":
        names = {f"tool {call.get('name')}" for side in item.sides for call in _calls(side, item)}
        return [path for path, role in roles.items() if role in names]
    if ground == "tool of the list":
        return {str(entry.get("file")) for entry in _entries(item, "tools")}
    if ground == "tools":
        return [path for path, role in roles.items() if role.startswith("tool ")]
    if ground == "documents":
        return [path for path in found.moved if path not in roles]
    return [path for path, role in roles.items() if role == ground]


def _at(item: Divergence) -> int | None:
    """Which entry of a list a difference stands in, None where it is the list."""
    part = item.pointer.split("/")[2:3]
    return int(part[0]) if part and part[0].isdecimal() else None


def _entries(item: Divergence, key: str) -> list[Line]:
    """The entry of the list `key` that a difference stands in, on either side; all of them where it is the list."""
    return [entry for side in item.sides for entry in _listed(side, key, _at(item))]


def _listed(side: Any, key: str, at: int | None = None) -> list[Line]:
    listed = side.get(key) if isinstance(side, dict) else None
    entries = enumerate(listed if isinstance(listed, list) else ())
    return [entry for i, entry in entries if at in (None, i) and isinstance(entry, dict)]


def _calls(side: Any, item: Divergence) -> list[Line]:
    """The calls of a line that a difference is about."""
    key = item.pointer.split("/")[1] if "/" in item.pointer else ""
    ids = [entry.get("id") for entry in _entries(item, key)]
    return [call for call in _listed(side, "intended_tool_calls") if call.get("id") in ids]


def _read(found: Findings, item: Divergence) -> set[str]:
    """Documents that the call read with another digest; where it reads none itself, those that it names."""
    then, now = (_reads(side, _at(item)) for side in item.sides)
    if then or now:
        return {path for path, _ in then ^ now}
    named = json.dumps([_calls(side, item) for side in item.sides], ensure_ascii=False)
    documents = [path for path in found.moved if path not in found.roles]
    return {path for path in documents if path.rpartition("/")[2] in named}


def _reads(side: Any, at: int | None) -> set[tuple[str, str]]:
    attempts = [
        entry for result in _listed(side, "tool_results", at) for entry in _listed(result, "attempts")
    ]
    return {(str(path), str(sha)) for attempt in attempts for path, sha in attempt.get("reads", ())}
