"""The outside corpora of agents, faults and output, through the public door: what real agents call and what attacks do.

No policy here is fitted to a row: the corpus brings the tools of a suite or an agent, and the budgets are those of the
shipped policy. No results are recorded, so each call counts as bringing the same one again, which denies the most.
"""

from __future__ import annotations

import builtins
import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tachograph.fail.errors import InputError
from tachograph.runtime.agent import RunResult
from tachograph.runtime.log.steps import steps_of
from tachograph.runtime.models.types import LLMInput, LLMOutput, ToolCall
from tachograph.runtime.tools.contract import Tool
from tachograph.testing import Decision, decide, parse, run
from tests.tables.rows import closed, roomy
from tests.tables.shown import forged
from tests.test_corpora import corpus, rows

Row = dict[str, Any]
CLOSED = {"additionalProperties": False}
SHIPPED = parse("policy", (Path(__file__).parents[1] / "policy" / "v1.yaml").read_text(encoding="utf-8"))


def described(name: str) -> Any:
    return json.loads((corpus() / "common" / "5-agents" / f"{name}.json").read_text(encoding="utf-8"))


def shipped(allowed: Iterable[str], **sections: Any) -> Row:
    """Return the shipped policy with some tools, and sections."""
    return {**SHIPPED, "tool_registry": {"allowed": sorted(allowed)}, **sections}


def tool(name: str, schema: Row) -> Tool:
    """Return a tool whose arguments are closed, as those of every tool of ours are."""
    return Tool(name, "", {**schema, **CLOSED}, closed(), "write", lambda arguments, io: {})


def call(row: Row) -> Row:
    return {"name": row["tool"], "arguments": row.get("args_text") or json.dumps(row["args"])}


def grouped(found: Iterable[Row], *keys: str) -> list[list[Row]]:
    """Return the rows of each run, in the order of its steps."""
    out: dict[str, list[Row]] = {}
    for row in found:
        out.setdefault(json.dumps([row.get(key) for key in keys]), []).append(row)
    return [sorted(group, key=lambda row: (row.get("turn", 0), row.get("step", 0))) for group in out.values()]


def decided(policy: Row, tools: list[Tool], group: list[Row]) -> list[tuple[Row, Decision]]:
    return list(zip(group, decide(policy, tools, map(call, group)), strict=True))


# rules that speak of a call without resources
ANSWERS = ("tool_registry", "arg_schema")


@pytest.mark.parametrize("level", ["L1", "L2"])
def test_agentdojo(level: str) -> None:
    """Under both policies of the corpus each benign call is allowed, and an injected one is denied where it can be."""
    counts, wrong = Counter[str](), []
    for suite, tools in described("agentdojo_tools").items():
        given = described("agentdojo_policies")["policies"][suite]
        schemas = {name: each["parameters"] for name, each in tools.items()}
        schemas |= given["L2_arg_schemas"] if level == "L2" else {}
        offered, policy = [tool(*item) for item in schemas.items()], shipped(given["L1_allowed"])
        found = [row for row in rows("5-agents/agentdojo_calls") if row["suite"] == suite]
        groups = grouped(found, "group", "in_latest")
        for row, decision in chain.from_iterable(decided(policy, offered, group) for group in groups):
            counts[f"{row['kind']} {decision.decision}"] += 1
            if (decision.rule_id if decision.decision == "deny" else None) != row["denied_by"][level]:
                wrong.append(row["id"])
    # L2 holds the payees of the latest version of a suite alone, and this one was another before
    assert wrong == ([] if level == "L1" else ["ad-banking-b-user_task_15-2-v1"])
    assert counts["benign allow"] == 235 - len(wrong)
    assert counts["injection deny"] == {"L1": 2, "L2": 19}[level]


