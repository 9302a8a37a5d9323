"""The steps of a run as markup: what the model said, each call with its decisions, attempts and result."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from ..evidence.files.report import visible
from ..fail.catalog import MODES
from .charts import count, duration, moments, outline
from .markup import Html, Part, el, join, pre
from .model import Call, Run, Step

Line = dict[str, Any]

GIST: Final = 3  # calls named in a step's first line
CLIP: Final = 72
SHORT: Final = 90
HEAD_LINES, HEAD_CHARS = 10, 700
MAX_KEYS: Final = 24
_SIGNS: Final = frozenset(("allow", "deny", "escalate"))
_BAD: Final = frozenset(("transient_failure", "exhausted", "failed", "denied", "cancelled"))
_STATUS: Final = {
    "ok": "result",
    "denied": "no result: denied",
    "failed": "no result: failed",
    "not_reached": "not reached: the run ended before",
    "cancelled": "no result: cancelled",
    "unfinished": "no result yet",
}


def clipped(value: str, width: int = CLIP) -> str:
    """The beginning of a text, on one line."""
    line = visible(value)
    return line if len(line) <= width else line[: width - 1] + "…"


def badge(word: str) -> Html:
    """A decision as a word with a shape of its own; the colour says nothing that these do not."""
    return el("span", word, class_=f"b {word if word in _SIGNS else 'other'}")


def arguments_of(call: Call) -> str:
    """A call's arguments on one line."""
    if call.arguments is None:
        return call.text or ""
    return json.dumps(call.arguments, ensure_ascii=False, sort_keys=True)


# ---- values --------------------------------------------------------------------------------------------------


def long_text(value: str) -> Html:
    """Text of several lines; a long one shows its beginning and keeps the rest folded."""
    cut = _cut(value)
    if cut >= len(value):
        return pre(value)
    rest = len(value) - cut
    return join(
        [
            pre(value[:cut]),
            el("details", el("summary", f"the rest: {count(rest, 'character')}"), pre(value[cut:])),
        ]
    )


def _cut(value: str) -> int:
    """Where the beginning of a text ends: at a line's end if there is one, else anywhere."""
    if len(value) <= HEAD_CHARS + 300 and value.count("\n") <= HEAD_LINES + 4:
        return len(value)
    at = 0
    for _ in range(HEAD_LINES):
        end = value.find("\n", at, HEAD_CHARS) + 1
        if not end:
            break
        at = end
    return at or HEAD_CHARS


def value_of(value: Any) -> Html:
    """Recorded data: an object as a list of its keys, texts as they read, all else as JSON."""
    if isinstance(value, dict) and 0 < len(value) <= MAX_KEYS:
        pairs = [[el("dt", str(key)), el("dd", _one(item))] for key, item in value.items()]
        return el("dl", pairs, class_="kv")
    return _one(value)


def _one(value: Any) -> Html:
    if isinstance(value, str):
        return el("code", value) if len(value) <= SHORT and "\n" not in value else long_text(value)
    if isinstance(value, dict | list) and value:
        return long_text(json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True))
    return el("code", json.dumps(value))


# ---- decisions and attempts ----------------------------------------------------------------------------------


def decision_of(run: Run, decision: Line) -> Html:
    """A decision with the policy line behind it, its reason, and what a person said."""
    late = "while it ran: " if decision["phase"] == "execution" else None
    said: Part = None
    if "approval" in decision:
        answer = decision["approval"]
        who = answer["by"] or "nobody"
        why = f": {answer['why']}" if answer["why"] else ""
        said = el("p", "A person was asked. ", el("b", who), f" said {answer['answer']}{why}", class_="said")
    return el(
        "li",
        el(
            "p",
            late,
            badge(decision["decision"]),
            " ",
            el("code", decision["rule_id"]),
            " ",
            place_of(run, decision["at"]),
        ),
        el("p", decision["reason"], class_="reason"),
        said,
        class_="decision",
    )


def place_of(run: Run, at: str) -> Html:
    """The policy line behind a decision, with its text where today's file is the recorded one."""
    found = run.line_at(at)
    if found is None:
        return el("span", at, class_="at")
    number, line, words = found
    if words is None:
        return el(
            "span",
            at,
            el("span", f" ({run.policy[number].why or 'no such line'})", class_="soft"),
            class_="at",
        )
    where = el("a", at, href=f"#p{number}-L{line}", class_="at")
    return join([where, " ", el("code", words.strip() or " ", class_="line")])


def attempts_of(attempts: Iterable[Line]) -> Html:
    """Attempts in turn, with the waits between them."""
    rows = []
    for attempt in attempts:
        outcome = attempt["outcome"]
        fault = attempt.get("fault")
        parts: list[Part] = [
            f"attempt {attempt['attempt']}: ",
            el("span", outcome.replace("_", " "), class_="bad-text" if outcome in _BAD else "good-text"),
        ]
        if fault is not None:
            parts.append(f" ({fault['exception']}, {fault['kind']})")
        if "backoff_ms" in attempt:
            parts.append(el("span", f", then a wait of {attempt['backoff_ms']} ms", class_="soft"))
        rows.append(el("li", parts, _touched(attempt)))
    return el("ol", rows, class_="attempts")


def _touched(attempt: Line) -> Part:
    """What an attempt read, wrote and met on its way."""
    lines = [f"wrote {path}" for path, _ in attempt.get("writes", ())]
    lines += [f"read {path}" for path, _ in attempt.get("reads", ())]
    lines += [
        f"asked {json.dumps(check, ensure_ascii=False, sort_keys=True)}"
        for check in attempt.get("checks", ())
    ]
    if not lines:
        return None
    if len(lines) <= 2:
        return [el("div", line, class_="soft") for line in lines]
    words = f"touched {count(len(lines), 'thing')}"
    return el("details", el("summary", words), el("ul", [el("li", line) for line in lines], class_="soft"))


