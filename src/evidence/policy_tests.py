"""Tests of policies: files in `policy/tests/` that say what a policy answers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from msgspec import Meta, Struct, structs

from ..fail.errors import InputError, did_you_mean
from ..runtime.formats.documents import TypedDocument, read_document
from ..runtime.formats.strict_json import MAX_SAFE_INTEGER
from ..runtime.log.values import Reach, Touch
from ..runtime.mcp.server import accepted_tools
from ..runtime.models.types import read_call
from ..runtime.policy.gate import Gate
from ..runtime.policy.leaf import Question, Step, Verdict
from ..runtime.policy.policy import Policy
from ..runtime.tools.loader import load_tools
from .task_file import Count

_COUNTED: Final = (
    "iterations", "tokens", "cost", "turn_iterations", "turn_tokens", "wall_clock_s", "tool_calls", "result_bytes",
    "attempts", "turn_tool_calls", "calls", "per_minute", "depth", "children", "at_once", "at_work",
)  # fmt: skip


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all parts of a file of tests."""


class TestedCall(Part, frozen=True):
    """A call that a model proposes; `arguments` may be JSON text."""

    tool: str
    arguments: dict[str, Any] | str = {}


class MetUrl(Reach, frozen=True, tag=False, forbid_unknown_fields=True):
    """A URL that a tool is about to reach."""


class MetPath(Touch, frozen=True, tag=False, forbid_unknown_fields=True):
    """A path that a tool is about to open; `found` is one of the words of a sandbox."""

    access: Literal["read", "write"] = "read"
    found: Literal["", "FIFO", "device", "hard link", "link", "mount point", "socket", "unbound mount"] = ""


class PolicyTest(Part, frozen=True):
    """What a policy answers to one question.

    Attributes:
        name: What is tested.
        expect: The answer.
        call: A proposed call.
        reach: A URL that a tool is about to reach.
        touch: A path that a tool is about to open.
        step: Another step of the run.
        tool: The tool that meets the URL or path.
        used: What the run has used up, by the name of the budget without `max_`.
        repeats: How often the same call gave the same result.
        rule: The rule that gives the answer.
        at: The entry that it rests on, as a JSON Pointer into the policy.
    """

    name: str
    expect: Literal["allow", "deny", "escalate"]
    call: TestedCall | None = None
    reach: MetUrl | None = None
    touch: MetPath | None = None
    step: Literal[True] | None = None
    tool: str = ""
    used: dict[str, Annotated[int, Meta(ge=0, le=MAX_SAFE_INTEGER)]] = {}
    repeats: Count = 0
    rule: str | None = None
    at: str | None = None


class PolicyTests(Part, frozen=True):
    """A file of tests.

    Attributes:
        policy: The policy, relative to the project.
        tests: The tests.
    """

    schema: Literal["policy-tests/v1"]
    policy: str
    tests: list[PolicyTest]


class FileOfTests(NamedTuple):
    """A file of tests with the gate that they ask.

    Attributes:
        document: What the file holds.
        gate: The gate of its policy over the tools of the project.
        questions: The question of each test.
    """

    document: TypedDocument[PolicyTests]
    gate: Gate
    questions: list[Question]


def files_of_tests(root: Path, files: Iterable[Path]) -> list[Path]:
    """Return the files given, or else all in `policy/tests` of a project. Raises InputError if there is none."""
    found = [*files] or sorted((root / "policy" / "tests").glob("*.yaml"))
    if not found:
        raise InputError("contains no tests", file="policy/tests", remedy="write one")
    return found


def read_tests(root: Path, file: Path) -> FileOfTests:
    """Read a file of tests.

    Raises:
        InputError: The file or the policy cannot be read, or a test asks nothing.
    """
    real = Path(os.path.realpath(file))  # of links that go round, too
    if not real.is_relative_to(root):
        raise InputError("lies outside of the project", file=str(file), remedy="name a file in policy/tests")
    document = read_document(file, real.relative_to(root).as_posix(), PolicyTests, InputError)
    if not (root / document.value.policy).is_file():
        raise document.error("/policy", "there is no such file", "name a policy as from the project")
    policy = Policy.load(root / document.value.policy, name=document.value.policy)
    names = [path.stem for path in sorted((root / "tools").glob("*.py"))]
    gate = Gate(policy, [*load_tools(names, root).tools, *accepted_tools(root).values()])
    for number, test in enumerate(document.value.tests):
        if sum(item is not None for item in (test.call, test.reach, test.touch, test.step)) != 1:
            remedy = "give call, reach, touch or step"
            raise document.error(f"/tests/{number}", "must ask one thing", remedy)
        if (test.reach or test.touch) and test.tool not in gate.tools:
            remedy = did_you_mean(test.tool, gate.tools, "name the tool that meets it")
            raise document.error(f"/tests/{number}", f"there is no tool {test.tool!r}", remedy)
        for name in test.used.keys() - {*_COUNTED}:
            remedy = did_you_mean(name, _COUNTED, f"known are {', '.join(_COUNTED)}")
            raise document.error(f"/tests/{number}/used", f"there is no counter {name!r}", remedy)
    return FileOfTests(document, gate, [_question(test, policy) for test in document.value.tests])


def run_tests(root: Path, file: Path) -> list[tuple[str, list[str]]]:
    """Run a file of tests, and return the name of each and how it failed, one line for each difference.

    Raises:
        InputError: As `read_tests`.
    """
    document, gate, questions = read_tests(root, file)
    results = []
    for number, (test, question) in enumerate(zip(document.value.tests, questions, strict=True)):
        verdict = gate.ask(question)
        failed = []
        for what, wanted, found in compared(test, verdict):
            words = f"{test.name}: {what} is {found!r}, expected {wanted!r}"
            failed.append(f"{document.error(f'/tests/{number}', words)} ({verdict.reason})")
        results.append((test.name, failed))
    return results


def _question(test: PolicyTest, policy: Policy) -> Question:
    for kind, met in ((Reach, test.reach), (Touch, test.touch)):
        if met is not None:
            return Question(kind(*structs.astuple(met)), test.tool, test.used)
    if test.call is None:
        return Question(Step(), "", test.used)
    call = policy.as_in_a_run(read_call("tc_1_0", test.call.tool, test.call.arguments))
    return Question(call, call.name, test.used, test.repeats)


def compared(test: PolicyTest, verdict: Verdict) -> list[tuple[str, str, str]]:
    """Return how an answer differs from what a test expects: what, the expected one, and the one that was given."""
    pairs = [
        ("the answer", test.expect, verdict.decision),
        ("the rule", test.rule, verdict.rule),
        ("the entry", test.at, verdict.place.partition("#")[2]),
    ]
    return [(what, wanted, found) for what, wanted, found in pairs if wanted is not None and wanted != found]
