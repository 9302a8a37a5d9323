"""What a single run adds to an agent, and what comes of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Event
from typing import Any, cast, overload

from ...fail.catalog import Ending
from ...light_dataclasses import dataclass, field, replace
from ..core.clock import Clock
from ..core.lines import DecisionEntry, StepLine, ToolResultEntry, UsageEntry
from ..core.redaction import Redactor
from ..driver.ports import Answers, Approve, DurabilityPort, Executor, Inject
from ..driver.stopping.scopes import Scope
from ..formats.document_digest import RunInput
from ..models.types import Message
from ..schema.output_type import OutputType
from ..workspace.workspace import Workspace
from .opening import Opening


class StepView(Mapping[str, Any]):
    """One step of a finished run, to be read: its ledger line as a mapping, and its main parts by name.

    `raw` is the decoded line itself, in the shape of `StepLine`.
    """

    __slots__ = ("raw",)

    def __init__(self, raw: StepLine) -> None:
        self.raw = raw

    @property
    def index(self) -> int:
        """The step's number, from 1."""
        return self.raw["step_index"]

    @property
    def decisions(self) -> Sequence[DecisionEntry]:
        """What the gate said, in the order in which it spoke."""
        return self.raw["policy_decisions"]

    @property
    def calls(self) -> Sequence[ToolResultEntry]:
        """What came of each proposed call, in order."""
        return self.raw["tool_results"]

    @property
    def usage(self) -> UsageEntry:
        """Tokens of the model call."""
        return self.raw["usage"]

    def __getitem__(self, key: str) -> Any:
        return cast(dict[str, Any], self.raw)[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    def __len__(self) -> int:
        return len(self.raw)

    def __repr__(self) -> str:
        return f"StepView({self.raw!r})"


class StepLines(Sequence[StepView]):
    """The steps of a run, decoded afresh on access, so that no reader can change another's."""

    def __init__(self, texts: list[str]) -> None:
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, index: int) -> StepView: ...
    @overload
    def __getitem__(self, index: slice) -> list[StepView]: ...
    def __getitem__(self, index: int | slice) -> StepView | list[StepView]:
        if isinstance(index, slice):
            return [StepView(json.loads(text)) for text in self._texts[index]]
        return StepView(json.loads(self._texts[index]))


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended.

    Attributes:
        ending: The terminal reason, an `Ending`.
        answer: The final answer, None if there is none.
        steps: The steps of the run, in order.
        run_id: The name of the run.
        mode: The failure mode of the last step, None if it has none.
        signum: The signal that interrupted the run, None if none did.
        opening: The messages that the run began with, its question last.
    """

    ending: str
    answer: str | None
    steps: StepLines = field(repr=False)
    run_id: str
    mode: str | None = None
    signum: int | None = None
    inputs: tuple[RunInput, ...] = field(default=(), repr=False)
    output_type: OutputType | None = field(default=None, repr=False)
    opening: tuple[Message, ...] = field(default=(), repr=False)

    @property
    def history(self) -> list[Message]:
        """The whole conversation, secrets replaced, as `history=` of a further run takes it, however this one ended."""
        from ..journal.requests import conversation_of  # for few runs

        return conversation_of(self.opening, self.steps)

    @property
    def output(self) -> Any:
        """The final answer as the agent's `output_type`, or as plain data of its schema; None without one.

        Raises:
            InputError: The answer fits the schema, and the type refuses it all the same.
        """
        if self.output_type is None or self.answer is None:
            return None
        return self.output_type.value(self.answer)

    @property
    def ok(self) -> bool:
        """Whether the model answered."""
        return self.ending == Ending.FINAL_ANSWER

    @property
    def why(self) -> str | None:
        """The last denial in one line: the rule, its reason, and its place in the policy; None where none was."""
        for step in reversed(self.steps):
            for decision in reversed(step["policy_decisions"]):
                if decision["decision"] == "deny":
                    return f"{decision['rule_id']}: {decision['reason']} ({decision['at']})"
        return None


@dataclass(frozen=True)
class RunConfig:
    """What a single run adds to an agent.

    Attributes:
        question: What the model is asked.
        run_id: The name of the run.
        seed: The seed of the jitter of waits.
        clock: Where the run's stamps come from.
        approve: Answers escalated calls; without it they are denied.
        task: The task's id, path and digest, None for a run that is made from code.
        prepare: Puts the task's files into the workspace before the first step.
        inject: Replaces the outcomes of effects by the task's faults.
        answers: Answers external calls from a record; they are not performed then.
        executor: Performs all effects; then no mount and no host is opened.
        around: Wraps the executor that is used without `executor`.
        offline: Whether hosts that no folder answers for are out of reach.
        durable_run: Writes down each effect before and after it happens.
        cancel: Ends the run, with what is under way, when it is set.
        deadline_s: Ends the run so many seconds after its start.
        cancelled_at_ms: When a task cancels its scripted run, on the virtual clock.
        rebased: The inputs that the run started with, if it is resumed under changed ones.
        as_recorded: Whether the question comes from a record, and was redacted before.
        approvals: How a person outside the task is asked: `terminal` or `file`.
        nonce: Part of each question to a person, as recorded; empty for a record without one. None draws it where
            answers come from outside.
        redacted: Names of the secrets known by their text that are kept out of the record; None asks the process.
        on_signal: What a signal does to a run that is kept in a journal: `suspend` or `cancel`; it ends any other.
        modules: Sources of an agent that the task names in code, with their digests.
        opening: Instructions and messages before the question.
        output_file: Path and digest of the file with the schema of the answer, None where it is in no file.
        principal: On whose behalf the run acts; the record says so, and the policy may decide by it.
    """

    question: str
    run_id: str
    seed: int
    clock: Clock
    approve: Approve | None = None
    task: dict[str, str] | None = None
    prepare: Callable[[Workspace], None] | None = None
    inject: Inject | None = None
    answers: Answers | None = None
    executor: Executor | None = None
    around: Callable[[Executor], Executor] | None = None
    offline: bool = False
    durable_run: DurabilityPort | None = None
    cancel: Event | Scope | None = None
    deadline_s: float | None = None
    cancelled_at_ms: int | None = None
    rebased: tuple[dict[str, Any], ...] = ()
    as_recorded: bool = False
    approvals: str | None = None
    nonce: str | None = None
    redacted: tuple[str, ...] | None = None
    on_signal: str = "suspend"
    modules: tuple[dict[str, str], ...] = ()
    opening: Opening = Opening()
    output_file: Mapping[str, str] | None = None
    principal: str | None = None

    @property
    def sources(self) -> list[Mapping[str, str]]:
        """The files beside policy, task and tools that the run is made from, with their digests."""
        named = (self.opening.file, self.output_file)
        return [*self.modules, *(file for file in named if file is not None)]

    @property
    def is_asked_outside(self) -> bool:
        """Whether answers come from outside: from a person, or from code, and not from the task."""
        scripted = self.approve is None or getattr(self.approve, "is_scripted", False)
        return self.approvals is not None or not scripted

    def without_secrets(self, redact: Redactor) -> RunConfig:
        """Return this with each secret in question and opening replaced, unless it comes from a record."""
        if self.as_recorded:
            return self
        question = redact(self.question)
        return replace(self, question=question, opening=self.opening.without_secrets(redact))
