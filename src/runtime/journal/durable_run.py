"""A run kept in its journal, and gone on with from there.

What the journal holds is answered from it; then effects are performed. What a tool wrote to a mount is made
durable first, then the outcome, then the next effect is begun. An effect that was begun and has no outcome is
*in doubt*: pure and idempotent tools run again under the same attempt number and key, a tool with a `probe`
is asked, anything else needs a person.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...fail.errors import Cancelled, EffectInDoubt, Interrupted, ReplayError, StoppedBySignal
from ..core.branches import BRANCH
from ..core.effects import AskHuman, Effect, Invoke, Outcome, ReadClock
from ..core.lines import RunLine
from ..core.redaction import Redactor
from ..core.run_ids import new_key, new_marker
from ..driver.disk_work import aside
from ..driver.ports import Executor, Stamps
from ..driver.stopping.interrupts import Interrupts
from ..driver.stopping.processes import carriers
from ..formats.document_digest import RunInput
from ..policy.gate import Gate
from ..resources.mount_path import parse_path
from ..resources.url import Malformed
from ..tools.contract import Tool
from ..workspace.workspace import Workspace
from .cassette import Cassette, ReplayExecutor
from .journal import SCHEMA, Entry, Journal, Journaled
from .journaled_executor import DONE as DONE
from .journaled_executor import NOT_DONE as NOT_DONE
from .journaled_executor import JournaledExecutor

if TYPE_CHECKING:
    from asyncio import CancelledError


class DurableRun:
    """Keeps a run in a journal. With `before`, what an earlier process left, it goes on from there.

    `said` is what a person says of effects in doubt: call id -> `done` or `not_done`. `clock` is the run's,
    which stamps what the cassette answers. `rebase` says that it goes on under other inputs than before.
    With `suspends` a signal stops the run before its next effect, so that it can be resumed; else it ends it.
    With `concludes` nothing is performed any more: the effect after the last in the journal is taken to have ended
    the process, and the run is brought to its end.

    Attributes:
        marker: What every program that the run starts has in its environment; None for a journal without one.
    """

    def __init__(
        self,
        journal: Journal,
        private: Path,
        package: dict[str, Any],
        clock: Any,
        *,
        before: Journaled | None = None,
        said: dict[str, str] | None = None,
        rebase: bool = False,
        suspends: bool = True,
        concludes: bool = False,
    ) -> None:
        self.private: Path | None = private
        self.is_prepared = before is not None and before.is_prepared
        self.secrets: Mapping[str, int] = before.secrets if before is not None else {}
        self._key = new_key() if before is None else str(before.begin.get("key", ""))
        self._redactor: Redactor | None = None
        self._journal = journal
        self._package = package
        self._clock = clock
        self._before = before
        self.has_noted = False  # whether anything was done in this process
        self._doubts = dict(before.intents) if before is not None else {}
        self._rebase = rebase
        self._rebased: Entry | None = None  # to be written before the first thing that is done under it
        self._said = dict(said or {})
        self._cassette: Cassette = before.cassette if before is not None else Cassette({})
        self._known = (
            {(s, at) for s, step in before.steps.items() for at in step.outcomes} if before else set()
        )
        self._written: dict[str, None] = {}  # by tools, and perhaps not on the disk
        self._syncing = threading.Lock()
        self._step = 0
        self._stamps: Stamps = {}
        self._told: set[str] = set()  # the positions of the step whose stamps the journal has
        self._suspends = suspends
        self.concludes = concludes
        self.marker: str | None = new_marker() if before is None else before.begin.get("marker")
        self._intents: set[tuple[int, str]] = set()  # written here, and without an outcome

    @property
    def is_resumed(self) -> bool:
        """Whether an earlier process began the run."""
        return self._before is not None

    def number(self, redactor: Redactor) -> None:
        """Keep the numbers of placeholders; see `DurabilityPort`."""
        self._redactor = redactor
        redactor.restore_counters(self.secrets)
        redactor.restore_numbers(self._key.encode(), [] if self._before is None else self._before.numbers)

    def begin(self, run_line: RunLine, inputs: list[RunInput]) -> None:
        """Begin or resume a run; see `DurabilityPort`."""
        line = {key: value for key, value in run_line.items() if key != "prev"}
        if self._before is None:
            begin = {"type": "begin", "schema": SCHEMA, "run": line, "inputs": inputs}
            marks = {"package": self._package, "marker": self.marker, "key": self._key}
            self._journal.write({**begin, **marks})
        elif self._rebase:
            self._rebased = {"type": "rebased", "run": line, "inputs": inputs, "package": self._package}

    def prepared(self) -> None:
        """Note that the private mounts are set up."""
        if self.is_prepared:
            return
        if self.private is not None and self.private.is_dir():
            with self._journal.guarding():
                for folder, _, files in os.walk(self.private):
                    _sync(*(Path(folder, name) for name in files), Path(folder))
                _sync(self.private.parent)
        self._journal.write({"type": "prepared"})

    def around(self, live: Executor, gate: Gate, workspace: Workspace, interrupts: Interrupts) -> Executor:
        """Return the executor that journals what `live` performs."""
        return JournaledExecutor(live, gate, workspace, self, interrupts)

    def on_outcome(self, effect: Effect, outcome: Outcome | Cancelled, stamps: Stamps) -> None:
        """Journal the outcome of an effect."""
        before: Stamps = {}
        branch = BRANCH.get()
        if branch is not None or effect.step != self._step:
            # decisions before the group, or after the last effect of the step before
            before = self._untold(self._stamps)
        if effect.step != self._step:
            self._step, self._stamps, self._told = effect.step, stamps, set()
        new = self._untold(stamps)
        self._intents.discard((effect.step, effect.position))
        if (effect.step, effect.position) not in self._known:
            doubt = self._doubt_of(effect)
            if doubt is not None and isinstance(outcome, Cancelled) and doubt["call"] not in self._said:
                raise self._in_doubt(doubt)  # the run was stopped before it was asked what became of it
            self._goes_beyond()
            numbers = [] if self._redactor is None else self._redactor.new_numbers()
            self._journal.outcome(effect, outcome, new, before, numbers, branch=branch)
            self.has_noted = True

    def on_local_times(self, asked: ReadClock, times: Mapping[str, str]) -> None:
        """Journal the local times that a decision rests on."""
        if self._before is None or (asked.step, asked.position) not in self._before.standing_times:
            self._goes_beyond()
            self._journal.local_times(asked, times)
            self.has_noted = True

    @property
    def owes(self) -> bool:
        """Whether the disk may lack what it must have before the run goes on."""
        return self._journal.owes

    def flush(self) -> None:
        """Wait until the disk has what was noted."""
        self._journal.flush()

    async def kept(self) -> CancelledError | None:
        """Wait until the disk has what was noted, in an event loop; see `DurabilityPort`."""
        return (await aside(self._journal.flush))[1] if self._journal.owes else None

    def _in_doubt(self, doubt: Entry, alive: Sequence[int] = ()) -> EffectInDoubt:
        others = [intent for intent in self._doubts.values() if intent is not doubt]
        return in_doubt(doubt, alive, [one for one in others if one["call"] not in self._said])

    def _goes_beyond(self) -> None:
        if self._rebased is not None:
            entry, self._rebased = self._rebased, None
            self._journal.write(entry)

    def _doubt_of(self, effect: Effect) -> Entry | None:
        """Return the intent for this effect that an earlier process left without an outcome, or None."""
        return self._doubts.get((effect.step, effect.position))

    def _untold(self, stamps: Stamps) -> Stamps:
        """Return the stamps of the step, or of a call of a group, that the journal does not have yet."""
        untold = {at: pair for at, pair in stamps.items() if at not in self._told}
        self._told |= untold.keys()
        return untold

    def _alive(self) -> list[int]:
        """Return the living processes that the run started; [0] where that cannot be told."""
        found = None if self.marker is None else carriers(self.marker)
        return [0] if found is None else found

    # ---- for the world ---------------------------------------------------------------------------------

    def answer(self, effect: Effect, stamps: Stamps) -> Outcome | None:
        """Return the journaled outcome of an effect, None after the last one. Raises ReplayError or Cancelled."""
        known = self._cassette.look(effect)
        if isinstance(effect, AskHuman) and isinstance(known, Outcome) and not _answers(known, effect):
            self._cassette.drop(effect)  # it goes on under other inputs: the person is asked again
            self._known.discard((effect.step, effect.position))
            return None
        if known is not None:
            return ReplayExecutor(self._cassette, self._clock).perform(effect, stamps)
        left = self._cassette.unused()
        if left is not None:
            raise ReplayError(
                effect.step,
                f"the run asks for {effect.position} of step {effect.step}, its journal goes on with {left}",
                effect.position,
            )
        return None

    def step_begins(self, workspace: Workspace) -> None:
        """Put everything done so far on the disk, before the model is asked."""
        with self._syncing:
            self._sync_written(workspace)
        self._journal.step_begins()

    def wrote(self, paths: Iterable[str], workspace: Workspace) -> None:
        """Put files that a tool wrote on the disk before its outcome, where durability is `effect`."""
        with (
            self._syncing
        ):  # calls of a group come in threads of their own, where the run is in an event loop
            self._written |= dict.fromkeys(paths)
            if self._journal.is_each:
                self._sync_written(workspace)

    def _sync_written(self, workspace: Workspace) -> None:
        with self._journal.guarding():
            for written in self._written:
                try:
                    path = parse_path(written)
                    base = workspace.open.mounts[path.mount].source or (self.private or Path()) / path.mount
                    places = [base.joinpath(*path.parts[:depth]) for depth in range(len(path.parts), -1, -1)]
                    _sync(*places)
                except (Malformed, KeyError, FileNotFoundError):
                    os.sync()  # its name holds a secret, and is not known here
        self._written = {}

    def stopped(self, stop: Interrupted) -> Exception:
        """Return what an interrupt raises: it suspends the run, or ends it."""
        if not self._suspends or not stop.came:
            return stop
        return StoppedBySignal("the run is suspended", stop.signum)

    def withdraw(self, effect: Invoke) -> None:
        """Say that an effect was not begun, if its intent was written."""
        if (effect.step, effect.position) in self._intents:
            self._intents.discard((effect.step, effect.position))
            self._journal.withdrawn(effect)

    def resolve_in_doubt(self, effect: Invoke, tool: Tool, probe: Callable[[], str]) -> Outcome | None:
        """Before an effect is performed: note the intent where it must not be repeated, settle a doubt."""
        if tool.effect == "pure" or tool.idempotent:
            return None
        doubt = self._doubt_of(effect)
        if doubt is not None:
            alive: list[int] = []
            said = self._said.get(effect.call.id)
            if said is None and tool.probe is not None:
                alive = [] if tool.isolate else self._alive()
                said = None if alive else probe()
            if said == DONE:
                return Outcome(result_lost=True)
            if said != NOT_DONE:
                raise self._in_doubt(doubt, alive)
            del self._doubts[effect.step, effect.position]
        self._goes_beyond()
        self._journal.intent(effect, effect.call.id, tool.name)
        self._intents.add((effect.step, effect.position))
        return None


def in_doubt(intent: Entry, alive: Sequence[int] = (), others: Sequence[Entry] = ()) -> EffectInDoubt:
    """Return the error for an intent without an outcome.

    Args:
        intent: The intent.
        alive: Processes that may still perform it.
        others: Further intents of the same group without an outcome.
    """
    call, tool = str(intent["call"]), str(intent["tool"])
    first = ""
    if alive:
        who = f"process {alive[0]}, which the run started, is" if alive[0] else "what the run started may be"
        first = f"{who} still alive, so the tool's probe was not asked; end it and resume again, or "
    names = " and ".join(f"call {other['call']} of tool {str(other['tool'])!r}" for other in others)
    also = f"; {names} {'is' if len(others) == 1 else 'are'} in doubt too" if others else ""
    return EffectInDoubt(
        f"call {call} of tool {tool!r} was begun and may have taken place: {first}look there, then go on with "
        f"--done {call} or --not-done {call}{also}",
        call,
        tool,
    )


def _sync(*places: Path) -> None:
    """Make files and folders durable. Raises OSError."""
    for place in places:
        if place.is_symlink():
            continue  # what it leads to is not of the run
        fd = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _answers(known: Outcome, asked: AskHuman) -> bool:
    return known.answer is not None and known.answer.digest == asked.digest
