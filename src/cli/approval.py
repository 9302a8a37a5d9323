"""Ask a person at the terminal about a call."""

from __future__ import annotations

import asyncio
import os
import select
import sys
import termios
import threading
from typing import Final

import click

from ..runtime.effects import AskPerson
from ..runtime.world.people import Answer
from .chat_lines import question_of

_PAUSE_S: Final = 0.1
_MAX_LINE: Final = 4096  # bytes, as many as a terminal gives
_WORDS: Final = {"y": True, "yes": True, "n": False, "no": False, "": False}
# calls that are made side by side are asked about one after another, those of runs in other threads too
_one_at_a_time = threading.Lock()


async def approve_at_terminal(question: AskPerson) -> Answer:
    """Show a call and why a person is asked, and return what the person says; without a terminal, that is no.

    Args:
        question: The call.
    """
    if not sys.stdin.isatty():
        return Answer("deny", "nobody", "there is no terminal to ask at")
    while not _one_at_a_time.acquire(blocking=False):
        await asyncio.sleep(_PAUSE_S)
    try:
        return await _ask(question)
    except asyncio.CancelledError:  # the time is up, or the run was stopped
        click.echo("\nno answer: the call is not made", err=True)
        raise
    finally:
        _one_at_a_time.release()


async def _ask(question: AskPerson) -> Answer:
    click.echo(f"\n{question_of(question)}", err=True)
    # what was typed before is not an answer to this
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    said = await _typed("Allow this call? [y/N]: ")
    while said.lower() not in _WORDS:
        said = await _typed("Say y or n: ")
    if _WORDS[said.lower()]:
        return Answer("allow", "terminal")
    return Answer("deny", "terminal", await _typed("Why not? "))


async def _typed(prompt: str) -> str:
    """Return the next line that is typed, "" at the end of the input.

    Nothing waits in a read, which could not be ended when the time is up and would hold standard input.
    """
    click.echo(prompt, err=True, nl=False)
    while not select.select([sys.stdin], [], [], 0)[0]:
        await asyncio.sleep(_PAUSE_S)
    return os.read(sys.stdin.fileno(), _MAX_LINE).decode(errors="replace").strip()
