"""The journal of a run under way: what it did, made durable before it does anything else.

One line an entry, `{"chain":SHA-256,"entry":{...}}` in canonical JSON, where `chain` is the digest of the chain
before it and the entry's text: a changed, lost, doubled or moved line is seen. Only the last line may be torn,
which is to say cut short or with zeros where the disk got nothing; it is cut off and its loss reported, since
nothing was done that rests on it. A last line that is damaged in another way is refused like any other.

Entries: `begin` (the run's ledger line, the package), `prepared` (the private mounts are set up), `intent` (an
effect that must not be repeated is about to be performed), `withdrawn` (a signal came before it was begun),
`local_times` (those that a decision rests on), `outcome` (what came of an effect, with the stamps since the entry
before), `rebased` (the run goes on under other
inputs).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ...fail.errors import Cancelled, OutputError, RecordError, Suspended, system_reason
from ...light_dataclasses import dataclass, field
from ..core.branches import Branch
from ..core.effects import AskModel, Effect, Outcome, ReadClock
from ..core.outcome_codec import outcome_from_dict, outcome_to_dict
from ..core.redaction import placeholder_counts
from ..driver.ports import Stamps
from ..formats import canonical_json
from .cassette import Cassette, CassetteStep, late_of
from .ledger_v1 import lifted
from .recorded_clock import call_index

SCHEMA: Final = "journal/v1"
JOURNAL: Final = "journal.jsonl"
DURABILITY: Final = ("off", "step", "effect")
_START: Final = "0" * 64
_HEAD: Final = b'{"chain":"'

Entry = dict[str, Any]


class Journal:
    """A journal being written. `durability` is `effect` (fsync at every entry) or `step` (at every step's end).

    Each entry is one `write` of the operating system, so that it outlives the process either way. What cannot
    be written ends the run with Suspended: nothing further is done that could not be recorded. Where not even
    the first entry can be, that is an OutputError, and there is no journal.
    """

    def __init__(
        self,
        path: Path,
        durability: str,
        chain: str = _START,
        size: int | None = None,
        *,
        defers: bool = False,
    ) -> None:
        """Open a new journal, or with `chain` and `size` continue one after its last whole entry.

        With `defers` an entry is written at once, and who wrote it waits for the disk by `flush`, in a thread: so the
        entries have their order, and the event loop of a run does not wait.
        """
        self._path = path
        self.is_each = durability == "effect"
        self._chain = chain
        self._is_empty = size is None
        self._process = os.getpid()
        self._defers = defers
        self._due = self._durable = 0  # entries that the disk must have, and how many of them it has
        self._flushing = threading.Lock()
        self._failed: OSError | None = None
        flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        with self.guarding():
            if size is None:
                self._fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
                for folder in (path.parent, path.parent.parent):  # a new folder is an entry in the one above
                    _sync_folder(folder)
            else:
                self._fd = os.open(path, flags)
                os.ftruncate(self._fd, size)
                os.lseek(self._fd, size, os.SEEK_SET)
                os.fsync(self._fd)  # what the run is answered from may have been written and no more

    def write(self, entry: Entry, *, sync: bool = True) -> None:
        """Append an entry and, as far as the durability asks for it, wait until the disk has it."""
        if os.getpid() != self._process:
            os._exit(70)  # the child of a tool that forked and came back: the run is its parent's
        body = canonical_json.encode(entry)
        self._chain = chain_of(self._chain, body)
        data = f'{{"chain":"{self._chain}","entry":{body}}}\n'.encode()
        with self.guarding():
            if os.fstat(self._fd).st_nlink == 0:
                raise FileNotFoundError(errno.ENOENT, "removed")  # nobody could go on from it
            while data:
                data = data[os.write(self._fd, data) :]
        self._due += sync
        if sync and not self._defers:
            self.flush()
        self._is_empty = False

    @property
    def owes(self) -> bool:
        """Whether an entry that the disk must have is not known to be there."""
        return self._durable < self._due

    def flush(self) -> None:
        """Wait until the disk has every entry that it must have; one who waits already waits for others too."""
        with self._flushing:
            due = self._due
            if self._durable < due:
                with self.guarding():
                    os.fsync(self._fd)
                self._durable = due

    @contextlib.contextmanager
    def guarding(self) -> Iterator[None]:
        """Turn an OSError of what must be on the disk into what ends the run; nothing is written after it."""
        try:
            # of a call that was open then: its entry would not follow from the last
            if self._failed is not None:
                raise self._failed
            yield
        except OSError as error:
            self._failed = error
            raise self._lost(error) from error

    def step_begins(self) -> None:
        """Put everything done so far on the disk, before the model is asked."""
        if self.is_each:
            self.flush()
        else:
            with self.guarding():
                os.fsync(self._fd)

    def intent(self, effect: Effect, call: str, tool: str) -> None:
        """Say that an effect is about to be performed that must not be performed twice."""
        entry = {"type": "intent", "step": effect.step, "at": effect.position, "call": call, "tool": tool}
        self.write(entry, sync=self.is_each)

    def local_times(self, asked: ReadClock, times: Mapping[str, str]) -> None:
        """Keep the local times that a decision rests on; they are on the disk before what follows from it."""
        self.write(
            {"type": "local_times", "step": asked.step, "at": asked.position, "times": times}, sync=False
        )

    def withdrawn(self, effect: Effect) -> None:
        """Say that the effect of an intent was not begun."""
        self.write({"type": "withdrawn", "step": effect.step, "at": effect.position}, sync=self.is_each)

    def outcome(
        self,
        effect: Effect,
        outcome: Outcome | Cancelled,
        stamps: Stamps,
        before: Stamps,
        numbers: Sequence[Sequence[Any]] = (),
        *,
        branch: Branch | None = None,
    ) -> None:
        """Keep what came of an effect, with its new stamps, and those that an earlier step had `before`.

        For a call of a group, `branch`, `before` are the new stamps of the step outside of the group. `numbers` are
        those of placeholders given out since the entry before, as `Redactor.new_numbers` has them.
        """
        entry: Entry = {
            "type": "outcome",
            "step": effect.step,
            "at": effect.position,
            "stamps": stamps,
            "outcome": outcome_to_dict(outcome),
        }
        if before:
            entry["before"] = before
        if branch is not None:
            entry["branch"] = branch[1]
        if numbers:
            entry["numbers"] = [list(number) for number in numbers]
        if isinstance(effect, AskModel):
            entry["input"] = effect.to_dict()
        self.write(entry, sync=self.is_each)

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):  # what had to be on the disk is there
            os.close(self._fd)

    def _lost(self, error: OSError) -> Suspended | OutputError:
        what = f"{self._path.name} cannot be written ({system_reason(error)})"
        if self._is_empty:
            with contextlib.suppress(OSError):  # it holds nothing that is worth going on with
                self._path.unlink()
            return OutputError(f"{what}: the run did not begin; make room or name another place")
        return Suspended(f"{what}: the run stops before its next effect; make room and resume the run")


def chain_of(chain: str, body: str) -> str:
    """Return the chain value after an entry's text."""
    return canonical_json.digest(chain.encode("ascii") + body.encode("utf-8"))


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# ---- a journal read back ---------------------------------------------------------------------------------


@dataclass
class Journaled:
    """A journal as it was left. `size` and `chain` are those of its whole entries, `torn` the bytes cut off.

    `begin` is its first entry, `rebased` those of that kind; `intents` are those that have no outcome, by step and
    position. `secrets` are the numbers of placeholders given out, by kind. `stamps` are those of the run, `branches`
    those of calls that were performed in a group.
    """

    begin: Entry
    size: int
    chain: str
    torn: int
    steps: dict[int, CassetteStep] = field(default_factory=dict)
    pairs: dict[tuple[Branch | None, int, str], list[int]] = field(default_factory=dict)
    is_prepared: bool = False
    rebased: list[Entry] = field(default_factory=list)
    intents: dict[tuple[int, str], Entry] = field(default_factory=dict)
    secrets: dict[str, int] = field(default_factory=dict)
    numbers: list[list[Any]] = field(default_factory=list)
    local_times: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)

    @property
    def standing_times(self) -> dict[tuple[int, str], dict[str, str]]:
        """The local times whose decisions stand: its stamp was kept, or the call is in doubt. Others are made anew."""
        begun = {(step, at[1:].partition(".")[0]) for step, at in self.intents}
        return {
            (step, at): times
            for (step, at), times in self.local_times.items()
            if (None, step, at) in self.pairs or (step, at[1:].partition(".")[0]) in begun
        }

    @property
    def cassette(self) -> Cassette:
        """The outcomes, to be taken once."""
        return Cassette(
            {
                index: CassetteStep(dict(step.outcomes), step.input, dict(step.late))
                for index, step in self.steps.items()
            }
        )

    @property
    def stamps(self) -> list[int]:
        """The stamps of everything that was not performed in a group."""
        return [at for (branch, _, _), pair in self.pairs.items() if branch is None for at in pair]

    @property
    def branches(self) -> dict[Branch, list[int]]:
        """The stamps of each call that was performed in a group."""
        found: dict[Branch, list[int]] = {}
        for (branch, _, _), pair in self.pairs.items():
            if branch is not None:
                found.setdefault(branch, []).extend(pair)
        return found

    @property
    def last(self) -> int:
        """The last stamp, -1 where there is none."""
        return max((at for pair in self.pairs.values() for at in pair), default=-1)


