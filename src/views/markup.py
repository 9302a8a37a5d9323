"""HTML that no text can forge: whatever is not made by `element` is escaped where it is put."""

from __future__ import annotations

import html
from base64 import b64encode
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from ..runtime.formats.escape import escape_terminal

STYLE: Final = """
:root{color-scheme:light dark;--back:#ffffff;--text:#1b1b1b;--link:#0b4fb3;--line:#c9c9c9;
--good:#0a6429;--bad:#a8121b;--wait:#704b00}
@media(prefers-color-scheme:dark){:root{--back:#14171a;--text:#e4e4e4;--link:#8ab4f8;--line:#4a4f55;
--good:#74d391;--bad:#ff9d96;--wait:#e8bd57}}
body{margin:0 auto;padding:0 1em;max-width:64em;background:var(--back);color:var(--text);
font:1em/1.6 system-ui,sans-serif;overflow-wrap:anywhere}
a,a:visited{color:var(--link)}
.good{color:var(--good)}.bad{color:var(--bad)}.wait{color:var(--wait)}
ul{list-style:none;margin:0;padding:0;clear:left}
li li{margin-left:.5em;padding-left:.7em;border-left:1px solid var(--line)}
li>a{float:left;margin-right:.7em}
dt{font-weight:600}dd{margin:0 0 .4em}
.text{white-space:pre-wrap;margin:.3em 0;padding:.5em;border:1px solid var(--line)}
:target{outline:2px solid var(--link)}
footer{margin:2em 0;border-top:1px solid var(--line)}
"""
_MAY: Final = f"style-src 'sha256-{b64encode(sha256(STYLE.encode()).digest()).decode()}'"
# what every page begins with, and no other file
BEGIN: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="generator" content="tachograph">
"""
_HEAD: Final = f"""{BEGIN}<meta http-equiv="Content-Security-Policy"
content="default-src 'none'; {_MAY}; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{STYLE}</style>
"""


class Html(str):
    """Markup that `element` made."""

    __slots__ = ()


def escaped(text: str) -> str:
    """Return text for HTML.

    Line ends stay. Other characters that are invisible or change how others are drawn become escapes, as at a terminal.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(html.escape(escape_terminal(line), quote=True) for line in lines)


def element(name: str, *content: str, **attributes: str) -> Html:
    """Return an element of HTML.

    Args:
        name: Its name, which is not foreign text.
        content: What it holds: elements, and text that is escaped.
        attributes: Its attributes; `class_` is `class`, `aria_label` is `aria-label`. Empty ones
            are left out.
    """
    named = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value}
    said = "".join(f' {key}="{escaped(value)}"' for key, value in named.items())
    inner = "".join(it if isinstance(it, Html) else escaped(it) for it in content)
    return Html(f"<{name}{said}>{inner}</{name}>")


def link(text: str, *, path: str = "", anchor: str = "") -> Html:
    """Return a link to a page of the same site, or to the element of the same page whose id is `anchor`, quoted."""
    to = quote(path, errors="surrogateescape")  # the name of a file need not be UTF-8
    return element("a", text, href=to + (f"#{quote(anchor)}" if anchor else ""))


def document(title: str, *body: Html) -> str:
    """Return a whole page: it runs no script, and loads nothing."""
    return f"{_HEAD}{element('title', title)}</head>\n{element('body', *body)}</html>\n"
