"""`approval`: what needs a person does not go through without one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from ...formats.escape import quote_untrusted
from ...formats.json_pointer import escape_pointer
from ...log.values import Call
from ...tools.contract import Tool
from ..leaf import Leaf, Leaves, Policy, Question, Rule, Sample
from .arguments import Unasked


class CallPoint(Struct, frozen=True):
    """A call: its tool, and its arguments with defaults filled in."""

    tool: str
    arguments: dict[str, Any]


class Unattended(Leaf[CallPoint]):
    """The tools that may be called without a person.

    Args:
        required_for: The tools that may not.
    """

    def __init__(self, required_for: Iterable[str] = ()) -> None:
        self.required_for = dict.fromkeys(required_for)
        self.allows_all = not self.required_for

    def allows(self, point: CallPoint) -> bool:
        return point.tool not in self.required_for

    def entry(self, point: CallPoint) -> str:
        return f"/{escape_pointer(point.tool)}" if point.tool in self.required_for else ""

    def beyond(self, old: Unattended) -> Iterator[tuple[str, CallPoint]]:
        for name in old.required_for:
            if name not in self.required_for:
                yield f"{name} without a person", CallPoint(name, {})

    def larger(self, point: CallPoint) -> Unattended:
        return Unattended([name for name in self.required_for if name != point.tool])

    def changes(self) -> Iterator[tuple[str, Unattended]]:
        for name in self.required_for:
            yield f"{name} without a person", self.larger(CallPoint(name, {}))
        yield "another tool with a person", Unattended([*self.required_for, "another_tool"])

    def data(self) -> list[str]:
        return [*self.required_for]


class UnaskedCall(Unasked):
    """The calls of one tool that may be made without a person, by their arguments. A point is a call."""

    def wrong(self, point: CallPoint) -> str | None:
        return super().wrong(point.arguments)

    def point_of(self, arguments: dict[str, Any]) -> CallPoint:
        return CallPoint("", arguments)


class ApprovalRule(Rule):
    """Judges whether a person has to be asked about a proposed call."""

    id = "approval"
    objection = "escalate"

    def leaves(self, policy: Policy, tool: str) -> Iterable[tuple[str, Leaf[CallPoint]]]:
        asked = UnaskedCall(policy.tool_rules(tool).ask_if.conditions)
        place = f"/tools/{escape_pointer(tool)}/ask_if"
        return [("/approval/required_for", policy.unattended), (place, asked)]

    def compared(self, policy: Policy, tool: Tool | None) -> Iterable[tuple[str, Leaf[CallPoint]]]:
        name = tool.name if tool else ""
        (place, _), asked = self.leaves(policy, name)
        is_asked = name in policy.unattended.required_for
        return [(place, Unattended([name] if is_asked else [])), asked]

    def points(self, question: Question, tool: Tool | None, leaves: Leaves) -> list[CallPoint]:
        if isinstance(question.about, Call) and tool is not None and question.about.arguments is not None:
            return [CallPoint(tool.name, tool.filled(question.about.arguments))]
        return []

    def reason(self, point: Any, leaf: Any, *, allowed: bool) -> str:
        if allowed:
            return "nobody has to be asked"
        if isinstance(leaf, UnaskedCall):
            pointer = leaf.wrong(point) or "/"
            return f"argument {quote_untrusted(pointer)} is one that a person is asked about"
        return f"tool {quote_untrusted(point.tool)} needs a person's approval"

    def questions(self, point: CallPoint | None, sample: Sample) -> Iterator[Question]:
        if point is not None:
            yield from sample.with_arguments(point.arguments)
