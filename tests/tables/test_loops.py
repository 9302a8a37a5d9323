"""Scripts of calls, with a second and much smaller model of the rules that end a run.

A script is a tuple of steps, a step a word of letters, a letter one call:

- `a` to `e`: always the same result; `R` too, but its first attempt fails and the second brings it
- `P`: a new result each time (honest polling); `F`, `T`: two or three results in turn
- `X`, `U`, `S`: refused for the tool, for its URL, for its arguments; `L` for what it does once it runs
- `G`: a person allows it; `H`, `N`: a person refuses it, nobody answers
"""

from __future__ import annotations

import contextlib
import json
import random
from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import pytest

from tachograph.runtime.log.steps import CallView, steps_of
from tachograph.runtime.tools.contract import Tool
from tachograph.testing import run
from tests.tables.rows import Made, closed, roomy, rows

TOKENS = 15  # a reply
TURNS = {"P": 10_000, "F": 2, "T": 3}


class Case(NamedTuple):
    """A script, and the limits of its policy."""

    steps: tuple[str, ...]
    repeats: int = 3
    iterations: int = 1000
    calls: int = 1000
    size: int = 100_000
    tokens: int = 100_000
    inform: bool = False


class Expected(NamedTuple):
    """The calls executed, what became of each call proposed, how the run ended, replies asked for."""

    ran: str
    statuses: tuple[str, ...]
    ending: str
    mode: str
    asked: int


def result(letter: str, time: int) -> dict[str, Any]:
    """Return what the `time`-th execution (from 1) of a call brings."""
    return {"said": f"{letter}{(time - 1) % TURNS.get(letter, 1)}"}


def expected(case: Case) -> Expected:
    """Say the rules once more: budgets before a step; then, for each call, refusals, cycle, calls and bytes."""
    ran, statuses, refused, seen = "", list[str](), set[str](), Counter[tuple[str, str]]()
    asked = size = 0
    ending: tuple[str, str] | None = None
    for step in (*case.steps, None):
        if asked >= case.iterations or asked * TOKENS >= case.tokens:
            return Expected(ran, tuple(statuses), "loop_budget", "", asked)
        asked += 1
        if step is None:
            return Expected(ran, tuple(statuses), "final_answer", "", asked)
        for letter in step:
            if ending:
                statuses.append("not reached")
                continue
            before = max((count for (call, _), count in seen.items() if call == letter), default=0)
            status, again = "denied", letter in refused
            refusal = ("policy_denial_terminal", "") if again or letter in "XULSHN" else None
            if letter in "XUS":
                if letter == "S" and not again:
                    refusal = ("failure_mode_terminal", "schema_mismatch")
            elif before >= case.repeats:
                ending = ("policy_denial_terminal", "cycle_detection")
            elif len(ran) >= case.calls or size >= case.size:
                ending = ("policy_denial_terminal" if again else "loop_budget", "")
            elif letter in "HN":
                refusal = refusal if again else ("approval_refused", "")
            elif not again:
                ran += letter
                brought = json.dumps(result(letter, ran.count(letter)), separators=(",", ":"))
                if letter != "L" and size + len(brought) > case.size:
                    ending = ("loop_budget", "")
                elif letter != "L":
                    size += len(brought)
                    seen[letter, brought] += 1
                    status = "ok"
            if refusal and not ending:
                # told once, the model may go on; the same call once more ends the run
                ending = refusal if again or not case.inform else None
                refused.add(letter)
            statuses.append(status)
        if ending:
            return Expected(ran, tuple(statuses), *ending, asked)
    raise AssertionError("a script ends with an answer")


# ---- the scripts -----------------------------------------------------------------------------------------------------


def _cut(word: str, length: int) -> tuple[str, ...]:
    """Return a word as steps of so many calls."""
    return tuple(word[i : i + length] for i in range(0, len(word), length))


