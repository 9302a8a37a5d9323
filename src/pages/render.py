r"""Templates filled in as whole pages.

Every value that a template prints is made harmless before it is printed, without the template having to ask:
characters that are invisible or change how others are drawn become `\\u{...}`, and markup is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..evidence.checking.differences.drift import shorten
from ..fail.errors import InputError
from ..runtime.formats.escape import escape_terminal
from .wording import clip, count, duration, head_and_rest, json_text, percent

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

ASSETS: Final = Path(__file__).resolve().parent / "assets"
TEMPLATES: Final = ASSETS.parent / "templates"
MARK: Final = "<!-- made by tachograph: a page of recorded runs -->"
# Line breaks of a template that touch a tag are for its author alone; a page gets neither them nor the indentation.
_LAYOUT: Final = re.compile(r"(?<=[>}])\s*\n\s*|\s*\n\s*(?=[<{])")


def render(template: str, *, title: str, style: str, scripts: tuple[str, ...] = (), **values: Any) -> str:
    """Return a whole page that loads nothing: its style and scripts are in it and nothing else may run.

    Args:
        template: name of a file in `templates/`.
        title: text of the title.
        style: name of the style sheet in `assets/`.
        scripts: names of the scripts in `assets/`; a page with scripts may have an icon too.
        values: what the template prints; plain strings are untrusted.

    Raises:
        InputError: Jinja2 is not installed.
        KeyError: a value lacks what the template asks for.
    """
    environment = _environment()
    from jinja2 import UndefinedError

    sheet, codes = _asset(style), [_asset(name) for name in scripts]
    more = f"script-src {' '.join(digest for _, digest in codes)}; img-src data:; " if codes else ""
    rules = f"default-src 'none'; style-src {sheet[1]}; {more}base-uri 'none'; form-action 'none'"
    try:
        body = environment.get_template(template).render(
            values, title=title, rules=rules, style=sheet[0], scripts=[source for source, _ in codes]
        )
    except UndefinedError as error:
        raise KeyError(str(error)) from None
    return f"<!doctype html>\n{MARK}\n{body}\n"


def printed(value: Any) -> Any:
    """Return what a template prints for a value: markup as it is, any other text with nothing hidden in it."""
    if hasattr(value, "__html__"):
        return value
    return "" if value is None else escape_terminal(str(value))


def text_block(text: str) -> Markup:
    """Return text of several lines for a `pre`: line feeds and tabs stay, all else is escaped as anywhere."""
    from markupsafe import Markup, escape

    lines = text.replace("\r\n", "\n").split("\n")
    shown = escape("\n".join("\t".join(map(escape_terminal, line.split("\t"))) for line in lines))
    return Markup("\n") + shown  # a parser drops a line feed that begins a `pre`


@lru_cache(maxsize=1)
def _environment() -> Environment:
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError:
        raise InputError(
            "a page needs the package jinja2", remedy="run: pip install 'tachograph[desk]'"
        ) from None

    def source(name: str) -> str:
        return _LAYOUT.sub("", (TEMPLATES / name).read_text(encoding="utf-8").strip())

    environment = Environment(
        loader=FunctionLoader(source),
        autoescape=True,
        finalize=printed,
        undefined=StrictUndefined,
        auto_reload=False,
    )
    filters = (clip, count, duration, head_and_rest, json_text, percent, shorten, text_block)
    environment.filters.update({filter_.__name__: filter_ for filter_ in filters})
    return environment


@lru_cache(maxsize=8)
def _asset(name: str) -> tuple[Markup, str]:
    """Return a file of `assets/` as it stands in a page, and the source expression that allows it."""
    from markupsafe import Markup

    source = "\n" + (ASSETS / name).read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(source.encode("utf-8")).digest()).decode("ascii")
    return Markup(source), f"'sha256-{digest}'"  # noqa: S704 - a file of the package, without untrusted text
