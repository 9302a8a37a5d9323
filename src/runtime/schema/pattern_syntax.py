"""A pattern as ECMA-262 has it, read into its parts.

Read are the forms of the `u` flag, and what Annex B lets pass besides: a plain `{`, `\\-`, `[\\w-.]`. What
ECMA-262 and Python read differently, and what only one of them has, is refused by name. Groups capture nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

Ranges: TypeAlias = tuple[tuple[int, int], ...]

TOP: Final = 0x10FFFF
MAX_PATTERN: Final = 20_000
_MAX_COUNT: Final = 1_000_000
_MAX_GROUPS: Final = 40


class BadPattern(ValueError):
    """A pattern that is not used; `reason` is a few words of ours."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of sorted ranges of code points."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Seq:
    """One part after the other."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """Any one of several parts."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part some times over; `most` is None where there is no upper bound."""

    item: Node
    least: int
    most: int | None
    lazy: bool


@dataclass(frozen=True, slots=True)
class Look:
    """A look ahead or behind. `opening` is how it begins, such as `(?!`."""

    opening: str
    item: Node


@dataclass(frozen=True, slots=True)
class Edge:
    """A place between two characters: `^`, `$`, `b` or `B`."""

    kind: str


Node: TypeAlias = Chars | Seq | Alt | Repeat | Look | Edge


