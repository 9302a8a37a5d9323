"""A conversation in words: what its terminal shows of it, and what is exported as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import structs
from prompt_toolkit.utils import get_cwidth

from ..evidence.report import quoted
from ..evidence.show import words
from ..runtime.effects import AskPerson
from ..runtime.formats.escape import code_span, escape_markdown, escape_terminal, truncate
from ..runtime.log import events as log
from ..runtime.log.addresses import place_of
from ..runtime.log.values import USER, Call, ModelChoice
from ..runtime.models.types import Piece, call_text
from ..runtime.policy.prices import in_words
from ..runtime.tools.agents import EXIT_PLAN
from .common import count

Line = tuple[str, str]
"""A style of prompt_toolkit and a harmless line of text."""

PLAIN: Final = ""
DIM: Final = "ansibrightblack"
_GOOD: Final = "ansigreen"
_BAD: Final = "ansired"
_LOUD: Final = "ansiyellow"
_MOST: Final = 300  # characters of a line about a call


class Shown:
    """Says in lines what happens in a conversation, to somebody who is there.

    Args:
        past: The lines of its log so far.
        width: The columns of the terminal.

    Attributes:
        events: All lines of its log.
        rest: The beginning of a line that a model has not finished.
        width: As given; may be changed.
    """

    def __init__(self, past: Iterable[log.Event], width: int) -> None:
        self.events: list[log.Event] = []
        self.rest, self.width = "", width
        self._calls: dict[str, Call] = {}
        self._streamed = ""  # the address of the reply whose pieces came last
        for event in past:
            self._note(event)

    @property
    def head(self) -> log.RunStarted:
        """The first line of the log."""
        head = self.events[0]
        assert isinstance(head, log.RunStarted)
        return head

    @property
    def was_said(self) -> bool:
        """Whether anything came from outside."""
        return any(isinstance(event, log.Entered) for event in self.events)

    @property
    def is_under_way(self) -> bool:
        """Whether a turn has begun that has not ended."""
        last = [event for event in self.events if isinstance(event, log.Arrived | log.TurnEnded)][-1:]
        return isinstance(last[0], log.Arrived) if last else False

    def _note(self, event: log.Event) -> None:
        self.events.append(event)
        above, _, last = event.at.rpartition(".")
        if isinstance(event, log.ModelReplied) and last[0] == "m":
            self._calls |= {f"{above}.c{n}": call for n, call in enumerate(event.calls)}
        elif isinstance(event, log.Proposed):
            self._calls[above] = event.call
        elif (
            isinstance(event, log.HookAnswered)
            and above in self._calls
            and "arguments" in (event.answer or {})
        ):
            changed = (event.answer or {})["arguments"]
            self._calls[above] = structs.replace(self._calls[above], arguments=changed)

    def _call_at(self, at: str) -> Call | None:
        """Return the call that an address belongs to, None if it is that of a step."""
        while at and at not in self._calls:
            at = at.rpartition(".")[0]
        return self._calls.get(at)

    def lines_of(self, event: log.Event) -> list[Line]:
        """Note a new line of the log, and return what to show of it."""
        self._note(event)
        return [*(self.rest_of_reply() if event.at == self._streamed else ()), *self._of(event)]

    def pieces(self, piece: Piece) -> list[Line]:
        """Return the lines that a piece of text completes; those of agents below are shown when they are whole."""
        if "/" in piece.at or ".m" not in piece.at:
            return []
        before = self.rest_of_reply() if piece.at != self._streamed else []
        self._streamed = piece.at
        # each character is escaped by itself, so that a sequence which a piece cuts in two is harmless as well
        *whole, rest = (self.rest + _plain(piece.text)).split("\n")
        *full, self.rest = wrapped(rest, self.width)
        return [
            *before,
            *((PLAIN, it) for line in whole for it in wrapped(line, self.width)),
            *_lines(PLAIN, full),
        ]

    def text(self, text: str) -> list[Line]:
        """Return a text of several lines."""
        return [(PLAIN, it) for line in _plain(text).split("\n") for it in wrapped(line, self.width)]

    def rest_of_reply(self) -> list[Line]:
        """Return the line that a model has not finished, if there is one."""
        rest, self.rest = self.rest, ""
        return [(PLAIN, rest)] if rest else []

    def _of(self, event: log.Event) -> Iterator[Line]:
        place = place_of(event.at)
        indent = f"{'  ' * place.count('/')}{place} " if place else ""
        for style, line in self._said(event):
            yield style, escape_terminal(f"{indent}{line}")

    def _said(self, event: log.Event) -> Iterator[Line]:
        call = self._call_at(event.at)
        about = f"{truncate(f'{call.name} {call_text(call)}', _MOST)}  " if call else ""
        match event:
            case log.ModelReplied() if event.problem:
                yield _BAD, words(event)
            case log.ModelReplied() if event.at.rpartition(".")[2][0] == "m" and event.at != self._streamed:
                text = event.text if event.answer is None else event.answer
                yield from self.text(text) if text.strip() else ()
            case log.Decided(decision="allow"):
                yield _GOOD, f"{about}allow"
            case log.Decided(decision="deny"):
                yield _BAD, f"{about}{words(event)}"
            case log.Answered():
                end = ": the call is refused" if event.answer == "silence" else ""
                yield _GOOD if event.answer == "allow" else _BAD, f"{about}{words(event)}{end}"
            case log.Failed():
                who = call.name if call else "the model" if ".k" not in event.at else "a hook"
                yield _BAD, f"{who} {words(event)}"
            case log.CallEnded() if "error" in event.told:
                yield _BAD, f"{about}{words(event)}"
            case log.Received() if any(it.sender != USER for it in event.messages):
                theirs = [it for it in event.messages if it.sender != USER]
                yield DIM, words(structs.replace(event, messages=theirs))
            case log.AgentEnded() if event.ending != "final_answer":
                yield _BAD, words(event)
            case log.Compacted() | log.Settled() | log.HandedOver() | log.ToolReturned(result=None):
                yield DIM, words(event)
            case log.StopAsked(scope=""):
                yield _BAD, words(event)
            case log.TurnEnded():
                yield _BAD if event.mode else DIM, self._status(event)

    def _status(self, end: log.TurnEnded) -> str:
        ends = [n for n, event in enumerate(self.events) if isinstance(event, log.TurnEnded)]
        begin = ends[-2] if len(ends) > 1 else 0
        why = f" ({end.mode})" if end.mode else ""
        ending = "" if end.ending == "final_answer" else f"{end.ending}{why}, "
        return f"turn {len(ends)}: {ending}{_used(self.events[begin:])}"

    # ---- what commands say -------------------------------------------------------------------------------------------

    def history(self) -> list[Line]:
        """Return each turn in short: what was said, and the answer."""
        found: list[Line] = []
        for number, (said, end, is_undone) in enumerate(self._turns(), 1):
            mark = " (taken back)" if is_undone else ""
            answer = "under way" if end is None else end.ending if end.answer is None else end.answer
            found.append((PLAIN, f"{number:>3}  {_short(said, self.width)}"))
            found.append((DIM, f"     {_short(answer, self.width - len(mark))}{mark}"))
        return found or [(DIM, "nothing was said yet")]

    def _turns(self) -> list[tuple[str, log.TurnEnded | None, bool]]:
        """Return of each turn what was said, its end, and whether it was taken back."""
        turns: list[tuple[str, log.TurnEnded | None, bool]] = []
        for event in self.events:
            if isinstance(event, log.Arrived):
                turns.append((event.text, None, False))
            elif isinstance(event, log.TurnEnded) and turns:
                turns[-1] = (turns[-1][0], event, False)
            elif isinstance(event, log.Compacted) and event.undone:
                last = max(n for n, turn in enumerate(turns) if not turn[2])
                turns[last] = (*turns[last][:2], True)
        return turns

    def can_undo(self) -> bool:
        """Return whether a turn is left that was not taken back."""
        return not all(is_undone for _, _, is_undone in self._turns())

    def tools(self) -> list[Line]:
        """Return the tools that the agent has now: name, effect, first line of the description."""
        heads = [
            it for it in self.events if isinstance(it, log.RunStarted | log.HandedOver) and "/" not in it.at
        ]
        tools = heads[-1].tools
        width = max((len(tool.name) for tool in tools), default=0)
        lines = (f"{it.name:{width}}  {it.effect:8}  {_short(it.description, self.width)}" for it in tools)
        return [(PLAIN, line) for line in lines] or [(DIM, "the agent has no tools")]

    def model(self) -> list[Line]:
        """Return the model and its fallbacks with their options, and what was used so far."""
        choices = [ModelChoice(self.head.model, self.head.options), *self.head.fallbacks]
        lines = []
        for number, it in enumerate(choices):
            options = f"  {log.encode(it.options).decode()}" if it.options else ""
            what = f"fallback {number}" if number else "model"
            lines.append((PLAIN, escape_terminal(f"{what:10}  {it.name.provider}:{it.name.name}{options}")))
        return [*lines, (PLAIN, f"{'used':10}  {_used(self.events)}")]

    def texts(self) -> list[str]:
        """Return what was said so far."""
        return [event.text for event in self.events if isinstance(event, log.Arrived)]


def _used(events: Sequence[log.Event]) -> str:
    """Return how many steps, tokens and what money some lines are about."""
    steps = [event for event in events if isinstance(event, log.StepEnded)]
    usages = [event.usage for event in events if isinstance(event, log.ModelReplied)]
    tokens, cost = sum(it.input_tokens + it.output_tokens for it in usages), sum(it.cost for it in steps)
    return ", ".join([count(len(steps), "step"), count(tokens, "token"), *([in_words(cost)] if cost else [])])


def question_of(question: AskPerson) -> list[Line]:
    """Return what is asked of a person: the whole call, and the rule that asks; of a plan its text."""
    call, arguments = question.call, question.call.arguments or {}
    why = escape_terminal(f"{question.rule}: {question.reason} ({question.place})")
    if call.name == EXIT_PLAN and isinstance(arguments.get("plan"), str):
        plan = [f"  {line}" for line in _plain(arguments["plan"]).split("\n")]
        return [(_LOUD, "The agent shows its plan:"), *_lines(PLAIN, plan), (DIM, why)]
    return [(_LOUD, escape_terminal(f"The agent proposes {call.name} {call_text(call)}")), (DIM, why)]


def exported(name: str, events: Sequence[log.Event]) -> str:
    """Return a conversation as Markdown: what was said, calls with their decisions, and answers.

    Args:
        name: Its name.
        events: The lines of its log.
    """
    shown, parts, turns = Shown((), 1_000_000), [f"# Conversation {escape_markdown(name)}"], 0
    for event in events:
        lines = shown.lines_of(event)
        if isinstance(event, log.Arrived):
            turns += 1
            parts += [f"## Turn {turns}", "\n".join(quoted(event.text))]
        if texts := [line for style, line in lines if style == PLAIN]:
            parts.append("\n".join(quoted("\n".join(texts))))
        parts += [f"- {code_span(line, 2 * _MOST)}" for style, line in lines if style != PLAIN]
    return "\n\n".join(parts) + "\n"


def wrapped(line: str, width: int) -> list[str]:
    """Return a line as lines of so many columns at most, broken at blanks where there are any; at least one."""
    lines, columns, begin, blank = [], 0, 0, 0
    for n, character in enumerate(line):
        columns += get_cwidth(character)
        if columns > width and n > begin and character != " ":
            end = blank if blank > begin else n
            lines.append(line[begin:end].rstrip(" "))
            begin, columns = end, sum(map(get_cwidth, line[end : n + 1]))
        if character == " ":
            blank = n + 1
    return [*lines, line[begin:]]


def _plain(text: str) -> str:
    r"""Return a text of several lines that is harmless at a terminal; of `\r\n` the first character is left out."""
    lines = text.replace("\r", "").replace("\t", "    ").split("\n")
    return "\n".join(map(escape_terminal, lines))


def _short(text: str, width: int) -> str:
    return escape_terminal(truncate(next(iter(text.strip().splitlines()), ""), max(20, width - 20)))


def _lines(style: str, lines: Iterable[str]) -> list[Line]:
    return [(style, line) for line in lines]
