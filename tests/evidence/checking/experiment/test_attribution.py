"""What is behind a difference follows from what each input does alone, and from what is left without it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tachograph.evidence.checking.experiment.attribution import Key, behind

KEY: Key = (3, "/policy_decisions/0/decision", '"deny"')
OTHER: Key = (4, "/final_answer", '"x"')


def test_an_input_that_is_enough() -> None:
    assert behind(KEY, {"a": {KEY}, "b": {OTHER}}, {"a": set(), "b": {KEY}}) == [("a",)]


def test_two_inputs_each_of_which_is_enough() -> None:
    assert behind(KEY, {"a": {KEY}, "b": {KEY}}, {"a": {KEY}, "b": {KEY}}) == [("a",), ("b",)]


def test_inputs_that_are_needed_together() -> None:
    alone = {"a": {OTHER}, "b": set(), "c": set()}
    assert behind(KEY, alone, {"a": set(), "b": set(), "c": {KEY}}) == [("a", "b")]


def test_what_does_not_split_is_named_together() -> None:
    """Any two of three are enough: none is by itself, and none is needed."""
    alone: dict[str, set[Key]] = {path: set() for path in "abc"}
    assert behind(KEY, alone, {path: {KEY} for path in "abc"}) == [("a", "b", "c")]


@given(st.sets(st.sampled_from("abcd"), min_size=1), st.booleans())
def test_of_causes_that_act_as_one_or_all_it_finds_these(causes: set[str], is_any: bool) -> None:
    def there(moved: set[str]) -> set[Key]:
        return {KEY} if (causes & moved if is_any else causes <= moved) else set()

    inputs = set("abcd")
    alone = {path: there({path}) for path in sorted(inputs)}
    without = {path: there(inputs - {path}) for path in sorted(inputs)}
    found = behind(KEY, alone, without)
    assert found == [(path,) for path in sorted(causes)] if is_any else found == [tuple(sorted(causes))]
