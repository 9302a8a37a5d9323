"""A strict reader for policy and task files: a small, unambiguous part of YAML, or a refusal with a place.

The reader works on the parser's events and builds only dict, list, str, int, float, bool and None, so no tag
can ever construct anything. Whatever two YAML readers could understand differently is refused, with a remedy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

__all__ = ["Document", "YamlError", "load"]

MAX_DEPTH = 64
MAX_ALIASES = 16
MAX_NODES = 200_000
MAX_POINTERS = 1 << 24  # characters in all pointers; long keys with many values below them multiply
MAX_INT = 2**53 - 1
_INT_DIGITS = 17  # with a sign; more cannot be in range, and converting many digits is slow

# The pure Python parser gives the same events, only slower, where libyaml was not built in.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_CONTROL = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufdd0-\ufdef"
_CONTROL += "".join(f"\\U{plane:04x}fffe\\U{plane:04x}ffff" for plane in range(17))  # noncharacters
_INVISIBLE = (  # and what turns the direction of text
    r"\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    r"\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_HIDDEN = re.compile(rf"[{_CONTROL}{_INVISIBLE}]|\r(?!\n)")
# Emoji need the variation selectors in prose; in a key they only make two keys look like one.
_HIDDEN_IN_KEY = re.compile(rf"[{_CONTROL}{_INVISIBLE}\n\r\t\ufe00-\ufe0f]")
_CONTROL_ONLY = re.compile(f"[{_CONTROL}]")

_INT = re.compile(r"0|-?[1-9][0-9]*")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+")
# A plain scalar can only be something else than text when it starts with one of these. A lone y or n stays
# text: only the letter of YAML 1.1 takes it for a bool, no PyYAML and no 1.2 reader does.
_SUSPECT_START = frozenset("0123456789+-.~=<tTfFnNyYoO")
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "~": None, "": None}
_REFUSED_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "=", "<<", "-"})
_REFUSED = re.compile(
    r"""[-+]?(?:[0-9][0-9_]*|0b[01_]+|0o[0-7_]+|0x[0-9a-f_]+)            # every way to write an integer
      | [-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:e[-+]?[0-9]+)? # and a float
      | [-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?                  # base 60
      | [-+]?\.inf | \.nan
      | [0-9]{4}-[0-9]{1,2}-[0-9]{1,2}                                    # dates and times
        (?:(?:t|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?
           (?:[ \t]*(?:z|[-+][0-9]{1,2}(?::[0-9]{2})?))?)?""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_TAGGED = "tags are not accepted; remove it, and quote the value if it is text"
_DIRECTIVE = re.compile(r"^%", re.MULTILINE)
_BOMS = (
    ((b"\xef\xbb\xbf",), "the file starts with a byte order mark; save it as UTF-8 without one"),
    ((b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff"), "the file is UTF-32; save it as UTF-8"),
    ((b"\xff\xfe", b"\xfe\xff"), "the file is UTF-16; save it as UTF-8"),
)
_HINTS = {
    "\t": "a tab stands here; indent and separate with spaces",
    "@": "text cannot start with @; quote it",
    "`": "text cannot start with a backquote; quote it",
    "%": "text cannot start with %, and directives are not accepted; quote it or remove the line",
    "": "the file ends here; look above for an open quote or bracket, or a missing colon",
}


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


@dataclass(frozen=True, slots=True)
class Document:
    """What a file holds.

    `data` is dict, list, str, int, float, bool or None; an aliased node is the same object at both places.
    `marks` maps the JSON Pointer of every value in a mapping (to the place of its key) and of every list item
    to (line, column), both from 1; "" is the first node. What lies inside an aliased node has no mark of its
    own: `at` answers with the alias.
    """

    data: Any
    marks: Mapping[str, tuple[int, int]]

    def at(self, pointer: str) -> tuple[int, int]:
        """(line, column) of the pointer, or of its nearest ancestor in the file. Never raises."""
        while pointer and pointer not in self.marks:
            pointer = pointer.rpartition("/")[0]
        return self.marks.get(pointer, (1, 1))


def load(data: bytes, name: str, *, max_bytes: int = 1 << 20) -> Document:
    """Read one document from `data`; `name` stands in errors.

    Raises YamlError for whatever is not in the accepted part of YAML, and nothing else.
    """
    text = _decode(data, name, max_bytes)
    builder = _Builder(name, text)
    handlers = builder.handlers()
    events: Any = yaml.parse(text, Loader=_LOADER)
    try:
        for event in events:
            handler = handlers.get(type(event))
            if handler is not None:
                handler(event)
    except YamlError:
        raise
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        raise builder.not_yaml(mark) from None
    except (ValueError, OverflowError):
        # The pure Python scanner lets chr() fail on an escape beyond the last code point.
        raise builder.not_yaml(None) from None
    finally:
        events.close()
    return builder.document()


def _decode(data: bytes, name: str, max_bytes: int) -> str:
    """The file's text, once it is known to hold only characters a reader can see."""
    if len(data) > max_bytes:
        raise YamlError(name, 1, 1, f"the file has {len(data)} bytes, at most {max_bytes} are read; split it")
    for marks, message in _BOMS:
        if data.startswith(marks):
            raise YamlError(name, 1, 1, message)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        raise YamlError(name, *_place(before, len(before)), "not UTF-8 here; save it as UTF-8") from None
    found = _HIDDEN.search(text)
    if found:
        raise YamlError(name, *_place(text, found.start()), _hidden_message(found.group()))
    return text


def _place(text: str, index: int) -> tuple[int, int]:
    """(line, column) of a character, both from 1."""
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def _tabbed_lines(text: str) -> list[int]:
    """The lines, from 1, whose indentation holds a tab."""
    return [at for at, line in enumerate(text.split("\n"), 1) if line.lstrip(" ").startswith("\t")]


def _hidden_message(character: str) -> str:
    if character == "\r":
        return "a carriage return without a line feed; end lines with a line feed"
    kind = "a control character" if _CONTROL_ONLY.match(character) else "invisible"
    return f"U+{ord(character):04X} is {kind}; remove it, or write it as an escape in double quotes"


def _brief(text: str) -> str:
    """Untrusted text for a message: printable ASCII, bounded."""
    return ascii(text[:40]) + ("..." if len(text) > 40 else "")


class _Frame:
    """A collection that is still open."""

    __slots__ = ("anchor", "height", "key", "pointer", "start", "value")

    def __init__(self, value: Any, pointer: str, anchor: str | None, start: int) -> None:
        self.value = value
        self.pointer = pointer
        self.anchor = anchor
        self.start = start  # expanded nodes counted before this one
        self.height = 1  # levels of collections, this one included
        self.key: str | None = None  # the key that waits for its value


class _Builder:
    """Turns events into plain data; every handler either adds to it or raises YamlError."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.marks: dict[str, tuple[int, int]] = {}
        self.stack: list[_Frame] = []
        # anchor -> (node, its expanded nodes, its height); None while the node is open.
        self.anchors: dict[str, tuple[Any, int, int] | None] = {}
        self.aliases = 0
        self.nodes = 0
        self.pointers = 0
        self.documents = 0
        self.data: Any = None
        self.last: Any = None
        self.tabs = _tabbed_lines(text) if "\t" in text else []
        self.block_lines: set[int] = set()
        self.glued = '"#' in text or "'#" in text

    def handlers(self) -> dict[type, Callable[[Any], None]]:
        """By event type; stream borders and the end of a document carry no data."""
        return {
            yaml.DocumentStartEvent: self.document_start,
            yaml.ScalarEvent: self.scalar,
            yaml.AliasEvent: self.alias,
            yaml.SequenceStartEvent: self.open,
            yaml.SequenceEndEvent: self.close,
            yaml.MappingStartEvent: self.open,
            yaml.MappingEndEvent: self.close,
        }

    def document(self) -> Document:
        if not self.documents:
            raise YamlError(self.name, 1, 1, "the file is empty; write a document in it")
        for line in self.tabs:
            if line not in self.block_lines:
                raise YamlError(self.name, line, 1, "a tab in the indentation; indent with spaces")
        return Document(self.data, self.marks)

    def refuse(self, mark: Any, message: str) -> YamlError:
        return YamlError(self.name, mark.line + 1, mark.column + 1, message)

    def not_yaml(self, mark: Any) -> YamlError:
        """The parser stopped; its mark is all that is taken from it."""
        mark = mark or self.last
        if mark is None:
            return YamlError(self.name, 1, 1, "not valid YAML")
        hint = "check the indentation, quotes and brackets of this line and the one above"
        found = _HINTS.get(self.text[mark.index : mark.index + 1], hint)
        return self.refuse(mark, f"not valid YAML here: {found}")

    def document_start(self, event: Any) -> None:
        self.documents += 1
        if self.documents > 1:
            raise self.refuse(event.start_mark, "a second document starts here; keep one document in a file")
        # The pure Python parser drops directives it does not know, so the text is asked as well.
        found = _DIRECTIVE.search(self.text, 0, event.end_mark.index)
        if found:
            place = _place(self.text, found.start())
            raise YamlError(self.name, *place, "directives are not accepted; remove this line")

    def scalar(self, event: Any) -> None:
        mark = self.last = event.start_mark
        value = event.value
        plain = event.implicit[0]
        if event.tag is not None:
            raise self.refuse(mark, _TAGGED)
        if not plain:
            self.quoted(event)
        frame = self.stack[-1] if self.stack else None
        if frame is not None and frame.key is None and type(frame.value) is dict:
            self.add_key(frame, value, mark, plain)
        else:
            self.count(mark, 1)
            if plain and (not value or value[0] in _SUSPECT_START):
                if not value and frame is None:
                    raise self.refuse(mark, "the document is empty; write something in it")
                value = self.resolve(value, mark)
            self.place(value, mark)
        if event.anchor is not None:
            self.define(event.anchor, mark, (value, 1, 0))

    def quoted(self, event: Any) -> None:
        """What the parser lets pass in quoted and block scalars, and other readers do not."""
        if self.tabs and event.style in ("|", ">"):
            end = event.end_mark
            self.block_lines.update(range(event.start_mark.line + 2, end.line + (2 if end.column else 1)))
        elif self.glued and self.text.startswith("#", event.end_mark.index):
            raise self.refuse(event.end_mark, "a comment needs a space before its #")
        if not event.value.isascii() and _SURROGATE.search(event.value):
            raise self.refuse(event.start_mark, "an escape here is half of a character; write it whole")

    def resolve(self, value: str, mark: Any) -> Any:
        """A plain scalar as bool, None, int, float or text; refuses what readers disagree on."""
        if value in _WORDS:
            return _WORDS[value]
        if _INT.fullmatch(value):
            if len(value) > _INT_DIGITS or abs(int(value)) > MAX_INT:
                raise self.refuse(mark, "an integer beyond 2^53-1; quote it if it is text")
            return int(value)
        if _FLOAT.fullmatch(value):
            if not math.isfinite(float(value)):
                raise self.refuse(mark, "a number too large; quote it if it is text")
            return float(value)
        if value.lower() in _REFUSED_WORDS or _REFUSED.fullmatch(value):
            raise self.refuse(mark, f"YAML readers disagree on {_brief(value)}; quote it if it is text")
        return value

    def add_key(self, frame: _Frame, key: str, mark: Any, plain: bool) -> None:
        self.count(mark, 1)
        if plain and key == "<<":
            raise self.refuse(mark, "merge keys are not accepted; write the entries out")
        if not key:
            raise self.refuse(mark, "a key is missing here; write one before the colon")
        if plain and key[0] in _SUSPECT_START and type(self.resolve(key, mark)) is not str:
            raise self.refuse(mark, f"the key {_brief(key)} is not text; quote it")
        hidden = _HIDDEN_IN_KEY.search(key)
        if hidden:
            raise self.refuse(mark, f"a key with the hidden character U+{ord(hidden.group()):04X}; remove it")
        pointer = f"{frame.pointer}/{_escape(key)}"
        if key in frame.value:
            line, column = self.marks[pointer]
            raise self.refuse(mark, f"the key {_brief(key)} stands at {line}:{column} already; keep one")
        self.record(pointer, mark)
        frame.key = key

    def place(self, value: Any, mark: Any) -> str:
        """Put a node where it belongs; returns its pointer."""
        if not self.stack:
            self.data = value
            self.record("", mark)
            return ""
        frame = self.stack[-1]
        if frame.key is not None:
            pointer = f"{frame.pointer}/{_escape(frame.key)}"
            frame.value[frame.key] = value
            frame.key = None
            return pointer
        pointer = f"{frame.pointer}/{len(frame.value)}"
        frame.value.append(value)
        self.record(pointer, mark)
        return pointer

    def record(self, pointer: str, mark: Any) -> None:
        self.pointers += len(pointer)
        if self.pointers > MAX_POINTERS:
            raise self.refuse(mark, "keys too long for the many values below them; shorten the keys")
        self.marks[pointer] = (mark.line + 1, mark.column + 1)

    def open(self, event: Any) -> None:
        mark = self.last = event.start_mark
        if event.tag is not None:
            raise self.refuse(mark, _TAGGED)
        self.no_key_waits(mark)
        if len(self.stack) >= MAX_DEPTH:
            raise self.refuse(mark, f"nested deeper than {MAX_DEPTH} levels; flatten it")
        start = self.nodes
        self.count(mark, 1)
        if event.anchor is not None:
            self.define(event.anchor, mark, None)
        value: Any = [] if type(event) is yaml.SequenceStartEvent else {}
        pointer = self.place(value, mark)
        self.stack.append(_Frame(value, pointer, event.anchor, start))

    def close(self, event: Any) -> None:
        frame = self.stack.pop()
        if frame.anchor is not None:
            self.anchors[frame.anchor] = (frame.value, self.nodes - frame.start, frame.height)
        self.grow(frame.height)

    def alias(self, event: Any) -> None:
        mark = self.last = event.start_mark
        self.no_key_waits(mark)
        self.aliases += 1
        if self.aliases > MAX_ALIASES:
            raise self.refuse(mark, f"more than {MAX_ALIASES} aliases; write the values out")
        if event.anchor not in self.anchors:
            raise self.refuse(mark, "an alias of an anchor that is not defined above; write the value out")
        known = self.anchors[event.anchor]
        if known is None:
            raise self.refuse(mark, "an alias inside its own anchor; write the value out")
        value, weight, height = known
        if len(self.stack) + height > MAX_DEPTH:
            raise self.refuse(mark, f"nested deeper than {MAX_DEPTH} levels; flatten it")
        self.count(mark, weight)
        self.grow(height)
        self.place(value, mark)

    def define(self, anchor: str, mark: Any, node: tuple[Any, int, int] | None) -> None:
        if anchor in self.anchors:
            raise self.refuse(mark, "an anchor of this name stands above already; rename one of them")
        self.anchors[anchor] = node

    def no_key_waits(self, mark: Any) -> None:
        """A collection or an alias may stand anywhere but in the place of a key."""
        if self.stack and self.stack[-1].key is None and type(self.stack[-1].value) is dict:
            raise self.refuse(mark, "a key must be plain or quoted text; write it out")

    def count(self, mark: Any, weight: int) -> None:
        self.nodes += weight
        if self.nodes > MAX_NODES:
            raise self.refuse(mark, f"more than {MAX_NODES} values; split the file")

    def grow(self, height: int) -> None:
        if self.stack and self.stack[-1].height <= height:
            self.stack[-1].height = height + 1


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1") if "~" in key or "/" in key else key
