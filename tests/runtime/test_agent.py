"""The agent: what a user imports. Interrupts, listeners, foreign models and tools, the ledger file."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tachograph.evidence.recording.record import record
from tachograph.fail.errors import InputError, OutputError, PolicyError, ToolError
from tachograph.runtime.agent import Agent
from tachograph.runtime.core.clock import VirtualClock
from tachograph.runtime.core.effects import Decided
from tachograph.runtime.driver.ports import RunEvent
from tachograph.runtime.models.scripted import Stub
from tachograph.runtime.models.types import LLMInput, LLMOutput
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.contract import Tool
from tests.support import (
    Script,
    answer,
    ask,
    attend_to_ctrl_c,
    failing,
    perform,
    policy_data,
    probe,
    tool,
    well_formed,
)

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def _ctrl_c() -> None:
    attend_to_ctrl_c()


def _agent(replies: list[Any], run: Run | None = None, **sections: Any) -> Agent:
    tools = [tool() if run is None else tool(run=run), tool("echo")]
    return Agent(Script(replies), tools, Policy.from_dict(policy_data(**sections)))


def _interrupt(*_: Any) -> Any:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):  # the signal arrives between two bytecodes
        pass


class _Impatient(VirtualClock):
    """A clock whose sleep is interrupted."""

    def sleep(self, ms: int) -> None:
        _interrupt()


NEEDS = {"approval": {"required_for": ["probe"], "timeout_s": 30}}


@pytest.mark.parametrize(
    ("replies", "run", "sections", "more", "status"),
    [
        ([_interrupt], None, {}, {}, None),
        ([ask(probe(), probe("echo"))], _interrupt, {}, {}, "cancelled"),
        ([ask(probe(), probe("echo"))], failing(ConnectionError()), {}, {"clock": _Impatient()}, "cancelled"),
        ([ask(probe(), probe("echo"))], None, NEEDS, {"approve": _interrupt}, "not_reached"),
    ],
    ids=["model", "tool", "wait", "person"],
)
def test_ctrl_c_in_any_effect_leaves_a_whole_ledger_and_is_raised_again(
    tmp_path: Path, replies: list[Any], run: Run | None, sections: Any, more: Any, status: str | None
) -> None:
    file = tmp_path / "ledger.jsonl"
    with pytest.raises(KeyboardInterrupt):
        _agent(replies, run, **sections).run("What?", ledger=file, run_id="r", **more)
    lines, _ = well_formed(file.read_bytes())
    assert lines[-1]["terminal_reason"] == "cancelled" and lines[-1]["failure_mode"] == "interrupted"
    results = [result["status"] for result in lines[-2]["tool_results"]]
    assert results == ([] if status is None else [status, "not_reached"])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("by", ["signal", "exception"])
@pytest.mark.parametrize("when", ["run", "decided", "performed"])
def test_ctrl_c_between_effects_waits_for_the_next_one(tmp_path: Path, when: str, by: str) -> None:
    done: list[str] = []

    def listener(notice: RunEvent) -> None:
        what = notice.line["type"] if notice.line is not None else notice.what
        if what == when and not done:
            done.append(what)
            if by == "exception":
                raise KeyboardInterrupt
            _interrupt()

    file = tmp_path / "ledger.jsonl"
    with pytest.raises(KeyboardInterrupt):
        _agent([ask(probe()), answer()]).run("What?", ledger=file, listeners=[listener], clock=VirtualClock())
    lines, _ = well_formed(file.read_bytes())
    assert done == [when]
    assert lines[-1]["failure_mode"] == "interrupted"


def test_ctrl_c_after_the_last_effect_leaves_the_run_as_it_ended(tmp_path: Path) -> None:
    def listener(notice: RunEvent) -> None:
        if notice.line is not None and notice.line["type"] == "end":
            _interrupt()

    file = tmp_path / "ledger.jsonl"
    with pytest.raises(KeyboardInterrupt):
        _agent([answer()]).run("What?", ledger=file, listeners=[listener])
    lines, _ = well_formed(file.read_bytes())
    assert lines[-1]["terminal_reason"] == "final_answer"


def test_a_handler_of_the_caller_is_left_in_place() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        result = _agent([lambda asked: (_interrupt(), answer())[1]]).run("What?")
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT] and result.ok


# ---- listeners -----------------------------------------------------------------------------------------

REPLIES = [ask(probe(n=1), probe("echo", n=2)), ask(probe(url="https://good.test/x")), answer()]


def _spoil(value: Any) -> None:
    if isinstance(value, dict):
        for item in value.values():
            _spoil(item)
        value.clear()
        value["spoiled"] = True
    elif isinstance(value, list):
        for item in value:
            _spoil(item)
        value.append("spoiled")


def _spoiler(notice: RunEvent) -> None:
    _spoil(notice.line)
    if isinstance(notice.item, Decided):
        _spoil(notice.item.decision.facts)
    if notice.outcome is not None:
        for check in notice.outcome.checks:
            _spoil(check)


def test_a_run_does_not_depend_on_who_listens() -> None:
    def run(args: dict[str, Any], io: Any) -> Any:
        try:
            io.read("nowhere/x")
        except PermissionError:
            return {"said": "x"}

    def once(*listeners: Any) -> bytes:
        policy = policy_data(on_deny="inform")
        return perform(list(REPLIES), [tool(run=run)], policy, listeners=listeners).state

    heard: list[RunEvent] = []
    assert once() == once(heard.append) == once(_spoiler, heard.append)
    assert {notice.what for notice in heard} == {"line", "decided", "performed"}


def test_a_listener_that_raises_is_dropped_with_a_warning_and_the_others_stay() -> None:
    calls: list[str] = []
    heard: list[RunEvent] = []

    def broken(notice: RunEvent) -> None:
        calls.append(notice.what)
        raise ZeroDivisionError

    with pytest.warns(UserWarning, match="ZeroDivisionError"):
        noisy = perform(list(REPLIES), listeners=[broken, heard.append])
    assert calls == ["line"] and len(heard) > 5
    assert noisy.state == perform(list(REPLIES)).state


def test_a_listener_cannot_break_a_run_where_warnings_are_errors() -> None:
    def broken(notice: RunEvent) -> None:
        raise OSError

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert perform([answer()], listeners=[broken]).result.ok


# ---- models and tools ----------------------------------------------------------------------------------


def test_a_model_may_change_what_it_gets() -> None:
    def model(asked: LLMInput) -> LLMOutput:
        for message in asked.messages:
            _spoil(message)
        _spoil(asked.messages[0:])
        return ask(probe(n=asked.step_index)) if asked.step_index < 3 else answer()

    def quiet(asked: LLMInput) -> LLMOutput:
        return ask(probe(n=asked.step_index)) if asked.step_index < 3 else answer()

    quiet.__qualname__ = model.__qualname__
    assert perform(model).state == perform(quiet).state


def test_a_result_is_frozen_when_it_is_returned() -> None:
    kept: list[dict[str, Any]] = []

    def run(args: dict[str, Any], io: Any) -> Any:
        for old in kept:
            _spoil(old)
        kept.append({"said": "x"})
        return kept[-1]

    done = perform([ask(probe(n=1), probe(n=2)), answer()], [tool(run=run)])
    assert [result["result"] for result in done.results] == [{"said": "x"}] * 2


def test_a_model_that_is_any_callable_runs_on_the_system_clock_and_says_it_is_live(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    agent = Agent(lambda asked: answer(), [tool(), tool("echo")], Policy.from_dict(policy_data()))
    result = agent.run("What?", ledger=file)
    lines, _ = well_formed(file.read_bytes())
    assert lines[0]["clock"]["kind"] == "system" and lines[0]["model"]["execution_path"] == "live"
    assert result.run_id == lines[0]["run_id"] and result.run_id.startswith("run-s0-")


def test_an_incomplete_identity_is_filled_in() -> None:
    class Named:
        identity = {"provider": "acme"}  # noqa: RUF012 - as a user would write it

        def __call__(self, asked: LLMInput) -> LLMOutput:
            return answer()

    model = perform(Named()).lines[0]["model"]
    assert model == {"execution_path": "live", "provider": "acme", "name": "Named", "script_digest": None}


def test_an_agent_holds_nothing_between_runs() -> None:
    agent = Agent(
        Stub([{"calls": [{"tool": "probe", "arguments": {"n": 1}}]}, {"answer": "done"}]),
        [tool(), tool("echo")],
        Policy.from_dict(policy_data(cycle_detection={"max_repeats": 1})),
    )
    one, two = (agent.run("What?", run_id="r") for _ in range(2))
    assert one.ok and list(one.steps) == list(two.steps)


def test_the_answer_and_steps_of_a_result() -> None:
    result = _agent([ask(probe()), answer("42")]).run("What?", run_id="r", clock=VirtualClock())
    assert (result.ending, result.answer, result.run_id, result.mode, result.ok) == (
        *("final_answer", "42", "r", None),
        True,
    )
    assert len(result.steps) == 2 and result.steps[-1]["llm_output"]["final_answer"] == "42"
    assert [step["step_index"] for step in result.steps[:]] == [1, 2]
    step = result.steps[0]
    assert (step.index, step.calls, step.usage) == (1, step["tool_results"], step["usage"])
    assert [entry["decision"] for entry in step.decisions] == ["allow"] and set(step) == set(step.raw)
    _spoil(step.raw)
    assert result.steps[0]["step_index"] == 1 and "steps" not in repr(result)
    assert not hasattr(step, "__setitem__")


# ---- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [{"run_id": "\ud800"}, {"run_id": b"x"}, {"seed": 2**53}, {"seed": "7" * 3 + "\ud800"}],
    ids=repr,
)
def test_a_setting_that_no_record_can_hold_is_bad_input(tmp_path: Path, settings: dict[str, Any]) -> None:
    file = tmp_path / "ledger.jsonl"
    with pytest.raises(InputError):
        _agent([answer()]).run("What?", ledger=file, **settings)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("question", ["\ud800", None, 3])
def test_a_question_that_is_no_text_is_bad_input(question: Any) -> None:
    with pytest.raises(InputError):
        _agent([answer()]).run(question)


def test_a_script_that_runs_out_leaves_no_ledger(tmp_path: Path) -> None:
    agent = Agent(Stub([]), [tool(), tool("echo")], Policy.from_dict(policy_data()))
    with pytest.raises(InputError):
        agent.run("What?", ledger=tmp_path / "ledger.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_is_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_text("mine")
    for place in (file, tmp_path / "no" / "folder", tmp_path):
        with pytest.raises(OutputError):
            _agent([answer()]).run("What?", ledger=place)
    assert file.read_text() == "mine"


def test_a_ledger_that_cannot_be_written_ends_the_run(tmp_path: Path) -> None:
    asked: list[int] = []
    agent = Agent(
        lambda _: asked.append(1) or answer(), [tool(), tool("echo")], Policy.from_dict(policy_data())
    )
    link = tmp_path / "full"
    link.symlink_to("/dev/full")
    with pytest.raises(OutputError):  # `x` follows no link
        agent.run("What?", ledger=link)
    assert asked == []


@pytest.mark.parametrize("policy", [{}, policy_data()], ids=["empty", "plain data"])
def test_plain_data_is_no_policy(policy: Any) -> None:
    with pytest.raises(PolicyError):
        Agent(answer, [], policy)


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ToolError):
        Agent(answer, [tool(), tool()], Policy.from_dict(policy_data()))


def test_what_no_run_can_be_made_with_is_refused_before_it_starts() -> None:
    policy = Policy.from_dict(policy_data())
    stub = Stub([{"answer": "a"}])
    schema = {"type": "object", "additionalProperties": False}
    wrong: list[Callable[[], object]] = [
        lambda: Agent("gpt", [], policy),
        lambda: Agent(stub, "search", policy),
        lambda: Agent(stub, [], {}),
        lambda: Agent(stub, [], policy).run("q", seed="x"),
        lambda: Agent(stub, [], policy).run("q", approve=True),
        lambda: Agent(stub, [], policy).run(3),
        lambda: Tool("probe", "d", schema, schema, "pure", True, 3),
    ]
    for make in wrong:
        with pytest.raises(InputError) as caught:
            make()
        assert caught.value.remedy


def test_a_policy_may_speak_of_tools_that_are_known_and_not_part_of_the_agent() -> None:
    policy = Policy.from_dict(policy_data(tool_registry={"allowed": ["probe", "elsewhere"], "denied": []}))
    with pytest.raises(PolicyError, match="no tool named 'elsewhere'"):
        Agent(Script([answer()]), [tool()], policy)
    agent = Agent(Script([answer()]), [tool()], policy, known_tools=["elsewhere"])
    assert [spec.name for spec in agent.specs] == ["probe"]


@pytest.mark.parametrize("given", [print, 3, [3]])
def test_what_is_no_list_of_listeners_is_refused(given: Any, tmp_path: Path) -> None:
    agent = _agent([answer()])
    for call in (
        lambda: agent.run("?", listeners=given),
        lambda: record(agent, "?", tmp_path, listeners=given),
    ):
        with pytest.raises(InputError, match=r"^listeners must be a list of functions; give \[listener\]"):
            call()
    with pytest.raises(InputError, match=r"is not Hooks; give Hooks\(before_call=\.\.\.\) or a list of them"):
        Agent(agent.llm, hooks=given)
