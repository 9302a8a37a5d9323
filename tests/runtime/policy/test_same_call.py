"""Two calls that a tool reads alike are the same call for the rule on cycles."""

from __future__ import annotations

from typing import Any

import pytest

from tachograph import Policy, Tool
from tachograph.runtime.core.effects import Call
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.policy.gate import Counters, Gate, call_key
from tests.support import policy_data

EMPTY = {"type": "object", "additionalProperties": False}
WHERE = {"type": "object", "additionalProperties": False, "properties": {
    "u": {"type": "string", "x-resource": "url"}, "port": {"type": "integer", "default": 443},
}}  # fmt: skip
SCHEMA = {**EMPTY, "properties": {
    "n": {"type": "integer"}, "most": {"type": "integer", "default": 3},
    "where": {**WHERE, "default": {"u": "HTTPS://Good.test/"}},
    "also": WHERE,
    "choice": {"anyOf": [{**EMPTY, "properties": {"k": {"type": "integer", "default": 1}}}, {"type": "null"}]},
}}  # fmt: skip


def gate() -> Gate:
    tool = Tool("probe", "", SCHEMA, EMPTY, "network", True, lambda arguments, io: {})
    return Gate(Policy.from_dict(policy_data()), {"probe": tool})


def call(**arguments: Any) -> Call:
    return Call("tc_1_0", "probe", freeze(arguments))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"n": 1}, {"n": 1, "most": 3}, True),
        ({"n": 1}, {"n": 1, "most": 4}, False),
        ({"n": 1}, {"n": 2}, False),
        ({}, {"where": {"u": "https://good.test/"}}, True),
        ({}, {"where": {"u": "https://good.test/", "port": 443}}, True),
        ({}, {"where": {"u": "https://good.test/", "port": 80}}, False),
        ({"also": {"u": "https://good.test"}}, {"also": {"u": "https://GOOD.test/", "port": 443}}, True),
        ({"also": {}}, {}, False),
        ({"choice": {}}, {"choice": {"k": 1}}, False),
    ],
)
def test_a_default_that_is_written_out_makes_no_other_call(one: Any, other: Any, same: bool) -> None:
    asked = gate()
    assert (asked.key_of(call(**one)) == asked.key_of(call(**other))) is same
    # nothing of that stays in the tool
    assert asked.tools["probe"].input_schema == SCHEMA


def test_a_cycle_is_met_whether_or_not_the_default_is_written() -> None:
    asked, counters = gate(), Counters()
    for arguments in ({"n": 1}, {"n": 1, "most": 3}, {"most": 3, "n": 1}):
        counters.count_result(call(**arguments), "{}", asked.key_of(call(**arguments)))
    assert asked.decide(call(n=1), counters).rule_id == "cycle_detection"
    assert asked.decide(call(n=1, most=4), counters).rule_id != "cycle_detection"


def test_the_identity_of_a_call_without_defaults_is_that_of_its_text() -> None:
    tool = Tool(
        "probe",
        "",
        {**EMPTY, "properties": {"n": {"type": "integer"}}},
        EMPTY,
        "pure",
        True,
        lambda a, io: {},
    )
    asked = Gate(Policy.from_dict(policy_data()), {"probe": tool})
    assert asked.key_of(call(n=1)) == call_key(call(n=1))
