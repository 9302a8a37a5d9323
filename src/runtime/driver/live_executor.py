"""Perform effects for real: a model, tools over a workspace, a clock, a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...fail.errors import CallCancelled, Cancelled, EffectNotRecorded, InputError, InvalidModelOutput
from ...light_dataclasses import replace
from ..core.branches import BRANCH
from ..core.clock import Clock, time_left
from ..core.effects import (
    AskHook,
    AskHuman,
    AskModel,
    Effect,
    Fault,
    FaultKind,
    Invoke,
    Outcome,
    Reply,
    Wait,
)
from ..core.redacted_pieces import RedactedPieces
from ..core.redaction import MARK, Redactor, placeholder_counts
from ..formats import canonical_json
from ..formats.canonical_json import NotJson
from ..loop.retry import MAX_SERVICE_TEXT, fault_from_error
from ..models.types import Model, read_reply
from ..policy.gate import ALLOW, Decision, Gate
from ..tools.contract import Run, Tool
from ..tools.coroutines import is_async, native_async
from ..workspace.tool_io import HTTP_S, IO
from ..workspace.workspace import Workspace
from .events.text_pieces import OnText, TextPieces
from .foreign_calls import (
    Attempt,
    CallerLeft,
    DirectCalls,
    ForeignCalls,
    Manner,
    log_failure,
    run_now,
    settled,
)
from .ports import Answers, Approve, Inject, Stamps
from .stopping.interrupts import ForceQuit, Interrupts
from .stopping.scopes import CallScope, Scope

if TYPE_CHECKING:
    from ..tools.hooks import Hooks


def _straight(_effect: Effect, _io: IO | None, real: Callable[[], Any]) -> Any:
    return real()


async def _awaited(run: Run, arguments: dict[str, Any], io: IO, timeout_s: float | None) -> Any:
    """Return what a coroutine function returns, when its threads are done with `io`."""
    left = time_left(timeout_s, HTTP_S)
    try:
        return await run(arguments, io)
    finally:
        if io.is_serving:
            import asyncio

            await asyncio.to_thread(io.end, left())


class LiveExecutor:
    """The real thing: a model callable, tools over a workspace, a clock, a person.

    With `answers`, external tools are not called: a record answers for them. `calls` says how foreign code is called:
    here, or beside an event loop. `scope` ends what is under way, where that can be ended.
    """

    def __init__(
        self,
        model: Model,
        gate: Gate,
        workspace: Workspace,
        clock: Clock,
        redact: Redactor,
        approve: Approve | None = None,
        inject: Inject | None = None,
        interrupts: Interrupts | None = None,
        answers: Answers | None = None,
        calls: ForeignCalls | None = None,
        scope: Scope | None = None,
        hooks: Sequence[Hooks] = (),
        on_text: OnText | None = None,
    ) -> None:
        self._calls = calls or DirectCalls()
        self._scope = scope
        self._interrupts = interrupts or Interrupts()
        self._model = native_async(model) if self._calls.is_async else model
        self._gate = gate
        self._tools: Mapping[str, Tool] = gate.tools
        self._workspace = workspace
        self._clock = clock
        self._redact = redact
        self._approve = approve
        self._call = inject or _straight
        self._answers = answers
        self._hooks = hooks
        self._on_text = on_text
        self._call_scopes: dict[int, CallScope] = {}  # of the present step, by the calls' places in the reply
        self._unwritten = False  # whether a recorded answer stands for files that were not written here

    def perform(self, effect: Effect, stamps: Stamps) -> Outcome:
        """Perform an effect; see `Executor`."""
        if BRANCH.get() is not None:
            self._interrupts.stop_if_told()
        try:
            return self._interrupts.around(lambda: run_now(self._perform(effect, stamps)))
        except KeyboardInterrupt:
            raise self._interrupts.interrupted() from None

    async def perform_async(self, effect: Effect, stamps: Stamps) -> Outcome:
        """Perform an effect; see `AsyncExecutor`."""
        try:
            return await self._perform(effect, stamps)
        except KeyboardInterrupt:
            raise self._interrupts.interrupted() from None
        except CallerLeft as left:
            raise left.error from None

    async def _perform(self, effect: Effect, stamps: Stamps) -> Outcome:
        if isinstance(effect, AskModel):
            return await self._ask_model(effect)
        if isinstance(effect, Invoke):
            return await self._invoke(effect, stamps)
        if isinstance(effect, Wait):
            try:
                await self._calls.sleep(self._clock, effect.ms, self._scope_of(effect))
            except CallCancelled:
                return Outcome(cancelled=True)
            return Outcome()
        if isinstance(effect, AskHook):
            return await self._ask_hook(effect)
        return await self._ask_human(effect)

    def _scope_of(self, effect: Invoke | Wait) -> Scope | None:
        """Return the scope of a call, which begins with its first attempt; that of the run for the model."""
        if self._scope is None or effect.index is None:
            return self._scope
        if isinstance(effect, Invoke) and effect.index not in self._call_scopes:
            self._call_scopes[effect.index] = CallScope(self._scope, effect.call.id)
        return self._call_scopes.get(effect.index, self._scope)

    async def _ask_model(self, effect: AskModel) -> Outcome:
        for scope in self._call_scopes.values():
            scope.close()
        self._call_scopes.clear()
        model = self._model
        manner = Manner.HERE if getattr(model, "never_waits", False) is True else self._manner(model)
        attempt = Attempt(self._interrupts, self._scope)
        asked, pieces = effect.input, None
        if self._on_text is not None:
            pieces = TextPieces(effect, RedactedPieces(self._redact), self._on_text, self._calls.loop)
            asked = replace(asked, on_text=pieces)
        try:
            output, failed = await self._calls.call(
                lambda: self._call(effect, None, lambda: self._begun(model, asked)), manner, attempt
            )
            if failed is not None:
                raise failed
            if pieces is not None:
                pieces.end()
        except (InputError, Cancelled, KeyboardInterrupt, ForceQuit, CallerLeft):
            raise  # a script's mistake is its author's, not the model's
        except InvalidModelOutput:
            return Outcome(
                reply=Reply(None, (), None, None, None, None, problem="the adapter found no reply")
            )
        except BaseException as error:  # noqa: BLE001 - foreign code: SystemExit ends the run with a record
            log_failure("the model raised", error=error, redact=self._redact)
            return Outcome(fault=self._fault(error, (ConnectionError,)))
        finally:
            if pieces is not None:
                pieces.close()
            self._clock.spend("model")
        return Outcome(reply=read_reply(output, effect.step, self._redact.for_model_output()))

    def _manner(self, function: object) -> Manner:
        return Manner.AWAITED if is_async(function) else Manner.THREAD

    def _begun(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call foreign code; an event loop awaits its coroutine, which is run to its end where there is none."""
        found = function(*arguments)
        return found if self._calls.is_async else settled(found)

    async def _invoke(self, effect: Invoke, stamps: Stamps) -> Outcome:
        tool = self._tools[effect.call.name]
        assert effect.call.arguments is not None  # the gate lets no other call through
        arguments = effect.call.arguments.value()

        checks: list[dict[str, Any]] = []

        def late(check: dict[str, Any], keep_allow: bool) -> Decision:
            decision, shown = self._decide_late(check, tool.name)
            if keep_allow or decision.decision != ALLOW or "hidden" in shown:
                begun = self._clock.stamp()
                self._clock.spend("decision")
                stamps[f"{effect.position}.c{len(checks)}"] = [begun, self._clock.stamp()]
                checks.append(shown)
            return decision

        is_answered = self._is_answered(effect, tool)
        if MARK in effect.call.arguments.text and not is_answered:
            arguments, unknown = self._redact.reveal(
                arguments, self._gate.policy.reveal_to.get(tool.name, ())
            )
            if unknown is not None:
                kind, number = unknown
                late({"rule": "redact", "kind": kind, "number": number}, False)
                self._clock.spend("attempt")
                return Outcome(checks=tuple(checks))
        io = self._workspace.io(late, effect.key, tool.uses, tool.name)
        fault = result = invalid = None
        cancelled = False
        attempt = Attempt(self._interrupts, self._scope_of(effect), io)
        try:
            if is_answered:
                returned = self._call(effect, io, lambda: self._answer(effect, checks, stamps))
            else:
                returned, failed = await self._calls.call(
                    lambda: self._call(effect, io, lambda: self._run(tool, arguments, io, attempt)),
                    self._manner_of(tool),
                    attempt,
                    tool.timeout_s,
                )
                if failed is not None:
                    raise failed
        except CallCancelled:
            cancelled = True
        except (KeyboardInterrupt, Cancelled, ForceQuit, EffectNotRecorded, CallerLeft):
            raise
        except NotJson as error:  # of a worker, which reads the result
            invalid = error.reason
        except BaseException as error:  # noqa: BLE001 - foreign code: SystemExit ends a tool, not the run
            log_failure("tool %s raised", tool.name, error=error, redact=self._redact)
            fault = self._fault(error, tool.transient, has_acted=io.may_have_acted)
        else:
            if isinstance(returned, Outcome):
                return returned
            result, invalid = self._read_result(returned)
        finally:
            io.close()
            self._clock.spend("attempt")
        if io.no_room is not None:
            # the disk failed, not the tool, whatever it made of that: the run stops, and can go on with room
            raise OSError(io.no_room.errno, io.no_room.strerror)
        if io.denied:
            # whatever the tool made of the denial: it neither succeeds nor is it tried again
            fault = result = invalid = None
            cancelled = False
        elif io.undeclared is not None:
            # nor is what its effect kind does not cover, whatever the tool made of the refusal
            result = invalid = None
            cancelled = False
            fault = Fault(PermissionError.__name__, FaultKind.OTHER, undeclared=f"io.{io.undeclared}")
        return Outcome(
            result=result,
            fault=fault,
            invalid=invalid,
            cancelled=cancelled,
            checks=tuple(checks),
            reads=tuple((self._redact(path), digest) for path, digest in io.reads),
            writes=tuple((self._redact(path), digest) for path, digest in io.writes),
        )

    def _is_answered(self, effect: Invoke, tool: Tool) -> bool:
        """Return whether an attempt is answered from the record.

        An external one always is. So is one that may meet a file that such a call wrote when the record was made.
        """
        if self._answers is None:
            return False
        return tool.is_external or (self._unwritten and tool.effect != "pure" and self._answers.holds(effect))

    def _answer(self, effect: Invoke, checks: list[dict[str, Any]], stamps: Stamps) -> Outcome:
        """Return the recorded outcome of an attempt; the facts that it met are decided again, and stamped."""
        assert self._answers is not None
        outcome = self._answers.take(effect)
        was_denied = outcome == Outcome(checks=outcome.checks, reads=outcome.reads, writes=outcome.writes)
        for check in outcome.checks:
            begun = self._clock.stamp()
            self._clock.spend("decision")
            stamps[f"{effect.position}.c{len(checks)}"] = [begun, self._clock.stamp()]
            checks.append(check)
            if self._gate.decide_late(check, effect.call.name).decision != ALLOW:
                return Outcome(checks=tuple(checks), reads=outcome.reads, writes=outcome.writes)
        if was_denied:
            raise self._answers.refuse(effect)
        self._unwritten = self._unwritten or bool(outcome.writes)
        if outcome.result is not None:
            self._redact.restore_counters(placeholder_counts(outcome.result.text))
        return outcome

    def _decide_late(self, check: dict[str, Any], tool: str) -> tuple[Decision, dict[str, Any]]:
        """Decide a fact, and the fact as the record may show it: without secrets, decided the same.

        A replay decides on what is shown. Where that would go another way, the verdict is recorded as one on a hidden
        value, which no replay can derive.
        """
        decision = self._gate.decide_late(check, tool)
        if self._redact.is_noop:
            return decision, check
        shown = {key: self._redact(item) if isinstance(item, str) else item for key, item in check.items()}
        if shown != check:
            again = self._gate.decide_late(shown, tool)
            if (again.decision == ALLOW) != (decision.decision == ALLOW):
                shown["hidden"] = str(decision.decision)
            return self._gate.decide_late(shown, tool), shown
        return decision, check

    def _fault(
        self, error: BaseException, transient: Sequence[type[BaseException]], *, has_acted: bool = False
    ) -> Fault:
        fault = fault_from_error(error, transient, has_acted=has_acted)
        # cut after redaction, so that no part of a secret is left that is not recognised as one
        text = None if fault.text is None else self._redact(fault.text)[:MAX_SERVICE_TEXT]
        return replace(fault, exception=self._redact(fault.exception), text=text)

    def _manner_of(self, tool: Tool) -> Manner:
        """Return how a tool is called beside an event loop: one that waits for nothing needs no thread."""
        if tool.isolate:
            return Manner.WORKER
        if tool.awaitable_run is not None:
            return Manner.AWAITED
        return Manner.HERE if tool.effect == "pure" and tool.timeout_s is None else Manner.THREAD

    def _run(self, tool: Tool, arguments: dict[str, Any], io: IO, attempt: Attempt) -> Any:
        if self._calls.is_async and (awaitable := tool.awaitable_run) is not None:
            return _awaited(
                awaitable, arguments, io, tool.timeout_s
            )  # its time is limited where it is awaited
        if tool.timeout_s is None and not tool.isolate:
            with io.served(None):
                return settled(tool.run(arguments, io))
        from ..tools.deadline import deadline
        from ..tools.isolation import run_isolated

        if tool.isolate:
            return run_isolated(tool, arguments, io, tool.timeout_s, interrupts=attempt)
        with deadline(tool.timeout_s, ForceQuit), io.served(tool.timeout_s):
            return settled(tool.run(arguments, io))

    def _read_result(self, returned: Any) -> tuple[canonical_json.Fragment | None, str | None]:
        try:
            return self._redact.data(canonical_json.freeze(returned)), None
        except NotJson as error:
            return None, error.reason

    async def _ask_hook(self, effect: AskHook) -> Outcome:
        from .hook_calls import ask_hook  # few runs have hooks

        attempt = Attempt(self._interrupts, self._scope)
        try:
            return await ask_hook(self._hooks, effect, self._redact, self._calls, attempt)
        finally:
            self._clock.spend("decision")

    async def _ask_human(self, effect: AskHuman) -> Outcome:
        from .person_calls import ask_person  # few runs ask anybody

        approve = self._approve
        scripted = approve is None or getattr(approve, "is_scripted", False)
        manner = Manner.HERE if scripted else self._manner(approve)
        attempt = Attempt(self._interrupts, self._scope)
        return await ask_person(
            approve, effect, self._calls, manner, attempt, self._begun, self._clock, self._redact
        )
