"""Record runs of an agent in code, and make them again.

The record holds what the model, people and the network said, so that `replay` needs none of them, and `check` performs
again only what tools do with files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from msgspec import structs

from ..fail.errors import InputError, OutputError, RecordError
from ..runtime.agent import Agent
from ..runtime.clock import random_hex, random_key, wall_ns
from ..runtime.driver import Words
from ..runtime.formats.documents import path_of
from ..runtime.io.workspace import Workspace
from ..runtime.log.events import Event, RunStarted
from ..runtime.loop.state import RunSpec
from ..runtime.policy.policy import Policy
from ..runtime.run import head_of
from ..runtime.run_result import RunOptions, RunResult
from ..runtime.tools.contract import Tool
from ..runtime.world.real import Real, run_in_new_loop
from . import record as recording
from .check import check_async, in_itself
from .check import replay as replay_source
from .compare import Difference
from .folder import not_ended, partial_of, read_key
from .record import Listen
from .record_files import NAMES, STATE, head_in


class AgentRun:
    """A run of an agent: a RunSource, as a task is one.

    Args:
        agent: The agent.
        spec: What the run is made with.
        began: When it began, in nanoseconds since 1970.
        key: What placeholders of secrets are made with.
        deps: The caller's own object, in place of the agent's.
        leaves: Whether a cancellation leaves the run to a resume, and does not stop it.
        started: Is given the world of the run.

    Attributes:
        is_scripted: As of Task: a check asks neither model nor people again.
        is_offline: As of Task: the network answers for hosts.
        files: As of Task: it was read from none.
        rejected: As of Task: nothing is expected of it, so none is kept there.
        policy: Its policy.
        policies: The policy, and those of all agents that may be started.
        tools: The tools, and those of all agents that may be started.
        modules: By tool, path and digest of each module of the project that it imports.
        code: The same of functions in code, under "" of those that are not tools; a resume may find others.
        key: As of the arguments; kept beside the log until the run has ended.
    """

    is_scripted = is_offline = False
    files: Mapping[str, str] = {}
    rejected = Path()

    def __init__(
        self,
        agent: Agent,
        spec: RunSpec,
        began: int,
        *,
        key: bytes | None,
        deps: Any = None,
        leaves: bool = True,
        started: Callable[[Real], None] | None = None,
    ) -> None:
        self.agent, self._spec, self._began, self._deps = agent, spec, began, deps
        self._leaves, self._started, self.key = leaves, started or (lambda world: None), key
        self.policy: Policy = agent.policy
        self.policies: Sequence[Policy] = agent.policies
        self.tools: list[Tool] = agent.all_tools
        self.modules: Mapping[str, Mapping[str, str]] = agent.modules
        self.code: Mapping[str, Mapping[str, str]] = agent.code()

    @classmethod
    def of(cls, agent: Agent, folder: Path, **rest: Any) -> AgentRun:
        """Return the run that a folder holds, made by an agent of today. Raises RecordError."""
        ended = Path(str(folder).removesuffix(".partial"))
        if not folder.is_dir() and folder != ended and ended.is_dir():
            raise RecordError("has ended", file=str(ended), remedy="there is nothing to resume")
        if not folder.is_dir() and partial_of(folder).is_dir():
            raise not_ended(str(folder), partial_of(folder))
        head = head_in(folder)
        key = read_key(folder)
        taken: RunOptions = {"seed": head.seed, "history": head.history, "deadline_s": head.deadline_s}
        spec = agent.spec(head.question, run_id=head.run_id, key=key, is_asked=folder != ended, **taken)
        spec = structs.replace(spec, is_session=head.session, forked=head.forked)
        return cls(agent, spec, head.began, key=key, **rest)

    def run_spec(self) -> RunSpec:
        """Return what the run is made with."""
        return self._spec

    def head(self) -> RunStarted:
        """Return its first line."""
        return head_of(self._spec, clock="system", began=self._began)

    def workspace(self, on_read: Callable[[str, str], None], private: Path | None = None) -> Workspace:
        """Return what its tools may touch."""
        return self.agent.workspace(on_read, private, self._deps)

    def set_up(self, workspace: Workspace) -> None:
        """Do nothing: private mounts begin empty."""

    def world(self, workspace: Workspace) -> Real:
        """Return the real world."""
        world = Real(
            workspace, leaves=self._leaves, listens=self._spec.is_session, approve=self.agent.approve
        )
        self._started(world)
        return world

    def missed(self, events: Sequence[Event]) -> list[str]:
        """Return nothing: nobody said what to expect."""
        return []


def new_run(
    agent: Agent, question: str, options: RunOptions, *, is_session: bool = False, **rest: Any
) -> AgentRun:
    """Return a run of an agent that has not begun."""
    key = random_key()
    spec = agent.spec(question, run_id=f"run-{random_hex()}", key=key, **options)
    spec = structs.replace(spec, is_session=is_session)
    return AgentRun(agent, spec, wall_ns(), key=key, deps=options.get("deps"), **rest)


def folder_of(agent: Agent, out: str | Path) -> Path:
    """Return the folder for a record of an agent. Raises InputError where these are something else."""
    if not isinstance(agent, Agent):
        raise InputError(f"{agent!r:.80} is no agent", remedy="give an Agent")
    return path_of(out, "the folder of a record")


def cleared(folder: Path, *, replace: bool | None = None) -> Path:
    """Return the folder for a record, whose place stays if the working directory changes.

    Raises OutputError where one lies that is not to be replaced, or never (None).
    """
    if folder.name in ("", "..") or folder.suffix == ".partial":
        raise OutputError(f"{folder}: is not a folder of its own; name one, such as my-run")
    if not replace and folder.is_dir() and {path.name for path in folder.iterdir()} & {*NAMES}:
        remedy = "name another folder" + ("" if replace is None else ", or give `record` replace=True")
        raise OutputError(f"{folder}: a record is already here; {remedy}")
    return folder.absolute()


def record(
    agent: Agent,
    question: str,
    *,
    out: str | Path,
    replace: bool = False,
    listen: Listen | None = None,
    **options: Unpack[RunOptions],
) -> RunResult:
    """Run an agent and put the four files of the run into a folder.

    Until the run has ended they lie in `OUT.partial`; `resume` goes on from there if the process ended before, or after
    Ctrl-C. Where an event loop is running, `arecord` is to be awaited.

    Args:
        agent: The agent.
        question: The question.
        out: The folder.
        replace: Whether an earlier record there is replaced.
        listen: Is told of each line of the log.
        **options: `seed`, `history`, `deps` and `deadline_s`, see RunOptions.

    Raises:
        OutputError: A record lies in the folder, or it cannot be used.
        InputError: The question, the history or an option is refused, or a model lacks its key.
    """
    folder = cleared(folder_of(agent, out), replace=replace)
    return agent.result_of(recording.record(new_run(agent, question, options), folder, listen))


async def arecord(
    agent: Agent,
    question: str,
    *,
    out: str | Path,
    replace: bool = False,
    listen: Listen | None = None,
    started: Callable[[Real], None] | None = None,
    leaves: bool = False,
    **options: Unpack[RunOptions],
) -> RunResult:
    """Do as `record` does in the running event loop.

    A cancellation by the caller stops the run, and is raised again once the four files are in place.

    Args:
        agent: As of `record`.
        question: Likewise.
        out: Likewise.
        replace: Likewise.
        listen: Likewise.
        started: Is given the world of the run, whose `stop` may be called from any thread.
        leaves: Whether a cancellation leaves the run to a resume instead.
        **options: `seed`, `history`, `deps` and `deadline_s`, see RunOptions.

    Raises:
        OutputError: As of `record`.
        InputError: Likewise.
    """
    folder = cleared(folder_of(agent, out), replace=replace)
    source = new_run(agent, question, options, leaves=leaves, started=started)
    return agent.result_of(await recording.record_async(source, folder, listen))


def resume(
    agent: Agent, out: str | Path, *, settled: Words | None = None, listen: Listen | None = None
) -> RunResult:
    """Go on with a recorded run whose process ended.

    Where an event loop is running, `aresume` is to be awaited.

    Args:
        agent: The agent, as it was.
        out: The folder that `record` was given.
        settled: A person's word, `done` or `not_done`, on each effect in doubt, by its address.
        listen: Is told of each further line.

    Raises:
        RecordError: No open run lies there.
        InputError: It is a conversation.
        InDoubt: Effects had begun, and nobody says whether they happened.
        Diverged: The agent is not that of the log any more.
    """
    folder = folder_of(agent, out).absolute()
    return agent.result_of(recording.resume(_open_run(agent, folder), folder, settled or {}, listen))


async def aresume(
    agent: Agent,
    out: str | Path,
    *,
    settled: Words | None = None,
    listen: Listen | None = None,
    started: Callable[[Real], None] | None = None,
    leaves: bool = False,
) -> RunResult:
    """Do as `resume` does in the running event loop; a cancellation is as of `arecord`.

    Args:
        agent: As of `resume`.
        out: Likewise.
        settled: Likewise.
        listen: Likewise.
        started: As of `arecord`.
        leaves: Likewise.
    """
    folder = folder_of(agent, out).absolute()
    source = _open_run(agent, folder, leaves=leaves, started=started)
    return agent.result_of(await recording.resume_async(source, folder, settled or {}, listen))


def _open_run(agent: Agent, folder: Path, **rest: Any) -> AgentRun:
    """Return an open run that is not a conversation. Raises as `resume` does."""
    source = AgentRun.of(agent, partial_of(folder), **rest)
    if source.run_spec().is_session:
        raise InputError("this run is a conversation", file=str(folder), remedy="go on in a Session there")
    return source


def replay(agent: Agent, out: str | Path) -> RunResult:
    """Make a recorded run again from its log alone: no model, no tool, no file and no network is touched.

    Args:
        agent: The agent, as it was.
        out: The folder of the record.

    Returns:
        What the run came to.

    Raises:
        RecordError: The record cannot be read.
        Diverged: A line would be another one today; the exception names it.
    """
    folder = folder_of(agent, out)
    return agent.result_of(replay_source(AgentRun.of(agent, folder), folder, str(folder)))


def check(agent: Agent, out: str | Path) -> list[Difference]:
    """Make a recorded run again, performing what tools do with files, and return the differences.

    The record answers for the model, for people, for the network, and for tools that are external. Where an event loop
    is running, `acheck` is to be awaited.

    Args:
        agent: The agent, as it is today.
        out: The folder of the record.

    Returns:
        The differences, each with `kind`, `at` and `words`; none if the record holds.

    Raises:
        RecordError: No recorded run lies there.
    """
    return run_in_new_loop(acheck(agent, out))


async def acheck(agent: Agent, out: str | Path) -> list[Difference]:
    """Do as `check` does in the running event loop.

    Args:
        agent: As of `check`.
        out: Likewise.
    """
    folder = folder_of(agent, out)
    try:
        source = AgentRun.of(agent, folder)
    except RecordError:
        if not (folder / STATE).is_file():
            raise
        return in_itself(folder, str(folder))
    return await check_async(source, folder, str(folder))
