"""An agent in code: a model, tools, a policy, and what its tools may touch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from .clock import random_hex, wall_ns
from .io.workspace import Host, Mount, Workspace
from .log.events import Event, ModelName, RunEnded, RunStarted
from .log.steps import steps_of
from .loop.state import RunSpec
from .models.types import Model
from .policy.consistency import check_conditions, check_mounts
from .policy.gate import Gate
from .policy.policy import Policy
from .run import head_of, make_run
from .tools.contract import Tool
from .world.real import Real


class RunResult(Struct, frozen=True):
    """What a run came to.

    Attributes:
        run_id: Its name.
        ending: Why it ended, see `fail/catalog.py`.
        answer: The final answer, None where the run ended without one.
        mode: The failure mode; "" where nothing failed.
        steps: How many steps it took.
        events: Its log.
    """

    run_id: str
    ending: str
    answer: str | None
    mode: str
    steps: int
    events: list[Event]


class Agent:
    """An agent. Its runs are independent of each other. Nobody is asked: a call that needs a person is refused.

    Args:
        llm: The model: any callable of an LLMInput that returns an LLMOutput, or a coroutine function.
        tools: The tools.
        policy: The policy; there is no run without one.
        instructions: The system message.
        mounts: Folders for the mounts of the policy. A mount for writing without one is private to each run.
        hosts: Folders that answer for hosts.

    Raises:
        PolicyError: A mount is not declared by the policy.
    """

    def __init__(
        self,
        llm: Model,
        tools: Iterable[Tool],
        policy: Policy,
        *,
        instructions: str = "",
        mounts: Mapping[str, str | Path] | None = None,
        hosts: Mapping[str, str | Path] | None = None,
    ) -> None:
        self.llm, self.tools, self.policy, self.instructions = llm, list(tools), policy, instructions
        self._mounts = {name: Path(path) for name, path in (mounts or {}).items()}
        self._hosts = {name: Host(Path(path)) for name, path in (hosts or {}).items()}
        check_mounts(policy, self._mounts)
        check_conditions(policy, self.tools)

    @property
    def model(self) -> ModelName:
        """The name of its model: the callable's attribute `name`, or how the callable is called."""
        name = getattr(self.llm, "name", None)
        return (
            name
            if isinstance(name, ModelName)
            else ModelName("callable", getattr(self.llm, "__name__", "model"))
        )

    def spec(self, question: str, *, run_id: str, seed: int = 0) -> RunSpec:
        """Return what a run on a question is made with."""
        offers = tuple(tool.offer() for tool in self.tools)
        return RunSpec(run_id, question, Gate(self.policy, self.tools), offers, self.instructions, seed)

    def workspace(self) -> Workspace:
        """Return what the tools of one run may touch."""
        modes = self.policy.mounts.modes
        mounts = {
            name: Mount(mode, self._mounts.get(name))
            for name, mode in modes.items()
            if name in self._mounts or mode == "write"
        }
        return Workspace(mounts, self._hosts, network=True)

    def run(self, question: str, *, seed: int = 0) -> RunResult:
        """Take a question from start to ending, and return what the run came to.

        Where an event loop is running, `arun` is to be awaited.
        """
        return asyncio.run(self.arun(question, seed=seed))

    async def arun(
        self,
        question: str,
        *,
        seed: int = 0,
        listen: Callable[[Event], None] | None = None,
        started: Callable[[Real], None] | None = None,
    ) -> RunResult:
        """Take a question from start to ending in the running event loop.

        A cancellation by the caller stops the run and is raised again once it has ended.

        Args:
            question: The question.
            seed: Of the jitter of waits.
            listen: Is told of each line of the log.
            started: Is given the world of the run, whose `stop` may be called from any thread.
        """
        spec = self.spec(question, run_id=f"run-{random_hex()}", seed=seed)
        head = head_of(spec, self.model, clock="system", began=wall_ns())
        with self.workspace() as workspace:
            world = Real(self.llm, workspace)
            if started is not None:
                started(world)
            try:
                ended, journal = await make_run(spec, head, world, listen=listen)
            finally:
                await world.close()
        world.raise_if_cancelled()
        return result_of(head, ended, journal.events)


def result_of(head: RunStarted, ended: RunEnded, events: list[Event]) -> RunResult:
    """Return what a log came to."""
    return RunResult(head.run_id, ended.ending, ended.answer, ended.mode, len(steps_of(events)), events)
