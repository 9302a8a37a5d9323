"""An agent in code with an external tool, which reports a defect to the workshop. `defect_reported.yaml` names it.

The workshop is a file beside the mounts, so that everybody can look whether anything was reported: `tachograph check`
adds no line to it, and neither does `tachograph run` while the record stands. `--perform-effects` adds one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from tachograph import Agent, Policy, Stub, Tool

WORKSHOP = Path(__file__).resolve().parents[2] / ".tachograph" / "workshop.txt"


def report(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
    """Report a defect; the ticket's number follows from the call, as a service with idempotency keys gives it."""
    number = hashlib.sha256(io.idempotency_key.encode()).hexdigest()[:8]
    WORKSHOP.parent.mkdir(exist_ok=True)
    with WORKSHOP.open("a", encoding="utf-8") as file:
        file.write(f"{number} {arguments['vehicle']}: {arguments['defect']}\n")
    return {"ticket": number}


report_defect = Tool(
    name="report_defect",
    description="Report a defect of a vehicle to the workshop. Returns the number of the ticket.",
    input_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["vehicle", "defect"],
        "properties": {
            "vehicle": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{1,4}$", "maxLength": 7},
            "defect": {"type": "string", "minLength": 1, "maxLength": 200},
        },
    },
    output_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["ticket"],
        "properties": {"ticket": {"type": "string", "minLength": 8, "maxLength": 8}},
    },
    effect="external",
    idempotent=False,
    run=report,
)

policy = Policy.from_dict(
    {
        "schema": "policy/v1",
        "tool_registry": {"allowed": ["report_defect"]},
        "arg_schema_enforcement": "strict",
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
            "say": "I report it to the workshop.",
            "calls": [
                {
                    "tool": "report_defect",
                    "arguments": {"vehicle": "OB-17", "defect": "The recorder prints no daily sheet."},
                }
            ],
            "usage": {"input_tokens": 160, "output_tokens": 30},
        },
        {
            "answer": {"$join": ["The workshop has it as ticket ", {"$result": 0, "at": "/ticket"}, "."]},
            "usage": {"input_tokens": 200, "output_tokens": 12},
        },
    ]
)

agent = Agent(model, [report_defect], policy)
