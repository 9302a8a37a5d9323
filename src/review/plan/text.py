"""A change of policy for a terminal: the verdict first, then each group; every line is inert and fits the width."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...evidence.checking.drift import counted
from ...evidence.files.report import visible
from ...evidence.queries.counterfactual import NEEDS_APPROVAL, OTHER_WAY, TIGHTENING, WIDENING
from ...runtime.formats import canonical_json
from .plan import CANNOT_TELL, KINDS, NOT_UNDER, SAME, Plan, Told

Paint = Callable[[str, str], str]

COLOURS = {WIDENING: "red", TIGHTENING: "yellow", NEEDS_APPROVAL: "yellow"}
_LONG = 2000  # characters of one thing told
MOST = 200  # changes of one kind, and runs, where nobody says another number
AT_A_TERMINAL = 20


def lines_of(plan: Plan, width: int, paint: Paint, most: int = MOST) -> Iterator[str]:
    """The lines to print: of each kind of change and group of runs `most`, then how many more there are."""
    yield from _fold(f"policy diff: {plan.verdict}", width)
    for kind in KINDS:
        changes = plan.changes(kind)
        for change in changes[:most]:
            yield ""
            yield from _headed(kind, f"{change.rule}  {change.at}", width, paint)
            for text in (change.what, f"such as {event_of(change.witness)}", sides_of(change.witness)):
                yield from _fold(text, width, "  ")
        yield from _more(len(changes) - most, kind, width)
    if plan.comparison.settings:
        yield ""
        yield from _fold("settings that decide no call", width)
        for setting in plan.comparison.settings[:most]:
            yield from _fold(setting_of(setting), width, "  ")
        yield from _more(len(plan.comparison.settings) - most, "setting", width)
    if plan.comparison.undecided:
        yield ""
        yield from _fold("untold", width)
        for text in plan.comparison.undecided[:most]:
            yield from _fold(text, width, "  ")
        yield from _more(len(plan.comparison.undecided) - most, "untold", width)
    if plan.runs is not None:
        yield from _runs(plan, width, paint, most)
    if plan.closing is not None:
        yield ""
        yield from _fold(plan.closing, width)


def _more(number: int, kind: str, width: int) -> Iterator[str]:
    """How many of a kind are not shown; nothing where all are."""
    if number > 0:
        named = kind if kind in (NEEDS_APPROVAL, "untold") else counted(number, kind).partition(" ")[2]
        yield ""
        yield from _fold(f"and {number} more {named}, --json has all", width)


def _runs(plan: Plan, width: int, paint: Paint, most: int) -> Iterator[str]:
    told = [item for group in (*KINDS, OTHER_WAY, CANNOT_TELL) for item in plan.by_group[group]]
    if told or plan.by_group[NOT_UNDER]:
        yield ""
        yield from _fold("recorded runs", width)
    for item in told[:most]:
        yield from _headed(item.group, item.run, width, paint)
        for text in words_of(item):
            yield from _fold(text, width, "  ")
    yield from _more(len(told) - most, "run", width)
    if plan.by_group[NOT_UNDER]:
        names = " ".join(item.run for item in plan.by_group[NOT_UNDER])
        yield from _fold(f"{NOT_UNDER}: {names}", width)
    if plan.by_group[SAME] and told:
        yield from _fold(f"{counted(len(plan.by_group[SAME]), 'run')} the same", width)


def words_of(item: Told) -> Iterator[str]:
    """What is told of a run that is not the same: where it parts, and what is only supposed behind it."""
    found = item.found
    if found is None:
        return
    if found.untold is not None:
        yield found.untold
        return
    if found.flip is not None:
        yield f"{place_of(found.flip)}: {side_of(found.flip.before)} -> {side_of(found.flip.after)}"
    else:
        yield str(found.why)
    text = f"{_decisions(found.same)} the same before it, {_decisions(found.behind)} hypothetical behind it"
    brings = item.group == WIDENING and found.flip is not None and found.flip.tool is not None
    yield text + ("; what the call would have brought is not known" if brings else "")


def _decisions(number: int) -> str:
    return f"{counted(number, 'decision')} {'is' if number == 1 else 'are'}"


def place_of(flip: Any) -> str:
    """Where in a run: step, position, tool; a budget is asked before the model is."""
    if flip.position == "d":
        return f"step {flip.step}, before the model is asked: budget"
    return f"step {flip.step} {flip.position} {flip.tool or 'budget'}"


def side_of(decision: Mapping[str, Any] | None) -> str:
    """A decision in short; a budget that says nothing objects to nothing."""
    if decision is None:
        return "no objection"
    return f"{decision['decision']} {decision['rule_id']} ({decision['at']})"


def sides_of(witness: Any) -> str:
    """What both policies say of a witness."""
    return f"{side_of(witness.before)} -> {side_of(witness.after)}"


def event_of(witness: Any) -> str:
    """A witness as one line: the call, what is used by then, what is met while it runs."""
    text = "a step" if witness.tool is None else f"{witness.tool} {_json(witness.arguments or {})}"
    if witness.used:
        text += " with " + ", ".join(f"{name} {count}" for name, count in witness.used.items()) + " used"
    if witness.late is not None:
        text += f", meeting {_json(witness.late)}"
    if witness.result_bytes is not None:
        text += f", a result of {counted(witness.result_bytes, 'byte')}"
    return text


def setting_of(setting: Any) -> str:
    """A setting that moved, as one line."""
    text = f"{setting.name}: {_json(setting.before)} -> {_json(setting.after)} ({setting.at})"
    return f"{text}: {setting.note}" if setting.note else text


def _json(value: Any) -> str:
    text = canonical_json.encode(value)
    return text if len(text) <= _LONG else text[: _LONG - 1] + "…"


def _headed(kind: str, text: str, width: int, paint: Paint) -> Iterator[str]:
    first, *others = _fold(f"{kind}  {text}", width)
    yield paint(kind, COLOURS.get(kind, "bold")) + first[len(kind) :]
    yield from others


def _fold(text: str, width: int, indent: str = "") -> list[str]:
    """Foreign text on lines of a terminal: inert, no longer than it is wide."""
    line = visible(text[:_LONG]) + "…" * (len(text) > _LONG)
    return textwrap.wrap(
        line,
        width,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_on_hyphens=False,
        drop_whitespace=True,
    ) or [indent]
