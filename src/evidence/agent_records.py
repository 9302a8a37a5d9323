"""Records of an agent in code for the commands: each is named by its folder, and made again by the agent."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from ..fail.errors import InputError, RecordError, asks_to_end, class_of, text_of
from ..runtime.agent import Agent
from ..runtime.world.people import Approve
from ..runtime.world.real import Real
from .agent_runs import AgentRun, new_run
from .folder import where_it_lies
from .project import NO_RECORDS, Project, in_kinds
from .record_files import STATE, is_from_code
from .run_source import RunSource


class AgentRecords(Project):
    """The records of an agent in code, in the place of a project.

    Args:
        named: The agent, as MODULE:NAME; the module is imported as by a program in the current folder.

    Attributes:
        named: The same.
        root: The folder of the project of the agent, from which its inputs are named.

    Raises:
        InputError: There is no such agent.
    """

    def __init__(self, named: str) -> None:
        self.named = named
        sys.path.insert(0, str(Path().resolve()))
        module, _, name = named.partition(":")
        remedy = "name an Agent as MODULE:NAME, such as app:agent"
        Agent.is_being_imported = True
        try:
            agent = getattr(import_module(module), name)
        except BaseException as error:
            if asks_to_end(error) or isinstance(error, InputError):
                raise
            what = f"importing it raised {class_of(error)}: {text_of(error, str)}"
            raise InputError(what, file=named, remedy=remedy) from error
        finally:
            Agent.is_being_imported = False
        if not isinstance(agent, Agent):
            raise InputError("is not an Agent", file=named, remedy=remedy)
        self._agent, self.root = agent, agent.root.resolve()

    def run_name(self, run: str) -> str:
        """Return what a run is called: its folder, also where it is given as KIND/NAME. Raises RecordError."""
        name = str(Path(run)).removesuffix(".partial")
        for folder in (name, f"runs/{name}"):
            if (where_it_lies(Path(folder)) / STATE).is_file():
                return folder
        raise RecordError("there is no such run", file=run, remedy="name the folder of one")

    def run_names(self) -> list[str]:
        """Return the folders of all records of agents in code in runs/, sorted."""
        found = (path for _, path in in_kinds(Path("runs")) if path.suffix not in NO_RECORDS)
        return [str(path) for path in found if is_from_code(path)]

    def label(self, name: str) -> str:
        """Return what messages call a run: its folder."""
        return name

    def folder(self, name: str) -> Path:
        """Return the folder of a run."""
        return Path(name)

    def source_of(self, name: str) -> RunSource:
        """Return what a recorded run is made again from. Raises RecordError."""
        return AgentRun.of(self._agent, self.folder(name))

    def conversation(
        self, partial: Path | None, approve: Approve, started: Callable[[Real], None]
    ) -> AgentRun:
        """Return what a conversation is made from.

        Args:
            partial: The folder of one that goes on; None for a new one.
            approve: Asks a person about a call, in place of the agent's own function.
            started: Is given the world of the run.
        """
        self._agent.approve = approve
        if partial is None:
            return new_run(self._agent, "", {}, is_session=True, started=started)
        return AgentRun.of(self._agent, partial, started=started)

    def problems(self) -> list[str]:
        """Return nothing: nobody lists these."""
        return []

    def write_list(self) -> None:
        """Do nothing: nobody lists these."""

    def is_from_code(self, name: str) -> bool:
        """Return that no run is to be made again in another way."""
        return False
