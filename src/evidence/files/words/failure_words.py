"""What went wrong in a step, in words."""

from __future__ import annotations

from typing import Any, Final

from ....runtime.formats.escape import code_span, escape_markdown
from ....runtime.journal.ledger import Line

_SAID: Final = ("position", "problem", "exception", "kind", "keyword", "limit", "pointer")


def failure_in_words(error: Line) -> str:
    """Return what an entry of a step's `errors` says, as Markdown."""
    said = []
    if "problem" in error:
        said.append(_text(error["problem"]))
    if "exception" in error:
        kind = f" ({_text(error['kind'])})" if "kind" in error else ""
        said.append(f"{_text(error['exception'])}{kind}")
    if "keyword" in error:
        where = code_span(error["pointer"]) if error.get("pointer") else "the value"
        limit = f" ({_text(error['limit'])})" if error.get("limit") else ""
        said.append(f"{where} violates {_text(error['keyword'])}{limit}")
    first = ": ".join(said)
    rest = [f"{_text(key)} {_text(error[key])}" for key in sorted(error) if key not in _SAID]
    return ", ".join([first, *rest] if first else rest)


def _text(value: Any) -> str:
    return escape_markdown(str(value))
