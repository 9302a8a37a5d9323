"""Show a recorded run as text: steps, calls, decisions, attempts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from ...fail.errors import RecordError, system_reason
from ...runtime.core.clock import MS
from ...runtime.core.lines import Line
from ...runtime.core.outcome_codec import outcome_to_dict
from ...runtime.formats import canonical_json
from ...runtime.formats.escape import escape_terminal
from ...runtime.formats.read_file import read_unlinked
from ...runtime.journal import ledger
from ...runtime.journal.journal import JOURNAL, read_journal
from ..checking.differences.drift import counted
from ..files.manifest import STATE
from ..files.words.call_words import arguments_of, ran_together
from ..files.words.hook_words import said_by_hook
from ..files.words.how_to_resume import resumed_by
from ..files.words.rule_places import RulePlaces, moved_on
from ..recording.recorded import project_of

Paint = Callable[[str, str], str]


def show(folder: Path, *, as_json: bool, paint: Paint, root: Path | None = None) -> str:
    """Return the run in `folder` as text or JSON: its ledger, in text with the lines of rules in today's policy.

    A ledger itself may be given too, as git does to compare two of them; it is shown with the rules as it names them,
    so that only what happened makes a difference.

    Raises:
        RecordError: The ledger cannot be read.
    """
    if folder.is_file():
        return _ledger(folder, as_json=as_json, paint=paint)
    if (folder / JOURNAL).is_file():
        return _unfinished(folder, as_json=as_json, paint=paint)
    name = (folder / STATE).as_posix()
    try:
        data = read_unlinked(folder / STATE)
    except OSError as error:
        remedy = "name the folder of a recorded run"
        if folder.is_dir():
            is_shut = isinstance(error, PermissionError)
            remedy = "check its permission" if is_shut else "restore it or record the run again"
        raise RecordError(f"cannot be read ({system_reason(error)})", file=name, remedy=remedy) from None
    lines = list(ledger.read(data, name))
    if as_json:
        return json.dumps(lines, sort_keys=True)
    try:
        base = project_of(folder, root)
        return _text(lines, paint, RulePlaces(base), moved_on(lines[0], base))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ledger.unknown_shape(name, error) from error


def _ledger(file: Path, *, as_json: bool, paint: Paint) -> str:
    """Return a ledger that stands alone as text or JSON."""
    lines = list(ledger.read(read_unlinked(file), file.name))
    if as_json:
        return json.dumps(lines, sort_keys=True)
    try:
        return _text(lines, paint, None, None)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ledger.unknown_shape(file.name, error) from error


def _unfinished(folder: Path, *, as_json: bool, paint: Paint) -> str:
    """Return what the journal holds of a run that is under way or died."""
    name = (folder / JOURNAL).as_posix()
    journaled = read_journal(read_unlinked(folder / JOURNAL), name)
    if journaled is None:
        raise RecordError("holds nothing: the run died before it began", file=name, remedy="run it again")
    done = [
        {"step": index, "at": at, "outcome": outcome_to_dict(outcome)}
        for index, step in sorted(journaled.steps.items())
        for at, outcome in step.outcomes.items()
    ]
    if as_json:
        data = {
            "run": journaled.begin["run"],
            "outcomes": done,
            "in_doubt": list(journaled.intents.values()),
            "torn": journaled.torn,
        }
        return canonical_json.encode(data)
    run = journaled.begin["run"]
    out = [paint(escape_terminal(run["run_id"]), "bold"), f"question  {escape_terminal(run['question'])}"]
    if "principal" in run:
        out.append(f"principal {escape_terminal(run['principal'])}")
    for item in done:
        text = canonical_json.encode(item["outcome"])
        out.append(f"step {item['step']}  {item['at']:<8} {escape_terminal(text)[:100]}")
    if journaled.torn:
        out.append(f"torn      {journaled.torn} bytes at the journal's end are an incomplete entry")
    for intent in journaled.intents.values():
        call, tool = (escape_terminal(str(intent[key])) for key in ("call", "tool"))
        out.append(f"in doubt  call {call} of {tool}")
    place = folder.as_posix().removesuffix(".partial")
    return "\n".join([*out, f"unfinished: go on with {resumed_by(place, folder)}"])


def _text(lines: list[Line], paint: Paint, places: RulePlaces | None, remark: str | None) -> str:
    run, end = lines[0], lines[-1]
    out = [paint(escape_terminal(run["run_id"]), "bold"), f"question  {escape_terminal(run['question'])}"]
    if "principal" in run:
        out.append(f"principal {escape_terminal(run['principal'])}")
    if remark is not None:
        out.append(paint(f"note      {remark}; lines are today's", "yellow"))
    for step in lines[1:-1]:
        out += _step(step, paint, places)
    if end["final_answer"] is not None:
        out.append(f"answer    {escape_terminal(end['final_answer'])}")
    totals = end["totals"]
    out.append(f"ending    {escape_terminal(end['terminal_reason'])}")
    out.append(
        f"used      {counted(totals['steps'], 'step')}, {counted(totals['tool_calls'], 'call')}, "
        f"{counted(totals['attempts'], 'attempt')}, "
        f"{counted(totals['input_tokens'] + totals['output_tokens'], 'token')}, {end['stamp'] / 1e9:.3f} s"
    )
    return "\n".join(out)


def _told(told: Line) -> str:
    """Return in a line what the model read of a refusal, of a failure, or of its own reply."""
    return escape_terminal(f"{told.get('error', 'done')}: {told.get('reason', '')}")[:160]


def _step(step: Line, paint: Paint, places: RulePlaces | None) -> list[str]:
    stamps = step["stamps"]
    begin = min(pair[0] for pair in stamps.values())
    took = max(pair[1] for pair in stamps.values()) - begin
    mode = f"  {paint(escape_terminal(step['failure_mode']), 'yellow')}" if step["failure_mode"] else ""
    out = [f"step {step['step_index']}  +{begin // MS} ms, {took // MS} ms{mode}"]
    out += [f"  {words}" for words in ran_together(step)]
    hooks = step.get("hooks", ())
    out += ["  " + _hook(entry) for entry in hooks if entry["event"] == "before_model"]
    calls = zip(step["intended_tool_calls"], step["tool_results"], strict=False)
    for number, (call, result) in enumerate(calls):
        out.append(f"  call {escape_terminal(call['name'])} {escape_terminal(arguments_of(call))[:100]}")
        decisions: list[tuple[str, list[str]]] = []
        for decision in step["policy_decisions"]:
            if decision["id"] == call["id"]:
                lines = [_decision(decision, paint, places)]
                if "approval" in decision:
                    lines.append(_person(decision["approval"]))
                decisions.append((decision["position"], lines))
        asked = [(h["position"], [_hook(h)]) for h in hooks if h["position"].startswith(f"k{number}.")]
        if asked:  # each before the decision that it led to
            decisions = sorted([*decisions, *asked], key=lambda item: stamps.get(item[0], (begin + took,))[0])
        out += [f"       {line}" for _, lines in decisions for line in lines]
        for attempt in result["attempts"]:
            wait = f", then {attempt['backoff_ms']} ms" if "backoff_ms" in attempt else ""
            fault = f"  {escape_terminal(attempt['fault']['exception'])}" if "fault" in attempt else ""
            out.append(
                f"       attempt {attempt['attempt']}  {escape_terminal(attempt['outcome'])}{fault}{wait}"
            )
        if "told" in result:
            out.append(f"       told     {_told(result['told'])}")
    if "told" in step:
        out.append(f"  told {_told(step['told'])}")
    out += ["  " + _hook(entry) for entry in hooks if entry["event"] == "on_stop"]
    out += ["  " + _decision(d, paint, places) for d in step["policy_decisions"] if d["id"] is None]
    return out


def _hook(entry: Line) -> str:
    """Return in a line what a hook answered."""
    return escape_terminal(f"hook {entry['hook']} {entry['event']}: {said_by_hook(entry)}")[:160]


def _person(approval: Line) -> str:
    """Return a person's answer, who gave it, and the reason if there is one."""
    by = f" by {escape_terminal(approval['by'][:200])}" if approval.get("by") else ""
    why = f": {escape_terminal(approval['why'][:400])}" if approval.get("why") else ""
    return f"a person said {escape_terminal(approval['answer'])}{by}{why}"


def _decision(decision: Line, paint: Paint, places: RulePlaces | None) -> str:
    colour = "green" if decision["decision"] == "allow" else "red"
    why = "" if decision["decision"] == "allow" else f"  {escape_terminal(decision['reason'])}"
    word = paint(escape_terminal(decision["decision"]).ljust(6), colour)
    at = decision["at"] if places is None else places.shown(decision["at"])
    return f"{word} {escape_terminal(decision['rule_id'])}  {escape_terminal(at)}{why}"
