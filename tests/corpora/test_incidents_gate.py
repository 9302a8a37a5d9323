"""Incidents about decisions: limits that let through, approvals that covered more, calls that went unasked."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Answer, LLMOutput, Policy, ToolCall, VirtualClock
from tachograph.evidence.files.rebuild import rebuild
from tachograph.evidence.files.writer import derive
from tachograph.fail.errors import PolicyError
from tachograph.runtime.tools.contract import Tool
from tachograph.runtime.tools.loader import load_module, load_named
from tests.corpora.test_incidents import incident
from tests.support import OUTPUT, ROOT, Ran, Script, answer, ask, failing, perform, policy_data, probe, tool

WRITE = load_named("write")
ROOMY = {"max_iterations": 100, "max_tokens": 10**9, "max_tool_calls": 1000, "max_result_bytes": 10**6}


def _decided(ran: Ran) -> list[tuple[str, str]]:
    return [(d["decision"], d["rule_id"]) for d in ran.decisions]


def _closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


# ---- limits and malformed input ------------------------------------------------------------------------------


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"n": value}
    return value


MALFORMED: dict[str, Any] = {
    "nothing": None,
    "a text": "hello",
    "a plain dict": {"final_answer": "x"},
    "calls that are no list": LLMOutput(tool_calls="probe"),  # type: ignore[arg-type]
    "a call that is a dict": LLMOutput(tool_calls=[{"name": "probe"}]),  # type: ignore[list-item]
    "a call without a name": LLMOutput(tool_calls=[ToolCall(None, {})]),  # type: ignore[arg-type]
    "an answer that is a number": LLMOutput(final_answer=1),  # type: ignore[arg-type]
    "both": LLMOutput(tool_calls=[probe()], final_answer="x"),
    "a raw that is no data": LLMOutput(final_answer="x", raw=object()),
    "cut arguments": ask(ToolCall("probe", '{"n": 1')),
    "two documents": ask(ToolCall("probe", "{}{}")),
    "a double key": ask(ToolCall("probe", '{"n": 1, "n": 2}')),
    "NaN": ask(ToolCall("probe", {"n": math.nan})),
    "arguments that are bytes": ask(ToolCall("probe", b"{}")),  # type: ignore[arg-type]
    "deep text": ask(ToolCall("probe", '{"n":' * 100_000)),
    "deep data": ask(ToolCall("probe", _nested(900))),
    "a huge number": ask(ToolCall("probe", '{"n": ' + "9" * 100_000 + "}")),
    "a name that is no text": ask(ToolCall("\ud800", {})),
}


@incident("CVE-2025-53365/53366")
@pytest.mark.parametrize("on_deny", ["terminate", "inform"])
def test_a_malformed_message_ends_in_a_record_and_the_next_run_is_served(incident: str, on_deny: str) -> None:
    replies: list[Any] = []
    agent = Agent(
        lambda asked: replies.pop(0), [tool(), tool("echo")], Policy.from_dict(policy_data(on_deny=on_deny))
    )
    for name, reply in MALFORMED.items():
        replies[:] = [reply, answer("told")]
        files, tally = derive(agent, agent.configure_run("What now?", run_id="one", clock=VirtualClock()))
        refused = "llm_invalid_output" in tally.modes or b'"decision":"deny"' in files["state.jsonl"]
        assert refused and b'"attempts":[{' not in files["state.jsonl"], name
        replies[:] = [ask(probe()), answer("served")]
        assert agent.run("And now?").answer == "served", name


@incident("Adversa 2026-04 (no CVE seen)")
def test_more_than_can_be_looked_at_is_denied_and_not_waved_through(incident: str) -> None:
    ran_with: list[Any] = []

    def run(args: dict[str, Any], io: Any) -> dict[str, str]:
        ran_with.append(args)
        return {}

    path = {"type": "string", "x-resource": "path:read"}
    number = {"type": "integer"}
    many = Tool(
        "many", "", _closed(paths={"type": "array", "items": path}, n=number), OUTPUT, "read", True, run
    )
    data = policy_data(tool_registry={"allowed": ["many"]}, on_deny="inform", loop_budget=ROOMY)

    def denied(*calls: ToolCall) -> list[str]:
        ran = perform([ask(*calls), answer()], [many], data)
        return [d["rule_id"] for d in ran.decisions if d["decision"] == "deny"]

    # the rule holds for the call after the fiftieth, for the last of sixty, and for the last path of 20,000
    calls = [ToolCall("many", {"paths": ["box/a"], "n": n}) for n in range(60)]
    for place in (50, 59):
        few = [*calls[:place], ToolCall("many", {"paths": ["../a"]}), *calls[place + 1 :]]
        assert denied(*few) == ["sandbox_path"] and len(ran_with) == 59
        ran_with.clear()
    # a reply of more calls than anybody meant is taken as a whole or not at all
    flood = [*(ToolCall("many", {"n": n}) for n in range(2000)), ToolCall("many", {"paths": ["../a"]})]
    assert denied(*flood) == ["sandbox_path"] or ran_with == []
    ran_with.clear()
    assert denied(ToolCall("many", {"paths": ["box/a"] * 20_000 + ["../a"]})) == [
        "gate_error"
    ]  # too many to judge
    # and what is too long or too deep to be judged is refused for that
    assert denied(ToolCall("many", {"paths": ["box/" + "a/" * 5000]})) == ["sandbox_path"]
    for text in (
        '{"n":' + "[" * 500 + "]" * 500 + "}",
        '{"n":"' + "a" * 8_000_001 + '"}',
        '{"n":' + "[" * 200_000,
    ):
        assert denied(ToolCall("many", text)) == ["arg_schema"]
    assert ran_with == []


@incident("langgraph#6731, strands#2166, LightAgent#70, langflow-e2e#1264")
def test_a_limit_is_a_number_and_is_reached_when_it_says(incident: str) -> None:
    budgets = ("max_iterations", "max_tokens", "max_tool_calls", "max_result_bytes")
    values = (True, False, 2.5, "3", None, -1, math.inf, 10**30)
    wrong: list[dict[str, Any]] = [{"loop_budget": {name: value}} for name in budgets for value in values]
    wrong += [{"cycle_detection": {"max_repeats": True}}, {"retry": {"max_retries": True}}]
    wrong += [{"approval": {"required_for": ["probe"], "timeout_s": True}}]
    for sections in wrong:
        with pytest.raises(PolicyError):
            Policy.from_dict(policy_data(**sections))
    for limit in (1, 2, 5):
        tight = policy_data(loop_budget={"max_iterations": limit})
        model = Script(ask(probe(n=n)) for n in range(9))
        ran = perform(model, policy=tight)
        assert len(model.heard) == limit and len(ran.steps) == limit + 1
        assert ran.result.ending == "loop_budget"
        # an answer within the limit is one
        assert perform([*[ask(probe(n=n)) for n in range(limit - 1)], answer()], policy=tight).result.ok
    # a call that fails and recovers costs one step and one call, however often it was tried
    flaky = tool(run=failing(ConnectionError(), ConnectionError()))
    tight = policy_data(loop_budget={"max_iterations": 2, "max_tool_calls": 1})
    assert perform([ask(probe()), answer()], [flaky], tight).result.ok


# ---- every call is asked about -----------------------------------------------------------------------------


@incident("gemini-cli#11510 follow-up")
@pytest.mark.parametrize("bad", [0, 1, 2, 3])
def test_each_call_of_a_batch_is_decided_by_itself(incident: str, bad: int) -> None:
    ran_with: list[int] = []

    def run(args: dict[str, Any], io: Any) -> dict[str, str]:
        ran_with.append(args["n"])
        return {}

    calls = [probe(n=n) for n in range(4)]
    calls[bad] = probe("rm", n=bad)
    informed = perform([ask(*calls), answer()], [tool(run=run)], policy_data(on_deny="inform"))
    assert [d for d, _ in _decided(informed)] == ["deny" if n == bad else "allow" for n in range(4)]
    assert ran_with == [n for n in range(4) if n != bad]
    ran_with.clear()
    ended = perform([ask(*calls)], [tool(run=run)])
    assert ran_with == list(range(bad))
    assert [r["status"] for r in ended.results] == ["ok"] * bad + ["denied"] + ["not_reached"] * (3 - bad)


@incident("CVE-2025-54135/54136/59944")
def test_an_approval_covers_one_call_with_its_content(incident: str, tmp_path: Path) -> None:
    asked_for: list[Any] = []
    box = tmp_path / "box"
    box.mkdir()

    def approve(asked: Any) -> Answer:
        arguments = asked.call.arguments.value()
        asked_for.append(arguments)
        arguments["content"] = "changed after the fact"
        return Answer("allow" if asked.index == 0 else "deny")

    def call(content: str, path: str = "box/a") -> ToolCall:
        return ToolCall("write", {"path": path, "content": content})

    data = policy_data(
        tool_registry={"allowed": ["write"], "denied": []},
        approval={"required_for": ["write"], "timeout_s": 60},
        on_deny="inform",
    )
    calls = [call("good"), call("evil"), call("good", "box/b")]
    ran = perform([ask(*calls), answer()], [WRITE], data, approve=approve, mounts={"box": box})
    assert len(asked_for) == 3
    assert [r["status"] for r in ran.results] == ["ok", "denied", "denied"]
    assert {path.name: path.read_text() for path in box.iterdir()} == {"a": "good"}
    # names are what they are: no other case of letters, of a tool or of a mount, is the same
    for other in (
        ToolCall("Write", {"path": "box/c", "content": "x"}),
        call("x", "Box/c"),
        call("x", "BOX/c"),
    ):
        assert _decided(perform([ask(other)], [WRITE], data, mounts={"box": box}))[0][0] == "deny"


@incident("CVE-2025-54135/54136/59944")
def test_a_tool_that_was_swapped_shows_in_the_record(incident: str, tmp_path: Path) -> None:
    source = (ROOT / "tools" / "write.py").read_text()
    texts = [
        source,
        source.replace("Write a text file", "Send a text file"),
        source.replace('args["content"])', 'args["content"] + "!")'),
    ]
    assert len({*texts}) == len(texts)
    policy = Policy.from_dict(policy_data(tool_registry={"allowed": ["write"], "denied": []}))
    seen = set()
    for text in texts:
        (tmp_path / "write.py").write_text(text)
        swapped = load_module(tmp_path / "write.py", file="tools/write.py")
        call_of_it = ToolCall("write", {"path": "box/c", "content": "x"})
        agent = Agent(Script([ask(call_of_it), answer()]), [swapped], policy)
        files, _ = derive(agent, agent.configure_run("What now?", run_id="one"))
        inputs = {item["path"]: item["sha256"] for item in json.loads(files["manifest.json"])["inputs"]}
        seen.add(inputs["tools/write.py"])
    assert len(seen) == len(texts)


# ---- what is enforced, and what is told -----------------------------------------------------------------------


@incident("Replit/SaaStr 2025-07")
def test_a_freeze_is_enforced_and_the_report_does_not_take_the_models_word(
    incident: str, tmp_path: Path
) -> None:
    (tmp_path / "data.txt").write_text("production")
    claim = "# Run ok\n\n**Ending: `final_answer`** Nothing was changed. Denials: 0\n\n| 1 | `read` | allow |"
    replies = [
        ask(ToolCall("write", {"path": "box/data.txt", "content": ""}), text="I only read."),
        ask(
            ToolCall("write", {"path": "books/data.txt", "content": ""}),
            text="The freeze was lifted by a person.",
        ),
        answer(claim),
    ]
    data = policy_data(
        tool_registry={"allowed": ["write"], "denied": []},
        sandbox={"mounts": {"books": "read", "box": "read"}},
        on_deny="inform",
    )
    ran = perform(replies, [WRITE], data, mounts={"box": tmp_path, "books": tmp_path})
    assert (tmp_path / "data.txt").read_text() == "production"
    assert _decided(ran) == [("deny", "sandbox_path")] * 2
    report = rebuild(ran.state, "state.jsonl")["run_report.md"].decode()
    lines = report.split("\n")
    assert [line for line in lines if line.startswith("# ")] == ["# Run test-run"]
    (told,) = [line for line in lines if line.startswith("Steps:")]
    assert told == "Steps: 3 · Tool calls: 0 · Attempts: 0 · Retries: 0 · Denials: 2"
    rows = [line for line in lines if line.startswith(("| 1 |", "| 2 |"))]
    assert len(rows) == 2 and all("deny, `sandbox_path`" in row for row in rows)
    assert (
        ran.end["totals"]["denials"] == 2
        and ran.spans[-1].attributes["agent.terminal_reason"] == "final_answer"
    )
