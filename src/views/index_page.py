"""The first page of a site: all runs in a table that can be filtered, searched and sorted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..pages.render import render
from ..pages.wording import clip
from .model import Run
from .page import tokens_of, totals_of


@dataclass(frozen=True, slots=True)
class Entry:
    """A run in the index; one whose record cannot be read has no page, and `why` says so."""

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
    """Return what the index says about a run; its kind is the folder it lies in."""
    totals, model = totals_of(run), run.run["model"]
    modes = {step.line["failure_mode"] for step in run.steps} - {None}
    last = run.end["failure_mode"] if run.end is not None else None
    return Entry(
        name=name,
        address=address,
        question=clip(run.run["question"], 200),
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


def index_page(entries: Sequence[Entry]) -> str:
    """Return the page over all runs, in the order given."""
    return render(
        "index.html",
        title="Recorded runs",
        style="page.css",
        scripts=("page.js", "index.js"),
        kind="index",
        home=None,
        skip="runs",
        places=(),
        entries=[entry for entry in entries if not entry.why],
        unreadable=[entry for entry in entries if entry.why],
    )
