"""What disks and careless hands do to a journal: cut off, zeroed, flipped, doubled, swapped, lost."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tachograph.fail.errors import RecordError
from tachograph.runtime.journal.journal import Journaled, read_journal

from .kills import converge
from .lab import Fault, Lab
from .registry import fault
from .scene import RUN

JOURNAL = f"{RUN}.partial/journal.jsonl"
REFUSED = "refused"


class Judge:
    """Knows a whole journal, and what may be read from a damaged one: a part from its beginning, or nothing."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.lines = data.splitlines(keepends=True)
        self.ends = [sum(map(len, self.lines[: n + 1])) for n in range(len(self.lines))]
        self.heads: dict[int, str] = {}
        for end in self.ends:
            found = read_journal(data[:end], "journal")
            assert found is not None and (found.size, found.torn) == (end, 0)
            self.heads[end] = found.chain

    def read(self, damaged: bytes) -> Journaled | str | None:
        """What the reader makes of it; fails where it takes in an entry that was never written so."""
        try:
            found = read_journal(damaged, "journal")
        except RecordError as error:
            assert "\n" not in str(error) and error.line is not None, error
            return REFUSED
        if found is not None:
            assert self.heads.get(found.size) == found.chain, f"{found.size} bytes of a damaged journal"
            assert damaged[: found.size] == self.data[: found.size]
            assert found.torn == len(damaged) - found.size
        return found

    # ---- one kind of damage each; each fails where it goes wrong ---------------------------------------------

    def cut(self, size: int) -> None:
        """Cut off after `size` bytes: what is whole counts, the rest is torn."""
        self._torn(self.data[:size], size)

    def zeroed_tail(self, size: int) -> None:
        self._torn(self.data[:size] + bytes(len(self.data) - size), size)

    def _torn(self, damaged: bytes, size: int) -> None:
        found = self.read(damaged)
        whole = max((end for end in self.ends if end <= size), default=None)
        if whole is None:
            assert found is None
        else:
            assert isinstance(found, Journaled) and found.size == whole, (size, found)

    def zeroed_within(self, begin: int, size: int) -> None:
        """Zeros in the last line are a write that came half; before it they are damage.

        Where they cover the end of the line before and the head of the last, both are one such write to a reader.
        """
        damaged = self.data[:begin] + bytes(size) + self.data[begin + size :]
        found = self.read(damaged)
        last = self.ends[-2]
        if begin >= last:
            assert isinstance(found, Journaled) and found.size == last
        elif begin + size <= last or begin == last - 1:
            assert found == REFUSED, (begin, size)

    def flipped(self, bit: int) -> None:
        """No flip is taken in; one is forgiven only in the last line, where it makes a zero."""
        damaged = bytearray(self.data)
        damaged[bit // 8] ^= 1 << bit % 8
        found = self.read(bytes(damaged))
        if found != REFUSED:
            assert isinstance(found, Journaled) and found.size == self.ends[-2], (bit, found)
            assert damaged[bit // 8] == 0, f"bit {bit} was forgiven"

    def lines_as(self, order: list[int]) -> None:
        """Lines in another order, doubled or lost: refused, unless only the end is missing."""
        found = self.read(b"".join(self.lines[n] for n in order))
        if order == list(range(len(order))):
            assert isinstance(found, Journaled) or not order
        else:
            assert found == REFUSED, order


def journal_of(lab: Lab, part: float) -> bytes:
    """The journal of a run that died when that part of it was written."""
    lab.scene.clear()
    writes = [
        p for p in lab.points(lambda plan: lab.run(fault=plan)) if p.path == JOURNAL and p.op == "write"
    ]
    lab.scene.clear()
    assert lab.run(fault=Fault(writes[int(len(writes) * part)].number)).code == -9
    return lab.scene.journal.read_bytes()


@fault("journal.cut", "a journal cut off at every byte, and zeros from every byte on")
def journal_cut(lab: Lab) -> Iterator[str]:
    judge = Judge(journal_of(lab, 0.5))
    for size in range(len(judge.data) + 1):
        yield f"after {size} bytes"
        judge.cut(size)
        judge.zeroed_tail(size)


@fault("journal.zeros", "sectors of zeros at every place of a journal")
def journal_zeros(lab: Lab) -> Iterator[str]:
    judge = Judge(journal_of(lab, 0.9))
    for size in (1, 16, 512):
        for begin in range(0, len(judge.data) - size, 7 if size < 512 else 64):
            yield f"{size} zeros at {begin}"
            judge.zeroed_within(begin, size)


@fault("journal.bits", "every single bit of a journal flipped")
def journal_bits(lab: Lab) -> Iterator[str]:
    judge = Judge(journal_of(lab, 0.6))
    for bit in range(8 * len(judge.data)):
        yield f"bit {bit}"
        judge.flipped(bit)


@fault("journal.lines", "lines of a journal doubled, swapped, lost, and of another run")
def journal_lines(lab: Lab) -> Iterator[str]:
    judge = Judge(journal_of(lab, 0.9))
    there = list(range(len(judge.lines)))
    for place in there:
        for name, order in (
            ("doubled", [*there[: place + 1], *there[place:]]),
            ("lost", [*there[:place], *there[place + 1 :]]),
            ("moved to the front", [place, *there[:place], *there[place + 1 :]]),
            ("swapped with the next", [*there[:place], *there[place : place + 2][::-1], *there[place + 2 :]]),
        ):
            yield f"line {place + 1} {name}"
            judge.lines_as(order)
    yield "twice in a row"
    judge.lines_as([*there, *there])


@fault("journal.resume", "a damaged journal resumed: torn tails are reported, all else is refused and kept")
def journal_resume(lab: Lab) -> Iterator[str]:
    data = journal_of(lab, 0.45)
    last = data.rstrip(b"\n").rindex(b"\n") + 1
    draw = random.Random(5)
    for size in sorted(draw.sample(range(last + 1, len(data)), 8)):
        for name, tail in (("cut off", b""), ("zeros from there", bytes(4096 - size % 4096))):
            yield f"last line {name} after {size - last} bytes"
            journal_of(lab, 0.45)
            lab.scene.journal.write_bytes(data[:size] + tail)
            done = lab.resume()
            assert f"its last {size - last + len(tail)} bytes are torn and were cut off" in done.err, done
            if done.code:
                converge(lab)
    for place in sorted(draw.sample(range(len(data)), 10)):
        yield f"a flipped bit in byte {place}"
        journal_of(lab, 0.45)
        damaged = bytearray(data)
        damaged[place] ^= 0x80
        lab.scene.journal.write_bytes(damaged)
        deeds = lab.scene.deeds()
        done = lab.resume()
        assert done.code == 2 and f"{JOURNAL}:" in done.said, done
        assert lab.scene.journal.read_bytes() == damaged and lab.scene.deeds() == deeds