def union(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Sorted ranges without overlaps."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(high, out[-1][1]))
        else:
            out.append((low, high))
    return tuple(out)


def others(ranges: Ranges) -> Ranges:
    """All code points that sorted ranges do not hold."""
    out, low = [], 0
    for first, last in ranges:
        if low < first:
            out.append((low, first - 1))
        low = last + 1
    return (*out, (low, TOP)) if low <= TOP else tuple(out)


def _of(text: str) -> Ranges:
    return union((ord(letter), ord(letter)) for letter in text)


_DIGITS: Final = union([(48, 57)])
_WORDS: Final = union([(48, 57), (65, 90), (95, 95), (97, 122)])
_SPACES: Final = union(
    [*_of("\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff"), (0x2000, 0x200A)]
)
_CLASSES: Final = {
    "d": _DIGITS, "D": others(_DIGITS), "w": _WORDS, "W": others(_WORDS), "s": _SPACES, "S": others(_SPACES),
}  # fmt: skip
_ANY: Final = others(_of("\n\r\u2028\u2029"))
_CONTROLS: Final = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
_COUNT = re.compile(r"\{([0-9]+)(?:(,)([0-9]*))?\}")
_NAME = re.compile(r"\(\?<([^\W\d]|\$)[\w$]*>")
_HALF_COUNT = re.compile(r"\{,[0-9]")
_CONTROL = re.compile("[A-Za-z]")
_PROPERTY = re.compile(r"\{[^}]{0,40}\}")
_HEX = {"x": re.compile("[0-9A-Fa-f]{2}"), "u": re.compile("[0-9A-Fa-f]{4}")}
_LONG_HEX = re.compile(r"\{([0-9A-Fa-f]{1,8})\}")
_LOW_HALF = re.compile(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})")
_OPENINGS: Final = ("(?:", "(?=", "(?!", "(?<=", "(?<!")
_NOT_OURS = re.compile(r"\(\?(?:P?[<=>][^>)]{0,20}[>)]?|[-a-zA-Z]*[:)]|.?)", re.DOTALL)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth = text, 0, 0
        self.names: set[str] = set()

    def take(self, start: str) -> bool:
        if not self.text.startswith(start, self.at):
            return False
        self.at += len(start)
        return True

    def next(self) -> str:
        if self.at >= len(self.text):
            raise BadPattern("it ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def alternatives(self) -> Node:
        options = [self.sequence()]
        while self.take("|"):
            options.append(self.sequence())
        return options[0] if len(options) == 1 else Alt(tuple(options))

    def sequence(self) -> Node:
        items = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            items.append(self.counted(self.term()))
        return items[0] if len(items) == 1 else Seq(tuple(items))

    def term(self) -> Node:
        start, letter = self.at, self.next()
        if letter == "(":
            return self.group(start)
        if letter == "[":
            return Chars(self.set())
        if letter == "\\":
            return self.escape()
        if letter in "^$":
            return Edge(letter)
        if letter in "*+?" or _COUNT.match(self.text, start):
            raise BadPattern(f"nothing stands before {letter!r} to repeat")
        if letter == "{" and _HALF_COUNT.match(self.text, start):
            raise BadPattern("{,n} counts in Python only; write {0,n}")
        return Chars(_ANY) if letter == "." else Chars(_of(letter))

    def counted(self, item: Node) -> Node:
        least, most = 0, None
        counts = _COUNT.match(self.text, self.at)
        if counts:
            self.at = counts.end()
            least = _number(counts[1])
            most = least if not counts[2] else _number(counts[3]) if counts[3] else None
            if most is not None and most < least:
                raise BadPattern(f"{counts[0]} counts downwards")
        elif self.take("?"):
            most = 1
        elif self.take("+"):
            least = 1
        elif not self.take("*"):
            return item
        if isinstance(item, Look | Edge):
            raise BadPattern("a place or a look around is no character to repeat")
        lazy = self.take("?")
        if self.at < len(self.text) and (self.text[self.at] in "*+?" or _COUNT.match(self.text, self.at)):
            raise BadPattern("two counts stand behind one another")
        return Repeat(item, least, most, lazy)

    def group(self, start: int) -> Node:
        self.depth += 1
        if self.depth > _MAX_GROUPS:
            raise BadPattern("its groups are nested too deeply")
        opening = next((o for o in _OPENINGS if self.text.startswith(o, start)), None)
        name = _NAME.match(self.text, start)
        if opening is not None:
            self.at = start + len(opening)
        elif name is not None:
            self.at = name.end()
            if name[0] in self.names:
                raise BadPattern(f"two groups begin with {name[0]}")
            self.names.add(name[0])
        elif self.take("?"):
            found = _NOT_OURS.match(self.text, start)
            raise BadPattern(f"{found[0] if found else '(?'} is not supported")
        item = self.alternatives()
        if not self.take(")"):
            raise BadPattern("a group is not closed")
        self.depth -= 1
        return item if opening in (None, "(?:") else Look(str(opening), item)

    def escape(self) -> Node:
        letter = self.next()
        if letter in _CLASSES:
            return Chars(_CLASSES[letter])
        if letter in "bB":
            return Edge(letter)
        return Chars(_of(self.escaped(letter)))

    def escaped(self, letter: str) -> str:
        """The character that an escape stands for, inside a class or outside; `letter` follows the backslash."""
        if letter in _CONTROLS:
            return chr(_CONTROLS[letter])
        if letter == "0" and not self.text[self.at : self.at + 1].isdigit():
            return "\0"
        if letter == "c" and _CONTROL.match(self.text, self.at):
            return chr(ord(self.next()) % 32)
        if letter in "xu":
            return self.hex(letter)
        if letter in "pP":
            found = _PROPERTY.match(self.text, self.at)
            raise BadPattern(
                f"\\{letter}{found[0] if found else ''} is not supported; write the characters out"
            )
        if letter == "k" or letter in "123456789":
            raise BadPattern(f"\\{letter}, a reference to a group, is not supported")
        if letter.isalnum():
            raise BadPattern(f"\\{letter} is no escape of ECMA-262")
        return letter

    def hex(self, letter: str) -> str:
        long = _LONG_HEX.match(self.text, self.at) if letter == "u" else None
        found = _HEX[letter].match(self.text, self.at)
        if long is not None:
            self.at, code = long.end(), int(long[1], 16)
        elif found is not None:
            self.at, code = found.end(), int(found[0], 16)
            low = _LOW_HALF.match(self.text, self.at)
            if 0xD800 <= code < 0xDC00 and low:
                self.at, code = low.end(), 0x10000 + (code - 0xD800) * 0x400 + int(low[1], 16) - 0xDC00
        else:
            code = TOP + 1
        if code > TOP:
            raise BadPattern(f"\\{letter} needs the number of a character")
        return chr(code)

    def set(self) -> Ranges:
        """A class in brackets, from behind its opening one."""
        negated = self.take("^")
        if not negated and self.take("]"):
            raise BadPattern("[] matches nothing; write \\] for the bracket itself")
        parts: list[tuple[int, int]] = []
        while not self.take("]"):
            low = self.member()
            if not (self.text.startswith("-", self.at) and not self.text.startswith("-]", self.at)):
                parts += low
                continue
            self.at += 1
            high = self.member()
            if isinstance(low, _One) and isinstance(high, _One):
                if low[0][0] > high[0][0]:
                    raise BadPattern("a range in a class runs backwards")
                parts.append((low[0][0], high[0][0]))
            else:  # Annex B: beside \w and its like the hyphen is itself
                parts += [*low, *high, (45, 45)]
        return others(union(parts)) if negated else union(parts)

    def member(self) -> Ranges:
        letter = self.next()
        if letter != "\\":
            return _One(_of(letter))
        letter = self.next()
        if letter in _CLASSES:
            return _CLASSES[letter]
        return _One(_of("\b" if letter == "b" else self.escaped(letter)))


class _One(tuple[tuple[int, int], ...]):
    """The ranges of a single character."""

    __slots__ = ()


def _number(digits: str) -> int:
    if len(digits) > 7 or int(digits) > _MAX_COUNT:
        raise BadPattern(f"it counts beyond {_MAX_COUNT:,}")
    return int(digits)


def parse(pattern: str) -> Node:
    """The parts of a pattern. Raises BadPattern."""
    if len(pattern) > MAX_PATTERN:
        raise BadPattern(f"it is longer than {MAX_PATTERN:,} characters")
    reader = _Reader(pattern)
    node = reader.alternatives()
    if reader.at < len(pattern):
        raise BadPattern("a group is closed that was never opened")
    return node
