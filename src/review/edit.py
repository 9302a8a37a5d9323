"""Change a policy as little as allows a question that its gate denies."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from ..fail.errors import PolicyError
from ..runtime.formats.json_pointer import parse
from ..runtime.policy.gate import Gate, Judged
from ..runtime.policy.leaf import Leaf, Question, Unreadable
from ..runtime.policy.policy import Policy


class LeastEdit(NamedTuple):
    """What lets a question pass.

    Attributes:
        gate: The gate with the edits.
        edits: Each entry more: the JSON Pointer of what is changed, and what it allows more in words.
        refused: What no edit changes, since a person has to decide, or since no policy can allow it; None where the
            gate denies the question no more.
    """

    gate: Gate
    edits: list[tuple[str, str]]
    refused: Judged | None = None


def with_leaf(policy: Policy, place: str, leaf: Leaf[Any]) -> Policy:
    """Return a policy with a leaf in the place of what it says there. Raises PolicyError if it is none then."""
    data = copy.deepcopy(policy.data)
    *above, last = parse(place)
    below = data
    for key in above:
        below = below.setdefault(key, {})
    below[last] = leaf.data()
    return Policy.from_dict(data)


def least_edit(gate: Gate, question: Question, denied_by: str = "") -> LeastEdit:
    """Return what has to be added to a policy so that its gate does not deny a question.

    Args:
        gate: The gate.
        question: The question.
        denied_by: The rule that may deny it all the same; "" for none.
    """
    edits: list[tuple[str, str]] = []
    while (judged := _denial(gate, question)) is not None and judged.rule.id != denied_by:
        leaf = None if isinstance(judged.point, Unreadable) else judged.leaf.plus(judged.point)
        if leaf is None:
            return LeastEdit(gate, edits, judged)
        try:
            policy = with_leaf(gate.policy, judged.pointer, leaf)
        except PolicyError:  # it would hold what no policy may, such as a name that no tool can have
            return LeastEdit(gate, edits, judged)
        edits += [(judged.pointer, words) for words in dict(leaf.beyond(judged.leaf))]
        gate = Gate(policy, gate.tools.values(), gate.rules)
    return LeastEdit(gate, edits)


def _denial(gate: Gate, question: Question) -> Judged | None:
    """Return the first denial of a question; None where no rule denies it."""
    denials = (it for it in gate.judge(question, gate.tool_of(question)) if not it.allowed)
    return next((it for it in denials if it.rule.objection == "deny"), None)
