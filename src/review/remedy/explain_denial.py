"""What would allow a refused call: the minimal edit, and what else that edit would allow."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ...evidence.checking.differences.drift import counted
from ...evidence.queries.decide import tools_of
from ...evidence.queries.explain import Explained
from ...fail.errors import InputError
from ...runtime.core.effects import Call
from ...runtime.core.lines import Line
from ...runtime.formats import canonical_json
from ...runtime.formats.escape import escape_terminal, truncate
from ...runtime.formats.json_pointer import escape_pointer, put
from ...runtime.loop.tool_calls import REPEATED
from ...runtime.policy.gate import ALLOW, Gate
from ...runtime.policy.per_tool.time_windows import shown_time
from ...runtime.policy.policy import Policy
from ...runtime.policy.usage import Counters
from ...runtime.resources.url import Malformed, parse_url
from ...runtime.tools.contract import SHIPPED, Tool
from ...runtime.tools.loader import names_in
from ..compare.policy_compare import WIDENING, Change, compare_policies
from ..queries.recorded_queries import (
    GateQuestion,
    HookDenial,
    RecordedQuestion,
    hook_denials,
    questions,
)
from ..queries.witness import RANK, Event, Witness, witnessed
from .minimal_edit import MinimalEdit, find_minimal_edit

Paint = Callable[[str, str], str]

_MAX_TRIES: Final = 60  # events tried for a witness; each asks two gates
_MAX_SHOWN: Final = 200  # characters of a witness in a line
_KIND_OF_RULE: Final = {"url_allowlist": "url", "sandbox_path": "path"}
_OVERRULED: Final = "a hook decided on this call before a person was asked"


@dataclass(frozen=True)
class OpenedAccess:
    """One thing that the edits allow.

    Attributes:
        rule: The rule that allows it.
        description: It in words.
        at: `file:line` in the policy.
        witness: An example other than what was refused, None where there is none.
    """

    rule: str
    description: str
    at: str
    witness: Witness | None

    def to_dict(self) -> Line:
        """Return it as JSON data."""
        return {
            "rule": self.rule,
            "what": self.description,
            "at": self.at,
            "witness": None if self.witness is None else self.witness.to_dict(),
        }


@dataclass(frozen=True)
class DenialExplanation:
    """What would allow a refusal.

    Attributes:
        minimal: The minimal edit.
        opens: What else it allows.
        undecided: What could not be decided of what it allows.
    """

    minimal: MinimalEdit
    opens: tuple[OpenedAccess, ...] = ()
    undecided: tuple[str, ...] = ()

    def to_dict(self) -> Line:
        """Return the explanation as JSON data."""
        return {
            "edits": [item.to_dict() for item in self.minimal.edits],
            "why_not": self.minimal.why_not,
            "remark": self.minimal.remark,
            "opens": [item.to_dict() for item in self.opens],
            "untold": list(self.undecided),
        }


def explain_denial(
    policy: Policy, tools: Mapping[str, Tool], question: GateQuestion, call: Call | None = None
) -> DenialExplanation:
    """Return the minimal edits of `policy` that allow what it refuses, and what they allow besides.

    Args:
        policy: The policy that refuses it.
        tools: The tools of the run.
        question: What the gate was asked.
        call: The call during which a late fact was met or a result came, where `question` contains none.
    """
    minimal = find_minimal_edit(policy, tools, question)
    if not minimal.edits or minimal.edited is None:
        return DenialExplanation(minimal)
    compared = compare_policies(policy, minimal.edited, tools)
    event = _event(question, call, "max_attempts" in policy.limits)
    gates = (Gate(policy, tools), Gate(minimal.edited, tools))
    opens = tuple(
        OpenedAccess(change.rule, change.description, change.at, _other_witness(change, event, gates, tools))
        for change in compared.changes
        if change.kind == WIDENING
    )
    return DenialExplanation(minimal, opens, compared.undecided)


def explain_decided_call(gate: Gate, call: Call, counters: Counters, root: Path) -> DenialExplanation | None:
    """Return what would allow a call that a gate refuses, None if it allows it.

    Tools of the project at `root` may be allowed too, though the gate does not have them.
    """
    question = GateQuestion(call, counters)
    decision = question.put(gate)
    if decision is None or decision.decision == ALLOW:
        return None
    folder = root / "tools"
    known = names_in(folder) if folder.is_dir() else set(SHIPPED)
    tools = dict(gate.tools)
    if call.name in known:
        with contextlib.suppress(InputError):  # a tool that does not load is in no run
            tools.update(tools_of([call.name], root))
    return explain_denial(gate.policy, tools, question)


# ---- other calls that an edit allows ---------------------------------------------------------------------------


def _event(question: GateQuestion, call: Call | None, counts_attempts: bool) -> Event:
    """Return what was refused as an event."""
    call = question.call or call
    used = question.counters
    counts = {} if used is None else {
        "iterations": used.iterations, "tokens": used.tokens,
        "tool_calls": used.tool_calls, "result_bytes": used.result_bytes,
        **({"attempts": used.attempts} if counts_attempts else {}),
    }  # fmt: skip
    if used is not None and used.repeats:
        counts["repeats"] = max(used.repeats.values())
    arguments = call.arguments.value() if call is not None and call.arguments is not None else None
    late = None if question.check is None else dict(question.check)
    principal, times = (None, {}) if used is None else (used.principal, used.local_times)
    name = call.name if call is not None else None
    return Event(name, arguments, counts, late, question.size, principal, times)


def _other_witness(
    change: Change, event: Event, gates: tuple[Gate, Gate], tools: Mapping[str, Tool]
) -> Witness | None:
    """Return a witness of a change that is not what was refused, None if none was found."""
    first = change.witness
    if _is_other(change.rule, first, event, tools):
        return first
    for nearby in itertools.islice(_nearby_events(event, tools), _MAX_TRIES):
        witness = witnessed(
            *gates, replace(nearby, used=first.used, principal=first.principal)
        )  # no more than the change takes
        is_wider = RANK[witness.after["decision"]] < RANK[witness.before["decision"]]
        if is_wider and _is_other(change.rule, witness, event, tools):
            return witness
    return first if first.tool != event.tool else None


def _is_other(rule: str, witness: Witness, event: Event, tools: Mapping[str, Tool]) -> bool:
    """Return whether a witness is about another resource than what was refused, or another call if there is none."""
    if witness.tool is None and event.tool is None:
        return any(event.used.get(name) != count for name, count in witness.used.items())
    if rule in _KIND_OF_RULE:
        return not _resources_of(rule, witness, tools) <= _resources_of(rule, event, tools)
    return (witness.tool, witness.arguments) != (event.tool, event.arguments)


def _resources_of(rule: str, event: Event | Witness, tools: Mapping[str, Tool]) -> set[str]:
    """Return the URLs or paths that an event is about, and the address that it met."""
    late = event.late or {}
    resources = {str(late[key]) for key in ("target", "path", "address") if key in late}
    tool = tools.get(event.tool) if event.tool is not None else None
    for resource in tool.resources if tool is not None else ():
        if resource.kind.startswith(_KIND_OF_RULE[rule]):
            resources |= {str(text) for _, text in resource.find(event.arguments)}
    return resources


def _nearby_events(event: Event, tools: Mapping[str, Tool]) -> Iterator[Event]:
    """Yield events that differ from what was refused in one text, number or place."""
    if event.late is not None:
        for key, change in (("target", _other_urls), ("path", _other_paths)):
            if key in event.late:
                for text in change(str(event.late[key])):
                    yield replace(event, late={**event.late, key: text})
        return
    tool = tools.get(event.tool) if event.tool is not None else None
    if tool is None or not isinstance(event.arguments, dict):
        return
    kinds = {
        pointer: resource.kind for resource in tool.resources for pointer, _ in resource.find(event.arguments)
    }
    leaves = sorted(_leaves(event.arguments, ""), key=lambda leaf: leaf[0] not in kinds)
    for pointer, value in leaves:
        for other in _other_values(value, kinds.get(pointer, "none")):
            arguments = copy.deepcopy(event.arguments)
            put(arguments, pointer, other)
            yield replace(event, arguments=arguments)


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


# ---- of a recorded run -----------------------------------------------------------------------------------------


def explain_run_denials(
    policy: Policy,
    tools: Mapping[str, Tool],
    questions: Iterable[RecordedQuestion],
    by_hooks: Iterable[HookDenial] = (),
) -> dict[tuple[int, str], DenialExplanation]:
    """Return what would allow each refusal of a run, by step and position; escalations are among them."""
    explanations = {
        (item.step, item.position): DenialExplanation(MinimalEdit(why_not=item.why)) for item in by_hooks
    }
    known: dict[str, DenialExplanation] = {}
    for item in questions:
        entry = item.entry
        if entry is None or entry["decision"] == "allow" or (item.step, item.position) in explanations:
            continue
        if entry["reason"] == REPEATED:
            explanations[item.step, item.position] = DenialExplanation(
                MinimalEdit(why_not="what refused this call before is what to edit")
            )
            continue
        if item.is_overruled:
            explanations[item.step, item.position] = DenialExplanation(MinimalEdit(why_not=_OVERRULED))
            continue
        # the same refusal again and again is one case
        same = f"{entry['rule_id']} {entry['reason']} {item.question.check} {item.question.size}"
        same += canonical_json.digest(f"{item.call}")
        if same not in known:
            known[same] = explain_denial(policy, tools, item.question, item.call)
        explanations[item.step, item.position] = known[same]
    return explanations


def add_explanations(explained: Explained, step: int | None, paint: Paint) -> None:
    """Add to an explained run, or to one step of it, what would allow each refusal."""
    gate = explained.gate
    if gate is None:
        return
    asked = [item for item in questions(explained.recorded, gate.tools) if step in (None, item.step)]
    denied = [item for item in hook_denials(explained.recorded.lines[1:-1]) if step in (None, item.step)]
    for place, explanation in explain_run_denials(gate.policy, gate.tools, asked, denied).items():
        explained.more[place] = explanation.to_dict(), text_lines(explanation, paint)


def text_lines(explanation: DenialExplanation, paint: Paint) -> list[str]:
    """Return an explanation as lines of text, with untrusted text escaped for a terminal."""
    best = explanation.minimal
    if best.why_not is not None:
        return [paint(f"no edit of the policy allows it: {escape_terminal(best.why_not)}", "yellow")]
    if not best.edits:
        return ["the policy allows it today"]
    out = [paint("to allow it: ", "bold") + escape_terminal(best.edits[0].text)]
    out += [f"        and: {escape_terminal(item.text)}" for item in best.edits[1:]]
    if best.remark is not None:
        out.append(f"       note: {escape_terminal(best.remark)}")
    for item in explanation.opens:
        shown = "nothing but what was refused" if item.witness is None else _witness_line(item.witness)
        out.append(f"that opens: {escape_terminal(item.description)}")
        out.append(f"    such as: {escape_terminal(shown)}")
    out += [f"    unknown: {escape_terminal(word)}" for word in explanation.undecided]
    return out


def _witness_line(witness: Witness) -> str:
    """Return a witness in one line: what would be asked, and how the answer changes."""
    if witness.tool is None:
        text = "a step"
    else:
        arguments = json.dumps(witness.arguments, sort_keys=True, ensure_ascii=False)
        text = f"{witness.tool} {truncate(arguments, _MAX_SHOWN)}"
    if witness.late is not None:
        fact = {key: value for key, value in sorted(witness.late.items()) if key != "rule"}
        text += f" meeting {truncate(json.dumps(fact, ensure_ascii=False), _MAX_SHOWN)}"
    for zone, time in sorted(witness.local_times.items()):
        text += f" when it is {shown_time(zone, time)}"
    if witness.result_bytes is not None:
        text += f" with a result of {counted(witness.result_bytes, 'byte')}"
    if witness.principal is not None:
        text += f" for {witness.principal}"
    if witness.used:
        text += " after " + ", ".join(f"{count} {name}" for name, count in sorted(witness.used.items()))
    return f"{text}: {witness.before['decision']} -> {witness.after['decision']}"
