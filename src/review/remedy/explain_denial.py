"""Why something was refused: the smallest edit that would allow it, and what else that edit would open."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ...evidence.checking.drift import counted
from ...evidence.files.report import visible
from ...evidence.queries.decide import tools_of
from ...evidence.queries.explain import Explained
from ...fail.errors import InputError
from ...runtime.core.effects import Call
from ...runtime.formats import canonical_json
from ...runtime.formats.json_pointer import escape_pointer, unescape_pointer
from ...runtime.policy.gate import ALLOW, Gate
from ...runtime.policy.policy import Policy
from ...runtime.policy.usage import Counters
from ...runtime.resources.url import Malformed, parse_url
from ...runtime.tools.contract import SHIPPED, Tool
from ..compare.policy_compare import WIDENING, Change, compare_policies
from ..queries.recorded_queries import Asked, Question, questions
from ..queries.witness import RANK, Event, Witness, witnessed
from .edits import records
from .minimal_edit import Smallest, smallest

Paint = Callable[[str, str], str]
Line = dict[str, Any]

_TRIED: Final = 60  # other calls that are tried for a witness
_SHOWN: Final = 200  # characters of a witness in a line
_REACHED: Final = {"url_allowlist": "url", "sandbox_path": "path"}
_AGAIN: Final = "this call was refused before"


@dataclass(frozen=True)
class Opened:
    """What the edits let through. `witness` is something else than what was refused, None where nothing else is."""

    rule: str
    what: str
    at: str
    witness: Witness | None

    def to_dict(self) -> Line:
        return {
            "rule": self.rule,
            "what": self.what,
            "at": self.at,
            "witness": None if self.witness is None else self.witness.to_dict(),
        }


@dataclass(frozen=True)
class Why:
    """A refusal with its smallest edit. `untold` is what could not be said of what the edit opens."""

    smallest: Smallest
    opens: tuple[Opened, ...] = ()
    untold: tuple[str, ...] = ()

    def to_dict(self) -> Line:
        return {
            "edits": records(self.smallest.edits),
            "why_not": self.smallest.why_not,
            "remark": self.smallest.remark,
            "opens": [item.to_dict() for item in self.opens],
            "untold": list(self.untold),
        }


def why(policy: Policy, tools: Mapping[str, Tool], question: Question, call: Call | None = None) -> Why:
    """The smallest edits of `policy` that allow what it refuses, and what they open.

    `call` is the one during which a fact was met or a result came, where `question` holds none.
    """
    found = smallest(policy, tools, question)
    if not found.edits or found.edited is None:
        return Why(found)
    compared = compare_policies(policy, found.edited, tools)
    event = _event(question, call)
    gates = (Gate(policy, tools), Gate(found.edited, tools))
    opens = tuple(
        Opened(change.rule, change.what, change.at, _other(change, event, gates, tools))
        for change in compared.changes
        if change.kind == WIDENING
    )
    return Why(found, opens, compared.undecided)


def why_decided(gate: Gate, call: Call, counters: Counters, root: Path) -> Why | None:
    """Why a gate refuses a call of a project, whose tools need not be among the gate's; None where it allows it."""
    question = Question(call, counters)
    decision = question.put(gate)
    if decision is None or decision.decision == ALLOW:
        return None
    folder = root / "tools"
    known = {path.stem for path in folder.glob("*.py")} if folder.is_dir() else set(SHIPPED)
    tools = dict(gate.tools)
    if call.name in known:
        with contextlib.suppress(InputError):  # a tool that does not load is in no run
            tools.update(tools_of([call.name], root))
    return why(gate.policy, tools, question)


# ---- something else that an edit opens ---------------------------------------------------------------------------


def _event(question: Question, call: Call | None) -> Event:
    """What was refused, as an event."""
    call = question.call or call
    used = question.counters
    counts = {} if used is None else {
        "iterations": used.iterations, "tokens": used.tokens,
        "tool_calls": used.tool_calls, "result_bytes": used.result_bytes,
    }  # fmt: skip
    if used is not None and used.repeats:
        counts["repeats"] = max(used.repeats.values())
    arguments = call.arguments.value() if call is not None and call.arguments is not None else None
    late = None if question.check is None else dict(question.check)
    return Event(call.name if call is not None else None, arguments, counts, late, question.size)


def _other(
    change: Change, event: Event, gates: tuple[Gate, Gate], tools: Mapping[str, Tool]
) -> Witness | None:
    """A witness of a change that is not what was refused; None where none was found."""
    first = change.witness
    if _is_other(change.rule, first, event, tools):
        return first
    for number, tried in enumerate(_others(event, tools)):
        if number == _TRIED:
            break
        found = witnessed(*gates, replace(tried, used=first.used))  # no more than the change takes
        turned = RANK[found.after["decision"]] < RANK[found.before["decision"]]
        if turned and _is_other(change.rule, found, event, tools):
            return found
    return first if first.tool != event.tool else None


def _is_other(rule: str, witness: Witness, event: Event, tools: Mapping[str, Tool]) -> bool:
    """Whether a witness is of another resource than what was refused, or of another call where none is at issue."""
    if witness.tool is None and event.tool is None:
        return any(event.used.get(name) != count for name, count in witness.used.items())
    if rule in _REACHED:
        return not _reached(rule, witness, tools) <= _reached(rule, event, tools)
    return (witness.tool, witness.arguments) != (event.tool, event.arguments)


def _reached(rule: str, asked: Event | Witness, tools: Mapping[str, Tool]) -> set[str]:
    """The URLs or paths that an event is about, and an address that it meets."""
    late = asked.late or {}
    found = {str(late[key]) for key in ("target", "path", "address") if key in late}
    tool = tools.get(asked.tool) if asked.tool is not None else None
    for resource in tool.resources if tool is not None else ():
        if resource.kind.startswith(_REACHED[rule]):
            found |= {str(text) for _, text in resource.find(asked.arguments)}
    return found


