"""Policy tests: YAML files that say what a policy answers to calls, facts, budgets, failures and texts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from ...evidence.queries.decide import tools_of
from ...fail.catalog import RULES
from ...fail.errors import InputError
from ...runtime.core.lines import Line
from ...runtime.core.local_time import minute_of_week, times_given
from ...runtime.formats.escape import escape_terminal, quote_literal
from ...runtime.formats.read_file import NotPlain, read_plain
from ...runtime.formats.shipped_files import relative_to_root
from ...runtime.formats.strict_yaml import Document, YamlError
from ...runtime.formats.strict_yaml import load as load_yaml
from ...runtime.policy.gate import Gate
from ...runtime.policy.policy import Policy
from ...runtime.schema.schema_errors import DocumentValidator, did_you_mean, first_problem
from ...runtime.tools.contract import Tool
from ...runtime.tools.loader import names_in
from .answers import ANSWERS, KINDS, USED, Answer, answer, kind_of

_SCHEMA = Path(__file__).with_name("policy_tests.v1.schema.json")
_MAX_BYTES: Final = 8 << 20
_EXPECTED: Final = ("expect", "rule", "at", "then", "timeout_s", "tools", "wait_ms")


@dataclass(frozen=True)
class Case:
    """One test: its name and line, the question, and what is expected of the answer."""

    name: str
    line: int
    question: Mapping[str, Any]
    expected: Mapping[str, Any]


@dataclass(frozen=True)
class Suite:
    """One file of tests. `stack` is the policy file and the overlays that it is about."""

    file: str
    stack: tuple[Path, ...]
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Result:
    """One test with the answer of a policy."""

    file: str
    case: Case
    answer: Answer
    ok: bool

    @property
    def place(self) -> str:
        """The test's file and line."""
        return f"{self.file}:{self.case.line}"

    @property
    def problem(self) -> str:
        """The expected and the actual answer in one line; empty if they agree."""
        if self.ok:
            return ""
        expected, actual = self.case.expected, self.answer.to_dict()
        keys = [key for key in _EXPECTED if key in expected and key not in ("expect", "rule", "at")]
        got = {key: actual.get(key) for key in ("expect", "rule", *keys)}
        return f"expected {_words(expected)}, got {_words(got)} ({escape_terminal(self.answer.at)})"

    def to_dict(self) -> Line:
        """Return the result as JSON data."""
        return {
            "name": self.case.name,
            "line": self.case.line,
            "ok": self.ok,
            "expected": dict(self.case.expected),
            "found": self.answer.to_dict(),
        }


def _words(answer: Mapping[str, Any]) -> str:
    expect = str(answer["expect"])
    words = [expect if expect.isidentifier() else escape_terminal(json.dumps(expect, ensure_ascii=False))]
    if answer.get("rule") is not None:
        words.append(f"by {escape_terminal(answer['rule'])}")
    for key in ("then", "timeout_s", "tools", "wait_ms"):
        if key in answer:
            value = answer[key]
            words.append(f"{key}={value if isinstance(value, str) else json.dumps(value)}")
    if "at" in answer:
        words.append(f"at {escape_terminal(str(answer['at']))}")
    return " ".join(words)


# ---- reading -------------------------------------------------------------------------------------------------


def load_suite(path: Path, root: Path, base: Path | None = None, overlays: Sequence[Path] = ()) -> Suite:
    """Read a file of policy tests. Raises InputError with file, line and column.

    `base` takes the place of the policy file that the tests name (else the project's), and `overlays` are
    merged over it after theirs.
    """
    name = relative_to_root(path, root)
    document = _document(path, name)
    _check(document, name)
    policy = document.data.get("policy", {})
    stack = [base or _inside(document, name, root, policy.get("file", "policy/v1.yaml"), "/policy/file")]
    for i, overlay in enumerate(policy.get("overlays", ())):
        stack.append(_inside(document, name, root, overlay, f"/policy/overlays/{i}"))
    cases = tuple(_case(test, document, i) for i, test in enumerate(document.data["tests"]))
    return Suite(name, (*stack, *overlays), cases)


def _document(path: Path, name: str) -> Document:
    try:
        return load_yaml(read_plain(path, _MAX_BYTES), name, max_bytes=_MAX_BYTES)
    except NotPlain:
        raise InputError("is not a regular file", file=str(path), remedy="name a YAML file") from None
    except OSError as error:
        gone = isinstance(error, FileNotFoundError)
        problem = "no such file of policy tests" if gone else f"unreadable ({type(error).__name__})"
        raise InputError(problem, file=str(path), remedy="name a file such as policy/tests/v1.yaml") from None
    except YamlError as error:
        raise InputError(error.message, file=name, line=error.line, column=error.column) from None


@lru_cache(maxsize=1)
def _validator() -> DocumentValidator:
    return DocumentValidator(json.loads(_SCHEMA.read_text(encoding="utf-8")))


