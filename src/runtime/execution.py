"""Perform one run of an agent: the ledger, the listeners and the world around the loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..fail.errors import Cancelled, DeadlineExceeded
from .core.clock import SystemClock, VirtualClock
from .core.effects import Effect, Event, Outcome, RunEnded
from .core.lines import LedgerLine, RunLine
from .core.redaction import Redactor
from .driver.disk_work import aside
from .driver.driver import drive, drive_async
from .driver.events.listeners import ListenerHub
from .driver.foreign_calls import AsyncCalls, DirectCalls
from .driver.live_executor import LiveExecutor
from .driver.ports import Executor, Listener, OnLocalTimes, OnOutcome, Stop
from .driver.stepper import Stepper
from .driver.stopping.interrupts import Interrupts
from .driver.stopping.scopes import Scope
from .driver.stopping.script_end import ScriptEnd
from .driver.stopping.scripted_stop import ScriptedStop
from .formats.document_digest import RunInput
from .journal.ledger import Ledger, Totals, end_line
from .journal.recorded_clock import RecordedClock
from .loop.loop import run_loop
from .loop.retry import Schedule
from .loop.state import HookSpec, RunGenerator, RunSpec
from .models.request_parts import first_digests
from .models.types import Model, ToolSpec
from .policy.gate import Gate
from .policy.policy import Policy
from .policy.signers import check_library
from .schema.output_type import OutputType
from .setup.opening import check_question
from .setup.run_config import RunConfig, RunResult, StepLines
from .setup.run_inputs import inputs_of
from .setup.run_line import check_run_line
from .tools.hooks import Hooks
from .workspace.credentials import open_credentials
from .workspace.guarded import guarded_of
from .workspace.mounts import Host, Mount
from .workspace.workspace import Workspace

if TYPE_CHECKING:
    from asyncio import CancelledError

OnLine = Callable[[Any, str], object]


class Runnable(Protocol):
    """What is performed: an Agent."""

    llm: Model
    policy: Policy
    gate: Gate
    mounts: dict[str, Mount]
    hosts: dict[str, Host]
    specs: tuple[ToolSpec, ...]
    max_parallel: int
    output: OutputType | None
    hooks: tuple[Hooks, ...]

    @property
    def identity(self) -> dict[str, Any]:
        """What a record says of the model."""

    def redactor(self, *, as_recorded: bool = False, more: Sequence[tuple[str, str]] = ()) -> Redactor:
        """Return a new redactor."""

    def run_line(self, config: RunConfig) -> RunLine:
        """Return the ledger's first line."""

    def inputs(self, config: RunConfig) -> list[RunInput]:
        """Return what a run rests on before it begins."""


