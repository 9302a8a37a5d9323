"""Mutation coverage of a policy: change it bit by bit and see whether tests and recorded runs notice.

A change is of one source file. A test or a run notices it if, under its own policy file and overlays with that
one file changed, an answer differs or the run leaves its record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from ...evidence.checking.workers import each
from ...evidence.files.manifest import STATE
from ...evidence.queries.counterfactual import under
from ...evidence.recording.index import UNFINISHED
from ...evidence.recording.recorded import open_record, relative_name
from ...fail.errors import InputError, PolicyError
from ...runtime.core.lines import Line
from ...runtime.formats.canonical_json import digest
from ...runtime.formats.shipped_files import relative_to_root
from ...runtime.policy.built_in import built_in_of
from ...runtime.policy.gate import Gate
from ...runtime.policy.policy import Policy
from ...runtime.tools.contract import Tool
from ..compare.policy_compare import compare_policies
from .answers import Question, answer
from .merge import Part, Stack, equivalent, made_up_tools, policy_of, read_part
from .mutations import Change, changes
from .observed import Observed
from .policy_tests import Suite, load_suite, project_tools, results_of
from .probe_questions import Probes, of_witness

Tell = Callable[[int, int], object]

NOTICED: Final = "noticed"
UNGUARDED: Final = "unguarded"
EQUIVALENT: Final = "equivalent"  # it alters nothing
INVALID: Final = "invalid"  # it is not a policy


@dataclass(frozen=True)
class Verdict:
    """The outcome of one change: `by` is the test or run that noticed it, `suggestion` a test that would."""

    file: str
    line: int
    description: str
    outcome: str
    by: str | None = None
    policy: Mapping[str, Any] | None = None
    suggestion: Mapping[str, Any] | None = None

    def to_dict(self) -> Line:
        """Return the verdict as JSON data."""
        data = {"file": self.file, "line": self.line, "what": self.description, "outcome": self.outcome}
        if self.outcome == UNGUARDED:
            return {**data, "policy": self.policy, "suggestion": self.suggestion}
        return data if self.by is None else {**data, "by": self.by}


@dataclass(frozen=True)
class Coverage:
    """Every change with its verdict. `aside` are runs that notice nothing, each with the reason."""

    verdicts: tuple[Verdict, ...]
    aside: tuple[tuple[str, str], ...]
    tests: int
    runs: int

    def of(self, outcome: str) -> list[Verdict]:
        """Return the verdicts with an outcome."""
        return [verdict for verdict in self.verdicts if verdict.outcome == outcome]

    @property
    def noticed(self) -> int:
        """Number of changes that something noticed."""
        return len(self.of(NOTICED))

    @property
    def counted(self) -> int:
        """Number of changes that something should notice."""
        return self.noticed + len(self.of(UNGUARDED))

    @property
    def percent(self) -> float:
        """Share of the counted changes that were noticed, in percent."""
        return 100 * self.noticed / self.counted if self.counted else 100.0

    def to_dict(self) -> Line:
        """Return the coverage as JSON data."""
        return {
            "counted": self.counted,
            "noticed": self.noticed,
            "percent": round(self.percent, 2) if self.noticed == self.counted else int(self.percent),
            "equivalent": len(self.of(EQUIVALENT)),
            "invalid": len(self.of(INVALID)),
            "tests": self.tests,
            "runs": self.runs,
            "set_aside": [{"run": run, "why": why} for run, why in self.aside],
            "changes": [verdict.to_dict() for verdict in self.verdicts],
        }


@dataclass(frozen=True)
class _Recorded:
    name: str
    folder: Path
    stack: Stack
    lines: Sequence[Line] = field(repr=False)


def cover(
    root: Path,
    tests: Sequence[Path],
    runs: Path,
    *,
    base: Path | None = None,
    overlays: Sequence[Path] = (),
    jobs: int | None = None,
    tell: Tell | None = None,
) -> Coverage:
    """Change a policy bit by bit and see what notices.

    The policy is `base` (else the project's) with `overlays`; without overlays it is `base` alone, and each
    overlay beside it over it. `tests` and the runs below `runs` stand on `base` in place of their own file
    where it is given. Raises InputError where a test fails before anything is changed.
    """
    inputs = _Inputs(root, tests, runs, base, overlays)
    inputs.check_tests()
    inputs.set_aside(jobs)
    work = [(source, change) for source in inputs.sources.values() for change in inputs.changes_of(source)]
    verdicts = each(
        lambda item: inputs.judge(*item),
        work,
        tell=None if tell is None else lambda done, _: tell(done, len(work)),
        jobs=jobs,
        name=lambda item: item[0].name,
    )
    test_count = sum(len(suite.cases) for suite in inputs.suites)
    return Coverage(tuple(verdicts), tuple(inputs.aside), test_count, len(inputs.runs))


class _Inputs:
    """The policies, tests, runs and tools of a coverage, each read once."""

    def __init__(
        self, root: Path, tests: Sequence[Path], runs: Path, base: Path | None, overlays: Sequence[Path]
    ) -> None:
        self.root = root
        first = base or root / "policy" / "v1.yaml"
        Policy.load(first, overlays, root=root)  # what cannot be had is named as it was given
        beside = sorted((first.parent / "overlays").glob("*.yaml"))
        more = [tuple(overlays)] if overlays else [(), *((overlay,) for overlay in beside)]
        self.subjects = [_stack((first, *some)) for some in more]
        self.suites = [load_suite(path, root, base, overlays) for path in tests]
        if base is None and not overlays:  # the policies that tests name beside the project's
            stacks = (_stack(suite.stack) for suite in self.suites)
            others = [stack for stack in stacks if stack[0] != self.subjects[0][0]]
            self.subjects = list(dict.fromkeys([*self.subjects, *others]))
        self.policies = {stack: Policy.load(stack[0], stack[1:], root=root) for stack in self.subjects}
        for suite in self.suites:
            self._load(_stack(suite.stack))
        self.runs: list[_Recorded] = []
        self.aside: list[tuple[str, str]] = []
        for folder in _folders(runs):
            try:
                run = _recorded(folder, root, base, overlays)
                self._load(run.stack)
                self.runs.append(run)
            except InputError as error:
                self.aside.append((relative_name(folder, root), str(error)))
        files = dict.fromkeys(path for stack in self.policies for path in stack)
        self.read = {path: read_part(path, relative_to_root(path, root)) for path in files}
        changed = dict.fromkeys(path for stack in self.subjects for path in stack)
        self.sources = {path: self.read[path] for path in changed}

    def _load(self, stack: Stack) -> None:
        if stack not in self.policies:
            self.policies[stack] = Policy.load(stack[0], stack[1:], root=self.root)

    @cached_property
    def tools(self) -> dict[str, Tool]:
        return project_tools(
            self.root, {name for policy in self.policies.values() for name in policy.allowed}
        )

    def check_tests(self) -> None:
        """Refuse tests that fail: such a one would notice everything."""
        for suite in self.suites:
            gate = Gate(self.policies[_stack(suite.stack)], self.tools)
            for result in results_of(suite, gate):
                if not result.ok:
                    raise InputError(
                        "this test fails before anything is changed",
                        file=suite.file,
                        line=result.case.line,
                        remedy="fix it first: `tachograph policy test` says what is wrong",
                    )

    def set_aside(self, jobs: int | None) -> None:
        """Take away the runs that leave their record before anything is changed."""
        whys = each(lambda run: _leaves(run, self.policies[run.stack], self.root), self.runs, jobs=jobs)
        judged = list(zip(self.runs, whys, strict=True))
        self.aside += [(run.name, why) for run, why in judged if why is not None]
        self.runs = [run for run, why in judged if why is None]

    def home(self, source: Part) -> Stack:
        """Return the policy that a file is shown in: the first that it is part of."""
        return next(stack for stack in self.subjects if source.path in stack)

    def changes_of(self, source: Part) -> Iterator[Change]:
        """Yield every change of a file."""
        home = self.home(source)
        policy, tools = self.policies[home], self.tools
        if home[0] != self.subjects[0][0]:  # there the tools of other policies are names like any other
            tools = {name: tool for name, tool in tools.items() if name in policy.allowed}
        observed = Observed(policy, tools)
        for suite in self.suites:
            observed.add_tests(suite.cases)
        for run in self.runs:
            observed.add_run(run.lines)
        is_policy = source.path == home[0]
        yield from changes(source.document.data, is_policy, Probes(policy, tools), observed.unlisted())

    def judge(self, source: Part, change: Change) -> Verdict:
        """Return what notices a change."""
        line = source.document.at(change.pointer)[0]

        def verdict(outcome: str, **more: Any) -> Verdict:
            return Verdict(source.name, line, change.description, outcome, **more)

        home = self.home(source)
        try:
            changed = self._changed(home, source, change)
        except PolicyError:
            return verdict(INVALID)
        by = self._notices(source, change)
        if by is not None:
            return verdict(NOTICED, by=by)
        if all(
            self._alters_nothing(stack, source, change) for stack in self.subjects if source.path in stack
        ):
            return verdict(EQUIVALENT)
        names = [self.read[path].name for path in home]
        policy = {"file": names[0], **({"overlays": names[1:]} if names[1:] else {})}
        return verdict(UNGUARDED, policy=policy, suggestion=self._suggestion(home, changed, change))

    def _changed(self, stack: Stack, source: Part, change: Change) -> Policy:
        return policy_of([change.data if path == source.path else self.read[path].data for path in stack])

    def _gate(self, policy: Policy, change: Change) -> Gate:
        return Gate(policy, {**made_up_tools(change.made_up), **self.tools})

    def _stacks(self, source: Part, change: Change) -> Iterator[tuple[Stack, Policy]]:
        """Yield the changed policies that a file is part of, without those that no longer load."""
        for stack in self.policies:
            if source.path in stack:
                try:
                    yield stack, self._changed(stack, source, change)
                except PolicyError:
                    continue

    def _notices(self, source: Part, change: Change) -> str | None:
        """Return the first test that notices a change, else the first run."""
        policies = dict(self._stacks(source, change))
        for stack, policy in policies.items():
            gate = self._gate(policy, change)
            for suite in self.suites:
                if _stack(suite.stack) == stack and (by := _fails(suite, gate)) is not None:
                    return by
        if change.made_up:
            return None  # no run can be made with a tool that is not there
        for run in self.runs:
            if run.stack in policies and _leaves(run, policies[run.stack], self.root) is not None:
                return run.name
        return None

    def _alters_nothing(self, stack: Stack, source: Part, change: Change) -> bool:
        try:
            changed = self._changed(stack, source, change)
        except PolicyError:
            return True
        before = self.policies[stack]
        tools = self._gate(changed, change).tools
        return equivalent(before, changed) or compare_policies(before, changed, tools).equal

    def _suggestion(self, stack: Stack, changed: Policy, change: Change) -> Mapping[str, Any] | None:
        """Return a test that passes now and fails once the change is made, None if none is known."""
        before, after = Gate(self.policies[stack], self.tools), self._gate(changed, change)
        for question in self._questions(stack, changed, change):
            answer_before, answer_after = answer(question, before), answer(question, after)
            expected = {"expect": answer_before.expect}
            if "rule" in answer_before.more:
                expected["rule"] = answer_before.more["rule"]
            if not answer_after.differs(expected):
                expected.update(answer_before.more)
            if answer_after.differs(expected):
                return {"name": _named(change), **question, **expected}
        return None

    def _questions(self, stack: Stack, changed: Policy, change: Change) -> Iterator[Question]:
        """Yield questions that may show a change: the plain ones first, then those of an exact comparison."""
        yield from change.probes
        tools = self._gate(changed, change).tools
        for difference in compare_policies(self.policies[stack], changed, tools).changes:
            yield from of_witness(difference.witness)


def _named(change: Change) -> str:
    """Return a name for a test, different for every change."""
    text = f"guards: {change.description}"
    return text if len(text) <= 200 else f"{text[:180]} {digest(text)[:12]}"


def _stack(files: Sequence[Path]) -> Stack:
    return tuple(path.resolve() for path in files)


def _fails(suite: Suite, gate: Gate) -> str | None:
    """Return the first test of a suite that notices; line numbers are not part of what a policy decides."""
    for case in suite.cases:
        expected = {key: value for key, value in case.expected.items() if key != "at"}
        if answer(case.question, gate).differs(expected):
            return f"{suite.file}:{case.line}"
    return None


def _folders(runs: Path) -> list[Path]:
    """Return the folders of runs below a folder, without unfinished recordings."""
    return sorted(state.parent for state in runs.rglob(STATE) if state.parent.suffix not in UNFINISHED)


def _recorded(folder: Path, root: Path, base: Path | None, overlays: Sequence[Path]) -> _Recorded:
    """Return a run with the files of its policy. Raises InputError if the policy is not in files."""
    recorded = open_record(folder, root)
    if built_in_of(recorded.run) is not None:
        raise InputError("its policy is the built-in one")
    files = [recorded.base / item["path"] for item in recorded.run["policy"]["files"]]
    if not files:
        raise InputError("its policy was made in code")
    stack = _stack((base or files[0], *files[1:], *overlays))
    return _Recorded(recorded.name, folder, stack, recorded.lines)


def _leaves(run: _Recorded, policy: Policy, root: Path) -> str | None:
    """Return why a run differs under another policy, None if it stays the same."""
    try:
        result = under(run.folder, policy, root=root)
    except InputError as error:
        return str(error)  # it cannot even be begun
    if result.flip is not None:
        return f"a decision of step {result.flip.step} goes another way"
    return result.why or result.undecided


def as_yaml(test: Mapping[str, Any]) -> list[str]:
    """Return a test as lines of a file of policy tests."""
    lines = [f"{key}: {_as_json(value)}" for key, value in test.items()]
    return [f"{'  ' if i else '- '}{line}" for i, line in enumerate(lines)]


def _as_json(value: object) -> str:
    """Return JSON that YAML reads alike: printable text is not escaped, so that no half of a surrogate pair is."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)
