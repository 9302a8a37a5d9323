"""The patterns and messages of `strict_yaml`: how scalars are written, and what may stand between them."""

from __future__ import annotations

import re
from typing import Final

from .invisible_chars import CONTROL, INVISIBLE, JOINERS

# compiled for the first text that is not plain ASCII
HIDDEN: Final = rf"[{CONTROL}{INVISIBLE}{JOINERS}](?<![\t\n])(?<!\r(?=\n))"
# Emoji need the variation selectors in text; in a key they only make two keys look like one.
HIDDEN_IN_KEY: Final = rf"[{CONTROL}{INVISIBLE}{JOINERS}\ufe00-\ufe0f]"
INT: Final = re.compile(r"0|-?[1-9][0-9]*")
FLOAT: Final = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+")
WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None, "~": None, "": None}
# A plain scalar can only be something else than text when it starts with one of these.
AMBIGUOUS_START: Final = frozenset("0123456789+-.~=<tTfFnNyYoO")
_AMBIGUOUS_WORDS: Final = frozenset("true false null yes no on off = << -".split())
_AMBIGUOUS_NUMBER: Final = r"""(?xia)[-+]?(?:[0-9][0-9_]*|0b[01_]+|0o[0-7_]+|0x[0-9a-f_]+)  # an integer
      | [-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:e[-+]?[0-9]+)? # and a float
      | [-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?                    # base 60
      | [-+]?\.inf | \.nan
      | [0-9]{4}-[0-9]{1,2}-[0-9]{1,2}                                      # dates and times
        (?:(?:t|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?
           (?:[ \t]*(?:z|[-+][0-9]{1,2}(?::[0-9]{2})?))?)?"""


def is_ambiguous(scalar: str) -> bool:
    """Return whether YAML 1.1 or 1.2 takes a plain scalar for something else than text.

    A lone y or n stays text, as almost all readers take it.
    """
    if scalar.lower() in _AMBIGUOUS_WORDS:
        return True
    return scalar[:1] in "+-.0123456789" and re.fullmatch(_AMBIGUOUS_NUMBER, scalar) is not None


_COMMENT: Final = r"(?<![^ \n])\#[^\n]*+"
# What may stand between two scalars; where it may, the parser says.
GAP: Final = re.compile(rf"(?:[ \r\n,\[\]{{}}:]++|{_COMMENT}|(?:\?|-|---|\.\.\.)(?=[ \t\r\n]|\Z))*+")
TAB: Final = re.compile(r"\t")
STRAY_IN_BRACKETS: Final = re.compile(r"[\t?]")
GLUED_COLON: Final = re.compile(rf"(?:[ \r\n]|{_COMMENT})*+:(?=[,\[\]{{}}])")
STRAY_COLON: Final = rf"(?<![^ \r\n,\[{{]):|{GLUED_COLON.pattern}"  # one without a key before it, too
NEXT_LINE: Final = re.compile(r"\n( *+)(?=([^ \r\n]))")
# header, blank lines, indentation of the first line of text; compiled for the first that there is
BLOCK: Final = (
    r"[|>]((?:[1-9][+-]?|[+-][1-9]?)?+)(?= *+(?:\r?\n|\Z)| ++#)[^\n]*+(?:\n|\Z)((?: *+\r?\n)*+)( *+)"
)
# readers fold the blank lines after an escaped line break in different ways
ESCAPED_BREAK: Final = r"(?<!\\)(?:\\\\)*+\\\r?\n[ \t]*+\r?\n"
SURROGATE: Final = r"[\ud800-\udfff]"

TAGGED: Final = "tags are not accepted; remove it, and quote the value if it is text"
SHARED: Final = "anchors and aliases are not accepted; write the value out, or quote it if it is text"
BY_CHARACTER: Final = {  # the message for a character that must not stand where it does
    "\t": "a tab stands here; indent and separate with spaces",
    "#": "a comment needs a space before its #; quote the value if the # is text",
    "?": "readers disagree on a ? in brackets; quote the text, or put a space after the ? of a key",
    "&": SHARED,
    "*": SHARED,
    "!": TAGGED,
    "@": "text cannot start with @; quote it",
    "`": "text cannot start with a backquote; quote it",
    "%": "text cannot start with %, and directives are not accepted; quote it or remove the line",
}
COLON: Final = "a colon needs a key before it and a space after it; quote the text that it is part of"
SHALLOW: Final = "this line belongs to the value above; indent it deeper than the key or dash of the value"
BLANK: Final = "readers disagree on a blank line after a backslash that ends a line; leave one of them out"
HEADER: Final = "only a size, + or - may stand behind | or >; put a space before a comment"
ESCAPE: Final = "no escape that YAML knows, or half of a character; write \\\\ for a backslash"
BY_START: Final = {"|": HEADER, ">": HEADER, '"': ESCAPE}
