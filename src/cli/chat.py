"""A conversation with an agent at a terminal.

The terminal is idle, or a turn is under way, or a person is asked about a call; what a typed line means depends on
that alone. Everything happens in one event loop: keys, what the run tells, and what is printed above the prompt.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.renderer import print_formatted_text
from prompt_toolkit.styles import Style

from ..evidence.folder import partial_of
from ..evidence.project import Project
from ..evidence.record_files import lines_in
from ..evidence.sessions import Conversation
from ..fail.errors import InputError, system_reason
from ..runtime.agent import run_in_new_loop
from ..runtime.driver import Word
from ..runtime.effects import AskPerson
from ..runtime.formats.escape import escape_terminal
from ..runtime.log import events as log
from ..runtime.models.types import Piece, clean_text
from ..runtime.run import RunMade
from ..runtime.world.people import Answer
from .chat_words import BAD, DIM, PLAIN, Line, Shown, exported, plain, question_of, wrapped
from .common import FAILED, INTERRUPTED, OK, count, say
from .live import conversation, task_for_chat

_TERMINATED: Final = 143
_COMMANDS: Final = {
    "/help": "what can be typed here",
    "/plan": "have the agent make a plan again, which you allow or refuse",
    "/compact": "[FOCUS]: have the model sum up what went before",
    "/history": "the turns so far, in short",
    "/tools": "what the agent may call",
    "/model": "the model, and what was used so far",
    "/undo": "take the last turn back: the model is not shown it any more",
    "/export": "[FILE]: write the conversation as Markdown",
    "/quit": "end the conversation and record it, as Ctrl-D does",
}
_KEYS: Final = {
    "//TEXT": "says a text that begins with /",
    "Esc-Enter": "goes on in another line, as \\ at the end of one does",
    "Ctrl-C": "interrupts a turn, as typing does; twice, it leaves the conversation open",
}
_SAY, _ALLOW, _AGAIN, _WHY = "> ", "Allow this call? [y/n] ", "Say y or n: ", "Why not? "


def talk(
    project: Project,
    given: str,
    llm: str | None,
    base_url: str | None,
    options: tuple[str, ...],
    settled: Mapping[str, Word],
) -> int:
    """Have a conversation at this terminal, new or going on, and return the exit code.

    Args:
        project: The project.
        given: The name of a profile, or a task, which may be that of a conversation.
        llm: The model as `PROVIDER:MODEL`; None for the one that is named there.
        base_url: The address of its service; None for the provider's own.
        options: Settings of its requests as `NAME=VALUE`.
        settled: A person's word on each effect in doubt, by its address.

    Raises:
        InputError: It cannot be had.
        InDoubt: Effects had begun when the process ended, and nobody says whether they happened.
    """
    task = task_for_chat(project, given, llm)
    folder, is_written = project.folder(task.folder), (task.root / task.file).exists()
    past = lines_in(partial_of(folder))
    if folder.is_dir():
        raise task.error("", "the conversation has ended", "begin another one with its profile or task")
    if isinstance(head := next(iter(past), None), log.RunStarted):
        known = f"{head.model.provider}:{head.model.name}"
        if options or llm not in (None, known):
            raise task.error("", f"goes on with {known} as it began", "leave out --llm and --llm-option")
    elif settled:
        raise task.error("", "begins, and nothing is in doubt", "leave out --done and --not-done")

    def opened(chat: Chat) -> Conversation[RunMade]:
        told = chat.approve, chat.listen, chat.on_piece
        return conversation(task, folder, llm, base_url, options, *told, settled)

    chat = Chat(task.folder, past, opened)
    code, made = run_in_new_loop(chat.talk())
    if not chat.shown.was_said:
        _leave_nothing(folder, None if is_written else task.root / task.file)
    elif made is None:
        url = f" --base-url {base_url}" if base_url else ""
        say(f"{task.folder}: left open; `tachograph chat {task.folder}{url}` goes on")
    else:
        project.write_list()
        ending = "" if code == OK else f"{', '.join(filter(None, (made.ended.ending, made.ended.mode)))}, "
        say(f"{task.folder}: {ending}{count(len(chat.shown.turns), 'turn')}, recorded in runs/{task.folder}")
    return code


def _leave_nothing(folder: Path, file: Path | None) -> None:
    """Remove what was made for a conversation in which nothing was said."""
    shutil.rmtree(partial_of(folder), ignore_errors=True)
    if file is not None:
        file.unlink(missing_ok=True)
    for above in (folder.parent, *([file.parent] if file is not None else [])):
        with suppress(OSError):  # others lie there
            above.rmdir()
            above.parent.rmdir()


class _Warnings(logging.Handler):
    """Hands warnings to whoever prints them."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.getMessage())


