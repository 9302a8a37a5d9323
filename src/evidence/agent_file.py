"""What a file of a project says of an agent: a task of that of its run, a profile of one that a call may start.

Every path in such a file is relative to the project and stays inside; so are the paths in records, with `/`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..fail.errors import InputError, TaskError, did_you_mean
from ..runtime.formats.documents import TypedDocument, read_document
from ..runtime.formats.strict_json import digest
from ..runtime.loop.hooks import HOOKS, Hooks
from ..runtime.loop.state import Gates, RunSpec, gates_of
from ..runtime.mcp.server import PROFILES, profile_names, tool_names
from ..runtime.models.types import Model, choice_of
from ..runtime.policy.consistency import check_names, check_prices
from ..runtime.policy.policy import Policy
from ..runtime.schema.answer_type import AnswerType
from ..runtime.tools.agents import agent_tool
from ..runtime.tools.contract import Tool
from ..runtime.tools.loader import load_module
from ..runtime.tools.project_modules import project_modules
from .task_file import ProfileFile

if TYPE_CHECKING:
    from .tasks import Task


class AgentFile:
    """A file that says what an agent is made with.

    Attributes:
        root: The project.
        document: The file as it was read.
        file: The path of the file, relative to the project.
        digest: SHA-256 of its data in canonical JSON.
        spec: What it says.
        shared: Policies and tools that other files of the project have in common with it.
    """

    def __init__(self, root: Path, document: TypedDocument[Any], shared: dict[Any, Any]) -> None:
        self.root, self.document, self.shared = root, document, shared
        self.file, self.digest, self.spec = document.name, document.digest, document.value

    def error(self, pointer: str, message: str, remedy: str) -> InputError:
        """Return an error at the place of a JSON Pointer into the file."""
        return self.document.error(pointer, message, remedy)

    def inside(self, pointer: str, path: str, *, is_folder: bool = False) -> Path:
        """Return a path of the project. Raises TaskError for one that leads out of it, or where there is none."""
        if "\0" in path or not Path(os.path.realpath(self.root / path)).is_relative_to(self.root):
            raise self.error(pointer, "is outside of the project", "name a path inside it")
        if not (os.path.isdir if is_folder else os.path.isfile)(self.root / path):
            kind = "folder" if is_folder else "file"
            raise self.error(pointer, f"there is no {kind} {path[:80]!a}", "name one of the project")
        return self.root / path

    @cached_property
    def policy(self) -> Policy:
        """Its policy. Raises InputError."""
        return self._policy("policy", self.spec.policy.file)

    @property
    def instructions(self) -> str:
        """Its instructions, with the values of variables. Raises InputError for one that has none."""
        spec, name = self.spec, r"\{\{ *([A-Za-z0-9_]+) *\}\}"
        try:
            return re.sub(name, lambda match: str(spec.variables[match[1]]), spec.instructions)
        except KeyError as error:
            raise self.error("/instructions", f"has no variable {error}", "add it to variables") from None

    @cached_property
    def plan(self) -> Policy | None:
        """Its policy until a person has allowed a plan. Raises InputError."""
        return None if self.spec.plan is None else self._policy("plan", self.spec.plan.file)

    @property
    def own_policies(self) -> list[Policy]:
        """Its policy, and that until a plan is allowed, where it has one."""
        return [self.policy] if self.plan is None else [self.policy, self.plan]

    def _policy(self, key: str, file: str) -> Policy:
        if not file:
            raise self.error(f"/{key}", f"names no {key}", f"add {key}: {{file: policy/NAME.yaml}}")
        path = self.inside(f"/{key}/file", file)
        if file not in self.shared:
            self.shared[file] = Policy.load(path, name=file)
        return self.shared[file]  # type: ignore[no-any-return]

    @cached_property
    def output(self) -> AnswerType | None:
        """The type of its answer. Raises InputError."""
        if self.spec.output_schema is None:
            return None
        try:
            return AnswerType(self.spec.output_schema)
        except InputError as error:
            raise self.error("/output_schema", error.message, "write the JSON Schema of an object") from None

    @cached_property
    def _hooks(self) -> dict[str, tuple[Hooks, dict[str, str]]]:
        """By file, its hooks, and path and digest of what they were read from. Raises ToolError."""
        found = {}
        for n, file in enumerate(self.spec.hooks):
            self.inside(f"/hooks/{n}", file)
            module, source = load_module(file, self.root)
            known = {name: getattr(module, name) for name in Hooks.__struct_fields__ if hasattr(module, name)}
            if not known:
                raise self.error(f"/hooks/{n}", "the module has no hook", f"define one of {', '.join(HOOKS)}")
            sources = {file: digest(source), **project_modules(source, self.root)}
            found[file] = (Hooks(Path(file).stem, **known), sources)
        return found

    @property
    def files(self) -> Mapping[str, str]:
        """Path and digest of its file, of its hooks and of its policy for a plan."""
        files = {self.file: self.digest, **dict(self.plan.files if self.plan else ())}
        for _, sources in self._hooks.values():
            files |= sources
        return files

    def gates(self, tools: Sequence[Tool]) -> Gates:
        """Return its gate over some tools, and one over these and those of all agents below. Raises InputError."""
        for policy in self.own_policies:
            if known := tool_names(self.root, {name for _, name in policy.tools_named()}):
                check_names(policy, known)
        return gates_of(self.policy, self.plan, tools)

    def made_with(self, gates: Gates, models: Sequence[Model], question: str) -> RunSpec:
        """Return what the agent is made with; a live model is told the type of its answer."""
        choices = [choice_of(it) for it in models]
        for policy in self.own_policies:
            check_prices(policy, (choice.name for choice in choices))
        words = [self.instructions] if self.instructions else []
        if self.output is not None and choices[0].name.path == "live":
            words.append(self.output.instructions())
        return RunSpec(
            "",
            question,
            gates,
            models,
            "\n\n".join(words),
            hooks=[hooks for hooks, _ in self._hooks.values()],
            output=self.output,
            output_retries=self.spec.output_retries,
            window=self.spec.window,
        )


def read_profile(root: Path, name: str) -> TypedDocument[ProfileFile]:
    """Read the file of a profile. Raises TaskError."""
    label = f"{PROFILES}/{name}.yaml"
    return read_document(root / label, label, ProfileFile, TaskError)


class Profile(AgentFile):
    """A profile, as a task starts it.

    Args:
        name: Its name.
        team: The task.
        named_by: The file that names it, and where.

    Attributes:
        name: Its name.
        tool: The tool whose calls start it.

    Raises:
        InputError: There is no such profile, or it is none.
    """

    def __init__(self, name: str, team: Task, named_by: tuple[AgentFile, str]) -> None:
        above, pointer = named_by
        known = profile_names(above.root)
        if name not in known:
            remedy = did_you_mean(name, known, f"write {PROFILES}/{name}.yaml")
            raise above.error(pointer, f"there is no profile {name[:80]!a}", remedy)
        super().__init__(above.root, read_profile(above.root, name), above.shared)
        self._team = team
        self.tool = agent_tool(name, self.spec.description, self)
        self.name = name

    @cached_property
    def handing_over(self) -> Tool:
        """The tool whose calls hand over to it. Raises ToolError."""
        return agent_tool(f"to_{self.name}", self.spec.description, self, hands_over=True)

    @cached_property
    def staying(self) -> Tool:
        """The tool whose calls start it as a team mate, or tell it more. Raises ToolError."""
        return agent_tool(self.name, self.spec.description, self, stays=True)

    @cached_property
    def tools(self) -> list[Tool]:
        """Its tools, with those that start agents. Raises InputError."""
        return self._team.tools_of(self)

    @cached_property
    def _gates(self) -> Gates:
        return self.gates(self.tools)

    def start(self, place: str, arguments: dict[str, Any]) -> RunSpec:
        """Return what the agent is made with that a call starts, given its place in the run and the arguments."""
        models = self._team.models_at(place, self.spec.model)
        return self.made_with(self._gates, models, arguments.get("task", ""))