def _cycles() -> Iterator[Case]:
    """AAAA, ABAB, ABCABC ...: one call short of the limit, at it, and beyond."""
    for period, repeats, more, length in product(range(1, 6), range(1, 4), (-1, 0, 1, 2), (1, 3)):
        word = ("abcde"[:period] * (repeats + 2))[: period * repeats + more]
        yield Case(_cut(word, length), repeats=repeats)
    words = "aab abba aabb abac abcb abcdedcb".split()
    yield from (Case(_cut(word * 4, 5), repeats=repeats) for word, repeats in product(words, (2, 3)))


def _polling() -> Iterator[Case]:
    """Results that change: never, after two, after three calls, always; a call that recovers counts once."""
    turns = {"a": 1, "F": 2, "T": 3, "P": 5, "aP": 1, "R": 1, "Ra": 1, "aR": 1, "RP": 1, "RFa": 2}
    for word, repeats, more, length in product(turns, range(1, 4), (-1, 0, 1), (1, 4)):
        yield Case(_cut(word * (turns[word] * repeats + more), length), repeats=repeats)


def _budgets() -> Iterator[Case]:
    for iterations, calls in product((1, 2, 3, 4, 5), (0, 1, 2, 5, 6, 7)):
        yield Case(("P", "PP", "PPP"), iterations=iterations, calls=calls)
    for count, more, length in product(range(5), (-1, 0, 1), (1, 4)):
        yield Case(_cut("PPPP", length), size=max(count * len('{"said":"P0"}') + more, 0))
    for steps, more in product(range(1, 5), (-1, 0, 1)):
        yield Case(("P",) * 4, tokens=steps * TOKENS + more)
    # a cycle and a used-up budget at one call: the cycle speaks first
    for repeats, calls in product((1, 2, 3), repeat=2):
        yield Case(("a",) * 4, repeats=repeats, calls=calls)


def _refusals() -> Iterator[Case]:
    for word, inform in product(product("aXUSLHG", repeat=2), (False, True)):
        yield Case(word, inform=inform)
    draw = random.Random(23)
    for _ in range(80):
        word = "".join(draw.choices("aXUSLHNG", k=draw.randint(3, 6)))
        inform, calls = draw.random() < 0.8, draw.choice((1, 2, 1000))
        yield Case(_cut(word, draw.randint(1, 3)), inform=inform, calls=calls)


def _random() -> Iterator[Case]:
    draw = random.Random(17)
    weights = (9, 5, 3, 5, 4, 3, 3, 3, 1, 1, 1, 1, 1, 1)
    for _ in range(150):
        word = "".join(draw.choices("abcPFTRGXUSLHN", weights=weights, k=draw.randint(1, 14)))
        case = Case(_cut(word, draw.randint(1, 4)), repeats=draw.randint(1, 4), inform=draw.random() < 0.6)
        unit = {"iterations": 1, "calls": 1, "size": 13, "tokens": 9}
        limit = draw.choice((*unit, None))
        yield case if limit is None else case._replace(**{limit: draw.randint(1, 8) * unit[limit]})


CLASSES = [_cycles, _polling, _budgets, _refusals, _random]

# ---- the runs --------------------------------------------------------------------------------------------------------

# one call, however it is written
SPELLINGS = (
    '{"n":%d,"path":"box/x","url":"https://good.test/x"}',
    '{"path":"box/x","url":"HTTPS://good.test/x","n":%d.0}',
    ' { "path" : "box\\/x", "n" : %de0,"url":"https://GOOD.test:443/x" }',
    '{"\\u006e":%d.00E+0,"url":"https://good.test/x","path":"box/x"}',
)
EVIL = ("https://evil.test/", "HTTPS://evil.test/", "https://EVIL.test", "https://evil.test:443/")
LETTERS, PERSONS = "abcdeRPFTL", "GHN"
TEXT = {"type": "string"}
INPUT = closed(
    n={"type": "integer"}, url={**TEXT, "x-resource": "url"}, path={**TEXT, "x-resource": "path:read"}
)


