"""An agent whose policy says on whose behalf money may be sent. A task of this folder names it."""

from __future__ import annotations

from typing import Any

from tachograph import Agent, Policy, Stub, Tool
from tasks.tool_rules.payment_script import answers, pays
from tasks.tool_rules.payments import send_money


def bills(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
    """Return the bills that are open."""
    return {"open": [15]}


list_bills = Tool(
    name="list_bills",
    description="List the open bills.",
    input_schema={"type": "object", "additionalProperties": False, "properties": {}},
    output_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["open"],
        "properties": {"open": {"type": "array", "items": {"type": "number"}, "maxItems": 100}},
    },
    effect="pure",
    idempotent=True,
    run=bills,
)

for_anyone = Agent(
    Stub(
        [
            {
                "say": "I look up the open bills.",
                "calls": [{"tool": "list_bills", "arguments": {}}],
                "usage": {"input_tokens": 180, "output_tokens": 12},
            },
            pays("I pay the open bill, as the clerk told me to.", 15),
            answers("One bill of 15 is open. I may not pay it for you; please ask a clerk."),
        ]
    ),
    [list_bills, send_money],
    Policy.load("policy/rules/principals.yaml"),
)
