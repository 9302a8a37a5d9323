"""What the schema of a function accepts reaches it as what its annotation says; what the schema refuses never does."""

from __future__ import annotations

from calendar import monthrange
from collections import Counter
from datetime import date
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from msgspec import defstruct
from pydantic import BaseModel

from tachograph import Tool
from tachograph.runtime.formats import strict_json
from tachograph.runtime.log.values import Call
from tachograph.runtime.schema.python_types import read_as, written
from tachograph.runtime.tools.contract import call_key
from tachograph.runtime.tools.functions import tool
from tachograph.testing import decide
from tests.functions.kit import TYPES, arguments_of
from tests.project import POLICY, merged

ALLOWED = merged(POLICY, {"tool_registry": {"allowed": ["take"]}})


def taking(kind: Any, taken: list[Any], *defaults: Any) -> Tool:
    """Return a tool that keeps what it is called with."""

    def take(value, times=1):
        taken.append(value)
        return value

    take.__annotations__ = {"value": kind, "times": int, "return": kind}
    take.__defaults__ = (*defaults, 1)
    return tool(take, description="Take a value.", effect="pure")


@pytest.mark.parametrize("name", TYPES)
def test_what_the_schema_accepts_is_read_and_what_it_refuses_is_denied(name: str) -> None:
    taken: list[Any] = []
    made = taking(TYPES[name], taken)
    accepted = made.input_validator(strict=True)
    seen: Counter[bool] = Counter()

    @settings(max_examples=40, suppress_health_check=list(HealthCheck))
    @given(arguments_of(made))
    def hold(arguments: Any) -> None:
        arguments = strict_json.as_json(arguments)
        fits = accepted.first_mismatch(arguments) is None
        seen[fits] += 1
        (decision,) = decide(ALLOWED, [made], [{"name": "take", "arguments": arguments}])
        # marked strings are judged by their own rules, which come first
        assert fits == (decision.decision == "allow") or decision.rule_id in ("url_allowlist", "sandbox_path")
        if fits:
            result = strict_json.as_json(made.run(arguments, None))
            assert made.output_validator.first_mismatch(result) is None
            assert len(taken) == seen[True]
            value = taken[-1]
            data = strict_json.as_json(written(value))
            assert read_as(TYPES[name], data) == value
            # a call that writes out the defaults is the same call
            optional = taking(TYPES[name], [], value)
            keys = [
                call_key(Call("tc_1_0", "take", said), optional) for said in ({}, {"value": data, "times": 1})
            ]
            assert keys[0] == keys[1]

    hold()
    assert seen[True]
    assert seen[False]


def test_dates_are_those_of_the_calendar() -> None:
    fits = taking(date, []).input_validator(strict=True).first_mismatch
    for year, month, day in product((1, 4, 100, 400, 1900, 2023, 2024, 2026), range(14), range(33)):
        known = 1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]
        assert (fits({"value": f"{year:04}-{month:02}-{day:02}"}) is None) == known


def test_the_items_of_a_set_are_written_in_one_order() -> None:
    """A set of small numbers has its own order in every process, which is not that of their texts."""

    class Days(BaseModel):
        held: dict[str, list[frozenset[int]]]

    eight = frozenset({8, 1})
    assert [*eight] == [8, 1]
    schema = taking(defstruct("Of", [("days", frozenset[int] | None, eight)]), []).input_schema
    assert schema["$defs"]["Of"]["properties"]["days"]["default"] == [1, 8]
    assert written(Days(held={"a": [eight]})) == {"held": {"a": [[1, 8]]}}
