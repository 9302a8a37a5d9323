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

from .escape import shown
from .yaml_text import HIDDEN_IN_KEY, TAGGED, Text, YamlError, decode

__all__ = ["Document", "YamlError", "load"]

MAX_DEPTH = 64
MAX_ALIASES = 16
MAX_NODES = 200_000
MAX_POINTERS = 1 << 24  # characters in all pointers; long keys with many values below them multiply
MAX_INT = 2**53 - 1
_INT_DIGITS = 17  # with a sign; more cannot be in range, and converting many digits is slow

# The pure Python parser gives the same events, only slower, where libyaml was not built in.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

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
_DIRECTIVE = re.compile(r"^%", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Document:
    """What a file holds.

    `data` is dict, list, str, int, float, bool or None; an aliased node is the same object at both places.
    `marks` maps the JSON Pointer of every value in a mapping (to the place of its key) and of every list item
    to (line, column), both from 1; "" is the first node. What lies inside an aliased node has no mark of its
    own: `at` answers with the alias. `values` holds the place of the value itself for what is written behind
    a key.
    """

    data: Any
    marks: Mapping[str, tuple[int, int]]
    values: Mapping[str, tuple[int, int]]

    def at(self, pointer: str) -> tuple[int, int]:
        """(line, column) of the pointer, or of its nearest ancestor in the file. Never raises."""
        while pointer and pointer not in self.marks:
            pointer = pointer.rpartition("/")[0]
        return self.marks.get(pointer, (1, 1))

    def place(self, pointer: str, of_value: bool) -> tuple[int, int]:
        """As `at`, or with `of_value` the place of the value behind the key."""
        found = self.values.get(pointer) if of_value else None
        return found or self.at(pointer)


def load(data: bytes, name: str, *, max_bytes: int = 1 << 20) -> Document:
    """Read one document from `data`; `name` stands in errors.

    Raises YamlError for whatever is not in the accepted part of YAML, and nothing else.
    """
    builder = _Builder(decode(data, name, max_bytes))
    handlers = builder.handlers()
    events: Any = yaml.parse(builder.text.text, Loader=_LOADER)
    try:
        for event in events:
            handler = handlers.get(type(event))
            if handler is not None:
                handler(event)
    except YamlError:
        raise
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        raise builder.text.stopped(mark) from None
    except (ValueError, OverflowError):
        # The pure Python scanner lets chr() fail on an escape beyond the last code point.
        raise builder.text.stopped(None) from None
    finally:
        events.close()
    return builder.document()


class _Frame:
    """A collection that is still open."""

    __slots__ = ("anchor", "column", "flow", "height", "key", "pointer", "start", "value", "weight")

    def __init__(self, value: Any, pointer: str, event: Any, column: int, weight: int) -> None:
        self.value = value
        self.pointer = pointer
        self.anchor: str | None = event.anchor
        self.start: int = event.start_mark.index
        self.flow = bool(event.flow_style)
        self.column = column  # where the innermost collection without brackets begins, -1 without any
        self.weight = weight  # expanded nodes counted before this one
        self.height = 1  # levels of collections, this one included
        self.key: str | None = None  # the key that waits for its value


class _Builder:
    """Turns events into plain data; every handler either adds to it or raises YamlError."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.marks: dict[str, tuple[int, int]] = {}
        self.values: dict[str, tuple[int, int]] = {}
        self.stack: list[_Frame] = []
        # anchor -> (node, its expanded nodes, its height); None while the node is open.
        self.anchors: dict[str, tuple[Any, int, int] | None] = {}
        self.aliases = 0
        self.nodes = 0
        self.pointers = 0
        self.documents = 0
        self.data: Any = None

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
            raise self.text.error(0, "the file is empty; write a document in it")
        self.text.close()
        return Document(self.data, self.marks, self.values)

    def refuse(self, mark: Any, message: str) -> YamlError:
        return self.text.error(mark.index, message)

    def tagged(self, mark: Any) -> YamlError:
        anchored = self.text.text.startswith("&", mark.index)
        return self.text.error(self.text.anchor(mark.index) if anchored else mark.index, TAGGED)

    def document_start(self, event: Any) -> None:
        self.documents += 1
        if self.documents > 1:
            raise self.refuse(event.start_mark, "a second document starts here; keep one document in a file")
        # The pure Python parser drops directives it does not know, so the text is asked as well.
        found = _DIRECTIVE.search(self.text.text, 0, event.end_mark.index)
        if found:
            raise self.text.error(found.start(), "directives are not accepted; remove this line")

    def scalar(self, event: Any) -> None:
        mark = event.start_mark
        value = event.value
        plain = event.implicit[0]
        self.text.scalar(mark.index, event.end_mark.index)
        if event.tag is not None:
            raise self.tagged(mark)
        frame = self.stack[-1] if self.stack else None
        if not plain or self.text.tabs or (frame is not None and frame.flow):
            self.written(event, frame)
        if frame is not None and frame.key is None and type(frame.value) is dict:
            self.add_key(frame, value, mark, plain)
        else:
            self.count(mark, 1)
            if plain and (not value or value[0] in _SUSPECT_START):
                if not value and frame is None:
                    raise self.refuse(mark, "the document is empty; write something in it")
                value = self.resolve(value, mark)
            self.place(value, event)
        if event.anchor is not None:
            self.define(event.anchor, mark, (value, 1, 0))

    def written(self, event: Any, frame: _Frame | None) -> None:
        """How a scalar is written: what the parsers let pass, and other readers do not."""
        start, end = event.start_mark.index, event.end_mark.index
        if event.anchor is not None:
            start = self.text.anchor(start)
        column = frame.column if frame else -1
        if event.implicit[0]:
            self.text.plain(start, end, frame is not None and frame.flow)
        elif event.style in ("|", ">"):
            self.text.block(start, end, column)
        else:
            if event.start_mark.line != event.end_mark.line:
                self.text.lines(start, end, column, False)
            if not event.value.isascii() and _SURROGATE.search(event.value):
                self.text.escapes(start)

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
            raise self.refuse(mark, f"YAML readers disagree on {shown(value)}; quote it if it is text")
        return value

    def add_key(self, frame: _Frame, key: str, mark: Any, plain: bool) -> None:
        self.count(mark, 1)
        if plain and key == "<<":
            raise self.refuse(mark, "merge keys are not accepted; write the entries out")
        if not key:
            raise self.refuse(mark, "a key is missing here; write one before the colon")
        if plain and key[0] in _SUSPECT_START and type(self.resolve(key, mark)) is not str:
            raise self.refuse(mark, f"the key {shown(key)} is not text; quote it")
        hidden = HIDDEN_IN_KEY.search(key)
        if hidden:
            raise self.refuse(mark, f"a key with the hidden character U+{ord(hidden.group()):04X}; remove it")
        pointer = f"{frame.pointer}/{_escape(key)}"
        if key in frame.value:
            line, column = self.marks[pointer]
            raise self.refuse(mark, f"the key {shown(key)} stands at {line}:{column} already; keep one")
        self.record(pointer, mark)
        frame.key = key

    def place(self, value: Any, event: Any) -> str:
        """Put a node where it belongs; returns its pointer."""
        mark = event.start_mark
        if not self.stack:
            self.data = value
            self.record("", mark)
            return ""
        frame = self.stack[-1]
        if frame.key is not None:
            pointer = f"{frame.pointer}/{_escape(frame.key)}"
            frame.value[frame.key] = value
            frame.key = None
            if mark.index < event.end_mark.index or type(value) is list or type(value) is dict:
                self.values[pointer] = (mark.line + 1, mark.column + 1)
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
        mark = event.start_mark
        self.text.scalar(mark.index, mark.index)
        if event.tag is not None:
            raise self.tagged(mark)
        self.no_key_waits(mark)
        if len(self.stack) >= MAX_DEPTH:
            raise self.refuse(mark, f"nested deeper than {MAX_DEPTH} levels; flatten it")
        weight = self.nodes
        self.count(mark, 1)
        column = mark.column
        if event.anchor is not None:
            self.define(event.anchor, mark, None)
        if event.flow_style:
            column = self.stack[-1].column if self.stack else -1
        elif event.anchor is not None:
            column = self.text.column(self.text.anchor(mark.index))
        value: Any = [] if type(event) is yaml.SequenceStartEvent else {}
        pointer = self.place(value, event)
        self.stack.append(_Frame(value, pointer, event, column, weight))

    def close(self, event: Any) -> None:
        frame = self.stack.pop()
        if frame.flow and not (self.stack and self.stack[-1].flow):
            self.text.lines(frame.start, event.end_mark.index, frame.column, True)
        if frame.anchor is not None:
            self.anchors[frame.anchor] = (frame.value, self.nodes - frame.weight, frame.height)
        self.grow(frame.height)

    def alias(self, event: Any) -> None:
        mark = event.start_mark
        self.text.scalar(mark.index, event.end_mark.index)
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
        self.place(value, event)

    def define(self, anchor: str, mark: Any, node: tuple[Any, int, int] | None) -> None:
        self.text.anchor(mark.index)
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