def read_journal(data: bytes, name: str) -> Journaled | None:
    """Return what a journal holds, or None if not even its first entry is whole.

    Raises RecordError, naming the line, for anything but a torn last line.
    """
    found: Journaled | None = None
    chain, size = _START, 0
    lines = data.split(b"\n")
    tail = lines.pop()
    for number, line in enumerate(lines, start=1):
        parsed = _entry(line, chain)
        if parsed is None:
            if number < len(lines) or tail or not _is_torn(line, chain):
                raise RecordError(
                    "does not follow from the line before: a line was changed, lost, doubled or moved",
                    file=name,
                    line=number,
                    remedy="restore the file, or remove the folder and run again",
                )
            break
        entry, chain = parsed
        size += len(line) + 1
        try:
            found = _take(found, entry, name, number)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RecordError(
                f"an entry of an unknown shape ({type(error).__name__})",
                file=name,
                line=number,
                remedy="go on with the version that wrote it",
            ) from error
    if _entry(tail[:-1], chain) is not None and not tail.endswith(b"\0"):
        raise RecordError(
            "ends in another byte than it was written with: a line was changed",
            file=name,
            line=len(lines) + 1,
            remedy="restore the file, or remove the folder and run again",
        )
    if found is not None:
        found.size, found.chain, found.torn = size, chain, len(data) - size
        found.intents = dict(sorted(found.intents.items(), key=lambda item: _place(*item[0])))
        found.secrets = placeholder_counts(data[:size].decode("utf-8", "replace"))
    return found