def test_bfcl_single_calls() -> None:
    """What fits its schema is allowed; what does not is denied by the rule of arguments and by no other."""
    counts, wrong = Counter[str](), []
    found = ({**row, "tool": row["tool"].replace(".", "_")} for row in rows("5-agents/bfcl_args"))
    for group in grouped(found, "tool", "schema"):
        name = group[0]["tool"]
        for row, decision in decided(roomy([name]), [tool(name, group[0]["schema"])], group):
            counts[decision.decision] += 1
            is_right = decision.decision == ("allow" if row["valid"] else "deny")
            wrong += [] if is_right and decision.rule_id in ANSWERS else [(row["id"], decision)]
    assert wrong == []
    assert counts.total() == 4150 and min(counts["allow"], counts["deny"]) > 2000


def test_bfcl_conversations() -> None:
    """All pass the shipped budgets but four, in which the recorded truth breaks the schema of its own tool."""
    # the three memories share names and take part in none
    places = [tools for place, tools in described("bfcl_multiturn_tools").items() if "memory" not in place]
    world = {each["name"]: each["parameters"] for tools in places for each in tools}
    policy, offered = shipped(world), [tool(*item) for item in world.items()]
    counts, wrong = Counter[str](), []
    for group in grouped(rows("5-agents/bfcl_multiturn"), "class", "group"):
        for row in group:  # what the truth gives by position goes by the order in the schema
            row["args"] |= zip(world[row["tool"]]["properties"], row["positional"], strict=False)
        for row, decision in decided(policy, offered, group):
            counts[decision.decision] += 1
            fits = Draft202012Validator({**world[row["tool"]], **CLOSED}).is_valid(row["args"])
            is_right = decision.decision == ("allow" if fits else "deny") and decision.rule_id in ANSWERS
            wrong += [] if is_right else [(row["id"], decision)]
    assert wrong == []
    assert counts == {"allow": 3097, "deny": 4}


@pytest.mark.parametrize(("name", "count"), [("ground_truth", 1022), ("gpt4o_calls", 776)])
def test_tau_bench(name: str, count: int) -> None:
    """No benign call is denied by the rules of arguments, of cycles or of budgets; spoilt ones are."""
    counts, wrong, spoilt = Counter[str](), [], 0
    domains = described("taubench_tools")
    worlds = {domain: [tool(*item) for item in tools.items()] for domain, tools in domains.items()}
    for group in grouped(rows(f"5-agents/taubench_{name}"), "domain", "run", "group"):
        tools, offered = domains[group[0]["domain"]], worlds[group[0]["domain"]]
        policy = shipped(tools)
        for row, decision in decided(policy, offered, group):
            counts[decision.decision] += 1
            wrong += [] if decision.decision == "allow" else [(row["id"], decision)]
        for row in group:
            good = json.loads(call(row)["arguments"])
            bad = [{**good, "undeclared": "x"}]
            for key in tools[row["tool"]].get("required", ()):
                bad += [{other: good[other] for other in good if other != key}, {**good, key: None}]
            found = decide(policy, offered, [{"name": row["tool"], "arguments": each} for each in bad])
            spoilt += len(found)
            kept = [each for each in found if (each.decision, each.rule_id) != ("deny", "arg_schema")]
            wrong += [(row["id"], each) for each in kept]
    assert wrong == []
    assert counts == {"allow": count} and spoilt > 1000


def test_agent_security_bench() -> None:
    """All tools are offered; each agent may call its own and no other."""
    found = list(rows("5-agents/asb_tool_registry"))
    offered = [tool(name, closed()) for name in {row["tool"] for row in found}]
    counts, wrong = Counter[str](), []
    for group in grouped(found, "agent"):
        policy = shipped(row["tool"] for row in group if row["class"] == "asb-normal")
        for row, decision in decided(policy, offered, [{**row, "args": {}} for row in group]):
            counts[decision.decision] += 1
            if (decision.decision, decision.rule_id) != (row["expect"], "tool_registry"):
                wrong.append((row["id"], decision))
    assert wrong == []
    assert counts == {"allow": 14, "deny": 267}


