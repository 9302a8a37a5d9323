"""Time windows, compared between two policies: each difference has a time to try."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tachograph.review.compare.policy_compare import TIGHTENING, WIDENING
from tachograph.runtime.core.effects import Call
from tachograph.runtime.core.local_time import instant_of, local_times
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.policy.gate import Counters, Gate
from tachograph.runtime.policy.per_tool.windows_of_the_week import DAYS
from tachograph.runtime.policy.policy import Policy
from tests.review.compare.test_conditions import TOOLS, compare
from tests.review.compare.test_conditions import policy as with_conditions

OFFICE = {"days": "mon-fri", "hours": "08:00-17:00", "zone": "Europe/Berlin"}


def policy(between: Any, conditions: Any = None, ask_if: Any = None) -> Policy:
    made = with_conditions(conditions, ask_if).data
    rules = {**made.get("tools", {}).get("send", {}), **({"between": between} if between else {})}
    return Policy.from_dict({**made, **({"tools": {"send": rules}} if rules else {})})


@pytest.mark.parametrize(
    ("strict", "loose", "time"),
    [
        (OFFICE, None, "2027-01-04T00:00"),
        (OFFICE, {**OFFICE, "hours": "08:00-17:01"}, "2027-01-04T17:00"),
        (OFFICE, {**OFFICE, "days": "mon-sat"}, "2027-01-09T08:00"),
        (OFFICE, [OFFICE, {**OFFICE, "days": "sat", "hours": "22:00-06:00"}], "2027-01-09T22:00"),
        ({**OFFICE, "hours": "22:00-05:59"}, {**OFFICE, "hours": "22:00-06:00"}, "2027-01-05T05:59"),
    ],
)
def test_more_time_is_a_widening_with_a_time_to_try(strict: Any, loose: Any, time: str) -> None:
    forth, back = compare(policy(strict), policy(loose)), compare(policy(loose), policy(strict))
    (widening,), (tightening,) = forth.changes, back.changes
    assert (widening.kind, widening.rule, tightening.kind) == (WIDENING, "time_window", TIGHTENING)
    assert widening.witness.local_times == {"Europe/Berlin": time}
    assert widening.witness.to_dict()["local_times"] == {"Europe/Berlin": time}
    assert widening.witness.before["rule_id"] == "time_window"
    assert widening.at == "<policy>#/tools/send/between"
    assert forth.undecided == back.undecided == ()
    assert time.replace("T", " ") in widening.description


@pytest.mark.parametrize(
    "same",
    [
        ({"days": "mon-sun", "zone": "UTC"}, None),
        ([{**OFFICE, "days": "mon-wed"}, {**OFFICE, "days": "thu-fri"}], OFFICE),
        ({**OFFICE, "days": "fri-mon"}, {**OFFICE, "days": ["sat-sun", "mon", "fri"]}),
    ],
)
def test_the_same_times_written_in_another_way_change_nothing(same: Any) -> None:
    assert compare(policy(same[0]), policy(same[1])).equal
    assert compare(policy(same[1]), policy(same[0])).equal


def test_what_else_differs_is_found_at_a_time_at_which_both_let_the_tool_be_called() -> None:
    strict = policy({**OFFICE, "days": "wed"}, {"/amount": {"maximum": 5}})
    loose = policy({**OFFICE, "days": "wed"}, {"/amount": {"maximum": 6}})
    (change,) = compare(strict, loose).changes
    assert (change.kind, change.rule) == (WIDENING, "arguments")
    assert change.witness.local_times == {"Europe/Berlin": "2027-01-06T08:00"}


def test_windows_that_share_no_time_are_a_widening_and_a_tightening() -> None:
    asks = {"/amount": {"maximum": 5}}
    old, new = policy({**OFFICE, "days": "mon"}, None, asks), policy({**OFFICE, "days": "tue"})
    comparison = compare(old, new)
    assert [(change.kind, change.rule) for change in comparison.changes] == [
        (WIDENING, "time_window"), (TIGHTENING, "time_window"),
    ]  # fmt: skip
    assert comparison.undecided == ()


def test_another_zone_is_compared_at_times_that_there_are() -> None:
    comparison = compare(policy(OFFICE), policy({**OFFICE, "zone": "Europe/London"}))
    assert [change.kind for change in comparison.changes] == [WIDENING, TIGHTENING]
    times = comparison.changes[0].witness.local_times
    assert local_times(instant_of(times["Europe/London"], "Europe/London"), times) == times


def test_an_hour_between_zones_that_only_some_weeks_have_is_found() -> None:
    """Clocks in New York are put forward two weeks before those in Berlin: then 12:30 is 17:30 and not 18:30."""
    old = {"hours": "18:00-19:00", "zone": "Europe/Berlin"}
    new = {"hours": "12:00-13:00", "zone": "America/New_York"}
    (widening, _) = compare(policy(old), policy(new)).changes
    assert widening.witness.local_times["Europe/Berlin"].startswith("2027-03-")


def test_zones_that_agreed_all_year_count_as_not_known() -> None:
    """Whether they agree in other years is not known, so the answer is not that nothing differs."""
    old, new = ({"hours": "08:00-17:00", "zone": zone} for zone in ("Europe/Berlin", "Europe/Paris"))
    comparison = compare(policy(old), policy(new))
    assert comparison.changes == () and not comparison.equal
    assert "windows in several zones" in comparison.undecided[0]


def random_window(chance: random.Random) -> dict[str, Any]:
    first, last = chance.choice(DAYS), chance.choice(DAYS)
    days = chance.choice([{}, {"days": first}, {"days": f"{first}-{last}"}, {"days": [first, last]}])
    hours = chance.choice([None, "00:00-12:00", "12:00-24:00", "06:00-18:00", "18:00-06:00", "06:00-12:00"])
    if "days" in days and len(set(days["days"])) == 1:
        days = {"days": first}
    return {"zone": "Europe/Berlin", **days, **({} if hours is None else {"hours": hours})}


def random_policy(chance: random.Random) -> Policy:
    conditions = chance.choice([None, None, {"/amount": {"maximum": 5}}, {"/amount": {"minimum": 5}}])
    between = chance.choice([None, random_window(chance), random_window(chance)])
    return policy(between, conditions)


HOURS = [f"2026-11-{23 + day:02}T{hour:02}:00" for day in range(7) for hour in range(0, 24, 3)]


def test_the_difference_is_what_trying_all_times_finds(pairs: int) -> None:
    """Windows begin and end at whole hours here, so every time that matters can be tried under both policies."""
    chance = random.Random(23)
    seen = set()
    calls = [Call("c", "send", freeze({"amount": amount})) for amount in (0, 5, 9)]
    for _ in range(pairs):
        old, new = random_policy(chance), random_policy(chance)
        allowed = [
            {
                (time, number)
                for time in HOURS
                for number, call in enumerate(calls)
                if gate.decide(call, Counters(local_times={"Europe/Berlin": time})).decision == "allow"
            }
            for gate in (Gate(made, TOOLS) for made in (old, new))
        ]
        comparison = compare(old, new)
        wanted = ({WIDENING} if allowed[1] - allowed[0] else set()) | (
            {TIGHTENING} if allowed[0] - allowed[1] else set()
        )
        assert comparison.undecided == ()
        assert {change.kind for change in comparison.changes} == wanted, (old.data, new.data)
        seen.add(frozenset(wanted))
    assert len(seen) == 4


def test_a_window_never_widens() -> None:
    """A policy with a window allows nothing that the same policy without it does not."""
    chance = random.Random(24)
    call = Call("c", "send", freeze({"amount": 5}))
    for _ in range(200):
        conditions = chance.choice([None, {"/amount": {"maximum": 4}}, {"/amount": {"maximum": 5}}])
        free = Gate(policy(None, conditions), TOOLS)
        held = Gate(policy(random_window(chance), conditions), TOOLS)
        for time in HOURS:
            counters = Counters(local_times={"Europe/Berlin": time})
            if free.decide(call, counters).decision != "allow":
                assert held.decide(call, counters).decision != "allow"
        comparison = compare(free.policy, held.policy)
        assert all(change.kind == TIGHTENING for change in comparison.changes) and not comparison.undecided
