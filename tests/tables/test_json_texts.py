"""The table of argument texts: each becomes one canonical text, or is refused by the gate."""

from __future__ import annotations

import json

import pytest

from tachograph.runtime.core.effects import Call
from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.formats import canonical_json
from tachograph.runtime.models.types import read_call
from tachograph.runtime.policy.call_cost import MAX_TEXT
from tachograph.runtime.policy.gate import DENY, Counters, Gate
from tachograph.runtime.policy.policy import Policy
from tests.support import policy_data, tool
from tests.tables import json_texts
from tests.tables.json_reference import reference
from tests.tables.table import rows

GATE = Gate(Policy.from_dict(policy_data()), {"probe": tool()})


def read(text: str) -> Call:
    """A call with these arguments; it can be decided and recorded whatever the text is."""
    call = read_call("tc_1_0", "probe", text, Redactor([]))
    canonical_json.encode(call.to_dict())
    decision = GATE.decide(call, Counters())
    is_long = call.arguments is not None and len(call.arguments.text) > MAX_TEXT
    assert (decision.rule_id == "gate_error") == is_long
    refused = (decision.decision, decision.rule_id, decision.facts.get("keyword")) == (
        DENY,
        "arg_schema",
        "json",
    )
    assert refused == (call.arguments is None)
    return call


def canonical(text: str) -> str | None:
    arguments = read(text).arguments
    return None if arguments is None else arguments.text


def _shown(texts: list[str]) -> list[str]:
    return [ascii(text[:200]) for text in texts[:20]]


@pytest.mark.parametrize("name", json_texts.REFUSED)
def test_no_arguments(name: str) -> None:
    texts = rows(json_texts.REFUSED[name]())
    assert _shown([text for text in texts if reference(text) is not None]) == []
    assert _shown([text for text in texts if canonical(text) is not None]) == []


@pytest.mark.parametrize("name", json_texts.READ)
def test_arguments_become_one_canonical_text(name: str) -> None:
    texts = rows(json_texts.READ[name]())
    assert _shown([text for text in texts if reference(text) is None]) == []
    assert _shown([text for text in texts if canonical(text) != reference(text)]) == []
    again = [found for text in texts if (found := canonical(text)) is not None]
    assert _shown([text for text in again if canonical(text) != text]) == []


def test_white_space_and_escapes_change_nothing() -> None:
    for text in rows(json_texts.READ["white space"]()):
        assert json.loads(canonical(text) or "") == json.loads(text)
    for text in rows(json_texts.READ["characters"]()):
        assert json.loads(canonical(text) or "") == json.loads(text)


def test_numbers_are_whole_finite_and_written_one_way() -> None:
    texts = rows(json_texts.numbers())
    assert _shown([text for text in texts if canonical(text) != reference(text)]) == []
    good = [text for text in texts if canonical(text) is not None]
    assert len(good) >= 50 and len(texts) - len(good) >= 50


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_the_longest_text_counts_characters(more: int) -> None:
    text = '{"a":"' + "\u00e9" * (8_000_000 - 8 + more) + '"}'
    assert (canonical(text) is None) == (more > 0)
