"""Make recorded runs again from their logs alone: what their gates are asked, and what another policy decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, structs

from ..evidence.project import Project
from ..evidence.record_files import recorded_log
from ..evidence.run_source import RunSource
from ..runtime.log.events import Decided, Event, RunStarted, StepEnded
from ..runtime.log.journal import Diverged
from ..runtime.policy.consistency import check_prices
from ..runtime.policy.gate import Gate
from ..runtime.policy.leaf import Question, Verdict
from ..runtime.policy.policy import Policy
from ..runtime.run import make_run
from ..runtime.world.virtual import run_now

G = TypeVar("G", bound=Gate)


class _Witness(Gate):
    """A gate that keeps what it is asked."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(gate.policy, gate.tools.values(), gate.rules)
        self.asked: list[Question] = []

    def ask(self, question: Question, *, explains: bool = True) -> Verdict:
        self.asked.append(structs.replace(question, used=dict(question.used)))
        return super().ask(question, explains=explains)


def questions_of(source: RunSource, folder: Path, name: str) -> tuple[Gate, list[Question], str]:
    """Return the gate of a recorded run, what it is asked, and why the rest is not known; "" where there is none.

    Raises:
        RecordError: The record cannot be read.
    """
    spec = source.run_spec()
    lines = recorded_log(folder, name)
    head: Any = lines[0].event
    witness = _with_recorded_effects(_Witness(spec.gate), head)
    try:
        run_now(make_run(structs.replace(spec, gate=witness), head, None, lines, agrees=_is_same_decision))
    except Diverged as error:
        return spec.gate, witness.asked, str(error)
    return spec.gate, witness.asked, ""


def _with_recorded_effects(gate: G, head: RunStarted) -> G:
    """Return a gate whose tools have the effects of the record: they say which lines there are, and decide nothing."""
    for offer in head.tools:
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
    recorded: Event | None
    made: Event | None


def what_if(source: RunSource, folder: Path, name: str, policy: Policy) -> Flip | None:
    """Replay a recorded run under another policy, and return the first decision that differs, if any.

    Entries and reasons may be others, as long as the decision and its rule are the same.

    Raises:
        RecordError: The record cannot be read.
        PolicyError: The policy does not fit the tools, or knows no price of a model.
    """
    spec = source.run_spec()
    lines = recorded_log(folder, name)
    head: Any = lines[0].event
    check_prices(policy, (model.name for model in spec.models))
    gate = _with_recorded_effects(Gate(policy, spec.gate.tools.values()), head)
    other = structs.replace(spec, gate=gate)
    try:
        run_now(make_run(other, head, None, lines, agrees=_is_same_decision))
    except Diverged as error:
        return Flip(name, error.recorded, error.made)
    return None


def flips(project: Project, old: Policy, new: Policy) -> tuple[list[Flip], int]:
    """Return the runs that go another way under a new policy, and how many were made again.

    Those of the old policy are, by its file or its version. Nothing is performed; tools and hooks are imported.

    Raises:
        InputError: A task or a record cannot be read.
    """
    found, number = [], 0
    for name in project.run_names():
        if project.is_from_code(name):
            continue
        source = project.source_of(name)
        if source.policy.file not in (old.file, new.file) and source.policy.version != old.version:
            continue
        number += 1
        flip = what_if(source, project.folder(name), f"runs/{name}", new)
        if flip is not None:
            found.append(flip)
    return found, number


def _is_same_decision(recorded: Event, made: Event) -> bool:
    if isinstance(recorded, StepEnded) and isinstance(made, StepEnded):
        # the model is told reasons, which may name a limit, and a cost decides only what it is held against
        return structs.replace(recorded, added=made.added, cost=made.cost) == made
    return (
        isinstance(recorded, Decided)
        and isinstance(made, Decided)
        and (recorded.at, recorded.decision, recorded.rule) == (made.at, made.decision, made.rule)
    )
