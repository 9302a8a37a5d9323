"""Clocks: stamps that strictly increase, virtual time that depends on what is done alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph.runtime.core.clock import (
    DEFAULT_COSTS_MS,
    DEFAULT_START,
    MS,
    SystemClock,
    VirtualClock,
    epoch_ns,
    iso_of,
    stopwatch,
    wall_now,
)

ACTS = st.one_of(
    st.just(("stamp", 0)),
    st.tuples(st.sampled_from(sorted(DEFAULT_COSTS_MS)), st.integers(0, 50)),
    st.tuples(st.just("sleep"), st.integers(0, 5000)),
)


@given(st.lists(ACTS))
def test_virtual_stamps_strictly_increase_and_repeat(acts: list[tuple[str, int]]) -> None:
    def run() -> list[int]:
        clock, stamps = VirtualClock(), []
        for what, amount in acts:
            if what == "stamp":
                stamps.append(clock.stamp())
            elif what == "sleep":
                clock.sleep(amount)
            else:
                clock.spend(what, amount)
        return stamps

    stamps = run()
    assert stamps == run()
    assert all(type(stamp) is int and stamp >= 0 for stamp in stamps)
    assert stamps == sorted(set(stamps))


@given(st.integers(0, 20))
def test_reading_the_clock_moves_it_by_less_than_any_effect(reads: int) -> None:
    """How often it was read shows in nanoseconds only, which the next effect's cost outweighs."""
    clock = VirtualClock()
    for _ in range(reads):
        clock.stamp()
    clock.spend("decision")
    assert clock.stamp() // MS == 1


@pytest.mark.parametrize(("what", "ms"), [("model", 200), ("attempt", 20), ("decision", 1), ("person", 1000)])
def test_the_table_of_costs(what: str, ms: int) -> None:
    clock = VirtualClock()
    clock.spend(what)
    assert clock.stamp() == ms * MS
    dear = VirtualClock(costs_ms={what: 7})
    dear.spend(what, extra_ms=3)
    dear.sleep(5)
    assert dear.stamp() == 15 * MS


def test_other_costs_stay_when_one_is_given() -> None:
    clock = VirtualClock(costs_ms={"model": 7})
    clock.spend("attempt")
    assert clock.stamp() == 20 * MS


def test_an_unknown_effect_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        VirtualClock().spend("tea")


def test_system_stamps_strictly_increase_from_one_reading_of_wall_time() -> None:
    clock = SystemClock()
    start = clock.start
    stamps = [clock.stamp() for _ in range(1000)]
    clock.sleep(2)
    clock.spend("model")
    clock.spend("attempt", extra_ms=1)
    stamps.append(clock.stamp())
    assert stamps == sorted(set(stamps))
    assert stamps[-1] - stamps[-2] >= 3 * MS
    assert clock.start == start and epoch_ns(start) > epoch_ns(DEFAULT_START)


@given(st.integers(0, 4_000_000_000 * 10**9))
def test_iso_and_epoch_are_inverse(ns: int) -> None:
    assert epoch_ns(iso_of(ns)) == ns


@pytest.mark.parametrize(
    ("iso", "ns"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("2026-01-01T00:00:00Z", 1_767_225_600_000_000_000),
        ("2024-02-29T23:59:59.000000001Z", 1_709_251_199_000_000_001),
    ],
)
def test_iso_times(iso: str, ns: int) -> None:
    assert epoch_ns(iso) == ns
    assert VirtualClock(iso).start == iso


@pytest.mark.parametrize(
    "iso",
    ["", "2026-01-01", "2026-01-01T00:00:00", "2026-01-01T00:00:00+00:00", "2026-02-30T00:00:00Z",
     "2026-01-01T24:00:00Z", "2026-01-01T00:00:60Z", "2026-01-01T00:00:00.Z", "2026-01-01T00:00:00Z\n",
     "2026-01-01T00:00:00.1234567890Z", "2026-01-01t00:00:00z", "\u0662026-01-01T00:00:00Z"],
)  # fmt: skip
def test_other_times_are_refused(iso: str) -> None:
    with pytest.raises(ValueError):
        VirtualClock(iso)


def test_the_volatile_clocks() -> None:
    assert epoch_ns(wall_now()) > epoch_ns(DEFAULT_START)
    assert stopwatch() <= stopwatch()
