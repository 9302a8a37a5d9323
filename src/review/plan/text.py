"""A change of policy for a terminal: the verdict first, then each group; every line is harmless and fits the width."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...evidence.checking.differences.drift import counted
from ...evidence.queries.flips import NEEDS_APPROVAL, OTHER_WAY, TIGHTENING, WIDENING, Counterfactual
from ...evidence.queries.wrap import fold
from ...runtime.formats import canonical_json
from ...runtime.formats.escape import escape_build_log, truncate
from ...runtime.policy.per_tool.time_windows import shown_time
from .plan import CANNOT_TELL, KINDS, NOT_UNDER, SAME, Plan, RunChange

Paint = Callable[[str, str], str]

COLOURS = {WIDENING: "red", TIGHTENING: "yellow", NEEDS_APPROVAL: "yellow"}
_LONG = 2000  # characters of one text
MOST = 200  # changes of one kind, and runs, unless another number is given
AT_A_TERMINAL = 20


def lines_of(plan: Plan, width: int, paint: Paint, most: int = MOST) -> Iterator[str]:
    """Yield the lines to print: `most` of each kind of change and of the runs, then how many more there are."""
    for indent, text, kind in _texts(plan, most):
        first, *others = fold(indent + escape_build_log(text, _LONG), width)
        yield paint(kind, COLOURS.get(kind, "bold")) + first[len(kind) :] if kind else first
        yield from others


def _texts(plan: Plan, most: int) -> Iterator[tuple[str, str, str]]:
    """Yield (indentation, text, kind that the text begins with) of each line before it is broken."""
    yield "", f"policy diff: {plan.verdict}", ""
    for kind in KINDS:
        changes = plan.changes(kind)
        for change in changes[:most]:
            yield "", "", ""
            yield "", f"{kind}  {change.rule}  {change.at}", kind
            yield from _below(
                (change.description, f"such as {event_of(change.witness)}", sides_of(change.witness))
            )
        yield from _more(len(changes) - most, kind)
    settings, undecided = plan.comparison.settings, plan.comparison.undecided
    yield from _section("settings that decide no call", list(map(setting_of, settings)), most, "setting")
    yield from _section("untold", undecided, most, "untold")
    if plan.runs is not None:
        yield from _runs(plan, most)
    if plan.closing is not None:
        yield "", "", ""
        yield "", plan.closing, ""


def _section(title: str, texts: Sequence[str], most: int, noun: str) -> Iterator[tuple[str, str, str]]:
    if texts:
        yield "", "", ""
        yield "", title, ""
        yield from _below(texts[:most])
        yield from _more(len(texts) - most, noun)


def _below(texts: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    return (("  ", text, "") for text in texts)


def _more(number: int, noun: str) -> Iterator[tuple[str, str, str]]:
    """Yield how many of a kind are not shown; nothing where all are."""
    if number > 0:
        named = noun if noun in (NEEDS_APPROVAL, "untold") else counted(number, noun).partition(" ")[2]
        yield "", "", ""
        yield "", f"and {number} more {named}, --json has all", ""


def _runs(plan: Plan, most: int) -> Iterator[tuple[str, str, str]]:
    changed = [run for group in (*KINDS, OTHER_WAY, CANNOT_TELL) for run in plan.by_group[group]]
    if changed or plan.by_group[NOT_UNDER]:
        yield "", "", ""
        yield "", "recorded runs", ""
    for run in changed[:most]:
        yield "", f"{run.group}  {run.run}", run.group
        yield from _below(words_of(run))
    yield from _more(len(changed) - most, "run")
    if plan.by_group[NOT_UNDER]:
        yield "", f"{NOT_UNDER}: {' '.join(run.run for run in plan.by_group[NOT_UNDER])}", ""
    if plan.by_group[SAME] and changed:
        yield "", f"{counted(len(plan.by_group[SAME]), 'run')} the same", ""


def words_of(run: RunChange) -> Iterator[str]:
    """Yield what there is to say about a run that is not the same: where it differs, what is hypothetical after."""
    if run.result is not None and run.result.undecided is not None:
        yield run.result.undecided
    elif run.result is not None:
        yield from difference_words(run.result)


def difference_words(result: Counterfactual) -> Iterator[str]:
    """Yield where a run differs first under another policy, and how many decisions stand before and after that."""
    flip = result.flip
    if flip is not None:
        yield f"{place_of(flip)}: {side_of(flip.before)} -> {side_of(flip.after)}"
    else:
        yield str(result.why)
    text = f"{_decisions(result.same)} the same before it, {_decisions(result.behind)} hypothetical behind it"
    has_call = flip is not None and flip.kind == WIDENING and flip.tool is not None
    yield text + ("; what the call would have brought is not known" if has_call else "")


def _decisions(number: int) -> str:
    return f"{counted(number, 'decision')} {'is' if number == 1 else 'are'}"


def place_of(flip: Any) -> str:
    """Return where in a run: step, position, tool; the budget is checked before the model is asked."""
    if flip.position == "d":
        return f"step {flip.step}, before the model is asked: budget"
    return f"step {flip.step} {flip.position} {flip.tool or 'budget'}"


def side_of(decision: Mapping[str, Any] | None) -> str:
    """Return a decision in short; None stands for a budget that objects to nothing."""
    if decision is None:
        return "no objection"
    return f"{decision['decision']} {decision['rule_id']} ({decision['at']})"


def sides_of(witness: Any) -> str:
    """Return what both policies decide on a witness."""
    return f"{side_of(witness.before)} -> {side_of(witness.after)}"


def event_of(witness: Any) -> str:
    """Return a witness on one line: the call, what is used by then, what it meets while it runs."""
    text = "a step" if witness.tool is None else f"{witness.tool} {_json(witness.arguments or {})}"
    if witness.principal is not None:
        text += f" for {witness.principal}"
    for zone, time in sorted(witness.local_times.items()):
        text += f", when it is {shown_time(zone, time)}"
    if witness.used:
        text += " with " + ", ".join(f"{name} {count}" for name, count in witness.used.items()) + " used"
    if witness.late is not None:
        text += f", meeting {_json(witness.late)}"
    if witness.result_bytes is not None:
        text += f", a result of {counted(witness.result_bytes, 'byte')}"
    return text


def setting_of(setting: Any) -> str:
    """Return a setting that changed, on one line."""
    mark = "EXPOSURE  " if setting.exposes else ""
    text = f"{mark}{setting.name}: {_json(setting.before)} -> {_json(setting.after)} ({setting.at})"
    return f"{text}: {setting.note}" if setting.note else text


def _json(value: Any) -> str:
    return truncate(canonical_json.encode(value), _LONG)
