"""Model replies of the outside corpus, run to their end.

A row is a script of replies and what the run may come to. Every row is run, under both settings of `on_deny`:
none hangs, none raises, and each leaves a record that holds.
"""

from __future__ import annotations

import builtins
import json
import math
import os
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tachograph.fail.catalog import ENDINGS
from tachograph.fail.errors import Cancelled
from tachograph.runtime.models.types import LLMInput, LLMOutput, ToolCall
from tachograph.runtime.tools.contract import Tool
from tests.support import Ran, perform, policy_data

# the corpus's words for an ending, and ours: terminal reason and failure mode
BROKEN = {
    ("failure_mode_terminal", mode)
    for mode in ("llm_failure", "llm_invalid_output", "catalogued_unhandled", "schema_mismatch", "timeout")
}
ENDS: dict[str, set[tuple[str, str | None]]] = {
    "final": {("final_answer", None)},
    "budget": {("loop_budget", None)},
    "cycle": {("policy_denial_terminal", "cycle_detection")},
    "policy": {("policy_denial_terminal", None)},
    "retry": {("failure_mode_terminal", "retry_exhaustion")},
    # an interrupt is no failure of the model: the run was told to stop, and says so
    "error": {*BROKEN, ("cancelled", "interrupted")},
}
KNOWN = {
    "max_executed", "max_tool_attempts", "llm_calls", "max_llm_calls", "terminal", "not_terminal",
    "ledger_args", "ledger_min_lines", "no_crash",
}  # fmt: skip

MOST_CALLS = 100  # no row may ask the model more often, whatever its policy
LIMITS = {"max_tool_calls": 40, "max_result_bytes": 1_000_000}
ANY_INPUT = {
    "type": "object",
    "additionalProperties": False,
    # names that a runtime could trip over if it passed arguments on as keywords
    "properties": {
        name: {"x-resource": "none"} for name in ("q", "n", "l", "self", "tool_name", "__class__")
    },
}
OUTPUT = {"type": "object", "additionalProperties": False, "properties": {"said": {"type": "string"}}}


