"""An agent whose policy limits how often money is sent within a minute."""

from __future__ import annotations

from tachograph import Agent, Policy, Stub
from tasks.tool_rules.payment_script import answers, pays
from tasks.tool_rules.payments import send_money

rated = Agent(
    Stub(
        [
            pays("The first two bills.", 15, 60),
            pays("The third bill.", 90),
            answers("I paid the bills of 15 and 60. That of 90 has to wait for a minute."),
        ]
    ),
    [send_money],
    Policy.load("policy/rules/rate.yaml"),
)
