"""Agents whose policy has rules on the arguments of one tool. Tasks of this folder name them."""

from __future__ import annotations

from typing import Any

from tachograph import Agent, Policy, Stub, Tool


def pay(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
    """Return what was sent to whom; no money moves in this example."""
    return {"sent": arguments["amount"], "to": arguments["recipient"]}


send_money = Tool(
    name="send_money",
    description="Send an amount of money to a recipient.",
    input_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["amount", "recipient"],
        "properties": {
            "amount": {"type": "number", "exclusiveMinimum": 0},
            "recipient": {"type": "string", "maxLength": 80},
        },
    },
    output_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["sent", "to"],
        "properties": {"sent": {"type": "number"}, "to": {"type": "string", "maxLength": 80}},
    },
    effect="external",
    idempotent=False,
    run=pay,
)


def _calls(say: str, amount: int, recipient: str) -> dict[str, Any]:
    """Return a turn of the scripted model that asks for one payment."""
    arguments = {"amount": amount, "recipient": recipient}
    return {
        "say": say,
        "calls": [{"tool": "send_money", "arguments": arguments}],
        "usage": {"input_tokens": 200, "output_tokens": 20},
    }


def _answers(text: str) -> dict[str, Any]:
    return {"answer": text, "usage": {"input_tokens": 260, "output_tokens": 15}}


policy = Policy.load("policy/rules/payments.yaml")

over_the_limit = Agent(
    Stub(
        [
            _calls("I pay the whole bill.", 250, "Ollerbeck depot"),
            _calls("Only 100 may be sent, so I pay a part.", 100, "Ollerbeck depot"),
            _answers("I sent 100 of the 250 to the Ollerbeck depot."),
        ]
    ),
    [send_money],
    policy,
)

not_on_the_list = Agent(
    Stub(
        [
            _calls("The bill names another account.", 40, "Unknown account"),
            _answers("I sent nothing: the recipient of the bill is not on the list."),
        ]
    ),
    [send_money],
    policy,
)
