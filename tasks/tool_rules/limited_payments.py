"""An agent whose policy limits how often money is sent in a run."""

from __future__ import annotations

from tachograph import Agent, Policy, Stub
from tasks.tool_rules.payment_script import answers, pays
from tasks.tool_rules.payments import send_money

limited = Agent(
    Stub(
        [
            pays("The first bill.", 15),
            pays("The other two.", 60, 90),
            answers("I paid the bills of 15 and 60. No more payments are allowed in this run."),
        ]
    ),
    [send_money],
    Policy.load("policy/rules/limits.yaml"),
)
