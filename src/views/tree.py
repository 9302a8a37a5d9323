"""A run as the lines of a tree: steps, what the model said, calls, decisions, attempts, waits, with their times."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from ..evidence.checking.differences.drift import Drift, counted
from ..evidence.files.words.hook_words import said_by_hook
from ..runtime.core.lines import Line
from ..runtime.formats import canonical_json
from ..runtime.formats.escape import escape_terminal
from .model import Call, Run, Step

# text and the word for how it looks: plain, strong, dim, good, bad, warn
Piece = tuple[str, str]
_LOOKS: Final = {"allow": "good", "deny": "bad", "escalate": "warn"}
_LIMIT: Final = 2000  # characters of foreign text in a line


@dataclass(slots=True)
class Leaf:
    """One line. `times` is (start, end) in nanoseconds since the run began, None for what takes no time."""

    pieces: list[Piece]
    times: tuple[int, int] | None
    below: list[Leaf]


def leaves(run: Run) -> list[Leaf]:
    """Return the steps of a run, each with what is in it."""
    return [_step(run, step) for step in run.steps]


def flat(siblings: list[Leaf], guides: str = "") -> Iterator[tuple[str, Leaf]]:
    """Yield (branches drawn before it, leaf) for every line from top to bottom."""
    for number, leaf in enumerate(siblings):
        last = number == len(siblings) - 1
        yield guides + ("└─ " if last else "├─ "), leaf
        yield from flat(leaf.below, guides + ("   " if last else "│  "))


def first_difference(left: Run, right: Run, drift: Drift) -> Piece:
    """Return where two runs differ first, on one line; `drift` compares their ledgers without the first line."""
    if drift.first is None:
        setup = "" if left.run == right.run else "; they were set up otherwise"
        return f"the two runs did the same{setup}", "good"
    first = str(drift.first)
    if drift.first.step is None:
        first = first.partition(" ")[2].partition(" ")[
            2
        ]  # a line of the ledger says nothing to a reader here
    more = f"; {counted(drift.follow_ups, 'difference')} after it" if drift.follow_ups else ""
    return f"first difference: {first} [{drift.first.kind}]{more}", "bad"


def two_as_text(left: Run, right: Run, drift: Drift) -> str:
    """Return two runs as a unified diff of what they did, and where they differ first."""
    one, other = (
        ["".join(text for text, _ in leaf.pieces).rstrip() for _, leaf in flat(leaves(run))]
        for run in (left, right)
    )
    names = (escape_terminal(left.name), escape_terminal(right.name))
    out = difflib.unified_diff(one, other, *names, lineterm="", n=5)
    return "\n".join([*out, first_difference(left, right, drift)[0]])


def _step(run: Run, step: Step) -> Leaf:
    line = step.line
    below = [*_hooks(step, "km."), *([_model(step)] if line["llm_attempts"] else []), *_hooks(step, "ks.")]
    below += [Leaf(_decision(run, decision), None, []) for decision in step.refusals]
    below += [_call(run, step, index, call) for index, call in enumerate(step.calls)]
    mode = [(f"  {escape_terminal(line['failure_mode'])}", "warn")] if line["failure_mode"] else []
    return Leaf([(f"step {step.index}", "strong"), *mode], (step.begin, step.end), below)


def _model(step: Step) -> Leaf:
    line, output = step.line, step.line["llm_output"]
    stamps = line["stamps"]
    own = [pair for at, pair in stamps.items() if at.startswith(("m.", "wm."))]
    text = "" if output is None else output["text"] or output["final_answer"] or ""
    label = "model" if output is None or not output["final_answer"] else "answer"
    pieces = [(f"{label}  ", "strong"), (_short(text), "plain")]
    tried = line["llm_attempts"]
    below = _attempts(stamps, "m", tried) if len(tried) > 1 or "fault" in tried[-1] else []
    return Leaf(pieces, _span(own), below)


def _call(run: Run, step: Step, index: int, call: Call) -> Leaf:
    arguments = call.text if call.arguments is None else canonical_json.encode(call.arguments)
    stamps = step.line["stamps"]
    own = [pair for at, pair in stamps.items() if at[1:].partition(".")[0] == str(index)]
    below: list[Leaf] = []
    for decision in call.decisions:
        at = decision["position"]
        below.append(Leaf(_decision(run, decision), _times(stamps, at), []))
        if "approval" in decision:
            below.append(Leaf(_person(decision["approval"]), _times(stamps, f"h{index}"), []))
    asked = _hooks(step, f"k{index}.")
    below += [*asked, *_attempts(stamps, f"i{index}", call.attempts)]
    if (
        asked
    ):  # between the decisions that they led to, and behind the attempts where they were asked of a result
        below.sort(key=lambda leaf: leaf.times[0] if leaf.times is not None else 0)
    if not call.decisions:
        below.append(Leaf([("not reached", "dim")], None, []))
    return Leaf(
        [(escape_terminal(call.name), "strong"), (f" {_short(arguments or '')}", "dim")], _span(own), below
    )


def _hooks(step: Step, where: str) -> list[Leaf]:
    """Return a row for each hook that was asked at a place of a step."""
    return [
        Leaf(
            [
                (f"hook {escape_terminal(entry['hook'])} ", "plain"),
                (f"{entry['event']}  {_short(said_by_hook(entry))}", "dim"),
            ],
            _times(step.line["stamps"], entry["position"]),
            [],
        )
        for entry in step.line.get("hooks", ())
        if entry["position"].startswith(where)
    ]


def _fault(fault: Line) -> str:
    beyond = f" ({fault['undeclared']} is beyond its effect kind)" if "undeclared" in fault else ""
    return escape_terminal(f"  {fault['exception']}{beyond}")


def _attempts(stamps: Line, prefix: str, attempts: list[Line]) -> list[Leaf]:
    out = []
    for entry in attempts:
        outcome = str(entry.get("outcome", "fault" if "fault" in entry else "ok"))
        look = "good" if outcome in ("success", "ok") else "warn"
        fault = _fault(entry["fault"]) if "fault" in entry else ""
        pieces = [
            (f"attempt {entry['attempt']}  ", "plain"),
            (escape_terminal(outcome), look),
            (fault, "dim"),
        ]
        out.append(Leaf(pieces, _times(stamps, f"{prefix}.{entry['attempt']}"), []))
        if "backoff_ms" in entry:
            at = f"w{'m' if prefix == 'm' else prefix[1:]}.{entry['attempt']}"
            out.append(Leaf([(f"wait {entry['backoff_ms']} ms", "dim")], _times(stamps, at), []))
    return out


def _decision(run: Run, decision: Line) -> list[Piece]:
    answer = decision["decision"]
    late = "while it ran: " if decision["phase"] == "execution" else ""
    pieces = [
        (late, "dim"),
        (answer, _LOOKS.get(answer, "warn")),
        (f"  {escape_terminal(decision['rule_id'])}", "plain"),
    ]
    pieces.append((f"  {escape_terminal(run.places.shown(decision['at']))}", "dim"))
    if answer != "allow":
        pieces.append((f"  {escape_terminal(decision['reason'])}", "plain"))
    return pieces


def _person(approval: Line) -> list[Piece]:
    look = _LOOKS.get(approval["answer"], "warn")
    why = ": ".join(_short(text) for text in (approval["by"], approval["why"]) if text)
    return [
        ("a person said ", "plain"),
        (escape_terminal(approval["answer"]), look),
        (f"  {why}" if why else "", "dim"),
    ]


def _times(stamps: Line, at: str) -> tuple[int, int] | None:
    pair = stamps.get(at)
    return (pair[0], pair[1]) if pair is not None else None


def _span(pairs: list[Any]) -> tuple[int, int] | None:
    return (min(pair[0] for pair in pairs), max(pair[1] for pair in pairs)) if pairs else None


def _short(text: str) -> str:
    line = escape_terminal(text[:_LIMIT])
    return line if len(text) <= _LIMIT else line + "…"
