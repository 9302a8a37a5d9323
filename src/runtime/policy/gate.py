"""The gate: pure, total, and denying by default.

A question passes the rules in the order of `rules/__init__.py`. Each rule names the points that the question asks it
about, and the leaves of the policy that have to allow each of them. The first denial gives the answer, else the first
wish to ask a person. An allow rests on the last entry that grants something the question uses. A question whose own
rule had nothing to judge is denied, and so is whatever raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..log.events import Call, Reach, Touch, Withheld
from ..tools.contract import Tool
from .leaf import Question, Result, Rule, Unreadable, Verdict
from .policy import Policy
from .rules import RULES

GATE_ERROR = "gate_error"


class Gate:
    """The rules of one policy over one set of tools.

    Args:
        policy: The policy.
        tools: The tools of the run.
        rules: The rules, in order.
    """

    def __init__(self, policy: Policy, tools: Iterable[Tool] = (), rules: tuple[Rule, ...] = RULES) -> None:
        self.policy, self.rules = policy, rules
        self.tools: Mapping[str, Tool] = {tool.name: tool for tool in tools}

    def ask(self, question: Question) -> Verdict:
        """Allow, deny or escalate. Never raises and changes nothing."""
        try:
            return self._ask(question)
        except Exception as error:  # noqa: BLE001 - whatever breaks in here denies
            reason = f"the gate failed to decide ({type(error).__name__})"
            return Verdict("deny", GATE_ERROR, self.policy.place(""), reason)

    def _ask(self, question: Question) -> Verdict:
        if isinstance(question.about, Reach | Touch | Withheld | Result) and question.tool not in self.tools:
            raise LookupError("no tool of the run met this")
        granted: Verdict | None = None
        escalated: Verdict | None = None
        spoke = set()
        for rule, verdict in self.verdicts(question):
            spoke.add(rule.id)
            if verdict.decision == "deny":
                return verdict
            if verdict.decision == "escalate":
                escalated = escalated or verdict
            elif rule.grants or granted is None:
                granted = verdict
        owner = next(rule for rule in self.rules if type(question.about) in rule.speaks_for)
        if granted is None or owner.id not in spoke:
            raise LookupError("no rule spoke for the question")
        return escalated or granted

    def verdicts(self, question: Question) -> Iterator[tuple[Rule, Verdict]]:
        """Yield what each rule says that has something to judge, in order; for one of them its first objection."""
        # a name that is no plain text is no key of a mapping either
        tool = self.tools.get(question.tool) if type(question.tool) is str else None
        for rule in self.rules:
            verdict = self._judge(rule, question, tool)
            if verdict is not None:
                yield rule, verdict

    def _judge(self, rule: Rule, question: Question, tool: Tool | None) -> Verdict | None:
        granted: tuple[str, Any, Any] | None = None
        for point in rule.points(question, tool):
            for pointer, leaf in rule.leaves(self.policy, question.tool):
                if isinstance(point, Unreadable) or not leaf.allows(point):
                    reason = rule.reason(point, leaf, allowed=False)
                    return Verdict(
                        rule.objection, rule.id, rule.place(self.policy, pointer, leaf, point, tool), reason
                    )
                # the first leaf of a rule holds its entries, those behind it only narrow them
                if granted is None or granted[1] is not point:
                    granted = pointer, point, leaf
        if granted is None:
            return None
        pointer, point, leaf = granted
        place = rule.place(self.policy, pointer, leaf, point, tool)
        return Verdict("allow", rule.id, place, rule.reason(point, leaf, allowed=True))


def question_about(call: Call, used: Mapping[str, int], repeats: int) -> Question:
    """Return the question about a proposed call."""
    return Question(call, call.name, used, repeats)
