"""Read task files, one per scenario, and turn them into an agent and a run's configuration.

The project root is the nearest folder at or above the task that holds `policy/`. Every path in a task is
relative to it and must stay inside; recorded paths are relative to it too, with `/`.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...fail.errors import InputError, TaskError, system_reason
from ...light_dataclasses import dataclass, field, replace
from ...runtime.agent import Agent
from ...runtime.core.clock import DEFAULT_START, VirtualClock
from ...runtime.core.effects import Answer, AskHuman
from ...runtime.core.run_ids import new_run_id
from ...runtime.formats.document_digest import digest_of_data
from ...runtime.formats.escape import quote_literal
from ...runtime.formats.read_file import NotPlain, read_plain
from ...runtime.formats.shipped_files import project_root, relative_to_root
from ...runtime.formats.strict_yaml import Document, YamlError
from ...runtime.formats.strict_yaml import load as load_yaml
from ...runtime.loop.state import MAX_PARALLEL
from ...runtime.models.scripted import Stub
from ...runtime.models.types import Model
from ...runtime.policy.consistency import check_addresses
from ...runtime.policy.policy import Policy
from ...runtime.schema.output_type import OutputType
from ...runtime.schema.schema_errors import DocumentValidator, first_problem
from ...runtime.setup.run_config import RunConfig
from ...runtime.tools.loader import load_named, names_in
from ...runtime.workspace.mounts import Host, Mount
from ...runtime.workspace.workspace import Workspace
from .faults import fault_injector
from .named_files import folder_inside, hooks_of, instructions_of, output_of, policy_of
from .openings import opening_from
from .unreadable import not_a_file, unreadable
from .values import check_values, live_problem

_SCHEMA = Path(__file__).with_name("task.v1.schema.json")
_MAX_BYTES = 8 << 20
OTHER_SUFFIXES = (".yml", ".yaml")  # in any case; a task with such a name would have no run


@dataclass(frozen=True)
class Task:
    """A loaded task.

    Attributes:
        root: The project root.
        file: Path of the task file, relative to `root`.
        digest: SHA-256 of its content in canonical JSON.
        data: Its content.
        document: The parsed YAML, which knows the place of each value.
    """

    root: Path
    file: str
    digest: str
    data: Mapping[str, Any]
    document: Document = field(repr=False)

    @property
    def id(self) -> str:
        """`KIND-NAME`."""
        return str(self.data["id"])

    @property
    def kind_and_name(self) -> tuple[str, str]:
        """The two parts of the id."""
        kind, _, name = self.id.partition("-")
        return kind, name

    @property
    def rejected(self) -> Path:
        """Where a run is kept that misses what the task expects."""
        return self.root / ".tachograph" / "rejected" / "-".join(self.kind_and_name)

    @property
    def seed(self) -> int:
        """The seed of the jitter of waits."""
        return int(self.data.get("seed", 0))

    @property
    def is_scripted(self) -> bool:
        """Whether a script stands in for a model: the task's, or that of its agent in code."""
        return "llm" in self.data or (self.agent is not None and self.live is None)

    @property
    def agent(self) -> str | None:
        """The agent in code, `package.module:name`; None for a task that says what its agent consists of."""
        return self.data.get("agent")

    @property
    def run_id(self) -> str:
        """`KIND-NAME-sSEED`, without the policy: a policy edit changes the run, not its name."""
        return f"{self.id}-s{self.seed}"

    @property
    def expected(self) -> Mapping[str, Any]:
        """What the task expects of its run; empty if nothing."""
        expected: Mapping[str, Any] = self.data.get("expected", {})
        return expected

    @property
    def live(self) -> Mapping[str, Any] | None:
        """Which live models may answer in place of a script, and what such a run must meet; None if none may."""
        return self.data.get("live")

    @property
    def people(self) -> Mapping[str, Any] | None:
        """What a run must meet in which a person answers instead of `approvals`; None if nobody may."""
        return self.data.get("people")

    @property
    def script_digest(self) -> str | None:
        """The digest of the task's script as records state it; None without one."""
        return None if "llm" not in self.data else str(_stub(self).identity["script_digest"])

    def error(self, pointer: str, message: str, remedy: str | None = None) -> TaskError:
        """Return a TaskError at the place of a JSON Pointer into the task."""
        line, column = self.document.at(pointer)
        return TaskError(message, file=self.file, line=line, column=column, remedy=remedy)


