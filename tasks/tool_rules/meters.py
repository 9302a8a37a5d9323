"""An agent whose policy limits the executions of tools in a run. A task of this folder names it."""

from __future__ import annotations

from typing import Any

from tachograph import Agent, Policy, Stub, Tool


def read(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
    """Return the reading of a meter; that of the yard cannot be reached."""
    if arguments["meter"] == "yard":
        raise ConnectionError
    return {"litres": 240}


read_meter = Tool(
    name="read_meter",
    description="Read a fuel meter.",
    input_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["meter"],
        "properties": {"meter": {"enum": ["gate", "yard"]}},
    },
    output_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["litres"],
        "properties": {"litres": {"type": "integer"}},
    },
    effect="read",
    idempotent=True,
    run=read,
    transient=(ConnectionError,),
)


def _calls(say: str, meter: str) -> dict[str, Any]:
    """Return a turn of the scripted model that asks for one reading."""
    return {
        "say": say,
        "calls": [{"tool": "read_meter", "arguments": {"meter": meter}}],
        "usage": {"input_tokens": 200, "output_tokens": 20},
    }


attempts_used_up = Agent(
    Stub(
        [
            _calls("I read the meter at the gate.", "gate"),
            _calls("Now the one in the yard.", "yard"),
            _calls("I try the one in the yard again.", "yard"),
        ]
    ),
    [read_meter],
    Policy.load("policy/rules/attempts.yaml"),
)
