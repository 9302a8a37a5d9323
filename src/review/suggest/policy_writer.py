"""A policy as the text of a YAML file, with comments at its head and beside its lines."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...runtime.formats.escape import escape_ascii
from ...runtime.formats.strict_yaml import YamlError, load
from ...runtime.resources.http_methods import url_text

_MAX_WIDTH: Final = 80
# the order of the shipped policy; what is not here comes last
_ORDER: Final = (
    *(
        "schema",
        "tool_registry",
        "url_allowlist",
        "credentials",
        "private_networks",
        "sandbox",
        "arg_schema_enforcement",
    ),
    *("lists", "tools", "principals"),
    *("loop_budget", "cycle_detection", "retry", "on_deny", "on_failure", "approval", "redact"),
)


def policy_text(data: Mapping[str, Any], head: Iterable[str], line_comments: Mapping[str, str]) -> str:
    """Return the text of a policy file.

    Comments are plain ASCII, so that no character in one can end its line.

    Args:
        data: The policy.
        head: Paragraphs of the comment at the top.
        line_comments: A comment by the JSON Pointer of its line; for an entry of a list, the list's pointer, `=` and
            the entry, or its URL.
    """
    lines = comment_lines(head)
    for key in sorted(data, key=lambda key: (_ORDER.index(key) if key in _ORDER else len(_ORDER), key)):
        lines += _entry(key, data[key], f"/{key}", 0, line_comments)
    return "".join(f"{line}\n" for line in lines)


def comment_lines(paragraphs: Iterable[str]) -> list[str]:
    """Return paragraphs as lines that begin with `#`."""
    wrapper = textwrap.TextWrapper(
        _MAX_WIDTH,
        initial_indent="# ",
        subsequent_indent="#   ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line for text in paragraphs for line in wrapper.wrap(escape_ascii(text))]


def _entry(key: str, value: Any, pointer: str, depth: int, line_comments: Mapping[str, str]) -> list[str]:
    indent = "  " * depth
    start = f"{indent}{plain_key(key)}:"
    if isinstance(value, dict) and value:
        inner = [
            line
            for name in value
            for line in _entry(name, value[name], f"{pointer}/{name}", depth + 1, line_comments)
        ]
        return [start, *inner]
    if isinstance(value, list) and value:
        out = [start]
        for item in value:
            name = url_text(item) if isinstance(item, dict) and "url" in item else item
            out += _line(f"{indent}  - {plain_scalar(item)}", line_comments.get(f"{pointer}={name}"))
        return out
    return _line(f"{start} {plain_scalar(value)}", line_comments.get(pointer))


def _line(text: str, comment: str | None) -> list[str]:
    """Return a line with its comment beside it, or above it where the line would be too wide."""
    if comment is None:
        return [text]
    comment = f"# {escape_ascii(comment)}"
    if len(text) + len(comment) + 2 <= _MAX_WIDTH:
        return [f"{text}  {comment}"]
    return [" " * (len(text) - len(text.lstrip())) + comment, text]


def plain_key(name: str) -> str:
    """Return a key without quotes where our reader takes it for that text, else in the quotes of JSON."""
    return name if _reads_as(f"{name}: 1\n", {name: 1}) else json.dumps(name)


def plain_scalar(value: Any) -> str:
    """Return a scalar without quotes where every YAML reader takes it for the same, else in the quotes of JSON."""
    if isinstance(value, str) and ":" not in value and _reads_as(f"- {value}\n", [value]):
        return value
    return json.dumps(value)


def _reads_as(text: str, data: Any) -> bool:
    try:
        return bool(load(text.encode("utf-8"), "draft").data == data)
    except YamlError:
        return False
