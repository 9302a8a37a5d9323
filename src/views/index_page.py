"""The first page of a site: all runs in a table that can be filtered, searched and sorted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .charts import count, duration
from .markup import Html, Part, el, page
from .model import Run
from .page import help_box, tokens_of, top, totals_of
from .steps import clipped


@dataclass(frozen=True, slots=True)
class Entry:
    """A run in the index; with `why` it has no page, since its record cannot be read."""

    name: str
    why: str = ""
    address: str = ""
    question: str = ""
    kind: str = ""
    ending: str = ""
    mode: str = ""
    model: str = ""
    steps: int = 0
    calls: int = 0
    denials: int = 0
    retries: int = 0
    tokens: int = 0
    ns: int = 0


def entry_of(run: Run, name: str, address: str) -> Entry:
    """What the index says of a run; its kind is the folder that it lies in."""
    totals, model = totals_of(run), run.run["model"]
    modes = {step.line["failure_mode"] for step in run.steps} - {None}
    last = run.end["failure_mode"] if run.end is not None else None
    return Entry(
        name=name,
        address=address,
        question=clipped(run.run["question"], 200),
        kind=name.rpartition("/")[0],
        ending=str(run.end["terminal_reason"]) if run.end is not None else "unfinished",
        mode=str(last or (sorted(modes)[0] if modes else "")),
        model=f"{model['provider']} / {model['name']}",
        steps=totals["steps"],
        calls=totals["tool_calls"],
        denials=totals["denials"],
        retries=totals["retries"],
        tokens=tokens_of(run),
        ns=run.duration,
    )


_NUMBERS: Final = ("steps", "calls", "denials", "retries", "tokens")


def index_page(entries: Sequence[Entry]) -> str:
    """The page over all runs, in the order given."""
    good = [entry for entry in entries if not entry.why]
    bad = [entry for entry in entries if entry.why]
    head = el("tr", *[_head(words) for words in ("run", "ending", "model", *_NUMBERS, "time")], role="row")
    table = el(
        "table",
        el("caption", "Recorded runs", class_="hide"),
        el("thead", head, role="rowgroup"),
        el("tbody", [_row(entry) for entry in good], role="rowgroup"),
        class_="runs",
        role="table",
    )
    body = [
        top(None, (), "runs"),
        el(
            "main",
            el("h1", "Recorded runs"),
            el("p", _summary(good), class_="ending"),
            _filters(good),
            el("section", table, id="runs", tabindex="-1", aria_label="Runs"),
            _unreadable(bad),
        ),
        help_box(),
        el(
            "footer",
            el(
                "p",
                "Made by tachograph from the runs' ledgers alone. This site loads nothing from elsewhere.",
            ),
        ),
    ]
    return page("Recorded runs", body, scripts=("page.js", "index.js"), kind="index")


def _summary(good: Sequence[Entry]) -> str:
    answered = sum(entry.ending == "final_answer" for entry in good)
    denied = sum(entry.denials > 0 for entry in good)
    tokens = sum(entry.tokens for entry in good)
    return f"{count(len(good), 'run')}, {answered} answered, {denied} with denials, {count(tokens, 'token')}."


def _filters(good: Sequence[Entry]) -> Html:
    def choice(name: str, values: set[str]) -> list[Part]:
        options = [el("option", "all", value="")] + [
            el("option", value, value=value) for value in sorted(values - {""})
        ]
        return [el("label", name, for_=f"by-{name}"), el("select", options, id=f"by-{name}")]

    return el(
        "div",
        el(
            "span",
            el("label", "search", for_="search"),
            el("input", type="search", id="search", autocomplete="off", spellcheck="false"),
        ),
        el("span", choice("kind", {entry.kind for entry in good})),
        el("span", choice("ending", {entry.ending for entry in good})),
        el("span", choice("mode", {entry.mode for entry in good})),
        el(
            "span",
            el("label", el("input", type="checkbox", id="by-denials"), " with denials", class_="check"),
        ),
        el("span", count(len(good), "run"), id="found", role="status"),
        class_="filters js",
        role="search",
        aria_label="Filter the runs",
    )


def _head(words: str) -> Html:
    number = words in _NUMBERS or words == "time"
    return el("th", words, scope="col", role="columnheader", class_="num" if number else None)


def _row(entry: Entry) -> Html:
    known = "allow" if entry.ending == "final_answer" else "other" if entry.ending == "unfinished" else "deny"
    kind = el("span", f"{entry.kind}/", class_="soft") if entry.kind else None
    first = el(
        "th",
        el("a", kind, entry.name.rpartition("/")[2], href=entry.address),
        el("span", entry.question, class_="soft asked"),
        scope="row",
        role="rowheader",
    )
    mode = el("span", f" {entry.mode}", class_="soft asked") if entry.mode else None
    cells = [
        _cell("ending", [el("span", entry.ending, class_=f"b {known}"), mode]),
        _cell("model", entry.model, class_="soft name"),
        *(_cell(name, f"{getattr(entry, name):,}", getattr(entry, name)) for name in _NUMBERS),
        _cell("time", duration(entry.ns), entry.ns),
    ]
    given = {f"data_{key}": getattr(entry, key) for key in ("kind", "ending", "mode", "denials")}
    return el("tr", first, cells, role="row", **given)


def _cell(label: str, words: Part, value: int | None = None, class_: str | None = None) -> Html:
    """A cell; `value` is what a number is sorted by."""
    shape = "num" if value is not None else class_
    return el("td", words, role="cell", class_=shape, data_label=label, data_value=value)


def _unreadable(bad: Sequence[Entry]) -> Part:
    if not bad:
        return None
    return el(
        "section",
        el("h2", "Records that cannot be read"),
        el("ul", [el("li", el("b", entry.name), " ", el("span", entry.why, class_="soft")) for entry in bad]),
    )