class Execution:
    """One run of an agent, from its first ledger line to its last.

    Args:
        agent: The agent.
        config: The run's configuration.
        listeners: Hear of each line, decision and effect.
        on_line: Gets each line and its text, before the listeners. Its failure ends everything.
        keep_steps: Whether the result has the steps.
        interrupts: Signals; entered by the caller.
    """

    def __init__(
        self,
        agent: Runnable,
        config: RunConfig,
        listeners: Iterable[Listener],
        on_line: OnLine | None,
        keep_steps: bool,
        interrupts: Interrupts,
    ) -> None:
        self._agent = agent
        self._config = config
        self._on_line = on_line
        self._keep_steps = keep_steps
        self._interrupts = interrupts
        self._hub = ListenerHub(listeners, interrupts)
        self._ledger = Ledger()
        self._totals = Totals()
        self._texts: list[str] = []
        self._documents: dict[str, str] = {}
        self._scope = scope_of(config)
        performs = config.executor is None and config.answers is None and not config.offline
        if performs and config.is_asked_outside and agent.policy.signers:
            check_library()
        self._credentials = open_credentials(
            agent.policy,
            agent.hosts,
            is_needed=performs and (config.durable_run is not None or not config.as_recorded),
        )
        self._redactor = agent.redactor(as_recorded=config.as_recorded, more=self._credentials.secrets)

    def perform(self) -> RunResult:
        """Perform the run; it waits for everything."""
        with self._begun(is_async=False) as (run_line, loop, executor):
            self._put(run_line)
            ended = drive(
                loop,
                executor,
                self._config.clock,
                self._put,
                self._on_event,
                on_outcome=self._on_outcome,
                on_local_times=self._on_local_times,
                stop=stop_of(self._config),
                settle=self._redactor.settle,
                on_notice=self._hub.on_notice if self._hub.hears_events else None,
            )
        return self._ended(run_line, ended)

    async def perform_async(
        self, cancelled: CancelledError | None = None
    ) -> tuple[RunResult, CancelledError | None]:
        """Perform the run in an event loop, which it does not block.

        A task that is cancelled, or was `cancelled` before, ends it. Returns how it ended, and what cancelled the task.
        """
        durable_run = self._config.durable_run
        with contextlib.ExitStack() as opened:

            def begin() -> tuple[RunLine, RunGenerator, Any]:
                return opened.enter_context(self._begun(is_async=True))

            if durable_run is None:
                run_line, loop, executor = begin()
            else:  # what was prepared is on the disk before the run begins
                (run_line, loop, executor), left = await aside(begin)
                cancelled = cancelled or left
            self._put(run_line)
            stepper = Stepper(
                loop,
                self._config.clock,
                self._put,
                self._on_event,
                on_outcome=self._on_outcome,
                on_local_times=self._on_local_times,
                stop=stop_of(self._config),
                settle=self._redactor.settle,
                on_notice=self._hub.on_notice if self._hub.hears_events else None,
            )
            kept = None if durable_run is None else durable_run.kept
            ended, cancelled = await drive_async(stepper, executor, kept, cancelled)
        return self._ended(run_line, ended), cancelled

    @property
    def _on_outcome(self) -> OnOutcome | None:
        return None if self._config.durable_run is None else self._config.durable_run.on_outcome

    @property
    def _on_local_times(self) -> OnLocalTimes | None:
        return None if self._config.durable_run is None else self._config.durable_run.on_local_times

    def _put(self, line: LedgerLine) -> None:
        """Write a line down, then tell of it."""
        text = self._ledger.append(line)
        if line["type"] == "step":
            self._totals.add(line)
            if self._keep_steps:
                self._texts.append(text)
        if self._on_line is not None:
            self._on_line(line, text)
        self._hub.on_line(text)

    def _on_event(self, item: Effect | Event, outcome: Outcome | None) -> None:
        for path, sha in outcome.reads if outcome is not None else ():
            self._documents.setdefault(path, sha)
        self._hub.on_event(item, outcome)

    @contextlib.contextmanager
    def _begun(self, *, is_async: bool) -> Iterator[tuple[RunLine, RunGenerator, Any]]:
        """Make the run line, and open the loop and the executor of its effects."""
        check_question(self._config.question)
        self._config = self._config.without_secrets(self._redactor)
        agent, config = self._agent, self._config
        if config.durable_run is not None:
            config.durable_run.number(self._redactor)
        run_line = agent.run_line(config)
        check_run_line(run_line, None if config.as_recorded else self._redactor)
        if config.durable_run is not None:
            config.durable_run.begin(run_line, agent.inputs(config))
        try:
            with self._executor(is_async=is_async) as executor:
                run = RunSpec(
                    config.run_id,
                    config.question,
                    config.seed,
                    agent.gate,
                    Schedule.of(agent.policy.section("retry")),
                    agent.specs,
                    first_digests(run_line["request_parts"]),
                    agent.max_parallel,
                    config.opening.instructions,
                    config.opening.history,
                    agent.output,
                    HookSpec.of(run_line),
                    run_line.get("nonce"),
                    config.principal,
                )
                yield run_line, run_loop(run), executor
        finally:
            if self._scope is not None:
                self._scope.close()

    @contextlib.contextmanager
    def _executor(self, *, is_async: bool) -> Iterator[Any]:
        """Open what performs the effects of the run: an Executor, or an AsyncExecutor."""
        agent, config, interrupts = self._agent, self._config, self._interrupts
        if config.executor is not None:
            yield config.executor
            return
        durable_run = config.durable_run
        private = None if durable_run is None else durable_run.private
        guarded = guarded_of(agent.policy.sources, self._code(), config.approve, agent.mounts.values())
        with Workspace(
            agent.mounts,
            agent.hosts,
            private=private,
            offline=config.offline,
            guarded=guarded,
            credentials=self._credentials,
            request_rules=agent.gate.request_rules,
        ) as workspace:
            if config.prepare is not None and (durable_run is None or not durable_run.is_prepared):
                config.prepare(workspace)
            if durable_run is not None:
                durable_run.prepared()
            live: Executor = LiveExecutor(
                agent.llm,
                agent.gate,
                workspace,
                config.clock,
                self._redactor,
                config.approve,
                config.inject,
                interrupts,
                config.answers,
                AsyncCalls() if is_async else DirectCalls(),
                self._scope,
                agent.hooks,
                self._hub.on_text if self._hub.hears_events else None,
            )
            if durable_run is not None:
                live = durable_run.around(live, agent.gate, workspace, interrupts)
            live = live if config.around is None else config.around(live)
            scripted = agent.identity["execution_path"] == "stub"
            live = ScriptEnd(live, agent.gate.tools, agent.mounts) if scripted else live
            at_ms, clock = config.cancelled_at_ms, config.clock
            if at_ms is not None and isinstance(clock, VirtualClock | RecordedClock):
                live = ScriptedStop(live, clock, at_ms)
            yield live

    def _code(self) -> dict[str, object]:
        """Return the functions that are called as tools and hooks, by what messages call them."""
        hooks = {
            f"the code of hooks {hook.name!r}": getattr(hook, event)
            for hook in self._agent.hooks
            for event in hook.events[:1]
        }
        return {
            f"the code of tool {name!r}": tool.run for name, tool in self._agent.gate.tools.items()
        } | hooks

    def _ended(self, run_line: RunLine, ended: RunEnded) -> RunResult:
        """Write the last line and return how the run ended."""
        agent, config, totals = self._agent, self._config, self._totals
        self._put(end_line(run_line, totals, ended, self._ledger.lines + 1, config.clock.stamp()))
        mode = None if ended.mode is None else str(ended.mode)
        read = {path: sha for path, sha in self._documents.items() if path in totals.documents}
        called = [tool for tool in agent.gate.tools.values() if tool.name in totals.called]
        return RunResult(
            str(ended.reason),
            ended.answer,
            StepLines(self._texts),
            config.run_id,
            mode,
            self._interrupts.signum,
            tuple(inputs_of(agent.policy, config.task, called, read, config.sources, agent.hooks)),
            agent.output,
            (*config.opening.history, {"role": "user", "content": config.question}),
        )


def is_answered(config: RunConfig) -> bool:
    """Return whether a record answers the whole run, and says what stopped it."""
    return isinstance(config.clock, RecordedClock) and not config.clock.continues


def stop_of(config: RunConfig) -> Stop | None:
    """Return the check that ends a run between two effects, by its deadline or by code; None without either."""
    cancel, seconds = config.cancel, config.deadline_s
    if is_answered(config) or (cancel is None and seconds is None):
        return None

    def stop(stamp: int) -> Cancelled | None:
        if cancel is not None and cancel.is_set():
            return Cancelled("by code")
        over = seconds is not None and stamp >= seconds * 1e9
        return DeadlineExceeded("the run's time is over") if over else None

    return stop


def scope_of(config: RunConfig) -> Scope | None:
    """Return what ends an effect under way, by the deadline of the run or by code; None without either."""
    seconds = config.deadline_s if isinstance(config.clock, SystemClock) else None
    if is_answered(config) or (config.cancel is None and seconds is None):
        return None
    scope = Scope(config.cancel)
    if seconds is not None:
        scope.limit(seconds - config.clock.stamp() / 1e9)
    return scope
