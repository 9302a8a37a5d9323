"""A conversation in words: what its terminal shows of it, and what is exported as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct, structs
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
BAD: Final = "ansired"
_LOUD: Final = "ansiyellow"
_MOST: Final = 300  # characters of a line about a call


class Shown:
    """Says in lines what happens in a conversation, to somebody who is there.

    Args:
        past: The lines of its log so far.

    Attributes:
        events: All lines of its log.
        rest: The beginning of a line that a model has not finished.
    """

    def __init__(self, past: Iterable[log.Event] = ()) -> None:
        self.events: list[log.Event] = []
        self.rest = ""
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
        is_over = event.at == self._streamed or isinstance(event, log.StopAsked)
        return [*(self.rest_of_reply() if is_over else ()), *self._of(event)]

    def pieces(self, piece: Piece, width: int) -> list[Line]:
        """Return the lines that a piece of text completes; those of agents below are shown when they are whole."""
        if "/" in piece.at or ".m" not in piece.at:
            return []
        before = self.rest_of_reply() if piece.at != self._streamed else []
        self._streamed = piece.at
        # each character is escaped by itself, so that a sequence which a piece cuts in two is harmless as well
        *whole, rest = plain(self.rest + piece.text)
        *full, self.rest = wrapped(rest, width)
        return [*before, *((PLAIN, line) for line in whole + full)]

    def rest_of_reply(self) -> list[Line]:
        """Return the line that a model has not finished, if there is one."""
        rest, self.rest = self.rest, ""
        return [(PLAIN, rest)] if rest else []

    def _of(self, event: log.Event) -> Iterator[Line]:
        place, call = place_of(event.at), self._call_at(event.at)
        indent = f"{'  ' * place.count('/')}{place} " if place else ""
        about = f"{truncate(f'{call.name} {call_text(call)}', _MOST)}  " if call else ""
        for style, line in self._said(event, about):
            yield style, escape_terminal(f"{indent}{line}")

    def _said(self, event: log.Event, about: str) -> Iterator[Line]:
        match event:
            case log.ModelReplied() if event.problem:
                yield BAD, words(event)
            case log.ModelReplied() if ".m" in event.at and event.at != self._streamed:
                text = event.text if event.answer is None else event.answer
                yield from ((PLAIN, line) for line in (plain(text) if text.strip() else ()))
            case log.Decided(decision="allow"):
                yield _GOOD, f"{about}allow"
            case log.Decided(decision="deny"):
                yield BAD, f"{about}{words(event)}"
            case log.Answered():
                end = ": the call is refused" if event.answer == "silence" else ""
                yield (
                    _GOOD if event.answer == "allow" else BAD,
                    f"{about.partition(' ')[0]}  {words(event)}{end}",
                )
            case log.Failed():
                who = about or ("a hook " if ".k" in event.at else "the model ")
                yield BAD, f"{who}{words(event)}"
            case log.CallEnded() if "error" in event.told:
                yield BAD, f"{about}{words(event)}"
            case log.Received() if theirs := [it for it in event.messages if it.sender != USER]:
                yield DIM, words(structs.replace(event, messages=theirs))
            case log.AgentEnded() if event.ending != "final_answer":
                yield BAD, words(event)
            case log.Compacted() | log.Settled() | log.HandedOver() | log.ToolReturned(result=None):
                yield DIM, words(event)
            case log.StopAsked(scope=""):
                yield BAD, words(event)
            case log.TurnEnded():
                ends = [n for n, it in enumerate(self.events) if isinstance(it, log.TurnEnded)]
                why = f" ({event.mode})" if event.mode else ""
                ending = "" if event.ending == "final_answer" else f"{event.ending}{why}, "
                used = _used(self.events[ends[-2] if len(ends) > 1 else 0 :])
                yield BAD if event.mode else DIM, f"turn {len(ends)}: {ending}{used}"

    # ---- what commands say -------------------------------------------------------------------------------------------

    @property
    def turns(self) -> list[_Turn]:
        """The turns so far."""
        turns: list[_Turn] = []
        for event in self.events:
            if isinstance(event, log.Arrived):
                turns.append(_Turn(event.text))
            elif isinstance(event, log.TurnEnded) and turns:
                turns[-1].answer = event.ending if event.answer is None else event.answer
            elif isinstance(event, log.Compacted) and event.undone:
                for turn in [turn for turn in turns if not turn.is_undone][-1:]:
                    turn.is_undone = True
        return turns

    def history(self) -> list[Line]:
        """Return each turn in short: what was said, and the answer."""
        found: list[Line] = []
        for number, turn in enumerate(self.turns, 1):
            mark = "(taken back) " if turn.is_undone else ""
            found += [
                (PLAIN, f"{number:>3}  {_short(turn.said)}"),
                (DIM, f"     {mark}{_short(turn.answer)}"),
            ]
        return found or [(DIM, "nothing was said yet")]

    def tools(self) -> list[Line]:
        """Return the tools that the agent has now: name, effect, first line of the description."""
        heads = [
            it for it in self.events if isinstance(it, log.RunStarted | log.HandedOver) and "/" not in it.at
        ]
        width = max((len(tool.name) for tool in heads[-1].tools), default=0)
        lines = (f"{it.name:{width}}  {it.effect:8}  {_short(it.description)}" for it in heads[-1].tools)
        return [(PLAIN, line) for line in lines] or [(DIM, "the agent has no tools")]

    def model(self) -> list[Line]:
        """Return the model and its fallbacks with their options, and what was used so far."""
        lines = []
        for number, it in enumerate([ModelChoice(self.head.model, self.head.options), *self.head.fallbacks]):
            options = f"  {log.encode(it.options).decode()}" if it.options else ""
            what = "fallback" if number else "model"
            lines.append(escape_terminal(f"{what:8}  {it.name.provider}:{it.name.name}{options}"))
        return [(PLAIN, line) for line in (*lines, f"used      {_used(self.events)}")]


class _Turn(Struct):
    said: str
    answer: str = "under way"
    is_undone: bool = False


def _used(events: Sequence[log.Event]) -> str:
    """Return how many steps and tokens, and what money, some lines took."""
    steps = [event for event in events if isinstance(event, log.StepEnded)]
    usages = [event.usage for event in events if isinstance(event, log.ModelReplied)]
    tokens, cost = sum(it.input_tokens + it.output_tokens for it in usages), sum(it.cost for it in steps)
    return ", ".join([count(len(steps), "step"), count(tokens, "token"), *([in_words(cost)] if cost else [])])


def question_of(question: AskPerson) -> list[Line]:
    """Return what is asked of a person: the whole call, and the rule that asks; of a plan its text."""
    call = question.call
    plan = (call.arguments or {}).get("plan") if call.name == EXIT_PLAN else None
    lines = [(_LOUD, escape_terminal(f"The agent proposes {call.name} {call_text(call)}"))]
    if isinstance(plan, str):
        lines = [(_LOUD, "The agent shows its plan:"), *((PLAIN, f"  {line}") for line in plain(plan))]
    return [*lines, (DIM, escape_terminal(f"{question.rule}: {question.reason} ({question.place})"))]


def exported(name: str, events: Sequence[log.Event]) -> str:
    """Return a conversation as Markdown: what was said, calls with their decisions, and answers.

    Args:
        name: Its name.
        events: The lines of its log.
    """
    shown, parts = Shown(), [f"# Conversation {escape_markdown(name)}"]
    for event in events:
        lines = shown.lines_of(event)
        if isinstance(event, log.Arrived):
            parts += [f"## Turn {len(shown.turns)}", "\n".join(quoted(event.text))]
        if texts := [line for style, line in lines if style == PLAIN]:
            parts.append("\n".join(quoted("\n".join(texts))))
        parts += [f"- {code_span(line.strip(), 2 * _MOST)}" for style, line in lines if style != PLAIN]
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


def plain(text: str) -> list[str]:
    r"""Return the lines of a text, harmless at a terminal; of `\r\n` the first character is left out."""
    return [escape_terminal(line) for line in text.replace("\r", "").replace("\t", "    ").split("\n")]


def _short(text: str) -> str:
    return escape_terminal(truncate(next(iter(text.strip().splitlines()), ""), 70))
