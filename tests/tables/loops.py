"""Scripts of calls, with a second and much smaller model of the rules that end a run.

A script is a tuple of steps, a step a word of letters, a letter one call:

- `a` to `e`: always the same result; `R` too, but its first attempt fails and the second brings it
- `P`: a new result each time (honest polling); `F`, `T`: two or three results in turn
- `X`, `U`, `S`: refused for the tool, for its URL, for its arguments; `L` for what it does once it runs
- `G`: a person allows it; `H`, `N`: a person refuses it, nobody answers
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

TOKENS = 15  # a reply
TURNS = {"P": 10_000, "F": 2, "T": 3}
REFUSED_AT_ONCE = "XUS"
REFUSED_BY_A_PERSON = "HN"


@dataclass(frozen=True, slots=True)
class Case:
    steps: tuple[str, ...]
    repeats: int = 3
    iterations: int = 1000
    calls: int = 1000
    size: int = 100_000
    tokens: int = 100_000
    inform: bool = False


@dataclass(frozen=True, slots=True)
class Expected:
    """The calls executed, what became of each call proposed, how the run ended, replies asked for."""

    ran: str
    statuses: tuple[str, ...]
    ending: str
    mode: str | None
    asked: int


def result(letter: str, time: int) -> str:
    """The canonical text that the `time`-th execution (from 1) of a call brings."""
    return json.dumps({"said": f"{letter}{(time - 1) % TURNS.get(letter, 1)}"}, separators=(",", ":"))


def expected(case: Case) -> Expected:
    """The rules once more: budgets before a step; then, for each call, refusals, cycle, calls and bytes."""
    ran, statuses, refused, seen = "", [], set(), Counter[tuple[str, str]]()
    asked = size = 0
    ending: tuple[str, str | None] | None = None
    refusal: tuple[str, str | None] | None
    for step in (*case.steps, None):
        if asked >= case.iterations or asked * TOKENS >= case.tokens:
            return Expected(ran, tuple(statuses), "loop_budget", None, asked)
        asked += 1
        if step is None:
            return Expected(ran, tuple(statuses), "final_answer", None, asked)
        for letter in step:
            if ending:
                statuses.append("not_reached")
                continue
            before = max((count for (call, _), count in seen.items() if call == letter), default=0)
            status = "denied"
            refusal = ("policy_denial_terminal", None)
            if letter in REFUSED_AT_ONCE:
                if letter == "S" and letter not in refused:
                    refusal = ("failure_mode_terminal", "schema_mismatch")
            elif before >= case.repeats:
                ending = ("policy_denial_terminal", "cycle_detection")
            elif len(ran) >= case.calls or size >= case.size:
                ending = ("loop_budget", None)
            elif letter in REFUSED_BY_A_PERSON:
                if letter not in refused:
                    refusal = ("approval_refused", None)
            elif letter not in refused:
                ran += letter
                brought = result(letter, ran.count(letter))
                if letter != "L":
                    refusal = None
                    if size + len(brought) > case.size:
                        ending = ("loop_budget", None)
                    else:
                        size += len(brought)
                        seen[letter, brought] += 1
                        status = "ok"
            if refusal and not ending:
                # told once, the model may go on; the same call once more ends the run
                ending = refusal if letter in refused or not case.inform else None
                refused.add(letter)
            statuses.append(status)
        if ending:
            return Expected(ran, tuple(statuses), *ending, asked)
    raise AssertionError("a script ends with an answer")


def _cut(word: str, length: int) -> tuple[str, ...]:
    """A word as steps of so many calls."""
    return tuple(word[i : i + length] for i in range(0, len(word), length))


def _cycles() -> Iterator[Case]:
    """AAAA, ABAB, ABCABC ...: one call short of the limit, at it, and one beyond."""
    for period, repeats, more, length in itertools.product(range(1, 6), range(1, 4), (-1, 0, 1, 2), (1, 3)):
        word = ("abcde"[:period] * (repeats + 2))[: period * repeats + more]
        yield Case(_cut(word, length), repeats=repeats)
    for word in ("aab", "abba", "aabb", "abac", "abcb", "abcdedcb"):
        yield from (Case(_cut(word * 4, length), repeats=repeats) for length in (1, 5) for repeats in (2, 3))


def _polling() -> Iterator[Case]:
    """Results that change: never, after two, after three calls, always."""
    for (letter, turns), repeats, length in itertools.product(
        (("a", 1), ("F", 2), ("T", 3), ("P", 5)), range(1, 4), (1, 4)
    ):
        for more in (-1, 0, 1):
            yield Case(_cut(letter * (turns * repeats + more), length), repeats=repeats)
        yield Case(_cut((letter + "P") * (turns * repeats + 1), length), repeats=repeats)


def _budgets() -> Iterator[Case]:
    one = len(result("P", 1))
    for iterations, calls in itertools.product((1, 2, 3, 4, 5), (0, 1, 2, 5, 6, 7)):
        yield Case(("P", "PP", "PPP"), iterations=iterations, calls=calls)
    for count, more, length in itertools.product(range(5), (-1, 0, 1), (1, 4)):
        yield Case(_cut("PPPP", length), size=max(count * one + more, 0))
    for steps, more in itertools.product(range(1, 5), (-1, 0, 1)):
        yield Case(("P",) * 4, tokens=steps * TOKENS + more)
    # a cycle and a used-up budget at one call: the cycle speaks first
    for calls, repeats in itertools.product((1, 2, 3), (1, 2, 3)):
        yield Case(("a",) * 4, calls=calls, repeats=repeats)


def _refusals() -> Iterator[Case]:
    for word, inform in itertools.product(itertools.product("aXUSLHG", repeat=2), (False, True)):
        yield Case(word, inform=inform)
    draw = random.Random(23)
    for _ in range(80):
        word = "".join(draw.choices("aXUSLHNG", k=draw.randint(3, 6)))
        yield Case(
            _cut(word, draw.randint(1, 3)), inform=draw.random() < 0.8, calls=draw.choice((1, 2, 1000))
        )


def _retries() -> Iterator[Case]:
    """A call that recovers counts once, whatever number of attempts it took."""
    for word, repeats, more, length in itertools.product(
        ("R", "Ra", "aR", "RP", "RFa"), (1, 2, 3), (-1, 0, 1), (1, 4)
    ):
        yield Case(_cut((word * (repeats + 1))[: len(word) * repeats + more], length), repeats=repeats)
    yield from (Case(_cut("RRRR", 2), calls=calls, repeats=9) for calls in range(5))


def _random() -> Iterator[Case]:
    draw = random.Random(17)
    for _ in range(150):
        word = "".join(
            draw.choices(
                "abcPFTRGXUSLHN", weights=(9, 5, 3, 5, 4, 3, 3, 3, 1, 1, 1, 1, 1, 1), k=draw.randint(1, 14)
            )
        )
        case = Case(_cut(word, draw.randint(1, 4)), repeats=draw.randint(1, 4), inform=draw.random() < 0.6)
        limit = draw.choice(("iterations", "calls", "size", "tokens", None))
        if limit is not None:
            least = 0 if limit in ("calls", "size") else 1
            case = replace(
                case, **{limit: max(least, draw.randint(0, 8) * {"size": 13, "tokens": 9}.get(limit, 1))}
            )
        yield case


CLASSES: dict[str, Callable[[], Iterator[Case]]] = {
    "cycles": _cycles, "polling": _polling, "budgets": _budgets, "refusals": _refusals, "retries": _retries,
    "random": _random,
}  # fmt: skip
