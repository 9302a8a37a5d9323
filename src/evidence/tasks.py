"""Tasks: scenarios in files, from which runs are recorded and made again.

The project root is the nearest folder at or above the task that holds `policy/`. Every path in a task is relative to it
and stays inside; so are the paths in records, with `/`.
"""

from __future__ import annotations

import builtins
import calendar
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ..fail import errors
from ..fail.errors import InputError, TaskError
from ..runtime.formats.documents import TypedDocument, read_document
from ..runtime.formats.json_pointer import join
from ..runtime.formats.strict_json import digest
from ..runtime.io.workspace import Host, Mount, Workspace
from ..runtime.log.events import Answered, Event, RunStarted
from ..runtime.loop.hooks import HOOKS, Hooks
from ..runtime.loop.state import RunSpec
from ..runtime.mcp.server import LOCK, ServerPlace, read_lock, server_at, tool_names
from ..runtime.models.fallback import choice_of
from ..runtime.models.scripted import Script
from ..runtime.policy.consistency import check_mounts, check_names, check_prices
from ..runtime.policy.gate import Gate
from ..runtime.policy.policy import Policy
from ..runtime.redaction.redactor import scripted_key
from ..runtime.resources.mount_path import parse_path
from ..runtime.resources.url import Malformed
from ..runtime.run import head_of
from ..runtime.schema.answer_type import AnswerType
from ..runtime.tools.contract import Tool
from ..runtime.tools.loader import LoadedTools, load_module, load_tools
from ..runtime.tools.project_modules import project_modules
from ..runtime.world.perform import Fault
from ..runtime.world.virtual import Virtual, run_now
from .expectations import missed_expectations
from .task_file import TaskFile

T = TypeVar("T")


