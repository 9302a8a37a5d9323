"""One agent at work: what it is made with, and what it has come to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from msgspec import Struct, field, structs

from ...fail import catalog
from ..branches import Branch
from ..driver import Driver
from ..log.events import Decided, Ended, HandedOver
from ..log.values import USER, Call, Forked, PolicyHead, ToolOffer, WindowLimits
from ..models.types import Message, Model, choice_of
from ..policy.gate import Gate
from ..policy.policy import Policy
from ..redaction.redactor import Redactor
from ..schema.answer_type import AnswerType
from ..tools.agents import with_those_below
from ..tools.contract import Tool
from .authority import Authority, Ruling
from .board import Board
from .window import Window


class Gates(Struct, frozen=True):
    """The gates of an agent.

    Attributes:
        own: That of its policy over its tools.
        below: That of its policy over these and those of all agents that it may start.
        plan: Two such gates of the policy that holds as well until a person has allowed a plan; None for none.
        offers: The tools as the model is offered them.
        hidden: The names of the others, which only the function of a tool may call.
    """

    own: Gate
    below: Gate
    plan: tuple[Gate, Gate] | None
    offers: tuple[ToolOffer, ...]
    hidden: frozenset[str]


def gates_of(policy: Policy, plan: Policy | None, tools: Iterable[Tool]) -> Gates:
    """Return the gates of an agent, given its policy, that for a plan, and its tools. Raises InputError."""
    offered = {tool.name: tool for tool in tools}
    tools = [*offered.values(), *(it for tool in offered.values() for it in tool.inner.values())]
    every = with_those_below(tools)
    own = Gate(policy, tools)
    below = own if every == tools else Gate(policy, every)
    offers = tuple(own.tools[name].offer() for name in offered)
    plans = None if plan is None else (Gate(plan, tools), Gate(plan, every))
    return Gates(own, below, plans, offers, frozenset(own.tools.keys() - offered.keys()))


class RunSpec(Struct, frozen=True):
    """What a run is made with, or an agent that it starts.

    Attributes:
        run_id: Its name.
        question: What is asked.
        gates: Its gates.
        models: The functions of the model and of its fallbacks, or what stands for them where a record alone answers.
        each: Changes each agent that is started, such as its gate where another policy is tried.
        instructions: The system message.
        seed: Of the jitter of waits.
        history: The messages before the question.
        hooks: What is asked at points of the run, see `hooks.py`.
        output: The type of the final answer; None where any text is one.
        output_retries: How often the model is asked again for an answer that does not fit.
        redactor: Of this run alone; it learns what the placeholders of the run stand for.
        deadline_s: Seconds after which the run is stopped; 0 for never.
        is_session: Whether it is a conversation: an answer ends a turn and not the run.
        forked: As in RunStarted.
        window: Likewise.
    """

    run_id: str
    question: str
    gates: Gates
    models: Sequence[Model]
    instructions: str = ""
    seed: int = 0
    history: Sequence[Message] = ()
    hooks: Sequence[Any] = ()
    output: AnswerType | None = None
    output_retries: int = 0
    redactor: Redactor = field(default_factory=lambda: Redactor((), {}, b""))
    deadline_s: int = 0
    is_session: bool = False
    forked: Forked | None = None
    window: WindowLimits | None = None
    each: Callable[[RunSpec], RunSpec] = lambda spec: spec

    def head(self) -> dict[str, Any]:
        """Return what a model is asked with beside the messages, as RunStarted and AgentStarted hold it."""
        model, *fallbacks = map(choice_of, self.models)
        return {
            "question": self.question,
            "model": model.name,
            "options": model.options,
            "instructions": self.instructions,
            "tools": list(self.gates.offers),
            "policy": _head_of(self.gates.own.policy),
            "plan": None if self.gates.plan is None else _head_of(self.gates.plan[0].policy),
            "output_schema": self.output.schema if self.output else None,
            "output_retries": self.output_retries if self.output else 0,
            "fallbacks": fallbacks,
            "window": self.window,
        }


def _head_of(policy: Policy) -> PolicyHead:
    return PolicyHead(policy.file, policy.version, policy.on_deny, policy.limits.limits, policy.hides)


def ended_as(found: catalog.Classification, answer: str | None) -> dict[str, Any]:
    """Return what the line says that ends a turn, an agent or the run, given what follows from its last step."""
    return {"ending": str(found.ending), "answer": answer, "mode": str(found.mode or "")}


Live = Callable[["RunState"], Coroutine[Any, Any, tuple[catalog.Classification, str | None]]]
"""Lets an agent take steps until one has an ending, and returns it with the answer."""


class RunState:
    """An agent at work: that of the run, or one that a call started.

    Args:
        spec: What it is made with.
        driver: The driver of the run.
        live: Takes steps until one has an ending, and returns it with the answer.
        place: Its place in the run: "", or `4.c0/`.
        above: The agent that started it.
        name: What others call it; its place unless given.

    Attributes:
        authority: What it may do, and what it has used up.
        window: What its model sees.
        refused: The calls that were refused, by identity, with the rule.
        mailbox: Messages that it has not read.
        children: The agents that live in the background for it, by place.
        branch: The one that it lives in, if it lives in the background.
        board: What the agents of the run have to do.
        waits: Whether it waits for a message: for a turn, or for those, where it has answered while they were at work.
        on_turn: Is told of each turn that has ended.
        answer: Its last answer.
        note: Writes a line.
        step: The number of its step.
        mode: The failure mode of the step.
        cost: What the reply of the step cost, in millionths of a US dollar.
        counted: How many agents each call starts that was made, and when it was counted, by its address.
        changes: How often a hook sent an answer back, and how often the model was told that one does not fit.
        is_planning: Whether a person has not yet allowed its plan.
        guards: Hooks of agents that handed over to it: they still guard calls and results.
    """

    def __init__(
        self,
        spec: RunSpec,
        driver: Driver,
        live: Live,
        place: str = "",
        above: RunState | None = None,
        name: str = "",
    ) -> None:
        self.spec, self.driver, self.live, self.place, self.above = spec, driver, live, place, above
        self.note = driver.journal.append
        self.name = name or place[:-1]
        self.board: Board = Board() if above is None else above.board
        self._starter = None if above is None else above.authority  # that agent may hand over
        self.guards: Sequence[Any] = ()
        self.refused: dict[str, str] = {}
        self._failures = 0
        self.window = Window()
        self._act_under(*self._authority(None if above is None else above.authority))
        self.mailbox = driver.begin_agent(place)
        self.children: dict[str, RunState] = {}
        self.branch: Branch | None = None
        self.on_turn: Callable[[Ended], None] = lambda ended: None
        self.waits = spec.is_session and not spec.question
        self.answer: str | None = None
        self.step = 0
        self.mode: catalog.FailureMode | None = None
        self.cost = 0
        self.changes: defaultdict[str, int] = defaultdict(int)
        self._numbers: defaultdict[str, int] = defaultdict(int)
        self.counted: dict[str, tuple[int, int]] = {}
        self._awaited: set[str] = set()

    def _authority(self, above: Authority | None) -> tuple[Authority, bool]:
        """Return what the agent may do below another authority, and whether it has to plan first."""
        gates, plan = self.spec.gates, self.spec.gates.plan
        own = Authority(gates.own, gates.below, self.driver, above)
        return (own, False) if plan is None else (Authority(*plan, self.driver, own, is_plan=True), True)

    def _act_under(self, authority: Authority, is_planning: bool = False, background: int = 0) -> None:
        self.authority, self.gate, self.is_planning = authority, authority.gate, is_planning
        # what other policies refused is decided anew, unless a person refused it
        self.refused = {key: rule for key, rule in self.refused.items() if rule == catalog.Rule.APPROVAL}
        authority.background = background  # the same agents are at work for it
        self.window.most = 0 if self.spec.window is None else self.spec.window.max_message_bytes

    def hand_over(self, key: str, spec: RunSpec) -> None:
        """Let another agent go on, which acts under the policy of this one too, by a call at a place in the step."""
        self.guards = [*self.spec.hooks, *self.guards]
        self.changes.clear()
        self.spec, background = spec, self.authority.background
        self._act_under(*self._authority(self.authority), background)
        self.note(HandedOver(at=self.at(f"{key}.h"), **spec.head()))

    def leave_plan(self) -> None:
        """Let the agent act under its own policy from here on, and those above, if it has planned."""
        if self.is_planning:
            self._act_under(self.authority.chain[1], background=self.authority.background)

    def plan_again(self) -> None:
        """Let the policy for a plan hold again, if there is one."""
        if (plan := self.spec.gates.plan) is not None and not self.is_planning:
            own = self.authority
            self._act_under(Authority(*plan, self.driver, own, is_plan=True), True, own.background)

    @property
    def stopped(self) -> str | None:
        """Why the agent was stopped, None where it was not."""
        return self.driver.stop_of(self.place)

    def mate(self, name: str) -> RunState | None:
        """Return its team mate of a name, None where it has none that all its present policies hold for."""
        if not self.children:  # as of most agents
            return None
        chain = {*self.authority.chain}
        return next((it for it in self.mates(name) if it._starter and chain <= {*it._starter.chain}), None)

    def mates(self, name: str) -> list[RunState]:
        """Return all team mates of a name, also those that were started under other policies."""
        named = (it for it in self.children.values() if it.is_mate and it.name == name)
        return [it for it in named if it.stopped is None]

    @property
    def is_mate(self) -> bool:
        """Whether it stays with the agent that started it after each answer."""
        return bool(self.place) and self.spec.is_session

    @property
    def is_resting(self) -> bool:
        """Whether it is a team mate that waits for what it is told next."""
        return self.is_mate and self.waits and not self.mailbox and not self.has_others_at_work

    @property
    def has_others_at_work(self) -> bool:
        """Whether agents in the background do something for it."""
        return any(not child.is_resting for child in self.children.values())

    def rest(self) -> None:
        """Note that it asks its model nothing until it is told something."""
        if self._starter is not None:
            self._starter.add_askers(-1)
            self.mailbox.on_mail = self.wake  # before anybody else sets aside what it may need

    def wake(self) -> None:
        """Note that it rests no more."""
        if self._starter is not None and self.mailbox.on_mail == self.wake:
            self._starter.add_askers(1)
            self.mailbox.on_mail = lambda: None

    async def stop_children(self, *, resting: bool) -> None:
        """Stop what lives in the background for it: no agent outlives the one that started it.

        Args:
            resting: Whether team mates that wait are stopped, too.
        """
        while stopped := [it for it in self.children.values() if resting or not it.is_resting]:
            for child in stopped:  # all of them, before one can still say something to another
                self.driver.stop(child.place, "cancelled")
            for child in stopped:
                assert child.branch is not None
                await child.branch

    def end_turn(self, ended: Ended) -> None:
        """Note that a turn of a conversation is over, or one of the tasks of a team mate."""
        self.note(ended)
        above = 0 if self._starter is None else len(self._starter.chain)
        self.authority.begin_turn(len(self.authority.chain) - above)
        self.changes.clear()
        self.on_turn(ended)

    def has_mail(self, of_user: bool) -> bool:
        """Return whether a message is there, of somebody outside if it has to be of one."""
        return any(not of_user or message.sender == USER for message in self.mailbox)

    def wait_for(self, keys: Iterable[str]) -> None:
        """Note that it waits for agents that calls at places in the step start, which may ask in its stead."""
        self._wait({*self._awaited, *keys})

    def wait_no_more(self, keys: Iterable[str]) -> None:
        """Note that such agents have ended, or were not started."""
        self._wait(self._awaited - {*keys})

    def _wait(self, awaited: set[str]) -> None:
        before, self._awaited = self._awaited, awaited
        self.authority.add_askers(len(awaited) - len(before) + bool(before) - bool(awaited))

    def at(self, key: str) -> str:
        """Return an address in the step that is under way."""
        return f"{self.place}{self.step}.{key}"

    def note_ruling(self, at: str, ruling: Ruling) -> Decided:
        """Write what the gates said."""
        decision, rule, place, reason = structs.astuple(ruling.verdict)
        decided = Decided(at=at, decision=decision, rule=rule, place=place, reason=reason, above=ruling.above)
        self.note(decided)
        return decided

    def note_decision(self, key: str, ruling: Ruling) -> Decided:
        """Write the next decision on a call, given the call's place in the step."""
        at = self.at(f"{key}.d")
        number = self.next_number(at)
        return self.note_ruling(at if number == 1 else f"{at}{number}", ruling)

    def next_number(self, prefix: str) -> int:
        """Return the number, from 1, of the next line whose address begins so, such as of a hook or a decision."""
        self._numbers[prefix] += 1
        return self._numbers[prefix]

    def ask_about(self, key: str, call: Call) -> Ruling:
        """Ask about a proposed call, given its place in the step; one that was allowed before counts anew."""
        if (counted := self.counted.pop(self.at(key), None)) is not None:
            self.authority.uncount_call(call, *counted)
        return self.authority.ask_about(call, at_work=self.mate(call.name) is not None)

    def has_lost_mate(self, key: str, call: Call) -> bool:
        """Return whether a call was decided as one to a team mate that has ended meanwhile."""
        tool = self.gate.tools.get(call.name)
        was_mate = tool is not None and tool.stays and not self.counted.get(self.at(key), (1, 0))[0]
        return was_mate and self.mate(call.name) is None

    def count_call(self, key: str, call: Call) -> None:
        """Note that a call is made."""
        tool = self.gate.tools.get(call.name)
        starts = int(tool is not None and tool.agent is not None and self.mate(call.name) is None)
        self.counted[self.at(key)] = starts, self.authority.count_call(call, starts)

    def give_up(self, mode: catalog.FailureMode, tool: str = "") -> catalog.Classification:
        """Return what follows from a failure of a tool, or of the model for "": the policy says if the run goes on."""
        word = self.gate.policy.on_failure(tool, self._failures)
        found = catalog.classify(catalog.GaveUp(mode), self.gate.policy.on_deny, word)
        self._failures += found.ending is None
        self.mode = mode
        return found

    def stopped_by(self, why: str) -> catalog.Classification:
        """Return what follows from a stop, and note its mode."""
        return self.classify(catalog.Stopped(catalog.StopReason(why)))

    def classify(
        self, happening: catalog.Happening, on_failure: str = "terminate", *, above: int = 0
    ) -> catalog.Classification:
        """Return what follows from a happening, and note its mode; a denial may be by a policy above."""
        found = catalog.classify(happening, self.authority.on_deny(above), on_failure)
        self.mode = found.mode or self.mode  # what ends the run comes last
        return found
