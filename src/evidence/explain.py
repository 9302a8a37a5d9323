"""Ask the gate again about a recorded run: what every rule says of each call, and what another policy would decide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from ..runtime.formats.json_pointer import by_index, get
from ..runtime.log.events import Call, Decided, Event
from ..runtime.log.journal import Diverged
from ..runtime.models.types import call_text
from ..runtime.policy.gate import Gate
from ..runtime.policy.leaf import Question, Verdict
from ..runtime.policy.policy import Policy
from ..runtime.run import make_run
from ..runtime.world.virtual import run_now
from .record_files import recorded_log
from .run_source import RunSource


class _Witness(Gate):
    """A gate that keeps what every rule says of a proposed call."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(gate.policy, gate.tools.values(), gate.rules)
        self.asked: list[tuple[Call, Verdict, list[Verdict]]] = []

    def ask(self, question: Question) -> Verdict:
        verdict = super().ask(question)
        if isinstance(question.about, Call):
            said = [*self.verdicts(question)] if verdict.rule != "gate_error" else [verdict]
            self.asked.append((question.about, verdict, said))
        return verdict


def explain(source: RunSource, folder: Path, name: str) -> list[str]:
    """Return what every rule says today of each call of a recorded run; a rule without a say is left out.

    Behind a decision that would be another one today nothing is known, and the last line says so.

    Raises:
        RecordError: The record cannot be read.
    """
    spec = source.run_spec()
    witness = _Witness(spec.gate)
    lines = recorded_log(folder, name)
    head: Any = lines[0].event
    changed: list[str] = []
    try:
        run_now(make_run(structs.replace(spec, gate=witness), head, None, lines, agrees=_is_same_decision))
    except Diverged as error:
        changed.append(f"from here on the run goes another way: {error}")
    found: list[str] = []
    for call, verdict, said in witness.asked:
        found.append(f"{call.id} {call.name} {call_text(call)}: {verdict.decision} by {verdict.rule}")
        for each in said:
            # what is allowed may rest on a section that the policy does not have, and need not
            is_told = each.decision != "allow" or _is_held(spec.gate.policy, each.place)
            place = f" ({each.place})" if is_told else ""
            found.append(f"  {each.decision:8} {each.rule:15} {each.reason}{place}")
    return found + changed


def _is_held(policy: Policy, place: str) -> bool:
    """Return whether there is an entry at a place: one of a policy may be of a section that the policy lacks."""
    pointer = place.partition("#")[2]
    try:
        get(policy.data, by_index(policy.data, pointer) or "/")
    except (LookupError, ValueError, TypeError):
        return place != policy.place(pointer)
    return True


class Flip(Struct, frozen=True):
    """The first decision of a run that another policy would take otherwise; behind it nothing is known.

    Attributes:
        recorded: What was decided; None where the recorded run did not come to this.
        made: What would be decided, likewise.
    """

    recorded: Event | None
    made: Event | None


def what_if(source: RunSource, folder: Path, name: str, policy: Policy) -> Flip | None:
    """Replay a recorded run under another policy, and return the first decision that differs, if any.

    Entries and reasons may be others, as long as the decision and its rule are the same.

    Raises:
        RecordError: The record cannot be read.
        PolicyError: The policy does not fit the tools.
    """
    spec = source.run_spec()
    lines = recorded_log(folder, name)
    head: Any = lines[0].event
    other = structs.replace(spec, gate=Gate(policy, spec.gate.tools.values()))
    try:
        run_now(make_run(other, head, None, lines, agrees=_is_same_decision))
    except Diverged as error:
        return Flip(error.recorded, error.made)
    return None


def _is_same_decision(recorded: Event, made: Event) -> bool:
    return (
        isinstance(recorded, Decided)
        and isinstance(made, Decided)
        and (recorded.at, recorded.decision, recorded.rule) == (made.at, made.decision, made.rule)
    )
