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

Each rule names the points that the question asks it about, and the leaves of the policy that have to allow each of
them. The first denial gives the answer, else the first wish to ask a person. An allow rests on the last entry that
grants something the question uses.

The owner of a question is the first rule that judges its kind: `tool_registry` for a call, `loop_budget` for a step or
a result, and for what a tool meets `url_allowlist`, `sandbox_path` or `redact`. A question whose owner had nothing to
judge is denied, and so is whatever raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from ..log.values import Call, Reach, Touch, Withheld
from ..tools.contract import Tool
from .consistency import check_tool_rules
from .leaf import Leaf, Question, Result, Rule, Step, Unreadable, Verdict
from .policy import Policy
from .rules import RULES

GATE_ERROR = "gate_error"
# for whoever does not read on what an allow rests
_ALLOWED = Verdict("allow", "", "", "")
_MET = (Reach, Touch, Withheld, Result)  # by a tool of the run, or its result
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
        self._rules: dict[type, list[Rule]] = {
            kind: [rule for rule in rules if kind in rule.judges] for kind in _KINDS
        }
        self.tools: dict[str, Tool] = {}
        for tool in tools:
            said = policy.tool_rules(tool.name)
            self.tools[tool.name] = tool.under(said.resources.places, said.effect)
        self._asked: dict[tuple[type, str], Sequence[Rule]] = {}
        self._known_leaves: dict[tuple[Rule, str], Sequence[tuple[str, Leaf[Any]]]] = {}

    def ask(self, question: Question, *, explains: bool = True) -> Verdict:
        """Allow, deny or escalate. Never raises and changes nothing.

        Args:
            question: What is asked.
            explains: Whether an allow says on what it rests; what is not allowed always does.
        """
        try:
            judged, tool = self._ask(question)
            return _ALLOWED if judged.allowed and not explains else self._verdict(judged, tool)
        except Exception as error:  # noqa: BLE001 - whatever breaks in here denies
            reason = f"the gate failed to decide ({type(error).__name__})"
            return Verdict("deny", GATE_ERROR, self.policy.place(""), reason)

    def _ask(self, question: Question) -> tuple[Judged, Tool | None]:
        tool = self.tool_of(question)
        if tool is None and type(question.about) in _MET:
            raise LookupError("no tool of the run met this")
        granted: Judged | None = None
        escalated: Judged | None = None
        owner, *_ = rules = self._rules[type(question.about)]
        owner_spoke = False
        for rule in rules if tool is None else self._that_may_object(type(question.about), tool):
            judged = self.judge(rule, question, tool)
            if judged is None:
                continue
            if rule is owner:
                owner_spoke = True
            if not judged.allowed:
                if rule.objection == "deny":
                    return judged, tool
                escalated = escalated or judged
            elif rule.grants or granted is None:
                granted = judged
        if granted is None or not owner_spoke:
            raise LookupError("no rule spoke for the question")
        return escalated or granted, tool

    def verdicts(self, question: Question) -> Iterator[Verdict]:
        """Yield what each rule says that has something to judge, in order; for one of them its first objection."""
        tool = self.tool_of(question)
        for rule in self._rules[type(question.about)]:
            judged = self.judge(rule, question, tool)
            if judged is not None:
                yield self._verdict(judged, tool)

    def tool_of(self, question: Question) -> Tool | None:
        """Return the tool that a question is about, None where the run has none of that name."""
        # a name that is no plain text is no key of a mapping either
        return self.tools.get(question.tool) if type(question.tool) is str else None

    def _that_may_object(self, kind: type, tool: Tool) -> Sequence[Rule]:
        """Return the rules, in order, that are asked a kind of question: of the others all leaves allow everything."""
        found = self._asked.get((kind, tool.name))
        if found is None:
            rules = [rule for rule in self._rules[kind] if rule.concerns(tool)]
            leaves = [(rule, rule.leaves(self.policy, tool.name)) for rule in rules]
            found = [rule for rule, its in leaves if not all(leaf.allows_all for _, leaf in its)]
            self._asked[kind, tool.name] = found
        return found

    def judge(self, rule: Rule, question: Question, tool: Tool | None) -> Judged | None:
        """Return what one rule comes to: its first objection; None where it has nothing to judge."""
        leaves = None if tool is None else self._known_leaves.get((rule, tool.name))
        if leaves is None:
            leaves = tuple(rule.leaves(self.policy, question.tool))
            if tool is not None:  # of other names a model may think of any number
                self._known_leaves[rule, tool.name] = leaves
        if not leaves:
            return None
        is_asked = False
        for point in rule.points(question, tool):
            is_asked = True
            for pointer, leaf in leaves:
                if type(point) is Unreadable or not leaf.allows(point):
                    return Judged(rule, False, pointer, leaf, point)
        # the first leaf of a rule holds its entries, those behind it only narrow them
        pointer, leaf = leaves[0]
        return Judged(rule, True, pointer, leaf, point) if is_asked else None

    def _verdict(self, judged: Judged, tool: Tool | None) -> Verdict:
        rule, leaf, point = judged.rule, judged.leaf, judged.point
        place = rule.place(self.policy, judged.pointer, leaf, point, tool)
        reason = rule.reason(point, leaf, allowed=judged.allowed)
        return Verdict("allow" if judged.allowed else rule.objection, rule.id, place, reason)


def question_about(call: Call, used: Mapping[str, int], repeats: int) -> Question:
    """Return the question about a proposed call."""
    return Question(call, call.name, used, repeats)
