"""The loop with a driver: what a user imports."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from ..fail.errors import (
    Cancelled,
    DeadlineExceeded,
    InputError,
    PolicyError,
    ToolError,
)
from ..light_dataclasses import replace
from .core.branches import MAX_CALLS
from .core.clock import Clock, SystemClock, VirtualClock
from .core.effects import Effect, Event, Outcome, RunEnded
from .core.known_secrets import from_environment, registered
from .core.lines import LedgerLine, RunLine
from .core.redaction import Redactor
from .core.run_ids import new_run_id
from .core.secret_kinds import ENV_KIND
from .driver.driver import drive
from .driver.interrupts import Interrupts, exit_for
from .driver.listeners import ListenerHub
from .driver.live_executor import LiveExecutor
from .driver.ports import Approve, Executor, Inject, Listener, Stop
from .driver.script_end import ScriptEnd
from .journal.ledger import Ledger, Totals, end_line
from .journal.ledger_file import ledger_file
from .journal.recorded_clock import RecordedClock
from .loop.loop import run_loop
from .loop.retry import Schedule
from .loop.state import MAX_PARALLEL, RunSpec
from .models.named import NamedModel, open_named
from .models.request_parts import first_digests
from .models.types import Model, ToolSpec
from .opening import Opening, check_question, check_template, opening_of
from .output_types import OUTPUT_RETRIES, output_of
from .policy.built_in import built_in_policy
from .policy.gate import Gate
from .policy.policy import Policy
from .run_config import RunConfig, RunResult, StepLines
from .run_inputs import inputs_of
from .run_line import check_run_line, run_line_of
from .tools.contract import SHIPPED, Tool
from .tools.loader import collect
from .workspace.mounts import Host, Mount, mounts_of
from .workspace.workspace import Workspace, check_hosts

# fit for a folder, a file, a header and a person
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


class Agent:
    """A model, tools and a policy. Holds no state between runs.

    Args:
        llm: A live model by its name, `PROVIDER:MODEL`, or any `Callable[[LLMInput], LLMOutput]`. Of a named model
            the SDK and the key are needed when a run begins.
        tools: `Tool`s, tool modules, or names of the shipped tools.
        policy: The rules that each call is decided by. Without one they are those of the built-in policy, which
            `tachograph policy show --built-in` prints: the tools must be `pure` or `read`, and the mounts are read
            only.
        instructions: What the model is told before everything else, as its system message. `{name}` in it stands for
            a value that a run is given in `variables`.
        mounts: The folders that the policy's mounts stand for. A `write` mount without one is a fresh private
            folder.
        hosts: Folders that answer in place of a host, by the host's name.
        output_type: A JSON Schema, dataclass, TypedDict or pydantic model that the final answer must fit.
        output_retries: How often the model is asked again for an answer that does not fit.
        known_tools: Tools that this agent does not have and that its policy may name, beside the shipped ones.
        max_parallel: How many calls of one reply may be performed together, where their tools allow it; 1 for none.

    Raises:
        InputError: Policy, tools, mounts and hosts do not fit together.

    Example:
        >>> from tachograph import Agent, Policy, Stub
        >>> agent = Agent(Stub([{"answer": "At the depot."}]), ["search"], Policy.shipped())
        >>> result = agent.run("Where may a driver sleep?")
        >>> result.ok, result.answer, len(result.steps)
        (True, 'At the depot.', 1)
    """

    def __init__(
        self,
        llm: Model | str,
        tools: Iterable[Tool | ModuleType | str] = (),
        policy: Policy | None = None,
        *,
        instructions: str | None = None,
        mounts: Mapping[str, str | os.PathLike[str] | Mount] | None = None,
        hosts: Mapping[str, str | os.PathLike[str] | Host] | None = None,
        output_type: Any = None,
        output_retries: int = OUTPUT_RETRIES,
        known_tools: Iterable[str] = (),
        max_parallel: int = MAX_PARALLEL,
    ) -> None:
        if not isinstance(llm, str) and not callable(llm):
            raise InputError(
                "llm must be a model", remedy='give "PROVIDER:MODEL" or a Callable[[LLMInput], LLMOutput]'
            )
        if isinstance(tools, str | Tool | ModuleType):
            raise ToolError("tools is a single tool", remedy="give a list of tools")
        if policy is not None and not isinstance(policy, Policy):
            raise PolicyError(
                "policy must be a Policy", remedy="use Policy.load(path) or Policy.from_dict(data)"
            )
        collected = collect(tools)
        if policy is None:
            effects = {name: tool.effect for name, tool in collected.items()}
            policy = built_in_policy(effects, mounts or {})
        if instructions is not None:
            check_template(instructions)
        self.instructions = instructions
        self.llm: Model = NamedModel(llm) if isinstance(llm, str) else llm
        self.policy = policy
        self.gate = Gate(policy, collected)
        policy.check_tools({*self.gate.tools, *SHIPPED, *known_tools})
        self.mounts = mounts_of(policy, mounts or {})
        self.hosts = {
            name: host if isinstance(host, Host) else Host(Path(host), name)
            for name, host in (hosts or {}).items()
        }
        check_hosts(self.hosts)
        if type(max_parallel) is not int or not 1 <= max_parallel <= MAX_CALLS:
            raise InputError(
                "max_parallel is no number of calls", remedy=f"give a whole number from 1 to {MAX_CALLS}"
            )
        self.max_parallel = max_parallel
        self.output = output_of(output_type, output_retries)
        self._specs = tuple(
            ToolSpec(tool.name, tool.description, tool.offered_schema)
            for tool in self.gate.tools.values()
            if tool.name in policy.allowed and tool.name not in policy.denied
        )

    @property
    def identity(self) -> dict[str, Any]:
        """What a record says of the model: execution path, provider, name, a script's digest, and options."""
        name = getattr(self.llm, "__qualname__", type(self.llm).__name__)
        plain = {"execution_path": "live", "provider": "callable", "name": name, "script_digest": None}
        given = getattr(self.llm, "identity", None)
        return {**plain, **given} if isinstance(given, Mapping) else plain

    def run(
        self,
        question: str,
        *,
        variables: Mapping[str, str] | None = None,
        history: Iterable[Mapping[str, Any]] | None = None,
        seed: int = 0,
        run_id: str | None = None,
        listeners: Iterable[Listener] = (),
        approve: Approve | None = None,
        clock: Clock | None = None,
        ledger: str | os.PathLike[str] | None = None,
    ) -> RunResult:
        """Run one question to its ending; writes at most the ledger file.

        `variables` are the values of the names in the agent's instructions, `history` the messages before the
        question.
        `clock` is a virtual clock for a stub and the system clock otherwise. `approve` is asked about
        escalated calls and returns an Answer, a bool, or None for silence. Ctrl-C ends the run as `cancelled`
        with a whole ledger and is raised again then. Raises OutputError where `ledger` exists already or
        cannot be written.
        """
        config = self.configure_run(
            question,
            variables=variables,
            history=history,
            seed=seed,
            run_id=run_id,
            approve=approve,
            clock=clock,
        )
        with Interrupts() as interrupts, ledger_file(ledger) as on_line:
            result = self.execute(config, listeners=listeners, on_line=on_line, interrupts=interrupts)
        if result.mode == "interrupted":
            raise exit_for(result.signum)
        return result

    def configure_run(
        self,
        question: str,
        *,
        variables: Mapping[str, str] | None = None,
        history: Iterable[Mapping[str, Any]] | None = None,
        opening: Opening | None = None,
        seed: int = 0,
        run_id: str | None = None,
        approve: Approve | None = None,
        clock: Clock | None = None,
        task: dict[str, str] | None = None,
        prepare: Callable[[Workspace], None] | None = None,
        inject: Inject | None = None,
    ) -> RunConfig:
        """Return the configuration of one run, with defaults filled in. Raises InputError for invalid values.

        `opening` stands in place of the agent's instructions, variables and history.
        """
        if run_id is not None and not _RUN_ID.fullmatch(run_id if isinstance(run_id, str) else ""):
            raise InputError("run_id is invalid", remedy="give up to 80 letters, digits, '.', '_' and '-'")
        if type(seed) is not int:
            raise InputError("seed must be an int", remedy="give a whole number")
        if approve is not None and not callable(approve):
            raise InputError("approve must be callable", remedy="give a function that gets an AskHuman")
        if clock is None:
            clock = VirtualClock() if self.identity["execution_path"] == "stub" else SystemClock()
        return RunConfig(
            question,
            run_id or new_run_id("run", seed),
            seed,
            clock,
            approve,
            task,
            prepare,
            inject,
            opening=opening or opening_of(self.instructions, variables, history),
        )

    def execute(
        self,
        config: RunConfig,
        *,
        listeners: Iterable[Listener] = (),
        on_line: Callable[[Any, str], object] | None = None,
        keep_steps: bool = True,
        interrupts: Interrupts | None = None,
    ) -> RunResult:
        """Perform a run. Each ledger line goes to `on_line` (the line, its text), then to the listeners.

        A failure of `on_line` ends everything: a run that cannot be written down does not go on.
        `interrupts` is entered by the caller, who can so finish a record before Ctrl-C is raised again.
        """
        interrupts = interrupts or Interrupts()
        if config.executor is None:
            open_named(self.llm)
        redactor = self.redactor(as_recorded=config.as_recorded)
        check_question(config.question)
        config = config.without_secrets(redactor)
        if config.durable_run is not None:
            config.durable_run.number(redactor)
        ledger = Ledger()
        hub = ListenerHub(listeners, interrupts)
        totals = Totals()
        texts: list[str] = []
        documents: dict[str, str] = {}

        def put(line: LedgerLine) -> None:
            text = ledger.append(line)
            if line["type"] == "step":
                totals.add(line)
                if keep_steps:
                    texts.append(text)
            if on_line is not None:
                on_line(line, text)
            hub.on_line(text)

        run_line = self.run_line(config)
        check_run_line(run_line, None if config.as_recorded else redactor)
        if config.durable_run is not None:
            config.durable_run.begin(run_line, self.inputs(config))
        parts = run_line["request_parts"]
        with self._executor(config, redactor, interrupts) as executor:
            put(run_line)
            run = RunSpec(
                config.run_id,
                config.question,
                config.seed,
                self.gate,
                Schedule.of(self.policy.section("retry")),
                self._specs,
                first_digests(parts),
                self.max_parallel,
                config.opening.instructions,
                config.opening.history,
                self.output,
            )

            def on_event(item: Effect | Event, outcome: Outcome | None) -> None:
                for path, sha in outcome.reads if outcome is not None else ():
                    documents.setdefault(path, sha)
                hub.on_event(item, outcome)

            ended: RunEnded = drive(
                run_loop(run),
                executor,
                config.clock,
                put,
                on_event,
                on_outcome=None if config.durable_run is None else config.durable_run.on_outcome,
                stop=_stop(config),
                settle=redactor.settle,
            )
        put(end_line(run_line, totals, ended, ledger.lines + 1, config.clock.stamp()))
        steps = StepLines(texts)
        mode = None if ended.mode is None else str(ended.mode)
        read = {path: documents[path] for path in documents if path in totals.documents}
        called = [tool for tool in self.gate.tools.values() if tool.name in totals.called]
        return RunResult(
            str(ended.reason),
            ended.answer,
            steps,
            config.run_id,
            mode,
            interrupts.signum,
            tuple(inputs_of(self.policy, config.task, called, read, config.sources)),
            self.output,
        )

    def inputs(self, config: RunConfig) -> list[dict[str, Any]]:
        """Return what a run rests on before it begins, with digests: policy files, task, modules of all tools."""
        return inputs_of(self.policy, config.task, self.gate.tools.values(), {}, config.sources)

    @contextlib.contextmanager
    def _executor(self, config: RunConfig, redactor: Redactor, interrupts: Interrupts) -> Iterator[Executor]:
        """Open the executor that performs the effects of a run."""
        if config.executor is not None:
            yield config.executor
            return
        durable_run = config.durable_run
        private = None if durable_run is None else durable_run.private
        guarded = self.policy.sources
        with Workspace(
            self.mounts, self.hosts, private=private, offline=config.offline, guarded=guarded
        ) as workspace:
            if config.prepare is not None and (durable_run is None or not durable_run.is_prepared):
                config.prepare(workspace)
            if durable_run is not None:
                durable_run.prepared()
            live: Executor = LiveExecutor(
                self.llm,
                self.gate,
                workspace,
                config.clock,
                redactor,
                config.approve,
                config.inject,
                interrupts,
                config.answers,
            )
            if durable_run is not None:
                live = durable_run.around(live, self.gate, workspace, interrupts)
            live = live if config.around is None else config.around(live)
            scripted = self.identity["execution_path"] == "stub"
            yield ScriptEnd(live, self.gate.tools, self.mounts) if scripted else live

    def redactor(self, *, as_recorded: bool = False) -> Redactor:
        """Return a new redactor, which takes secrets out of everything that enters one run.

        Raises:
            InputError: A value that the policy's `redact.env` names is too short, unless the run is `as_recorded`.
        """
        return self.policy.redactor([pair for _, pair in self._live_secrets(as_recorded)])

    def _live_secrets(self, as_recorded: bool) -> list[tuple[str, tuple[str, str]]]:
        """Return the secrets known by their text, each with the name that a record gives it; a script knows none."""
        if self.identity["execution_path"] == "stub":
            return []
        pairs = dict.fromkeys((*registered(), *getattr(self.llm, "secrets", ())))
        values = from_environment(self.policy.redact_env, skips_short=as_recorded)
        return [
            *((f"env:{name}", (ENV_KIND, value)) for name, value in values.items()),
            *((f"model:{kind}", (kind, value)) for kind, value in pairs),
        ]

    def run_line(self, config: RunConfig) -> RunLine:
        """Return the ledger's first line, which decides how the run goes; `config` holds no secrets."""
        if config.redacted is None:
            names = {name for name, _ in self._live_secrets(config.as_recorded)}
            config = replace(config, redacted=tuple(sorted(names)))
        parts = (self.gate, self.identity, self._specs, self.mounts, self.hosts)
        return run_line_of(*parts, config, self.output, self.max_parallel)


def _stop(config: RunConfig) -> Stop | None:
    """Return the check that ends a run between two effects, by its deadline or by code; None without either."""
    cancel, seconds = config.cancel, config.deadline_s
    answered = isinstance(config.clock, RecordedClock) and not config.clock.continues
    if answered or (cancel is None and seconds is None):
        return None  # in a record stands what stopped the run

    def stop(stamp: int) -> Cancelled | None:
        if cancel is not None and cancel.is_set():
            return Cancelled("by code")
        over = seconds is not None and stamp >= seconds * 1e9
        return DeadlineExceeded("the run's time is over") if over else None

    return stop
