"""What a run is made from: a task (`tasks.py`), or an agent in code with its question (`agent_runs.py`)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..runtime.io.workspace import Workspace
from ..runtime.log.events import Event, RunStarted
from ..runtime.loop.state import RunSpec
from ..runtime.policy.policy import Policy
from ..runtime.tools.contract import Tool
from ..runtime.world.virtual import Virtual, run_now

if TYPE_CHECKING:  # a scripted run imports no event loop
    from ..runtime.world.real import Real

T = TypeVar("T")


class RunSource(Protocol):
    """What a run is made from, for the first time or again."""

    @property
    def policy(self) -> Policy:
        """The policy."""

    @property
    def policies(self) -> Sequence[Policy]:
        """The policy, and those of all agents that may be started."""

    @property
    def tools(self) -> list[Tool]:
        """The tools, and those of all agents that may be started."""

    @property
    def files(self) -> Mapping[str, str]:
        """Path and digest of each file that it was read from itself."""

    @property
    def modules(self) -> Mapping[str, Mapping[str, str]]:
        """By tool, path and digest of each module of the project that it imports."""

    @property
    def code(self) -> Mapping[str, Mapping[str, str]]:
        """The same of functions in code, under "" of those that are no tools; a resume may find others."""

    @property
    def is_scripted(self) -> bool:
        """Whether model and people follow a script, so that a check asks them again."""

    @property
    def is_offline(self) -> bool:
        """Whether folders answer for all hosts."""

    @property
    def key(self) -> bytes | None:
        """What placeholders of secrets are made with in a live run; kept beside the log until the run has ended."""

    @property
    def rejected(self) -> Path:
        """Where a run is kept that misses what is expected of it."""

    def run_spec(self) -> RunSpec:
        """Return what the run is made with."""

    def head(self) -> RunStarted:
        """Return its first line."""

    def workspace(self, on_read: Callable[[str, str], None], private: Path | None = None) -> Workspace:
        """Return what its tools may touch; `on_read` is told path and SHA-256 of each document that is read."""

    def set_up(self, workspace: Workspace) -> None:
        """Put what the run begins with into the private mounts of an open workspace."""

    def world(self, workspace: Workspace) -> Virtual | Real:
        """Return the world of the run."""

    def missed(self, events: Sequence[Event]) -> list[str]:
        """Return how the run misses what is expected of it, one line each."""


def drive(source: RunSource, coroutine: Coroutine[Any, Any, T]) -> T:
    """Drive a run to its end, a scripted one without an event loop."""
    if source.is_scripted:
        return run_now(coroutine)
    from ..runtime.agent import run_in_new_loop  # a scripted run imports no event loop

    return run_in_new_loop(coroutine)
