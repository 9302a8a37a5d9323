"""A policy as the text of a YAML file, with a head and with words beside its lines."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...runtime.formats.escape import printable
from ...runtime.formats.strict_yaml import YamlError, load

_WIDE: Final = 80
# the order of the shipped policy; what is not here comes last
_ORDER: Final = (
    *("schema", "tool_registry", "url_allowlist", "private_networks", "sandbox", "arg_schema_enforcement"),
    *("loop_budget", "cycle_detection", "retry", "on_deny", "approval", "redact"),
)


def policy_text(data: Mapping[str, Any], head: Iterable[str], beside: Mapping[str, str]) -> str:
    """The text of a policy file. `head` are paragraphs; `beside` has a comment by the pointer of its line,
    behind which `=` and the entry stand where that is a list.

    Comments are plain ASCII, so that none can end and go on as something else.
    """
    lines = comments(head)
    for key in sorted(data, key=lambda key: (_ORDER.index(key) if key in _ORDER else len(_ORDER), key)):
        lines += _entry(key, data[key], f"/{key}", 0, beside)
    return "".join(f"{line}\n" for line in lines)


def comments(paragraphs: Iterable[str]) -> list[str]:
    """Paragraphs as lines that begin with `#`."""
    return [line for text in paragraphs for line in _comment(ascii_only(text))]


def _comment(plain: str) -> list[str]:
    return textwrap.wrap(
        plain,
        _WIDE,
        initial_indent="# ",
        subsequent_indent="#   ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def ascii_only(text: str) -> str:
    """Text as plain ASCII that can be seen."""
    return printable(text, len(text) + 1)[1:-1] if not (text.isascii() and text.isprintable()) else text


def _entry(key: str, value: Any, pointer: str, depth: int, beside: Mapping[str, str]) -> list[str]:
    indent = "  " * depth
    start = f"{indent}{plain_key(key)}:"
    if isinstance(value, dict) and value:
        inner = [
            line
            for name in value
            for line in _entry(name, value[name], f"{pointer}/{name}", depth + 1, beside)
        ]
        return [start, *inner]
    if isinstance(value, list) and value:
        out = [start]
        for item in value:
            out += _line(f"{indent}  - {plain_scalar(item)}", beside.get(f"{pointer}={item}"))
        return out
    return _line(f"{start} {plain_scalar(value)}", beside.get(pointer))


def _line(text: str, word: str | None) -> list[str]:
    """A line with a comment beside it, or above it where that is too wide."""
    if word is None:
        return [text]
    comment = f"# {ascii_only(word)}"
    if len(text) + len(comment) + 2 <= _WIDE:
        return [f"{text}  {comment}"]
    return [" " * (len(text) - len(text.lstrip())) + comment, text]


def plain_key(name: str) -> str:
    """A key as it is, where every reader takes it for that text."""
    return name if _reads_as(f"{name}: 1\n", {name: 1}) else json.dumps(name)


def plain_scalar(value: Any) -> str:
    """A scalar without quotes where every reader takes it for the same, else in the quotes of JSON."""
    if isinstance(value, str) and ":" not in value and _reads_as(f"- {value}\n", [value]):
        return value
    return json.dumps(value)


def _reads_as(text: str, data: Any) -> bool:
    try:
        return bool(load(text.encode("utf-8"), "draft").data == data)
    except YamlError:
        return False
