"""An agent whose policy limits what stands in the requests of its tool."""

from __future__ import annotations

from typing import Any

from tachograph import Agent, Policy, Stub
from tasks.examples.orders_api import orders
from tasks.tool_rules.payment_script import answers


def _orders(count: int) -> dict[str, Any]:
    return {
        "say": f"I order {count}.",
        "calls": [{"tool": "orders", "arguments": {"action": "place", "item": "ink ribbon", "count": count}}],
        "usage": {"input_tokens": 150, "output_tokens": 15},
    }


def orders_too_many() -> Agent:
    """Return an agent that orders more than a request may say, and then less."""
    return Agent(
        Stub([_orders(40), _orders(10), answers("I ordered 10; an order of 40 was refused.")]),
        [orders],
        Policy.load("policy/rules/requests.yaml"),
        hosts={"orders.example": "data/orders_api"},
    )
