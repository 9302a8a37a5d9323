"""Runs to measure: as many steps as wanted, one call a step, every call and every result different."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tachograph import Agent, LLMInput, LLMOutput, Policy, Tool, ToolCall, VirtualClock
from tachograph.evidence.recording.record import record_run

RESULT_BYTES = 800
# a result of this size makes a ledger line of 1.5 kB
SMALL_BYTES = 280
MANY = 1_000_000_000

_OUTPUT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["text"],
    "properties": {"text": {"type": "string", "maxLength": 8000}},
}


def text(n: int, size: int) -> str:
    """Text that makes a result of `size` bytes."""
    head = f"document {n}: "
    return head + "a" * (size - len('{"text":""}') - len(head))


def _count(arguments: dict[str, Any], _io: Any) -> dict[str, Any]:
    return {"text": text(arguments["number"], RESULT_BYTES)}


def _read(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
    return {"text": io.read(arguments["path"])}


def _tool(name: str, effect: str, properties: dict[str, Any], run: Any) -> Tool:
    properties = {**properties, "note": {"type": "string", "maxLength": 200}}
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }
    return Tool(name, "A tool to measure with.", schema, _OUTPUT, effect, True, run)


PURE = _tool("count", "pure", {"number": {"type": "integer", "minimum": 0}}, _count)
READ = _tool("read", "read", {"path": {"type": "string", "maxLength": 512, "x-resource": "path:read"}}, _read)


class Model:
    """Calls one tool a step, with arguments that no other step has, and answers at the end."""

    def __init__(self, tool: str, steps: int) -> None:
        self._tool = tool
        self._steps = steps
        self.identity = {
            "execution_path": "stub",
            "provider": "stub",
            "name": "bench",
            "script_digest": None,
        }

    def __call__(self, asked: LLMInput) -> LLMOutput:
        n = asked.step_index
        usage = {"input_tokens": 100, "output_tokens": 20}
        if n >= self._steps:
            return LLMOutput(final_answer="done", usage=usage, finish_reason="stop", model="bench")
        call = ToolCall(self._tool, f'{{"{self.field}":{self.argument(n)},"note":"step {n} of a run"}}')
        return LLMOutput("I go on.", [call], usage=usage, finish_reason="tool_calls", model="bench")

    @property
    def field(self) -> str:
        return "path" if self._tool == "read" else "number"

    def argument(self, n: int) -> str:
        return f'"corpus/{name(n)}"' if self._tool == "read" else str(n)


def name(n: int) -> str:
    """Return the name of a file of the corpus, two folders down."""
    return f"documents/{n % 10}/page-{n}.md"


def corpus(folder: Path, files: int) -> Path:
    for n in range(files):
        place = folder / name(n)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text(n, SMALL_BYTES), encoding="utf-8")
    return folder


def policy(redact: Mapping[str, Any] | None = None) -> Policy:
    """Return a policy that stands in no run's way; `redact` is its section of that name, absent without one."""
    return Policy.from_dict(
        {
            **({} if redact is None else {"redact": redact}),
            "schema": "policy/v1",
            "tool_registry": {"allowed": ["count", "read"]},
            "sandbox": {"mounts": {"corpus": "read"}},
            "loop_budget": {
                "max_iterations": 1_000_000,
                "max_tokens": MANY,
                "max_tool_calls": 1_000_000,
                "max_result_bytes": MANY,
            },
            "cycle_detection": {"max_repeats": 1_000_000},
        }
    )


class Runs:
    """Records runs into fresh folders below `folder`."""

    def __init__(
        self,
        folder: Path,
        tool: str = "count",
        mount: Path | None = None,
        redact: Mapping[str, Any] | None = None,
    ) -> None:
        self._folder = folder
        self._redact = redact
        self._tool = tool
        self._mount = mount
        self._fresh = itertools.count()

    def agent(self, steps: int) -> Agent:
        mounts = {} if self._mount is None else {"corpus": self._mount}
        return Agent(Model(self._tool, steps), [PURE, READ], policy(self._redact), mounts=mounts)

    def record(self, steps: int) -> Path:
        """One run of `steps` steps as four files; returns their folder."""
        out = self._folder / f"run-{next(self._fresh)}"
        agent = self.agent(steps)
        result = record_run(agent, agent.configure_run("How far?", run_id="bench", clock=VirtualClock()), out)
        assert result.ok, result
        return out
