"""The loop with a driver: what a user imports."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..fail.errors import (
    InputError,
    PolicyError,
    ToolError,
)
from ..light_dataclasses import replace
from .core.branches import MAX_CALLS
from .core.clock import Clock, SystemClock, VirtualClock
from .core.known_secrets import from_environment, registered
from .core.lines import RunLine
from .core.redaction import Redactor
from .core.run_ids import new_run_id
from .core.secret_kinds import ENV_KIND
from .driver.events.event_stream import stream_of
from .driver.events.listeners import listener_list
from .driver.foreign_calls import in_thread
from .driver.ports import Approve, Inject, Listener
from .driver.stopping.interrupts import Interrupts, exit_for
from .driver.stopping.scopes import Scope
from .events import AgentEvent
from .execution import Execution, OnLine
from .formats.document_digest import RunInput
from .journal.ledger_file import ledger_file
from .loop.state import MAX_PARALLEL
from .models.named import NamedModel, needs_opening, open_named
from .models.types import Model, ToolSpec
from .policy.built_in import built_in_policy
from .policy.gate import Gate
from .policy.per_tool.principals import check_name
from .policy.per_tool.tool_rule_checks import check_rules_of
from .policy.policy import Policy
from .setup.opening import Opening, check_template, opening_of
from .setup.output_types import OUTPUT_RETRIES, output_of
from .setup.run_config import RunConfig, RunResult
from .setup.run_inputs import inputs_of
from .setup.run_line import run_line_of
from .tools.contract import SHIPPED, Tool
from .tools.hooks import Hooks, collect_hooks
from .tools.loader import collect
from .workspace.mounts import Host, Mount, mounts_of
from .workspace.workspace import Workspace, check_hosts

if TYPE_CHECKING:
    from asyncio import CancelledError

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
        hooks: Functions that are asked at events of each run, in this order; see `Hooks`.

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
        hooks: Hooks | Iterable[Hooks] = (),
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
        self.gate = Gate(policy, collected).prepared()
        policy.check_tools({*self.gate.tools, *SHIPPED, *known_tools})
        check_rules_of(policy, self.gate.tools.values())
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
        self.hooks = collect_hooks(hooks)
        self.specs = tuple(
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
        principal: str | None = None,
        seed: int = 0,
        run_id: str | None = None,
        listeners: Iterable[Listener] = (),
        approve: Approve | None = None,
        clock: Clock | None = None,
        ledger: str | os.PathLike[str] | None = None,
        cancel: Scope | None = None,
    ) -> RunResult:
        """Run one question to its ending; writes at most the ledger file.

        `variables` are the values of the names in the agent's instructions, `history` the messages before the
        question. `principal` is on whose behalf the run acts, as the policy's `principals` name it.
        `clock` is a virtual clock for a stub and the system clock otherwise. `approve` is asked about
        escalated calls and returns an Answer, a bool, or None for silence. Ctrl-C ends the run as `cancelled`
        with a whole ledger and is raised again then. Raises OutputError where `ledger` exists already or
        cannot be written. `cancel` ends the run, and the process of an isolated tool.
        """
        config = self.configure_run(
            question,
            variables=variables,
            history=history,
            principal=principal,
            seed=seed,
            run_id=run_id,
            approve=approve,
            clock=clock,
        )
        config = replace(config, cancel=cancel)
        with Interrupts() as interrupts, ledger_file(ledger) as on_line:
            result = self.execute(config, listeners=listeners, on_line=on_line, interrupts=interrupts)
        if result.mode == "interrupted":
            raise exit_for(result.signum)
        return result

    async def arun(
        self,
        question: str,
        *,
        variables: Mapping[str, str] | None = None,
        history: Iterable[Mapping[str, Any]] | None = None,
        principal: str | None = None,
        seed: int = 0,
        run_id: str | None = None,
        listeners: Iterable[Listener] = (),
        approve: Approve | None = None,
        clock: Clock | None = None,
        ledger: str | os.PathLike[str] | None = None,
        cancel: Scope | None = None,
    ) -> RunResult:
        """Run one question to its ending in an event loop, which is not blocked meanwhile; see `run`.

        Models, tools and `approve` may be coroutine functions; those that are not are called in threads. A task that
        is cancelled ends the run as `cancelled` with a whole ledger, and is cancelled then. `cancel` ends the run too.
        """
        config = self.configure_run(
            question,
            variables=variables,
            history=history,
            principal=principal,
            seed=seed,
            run_id=run_id,
            approve=approve,
            clock=clock,
        )
        with ledger_file(ledger) as on_line:
            result = await self.execute_async(
                replace(config, cancel=cancel), listeners=listeners, on_line=on_line
            )
        if result.mode == "interrupted":
            raise exit_for(result.signum)
        return result

    def stream(self, question: str, **given: Any) -> AsyncGenerator[AgentEvent, None]:
        """Run one question and yield what happens, when it happens; takes what `arun` takes.

        The events are those that `events_of` finds in the ledger, and the pieces of text of a model that gives them.
        An iterator that is closed before the end cancels the run, and returns once the run has ended.
        """
        listeners = listener_list(given.pop("listeners", ()))
        return stream_of(lambda listener: self.arun(question, listeners=(*listeners, listener), **given))

    def configure_run(
        self,
        question: str,
        *,
        variables: Mapping[str, str] | None = None,
        history: Iterable[Mapping[str, Any]] | None = None,
        opening: Opening | None = None,
        principal: str | None = None,
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
        check_name(principal)
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
            principal=principal,
        )

    def execute(
        self,
        config: RunConfig,
        *,
        listeners: Iterable[Listener] = (),
        on_line: OnLine | None = None,
        keep_steps: bool = True,
        interrupts: Interrupts | None = None,
    ) -> RunResult:
        """Perform a run. Each ledger line goes to `on_line` (the line, its text), then to the listeners.

        A failure of `on_line` ends everything: a run that cannot be written down does not go on.
        `interrupts` is entered by the caller, who can so finish a record before Ctrl-C is raised again.
        """
        if config.executor is None:
            open_named(self.llm)
        return Execution(self, config, listeners, on_line, keep_steps, interrupts or Interrupts()).perform()

    async def execute_async(
        self,
        config: RunConfig,
        *,
        listeners: Iterable[Listener] = (),
        on_line: OnLine | None = None,
        keep_steps: bool = True,
    ) -> RunResult:
        """Perform a run in an event loop; see `execute`. Its configuration has no executor.

        Raises the CancelledError of a task that was cancelled, once the last line of the ledger is written.
        """
        result, cancelled = await self.end_async(config, listeners, on_line, keep_steps=keep_steps)
        if cancelled is not None:
            raise cancelled
        return result

    async def end_async(
        self,
        config: RunConfig,
        listeners: Iterable[Listener],
        on_line: OnLine | None,
        *,
        keep_steps: bool,
        cancelled: CancelledError | None = None,
    ) -> tuple[RunResult, CancelledError | None]:
        """Perform a run in an event loop to its end, also where its task is cancelled; see `execute_async`.

        `cancelled` is what cancelled the task before. Returns how the run ended, and what cancelled the task.
        """
        if needs_opening(self.llm):
            await in_thread(lambda: open_named(self.llm))
        execution = Execution(self, config, listeners, on_line, keep_steps, Interrupts())
        return await execution.perform_async(cancelled)

    def inputs(self, config: RunConfig) -> list[RunInput]:
        """Return what a run rests on before it begins, with digests: policy files, task, modules of all tools."""
        return inputs_of(self.policy, config.task, self.gate.tools.values(), {}, config.sources, self.hooks)

    def redactor(self, *, as_recorded: bool = False, more: Sequence[tuple[str, str]] = ()) -> Redactor:
        """Return a new redactor, which takes secrets out of everything that enters one run.

        Args:
            as_recorded: Whether the run comes from a record.
            more: Kind and text of further secrets.

        Raises:
            InputError: A value that the policy's `redact.env` names is too short, unless the run is `as_recorded`.
        """
        return self.policy.redactor([*(pair for _, pair in self._live_secrets(as_recorded)), *more])

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
        parts = (self.gate, self.identity, self.specs, self.mounts, self.hosts)
        return run_line_of(*parts, config, self.output, self.max_parallel, self.hooks)
