"""`redact`: a tool that may leave something behind gets no placeholder, unless it may have what that stands for.

A placeholder that is written to a file or sent in a mail is a lost value that nobody notices. In the authority of a URL
no tool gets one: whom a call reaches has to be seen.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from ...formats.json_pointer import escape_pointer
from ...formats.strict_json import canonical
from ...log.values import Call, Withheld
from ...redaction.redactor import PLACEHOLDER, placeholders
from ...tools.contract import Tool
from ..leaf import Leaf, Leaves, Policy, Question, Rule, Sample, Unreadable

_IN_AUTHORITY: Final = rf"(?i)https?://[^/?#\\\s\"]*{PLACEHOLDER.pattern}"
_WHY: Final = {
    "unknown": "the secret was met before the run went on, and is not known any more",
    "not_plain": "the secret would change the meaning of the URL that it stands in",
}


class Revealed(Leaf[str]):
    """Kinds of secrets that a tool is given. A point is a kind.

    Args:
        kinds: The kinds.
        hidden: The kinds that are hidden at all, since every tool is given the others; None for all.
    """

    def __init__(self, kinds: Iterable[str] = (), hidden: Collection[str] | None = None) -> None:
        self.kinds, self.hidden = dict.fromkeys(kinds), hidden

    def allows(self, point: str) -> bool:
        return point in self.kinds or (self.hidden is not None and point not in self.hidden)

    def beyond(self, old: Revealed) -> Iterator[tuple[str, str]]:
        return ((f"secrets of the kind {kind}", kind) for kind in self.kinds if not old.allows(kind))

    def larger(self, point: str) -> Revealed:
        return Revealed({**self.kinds, point: None})

    def changes(self) -> Iterator[tuple[str, Revealed]]:
        for kind in self.kinds:
            yield f"{kind} dropped", Revealed(other for other in self.kinds if other != kind)
        yield "another kind", self.larger("another_kind")

    def data(self) -> list[str]:
        return [*self.kinds]


class RedactRule(Rule):
    """Judges the placeholders among the arguments of a call, and secrets that a tool was not given."""

    id = "redact"
    judges = (Call, Withheld)

    def leaves(self, policy: Policy, tool: str) -> Iterable[tuple[str, Revealed]]:
        if policy.hides:
            yield f"/redact/reveal_to/{escape_pointer(tool)}", policy.reveals(tool)

    def compared(self, policy: Policy, tool: Tool | None) -> Iterable[tuple[str, Revealed]]:
        # to hide a kind no more is told as an exposure
        name, hidden = tool.name if tool else "", {"env" if it[0] == "$" else it for it in policy.hides}
        yield f"/redact/reveal_to/{escape_pointer(name)}", Revealed(policy.reveals(name).kinds, hidden)

    def points(self, question: Question, tool: Tool | None, leaves: Leaves) -> Iterator[str | Unreadable]:
        about = question.about
        if isinstance(about, Withheld):
            yield Unreadable(_WHY[about.why])
        elif isinstance(about, Call) and tool is not None and about.arguments is not None:
            if re.search(_IN_AUTHORITY, canonical(about.arguments).decode()):
                yield Unreadable("a secret stands in the place of the host of a URL")
            # what an agent is told stays within the run
            is_of_run = tool.agent is not None or tool.answer is not None
            if not is_of_run and (tool.acts_beside_io or tool.effect not in ("pure", "read")):
                yield from dict.fromkeys(kind for _, kind in placeholders(about.arguments))

    def reason(self, point: Any, leaf: Revealed, *, allowed: bool) -> str:
        return f"this tool {'is' if allowed else 'is not'} given secrets of the kind {point}"

    def questions(self, point: str, sample: Sample) -> Iterator[Question]:
        for name, schema in sample.declared.items():
            if isinstance(schema, dict) and schema.get("type") == "string":
                yield from sample.with_arguments({name: f"<secret:{point}:000000>"})
