"""Make recorded runs again from their logs alone: what their gates are asked, and what another policy decides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from msgspec import Struct, structs

from ..evidence.project import Project
from ..evidence.record_files import recorded_log
from ..evidence.run_source import RunSource
from ..evidence.show import words
from ..runtime.formats.escape import truncate
from ..runtime.log import events as log
from ..runtime.log.journal import Diverged
from ..runtime.loop.state import RunSpec
from ..runtime.models.types import choice_of
from ..runtime.policy.consistency import check_prices
from ..runtime.policy.gate import Gate
from ..runtime.policy.leaf import Question, Verdict
from ..runtime.policy.policy import Policy
from ..runtime.run import make_run
from ..runtime.world.virtual import run_now

Asked = tuple[Gate, Question]
"""A gate, and what it was asked."""


class _Witness(Gate):
    """A gate that keeps what it is asked."""

    def __init__(self, gate: Gate, asked: list[Asked]) -> None:
        super().__init__(gate.policy, gate.tools.values(), gate.rules)
        self._gate, self._kept = gate, asked

    def ask(self, question: Question, *, explains: bool = True) -> Verdict:
        self._kept.append((self._gate, structs.replace(question, used=dict(question.used))))
        return super().ask(question, explains=explains)


def asked_in(
    source: RunSource, folder: Path, name: str
) -> tuple[list[Asked], list[tuple[int, log.Decided]], str]:
    """Return what the gates of a recorded run are asked.

    Returns:
        What they are asked; each decision, with how much was asked by then; and why the rest is not known, "" where
        there is none.

    Raises:
        RecordError: The record cannot be read.
    """
    asked: list[Asked] = []
    decided: list[tuple[int, log.Decided]] = []

    def agrees(recorded: log.Event, made: log.Event) -> bool:
        if isinstance(made, log.Decided):
            decided.append((len(asked), made))
        return _is_same_decision(recorded, made)

    spec, lines = source.run_spec(), recorded_log(folder, name)
    head: Any = lines[0].event
    spec = _with_gates(spec, head, lambda gate: _Witness(gate, asked))
    try:
        run_now(make_run(spec, head, None, lines, agrees=agrees))
    except Diverged as error:
        return asked, decided, str(error)
    return asked, decided, ""


def questions_of(source: RunSource, folder: Path, name: str) -> tuple[Gate, list[Question], str]:
    """Return the gate of a recorded run with what is asked of its policy, and why the rest is not known.

    Raises:
        RecordError: The record cannot be read.
    """
    spec = source.run_spec()
    asked, _, diverged = asked_in(source, folder, name)
    policy = spec.gates.own.policy
    return spec.gates.below, [it for gate, it in asked if gate.policy is policy], diverged


def _with_gates(spec: RunSpec, head: log.Event, other: Callable[[Gate], Gate]) -> RunSpec:
    """Return a run whose agents have other gates, also those that it starts."""

    def changed(spec: RunSpec) -> RunSpec:
        own, below = (_with_recorded_effects(other(it), head) for it in (spec.gates.own, spec.gates.below))
        plan = None if spec.gates.plan is None else (other(spec.gates.plan[0]), other(spec.gates.plan[1]))
        gates = structs.replace(spec.gates, own=own, below=below, plan=plan)
        return structs.replace(spec, gates=gates, each=changed)

    return changed(spec)


def _with_recorded_effects(gate: Gate, head: log.Event) -> Gate:
    """Return a gate whose tools have the effects of the record: they say which lines there are, and decide nothing."""
    for offer in getattr(head, "tools", ()):
        tool = gate.tools.get(offer.name)
        if tool is not None and tool.is_foreign:
            gate.tools[offer.name] = tool.under(tool.places[len(tool.marked) :], offer.effect)
    return gate


class Flip(Struct, frozen=True):
    """The first decision of a run that another policy would take otherwise; behind it nothing is known.

    Attributes:
        run: What messages call the run.
        recorded: What was decided; None where the recorded run did not come to this.
        made: What would be decided, likewise.
    """

    run: str
    recorded: log.Event | None
    made: log.Event | None

    def told(self, most: int) -> list[tuple[str, str]]:
        """Return what was decided and what would be, as `was` and `is` with words of so many characters."""
        events = ("was", self.recorded), ("is", self.made)
        told = ((name, f"{it.at}: {words(it)}" if it else "nothing: the run goes on") for name, it in events)
        return [(name, truncate(what, most)) for name, what in told]


def what_if(
    source: RunSource, folder: Path, name: str, policy: Policy, of: Policy | None = None
) -> Flip | None:
    """Replay a recorded run under another policy, and return the first decision that differs, if any.

    Entries and reasons may be others, as long as the decision and its rule are the same.

    Args:
        source: What the run is made from.
        folder: Its folder.
        name: What messages call it.
        policy: The policy.
        of: The policy in whose place it stands; that of the run unless given.

    Raises:
        RecordError: The record cannot be read.
        PolicyError: The policy does not fit the tools, or knows no price of a model.
    """
    spec, lines = source.run_spec(), recorded_log(folder, name)
    check_prices(policy, (choice_of(it).name for it in spec.models))
    old, head = source.policy if of is None else of, cast(log.RunStarted, lines[0].event)

    def other(gate: Gate) -> Gate:
        is_old = gate.policy.version == old.version or gate.policy.file == policy.file
        return Gate(policy, gate.tools.values()) if is_old else gate

    try:
        run_now(make_run(_with_gates(spec, head, other), head, None, lines, agrees=_is_same_decision))
    except Diverged as error:
        return Flip(name, error.recorded, error.made)
    return None


def flips(project: Project, old: Policy, new: Policy) -> tuple[list[Flip], int]:
    """Return the runs that go another way under a new policy, and how many were made again.

    Those with an agent under the old policy are, by its file or its version. Nothing is performed; tools and hooks are
    imported.

    Raises:
        InputError: A task or a record cannot be read.
    """
    made = []
    for name in (it for it in project.run_names() if not project.is_from_code(it)):
        source = project.source_of(name)
        its = [it for it in source.policies if it.file in (old.file, new.file) or it.version == old.version]
        if its:
            made.append(what_if(source, project.folder(name), f"runs/{name}", new, its[0]))
    return [flip for flip in made if flip is not None], len(made)


def _is_same_decision(recorded: log.Event, made: log.Event) -> bool:
    if isinstance(recorded, log.AgentStarted) and isinstance(made, log.AgentStarted):
        return structs.replace(recorded, policy=made.policy, plan=made.plan) == made
    if isinstance(recorded, log.StepEnded) and isinstance(made, log.StepEnded):
        # the model is told reasons, which may name a limit, and a cost decides only what it is held against
        return structs.replace(recorded, added=made.added, cost=made.cost, cut=made.cut) == made
    if isinstance(made, log.CallEnded | log.Compacted | log.Received) and type(recorded) is type(made):
        return True  # they may tell reasons too, and decide nothing
    if isinstance(recorded, log.Decided) and isinstance(made, log.Decided):
        return (recorded.at, recorded.decision, recorded.rule) == (made.at, made.decision, made.rule)
    return False
