"""Final answers that must be JSON of a schema: what is asked again, what comes of it, and where a run ends."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import pytest
from pydantic import BaseModel, Field, field_validator

from tachograph import record, replay
from tachograph.fail.catalog import Ending
from tachograph.fail.errors import InputError
from tachograph.runtime.agent import Agent
from tachograph.runtime.core.clock import VirtualClock
from tachograph.runtime.journal.requests import requests_of
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.setup.run_config import RunResult
from tests.support import Script, ask, policy_data, probe, tool
from tests.support import answer as final

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["place", "hours"],
    "properties": {"place": {"type": "string"}, "hours": {"type": "integer", "maximum": 24}},
}
GOOD = '{"place": "depot", "hours": 9}'


@dataclasses.dataclass
class Rest:
    place: str
    hours: int
    kind: Literal["short", "long"] = "long"


class RestDict(TypedDict):
    place: str
    hours: NotRequired[int]


class RestModel(BaseModel):
    place: str
    hours: int = Field(le=24)


def _agent(replies: list[Any], output: Any = SCHEMA, retries: int = 2, **policy: Any) -> Agent:
    data = policy_data(**policy)
    return Agent(
        Script(replies),
        [tool(), tool("echo")],
        Policy.from_dict(data),
        output_type=output,
        output_retries=retries,
    )


def _run(replies: list[Any], output: Any = SCHEMA, retries: int = 2, **policy: Any) -> RunResult:
    return _agent(replies, output, retries, **policy).run("Where?", run_id="r", clock=VirtualClock())


@pytest.mark.parametrize(
    ("kind", "said", "value"),
    [
        (SCHEMA, GOOD, {"place": "depot", "hours": 9}),
        (Rest, GOOD, Rest("depot", 9)),
        (RestDict, '{"place": "depot"}', {"place": "depot"}),
        (RestModel, GOOD, RestModel(place="depot", hours=9)),
    ],
    ids=["schema", "dataclass", "TypedDict", "pydantic"],
)
def test_an_answer_that_fits_becomes_a_value_of_the_type(kind: Any, said: str, value: Any) -> None:
    done = _run([final(said)], kind)
    assert done.ok and done.answer == said
    assert done.output == value and type(done.output) is type(value)


@pytest.mark.parametrize("kind", [SCHEMA, Rest, RestModel], ids=["schema", "dataclass", "pydantic"])
@pytest.mark.parametrize(
    ("said", "place"),
    [
        ("At the depot.", None),
        (f"```json\n{GOOD}\n```", None),
        (f"{GOOD} {GOOD}", None),
        ('{"place": "a", "place": "b", "hours": 1}', None),
        ('["depot"]', ("", "type")),
        ('{"place": "depot"}', ("", "required")),
        ('{"place": "depot", "hours": "9"}', ("/hours", "type")),
    ],
    ids=["words", "fence", "twice", "double key", "list", "lacking", "type"],
)
def test_one_that_does_not_is_told_with_its_place_and_asked_for_again(
    kind: Any, said: str, place: tuple[str, str] | None
) -> None:
    done = _run([final(said), final(GOOD)], kind)
    assert done.ok and done.output is not None and len(done.steps) == 2
    step = done.steps[0]
    told = step["told"]
    assert (told["error"], told["kind"], told["retryable"]) == ("invalid_output", "output_mismatch", True)
    assert step["failure_mode"] == "output_mismatch"
    assert (told.get("pointer"), told.get("keyword")) == (place or (None, None))
    assert step["errors"][0]["problem"] == told["reason"]


def test_still_wrong_ends_the_run_after_as_many_corrections_as_are_named() -> None:
    for retries in (0, 1, 2):
        done = _run([final("no")] * (retries + 1), retries=retries)
        assert (done.ending, done.mode) == (Ending.FAILURE, "output_mismatch")
        assert done.answer is None and done.output is None
        assert ["told" in step for step in done.steps] == [True] * retries + [False]


def test_corrections_are_ordinary_steps_within_the_budgets() -> None:
    done = _run([final("no")] * 2, loop_budget={"max_iterations": 2})
    assert done.ending == Ending.LOOP_BUDGET and len(done.steps) == 3


def test_calls_may_stand_between_and_an_answer_may_come_in_pieces() -> None:
    pieces = [final(GOOD[:9], finish_reason="length"), final(GOOD[9:])]
    done = _run([final("no"), ask(probe()), *pieces])
    assert done.output == {"place": "depot", "hours": 9}


def test_corrections_count_apart_from_failures() -> None:
    told_once = {"default": "inform", "max_failures": 1}
    done = _run([final("no"), final(" "), final("no"), final(GOOD)], on_failure=told_once)
    assert done.ok and [step["failure_mode"] for step in done.steps][:3] == [
        "output_mismatch", "llm_invalid_output", "output_mismatch",
    ]  # fmt: skip
    over = _run([final("no"), final(" "), final(" ")], on_failure=told_once)
    assert (over.ending, over.mode) == (Ending.FAILURE, "llm_invalid_output")


def test_the_schema_is_part_of_each_request_and_of_the_record(tmp_path: Path) -> None:
    class Keeping(Script):
        def __call__(self, asked: Any) -> Any:
            assert json.loads(asked.output_schema) == SCHEMA
            return super().__call__(asked)

    agent = Agent(Keeping([final("no"), final(GOOD)]), [], Policy.shipped(), output_type=SCHEMA)
    record(agent, "Where?", tmp_path / "run")
    lines = [json.loads(text) for text in (tmp_path / "run/state.jsonl").read_text().splitlines()]
    assert lines[0]["output"] == {"retries": 2}
    assert [request.options for request in requests_of(lines)] == [{"output_schema": SCHEMA}] * 2
    assert [request.problems for request in requests_of(lines)] == [()] * 2
    again = replay(agent, tmp_path / "run")
    assert again.output == {"place": "depot", "hours": 9}


def test_a_run_without_one_says_nothing_of_it() -> None:
    result = _run([final("words")], None)
    assert result.ok and result.output is None


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ({"type": "array"}, 'it lacks "type": "object"'),
        ({"type": "object", "minProperties": -1}, "is not a valid schema at /minProperties"),
        ({"type": "object", "properties": {"a": {"pattern": "(?=x)"}}}, "output_type"),
        ({"type": "object", "x": {1}}, "is not JSON"),
        (int, "int is not a class with fields"),
        ("object", "str is not a class with fields"),
    ],
    ids=["list", "invalid", "pattern", "no JSON", "int", "text"],
)
def test_what_is_no_type_of_an_answer_is_refused_in_one_line(output: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        _agent([], output)
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("retries", [-1, 21, True, 1.0, "1"])
def test_retries_are_a_small_whole_number(retries: Any) -> None:
    with pytest.raises(InputError, match="output_retries must be a whole number from 0 to 20"):
        _agent([], SCHEMA, retries)


def test_what_a_class_demands_beyond_its_schema_is_refused_with_the_answer_kept() -> None:
    @dataclasses.dataclass
    class Careful:
        place: str

        def __post_init__(self) -> None:
            raise KeyError("a private word")

    done = _run([final('{"place": "x"}')], Careful)
    assert done.ok and done.answer == '{"place": "x"}'
    with pytest.raises(InputError, match="its type refuses it") as caught:
        _ = done.output
    assert "private" not in str(caught.value)


def test_a_validator_of_a_model_counts_when_the_value_is_made() -> None:
    class Named(BaseModel):
        place: str

        @field_validator("place")
        @classmethod
        def never(cls, value: str) -> str:
            raise ValueError(value)

    try:
        done = _run([final('{"place": "x"}')], Named)
    except InputError:
        return  # refused when the agent is made: its schema would not say what it demands
    with pytest.raises(InputError):
        _ = done.output
