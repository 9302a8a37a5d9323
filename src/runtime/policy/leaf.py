"""What every rule of the gate is made of: ordered data (`Leaf`), and who asks it what (`Rule`).

A policy is a set of permissions, and every set of permissions is ordered: a larger leaf allows more. The gate denies
whatever one leaf does not allow. Explaining a denial, comparing two policies, drafting one from recorded runs and
finding what no test covers follow from the four operations of a leaf, for each rule alike. So a leaf that is not
monotone may not exist: no negation, no `oneOf`, no expressions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from ..log.events import Call, Reach, Struct, Touch, Withheld

if TYPE_CHECKING:
    from ..tools.contract import Tool
    from .policy import Policy

Point = TypeVar("Point")


class Leaf(Generic[Point]):
    """A set of permissions. A point is one thing that is allowed or not; each kind of leaf has its own."""

    def allows(self, point: Point) -> bool:
        """Return whether it allows a point."""
        raise NotImplementedError

    def entry(self, point: Point) -> str:
        """Return the JSON Pointer, below the place of the leaf, of what decides a point; "" for the leaf itself."""
        return ""

    def beyond(self, old: Any) -> Iterator[tuple[str, Point | None]]:
        """Yield what this leaf allows and `old` does not: an entry in words, and a point of it where one is known.

        Empty only if this leaf allows no more than `old`.
        """
        raise NotImplementedError

    def plus(self, point: Point) -> Any | None:
        """Return the least larger leaf that allows a point, or None where a person has to decide what to allow."""
        raise NotImplementedError

    def others(self) -> Iterator[tuple[str, Any]]:
        """Yield each single change of the leaf: in words, and the changed leaf."""
        raise NotImplementedError


def differing(leaf: Any, changes: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield those changes of a leaf that allow something else; an entry that another one covers makes no difference."""
    for words, other in changes:
        if any(leaf.beyond(other)) or any(other.beyond(leaf)):
            yield words, other


class Step(Struct, frozen=True):
    """Another step of the loop."""


class Result(Struct, frozen=True):
    """A result of a tool; `size` in bytes of canonical JSON."""

    size: int


class Question(Struct, frozen=True):
    """What the gate is asked: about a call, a fact that a tool met, a result, or another step.

    Attributes:
        about: What it is about.
        tool: The tool, "" for a step.
        used: What the run has used up of its budgets, by the name of the budget.
        repeats: How often the same call gave the same result.
    """

    about: Call | Reach | Touch | Withheld | Result | Step
    tool: str = ""
    used: Mapping[str, int] = {}
    repeats: int = 0


class Unreadable(NamedTuple):
    """A point that names nothing, such as malformed text in the place of a URL. No leaf allows it.

    Attributes:
        reason: Why, in printable ASCII.
    """

    reason: str


class Verdict(NamedTuple):
    """What the gate says.

    Attributes:
        decision: `allow`, `deny` or `escalate`.
        rule: The id of the rule that gave the answer.
        place: The entry that it rests on, as document and JSON Pointer.
        reason: One line.
    """

    decision: Literal["allow", "deny", "escalate"]
    rule: str
    place: str
    reason: str


class Rule:
    """A rule of the gate: one file each, with its leaf, what it asks it, and its words.

    Attributes:
        id: Its name in decisions.
        objection: What it says of a point that a leaf does not allow: `deny`, or `escalate` to ask a person.
        grants: Whether an allow may rest on one of its entries.
        judges: The kinds of questions that it is asked. The first rule that is asked a kind owns it: a question about
            which it has nothing to say is denied.
    """

    id: str
    objection: Literal["deny", "escalate"] = "deny"
    grants = False
    judges: tuple[type, ...] = (Call,)

    def leaves(self, policy: Policy, tool: str) -> Iterable[tuple[str, Leaf[Any]]]:
        """Yield (pointer, leaf) of all that the policy says here for a tool. Every one of them has to allow a point.

        A pointer is the JSON Pointer of the leaf in the policy: `/url_allowlist`.
        """
        raise NotImplementedError

    def points(self, question: Question, tool: Tool | None) -> Iterable[Any]:
        """Yield the points that a question asks about; none where it is no matter of this rule."""
        raise NotImplementedError

    def place(self, policy: Policy, pointer: str, leaf: Any, point: Any, tool: Tool | None) -> str:
        """Return the entry that decides a point, as document and JSON Pointer, given the pointer of its leaf."""
        return policy.place(pointer if isinstance(point, Unreadable) else pointer + leaf.entry(point))

    def reason(self, point: Any, leaf: Any, *, allowed: bool) -> str:
        """Return why a point is allowed or not: one line, without anything of another program's words."""
        raise NotImplementedError

    def question(self, point: Any, tool: str, call: Call | None) -> Question | None:
        """Return a question that asks about a point: an example, or the test to add.

        Args:
            point: The point.
            tool: The tool that it is to be a question of.
            call: A call of that tool which is allowed, to put the point into; None where there is none.
        """
        return None
