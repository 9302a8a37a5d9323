"""How long Python's `re` may take over a pattern: refused where the time doubles with each character.

`re` tries one way after the other. How many ways there are to match a text is read off the pattern's position
automaton (one state a character class, an edge from each to those that may follow): where a loop can come back to
the same place in two ways over the same text, they double with each round; where two loops can share a text, they
grow with its length, and the pattern is tried on shorter texts only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from .pattern_syntax import TOP, Alt, BadPattern, Chars, Edge, Look, Node, Repeat, Seq

# the longest text by how many loops can share a text; each takes some tenths of a second at most
_LIMITS: Final = {0: None, 1: None, 2: 4096, 3: 256}
_MAX_STATES: Final = 4000
_MAX_STEPS: Final = 300_000
# a bounded count is written out while it stays below this, and taken for a loop beyond
_WRITTEN_OUT: Final = 8
_MAX_WORD: Final = 64


class _Part:
    """A part of the automaton: whether it may be empty, and the states it begins and ends with."""

    __slots__ = ("empty", "first", "last")

    def __init__(self, empty: bool, first: list[int], last: list[int]) -> None:
        self.empty, self.first, self.last = empty, first, last


class _Automaton:
    def __init__(self, node: Node) -> None:
        self.chars: list[tuple[tuple[int, int], ...]] = []
        self.next: list[dict[int, int]] = []  # state -> how many edges lead there
        self.looks: list[tuple[Node, bool]] = []  # what is looked for, and whether at many places
        self.ends_open = True  # whether a match is one as soon as its last state is reached
        self.steps = 0
        searches = not _is_anchored(node)
        self.loose = searches  # whether a loop stands before, or around, what is built next
        whole = self.build(node, 1)
        self.last = set(whole.last)
        if searches:  # it begins anywhere: as if any text stood before
            before = self.state(((0, TOP),))
            self.connect([before], [before, *whole.first])
        self.masks = _masks(self.chars)

    def state(self, ranges: tuple[tuple[int, int], ...]) -> int:
        if len(self.chars) >= _MAX_STATES:
            raise BadPattern("it is too large")
        self.chars.append(ranges)
        self.next.append({})
        return len(self.chars) - 1

    def connect(self, last: Iterable[int], first: list[int]) -> None:
        for here in last:
            for there in first:
                self.next[here][there] = self.next[here].get(there, 0) + 1
                self.step()

    def step(self) -> None:
        self.steps += 1
        if self.steps > _MAX_STEPS:
            raise BadPattern("it is too involved to tell how long it takes")

    def build(self, node: Node, copies: int) -> _Part:
        match node:
            case Chars(ranges):
                state = [self.state(ranges)] if ranges else []
                return _Part(False, state, state)
            case Seq(items):
                return self.chain(self.build(item, copies) for item in items)
            case Alt(options):
                parts = [self.build(option, copies) for option in options]
                return _Part(
                    any(part.empty for part in parts),
                    [state for part in parts for state in part.first],
                    [state for part in parts for state in part.last],
                )
            case Repeat():
                return self.repeat(node, copies)
            case Look():
                self.looks.append((node.item, self.loose))
                self.ends_open = False
            case Edge(kind):
                self.ends_open = self.ends_open and kind == "^"
        if isinstance(node, Edge) and node.kind == "$":
            end = [self.state(((TOP + 1, TOP + 1),))]
            return _Part(False, end, end)
        return _Part(True, [], [])

    def chain(self, parts: Iterable[_Part]) -> _Part:
        empty = True
        first: list[int] = []
        last: list[int] = []
        for part in parts:
            self.connect(last, part.first)
            first += part.first if empty else []
            last = [*part.last, *(last if part.empty else [])]
            empty = empty and part.empty
        return _Part(empty, first, last)

    def repeat(self, node: Repeat, copies: int) -> _Part:
        item, least, most = node.item, node.least, node.most
        if most == 0:
            return _Part(True, [], [])
        if most is not None and self.is_short(node, copies):
            parts = [self.build(item, copies * most) for _ in range(most)]
            last = [state for part in parts[max(least, 1) - 1 :] for state in part.last]
            whole = self.chain(parts)
            return _Part(least == 0 or whole.empty, whole.first if least else self.starts(parts), last)
        self.loose = True
        part = self.build(item, 1)
        if part.empty and least >= _WRITTEN_OUT:
            raise BadPattern("it counts something that may be empty")
        self.connect(part.last, part.first)
        return _Part(part.empty or least == 0, part.first, part.last)

    @staticmethod
    def starts(parts: list[_Part]) -> list[int]:
        first: list[int] = []
        for part in parts:
            first += part.first
            if not part.empty:
                break
        return first

    @staticmethod
    def is_short(node: Repeat, copies: int) -> bool:
        assert node.most is not None
        if isinstance(node.item, Chars) and (node.least == node.most or node.most <= _WRITTEN_OUT):
            return node.most <= _MAX_WORD
        return node.most * copies < _WRITTEN_OUT

    def loops(self) -> list[set[int]]:
        """The states that lead back to themselves, by strongly connected component, in the order of a text."""
        return [
            found
            for found in _components(self.next)
            if len(found) > 1 or any(s in self.next[s] for s in found)
        ]

    def doubles(self, loop: set[int]) -> bool:
        """Whether a loop comes back to the same place in two ways over the same text."""
        if any(count > 1 and there in loop for here in loop for there, count in self.next[here].items()):
            return True
        forth: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        back: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        left: list[tuple[int, ...]] = [(state, state) for state in loop]
        while left:
            pair = left.pop()
            if pair in forth:
                continue
            forth[pair] = self.together(pair, (loop, loop))
            for there in forth[pair]:
                back.setdefault(there, []).append(pair)
            left += forth[pair]
        seen = {pair for pair in forth if pair[0] == pair[1]}
        left = [*seen]
        while left:
            for pair in back.get(left.pop(), ()):
                if pair[0] != pair[1]:
                    return True  # on its way from a place to a place in two ways
                if pair not in seen:
                    seen.add(pair)
                    left.append(pair)
        return False

    def together(self, here: tuple[int, ...], within: tuple[set[int], ...]) -> list[tuple[int, ...]]:
        """The states that several readers of one text may go on to, each within its own set."""
        found: list[tuple[tuple[int, ...], int]] = [((), -1)]
        for state, allowed in zip(here, within, strict=True):
            grown = []
            for there in self.next[state]:
                if there in allowed:
                    for before, mask in found:
                        self.step()
                        if mask & self.masks[there]:
                            grown.append(((*before, there), mask & self.masks[there]))
            found = grown
        return [states for states, _ in found]

    def shares(self, one: set[int], two: set[int]) -> bool:
        """Whether the same text takes loop `one` round, loop `two` round, and from one to the other."""
        between = set(range(len(self.chars)))
        for a in one:
            for c in two:
                left: list[tuple[int, ...]] = [(a, a, c)]
                seen = set(left)
                while left:
                    for found in self.together(left.pop(), (one, between, two)):
                        if found == (a, c, c):
                            return True
                        if found not in seen:
                            seen.add(found)
                            left.append(found)
        return False


def _is_anchored(node: Node) -> bool:
    """Whether every match begins where the text does."""
    match node:
        case Edge(kind):
            return kind == "^"
        case Seq(items):
            for item in items:
                if _is_anchored(item):
                    return True
                if not isinstance(item, Look | Edge):
                    return False
            return False
        case Alt(options):
            return all(map(_is_anchored, options))
        case Repeat(item, least, _, _):
            return least > 0 and _is_anchored(item)
    return False


def _masks(chars: list[tuple[tuple[int, int], ...]]) -> list[int]:
    """The states' characters as bits, one a stretch of characters that no state tells apart."""
    marks = sorted({edge for ranges in chars for low, high in ranges for edge in (low, high + 1)})
    return [
        sum((1 << bisect_left(marks, high + 1)) - (1 << bisect_left(marks, low)) for low, high in ranges)
        for ranges in chars
    ]


