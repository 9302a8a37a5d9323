"""Drift as one page for a browser: no script, no network, no other file; light and dark; readable on a phone.

All that comes from records is escaped and made visible first. A policy in the page's head forbids everything
but its own style sheet, named by its digest.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable, Iterator
from typing import Final

from ...evidence.checking.drift import counted
from ...evidence.files.report import visible
from .report import LINES_ONLY, Part, Review, Story

_STYLE: Final = """
:root { color-scheme: light dark; --line: #c9ced6; --dim: #5a6270; --paper: #fff; --box: #f5f6f8;
  --ink: #1a1d23; --old: #fbe9e7; --new: #e6f4ea; --link: #0b57d0; --grave: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --line: #3b414b; --dim: #a3abb8; --paper: #14161a; --box: #1d2026;
  --ink: #e7e9ee; --old: #43211e; --new: #1b3a26; --link: #8ab4f8; --grave: #ff9d94; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 70rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.15rem; overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 1rem 0 .25rem; } h4 { font-size: .85rem; margin: 0; color: var(--dim); }
a { color: var(--link); } a:focus-visible, pre:focus-visible, summary:focus-visible { outline: 3px solid var(--link); }
pre { margin: .25rem 0; padding: .6rem; background: var(--box); border: 1px solid var(--line); border-radius: 6px;
  overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; font: .875rem/1.45 ui-monospace, monospace; }
article { border-top: 1px solid var(--line); margin-top: 1.5rem; }
.sides { display: grid; grid-template-columns: 1fr 1fr; gap: .75rem; }
@media (max-width: 40rem) { .sides { grid-template-columns: 1fr; } }
.sides del, .sides ins { display: block; text-decoration: none; } del { background: var(--old); }
ins { background: var(--new); }
.kind { font-weight: 600; color: var(--grave); } .quiet .kind, .dim { color: var(--dim); }
ol, ul { padding-left: 2rem; } li { margin: .2rem 0; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .75rem; margin: .5rem 0; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; font: .875rem/1.45 ui-monospace, monospace; }
"""
_DIGEST: Final = base64.b64encode(hashlib.sha256(_STYLE.encode("utf-8")).digest()).decode("ascii")
_CSP: Final = f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'"

# what tells a page of ours from any other file
MARK: Final = b'<meta name="generator" content="tachograph check">'


def page(review: Review) -> str:
    """The page of a check, whether or not anything drifted."""
    head = _head(review)
    return "".join(
        (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f"{MARK.decode()}\n",
            f'<meta http-equiv="Content-Security-Policy" content="{_CSP}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n',
            f"<title>{_text(head)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n",
            f"<h1>{_text(head)}</h1>\n",
            *_body(review),
            "</main>\n</body>\n</html>\n",
        )
    )


def _head(review: Review) -> str:
    if review.ok:
        return f"{counted(review.total, 'run')} re-derived, all files identical"
    return f"{len(review.stories)} of {counted(review.total, 'run')} drifted"


def _body(review: Review) -> Iterator[str]:
    if review.causes:
        yield "<h2>Likely cause</h2>\n<ul>\n"
        for cause in review.causes:
            yield f'<li>{_text(cause)} <span class="dim">{_text(", ".join(cause.classes))}</span></li>\n'
        yield "</ul>\n"
    if review.stories:
        yield "<h2>Accept</h2>\n"
        yield _command(review.accept) if review.accept else f"<p>{_text(review.mended)}.</p>\n"
        if review.takes:
            yield f"<p>{_text(review.takes)}.</p>\n"
        yield '<nav aria-label="Runs by gravity">\n<h2>Runs by gravity</h2>\n<ol>\n'
        for number, story in enumerate(review.loud, start=1):
            yield f'<li><a href="#run-{number}">{_kind(story)} {_text(story.run)}</a></li>\n'
        if review.shifted:
            yield f'<li><a href="#shifted">TEXT {len(review.shifted)} runs, {LINES_ONLY}</a></li>\n'
        if review.quiet:
            yield f'<li><a href="#quiet">DIGEST-ONLY {counted(len(review.quiet), "run")}</a></li>\n'
        yield "</ol>\n</nav>\n"
    for number, story in enumerate(review.loud, start=1):
        yield from _article(number, story)
    if review.shifted:
        yield from _shifted(review)
    if review.quiet:
        yield '<article id="quiet" class="quiet">\n<h2>Only digests moved</h2>\n'
        yield from _list(story.run for story in review.quiet)
        yield "</article>\n"
    for title, lines in (("Index", review.index), ("Secrets", review.secrets)):
        if lines:
            yield f"<article>\n<h2>{title}</h2>\n"
            yield from _list(lines)
            yield "</article>\n"


def _shifted(review: Review) -> Iterator[str]:
    yield '<article id="shifted" class="quiet">\n<h2>Only policy lines have other numbers</h2>\n<dl>\n'
    for shift in review.shifts:
        yield f"<dt>{_text(shift.told)}</dt><dd>{_text(shift.text or '')}</dd>\n"
    yield "</dl>\n"
    yield from _list(story.run for story in review.shifted)
    yield "</article>\n"


def _article(number: int, story: Story) -> Iterator[str]:
    yield f'<article id="run-{number}">\n<h2>{_kind(story)} {_text(story.run)}</h2>\n'
    if story.causes:
        yield f"<p>Cause: {_text(', '.join(story.causes))}</p>\n"
    if story.first is not None:
        yield from _part("First difference", story.first)
    if story.downstream:
        yield f"<p>Downstream of it: {_text(story.downstream)}</p>\n"
    if story.grave is not None:
        yield from _part("Gravest difference", story.grave)
    if story.notes:
        yield "<h3>Found</h3>\n"
        yield from _list(story.notes)
    if story.accept:
        yield "<h3>Accept this one</h3>\n" + _command(story.accept)
    yield "</article>\n"


def _part(title: str, part: Part) -> Iterator[str]:
    where = f"step {part.step}" if part.step is not None else f"line {part.line}"
    yield f"<h3>{title}: {_text(where)} {_text(part.pointer)} [{_text(part.kind)}]</h3>\n"
    if part.facts:
        yield "<dl>\n"
        for name, text in part.facts:
            yield f"<dt>{_text(name)}</dt><dd>{_text(text)}</dd>\n"
        yield "</dl>\n"
    yield '<div class="sides">\n'
    for word, mark, tag in (("Recorded", "-", "del"), ("Now", "+", "ins")):
        yield f'<div><h4>{word}</h4><pre tabindex="0" aria-label="{word}">{_side(part, mark, tag)}</pre></div>\n'
    yield "</div>\n"


def _side(part: Part, mark: str, tag: str) -> str:
    shown = []
    last = ""
    for own, text in part.rows:
        if own == mark:
            shown.append(f"<{tag}>{_text(text) or ' '}</{tag}>")
        elif own == " ":
            shown.append(f"{_text(text)}\n")
        elif own == "…" and last in ("", mark):
            shown.append(f'<span class="dim">… {_text(text)}</span>\n')
        last = own
    has_own = any(own == mark for own, _ in part.rows)
    return "".join(shown) + ("" if has_own else '<span class="dim">nothing</span>')


def _kind(story: Story) -> str:
    return f'<span class="kind">{_text(story.kind)}</span>'


def _command(text: str) -> str:
    return f'<pre tabindex="0" aria-label="Command">{_text(text)}</pre>\n'


def _list(lines: Iterable[str]) -> Iterator[str]:
    yield "<ul>\n"
    yield from (f"<li>{_text(line)}</li>\n" for line in lines)
    yield "</ul>\n"


def _text(value: object) -> str:
    """Any text as what it is, on one line."""
    return html.escape(visible(str(value)), quote=True)
