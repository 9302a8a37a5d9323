"""Keys and lines from a person at a terminal: single keys without Enter, whole lines, pages of text.

The terminal is put into its mode for single keys only while one is waited for, so that it is as it was whatever ends
the command. Enter alone is no key: each key works with Enter after it and without.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Iterator, Sequence
from typing import Final, TextIO

_END: Final = b"\x04"  # Ctrl-D, where the terminal does not make an end of input of it


class Terminal:
    """A terminal that is read key by key or line by line."""

    def __init__(self, stdin: TextIO | None = None, out: TextIO | None = None) -> None:
        self._in, self._out = stdin or sys.stdin, out or sys.stdout

    @property
    def is_there(self) -> bool:
        """Whether a person can be asked: both ends are terminals."""
        try:
            return self._in.isatty() and self._out.isatty()
        except ValueError:  # a stream that is closed
            return False

    def say(self, *lines: str) -> None:
        """Print lines at once."""
        print(*lines, sep="\n", file=self._out, flush=True)

    def key(self, prompt: str) -> str | None:
        """Return the next key in lower case; "?" for one that is no letter or space, None at the end of input."""
        try:
            # before the prompt: what is typed after it is not echoed by the terminal
            with self._single_keys():
                print(prompt, end="", file=self._out, flush=True)
                data = b"\n"
                while data in (b"\n", b"\r"):
                    data = self._read_key()
        except BaseException:  # Ctrl-C: what is told of it begins on a line of its own
            self.say("")
            raise
        if data in (b"", _END):
            self.say("")
            return None
        text = data.decode("ascii", "replace").lower()
        known = text if len(data) == 1 and (text.isalpha() or text == " ") else "?"
        self.say(known.strip())
        return known

    def line(self, prompt: str) -> str | None:
        """Return a line that was typed, without its end; None at the end of input."""
        print(prompt, end="", file=self._out, flush=True)
        data = b""
        try:
            while not data.endswith(b"\n"):
                piece = self._read(4096)
                if not piece or _END in piece:
                    self.say("")
                    return None
                data += piece
        except BaseException:
            self.say("")
            raise
        return data.decode("utf-8", "surrogateescape").rstrip("\r\n")

    def forget_typed(self) -> None:
        """Discard what was typed before the next question is shown."""
        import termios

        termios.tcflush(self._in.fileno(), termios.TCIFLUSH)

    def pages(self, lines: Sequence[str]) -> bool:
        """Print lines, as many at a time as the terminal has room for; False at the end of input."""
        at = 0
        while True:
            room = self._height()
            self.say(*lines[at : at + room])
            at += room
            if at >= len(lines):
                return True
            key = self.key(f"{len(lines) - at} more lines: space goes on, q goes back > ")
            while key not in (None, " ", "q"):
                key = self.key("space goes on, q goes back > ")
            if key != " ":
                return key is not None

    def _height(self) -> int:
        """Return how many lines fit above a prompt; asked anew for each page, since a window can be resized."""
        try:
            rows = os.get_terminal_size(self._out.fileno()).lines
        except (OSError, ValueError):
            rows = 0
        return max(rows - 1, 5) if rows else 23

    @contextlib.contextmanager
    def _single_keys(self) -> Iterator[None]:
        """Have the terminal give each key at once and echo none, until the end of the context."""
        import termios
        import tty

        fd = self._in.fileno()
        before = termios.tcgetattr(fd)
        try:
            tty.setcbreak(fd, termios.TCSANOW)  # what was typed already stays
            yield
        finally:
            with contextlib.suppress(termios.error):  # the terminal is gone, and its modes with it
                termios.tcsetattr(fd, termios.TCSANOW, before)

    def _read_key(self) -> bytes:
        """Return the bytes of one key; none at the end of input."""
        data = self._read(1)
        # an arrow key or a letter outside of ASCII comes as several bytes
        while data and (data[0] == 0x1B or data[0] >= 0x80) and self._is_more():
            piece = self._read(1)
            if piece in (b"", b"\n", b"\r"):
                break
            data += piece
        return data

    def _is_more(self) -> bool:
        fd = self._in.fileno()
        return bool(select.select([fd], [], [], 0)[0])

    def _read(self, count: int) -> bytes:
        """Return what is there; nothing where the terminal is gone."""
        try:
            return os.read(self._in.fileno(), count)
        except OSError:
            return b""
