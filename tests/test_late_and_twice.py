"""What comes late or twice does not count, what has changed is refused, and nothing but a record is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Answer, Hooks, Policy, WritePath, record, resume, tool
from tachograph.fail.errors import InputError, TachographError
from tachograph.runtime.formats.documents import read_plain
from tests.project import script
from tests.tables.rows import roomy

POLICY = roomy(["add", "pay", "put"], sandbox={"mounts": {"box": "write"}}, on_deny="inform")
done: list[str] = []


@tool(effect="pure")
def add(a: int) -> int:
    """Add."""
    return a


@tool(effect="external")
def pay() -> str:
    """Pay."""
    done.append("paid")
    return "paid"


@tool(effect="write")
def put(path: WritePath, io: Any) -> str:
    """Put."""
    io.write(path, "x")
    return "x"


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done.clear()


def agent(
    name: str = "add", arguments: dict[str, Any] | None = None, asked: str = "put", **rest: Any
) -> Agent:
    Path("policy").mkdir(exist_ok=True)
    policy = {**POLICY, "approval": {"required_for": [asked], "timeout_s": 1}}
    Path("policy/p.yaml").write_text(json.dumps(policy))
    model = script([(name, {"a": 1} if arguments is None else arguments)], "done")
    return Agent(model, rest.pop("tools", [add, pay, put]), Policy.load("policy/p.yaml"), **rest)


def in_doubt() -> None:
    """Leave a run whose process ended while a payment was under way."""

    def dies() -> str:
        """Pay."""
        os._exit(9)

    if os.fork() == 0:
        record(agent("pay", {}, tools=[add, tool(effect="external", name="pay")(dies), put]), "q", out="o")
    os.wait()


@pytest.mark.parametrize("word", ["Done", "maybe", True])
def test_a_word_on_a_doubt_that_is_no_word_repeats_nothing(word: Any) -> None:
    in_doubt()
    with pytest.raises(TachographError):
        resume(agent("pay", {}), "o", settled={"1.c0.i1": word})
    assert done == []


@pytest.mark.parametrize("blocks", [True, False])
def test_a_late_hook_denies(blocks: bool) -> None:
    async def hook(data: Any) -> None:
        try:
            await asyncio.sleep(0 if blocks else 9)
        except asyncio.CancelledError:
            return
        end = asyncio.get_running_loop().time() + 0.2
        while asyncio.get_running_loop().time() < end:
            pass

    result = agent(hooks=Hooks(before_call=hook, timeout_s=0.05)).run("q")
    assert "policy_denied" in str(result.messages[-2]["content"])


def test_a_late_person_is_silence() -> None:
    async def person(question: Any) -> Answer:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(9)
        return Answer("allow")

    assert "policy_denied" in str(agent(asked="add", approve=person).run("q").messages[-2]["content"])


def test_an_agent_in_code_may_not_write_its_policy() -> None:
    try:
        made = agent("put", {"path": "box/p.yaml"}, asked="pay")
        Path("rules").mkdir()
        Path("policy/p.yaml").rename("rules/p.yaml")
        own = Policy.load("rules/p.yaml")
        Agent(made.models[0], made.tools, own, mounts={"box": "rules"}).run("q")
    except TachographError:
        pass
    assert Path("rules/p.yaml").read_text() != "x"


NO_OPTIONS = [{"seed": "x"}, {"seed": 7.5}, {"deadline_s": 0.5}, {"deadline_s": -1}, {"sead": 3}]
NO_QUESTIONS = [["q"], "\ud800", None, 5]


@pytest.mark.parametrize(
    ("question", "options"), [*(("q", it) for it in NO_OPTIONS), *((it, {}) for it in NO_QUESTIONS)]
)
def test_what_cannot_be_recorded_is_refused(question: Any, options: Any) -> None:
    with pytest.raises(InputError):
        record(agent(), question, out="o", **options)
    assert not [*Path().glob("o*")]
    with pytest.raises(InputError):
        agent().run(question, **options)


def test_a_file_is_read_without_room_for_the_largest(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 3_000_000)
    assert len(read_plain(file, 1 << 40)) == 3_000_000
    assert len(read_plain(file, 2_000_000)) == 2_000_001


def test_a_resume_removes_nothing_but_a_record() -> None:
    record(agent(), "q", out="o")
    Path("o").rename("o.partial")
    Path("o").mkdir()
    Path("o/thesis.txt").write_text("x")
    with pytest.raises(TachographError):
        resume(agent(), "o")
    assert Path("o/thesis.txt").exists() and Path("o.partial/state.jsonl").exists()
    Path("o/thesis.txt").unlink()
    assert resume(agent(), "o").ending == "final_answer"


def test_a_folder_with_an_older_record_stays() -> None:
    record(agent(), "q", out="o")
    Path("o").rename("o.old")
    for _ in range(2):
        record(agent(), "q", out="o", replace=True)
    assert Path("o.old/state.jsonl").exists()