def _components(edges: list[dict[int, int]]) -> list[set[int]]:
    """Strongly connected components, those that come first in a text first (Kosaraju)."""
    order: list[int] = []
    seen: set[int] = set()
    for start in range(len(edges)):
        stack = [(start, iter(edges[start]))] if start not in seen else []
        seen.add(start)
        while stack:
            rest = stack[-1][1]
            there = next((s for s in rest if s not in seen), None)
            if there is None:
                order.append(stack.pop()[0])
            else:
                seen.add(there)
                stack.append((there, iter(edges[there])))
    back: list[list[int]] = [[] for _ in edges]
    for here, targets in enumerate(edges):
        for there in targets:
            back[there].append(here)
    out: list[set[int]] = []
    placed: set[int] = set()
    for start in reversed(order):
        if start in placed:
            continue
        found, left = {start}, [start]
        while left:
            for before in back[left.pop()]:
                if before not in placed and before not in found:
                    found.add(before)
                    left.append(before)
        placed |= found
        out.append(found)
    return out


def _degree(node: Node) -> int:
    """With which power of a text's length the time grows. Raises BadPattern where it grows faster."""
    automaton = _Automaton(node)
    loops = automaton.loops()
    if any(automaton.doubles(loop) for loop in loops):
        raise BadPattern("a count within a count can match the same text in many ways, which takes for ever")
    ends = automaton.last if automaton.ends_open else set()
    chains: list[int] = []
    for i, loop in enumerate(loops):
        before = [chains[j] for j in range(i) if not loop & ends and automaton.shares(loops[j], loop)]
        chains.append(1 + max(before, default=0))
    outer = max(chains, default=0)
    inner = [_degree(Seq((Edge("^"), look))) + (outer if often else 0) for look, often in automaton.looks]
    return max([outer, *inner])


def longest_text(node: Node) -> int | None:
    """The longest text to try a pattern on, None if there is no limit. Raises BadPattern if none is short."""
    degree = _degree(node)
    if degree not in _LIMITS:
        raise BadPattern("its counts can share a text in too many ways, which takes for ever")
    return _LIMITS[degree]
