"""Settings and fixtures of more than one file of tests."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tachograph.evidence.record import record
from tachograph.runtime.io import http
from tests.commands import exit_code
from tests.io_world import World
from tests.project import ROWS, SCENARIOS, copy_project, folder_of_row, made_once, make_project, task_of_row

# on a busy machine any example can take longer than the default limit, and the same ones are tried everywhere
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")

# a job in the background of a shell ignores Ctrl-C, which some tests send to themselves
signal.signal(signal.SIGINT, signal.default_int_handler)

# no machine dies under a test, only processes do, so nothing has to reach the disk
os.fsync = lambda fd: None


def pytest_collection_finish() -> None:
    """Collect garbage seldom, and only among what tests make, not among modules and the tests themselves."""
    gc.freeze()
    gc.set_threshold(100_000)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in an event loop of its own, for a minute at the most."""
    if not inspect.iscoroutinefunction(test := pyfuncitem.obj):
        return None

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await test(**{name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters})

    asyncio.run(bounded())
    return True


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path)
    monkeypatch.setattr(http, "fetch", lambda target, *_: made.answers[target.url])
    with made.workspace:
        yield made


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of this project, in which the test is."""
    copy_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def two_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with two tasks, in which the test is."""
    root = make_project(tmp_path / "p", [ROWS["call"], ROWS["sent_once"]])
    monkeypatch.chdir(root)
    monkeypatch.delenv("CI", raising=False)
    return root


@pytest.fixture
def two_runs(two_tasks: Path) -> Path:
    """The same project, once its tasks were run."""
    assert exit_code("run") == 0
    return two_tasks


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which every scenario is recorded; the run is what each expects, or `record` had raised."""

    def make(root: Path) -> None:
        make_project(root, SCENARIOS)
        for name in ROWS:
            record(task_of_row(root, name), folder_of_row(root, name))

    return made_once("one place", tmp_path_factory, make)
