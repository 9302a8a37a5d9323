"""A person at the terminal is asked about a call: all of it is shown before it can be allowed."""

from __future__ import annotations

import json
import os
import select
import sys
import textwrap
from collections.abc import Iterator
from typing import Final, TextIO

from ..fail.errors import InputError
from ..runtime.core.clock import stopwatch
from ..runtime.core.effects import Answer, AskHuman
from ..runtime.formats.escape import escape_terminal
from ..runtime.formats.read_file import NotPlain, read_plain
from ..runtime.policy.policy import Policy
from .console import Paint, width_of

_SHOWN: Final = 20  # lines of arguments at first
_HELP: Final = "y allows this one call, n refuses it, a shows all of its arguments"


class Terminal:
    """Asks at the terminal, for as long as the policy says. To be given as `approve` to a run.

    Raises InputError where standard input is not a terminal: what is piped in is not a person's answer; and under a
    policy that wants signatures.
    """

    def __init__(
        self, policy: Policy, paint: Paint, *, stdin: TextIO | None = None, out: TextIO | None = None
    ) -> None:
        if policy.signers:
            raise InputError(
                "the policy wants signed answers, and one at the terminal has no signature",
                remedy="give --approve FOLDER, and answer with `tachograph approve FILE --key KEY`",
            )
        self._in, self._out = stdin or sys.stdin, out or sys.stderr
        if not (self._in.isatty() and self._out.isatty()):
            raise InputError(
                "there is no terminal to ask a person at", remedy="give --approve FOLDER to ask by file"
            )
        self._policy = policy
        self._paint = paint

    def __call__(self, request: AskHuman) -> Answer | None:
        """Ask the person at the terminal; None if nobody answers in time."""
        self._drop_typed()
        until = stopwatch() + request.timeout_s
        lines = list(self._arguments(request))
        hidden = max(len(lines) - _SHOWN, 0)
        self._print("", *self._head(request), *lines[:_SHOWN])
        if hidden:
            self._print(f"    ... {hidden} more lines")
        while True:
            typed = self._line("allow this call? y, n, a (all of it), ? > ", until)
            if typed is None:
                reason = "no answer in time" if stopwatch() >= until else "no answer was given"
                self._print(f"{reason}: the call is refused")
                return None
            word = typed.strip().lower()
            if word in ("a", "all"):
                hidden = 0
                self._print(*lines)
            elif word in ("n", "no", "deny"):
                return Answer("deny", "terminal", self._why(until), request.digest)
            elif word not in ("y", "yes", "allow"):
                self._print(_HELP)
            elif hidden:
                self._print("not all of it was shown: a shows the rest, then y allows it")
            else:
                return Answer("allow", "terminal", self._why(until), request.digest)

    def _head(self, request: AskHuman) -> Iterator[str]:
        wide = width_of(self._out)
        yield self._paint(
            f"approval  step {request.step}, call {request.index}, {request.timeout_s} s", "yellow"
        )
        yield f"  because   {escape_terminal(request.reason, wide - 12)}"
        yield f"  policy    {escape_terminal(self._policy.shown(request.at), wide - 12)}"
        line = policy_line(self._policy, request.at)
        if line is not None:
            yield f"            {escape_terminal(line.strip(), wide - 12)}"
        yield f"  question  {request.digest[:16]} (this call under policy {request.policy})"
        yield f"  tool      {escape_terminal(request.call.name, wide - 12)}"
        yield "  arguments"

    def _arguments(self, request: AskHuman) -> Iterator[str]:
        """Every argument, one line of JSON after another, wrapped and never cut."""
        value = None if request.call.arguments is None else request.call.arguments.value()
        wide = width_of(self._out) - 4
        for line in json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True).split("\n"):
            for part in textwrap.wrap(
                escape_terminal(line), wide, drop_whitespace=False, break_on_hyphens=False
            ) or [""]:
                yield f"    {part}"

    def _why(self, until: float) -> str | None:
        return (self._line("why? (Enter for no reason) > ", until) or "").strip() or None

    def _print(self, *lines: str) -> None:
        print(*lines, sep="\n", file=self._out, flush=True)

    def _line(self, prompt: str, until: float) -> str | None:
        """Return a line that was typed; None where time is up or the terminal is gone."""
        print(prompt, end="", file=self._out, flush=True)
        fd, data = self._in.fileno(), b""
        while not data.endswith(b"\n"):
            try:
                ready, _, _ = select.select([fd], [], [], max(until - stopwatch(), 0))
                piece = os.read(fd, 4096) if ready else b""
            except BaseException:  # Ctrl-C: what is told of it begins on a line of its own
                self._print("")
                raise
            if not piece:
                self._print("")
                return None
            data += piece
        return data.decode("utf-8", "replace")

    def _drop_typed(self) -> None:
        """Discard what was typed before the question was shown."""
        import termios

        termios.tcflush(self._in.fileno(), termios.TCIFLUSH)


def policy_line(policy: Policy, at: str) -> str | None:
    """Return the text of the line of the rule that a decision names; None where its file cannot be read."""
    file, _, number = policy.shown(at).rpartition(":")
    path = policy.sources.get(f"policy {file}")
    if path is None or not number.isdecimal():
        return None
    try:
        lines = read_plain(path, 1 << 20).decode("utf-8").split("\n")
        return lines[int(number) - 1]
    except (OSError, NotPlain, UnicodeDecodeError, IndexError):
        return None
