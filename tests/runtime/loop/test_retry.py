"""Bounded retry: what may be repeated, and after how long."""

from __future__ import annotations

import builtins
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph.fail.errors import ModelError, TransientModelError
from tachograph.runtime.core.effects import Fault
from tachograph.runtime.formats.canonical_json import encode
from tachograph.runtime.loop.retry import Schedule, fault_from_error, may_repeat

SCHEDULES = st.builds(
    Schedule, st.integers(0, 20), st.integers(1, 600_000), st.integers(1, 600_000)
)  # the ranges of the meta-schema


def test_no_section_means_no_retry() -> None:
    assert Schedule.of({}) == Schedule(0, 0, 0)
    assert Schedule.of({"max_retries": 2, "backoff_base_ms": 5, "backoff_cap_ms": 9}) == Schedule(2, 5, 9)


@given(SCHEDULES, st.integers(1, 21), st.text())
def test_a_backoff_is_within_a_fifth_of_its_power_and_never_above_the_cap(
    schedule: Schedule, attempt: int, identity: str
) -> None:
    wait = schedule.backoff_ms(attempt, identity)
    plain = schedule.base_ms * 2 ** (attempt - 1)
    assert type(wait) is int
    assert min(plain * 4 // 5, schedule.cap_ms) <= wait <= min(plain * 6 / 5, schedule.cap_ms)
    assert wait == schedule.backoff_ms(attempt, identity)


def test_the_jitter_spreads_over_its_whole_range() -> None:
    schedule = Schedule(3, 1000, 600_000)
    waits = {schedule.backoff_ms(1, str(i)) for i in range(8000)}
    assert waits == set(range(800, 1201))


def test_the_cap_comes_last() -> None:
    waits = {Schedule(3, 1000, 1000).backoff_ms(3, str(i)) for i in range(200)}
    assert waits == {1000}


def test_each_attempt_doubles() -> None:
    schedule = Schedule(3, 10_000, 600_000)
    for attempt in (1, 2, 3, 4):
        mean = sum(schedule.backoff_ms(attempt, f"{attempt}/{i}") for i in range(2000)) / 2000
        assert mean == pytest.approx(10_000 * 2 ** (attempt - 1), rel=0.02)


@given(SCHEDULES, st.integers(1, 21), st.integers(-(10**12), 10**12))
def test_a_servers_wish_counts_up_to_the_cap(schedule: Schedule, attempt: int, wish: int) -> None:
    assert schedule.backoff_ms(attempt, "x", wish) == max(0, min(wish, schedule.cap_ms))


@pytest.mark.parametrize(
    ("error", "transient", "expected"),
    [
        (TimeoutError(), (), Fault("TimeoutError", "timeout")),
        (TimeoutError(), (TimeoutError,), Fault("TimeoutError", "timeout")),
        (TimeoutError(), (OSError,), Fault("TimeoutError", "timeout")),
        (ConnectionError(), (ConnectionError,), Fault("ConnectionError", "transient")),
        (ConnectionError(), (), Fault("ConnectionError", "other")),
        (ConnectionResetError(), (ConnectionError,), Fault("ConnectionResetError", "transient")),
        (ConnectionRefusedError(), (ConnectionError,), Fault("ConnectionRefusedError", "transient", True)),
        (ConnectionRefusedError(), (), Fault("ConnectionRefusedError", "other", True)),
        (ValueError("secret"), (ConnectionError,), Fault("ValueError", "other")),
        (SystemExit(), (), Fault("SystemExit", "other")),
        (TransientModelError(), (), Fault("TransientModelError", "transient")),
        (TransientModelError(retry_after_ms=7), (), Fault("TransientModelError", "transient", False, 7)),
        (ModelError(), (ConnectionError,), Fault("ModelError", "other")),
        (
            ModelError(status=400, service_text=" no\n\x1b[2J such\tmodel "),
            (),
            Fault("ModelError", "other", status=400, text="no \x1b[2J such model"),
        ),
        (
            TransientModelError(status=503, service_text=""),
            (),
            Fault("TransientModelError", "transient", status=503),
        ),
        (ModelError(status=True, service_text=3), (), Fault("ModelError", "other")),  # type: ignore[arg-type]
    ],
)
def test_what_a_failure_is(error: BaseException, transient: Any, expected: Fault) -> None:
    assert fault_from_error(error, transient) == expected


@pytest.mark.parametrize(
    ("wish", "kept"),
    [(0, 0), (5, 5), (-5, 0), (2.5, 3), (1e300, 2**53 - 1), (10**30, 2**53 - 1)]
    + [(odd, None) for odd in (None, math.nan, math.inf, -math.inf, "5", True, b"5")],
)
def test_an_adapters_wish_is_whole_milliseconds_or_nothing(wish: Any, kept: int | None) -> None:
    fault = fault_from_error(TransientModelError(retry_after_ms=wish))
    assert fault.retry_after_ms == kept
    assert encode(fault.to_dict())


def test_no_text_of_an_exception_enters_a_fault() -> None:
    assert "secret" not in str(fault_from_error(OSError("secret"), (OSError,)).to_dict())


@pytest.mark.parametrize("nothing_happened", [False, True])
@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("kind", ["transient", "timeout", "other"])
def test_what_may_be_repeated(kind: str, idempotent: bool, nothing_happened: bool) -> None:
    fault = Fault("X", kind, nothing_happened)
    assert may_repeat(fault, idempotent) == (kind != "other" and (idempotent or nothing_happened))


BUILTINS = [
    kind
    for kind in vars(builtins).values()
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, UnicodeError)
    and "Group" not in kind.__name__
]  # fmt: skip


@given(st.sampled_from(BUILTINS), st.lists(st.sampled_from(BUILTINS), max_size=3))
def test_only_what_is_named_is_worth_another_attempt(
    kind: type[Exception], named: list[type[Exception]]
) -> None:
    fault = fault_from_error(kind(), named)
    if issubclass(kind, TimeoutError):
        assert fault.kind == "timeout"
    else:
        assert (fault.kind == "transient") == issubclass(kind, tuple(named))
