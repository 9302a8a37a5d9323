"""Two runs side by side as one page: where they first part, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from ..evidence.checking.drift import Divergence, Drift, class_of, compare, shorten
from ..evidence.files.json_diff import differences
from .charts import count, duration
from .markup import Html, Part, el, join, page
from .model import Run, Step, of_known_shape
from .page import ending_of, facts, help_box, steps_section, tokens_of, top, totals_of
from .steps import arguments_of, badge, clipped, gist, long_text

Line = dict[str, Any]

SHOWN: Final = 30  # differences listed of one step
_KEYS: Final = ("steps", "tool_calls", "attempts", "retries", "denials")


@dataclass(frozen=True, slots=True)
class Pair:
    """The steps of one number in both runs, and how they differ: (pointer, left, right, class)."""

    number: int
    left: Step | None
    right: Step | None
    found: list[tuple[str, Any, Any, str]]

    @property
    def differs(self) -> bool:
        """Whether there is a difference of substance: digests alone are none."""
        return (
            self.left is None or self.right is None or any(kind != "DIGEST-ONLY" for *_, kind in self.found)
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs compared: `setup` what they were given, `drift` what they did.

    `timed` says that their times were compared too, which a real clock makes idle.
    """

    left: Run
    right: Run
    drift: Drift
    setup: list[tuple[str, Any, Any, str]]
    pairs: list[Pair]
    timed: bool

    @property
    def first(self) -> Divergence | None:
        """The first difference of substance."""
        found = self.drift.first
        return found if found is not None and found.kind != "DIGEST-ONLY" else None


def compared(left: Run, right: Run) -> Comparison:
    """How two runs differ, step by step. Raises RecordError for a ledger of an unknown shape."""
    with of_known_shape(f"{left.name} or {right.name}"):
        return _compared(left, right)


def _compared(left: Run, right: Run) -> Comparison:
    timed = all(run.run["clock"]["kind"] == "virtual" for run in (left, right))
    a, b = ([line if timed else _untimed(line) for line in run.lines] for run in (left, right))
    steps = [[line for line in lines if line["type"] == "step"] for lines in (a, b)]
    pairs = []
    for number in range(max(len(left.steps), len(right.steps))):
        one, other = (run.steps[number] if number < len(run.steps) else None for run in (left, right))
        found = _found("step", steps[0][number], steps[1][number]) if one and other else []
        pairs.append(Pair(number + 1, one, other, found))
    # names and inputs are told apart as the set-up: what the runs did with them is what parts
    drift = compare([{"type": "run"}, *a[1:]], [{"type": "run"}, *b[1:]])
    return Comparison(left, right, drift, _found("run", a[0], b[0]), pairs, timed)


def _untimed(line: Line) -> Line:
    return {key: value for key, value in line.items() if key not in ("stamps", "stamp", "clock")}


def _found(kind: str, before: Line, after: Line) -> list[tuple[str, Any, Any, str]]:
    return [(at, a, b, class_of(kind, at)) for at, a, b in differences(before, after)]


# ---- the page ------------------------------------------------------------------------------------------------


def compare_page(both: Comparison) -> str:
    """The page of two runs. Raises RecordError for a ledger of an unknown shape."""
    with of_known_shape(f"{both.left.name} or {both.right.name}"):
        return _page(both)


def _page(both: Comparison) -> str:
    pairs = list(_pairs(both))
    body = [
        top(None, ("steps", "setup")),
        el(
            "main",
            _head(both),
            steps_section(pairs, is_open=False),
            _setup(both),
        ),
        help_box(),
        el(
            "footer",
            el("p", "Made by tachograph from two ledgers alone. This page loads nothing and sends nothing."),
        ),
    ]
    return page(f"{both.left.title} and {both.right.title} · compared", body)


def _head(both: Comparison) -> Html:
    sides = [_summary(letter, run) for letter, run in (("A", both.left), ("B", both.right))]
    return el(
        "section",
        el("h1", "Two runs compared"),
        el("div", sides, class_="sides"),
        el("h2", "First divergence"),
        _first(both),
        class_="head",
        aria_label="The runs",
    )


def _summary(letter: str, run: Run) -> Html:
    totals = totals_of(run)
    numbers: list[tuple[str, Part]] = [(key.replace("tool_", ""), f"{totals[key]:,}") for key in _KEYS]
    numbers += [("tokens", f"{tokens_of(run):,}"), ("time", duration(run.duration))]
    return el(
        "div",
        el("h2", f"{letter} ", el("span", run.name, class_="soft")),
        ending_of(run),
        facts(numbers),
        class_="side",
    )


