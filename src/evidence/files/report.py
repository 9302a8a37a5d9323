"""`run_report.md`: a run for a person in a pull request, rendered from the ledger alone.

Text from models and tools is escaped: it can forge neither a heading, a row, a link, an image, markup nor a
terminal sequence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from ...fail.catalog import ENDINGS, Denied, Succeeded, classify, happenings
from ...runtime.core.lines import Line
from ...runtime.core.outcome_codec import pairs_from_dict
from ...runtime.formats import canonical_json
from ...runtime.formats.escape import code_span, escape_markdown, truncate
from .words.failure_words import failure_in_words
from .words.hook_words import said_by_hook

MAX_ANSWER: Final = 20_000
MAX_DIAGRAM_STEPS: Final = 40
_TERMINATE: Final = "terminate"  # modes do not depend on what the policy says of refusals


@lru_cache(maxsize=1)
def _modes_of_denials() -> dict[str, str | None]:
    """Return the failure mode of a denial by each rule."""
    denials = (it for it in happenings() if isinstance(it, Denied) and not it.repeated)
    return {str(it.rule): classify(it, _TERMINATE).mode for it in denials}


class Report:
    """Build a report from the lines of one ledger, in order: `step` for each step, then `end`."""

    def __init__(self, run_line: Line) -> None:
        self._run = run_line
        self._asked = 0
        self._documents: set[str] = set()
        self._rows: list[str] = []
        self._denials: list[str] = []
        self._failures: list[str] = []
        self._hooks: list[str] = []
        self._arrows: list[str] = []
        self._tools: dict[str, str] = {}
        self._links: dict[str, str] = {}  # as many as the policy has rules

    def step(self, line: Line) -> None:
        """Add the rows, denials, failures and arrows of a step."""
        index = line["step_index"]
        mode = line["failure_mode"] or ""
        decisions = line["policy_decisions"]
        output = line["llm_output"]
        arrows = index <= MAX_DIAGRAM_STEPS
        self._asked += bool(line["llm_attempts"])
        if not line["llm_attempts"]:
            what = "refused" if decisions else "stopped"
            first = decisions[0] if decisions else None
            self._row(index, f"*{what} before the model was asked*", first, "", mode)
            if arrows and decisions:
                self._arrows.append(f"    gate --x model: {index} deny {decisions[0]['rule_id']}")
        elif output is None or output["problem"] is not None:
            reply = (
                "*no reply*" if output is None else f"*no usable reply: {escape_markdown(output['problem'])}*"
            )
            self._row(index, reply, None, str(len(line["llm_attempts"])), mode)
        elif not line["intended_tool_calls"]:
            self._row(index, "*answer*", None, "", mode)
            if arrows:
                self._arrows.append(f"    model ->> user: {index} answer")
        for result, call in zip(line["tool_results"], line["intended_tool_calls"], strict=True):
            own = [d for d in decisions if d["id"] == call["id"]]
            self._documents.update(
                path for a in result["attempts"] for path, _ in pairs_from_dict(a, "reads")
            )
            self._call(index, call, result, own, mode, arrows)
        for decision in decisions:
            if decision["decision"] == "deny":
                self._denials.append(
                    f"- Step {index}, `{decision['rule_id']}` ({decision['phase']}): "
                    f"{escape_markdown(decision['reason'], 400)}."
                    f" Rule: {self._link(decision['at'])}."
                )
        for entry in line.get("hooks", ()):
            if entry.get("answer", entry) is not None:
                said = escape_markdown(said_by_hook(entry), 400)
                name = code_span(entry["hook"], 64)
                self._hooks.append(f"- Step {index}, {name}, `{entry['event']}`: {said}.")
        for error in line["errors"]:
            place = _place(error["position"], line)
            self._failures.append(f"- Step {index}, {place}: {failure_in_words(error)}.")

    def _call(self, index: int, call: Line, result: Line, own: list[Line], mode: str, arrows: bool) -> None:
        arguments = call.get("arguments_text") if call["arguments"] is None else _text(call["arguments"])
        attempts = ", ".join(attempt["outcome"] for attempt in result["attempts"])
        count = f"{len(result['attempts'])} ({attempts})" if attempts else "none"
        text = f"{code_span(call['name'], 64)} {code_span(arguments or '')}"
        if not own:
            self._row(index, text, None, "not reached", mode)
            return
        # where a hook gave other arguments, or wants a person, the last decision before the call is what counts
        last = [d for d in own if d["phase"] == "proposal"][-1:] or own
        worst = next((d for d in own if d["decision"] == "deny"), last[0])
        self._row(index, text, worst, count, _modes_of(result, worst, mode))
        if arrows:
            tool = self._alias(call["name"])
            self._arrows.append(f"    model ->> gate: {index} {_word(call['name'])}")
            if result["attempts"]:
                self._arrows.append(f"    gate ->> {tool}: allow, {attempts}")
            if worst["decision"] == "deny":
                self._arrows.append(f"    gate --x model: deny {worst['rule_id']}")

    def _alias(self, name: str) -> str:
        """Return the alias of a tool in the diagram: numbered, so that it is no word of Mermaid's or another tool's."""
        return self._tools.setdefault(name, f"t{len(self._tools) + 1}")

    def _row(self, index: int, call: str, decision: Line | None, attempts: str, mode: str) -> None:
        if decision is None:
            self._rows.append(f"| {index} | {call} | | | {attempts} | {mode} |")
            return
        verdict = f"{decision['decision']}, `{decision['rule_id']}`"
        if "approval" in decision:
            verdict += f", {_person(decision['approval'])}"
        self._rows.append(
            f"| {index} | {call} | {verdict} | {self._link(decision['at'])} | {attempts} | {mode} |"
        )

    def _link(self, at: str) -> str:
        if at not in self._links:
            self._links[at] = _link(at)
        return self._links[at]

    def end(self, line: Line) -> str:
        """Return the whole report, completed by the last line of the ledger."""
        run, totals = self._run, line["totals"]
        title = run["task"]["id"] if run["task"] is not None else run["run_id"]
        reason = line["terminal_reason"]
        parts = [
            f"# Run {escape_markdown(title)}",
            "",
            f"**Ending: `{reason}`** ({ENDINGS[reason]})."
            + (f" Failure mode: `{line['failure_mode']}`." if line["failure_mode"] else ""),
            f"Steps: {totals['steps']} · Tool calls: {totals['tool_calls']} · Attempts: {totals['attempts']}"
            f" · Retries: {totals['retries']} · Denials: {totals['denials']}",
            *(
                [f"Failures that the model was told of: {told}"]
                if (told := totals.get("told_failures"))
                else []
            ),
            *self._redaction(totals),
            "",
            "## Question",
            "",
            *_quote(run["question"]),
            "",
            "## Answer",
            "",
            *(
                _quote(line["final_answer"])
                if line["final_answer"] is not None
                else ["None: the run ended without one."]
            ),
            "",
            "## Steps",
            "",
            "| step | call | decision | rule | attempts | mode |",
            "|---:|---|---|---|---|---|",
            *self._rows,
            "",
        ]
        if self._denials:
            parts += ["## Denials", "", *self._denials, ""]
        if self._hooks:
            parts += ["## Hooks", "", *self._hooks, ""]
        if self._failures:
            parts += ["## Failures", "", *self._failures, ""]
        parts += [*self._budgets(totals), *self._diagram(), *self._provenance()]
        return "\n".join(parts) + "\n"

    def _redaction(self, totals: Line) -> list[str]:
        """Return lines on what redaction did not do, or left that cannot be derived again; most runs have none."""
        lines = []
        if self._run["policy"].get("redact", {}).get("off"):
            lines += ["", "**Redaction was off**: secrets stand in this record as they came."]
        if totals.get("hidden_verdicts"):
            lines += [
                "",
                f"Verdicts on hidden values, which cannot be derived again: {totals['hidden_verdicts']}",
            ]
        return lines

    def _budgets(self, totals: Line) -> list[str]:
        limits = self._run["policy"]["limits"]
        tokens = totals["input_tokens"] + totals["output_tokens"]
        rows = [
            ("iterations", self._asked, limits["max_iterations"]),
            ("tokens", tokens, limits["max_tokens"]),
            ("tool calls", totals["tool_calls"], limits["max_tool_calls"]),
            ("result bytes", totals["result_bytes"], limits["max_result_bytes"]),
            *([("attempts", totals["attempts"], limits["max_attempts"])] if "max_attempts" in limits else []),
        ]
        return [
            "## Budgets",
            "",
            "| budget | used | allowed |",
            "|---|---:|---:|",
            *(f"| {name} | {used} | {allowed} |" for name, used, allowed in rows),
            "",
        ]

    def _diagram(self) -> list[str]:
        if not self._arrows:
            return []
        more = self._rows and int(self._rows[-1].split("|")[1]) > MAX_DIAGRAM_STEPS
        note = [f"    Note over gate: only the first {MAX_DIAGRAM_STEPS} steps are drawn"] if more else []
        people = [
            *("user", "model", "gate"),
            *(f"{alias} as {_word(name)}" for name, alias in self._tools.items()),
        ]
        return [
            "## Diagram",
            "",
            "```mermaid",
            "sequenceDiagram",
            *(f"    participant {name}" for name in people),
            *self._arrows,
            *note,
            "```",
            "",
        ]

    def _provenance(self) -> list[str]:
        run = self._run
        model, task = run["model"], run["task"]
        if task is None:
            again = "The run was made from code, without a task file."
        elif model["execution_path"] != "stub":
            again = "A live model said this: `tachograph replay` makes the run again from its own record."
        else:
            import shlex

            command = code_span(f"tachograph run {shlex.quote(task['path'])}", 400)
            again = f"Reproduce it with {command}, prove it with `tachograph check`."
        return [
            "## Provenance",
            "",
            f"- Run id {escape_markdown(run['run_id'])}, seed {run['seed']}",
            *([f"- On behalf of {escape_markdown(run['principal'])}"] if "principal" in run else []),
            f"- {run['clock']['kind'].capitalize()} clock, started at {run['clock']['start']}",
            f"- Policy version `{run['policy']['version']}`, `on_deny: {run['policy']['on_deny']}`"
            + _failures_told(run["policy"]),
            f"- Model {escape_markdown(model['provider'])} / {escape_markdown(model['name'])}, "
            f"{escape_markdown(model['execution_path'])}",
            f"- Documents read: {len(self._documents)}; every input is listed with its digest in `manifest.json`",
            *_kinds(run["tools"]),
            "",
            again,
        ]


def _failures_told(policy: Line) -> str:
    """Return what the policy says of failures, where the model is told of some."""
    given = policy.get("on_failure")
    if given is None:
        return ""
    tools = "".join(f", {code_span(name, 64)}: `{word}`" for name, word in sorted(given["tools"].items()))
    return f", `on_failure: {given['default']}`{tools}, at most {given['max_failures']}"


def _kinds(tools: Sequence[Line]) -> list[str]:
    """Return which tools a check does not call, and whose effect kinds nobody checked."""
    external = [code_span(tool["name"], 64) for tool in tools if tool["effect"] == "external"]
    declared = [f"{code_span(tool['name'], 64)} ({tool['effect']})" for tool in tools if "declared" in tool]
    lines = []
    if external:
        lines.append(f"- External tools, whose results a check takes from this record: {', '.join(external)}")
    if declared:
        lines.append(f"- Effect kinds that were declared, not checked: {', '.join(declared)}")
    return lines


def _word(name: str) -> str:
    """Return a tool's name as a label of the diagram."""
    return "".join(c for c in name if c.isascii() and (c.isalnum() or c in "_-"))[:24] or "unnamed"


