"""Kept runs in this very process, with deaths that are only played: fast enough to be had by the hundred.

A death is `ForceQuit`, which nothing of ours and no tool's failure stops; the disk keeps what the model of it says.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from tachograph import Agent, Policy
from tachograph.evidence.files.manifest import MANIFEST, read, stable
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.recording.recorder import recorded_run
from tachograph.evidence.recording.resume import Resumption
from tachograph.evidence.recording.sync_async import InLoop
from tachograph.light_dataclasses import replace
from tachograph.runtime.core.clock import VirtualClock
from tachograph.runtime.driver.stopping.interrupts import ForceQuit
from tachograph.runtime.journal import journal as journals
from tachograph.runtime.models.scripted import Stub
from tachograph.runtime.models.types import LLMOutput, ToolCall
from tachograph.runtime.setup.run_config import RunConfig, RunResult
from tachograph.runtime.tools.contract import Tool
from tests.group_orders import switch
from tests.support import INPUT, OUTPUT, policy_data

KINDS = {"look": ("pure", True), "put": ("write", True), "pay": ("write", False), "book": ("write", False)}


def in_memory() -> str | None:
    """A folder for temporary ones where an fsync costs nothing, None where there is none."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None


def stable_files(folder: Path) -> dict[str, Any]:
    """The files of a run, the manifest without its volatile keys."""
    found: dict[str, Any] = {path.name: path.read_bytes() for path in folder.iterdir()}
    return {**found, MANIFEST: stable(read(found[MANIFEST]))}


class Disk:
    """Stands where `journal.py` has the module `os`: counts what it does, and plays its death.

    `dies_at` is the number of the call (write or fsync) before which the process dies. `synced` is the size of
    the journal that an fsync has returned for.
    """

    def __init__(self, dies_at: int | None = None) -> None:
        self.calls: list[str] = []
        self.dies_at = dies_at
        self.synced = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _met(self, name: str) -> None:
        self.calls.append(name)
        if self.dies_at is not None and len(self.calls) >= self.dies_at:  # and nothing after it
            raise ForceQuit

    def write(self, fd: int, data: bytes) -> int:
        self._met("write")
        return os.write(fd, data)

    def fsync(self, fd: int) -> None:
        self._met("fsync")
        os.fsync(fd)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            self.synced = os.fstat(fd).st_size

    def __enter__(self) -> Disk:
        journals.os = self  # type: ignore[attr-defined]
        return self

    def __exit__(self, _kind: object, _error: object, _trace: TracebackType | None) -> None:
        journals.os = os  # type: ignore[attr-defined]


class World:
    """Tools of four kinds over a world that outlives the process: what was done stands in `done`.

    `dies_in` names an effect (`key/attempt`) and when the process dies in it: before it is done, or after.
    """

    def __init__(self, *, parallel: bool | None = None) -> None:
        self.parallel = parallel
        self.done: Counter[str] = Counter()
        self.performed: Counter[str] = Counter()
        self.dies_in: tuple[str, str] | None = None
        self.probed = 0
        self.probe_says: Callable[[str], Any] = lambda key: "done" if self.done[key] else "not_done"

    def tool(self, name: str) -> Tool:
        effect, idempotent = KINDS[name]

        def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
            key = io.idempotency_key
            self._die(key, "before")
            switch()
            self.performed[key] += 1
            if name in ("pay", "book"):
                self.done[key] += 1
            if name == "put":
                io.write("box/file", f"{args['n']}")
            switch()
            self._die(key, "after")
            return {"said": f"{name} {args['n']}"}

        def probe(args: dict[str, Any], io: Any) -> Any:
            self.probed += 1
            return self.probe_says(io.idempotency_key)

        return Tool(
            name=name,
            description=name,
            input_schema=INPUT,
            output_schema=OUTPUT,
            effect=effect,
            idempotent=idempotent,
            run=run,
            transient=(ConnectionError,),
            probe=probe if name == "book" else None,
            parallel=self.parallel,
        )

    def _die(self, key: str, when: str) -> None:
        if self.dies_in == (key, when):
            self.dies_in = None
            raise ForceQuit


class Case:
    """One run in a folder: begun, died, gone on with. `steps` are lists of tool names, the last step answers."""

    def __init__(
        self, place: Path, steps: Iterable[Iterable[str]], *, parallel: bool | None = None, **sections: Any
    ) -> None:
        self.out = place / "run"
        self.partial = place / "run.partial"
        self.journal = self.partial / "journal.jsonl"
        self.world = World(parallel=parallel)
        self.cancelled_at_ms: int | None = None
        self.steps = [list(step) for step in steps]
        self.policy = policy_data(
            tool_registry={"allowed": [*KINDS]},
            loop_budget={"max_iterations": 30, "max_tool_calls": 100},
            **{"on_deny": "inform", **sections},
        )

    def agent(self, turns: list[dict[str, Any]] | None = None) -> Agent:
        tools = [self.world.tool(name) for name in KINDS]
        return Agent(Stub(turns if turns is not None else self.turns()), tools, Policy.from_dict(self.policy))

    def turns(self) -> list[dict[str, Any]]:
        """The script. A name with a `!` is a call that the policy denies, one with `:3` has that number."""
        turns: list[dict[str, Any]] = []
        for n, step in enumerate(self.steps):
            calls = [
                {
                    "tool": name.rstrip("!").partition(":")[0],
                    "arguments": {"target": "books/x"}
                    if "!" in name
                    else {"n": int(name.partition(":")[2] or n % 9)},
                }
                for name in step
            ]
            turns.append({"say": f"{n}", "calls": calls})
        return [*turns, {"answer": "done"}]

    def config(self, agent: Agent, **more: Any) -> RunConfig:
        config = agent.configure_run("What now?", run_id="kept", clock=VirtualClock(), **more)
        return replace(config, cancelled_at_ms=self.cancelled_at_ms)

    def begin(self, disk: Disk | None = None, durability: str = "effect") -> RunResult | None:
        """Run it; None where it died."""
        agent = self.agent()
        return self._living(
            lambda: record_run(agent, self.config(agent), self.out, durability=durability), disk
        )

    def begin_in_a_loop(self, disk: Disk | None = None) -> RunResult | None:
        """Run it in an event loop; None where it died."""
        agent = self.agent()

        def act() -> RunResult:
            return asyncio.run(
                recorded_run(InLoop(), agent, self.config(agent), self.out, durability="effect")
            )

        return self._living(act, disk)

    def go_on(self, said: dict[str, str] | None = None, disk: Disk | None = None) -> RunResult | None:
        """Resume it; None where it died again."""
        agent = self.agent()

        def again(_run: dict[str, Any]) -> tuple[Agent, RunConfig]:
            return agent, self.config(agent)

        return self._living(lambda: Resumption(self.out, said or {}, False).go(again), disk)

    def _living(self, act: Callable[[], RunResult], disk: Disk | None) -> RunResult | None:
        with disk or Disk():
            try:
                return act()
            except (KeyboardInterrupt, ForceQuit):  # what is made of ForceQuit where it was a signal
                return None


def asking(calls: Iterable[str]) -> LLMOutput:
    """A reply with calls of these tools."""
    return LLMOutput(tool_calls=[ToolCall(name, {"n": 1}) for name in calls])
