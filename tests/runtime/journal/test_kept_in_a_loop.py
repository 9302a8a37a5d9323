"""A kept run in an event loop: its journal holds what it must before anything else is done, as without one."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Policy, Stub, Tool, arecord
from tachograph.fail.errors import EffectInDoubt, RecordError, Suspended
from tachograph.runtime.core.clock import VirtualClock
from tachograph.runtime.journal import journal as journals
from tachograph.runtime.journal.journal import read_journal
from tests.faults.kept import Case, Disk
from tests.support import INPUT, OUTPUT, policy_data

STEPS = (["look:1", "pay:1", "look!", "pay:2", "book:1"], ["look:3", "put:4", "pay:5"], ["book:6"])


def _case(place: Path) -> Case:
    return Case(place, STEPS, parallel=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The ledger of the run without an event loop."""
    case = _case(tmp_path_factory.mktemp("whole"))
    result = case.begin()
    assert result is not None and result.ok
    return (case.out / "state.jsonl").read_bytes()


def test_the_bytes_are_those_of_a_run_without_an_event_loop(tmp_path: Path, whole: bytes) -> None:
    case = _case(tmp_path)
    result = case.begin_in_a_loop()
    assert result is not None and result.ok and not case.partial.exists()
    assert (case.out / "state.jsonl").read_bytes() == whole


def _settle(case: Case) -> None:
    """Go on with the run to its end, without an event loop; of each call in doubt it is said what came of it."""
    said: dict[str, str] = {}
    for _ in range(9):
        try:
            assert case.go_on(said) is not None
            return
        except EffectInDoubt as doubt:
            _, step, index = doubt.call.split("_")
            assert doubt.call not in said
            said = {doubt.call: "done" if case.world.done[f"kept/{step}/{index}"] else "not_done"}
    raise AssertionError("the run never ended")


def _holds(case: Case, whole: bytes) -> None:
    """What must not be done twice was done once, and the record differs at most in results that were lost."""
    calls = {"kept/1/1", "kept/1/3", "kept/1/4", "kept/2/2", "kept/3/0"}  # those of `pay` and `book`
    assert case.world.done == dict.fromkeys(calls, 1)
    ledger = (case.out / "state.jsonl").read_bytes()
    assert json.loads(ledger.splitlines()[-1])["final_answer"] == "done"
    assert ledger == whole or b'"unseen":true' in ledger


@pytest.mark.parametrize("loses_power", [False, True])
def test_dying_at_any_write(tmp_path: Path, whole: bytes, loses_power: bool) -> None:
    """Killed before each write or fsync of the journal; without power nothing is left that no fsync returned for."""
    disk = Disk()
    case = _case(tmp_path / "counted")
    assert case.begin_in_a_loop(disk) is not None
    most_open = gone_on = 0
    for number in range(4, len(disk.calls) + 1):
        case, disk = _case(tmp_path / str(number)), Disk(number)
        if case.begin_in_a_loop(disk) is not None:  # more calls have shared an fsync this time
            assert number > 20
            break
        if loses_power:
            case.journal.write_bytes(case.journal.read_bytes()[: disk.synced])
        journaled = read_journal(case.journal.read_bytes(), "journal")
        if journaled is None:  # nothing was done that rests on it
            assert not case.world.done
            with pytest.raises(RecordError, match="died before it began"):
                case.go_on()
            continue
        most_open = max(most_open, len(journaled.intents))
        _settle(case)
        _holds(case, whole)
        gone_on += 1
    assert most_open > 1 and gone_on > 20


def _pay(run: Callable[[dict[str, Any], Any], Any]) -> Tool:
    return Tool(
        name="pay",
        description="pay",
        input_schema=INPUT,
        output_schema=OUTPUT,
        effect="write",
        idempotent=False,
        run=run,
    )


def _recorded(out: Path, tool: Tool) -> Any:
    turns = [{"calls": [{"tool": "pay", "arguments": {"n": 1}}]}, {"answer": "done"}]
    agent = Agent(Stub(turns), [tool], Policy.from_dict(policy_data(tool_registry={"allowed": ["pay"]})))
    return arecord(agent, "What now?", out / "run", clock=VirtualClock(), durability="effect")


def test_no_fsync_happens_in_the_thread_of_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def fsync(fd: int) -> None:
        threads.append(threading.current_thread())
        real(fd)

    real = os.fsync
    monkeypatch.setattr(os, "fsync", fsync)
    pay = _pay(lambda args, io: {"said": "ok"})
    assert asyncio.run(_recorded(tmp_path, pay)).answer == "done"
    assert len(threads) > 8 and threading.main_thread() not in threads


def test_the_loop_goes_on_and_a_cancelled_run_is_whole_while_the_disk_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call is over when the task is cancelled, so that its outcome stays in the record."""
    waits, go_on = threading.Event(), threading.Event()
    performed = threading.Event()

    class Slow(Disk):
        def fsync(self, fd: int) -> None:
            if performed.is_set() and not waits.is_set():
                waits.set()
                assert go_on.wait(30)
            super().fsync(fd)

    def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
        performed.set()
        return {"said": "ok"}

    async def main() -> None:
        pay = _pay(run)
        task = asyncio.ensure_future(_recorded(tmp_path, pay))
        while not waits.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    monkeypatch.setattr(journals, "os", Slow())
    asyncio.run(main())
    lines = [json.loads(line) for line in (tmp_path / "run/state.jsonl").read_text().splitlines()]
    assert lines[1]["tool_results"][0]["status"] == "ok"
    assert lines[-1]["terminal_reason"] == "cancelled"


def test_a_disk_that_fails_suspends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    performed: list[int] = []

    class Full(Disk):
        def fsync(self, fd: int) -> None:
            if len(performed) == 1:
                raise OSError(28, "No space left on device")
            super().fsync(fd)

    def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
        performed.append(1)
        return {"said": "ok"}

    monkeypatch.setattr(journals, "os", Full())
    with pytest.raises(Suspended, match="make room"):
        asyncio.run(_recorded(tmp_path, _pay(run)))
    assert performed == [1] and not (tmp_path / "run").exists()


def test_nothing_is_written_after_an_entry_that_could_not_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another call of the group is over after the disk failed, and has room again: its entry would follow from none."""

    class Full(Disk):
        def write(self, fd: int, data: bytes) -> int:
            self._met("write")
            if self.calls.count("write") == 6:
                os.write(fd, data[:20])
                raise OSError(28, "No space left on device")
            return os.write(fd, data)

    case = _case(tmp_path)
    disk = Full()
    monkeypatch.setattr(case, "_living", lambda act, _disk: act())
    monkeypatch.setattr(journals, "os", disk)
    with pytest.raises(Suspended, match="make room"):
        case.begin_in_a_loop()
    assert disk.calls.count("write") == 6
    monkeypatch.undo()
    journaled = read_journal(case.journal.read_bytes(), "journal")
    assert journaled is not None and journaled.torn == 20
    _settle(case)
    assert set(case.world.done.values()) == {1}
