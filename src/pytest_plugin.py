"""Plugin of pytest: tests of policies, and runs of agents in code that are made again and compared.

Each test in `policy/tests/*.yaml` is a test of pytest, and the fixture `recorded_run` checks a record. The plugin is
started in every project that is tested where this package is installed, so it imports the rest when it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .runtime.agent import Agent
    from .runtime.run_result import RunResult


@pytest.fixture
def recorded_run(pytestconfig: pytest.Config) -> Callable[[Agent, str | Path], RunResult]:
    """Return a function that makes a recorded run of an agent in code again.

    It takes the agent and the folder of the record, relative to the root of the tests. It returns what the run came to,
    or fails with the differences.
    """

    def checked(agent: Agent, out: str | Path) -> RunResult:
        from .cli.common import harmless
        from .evidence.agent_runs import check, replay
        from .fail.errors import InputError

        folder = pytestconfig.rootpath / out
        problem = ""
        try:
            differences = check(agent, folder)
        except InputError as error:
            problem = f"{error}; or record it: tachograph.record(agent, question, out={str(out)!r})"
        if problem:
            pytest.fail(harmless(problem), pytrace=False)
        if differences:
            lines = [f"{it.kind} {it.at}: {it.words}" for it in differences]
            head = f"{out}: the run is another one today; if that is meant, record it anew with replace=True"
            pytest.fail("\n".join(harmless(line) for line in (head, *lines)), pytrace=False)
        return replay(agent, folder)

    return checked


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> PolicyTestFile | None:
    """Collect the files of tests of policies."""
    if file_path.suffix != ".yaml" or file_path.parts[-3:-1] != ("policy", "tests"):
        return None
    return PolicyTestFile.from_parent(parent, path=file_path)


class PolicyTestFile(pytest.File):
    """A file of tests."""

    def collect(self) -> Iterator[PolicyTestItem]:
        """Yield its tests. Raises CollectError with one line if it cannot be read."""
        from .cli.common import harmless
        from .evidence.policy_tests import run_tests
        from .fail.errors import InputError

        try:
            results = run_tests(self.path.parents[2].resolve(), self.path)
        except InputError as error:
            raise self.CollectError(harmless(str(error))) from None
        for name, failed in results:
            item = PolicyTestItem.from_parent(self, name=harmless(name))
            item.failed = [harmless(line) for line in failed]
            yield item


class PolicyTestItem(pytest.Item):
    """A test, whose question was answered when it was collected."""

    failed: list[str]

    def runtest(self) -> None:
        """Fail with the lines that `tachograph policy test` prints."""
        if self.failed:
            pytest.fail("\n".join(self.failed), pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return what the head of a failure names."""
        return self.path, None, self.name
