"""A conversation in lines, as its terminal shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click
from msgspec import structs

from ..evidence.show import words
from ..runtime.clock import variable
from ..runtime.effects import AskPerson
from ..runtime.formats.escape import escape_terminal, truncate
from ..runtime.log import events as log
from ..runtime.log.addresses import place_of
from ..runtime.log.values import USER, Call
from ..runtime.models.types import Piece, call_text
from ..runtime.policy.prices import in_words
from ..runtime.tools.agents import EXIT_PLAN
from .common import count

_MOST = 300  # characters of a line about a call
_WIDTH = 80  # characters after which a line that a model has not finished is broken


def harmless(text: str, *, fg: str | None = None, dim: bool | None = None) -> str:
    """Return a text of any lines that is harmless at a terminal, dim or in a colour of click, if colours are wanted."""
    lines = map(escape_terminal, text.replace("\r\n", "\n").split("\n"))
    return click.style("\n".join(lines), fg=None if variable("NO_COLOR") else fg, dim=dim)


class Lines:
    """Says what happens in a conversation.

    Attributes:
        events: The lines of its log so far.
    """

    def __init__(self) -> None:
        self.events: list[log.Event] = []
        self._calls: dict[str, Call] = {}
        self._rest = ""  # the beginning of a line that a model has not finished
        self._streamed = ""  # the address of the reply whose pieces came last

    def note(self, event: log.Event) -> Iterator[str]:
        """Take in the next line of the log, and yield what is shown of it."""
        self.events.append(event)
        above, _, last = event.at.rpartition(".")
        if isinstance(event, log.ModelReplied) and last[0] == "m":
            self._calls |= {f"{above}.c{n}": call for n, call in enumerate(event.calls)}
        elif isinstance(event, log.Proposed):
            self._calls[above] = event.call
        if self._rest and (event.at == self._streamed or isinstance(event, log.StopAsked)):
            yield harmless(self._rest)
            self._rest = ""
        place = place_of(event.at)
        indent = f"{'  ' * place.count('/')}{place} " if place else ""
        for colour, text in self._said(event, self._calls.get(above)):
            is_dim = colour == "dim"
            yield harmless(f"{indent}{text}", fg=None if is_dim else colour, dim=is_dim or None)

    def piece(self, piece: Piece) -> Iterator[str]:
        """Yield the lines that a piece of a reply completes; of agents below only whole replies are shown."""
        if "/" in piece.at or ".m" not in piece.at:
            return
        self._streamed = piece.at
        *whole, self._rest = (self._rest + piece.text).split("\n")
        if len(self._rest) > _WIDTH and " " in self._rest:
            line, _, self._rest = self._rest.rpartition(" ")
            whole.append(line)
        yield from map(harmless, whole)

    def _said(self, event: log.Event, call: Call | None) -> Iterator[tuple[str | None, str]]:
        about = f"{truncate(f'{call.name} {call_text(call)}', _MOST)}  " if call else ""
        match event:
            case log.ModelReplied() if event.problem:
                yield "red", words(event)
            case log.ModelReplied() if ".m" in event.at and event.at != self._streamed:
                if text := event.text or event.answer:
                    yield None, text
            case log.Decided(decision="allow"):
                yield "green", f"{about}allow"
            case log.Decided(decision="deny"):
                yield "red", f"{about}{words(event)}"
            case log.Answered():
                yield ("green" if event.answer == "allow" else "red"), f"{about}{words(event)}"
            case log.Failed():
                yield "red", f"{about or 'the model '}{words(event)}"
            case log.CallEnded() if "error" in event.told:
                yield "red", f"{about}{words(event)}"
            case log.Received() if theirs := [it for it in event.messages if it.sender != USER]:
                yield "dim", words(structs.replace(event, messages=theirs))
            case log.Compacted() | log.Settled() | log.HandedOver() | log.AgentEnded() | log.StopAsked():
                yield "dim", words(event)
            case log.TurnEnded() if not place_of(event.at):
                mode = f" ({event.mode})" if event.mode else ""
                ending = "" if event.ending == "final_answer" else f"{event.ending}{mode}, "
                used = used_in(self.events[self.ends()[-2] if len(self.ends()) > 1 else 0 :])
                yield ("red" if ending else "dim"), f"turn {len(self.ends())}: {ending}{used}\n"

    def ends(self) -> list[int]:
        """Return where the turns so far end."""
        numbered = enumerate(self.events)
        return [n for n, it in numbered if isinstance(it, log.TurnEnded) and not place_of(it.at)]


def used_in(events: Sequence[log.Event]) -> str:
    """Return how many steps and tokens, and what money, some lines of a log took."""
    steps = [event for event in events if isinstance(event, log.StepEnded)]
    usages = [event.usage for event in events if isinstance(event, log.ModelReplied)]
    tokens, cost = sum(it.input_tokens + it.output_tokens for it in usages), sum(it.cost for it in steps)
    return ", ".join([count(len(steps), "step"), count(tokens, "token"), *([in_words(cost)] if cost else [])])


def question_of(question: AskPerson) -> str:
    """Return what is asked of a person: the call, and why; of a plan its text."""
    call = question.call
    plan = (call.arguments or {}).get("plan") if call.name == EXIT_PLAN else None
    what = f"The agent proposes {call.name} {call_text(call)}"
    asked = harmless(what if plan is None else f"The agent shows its plan:\n{plan}", fg="yellow")
    return f"{asked}\n{harmless(f'{question.rule}: {question.reason} ({question.place})', dim=True)}"
