"""What the model saw is rebuilt from the ledger: the same as it was sent, and what does not fit is said."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tachograph.evidence.checking.verify import verify
from tachograph.runtime.journal import ledger
from tachograph.runtime.journal.requests import Request, requests_of
from tachograph.runtime.models.types import LLMInput, LLMOutput
from tests.evidence.project import edit_lines
from tests.support import CANONICAL, ROOT, answer, ask, copy_project, perform, policy_data, probe

RUNS = sorted([*(ROOT / "runs").glob("*/*/state.jsonl"), *(ROOT / "tests/data/v1").glob("*/*/state.jsonl")])


def requests(folder: Path) -> list[Request]:
    return list(requests_of(ledger.read((folder / "state.jsonl").read_bytes(), folder.name)))


@pytest.mark.parametrize("state", RUNS, ids=lambda path: "-".join(path.parts[-4:-1]))
def test_every_request_of_every_run_is_proved(state: Path) -> None:
    lines = list(ledger.read(state.read_bytes(), state.name))
    found = list(requests_of(lines))
    asked = [line for line in lines[1:-1] if line["llm_input"] is not None]
    assert [request.step for request in found] == [line["step_index"] for line in asked]
    assert [request.problems for request in found] == [()] * len(asked)
    assert sum(request.new for request in found) == (asked[-1]["llm_input"]["messages"] if asked else 0)


def test_what_is_rebuilt_is_what_the_model_heard() -> None:
    policy = policy_data(on_deny="inform", loop_budget={"max_iterations": 5, "wrap_up": True})
    replies = [
        ask(
            probe(n=1), probe("echo", n=99), text="First."
        ),  # the second does not fit its schema, and is told
        ask(probe(n=2), raw={"signed": [1, "é"]}),
        answer("The first half, ", finish_reason="length"),
        ask(probe("echo", n=3)),
        answer("and done."),
    ]
    heard: list[tuple[Any, ...]] = []

    def model(asked: LLMInput) -> LLMOutput:
        tools = [(spec.name, spec.description, json.loads(spec.input_schema)) for spec in asked.tools]
        heard.append((asked.step_index, list(asked.messages), tools, asked.max_output_tokens))
        return replies[asked.step_index - 1]

    done = perform(model, policy=policy)
    found = [
        (
            request.step,
            list(request.messages),
            [(tool["name"], tool["description"], tool["input_schema"]) for tool in request.tools or ()],
            request.max_output_tokens,
        )
        for request in requests_of(done.lines)
    ]
    assert found == heard and len(heard) == 5
    assert [len(request.tools or ()) for request in requests_of(done.lines)] == [2, 2, 2, 2, 0]


def test_options_are_part_of_the_request() -> None:
    options = requests(ROOT / "runs/live/smollm")[0].options
    assert options is not None and "temperature" in options
    assert requests(ROOT / CANONICAL)[0].options is None


def test_a_record_of_v1_does_not_say_which_tools_were_offered() -> None:
    first = requests(ROOT / "tests/data/v1/live/smollm")[0]
    assert first.tools is None and first.options is None and first.problems == ()


# ---- what does not fit ---------------------------------------------------------------------------------------


def _description(lines: list[Any]) -> None:
    lines[0]["request_parts"]["tools"][0]["tools"][0]["description"] = "Search nothing."


def _pointer(lines: list[Any]) -> None:
    lines[2]["llm_input"]["tools"] = "0" * 64


def _twice(lines: list[Any]) -> None:
    lines[2]["request_parts"] = copy.deepcopy(lines[0]["request_parts"])


def _unused(lines: list[Any]) -> None:
    empty = "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"
    lines[2]["request_parts"] = {"tools": [{"digest": empty, "tools": []}]}


def _many(lines: list[Any]) -> None:
    lines[0]["request_parts"]["tools"] *= 2


def _digest(lines: list[Any]) -> None:
    lines[3]["llm_input"]["digest"] = "0" * 64


def _count(lines: list[Any]) -> None:
    lines[3]["llm_input"]["messages"] = 4


def _told(lines: list[Any]) -> None:
    lines[1]["llm_output"]["text"] = "I look elsewhere."


def test_a_part_that_no_request_follows_is_held_to_its_digest_too() -> None:
    lines = copy.deepcopy(list(ledger.read((ROOT / CANONICAL / "state.jsonl").read_bytes(), "state.jsonl")))
    _description(lines)
    unasked: list[str] = []
    assert list(requests_of(lines[:1], unasked)) == []
    assert len(unasked) == 1 and unasked[0].startswith("tools: the content is not that of its digest")


@pytest.mark.parametrize(
    ("change", "step", "words"),
    [
        (_description, 1, "tools: the content is not that of its digest"),
        (_pointer, 2, "tools: 000000000000 stands nowhere in the ledger before it"),
        (_twice, 2, "stands in the ledger already"),
        (_unused, 2, "tools: 4f53cda18c2b stands in a step that does not point to it"),
        (_many, 1, "tools: a line holds one at most, not 2"),
        (_digest, 3, "the lines before it give other messages"),
        (_count, 3, "the lines before it give other messages"),
        (_told, 2, "the lines before it give other messages"),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)
def test_verify_names_a_request_that_the_ledger_does_not_give(
    change: Callable[[list[Any]], None], step: int, words: str, tmp_path: Path
) -> None:
    project = copy_project(tmp_path / "project")
    edit_lines(project / CANONICAL, change, chain=True)
    found = verify(project / CANONICAL, project)
    assert any(f"state.jsonl: step {step}: " in line and words in line for line in found), found
