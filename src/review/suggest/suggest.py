"""A policy drafted from a recorded run: the tightest under which its decisions pass; or edits of a given policy.

A draft is for review and never replaces a policy.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...evidence.queries.counterfactual import under
from ...evidence.queries.flips import WIDENING, Counterfactual
from ...evidence.recording.recorded import Recorded, open_record, revive
from ...fail.errors import InputError
from ...runtime.core.lines import Line
from ...runtime.policy.gate import ALLOW, ESCALATE, Gate
from ...runtime.policy.policy import Policy
from ...runtime.tools.contract import Tool
from ..queries.recorded_queries import HookDenial, RecordedQuestion, hook_denials, questions
from ..remedy.edits import Edit, apply
from ..remedy.minimal_edit import EditPlan, find_minimal_edit
from .policy_writer import policy_text
from .requirements import RequirementCollector, Requirements, with_extra_calls

_DRAFT: Final = "draft.yaml"


@dataclass(frozen=True)
class Proof:
    """How a run fares under a drafted policy.

    Attributes:
        question_count: Questions of the run to its gate.
        refused: Step, position, what and why of each question that does not pass.
        denied_by_hooks: The same of each denial that a hook decided: the gate is not asked there.
        start_error: Why a run set up like this one does not start, None if it does.
        replayed: The run replayed from its record.
    """

    question_count: int
    refused: tuple[tuple[int, str, str, str], ...]
    start_error: str | None
    replayed: Counterfactual
    denied_by_hooks: tuple[tuple[int, str, str, str], ...] = ()

    @property
    def passing_count(self) -> int:
        """Questions that pass."""
        return self.question_count - len(self.refused)

    @property
    def is_complete(self) -> bool:
        """Whether the run starts and every decision of it passes."""
        return not self.refused and not self.denied_by_hooks and self.start_error is None

    def not_allowed(self) -> list[str]:
        """Return a line for each decision that no edit of the policy makes pass."""
        return [
            f"cannot be allowed: step {step} {subject}: {why}"
            for step, _, subject, why in (*self.refused, *self.denied_by_hooks)
        ]

    def sentences(self) -> list[str]:
        """Return what was proved, and what is not known."""
        replayed, total = self.replayed, self.replayed.same + self.replayed.behind + bool(self.replayed.flip)
        passing = f"{self.passing_count} of the run's {self.question_count} questions"
        sentences = [f"asked again, {passing} to the gate pass under it."]
        if self.start_error is not None:
            sentences.append(f"a run set up like this one does not begin under it: {self.start_error}.")
        if replayed.undecided is not None:
            sentences.append(f"nothing is known of a replay under it: {replayed.undecided}.")
        elif replayed.is_same:
            sentences.append(f"replayed under it, every decision is as recorded ({total}).")
        elif replayed.flip is not None:
            change = (
                "is allowed now"
                if replayed.flip.kind == WIDENING
                else f"goes another way ({replayed.flip.kind})"
            )
            sentences.append(
                f"replayed under it, {replayed.same} of {total} decisions are as recorded, then one of step "
                f"{replayed.flip.step} {change}; what the run would have done after that is not known."
            )
        else:
            sentences.append(
                f"replayed under it, {replayed.same} of {total} decisions are as recorded, then the run leaves its "
                f"record ({replayed.why}); what it would have done after that is not known."
            )
        return sentences

    def to_dict(self) -> Line:
        """Return the proof as JSON data."""
        keys = ("step", "position", "what", "why")
        return {
            "asked": self.question_count,
            "pass": self.passing_count,
            "refused": [dict(zip(keys, item, strict=True)) for item in self.refused],
            "denied_by_hooks": [dict(zip(keys, item, strict=True)) for item in self.denied_by_hooks],
            "begins": self.start_error,
            "replayed": self.replayed.to_dict(),
        }


@dataclass(frozen=True)
class Suggestion:
    """A draft and what is known of it.

    Attributes:
        recorded_version: Version of the policy that the run was recorded under.
        policy: The drafted policy.
        text: The policy as a YAML file; empty where there are `edits`.
        widened: What the draft allows that was refused, in words.
        notes: What could not be had of the recorded policy.
        edits: The edits of a given policy, None for a draft from nothing.
    """

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
        """Return the suggestion as JSON data."""
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


class RecordedRun:
    """A recorded run with its tools, its questions, and its policy if that is still the same.

    Raises:
        RecordError: `folder` contains no run.
        InputError: A tool of the run is in no file.
    """

    def __init__(self, folder: Path, root: Path | None) -> None:
        self.folder, self.root = folder, root
        self.recorded = open_record(folder, root)
        self.policy: Policy | None = None
        self.notes: list[str] = []
        self.tools = self._load_tools()
        self.questions = questions(self.recorded, self.tools)

    def _load_tools(self) -> Mapping[str, Tool]:
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

    def requirements(self) -> Requirements:
        """Return what the run requires of a policy."""
        return RequirementCollector(self.recorded, self.tools, self.policy, self.questions).collect()

    def prove(self, policy: Policy, extra_calls: Sequence[int], never_allowed: Mapping[int, str]) -> Proof:
        """Return how the run fares under `policy`: every question asked again, and the run replayed.

        Args:
            policy: The draft.
            extra_calls: For each question, how many more calls were made before it than in the record.
            never_allowed: Why no policy allows a question, by its `id`.
        """
        gate = Gate(policy, self.tools)
        refused = []
        for item, more in zip(self.questions, extra_calls, strict=True):
            decision = with_extra_calls(item.question, more).put(gate)
            answer = None if item.entry is None else item.entry.get("approval")
            if decision is None or decision.decision == ALLOW:
                continue
            if decision.decision == ESCALATE and item.is_overruled:
                continue  # a hook decided before a person was asked
            if decision.decision != ESCALATE:
                why = never_allowed.get(id(item), decision.reason)
            elif answer is None:
                why = "a person is asked, whom nobody asked then"
            elif answer["answer"] == "allow":
                continue
            else:
                why = "a person refused it"
            refused.append((item.step, item.position, _subject(item), why))
        start_error = None
        try:
            revive(self.recorded, policy)
        except InputError as error:
            start_error = str(error)
        replayed = under(self.folder, policy, root=self.root)
        denied = tuple(
            (item.step, item.position, _subject_of_hook(item), item.why)
            for item in hook_denials(self.recorded.lines[1:-1])
        )
        return Proof(len(self.questions), tuple(refused), start_error, replayed, denied)


def _subject(item: RecordedQuestion) -> str:
    """Return what a question is about."""
    if item.call is None:
        return "the step"
    late = ", while it ran" if item.question.check is not None else ""
    return f"{item.call.name}{late}{', its result' if item.question.size is not None else ''}"


def _subject_of_hook(item: HookDenial) -> str:
    """Return what a hook denied."""
    if item.call is None:
        return "the step"
    return f"{item.call.name}{', its result' if item.position.endswith('.r') else ''}"


def suggest(folder: Path, *, root: Path | None = None) -> Suggestion:
    """Return a draft of the tightest policy under which the decisions of a recorded run pass.

    Raises:
        RecordError: `folder` contains no run.
        InputError: A tool of the run is in no file.
    """
    run = RecordedRun(folder, root)
    needed = run.requirements()
    never_allowed = {id(item): why for item, why in needed.never_allowed}
    proof = run.prove(Policy.from_dict(needed.data), needed.extra_calls, never_allowed)
    head = _head(run.recorded, needed.now_allowed, proof, run.notes)
    text = policy_text(needed.data, head, needed.line_comments)
    policy = _load_draft(text)
    if policy.data != needed.data:
        raise RuntimeError("the draft reads as another policy")
    widened = tuple(text for text in needed.line_comments.values() if text.startswith("was refused"))
    return _suggestion(run, policy, text, widened, proof)


def suggest_edits(folder: Path, policy: Policy, *, root: Path | None = None) -> Suggestion:
    """Return the minimal edits of a policy under which the decisions of a recorded run pass; see `suggest`."""
    run = RecordedRun(folder, root)
    plan, extra, extra_calls = EditPlan(), 0, []
    never_allowed: dict[int, str] = {}
    widened: dict[str, str] = {}
    for item in run.questions:
        extra_calls.append(extra)
        question = with_extra_calls(item.question, extra)
        minimal = find_minimal_edit(policy, run.tools, question, allow_escalation=True)
        if minimal.why_not is not None:
            never_allowed[id(item)] = minimal.why_not
            continue
        extra += item.refused and item.question.call is not None
        plan.merge(minimal.plan or EditPlan())
        for change in minimal.edits:
            widened.setdefault(change.text, f"step {item.step} {_subject(item)}: {change.text}")
    edits = plan.edits(policy)
    edited = apply(policy, edits)
    proof = run.prove(edited, extra_calls, never_allowed)
    return _suggestion(run, edited, "", tuple(widened.values()), proof, tuple(edits))


def _suggestion(
    run: RecordedRun,
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


def _load_draft(text: str) -> Policy:
    """Return a draft loaded like any policy file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / _DRAFT
        file.write_text(text, encoding="utf-8", newline="\n")
        return Policy.load(file, root=folder)


def _head(
    recorded: Recorded, now_allowed: Sequence[RecordedQuestion], proof: Proof, notes: Sequence[str]
) -> list[str]:
    """Return what a reader of the draft has to know, one paragraph each."""
    run = recorded.run
    paragraphs = [
        "A draft for review: the tightest policy under which the decisions of a recorded run pass.",
        f"run: {run['run_id']} ({recorded.name}), recorded under policy {run['policy']['version']}",
    ]
    steps = sorted({item.step for item in now_allowed})
    if steps:
        places = ", ".join(map(str, steps))
        paragraphs.append(
            f"wider than that policy where a line says so: what was refused in step {places} is allowed."
        )
    paragraphs += proof.not_allowed()
    paragraphs += [f"note: {note}" for note in notes]
    return [*paragraphs, *proof.sentences()]