class Task:
    """A task, read from its file.

    Attributes:
        is_scripted: Whether a script answers for the model.
        is_offline: As of RunSource: folders answer for all hosts.
        code: As of RunSource: it has no functions in code.
        key: As of RunSource: that of its placeholders follows from the name of the run.
        root: The project.
        file: The path of the file, relative to the project.
        digest: SHA-256 of its data in canonical JSON.
        spec: What it says.
        began: When the run begins, in nanoseconds since 1970.
        models: The script in the place of a model, and of its fallbacks.
    """

    is_offline = True
    code: Mapping[str, Mapping[str, str]] = {}
    key = None

    def __init__(self, root: Path, document: TypedDocument[TaskFile]) -> None:
        self.root, self._document = root, document
        self.file, self.digest, self.spec = document.name, document.digest, document.value
        began = _nanoseconds(self.spec.clock.start)
        if began is None:
            raise self.error("/clock/start", "is no time since 1970", 'write "2026-01-01T00:00:00Z"')
        self.began = began
        for n, item in enumerate(self.spec.setup):
            if (item.text is None) == (item.link is None):
                raise self.error(f"/setup/{n}", "needs text or link, and not both", "give one of them")
        for n, fault in enumerate(self.spec.faults):
            if fault.raises is not None and _exception(fault.raises) is None:
                raise self.error(
                    f"/faults/{n}/raises",
                    f"{fault.raises!a} is no exception that can be raised without arguments",
                    "name a builtin one, such as ConnectionError",
                )
            if fault.target == "io" and fault.raises is None:
                raise self.error(f"/faults/{n}", "a fault of io must raise", "give raises")
        if (self.spec.llm.stub is None) == (not self.spec.llm.live):
            raise self.error("/llm", "needs a script or live models, and not both", "give stub or live")
        self.is_scripted = self.spec.llm.stub is not None
        for key in ("approvals", "faults"):
            if not self.is_scripted and getattr(self.spec, key):
                raise self.error(f"/{key}", "a task for live models cannot have it", "remove it")
        self.models = [self._script(name) for name in ("script", *self.spec.llm.fallback)]

    def error(self, pointer: str, message: str, remedy: str) -> InputError:
        """Return an error at the place of a JSON Pointer into the task."""
        return self._document.error(pointer, message, remedy)

    @property
    def run_id(self) -> str:
        """`KIND-NAME-sSEED`, without the policy: a policy edit changes the run, not its name."""
        return f"{self.spec.id}-s{self.spec.seed}"

    @property
    def live_models(self) -> list[str]:
        """The live models that it is for, each as `PROVIDER:MODEL`."""
        return self.spec.llm.live

    @property
    def folder(self) -> str:
        """The folder of its run below `runs/`: `KIND/NAME`."""
        return self.spec.id.replace("-", "/")

    @cached_property
    def policy(self) -> Policy:
        """Its policy. Raises InputError."""
        return Policy.load(self._inside("/policy/file", self.spec.policy.file), name=self.spec.policy.file)

    @cached_property
    def loaded(self) -> LoadedTools:
        """Its tools, and what they import of the project. Raises InputError."""
        offered: dict[str, Tool] = {}
        for name, it in self.spec.mcp.items():
            place = ServerPlace(tuple(it.command), it.url, passed=tuple(it.env), timeout_s=it.timeout_s)
            read_lock(self.root / LOCK)  # what is wrong with that file is no matter of the task
            try:
                server = server_at(name, place, self.root / LOCK)
            except InputError as error:
                raise self.error(join(["mcp", name]), error.message, error.remedy or "") from None
            offered |= {tool.name: tool for tool in server.tools}
        own = load_tools([name for name in self.spec.tools if name not in offered], self.root)
        known = offered | {tool.name: tool for tool in own.tools}
        return LoadedTools([known[name] for name in dict.fromkeys(self.spec.tools)], own.modules)

    def share(self, loaded: dict[Any, Any]) -> None:
        """Take policy and tools from what other tasks of a project have loaded, or add them. Raises InputError."""
        tools = (*self.spec.tools, *map(repr, self.spec.mcp.items()))
        for key, name in ((self.spec.policy.file, "policy"), (tools, "loaded")):
            if key not in loaded:
                loaded[key] = getattr(self, name)
            self.__dict__[name] = loaded[key]

    @property
    def tools(self) -> list[Tool]:
        """Its tools. Raises ToolError."""
        return self.loaded.tools

    @property
    def modules(self) -> Mapping[str, Mapping[str, str]]:
        """By tool, path and digest of each module of the project that it imports."""
        return self.loaded.modules

    @cached_property
    def _output(self) -> AnswerType | None:
        try:
            return None if self.spec.output_schema is None else AnswerType(self.spec.output_schema)
        except InputError as error:
            raise self.error("/output_schema", error.message, "write the JSON Schema of an object") from None

    @cached_property
    def _hooks(self) -> dict[str, tuple[Hooks, dict[str, str]]]:
        """By file, its hooks, and path and digest of what they were read from. Raises ToolError."""
        found = {}
        for n, file in enumerate(self.spec.hooks):
            self._inside(f"/hooks/{n}", file)
            module, source = load_module(file, self.root)
            known = {name: getattr(module, name) for name in Hooks.__struct_fields__ if hasattr(module, name)}
            if not known:
                raise self.error(f"/hooks/{n}", "the module has no hook", f"define one of {', '.join(HOOKS)}")
            found[file] = (
                Hooks(Path(file).stem, **known),
                {
                    file: digest(source),
                    **project_modules(source, self.root),
                },
            )
        return found

    @property
    def files(self) -> Mapping[str, str]:
        """Path and digest of its file and of its hooks."""
        files = {self.file: self.digest}
        for _, sources in self._hooks.values():
            files |= sources
        return files

    @property
    def rejected(self) -> Path:
        """Where its run is kept if it misses what is expected."""
        return self.root / ".tachograph" / "rejected" / self.spec.id

    def head(self) -> RunStarted:
        """Return the first line of its run."""
        return head_of(self.run_spec(), task=self.file, began=self.began)

    def run_spec(self) -> RunSpec:
        """Return what its run is made with."""
        check_names(self.policy, tool_names(self.root))
        choices = [choice_of(model) for model in self.models]
        if self.is_scripted:
            check_prices(self.policy, (choice.name for choice in choices))
        gate = Gate(self.policy, self.tools)
        hooks = [hooks for hooks, _ in self._hooks.values()]
        return RunSpec(
            self.run_id,
            self.spec.question,
            gate,
            tuple(tool.offer() for tool in gate.tools.values()),
            choices,
            self.spec.instructions,
            self.spec.seed,
            hooks=hooks,
            output=self._output,
            output_retries=self.spec.output_retries,
            redactor=self.policy.redactor({}, scripted_key(self.run_id)),
            deadline_s=self.spec.deadline_s,
        )

    def workspace(self, on_read: Callable[[str, str], None], private: Path | None = None) -> Workspace:
        """Return what its tools may touch; `on_read` is told path and SHA-256 of each document that is read."""
        check_mounts(self.policy, self.spec.mounts)
        mounts = {}
        for name, mode in self.policy.mounts.modes.items():
            source = self.spec.mounts.get(name)
            if source is not None:
                mounts[name] = Mount(mode, self._inside(f"/mounts/{name}", source), source)
            elif mode == "write":
                mounts[name] = Mount(mode)
        hosts = {
            name: Host(
                self._inside(join(["hosts", name, "folder"]), host.folder), host.folder, host.redirects
            )
            for name, host in self.spec.hosts.items()
        }
        guarded = {f"policy {path.name}": path for path in self.policy.paths}
        return Workspace(mounts, hosts, private=private, guarded=guarded, on_read=on_read)

    def set_up(self, workspace: Workspace) -> None:
        """Put what the task says into the private mounts of an open workspace."""
        for n, item in enumerate(self.spec.setup):
            try:
                mount = parse_path(item.path).mount
                if mount in self.spec.mounts or mount not in workspace.roots:
                    raise self.error(
                        f"/setup/{n}/path", f"{mount!r} is no private mount", "name one without a folder"
                    )
                if item.text is not None:
                    workspace.place(item.path, item.text)
                else:
                    workspace.place_link(item.path, item.link or "")
            except (Malformed, OSError) as error:
                raise self.error(
                    f"/setup/{n}/path", f"cannot be set up ({error})", "write mount/file"
                ) from None

    def world(self, workspace: Workspace) -> Virtual:
        """Return the scripted world of its run."""
        return Virtual(self.models, workspace, self.fault, answers=self.answer)

    def drive(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Drive its run to the end, without an event loop."""
        return run_now(coroutine)

    def missed(self, events: Sequence[Event]) -> list[str]:
        """Return how its run misses what it expects, one line each."""
        return missed_expectations(self.spec.expected, events)

    def answer(self, at: str) -> Answered | None:
        """Return a person's answer to the question at an address."""
        for item in self.spec.approvals:
            if at == f"{item.step}.c{item.call}.p":
                return Answered(at=at, answer=item.answer, by=item.by, why=item.why)
        return None

    def fault(self, at: str) -> Fault | None:
        """Return what happens in place of an effect, by its address."""
        for fault in self.spec.faults:
            attempts = f"{fault.step}.m" if fault.target == "model" else f"{fault.step}.c{fault.call}.i"
            number = at.removeprefix(attempts)
            if number != at and number.isdecimal() and fault.attempt in (None, int(number)):
                error = None if fault.raises is None else _exception(fault.raises)
                delay = fault.delays_ms * 1_000_000
                return Fault(error, fault.target == "io", fault.returns, delay, fault.cancels)
        return None

    def _script(self, name: str) -> Script:
        turns: list[dict[str, Any]] = []
        for turn in self.spec.llm.stub.turns if self.spec.llm.stub is not None else ():
            turns.append(
                {key: value for key, value in msgspec.to_builtins(turn).items() if value is not None}
            )
            turns[-1]["calls"] = [
                {key: value for key, value in call.items() if value is not None}
                for call in turns[-1]["calls"]
            ]
        return Script(turns, lambda pointer, *words: self.error(f"/llm/stub/turns{pointer}", *words), name)

    def _inside(self, pointer: str, path: str) -> Path:
        """Return a path of the project. Raises TaskError for one that leads out of it."""
        if "\0" in path or not (self.root / path).resolve().is_relative_to(self.root):
            raise self.error(pointer, "leads out of the project", "name a path inside")
        return self.root / path


def _exception(name: str) -> Exception | None:
    """Return a builtin exception of a name, or one that a model may raise; None where it needs arguments."""
    kind = getattr(builtins, name, None) or getattr(errors, name, None)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return None
    try:
        return kind()
    except TypeError:
        return None


def _nanoseconds(start: str) -> int | None:
    """Return a time in nanoseconds since 1970, None where there is no such time."""
    year, month, day, hour, minute, second = (int(part) for part in re.findall("[0-9]+", start))
    if year < 1970 or not 1 <= month <= 12 or not 1 <= day <= calendar.monthrange(year, month)[1]:
        return None
    if hour > 23 or minute > 59 or second > 59:
        return None
    return calendar.timegm((year, month, day, hour, minute, second)) * 1_000_000_000


def load_task(path: str | Path, root: Path | None = None) -> Task:
    """Read a task file.

    Args:
        path: The file.
        root: The project; the nearest folder above the file that holds `policy/` unless given.

    Raises:
        TaskError: The file is not exactly a task; the error has file, line and column.
    """
    source = Path(path).resolve()
    found = (folder for folder in source.parents if (folder / "policy").is_dir())
    root = next(found, None) if root is None else root.resolve()
    if root is None or not source.is_relative_to(root):
        where = "no folder above it holds policy/" if root is None else "it lies outside of the project"
        raise TaskError(where, file=str(path), remedy="move it into a project")
    document = read_document(source, source.relative_to(root).as_posix(), TaskFile, TaskError)
    task = Task(root, document)
    place = "-".join((source.parent.name, source.stem))
    if task.spec.id != place:
        raise task.error("/id", f"the id is not the place of the file, {place}", f"write {place}")
    return task
