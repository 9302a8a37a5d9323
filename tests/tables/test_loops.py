"""The table of scripts: each is run, and ends where the small model of the rules says."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import pytest

from tachograph.runtime.core.effects import AskHuman
from tachograph.runtime.models.types import LLMOutput, ToolCall
from tests.support import answer, ask, perform, policy_data, tool
from tests.tables import loops
from tests.tables.loops import Case, Expected
from tests.tables.table import rows

# one call, however it is written
SPELLINGS = (
    '{"n":%d,"path":"box/x","url":"https://good.test/x"}',
    '{"path":"box/x","url":"HTTPS://good.test/x","n":%d.0}',
    ' { "path" : "box\\/x", "n" : %de0,"url":"https://GOOD.test:443/x" }',
    '{"\\u006e":%d.00E+0,"url":"https://good.test/x","path":"box/x"}',
)
REFUSED_URLS = ("https://evil.test/", "HTTPS://evil.test/", "https://EVIL.test", "https://evil.test:443/")
LETTERS = "abcdeRPFTL"
PERSONS = {"G": True, "H": False, "N": None}  # what a person says


def replies(case: Case) -> list[LLMOutput]:
    said: Counter[str] = Counter()
    usage = {"input_tokens": loops.TOKENS - 5, "output_tokens": 5}

    def call(letter: str) -> ToolCall:
        said[letter] += 1
        if letter in LETTERS:
            return ToolCall("probe", SPELLINGS[said[letter] % 4] % LETTERS.index(letter))
        if letter == "X":
            return ToolCall("shell", {})
        if letter in PERSONS:
            return ToolCall("echo", {"n": list(PERSONS).index(letter)})
        url = REFUSED_URLS[said[letter] % 4]
        return ToolCall("probe", {"url": url} if letter == "U" else {"n": "one"})

    return [*(ask(*map(call, step), usage=usage) for step in case.steps), answer(usage=usage)]


def run(case: Case) -> Expected:
    """What really came of a case, in the words of the model."""
    ran: list[str] = []
    failed: set[int] = set()

    def execute(letter: str) -> dict[str, Any]:
        if letter == "R" and len(ran) not in failed:
            failed.add(len(ran))
            raise ConnectionError
        ran.append(letter)
        turn = (ran.count(letter) - 1) % loops.TURNS.get(letter, 1)
        return {"said": f"{letter}{turn}"}

    def probe(args: dict[str, Any], io: Any) -> dict[str, Any]:
        said = execute(LETTERS[args["n"]])
        with contextlib.suppress(PermissionError):  # a tool that swallows its denial
            if LETTERS[args["n"]] == "L":
                io.get("https://evil.test/")
        return said

    def echo(args: dict[str, Any], _io: Any) -> dict[str, Any]:
        return execute(list(PERSONS)[args["n"]])

    def approve(asked: AskHuman) -> bool | None:
        assert asked.call.arguments is not None
        return list(PERSONS.values())[asked.call.arguments.value()["n"]]

    budget = {"max_iterations": case.iterations, "max_tokens": case.tokens}
    budget |= {"max_tool_calls": case.calls, "max_result_bytes": case.size}
    policy = policy_data(
        loop_budget=budget,
        cycle_detection={"max_repeats": case.repeats},
        approval={"required_for": ["echo"], "timeout_s": 1},
        on_deny="inform" if case.inform else "terminate",
    )
    done = perform(replies(case), [tool(run=probe), tool("echo", run=echo)], policy, approve=approve)
    assert done.model is not None
    statuses = tuple(result["status"] for result in done.results)
    return Expected(
        "".join(ran), statuses, done.result.ending, done.end["failure_mode"], len(done.model.heard)
    )


@pytest.mark.parametrize("name", loops.CLASSES)
def test_a_run_ends_where_the_rules_say(name: str) -> None:
    found, endings = [], Counter[str]()
    for case in rows(loops.CLASSES[name]()):
        wanted, got = loops.expected(case), run(case)
        endings[wanted.ending] += 1
        if got != wanted:
            found.append((case, wanted, got))
    assert found == []
    assert len(endings) > 1, endings
