"""The driver: performs the loop's effects, stamps them, and hands each step on as one line.

`drive` knows no world. A *world* performs effects: `LiveWorld` with a model, tools and a clock; a replay
answers from a record instead.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, Self

from ..fail.errors import Cancelled, InputError, Interrupted, InvalidModelOutput
from . import canonical_json
from .canonical_json import NotJson
from .clock import Clock
from .effects import (
    Answer,
    AskHuman,
    AskModel,
    Decided,
    Effect,
    Ending,
    Event,
    Fault,
    Invoke,
    Outcome,
    Reply,
    StepEnded,
    Wait,
)
from .gate import ALLOW, Decision, Gate
from .llm import Model, read_reply
from .redact import Redactor
from .retry import fault_of
from .state import Steps
from .tools import Tool
from .workspace import IO, Workspace

Stamps = dict[str, list[int]]
# what foreign code raised, with its text and traceback: for the one who develops it, never for a record
_LOG = logging.getLogger("tachograph")


class World(Protocol):
    """Performs one effect. May add stamps for what happened inside it."""

    def perform(self, effect: Effect, stamps: Stamps) -> Outcome:
        """The outcome of `effect`; raises Cancelled where the run is to stop."""


Heard = Callable[[Effect | Event, Outcome | None], None]
# gets an effect, what came of it and the stamps of its step so far, before anything else is done
Note = Callable[[Effect, Outcome | Cancelled, Stamps], None]
# gets the stamp at which an effect would begin; what it returns stops the run there
Stop = Callable[[int], Cancelled | None]


class Keeper(Protocol):
    """Writes down what happens as it happens, so that a run that dies can be gone on with.

    `private` is the folder for a run's private mounts, None for fresh ones; `is_prepared` says that they
    were set up before. `secrets` are the numbers of placeholders given out before, by kind.
    """

    private: Path | None
    is_prepared: bool
    secrets: Mapping[str, int]

    def begin(self, run_line: dict[str, Any]) -> None:
        """A run begins, or is gone on with."""

    def prepared(self) -> None:
        """The private mounts are set up."""

    def around(self, live: World, gate: Gate, workspace: Workspace) -> World:
        """The world that performs the effects; what was performed before is not performed again."""

    def note(self, effect: Effect, outcome: Outcome | Cancelled, stamps: Stamps) -> None:
        """An effect has its outcome; nothing else was done since."""


def drive(
    loop: Steps,
    world: World,
    clock: Clock,
    on_step: Callable[[dict[str, Any]], None],
    heard: Heard,
    *,
    note: Note | None = None,
    stop: Stop | None = None,
) -> Ending:
    """Run a loop to its ending.

    `on_step` gets each step's line with its stamps, in order; `heard` every decision and every effect with
    its outcome as soon as it has one.
    """
    stamps: Stamps = {}
    try:
        item = next(loop)
        while True:
            if isinstance(item, StepEnded):
                item.record["stamps"] = stamps
                on_step(item.record)
                stamps = {}
                item = next(loop)
                continue
            begun = clock.stamp()
            if isinstance(item, Decided):
                clock.spend("decision")
                stamps[item.position] = [begun, clock.stamp()]
                heard(item, None)
                item = next(loop)
                continue
            outcome = _performed(world, item, stamps, stop(begun) if stop is not None else None)
            stamps[item.position] = [begun, clock.stamp()]
            if note is not None:
                note(item, outcome, stamps)
            if isinstance(outcome, Cancelled):
                item = loop.throw(outcome)
                continue
            heard(item, outcome)
            item = loop.send(outcome)
    except StopIteration as stop:
        ending: Ending = stop.value
        return ending


def _performed(
    world: World, effect: Effect, stamps: Stamps, stopped: Cancelled | None
) -> Outcome | Cancelled:
    if stopped is not None:
        return stopped
    try:
        return world.perform(effect, stamps)
    except Cancelled as cancelled:
        return cancelled


class Leave(BaseException):
    """A second signal: nothing more is waited for. What is durable by then stays so."""


def leaving(signum: int | None) -> BaseException:
    """What a caller gets once a signal ended a run: KeyboardInterrupt, or SystemExit(143) for SIGTERM."""
    return SystemExit(128 + signal.SIGTERM) if signum == signal.SIGTERM else KeyboardInterrupt()


class Interrupts:
    """SIGINT and SIGTERM while a run is under way: raised at once in foreign code, kept for the next effect elsewhere.

    As a context manager it takes the two over, in the main thread and unless someone else did already. What
    comes after the last effect is raised at the end of the block. A second signal does not wait for anything.
    `signum` is the signal that came, or None.
    """

    def __init__(self) -> None:
        self._pending = self._open = False
        self._before: dict[int, Any] = {}
        self.signum: int | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for signum, untouched in (
                (signal.SIGINT, signal.default_int_handler),
                (signal.SIGTERM, signal.SIG_DFL),
            ):
                if signal.getsignal(signum) is untouched:
                    self._before[signum] = signal.signal(signum, self._on_signal)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._give_back()
        if kind is Leave or (self._pending and kind is None):
            raise leaving(self.signum) from None

    def _give_back(self) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        self._before = {}

    def _on_signal(self, signum: int, _frame: object) -> None:
        again = self.signum is not None
        self.signum = signum
        if again:
            self._give_back()
            raise Leave
        self.hold()
        if self._open:
            self.deliver()

    def hold(self) -> None:
        """Keep an interrupt for the next effect."""
        self._pending = True

    def deliver(self) -> None:
        """Raise KeyboardInterrupt if one is kept, once."""
        if self._pending:
            self._pending = self._open = False
            raise KeyboardInterrupt

    def around(self, foreign: Callable[[], Outcome]) -> Outcome:
        """Call foreign code, where an interrupt does not wait."""
        self._open = True
        pid = os.getpid()
        try:
            self.deliver()
            found = foreign()
            if os.getpid() != pid:
                os._exit(70)  # a child that foreign code forked: the run and its files are not its own
            return found
        finally:
            self._open = False


Approve = Callable[[AskHuman], Answer | bool | None]
# stands between an effect and the model or tool behind it: gets the effect, the tool's way out (None for a
# model) and the real call; may raise, return something else, or call the real one
Inject = Callable[[Effect, IO | None, Callable[[], Any]], Any]


def _straight(_effect: Effect, _io: IO | None, real: Callable[[], Any]) -> Any:
    return real()


class LiveWorld:
    """The real thing: a model callable, tools over a workspace, a clock, a person."""

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
    ) -> None:
        self._interrupts = interrupts or Interrupts()
        self._model = model
        self._gate = gate
        self._tools: Mapping[str, Tool] = gate.tools
        self._workspace = workspace
        self._clock = clock
        self._redact = redact
        self._approve = approve
        self._call = inject or _straight

    def perform(self, effect: Effect, stamps: Stamps) -> Outcome:
        try:
            return self._interrupts.around(lambda: self._perform(effect, stamps))
        except KeyboardInterrupt:
            raise Interrupted(self._interrupts.signum or signal.SIGINT) from None

    def _perform(self, effect: Effect, stamps: Stamps) -> Outcome:
        if isinstance(effect, AskModel):
            return self._ask_model(effect)
        if isinstance(effect, Invoke):
            return self._invoke(effect, stamps)
        if isinstance(effect, Wait):
            self._clock.sleep(effect.ms)
            return Outcome()
        return self._ask_human(effect)

    def _ask_model(self, effect: AskModel) -> Outcome:
        try:
            output = self._call(effect, None, lambda: self._model(effect.input))
        except (InputError, Cancelled, KeyboardInterrupt, Leave):
            raise  # a script's mistake is its author's, not the model's
        except InvalidModelOutput:
            return Outcome(
                reply=Reply(None, (), None, None, None, None, problem="the adapter found no reply")
            )
        except BaseException as error:  # noqa: BLE001 - foreign code: SystemExit ends the run with a record
            _LOG.info("the model raised", exc_info=error)
            return Outcome(fault=self._fault(error, (ConnectionError,)))
        finally:
            self._clock.spend("model")
        return Outcome(reply=read_reply(output, effect.step, self._redact.of_model()))

    def _invoke(self, effect: Invoke, stamps: Stamps) -> Outcome:
        tool = self._tools[effect.call.name]
        assert effect.call.arguments is not None  # the gate lets no other call through
        arguments = effect.call.arguments.value()

        checks: list[dict[str, Any]] = []

        def late(check: dict[str, Any], keep_allow: bool) -> Decision:
            decision, shown = self._decide_late(check)
            if keep_allow or decision.decision != ALLOW:
                begun = self._clock.stamp()
                self._clock.spend("decision")
                stamps[f"{effect.position}.c{len(checks)}"] = [begun, self._clock.stamp()]
                checks.append(shown)
            return decision

        io = self._workspace.io(late, effect.key)
        fault = result = invalid = None
        try:
            returned = self._call(effect, io, lambda: self._run(tool, arguments, io))
        except (KeyboardInterrupt, Cancelled, Leave):
            raise
        except NotJson as error:  # of a worker, which reads the result
            invalid = error.reason
        except BaseException as error:  # noqa: BLE001 - foreign code: SystemExit ends a tool, not the run
            _LOG.info("tool %s raised", tool.name, exc_info=error)
            fault = self._fault(error, tool.transient)
        else:
            result, invalid = self._read_result(returned)
        finally:
            self._clock.spend("attempt")
        if io.denied:
            # whatever the tool made of the denial: it neither succeeds nor is it tried again
            fault = result = invalid = None
        return Outcome(
            result=result,
            fault=fault,
            invalid=invalid,
            checks=tuple(checks),
            reads=tuple((self._redact(path), digest) for path, digest in io.reads),
            writes=tuple((self._redact(path), digest) for path, digest in io.writes),
        )

    def _decide_late(self, check: dict[str, Any]) -> tuple[Decision, dict[str, Any]]:
        """Decide a fact, and the fact as the record may show it: without secrets, decided the same.

        A replay decides on what is shown. Where that would go another way, the fact is denied, and shown as
        something that no rule accepts.
        """
        decision = self._gate.decide_late(check)
        if self._redact.is_idle:
            return decision, check
        shown = {key: self._redact(item) if isinstance(item, str) else item for key, item in check.items()}
        if shown != check:
            again = self._gate.decide_late(shown)
            if (again.decision == ALLOW) != (decision.decision == ALLOW):
                shown["target" if "target" in shown else "path"] = "<redacted>"
            return self._gate.decide_late(shown), shown
        return decision, check

    def _fault(self, error: BaseException, transient: Sequence[type[BaseException]]) -> Fault:
        fault = fault_of(error, transient)
        return replace(fault, exception=self._redact(fault.exception))

    def _run(self, tool: Tool, arguments: dict[str, Any], io: IO) -> Any:
        if tool.timeout_s is None and not tool.isolate:
            return tool.run(arguments, io)
        from .worker import deadline, run_isolated  # brings much along, for few

        if tool.isolate:
            return run_isolated(tool, arguments, io, tool.timeout_s, interrupts=self._interrupts)
        with deadline(tool.timeout_s, Leave):
            return tool.run(arguments, io)

    def _read_result(self, returned: Any) -> tuple[canonical_json.Fragment | None, str | None]:
        try:
            return self._redact.data(canonical_json.freeze(returned)), None
        except NotJson as error:
            return None, error.reason

    def _ask_human(self, effect: AskHuman) -> Outcome:
        real = self._clock.kind == "system"  # on a virtual clock nobody is slow
        begun = self._clock.stamp() if real else 0
        try:
            said = self._approve(effect) if self._approve is not None else None
        except Exception as error:  # noqa: BLE001 - foreign code; who did not allow a call refused it
            _LOG.info("asking a person raised", exc_info=error)
            said = Answer("deny", why=f"asking raised {type(error).__name__}")
        late = real and self._clock.stamp() - begun > effect.timeout_s * 1_000_000_000
        if said is None or late or (isinstance(said, Answer) and said.answer == "silence"):
            if self._clock.kind == "virtual":
                self._clock.sleep(effect.timeout_s * 1000)
            return Outcome(answer=Answer("silence", digest=effect.digest))
        self._clock.spend("person")
        return Outcome(answer=replace(self._read_answer(said, effect.digest), digest=effect.digest))

    def _read_answer(self, said: object, digest: str) -> Answer:
        """What a person said, read strictly: what is no answer, or one to something else, is a refusal."""
        if isinstance(said, bool):
            return Answer("allow" if said else "deny")
        if not isinstance(said, Answer) or said.answer not in ("allow", "deny", "silence"):
            return Answer("deny", why="the answer was none")
        if said.digest is not None and said.digest != digest:
            return Answer("deny", why="the answer was given to another call or policy")
        return Answer(said.answer, self._read_text(said.by), self._read_text(said.why))

    def _read_text(self, text: object) -> str | None:
        return self._redact(text.encode("utf-8", "replace").decode()) if isinstance(text, str) else None