# ---- a call, a step ------------------------------------------------------------------------------------------


def call_of(run: Run, call: Call) -> Html:
    """A call: arguments, decisions with their policy lines, attempts, result."""
    parts: list[Part] = [
        el(
            "h4",
            el("code", clipped(call.name)),
            " ",
            badge(call.verdict),
            " ",
            el("a", call.id, href=f"#{call.id}", class_="self"),
        ),
    ]
    if call.arguments is None:
        parts += [
            _label("arguments, which are no JSON object"),
            long_text(call.text or ""),
            _soft(call.problem),
        ]
    else:
        parts += [_label("arguments"), value_of(call.arguments)]
    if call.decisions:
        decisions = [decision_of(run, decision) for decision in call.decisions]
        parts += [
            _label("decision" if len(decisions) == 1 else "decisions"),
            el("ul", decisions, class_="plain"),
        ]
    elif run.end is None:
        parts.append(_soft("its decision is not in a journal: the gate decides again when the run goes on"))
    if call.attempts:
        parts += [_label("attempts"), attempts_of(call.attempts)]
    parts.append(_label(_STATUS.get(call.status, call.status)))
    if call.result is not None:
        parts.append(value_of(call.result))
    if call.told is not None:
        parts += [_label("the model was told"), value_of(call.told)]
    return el("section", parts, class_="call", id=call.id, aria_label=f"call {call.id}")


def _label(words: str) -> Html:
    return el("p", words, class_="label")


def _soft(words: str | None) -> Part:
    return el("p", words, class_="soft") if words else None


def step_of(run: Run, step: Step, *, is_open: bool, with_spans: bool) -> Html:
    """A step, folded but for its first line unless `is_open`."""
    first = el(
        "summary",
        el("h3", el("b", f"Step {step.index}"), " ", gist(step)),
        el("span", duration(step.end - step.begin), class_="num") if step.pieces else None,
    )
    body = body_of(run, step, with_spans=with_spans)
    mark = "deny" if step.denials else "bad" if step.line["failure_mode"] else "good"
    return el("details", first, body, class_=f"step {mark}", id=f"step-{step.index}", open=is_open)


def gist(step: Step) -> list[Part]:
    """What a step came to, in a line."""
    out: list[Part] = []
    for decision in step.refusals:
        out += ["refused before the model was asked ", badge(decision["decision"])]
    for call in step.calls[:GIST]:
        said = clipped(arguments_of(call), 48)
        out += [el("code", clipped(call.name, 24)), f" {said} ", badge(call.verdict), " "]
    if len(step.calls) > GIST:
        out.append(f" and {count(len(step.calls) - GIST, 'more call')}")
    said = step.line["llm_output"]
    if said is not None and said["final_answer"] is not None and not step.calls:
        out.append(f"answer: {clipped(said['final_answer'])}")
    if step.retries:
        out.append(
            el("span", f" {count(step.retries, 'retry').replace('retrys', 'retries')}", class_="bad-text")
        )
    if step.line["failure_mode"]:
        out.append(el("span", " ", step.line["failure_mode"], class_="bad-text"))
    return out or ["no reply"]


def body_of(run: Run, step: Step, *, with_spans: bool) -> Html:
    """All of a step but its first line."""
    line = step.line
    parts: list[Part] = []
    if step.notice is not None:
        parts += [_label("the runtime told the model"), long_text(step.notice)]
    if step.refusals:
        parts.append(el("ul", [decision_of(run, decision) for decision in step.refusals], class_="plain"))
    if line["llm_attempts"]:
        parts.append(_model(step))
    parts += [call_of(run, call) for call in step.calls]
    mode = line["failure_mode"]
    if mode:
        parts.append(el("p", el("b", mode), f": {MODES.get(mode, 'an unknown mode')}", class_="mode"))
    if line.get("stopped"):
        parts.append(_soft(f"stopped here: {line['stopped']}"))
    parts += [_soft(_error(error)) for error in line["errors"] if "exception" not in error]
    if with_spans and step.rows:
        drawn = outline(step.rows, step.begin, step.end)
        parts.append(el("details", el("summary", count(len(step.rows), "span")), drawn))
    return el("div", parts, class_="body")


def _error(error: Line) -> str:
    said = ", ".join(f"{key} {error[key]}" for key in sorted(error) if key != "position")
    return f"at {error['position']}: {said}"


def _model(step: Step) -> Html:
    """What the model was asked with and what it said."""
    line = step.line
    said, usage, asked = line["llm_output"], line["usage"], line["llm_input"]
    facts = []
    if asked is not None:
        facts.append(f"asked with {count(asked['messages'], 'message')}")
    if said is not None:
        guess = " (estimated)" if usage["estimated"] else ""
        facts.append(f"{usage['input_tokens']:,} tokens in, {usage['output_tokens']:,} out{guess}")
        if said["finish_reason"]:
            facts.append(f"finished with {said['finish_reason']}")
    if step.pieces:
        facts.append(moments(step))
    parts: list[Part] = [_label("the model"), _soft(" · ".join(facts))]
    attempts = line["llm_attempts"]
    if len(attempts) > 1 or any(attempt["outcome"] != "success" for attempt in attempts):
        parts.append(attempts_of(attempts))
    if said is None:
        parts.append(_soft("no reply"))
    else:
        parts += [long_text(words) for words in (said["text"], said["final_answer"]) if words]
        if said["problem"]:
            parts.append(el("p", f"no usable reply: {said['problem']}", class_="bad-text"))
    return el("div", parts, class_="model-said")
