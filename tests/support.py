"""What tests of runs share: small policies, tools and scripted models, a whole run in one call, and what
every record must satisfy whatever happened in the run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import jsonschema_rs

from tachograph.evidence.files.rebuild import rebuild
from tachograph.fail.catalog import ENDINGS, MODES
from tachograph.runtime.agent import Agent
from tachograph.runtime.core.clock import VirtualClock
from tachograph.runtime.core.effects import AskHuman
from tachograph.runtime.journal import ledger
from tachograph.runtime.journal.cassette import Cassette, ReplayExecutor
from tachograph.runtime.journal.recorded_clock import RecordedClock, call_index, grouped_calls
from tachograph.runtime.models.types import LLMInput, LLMOutput, ToolCall
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.setup.run_config import RunResult
from tachograph.runtime.tools.contract import Tool
from tachograph.tracing.spans import Span, spans_of

ROOT = Path(__file__).resolve().parent.parent
CANONICAL = "runs/canonical/v1"
TASK = "tasks/canonical/v1.yaml"
COPIED = ("src", "policy", "tools", "data", "tasks", "runs")
FILES = ("state.jsonl", "trace.json", "run_report.md", "manifest.json")

# ---- material ------------------------------------------------------------------------------------------

URL = "https://good.test/page.md"


def policy_data(**sections: Any) -> dict[str, Any]:
    """A policy for `tool()` and `tool("echo")`; a section given as None is left out."""
    data: dict[str, Any] = {
        "schema": "policy/v1",
        "tool_registry": {"allowed": ["probe", "echo"], "denied": ["write"]},
        "url_allowlist": ["https://good.test/"],
        "sandbox": {"mounts": {"box": "write", "books": "read"}},
        "loop_budget": {
            "max_iterations": 6,
            "max_tokens": 50_000,
            "max_tool_calls": 20,
            "max_result_bytes": 10_000,
        },
        "cycle_detection": {"max_repeats": 3},
        "retry": {"max_retries": 2, "backoff_base_ms": 100, "backoff_cap_ms": 2000},
        "on_deny": "terminate",
    }
    for name, value in sections.items():
        if value is None:
            data.pop(name, None)
        elif isinstance(value, dict) and isinstance(data.get(name), dict):
            data[name] = {**data[name], **value}
        else:
            data[name] = value
    return data


INPUT = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "n": {"type": "integer", "maximum": 9},
        "url": {"type": "string", "x-resource": "url"},
        "path": {"type": "string", "x-resource": "path:read"},
        "target": {"type": "string", "x-resource": "path:write"},
    },
}
OUTPUT = {"type": "object", "additionalProperties": False, "properties": {"said": {"type": "string"}}}


def tool(
    name: str = "probe",
    run: Callable[[dict[str, Any], Any], Any] = lambda args, io: {"said": "ok"},
    *,
    effect: str = "network",
    idempotent: bool = True,
    transient: tuple[type[BaseException], ...] = (ConnectionError,),
    output: Mapping[str, Any] = OUTPUT,
) -> Tool:
    return Tool(
        name=name,
        description=f"the tool {name}",
        input_schema=INPUT,
        output_schema=output,
        effect=effect,
        idempotent=idempotent,
        run=run,
        transient=transient,
    )


def failing(*errors: BaseException, then: Any = None) -> Callable[[dict[str, Any], Any], Any]:
    """A tool's `run` that raises the errors in turn and returns `then` afterwards."""
    left = list(errors)

    def run(args: dict[str, Any], io: Any) -> Any:
        if left:
            raise left.pop(0)
        return {"said": "ok"} if then is None else then

    return run


def ask(*calls: ToolCall, **more: Any) -> LLMOutput:
    return LLMOutput(tool_calls=list(calls), finish_reason=more.pop("finish_reason", "tool_calls"), **more)


def probe(name: str = "probe", **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments)


def answer(text: str = "done", **more: Any) -> LLMOutput:
    return LLMOutput(final_answer=text, finish_reason=more.pop("finish_reason", "stop"), **more)


class Script:
    """A model that says its replies in turn; an exception is raised, a callable is called. It keeps what it
    was asked and fails when it runs out."""

    identity: ClassVar = {"execution_path": "stub", "provider": "stub", "name": "test", "script_digest": None}

    def __init__(self, replies: Iterable[Any]) -> None:
        self.replies = list(replies)
        self.heard: list[list[dict[str, Any]]] = []

    def __call__(self, asked: LLMInput) -> Any:
        self.heard.append(list(asked.messages))
        assert self.replies, "the script ran out"
        reply = self.replies.pop(0)
        if isinstance(reply, BaseException):
            raise reply
        return reply(asked) if callable(reply) else reply

    def told(self) -> list[dict[str, Any]]:
        """The tool messages of the last request."""
        return [message for message in self.heard[-1] if message["role"] == "tool"]


