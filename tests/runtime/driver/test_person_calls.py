"""A person is asked beside an event loop: what goes on meanwhile, and what a run that is over leaves behind."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Policy, Stub, SystemClock, VirtualClock
from tachograph.runtime.driver.answer_folder import closed_as
from tachograph.runtime.driver.file_approvals import ByFile, answer_file
from tests.runtime.policy.test_argument_rules import DATA, SEND

USAGE = {"input_tokens": 1, "output_tokens": 1}


def agent() -> Agent:
    policy = Policy.from_dict({**DATA, "approval": {"required_for": ["send"], "timeout_s": 30}})
    call = {"calls": [{"tool": "send", "arguments": {"amount": 1}}], "usage": USAGE}
    return Agent(Stub([call, {"answer": "done", "usage": USAGE}]), [SEND], policy)


async def question_in(folder: Path) -> Path:
    for _ in range(2000):
        found = sorted(folder.glob("*.json")) if folder.is_dir() else []
        if found:
            return found[0]
        await asyncio.sleep(0.005)
    raise AssertionError("nobody was asked")


def test_a_run_that_is_over_takes_no_answer(tmp_path: Path) -> None:
    polls: list[float] = []

    async def cancelled() -> Path:
        approve = ByFile(tmp_path, poll_s=0.1, tell=lambda path, asked: polls.append(time.monotonic()))
        run = asyncio.create_task(agent().arun("Pay.", approve=approve, clock=SystemClock()))
        path = await question_in(tmp_path)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        answer_file(path, "allow", None, None)
        await asyncio.sleep(0.4)  # the thread that the run left looks at the file again
        return path

    path = asyncio.run(cancelled())
    assert polls and json.loads(path.read_text())["answer"] == "allow"
    assert closed_as(path) is None


@pytest.mark.parametrize("clock", [VirtualClock, SystemClock])
def test_an_event_loop_goes_on_while_a_person_is_asked(clock: Any, tmp_path: Path) -> None:
    async def answered() -> str:
        run = asyncio.create_task(agent().arun("Pay.", approve=ByFile(tmp_path, poll_s=0.05), clock=clock()))
        path = await question_in(tmp_path)
        answer_file(path, "allow", None, None)
        return (await run).ending

    assert asyncio.run(answered()) == "final_answer"
