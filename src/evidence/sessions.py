"""Conversations of an agent in code: turn by turn, on one log, over any number of processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Generic, Self, TypeVar, Unpack

from ..fail.errors import InputError
from ..runtime.agent import Agent
from ..runtime.driver import Words
from ..runtime.log import events as log
from ..runtime.log.addresses import place_of
from ..runtime.log.journal import tell
from ..runtime.log.values import THIS_STEP
from ..runtime.models.types import Piece, whole_text
from ..runtime.run import RunMade
from ..runtime.run_result import RunOptions, RunResult, Turn, reached
from ..runtime.schema.answer_type import AnswerType
from ..runtime.world.real import Real, Tell, streamed
from .agent_runs import AgentRun, cleared, folder_of, new_run
from .folder import copy_turns, has_begun, partial_of, where_it_lies
from .record import Listen, record_async, resume_async
from .record_files import STATE, events_in
from .run_source import RunSource

Made = TypeVar("Made")
Begin = Callable[[Path | None, Callable[[Real], None]], RunSource]
"""Returns what a conversation is made from, new or as a folder holds it; a function is to be given its world."""


def opened_before() -> InputError:
    """Return what to say of a conversation that is opened a second time."""
    return InputError("the conversation was opened before", remedy="make another one at its path")


class Conversation(Generic[Made]):
    """A conversation that goes on from turn to turn; to be used as an asynchronous context manager.

    Its log lies in `PATH.partial` until it is closed, and then the four files of a record in `PATH`. A process may end
    at any time: another one at the same path goes on from there.

    Args:
        begin: What it is made from.
        result_of: Makes what `close` returns of a run that has ended.
        path: Where the record goes.
        listen: Is told of each line of the log.
        settled: A person's word, `done` or `not_done`, on each effect in doubt, by its address.

    Attributes:
        turns: The turns so far, also those that were taken back.
        world: The world of the run, whose `stop` may be called from any thread; None before it has begun.

    Raises:
        OutputError: A record lies there, or another process has the conversation.
        RecordError: The log of one that goes on is damaged.
        Diverged: What it is made from is not that of the log any more.
    """

    def __init__(
        self,
        begin: Begin,
        result_of: Callable[[RunMade], Made],
        path: Path,
        listen: Listen | None = None,
        settled: Words | None = None,
    ) -> None:
        self._begin, self._result_of = begin, result_of
        self._path, self._listen, self._settled = cleared(path), listen, settled or {}
        self._has_plan = False
        self._tell: Tell | None = None
        self._lines: list[log.Event] = []  # of the turn under way
        self.turns: list[Turn] = []
        self._is_idle = asyncio.Event()  # whether no turn is under way
        self._is_idle.set()
        self._asking = asyncio.Lock()
        self._has_begun = asyncio.Event()
        self.world: Real | None = None
        self._run: asyncio.Task[RunMade] | None = None

    async def __aenter__(self) -> Self:
        if self._run is not None:
            raise opened_before()
        partial = partial_of(cleared(self._path))
        past = events_in(partial, f"{partial}/{STATE}") if has_begun(partial) else []
        source = self._begin(partial if past else None, self._began)
        if not source.run_spec().is_session:
            remedy = "go on with it by `tachograph.resume`"
            raise InputError("this run is not a conversation", file=str(self._path), remedy=remedy)
        for event in past:
            self._note(event)
        if past:
            run = resume_async(source, self._path, self._settled, self._hear)
        else:
            run = record_async(source, self._path, self._hear)
        self._run = asyncio.create_task(run)
        try:
            await self._until(self._has_begun)
        except BaseException:
            await self.__aexit__()
            raise
        if self._run.done():
            # what ends it before anything is asked, such as an effect in doubt, is raised here
            self._made(self._run)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._run is not None and not self._run.done():
            self._run.cancel()  # it is left to the next Session
            # waits until it is over, and raises if whoever leaves is cancelled meanwhile
            await asyncio.gather(self._run, return_exceptions=True)
            if not self._run.cancelled():
                self._run.result()

    def _began(self, world: Real) -> None:
        self.world = world
        self._has_begun.set()

    def _type_of(self, lines: list[log.Event]) -> AnswerType | None:
        """Return the type of the answer of the next turn, given its lines."""
        return None

    def _note(self, event: log.Event) -> None:
        self._lines.append(event)
        if isinstance(event, log.RunStarted | log.HandedOver) and not place_of(event.at):
            self._has_plan = event.plan is not None
        elif isinstance(event, log.Arrived):
            self._is_idle.clear()
        elif isinstance(event, log.TurnEnded) and not place_of(event.at):
            lines, self._lines = self._lines, []
            about = reached(event, lines, self._type_of(lines))
            self.turns.append(Turn(number=len(self.turns) + 1, **about))
            self._is_idle.set()

    def _hear(self, event: log.Event) -> None:
        self._note(event)
        self._listen = tell(self._listen, event)
        self._say(event)
        if self._is_idle.is_set():
            self._tell = None  # what comes next is of another turn

    def _say(self, what: log.Event | Piece) -> None:
        """Tell it to whoever asked, unless that function has raised."""
        self._tell = tell(self._tell, what)

    async def ask(self, text: str, *, tell: Tell | None = None) -> Turn:
        """Say something, and return the turn when it has ended. A turn under way is waited for.

        Args:
            text: What is said.
            tell: Is told each line of the turn, and pieces of text while they come.

        Raises:
            InputError: The conversation has ended, or is not open, or the text is not plain Unicode text.
        """
        arrived = log.Arrived(at="", text=whole_text(text, "the message"))
        async with self._asking:
            await self._until(self._is_idle)
            number = len(self.turns)
            self._enter(arrived)
            self._is_idle.clear()
            assert self.world is not None
            self._tell, shown = tell, self.world.on_piece
            if tell is not None:
                self.world.on_piece = self._say
            try:
                await self._until(self._is_idle)
            finally:
                self._tell, self.world.on_piece = None, shown
            return self.turns[number]

    def stream(self, text: str) -> AsyncGenerator[log.Event | Piece, None]:
        """Say something, and yield each line of its turn as it is written, and pieces of text while they come.

        The last is a TurnEnded. The turn goes on where the loop is left early.

        Args:
            text: What is said.

        Raises:
            InputError: As of `ask`, from the generator.
        """
        return streamed(lambda tell: self.ask(text, tell=tell))

    async def interrupt(self, text: str = "") -> Turn | None:
        """Stop what is under way, whose turn ends as `cancelled`, and say something else unless the text is empty.

        Args:
            text: What is said.

        Returns:
            The turn that answers the text; None without one.

        Raises:
            InputError: As of `ask`.
        """
        said = whole_text(text, "the message")
        self._enter(log.StopAsked(at="", scope=THIS_STEP, why="interrupted"))
        return await self.ask(said) if said else None

    def compact(self, focus: str = "") -> None:
        """Ask for a summary of what went before, which the model makes before it is asked anything else.

        Args:
            focus: What matters in it; empty for all.

        Raises:
            InputError: As of `ask`.
        """
        self._enter(log.CompactAsked(at="", focus=whole_text(focus, "the focus")))

    def plan(self) -> None:
        """Have the agent plan again: its policy for a plan holds until a person has allowed the next one.

        Raises:
            InputError: It has none.
        """
        if not self._has_plan:
            raise InputError("the agent has no policy for a plan", remedy="name one as its plan")
        self._enter(log.PlanAsked(at=""))

    def undo(self) -> None:
        """Take the last turn back: the model is not shown it any more. What it did is done, and stays in the log.

        Raises:
            InputError: A turn is under way.
        """
        if not self._is_idle.is_set():
            raise InputError("a turn is under way", remedy="interrupt it first")
        self._enter(log.UndoAsked(at=""))

    async def close(self) -> Made:
        """End the conversation when it is idle, unless it has ended, and put the four files of its record in place.

        Returns:
            What the run came to.

        Raises:
            InputError: The conversation is not open, or was left.
        """
        if self._run is None or not self._run.done():
            await self._until(self._is_idle)
            self._enter(log.Closed(at=""))
        return await self.ended()

    async def ended(self) -> Made:
        """Return what the run came to, once it has ended and its record is in place. Raises as `close` does."""
        run = self._opened()
        await asyncio.wait([run])  # whoever no longer waits does not cancel it
        return self._result_of(self._made(run))

    def _opened(self) -> asyncio.Task[RunMade]:
        """Return the run. Raises InputError where the conversation was never opened."""
        if self._run is None:
            raise InputError("the conversation is not open", remedy="open a Session")
        return self._run

    def _made(self, run: asyncio.Task[RunMade]) -> RunMade:
        """Return what the run came to, and raise what ended it."""
        if run.cancelled():  # not a cancellation of whoever asks
            raise InputError("the conversation was left", remedy="open a Session at its path again")
        return run.result()

    def _enter(self, event: log.Entered) -> None:
        if self.world is None or self._run is None or self._run.done():
            raise InputError("the conversation is not open, or has ended", remedy="open a Session")
        self.world.enter(event)

    async def _until(self, event: asyncio.Event) -> None:
        """Wait for an event; what ends the run before is raised."""
        if event.is_set():
            return  # at once, so that what is said enters before an interrupt that is asked for after it
        run = self._opened()
        waiting = asyncio.create_task(event.wait())
        try:
            await asyncio.wait([waiting, run], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if run.done() and not event.is_set():
            self._made(run)
            raise InputError("the conversation has ended", remedy="begin another one")


class Session(Conversation[RunResult]):
    """A conversation with an agent in code, to be used by `async with`; Conversation says what it raises.

    Args:
        agent: The agent.
        path: Where the record goes.
        listen: Is told of each line of the log.
        settled: A person's word, `done` or `not_done`, on each effect in doubt, by its address.
        **options: See RunOptions; a conversation that goes on keeps those that it began with, except for `deps`.
    """

    def __init__(
        self,
        agent: Agent,
        path: str | Path,
        *,
        listen: Listen | None = None,
        settled: Words | None = None,
        **options: Unpack[RunOptions],
    ) -> None:
        def begin(folder: Path | None, started: Callable[[Real], None]) -> RunSource:
            if folder is None:
                return new_run(agent, "", options, is_session=True, started=started)
            return AgentRun.of(agent, folder, started=started, deps=options.get("deps"))

        folder = folder_of(agent, path)
        super().__init__(begin, agent.result_of, folder, listen, settled)
        self._agent, self._options, self._type = agent, options, agent.answer_type

    def _type_of(self, lines: list[log.Event]) -> AnswerType | None:
        self._type = self._agent.type_of_answer(lines, self._type)
        return self._type

    def fork(self, turn: int, path: str | Path) -> Session:
        """Return a conversation of its own that begins with the turns of this one up to a number.

        Private mounts are copied as they are now. What an external tool did is not done again.

        Args:
            turn: The number of the last turn that both have.
            path: As of Session.

        Raises:
            InputError: There is no such turn.
            OutputError: The path cannot be used, or the folder cannot be copied.
        """
        other = Session(self._agent, path, listen=self._listen, **self._options)
        copy_turns(where_it_lies(self._path), turn, other._path)
        return other
