"""Random runs, deaths and resumes, against a small model of what must be durable.

The model knows what was done outside, by idempotency key, and which outcomes the disk had when the process
died. Whatever happens: what was acknowledged is not performed again, what may not be repeated is done once,
and in the end there is the record of the run that nothing disturbed, unless a result was lost and says so.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tachograph.fail.errors import EffectInDoubt, OutputError, RecordError
from tachograph.runtime.journal.journal import read_journal
from tachograph.runtime.setup.run_config import RunResult
from tests.faults.kept import KINDS, Case, Disk, in_memory
from tests.support import well_formed

STEPS = st.lists(
    st.lists(st.sampled_from([*KINDS, "pay", "look!"]), min_size=1, max_size=3), min_size=1, max_size=3
)
CALLS = st.integers(1, 40)  # at which call to the disk a process dies; most lives are shorter than that
_WHOLE: dict[str, tuple[bytes, dict[str, int]]] = {}


def whole(steps: list[list[str]]) -> tuple[bytes, dict[str, int]]:
    """The ledger of the run that nothing disturbs, and what it does outside."""
    if repr(steps) not in _WHOLE:
        with tempfile.TemporaryDirectory(dir=in_memory()) as folder:
            case = Case(Path(folder), steps)
            assert case.begin() is not None
            _WHOLE[repr(steps)] = (case.out / "state.jsonl").read_bytes(), dict(case.world.done)
    return _WHOLE[repr(steps)]


class Crashes(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="tachograph-crashes-", dir=in_memory()))
        self.result: RunResult | None = None
        self.acknowledged: dict[
            str, int
        ] = {}  # key -> how often it was performed when its outcome was durable
        self.unsynced = 0
        self.begun = False

    @initialize(steps=STEPS, durability=st.sampled_from(["effect", "effect", "step"]))
    def scene(self, steps: list[list[str]], durability: str) -> None:
        self.case = Case(self.folder, steps)
        self.durability = durability
        self.whole, self.wanted = whole(steps)

    # ---- lives -----------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return self.result is not None

    @precondition(lambda self: not self.begun and not self.is_over)
    @rule(at=CALLS)
    def begin(self, at: int) -> None:
        disk = Disk(at)
        self.result = self.case.begin(disk, self.durability)
        self.begun = True
        self._after(disk)

    @precondition(lambda self: self.begun and not self.is_over)
    @rule(at=st.none() | CALLS)
    def resume(self, at: int | None) -> None:
        disk = Disk(at)
        try:
            self.result = self.case.go_on(disk=disk)
        except EffectInDoubt as doubt:
            key = "kept/{}/{}".format(*doubt.call.split("_")[1:])
            disk = Disk(at)
            said = {doubt.call: "done" if self.case.world.done[key] else "not_done"}
            self.result = self.case.go_on(said, disk)
        except (RecordError, OutputError) as error:
            # it died before it began
            assert "died before it began" in str(error) or "no unfinished run" in str(error), error
            assert not self.case.world.performed and not self.acknowledged
            self.begun = False
        self._after(disk)

    @precondition(lambda self: not self.is_over)
    @rule(
        key=st.tuples(st.integers(1, 3), st.integers(0, 2)),
        when=st.sampled_from(["before", "after"]),
    )
    def next_time_die_in_a_tool(self, key: tuple[int, int], when: str) -> None:
        self.case.world.dies_in = (f"kept/{key[0]}/{key[1]}", when)

    def _after(self, disk: Disk) -> None:
        """A process ended. What an fsync had returned for, it will know again."""
        if not self.case.journal.exists():
            return
        data = self.case.journal.read_bytes()
        self.unsynced = len(data) - disk.synced if disk.synced else 0
        found = read_journal(data[: disk.synced] if disk.synced else data, "journal")
        if found is None:
            return
        for index, step in found.steps.items():
            for at in step.outcomes:
                if at.startswith("i"):
                    key = f"kept/{index}/{at[1:].partition('.')[0]}"
                    self.acknowledged.setdefault(key, self.case.world.performed[key])

    # ---- between lives ---------------------------------------------------------------------------------------

    @precondition(lambda self: self.begun and not self.is_over and self.case.journal.exists())
    @rule(kept=st.floats(0, 1), zeros=st.booleans())
    def the_power_fails(self, kept: float, zeros: bool) -> None:
        """Of what was written and not synced, the disk has a part."""
        if self.durability != "effect" or not self.unsynced:
            return
        data = self.case.journal.read_bytes()
        size = len(data) - self.unsynced + int(kept * self.unsynced)
        self.case.journal.write_bytes(data[:size] + bytes(len(data) - size if zeros else 0))
        self.unsynced = 0

    @precondition(lambda self: self.is_over)
    @rule()
    def nothing_is_left_to_do(self) -> None:
        """Another resume finds nothing, and changes nothing."""
        before = (self.case.out / "state.jsonl").read_bytes()
        with pytest.raises(OutputError, match="no unfinished run"):
            self.case.go_on()
        assert (self.case.out / "state.jsonl").read_bytes() == before

    # ---- what holds at all times -------------------------------------------------------------------------------

    @invariant()
    def what_may_not_be_repeated_was_done_once(self) -> None:
        if hasattr(self, "case"):
            assert all(count == 1 for count in self.case.world.done.values())

    @invariant()
    def what_was_acknowledged_was_not_performed_again(self) -> None:
        for key, count in self.acknowledged.items():
            assert self.case.world.performed[key] == count, key

    @invariant()
    def there_is_no_half_record(self) -> None:
        if hasattr(self, "case") and self.case.out.exists():
            well_formed((self.case.out / "state.jsonl").read_bytes())

    def teardown(self) -> None:
        try:
            if hasattr(self, "case"):
                self._ends()
        finally:
            shutil.rmtree(self.folder)

    def _ends(self) -> None:
        """However it was left, it comes to its end, and that is the one that it would have had."""
        self.case.world.dies_in = None
        for _ in range(4):
            if self.is_over:
                break
            if self.begun:
                self.resume(None)
            else:
                self.begin(10_000)
        assert self.result is not None
        self.what_was_acknowledged_was_not_performed_again()
        state = (self.case.out / "state.jsonl").read_bytes()
        well_formed(state)
        assert state == self.whole or b'"unseen":true' in state
        assert dict(self.case.world.done) == self.wanted
        assert not self.case.partial.exists()


Crashes.TestCase.settings = settings(
    max_examples=30,
    stateful_step_count=8,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestCrashes = Crashes.TestCase
