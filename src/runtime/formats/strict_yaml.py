"""Read policy and task files: a small, unambiguous part of YAML, or a refusal with a place.

The reader works on the parser's events and builds only dict, list, str, int, float, bool and None, so no tag can
construct anything. What two YAML readers could understand differently is refused, with a remedy. libyaml and
PyYAML's own parser differ over tabs, comments, `?` and `:` in brackets; the text itself is checked for those, so
that a file has one verdict whichever of the two is installed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml
from msgspec import Struct

from . import yaml_syntax as syntax
from .escape import quote_literal
from .json_pointer import escape_pointer
from .strict_json import MAX_SAFE_INTEGER

MAX_DEPTH: Final = 64
MAX_NODES: Final = 200_000
MAX_POINTERS: Final = 1 << 24  # characters in all pointers: long keys with many values below them multiply
_INT_DIGITS: Final = 17  # with a sign; more cannot be in range, and converting many digits is slow

# PyYAML's own parser is several times slower, and used only where libyaml was not built in.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlError(ValueError):
    """A file is refused. `line` and `column` count from 1."""

    def __init__(self, line: int, column: int, message: str) -> None:
        super().__init__(line, column, message)
        self.line, self.column, self.message = line, column, message


class Document(Struct, frozen=True):
    """What a file holds.

    Attributes:
        data: dict, list, str, int, float, bool or None.
        marks: (line, column), both from 1, of every JSON Pointer: of the key for a value in a mapping, else of
            the value; "" is the first node.
    """

    data: Any
    marks: Mapping[str, tuple[int, int]]


def load(data: bytes, max_bytes: int) -> Document:
    """Read one document from `data`.

    Raises:
        YamlError: for whatever is not in the accepted part of YAML. Nothing else is raised.
    """
    reader = _Reader(_decode(data, max_bytes))
    parsed: Any = yaml.parse(reader.text, Loader=_LOADER)
    with contextlib.closing(parsed) as events:
        try:
            return reader.document(events)
        # PyYAML's own scanner lets chr() fail on an escape beyond the last code point
        except (yaml.YAMLError, OverflowError) as error:
            mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
            raise reader.syntax_error(mark) from None


def _decode(data: bytes, max_bytes: int) -> str:
    """Return the text of a file, which holds only characters that a reader can see."""
    if len(data) > max_bytes:
        raise YamlError(1, 1, f"the file has more than {max_bytes} bytes; split it")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        message = "not UTF-8 here; save the file as UTF-8 without a byte order mark"
        raise _Reader(before).error(len(before), message) from None
    is_plain = text.isascii() and text.replace("\n", "").isprintable()
    if not is_plain and (hidden := re.search(syntax.HIDDEN, text)):
        character = f"U+{ord(hidden[0]):04X}"
        message = f"{character} is not visible; remove it, or write it as an escape in double quotes"
        if text.startswith("\ufeff"):
            message = "the file starts with a byte order mark; save it as UTF-8 without one"
        elif hidden[0] == "\r":
            message = "a carriage return without a line feed; end lines with a line feed"
        raise _Reader(text).error(hidden.start(), message)
    return text


class _Reader:
    """Build the data of one file from the parser's events, node by node. Places in the text are indices."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.checked = 0  # all text before this index is checked
        # where the last line ends if no line feed does, else behind the text
        self.unended = len(text) + 1 if text.endswith("\n") else len(text.rstrip(" \r\n"))
        self.marks: dict[str, tuple[int, int]] = {}
        self.nodes = self.pointers = 0

    def document(self, events: Iterator[Any]) -> Document:
        """Read the only document."""
        self.events = events
        next(events)  # the start of the stream
        if type(next(events)) is yaml.StreamEndEvent:
            raise self.error(0, "the file is empty; write a document in it")
        first = next(events)
        if isinstance(first, yaml.ScalarEvent) and not (first.value or first.tag) and first.implicit[0]:
            raise self.error(self.start(first)[0], "the document is empty; write something in it")
        self.mark("", first.start_mark)
        data = self.node(first, "", 0, -1, False)
        next(events)  # the end of the document
        after: Any = next(events)
        if type(after) is not yaml.StreamEndEvent:
            message = "a second document starts here; keep one document in a file"
            raise self.error(after.start_mark.index, message)
        self.check_gap(len(self.text))
        return Document(data, self.marks)

    def node(self, event: Any, pointer: str, depth: int, indent: int, in_brackets: bool) -> Any:
        """Return the value of the node that starts with `event`.

        `indent` is the column, from 0, of the innermost collection without brackets around it, or -1.
        """
        value: Any
        start, column = self.start(event)
        if type(event) is yaml.ScalarEvent:
            value = self.scalar(event, start, indent, in_brackets)
            if event.implicit[0] and (not value or value[0] in syntax.AMBIGUOUS_START):
                value = self.resolve(value, start)
        else:
            if depth >= MAX_DEPTH:
                raise self.error(start, f"nested deeper than {MAX_DEPTH} levels; flatten it")
            if event.flow_style:
                column = indent
            read = self.items if type(event) is yaml.SequenceStartEvent else self.entries
            value, end = read(pointer, depth + 1, column, event.flow_style)
            if event.flow_style and not in_brackets:
                self.check_lines(start, end.end_mark.index, indent, may_comment=True)
        return value

    def items(self, pointer: str, depth: int, indent: int, in_brackets: bool) -> tuple[list[Any], Any]:
        """Return the items of a list, and its last event."""
        items: list[Any] = []
        while type(event := next(self.events)) is not yaml.SequenceEndEvent:
            below = f"{pointer}/{len(items)}"
            self.mark(below, event.start_mark)
            items.append(self.node(event, below, depth, indent, in_brackets))
        return items, event

    def entries(self, pointer: str, depth: int, indent: int, in_brackets: bool) -> tuple[dict[str, Any], Any]:
        """Return the entries of a mapping, and its last event."""
        entries: dict[str, Any] = {}
        while type(event := next(self.events)) is not yaml.MappingEndEvent:
            key = self.key(event, indent, in_brackets)
            below = f"{pointer}/{escape_pointer(key)}"
            if key in entries:
                line, column = self.marks[below]
                message = f"the key {quote_literal(key)} stands at {line}:{column} already; keep one"
                raise self.error(event.start_mark.index, message)
            self.mark(below, event.start_mark)
            entries[key] = self.node(next(self.events), below, depth, indent, in_brackets)
        return entries, event

    def key(self, event: Any, indent: int, in_brackets: bool) -> str:
        """Return a key, which is text to every reader."""
        if type(event) is not yaml.ScalarEvent:
            raise self.error(event.start_mark.index, "a key must be plain or quoted text; write it out")
        start, _ = self.start(event)
        key = self.scalar(event, start, indent, in_brackets)
        plain = event.implicit[0]
        if plain and key == "<<":
            raise self.error(start, "merge keys are not accepted; write the entries out")
        if not key:
            raise self.error(start, "a key is missing here; write one before the colon")
        if plain and key[0] in syntax.AMBIGUOUS_START and type(self.resolve(key, start)) is not str:
            raise self.error(start, f"the key {quote_literal(key)} is not text; quote it")
        is_plain = key.isascii() and key.isprintable()
        if not is_plain and (hidden := re.search(syntax.HIDDEN_IN_KEY, key)):
            raise self.error(start, f"a key with the hidden character U+{ord(hidden[0]):04X}; remove it")
        return key

    def start(self, event: Any) -> tuple[int, int]:
        """Check what stands before a node, and return the index and column of the node."""
        index, column = event.start_mark.index, event.start_mark.column
        self.check_gap(index)
        if event.anchor is not None:  # of an alias too
            raise self.error(index, syntax.SHARED)
        if event.tag is not None:
            raise self.error(index, syntax.TAGGED)
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise self.error(index, f"more than {MAX_NODES} values; split the file")
        return index, column

    def scalar(self, event: Any, start: int, indent: int, in_brackets: bool) -> str:
        """Return the text of a scalar once the way it is written is known to be read alike everywhere."""
        value: str = event.value
        text, end = self.text, event.end_mark.index
        self.checked = max(self.checked, end)
        if event.implicit[0]:
            stray = (syntax.STRAY_IN_BRACKETS if in_brackets else syntax.TAB).search(text, start, end)
            if stray:
                raise self.stray(stray.start())
            if in_brackets and (colon := syntax.GLUED_COLON.match(text, end)):
                raise self.stray(colon.end() - 1)
        elif event.style in ("|", ">"):
            self.check_block(start, end, indent)
        else:
            if event.start_mark.line != event.end_mark.line:
                self.check_lines(start, end, indent, may_comment=False)
                escaped = re.compile(syntax.ESCAPED_BREAK).search(text, start, end)
                if event.style == '"' and escaped:
                    raise self.error(escaped.start(), syntax.BLANK)
            if not value.isascii() and re.search(syntax.SURROGATE, value):
                raise self.error(start, syntax.ESCAPE)
        return value

    def resolve(self, value: str, index: int) -> Any:
        """Return a plain scalar as bool, None, int, float or text; refuse what readers disagree on."""
        if value in syntax.WORDS:
            return syntax.WORDS[value]
        if syntax.INT.fullmatch(value):
            if len(value) > _INT_DIGITS or abs(int(value)) > MAX_SAFE_INTEGER:
                raise self.error(index, "an integer beyond 2^53-1; quote it if it is text")
            return int(value)
        if syntax.FLOAT.fullmatch(value):
            number = float(value)
            if abs(number) > MAX_SAFE_INTEGER:
                raise self.error(index, "a number too large; quote it if it is text")
            return int(number) if number.is_integer() else number
        if syntax.is_ambiguous(value):
            message = f"YAML readers disagree on {quote_literal(value)}; quote it if it is text"
            raise self.error(index, message)
        return value

    def mark(self, pointer: str, mark: Any) -> None:
        """Keep the place of a pointer."""
        self.pointers += len(pointer)
        if self.pointers > MAX_POINTERS:
            raise self.error(mark.index, "keys too long for the many values below them; shorten the keys")
        self.marks[pointer] = (mark.line + 1, mark.column + 1)

    def check_gap(self, index: int) -> None:
        """Check that only indicators, blanks and comments stand before a node at `index`."""
        if index > self.checked:
            self.checked = _end(syntax.GAP, self.text, self.checked)
            if self.checked < index:
                raise self.stray(self.checked)

    def check_lines(self, start: int, end: int, indent: int, *, may_comment: bool) -> None:
        """Check that each line of quotes or brackets goes deeper than column `indent`.

        YAML asks for it; PyYAML does not, and what looks like a key of its own would be part of a value.
        """
        for line in syntax.NEXT_LINE.finditer(self.text, start, end):
            if line[2] == "\t":
                raise self.stray(line.end())
            if len(line[1]) <= indent and not (may_comment and line[2] == "#"):
                raise self.error(line.end(), syntax.SHALLOW)

    def check_block(self, start: int, end: int, indent: int) -> None:
        """Check that readers agree on a block scalar, of which only the first line and the indentation matter."""
        block = re.compile(syntax.BLOCK).match(self.text, start)
        if block is None:
            raise self.error(start, syntax.HEADER)
        header, blank_lines, spaces = block.groups()
        if self.text.startswith("\t", block.end()):
            raise self.stray(block.end())
        if indent < 0 and not spaces and self.text.startswith("#", block.end()):
            raise self.error(block.end(), syntax.SHALLOW)  # a comment, or the text of the document
        if start - self.text.rfind("\n", 0, start) - 1 <= indent:
            raise self.error(start, syntax.SHALLOW)
        if end >= self.unended and "-" not in header:
            raise self.error(start, "readers disagree on how this text ends; end the file with a line feed")
        deepest = max(len(line.rstrip("\r")) for line in blank_lines.split("\n"))
        if not header.strip("+-") and deepest > len(spaces) > indent:
            raise self.error(block.end(), "the blank lines above go deeper than this text; shorten them")

    def syntax_error(self, mark: Any) -> YamlError:
        """Return the error for a parser that stopped at `mark`, or without one; the cause may stand before."""
        start = _end(syntax.GAP, self.text, self.checked)
        index = mark.index if mark else start
        character = self.text[start : start + 1]
        # a ? may start a text outside brackets
        if start <= index and character in syntax.BY_CHARACTER.keys() - {"?"}:
            return self.stray(start)
        if start <= index < len(self.text) and character in syntax.BY_START and self.text[index] != "\t":
            return self.error(index, syntax.BY_START[character])
        return self.stray(index)

    def stray(self, index: int) -> YamlError:
        """Return the error for a character that must not stand at `index`."""
        character = self.text[index : index + 1]
        message = syntax.BY_CHARACTER.get(character)
        if message is None and re.compile(syntax.STRAY_COLON).match(self.text, index):
            message = syntax.COLON
        elif message is None:
            remedy = "check the indentation, quotes and brackets of this line and the one above"
            if not character:
                remedy = "the file ends here; look above for an open quote or bracket, or a missing colon"
            message = f"not valid YAML here: {remedy}"
        return self.error(index, message)

    def error(self, index: int, message: str) -> YamlError:
        """Return a refusal at a place."""
        line = self.text.count("\n", 0, index) + 1
        return YamlError(line, index - self.text.rfind("\n", 0, index), message)


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    """Return where a match of the pattern ends, or `start` without one."""
    match = pattern.match(text, start)
    return match.end() if match else start
