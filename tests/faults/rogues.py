"""Tools that do what no tool should, in whole runs: in this process and in one of their own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tachograph import Agent, Policy, Stub
from tachograph.evidence.checking.replay import replay
from tachograph.evidence.checking.verify import verify
from tachograph.evidence.recording.record import record_run
from tachograph.runtime.core.clock import SystemClock
from tachograph.runtime.tools.loader import load_module
from tests.support import policy_data, well_formed

_MODULE = """
import os, signal, sys, time

DESCRIPTION = "a tool that does what it should not"
INPUT_SCHEMA = {"type": "object", "additionalProperties": False,
                "properties": {"n": {"type": "integer"}, "list": {"type": "array", "items": {"type": "integer"}}}}
OUTPUT_SCHEMA = {"type": "object", "additionalProperties": False, "properties": {"said": {"type": "string"}}}
EFFECT = "write"
IDEMPOTENT = False
TRANSIENT = (ConnectionError,)
IMPORTS = ("os", "signal", "sys", "time", "resource")
"""
FAILED, INVALID, LATE, ANSWERED = "catalogued_unhandled", "tool_output_invalid", "timeout", None


@dataclass(frozen=True)
class Rogue:
    """The body of a tool's `run`, the mode of its step, and that of its step in a worker where it is another."""

    body: str
    mode: str | None
    isolated: str | None = "the same"
    timeout_s: float | None = None
    here: bool = True  # whether this process survives it

    def mode_in(self, isolate: bool) -> str | None:
        return self.isolated if isolate and self.isolated != "the same" else self.mode


ROGUES = {
    "raises a BaseException": Rogue("class Odd(BaseException): ...\nraise Odd", FAILED),
    "ends the process": Rogue("sys.exit(0)", FAILED),
    "ends the process at once": Rogue("os._exit(0)", FAILED, here=False),
    "kills the process": Rogue("os.kill(os.getpid(), 9)", FAILED, here=False),
    "raises what a person raises": Rogue("raise KeyboardInterrupt", "interrupted", FAILED),
    "raises MemoryError": Rogue("raise MemoryError", FAILED),
    "never comes to a ground": Rogue("return run(args, io)", FAILED),
    "raises a group": Rogue("raise ExceptionGroup('x', [ValueError()])", FAILED),
    "returns bytes": Rogue("return b'said'", INVALID),
    "returns bytes within": Rogue("return {'said': b'x'}", INVALID),
    "returns NaN": Rogue("return {'said': float('nan')}", INVALID),
    "returns a cycle": Rogue("loop = {}; loop['said'] = loop; return loop", INVALID),
    "returns a set": Rogue("return {'said'}", INVALID),
    "returns a generator": Rogue("return (n for n in 'said')", INVALID),
    "returns itself": Rogue("return run", INVALID),
    "returns numbers for keys": Rogue("return {1: 'x', '1': 'y'}", INVALID),
    "returns a pit": Rogue("pit = []\nfor _ in range(100_000): pit = [pit]\nreturn {'said': pit}", INVALID),
    "returns what nobody asked for": Rogue("return {'said': 'x', 'more': 1}", INVALID),
    "returns nothing": Rogue("return None", INVALID),
    "changes its arguments": Rogue(
        "args['n'] = 9; args['list'].clear(); args['new'] = args; return {}", ANSWERED
    ),
    "changes the folder": Rogue("os.chdir('/'); return {}", ANSWERED),
    "hangs": Rogue("time.sleep(60)", LATE, timeout_s=0.3),
    "hangs busily": Rogue("while True: pass", LATE, timeout_s=0.3),
    "hangs and takes no for an answer": Rogue(
        "while True:\n    try: time.sleep(60)\n    except TimeoutError: pass", LATE, timeout_s=0.3
    ),
    "hangs and ignores SIGTERM": Rogue(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)", LATE, timeout_s=0.3, here=False
    ),
    "leaves a child behind": Rogue(
        "if os.fork() == 0:\n    time.sleep(60); os._exit(0)\nreturn {}", ANSWERED, here=False
    ),
    "comes back twice": Rogue("os.fork(); time.sleep(0.05); return {}", ANSWERED),
    "leaves a child in a session": Rogue(
        "if os.fork() == 0:\n    os.setsid(); time.sleep(60); os._exit(0)\ntime.sleep(60)",
        LATE,
        timeout_s=0.3,
        here=False,
    ),
}
# beyond the budget for results here, beyond what a worker may say there
HEAVY = {
    "returns 100 MB": Rogue("return {'said': 'x' * 100_000_000}", None, INVALID),
    "returns a million keys": Rogue("return {str(n): n for n in range(1_000_000)}", None, INVALID),
    "returns 20 MB of numbers": Rogue("return {'said': list(range(3_000_000))}", None, INVALID),
}


def performed(rogue: Rogue, place: Path, *, isolate: bool = False, live: bool = False) -> dict[str, Any]:
    """The whole run of a tool that goes wrong, kept and recorded; returns its step. Fails unless all is sound."""
    place.mkdir(parents=True)
    body = "".join(f"    {line}\n" for line in rogue.body.splitlines())
    limit = f"TIMEOUT_S = {rogue.timeout_s}\n" if rogue.timeout_s else ""
    (place / "rogue.py").write_text(f"{_MODULE}{limit}ISOLATE = {isolate}\n\ndef run(args, io):\n{body}")
    agent = Agent(
        Stub([{"calls": [{"tool": "rogue", "arguments": {"n": 1, "list": [1, 2]}}]}, {"answer": "done"}]),
        [load_module(place / "rogue.py")],
        Policy.from_dict(
            policy_data(tool_registry={"allowed": ["rogue"]}, loop_budget={"max_result_bytes": 10**6})
        ),
    )
    config = agent.configure_run("q", run_id="r", clock=SystemClock() if live else None)
    result = record_run(agent, config, place / "run", durability="effect")
    assert result.mode == rogue.mode_in(isolate), (result, (place / "run/state.jsonl").read_text()[-2000:])
    lines, _ = well_formed((place / "run" / "state.jsonl").read_bytes())
    assert verify(place / "run", place) == []
    assert replay(agent, place / "run").mode == result.mode
    (call,) = lines[1]["intended_tool_calls"]
    assert call["arguments"] == {"n": 1, "list": [1, 2]}
    assert not (place / "run.partial").exists()
    step: dict[str, Any] = json.loads(json.dumps(lines[1]))
    return step
