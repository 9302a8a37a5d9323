"""Long runs: cut-off answers, the last steps, a deadline, cancellation from code."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from tachograph import Agent, LLMInput, LLMOutput, Policy, VirtualClock
from tachograph.runtime.models.types import MAX_CONTINUATIONS, NOTICES
from tests.support import Script, answer, ask, perform, policy_data, probe, tool


def _said(model: Script | None, step: int) -> dict[str, Any]:
    """The last message of a request."""
    assert model is not None
    return model.heard[step - 1][-1]


def test_a_cut_off_answer_is_asked_for_the_rest() -> None:
    done = perform(
        [answer("one ", finish_reason="length"), answer("two ", finish_reason="length"), answer("three")]
    )
    assert done.result.answer == "one two three" and done.end["final_answer"] == "one two three"
    assert [step.get("notice") for step in done.steps] == [None, "go_on", "go_on"]
    assert _said(done.model, 2) == {"role": "user", "content": NOTICES["go_on"]}
    assert done.model is not None and done.model.heard[1][-2] == {"role": "assistant", "content": "one "}
    assert [step["llm_output"]["final_answer"] for step in done.steps] == ["one ", "two ", "three"]


def test_it_is_asked_a_bounded_number_of_times() -> None:
    done = perform([answer("x", finish_reason="length")] * (MAX_CONTINUATIONS + 1))
    assert len(done.steps) == MAX_CONTINUATIONS + 1
    assert (done.result.ending, done.result.mode) == ("failure_mode_terminal", "llm_invalid_output")
    assert done.result.answer is None


def test_a_paused_turn_goes_on_without_a_word_from_us() -> None:
    kept = {"provider": "x", "blocks": [1]}
    paused = [answer("one ", finish_reason="pause", raw=kept)] * (MAX_CONTINUATIONS + 2)
    done = perform([*paused, answer("end")])
    assert done.result.answer == "one " * len(paused) + "end"
    assert [step.get("notice") for step in done.steps] == [None] * (len(paused) + 1)
    assert _said(done.model, 2) == {"role": "assistant", "content": "one ", "raw": kept}


def test_a_cut_off_answer_after_a_pause_is_asked_for_the_rest() -> None:
    done = perform(
        [
            answer("a", finish_reason="pause"),
            answer("b", finish_reason="length"),
            answer("", finish_reason=None),
        ]
    )
    assert done.result.answer == "ab"
    assert [step.get("notice") for step in done.steps] == [None, None, "go_on"]


def test_pieces_before_a_call_are_no_part_of_the_answer() -> None:
    done = perform([answer("half", finish_reason="length"), ask(probe(n=1)), answer("whole")])
    assert done.result.answer == "whole"


def test_near_the_step_limit_the_model_is_told() -> None:
    done = perform([ask(probe(n=i)) for i in range(5)] + [answer()])
    assert [step.get("notice") for step in done.steps] == [None, None, None, None, "two_left", None]
    assert _said(done.model, 5)["content"] == NOTICES["two_left"]


@pytest.mark.parametrize("wrap_up", [True, False])
def test_the_last_step_within_the_limits_is_offered_without_tools(wrap_up: bool) -> None:
    offered: list[int] = []

    def model(asked: LLMInput) -> LLMOutput:
        offered.append(len(asked.tools))
        return answer() if not asked.tools else ask(probe(n=asked.step_index))

    budget = {"max_iterations": 3, "wrap_up": wrap_up}
    done = perform(model, policy=policy_data(loop_budget=budget))
    if wrap_up:
        assert offered == [2, 2, 0] and done.result.ok
        assert done.steps[-1]["notice"] == "last"
    else:
        assert offered == [2, 2, 2] and done.result.ending == "loop_budget"


def _run(config: dict[str, Any], replies: list[Any]) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    agent = Agent(Script(replies), [tool(), tool("echo")], Policy.from_dict(policy_data()))
    whole = replace(agent.configure_run("What?", run_id="r", clock=VirtualClock()), **config)
    agent.execute(whole, on_line=lambda line, _text: lines.append(line))
    return lines


def test_a_deadline_ends_the_run_between_two_effects() -> None:
    lines = _run({"deadline_s": 0.3}, [ask(probe(n=1)), ask(probe(n=2)), answer()])
    assert (lines[-1]["terminal_reason"], lines[-1]["failure_mode"]) == ("failure_mode_terminal", "timeout")
    assert lines[0]["deadline_ms"] == 300 and lines[-2]["stopped"] == "deadline"
    assert lines[-2]["step_index"] == 2  # the second reply was under way when time was up


def test_code_cancels_a_run() -> None:
    cancel = threading.Event()

    def stop(_asked: LLMInput) -> LLMOutput:
        cancel.set()
        return ask(probe(n=1))

    lines = _run({"cancel": cancel}, [stop, answer()])
    assert (lines[-1]["terminal_reason"], lines[-1]["failure_mode"]) == ("cancelled", "cancelled")
    assert lines[-2]["tool_results"][0]["attempts"] == [{"attempt": 1, "outcome": "cancelled"}]
