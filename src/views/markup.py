"""HTML out of strings: one function through which all text goes, elements, and a page around them.

What is no `Html` is text, and text is made inert: markup is escaped, and characters that nobody sees or that
change how others are drawn are written as `\\u{...}`.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Final

from ..evidence.files.report import visible

ASSETS: Final = Path(__file__).resolve().parent / "assets"
_VOID: Final = frozenset("br input".split())
_SHAPES: Final = frozenset("path rect line".split())  # in a drawing an element without content ends itself
MARK: Final = "<!-- made by tachograph: a page of recorded runs -->"


class Html(str):
    """Markup of ours: `el` and `join` do not escape it again."""

    __slots__ = ()


Part = str | Iterable["Part"] | None


def text(value: str) -> Html:
    """Any text, on one line, as markup that says nothing but that text. Right between tags and in quotes."""
    return Html(html.escape(visible(value)))


def block(value: str) -> Html:
    """Text of several lines: line feeds and tabs stay what they are, all else is as in `text`."""
    if value.isascii() and value.isprintable():
        return Html(html.escape(value))
    lines = value.replace("\r\n", "\n").split("\n")
    return Html(html.escape("\n".join("\t".join(map(visible, line.split("\t"))) for line in lines)))


def join(parts: Part) -> Html:
    """Parts one after the other; strings that are no Html are text, None is nothing."""
    if parts is None:
        return Html("")
    if isinstance(parts, Html):
        return parts
    if isinstance(parts, str):
        return text(parts)
    return Html("".join([join(part) for part in parts]))


def el(name: str, *parts: Part, **attributes: str | int | bool | None) -> Html:
    """An element. `class_` is `class`, `aria_label` is `aria-label`; None and False leave an attribute out."""
    opened = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        named = key.rstrip("_").replace("_", "-")
        opened.append(named if value is True else f'{named}="{text(str(value))}"')
    if name in _VOID:
        return Html(f"<{' '.join(opened)}>")
    if name in _SHAPES:
        return Html(f"<{' '.join(opened)}/>")
    return Html(f"<{' '.join(opened)}>{''.join([join(part) for part in parts])}</{name}>")


def pre(value: str, **attributes: str | int | bool | None) -> Html:
    """Text of several lines in a `pre`. A parser drops a line feed that begins one, so one is put there."""
    opened = el("pre", Html("\n"), block(value), **attributes)
    return opened


def svg(width: int, height: int, *parts: Part, class_: str, label: str | None = None) -> Html:
    """A drawing that stretches to its place; without a label it is for the eye alone."""
    return el(
        "svg",
        *parts,
        class_=class_,
        viewBox=f"0 0 {width} {height}",
        preserveAspectRatio="none",
        role="img" if label is not None else None,
        aria_label=label,
        aria_hidden="true" if label is None else None,
    )


@lru_cache(maxsize=8)
def _asset(name: str) -> tuple[Html, str]:
    """A file of ours as it stands in a page, and the source of a CSP that lets nothing else through."""
    source = "\n" + (ASSETS / name).read_text(encoding="utf-8")
    sha = base64.b64encode(hashlib.sha256(source.encode("utf-8")).digest()).decode("ascii")
    return Html(source), f"'sha256-{sha}'"


_ICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Ccircle cx='8' cy='8' "
    "r='6.5' fill='none' stroke='%232b6a8f' stroke-width='2'/%3E%3Cpath d='M8 8V3.5M8 8l3 2' stroke='%232b6a8f' "
    "stroke-width='2' stroke-linecap='round'/%3E%3C/svg%3E"
)


def page(title: str, body: Part, *, scripts: Iterable[str] = ("page.js",), kind: str = "run") -> str:
    """A whole page that loads nothing: its style and scripts are in it, and its CSP lets no others through."""
    style, style_hash = _asset("page.css")
    code = [_asset(name) for name in scripts]
    policy = (
        f"default-src 'none'; style-src {style_hash}; script-src {' '.join(sha for _, sha in code)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = [
        Html('<meta charset="utf-8">'),
        Html(f'\n<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        Html('\n<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('\n<meta name="color-scheme" content="light dark">'),
        Html('\n<meta name="referrer" content="no-referrer">'),
        Html("\n"),
        el("title", title),
        Html(f'\n<link rel="icon" href="{_ICON}">\n'),
        el("style", style),
        *(el("script", source) for source, _ in code),
    ]
    whole = el("html", el("head", head), Html("\n"), el("body", body, class_=kind), Html("\n"), lang="en")
    return f"<!doctype html>\n{MARK}\n{whole}\n"
