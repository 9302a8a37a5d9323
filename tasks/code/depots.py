"""An agent in code: its tool, its policy and its model are Python objects. `depots.yaml` names it."""

from __future__ import annotations

from typing import Any

from tachograph import Agent, Policy, Stub, Tool

DEPOTS = {"OB": "Ollerbeck", "ST": "Steinfurt"}


def find_depot(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
    """Return the name of the depot with a code."""
    return {"depot": DEPOTS.get(arguments["code"], "unknown")}


depot = Tool(
    name="depot",
    description="Return the name of the depot with a code.",
    input_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["code"],
        "properties": {"code": {"type": "string", "maxLength": 8}},
    },
    output_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["depot"],
        "properties": {"depot": {"type": "string", "maxLength": 80}},
    },
    effect="pure",
    idempotent=True,
    run=find_depot,
)

policy = Policy.from_dict(
    {
        "schema": "policy/v1",
        "tool_registry": {"allowed": ["depot"]},
        "loop_budget": {
            "max_iterations": 5,
            "max_tokens": 10000,
            "max_tool_calls": 5,
            "max_result_bytes": 10000,
        },
        "cycle_detection": {"max_repeats": 2},
    }
)

model = Stub(
    [
        {
            "say": "I look the code up.",
            "calls": [{"tool": "depot", "arguments": {"code": "OB"}}],
            "usage": {"input_tokens": 150, "output_tokens": 15},
        },
        {
            "answer": {"$join": ["OB is the depot ", {"$result": 0, "at": "/depot"}, "."]},
            "usage": {"input_tokens": 180, "output_tokens": 10},
        },
    ]
)

agent = Agent(model, [depot], policy)