# ---- a whole run ---------------------------------------------------------------------------------------


@dataclass
class Ran:
    """A run that went through `Agent.execute`, and what its ledger says."""

    result: RunResult
    state: bytes
    model: Script | None
    lines: list[dict[str, Any]] = field(init=False)
    spans: list[Span] = field(init=False)

    def __post_init__(self) -> None:
        self.lines, self.spans = well_formed(self.state)

    @property
    def steps(self) -> list[dict[str, Any]]:
        return self.lines[1:-1]

    @property
    def end(self) -> dict[str, Any]:
        return self.lines[-1]

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    @property
    def decisions(self) -> list[dict[str, Any]]:
        return [decision for step in self.steps for decision in step["policy_decisions"]]

    @property
    def results(self) -> list[dict[str, Any]]:
        return [result for step in self.steps for result in step["tool_results"]]


def perform(
    replies: Iterable[Any] | Callable[[LLMInput], Any],
    tools: Sequence[Tool] = (),
    policy: Mapping[str, Any] | None = None,
    *,
    approve: Callable[[AskHuman], Any] | None = None,
    listeners: Iterable[Any] = (),
    mounts: Mapping[str, Any] | None = None,
    hosts: Mapping[str, Any] | None = None,
    seed: int = 0,
    clock: Any = None,
    before: Callable[[Agent], None] = lambda agent: None,
) -> Ran:
    """A run of a script with `probe` and `echo`, checked for what every record must satisfy."""
    given = {item.name: item for item in (tool(), tool("echo"), *tools)}
    model = replies if callable(replies) else Script(replies)
    agent = Agent(
        model,
        list(given.values()),
        Policy.from_dict(policy_data() if policy is None else policy),
        mounts=mounts,
        hosts=hosts,
    )
    before(agent)
    config = agent.configure_run(
        "What now?", run_id="test-run", seed=seed, approve=approve, clock=clock or VirtualClock()
    )
    texts: list[str] = []
    result = agent.execute(config, listeners=listeners, on_line=lambda _line, text: texts.append(text))
    state = "".join(f"{text}\n" for text in texts).encode()
    ran = Ran(result, state, model if isinstance(model, Script) else None)
    assert replay_of(agent, ran.lines) == texts
    return ran


LINES = ledger.ledger_schema()
_FITS = jsonschema_rs.validator_for(LINES)


