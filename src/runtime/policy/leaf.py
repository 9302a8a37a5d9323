"""What every rule of the gate is made of: ordered data (`Leaf`), and who asks it what (`Rule`).

A policy is a set of permissions, and every set of permissions is ordered: a larger leaf allows more. The gate denies
whatever one leaf does not allow. Explaining a denial, comparing two policies, drafting one from recorded runs and
finding what no test covers follow from the four operations of a leaf, for each rule alike. So a leaf that is not
monotone may not exist: no negation, no `oneOf`, no expressions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from ..log.values import Call, Reach, Struct, Touch, Withheld
from ..tools.contract import Tool

if TYPE_CHECKING:
    from .policy import Policy as Policy
else:  # a policy is made of leaves, so that rules have it for their types alone
    Policy = Any

Point = TypeVar("Point")


class Instead(str):
    """An entry in words that stands in the place of another one.

    Attributes:
        reverse: The same of the other one.
    """

    reverse: str

    def __new__(cls, name: str, mine: Any, old: Any) -> Instead:
        """Make the words, given what the entry is called and what it says in both leaves."""
        words = super().__new__(cls, f"{name}{mine} instead of {old}")
        words.reverse = f"{name}{old} instead of {mine}"
        return words


class Leaf(Protocol[Point]):
    """A set of permissions. A point is one thing that is allowed or not; each kind of leaf has its own.

    Attributes:
        allows_all: Whether it allows every point. A rule that has such leaves alone for a tool is not asked about
            it, so no leaf of a rule that may name an unreadable point says so.
    """

    allows_all: bool = False

    def allows(self, point: Point) -> bool:
        """Return whether it allows a point."""

    def entry(self, point: Point) -> str:
        """Return the JSON Pointer, below the place of the leaf, of what decides a point; "" for the leaf itself."""
        return ""

    def beyond(self, old: Any) -> Iterator[tuple[str, Point | None]]:
        """Yield what this leaf allows and `old` does not: an entry in words, and a point of it where one is known.

        Empty only if this leaf allows no more than `old`. An entry of which several points are known comes with each.
        """

    def larger(self, point: Point) -> Any | None:
        """Return the least larger leaf that allows a point which this one does not; None as of `plus`."""

    def plus(self, point: Point) -> Any | None:
        """Return the least leaf that allows a point as well, or None where a person has to decide what to allow."""
        return self if self.allows(point) else self.larger(point)

    def changes(self) -> Iterator[tuple[str, Any]]:
        """Yield each single change of what a policy writes here: in words, and the changed leaf."""

    def others(self) -> Iterator[tuple[str, Any]]:
        """Yield those changes that allow something else; an entry that another one covers makes no difference."""
        for words, other in self.changes():
            if any(self.beyond(other)) or any(other.beyond(self)):
                yield words, other

    def data(self) -> Any:
        """Return the leaf as a policy writes it at its place."""


def laid_over(data: Any, other: Any) -> Any:
    """Return data with other data laid over it, key by key."""
    if not isinstance(data, dict) or not isinstance(other, dict):
        return other
    return {**data, **{key: laid_over(data.get(key), value) for key, value in other.items()}}


Leaves = Sequence[tuple[str, Any]]
"""Of one rule: the JSON Pointer of each leaf in the policy, and the leaf."""


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


class Unreadable(Struct, frozen=True):
    """A point that names nothing, such as malformed text in the place of a URL. No leaf allows it.

    Attributes:
        reason: Why, in printable ASCII.
    """

    reason: str


class Sample(Struct, frozen=True):
    """What an example can be made from.

    Attributes:
        policy: The policy that is to allow it.
        tool: The name of the tool that it is to be about; "" for a step.
        declared: The schemas of the arguments that the tool declares, by name.
        call: A call of that tool that the policy allows; None where none is known.
    """

    policy: Policy
    tool: str = ""
    declared: Mapping[str, Any] = {}
    call: Call | None = None

    def asked(self, **more: Any) -> Iterator[Question]:
        """Yield the question about the call, if one is known; `more` is as of Question."""
        if self.call is not None:
            yield Question(self.call, self.call.name, **more)

    def with_arguments(self, arguments: dict[str, Any]) -> Iterator[Question]:
        """Yield the question about the call with some arguments laid over its own."""
        if self.call is not None:
            changed = laid_over(self.call.arguments or {}, arguments)
            yield Question(Call(self.call.id, self.call.name, changed), self.call.name)


class Verdict(Struct, frozen=True):
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


class Rule(Protocol):
    """A rule of the gate: one file each, with its leaf, what it asks it, and its words.

    Attributes:
        id: Its name in decisions.
        objection: What it says of a point that a leaf does not allow: `deny`, or `escalate` to ask a person.
        grants: Whether an allow may rest on one of its entries.
        is_of_run: Whether its leaves are of the run, and the same for every tool and for none.
        judges: The kinds of questions that it is asked. The first rule that is asked a kind owns it: a question about
            which it has nothing to say is denied.
    """

    id: str
    objection: Literal["deny", "escalate"] = "deny"
    grants: bool = False
    is_of_run: bool = False
    judges: tuple[type, ...] = (Call,)

    def leaves(self, policy: Policy, tool: str) -> Iterable[tuple[str, Leaf[Any]]]:
        """Yield (pointer, leaf) of all that the policy says here for a tool. Every one of them has to allow a point.

        A pointer is the JSON Pointer of the leaf in the policy: `/url_allowlist`.
        """

    def concerns(self, tool: Tool) -> bool:
        """Return whether it may have something to judge of a tool."""
        return True

    def points(self, question: Question, tool: Tool | None, leaves: Leaves) -> Iterable[Any]:
        """Yield the points that a question asks about; none where it is no matter of this rule.

        A point that all leaves allow may be left out, if there is another one.
        """

    def place(self, policy: Policy, pointer: str, leaf: Any, point: Any, tool: Tool | None) -> str:
        """Return the entry that decides a point, as document and JSON Pointer, given the pointer of its leaf."""
        return policy.place(pointer if isinstance(point, Unreadable) else pointer + leaf.entry(point))

    def reason(self, point: Any, leaf: Any, *, allowed: bool) -> str:
        """Return why a point is allowed or not: one line, without anything of another program's words.

        Of what is unreadable it is not asked.
        """

    def compared(self, policy: Policy, tool: Tool | None) -> Iterable[tuple[str, Leaf[Any]]]:
        """Yield what two policies are compared by: as `leaves`, with those that narrow each other as one.

        Of each policy there are as many, at the same places.
        """
        return self.leaves(policy, tool.name if tool else "")

    def tool_of(self, point: Any) -> str:
        """Return the tool that a point is about; "" for one that may be of any tool."""
        return ""

    def questions(self, point: Any, sample: Sample) -> Iterator[Question]:
        """Yield questions that ask about a point: examples, of which the gate may deny one for another reason.

        Args:
            point: The point; None where a leaf knows none.
            sample: What they are made from.
        """
