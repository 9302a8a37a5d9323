"""What making a step durable would cost at least: its bytes, appended and synced."""

from __future__ import annotations

import os
import tempfile
import time
from statistics import median

from measure import Row

STEP_BYTES = 5000
COUNT = 200


def rows(*, quick: bool) -> list[Row]:
    data = os.urandom(STEP_BYTES)
    spent: dict[bool, list[int]] = {False: [], True: []}
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range(20 if quick else COUNT):
            for sync in (False, True):
                begun = time.perf_counter_ns()
                file.write(data)
                if sync:
                    os.fsync(file.fileno())
                spent[sync].append(time.perf_counter_ns() - begun)
    plain, synced = median(spent[False]), median(spent[True])
    return [
        Row(
            "write and fsync of a step's bytes : write alone",
            synced / plain,
            note=f"{synced / 1000:.0f} us wall : {plain / 1000:.1f} us",
        )
    ]