def load_task(path: str | Path, *, root: str | Path | None = None) -> Task:
    """Read a task file.

    Args:
        path: The file.
        root: The project root, unless it is found above the file.

    Raises:
        TaskError: The file is not a valid task; the error has file, line and column.
    """
    source = Path(path)
    if source.suffix != ".yaml" and source.suffix.lower() in OTHER_SUFFIXES:
        raise TaskError(
            f"the name of a task ends in .yaml, not {source.suffix}",
            file=str(path),
            remedy=f"rename it to {source.stem}.yaml",
        )
    try:
        text = read_plain(source, _MAX_BYTES)
    except NotPlain:
        raise not_a_file(source) from None
    except OSError as error:
        raise unreadable(source, error) from None
    base = Path(root) if root is not None else project_root(source.resolve().parent)
    if base is None:
        raise TaskError(
            "no folder at or above it holds policy/",
            file=str(path),
            remedy="move it into a project or give --root",
        )
    return parse_task(source, base, relative_to_root(source, base), text)


@lru_cache(maxsize=16)
def parse_task(source: Path, base: Path, name: str, text: bytes) -> Task:
    """Return the task in the bytes of a file. Raises TaskError.

    Cached, since many runs of one check may come from the same task.
    """
    try:
        document = load_yaml(text, name, max_bytes=_MAX_BYTES)
    except YamlError as error:
        raise TaskError(error.message, file=name, line=error.line, column=error.column) from None
    mismatch = first_problem(_validator(), document.data, "the task", document.place)
    if mismatch is not None:
        line, column = document.place(mismatch.pointer, mismatch.of_value)
        message, remedy = mismatch.message, mismatch.remedy
        if mismatch.pointer == "/id" and isinstance(document.data["id"], str):
            message = f"id must be KIND-NAME, not {quote_literal(document.data['id'])}"
            remedy = _id_remedy(source)
        raise TaskError(message, file=name, line=line, column=column, remedy=remedy)
    task = Task(base, name, digest_of_data(document.data, text), document.data, document)
    check_values(task)
    return task


def _id_remedy(source: Path) -> str:
    """Return what to write as the id of a task file: `KIND-NAME` for `tasks/KIND/NAME.yaml`."""
    expected = f"{source.resolve().parent.name}-{source.stem}"
    fits = re.match(_validator().schema["properties"]["id"]["pattern"], expected)
    return f"write {expected}" if fits else "write lower-case letters, digits and '_', such as canonical-v1"


@lru_cache(maxsize=1)
def _validator() -> DocumentValidator:
    return DocumentValidator(json.loads(_SCHEMA.read_text(encoding="utf-8")))


def build(
    task: Task,
    *,
    model: Model | None = None,
    policy: Policy | None = None,
    variables: Mapping[str, str] | None = None,
    principal: str | None = None,
) -> tuple[Agent, RunConfig]:
    """Build the agent of a task and the configuration of its run.

    Args:
        task: The task.
        model: Replaces the task's script. The run is then on the system clock, under a new id, without the
            task's faults.
        policy: Replaces the task's policy, to see what it would decide.
        variables: Values that stand in place of the task's, where the instructions name them.
        principal: On whose behalf the run acts, in place of the task's principal.

    Raises:
        InputError: Policy, tools, mounts and hosts do not fit together.
    """
    data = task.data
    modules: tuple[dict[str, str], ...] = ()
    files: dict[str, dict[str, str] | None] = {}
    if task.agent is None:
        instructions, files["instructions"] = instructions_of(task)
        output, files["output"] = output_of(task)
        agent = _agent_of_parts(task, model, policy, instructions, output)
    else:
        agent, modules = _agent_in_code(task, model, policy)
    opening = opening_from(task, agent, variables or {})
    opening["principal"] = data.get("principal") if principal is None else principal
    task_entry = {"id": task.id, "path": task.file, "sha256": task.digest}
    if model is not None or agent.identity["execution_path"] != "stub":
        live = agent.configure_run(
            data["question"],
            **opening,
            seed=task.seed,
            run_id=new_run_id(task.id, task.seed),
            approve=_ScriptedAnswers(data["approvals"]) if "approvals" in data else None,
            task=task_entry,
            prepare=lambda workspace: _prepare(task, workspace),
        )
        return agent, _with_limits(live, data, modules, files)
    times = data.get("clock", {})
    clock = VirtualClock(times.get("start", DEFAULT_START), times.get("costs_ms"))
    config = agent.configure_run(
        data["question"],
        **opening,
        seed=task.seed,
        run_id=task.run_id,
        clock=clock,
        approve=_ScriptedAnswers(data.get("approvals", ())),
        task=task_entry,
        prepare=lambda workspace: _prepare(task, workspace),
        inject=fault_injector(task.data.get("faults", ()), task.error, clock),
    )
    config = replace(config, cancelled_at_ms=data.get("cancelled_at_ms"))
    return agent, _with_limits(config, data, modules, files)


