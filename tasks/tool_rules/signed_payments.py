"""An agent whose policy wants the answers of people signed."""

from __future__ import annotations

from tachograph import Agent, Policy, Stub
from tasks.tool_rules.payment_script import answers, pays
from tasks.tool_rules.payments import send_money

asks_for_a_signature = Agent(
    Stub([pays("The bill.", 15), answers("The payment of 15 was not approved.")]),
    [send_money],
    Policy.load("policy/rules/signers.yaml"),
)
