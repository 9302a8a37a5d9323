"""The events of a run as they come."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ..evidence.folder import partial_of
from ..evidence.record_files import STATE
from ..fail.errors import RecordError, system_reason
from ..runtime import clock
from ..runtime.log.events import Event, RunEnded
from ..runtime.log.lines import Damaged, read_log

_PAUSE_S: Final = 0.25


def follow(folder: Path, name: str) -> Iterator[Event]:
    """Yield the events of a run, first those that it has, until it ends; an open run comes before a recorded one.

    The file stays open, so it does not matter where its folder is moved when the run has ended.

    Args:
        folder: Where the run lies.
        name: What messages call its log.

    Raises:
        RecordError: The log cannot be read, is damaged, or was removed before the run ended.
    """
    fd = _opened(folder, name)
    try:
        size = seen = 0
        while True:
            found = os.fstat(fd)  # before it is read: what is written until it is removed counts
            if found.st_size != size:
                size = found.st_size
                data = os.pread(fd, size, 0)
                # a line without its end waits for its rest
                events = [line.event for line in read_log(data[: data.rfind(b"\n") + 1])]
                yield from events[seen:]
                seen = len(events)
                if events and isinstance(events[-1], RunEnded):
                    return
            if not found.st_nlink:
                raise RecordError("was removed before the run ended", file=name, remedy="follow another run")
            clock.pause(_PAUSE_S)
    except Damaged as error:
        raise RecordError(error.what, file=name, line=error.number, remedy="restore it from git") from None
    finally:
        os.close(fd)


def _opened(folder: Path, name: str) -> int:
    try:
        try:
            return os.open(partial_of(folder) / STATE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return os.open(folder / STATE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        reason = system_reason(error)
        raise RecordError(f"cannot be read ({reason})", file=name, remedy="name a run") from None
