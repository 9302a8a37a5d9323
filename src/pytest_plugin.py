"""The pytest plugin: the fixture `tachograph` makes recorded runs again in tests of agents.

pytest finds it by the entry point `pytest11`. Nothing else of the package is imported before the fixture is used.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .evidence.checking.differences.compare import Findings
    from .evidence.tasks.task import Task
    from .runtime.agent import Agent
    from .runtime.setup.run_config import RunResult

_UPDATE = "--tachograph-update"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that records runs instead of failing."""
    parser.getgroup("tachograph").addoption(
        _UPDATE,
        action="store_true",
        help="record runs that are missing or drifted, instead of failing; a live model is asked again",
    )


@pytest.fixture
def tachograph(request: pytest.FixtureRequest) -> RecordedRuns:
    """Make recorded runs again: `tachograph.check(run)`, `tachograph.record(agent, question, task=...)`."""
    from .runtime.formats.shipped_files import project_root

    root = project_root(request.path.resolve().parent) or project_root(request.config.rootpath)
    if root is None:
        _fail("no folder at or above the test holds policy/; a project has that folder")
    return RecordedRuns(root, update=bool(request.config.getoption(_UPDATE)))


class RecordedRuns:
    """The recorded runs of a project, as tests see them."""

    def __init__(self, root: Path, *, update: bool) -> None:
        self._root = root
        self._update = update

    def check(self, run: str | os.PathLike[str]) -> RunResult:
        """Make a recorded run again, and fail if it drifts, with what drifted and the command that accepts it.

        Args:
            run: The folder of the run relative to the project; `runs/` may be left out.

        Returns:
            How the recorded run ended, with its steps.
        """
        from .evidence.tasks.place import place_of
        from .fail.errors import ExpectationError, InputError, OutputError

        folder = self._root / run
        if not folder.is_dir() and len(Path(run).parts) == 2:
            folder = self._root / "runs" / run
        place = place_of(folder, self._root)
        if place is None:
            if not folder.is_dir():
                _fail(f"{os.fspath(run)}: there is no such run; name a folder below runs/")
            return self._held(folder, None)
        try:
            return self._held(folder, place.task())
        except (InputError, OutputError, ExpectationError) as error:
            _fail(str(error))

    def record(
        self,
        agent: Agent | str,
        question: str,
        *,
        task: str | os.PathLike[str],
        variables: Mapping[str, str] | None = None,
        history: Iterable[Mapping[str, Any]] | None = None,
        principal: str | None = None,
        seed: int = 0,
        deadline_s: float | None = None,
    ) -> RunResult:
        """Make the run of an agent in code again, and fail if it drifts from the recorded one or there is none.

        With `--tachograph-update` the task is written and the run recorded.

        Args:
            agent: The agent, or its name, `package.module:name`.
            question: The question.
            task: The task file relative to the project, `tasks/K/N.yaml`; its run is `runs/K/N`.
            variables: Values of the variables in the agent's instructions.
            history: The messages before the question.
            principal: On whose behalf the run acts.
            seed: Seeds the jitter of waits.
            deadline_s: Ends the run so many seconds after its start.

        Returns:
            How the recorded run ended, with its steps.
        """
        from .evidence.recording.code_task import run_of, stated_task
        from .evidence.recording.record import record
        from .fail.errors import ExpectationError, InputError, OutputError
        from .light_dataclasses import replace

        path = self._root / task
        said: dict[str, Any] = {
            "variables": variables,
            "history": None if history is None else list(history),
            "principal": principal,
            "seed": seed,
            "deadline_s": deadline_s,
        }
        try:
            stated, text = stated_task(agent, question, path, **said)
            if text is None:
                held = self._held(self._root / run_of(stated), stated)
                return held if isinstance(agent, str) else replace(held, output_type=agent.output)
            if not self._update:
                _fail(
                    f"{stated.file}: there is no such task; `pytest {_UPDATE}` writes it and records its run"
                )
            return record(agent, question, task=path, **said)
        except (InputError, OutputError, ExpectationError) as error:
            _fail(str(error))

    def _held(self, folder: Path, task: Task | None) -> RunResult:
        """Return how a recorded run ended if it holds; else record it anew if that is asked for, or fail."""
        from .evidence.checking.check import examine
        from .evidence.recording.code_task import record_anew
        from .evidence.recording.record import result_in

        if not folder.is_dir():
            assert task is not None
            if not self._update:
                _fail(
                    f"{self._name(folder)}: there is no recorded run; record it with `tachograph run {task.file}` or "
                    f"`pytest {_UPDATE}`"
                )
            return record_anew(task)
        found = examine(folder, root=self._root)
        if not found.ok:
            if not self._update or task is None:
                self._fail_for(found)
            return record_anew(task)
        return result_in(folder)

    def _fail_for(self, found: Findings) -> NoReturn:
        from .review.drift.report import drift_report
        from .review.drift.text import lines

        report = drift_report([found], self._root)
        _fail("\n".join([*lines(report, lambda text, _colour: text), f"or record it anew: pytest {_UPDATE}"]))

    def _name(self, folder: Path) -> str:
        return folder.relative_to(self._root).as_posix()


def _fail(text: str) -> NoReturn:
    pytest.fail(text, pytrace=False)
