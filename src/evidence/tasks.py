"""Tasks: scenarios in files, from which runs are recorded and made again.

The project root is the nearest folder at or above the task that holds `policy/`. Every path in a task is relative to it
and stays inside; so are the paths in records, with `/`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from msgspec import structs, to_builtins

from ..fail.errors import InputError, TaskError, warn
from ..runtime.formats.documents import TypedDocument, read_document
from ..runtime.formats.json_pointer import join
from ..runtime.io.workspace import Host, Mount, Workspace
from ..runtime.log import events as log
from ..runtime.log.values import THIS_STEP, Forked
from ..runtime.loop.state import Gates, RunSpec
from ..runtime.mcp.server import LOCK, ServerPlace, read_lock, server_at
from ..runtime.models.scripted import Script
from ..runtime.models.types import choice_of
from ..runtime.policy.consistency import check_mounts, check_prices, check_redaction
from ..runtime.policy.policy import Policy
from ..runtime.redaction.redactor import scripted_key
from ..runtime.resources.mount_path import parse_path
from ..runtime.resources.url import Malformed
from ..runtime.run import head_of
from ..runtime.tools.agents import DELEGATE, EXIT_PLAN, TEAM_NAMES, delegate, with_those_below
from ..runtime.tools.contract import Tool
from ..runtime.tools.loader import LoadedTools, load_tools
from ..runtime.world.perform import Fault
from ..runtime.world.virtual import Virtual
from .agent_file import AgentFile, Profile
from .expectations import missed_expectations
from .task_file import AgentPart, TaskFile, exception_of, nanoseconds_of

if TYPE_CHECKING:  # a scripted run imports no event loop
    from ..runtime.world.real import Real


class Task(AgentFile):
    """A task, read from its file.

    Attributes:
        is_scripted: Whether model and people follow a script, so that a check asks them again.
        is_offline: Whether folders answer for all hosts.
        code: By tool, path and digest of the modules of functions in code: it has none.
        key: What placeholders of secrets are made with in a live run; that of a scripted one follows from its name.
        began: When the run begins, in nanoseconds since 1970.
    """

    is_offline = True
    code: Mapping[str, Mapping[str, str]] = {}
    key: bytes | None = None
    _profile: Profile | None = None
    spec: TaskFile

    def __init__(self, root: Path, document: TypedDocument[TaskFile]) -> None:
        super().__init__(root, document, {})
        if self.spec.profile:
            self._take_profile()
        self._scripts: dict[str, list[Script]] = {}  # by the place of an agent
        began = nanoseconds_of(self.spec.clock.start)
        if began is None:
            raise self.error("/clock/start", "is not a time since 1970", 'write "2026-01-01T00:00:00Z"')
        self.began = began
        for n, item in enumerate(self.spec.setup):
            if (item.text is None) == (item.link is None):
                raise self.error(f"/setup/{n}", "needs either text or link", "give one of them")
        for n, fault in enumerate(self.spec.faults):
            if fault.raises is not None and exception_of(fault.raises) is None:
                what = f"{fault.raises!a} is not an exception that can be raised without arguments"
                raise self.error(f"/faults/{n}/raises", what, "name a builtin one, such as ConnectionError")
            if fault.target == "io" and fault.raises is None:
                raise self.error(f"/faults/{n}", "a fault of io must raise", "give raises")
        if bool(self.spec.question) == bool(self.spec.turns) and (self.spec.turns or not self.spec.llm.live):
            raise self.error("", "needs either a question or turns", "give one of them")
        if (self.spec.llm.stub is None) == (not self.spec.llm.live):
            raise self.error("/llm", "needs either a script or live models", "give stub or live")
        self.is_scripted = self.spec.llm.stub is not None
        for key in ("approvals", "faults", "turns"):
            if not self.is_scripted and getattr(self.spec, key):
                raise self.error(f"/{key}", "a task for live models cannot set it", "remove it")
        if self.is_scripted:
            self.models_at("")  # refuses a script that is none

    def _take_profile(self) -> None:
        """Take all that concerns the agent of the run from a profile."""
        names = AgentPart.__struct_fields__
        for name in names:
            if name != "variables" and getattr(self.spec, name) != getattr(AgentPart(), name):
                remedy = "set it in the profile, or leave out profile"
                raise self.error(join([name]), "cannot be set beside a profile", remedy)
        self._profile = Profile(self.spec.profile, self, (self, "/profile"))
        its = {name: getattr(self._profile.spec, name) for name in names}
        its["variables"] = its["variables"] | self.spec.variables
        self._profile.spec = structs.replace(self._profile.spec, variables=its["variables"])
        _ = self._profile.instructions  # refused here, where its file is named
        self.spec = structs.replace(self.spec, **its)

    def error(self, pointer: str, message: str, remedy: str) -> InputError:
        """Return an error at a place of the task, or of the profile that says it."""
        said_there = {*AgentPart.__struct_fields__} - {"variables"} if self._profile is not None else {}
        of = self._profile if pointer.partition("/")[2].partition("/")[0] in said_there else None
        return super().error(pointer, message, remedy) if of is None else of.error(pointer, message, remedy)

    @property
    def is_session(self) -> bool:
        """Whether its run is a conversation; of a live model, one that somebody has at a terminal."""
        return not self.spec.question

    @property
    def run_id(self) -> str:
        """`KIND-NAME-sSEED`, without the policy: a policy edit changes the run, not its name."""
        return f"{self.spec.id}-s{self.spec.seed}"

    @property
    def folder(self) -> str:
        """The folder of its run below `runs/`: `KIND/NAME`."""
        return self.spec.id.replace("-", "/")

    @cached_property
    def profiles(self) -> dict[str, Profile]:
        """The profiles that may be started below it, by name. Raises InputError."""
        found: dict[str, Profile] = {}
        waiting: list[AgentFile] = [self]
        while waiting:
            above = waiting.pop()
            named = {join([key]): getattr(above.spec, key) for key in ("agents", "hand_over_to", "team")}
            named |= {join(["functions", tool]): names for tool, names in above.spec.functions.items()}
            for pointer, names in named.items():
                for n, name in enumerate(names):
                    if name not in found:
                        found[name] = Profile(name, self, (above, f"{pointer}/{n}"))
                        waiting.append(found[name])
        return found

    @cached_property
    def _named(self) -> list[str]:
        """The names of all tools, its own first."""
        return [*dict.fromkeys(it for file in (self, *self.profiles.values()) for it in _tools_in(file))]

    @cached_property
    def loaded(self) -> LoadedTools:
        """All tools, and what they import of the project. Raises InputError."""
        offered: dict[str, Tool] = {}
        for name, it in self.spec.mcp.items():
            named = Template(" ".join(it.headers.values())).get_identifiers()
            if unknown := {*named} - {*it.env}:
                where = join(["mcp", name, "headers"])
                raise self.error(where, f"the variable {min(unknown)} is not in env", "list it there")
            place = ServerPlace(tuple(it.command), it.url, {}, tuple(it.env), it.headers, it.timeout_s)
            read_lock(self.root / LOCK)  # what is wrong with that file is no matter of the task
            try:
                server = server_at(name, place, self.root / LOCK)
            except InputError as error:
                raise self.error(join(["mcp", name]), error.message, error.remedy or "") from None
            offered |= {tool.name: tool for tool in server.tools}
        for name in (name for name in TEAM_NAMES if name in self._named):
            from ..runtime.loop.team import team_tool  # few tasks have a team

            offered[name] = team_tool(name)
        own = load_tools([name for name in self._named if name not in offered], self.root)
        known = offered | {tool.name: tool for tool in own.tools}
        return LoadedTools([known[name] for name in self._named], own.modules)

    def share(self, loaded: dict[Any, Any]) -> None:
        """Take policies and tools from what other tasks of a project have loaded, or add them. Raises InputError."""
        self.shared = loaded
        tools = (*self._named, *map(repr, self.spec.mcp.items()))
        if tools not in loaded:
            loaded[tools] = self.loaded
        self.__dict__["loaded"] = loaded[tools]

    @property
    def tools(self) -> list[Tool]:
        """Its tools, and those of all agents that may be started below it. Raises InputError."""
        return with_those_below(self.own_tools)

    @cached_property
    def own_tools(self) -> list[Tool]:
        """Those of the agent of its run. Raises InputError."""
        return self.tools_of(self)

    def tools_of(self, file: AgentFile) -> list[Tool]:
        """Return the tools of one of its agents, with those that start agents. Raises InputError."""
        known = {tool.name: tool for tool in self.loaded.tools}
        own = [known[name] for name in dict.fromkeys(_tools_in(file)) if name not in file.spec.functions]
        for name, profiles in file.spec.functions.items():
            own.append(known[name].starting([self.profiles[it].tool for it in profiles]))
        started = [self.profiles[name].tool for name in file.spec.agents]
        if DELEGATE in file.spec.tools:
            if not started:
                raise file.error("/tools", f"{DELEGATE} has no agents to start", "name profiles under agents")
            started = [delegate(started)]
        agents = [("agents", n, tool) for n, tool in enumerate(started)]
        others = enumerate(file.spec.hand_over_to)
        agents += [("hand_over_to", n, self.profiles[name].handing_over) for n, name in others]
        agents += [("team", n, self.profiles[name].staying) for n, name in enumerate(file.spec.team)]
        for key, n, tool in agents:
            if tool.name in known:
                raise file.error(join([key, str(n)]), f"{tool.name!r} is a tool too", "rename the profile")
        return [*dict.fromkeys(own + [tool for _, _, tool in agents])]

    def models_at(self, place: str, model: str = "") -> Sequence[Any]:
        """Return the models of the agent at a place.

        A script answers also for a profile that names a model.
        """
        if place not in self._scripts:
            self._scripts[place] = [self._script(it, place) for it in ("script", *self.spec.llm.fallback)]
        return self._scripts[place]

    @property
    def policies(self) -> Sequence[Policy]:
        """Its policy and that for a plan, and those of the profiles."""
        return [policy for file in (self, *self.profiles.values()) for policy in file.own_policies]

    @property
    def modules(self) -> Mapping[str, Mapping[str, str]]:
        """By tool, path and digest of each module of the project that it imports."""
        return self.loaded.modules

    @property
    def files(self) -> Mapping[str, str]:
        """Path and digest of its file, hooks and policy for a plan, and of the profiles with all their policies."""
        files = {**super().files, **({} if self._profile is None else self._profile.files)}
        for profile in self.profiles.values():
            files |= {**profile.files, **dict(profile.policy.files)}
        return files

    @property
    def rejected(self) -> Path:
        """Where its run is kept if it misses what is expected."""
        return self.root / ".tachograph" / "rejected" / self.spec.id

    def head(self) -> log.RunStarted:
        """Return the first line of its run."""
        clock = "virtual" if self.is_scripted else "system"
        return head_of(self.run_spec(), task=self.file, clock=clock, began=self.began)

    def run_spec(self) -> RunSpec:
        """Return what its run is made with."""
        return structs.replace(
            self.made_with(self._gates, self.models_at(""), self.spec.question),
            run_id=self.run_id,
            seed=self.spec.seed,
            redactor=self.policy.redactor({}, scripted_key(self.run_id)),
            deadline_s=self.spec.deadline_s,
            is_session=self.is_session,
            forked=self._forked,
        )

    @property
    def _forked(self) -> Forked | None:
        forked = self.spec.forked
        if forked is None:
            return None
        origin = load_task(self.root / "tasks" / f"{forked.task}.yaml", self.root)
        if origin.spec.turns[: forked.turn] != self.spec.turns[: forked.turn]:
            raise self.error("/forked", "begins with other turns than that task", "give it the same ones")
        return Forked(origin.run_id, forked.turn)

    @cached_property
    def _gates(self) -> Gates:
        for file in (self, *self.profiles.values()):
            below = [it.agent for it in with_those_below(self.tools_of(file))]
            models = [self.models_at("", it.spec.model)[0] for it in below if isinstance(it, Profile)]
            for policy in file.own_policies:
                check_redaction(self.policy, policy)
                check_prices(policy, (choice_of(it).name for it in models))
        return self.gates(self.own_tools)

    def workspace(self, on_read: Callable[[str, str], None], private: Path | None = None) -> Workspace:
        """Return what its tools may touch; `on_read` is told path and SHA-256 of each document that is read."""
        check_mounts(self.policy, self.spec.mounts)
        mounts = {}
        for name, mode in self.policy.mounts.modes.items():
            source = self.spec.mounts.get(name)
            if source is not None:
                mounts[name] = Mount(mode, self.inside(f"/mounts/{name}", source, is_folder=True), source)
            elif mode == "write":
                mounts[name] = Mount(mode)
        hosts = {}
        for name, host in self.spec.hosts.items():
            folder = self.inside(join(["hosts", name, "folder"]), host.folder, is_folder=True)
            hosts[name] = Host(folder, host.folder, host.redirects)
        guarded = {f"policy {path.name}": path for path in self.policy.paths}
        return Workspace(mounts, hosts, private=private, guarded=guarded, on_read=on_read)

    def set_up(self, workspace: Workspace) -> None:
        """Put what the task says into the private mounts of an open workspace."""
        for n, item in enumerate(self.spec.setup):
            place = f"/setup/{n}/path"
            try:
                mount = parse_path(item.path).mount
                if mount in self.spec.mounts or mount not in workspace.roots:
                    raise self.error(place, f"{mount!r} is not a private mount", "name one without a folder")
                workspace.place(item.path, item.text, item.link or "")
            except (Malformed, OSError) as error:
                raise self.error(place, f"cannot be set up ({error})", "write mount/file") from None

    def world(self, workspace: Workspace) -> Virtual | Real:
        """Return the scripted world of its run."""
        timed = [(said.at_ms * 1_000_000, said.say) for said in self.spec.turns if said.at_ms is not None]
        stop = log.StopAsked(at="", scope=THIS_STEP, why="interrupted")
        arrivals = [(time, it) for time, text in timed for it in (stop, log.Arrived(at="", text=text))]
        turns: list[log.Entered] = []
        for said in (it for it in self.spec.turns if it.at_ms is None):
            turns += [log.UndoAsked(at="")] if said.undo else []
            turns += [] if said.compact is None else [log.CompactAsked(at="", focus=said.compact)]
            turns += [log.PlanAsked(at="")] if said.plan else []
            turns.append(log.Arrived(at="", text=said.say))
        return Virtual(workspace, self.fault, arrivals, self.answer, turns)

    def missed(self, events: Sequence[log.Event]) -> list[str]:
        """Return how its run misses what it expects, one line each; warns of what in its script nothing came to."""
        for key in ("approvals", "faults"):
            items = getattr(self.spec, key)
            # of several at one address the first is what happens there
            places = {event.at for event in events} if items else ()
            firsts = {next((n for n, it in enumerate(items) if it.is_at(at)), -1) for at in places}
            what = "the run never came to it, or an earlier one took its place"
            for n in sorted({*range(len(items))} - firsts):
                warn("%s", self.error(f"/{key}/{n}", what, "correct or remove it"))
        return missed_expectations(self.spec.expected, events)

    def answer(self, at: str) -> log.Answered | None:
        """Return a person's answer to the question at an address."""
        said = (it for it in self.spec.approvals if it.is_at(at))
        return next((log.Answered(at=at, answer=it.answer, by=it.by, why=it.why) for it in said), None)

    def fault(self, at: str) -> Fault | None:
        """Return what happens in place of an effect, by its address."""
        for it in self.spec.faults:
            if it.is_at(at):
                error = None if it.raises is None else exception_of(it.raises)
                return Fault(error, it.target == "io", it.returns, it.delays_ms * 1_000_000, it.cancels)
        return None

    def _script(self, name: str, place: str) -> Script:
        stub, where = self.spec.llm.stub, "/llm/stub/turns"
        said = stub.turns if stub is not None else []
        if place and stub is not None:
            said, where = stub.agents.get(place[:-1], []), join(["llm", "stub", "agents", place[:-1]])
        turns = [to_builtins(turn) for turn in said]
        return Script(turns, lambda pointer, *words: self.error(f"{where}{pointer}", *words), name)