def test_injecagent() -> None:
    """A harmful call is denied unless the tool is registered for the run, and then a person can be asked."""
    harmful = sorted({name for row in rows("5-agents/injecagent_dh") for name in row["tools"]})
    offered = [tool(name, closed()) for name in harmful]
    calls = [{"name": name, "arguments": {}} for name in harmful]
    for policy, answer in (
        (shipped(["read"]), ("deny", "tool_registry")),
        (shipped(harmful), ("allow", "tool_registry")),
        (shipped(harmful, approval={"required_for": harmful}), ("escalate", "approval")),
    ):
        assert {(found.decision, found.rule_id) for found in decide(policy, offered, calls)} == {answer}
    assert len(harmful) > 10


# ---- scripted faults -------------------------------------------------------------------------------------------------

BROKEN = "llm_failure llm_invalid_output catalogued_unhandled schema_mismatch timeout".split()
ENDS = {
    "final": {("final_answer", "")},
    "budget": {("loop_budget", "")},
    "cycle": {("policy_denial_terminal", "cycle_detection")},
    "policy": {("policy_denial_terminal", "")},
    "retry": {("failure_mode_terminal", "retry_exhaustion")},
    "error": {("failure_mode_terminal", mode) for mode in BROKEN},
}
ANY = closed(**{name: {} for name in ("q", "n", "l", "self", "tool_name", "__class__")})


def _arguments(given: Any, step: int) -> Any:
    """Return the arguments of a row as a model would hand them over."""
    if isinstance(given, str):
        return json.dumps(given)  # the text of a JSON string: a model's text is JSON text here
    if not isinstance(given, dict):
        return given
    endless: Row = {}
    endless["q"] = endless
    odd = {"$intkeys": {1: "x"}, "$bytes": {"q": b"x"}, "$selfref": endless}
    plain = {key: step if item == {"$step": 1} else item for key, item in given.items()}
    return next((odd[key] for key in given if key in odd), plain)


class Scripted:
    """The model and the tools of a row; the model says its last turn for ever, where the row says so."""

    def __init__(self, row: Row) -> None:
        self.row, self.asked, self.executed, self.ran_out = row, 0, 0, False
        named = {str(each["tool"]) for turn in row["script"] for each in turn.get("calls", ())}
        known = [name for name in sorted(named) if re.fullmatch("t|fails|mutates|raise_.*", name)]
        more: Row = {"idempotent": True, "transient": (ConnectionError,)}
        self.tools = [
            Tool(name, "", ANY, closed(), "read", partial(self._use, name), **more) for name in known
        ]

    def __call__(self, asked: LLMInput) -> LLMOutput:
        self.asked += 1
        turns, index = self.row["script"], asked.step_index - 1
        self.ran_out = self.ran_out or (index >= len(turns) and not self.row["repeat_last"])
        turn = turns[min(index, len(turns) - 1)]
        if "raw" in turn:
            raise getattr(builtins, turn["raw"]["$raise"])
        usage = {"input_tokens": math.nan if turn["tokens"] == "NaN" else turn["tokens"], "output_tokens": 0}
        made = [ToolCall(each["tool"], _arguments(each["args"], index + 1)) for each in turn.get("calls", ())]
        return LLMOutput(tool_calls=made, final_answer=turn.get("final"), usage=usage)

    def _use(self, name: str, arguments: Row, io: Any) -> Row:
        if name == "fails" or name.startswith("raise_"):
            raise getattr(builtins, name.removeprefix("raise_")) if name != "fails" else ConnectionError
        if name == "mutates":
            arguments["l"].append(len(arguments["l"]))
        self.executed += 1
        return {}


@pytest.mark.parametrize("on_deny", ["terminate", "inform"])
def test_loops(on_deny: str) -> None:
    wrong, interrupted = [], []
    found = list(rows("6-faults/loop_cases"))
    for row in found:
        scripted, given = Scripted(row), dict(row["policy"])
        policy = shipped(
            ["absent", *(each.name for each in scripted.tools)],
            cycle_detection={"max_repeats": given.pop("max_repeats")},
            loop_budget={"max_tool_calls": 40, "max_result_bytes": 1_000_000, **given},
            on_deny=on_deny,
        )
        try:
            done = run(policy, scripted.tools, scripted)
            wrong += [(row["id"], what) for what in complaints(row, scripted, done)]
        except KeyboardInterrupt:  # a person's: it ends the process, and a log that is kept stays open
            interrupted.append(row["id"])
    assert wrong == [] and len(found) == 37
    assert interrupted == ["loop-llm-returns-kbd", "loop-tool-raises-KeyboardInterrupt"]


