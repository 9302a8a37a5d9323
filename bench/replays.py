"""What a replay costs: a run answered from its record against the same run made by its script."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from measure import Case, Row, take_turns

from tachograph import Agent, Policy, Stub, VirtualClock
from tachograph.evidence.files.writer import Writer
from tachograph.runtime.journal import ledger
from tachograph.runtime.journal.cassette import Cassette, ReplayExecutor
from tachograph.runtime.journal.recorded_clock import RecordedClock

STEPS = 200


def rows(*, quick: bool) -> list[Row]:
    agent = _agent()
    state = _made(agent)
    cases = {
        "script": Case(lambda _n: _made(agent), batch=1),
        "replay": Case(lambda _n: _replayed(agent, state), batch=1),
    }
    turns = take_turns(cases, 3 if quick else 9)
    note = f"{turns.us('replay') / STEPS:.0f} us : {turns.us('script') / STEPS:.0f} us a step"
    return [
        Row(f"replay of {STEPS} steps : the governed run", turns.ratio("replay", "script"), 2.0, note=note)
    ]


def _agent() -> Agent:
    turns: list[dict[str, Any]] = [
        {"calls": [{"tool": "read", "arguments": {"path": f"corpus/op-a{1 + i % 5}.md"}}]}
        for i in range(STEPS - 1)
    ]
    data = Policy.shipped().data
    wide = {"max_iterations": STEPS, "max_tokens": 10**9, "max_tool_calls": STEPS, "max_result_bytes": 10**9}
    policy = {**data, "loop_budget": wide, "cycle_detection": {"max_repeats": STEPS}}
    script = Stub([*turns, {"answer": "done"}])
    return Agent(script, ["read", "fetch"], Policy.from_dict(policy), mounts={"corpus": "data/corpus/v1"})


def _made(agent: Agent) -> bytes:
    writer = Writer(None)
    result = agent.execute(
        agent.configure_run("q", run_id="bench", clock=VirtualClock()), on_line=writer.line, keep_steps=False
    )
    writer.finish(result.inputs)
    return writer.contents()["state.jsonl"]


def _replayed(agent: Agent, state: bytes) -> None:
    """Do what `tachograph replay` does, from the bytes of a ledger to the four files in memory."""
    lines = list(ledger.read(state, "state.jsonl"))
    cassette, clock = Cassette.of(lines[1:-1]), RecordedClock.of(lines)
    config = agent.configure_run("q", run_id="bench", clock=clock)
    writer = Writer(None)
    result = agent.execute(
        replace(config, executor=ReplayExecutor(cassette, clock), as_recorded=True),
        on_line=writer.line,
        keep_steps=False,
    )
    writer.finish(result.inputs)
    assert json.loads(state.split(b"\n", 1)[0])["run_id"] == "bench" and cassette.unused() is None
    assert writer.contents()["state.jsonl"] == state