def performed(case: Case, effect: str) -> Expected:
    """Return what really comes of a case, in the words of the model."""
    ran, failed, said = "", set[int](), Counter[str]()

    def execute(letter: str) -> dict[str, Any]:
        nonlocal ran
        if letter == "R" and len(ran) not in failed:
            failed.add(len(ran))
            raise ConnectionError
        ran += letter
        return result(letter, ran.count(letter))

    def probe(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
        brought = execute(LETTERS[arguments["n"]])
        with contextlib.suppress(PermissionError):  # a tool that swallows its denial
            if LETTERS[arguments["n"]] == "L":
                io.get("https://evil.test/")
        return brought

    def call(letter: str) -> dict[str, Any]:
        said[letter] += 1
        if letter in PERSONS:
            return {"tool": "asked", "arguments": {"n": PERSONS.index(letter)}}
        if letter in LETTERS:
            return {"tool": "probe", "arguments_text": SPELLINGS[said[letter] % 4] % LETTERS.index(letter)}
        refused = {"X": {}, "U": {"url": EVIL[said[letter] % 4]}, "S": {"n": "one"}}
        return {"tool": "shell" if letter == "X" else "probe", "arguments": refused[letter]}

    asked = Tool("asked", "", INPUT, closed(said=TEXT), "write", lambda args, io: execute(PERSONS[args["n"]]))
    more: dict[str, Any] = {"idempotent": True, "transient": (ConnectionError,)}
    tools = [Tool("probe", "", INPUT, closed(said=TEXT), effect, probe, **more), asked]
    policy = roomy(
        ["probe", "asked"],
        url_allowlist=["https://good.test/"],
        sandbox={"mounts": {"box": "read"}},
        loop_budget={
            "max_iterations": case.iterations, "max_tokens": case.tokens, "max_tool_calls": case.calls,
            "max_result_bytes": case.size,
        },
        cycle_detection={"max_repeats": case.repeats},
        retry={"max_retries": 2, "backoff_base_ms": 100, "backoff_cap_ms": 1000},
        approval={"required_for": ["asked"], "timeout_s": 1},
        on_deny="inform" if case.inform else "terminate",
    )  # fmt: skip
    turns: list[dict[str, Any]] = [
        *({"calls": [*map(call, step)]} for step in case.steps),
        {"answer": "done"},
    ]
    script = [{**turn, "usage": {"input_tokens": TOKENS - 5, "output_tokens": 5}} for turn in turns]
    words = {f"{i}.c{j}": letter for i, step in enumerate(case.steps, 1) for j, letter in enumerate(step)}
    approvals = {at: "allow" if letter == "G" else "deny" for at, letter in words.items() if letter in "GH"}
    done = run(policy, tools, script, approvals=approvals)  # type: ignore[arg-type]
    steps = steps_of(done.events)
    statuses = tuple(_status(call) for step in steps for call in step.calls)
    return Expected(ran, statuses, done.ending, done.mode, sum(step.reply is not None for step in steps))


def _status(call: CallView) -> str:
    if call.decided is None:
        return "not reached"
    return call.status if call.attempts else "denied"


@pytest.mark.parametrize("made", CLASSES)
def test_a_run_ends_where_the_rules_say(made: Made) -> None:
    cases = rows(made())
    # what only reads may go side by side, and then no rule may be passed by
    effects = ("network", "read") if made is _cycles else ("network",)
    found = [(case, expected(case), performed(case, effect)) for case, effect in product(cases, effects)]
    assert [row for row in found if row[1] != row[2]] == []
    assert len({expected(case).ending for case in cases}) > 1


def test_attempts_of_calls_side_by_side_are_counted() -> None:
    policy = roomy(["look"])
    policy["loop_budget"]["max_attempts"] = 2
    calls = [{"tool": "look", "arguments": {"n": number}} for number in range(4)]
    done = run(policy, [{"name": "look", "input_schema": INPUT}], [{"calls": calls}])
    assert [len(call.attempts) for call in steps_of(done.events)[0].calls] == [1, 1, 0, 0]
    assert done.ending == "loop_budget"