def _tools_in(file: AgentFile) -> list[str]:
    own = [name for name in (*file.spec.tools, *file.spec.functions) if name != DELEGATE]
    return own if file.spec.plan is None else [*own, EXIT_PLAN]


def root_around(folder: Path) -> Path | None:
    """Return the project that a folder lies in, if any."""
    start = Path(os.path.realpath(folder))  # of links that go round, too
    return next((it for it in (start, *start.parents) if (it / "policy").is_dir()), None)


def load_task(path: str | Path, root: Path | None = None) -> Task:
    """Read a task file.

    Args:
        path: The file.
        root: The project; the nearest folder above the file that holds `policy/` unless given.

    Raises:
        TaskError: The file is not exactly a task; the error has file, line and column.
    """
    source = Path(path).resolve()
    root = root_around(source.parent) if root is None else root.resolve()
    if root is None or not source.is_relative_to(root):
        where = "no folder above it holds policy/" if root is None else "it lies outside of the project"
        raise TaskError(where, file=str(path), remedy="move it into a project")
    label = source.relative_to(root).as_posix()
    if source.parent.parent.name != "tasks":  # a check would not find its run
        raise TaskError("is not in tasks/KIND/", file=label, remedy="move it to tasks/KIND/NAME.yaml")
    task = Task(root, read_document(source, label, TaskFile, TaskError))
    place = f"{source.parent.name}-{source.stem}"
    if task.spec.id != place:
        raise task.error("/id", f"the id is not the place of the file, {place}", f"write {place}")
    return task
