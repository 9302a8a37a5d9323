"""The text of a log: reading it strictly, and naming the line that is damaged.

Each line ends in `#`, a short check over its own text and that of the line before, so that a lost, doubled, moved or
changed line is named, and a change moves its own check and the next, not all that follow. It stops nobody who changes a
log on purpose: for that the last line holds the digest of all bytes before it.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from ...fail.errors import TachographError
from ..formats.strict_json import digest
from .events import Event, RunEnded, decode

_CHECK = len(b',"#":"0123456789ab"}')


class Damaged(TachographError):
    """A line is not as it was written.

    Attributes:
        number: The line, from 1.
        what: What is wrong with it.
    """

    def __init__(self, number: int, what: str) -> None:
        self.number, self.what = number, what
        super().__init__(f"line {number} {what}")


class Line(msgspec.Struct, frozen=True):
    """A line of a log: the event, and its text without the check."""

    event: Event
    text: bytes


class LineWriter:
    """Adds the check to each text, given in order.

    Args:
        before: The digest of the text of the line above the first of them.
    """

    def __init__(self, before: bytes = b"") -> None:
        self._before = before

    def line(self, text: bytes) -> bytes:
        """Return the next line, with its line feed."""
        check = sha256(text)
        before, self._before = self._before, check.digest()
        check.update(before)
        return text[:-1] + b',"#":"' + check.hexdigest()[:12].encode() + b'"}\n'


def read_log(data: bytes, *, is_open: bool = False) -> list[Line]:
    """Read a log.

    Args:
        data: Its bytes.
        is_open: Whether the run may go on: then a last line that was cut short is left out.

    Raises:
        Damaged: A line is not as it was written.
    """
    *whole, tail = data.split(b"\n")  # and not where other line separators stand, which texts may hold
    lines: list[Line] = []
    addresses: set[str] = set()
    writer, size = LineWriter(), 0
    for number, line in enumerate(whole, 1):
        text = line[:-_CHECK] + b"}"
        if line + b"\n" != writer.line(text):
            raise Damaged(number, _damage(whole, number - 1))
        try:
            event = decode(text)
        except (msgspec.DecodeError, RecursionError):
            raise Damaged(number, "holds no event of this version") from None
        if event.at in addresses:
            raise Damaged(number, f"has the address of a line before it, {event.at}")
        addresses.add(event.at)
        if type(event) is RunEnded and event.sha256 != digest(data[:size]):
            raise Damaged(number, "does not end these lines: its digest is of others")
        size += len(line) + 1
        lines.append(Line(event, text))
    if not tail:
        return lines
    # one that lacks nothing but its line feed was changed, and not cut off
    is_whole = writer.line(tail[:-1][:-_CHECK] + b"}") == tail[:-1] + b"\n"
    if is_open and not is_whole:
        return lines
    raise Damaged(len(whole) + 1, "is cut off" if tail.strip(b"\0") else "is empty")


def _damage(whole: list[bytes], n: int) -> str:
    """Return what happened to a line whose check is wrong."""
    texts = [line[:-_CHECK] + b"}" for line in whole]
    digests = [sha256(text).digest() for text in texts]

    def follows(line: int, before: int) -> bool:
        return LineWriter(digests[before]).line(texts[line]) == whole[line] + b"\n"

    if whole[n].endswith(b"\r"):
        return "ends with a carriage return: the file was converted; take it as it was written"
    if n and whole[n] == whole[n - 1]:
        return "stands here twice"
    if any(follows(n, other) for other in range(len(whole))):
        return "was moved, or the lines before it were"
    if n + 1 < len(whole) and follows(n + 1, n):
        return "does not follow from the line before: one between them is lost, or its check was changed"
    return "was changed"
