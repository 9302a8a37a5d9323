"""Ask a person at the terminal about a call."""

from __future__ import annotations

import sys
import threading

import click

from ..runtime.effects import AskPerson
from ..runtime.formats.escape import escape_terminal
from ..runtime.models.types import call_text
from ..runtime.world.people import Answer

# calls that are made side by side are asked about one after another
_one_at_a_time = threading.Lock()


def approve_at_terminal(question: AskPerson) -> Answer:
    """Show a call and why a person is asked, and return what the person says; without a terminal, that is no.

    Args:
        question: The call.
    """
    if not sys.stdin.isatty():
        return Answer("deny", "nobody", "there is no terminal to ask at")
    with _one_at_a_time:
        for line in (
            "",
            f"The model proposes {question.call.name} {call_text(question.call)}",
            f"{question.rule}: {question.reason} ({question.place})",
        ):
            click.echo(escape_terminal(line), err=True)
        if click.confirm("Allow this call?", default=False, err=True):
            return Answer("allow", "terminal")
        return Answer("deny", "terminal", click.prompt("Why not?", default="", show_default=False, err=True))
