"""`run_report.md`: a run for a person in a pull request, rendered from its log alone.

Text of models and tools is escaped: it can forge neither a heading, a row, a link, an image, markup nor a terminal
sequence.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from ..fail.catalog import ENDINGS, Denied, Succeeded, classify, happenings
from ..runtime.formats.escape import code_span, escape_markdown, truncate
from ..runtime.formats.strict_json import canonical
from ..runtime.log import events as log
from ..runtime.log.addresses import place_of
from ..runtime.log.steps import AttemptView, CallView, StepView, all_steps, model_words, steps_of
from ..runtime.log.values import USER, Message, ModelName
from ..runtime.models.types import call_text
from ..runtime.policy.rules.loop_budget import said

Link = Callable[[str], str]
MAX_ANSWER: Final = 20_000
MAX_DIAGRAM_STEPS: Final = 40
# modes do not depend on what the policy says of denials
_MODES_OF_DENIALS: Final = {
    str(it.rule): classify(it, "inform").mode
    for it in happenings()
    if isinstance(it, Denied) and not it.repeated
}


def _as_code(place: str) -> str:
    """Return an entry of a policy or a tool."""
    return code_span(place, 200)


@lru_cache(maxsize=256)  # most calls of a run are allowed by the same entry
def _to_file(place: str) -> str:
    """Return an entry of a policy or a tool as a link to its file, relative to the folder `runs/KIND/NAME/`."""
    file, mark, _ = place.partition("#")
    if not mark or not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_./-]*", file):
        return _as_code(place)
    return f"[{_as_code(place)}](../../../{file})"


def report(events: Sequence[log.Event], steps: Sequence[StepView] | None = None) -> str:
    """Return the report of a whole log; its steps may be given where they are known already."""
    head, end = events[0], events[-1]
    assert isinstance(head, log.RunStarted)
    assert isinstance(end, log.RunEnded)
    steps = steps_of(events) if steps is None else steps
    link = _to_file if head.task else _as_code
    every = [*all_steps(steps)]
    denials = _denials(every, link)
    mode = f" Failure mode: `{end.mode}`." if end.mode else ""
    parts = [
        f"# Run {escape_markdown(head.run_id)}",
        "",
        f"**Ending: `{end.ending}`** ({ENDINGS.get(end.ending, 'not known here')}).{mode}",
        counts(steps, denials),
        "",
        *(turns_in(events) if head.session else _asked("Question", head.question, end)),
        "## Steps",
        "",
        "| step | call | decision | rule | attempts | mode |",
        "|---:|---|---|---|---|---|",
        *(row for step in every for row in _rows(step, link)),
        "",
    ]
    if denials:
        parts += ["## Denials", "", *denials, ""]
    failures = [line for step in every for line in _failures(step)]
    if failures:
        parts += ["## Failures", "", *failures, ""]
    rows = [f"| {name} | {used} | {allowed} |" for name, used, allowed in budgets(head, steps)]
    parts += ["## Budgets", "", "| budget | used | allowed |", "|---|---:|---:|", *rows, ""]
    parts += [*_diagram(steps), *_provenance(head)]
    return "\n".join(parts) + "\n"


def _asked(title: str, text: str, end: log.RunEnded | log.TurnEnded) -> list[str]:
    """Return what somebody said, and the answer."""
    what = "the run ended" if isinstance(end, log.RunEnded) else f"the turn ended as `{end.ending}`,"
    answer = [f"None: {what} without one."] if end.answer is None else _quote(end.answer)
    return [f"## {title}", "", *_quote(text), "", "## Answer", "", *answer, ""]


def turns_in(events: Sequence[log.Event]) -> list[str]:
    """Return the turns of a conversation; what was said while one went on belongs to it."""
    parts: list[str] = []
    said: list[str] = []
    number = 0
    for event in events:
        if isinstance(event, log.Received) and not place_of(event.at):
            said += [it.text for it in event.messages if it.sender == USER]
        elif isinstance(event, log.TurnEnded) and not place_of(event.at):
            number += 1
            parts += _asked(f"Turn {number}", "\n".join(said), event)
            said = []
    return parts


def counts(steps: Sequence[StepView], denials: Sequence[str] | None = None) -> str:
    """Return in one line how many steps, calls, attempts, retries and denials there are, also of agents below.

    The denials may be given where they are known already.
    """
    every = [*all_steps(steps)]
    calls = [call for step in every for call in step.calls]
    attempts = sum(len(call.attempts) for call in calls)
    made = sum(bool(call.attempts) for call in calls)
    agents = sum(call.agent is not None for call in calls)
    return (
        f"Steps: {len(every)} · Tool calls: {made} · Attempts: {attempts} · Retries: {attempts - made}"
        f" · Denials: {len(_denials(every, _as_code) if denials is None else denials)}"
        + (f" · Agents: {agents}" if agents else "")
    )


# ---- the table -------------------------------------------------------------------------------------------------------


def _rows(step: StepView, link: Link) -> list[str]:
    if (refused := step.refused) is not None:
        what = "*refused before the model was asked*"
        return [_row(step, what, _in_words(refused), link(refused.place), mode=step.mode)]
    calls = [_row(step, f"*{escape_markdown(_said_by(it))}*") for it in step.received]
    calls += [_call_row(step, call, link) for call in step.calls]
    if (reply := step.reply) is None or reply.problem:
        problem = "" if reply is None else f": {escape_markdown(reply.problem)}"
        attempts = str(len(step.asked))
        return [_row(step, f"*no usable reply{problem}*", attempts=attempts, mode=step.mode), *calls]
    if step.calls:
        return calls
    return [*calls, _row(step, "*answer*" if _has_answer(step) else "*no answer*", mode=step.mode)]


def _said_by(message: Message) -> str:
    return f"message of {message.sender or 'the agent of the run'}: {truncate(message.text, 200)}"


def _has_answer(step: StepView) -> bool:
    return step.reply is not None and not step.reply.problem and step.reply.answer is not None


def _call_row(step: StepView, call: CallView, link: Link) -> str:
    text = f"{code_span(call.call.name, 64)} {code_span(call_text(call.call))}"
    if call.decided is None:
        return _row(step, text, attempts="not reached")
    without = "none" if call.stopped is None else "stopped"
    if call.told is not None:
        without = "answered at once" if call.handed is None else "handed over"
    if call.agent is not None:
        without = f"an agent ({call.agent.ended.ending if call.agent.ended else 'not ended'})"
    results = ", ".join(attempt.result for attempt in call.attempts)
    attempts = f"{len(call.attempts)} ({results})" if call.attempts else without
    verdict = call.verdict or call.decided
    decision = ", ".join(filter(None, (_in_words(verdict), _said(call))))
    return _row(step, text, decision, link(verdict.place), attempts, _mode_of(step, call, verdict))


def _said(call: CallView) -> str:
    """Return what a person said of a call."""
    answer = call.answered
    if answer is None:
        return ""
    who = ": ".join(escape_markdown(text, 200) for text in (answer.by, answer.why) if text)
    return f"a person said {answer.answer}" + (f" ({who})" if who else "")


def _mode_of(step: StepView, call: CallView, verdict: log.Decided) -> str:
    """Return the failure mode of a call; calls of its step that went well have none of it."""
    if verdict.decision == "deny":
        return step.mode if step.mode == _MODES_OF_DENIALS.get(verdict.rule) else ""
    if call.is_made and call.status == "ok":
        return classify(Succeeded(recovered=len(call.attempts) > 1), "inform").mode or ""
    return step.mode


def _in_words(decided: log.Decided) -> str:
    return f"{decided.decision}, `{decided.rule}`"


def _row(
    step: StepView, text: str, decision: str = "", rule: str = "", attempts: str = "", mode: str = ""
) -> str:
    return f"| {step.at} | {text} | {decision} | {rule} | {attempts} | {mode} |"


# ---- lists -----------------------------------------------------------------------------------------------------------


def _denials(steps: Sequence[StepView], link: Link) -> list[str]:
    found = []
    for step in steps:
        decisions = [(step.refused, "step")]
        for call in step.calls:
            decisions += [(call.decided, "proposal"), (call.again, "proposal"), (call.late, "execution")]
            if call.answered is not None and call.answered.answer != "allow":
                found.append(f"- Step {step.at}, `approval` (proposal): {_said(call)}.")
        for decided, phase in decisions:
            if decided is not None and decided.decision == "deny":
                reason = escape_markdown(decided.reason, 400)
                whose = f" of the policy {decided.above} above" if decided.above else ""
                place = f"{link(decided.place)}{whose}"
                found.append(f"- Step {step.at}, `{decided.rule}` ({phase}): {reason}. Rule: {place}.")
    return found


def _failures(step: StepView) -> list[str]:
    lines = [_failure(step, None, attempt) for attempt in (*step.summaries, *step.asked)]
    lines += [_failure(step, call, attempt) for call in step.calls for attempt in call.attempts]
    return [line for line in lines if line]


def _failure(step: StepView, call: CallView | None, attempt: AttemptView) -> str:
    outcome = attempt.outcome
    if type(outcome) is log.ModelReplied and outcome.problem:
        what = escape_markdown(outcome.problem, 200)
    elif type(outcome) is log.Failed:
        place = f" at {code_span(outcome.place, 200)}" if outcome.place else ""
        what = f"{escape_markdown(outcome.error, 100)} ({outcome.kind}){place}"
    elif type(outcome) is log.Stopped:
        what = f"{outcome.why}, and nobody knows what it did"
    else:
        return ""
    who = code_span(call.call.name, 64) if call is not None else model_words(outcome)
    return f"- Step {step.at}, {who}, attempt {attempt.number}: {what}."


def budgets(head: log.RunStarted, steps: Sequence[StepView]) -> list[tuple[str, int | str, int | str]]:
    """Return the name of each budget, how much of it was used, and how much the policy allows."""
    every = [*all_steps(steps)]
    asked = [attempt.outcome for step in every for attempt in (*step.summaries, *step.asked)]
    replies = [outcome for outcome in asked if isinstance(outcome, log.ModelReplied)]
    outcomes = [attempt.outcome for step in every for call in step.calls for attempt in call.attempts]
    calls = [call for step in every for call in step.calls if call.decided is not None]
    used = {
        "max_iterations": sum(bool(step.asked) for step in every),
        "max_tokens": sum(reply.usage.input_tokens + reply.usage.output_tokens for reply in replies),
        "max_tool_calls": sum(call.is_allowed or ".g" in call.at.rpartition("/")[2] for call in calls),
        "max_result_bytes": sum(
            out.size for out in outcomes if isinstance(out, log.ToolReturned) and out.result is not None
        )
        + sum(len(canonical(result)) for call in calls if (result := call.result) is not None)
        + sum(len(it.text.encode()) for step in every for it in step.received if it.is_answer),
        "max_attempts": len(outcomes),
        "max_cost": sum(step.cost for step in every),
        "max_wall_clock_s": steps[-1].ended // 1_000_000_000 if steps else 0,
    }
    limits = head.policy.limits
    return [
        (name.removeprefix("max_").replace("_", " "), said(name, number), said(name, limits[name]))
        for name, number in used.items()
        if name in limits
    ]


# ---- the diagram -----------------------------------------------------------------------------------------------------


def _diagram(steps: Sequence[StepView]) -> list[str]:
    names: dict[str, str] = {}
    arrows = []
    for step in steps[:MAX_DIAGRAM_STEPS]:
        if step.refused is not None:
            arrows.append(f"    gate --x model: {step.number} deny {step.refused.rule}")
        elif _has_answer(step):
            arrows.append(f"    model ->> user: {step.number} answer")
        for call in step.calls:
            arrows += _call_arrows(step, call, names)
    if not arrows:
        return []
    note = [f"    Note over gate: only the first {MAX_DIAGRAM_STEPS} steps are drawn"]
    people = ["user", "model", "gate", *(f"{alias} as {_word(name)}" for name, alias in names.items())]
    return [
        "## Diagram",
        "",
        "```mermaid",
        "sequenceDiagram",
        *(f"    participant {name}" for name in people),
        *arrows,
        *(note if len(steps) > MAX_DIAGRAM_STEPS else ()),
        "```",
        "",
    ]


def _call_arrows(step: StepView, call: CallView, names: dict[str, str]) -> list[str]:
    if call.decided is None:
        return []
    # numbered, so that an alias is not a word of Mermaid's
    alias = names.setdefault(call.call.name, f"t{len(names) + 1}")
    arrows = [f"    {'gate' if '.g' in call.at else 'model'} ->> gate: {step.number} {_word(call.call.name)}"]
    if call.is_made:
        without = "answered" if call.agent is None else "an agent"
        results = ", ".join(attempt.result for attempt in call.attempts) or without
        arrows.append(f"    gate ->> {alias}: allow, {results}")
    denied = call.verdict
    refused = denied is not None and (denied.decision == "deny" or not call.is_allowed)
    return arrows + ([f"    gate --x model: deny {denied.rule}"] if denied is not None and refused else [])


def _word(name: str) -> str:
    """Return the name of a tool as a label of the diagram."""
    return "".join(c for c in name if c.isascii() and (c.isalnum() or c in "_-"))[:24] or "unnamed"


# ---- the rest --------------------------------------------------------------------------------------------------------


def _provenance(head: log.RunStarted) -> list[str]:
    model, *others = head.model, *(it.name for it in head.fallbacks)
    if not head.task:
        again = "The run was made from code, without a task file."
    elif model.path != "stub":
        again = "A live model said this: `tachograph replay` makes the run again from its own record."
    else:
        command = code_span(f"tachograph run {shlex.quote(head.task)}", 400)
        again = f"Reproduce it with {command}, prove it with `tachograph check`."
    return [
        "## Provenance",
        "",
        f"- Run id {escape_markdown(head.run_id)}, seed {head.seed}",
        f"- {head.clock.capitalize()} clock",
        f"- Policy version `{head.policy.version}`, `on_deny: {head.policy.on_deny}`",
        *([f"- Until a plan is allowed also policy version `{head.plan.version}`"] if head.plan else []),
        f"- Model {_model(model)}, {model.path}",
        *(f"- Fallback {_model(it)}, {it.path}" for it in others),
        "- Every input is listed with its digest in `manifest.json`",
        "",
        again,
    ]


def _model(name: ModelName) -> str:
    return f"{escape_markdown(name.provider)} / {escape_markdown(name.name)}"


def _quote(text: str) -> list[str]:
    """Return untrusted text of several lines as a block quote; each line is escaped on its own."""
    lines = truncate(text, MAX_ANSWER).replace("\r\n", "\n").split("\n")
    return [f"> {escape_markdown(line, MAX_ANSWER)}" for line in lines]