def _link(at: str) -> str:
    """Return a rule as a record names it, as a link to its file, relative to the report's folder `runs/KIND/NAME/`."""
    file, mark, _ = at.partition("#")
    if not mark or not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_./-]*", file):
        return code_span(at, 200)
    return f"[{code_span(at, 200)}](../../../{file})"


def _place(position: str, line: Line) -> str:
    """Return a position within a step in words: `m.2` is the model's second attempt, `i0.1` the first of call 0."""
    where, _, attempt = position.partition(".")
    calls = line["intended_tool_calls"]
    who = "the model"
    if where.startswith("i") and where[1:].isdecimal() and int(where[1:]) < len(calls):
        who = code_span(calls[int(where[1:])]["name"], 64)
    return f"{who}, attempt {attempt}" if attempt.isdecimal() else who


def _modes_of(result: Line, decision: Line, mode: str) -> str:
    """Return the failure modes of one call; calls of its step that went well have none of them.

    Args:
        result: What came of the call.
        decision: The denial of the call, or what allowed it.
        mode: The failure mode of the step.
    """
    if "modes" in result:
        return ", ".join(result["modes"])
    if result["status"] == "ok":
        recovered = any(attempt["outcome"] == "transient_failure" for attempt in result["attempts"])
        return classify(Succeeded(recovered), _TERMINATE).mode or ""
    if result["status"] == "denied":
        return mode if mode == _modes_of_denials().get(decision["rule_id"]) else ""
    return mode


def _text(value: Any) -> str:
    return value.text if isinstance(value, canonical_json.Fragment) else canonical_json.encode(value)


def _quote(text: str) -> list[str]:
    """Return untrusted text of several lines as a block quote; each line is escaped on its own."""
    lines = truncate(text, MAX_ANSWER).replace("\r\n", "\n").split("\n")
    return [f"> {escape_markdown(line, MAX_ANSWER)}" for line in lines]


def _person(approval: Line) -> str:
    """Return what a person answered, who and why."""
    words = [
        escape_markdown(text, limit) for text, limit in ((approval["by"], 64), (approval["why"], 200)) if text
    ]
    return f"a person said {approval['answer']}" + (f" ({': '.join(words)})" if words else "")