def _rows() -> list[dict[str, Any]]:
    root = os.environ.get("TACHOGRAPH_CORPORA")
    if not root:
        pytest.skip("TACHOGRAPH_CORPORA is not set: the outside corpus of loops is not at hand")
    text = (Path(root) / "6-faults" / "loop_cases.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


# ---- a row as a model, tools and a policy --------------------------------------------------------------


def _arguments(given: Any, step: int) -> Any:
    """The row's arguments as a model would hand them over: a dict, JSON text, or what is neither."""
    if isinstance(given, str):
        return json.dumps(given)  # the text of a JSON string: a model's text is JSON text here
    if not isinstance(given, dict):
        return given
    if "$intkeys" in given:
        return {1: "x"}
    if "$bytes" in given:
        return {"q": b"x"}
    if "$selfref" in given:
        endless: dict[str, Any] = {}
        endless["q"] = endless
        return endless
    return {key: step if item == {"$step": 1} else item for key, item in given.items()}


def _reply(turn: dict[str, Any], step: int) -> LLMOutput:
    if "raw" in turn:
        raise getattr(builtins, turn["raw"]["$raise"])
    tokens = math.nan if turn["tokens"] == "NaN" else turn["tokens"]
    calls = [ToolCall(call["tool"], _arguments(call["args"], step)) for call in turn.get("calls", ())]
    usage: Any = {"input_tokens": tokens, "output_tokens": 0}
    return LLMOutput(tool_calls=calls, final_answer=turn.get("final"), usage=usage)


class _Model:
    """Says the row's turns; the last one for ever, where the row says so."""

    identity: ClassVar = {
        "execution_path": "stub",
        "provider": "stub",
        "name": "corpus",
        "script_digest": None,
    }

    def __init__(self, row: dict[str, Any]) -> None:
        self.turns, self.repeats = row["script"], row["repeat_last"]
        self.asked = 0
        self.ran_out = False

    def __call__(self, asked: LLMInput) -> LLMOutput:
        self.asked += 1
        if self.asked > MOST_CALLS:
            raise Cancelled  # only this ends a run that does not end itself
        index = asked.step_index - 1
        self.ran_out = self.ran_out or (index >= len(self.turns) and not self.repeats)
        return _reply(self.turns[min(index, len(self.turns) - 1)], asked.step_index)


def _is_ours(call: dict[str, Any]) -> bool:
    """Whether a call's tool is one that the rows know; the others are there to be refused."""
    name = call["tool"]
    return isinstance(name, str) and (name in ("t", "fails", "mutates") or name.startswith("raise_"))


class _Tools:
    """The tools that a row names, and how often they ran to their end."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.executed = 0
        named = {call["tool"] for turn in row["script"] for call in turn.get("calls", ()) if _is_ours(call)}
        self.tools = [
            Tool(name, "", ANY_INPUT, OUTPUT, "read", True, self._body(name), (ConnectionError,))
            for name in sorted(named)
        ]

    def _body(self, name: str) -> Any:
        def run(args: dict[str, Any], io: Any) -> dict[str, str]:
            if name == "fails":
                raise ConnectionError
            if name.startswith("raise_"):
                raise getattr(builtins, name.removeprefix("raise_"))
            if name == "mutates":
                args["l"].append(len(args["l"]))
                args["new"] = "x"
            self.executed += 1
            return {"said": "ok"}

        return run


def _run(row: dict[str, Any], on_deny: str) -> tuple[Ran, _Model, _Tools]:
    model, tools = _Model(row), _Tools(row)
    given = dict(row["policy"])
    policy = policy_data(
        tool_registry={"allowed": ["probe", *(tool.name for tool in tools.tools)], "denied": []},
        cycle_detection={"max_repeats": given.pop("max_repeats")},
        loop_budget={**given, **LIMITS},
        retry={"max_retries": 3, "backoff_base_ms": 100, "backoff_cap_ms": 2000},
        on_deny=on_deny,
    )
    return perform(model, tools.tools, policy), model, tools


# ---- what a row expects --------------------------------------------------------------------------------


def _complaints(row: dict[str, Any], ran: Ran, model: _Model, tools: _Tools) -> list[str]:
    expect = row["expect"]
    ended = (ran.result.ending, ran.result.mode)
    attempts = sum(len(result["attempts"]) for result in ran.results)
    out = [f"unknown expectation {key}" for key in expect.keys() - KNOWN]
    words = expect["terminal"].split("|") if "terminal" in expect else list(ENDS)
    if not any(ended in ENDS[word] for word in words):
        out.append(f"ended as {ended}")
    if "not_terminal" in expect and ended in ENDS[expect["not_terminal"]]:
        out.append(f"ended as {ended}")
    for name, used, limit in (
        ("executed", tools.executed, expect.get("max_executed")),
        ("attempts", attempts, expect.get("max_tool_attempts")),
        ("model calls", model.asked, expect.get("max_llm_calls", expect.get("llm_calls"))),
    ):
        if limit is not None and used > limit:
            out.append(f"{name}: {used} of {limit}")
    if model.asked < expect.get("llm_calls", 0):
        out.append(f"only {model.asked} model calls")
    if len(ran.lines) < max(expect.get("ledger_min_lines", 0), 3):
        out.append("lines are missing")
    if "ledger_args" in expect and any(
        call["arguments"] != expect["ledger_args"]
        for step in ran.steps
        for call in step["intended_tool_calls"]
    ):
        out.append("other arguments in the ledger")
    if model.asked > MOST_CALLS or model.ran_out:
        out.append("goes on where it should end")
    return out + _silent(row, ran) + _uncounted(row, ran)


def _silent(row: dict[str, Any], ran: Ran) -> list[str]:
    """What is malformed is refused in the record; a tool that raised is no success, its attempt is recorded."""
    if row["id"].startswith("loop-llm-call-") and row["expect"]["max_executed"] == 0:
        refused = ran.result.mode == "llm_invalid_output" or any(
            d["decision"] == "deny" for d in ran.decisions
        )
        return [] if refused and not ran.end["totals"]["attempts"] else ["not refused"]
    if row["class"] != "tool":
        return []
    attempted = [entry["outcome"] for result in ran.results for entry in result["attempts"]]
    return [] if not ran.result.ok and attempted in (["failed"], ["cancelled"]) else ["a silent failure"]


def _uncounted(row: dict[str, Any], ran: Ran) -> list[str]:
    """Usage that is no count of tokens is estimated, never taken as it is."""
    if "-tokens-" not in row["id"]:
        return []
    usage = [step["usage"] for step in ran.steps if step["llm_attempts"]]
    return [] if all(u["estimated"] and u["input_tokens"] > 0 for u in usage) else ["tokens are not counted"]


@pytest.mark.parametrize("on_deny", ["terminate", "inform"])
def test_shared_corpus(on_deny: str) -> None:
    table: dict[str, Counter[str]] = {}
    misses = []
    for row in _rows():
        count = table.setdefault(row["class"], Counter())
        count["rows"] += 1
        try:
            ran, model, tools = _run(row, on_deny)
        except BaseException as error:
            if not isinstance(error, Exception | KeyboardInterrupt | SystemExit | GeneratorExit):
                raise  # pytest's own
            count["raises"] += 1
            misses.append((row["id"], repr(error)))
            continue
        count[ran.result.ending] += 1
        misses += [(row["id"], text) for text in _complaints(row, ran, model, tools)]
    columns = ("rows", "raises", *ENDINGS)
    print(f"\non_deny: {on_deny}\n{'class':10}" + "".join(f"{column[:15]:>16}" for column in columns))
    for name, count in sorted(table.items()):
        print(f"{name:10}" + "".join(f"{count[column]:>16}" for column in columns))
    assert sum(count["rows"] for count in table.values()) > 30
    assert not misses
