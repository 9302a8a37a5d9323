"""When a tool may be called: how windows are read, and that a record alone tells what was decided."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, LLMOutput, Policy, PolicyError, Stub, ToolCall, record, replay, resume
from tachograph.cli.main import main
from tachograph.fail.errors import InputError, ReplayError
from tachograph.review.queries.recorded_queries import questions_in
from tachograph.runtime.core import local_time
from tachograph.runtime.core.clock import VirtualClock
from tachograph.runtime.core.effects import Call, ReadClock
from tachograph.runtime.core.local_time import WEEK
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.journal.journal import Journal, read_journal
from tachograph.runtime.policy.explain import explain
from tachograph.runtime.policy.gate import Counters, Decision, Gate
from tachograph.runtime.policy.per_tool.windows_of_the_week import read_window
from tests.runtime.policy.test_argument_rules import DATA, SEND
from tests.runtime.policy.test_tool_limits import ANSWER, rules_of, turn

BERLIN = {"days": "mon-fri", "hours": "08:00-17:00", "zone": "Europe/Berlin"}
MONDAY = "2026-11-23T"


def policy(between: Any = BERLIN, **rules: Any) -> Policy:
    budget = {"max_iterations": 9, "max_tokens": 999, "max_tool_calls": 8, "max_result_bytes": 500}
    tools = {"send": {"between": between, **rules}}
    return Policy.from_dict({**DATA, "loop_budget": budget, "tools": tools, "on_deny": "inform"})


def decide(times: dict[str, str], between: Any = BERLIN) -> Decision:
    gate = Gate(policy(between), {"send": SEND})
    return gate.decide(Call("tc_1_0", "send", freeze({"amount": 1})), Counters(local_times=times))


@pytest.mark.parametrize(
    ("window", "time", "inside"),
    [
        ({}, "2026-11-23T00:00", True),
        ({"hours": "08:00-17:00"}, "2026-11-23T07:59", False),
        ({"hours": "08:00-17:00"}, "2026-11-23T08:00", True),
        ({"hours": "08:00-17:00"}, "2026-11-23T16:59", True),
        ({"hours": "08:00-17:00"}, "2026-11-23T17:00", False),
        ({"hours": "22:00-24:00"}, "2026-11-23T23:59", True),
        ({"hours": "22:00-24:00"}, "2026-11-24T00:00", False),
        ({"days": "mon", "hours": "22:00-06:00"}, "2026-11-23T22:00", True),
        ({"days": "mon", "hours": "22:00-06:00"}, "2026-11-24T05:59", True),
        ({"days": "mon", "hours": "22:00-06:00"}, "2026-11-24T06:00", False),
        ({"days": "mon", "hours": "22:00-06:00"}, "2026-11-23T05:59", False),
        ({"days": "sun", "hours": "22:00-06:00"}, "2026-11-23T05:59", True),
        ({"days": "sun", "hours": "22:00-06:00"}, "2026-11-29T05:59", False),
        ({"days": "fri-mon"}, "2026-11-22T12:00", True),
        ({"days": "fri-mon"}, "2026-11-23T12:00", True),
        ({"days": "fri-mon"}, "2026-11-24T12:00", False),
        ({"days": ["mon-tue", "fri"]}, "2026-11-27T12:00", True),
        ({"days": ["mon-tue", "fri"]}, "2026-11-26T12:00", False),
        ({"days": "tue"}, "2026-11-23T12:00", False),
    ],
)
def test_a_window_contains_the_times_from_its_begin_to_before_its_end(
    window: dict[str, Any], time: str, inside: bool
) -> None:
    assert read_window({**window, "zone": "UTC"}).contains(time) is inside
    assert (decide({"UTC": time}, {**window, "zone": "UTC"}).decision == "allow") is inside


@pytest.mark.parametrize("given", ["mon-sun", "fri-thu", ["mon-wed", "thu-sun"], None])
def test_all_days_are_the_whole_week(given: Any) -> None:
    days = {} if given is None else {"days": given}
    assert read_window({**days, "zone": "UTC"}).minutes == (1 << WEEK) - 1


def test_a_call_outside_of_the_window_is_denied() -> None:
    found = decide({"Europe/Berlin": MONDAY + "17:00"})
    assert (found.decision, found.rule_id) == ("deny", "time_window")
    assert found.reason == ('tool "send" may not be called now: it is mon 2026-11-23 17:00 in Europe/Berlin')
    assert found.at == "<policy>#/tools/send/between"
    assert found.facts == {"local_times": {"Europe/Berlin": MONDAY + "17:00"}}


@pytest.mark.parametrize("times", [{}, {"UTC": MONDAY + "10:00"}])
def test_a_zone_whose_local_time_is_not_known_is_denied(times: dict[str, str]) -> None:
    found = decide(times)
    assert (found.decision, found.rule_id) == ("deny", "time_window")
    assert found.reason.endswith("it is an unknown time in Europe/Berlin")


@pytest.mark.parametrize("time", ["2026-11-23", "2026-11-31T10:00", "10:00", "2026-11-23T10:00Z"])
def test_a_local_time_that_is_none_denies(time: str) -> None:
    assert decide({"Europe/Berlin": time}).rule_id == "gate_error"


def test_of_several_windows_one_has_to_contain_the_time() -> None:
    between = [BERLIN, {"days": "sat", "zone": "America/New_York"}]
    monday = {"Europe/Berlin": MONDAY + "10:00", "America/New_York": MONDAY + "04:00"}
    assert decide(monday, between).decision == "allow"
    saturday = {"Europe/Berlin": "2026-11-29T05:30", "America/New_York": "2026-11-28T23:30"}
    assert decide(saturday, between).decision == "allow"
    sunday = {"Europe/Berlin": "2026-11-29T10:30", "America/New_York": "2026-11-29T04:30"}
    assert decide(sunday, between).facts == {"local_times": sunday}


def test_the_window_speaks_after_the_registry_and_before_the_arguments() -> None:
    gate = Gate(policy(), {"send": SEND})
    names = [name for name, _ in gate.rules]
    assert names[:3] == ["tool_registry", "time_window", "url_allowlist"]
    wrong = Call("tc_1_0", "send", freeze({"amount": "much"}))
    assert gate.decide(wrong, Counters()).rule_id == "time_window"


def test_explain_says_what_time_it_is() -> None:
    gate = Gate(policy(), {"send": SEND})
    times = {"Europe/Berlin": MONDAY + "10:00"}
    said = explain(gate, Call("tc_1_0", "send", freeze({"amount": 1})), Counters(local_times=times))
    verdict = next(rule for rule in said.rules if rule.rule_id == "time_window")
    assert (verdict.verdict, verdict.reason) == ("pass", "it is mon 2026-11-23 10:00 in Europe/Berlin")


@pytest.mark.parametrize(
    ("between", "place", "message"),
    [
        ({**BERLIN, "zone": "Europe/Berln"}, "/zone", "there is no zone 'Europe/Berln'"),
        ({**BERLIN, "zone": "../Berlin"}, "/zone", "there is no zone '../Berlin'"),
        ({**BERLIN, "hours": "8:00-17:000"}, "/hours", "are no hours"),
        ({**BERLIN, "hours": "08:00-25:00"}, "/hours", "are no hours"),
        ({**BERLIN, "hours": "24:00-08:00"}, "/hours", "are no hours"),
        ({**BERLIN, "hours": "08:00-08:00"}, "/hours", "begin when they end"),
        ({**BERLIN, "days": "mon-"}, "/days", "is no day"),
        ({**BERLIN, "days": "weekday"}, "/days", "is no day"),
        ({**BERLIN, "days": ["mon", "MON"]}, "/days", "is no day"),
        ({"days": "mon"}, "", "zone"),
        ([], "", "at least 1 entry"),
        ([BERLIN, {**BERLIN, "days": "mon"}], "/1", "lies within"),
    ],
)
def test_a_window_that_cannot_be_read_is_refused(between: Any, place: str, message: str) -> None:
    with pytest.raises(PolicyError) as error:
        policy(between)
    assert f"<policy>#/tools/send/between{place}:" in f"{error.value}" and message in str(error.value)


def test_policy_check_names_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "schema: policy/v1\ntool_registry: {allowed: [deploy]}\ntools:\n  deploy:\n"
        "    between:\n      days: mon-fri\n      zone: Europe/Berln\n"
    )
    with pytest.raises(PolicyError) as error:
        Policy.load(file)
    assert "policy.yaml:7:" in str(error.value) and "Europe/Berlin" in str(error.value)


@pytest.mark.parametrize(
    ("moment", "local"),
    [
        ("2026-03-29T00:59:59Z", "2026-03-29T01:59"),
        ("2026-03-29T01:00:00Z", "2026-03-29T03:00"),
        ("2026-10-25T00:30:00Z", "2026-10-25T02:30"),
        ("2026-10-25T01:30:00Z", "2026-10-25T02:30"),
    ],
)
def test_a_wall_clock_skips_an_hour_in_spring_and_shows_one_twice_in_autumn(moment: str, local: str) -> None:
    agent = Agent(Stub([turn(1), ANSWER]), [SEND], policy())
    clock = VirtualClock(moment, costs_ms={"model": 0})
    done = agent.run("Send.", seed=0, clock=clock)
    assert done.steps[0]["local_times"] == {"t0": {"Europe/Berlin": local}}


# ---- records --------------------------------------------------------------------------------------------


def timed(turns: list[Any], between: Any = BERLIN, **rules: Any) -> Agent:
    return Agent(Stub(turns), [SEND], policy(between, **rules))


def clock() -> VirtualClock:
    return VirtualClock("2026-11-23T15:59:00Z", costs_ms={"model": 40_000})


def test_the_local_time_stands_in_the_record_of_what_was_allowed_and_denied() -> None:
    done = timed([turn(1), turn(2), turn(2), ANSWER]).run("Send.", seed=0, clock=clock())
    times = [step.get("local_times") for step in done.steps]
    assert times == [{"t0": {"Europe/Berlin": f"{MONDAY}{time}"}} for time in ("16:59", "17:00", "17:01")]
    assert rules_of(done.steps) == [
        ("allow", "tool_registry"), ("deny", "time_window"), ("deny", "time_window"),
    ]  # fmt: skip
    assert done.steps[1]["tool_results"][0]["told"]["retryable"] is False


def test_a_run_without_windows_has_no_local_times() -> None:
    done = Agent(Stub([turn(1), ANSWER]), [SEND], policy(BERLIN).from_dict(DATA)).run("Send.", seed=0)
    assert all("local_times" not in step for step in done.steps)


def test_a_reader_of_the_ledger_decides_from_what_was_recorded() -> None:
    agent = timed([turn(1), turn(2), ANSWER])
    done = agent.run("Send.", seed=0, clock=clock())
    asked = [item for item in questions_in(done.steps, agent.gate.tools) if item.question.call is not None]
    found = [item.question.put(agent.gate) for item in asked]
    assert [one.rule_id for one in found if one] == ["tool_registry", "time_window"]


def test_a_replay_asks_no_zone_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = timed([turn(1), turn(2), ANSWER])
    record(agent, "Send.", tmp_path / "run", clock=clock())
    monkeypatch.setattr(local_time, "local_times", lambda *_: pytest.fail("asked"))
    replayed = replay(agent, tmp_path / "run")
    assert rules_of(replayed.steps) == [("allow", "tool_registry"), ("deny", "time_window")]


def test_a_replay_without_the_recorded_time_ends(tmp_path: Path) -> None:
    record(timed([turn(1), ANSWER]), "Send.", tmp_path / "run", clock=clock())
    other = timed([turn(1), ANSWER], {**BERLIN, "zone": "Europe/Paris"})
    with pytest.raises(ReplayError, match=r"local time in Europe/Paris .* is not in the record"):
        replay(other, tmp_path / "run")


def test_a_resumed_run_decides_from_what_was_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[str] = []

    def model(request: Any) -> LLMOutput:
        if request.step_index == 1:
            return LLMOutput(tool_calls=[ToolCall("send", {"amount": 1}), ToolCall("send", {"amount": 2})])
        if not keys:
            raise InputError("the key is missing")
        return LLMOutput(final_answer="done")

    agent = Agent(model, [SEND], policy())
    started = VirtualClock("2026-11-23T10:00:00Z")
    with pytest.raises(InputError):
        record(agent, "Send.", tmp_path / "run", clock=started)
    journal = (tmp_path / "run.partial" / "journal.jsonl").read_text().splitlines()
    kept = [entry for line in journal if (entry := json.loads(line)["entry"])["type"] == "local_times"]
    assert [(entry["at"], entry["times"]) for entry in kept] == [
        ("t0", {"Europe/Berlin": MONDAY + "11:00"}), ("t1", {"Europe/Berlin": MONDAY + "11:00"}),
    ]  # fmt: skip
    keys.append("key")
    monkeypatch.setattr(local_time, "local_times", lambda *_: pytest.fail("asked"))
    done = resume(agent, tmp_path / "run", clock=VirtualClock("2026-11-23T10:00:00Z"))
    assert done.answer == "done"
    assert done.steps[0]["local_times"]["t1"] == {"Europe/Berlin": MONDAY + "11:00"}


def test_a_decision_that_nothing_followed_is_made_anew(tmp_path: Path) -> None:
    """A process that died right after it read the clock has done nothing that the window would have forbidden later."""
    journal = Journal(tmp_path / "journal.jsonl", "off")
    journal.write({"type": "begin", "schema": "journal/v1", "run": {"schema": "ledger/v2"}})
    asked = ReadClock(1, 0, zones=("UTC",))
    journal.local_times(asked, {"UTC": MONDAY + "10:00"})
    journal.close()
    left = read_journal((tmp_path / "journal.jsonl").read_bytes(), "journal")
    assert left is not None
    assert left.local_times == {(1, "t0"): {"UTC": MONDAY + "10:00"}}
    assert left.standing_times == {}
    left.pairs[None, 1, "t0"] = [5, 6]
    assert left.standing_times == left.local_times
    left.pairs.clear()
    left.intents[1, "i0.1"] = {}
    assert left.standing_times == left.local_times


# ---- what a person asks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "code", "said"),
    [
        (["--at", "2026-11-23T10:00"], 0, "it is mon 2026-11-23 10:00 in Europe/Berlin"),
        (["--at", "2026-11-23T17:00"], 1, "it is mon 2026-11-23 17:00 in Europe/Berlin"),
        (["--at", "2026-11-23T16:59+01:00"], 0, "it is mon 2026-11-23 16:59 in Europe/Berlin"),
        (["--at", "2026-11-23T16:59Z"], 1, "it is mon 2026-11-23 17:59 in Europe/Berlin"),
        ([], 1, "it is an unknown time in Europe/Berlin"),
    ],
)
def test_policy_decide_takes_the_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], at: list[str], code: int, said: str
) -> None:
    assert decided(tmp_path, *at) == code
    assert said in capsys.readouterr().out


def decided(tmp_path: Path, *more: str) -> int:
    (tmp_path / "policy.yaml").write_text(
        "schema: policy/v1\ntool_registry: {allowed: [search]}\nsandbox: {mounts: {corpus: read}}\n"
        "cycle_detection: {max_repeats: 1}\n"
        "loop_budget: {max_iterations: 1, max_tokens: 9, max_tool_calls: 1, max_result_bytes: 9}\n"
        'tools: {search: {between: {hours: "08:00-17:00", zone: Europe/Berlin}}}\n'
    )
    (tmp_path / "call.json").write_text('{"tool": "search", "arguments": {"query": "rest"}}')
    files = [str(tmp_path / "call.json"), "--policy", str(tmp_path / "policy.yaml")]
    return main(["policy", "decide", *files, *more])


@pytest.mark.parametrize("time", ["2026-11-23", "10:00", "monday", "2026-11-31T10:00"])
def test_a_time_that_is_none_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], time: str
) -> None:
    assert decided(tmp_path, "--at", time) == 2
    out = capsys.readouterr()
    assert out.out == "" and out.err.count("\n") == 1 and f"'{time}' is no time" in out.err
