"""What the gate of a recorded run is asked, once as its ledger tells and once as the loop asks in a replay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tachograph.evidence.recording.recorded import open_record, revive
from tachograph.review.queries.recorded_queries import questions_in
from tachograph.runtime.core.branches import BRANCH
from tachograph.runtime.journal.cassette import Cassette, ReplayExecutor
from tachograph.runtime.journal.recorded_clock import RecordedClock
from tachograph.runtime.policy.gate import Decision, Gate, GateRequest
from tachograph.runtime.policy.usage import Counters
from tests.support import ROOT

Told = list[tuple[Any, ...]]


def told_and_heard(folder: Path, root: Path = ROOT) -> tuple[Told, Told]:
    """The questions with their counts: those read from the lines, and those that the loop's own gate is given."""
    recorded = open_record(folder, root)
    agent, setting = revive(recorded)
    heard: list[tuple[Any, ...]] = []

    class Listening(Gate):
        def decide_request(self, request: GateRequest) -> Decision:
            counters = request.counters
            heard.append(("call", request.call, *numbers(counters), counters.repeats.get(request.key, 0)))
            return super().decide_request(request)

        def decide_step(self, counters: Counters) -> Decision | None:
            heard.append(("step", None, *numbers(counters), 0))
            return super().decide_step(counters)

        def decide_late(self, check: Any, tool: str | None = None) -> Decision:
            if BRANCH.get() is None:  # inside of a group a call only asks whether to try again
                heard.append(("fact", dict(check)))
            return super().decide_late(check, tool)

        def decide_result(self, size: int, counters: Counters) -> Decision | None:
            heard.append(("result", size, *numbers(counters)))
            return super().decide_result(size, counters)

    agent.gate = Listening(agent.gate.policy, agent.gate.tools)
    assert isinstance(setting.clock, RecordedClock)
    agent.execute(replace(setting, executor=ReplayExecutor(Cassette.of(recorded.lines[1:-1]), setting.clock)))
    told: list[tuple[Any, ...]] = []
    for item in questions_in(recorded.lines[1:-1], agent.gate.tools):
        question = item.question
        used = question.counters
        if used is None:
            told.append(("fact", dict(question.check or {})))
        elif question.size is not None:
            told.append(("result", question.size, *numbers(used)))
        elif question.call is not None:
            told.append(("call", question.call, *numbers(used), max(used.repeats.values())))
        else:
            told.append(("step", None, *numbers(used), 0))
    return told, heard


def numbers(used: Counters) -> tuple[int, ...]:
    return used.iterations, used.tokens, used.tool_calls, used.result_bytes