def _place(step: int, position: str) -> tuple[int, int]:
    """Return where an effect stands in the order of the calls."""
    return step, call_index(position) or 0


def _is_torn(line: bytes, chain: str) -> bool:
    """Whether a damaged line with an end may be one write of which the disk got a part: the rest is zeros.

    Where the zeros took the end of a whole line, or another begins behind them, more was lost than a write.
    """
    written, zeros, _ = line.partition(b"\0")
    return bool(zeros) and _HEAD not in line[1:] and _entry(written, chain) is None


def _entry(line: bytes, chain: str) -> tuple[Entry, str] | None:
    """Return an entry and the chain value after it, or None if the line does not follow."""
    head, _, rest = line.partition(b',"entry":')
    try:
        body = rest[:-1].decode("utf-8")
        follows = chain_of(chain, body)
        if head != f'{{"chain":"{follows}"'.encode("ascii") or not rest.endswith(b"}"):
            return None
        entry = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return (entry, follows) if isinstance(entry, dict) else None


def _take(found: Journaled | None, entry: Entry, name: str, number: int) -> Journaled:
    kind = entry["type"]
    if (kind == "begin") != (found is None):
        raise ValueError("out of place")
    if found is None:
        if entry["schema"] != SCHEMA:
            raise RecordError(
                f"schema {str(entry['schema'])[:40]!r}, this version reads {SCHEMA!r}",
                file=name,
                line=number,
                remedy="go on with the version that wrote it",
            )
        return Journaled({**entry, "run": lifted(entry["run"])}, 0, _START, 0)
    if kind == "prepared":
        found.is_prepared = True
    elif kind == "rebased":
        found.rebased.append(entry)
    elif kind == "intent":
        found.intents[entry["step"], entry["at"]] = entry
    elif kind == "withdrawn":
        found.intents.pop((entry["step"], entry["at"]), None)
    elif kind == "local_times":
        found.local_times[entry["step"], entry["at"]] = dict(entry["times"])
    elif kind == "outcome":
        _take_outcome(found, entry)
    else:
        raise ValueError("an unknown kind")
    return found


def _take_outcome(found: Journaled, entry: Mapping[str, Any]) -> None:
    step = found.steps.setdefault(entry["step"], CassetteStep())
    step.outcomes[entry["at"]] = outcome_from_dict(entry["outcome"])
    step.late.update(late_of(entry["stamps"]))
    found.numbers += [
        [str(kind), int(number), str(digest)] for kind, number, digest in entry.get("numbers", ())
    ]
    if "input" in entry and step.input is None:
        step.input = entry["input"]
    index, number = entry["step"], entry.get("branch")
    branch = None if number is None else (index, int(number))
    # the stamps outside of a group may be told by each of its calls
    earlier = index - 1 if branch is None else index
    found.pairs.update({(None, earlier, at): list(pair) for at, pair in entry.get("before", {}).items()})
    found.pairs.update({(branch, index, at): list(pair) for at, pair in entry["stamps"].items()})
    found.intents.pop((index, entry["at"]), None)
