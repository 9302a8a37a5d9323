"""A command at a pseudo-terminal of its own, and a hand that types when it is asked."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from types import TracebackType
from typing import Any

PATIENCE = 60.0  # seconds after which a command that says nothing counts as stuck


class Hand:
    """A command under way at a terminal; a context, at the end of which nothing of it is left."""

    def __init__(self, *words: str, cwd: Path, rows: int = 24, columns: int = 100, **given: str) -> None:
        self.seen = ""
        self._read_to = 0
        self._hand, inside = pty.openpty()
        self.resize(rows, columns)
        self.modes = termios.tcgetattr(inside)
        self._inside = inside
        environment = {name: value for name, value in os.environ.items() if name not in ("CI", "NO_COLOR")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, "-m", *words],
            cwd=cwd, stdin=inside, stdout=inside, stderr=inside, env={**environment, "TERM": "xterm", **given},
            start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> Hand:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(PATIENCE)
        for end in (self._inside, self._hand):
            if end >= 0:
                os.close(end)

    def until(self, text: str = " > ") -> str:
        """Wait for a text that was not waited for yet; return what came up to its end."""
        end = time.monotonic() + PATIENCE
        while text not in self.seen[self._read_to :]:
            assert time.monotonic() < end and self._more(), f"{text!r} did not come: {self.seen[-3000:]}"
        begin, self._read_to = self._read_to, self.seen.index(text, self._read_to) + len(text)
        return self.seen[begin : self._read_to]

    def type(self, text: str) -> None:
        """Type a text."""
        os.write(self._hand, text.encode("utf-8", "surrogateescape"))

    def ask(self, text: str, until: str = " > ") -> str:
        """Type a text and return what is said up to the next prompt."""
        self.type(text)
        return self.until(until)

    def resize(self, rows: int, columns: int) -> None:
        """Give the terminal another size; the command is told."""
        fcntl.ioctl(self._hand, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def hang_up(self) -> None:
        """Close the terminal, as where its window is closed."""
        os.close(self._inside)
        os.close(self._hand)
        self._inside = self._hand = -1

    def end(self) -> int:
        """Wait until the command has ended; return its exit code."""
        end = time.monotonic() + PATIENCE
        while self._process.poll() is None and time.monotonic() < end:
            if self._hand >= 0:
                self._more(0.05)
        code = self._process.wait(1)
        while self._hand >= 0 and self._more(0):
            pass
        return code

    def modes_now(self) -> Any:
        """Return the modes of the terminal."""
        return termios.tcgetattr(self._inside)

    def signal(self, number: signal.Signals) -> None:
        """Send the command a signal."""
        self._process.send_signal(number)

    def _more(self, wait: float = 1.0) -> bool:
        """Read what is there; False where there will be no more."""
        if not select.select([self._hand], [], [], wait)[0]:
            return wait > 0 and self._process.poll() is None
        self.seen += os.read(self._hand, 65536).decode("utf-8", "replace")
        return True


# the terminal becomes the one whose Ctrl-C reaches the command
_START = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
