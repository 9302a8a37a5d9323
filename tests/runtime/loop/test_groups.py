"""Calls of one reply that are performed together: which they are, and what is decided when."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tachograph import Agent, LLMOutput, Policy, Tool, ToolCall, VirtualClock
from tachograph.fail.errors import Cancelled, InputError, ToolError
from tachograph.runtime.core.effects import Effect, Invoke
from tachograph.runtime.driver.ports import RunEvent
from tachograph.runtime.tools.contract import EFFECTS
from tests.group_orders import shuffled
from tests.support import Ran, Script, answer, ask, perform, policy_data, probe, replay_of, tool, well_formed

REDACTED = {"redact": {"kinds": ["github_token"]}}


def _look(effect: str = "read", **more: Any) -> Tool:
    return tool("look", effect=effect, **more)


def _tools(look: Tool | None = None) -> list[Tool]:
    return [tool(), tool("echo"), look or _look()]


def _looks(*numbers: int, **more: Any) -> LLMOutput:
    return ask(*(probe("look", n=n) for n in numbers), **more)


def _policy(**sections: Any) -> dict[str, Any]:
    return policy_data(tool_registry={"allowed": ["probe", "echo", "look"]}, **sections)


def _run(*calls: ToolCall, look: Tool | None = None, **more: Any) -> Ran:
    policy = _policy(**more.pop("policy", {}))
    return perform([ask(*calls), answer()], [look or _look()], policy, **more)


def _groups(ran: Ran) -> list[list[int]]:
    return [[int(call.rpartition("_")[2]) for call in group] for group in ran.steps[0].get("groups", [])]


def test_consecutive_calls_to_tools_that_allow_it_form_groups() -> None:
    ran = _run(probe("look", n=1), probe("look", n=2), probe(n=1), probe("look", n=3), probe("look", n=4))
    assert _groups(ran) == [[0, 1], [3, 4]]
    assert [result["status"] for result in ran.results] == ["ok"] * 5
    stamps = ran.steps[0]["stamps"]
    assert stamps["i0.1"] == stamps["i1.1"]
    assert stamps["d1"][1] < stamps["i0.1"][0] and stamps["i1.1"][1] < stamps["d2"][0]


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("parallel", [None, True, False])
def test_what_a_tool_declares_decides_and_else_its_effect_kind(effect: str, parallel: bool | None) -> None:
    look = Tool(
        "look", "looks", {"type": "object", "additionalProperties": False, "properties": {"n": {"type": "integer"}}},
        {"type": "object", "additionalProperties": False}, effect, True, lambda arguments, io: {}, parallel=parallel,
    )  # fmt: skip
    ran = _run(probe("look", n=1), probe("look", n=2), look=look)
    is_expected = effect in ("pure", "read") if parallel is None else parallel
    assert _groups(ran) == ([[0, 1]] if is_expected else [])
    entry = next(item for item in ran.lines[0]["tools"] if item["name"] == "look")
    assert entry.get("parallel") is parallel


def test_parallel_is_a_yes_or_a_no() -> None:
    with pytest.raises(ToolError, match="PARALLEL must be True or False"):
        Tool(
            "look",
            "looks",
            {"type": "object", "additionalProperties": False},
            {},
            "pure",
            True,
            print,
            parallel=1,
        )  # type: ignore[arg-type]


def test_identical_calls_never_share_a_group() -> None:
    ran = _run(*(probe("look", n=n) for n in (1, 2, 1, 3, 1)))
    assert _groups(ran) == [[0, 1], [2, 3]]
    ran = _run(*(probe("look", n=n) for n in (1, 2, 1)), policy={"cycle_detection": {"max_repeats": 1}})
    assert [entry["decision"] for entry in ran.decisions] == ["allow", "allow", "deny"]


def test_a_call_that_asks_a_person_runs_alone() -> None:
    asked: list[str] = []
    ran = perform(
        [ask(probe("look", n=1), probe("echo", n=1), probe("echo", n=2)), answer()],
        [_look(), tool("echo", effect="read")],
        _policy(approval={"required_for": ["echo"], "timeout_s": 5}),
        approve=lambda question: bool(asked.append(question.call.id)) or True,
    )
    assert _groups(ran) == [] and asked == ["tc_1_1", "tc_1_2"]
    assert ran.steps[0]["stamps"]["i0.1"][1] < ran.steps[0]["stamps"]["d1"][0]


def test_a_bound_of_four_makes_two_groups_of_eight_calls() -> None:
    """At most the bound is ever open, and the second four begin when the first are over, in any order."""
    for order in range(20):
        events: list[tuple[str, int]] = []

        def run(arguments: dict[str, Any], io: Any, events: Any = events) -> dict[str, Any]:
            events.append(("begun", arguments["n"]))
            if arguments["n"] % 2 and ("begun", arguments["n"]) not in events[:-1]:
                raise TimeoutError
            events.append(("over", arguments["n"]))
            return {}

        with shuffled(order) as sizes:  # of the run and of its replay
            ran = _run(*(probe("look", n=n) for n in range(8)), look=_look(run=run))
        assert sizes == [4, 4, 4, 4] and _groups(ran) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        over = [n for what, n in events if what == "over"]
        assert set(over[:4]) == {0, 1, 2, 3}
        assert min(index for index, (_, n) in enumerate(events) if n > 3) > events.index(("over", over[3]))


@pytest.mark.parametrize(
    ("most", "groups"), [(1, []), (2, [[0, 1], [2, 3]]), (3, [[0, 1, 2]]), (64, [[0, 1, 2, 3]])]
)
def test_the_bound_is_a_setting_of_the_agent_and_stands_in_the_run_line(
    most: int, groups: list[list[int]]
) -> None:
    agent = Agent(
        Script([_looks(1, 2, 3, 4), answer()]), _tools(), Policy.from_dict(_policy()), max_parallel=most
    )
    texts: list[str] = []
    config = agent.configure_run("What?", run_id="r", clock=VirtualClock())
    agent.execute(config, on_line=lambda _line, text: texts.append(text))
    lines, _ = well_formed("".join(f"{text}\n" for text in texts).encode())
    assert lines[0]["max_parallel"] == most
    assert lines[1].get("groups", []) == [[f"tc_1_{n}" for n in group] for group in groups]
    assert replay_of(agent, lines) == texts


@pytest.mark.parametrize("most", [0, 65, True, "4", None, 2.0])
def test_a_bound_that_is_none_is_refused(most: Any) -> None:
    with pytest.raises(InputError, match="max_parallel is no number of calls"):
        Agent(Script([]), _tools(), Policy.from_dict(_policy()), max_parallel=most)


def test_a_denied_call_of_a_group_is_not_performed() -> None:
    seen: list[int] = []
    look = _look(run=lambda arguments, io: seen.append(arguments["n"]) or {})
    calls = (probe("look", n=1), probe("look", n=2, path="elsewhere/a"), probe("look", n=3))
    ran = _run(*calls, look=look, policy={"on_deny": "inform"})
    assert seen == [1, 3] and _groups(ran) == [[0, 2]]
    assert [result["status"] for result in ran.results] == ["ok", "denied", "ok"]
    assert ran.model is not None
    told = [message for message in ran.model.heard[1] if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in told] == ["tc_1_0", "tc_1_1", "tc_1_2"]
    assert ran.results[1]["told"]["executed"] is False


def test_a_denial_that_ends_the_run_lets_the_calls_before_it_be_performed() -> None:
    calls = (probe("look", n=1), probe("look", n=2), probe("look", path="elsewhere/a"), probe("look", n=3))
    ran = _run(*calls)
    assert [result["status"] for result in ran.results] == ["ok", "ok", "denied", "not_reached"]
    assert [entry["position"] for entry in ran.decisions] == ["d0", "d1", "d2"]
    assert ran.result.ending == "policy_denial_terminal" and _groups(ran) == [[0, 1]]


def test_calls_count_for_those_that_are_decided_after_them() -> None:
    policy = {"loop_budget": {"max_tool_calls": 2}}
    ran = _run(*(probe("look", n=n) for n in range(4)), policy=policy)
    assert [entry["decision"] for entry in ran.decisions] == ["allow", "allow", "deny"]
    assert ran.end["totals"]["tool_calls"] == 2


def test_a_result_over_the_byte_budget_is_refused_when_all_are_over_in_the_order_of_the_calls() -> None:
    look = _look(run=lambda arguments, io: {"said": "x" * 50})
    policy = {"loop_budget": {"max_result_bytes": 130}, "on_deny": "inform"}
    for order in range(5):
        with shuffled(order):
            ran = _run(*(probe("look", n=n) for n in range(3)), look=look, policy=policy)
        assert [result["status"] for result in ran.results] == ["ok", "ok", "denied"]
        assert ran.decisions[-1]["position"] == "d2.r"
        assert ran.steps[0]["stamps"]["d2.r"][0] > ran.steps[0]["stamps"]["i2.1"][1]


def test_a_failure_that_ends_the_run_leaves_the_others_recorded() -> None:
    def run(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
        if arguments["n"] == 1:
            raise ValueError
        return {"said": "ok"}

    ran = _run(*(probe("look", n=n) for n in range(3)), probe(n=1), look=_look(run=run))
    assert [result["status"] for result in ran.results] == ["ok", "failed", "ok", "not_reached"]
    assert (ran.result.ending, ran.result.mode) == ("failure_mode_terminal", "catalogued_unhandled")


def _stopping(place: str, error: BaseException) -> Any:
    def inject(effect: Effect, _io: Any, real: Any) -> Any:
        if isinstance(effect, Invoke) and effect.position == place:
            raise error
        return real()

    return inject


@pytest.mark.parametrize("place", ["i0.1", "i1.1", "i2.1"])
def test_what_stops_one_call_ends_the_run_after_the_others(place: str) -> None:
    agent = Agent(Script([_looks(1, 2, 3), answer()]), _tools(), Policy.from_dict(_policy()))
    ledgers = []
    for order in range(6):
        texts: list[str] = []
        agent.llm = Script([_looks(1, 2, 3), answer()])
        config = agent.configure_run(
            "What?", run_id="r", clock=VirtualClock(), inject=_stopping(place, Cancelled("by the task"))
        )
        with shuffled(order):
            agent.execute(config, on_line=lambda _line, text, texts=texts: texts.append(text))
        ledgers.append(texts)
    lines, _ = well_formed("".join(f"{text}\n" for text in ledgers[0]).encode())
    assert all(texts == ledgers[0] for texts in ledgers) and replay_of(agent, lines) == ledgers[0]
    stopped = int(place[1])
    expected = ["cancelled" if n == stopped else "ok" for n in range(3)]
    assert [result["status"] for result in lines[1]["tool_results"]] == expected
    assert lines[-1]["terminal_reason"] == "cancelled" and len(lines) == 3


def test_a_run_that_is_cancelled_begins_no_further_call_of_the_group() -> None:
    cancel, seen = threading.Event(), []

    def run(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
        seen.append(arguments["n"])
        cancel.set()
        return {}

    agent = Agent(Script([_looks(1, 2, 3), answer()]), _tools(_look(run=run)), Policy.from_dict(_policy()))
    config = agent.configure_run("What?", run_id="r", clock=VirtualClock())
    object.__setattr__(config, "cancel", cancel)
    texts: list[str] = []
    agent.execute(config, on_line=lambda _line, text: texts.append(text))
    lines, _ = well_formed("".join(f"{text}\n" for text in texts).encode())
    assert seen == [1]
    assert [result["status"] for result in lines[1]["tool_results"]] == ["ok", "cancelled", "cancelled"]
    assert replay_of(agent, lines) == texts


def test_secrets_are_numbered_in_the_order_of_the_calls() -> None:
    tokens = [f"ghp_{letter * 36}" for letter in "abc"]

    def run(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
        return {"said": " ".join([tokens[arguments["n"]], tokens[0]])}

    for order in range(10):
        with shuffled(order):
            ran = _run(
                *(probe("look", n=n) for n in (2, 1, 0)),
                look=_look(run=run),
                policy=REDACTED,
            )
        said = [result["result"]["said"] for result in ran.results]
        mark = "<secret:github_token:{}>".format
        assert said == [f"{mark(1)} {mark(2)}", f"{mark(3)} {mark(2)}", f"{mark(2)} {mark(2)}"]


def test_listeners_hear_of_a_group_in_the_order_of_the_calls_and_as_it_is_recorded() -> None:
    heard: list[str] = []

    def listen(notice: RunEvent) -> None:
        if notice.what == "performed" and isinstance(notice.item, Invoke):
            assert notice.outcome is not None and notice.outcome.result is not None
            heard.append(f"{notice.item.position} {notice.outcome.result.text}")

    token = f"ghp_{'a' * 36}"
    look = _look(run=lambda arguments, io: {"said": token if arguments["n"] else ""})
    for order in range(5):
        heard.clear()
        with shuffled(order):
            _run(
                *(probe("look", n=n) for n in range(2)),
                look=look,
                listeners=[listen],
                policy=REDACTED,
            )
        assert heard == ['i0.1 {"said":""}', 'i1.1 {"said":"<secret:github_token:1>"}']