class Chat:
    """The terminal of a conversation.

    Args:
        name: Its name.
        past: The lines of its log so far.
        opened: Returns the conversation, given this.

    Attributes:
        shown: What is shown of it.
    """

    def __init__(
        self, name: str, past: Iterable[log.Event], opened: Callable[[Chat], Conversation[RunMade]]
    ) -> None:
        self._name, self.shown = name, Shown(past)
        self._works, self._is_closing = self.shown.is_under_way, False
        self._waiting: list[str] = []  # to be said once the turn under way has ended
        self._answer: asyncio.Future[Answer] | None = None  # of a person who is asked
        self._label = _SAY
        self._one_at_a_time, self._is_open = asyncio.Lock(), asyncio.Event()
        self._was_interrupt = False  # whether the last thing that was typed is Ctrl-C
        self._jobs: set[asyncio.Task[Any]] = set()
        self._talk = opened(self)
        self._session: PromptSession[str] = PromptSession(
            self._prompt,
            key_bindings=self._keys(),
            history=InMemoryHistory([turn.said for turn in self.shown.turns]),
            completer=WordCompleter([*_COMMANDS], meta_dict=_COMMANDS, sentence=True),
            complete_while_typing=False,
            reserve_space_for_menu=len(_COMMANDS) + 1,
            prompt_continuation="  ",
            erase_when_done=True,
        )
        self._buffer, self._app = self._session.default_buffer, self._session.app

    async def talk(self) -> tuple[int, RunMade | None]:
        """Talk until somebody leaves or the run ends. Returns the exit code, and what the run came to if it ended."""
        loop = asyncio.get_running_loop()
        self._left: asyncio.Future[int] = loop.create_future()
        async with self._talk:
            self._greet()
            logging.getLogger("tachograph").addHandler(
                _Warnings(partial(loop.call_soon_threadsafe, self._warn))
            )
            loop.add_signal_handler(signal.SIGINT, self._interrupt)
            loop.add_signal_handler(signal.SIGTERM, self._leave, _TERMINATED)
            with patch_stdout():
                typed = self._session.prompt_async(handle_sigint=False, pre_run=self._is_open.set)
                typing, ended = loop.create_task(typed), loop.create_task(self._talk.ended())
                ways: list[asyncio.Future[Any]] = [typing, ended, self._left]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                typing.cancel()
                await asyncio.gather(typing, return_exceptions=True)
            await run_in_terminal(lambda: None)  # what was printed last is on the screen
            if ended.done():
                made = ended.result()
                return OK if made.ended.ending == "final_answer" else FAILED, made
            ended.cancel()
            return self._left.result() if self._left.done() else INTERRUPTED, None  # or the terminal is gone

    def _warn(self, text: str) -> None:
        self._print((BAD, line) for line in plain(text))

    def _greet(self) -> None:
        head, turns = self.shown.head, self.shown.turns
        about = f"{self._name}: {head.model.provider}:{head.model.name} under {head.policy.file}"
        lines = [(PLAIN, escape_terminal(about)), (DIM, "/help says what can be typed, /quit ends")]
        if turns:
            lines += [(PLAIN, ""), (DIM, f"{count(len(turns), 'turn')} so far; of the last one:")]
            lines += [("bold", f"{_SAY}{line}") for line in plain(turns[-1].said)]
            lines += [(PLAIN, line) for line in plain(turns[-1].answer)]
        self._print([*lines, (PLAIN, "")])

    # ---- what the run tells ------------------------------------------------------------------------------------------

    def listen(self, event: log.Event) -> None:
        """Show a line of the log; after the end of a turn, say what waits."""
        if isinstance(event, log.Arrived | log.TurnEnded):
            self._works = isinstance(event, log.Arrived)
        lines = self.shown.lines_of(event)
        self._print([*lines, *([(PLAIN, "")] if lines and not self._works else [])])
        if self._waiting and not self._works:
            said, self._waiting = "\n".join(self._waiting), []
            self._say(said)
        self._app.invalidate()

    def on_piece(self, piece: Piece) -> None:
        """Show a piece of text: whole lines above the prompt, and the beginning of one just above it."""
        self._print(self.shown.pieces(piece, self._width))
        self._app.invalidate()

    async def approve(self, question: AskPerson) -> Answer:
        """Ask the person at the terminal about a call; calls side by side are asked about one after another."""
        async with self._one_at_a_time:
            await self._is_open.wait()
            self._print(question_of(question))
            await run_in_terminal(lambda: None)  # it is on the screen now
            draft = self._buffer.document
            self._drop_keys()
            self._buffer.reset()
            self._answer, self._label = asyncio.get_running_loop().create_future(), _ALLOW
            self._app.invalidate()
            try:
                return await self._answer
            finally:  # also if the time is up or the turn is interrupted, of which the log tells
                self._answer, self._label = None, _SAY
                self._buffer.reset(draft)
                self._app.invalidate()

    def _drop_keys(self) -> None:
        """Drop keys that were pressed before; what the terminal itself reports is none of them."""
        self._app.key_processor.empty_queue()
        while read := self._app.input.read_keys():
            self._app.key_processor.feed_multiple([key for key in read if key.key == Keys.CPRResponse])
        self._app.key_processor.process_keys()

    # ---- what is typed -----------------------------------------------------------------------------------------------

    def _keys(self) -> KeyBindings:
        keys, is_here = (
            KeyBindings(),
            has_focus(DEFAULT_BUFFER),
        )  # and not in a search of what was typed before

        @keys.add("enter", filter=is_here)
        def _(event: KeyPressEvent) -> None:
            if self._buffer.text.endswith("\\") and self._buffer.document.is_cursor_at_the_end:
                self._buffer.delete_before_cursor()
                self._buffer.insert_text("\n")
            else:
                text = clean_text(self._buffer.text)
                self._buffer.reset(append_to_history=self._answer is None)
                self._typed(text)

        @keys.add("escape", "enter", filter=is_here)
        def _(event: KeyPressEvent) -> None:
            self._buffer.insert_text("\n")

        @keys.add("c-c", filter=is_here)
        def _(event: KeyPressEvent) -> None:
            self._interrupt()

        @keys.add("c-d", filter=is_here & Condition(lambda: not self._buffer.text))
        def _(event: KeyPressEvent) -> None:
            self._quit()

        return keys

    def _typed(self, text: str) -> None:
        """Do what a line says."""
        self._was_interrupt = False
        said = text.strip()
        if said or self._answer is not None:
            indent = " " * len(self._label)
            self._print(
                ("bold", f"{indent if n else self._label}{line}") for n, line in enumerate(plain(text))
            )
        if self._answer is not None:
            self._answered(said)
        elif text.startswith("/") and not text.startswith("//"):
            command, _, rest = said.partition(" ")
            try:
                lines = self._command(command, rest.strip())
            except InputError as error:  # the run has ended meanwhile
                lines = [(DIM, escape_terminal(str(error)))]
            self._print([*lines, *([(PLAIN, "")] if lines else [])])
        elif said:
            self._say(said[1:] if text.startswith("//") else said)

    def _answered(self, text: str) -> None:
        """Take a line as the answer of a person who is asked."""
        assert self._answer is not None
        if self._answer.done():
            return
        if self._label == _WHY:
            self._answer.set_result(Answer("deny", "terminal", text))
        elif text.lower() in ("y", "yes"):
            self._answer.set_result(Answer("allow", "terminal"))
        else:
            self._label = _WHY if text.lower() in ("n", "no") else _AGAIN

    def _say(self, text: str) -> None:
        """Say something to the agent, once what is under way has been interrupted."""
        if self._is_closing:
            return
        if self._works:
            self._waiting.append(text)
            if len(self._waiting) == 1:
                self._do(self._talk.interrupt())
        else:
            self._works = True
            self._do(self._talk.ask(text))

    def _interrupt(self) -> None:
        """Do what Ctrl-C does."""
        if self._buffer.text and not self._works:
            self._buffer.reset()
        elif self._was_interrupt:
            self._leave(INTERRUPTED)
        else:
            self._was_interrupt = True
            what = f"{'interrupted; ' if self._works else ''}press Ctrl-C again to leave"
            self._print([*self.shown.rest_of_reply(), (DIM, what)])
            if self._works:
                self._do(self._talk.interrupt())

    def _quit(self) -> None:
        """Close the conversation, whose record is put in place then; one in which nothing was said is left."""
        if not (self.shown.was_said or self._works):
            self._leave(OK)
        elif not self._is_closing:
            self._is_closing = True
            self._waiting.clear()
            if self._works:
                self._do(self._talk.interrupt())
            self._do(self._talk.close())

    def _leave(self, code: int) -> None:
        if not self._left.done():
            self._left.set_result(code)

    def _do(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        job = asyncio.get_running_loop().create_task(coroutine)
        self._jobs.add(job)
        job.add_done_callback(self._done)

    def _done(self, job: asyncio.Task[Any]) -> None:
        self._jobs.discard(job)
        if not job.cancelled():
            job.exception()  # the run has ended, which is told by itself

    def _command(self, command: str, rest: str) -> list[Line]:
        """Do a command, and return what to say."""
        match command:
            case "/help":
                return [(PLAIN, f"{name:9} {what}") for name, what in {**_COMMANDS, **_KEYS}.items()]
            case "/history":
                return self.shown.history()
            case "/tools":
                return self.shown.tools()
            case "/model":
                return self.shown.model()
            case "/export":
                return [(DIM, self._export(Path(rest or f"{self._name.rpartition('/')[2]}.md")))]
            case "/quit":
                self._quit()
                return []
            case "/plan" if self.shown.head.plan is None:
                return [
                    (DIM, "the agent has no policy for a plan; name one under plan in its profile or task")
                ]
            case "/plan":
                self._talk.plan()
                return [(DIM, "the agent makes a plan before it does anything else")]
            case "/compact":
                self._talk.compact(rest)
                return [(DIM, "the model sums up what went before when it is asked next")]
            case "/undo" if all(turn.is_undone for turn in self.shown.turns):
                return [(DIM, "there is no turn to take back")]
            case "/undo":
                self._talk.undo()
                return []  # the log tells it
        return [(DIM, f"there is no {escape_terminal(command)}; there are {', '.join(_COMMANDS)}")]

    def _export(self, file: Path) -> str:
        """Write the conversation into a file that is not there yet, and return what to say."""
        try:
            with file.open("x", encoding="utf-8") as out:
                out.write(exported(self._name, self.shown.events))
        except OSError as error:
            reason = "is there already" if isinstance(error, FileExistsError) else system_reason(error)
            return escape_terminal(f"{file}: {reason}; name another file")
        return escape_terminal(f"{file}: written")

    # ---- the terminal ------------------------------------------------------------------------------------------------

    @property
    def _width(self) -> int:
        return max(20, self._app.output.get_size().columns - 1)

    def _prompt(self) -> FormattedText:
        above = [(PLAIN, f"{self.shown.rest}\n")] if self.shown.rest else []
        if self._works and not above and self._answer is None:
            above = [(DIM, "working; Ctrl-C interrupts\n")]
        return FormattedText([*above, ("bold", self._label)])

    def _print(self, lines: Iterable[Line]) -> None:
        """Print harmless lines above the prompt."""
        text = FormattedText(
            [(style, f"{it}\n") for style, line in lines for it in wrapped(line, self._width)]
        )
        if text:
            run_in_terminal(lambda: print_formatted_text(self._app.output, text, Style([])))
