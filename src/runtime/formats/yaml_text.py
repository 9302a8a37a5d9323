"""The text of a YAML file: what the parsers are too lenient about, or do not agree on.

libyaml and the parser in Python part ways over tabs, a `?` in brackets, a colon or a `#` without its blank.
All that is refused here, by the text alone, so that a file has one verdict whichever of the two stands below.
What lies between two scalars is checked when the second is met: refusals come in the order of the file.
"""

from __future__ import annotations

import re
from typing import Any, Final

from .invisible_chars import NONCHARACTERS

__all__ = ["Text", "YamlError", "decode"]

_CONTROL: Final = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff" + NONCHARACTERS
_INVISIBLE: Final = (  # and what turns the direction of text
    r"\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    r"\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_HIDDEN: Final = re.compile(rf"[{_CONTROL}{_INVISIBLE}]|\r(?!\n)")
# Emoji need the variation selectors in prose; in a key they only make two keys look like one.
HIDDEN_IN_KEY: Final = re.compile(rf"[{_CONTROL}{_INVISIBLE}\n\r\t\ufe00-\ufe0f]")
_CONTROL_ONLY: Final = re.compile(f"[{_CONTROL}]")
_BOMS: Final = (
    ((b"\xef\xbb\xbf",), "the file starts with a byte order mark; save it as UTF-8 without one"),
    ((b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff"), "the file is UTF-32; save it as UTF-8"),
    ((b"\xff\xfe", b"\xfe\xff"), "the file is UTF-16; save it as UTF-8"),
)

_ANCHOR: Final = re.compile(r"&[A-Za-z0-9_-]++(?=[ \t\r\n,\]}]|\Z)")
_COMMENT: Final = r"(?<![^ \n])\#[^\n]*+"
# what may stand between two scalars; where it may, the parsers say
_GAP: Final = re.compile(
    rf"(?:[ \r\n,\[\]{{}}:]++|{_COMMENT}|(?:\?|-|---|\.\.\.)(?=[ \t\r\n]|\Z)|{_ANCHOR.pattern})*+"
)
_AFTER_ANCHOR: Final = re.compile(rf"(?:[ \r\n]|{_COMMENT})*+")
_LINE: Final = re.compile(r"\n( *+)(?=([^ \r\n]))")
_PLAIN_TAB: Final = re.compile(r"""[^"'#|>\t]*+\t""")
_HEADER: Final = re.compile(r"[|>](?:[1-9][+-]?|[+-][1-9]?)?+(?= *+(?:\r?\n|\Z)| ++#)[^\n]*+(?:\n|\Z)")
_HEADER_START: Final = re.compile(r"[|>](?:[1-9][+-]?|[+-][1-9]?)?+ *+")
_BLANK_LINES: Final = re.compile(r"((?: *+\r?\n)*+)( *+)")
_DOUBLE: Final = re.compile(
    r"""" (?: [^"\\] | \\ (?: [0abt\tnvfre\x20"/\\N_LP] | \r?\n | x[0-9a-fA-F]{2}
        | u (?![dD][89a-fA-F]) [0-9a-fA-F]{4}
        | U (?!0000[dD][89a-fA-F]) (?:000[0-9a-fA-F]|0010) [0-9a-fA-F]{4} ) )*+""",
    re.VERBOSE,
)

TAGGED: Final = "tags are not accepted; remove it, and quote the value if it is text"
# by the character that is to blame
_STRAY: Final = {
    "\t": "a tab stands here; indent and separate with spaces",
    "#": "a comment needs a space before its #; quote the value if the # is text",
    "?": "readers disagree on a ? in brackets; quote the text, or put a space after the ? of a key",
    "&": "an anchor has a name of letters, digits, - and _, and a space after it",
    "!": TAGGED,
    "@": "text cannot start with @; quote it",
    "`": "text cannot start with a backquote; quote it",
    "%": "text cannot start with %, and directives are not accepted; quote it or remove the line",
}
_GLUED: Final = "a colon needs a space after it"
_HEAD: Final = "only a size, + or - may stand behind | or >; put a space before a comment"
_SHALLOW: Final = "this line belongs to the value above; indent it deeper than the key or dash of the value"
_ESCAPE: Final = "no escape that YAML knows; write \\\\ for a backslash"
_HALF: Final = "an escape here is half of a character; write it whole"
_END: Final = "the file ends here; look above for an open quote or bracket, or a missing colon"
_ELSE: Final = "check the indentation, quotes and brackets of this line and the one above"


class YamlError(ValueError):
    """A file is refused. `line` and `column` count from 1; str() is "name:line:column: message"."""

    def __init__(self, name: str, line: int, column: int, message: str) -> None:
        super().__init__(name, line, column, message)
        self.name = name
        self.line = line
        self.column = column
        self.message = message

    def __str__(self) -> str:
        return f"{self.name}:{self.line}:{self.column}: {self.message}"


def decode(data: bytes, name: str, max_bytes: int) -> Text:
    """The file's text, once it is known to hold only characters a reader can see. Raises YamlError."""
    if len(data) > max_bytes:
        raise YamlError(name, 1, 1, f"the file has more than {max_bytes} bytes; split it")
    for marks, message in _BOMS:
        if data.startswith(marks):
            raise YamlError(name, 1, 1, message)
    try:
        text = Text(name, data.decode("utf-8"))
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        raise Text(name, before).error(len(before), "not UTF-8 here; save it as UTF-8") from None
    found = _HIDDEN.search(text.text)
    if found:
        raise text.error(found.start(), _hidden_message(found.group()))
    return text


def _hidden_message(character: str) -> str:
    if character == "\r":
        return "a carriage return without a line feed; end lines with a line feed"
    kind = "a control character" if _CONTROL_ONLY.match(character) else "invisible"
    return f"U+{ord(character):04X} is {kind}; remove it, or write it as an escape in double quotes"


class Text:
    """The text of one file. Places in it are indices; every method raises YamlError for what it refuses."""

    __slots__ = ("at", "name", "tabs", "text", "unended")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.at = 0  # what stands before is checked
        self.tabs = "\t" in text
        # where the last line's text ends, if no line feed does; behind the text otherwise
        self.unended = len(text) + 1 if text.endswith("\n") else len(text.rstrip(" \r\n"))

    def error(self, index: int, message: str) -> YamlError:
        """A refusal at a place."""
        line = self.text.count("\n", 0, index) + 1
        return YamlError(self.name, line, index - self.text.rfind("\n", 0, index), message)

    def stopped(self, mark: Any) -> YamlError:
        """The parser stopped at a mark, or without one. What is to blame may stand before it."""
        start = self._gap_end()
        index: int = mark.index if mark else start
        try:
            if start <= index and self.text.startswith(("|", ">"), start):
                self.header(start)
            if start <= index and self.text.startswith('"', start):
                self.escapes(start)
        except YamlError as error:
            return error
        tab = _PLAIN_TAB.match(self.text, start, index + 1)
        if tab:
            return self._stray(tab.end() - 1)
        # a ? may begin a text outside brackets
        to_blame = start <= index and self.text[start : start + 1] in _STRAY.keys() - {"?"}
        return self._stray(start if to_blame else index)

    def _stray(self, index: int) -> YamlError:
        character = self.text[index : index + 1]
        if character in _STRAY:
            return self.error(index, _STRAY[character])
        if self.text.startswith((":,", ":]", ":}", ":[", ":{"), index):
            return self.error(index, _GLUED)
        return self.error(index, f"not valid YAML here: {_ELSE if character else _END}")

    def _gap_end(self) -> int:
        found = _GAP.match(self.text, self.at)
        return found.end() if found else self.at

    def scalar(self, start: int, end: int) -> None:
        """A scalar or an alias from `start` to `end`: before it are indicators, blanks and comments only."""
        if start > self.at:
            self.at = self._gap_end()
            if self.at < start:
                raise self._stray(self.at)
        if end > self.at:
            self.at = end

    def close(self) -> None:
        """The document is over; nothing but a gap may follow."""
        self.scalar(len(self.text), len(self.text))

    def anchor(self, start: int) -> int:
        """An anchor; returns where its node begins."""
        found = _ANCHOR.match(self.text, start)
        if found is None:
            raise self._stray(start)
        blank = _AFTER_ANCHOR.match(self.text, found.end())
        return blank.end() if blank else found.end()

    def column(self, index: int) -> int:
        """The column of a place, from 0."""
        return index - self.text.rfind("\n", 0, index) - 1

    def plain(self, start: int, end: int, in_brackets: bool) -> None:
        """A scalar without quotes."""
        if self.tabs:
            tab = self.text.find("\t", start, end)
            if tab >= 0:
                raise self._stray(tab)
        if in_brackets:
            mark = self.text.find("?", start, end)
            if mark >= 0:
                raise self._stray(mark)
            if self.text.startswith((":,", ":]", ":}", ":[", ":{"), end):
                raise self._stray(end)

    def lines(self, start: int, end: int, indent: int, comments: bool) -> None:
        """Quotes or brackets over several lines: each goes deeper than column `indent`, counted from 0."""
        for line in _LINE.finditer(self.text, start, end):
            if line[2] == "\t":
                raise self._stray(line.end())
            if len(line[1]) <= indent and not (comments and line[2] == "#"):
                raise self.error(line.end(), _SHALLOW)

    def header(self, start: int) -> int:
        """The first line of a block scalar; returns where its text begins, which is with no tab."""
        header = _HEADER.match(self.text, start)
        if header is None:
            found = _HEADER_START.match(self.text, start)
            end = found.end() if found else start
            raise self._stray(end) if self.text.startswith("\t", end) else self.error(end, _HEAD)
        body = _BLANK_LINES.match(self.text, header.end())
        if body and self.text.startswith("\t", body.end()):
            raise self._stray(body.end())
        return header.end()

    def block(self, start: int, end: int, indent: int) -> None:
        """A block scalar inside a collection at column `indent`, counted from 0."""
        body = self.header(start)
        header = self.text[start:body].partition("#")[0]
        if self.column(start) <= indent:
            raise self.error(start, _SHALLOW)
        if end >= self.unended and "-" not in header:
            raise self.error(start, "readers disagree on how this text ends; end the file with a line feed")
        blank = _BLANK_LINES.match(self.text, body)
        if blank and not re.search("[1-9]", header):
            deepest = max(len(line.rstrip("\r")) for line in blank[1].split("\n"))
            if deepest > len(blank[2]) > indent:
                raise self.error(blank.end(), "the blank lines above go deeper than this text; shorten them")

    def escapes(self, start: int) -> None:
        """The escapes of a scalar in double quotes."""
        found = _DOUBLE.match(self.text, start)
        if found and self.text.startswith("\\", found.end()):
            half = re.match(r"\\(?:u|U0000)[dD][89a-fA-F]", self.text[found.end() : found.end() + 8])
            raise self.error(found.end(), _HALF if half else _ESCAPE)
