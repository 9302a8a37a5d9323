"""`tool_registry`: a tool is allowed by name, not denied, and part of the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...formats.escape import quote_untrusted
from ...formats.json_pointer import escape_pointer
from ...tools.contract import Tool
from ..leaf import Leaf, Leaves, Policy, Question, Rule, Sample, Unreadable


class Names(Leaf[str]):
    """Names of tools. A point is a name.

    Args:
        allowed: The names that are allowed.
        denied: Names that are not, whatever else is allowed.
    """

    def __init__(self, allowed: Iterable[str] = (), denied: Iterable[str] = ()) -> None:
        self.allowed, self.denied = dict.fromkeys(allowed), dict.fromkeys(denied)

    def allows(self, point: str) -> bool:
        return point in self.allowed and point not in self.denied

    def entry(self, point: str) -> str:
        if point in self.denied:
            return f"/denied/{escape_pointer(point)}"
        return f"/allowed/{escape_pointer(point)}" if point in self.allowed else "/allowed"

    def beyond(self, old: Names) -> Iterator[tuple[str, str]]:
        for name in self.allowed:
            if self.allows(name) and not old.allows(name):
                yield name, name

    def larger(self, point: str) -> Names:
        return Names({**self.allowed, point: None}, [name for name in self.denied if name != point])

    def changes(self) -> Iterator[tuple[str, Names]]:
        for name in self.allowed:
            if name in self.denied:
                yield f"{name} no longer denied", self.larger(name)
            else:
                rest = [other for other in self.allowed if other != name]
                yield f"{name} dropped", Names(rest, self.denied)
        yield "a tool that no list names", self.larger("another_tool")

    def data(self) -> dict[str, list[str]]:
        return {"allowed": [*self.allowed], **({"denied": [*self.denied]} if self.denied else {})}


class ToolRegistryRule(Rule):
    """Judges the tool of a proposed call."""

    id = "tool_registry"
    is_of_run = True
    grants = True

    def leaves(self, policy: Policy, tool: str) -> Iterable[tuple[str, Names]]:
        return [("/tool_registry", policy.names)]

    def points(self, question: Question, tool: Tool | None, leaves: Leaves) -> list[str | Unreadable]:
        name = getattr(question.about, "name", None)  # as of each call, and it judges nothing else
        if type(name) is not str or not name.isascii():
            # no policy holds such a name, and it may be of a kind that nothing can look up
            return [Unreadable("the tool name is not ASCII text")]
        if tool is None:
            return [name, Unreadable(f"tool {quote_untrusted(name)} is allowed but not part of this run")]
        return [name]

    def reason(self, point: Any, leaf: Names, *, allowed: bool) -> str:
        if allowed:
            return f"tool {quote_untrusted(point)} is allowed"
        is_denied = "is denied" if point in leaf.denied else "is not in tool_registry.allowed"
        return f"tool {quote_untrusted(point)} {is_denied}"

    def tool_of(self, point: str) -> str:
        return point

    def questions(self, point: str, sample: Sample) -> Iterator[Question]:
        if sample.call is not None and sample.call.name == point:
            yield Question(sample.call, point)
