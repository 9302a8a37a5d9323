"""A tool that calls a JSON API through `io.request`. `json_api.yaml` and `method_refused.yaml` name its agents.

The policy says which URLs and methods it may use, and adds the credential: the tool holds none. In these scenarios the
folder `data/orders_api` answers in place of the service.
"""

from __future__ import annotations

import json
from typing import Any

from tachograph import Agent, Policy, Stub, Tool

URL = "https://orders.example/v1/orders"
HEADERS = {"Accept": "application/json", "Content-Type": "application/json"}


def call(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
    """List orders, place one, or delete all of them."""
    method = {"list": "GET", "place": "POST", "delete_all": "DELETE"}[arguments["action"]]
    order = {"item": arguments.get("item", "tachograph roll"), "count": arguments.get("count", 1)}
    body = json.dumps(order) if method == "POST" else None
    headers = {**HEADERS, "Idempotency-Key": io.idempotency_key} if body else {"Accept": "application/json"}
    answer = io.request(method, URL, headers, body)
    if answer.status >= 400:
        return {"status": answer.status, "orders": []}
    found = json.loads(answer.text)
    rows = found.get("orders", [found])
    return {
        "status": answer.status,
        "orders": [
            {"id": int(row["id"]), "item": str(row["item"])[:80], "count": int(row["count"])} for row in rows
        ],
    }


orders = Tool(
    name="orders",
    description="List the orders, place one, or delete all of them.",
    input_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["action"],
        "properties": {
            "action": {"enum": ["list", "place", "delete_all"], "type": "string"},
            "item": {"type": "string", "maxLength": 80, "default": "tachograph roll"},
            "count": {"type": "integer", "minimum": 1, "maximum": 100, "default": 1},
        },
    },
    output_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["status", "orders"],
        "properties": {
            "status": {"type": "integer", "minimum": 100, "maximum": 599},
            "orders": {
                "type": "array",
                "maxItems": 1000,
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["id", "item", "count"],
                    "properties": {
                        "id": {"type": "integer", "minimum": 0},
                        "item": {"type": "string", "maxLength": 80},
                        "count": {"type": "integer", "minimum": 0},
                    },
                },
            },
        },
    },
    effect="external",
    idempotent=False,
    run=call,
)


def agent_with(*turns: dict[str, Any]) -> Agent:
    """Return the agent with a script."""
    policy = Policy.load("policy/examples/orders_api.yaml")
    return Agent(Stub(list(turns)), [orders], policy, hosts={"orders.example": "data/orders_api"})


def places_an_order() -> Agent:
    """Return an agent that looks at the orders and places another."""
    return agent_with(
        {
            "say": "I look at the orders.",
            "calls": [{"tool": "orders", "arguments": {"action": "list"}}],
            "usage": {"input_tokens": 150, "output_tokens": 15},
        },
        {
            "say": "I order three more.",
            "calls": [
                {"tool": "orders", "arguments": {"action": "place", "item": "tachograph roll", "count": 3}}
            ],
            "usage": {"input_tokens": 190, "output_tokens": 20},
        },
        {
            "answer": {"$join": ["Ordered, as number ", {"$result": 1, "at": "/orders/0/id"}, "."]},
            "usage": {"input_tokens": 230, "output_tokens": 12},
        },
    )


def deletes_the_orders() -> Agent:
    """Return an agent that tries a method which the policy does not allow."""
    return agent_with(
        {
            "say": "I delete the orders.",
            "calls": [{"tool": "orders", "arguments": {"action": "delete_all"}}],
            "usage": {"input_tokens": 150, "output_tokens": 15},
        }
    )