def misfits(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """What of ledger lines does not fit their JSON Schema."""
    return [error.message for line in lines for error in _FITS.iter_errors(line)]


def replay_of(agent: Agent, lines: list[dict[str, Any]]) -> list[str]:
    """The ledger that a run gives when every effect is answered from its ledger."""
    clock = RecordedClock.of(lines)
    cassette = Cassette.of(lines[1:-1])
    config = agent.configure_run(
        lines[0]["question"], run_id=lines[0]["run_id"], seed=lines[0]["seed"], clock=clock
    )
    texts: list[str] = []
    agent.execute(
        replace(
            config,
            executor=ReplayExecutor(cassette, clock),
            as_recorded=True,
            nonce=lines[0].get("nonce", ""),
        ),
        on_line=lambda _line, text: texts.append(text),
    )
    assert cassette.unused() is None
    return texts


# ---- what holds for every record -----------------------------------------------------------------------


def well_formed(state: bytes) -> tuple[list[dict[str, Any]], list[Span]]:
    """The lines and spans of a ledger that is sound in itself; fails where it is not."""
    lines = list(ledger.read(state, "state.jsonl"))
    assert misfits(lines) == []
    spans = spans_of(lines)
    _no_floats(state)
    rebuild(state, "state.jsonl")
    _endings(lines)
    _totals(lines)
    _stamps(lines)
    _tree(spans)
    _governed(lines, spans)
    return lines, spans


def _no_floats(state: bytes) -> None:
    """A step line is encoded without a look at floats, which have more than one spelling: it holds none of ours.

    What a model or a tool gave may hold some; it is encoded strictly before it enters a line.
    """

    def refuse(text: str) -> float:
        raise AssertionError(f"a float in a step line: {text}")

    for line in state.splitlines()[1:-1]:
        step = json.loads(line)
        (step["llm_output"] or {}).pop("raw", None)
        for call in step["intended_tool_calls"]:
            call.pop("arguments", None)
        for result in step["tool_results"]:
            result.pop("result", None)
            for attempt in result["attempts"]:
                attempt.pop("returned", None)
        json.loads(json.dumps(step), parse_float=refuse)


def _endings(lines: list[dict[str, Any]]) -> None:
    end, steps = lines[-1], lines[1:-1]
    assert end["terminal_reason"] in ENDINGS
    assert end["lines"] == len(lines)
    assert [step["step_index"] for step in steps] == list(range(1, len(steps) + 1))
    for step in steps:
        assert step["failure_mode"] is None or step["failure_mode"] in MODES
        assert len(step["tool_results"]) == len(step["intended_tool_calls"])
    assert end["failure_mode"] is None or end["failure_mode"] == steps[-1]["failure_mode"]
    assert (end["terminal_reason"] == "final_answer") == (end["final_answer"] is not None)
    if end["terminal_reason"] == "failure_mode_terminal":
        assert end["failure_mode"] is not None


def _totals(lines: list[dict[str, Any]]) -> None:
    totals = ledger.Totals()
    for step in lines[1:-1]:
        totals.add(step)
    assert totals.to_dict() == lines[-1]["totals"]


def _stamps(lines: list[dict[str, Any]]) -> None:
    """Strictly increasing over the run; only late checks lie inside another stretch, that of their attempt.

    Calls of a group overlap: theirs increase within a call, lie after what was before the group, and before what
    comes after it.
    """
    last = -1
    for step in lines[1:-1]:
        grouped = grouped_calls(step)
        own: dict[int | None, list[int]] = {index: [] for index in (None, *grouped)}
        main = last
        for position, (begun, ended) in sorted(step["stamps"].items(), key=lambda item: item[1]):
            assert type(begun) is int and begun < ended
            index = call_index(position) if call_index(position) in grouped else None
            if ".c" in position:
                around = step["stamps"][position.rpartition(".c")[0]]
                assert around[0] < begun and ended < around[1]
            else:
                assert begun > main if index is None or not own[index] else begun > own[index][-1]
                own[index] += [begun, ended]
                main = ended if index is None else main
                last = max(last, ended)
        numbers = [
            at
            for position, pair in step["stamps"].items()
            for at in pair
            if call_index(position) not in grouped
        ]
        assert len(numbers) == len(set(numbers))
    assert lines[-1]["stamp"] > last


def _tree(spans: list[Span]) -> None:
    by_id = {span.span_id: span for span in spans}
    assert len(by_id) == len(spans)
    assert len({span.trace_id for span in spans}) == 1
    assert [span.name for span in spans if span.parent_id is None] == ["agent_run"]
    for span in spans:
        assert span.start_ns < span.end_ns
        assert "agent.run_id" in span.attributes
        if span.parent_id is not None:
            parent = by_id[span.parent_id]
            assert parent.start_ns <= span.start_ns and span.end_ns <= parent.end_ns, (parent, span)


def _governed(lines: list[dict[str, Any]], spans: list[Span]) -> None:
    """No tool call without an allow before it; every decision has its span; a refused call has no tool_call."""
    steps = lines[1:-1]
    assert sum(span.name == "agent_step" for span in spans) == len(steps)
    checks = [span for span in spans if span.name == "policy_check"]
    assert len(checks) == sum(len(step["policy_decisions"]) for step in steps)
    said = {
        span.attributes["agent.tool_call_id"]: span
        for span in checks
        if span.attributes["agent.policy.phase"] == "proposal"
    }
    called = set()
    for span in spans:
        if span.name == "tool_call":
            call = span.attributes["gen_ai.tool.call.id"]
            assert said[call].attributes["agent.policy.decision"] == "allow"
            assert said[call].end_ns <= span.start_ns
            called.add(call)
    for step in steps:
        for result in step["tool_results"]:
            assert (result["id"] in called) == bool(result["attempts"])
            assert (result["status"] == "not_reached") <= (not result["attempts"])


# ---- the project, copied and run -----------------------------------------------------------------------


def copy_project(to: Path) -> Path:
    """A copy of what a run and its check need, without `.git`."""
    to.mkdir(parents=True)
    for name in COPIED:
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__", "*.partial"))
    (to / "tachograph").symlink_to("src")
    return to


def cli(
    *arguments: str | os.PathLike[str],
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    python: Sequence[str] = (sys.executable,),
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """`python -m tachograph ...` in `cwd`, whose own package is the one that runs."""
    command = [*python, "-m", "tachograph", *map(os.fspath, arguments)]
    settings: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 60, "check": False}
    return subprocess.run(command, cwd=cwd, env=environment(env), **{**settings, **options})


def attend_to_ctrl_c() -> None:
    """Undo that a job in the background ignores SIGINT, for a child process or for the tests themselves."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(more or {})}


def tree(folder: Path) -> dict[str, tuple[bytes, int] | None]:
    """Every file below `folder` with its bytes and its time of change; folders and links count too."""
    found: dict[str, tuple[bytes, int] | None] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if "__pycache__" not in name:
            plain = path.is_file() and not path.is_symlink()
            found[name] = (path.read_bytes(), path.stat().st_mtime_ns) if plain else None
    return found


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The single line of complaint of a command that refused its input."""
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    (line,) = done.stderr.splitlines()
    assert line.startswith("tachograph: ")
    return line
