"""The lines of a run while they are made, for the first time or again.

record    nothing is past
resume    some of it is past
replay    all of it is past
check     nothing is past: the lines are compared with the recorded ones once the run has been made again
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from ...fail.errors import TachographError, class_of, warn
from ..formats.strict_json import canonical
from .events import Event, Outcome, ToolStarted, decode
from .lines import Line, LineWriter


class LogWriter(Protocol):
    """Where the lines of an open log go."""

    def write(self, line: bytes) -> None:
        """Append a line."""

    def sync(self) -> None:
        """Put what was written on the disk."""


class Diverged(TachographError):
    """A run that is made again does something else than its log says.

    Attributes:
        recorded: The line of the log; None where the log has ended.
        made: The line that was made; None where none was.
    """

    def __init__(self, recorded: Event | None, made: Event | None) -> None:
        self.recorded, self.made = recorded, made
        super().__init__(_difference(recorded, made))


class Leak(TachographError):
    """A line would hold a secret, and was not written.

    Attributes:
        at: Its address.
    """

    def __init__(self, at: str, secret: str) -> None:
        self.at = at
        super().__init__(
            f"the line at {at} would hold the value of {secret}, so it was not written; "
            "look for the value in the names of files, mounts and tools, in the policy and in the task"
        )


def _difference(recorded: Event | None, made: Event | None) -> str:
    if type(recorded) is not type(made) or recorded is None or made is None or recorded.at != made.at:
        return f"the log says {_named(recorded)}, and the run made {_named(made)}"
    old, new = msgspec.to_builtins(recorded), msgspec.to_builtins(made)
    fields = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    return f"{_named(recorded)} is not as the log says: {', '.join(fields)}"


def _named(event: Event | None) -> str:
    return "nothing" if event is None else f"{event.at} {type(event).__name__}"


T = TypeVar("T")


def tell(listen: Callable[[T], None] | None, what: T) -> Callable[[T], None] | None:
    """Tell a listener something, and return it; None for one that raised, which is told nothing more."""
    try:
        if listen is not None:
            listen(what)
    except Exception as error:  # noqa: BLE001 - foreign code may raise anything
        warn("a listener raised %s and is told nothing more", class_of(error))
        return None
    return listen


class Journal:
    """The log of a run under way.

    Args:
        past: The lines that stand already.
        file: Where further lines are written.
        listen: Is told of each line beyond the past, once it is written; one that raises is told nothing more.
        guard: Returns the name of a secret that an encoded line holds; the line is not written then.
        agrees: Is asked about each line of the past with the one made again: whether it stands if that is another one.

    Attributes:
        events: The lines so far.
        lines: The same as they stand in the file.
    """

    def __init__(
        self,
        past: Sequence[Line] = (),
        *,
        file: LogWriter | None = None,
        listen: Callable[[Event], None] | None = None,
        guard: Callable[[bytes], str | None] | None = None,
        agrees: Callable[[Event, Event], bool] = lambda recorded, made: False,
    ) -> None:
        self.events: list[Event] = []
        self.lines: list[bytes] = []
        self._past, self._file, self._listen, self._agrees = past, file, listen, agrees
        self._guard = guard
        self._writer = LineWriter()
        self._broken = False
        came = {line.event.at for line in past if isinstance(line.event, Outcome)}
        begun = [line.event.at.removesuffix(".s") for line in past if isinstance(line.event, ToolStarted)]
        # effects that had begun when the process ended, and nobody knows more
        self.doubts = [at for at in begun if at not in came]

    @property
    def next(self) -> Event | None:
        """The line of the past that comes next; None where the past is at its end."""
        number = len(self.lines)
        return self._past[number].event if number < len(self._past) else None

    @property
    def data(self) -> bytes:
        """All lines so far, as they stand in the file."""
        return b"".join(self.lines)

    def append(self, event: Event) -> None:
        """Add a line, or hold it against the past.

        Raises:
            Diverged: The past says something else here.
            Leak: The line holds a secret.
            OSError: The line could not be written; nothing can be appended after that.
        """
        text, number = canonical(event), len(self.lines)
        if number < len(self._past):
            past = self._past[number]
            if not self._agrees(past.event, event) and past.text != text:
                raise Diverged(past.event, event)
            self.lines.append(self._writer.line(past.text))
            self.events.append(past.event)
            return
        if self._guard is not None and (secret := self._guard(text)) is not None:
            raise Leak(event.at, secret)
        line = self._writer.line(text)
        if self._file is not None:
            if self._broken:
                raise OSError("the log could not be written before, and another line would follow from none")
            self._broken = True
            self._file.write(line)
            self._broken = False
        self.lines.append(line)
        self.events.append(event)
        if self._listen is not None:
            self._listen = tell(self._listen, decode(text))  # it gets a copy

    def sync(self) -> None:
        """Put all lines on the disk."""
        if self._file is not None:
            self._file.sync()
