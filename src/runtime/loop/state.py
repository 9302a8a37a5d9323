"""What a run is, and what it carries from step to step."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final

from ...fail.catalog import Classification, FailureMode, GaveUp, Happening, classify
from ...light_dataclasses import dataclass, field
from ..core.effects import Call, Decision, Effect, Event, Group, Outcome, RunEnded
from ..core.lines import RequestPartsEntry
from ..models.request_parts import tool_set, tools_digest
from ..models.types import History, Message, ToolSpec
from ..policy.gate import Counters, Gate
from ..schema.output_type import OutputType
from .retry import Schedule

# calls of one reply that are performed together, where nobody says otherwise
MAX_PARALLEL: Final = 4

RunGenerator = Generator[Effect | Group | Event, Outcome, RunEnded]
StepGenerator = Generator[Effect | Group | Event, Outcome, Classification]


@dataclass(frozen=True)
class HookSpec:
    """What the loop knows of hooks: their name, the file that records name, and the events at which they are asked."""

    name: str
    file: str | None
    events: tuple[str, ...]

    @classmethod
    def of(cls, run: Mapping[str, Any]) -> tuple[HookSpec, ...]:
        """Return the hooks that a run line names."""
        return tuple(cls(item["name"], item["file"], tuple(item["events"])) for item in run.get("hooks", ()))


@dataclass(frozen=True)
class RunSpec:
    """Everything that decides how a run goes, except for the outcomes of its effects.

    `specs` are the tools that the model is offered; `parts` holds the digests of the other parts of each request by
    kind (`options`, `instructions`), which stay the same all run long. `max_parallel` is how many calls may be
    performed together. `instructions` is the system message, `history` what was said before the question.
    `output` is what the final answer must be, None for any text. The `hooks` are asked in this order.
    `nonce` is part of each question to a person, None where the answers are scripted. `principal` is on whose behalf
    the run acts.
    """

    run_id: str
    question: str
    seed: int
    gate: Gate
    schedule: Schedule
    specs: tuple[ToolSpec, ...]
    parts: Mapping[str, str] = field(default_factory=dict)
    max_parallel: int = MAX_PARALLEL
    instructions: str | None = None
    history: tuple[Message, ...] = ()
    output: OutputType | None = None
    hooks: tuple[HookSpec, ...] = ()
    nonce: str | None = None
    principal: str | None = None


class RunState:
    """What a run carries from step to step.

    `counters` is what has been used of the budgets, `history` what the model reads. Of what the ledger holds
    already, `known_inputs` names the files (path, SHA-256) and `known_tools` the tool sets (digest).
    `partial_answers` are the pieces of an answer that was cut off or paused, `cut_offs` counts those that were cut
    off, and `is_paused` says that the last of them was paused. `refused` holds, by the key of a call, the decision
    that refused it. `told_failures` counts the failures of which the model was told,
    `output_misses` the answers that did not fit, `sent_back` how often hooks sent the agent back.
    """

    def __init__(self, run: RunSpec) -> None:
        self.run = run
        self.index = 0
        self.counters = Counters(principal=run.principal)
        self.history = History()
        for message in run.history:
            self.history.add(message)
        self.history.add({"role": "user", "content": run.question})
        self.known_inputs: set[str] = set()
        self.known_tools = {tools_digest(run.specs)}
        self.partial_answers: list[str] = []
        self.cut_offs = 0
        self.is_paused = False
        self.refused: dict[bytes, Decision] = {}
        self.told_failures = self.output_misses = self.sent_back = 0

    def classify(self, happening: Happening, tool: str | None = None) -> Classification:
        """Return the mode and ending of a happening under the run's policy; `tool` is the one that failed.

        Counts a failure that the model is going to be told of.
        """
        policy = self.run.gate.policy
        if type(happening) is not GaveUp:
            return classify(happening, policy.on_deny)
        if happening.mode == FailureMode.OUTPUT_MISMATCH:
            self.output_misses += 1
            again = self.run.output is not None and self.output_misses <= self.run.output.retries
            return classify(happening, policy.on_deny, "inform" if again else "terminate")
        word = policy.on_failure if tool is None else policy.on_failure_of.get(tool, policy.on_failure)
        if self.told_failures >= policy.max_failures:
            word = "terminate"
        classification = classify(happening, policy.on_deny, word)
        self.told_failures += classification.ending is None
        return classification

    def notice_and_tools(self) -> tuple[str | None, tuple[ToolSpec, ...]]:
        """Return the notice for the model's next step (a key of NOTICES, or None), and the tools it is offered."""
        policy = self.run.gate.policy
        limit = policy.limits["max_iterations"]
        left = limit - self.counters.iterations
        if left == 1 and policy.wrap_up:
            return "last", ()
        if self.partial_answers:  # a paused turn goes on from its own last message
            return None if self.is_paused else "go_on", self.run.specs
        return "two_left" if left == 2 < limit else None, self.run.specs

    def request_parts(
        self, specs: tuple[ToolSpec, ...]
    ) -> tuple[Mapping[str, str], RequestPartsEntry | None]:
        """Return the digests of a request's parts, and the parts among them that the ledger does not hold yet."""
        digest = tools_digest(specs)
        new: RequestPartsEntry | None = None
        if digest not in self.known_tools:
            self.known_tools.add(digest)
            new = {"tools": [tool_set(specs)]}
        return {"tools": digest, **self.run.parts}, new

    @property
    def request_bytes(self) -> int:
        """The size of messages and instructions: an estimate of their tokens, where a provider counts none."""
        return self.history.bytes + len((self.run.instructions or "").encode("utf-8"))

    def tell_model(self, call: Call, content: str) -> None:
        """Let the model read what came of a call; `content` is JSON text."""
        self.history.add({"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content})