def complaints(row: Row, scripted: Scripted, done: RunResult) -> list[str]:
    """Return how a run is not what its row expects."""
    expect, ended = row["expect"], (done.ending, done.mode)
    steps = steps_of(done.events)
    calls = [each for step in steps for each in step.calls]
    attempts = sum(len(each.attempts) for each in calls)
    most_asked = expect.get("max_llm_calls", expect.get("llm_calls", 100))
    words = expect["terminal"].split("|") if "terminal" in expect else list(ENDS)
    is_malformed = row["id"].startswith("loop-llm-call-") and expect["max_executed"] == 0
    is_refused = done.mode == "llm_invalid_output" or any(not each.is_allowed for each in calls)
    odd = [each for each in calls if each.call.arguments != expect.get("ledger_args", each.call.arguments)]
    usages = [step.reply.usage for step in steps if step.reply]
    right = {
        f"ended as {ended}": any(ended in ENDS[word] for word in words),
        "ended as it must not": ended not in ENDS.get(expect.get("not_terminal", ""), ()),
        "too many executions": scripted.executed <= expect.get("max_executed", 100),
        "too many attempts": attempts <= expect.get("max_tool_attempts", 100),
        "model calls": expect.get("llm_calls", 0) <= scripted.asked <= most_asked,
        "goes on where it should end": not scripted.ran_out,
        "other arguments": not odd,
        "malformed and not refused": not is_malformed or (is_refused and not attempts),
        "a silent failure": row["class"] != "tool" or (attempts == 1 and bool(done.mode)),
        "tokens are not counted": "-tokens-" not in row["id"] or all(use.input_tokens > 0 for use in usages),
    }
    return [what for what, is_right in right.items() if not is_right]


# ---- text that forges output -----------------------------------------------------------------------------------------


def test_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing but words changes: not the lines, the decisions, the spans, the blocks of the report, the terminal."""
    monkeypatch.chdir(tmp_path)
    wrong, count = [], 0
    for row in rows("7-output/output_injection"):
        text, count = row["payload"], count + 1
        if text.encode("utf-8", "replace").decode() == text:
            what = forged(text, ("result", "key", "exception")[count % 3], tmp_path, capsys)
            wrong += [(row["id"], what)] if what else []
    assert wrong == [] and count == 435


def test_half_characters_end_in_a_record() -> None:
    """What is not text is refused or replaced wherever it comes from."""
    texts = [row["payload"] for row in rows("7-output/output_injection")]
    texts = [text for text in texts if text.encode("utf-8", "replace").decode() != text]
    for text in texts:
        with pytest.raises(InputError):
            run(shipped([]), [], [{"answer": "x"}], text)
        said = Tool("say", "", ANY, closed(said={}), "read", lambda arguments, io, text=text: {"said": text})
        calls: list[tuple[str, Any, str]] = [("say", {}, "tool_output_invalid"), (text, {}, "")]
        calls += [("say", arguments, "schema_mismatch") for arguments in ({"q": text}, {text: 1}, text)]
        replies = [(LLMOutput(tool_calls=[ToolCall(*each)]), mode) for *each, mode in calls]
        replies += [
            (LLMOutput(final_answer=text), ""),
            (LLMOutput(final_answer="x", raw=text), "llm_invalid_output"),
        ]
        for reply, mode in replies:
            done = run(shipped(["say"]), [said], lambda asked, reply=reply: reply)
            ending = "final_answer" if reply.final_answer else "policy_denial_terminal"
            assert (done.ending, done.mode) == ("failure_mode_terminal" if mode else ending, mode), reply
    assert len(texts) >= 3