def _check(document: Document, name: str) -> None:
    problem = first_problem(_validator(), document.data, "the file", document.place)
    if problem is not None:
        line, column = document.place(problem.pointer, problem.of_value)
        raise InputError(problem.message, file=name, line=line, column=column, remedy=problem.remedy)
    first: dict[str, int] = {}
    for i, test in enumerate(document.data["tests"]):
        wrong = _wrong(test)
        if wrong is None and test["name"] in first:
            line = document.at(f"/tests/{first[test['name']]}/name")[0]
            wrong = (
                "/name",
                f"{quote_literal(test['name'])} is the test at line {line} too",
                "rename one of them",
            )
        if wrong is not None:
            key, message, remedy = wrong
            line, column = document.place(f"/tests/{i}{key}", bool(key))
            raise InputError(message, file=name, line=line, column=column, remedy=remedy)
        first[test["name"]] = i


def _wrong(test: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return what is wrong with a test beyond its JSON Schema: a key, the problem, the remedy."""
    kinds = [kind for kind in KINDS if kind in test]
    if len(kinds) != 1:
        problem = f"asks {' and '.join(kinds)}" if kinds else "asks nothing"
        return "", f"the test {quote_literal(test['name'])} {problem}", f"give one of {', '.join(KINDS)}"
    kind = kinds[0]
    asked = (*(["used"] if kind in USED else []), *(["principal"] if kind == "call" else []))
    for key in (*_EXPECTED[1:], "used", "principal"):
        if key in test and key not in (*KINDS[kind], *asked):
            has = ", ".join([*KINDS[kind], *asked])
            return f"/{key}", f"{key} does not apply to a test of {kind}", f"it has {has}"
    if "time" in test:
        if kind != "call":
            return "/time", f"{kind} does not depend on the time", "only a call does"
        if not _is_time(test["time"]):
            remedy = "write 2026-11-23T10:00, 2026-11-23T10:00+01:00, or local times by zone"
            return "/time", "is no time", remedy
    for key in test.get("used", ()):
        if key not in USED[kind]:
            return f"/used/{key}", f"{kind} does not depend on {key}", f"give {', '.join(USED[kind])}"
    if kind in ANSWERS and test["expect"] not in ANSWERS[kind]:
        choices = ", ".join(ANSWERS[kind])
        near = did_you_mean(test["expect"], ANSWERS[kind])
        return "/expect", f"{kind} is answered with one of {choices}", near or "choose one of them"
    if "rule" in test and test["rule"] not in RULES:
        near = did_you_mean(test["rule"], RULES)
        return (
            "/rule",
            f"there is no rule {quote_literal(test['rule'])}",
            near or f"one of {', '.join(RULES)}",
        )
    return _wrong_fact(test)


def _is_time(given: str | Mapping[str, str]) -> bool:
    try:
        if isinstance(given, str):
            times_given(given, ())
        else:
            for time in given.values():
                minute_of_week(time)
    except ValueError:
        return False
    return True


def _wrong_fact(test: Mapping[str, Any]) -> tuple[str, str, str] | None:
    if test.get("step") is False:
        return "/step", "step can only be true", "write true, or ask something else"
    if "late" not in test:
        return None
    keys = set(test["late"]) - {"tool"}
    if "method" in keys and "tool" in test["late"]:
        keys -= {"headers", "body"}
    if {"target"} <= keys <= {"target", "hop", "address", "method", "header"} and not {
        "hop",
        "address",
    } <= keys:
        return None
    if {"path", "access"} <= keys <= {"path", "access", "found"}:
        return None
    remedy = (
        "give target with hop or address, and perhaps method, or path with access, and perhaps found; "
        "either may name its tool, and a method of a tool headers and body"
    )
    return "/late", "this is not a fact that a running tool can meet", remedy


def _inside(document: Document, name: str, root: Path, place: str, pointer: str) -> Path:
    path = root / place
    problem = None
    try:
        if not path.resolve().is_relative_to(root.resolve()):
            problem = "leads out of the project", "use a path below the project's root"
        elif not path.is_file():
            problem = f"there is no policy file {quote_literal(place)}", "name a file under policy/"
    except (OSError, RuntimeError, ValueError):
        problem = "is not a usable path", "use a path below the project's root"
    if problem is not None:
        line, column = document.place(pointer, True)
        raise InputError(problem[0], file=name, line=line, column=column, remedy=problem[1])
    return path


def _case(test: Mapping[str, Any], document: Document, index: int) -> Case:
    question = {key: test[key] for key in (kind_of(test), "used", "principal", "time") if key in test}
    expected = {key: test[key] for key in _EXPECTED if key in test}
    return Case(test["name"], document.at(f"/tests/{index}")[0], question, expected)


# ---- holding -------------------------------------------------------------------------------------------------


def results_of(suite: Suite, gate: Gate) -> Iterable[Result]:
    """Yield the result of each test of a suite against the policy of a gate, in order."""
    for case in suite.cases:
        actual = answer(case.question, gate)
        yield Result(suite.file, case, actual, not actual.differs(case.expected))


def project_tools(root: Path, names: Iterable[str]) -> dict[str, Tool]:
    """Return the tools of some names, and all that the project has."""
    return tools_of(sorted({*names, *names_in(root / "tools")}), root)


def run_suite(suite: Suite, root: Path) -> tuple[Policy, list[Result]]:
    """Run a suite against its policy. Raises InputError if the policy cannot be loaded."""
    policy = Policy.load(suite.stack[0], suite.stack[1:], root=root)
    return policy, list(results_of(suite, Gate(policy, tools_of(policy.allowed, root))))
