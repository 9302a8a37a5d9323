"""Ask a person about a call that the gate or a hook escalated."""

from __future__ import annotations

from collections.abc import Generator

from ...fail.catalog import ApprovalRefused, Happening
from ...fail.errors import Cancelled
from ..core.effects import (
    Answer,
    ApprovalAnswer,
    AskHuman,
    Call,
    Decision,
    DecisionKind,
    Effect,
    Event,
    Outcome,
)
from .step_builder import StepBuilder


def ask_human(
    step: StepBuilder, index: int, call: Call, escalation: Decision
) -> Generator[Effect | Event, Outcome, Happening | None]:
    """Ask a person about an escalated call.

    Any answer but an allow with this question's digest is a refusal, and so is one that lacks a signature which the
    policy wants.
    """
    run = step.state.run
    question = AskHuman(
        step.index,
        index,
        call,
        escalation.reason,
        escalation.at,
        escalation.facts["timeout_s"],
        run.gate.policy.version,
        run.run_id,
        run.nonce,
    )
    try:
        outcome = yield question
    except Cancelled:
        step.deny_escalation()
        raise
    answer = outcome.answer or Answer(ApprovalAnswer.SILENCE)
    subject = answer.digest if answer.digest is not None else question.digest
    answers_another_question = subject != question.digest and answer.answer != ApprovalAnswer.SILENCE
    granted = answer.answer == ApprovalAnswer.ALLOW and not answers_another_question
    signer = run.gate.signer_of(answer, question.digest) if granted else None
    answer_text: dict[str, str] = {ApprovalAnswer.ALLOW: "given", ApprovalAnswer.DENY: "refused"}
    reason = f"{escalation.reason}: {answer_text.get(answer.answer, 'no answer in time')}"
    if answers_another_question:
        reason += " for another call or policy"
    if granted and signer is None:
        granted = False
        reason += " without the signature of one of approval.signers"
    kind = DecisionKind.ALLOW if granted else DecisionKind.DENY
    step.settle_escalation(
        Decision(kind, escalation.rule_id, reason, escalation.at, escalation.facts), answer, subject, signer
    )
    return None if granted else ApprovalRefused()
