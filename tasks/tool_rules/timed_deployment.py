"""An agent whose policy says at which times of the week it may deploy."""

from __future__ import annotations

from typing import Any

from tachograph import Agent, Policy, Stub, Tool
from tasks.tool_rules.payment_script import answers


def put_in_place(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
    """Return what was deployed; nothing is deployed in this example."""
    return {"deployed": arguments["service"]}


deploy = Tool(
    name="deploy",
    description="Put a new version of a service in place.",
    input_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["service"],
        "properties": {"service": {"type": "string", "maxLength": 80}},
    },
    output_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["deployed"],
        "properties": {"deployed": {"type": "string", "maxLength": 80}},
    },
    effect="external",
    idempotent=False,
    run=put_in_place,
)


def deploys(say: str, service: str) -> dict[str, Any]:
    """Return a turn that asks for one deployment."""
    return {
        "say": say,
        "calls": [{"tool": "deploy", "arguments": {"service": service}}],
        "usage": {"input_tokens": 200, "output_tokens": 20},
    }


timed = Agent(
    Stub(
        [
            deploys("The timetable first.", "timetable"),
            deploys("Now the map.", "map"),
            answers("The timetable is in place. The map has to wait until tomorrow at eight."),
        ]
    ),
    [deploy],
    Policy.load("policy/rules/window.yaml"),
)