def _first(both: Comparison) -> Html:
    first = both.first
    idle = (
        None
        if both.timed
        else el("p", "Times are not compared: one of the clocks is a real one.", class_="soft")
    )
    if first is None:
        return join([el("p", badge("none"), " Both runs went the same way; at most digests differ."), idle])
    where: Part = "the end of the run"
    if first.step is not None:
        where = el("a", f"step {first.step}", href=f"#step-{first.step}")
    told = first.to_dict()
    setup = (
        el("p", "They were not set up alike either: see ", el("a", "the set-up", href="#setup"), ".")
        if _moved(both)
        else None
    )
    more = both.drift.downstream
    rest = (
        f" Behind it {'lies' if more == 1 else 'lie'} {count(more, 'difference')}, most of which follow from it."
        if more
        else ""
    )
    return join(
        [
            el(
                "p",
                el("span", first.kind, class_="b deny"),
                " at ",
                where,
                ", ",
                el("code", first.pointer or "the line"),
                ".",
                rest,
            ),
            el(
                "dl",
                *(
                    [el("dt", side), el("dd", el("code", told[key]))]
                    for side, key in (("A", "before"), ("B", "after"))
                ),
                class_="kv",
            ),
            setup,
            idle,
        ]
    )


def _moved(both: Comparison) -> list[tuple[str, Any, Any, str]]:
    """What the runs were given that differs, their names aside."""
    return [item for item in both.setup if item[0] not in ("/run_id", "/prev", "/task/id")]


def _setup(both: Comparison) -> Html:
    moved = _moved(both)
    body: Part = _table(moved) if moved else el("p", "Both runs were set up alike.", class_="soft")
    return el("section", el("h2", "Set-up"), body, id="setup")


def _table(found: list[tuple[str, Any, Any, str]]) -> Html:
    """Differences in a table, the first SHOWN of them."""
    rows = [
        el(
            "tr",
            el("th", el("code", at or "the line"), scope="row"),
            el("td", el("code", shorten(a)), data_label="A"),
            el("td", el("code", shorten(b)), data_label="B"),
            el("td", kind, data_label="class", class_="soft kind"),
        )
        for at, a, b, kind in found[:SHOWN]
    ]
    head = el("tr", [el("th", words, scope="col") for words in ("where", "A", "B", "class")])
    more = len(found) - SHOWN
    return join(
        [
            el(
                "table",
                el("caption", "Differences", class_="hide"),
                el("thead", head),
                el("tbody", rows),
                class_="diffs",
            ),
            el("p", f"and {more} more", class_="soft") if more > 0 else None,
        ]
    )


def _pairs(both: Comparison) -> Iterator[Html]:
    at = None if both.first is None else both.first.step
    for pair in both.pairs:
        if not pair.differs:
            yield _pair(pair, "the same", "other", is_open=False)
        elif pair.number == at:
            yield _pair(pair, "first divergence", "deny", is_open=True)
        else:
            yield _pair(pair, "downstream", "escalate", is_open=False)


def _pair(pair: Pair, state: str, sign: str, *, is_open: bool) -> Html:
    substance = [item for item in pair.found if item[3] != "DIGEST-ONLY"]
    there = pair.left or pair.right
    assert there is not None
    if pair.left is None or pair.right is None:
        state = f"only in {'A' if pair.right is None else 'B'}: {state}"
    first = el(
        "summary",
        el("h3", el("b", f"Step {pair.number}"), " ", gist(there)),
        el("span", state, class_=f"b {sign}"),
    )
    sides = [_side(letter, step) for letter, step in (("A", pair.left), ("B", pair.right))]
    body = [el("div", sides, class_="sides"), _table(substance) if substance else None]
    mark = {"deny": "bad", "escalate": "follows"}.get(sign, "good")
    return el(
        "details",
        first,
        el("div", body, class_="body"),
        class_=f"step {mark}",
        id=f"step-{pair.number}",
        open=is_open,
    )


def _side(letter: str, step: Step | None) -> Html:
    if step is None:
        return el("div", el("h4", letter), el("p", "The run had ended.", class_="soft"), class_="side")
    parts: list[Part] = []
    said = step.line["llm_output"]
    for decision in step.refusals:
        parts.append(
            el(
                "p",
                badge(decision["decision"]),
                " ",
                el("code", decision["rule_id"]),
                f" {decision['reason']}",
            )
        )
    if said is not None:
        parts += [long_text(words) for words in (said["text"], said["final_answer"]) if words]
    for call in step.calls:
        parts.append(
            el(
                "p",
                el("code", clipped(call.name)),
                " ",
                clipped(arguments_of(call), 300),
                " ",
                badge(call.verdict),
            )
        )
        parts += [
            el(
                "p",
                el("code", decision["rule_id"]),
                " ",
                el("span", decision["at"], class_="at"),
                f" {decision['reason']}",
                class_="soft",
            )
            for decision in call.decisions
        ]
        if call.attempts:
            words = ", ".join(str(attempt["outcome"]).replace("_", " ") for attempt in call.attempts)
            parts.append(el("p", f"{count(len(call.attempts), 'attempt')}: {words}", class_="soft"))
        if call.result is not None:
            parts.append(el("p", el("code", shorten(call.result))))
    if step.line["failure_mode"]:
        parts.append(el("p", step.line["failure_mode"], class_="bad-text"))
    return el("div", el("h4", letter), parts, class_="side")
