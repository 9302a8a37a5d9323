"""Hooks: what each event may answer, what follows from it, and that nothing is ever widened by one."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph import Agent, Answer, Call, Counters, Hooks, Policy, Stub, ToolCall, record
from tachograph.evidence.checking.verify import verify
from tachograph.fail.errors import Cancelled, InputError
from tachograph.runtime.core.effects import AskHook
from tachograph.runtime.formats import canonical_json
from tachograph.runtime.journal.requests import requests_of
from tachograph.runtime.loop import hooks as loop_hooks
from tachograph.runtime.policy.gate import Gate
from tachograph.runtime.tools import hooks as tool_hooks
from tachograph.runtime.tools.hooks import collect_hooks, load_hooks
from tests.support import Ran, answer, ask, perform, policy_data, probe, tool

NEVER = object()


def _run(*replies: Any, hooks: Any, policy: dict[str, Any] | None = None, **more: Any) -> Ran:
    def give(agent: Agent) -> None:
        agent.hooks = collect_hooks(hooks)

    replies = replies or (ask(probe(n=1)), answer())
    return perform(replies, policy=policy, before=give, **more)


def _decided(ran: Ran) -> list[tuple[str, str, str]]:
    return [(item["position"], item["decision"], item["rule_id"]) for item in ran.decisions]


def _asked(ran: Ran) -> list[tuple[str, str]]:
    return [(entry["position"], entry["event"]) for step in ran.steps for entry in step.get("hooks", ())]


def _approving(**more: Any) -> dict[str, Any]:
    return policy_data(approval={"required_for": ["probe"], "timeout_s": 60}, **more)


def test_both_lists_of_events_are_the_same() -> None:
    assert loop_hooks.EVENTS == tool_hooks.EVENTS


def test_hooks_that_say_nothing_change_nothing_but_the_record() -> None:
    heard: list[dict[str, Any]] = []
    silent = Hooks(heard.append, heard.append, heard.append, heard.append)
    ran = _run(hooks=silent)
    assert ran.result.ok
    assert _asked(ran) == [
        ("km.1", "before_model"), ("k0.1", "before_call"), ("k0.2", "after_call"),
        ("km.1", "before_model"), ("ks.1", "on_stop"),
    ]  # fmt: skip
    assert [data["event"] for data in heard] == [event for _, event in _asked(ran)]
    assert heard[1]["call"] == {
        "id": ran.steps[0]["intended_tool_calls"][0]["id"],
        "name": "probe",
        "arguments": {"n": 1},
    }
    assert ran.lines[0]["hooks"] == [{"name": "hooks", "file": None, "events": list(tool_hooks.EVENTS)}]


def test_what_a_hook_does_to_its_data_changes_nothing() -> None:
    def vandal(data: dict[str, Any]) -> None:
        for message in data["messages"]:
            message.get("tool_calls", []).clear()
        data["messages"][0]["content"] = "something else"
        data["messages"].clear()

    ran = _run(hooks=Hooks(before_model=vandal))
    assert ran.model is not None and ran.model.heard[0][0]["content"] == "What now?"
    assert len(ran.model.heard[1][1]["tool_calls"]) == 1

    shown: list[Any] = []
    policy = Policy.from_dict(policy_data(tool_registry={"allowed": ["probe"], "denied": []}))
    agent = Agent(Stub([{"answer": "done"}]), [tool()], policy, hooks=Hooks(before_model=vandal))
    agent.run("What now?", listeners=[lambda notice: shown.append(notice.item)])
    (question,) = [item for item in shown if isinstance(item, AskHook)]
    assert question.data["messages"] == [{"role": "user", "content": "What now?"}]


def test_a_denial_keeps_the_call_from_running_and_names_the_hook() -> None:
    ran = _run(hooks=Hooks(before_call=lambda data: {"deny": "not today"}, name="guard"))
    assert _decided(ran) == [("d0", "allow", "tool_registry"), ("d0.2", "deny", "hook")]
    assert ran.decisions[1]["reason"] == 'hook guard denies: "not today"'
    assert ran.results[0]["status"] == "denied" and ran.results[0]["attempts"] == []
    assert ran.result.ending == "policy_denial_terminal"


def test_under_inform_the_model_reads_the_denial_and_the_same_call_is_refused_again() -> None:
    asked: list[dict[str, Any]] = []

    def guard(data: dict[str, Any]) -> dict[str, Any]:
        asked.append(data)
        return {"deny": "no"}

    ran = _run(
        ask(probe(n=1)), ask(probe(n=1)), answer(),
        hooks=Hooks(before_call=guard), policy=policy_data(on_deny="inform"),
    )  # fmt: skip
    assert ran.results[0]["told"]["rule"] == "hook"
    assert ran.decisions[-1]["reason"] == "this call was refused before"
    assert len(asked) == 1 and ran.result.ending == "policy_denial_terminal"


def _raising(data: dict[str, Any]) -> None:
    raise ValueError("the text of an exception")


@pytest.mark.parametrize(
    "said",
    [True, "allow", {}, {"allow": "yes"}, {"deny": 1}, {"deny": "a", "escalate": "b"}, {"arguments": []},
     {"result": {}}, pytest.param(object(), id="object"), [None]],
    ids=str,
)  # fmt: skip
def test_an_answer_that_cannot_be_used_denies(said: object) -> None:
    ran = _run(hooks=Hooks(before_call=lambda data: said))
    assert _decided(ran)[-1] == ("d0.2", "deny", "hook")
    assert ran.results[0]["attempts"] == []


_MAY_SAY = {
    "before_model": {"stop"},
    "before_call": {"deny", "escalate", "arguments"},
    "after_call": {"deny", "result"},
    "on_stop": {"send_back"},
}


@pytest.mark.parametrize("event", tool_hooks.EVENTS)
def test_what_another_event_may_be_answered_denies(event: str) -> None:
    values = {"arguments": {"n": 2}, "result": {"said": "other"}}
    for key in set().union(*_MAY_SAY.values()) - _MAY_SAY[event]:
        ran = _run(hooks=Hooks(**{event: lambda data, key=key: {key: values.get(key, "why")}}))
        assert ran.decisions[-1]["decision"] == "deny", key
        assert ran.decisions[-1]["reason"] == "hook hooks gave no answer that can be used", key
        assert ran.result.ending == "policy_denial_terminal", key


@pytest.mark.parametrize("event", tool_hooks.EVENTS)
def test_a_hook_that_raises_denies_and_its_text_is_kept_out(event: str) -> None:
    ran = _run(hooks=Hooks(**{event: _raising}))
    assert ran.result.ending == "policy_denial_terminal" and ran.result.answer is None
    assert ran.decisions[-1]["reason"] == "hook hooks raised an exception"
    assert ran.decisions[-1]["facts"]["exception"] == "ValueError"
    assert b"the text of an exception" not in ran.state


def test_a_hook_that_is_late_denies() -> None:
    def slow(data: dict[str, Any]) -> None:
        while True:
            pass

    ran = _run(hooks=Hooks(before_call=slow, timeout_s=0.05))
    assert ran.decisions[-1]["reason"] == "hook hooks was late"


def test_an_async_hook_is_run_to_its_end() -> None:
    async def guard(data: dict[str, Any]) -> dict[str, str]:
        return {"deny": "no"}

    assert _decided(_run(hooks=Hooks(before_call=guard)))[-1] == ("d0.2", "deny", "hook")


@pytest.mark.parametrize("where", ["the main thread", "another thread", "an event loop"])
def test_an_async_hook_that_is_late_is_ended(where: str) -> None:
    ended: list[str] = []

    async def slow(data: dict[str, Any]) -> None:
        try:
            await asyncio.sleep(2)
            ended.append("by itself")
        except asyncio.CancelledError:
            ended.append("in time")
            raise

    policy = Policy.from_dict(policy_data(tool_registry={"allowed": ["probe"], "denied": []}))
    script = [{"calls": [{"tool": "probe", "arguments": {"n": 1}}]}]
    agent = Agent(Stub(script), [tool()], policy, hooks=Hooks(before_call=slow, timeout_s=0.05))
    if where == "an event loop":
        result = asyncio.run(agent.arun("What now?"))
    elif where == "another thread":  # where no alarm comes
        with ThreadPoolExecutor(1) as pool:
            result = pool.submit(agent.run, "What now?").result()
    else:
        result = agent.run("What now?")
    assert ended == ["in time"] and result.ending == "policy_denial_terminal"


def test_other_arguments_are_decided_from_the_first_rule_and_run() -> None:
    def rewrite(data: dict[str, Any]) -> dict[str, Any]:
        return {"arguments": {"n": 7}}

    ran = _run(
        hooks=Hooks(before_call=rewrite),
        tools=[tool(run=lambda arguments, io: {"said": str(arguments["n"])})],
    )
    assert _decided(ran) == [("d0", "allow", "tool_registry"), ("d0.2", "allow", "tool_registry")]
    assert ran.results[0]["result"] == {"said": "7"}
    assert ran.steps[0]["intended_tool_calls"][0]["arguments"] == {"n": 1}


def test_other_arguments_that_a_rule_denies_are_denied() -> None:
    ran = _run(hooks=Hooks(before_call=lambda data: {"arguments": {"n": "seven"}}))
    assert _decided(ran) == [("d0", "allow", "tool_registry"), ("d0.2", "deny", "arg_schema")]


def test_arguments_may_be_replaced_three_times_a_call() -> None:
    def count(data: dict[str, Any]) -> dict[str, Any]:
        return {"arguments": {"n": data["call"]["arguments"]["n"] + 1}}

    ran = _run(hooks=Hooks(before_call=count))
    assert [item[1:] for item in _decided(ran)] == [("allow", "tool_registry")] * 4 + [("deny", "hook")]


def test_a_call_that_the_gate_denies_is_shown_to_no_hook() -> None:
    ran = _run(ask(ToolCall("shell", {})), hooks=Hooks(before_call=_raising))
    assert _decided(ran) == [("d0", "deny", "tool_registry")] and _asked(ran) == []


@pytest.mark.parametrize("granted", [True, False])
def test_a_hook_may_ask_for_a_person(granted: bool) -> None:
    guard = Hooks(before_call=lambda data: {"escalate": "large"})
    ran = _run(hooks=guard, approve=lambda question: granted)
    assert _decided(ran)[-1] == ("d0.2", "allow" if granted else "deny", "hook")
    assert ran.decisions[-1]["approval"]["answer"] == ("allow" if granted else "deny")
    assert bool(ran.results[0]["attempts"]) is granted


def test_a_denial_of_a_hook_comes_before_the_person() -> None:
    def nobody(question: object) -> Answer:
        raise AssertionError("a person was asked")

    ran = _run(hooks=Hooks(before_call=lambda data: {"deny": "no"}), policy=_approving(), approve=nobody)
    assert _decided(ran) == [("d0", "escalate", "approval"), ("d0.2", "deny", "hook")]


def test_a_person_is_asked_once_where_gate_and_hook_escalate() -> None:
    asked: list[object] = []

    def yes(question: object) -> bool:
        asked.append(question)
        return True

    guard = Hooks(before_call=lambda data: {"escalate": "large"})
    ran = _run(hooks=guard, policy=_approving(), approve=yes)
    assert len(asked) == 1 and _decided(ran) == [("d0", "allow", "approval")]


def test_one_denial_among_several_hooks_is_enough() -> None:
    first = Hooks(before_call=lambda data: {"escalate": "large"}, name="first")
    second = Hooks(before_call=lambda data: {"deny": "no"}, name="second")
    assert _run(hooks=[first, second]).decisions[-1]["facts"] == {"hook": "second", "event": "before_call"}


def test_a_result_may_be_replaced_and_both_are_recorded() -> None:
    ran = _run(
        hooks=Hooks(after_call=lambda data: {"result": {"said": data["result"]["said"] + "!"}}),
        tools=[tool(run=lambda arguments, io: {"said": "ok"})],
    )
    assert ran.results[0]["result"] == {"said": "ok!"}
    assert ran.results[0]["attempts"][0]["returned"] == {"said": "ok"}
    assert ran.model is not None and '{"said":"ok!"}' in [
        message["content"] for message in ran.model.heard[-1]
    ]


@pytest.mark.parametrize("said", [{"deny": "no"}, {"result": {"unknown": "key"}}, 3], ids=str)
def test_a_result_that_is_denied_is_not_read_by_the_model(said: object) -> None:
    ran = _run(hooks=Hooks(after_call=lambda data: said), policy=policy_data(on_deny="inform"))
    assert _decided(ran)[1] == ("d0.r", "deny", "hook")
    assert ran.results[0]["status"] == "denied" and ran.results[0]["told"]["executed"] is True


def test_a_hook_sends_the_agent_back_at_most_three_times() -> None:
    ran = _run(*[answer(str(n)) for n in range(5)], hooks=Hooks(on_stop=lambda data: {"send_back": "More."}))
    assert ran.result.answer == "3" and len(_asked(ran)) == 3
    assert [problem for request in requests_of(ran.lines) for problem in request.problems] == []


def test_a_run_that_is_stopped_while_a_hook_is_asked_replays() -> None:
    def stop(data: dict[str, Any]) -> None:
        raise Cancelled("now")

    for event in tool_hooks.EVENTS:
        ran = _run(hooks=Hooks(**{event: stop}), policy=_approving(), approve=lambda question: True)
        assert ran.result.ending == "cancelled" and ran.steps[-1]["stopped"] == "cancelled"


def test_a_record_with_hooks_holds_in_itself(tmp_path: Any) -> None:
    """The report made while a run is recorded is the one that its ledger gives, whatever hooks answer."""
    guard = Hooks(before_call=lambda data: {"deny": "no"} if data["call"]["arguments"]["n"] else None)
    replies = [{"calls": [{"tool": "probe", "arguments": {"n": n}} for n in (0, 1)]}, {"answer": "done"}]
    policy = Policy.from_dict(
        policy_data(on_deny="inform", tool_registry={"allowed": ["probe"], "denied": []})
    )
    record(Agent(Stub(replies), [tool()], policy, hooks=guard), "How?", out=tmp_path / "run")
    assert verify(tmp_path / "run", tmp_path) == []
    assert "no" in (tmp_path / "run/run_report.md").read_text(encoding="utf-8")


def test_calls_with_hooks_run_alone() -> None:
    ran = _run(
        ask(probe(n=1), probe(n=2)), answer(),
        hooks=Hooks(before_call=lambda data: None), tools=[tool(effect="read")],
    )  # fmt: skip
    assert all("groups" not in step for step in ran.steps)


def test_secrets_in_answers_of_hooks_are_redacted() -> None:
    token = "ghp_" + "a" * 36
    policy = policy_data(redact={"kinds": ["github_token"]})
    ran = _run(hooks=Hooks(before_call=lambda data: {"deny": token}), policy=policy)
    assert token.encode() not in ran.state and b"<secret:github_token:1>" in ran.state


# ---- the property ------------------------------------------------------------------------------------------

_TEXTS = st.sampled_from(["", "no", "\u0000", "probe"])
_ARGUMENTS = st.one_of(
    st.fixed_dictionaries({"n": st.integers(-1, 3)}), st.fixed_dictionaries({"n": _TEXTS}), st.just({})
)
_SAID = st.one_of(
    st.none(), st.booleans(), _TEXTS, st.just(NEVER),
    st.fixed_dictionaries({"arguments": _ARGUMENTS}), st.fixed_dictionaries({"arguments": _ARGUMENTS}),
    st.dictionaries(st.sampled_from(["deny", "escalate", "arguments", "allow", "result", "decision"]),
                    st.one_of(_TEXTS, _ARGUMENTS, st.just("allow")), max_size=2),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    st.lists(_SAID, min_size=1, max_size=6),
    st.sampled_from(["probe", "echo", "shell"]),
    _ARGUMENTS,
    st.sampled_from([[], ["probe"], ["echo"]]),
    st.booleans(),
)
def test_no_hook_turns_a_denial_into_an_allow(
    said: list[Any], name: str, arguments: dict[str, Any], denied: list[str], needs_person: bool
) -> None:
    remaining = list(said)

    def hook(data: dict[str, Any]) -> Any:
        one = remaining.pop(0) if remaining else None
        if one is NEVER:
            raise RuntimeError
        return one

    allowed = [item for item in ("probe", "echo") if item not in denied]
    sections: dict[str, Any] = {"tool_registry": {"allowed": allowed, "denied": denied}}
    if needs_person:
        sections["approval"] = {"required_for": allowed[:1], "timeout_s": 1}
    policy = policy_data(**sections)
    run: list[dict[str, Any]] = []
    tools = [
        tool(item, run=lambda arguments, io: run.append(arguments) or {"said": "ok"})
        for item in ("probe", "echo")
    ]
    ran = _run(
        ask(ToolCall(name, arguments)), answer(),
        hooks=[Hooks(before_call=hook, name="a"), Hooks(before_call=hook, name="b")],
        policy=policy, tools=tools,
    )  # fmt: skip
    gate = Gate(Policy.from_dict(policy), {item.name: item for item in tools})
    for given_arguments in run:
        call = Call("c", name, canonical_json.freeze(given_arguments))
        assert gate.decide(call, Counters()).decision == "allow"
    entries = ran.steps[0].get("hooks", [])
    if gate.decide(Call("c", name, canonical_json.freeze(arguments)), Counters()).decision == "deny":
        assert run == [] and entries == []
    if any("fault" in entry or "deny" in (entry.get("answer") or {}) for entry in entries
           if isinstance(entry.get("answer"), dict | None)):  # fmt: skip
        assert run == []
    replaced = [e["answer"]["arguments"] for e in entries
                if isinstance(e.get("answer"), dict) and list(e["answer"]) == ["arguments"]]  # fmt: skip
    assert run == [] or run[-1] in [arguments, *replaced]


# ---- making and loading ------------------------------------------------------------------------------------


def test_hooks_are_checked_when_they_are_made(tmp_path: Any) -> None:
    for wrong in (
        {},
        {"before_call": 3},
        {"before_call": print, "name": "a b"},
        {"on_stop": print, "timeout_s": 0},
    ):
        with pytest.raises(InputError):
            Hooks(**wrong)
    with pytest.raises(InputError, match="two hooks are named 'hooks'"):
        collect_hooks([Hooks(on_stop=print), Hooks(on_stop=print)])
    with pytest.raises(InputError, match="str is not Hooks"):
        collect_hooks(["guard"])  # type: ignore[list-item]


def test_hooks_are_loaded_from_a_file_with_its_digest(tmp_path: Any) -> None:
    path = tmp_path / "guard.py"
    path.write_text("TIMEOUT_S = 2\ndef before_call(data):\n    return None\n")
    hooks = load_hooks(path, "hooks/guard.py")
    assert (hooks.name, hooks.file, hooks.events, hooks.timeout_s) == (
        "guard",
        "hooks/guard.py",
        ("before_call",),
        2,
    )
    assert hooks.digest is not None and len(hooks.digest) == 64
    for text in ("", "def before_call(", "1/0", "import socket\ndef on_stop(data): pass"):
        path.write_text(text)
        with pytest.raises(InputError) as refused:
            load_hooks(path, "hooks/guard.py")
        assert "hooks/guard.py" in str(refused.value)


def test_an_event_of_a_hook_names_its_position() -> None:
    assert [AskHook(1, index, 2, event, "a", {}).position for index, event in
            ((None, "before_model"), (3, "before_call"), (3, "after_call"), (None, "on_stop"))] == [
        "km.2", "k3.2", "k3.2", "ks.2"
    ]  # fmt: skip
