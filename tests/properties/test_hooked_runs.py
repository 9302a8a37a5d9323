"""Whatever hooks answer and whatever fails, a run ends within its budgets, and performs only what was allowed."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph import Agent, Call, Counters, Hooks, Policy
from tachograph.fail.catalog import ENDINGS, MODES, Ending
from tachograph.runtime.formats import canonical_json
from tachograph.runtime.journal.requests import requests_of
from tachograph.runtime.loop.hooks import ANSWERS, MAX_REPLACED, MAX_SENT_BACK
from tachograph.runtime.models.types import LLMInput
from tachograph.runtime.policy.gate import Gate
from tachograph.runtime.tools.hooks import collect_hooks
from tests.properties.test_told_failures import (
    ACTS,
    POLICIES,
    REPLIES,
    _fits_anthropic,
    _fits_openai,
    _in_order,
)
from tests.support import answer, ask, perform, probe, tool

VALUES = st.sampled_from(
    ["", "no", "ünï\n", {"n": 1}, {"n": 2}, {"n": "x"}, {"said": "by a hook"}, {}, 3, None]
)
# the last two are none that the gate lets through
ARGUMENTS = st.sampled_from([{"n": 1}, {"n": 2}, {"n": "x"}, {"target": "books/x"}])
SAID = st.one_of(
    st.none(),
    st.sampled_from([KeyError, SystemExit, GeneratorExit, TimeoutError]),
    st.fixed_dictionaries({"arguments": ARGUMENTS}),
    st.fixed_dictionaries({"send_back": st.just("Once more.")}),
    st.dictionaries(
        st.sampled_from([key for answers in ANSWERS.values() for key in answers] + ["allow"]),
        VALUES,
        max_size=2,
    ),
)
EVENTS = st.lists(st.sampled_from(sorted(ANSWERS)), min_size=1, max_size=4, unique=True)


@settings(max_examples=150, deadline=None)
@given(
    replies=st.lists(st.one_of(REPLIES, st.just(ask(probe(n=1)))), max_size=6),
    acts=st.lists(ACTS, max_size=6),
    policy=POLICIES,
    said=st.lists(SAID, max_size=12),
    events=st.lists(EVENTS, min_size=1, max_size=2),
    granted=st.booleans(),
)
def test_every_run_with_hooks_ends_within_its_budgets_and_performs_what_was_allowed_last(
    replies: list[Any], acts: list[Any], policy: dict[str, Any], said: list[Any], events: list[list[str]],
    granted: bool,
) -> None:  # fmt: skip
    replies, done, says = list(replies), list(acts), list(said)
    heard, performed = list[list[dict[str, Any]]](), list[tuple[str, dict[str, Any]]]()

    def model(asked: LLMInput) -> Any:
        heard.append(list(asked.messages))
        reply = replies.pop(0) if replies else answer()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def run(name: str) -> Any:
        def act(args: dict[str, Any], _io: Any) -> Any:
            performed.append((name, dict(args)))
            act = done.pop(0) if done else {"said": "ok"}
            if isinstance(act, type):
                raise act("a private word")
            return act

        return act

    def hook(_data: dict[str, Any]) -> Any:
        word = says.pop(0) if says else None
        if isinstance(word, type):
            raise word("a private word")
        return word

    made = [Hooks(**dict.fromkeys(chosen, hook), name=f"h{n}") for n, chosen in enumerate(events)]

    def give(agent: Agent) -> None:
        agent.hooks = collect_hooks(made)

    tools = [tool(name, run(name)) for name in ("probe", "echo")]
    ran = perform(model, tools, policy, before=give, approve=lambda question: granted)
    limits, totals = policy["loop_budget"], ran.end["totals"]
    assert ran.result.ending in ENDINGS and (ran.result.mode is None or ran.result.mode in MODES)
    assert (ran.result.ending == Ending.FINAL_ANSWER) == (ran.result.answer is not None)
    assert totals.get("told_failures", 0) <= policy["on_failure"]["max_failures"]
    assert len([step for step in ran.steps if step["llm_input"] is not None]) <= limits["max_iterations"]
    assert totals["tool_calls"] <= limits["max_tool_calls"]
    assert b"a private word" not in ran.state
    gate = Gate(Policy.from_dict(policy), {item.name: item for item in tools})
    for name, arguments in performed:
        call = Call("c", name, canonical_json.freeze(arguments))
        assert gate.decide(call, Counters()).decision == "allow"
    sent_back = 0
    for step in ran.steps:
        asked = step.get("hooks", [])
        sent_back += sum(_key(entry) == "send_back" for entry in asked if entry["event"] == "on_stop")
        _performed_what_was_allowed(step, asked, performed)
    assert sent_back <= MAX_SENT_BACK
    assert performed == [], "a call was performed that no step has"
    for messages in heard:
        _in_order(messages)
        _fits_anthropic(messages)
        _fits_openai(messages)
    rebuilt = {tuple(map(str, request.messages)) for request in requests_of(ran.lines)}
    assert rebuilt == {tuple(map(str, messages)) for messages in heard}


def _key(entry: dict[str, Any]) -> str | None:
    said = entry.get("answer")
    return next(iter(said)) if isinstance(said, dict) and len(said) == 1 else None


def _performed_what_was_allowed(
    step: dict[str, Any], asked: list[dict[str, Any]], performed: list[tuple[str, dict[str, Any]]]
) -> None:
    """Each attempt of a step had the arguments that were decided last, and that decision is an allow."""
    results = {result["id"]: result for result in step["tool_results"]}
    for index, call in enumerate(step["intended_tool_calls"]):
        before = [e for e in asked if e["event"] == "before_call" and e["position"].startswith(f"k{index}.")]
        decided = [d for d in step["policy_decisions"] if d["id"] == call["id"] and d["phase"] == "proposal"]
        given = [e["answer"]["arguments"] for e in before
                 if _key(e) == "arguments" and isinstance(e["answer"]["arguments"], dict)]  # fmt: skip
        new = [one for place, one in enumerate(given) if one != [call["arguments"], *given][place]]
        assert len(new) <= MAX_REPLACED + 1
        attempts = results[call["id"]]["attempts"] if call["id"] in results else []
        if decided and decided[0]["decision"] == "deny" and decided[0]["rule_id"] != "hook":
            assert before == [], "a hook was asked about a call that the gate denies"
        if attempts:
            assert decided[-1]["decision"] == "allow"
            assert not any("fault" in e or _key(e) == "deny" for e in before)
        for _ in attempts:
            assert performed.pop(0) == (call["name"], given[-1] if given else call["arguments"])
