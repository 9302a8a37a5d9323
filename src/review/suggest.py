"""Draft the strictest policy under which recorded runs pass: the least edits for what their gates allowed."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Final

from ..fail.errors import InputError
from ..runtime.formats.json_pointer import get
from ..runtime.log.values import Call, Reach
from ..runtime.policy.gate import GATE_ERROR, Gate
from ..runtime.policy.leaf import Question
from ..runtime.policy.policy import Policy
from ..runtime.policy.sections import METHODS, PolicyFile
from .edit import least_edit, with_leaf

# what gives permissions begins empty, and what narrows them, or decides no call, stays as it is
_EMPTIED: Final = (
    "/tool_registry/allowed", "/url_allowlist", "/private_networks", "/sandbox/mounts", "/redact/reveal_to",
    "/loop_budget/max_iterations", "/loop_budget/max_tokens", "/loop_budget/max_tool_calls",
    "/loop_budget/max_result_bytes", "/cycle_detection/max_repeats", "/agents/max_depth", "/agents/max_children",
)  # fmt: skip
_EMPTIED_OF_TOOLS: Final = ("urls", "methods", "mounts")


def suggest(asked: Iterable[tuple[Gate, Iterable[Question]]]) -> Policy:
    """Return the strictest policy that decides as the gates of some runs did.

    Args:
        asked: For each run, of which there is one at least, its gate and the questions that it was asked, in order.
            The gates are of one policy.

    Raises:
        InputError: The runs are of several policies.
    """
    runs = [*asked]
    policy = runs[0][0].policy
    draft = _emptied(policy)
    for gate, questions in runs:
        if gate.policy.version != policy.version:
            raise InputError("the runs are of several policies", remedy="name runs of one")
        drafted = Gate(draft, gate.tools.values())
        for question in questions:
            verdict = gate.ask(question)
            denied_by = verdict.rule if verdict.decision == "deny" else ""
            if denied_by == GATE_ERROR:
                continue
            for each in (*_requests(gate, question, denied_by), question):
                drafted = _larger(drafted, gate.policy, each, denied_by)
        draft = drafted.policy
    return _without_what_is_empty(draft)


def _larger(drafted: Gate, policy: Policy, question: Question, denied_by: str) -> Gate:
    """Return the gate of a draft with the least edit for a question, or with what a policy says where there is none."""
    least = least_edit(drafted, question, denied_by)
    while least.refused is not None:  # such as a path that nothing but an entry for its whole host covers
        place = least.refused.pointer
        leaf = dict(least.refused.rule.leaves(policy, question.tool))[place]
        larger = Gate(with_leaf(least.gate.policy, place, leaf), drafted.tools.values())
        if larger.policy.version == least.gate.policy.version:
            break
        least = least_edit(larger, question, denied_by)
    return least.gate


def _requests(gate: Gate, question: Question, denied_by: str) -> Iterator[Question]:
    """Yield for each URL of a call a request that the gate allows: the call does not say with which method."""
    call, tool = question.about, gate.tool_of(question)
    if tool is None or not isinstance(call, Call) or denied_by in ("tool_registry", "url_allowlist"):
        return
    for kind, url in tool.texts(call.arguments):
        if kind == "url":
            requests = (Question(Reach(url, method), tool.name) for method in METHODS)
            yield from islice((it for it in requests if gate.ask(it).decision == "allow"), 1)


def _emptied(policy: Policy) -> Policy:
    data = copy.deepcopy(policy.data)
    for pointer in _EMPTIED:
        above, _, last = pointer.rpartition("/")
        with suppress(KeyError):
            get(data, above).pop(last, None)
    for rules in data.get("tools", {}).values():
        rules.update({key: [] for key in _EMPTIED_OF_TOOLS if key in rules})
    return Policy.from_dict(data)


def _without_what_is_empty(policy: Policy) -> Policy:
    """Return the policy without sections that say nothing; an empty list of one tool says that it may use nothing."""
    used = {*policy.names.allowed}
    tools = {name: rules for name, rules in policy.data.get("tools", {}).items() if name in used and rules}
    data = {**policy.data, "tools": tools}
    order = (key for key in PolicyFile.__struct_fields__ if data.get(key, []) not in ([], {}))
    return Policy.from_dict({key: data[key] for key in order})
