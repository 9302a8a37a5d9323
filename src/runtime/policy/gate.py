"""The gate: pure, total, and denying by default.

A question passes the rules that judge its kind, in this order (`rules/__init__.py`):

    tool_registry       may the tool be called?
    url_allowlist       may the URL be reached, with this method, at this address?
    sandbox_path        may the path be read or written, and is it a plain file or folder?
    arg_schema          do the arguments fit the schema of the tool?
    resources           is it known of each text for an external tool what it is?
    arguments           do the arguments meet the conditions of the policy?
    redact              do secrets stay with the tools that are given them?
    cycle_detection     does the call not give the same result again and again?
    tool_limits         has the tool calls left, in the run and in this minute?
    loop_budget         have the budgets room for the step, the call or the result?
    agents              may the call start another agent?
    approval            may the call be made without asking a person?

A leaf is what the policy says in one section, such as the hosts of `url_allowlist`; a point is one thing that has to be
allowed there, such as one URL among the arguments of a call. Each rule names the points that the question asks it
about, and the leaves that have to allow each of them (`Gate.judge_by`). The first leaf that does not allow a point is
the objection of the rule. Most rules then deny, and the first of these gives the answer at once; `approval`, the
last one, asks a person if nothing denies. An allow rests on the last entry that grants something the question uses.

A verdict says why: `rule` is the id of the rule, `place` the entry of the policy that decides, as document and JSON
Pointer, and `reason` one line. `gate_error` is the rule where the gate itself failed.

The owner of a question is the first rule that judges its kind: `tool_registry` for a call, `loop_budget` for a step or
a result, and for what a tool meets `url_allowlist`, `sandbox_path` or `redact`. A question whose owner had nothing to
judge is denied, and so is whatever raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from ...fail.errors import class_of
from ..log.values import Call, Reach, Touch, Withheld
from ..tools.contract import Tool
from .consistency import check_tool_rules
from .leaf import Leaves, Question, Result, Rule, Step, Unreadable, Verdict
from .policy import Policy
from .rules import RULES

GATE_ERROR = "gate_error"
# for whoever does not read on what an allow rests
_ALLOWED = Verdict("allow", "", "", "")
_MET = (Reach, Touch, Withheld, Result)  # what a tool of the run meets while it works, and its result
_KINDS = (Call, Step, *_MET)


class Judged(Struct, frozen=True):
    """What a rule came to.

    Attributes:
        rule: The rule.
        allowed: Whether it allows all that it is asked.
        pointer: The JSON Pointer of the leaf.
        leaf: The leaf that objects, or on which the allow rests.
        point: The point that it was asked about.
    """

    rule: Rule
    allowed: bool
    pointer: str
    leaf: Any
    point: Any

    @property
    def reason(self) -> str:
        """Why the point is allowed or not, in one line."""
        if isinstance(self.point, Unreadable):
            return self.point.reason
        return self.rule.reason(self.point, self.leaf, allowed=self.allowed)


class Gate:
    """The rules of one policy over one set of tools.

    Args:
        policy: The policy.
        tools: The tools of the run.
        rules: The rules, in order.

    Raises:
        PolicyError: What the policy says of arguments of a tool cannot decide a call.
    """

    def __init__(self, policy: Policy, tools: Iterable[Tool] = (), rules: tuple[Rule, ...] = RULES) -> None:
        tools = [*tools]
        check_tool_rules(policy, tools)
        self.policy, self.rules = policy, rules
        self._judging: dict[type, list[Rule]] = {
            kind: [rule for rule in rules if kind in rule.judges] for kind in _KINDS
        }
        said = ((tool, policy.tool_rules(tool.name)) for tool in tools)
        self.tools = {it.name: it.under(rules.resources.places, rules.effect) for it, rules in said}
        self._objectors: dict[tuple[type, str], Sequence[tuple[Rule, Leaves]]] = {}

    def ask(self, question: Question, *, explains: bool = True) -> Verdict:
        """Allow, deny or escalate. Never raises and changes nothing.

        Args:
            question: What is asked.
            explains: Whether an allow says on what it rests; what is not allowed always does.
        """
        try:
            tool = self.tool_of(question)
            judged = self._answer(question, tool)
            return _ALLOWED if judged.allowed and not explains else self._verdict(judged, tool)
        except Exception as error:  # noqa: BLE001 - whatever breaks in here denies
            reason = f"the gate failed to decide ({class_of(error)})"
            return Verdict("deny", GATE_ERROR, self.policy.place(""), reason)

    def verdicts(self, question: Question) -> Iterator[Verdict]:
        """Return what each rule says that has something to judge, in order; for one of them its first objection."""
        tool = self.tool_of(question)
        return (self._verdict(judged, tool) for judged in self.judge(question, tool))

    def tool_of(self, question: Question) -> Tool | None:
        """Return the tool that a question is about, None where the run has none of that name."""
        # a name that is not plain text is not a key of a mapping either
        return self.tools.get(question.tool) if type(question.tool) is str else None

    def _answer(self, question: Question, tool: Tool | None) -> Judged:
        kind = type(question.about)
        if tool is None and kind in _MET:
            raise LookupError("no tool of the run met this")
        granted: Judged | None = None
        escalated: Judged | None = None
        owner, owner_spoke = self._judging[kind][0], False
        for rule, leaves in self._may_object(kind, question.tool, tool):
            if (judged := self.judge_by(rule, leaves, question, tool)) is None:
                continue
            owner_spoke = owner_spoke or rule is owner
            if judged.allowed:
                granted = judged if rule.grants or granted is None else granted
            elif rule.objection == "deny":
                return judged
            else:
                escalated = escalated or judged
        if granted is None or not owner_spoke:
            raise LookupError("no rule spoke for the question")
        return escalated or granted

    def judge(self, question: Question, tool: Tool | None) -> Iterator[Judged]:
        """Yield what each rule comes to that has something to judge, in order, given the tool of the question."""
        for rule, leaves in self._with_leaves(type(question.about), question.tool):
            if (judged := self.judge_by(rule, leaves, question, tool)) is not None:
                yield judged

    def judge_by(self, rule: Rule, leaves: Leaves, question: Question, tool: Tool | None) -> Judged | None:
        """Return what a rule comes to, of its objections the first; None where it has nothing to judge."""
        point = None
        for point in rule.points(question, tool, leaves) if leaves else ():
            for pointer, leaf in leaves:
                if type(point) is Unreadable or not leaf.allows(point):
                    return Judged(rule, False, pointer, leaf, point)
        if point is None:
            return None
        # the first leaf of a rule holds its entries, those behind it only narrow them
        pointer, leaf = leaves[0]
        return Judged(rule, True, pointer, leaf, point)

    def _may_object(self, kind: type, name: str, tool: Tool | None) -> Iterable[tuple[Rule, Leaves]]:
        """Return the rules that may object to a kind of question about a tool, in order, each with its leaves.

        They are the same for each such question, and so are found once.
        """
        if tool is None and kind is not Step:  # of such names a model may think of any number
            return self._with_leaves(kind, name)
        key = kind, "" if tool is None else tool.name
        if key not in self._objectors:
            self._objectors[key] = [
                (rule, leaves)
                for rule, leaves in self._with_leaves(*key)
                if (tool is None or rule.concerns(tool)) and not all(leaf.allows_all for _, leaf in leaves)
            ]
        return self._objectors[key]

    def _with_leaves(self, kind: type, name: str) -> Iterator[tuple[Rule, Leaves]]:
        """Yield the rules that judge a kind of question, each with its leaves for a tool."""
        return ((rule, tuple(rule.leaves(self.policy, name))) for rule in self._judging[kind])

    def _verdict(self, judged: Judged, tool: Tool | None) -> Verdict:
        rule = judged.rule
        place = rule.place(self.policy, judged.pointer, judged.leaf, judged.point, tool)
        return Verdict("allow" if judged.allowed else rule.objection, rule.id, place, judged.reason)
