"""A conversation with an agent at a terminal.

No turn is under way, or one is, or a person is asked about a call; what a typed line means depends on that alone.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.patch_stdout import patch_stdout

from ..evidence.agent_records import AgentRecords
from ..evidence.folder import partial_of
from ..evidence.project import Project
from ..evidence.record_files import lines_in
from ..evidence.report import turns_in
from ..evidence.run_source import RunSource
from ..evidence.sessions import Conversation
from ..fail.errors import InputError, did_you_mean
from ..runtime.driver import Words
from ..runtime.effects import AskPerson
from ..runtime.formats.durable_write import write_durably
from ..runtime.formats.strict_json import canonical
from ..runtime.log import events as log
from ..runtime.models.types import Piece, clean_text
from ..runtime.policy.prices import key_of
from ..runtime.run import RunMade
from ..runtime.world.people import Answer
from ..runtime.world.real import Real, run_in_new_loop
from .chat_lines import Lines, harmless, question_of, used_in
from .common import FAILED, INTERRUPTED, OK, count, end_as_by_ctrl_c, say
from .live import new_run, open_run, task_for_chat

_COMMANDS: Final = {
    "/help": "what can be typed here",
    "/plan": "have the agent make a plan again, which you allow or refuse",
    "/compact": "[FOCUS]: have the model sum up what went before",
    "/history": "the turns so far",
    "/tools": "what the agent may call",
    "/model": "the model, and what was used so far",
    "/undo": "take the last turn back: the model is not shown it any more",
    "/export": "[FILE]: write the turns so far as Markdown",
    "/quit": "end the conversation and record it, as Ctrl-D does",
    "//TEXT": "says a text that begins with /",
    "Ctrl-C": "interrupts a turn, as typing does; twice, it leaves the conversation open",
}
_SAY, _ALLOW, _WHY = "> ", "Allow this call? [y/n] ", "Why not? "
_YES, _NO = ("y", "yes"), ("n", "no")


def talk(
    project: Project,
    given: str,
    llm: str | None,
    base_url: str | None,
    options: Sequence[str],
    settled: Words,
) -> int:
    """Have a conversation at this terminal, new or going on, and return the exit code.

    Args:
        project: The project, or the records of an agent in code.
        given: The name of a profile, or a task, which may be that of a conversation; or the folder of a record.
        llm: The model as `PROVIDER:MODEL`; None for the one that is named there.
        base_url: The address of its service; None for the provider's own.
        options: Settings of its requests as `NAME=VALUE`.
        settled: A person's word on each effect in doubt, by its address.

    Raises:
        InputError: It cannot be had.
        InDoubt: Effects had begun when the process ended, and nobody says whether they happened.
    """
    task = None if isinstance(project, AgentRecords) else task_for_chat(project, given, llm)
    name = given if task is None else task.folder
    folder = project.folder(name)
    past = lines_in(partial_of(folder))
    if folder.is_dir():
        raise InputError("the conversation has ended", file=project.label(name), remedy="begin another one")
    if (past and (llm or options)) or (task is None and (llm or options or base_url)):
        what = "the options of a model" if task is None else "--llm and --llm-option"
        raise InputError("goes on with its own model", file=project.label(name), remedy=f"leave out {what}")

    def begin(partial: Path | None, started: Callable[[Real], None]) -> RunSource:
        def began(world: Real) -> None:
            world.on_piece = chat.on_piece
            started(world)

        if isinstance(project, AgentRecords):
            return project.conversation(partial, chat.approve, began)
        assert task is not None
        if partial is None:
            return new_run(task, llm, base_url, options, approve=chat.approve, started=began)
        return open_run(task, partial, base_url, approve=chat.approve, started=began)

    end_as_by_ctrl_c()  # the terminal is left as it was
    chat = Chat(name, past)
    conversation = Conversation(begin, lambda made: made, folder, chat.listen, settled)
    try:
        code, made = run_in_new_loop(chat.talk(conversation))
    except KeyboardInterrupt:  # while it is opened, or recorded
        code, made = INTERRUPTED, None
    if folder.is_dir():
        project.write_list()
        ended = [made.ended.ending, made.ended.mode] if made is not None and code != OK else []
        told = ", ".join([*filter(None, ended), count(len(chat.lines.ends()), "turn")])
        say(f"{name}: {told}, recorded in {project.label(name)}")
    elif chat.was_said:
        rest = [f" --base-url {base_url}"] if base_url else []
        rest += [f" --agent {project.named}"] if isinstance(project, AgentRecords) else []
        say(f"{name}: left open; `tachograph chat {name}{''.join(rest)}` goes on")
    else:  # nothing is left of it
        shutil.rmtree(partial_of(folder), ignore_errors=True)
        for empty in (folder.parent, folder.parent.parent):
            with suppress(OSError):  # others lie there
                empty.rmdir()
    return code


class Chat:
    """The terminal of a conversation.

    Args:
        name: Its name.
        past: The lines of its log so far.

    Attributes:
        lines: What is shown of it.
    """

    _talk: Conversation[RunMade]

    def __init__(self, name: str, past: Iterable[log.Event]) -> None:
        self._name, self.lines = name, Lines()
        for event in past:
            list(self.lines.note(event))
        self._works = self.was_said and not isinstance(self._last(log.Arrived | log.TurnEnded), log.TurnEnded)
        self._answer: asyncio.Future[Answer] | None = None  # of a person who is asked
        self._label, self._was_interrupt = _SAY, False  # whether Ctrl-C came last
        self._one_at_a_time = asyncio.Lock()
        self._jobs: list[asyncio.Task[Any]] = []  # what was said and has not been answered
        commands = [it for it in _COMMANDS if it[0] == "/"]
        self._session: PromptSession[str] = PromptSession(
            lambda: self._label,
            history=InMemoryHistory([it.text for it in self.lines.events if isinstance(it, log.Arrived)]),
            completer=WordCompleter(commands, meta_dict=_COMMANDS, sentence=True),
            bottom_toolbar=lambda: "working; Ctrl-C interrupts" if self._works else None,
            complete_while_typing=False,
        )
        self._buffer = self._session.default_buffer

    @property
    def was_said(self) -> bool:
        """Whether anything was said."""
        return self._last(log.Arrived) is not None

    def _last(self, kind: Any) -> log.Event | None:
        own = (it for it in reversed(self.lines.events) if isinstance(it, kind) and "/" not in it.at)
        return next(own, None)

    async def talk(self, conversation: Conversation[RunMade]) -> tuple[int, RunMade | None]:
        """Talk until somebody leaves or the run ends. Returns the exit code, and what the run came to if it ended."""
        async with conversation as self._talk:
            head, turn = self._head(), self._last(log.TurnEnded)
            click.echo(harmless(f"{self._name}: {key_of(head.model)} under {head.policy.file}"))
            click.echo(harmless("/help says what can be typed, /quit ends", dim=True))
            if isinstance(turn, log.TurnEnded):
                turns = count(len(self.lines.ends()), "turn")
                click.echo(harmless(f"{turns} so far; the last answer:", dim=True))
                click.echo(harmless(turn.answer or turn.ending))
            with patch_stdout(raw=True):
                typing, ended = asyncio.create_task(self._type()), asyncio.create_task(self._talk.ended())
                await asyncio.wait([typing, ended], return_when=asyncio.FIRST_COMPLETED)
                if not ended.done() and typing.result() == OK and self.was_said:
                    if self._works:
                        await self._talk.interrupt()
                    await self._talk.close()
                    await ended
                for job in (typing, *self._jobs):
                    job.cancel()
                await asyncio.gather(typing, *self._jobs, return_exceptions=True)
            if ended.done():
                made = ended.result()
                return OK if made.ended.ending == "final_answer" else FAILED, made
            ended.cancel()
            return typing.result(), None

    def _head(self) -> Any:
        return self._last(log.RunStarted | log.HandedOver)

    # ---- what the run tells ------------------------------------------------------------------------------------------

    def listen(self, event: log.Event) -> None:
        """Show a line of the log."""
        if isinstance(event, log.Arrived | log.TurnEnded) and "/" not in event.at:
            self._works = isinstance(event, log.Arrived)
        self._tell(self.lines.note(event))

    def on_piece(self, piece: Piece) -> None:
        """Show a piece of text, line by line."""
        self._tell(self.lines.piece(piece))

    def _tell(self, lines: Iterable[str]) -> None:
        for line in lines:
            click.echo(line, color=True)
        self._session.app.invalidate()

    async def approve(self, question: AskPerson) -> Answer:
        """Ask the person at the terminal about a call; calls side by side are asked about one after another."""
        async with self._one_at_a_time:
            draft = self._buffer.document  # what was typed before is not an answer
            self._buffer.reset()
            self._answer, self._label = asyncio.get_running_loop().create_future(), _ALLOW
            self._tell([question_of(question)])
            try:
                return await self._answer
            finally:  # also if the time is up, or the turn is interrupted
                self._answer, self._label = None, _SAY
                self._buffer.reset(draft)

    # ---- what is typed -----------------------------------------------------------------------------------------------

    async def _type(self) -> int:
        """Do what is typed until somebody leaves. Returns the exit code."""
        while True:
            try:
                text = clean_text(await self._session.prompt_async())
            except EOFError:
                return OK
            except KeyboardInterrupt:
                if self._was_interrupt:
                    return INTERRUPTED
                self._was_interrupt = True
                if self._works:
                    self._jobs.append(asyncio.create_task(self._talk.interrupt()))
                self._tell([harmless("press Ctrl-C again to leave", dim=True)])
                continue
            self._was_interrupt = False
            said = text.strip()
            command, _, rest = said.partition(" ")
            if command.lower() == "/quit":
                return OK
            if self._answer is not None and not self._answer.done():
                self._answered(said)
            elif self._works and said.lower() in _YES + _NO:  # too late for a question, or early for the next
                self._tell([harmless("there is no open question", dim=True)])
            elif said.startswith("/") and not said.startswith("//"):
                try:
                    self._tell(map(harmless, self._command(command.lower(), rest)))
                except InputError as error:
                    self._tell([harmless(str(error), fg="red")])
                except OSError as error:
                    self._tell([harmless(f"{error.filename}: {error.strerror}; name another file", fg="red")])
            elif said:
                said, works = said.removeprefix("/") if said.startswith("//") else said, self._works
                self._works = True
                turn = self._talk.interrupt(said) if works else self._talk.ask(said)
                self._jobs.append(asyncio.create_task(turn))

    def _answered(self, text: str) -> None:
        """Take a line as the answer of a person who is asked."""
        assert self._answer is not None
        if self._label == _WHY:
            self._answer.set_result(Answer("deny", "terminal", text))
        elif text.lower() in _YES:
            self._answer.set_result(Answer("allow", "terminal"))
        elif text.lower() in _NO:
            self._label = _WHY
        else:
            self._tell([harmless("answer y or n; Ctrl-C interrupts the turn", dim=True)])

    def _command(self, command: str, rest: str) -> list[str]:
        """Do a command, and return what to say."""
        head, events = self._head(), self.lines.events
        match command:
            case "/help":
                return [f"{name:9} {what}" for name, what in _COMMANDS.items()]
            case "/history":
                told = []
                for it in (it for it in events if "/" not in it.at):
                    told += [f"> {it.text}"] if isinstance(it, log.Arrived) else []
                    told += [it.answer or it.ending] if isinstance(it, log.TurnEnded) else []
                return told or ["nothing was said yet"]
            case "/tools":
                about = ((it.name, it.effect, it.description.partition("\n")[0]) for it in head.tools)
                return [*map("  ".join, about)] or ["the agent has no tools"]
            case "/model":
                models = " then ".join(map(key_of, [head.model, *(it.name for it in head.fallbacks)]))
                return [f"{models}  {canonical(head.options).decode()}", f"used so far: {used_in(events)}"]
            case "/export":
                file = Path(rest or f"{self._name.rpartition('/')[2]}.md")
                lines = [f"# Conversation {self._name}", "", *turns_in(events)]
                write_durably(file, "\n".join(lines).encode(), is_new=True)
                return [f"{file}: written"]
            case "/plan":
                self._talk.plan()
                return ["the agent makes a plan before it does anything else"]
            case "/compact":
                self._talk.compact(rest)
                return ["the model sums up what went before when it is asked next"]
            case "/undo":
                self._talk.undo()
                return []  # the log tells it
        return [f"there is no {command}; {did_you_mean(command, _COMMANDS, '/help says what there is')}"]
