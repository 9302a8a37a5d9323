"""What tokens cost, what that bounds, and models that take the place of one that fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import tachograph
from tachograph import Agent, Fallback, LLMInput, LLMOutput, Policy
from tachograph.evidence.record_files import derive
from tachograph.evidence.verify import verify
from tachograph.fail.errors import InputError, ModelError, TransientModelError
from tachograph.runtime.log.events import Failed, ModelReplied, StepEnded, Waited
from tachograph.runtime.log.journal import Diverged
from tachograph.runtime.log.lines import read_log
from tachograph.runtime.log.steps import steps_of
from tachograph.runtime.log.values import Usage
from tachograph.runtime.policy.prices import Price, in_words, millionths
from tachograph.tracing.spans import spans_of
from tests.commands import Capsys, exit_code, output_of
from tests.hostile import log_of
from tests.project import POLICY, cut, make_project, merged, proved, write_policy_tests

amounts = st.integers(0, 10**12 - 1)
tokens = st.integers(0, 9_000_000_000)


@given(amounts)
def test_an_amount_is_read_as_it_is_written(amount: int) -> None:
    assert millionths(in_words(amount)) == amount
    limited = merged(POLICY, {"loop_budget": {"max_cost": in_words(amount)}})
    assert Policy.from_dict(limited).limits.limits["max_cost"] == amount


@given(st.tuples(*[amounts] * 4), st.tuples(*[tokens] * 4))
def test_a_cost_is_never_rounded_down(prices: Any, counts: Any) -> None:
    fresh, output, cached, written = counts
    price = Price(*prices)
    usage = Usage(fresh + cached + written, output, False, cached, written, 0)
    exact = fresh * price.input + output * price.output + cached * price.cached + written * price.cache_write
    assert 0 <= price.cost(usage) * 10**6 - exact < 10**6
    amount = price.cost(Usage(0, output))
    assert price.cost(Usage(0, min(price.most_output(amount), 9_000_000_000))) <= amount


BAD = [
    ("loop_budget", {"max_cost": "0.50 EUR"}),
    ("loop_budget", {"max_cost": 0.5}),
    ("loop_budget", {"max_cost": "-1 USD"}),
    ("loop_budget", {"max_cost": "0.0000001 USD"}),
    ("loop_budget", {"max_wall_clock_s": -1}),
    ("prices", {"a:b": {"input": 1, "output": "1"}}),
    ("prices", {"a:b": {"input": "1"}}),
    ("prices", {"no provider": {"input": "1", "output": "1"}}),
    ("prices", {"a:b": {"input": "1", "output": "1", "dated": "today"}}),
]


@pytest.mark.parametrize(("section", "value"), BAD)
def test_what_is_no_price_is_refused(section: str, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(json.dumps(merged(POLICY, {section: value})))
    with pytest.raises(InputError) as refused:
        Policy.load(path)
    assert refused.value.line and refused.value.column


def first(asked: LLMInput) -> LLMOutput:
    raise ModelError("no")


def second(asked: LLMInput) -> LLMOutput:
    LEFT.append(asked.max_output_tokens)
    usage = {"input_tokens": 1000, "output_tokens": 10, "cached_tokens": 400, "reasoning_tokens": 5}
    return LLMOutput(final_answer="done", usage=usage)


LEFT: list[int] = []
PRICES = {"callable:first": {"input": "1", "output": "1"}, "callable:second": {"input": "2", "output": "10"}}


def policy(**delta: Any) -> Policy:
    own = {"loop_budget": {"max_cost": "0.01 USD"}, "prices": PRICES, **delta}
    return Policy.from_dict(merged(POLICY, own))


def test_a_fallback_is_recorded_and_paid(tmp_path: Path) -> None:
    def agent() -> Agent:
        return Agent(Fallback([first, second]), [], policy())

    LEFT.clear()
    made = proved(agent(), tmp_path / "run")
    assert made.answer == "done" and LEFT == [1000]  # what a cent buys, and not all 5000 tokens
    failed, replied = (it for it in made.events if isinstance(it, Failed | ModelReplied))
    assert (failed.at, failed.fallback, replied.at, replied.fallback) == ("1.m1", 0, "1.m2", 1)
    assert made.cost == 0.0021
    with pytest.raises(Diverged):
        tachograph.replay(Agent(first, [], policy()), tmp_path / "run")
    report = (tmp_path / "run/run_report.md").read_text()
    assert "0.0021 USD" in report and "0.01 USD" in report and "fallback" in report.lower()
    (model,) = (span for span in spans_of(made.events) if span.name == "llm_call")
    expected = {
        "gen_ai.request.model": "second",
        "gen_ai.usage.cache_read.input_tokens": 400,
        "gen_ai.usage.reasoning.output_tokens": 5,
        "agent.llm.cost_micro_usd": 2100,
    }
    assert model.attributes.items() >= expected.items()
    assert "gen_ai.usage.cache_creation.input_tokens" not in model.attributes
    cut(tmp_path / "run", 2, tmp_path / "again")
    assert tachograph.resume(agent(), tmp_path / "again").answer == "done"


def test_an_outcome_does_not_say_what_was_asked_or_of_which_model(tmp_path: Path) -> None:
    """A log that was changed as a whole, so that it holds in itself."""
    agent = Agent(Fallback([first, second]), [], policy())
    made = tachograph.record(agent, "?", out=tmp_path / "run")
    (reply,) = (it for it in made.events if isinstance(it, ModelReplied))
    other = Waited(at=reply.at, t=reply.t, took=reply.took)
    for forged in (*(structs.replace(reply, fallback=number) for number in (0, 2, -1)), other):
        data = log_of([forged if it is reply else it for it in made.events])
        (tmp_path / "run/state.jsonl").write_bytes(data)
        with pytest.raises(Diverged):
            tachograph.replay(agent, tmp_path / "run")
        assert verify(tmp_path / "run", "run") != []
    events = [line.event for line in read_log(data)]
    for name, content in derive(data, events, steps_of(events), {"<policy>": "", "later": ""}, {}).items():
        (tmp_path / "run" / name).write_bytes(content)
    assert verify(tmp_path / "run", "run") == []
    found = [(it.kind, it.at) for it in tachograph.check(agent, tmp_path / "run")]
    # what the rest of the run read is not asked about where that ends early
    assert ("EFFECT", reply.at) in found and "later" not in {at for _, at in found}


def test_prices_decide_only_what_they_are_held_against(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    dear = {"stub:script": {"input": "10000", "output": "20000"}}
    paid = {"loop_budget": {"max_cost": "1 USD"}, "prices": dear}
    rows = [{"name": "paid", "turns": [[["echo", {"text": "a"}]], "done"], "expect": {}, "policy": paid}]
    root = make_project(tmp_path / "p", rows)
    monkeypatch.chdir(root)
    assert exit_code("run") == 0
    for name, delta, code, said in (
        ("dearer", {"prices": {"stub:script": {"input": "10001"}}}, 0, "decides the same"),
        ("unpaid", {"prices": None}, 2, "stub:script"),
        ("poor", {"loop_budget": {"max_cost": "0.3 USD"}}, 1, "goes another way"),
    ):
        path = root / f"policy/{name}.yaml"
        path.write_text(json.dumps(merged(merged(POLICY, paid), delta)))
        assert said in "".join(output_of(capsys, "replay", "--policy", str(path), code=code))
    (root / "policy/paid.yaml").write_text((root / "policy/dearer.yaml").read_text())
    assert "OTHER" in (out := output_of(capsys, "check", code=1).out) and "ASKED" not in out
    test = {"name": "n", "expect": "deny", "step": True, "used": {"cost": 1_000_000_000}}
    write_policy_tests(root, "policy/paid.yaml", test)
    assert exit_code("policy", "test") == 0, capsys.readouterr()


def test_a_refused_step_costs_nothing() -> None:
    def paused(asked: LLMInput) -> LLMOutput:
        return LLMOutput(text="wait", finish_reason="pause", usage={"input_tokens": 5000, "output_tokens": 1})

    made = Agent(paused, [], policy(prices={"callable:paused": {"input": "2", "output": "10"}})).run("?")
    assert [it.cost for it in made.events if isinstance(it, StepEnded)] == [10010, 0]


def test_where_all_models_fail_each_failure_says_whose_it_is() -> None:
    made = Agent(Fallback([first, first, first]), [], Policy.from_dict(POLICY)).run("?")
    assert [it.fallback for it in made.events if isinstance(it, Failed)] == [0, 1, 2]
    assert made.mode == "llm_failure"


def test_each_step_begins_with_the_first_model() -> None:
    def flaky(asked: LLMInput) -> LLMOutput:
        if asked.step_index == 1:
            raise TransientModelError("busy")
        return LLMOutput(final_answer="first")

    def paused(asked: LLMInput) -> LLMOutput:
        return LLMOutput(text="wait", finish_reason="pause")

    made = Agent(Fallback([flaky, paused]), [], Policy.from_dict(merged(POLICY, {"retry": None}))).run("?")
    assert (made.answer, made.steps) == ("first", 2)


@pytest.mark.parametrize("models", ["ab", None, 3, [], [first], [first, 3], [first, "nobody:gpt"]])
def test_what_is_no_fallback_is_refused(models: Any) -> None:
    with pytest.raises(InputError):
        Fallback(models)


def test_a_model_without_a_price_is_refused(tmp_path: Path, capsys: Capsys) -> None:
    with pytest.raises(InputError, match="callable:second"):
        Agent(Fallback([first, second]), [], policy(prices={"callable:second": None}))
    rows = [{"name": "free", "turns": ["done"], "expect": {}}]
    rows[0]["policy"] = {"loop_budget": {"max_cost": "1 USD"}}
    root = make_project(tmp_path / "p", rows)
    said = output_of(capsys, "run", str(root / "tasks/s/free.yaml"), code=2).err
    assert "policy/free.yaml:1:" in said and "stub:script" in said and len(said.splitlines()) == 1
    assert not [path for path in (root / "runs").rglob("*") if path.is_file()]
