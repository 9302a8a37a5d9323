"""Plugin of pytest: each test in `policy/tests/*.yaml` is a test of pytest.

It is started in every project that is tested where this package is installed, so it imports the rest when it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


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
