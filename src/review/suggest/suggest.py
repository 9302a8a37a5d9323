"""A policy drafted from a recorded run: the tightest that its decisions pass under; or edits of a given policy.

A draft is for review. It is never put in the place of a policy.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ...evidence.queries.counterfactual import WIDENING, Counterfactual, under
from ...evidence.recording.recorded import Recorded, open_record, revive
from ...fail.errors import InputError
from ...runtime.policy.gate import ALLOW, ESCALATE, Gate
from ...runtime.policy.policy import Policy
from ...runtime.tools.contract import Tool
from ..queries.recorded_queries import Asked, questions
from ..remedy.edits import Edit, apply
from ..remedy.minimal_edit import Wanted, smallest
from .policy_writer import policy_text
from .requirements import Gathering, Needs, shifted

Line = dict[str, Any]

_DRAFT: Final = "draft.yaml"


@dataclass(frozen=True)
class Proof:
    """What a run's questions come to under a drafted policy.

    `asked` of them `pass_now`; `refused` are (step, position, what, why) of those that do not. `begins` says why a
    run set up like this one does not begin under the draft, None where it does. `replayed` is the run answered from
    its record under the draft.
    """

    asked: int
    pass_now: int
    refused: tuple[tuple[int, str, str, str], ...]
    begins: str | None
    replayed: Counterfactual

    @property
    def whole(self) -> bool:
        """Whether the run begins, and every decision of it passes."""
        return not self.refused and self.begins is None

    def words(self) -> list[str]:
        """What was proved, and what is not known, in sentences."""
        then, total = self.replayed, self.replayed.same + self.replayed.behind + bool(self.replayed.flip)
        found = [
            f"asked again, {self.pass_now} of the run's {self.asked} questions to the gate pass under it."
        ]
        if self.begins is not None:
            found.append(f"a run set up like this one does not begin under it: {self.begins}.")
        if then.untold is not None:
            found.append(f"nothing is known of a replay under it: {then.untold}.")
        elif then.is_same:
            found.append(f"replayed under it, every decision is as recorded ({total}).")
        elif then.flip is not None:
            turned = (
                "is allowed now" if then.flip.kind == WIDENING else f"goes another way ({then.flip.kind})"
            )
            found.append(
                f"replayed under it, {then.same} of {total} decisions are as recorded, then one of step "
                f"{then.flip.step} {turned}; what the run would have done after that is not known."
            )
        else:
            found.append(
                f"replayed under it, {then.same} of {total} decisions are as recorded, then the run leaves its record "
                f"({then.why}); what it would have done after that is not known."
            )
        return found

    def to_dict(self) -> Line:
        keys = ("step", "position", "what", "why")
        return {
            "asked": self.asked,
            "pass": self.pass_now,
            "refused": [dict(zip(keys, item, strict=True)) for item in self.refused],
            "begins": self.begins,
            "replayed": self.replayed.to_dict(),
        }


@dataclass(frozen=True)
class Suggestion:
    """A draft and what is known of it. `edits` are those of a given policy, None where the whole is a draft."""

    run: str
    run_id: str
    recorded_version: str
    policy: Policy
    text: str
    widened: tuple[str, ...]
    notes: tuple[str, ...]
    proof: Proof
    edits: tuple[Edit, ...] | None = None

    def to_dict(self) -> Line:
        return {
            "run": self.run,
            "run_id": self.run_id,
            "recorded_version": self.recorded_version,
            "version": self.policy.version,
            "policy": self.policy.data,
            "text": self.text,
            "widened": list(self.widened),
            "notes": list(self.notes),
            "proof": self.proof.to_dict(),
            "edits": None if self.edits is None else [item.to_dict() for item in self.edits],
        }


class Material:
    """A recorded run with its tools, its questions, and its policy where that is still the same."""

    def __init__(self, folder: Path, root: Path | None) -> None:
        self.folder, self.root = folder, root
        self.recorded = open_record(folder, root)
        self.policy: Policy | None = None
        self.notes: list[str] = []
        self.tools = self._tools()
        self.asked = questions(self.recorded, self.tools)

    def _tools(self) -> Mapping[str, Tool]:
        run = self.recorded.run
        try:
            agent, _ = revive(self.recorded)
        except InputError as error:
            # of the policy the record holds no more than its limits; the mounts have to be there to bind folders to
            mounts = {name: bound["mode"] for name, bound in run["mounts"].items()}
            agent, _ = revive(
                self.recorded, Policy.from_dict({"schema": "policy/v1", "sandbox": {"mounts": mounts}})
            )
            self.notes.append(f"the recorded policy cannot be had any more ({error})")
            return agent.gate.tools
        if agent.policy.version == run["policy"]["version"]:
            self.policy = agent.policy
        else:
            self.notes.append(
                f"the recorded policy is gone: its files hold version {agent.policy.version} today"
            )
        return agent.gate.tools

    def needs(self) -> Needs:
        """What the run needs of a policy, no more."""
        return Gathering(self.recorded, self.tools, self.policy, self.asked).gather()

    def proof(self, policy: Policy, extra: Sequence[int], stuck: Mapping[int, str]) -> Proof:
        """Every question put again, and the run replayed."""
        gate = Gate(policy, self.tools)
        refused = []
        for item, more in zip(self.asked, extra, strict=True):
            found = shifted(item.question, more).put(gate)
            said = None if item.entry is None else item.entry.get("approval")
            if found is None or found.decision == ALLOW:
                continue
            if found.decision == ESCALATE and said is not None and said["answer"] == "allow":
                continue
            if found.decision == ESCALATE:
                why = (
                    "a person refused it" if said is not None else "a person is asked, whom nobody asked then"
                )
            else:
                why = stuck.get(id(item), found.reason)
            refused.append((item.step, item.position, _what(item), why))
        begins = None
        try:
            revive(self.recorded, policy)
        except InputError as error:
            begins = str(error)
        replayed = under(self.folder, policy, root=self.root)
        return Proof(len(self.asked), len(self.asked) - len(refused), tuple(refused), begins, replayed)


def _what(item: Asked) -> str:
    if item.call is None:
        return "the step"
    late = ", while it ran" if item.question.check is not None else ""
    return f"{item.call.name}{late}{', its result' if item.question.size is not None else ''}"


def suggest(folder: Path, *, root: Path | None = None) -> Suggestion:
    """The tightest policy under which the decisions of a recorded run pass, as a draft.

    Raises RecordError where `folder` holds no run, InputError where its tools are in no file.
    """
    run = Material(folder, root)
    needs = run.needs()
    proof = run.proof(Policy.from_dict(needs.data), needs.extra, {id(item): why for item, why in needs.stuck})
    head = _head(run.recorded, needs.passed, proof, run.notes)
    text = policy_text(needs.data, head, needs.beside)
    policy = _loaded(text)
    if policy.data != needs.data:
        raise RuntimeError("the draft reads as another policy")
    widened = tuple(needs.beside[key] for key in needs.beside if needs.beside[key].startswith("was refused"))
    return _suggestion(run, policy, text, widened, proof)


def suggest_edits(folder: Path, policy: Policy, *, root: Path | None = None) -> Suggestion:
    """The smallest edits of a policy under which the decisions of a recorded run pass; `text` is empty."""
    run = Material(folder, root)
    wanted, extra, shifts = Wanted(), 0, []
    stuck: dict[int, str] = {}
    widened: dict[str, str] = {}
    for item in run.asked:
        shifts.append(extra)
        found = smallest(policy, run.tools, shifted(item.question, extra), may_ask=True)
        if found.why_not is not None:
            stuck[id(item)] = found.why_not
            continue
        extra += item.refused and item.question.call is not None
        wanted.also(found.wanted or Wanted())
        for change in found.edits:
            widened.setdefault(change.text, f"step {item.step} {_what(item)}: {change.text}")
    edits = wanted.edits(policy)
    edited = apply(policy, edits)
    proof = run.proof(edited, shifts, stuck)
    return _suggestion(run, edited, "", tuple(widened.values()), proof, tuple(edits))


def _suggestion(
    run: Material,
    policy: Policy,
    text: str,
    widened: tuple[str, ...],
    proof: Proof,
    edits: tuple[Edit, ...] | None = None,
) -> Suggestion:
    recorded = run.recorded
    version = str(recorded.run["policy"]["version"])
    run_id = str(recorded.run["run_id"])
    return Suggestion(recorded.name, run_id, version, policy, text, widened, tuple(run.notes), proof, edits)


def _loaded(text: str) -> Policy:
    """The draft read as any policy file is."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / _DRAFT
        file.write_text(text, encoding="utf-8", newline="\n")
        return Policy.load(file, root=folder)


def _head(recorded: Recorded, passed: Sequence[Asked], proof: Proof, notes: Sequence[str]) -> list[str]:
    """What a reader of the draft has to know, paragraph by paragraph."""
    run = recorded.run
    found = [
        "A draft for review: the tightest policy under which the decisions of a recorded run pass.",
        f"run: {run['run_id']} ({recorded.name}), recorded under policy {run['policy']['version']}",
    ]
    steps = sorted({item.step for item in passed})
    if steps:
        places = ", ".join(map(str, steps))
        found.append(
            f"wider than that policy where a line says so: what was refused in step {places} is allowed."
        )
    found += [f"cannot be allowed: step {step} {what}: {why}" for step, _, what, why in proof.refused]
    found += [f"note: {note}" for note in notes]
    return [*found, *proof.words()]
