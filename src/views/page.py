"""A run as one page that loads nothing: how it ended, where its time went, every step, the policy behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ..evidence.files.words.call_words import ran_together
from ..fail.catalog import ENDINGS, MODES
from ..pages.render import render
from ..pages.wording import duration
from ..runtime.core.lines import Line
from .charts import bars, budgets, lanes, outline_shapes, tree_of
from .model import BUDGETS, PolicyFile, Run, of_known_shape
from .requests import Pointer, parts_of, pointers_of, summary_of
from .steps import error_words, model_facts, touched

OPEN: Final = 12  # steps; with more, all of them are folded at first
GROUP: Final = 40  # steps; where scripts run, those after the first group are parsed when the page is shown
WHOLE: Final = 250  # lines; of a longer policy file only those around the decisions are shown
AROUND: Final = 2

# what the macros of `steps.html` call
HELPERS: Final = {
    "error_words": error_words,
    "group_size": GROUP,
    "model_facts": model_facts,
    "modes": MODES,
    "outline_shapes": outline_shapes,
    "ran_together": ran_together,
    "request_summary": summary_of,
    "touched": touched,
}


class Ending(NamedTuple):
    """How a run ended: a word, the sign it is drawn with, and a sentence."""

    word: str
    sign: str
    words: str


def run_page(run: Run, *, home: str | None = None) -> str:
    """Return the page of a run.

    Args:
        run: the run.
        home: address of a page over all runs, where there is one.

    Raises:
        RecordError: its ledger holds something else than a run writes.
    """
    with of_known_shape(run.name):
        tree = tree_of(run)
        timed = any(step.pieces for step in run.steps)  # outcomes in a journal carry no times
        return render(
            "run.html",
            title=f"{run.title} · run",
            style="page.css",
            scripts=("page.js",),
            kind="run",
            home=home,
            skip="steps",
            places=(
                "steps",
                *(("timeline",) if timed else ()),
                "budgets",
                "requests",
                "policy",
                "provenance",
            ),
            run=run,
            ending=ending_of(run),
            numbers=numbers_of(run),
            is_open=len(run.steps) <= OPEN,
            lanes=lanes(run) if timed else None,
            tree=bars(tree),
            budgets=budgets(run),
            policy_files=list(_policy_files(run)),
            request_lines=_request_lines(run),
            request_parts=parts_of(run.lines),
            **HELPERS,
        )


def _request_lines(run: Run) -> dict[int, list[Pointer]]:
    """Return the lines on what the model saw, by step."""
    found: dict[int, list[Pointer]] = {}
    before = None
    for step in run.steps:
        if step.request is not None:
            found[step.index] = list(
                pointers_of(step.request, step.line, before, len(run.run.get("history", ())))
            )
            before = step.index
    return found


def ending_of(run: Run) -> Ending:
    """Return how a run ended, in words for a reader."""
    if run.end is None:
        return Ending("unfinished", "other", "The run is under way, or died.")
    reason, mode = str(run.end["terminal_reason"]), run.end["failure_mode"]
    words = ENDINGS.get(reason, "an unknown ending")
    why = f" Failure mode {mode}: {MODES.get(mode, 'an unknown mode')}." if mode else ""
    sign = "allow" if reason == "final_answer" else "deny"
    return Ending(reason, sign, f"{words[:1].upper()}{words[1:]}.{why}")


def totals_of(run: Run) -> Line:
    """Return the totals of the end line, or those so far."""
    if run.end is not None:
        totals: Line = run.end["totals"]
        return totals
    used = run.steps[-1].used if run.steps else (0,) * len(BUDGETS)
    attempts = sum(len(call.attempts) for step in run.steps for call in step.calls)
    return {"steps": len(run.steps), "tool_calls": used[2], "attempts": attempts, "retries": attempts - used[2],
            "denials": 0, "input_tokens": used[1], "output_tokens": 0, "result_bytes": used[3]}  # fmt: skip


def tokens_of(run: Run) -> int:
    """Return the number of tokens in and out."""
    totals = totals_of(run)
    return int(totals["input_tokens"] + totals["output_tokens"])


def numbers_of(run: Run) -> list[tuple[str, str]]:
    """Return (name, number) pairs that sum a run up."""
    totals = totals_of(run)
    keys = ("steps", "tool_calls", "attempts", "retries", "denials")
    numbers = [(key.removeprefix("tool_"), f"{totals[key]:,}") for key in keys]
    return [*numbers, ("tokens", f"{tokens_of(run):,}"), ("time", duration(run.duration))]


def _policy_files(run: Run) -> Iterator[tuple[PolicyFile, list[tuple[int | None, str, bool]]]]:
    """Yield each policy file with its lines as (number, text, is used); a number of None stands for a gap."""
    decisions = [decision for step in run.steps for decision in step.line["policy_decisions"]]
    places = [place for place in (run.line_at(decision["at"]) for decision in decisions) if place is not None]
    for index, file in enumerate(run.policy):
        used = {number for file_number, number, _ in places if file_number == index}
        yield file, list(_shown_lines(file.lines or [], used))


def _shown_lines(lines: list[str], used: set[int]) -> Iterator[tuple[int | None, str, bool]]:
    last = 0
    for number, text in enumerate(lines, start=1):
        if len(lines) > WHOLE and used.isdisjoint(range(number - AROUND, number + AROUND + 1)):
            continue
        if number != last + 1:
            yield None, "", False
        yield number, text, number in used
        last = number
