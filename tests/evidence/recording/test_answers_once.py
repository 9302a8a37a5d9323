"""Answers in a folder under a run that is kept: none is lost with a process, and none serves twice."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, InputError, LLMInput, LLMOutput, Policy, ToolCall, arecord, record, resume
from tachograph.runtime.core.effects import Answer, AskHuman
from tachograph.runtime.driver.answer_folder import closed_as
from tachograph.runtime.driver.file_approvals import ByFile, answer_file
from tachograph.runtime.driver.stopping.interrupts import ForceQuit
from tests.support import policy_data, tool

POLICY = policy_data(approval={"required_for": ["probe"], "timeout_s": 60})


class Work:
    """An agent whose tool counts what it did, and which can die where it is told to."""

    def __init__(self) -> None:
        self.deeds = 0
        self.dies_after_the_call = False

    def model(self, asked: LLMInput) -> LLMOutput:
        if asked.step_index == 1:
            return LLMOutput(tool_calls=[ToolCall("probe", {"n": 1})])
        if self.dies_after_the_call:
            raise InputError("the key is missing")
        return LLMOutput(final_answer="Done.")

    def run(self, args: dict[str, Any], io: Any) -> dict[str, Any]:
        self.deeds += 1
        return {"said": "ok"}

    def agent(self) -> Agent:
        tools = [tool(run=self.run, effect="external", idempotent=False), tool("echo")]
        return Agent(self.model, tools, Policy.from_dict(POLICY))


def allowing(folder: Path, told: list[Path]) -> ByFile:
    def tell(path: Path, _: AskHuman) -> None:
        told.append(path)
        answer_file(path, "allow", "ann", None)

    return ByFile(folder, tell=tell, poll_s=0.01)


def approvals(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(text) for text in (run / "state.jsonl").read_text().split("\n")[:-1]]
    entries = [entry for line in lines[1:-1] for entry in line["policy_decisions"]]
    return [entry["approval"] for entry in entries if "approval" in entry]


def test_a_process_that_dies_with_an_answer_neither_loses_nor_repeats_the_call(tmp_path: Path) -> None:
    work, told = Work(), list[Path]()
    asks = allowing(tmp_path / "answers", told)

    def dies(asked: AskHuman) -> Answer | None:
        assert asks(asked) is not None  # taken, and not yet in the journal
        raise ForceQuit

    with pytest.raises((KeyboardInterrupt, ForceQuit)):
        record(work.agent(), "?", tmp_path / "run", approve=dies, durability="effect")
    assert work.deeds == 0 and [closed_as(path) for path in told] == ["taken"]
    again: list[Path] = []
    assert resume(work.agent(), tmp_path / "run", approve=allowing(tmp_path / "answers", again)).ok
    assert work.deeds == 1 and again == [told[0].with_name(f"{told[0].stem}.2.json")]
    assert [item["answer"] for item in approvals(tmp_path / "run")] == ["allow"]


def test_an_answer_in_the_journal_needs_its_file_no_more(tmp_path: Path) -> None:
    work, told = Work(), list[Path]()
    work.dies_after_the_call = True
    asks = allowing(tmp_path / "answers", told)
    with pytest.raises(InputError, match="the key is missing"):
        record(work.agent(), "?", tmp_path / "run", approve=asks, durability="effect")
    assert work.deeds == 1 and len(told) == 1
    shutil.rmtree(tmp_path / "answers")
    work.dies_after_the_call = False
    assert resume(work.agent(), tmp_path / "run").ok
    assert work.deeds == 1 and [item["by"] for item in approvals(tmp_path / "run")] == ["ann"]


def test_in_an_event_loop_an_answer_is_taken_once_too(tmp_path: Path) -> None:
    work, told = Work(), list[Path]()

    def tell(path: Path, asked: AskHuman) -> None:
        told.append(path)
        answer_file(path, "allow", "ann", None)
        assert ByFile(tmp_path / "answers", poll_s=0.01)(asked) == Answer("allow", "ann", None, asked.digest)

    approve = ByFile(tmp_path / "answers", tell=tell, poll_s=0.01)
    asyncio.run(arecord(work.agent(), "?", tmp_path / "run", approve=approve))
    assert work.deeds == 0 and [closed_as(path) for path in told] == ["taken"]
    said = approvals(tmp_path / "run")
    assert [(item["answer"], item["why"]) for item in said] == [
        ("deny", "the answer in the file was taken already")
    ]
