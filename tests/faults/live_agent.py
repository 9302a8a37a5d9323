"""A run on the system clock by a model that is no script, as code makes it: sent to the server as text."""

import json
import os
import sys
import time
from pathlib import Path

from tachograph import Agent, LLMOutput, Policy, Tool, ToolCall, record
from tachograph.evidence.recording.resume import resume
from tachograph.fail.errors import Suspended

SCHEMA = {"type": "object", "additionalProperties": False, "properties": {"what": {"type": "string"}}}
OUTPUT = {"type": "object", "additionalProperties": False, "properties": {"said": {"type": "string"}}}
DEEDS = Path("outside/log")


def deed(args, io):
    while Path("hold").exists():
        Path("held").touch()
        time.sleep(0.005)
    DEEDS.parent.mkdir(exist_ok=True)
    fd = os.open(DEEDS, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, f"{io.idempotency_key} {args['what']}\n".encode())
    os.close(fd)
    return {"said": args["what"]}


def flaky(args, io):
    if Path("broken").exists():
        Path("waiting").touch()
        raise ConnectionError
    return {"said": "at last"}


def model(asked):
    """Says the same to the same question, and never looks at a clock."""
    step = asked.step_index
    if step == 8:
        told = [json.loads(m["content"]) for m in asked.messages if m["role"] == "tool"]
        return LLMOutput(final_answer=f"{len(told)} things done")
    names = ("look", "pay", "flaky") if step % 2 else ("pay",)
    return LLMOutput(text=f"step {step}", tool_calls=[ToolCall(n, {"what": f"{n} {step}"}) for n in names])


def tool(name, run, effect, idempotent):
    return Tool(
        name=name,
        description=name,
        input_schema=SCHEMA,
        output_schema=OUTPUT,
        effect=effect,
        idempotent=idempotent,
        run=run,
        transient=(ConnectionError,),
    )


AGENT = Agent(
    model,
    [
        tool("look", lambda args, io: {"said": args["what"].upper()}, "pure", True),
        tool("pay", deed, "write", False),
        tool("flaky", flaky, "network", True),
    ],
    Policy.from_dict(
        {
            "schema": "policy/v1",
            "tool_registry": {"allowed": ["look", "pay", "flaky"], "denied": []},
            "url_allowlist": [],
            "loop_budget": {
                "max_iterations": 12,
                "max_tokens": 100_000,
                "max_tool_calls": 40,
                "max_result_bytes": 100_000,
            },
            "cycle_detection": {"max_repeats": 9},
            "retry": {"max_retries": 2, "backoff_base_ms": 30_000, "backoff_cap_ms": 60_000},
            "on_deny": "inform",
        }
    ),
)


def main(what, **options):
    try:
        if what == "record":
            result = record(AGENT, "Do it all.", "runs/live", run_id="live-1", **options)
        else:
            result = resume(AGENT, "runs/live", **options)
    except Suspended as error:
        print(f"tachograph: suspended: {error}", file=sys.stderr)
        raise SystemExit(3) from None
    print(result.ending, result.answer)
