"""Who goes next.

A run is a coroutine that now and then waits: for an effect, for another branch, or for a message. The driver lets every
branch go on until it waits, and then lets one next thing happen, which is one of three:

    the log says what happened next      replay, and resume until the log is at its end
    the world says what is over first    record, and resume from there on
    something arrives from outside       a stop, a person's word

In a check the record only says in which order things happen: what can be made again is performed then, and whatever
follows is made from that and not from the record.

Between two such things branches go on alone and in a fixed order, so that these things, in their order, determine every
line. That is why branches may run side by side, and a replay needs to know nothing of it.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from ..fail.errors import NotRecorded, TachographError
from .branches import Branch, Mailbox, Pending, World, fits, redacted
from .effects import AskPerson, Effect, Wait
from .log import events as log
from .log.addresses import is_in, place_of, step_of
from .log.journal import Diverged, Journal
from .log.values import NOTHING, THIS_STEP, USER, Message
from .redaction.redactor import Redactor

Word = Literal["done", "not_done"]
Words = Mapping[str, Word]
"""A person's word on each effect in doubt, by its address."""
T = TypeVar("T")
# in the step of the run, since nobody asked for them
_Said = log.Arrived | log.CompactAsked | log.PlanAsked | log.UndoAsked | log.Closed
_Numbered = _Said | log.StopAsked


class InDoubt(TachographError):
    """Effects had begun when the process ended, and their outcomes are lost. Only a person knows, or a probe.

    Attributes:
        places: The addresses of the effects.
    """

    exit_code = 3

    def __init__(self, places: list[str]) -> None:
        self.places = places
        what = "it is unknown whether these happened; look with `tachograph show`, and go on with"
        super().__init__(f"{what} `--done AT` or `--not-done AT` for each: {', '.join(places)}")


