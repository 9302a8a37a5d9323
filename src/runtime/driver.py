"""The driver: performs the loop's effects, stamps them, and hands each step on as one line.

`drive` knows no world. A *world* performs effects: `LiveWorld` with a model, tools and a clock; a replay
answers from a record instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

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
from .workspace import Workspace

Stamps = dict[str, list[int]]


class World(Protocol):
    """Performs one effect. May add stamps for what happened inside it."""

    def perform(self, effect: Effect, stamps: Stamps) -> Outcome:
        """The outcome of `effect`; raises Cancelled where the run is to stop."""


Heard = Callable[[Effect | Event, Outcome | None], None]


def drive(
    loop: Steps, world: World, clock: Clock, on_step: Callable[[dict[str, Any]], None], heard: Heard
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
            try:
                outcome = world.perform(item, stamps)
            except Cancelled as cancelled:
                stamps[item.position] = [begun, clock.stamp()]
                item = loop.throw(cancelled)
                continue
            stamps[item.position] = [begun, clock.stamp()]
            heard(item, outcome)
            item = loop.send(outcome)
    except StopIteration as stop:
        ending: Ending = stop.value
        return ending


Approve = Callable[[AskHuman], Answer | bool | None]
# stands between an effect and the model or tool behind it: gets the effect and the real call, may raise,
# return something else, or call the real one
Inject = Callable[[Effect, Callable[[], Any]], Any]


def _straight(_effect: Effect, real: Callable[[], Any]) -> Any:
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
    ) -> None:
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
            if isinstance(effect, AskModel):
                return self._ask_model(effect)
            if isinstance(effect, Invoke):
                return self._invoke(effect, stamps)
            if isinstance(effect, Wait):
                self._clock.sleep(effect.ms)
                return Outcome()
            return self._ask_human(effect)
        except KeyboardInterrupt:
            raise Interrupted(2) from None

    def _ask_model(self, effect: AskModel) -> Outcome:
        try:
            output = self._call(effect, lambda: self._model(effect.input))
        except (InputError, Cancelled):
            raise  # a script's mistake is its author's, not the model's
        except InvalidModelOutput:
            return Outcome(
                reply=Reply(None, (), None, None, None, None, problem="the adapter found no reply")
            )
        except Exception as error:  # noqa: BLE001 - a model is foreign code
            return Outcome(fault=fault_of(error, (ConnectionError,)))
        finally:
            self._clock.spend("model")
        return Outcome(reply=read_reply(output, effect.step, self._redact))

    def _invoke(self, effect: Invoke, stamps: Stamps) -> Outcome:
        tool = self._tools[effect.call.name]
        assert effect.call.arguments is not None  # the gate lets no other call through
        arguments = effect.call.arguments.value()

        late_count = 0

        def late(check: dict[str, Any], keep_allow: bool) -> Decision:
            nonlocal late_count
            decision = self._gate.decide_late(check)
            if keep_allow or decision.decision != ALLOW:
                begun = self._clock.stamp()
                self._clock.spend("decision")
                stamps[f"{effect.position}.c{late_count}"] = [begun, self._clock.stamp()]
                late_count += 1
            return decision

        io = self._workspace.io(late, effect.key)
        fault = result = invalid = None
        try:
            returned = self._call(effect, lambda: tool.run(arguments, io))
        except (KeyboardInterrupt, Cancelled):
            raise
        except BaseException as error:  # noqa: BLE001 - foreign code: SystemExit ends a tool, not the run
            fault = fault_of(error, tool.transient)
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
            checks=tuple(io.checks),
            reads=tuple(io.reads),
            writes=tuple(io.writes),
        )

    def _read_result(self, returned: Any) -> tuple[canonical_json.Fragment | None, str | None]:
        try:
            return self._redact.data(canonical_json.freeze(returned)), None
        except NotJson as error:
            return None, error.reason

    def _ask_human(self, effect: AskHuman) -> Outcome:
        said = self._approve(effect) if self._approve is not None else None
        if isinstance(said, bool):
            said = Answer("allow" if said else "deny")
        if said is None:
            if self._clock.kind == "virtual":
                self._clock.sleep(effect.timeout_s * 1000)
            return Outcome(answer=Answer("silence"))
        self._clock.spend("person")
        return Outcome(answer=said)