def _with_limits(
    config: RunConfig,
    data: Mapping[str, Any],
    modules: tuple[dict[str, str], ...],
    files: Mapping[str, dict[str, str] | None],
) -> RunConfig:
    """Return a configuration with what the task says of the run's end, and the files that its agent is made from."""
    on_signal = data.get("on_signal", config.on_signal)
    opening = replace(config.opening, file=files.get("instructions"))
    config = replace(config, opening=opening, output_file=files.get("output"))
    return replace(config, deadline_s=data.get("deadline_s"), on_signal=on_signal, modules=modules)


def _agent_in_code(
    task: Task, model: Model | None, policy: Policy | None
) -> tuple[Agent, tuple[dict[str, str], ...]]:
    """Return the agent that a task names in code, and the modules that it is made by."""
    from .code.agent import load_code_agent  # for few tasks

    assert task.agent is not None
    loaded = load_code_agent(
        task.agent, task.root, lambda message, remedy: task.error("/agent", message, remedy)
    )
    agent = loaded.with_parts(task.root, model, policy)
    check_addresses(agent.policy, agent.hosts)
    if model is None:
        problem = live_problem(task, agent.identity)
        if problem is not None:
            raise task.error("/agent", *problem)
    return agent, loaded.modules


def _agent_of_parts(
    task: Task,
    model: Model | None,
    policy: Policy | None,
    instructions: str | None,
    output: OutputType | None,
) -> Agent:
    """Return the agent that a task describes by policy, tools, mounts, hosts and script."""
    data, policy_given = task.data, policy is not None
    policy = policy or policy_of(task)
    folder = task.root / "tools"
    names = set(names_in(folder, label="tools"))
    tools = []
    for i, name in enumerate(data["tools"]):
        try:
            tools.append(load_named(name, folder if folder.is_dir() else None))
        except InputError as error:
            if error.file == "tools":
                raise task.error(f"/tools/{i}", error.message, error.remedy) from None
            raise
    policy.check_tools(names | set(data["tools"]))
    mounts = {name: _mount(task, name, policy, policy_given) for name in data.get("mounts", {})}
    hosts = {
        name: Host(
            folder_inside(task, host["folder"], f"/hosts/{name}/folder"),
            host["folder"].rstrip("/"),
            host.get("redirects", {}),
        )
        for name, host in data.get("hosts", {}).items()
    }
    agent = Agent(
        model or _stub(task),
        tools,
        policy,
        instructions=instructions,
        mounts=mounts,
        hosts=hosts,
        output_type=output,
        known_tools=names,
        max_parallel=data.get("max_parallel", MAX_PARALLEL),
        hooks=hooks_of(task),
    )
    check_addresses(policy, hosts)
    return agent


def _mount(task: Task, name: str, policy: Policy, policy_given: bool) -> Mount:
    """Return a read-only mount of a project folder: a check runs the task again and must change nothing."""
    pointer = f"/mounts/{name}"
    if name not in policy.mounts:
        raise task.error(
            pointer, f"mount {quote_literal(name)} is not in the policy's sandbox.mounts", "declare it there"
        )
    if policy.mounts[name] == "write" and not policy_given:
        raise task.error(
            pointer,
            f"mount {name!r} is for writing, and in a task that is always a fresh private folder",
            "leave it out and put files there with setup",
        )
    place = str(task.data["mounts"][name])
    return Mount(folder_inside(task, place, pointer), place.rstrip("/"), "read")


def _stub(task: Task) -> Stub:
    if "llm" not in task.data:
        raise task.error("", "has no script", "run it with a live model: --llm PROVIDER:MODEL")
    return Stub(
        task.data["llm"]["stub"]["turns"],
        lambda pointer, message, remedy: task.error(f"/llm/stub/turns{pointer}", message, remedy),
    )


class _ScriptedAnswers:
    """Answers escalated calls as a task says, by step and call."""

    is_scripted = True  # the same in every run, which therefore needs no nonce

    def __init__(self, answers: Sequence[Mapping[str, Any]]) -> None:
        self._by_place = {(item["step"], item["call"]): item for item in answers}

    def __call__(self, question: AskHuman) -> Answer | None:
        """Return the task's answer; None for silence."""
        item = self._by_place.get((question.step, question.index))
        if item is None or item["answer"] == "silence":
            return None
        digest = "" if "given_to" in item else question.digest  # an answer serves one question only
        return Answer(item["answer"], item.get("by"), item.get("why"), digest)


def _prepare(task: Task, workspace: Workspace) -> None:
    for i, item in enumerate(task.data.get("setup", ())):
        try:
            if "link" in item:
                workspace.place_link(item["path"], item["link"])
            else:
                workspace.place(item["path"], item["text"])
        except Exception as error:  # any refusal of the workspace is an error of the task
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise task.error(
                    f"/setup/{i}", f"cannot be set up ({system_reason(error)})", "make room and run again"
                ) from error
            raise task.error(
                f"/setup/{i}", "cannot be set up", "check that the policy mounts it for writing"
            ) from error