class Driver:
    """Drives one run.

    Args:
        journal: Its log.
        world: What performs its effects; None where the log alone answers.
        settled: A person's word on each effect in doubt, by address.
        record: Of a check: the recorded lines, which say what happens next. The journal holds none of them.
        again: Of a check: whether an effect is performed again, given all that are under way; the record answers all
            others.
        redactor: Redacts what enters. It knows the placeholders in the past and in the record.
    """

    def __init__(
        self,
        journal: Journal,
        world: World | None,
        *,
        settled: Words | None = None,
        record: Sequence[log.Event] | None = None,
        again: Callable[[Pending, Iterable[Pending]], bool] = lambda pending, under_way: False,
        redactor: Redactor,
    ) -> None:
        self.journal = journal
        self.now = 0  # nanoseconds since the beginning of the run, at the last thing that happened
        self._steps = {"": ("0", 0)}  # the step of each agent at work, by its place, and when it began
        self._world, self._settled, self._again = world, settled or {}, again
        self._record, self._redactor = record, redactor
        happened = (event for event in record or () if isinstance(event, log.Outcome | log.Entered))
        self._schedule = deque(happened)
        head = next(iter(record or ()), None)
        self._has_system_clock = isinstance(head, log.RunStarted) and head.clock == "system"
        self._is_live = False
        self._ready: deque[tuple[Branch, Any]] = deque()  # the branches that go on, each with its value
        self._branches: dict[Branch, None] = {}
        self._under_way: dict[str, Pending] = {}  # by address
        self._mailboxes: dict[str, Mailbox] = {}  # by the place of the agent
        self._stops: dict[str, str] = {}  # why each scope was stopped
        self._begun = self._entered = 0  # how many effects the run began, and what entered in its step
        self.is_closed = False  # whether nobody says anything more
        self.is_idle = False  # whether the run waits for somebody outside alone
        self.focus: str | None = None  # of a summary that somebody asks for
        self.asked: list[log.PlanAsked | log.UndoAsked] = []  # what the agent of the run has not yet done
        self._came: list[tuple[int, log.Entered]] = []  # what entered, each with its time

    # ---- what the loop asks of it ------------------------------------------------------------------------------------

    def begin_agent(self, place: str) -> Mailbox:
        """Note that an agent is at work, and return its mailbox."""
        return self._mailboxes.setdefault(place, Mailbox())

    def begin_step(self, place: str, number: int) -> None:
        """Note that an agent begins a step."""
        self._steps[place] = f"{place}{number}", self.now
        if not place:
            self._entered = 0

    def end_agent(self, place: str) -> None:
        """Note that an agent that a call started is at work no more."""
        del self._steps[place], self._mailboxes[place]

    def post(self, place: str, message: Message) -> bool:
        """Put a message into the mailbox of an agent; False if it is at work no more."""
        mailbox = self._mailboxes.get(place)
        if mailbox is not None:
            mailbox.append(message)
            mailbox.on_mail()
            self._wake(mailbox)
        return mailbox is not None

    def agents_in(self, place: str) -> list[str]:
        """Return the places of the agents at work below one of them."""
        return [it for it in self._mailboxes if it != place and is_in(it, place)]

    def stop(self, scope: str, why: str) -> None:
        """End what is under way in a scope; what begins there later ends as it begins."""
        self._stops.setdefault(scope, why)  # the first reason counts, or a resume would tell another one
        if self._is_live and self._world is not None:
            for pending in list(self._under_way.values()):
                if is_in(pending.at, scope):
                    self._world.cancel(pending, self.now, self._stops[scope])
        for place, mailbox in self._mailboxes.items():
            if is_in(self._steps.get(place, (place, 0))[0], scope):
                self._wake(mailbox)

    @types.coroutine
    def perform(self, at: str, effect: Effect) -> Generator[tuple[str, Effect], Any, Any]:
        """Perform an effect, and return its outcome; of AskPerson, the answer that entered."""
        return (yield at, effect)

    async def together(self, jobs: Sequence[Callable[[], Coroutine[Any, Any, T]]], at_once: int) -> list[T]:
        """Let some coroutines go on side by side, so many at once, and return their results in the same order."""
        waiting = deque(enumerate(jobs))
        results: dict[int, T] = {}

        async def work() -> None:
            while waiting:
                number, job = waiting.popleft()
                results[number] = await job()

        for branch in [self.spawn(work()) for _ in jobs[:at_once]]:
            await branch
        return [results[number] for number in range(len(jobs))]

    def stop_of(self, at: str) -> str | None:
        """Return why an address was stopped, None if it was not."""
        return next((why for scope, why in self._stops.items() if is_in(at, scope)), None)

    # ---- what it does ------------------------------------------------------------------------------------------------

    async def drive(self, main: Coroutine[Any, Any, Any]) -> Any:
        """Drive a run to its end, and return its result.

        Raises:
            InDoubt: Effects had begun when the process ended, and nobody says whether they happened.
            Diverged: The log says something else than the run does.
            NotRecorded: The log alone answers, and holds no outcome of an effect.
        """
        root = self.spawn(main)
        try:
            if self._world is not None and not self._settled.keys() >= {*self.journal.doubts}:
                raise InDoubt(self.journal.doubts)  # before anything else is begun
            while not root.is_over:
                if not self._ready:
                    await self._next()
                elif (begun := self._advance(*self._ready.popleft())) is not None and self._world is not None:
                    if begun.effect.is_once:
                        await self._world.store(self.journal.sync)
                    await self._world.start(begun)
            if self.journal.next is not None:
                raise Diverged(self.journal.next, None)
            return root.result
        finally:
            for branch in reversed(self._branches):
                branch.coroutine.close()

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> Branch:
        """Let a coroutine go on by itself."""
        branch = Branch(coroutine)
        self._branches[branch] = None
        self._ready.append((branch, None))
        return branch

    def _advance(self, branch: Branch, value: Any) -> Pending | None:
        """Let a branch go on until it waits or ends. Returns the effect that is to begin, if there is one."""
        try:
            awaited = branch.coroutine.send(value)
        except StopIteration as end:
            branch.is_over, branch.result = True, end.value
            del self._branches[branch]
            self._wake(branch)
        else:
            if type(awaited) is tuple:
                return self._begin(branch, *awaited)
            awaited.waiting.append(branch)
        return None

    def _wake(self, awaited: Branch | Mailbox) -> None:
        self._ready.extend((branch, None) for branch in awaited.waiting)
        awaited.waiting.clear()

    def _begin(self, branch: Branch, at: str, effect: Effect) -> Pending | None:
        self._begun += 1
        begun = self._world.clock(self.now) if self._is_live and self._world is not None else self.now
        pending = Pending(at, effect, self._base(at), begun, self._begun, branch)
        if self._stops and (why := self.stop_of(at)) is not None:
            self._end(pending, log.Stopped(at=at, t=self.now - pending.base, why=why))
            return None
        self._under_way[at] = pending
        if effect.is_once:
            self.journal.append(log.ToolStarted(at=f"{at}.s"))
        return pending if self._is_live else None

    def _end(self, pending: Pending, outcome: log.Outcome) -> None:
        self._under_way.pop(pending.at, None)
        self.journal.append(outcome)
        self._ready.append((pending.branch, outcome))

    async def _next(self) -> None:
        """Let the next thing happen."""
        if self._record is not None:
            await self._rerun()
            return
        if not self._is_live:
            if (recorded := self.journal.next) is not None:
                self._happen_again(recorded)
                return
            await self._go_live()
        assert self._world is not None
        time, happened = await self._world.next()
        self.now, event = max(self.now, time), redacted(self._redactor, happened)
        if isinstance(event, log.Entered):
            await self._enter(event)
            return
        pending = self._under_way[event.at]
        t, took = self.now - pending.base, self.now - pending.begun
        self._end(pending, msgspec.structs.replace(event, t=t, took=took))
        if pending.effect.is_once:
            await self._world.store(self.journal.sync)

    def _base(self, at: str) -> int:
        """Return when the step of an address began."""
        return self._steps.get(place_of(at) if "/" in at else "", ("", 0))[1]

    async def _enter(self, event: log.Entered) -> None:
        """Let in what enters now."""
        assert self._world is not None
        step = self._steps[""][0]
        self._entered += isinstance(event, _Numbered)
        if isinstance(event, log.StopAsked) and event.scope == THIS_STEP:
            event = msgspec.structs.replace(event, scope=NOTHING if self.is_idle else step)
        at = event.at or f"{step}.a{self._entered}"
        self._let_in(msgspec.structs.replace(event, at=at, t=self.now - self._base(at)))
        await self._world.store(self.journal.sync)

    def _happen_again(self, recorded: log.Event) -> None:
        """Let happen what the log says happened next."""
        if isinstance(recorded, log.Outcome) and (pending := self._under_way.get(recorded.at)) is not None:
            # what was asked, and of which model, is not for the outcome to say
            if not fits(pending.effect, recorded):
                raise Diverged(recorded, None)
            self.now = pending.base + recorded.t
            self._end(pending, recorded)
        elif isinstance(recorded, log.Entered) and (
            not isinstance(recorded, log.Answered) or recorded.at in self._under_way
        ):
            self.now = self._base(recorded.at) + recorded.t
            self._entered += isinstance(recorded, _Numbered)
            self._let_in(recorded)
        else:
            raise Diverged(recorded, None)

    async def _rerun(self) -> None:
        """Let the next thing of a record happen, and what the record does not know once it has nothing more to say."""
        assert self._world is not None
        while self._schedule:
            recorded = self._schedule.popleft()
            pending = self._under_way.get(recorded.at)
            if isinstance(recorded, log.Answered) and pending is not None:
                self.now = max(self.now, pending.base + recorded.t)
                answer = self._world.answer(pending) if self._again(pending, ()) else recorded
                self._let_in(msgspec.structs.replace(redacted(self._redactor, answer), t=recorded.t))
                return
            step, base = self._steps.get(place_of(recorded.at), ("", 0))
            if isinstance(recorded, _Numbered | log.Settled) and step_of(recorded.at) == step:
                self.now = max(self.now, base + recorded.t)
                self._entered += isinstance(recorded, _Numbered)
                self._let_in(recorded)
                return
            if isinstance(recorded, _Said):  # the run has taken more steps by now, or fewer
                if self._under_way:
                    self._schedule.appendleft(recorded)
                    break
                await self._enter(msgspec.structs.replace(recorded, at=""))
                return
            if pending is not None and isinstance(recorded, log.Outcome):
                await self._rerun_effect(pending, recorded)
                return
        if not self._under_way:
            raise NotRecorded(self._steps[""][0])  # it waits for a turn that never came
        await self._rerun_effect(next(iter(self._under_way.values())), None)

    async def _rerun_effect(self, pending: Pending, recorded: log.Outcome | None) -> None:
        assert self._world is not None
        outcome = recorded
        if isinstance(pending.effect, Wait) and not isinstance(recorded, log.Stopped):
            outcome = self._at_time(log.Waited(at=pending.at), pending, recorded, pending.effect.ns)
        elif self._again(pending, self._under_way.values()) and not isinstance(recorded, log.Stopped):
            if isinstance(pending.effect, AskPerson):  # who was not asked when the run was recorded
                answer = redacted(self._redactor, self._world.answer(pending))
                self._let_in(msgspec.structs.replace(answer, t=self.now - pending.base))
                return
            made = redacted(self._redactor, await self._world.perform(pending))
            outcome = self._at_time(made, pending, recorded, 0 if recorded is None else recorded.took)
        if outcome is None or not fits(pending.effect, outcome):
            raise NotRecorded(pending.at)
        self.now = max(self.now, pending.base + outcome.t)
        self._end(pending, outcome)

    def _at_time(
        self, made: log.Outcome, pending: Pending, recorded: log.Outcome | None, took: int
    ) -> log.Outcome:
        """Return an outcome that was made again with its times; the system's clock is the record's."""
        t = pending.begun - pending.base + took
        if recorded is not None and self._has_system_clock:
            t, took = recorded.t, recorded.took
        return msgspec.structs.replace(made, t=t, took=took)

    async def _go_live(self) -> None:
        """Go on where the log ends: begin what is under way, but for what is in doubt and happened."""
        if self._world is None:
            raise NotRecorded(next(iter(self._under_way)))
        self._is_live = True
        self._redactor.recorded.clear()
        head = self.journal.events[0]
        deadline_s = head.deadline_s if isinstance(head, log.RunStarted) and "" not in self._stops else 0
        self._world.go_live(self.now, self._came, deadline_s * 1_000_000_000 or None)
        await self._world.store(self.journal.sync)
        words = {at: self._settled[at] for at in self.journal.doubts}
        for at, word in words.items():
            # the process may have died before, between a word and its outcome
            settled = (event for event in self.journal.events if isinstance(event, log.Settled))
            earlier = sum(is_in(event.at, at) for event in settled)
            t = self.now - self._under_way[at].base
            self._let_in(log.Settled(at=f"{at}.q{earlier + 1}", t=t, happened=word == "done"))
        for at, pending in list(self._under_way.items()):
            if words.get(at) == "done":
                self._world.finish(pending, self.now, log.ToolReturned(at=at))
            elif (why := self.stop_of(at)) is not None:
                self._world.cancel(pending, self.now, why)
            else:
                await self._world.start(pending)

    def _let_in(self, event: log.Entered) -> None:
        """Write what comes from outside, and do what follows from it."""
        self.journal.append(event)
        self._came.append((self.now, event))
        if isinstance(event, log.Answered):
            self._ready.append((self._under_way.pop(event.at).branch, event))
        elif isinstance(event, log.Arrived):
            self.post("", Message(USER, event.text))
        elif isinstance(event, log.CompactAsked):
            self.focus = event.focus
        elif isinstance(event, log.PlanAsked | log.UndoAsked):
            self.asked.append(event)
            self._wake(self._mailboxes[""])
        elif isinstance(event, log.Closed):
            self.is_closed = True
            self._wake(self._mailboxes[""])
        elif isinstance(event, log.StopAsked):
            self.stop(event.scope, event.why)
