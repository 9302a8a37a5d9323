"""Untrusted text made safe to show: inside a sentence, at a terminal, in Markdown.

A forge is a service such as GitHub or GitLab that renders Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from .invisible_chars import HIDDEN

MAX_INLINE: Final = 160  # characters of one value in a line of Markdown or a cell of a table

# what a forge may take for markup, a link, a mention or an issue number inside a line. An underscore between two
# letters or digits is not markup, and // begins an address where no colon stands before it. Letters that not each
# Python knows count as none, with all beyond the first plane, to which Unicode adds them.
_LETTER: Final = r"[^\W_\u1c89-\u1c8f\ua7cb-\ua7ff\U00010000-\U0010ffff]"
_MARKUP: Final = re.compile(
    rf"[\\`*\[\]<>|~$&]|_(?!(?<={_LETTER}_){_LETTER})|:(?=//)|/(?=/)(?<!:/)|#(?=\w|[^\0-\x7f])|\.(?<=[wW]{{3}}\.)"
)
# what starts a heading, a list, a rule or a table where a line begins
_BLOCK: Final = re.compile(r"[#+=:-]|[0-9]+(?=[.)])")
# build services read commands to them out of what is printed, anywhere in a line or where it begins
_SERVICE_COMMAND: Final = re.compile(r"(##\w*)\[")
_SERVICE_COLONS: Final = re.compile(r"^(\s*):(?=:)")
# a forge does not recognise a code span behind a longer fence
_LONG_FENCE: Final = re.compile("`{80,}")


def truncate(text: str, limit: int) -> str:
    """Return the beginning of a text, at most `limit` characters; the last is an ellipsis where it was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def quote_untrusted(text: str) -> str:
    """Return text in double quotes for a reason: printable ASCII, cut at 120 characters before it is escaped."""
    if len(text) > 120:
        text = text[:117] + "..."
    if not (text.isascii() and text.isprintable()):
        text = text.encode("ascii", "backslashreplace").decode("ascii")
        text = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return '"' + text.replace('"', "'") + '"'


def quote_literal(text: str) -> str:
    """Return text as a Python literal for an error: printable ASCII, at most 80 characters."""
    literal = ascii(text[:76])
    return literal if len(text) <= 76 and len(literal) <= 80 else literal[:76] + "...'"


def escape_terminal(text: str) -> str:
    r"""Return text for one line at a terminal.

    Characters that are invisible, break lines or change how others are drawn become `\u{...}`.
    """
    plain = text.removesuffix("…")  # which `truncate` adds
    if plain.isascii() and plain.isprintable():
        return text
    return re.sub(HIDDEN, lambda match: f"\\u{{{ord(match[0]):x}}}", text)


def escape_build_log(text: str, limit: int = 400) -> str:
    """Return text for one line that is harmless to a terminal and to a build service, cut at `limit` characters."""
    line = _SERVICE_COMMAND.sub(r"\1\\u{5b}", escape_terminal(text))
    return truncate(_SERVICE_COLONS.sub(r"\1\\u{3a}", line), limit)


def workflow_command(name: str, properties: Mapping[str, str], lines: Iterable[str]) -> str:
    """Return a command of GitHub Actions whose properties and lines are harmless, whatever they hold."""

    def escaped(text: str) -> str:
        return escape_build_log(text).replace("%", "%25")

    said = (f"{key}={escaped(it).replace(':', '%3A').replace(',', '%2C')}" for key, it in properties.items())
    return f"::{name} {','.join(said)}::{'%0A'.join(map(escaped, lines))}"


def escape_markdown(text: str, limit: int = MAX_INLINE) -> str:
    """Return text for one line of prose in Markdown: what could be markup becomes character references."""
    # a forge finds mail addresses and mentions after it has resolved references, so @ is none at all
    line = _MARKUP.sub(_references, escape_terminal(truncate(text, limit)).strip(" ")).replace("@", "\\u{40}")
    return _BLOCK.sub(_references, line, count=1) if _BLOCK.match(line) else line


def code_span(text: str, limit: int = MAX_INLINE) -> str:
    """Return text as a code span of Markdown, safe in a table, where a pipe would end the cell even in code."""
    line = escape_terminal(truncate(text, limit)).replace("|", "\\u{7c}") or " "
    if "`" in line:
        line = _LONG_FENCE.sub(lambda match: "\\u{60}" * len(match[0]), line)
    fence = "`" * (1 + max(map(len, re.findall("`+", line)))) if "`" in line else "`"
    pad = " " if line.strip(" ") and (line[0] in "` " or line[-1] in "` ") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def _references(match: re.Match[str]) -> str:
    return "".join(f"&#{ord(character)};" for character in match[0])
