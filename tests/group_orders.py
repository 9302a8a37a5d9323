"""Perform the calls of groups in any order: what comes first differs, what is recorded must not."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from tachograph.runtime.driver import driver
from tachograph.runtime.driver.groups import BranchRun, Perform


@contextmanager
def shuffled(seed: int) -> Iterator[list[int]]:
    """Perform the effects of groups in a random order of the calls; the list gets the sizes of the groups."""
    draw = random.Random(seed)
    sizes: list[int] = []

    def perform_group(runs: list[BranchRun], perform: Perform) -> None:
        sizes.append(len(runs))
        while left := [run for run in runs if run.effect is not None]:
            run = draw.choice(left)
            with run.here():
                assert run.effect is not None
                run.end(run.begin() or perform(run.effect, run.stamps))
        draw.shuffle(runs)

    with mock.patch.object(driver, "perform_group", perform_group):
        yield sizes
