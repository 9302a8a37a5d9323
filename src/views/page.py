"""A run as one page of HTML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from ..evidence.report import budgets, counts
from ..evidence.show import MOST, overview, policies_of, words
from ..fail.catalog import ENDINGS
from ..runtime.formats.escape import truncate
from ..runtime.log.events import Arrived, Event, RunEnded, RunStarted
from ..runtime.log.steps import steps_of
from ..runtime.policy.prices import key_of
from .markup import Html, document, element, link
from .outline import Node, outline, tone_of

MOST_BYTES: Final = 2_000_000  # of a page
# characters of one text: as many as the page has room for
_MOST_CHARACTERS: Final = (20_000, 4_000, 1_000, 400, MOST)
_MOST_PROBLEMS: Final = 50
_MOST_TOLD: Final = 2_000  # characters of a question or an answer


def page(name: str, events: Sequence[Event], *, index: str = "") -> str:
    """Return the page of a run.

    Args:
        name: The run.
        events: Its log, which need not have ended.
        index: The path from the page to the index of its site; "" where there is none.
    """
    root = outline(events)
    for limit in _MOST_CHARACTERS:
        text = _page(name, events, root, index, limit)
        if len(text.encode()) <= MOST_BYTES:
            break
    return text


def _page(name: str, events: Sequence[Event], root: Node, index: str, limit: int) -> str:
    head, end, (ending, mode, *_) = events[0], events[-1], overview(events)
    assert isinstance(head, RunStarted)
    has_ended = isinstance(end, RunEnded)
    steps = steps_of(events)
    said = f"{ending} ({ENDINGS.get(ending, 'not known here') if has_ended else 'the run has not ended'})"
    mode = f", failure mode {mode}" if mode else ""
    tone = root.below[-1].tone if has_ended else "wait"
    problems = [event for event in events if tone_of(event) == "bad"]
    answer = end.answer if isinstance(end, RunEnded) else None
    asked = head.question or "\n".join(event.text for event in events if isinstance(event, Arrived))
    models = [f"{key_of(it)} ({it.path})" for it in (head.model, *(it.name for it in head.fallbacks))]
    facts = {
        "Run": head.run_id,
        "Model": models[0],
        **{f"Fallback {number}": model for number, model in enumerate(models[1:], 1)},
        "Policy": f"{policies_of(head)}, on_deny: {head.policy.on_deny}",
        "Task": head.task or "none: the run was made from code",
        "Instructions": head.instructions or "none",
        "Tools": ", ".join(f"{tool.name} ({tool.effect})" for tool in head.tools) or "none",
        **{name.capitalize(): f"{used} of {most}" for name, used, most in budgets(head, steps)},
    }
    ids: set[str] = set()
    return document(
        f"{name}: {ending}",
        element(
            "header",
            *([element("nav", link("All runs", path=index), aria_label="Site")] if index else ()),
            element("h1", name),
            element("p", said, mode, class_=tone),
            element("p", counts(steps)),
        ),
        element(
            "main",
            element("h2", "Turns" if head.session else "Question"),
            _told(asked, limit),
            element("h2", "Answer"),
            _told("None." if answer is None else answer, limit),
            *([element("h2", "Problems"), _problems(problems)] if problems else ()),
            element("h2", "About"),
            element("dl", *(it for fact in facts.items() for it in _fact(*fact, limit))),
            element("h2", "What happened"),
            *(_section(node, limit, ids) for node in root.below),
        ),
        element("footer", element("p", "All of this follows from state.jsonl, the log of the run.")),
    )


def _problems(events: Sequence[Event]) -> Html:
    first = events[:_MOST_PROBLEMS]
    lines = [element("li", link(it.at, anchor=it.at), truncate(words(it), MOST)) for it in first]
    more = len(events) - len(first)
    return element("ul", *lines, *([element("li", f"and {more} more")] if more > 0 else ()), class_="bad")


def _fact(name: str, text: str, limit: int) -> tuple[Html, Html]:
    return element("dt", name), element("dd", _folded(text, limit))


def _section(node: Node, limit: int, ids: set[str]) -> Html:
    """Return a step, with its number as a heading, or a line that belongs to none."""
    if not node.below:
        return element("ul", _item(node, limit, ids))
    ids.add(node.at)
    items = (_item(below, limit, ids) for below in node.below)
    return element("section", element("h3", node.text.capitalize(), id=quote(node.at)), element("ul", *items))


def _item(node: Node, limit: int, ids: set[str]) -> Html:
    anchor = "" if node.at in ids else quote(node.at)
    ids.add(node.at)
    below = [element("ul", *(_item(it, limit, ids) for it in node.below))] if node.below else []
    text = _folded(node.text, limit, node.tone)
    return element("li", link(node.at, anchor=node.at), text, *below, id=anchor)


def _told(text: str, limit: int) -> Html:
    """Return what a reader came for: it is folded only where it is very long."""
    return element("div", text, class_="text") if len(text) <= _MOST_TOLD else _folded(text, limit)


def _folded(text: str, limit: int, tone: str = "") -> Html:
    """Return a text; of a long one the beginning, which can be opened."""
    if (len(text) <= MOST and "\n" not in text) or limit <= MOST:
        return element("span", truncate(text, MOST), class_=tone)
    cut = f"The first {limit} of {len(text)} characters:\n" if len(text) > limit else ""
    whole = element("div", cut, text[:limit], class_="text")
    return element("details", element("summary", truncate(text, MOST), class_=tone), whole)
