"""Perform the calls of groups in any order: what comes first differs, what is recorded must not."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from tachograph.runtime.core.clock import Clock
from tachograph.runtime.core.effects import Group, Outcome
from tachograph.runtime.driver import driver
from tachograph.runtime.driver.groups import BranchRun, Perform, Watch, join
from tachograph.runtime.driver.ports import Stamps


@contextmanager
def shuffled(seed: int) -> Iterator[list[int]]:
    """Perform the effects of groups in a random order of the branches; the list gets the sizes of the groups."""
    draw, sizes = random.Random(seed), []

    def perform_group(group: Group, perform: Perform, clock: Clock, watch: Watch, stamps: Stamps) -> Outcome:
        runs = [BranchRun(group, index, clock, watch) for index in group.branches]
        sizes.append(len(runs))
        left = list(runs)
        while left:
            run = draw.choice(left)
            with run.here():
                assert run.effect is not None
                run.end(perform(run.effect, run.stamps, run.begin()))
            left = [run for run in left if run.effect is not None]
        draw.shuffle(runs)
        return join(runs, clock, watch, stamps)

    with mock.patch.object(driver, "perform_group", perform_group):
        yield sizes
