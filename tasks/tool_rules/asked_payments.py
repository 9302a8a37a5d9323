"""An agent whose policy has a person asked about larger payments."""

from __future__ import annotations

from tachograph import Agent, Policy, Stub
from tasks.tool_rules.payment_script import answers, pays
from tasks.tool_rules.payments import send_money

asks_about_large_ones = Agent(
    Stub(
        [
            pays("The first bill.", 15),
            pays("The second bill.", 60),
            pays("The third bill.", 90),
            answers("I paid the bills of 15 and 60. The payment of 90 was refused."),
        ]
    ),
    [send_money],
    Policy.load("policy/rules/approval.yaml"),
)
