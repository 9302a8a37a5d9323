"""Which changes of a policy its tests notice, and the tests to add for those that none does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct, to_builtins

from ..evidence.policy_tests import PolicyTest, compared
from ..fail.errors import InputError, PolicyError
from ..runtime.log.values import Call
from ..runtime.policy.gate import Gate
from ..runtime.policy.leaf import Question, Step, Verdict
from .compare import wider
from .edit import with_leaf


class Unnoticed(Struct, frozen=True):
    """A change of a policy that no test notices.

    Attributes:
        place: The JSON Pointer of what is changed.
        words: How.
        is_wider: Whether the changed policy allows more; else it allows less.
        test: A test that notices it, as data.
    """

    place: str
    words: str
    is_wider: bool
    test: dict[str, Any]


class Coverage(Struct, frozen=True):
    """What the tests of a policy notice.

    Attributes:
        changes: How many single changes of the policy there are that an example shows.
        unnoticed: Those that no test notices.
    """

    changes: int
    unnoticed: list[Unnoticed]


def coverage(gate: Gate, tests: Sequence[tuple[PolicyTest, Question]]) -> Coverage:
    """Return what the tests of a policy notice.

    Args:
        gate: The gate of the policy.
        tests: Its tests, each with the question that it asks.

    Raises:
        InputError: A test fails.
    """
    for failing in [it for it, question in tests if compared(it, gate.ask(question))]:
        remedy = "fix it first: `tachograph policy test` says how it fails"
        raise InputError(f"the test {failing.name!r} fails already", file=gate.policy.file, remedy=remedy)
    calls: dict[str, list[Call]] = {}
    for _, question in tests:
        if isinstance(question.about, Call):
            calls.setdefault(question.tool, []).append(question.about)
    noticed, unnoticed = 0, []
    for place, words, changed in _changed(gate):
        if any(compared(test, changed.ask(question)) for test, question in tests):
            noticed += 1
            continue
        for is_wider, old, new in ((True, gate, changed), (False, changed, gate)):
            if changes := wider(old, new, calls):
                example = next((it.example for it in changes if it.example is not None), None)
                if example is not None:  # what no example shows, no test can notice
                    verdict = example.was if is_wider else example.now
                    test = _test_of(f"{place.rpartition('/')[2]}: {words}", example.question, verdict)
                    unnoticed.append(Unnoticed(place, words, is_wider, test))
                break
    return Coverage(noticed + len(unnoticed), unnoticed)


def _changed(gate: Gate) -> Iterator[tuple[str, str, Gate]]:
    """Yield each single change of a policy: its place, in words, and the gate of the changed policy."""
    seen: set[str] = set()
    for rule in gate.rules:
        for name in gate.policy.names.allowed:
            for place, leaf in rule.leaves(gate.policy, name):
                if place in seen:
                    continue
                seen.add(place)
                for words, other in leaf.others():
                    # it may say what no policy may say, such as something of an unknown tool
                    with suppress(PolicyError):
                        yield place, words, Gate(with_leaf(gate.policy, place, other), gate.tools.values())


def _test_of(name: str, question: Question, verdict: Verdict) -> dict[str, Any]:
    """Return the test that a question is answered so, as a file of tests holds it."""
    test: dict[str, Any] = {"name": name}
    match question.about:
        case Call() as call:
            test["call"] = {"tool": call.name, "arguments": call.arguments}
        case Step():
            test["step"] = True
        case about:
            fact = to_builtins(about, str_keys=True)
            test |= {fact.pop("fact"): fact, "tool": question.tool}
    test |= {"used": dict(question.used)} if question.used else {}
    test |= {"repeats": question.repeats} if question.repeats else {}
    test |= {"expect": verdict.decision, "rule": verdict.rule}
    # what is allowed may rest on a budget that the policy leaves out
    return test if verdict.decision == "allow" else {**test, "at": verdict.place.partition("#")[2]}
