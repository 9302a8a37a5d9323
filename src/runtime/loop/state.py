"""What a run is, what it carries from step to step, and a step's ledger line under way."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final

from ...fail.catalog import Classification, verdict
from ..core.effects import Call, Effect, Ending, Event, Outcome, Reply
from ..models.types import History, ToolSpec
from ..policy.gate import Counters, Decision, Gate
from .retry import Schedule

RunGenerator = Generator[Effect | Event, Outcome, Ending]
StepGenerator = Generator[Effect | Event, Outcome, Classification]

CONTINUE: Final = Classification(None, None)


@dataclass(frozen=True)
class RunSpec:
    """Everything that decides how a run goes, save the outcomes."""

    run_id: str
    question: str
    seed: int
    gate: Gate
    schedule: Schedule
    specs: tuple[ToolSpec, ...]

    @property
    def on_deny(self) -> str:
        return self.gate.policy.on_deny


class RunState:
    """What a run carries from step to step."""

    def __init__(self, run: RunSpec) -> None:
        self.run = run
        self.index = 0
        self.counters = Counters()
        self.history = History()
        self.history.add({"role": "user", "content": run.question})
        self.known_inputs: set[tuple[str, str]] = set()
        # an answer that was cut off, piece by piece
        self.pieces: list[str] = []
        # key of a refused call -> the decision that refused it
        self.refused: dict[bytes, dict[str, Any]] = {}

    def verdict(self, what: str) -> Classification:
        return verdict(what, self.run.on_deny)

    def notice(self) -> tuple[str | None, tuple[ToolSpec, ...]]:
        """What the model is to be told before the next step (a key of NOTICES), and the tools it is offered."""
        policy = self.run.gate.policy
        limit = policy.limits["max_iterations"]
        left = limit - self.counters.iterations
        if left == 1 and policy.wrap_up:
            return "last", ()
        if self.pieces:
            return "go_on", self.run.specs
        return "two_left" if left == 2 < limit else None, self.run.specs

    def tell(self, call: Call, content: str) -> None:
        """Let the model read what came of a call; `content` is JSON text."""
        self.history.add({"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content})


class StepBuilder:
    """One step under way: its ledger line grows here, without stamps."""

    def __init__(self, state: RunState) -> None:
        self.state = state
        self.index = state.index
        self.reply: Reply | None = None
        self.pending: list[Call] = []
        self.mode: str | None = None
        # a result that does not fit the byte budget: its denial, its size
        self.oversized: tuple[Decision, int] | None = None
        self.record: dict[str, Any] = {
            "type": "step",
            "run_id": state.run.run_id,
            "step_index": state.index,
            "llm_input": None,
            "llm_attempts": [],
            "llm_output": None,
            "intended_tool_calls": [],
            "policy_decisions": [],
            "tool_results": [],
            "errors": [],
            "failure_mode": None,
            "usage": {"input_tokens": 0, "output_tokens": 0, "estimated": False},
        }

    def note_error(self, position: str, what: dict[str, Any]) -> None:
        self.record["errors"].append({"position": position, **what})

    def close(self, found: Classification) -> None:
        for call in self.pending:
            self.record["tool_results"].append(
                {"id": call.id, "name": call.name, "status": "not_reached", "result": None, "attempts": []}
            )
        self.record["failure_mode"] = found.mode or self.mode
