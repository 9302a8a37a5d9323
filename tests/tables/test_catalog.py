"""What holds of the whole catalog; its table is that of docs/failure-modes.md, see test_docs.py."""

from __future__ import annotations

from itertools import product

import pytest

from tachograph.fail import catalog
from tachograph.fail.catalog import Denied, Ending, FailureMode, GaveUp, Happening, Rule


def test_what_is_told_ends_no_more_than_what_ends_the_run() -> None:
    for happening in catalog.happenings():
        terminate, inform = (catalog.classify(happening, word, word) for word in ("terminate", "inform"))
        assert terminate.mode == inform.mode
        assert inform.ending is None or terminate.ending is not None
        for on_deny, on_failure in (("terminate", "inform"), ("inform", "terminate")):
            own = on_deny if catalog.key_of(happening) == "on_deny" else on_failure
            wanted = inform if own == "inform" else terminate
            assert catalog.classify(happening, on_deny, on_failure) == wanted


def test_nothing_of_the_catalog_is_out_of_reach() -> None:
    ways = product(catalog.happenings(), ("terminate", "inform"))
    found = [catalog.classify(happening, how) for happening, how in ways]
    assert {each.mode for each in found} == {None, *FailureMode} and set(catalog.MODES) == set(FailureMode)
    assert {each.ending for each in found} == {None, *Ending} and set(catalog.ENDINGS) == set(Ending)
    denials = {it.rule for it in catalog.happenings() if isinstance(it, Denied) and not it.repeated}
    assert denials == {*Rule} - {"approval"}


@pytest.mark.parametrize("happening", [Denied(Rule.APPROVAL), GaveUp(FailureMode.SCHEMA_MISMATCH)], ids=repr)
def test_what_nobody_foresaw_is_a_mistake_and_no_ending(happening: Happening) -> None:
    with pytest.raises(KeyError):
        catalog.classify(happening, "terminate")