def _others(event: Event, tools: Mapping[str, Tool]) -> Iterator[Event]:
    """Events near to what was refused: one text, number or place changed."""
    if event.late is not None:
        for key, change in (("target", _other_urls), ("path", _other_paths)):
            if key in event.late:
                for text in change(str(event.late[key])):
                    yield replace(event, late={**event.late, key: text})
        return
    tool = tools.get(event.tool) if event.tool is not None else None
    if tool is None or event.arguments is None:
        return
    kinds = {
        pointer: resource.kind for resource in tool.resources for pointer, _ in resource.find(event.arguments)
    }
    leaves = sorted(_leaves(event.arguments, ""), key=lambda leaf: leaf[0] not in kinds)
    for pointer, value in leaves:
        for other in _other_values(value, kinds.get(pointer, "none")):
            yield replace(event, arguments=_with(event.arguments, pointer, other))


def _leaves(data: Any, pointer: str) -> Iterator[tuple[str, Any]]:
    if isinstance(data, dict | list):
        items: Iterable[tuple[Any, Any]] = data.items() if isinstance(data, dict) else enumerate(data)
        for key, value in items:
            yield from _leaves(value, f"{pointer}/{escape_pointer(str(key))}")
    else:
        yield pointer, data


def _other_values(value: Any, kind: str) -> list[Any]:
    if isinstance(value, str):
        if kind == "url":
            return _other_urls(value)
        return _other_paths(value) if kind.startswith("path") else [f"{value} x", value[:-1], "x"]
    return [value + 1, value - 1] if type(value) is int else []


def _other_urls(text: str) -> list[str]:
    try:
        target = parse_url(text)
    except Malformed:
        return []
    below = target.path if target.path.endswith("/") else f"{target.path}/"
    return [f"{target.origin}{below}x", f"{target.origin}{target.path}?x", f"{target.origin}/x"]


def _other_paths(text: str) -> list[str]:
    mount = text.partition("/")[0]
    return [f"{mount}/x", f"{mount}/y"]


def _with(data: Any, pointer: str, value: Any) -> Any:
    """A copy of plain data with another value at a pointer."""
    if not pointer:
        return value
    part, _, rest = pointer[1:].partition("/")
    rest = f"/{rest}" if rest else ""
    if isinstance(data, list):
        return [_with(item, rest, value) if i == int(part) else item for i, item in enumerate(data)]
    key = unescape_pointer(part)
    return {name: _with(item, rest, value) if name == key else item for name, item in data.items()}


# ---- of a recorded run -----------------------------------------------------------------------------------------


def why_of_run(
    policy: Policy, tools: Mapping[str, Tool], asked: Iterable[Asked]
) -> dict[tuple[int, str], Why]:
    """Why each refusal of a run was one, by step and position; escalations that a person refused are in it too."""
    found: dict[tuple[int, str], Why] = {}
    known: dict[str, Why] = {}
    for item in asked:
        entry = item.entry
        if entry is None or entry["decision"] == "allow":
            continue
        if entry["reason"] == _AGAIN:
            found[item.step, item.position] = Why(
                Smallest(why_not="what refused this call before is what to edit")
            )
            continue
        # the same refusal again and again is one case
        same = f"{entry['rule_id']} {entry['reason']} {item.question.check} {item.question.size}"
        same += canonical_json.digest(f"{item.call}")
        if same not in known:
            known[same] = why(policy, tools, item.question, item.call)
        found[item.step, item.position] = known[same]
    return found


def add_why(explained: Explained, step: int | None, paint: Paint) -> None:
    """Say of each refusal of an explained run, or of one step, what would allow it."""
    gate = explained.gate
    if gate is None:
        return
    asked = [item for item in questions(explained.recorded, gate.tools) if step in (None, item.step)]
    for place, found in why_of_run(gate.policy, gate.tools, asked).items():
        explained.more[place] = found.to_dict(), lines_of(found, paint)


def lines_of(found: Why, paint: Paint) -> list[str]:
    """A refusal's smallest edit as lines of text; nothing in them but words of ours acts on a terminal."""
    best = found.smallest
    if best.why_not is not None:
        return [paint(f"no edit of the policy allows it: {visible(best.why_not)}", "yellow")]
    if not best.edits:
        return ["the policy allows it today"]
    out = [paint("to allow it: ", "bold") + visible(best.edits[0].text)]
    out += [f"        and: {visible(item.text)}" for item in best.edits[1:]]
    if best.remark is not None:
        out.append(f"       note: {visible(best.remark)}")
    for item in found.opens:
        shown = "nothing but what was refused" if item.witness is None else _brief(item.witness)
        out.append(f"that opens: {visible(item.what)}")
        out.append(f"    such as: {visible(shown)}")
    out += [f"    unknown: {visible(word)}" for word in found.untold]
    return out


def _brief(witness: Witness) -> str:
    """A witness in one line: what would be asked, and how the answer changes."""
    if witness.tool is None:
        what = "a step"
    else:
        what = f"{witness.tool} {_cut(json.dumps(witness.arguments, sort_keys=True, ensure_ascii=False))}"
    if witness.late is not None:
        met = {key: value for key, value in sorted(witness.late.items()) if key != "rule"}
        what += f" meeting {_cut(json.dumps(met, ensure_ascii=False))}"
    if witness.result_bytes is not None:
        what += f" with a result of {counted(witness.result_bytes, 'byte')}"
    if witness.used:
        what += " after " + ", ".join(f"{count} {name}" for name, count in sorted(witness.used.items()))
    return f"{what}: {witness.before['decision']} -> {witness.after['decision']}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
