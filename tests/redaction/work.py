"""Counts the work of a backtracking search, so that no clock is needed to see whether a pattern is linear."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from itertools import islice
from typing import Any

# the library's own tree of a pattern, and what matches one element of it
PARSER, COMPILER = import_module("re._parser"), import_module("re._compiler")
parsed = cache(PARSER.parse)
compiled: dict[int, Any] = {}
listed = cache(list)  # of a part of a tree


def search(pattern: str, text: str) -> tuple[int, list[tuple[int, int]]]:
    """Return how many elements a search tries, one way after another from each place on, and what it finds."""
    work, found, at = 0, list[tuple[int, int]](), 0

    def ends(nodes: list[Any], at: int, flags: int) -> Iterator[int]:
        """Yield where elements that begin at a place may end, in the order in which that is tried."""
        nonlocal work
        work += 1
        if not nodes:
            yield at
            return
        kind, of = nodes[0][0].name, nodes[0][1]
        ways: Iterable[int]
        if kind == "SUBPATTERN":
            ways = ends(listed(of[3]), at, (flags | of[1]) & ~of[2])
        elif kind == "BRANCH":
            ways = (end for branch in of[1] for end in ends(listed(branch), at, flags))
        elif kind.startswith("ASSERT"):
            begin = at if of[0] > 0 else at - of[1].getwidth()[0]
            is_there = begin >= 0 and any(True for _ in ends(listed(of[1]), begin, flags))
            ways = [at] if is_there == (kind == "ASSERT") else []
        elif kind.endswith("REPEAT"):
            ways = islice(repeated(kind == "MIN_REPEAT", *of, at, flags), kind == "POSSESSIVE_REPEAT" or None)
        else:
            if id(nodes[0]) not in compiled:
                compiled[id(nodes[0])] = COMPILER.compile(PARSER.SubPattern(PARSER.State(), nodes[:1]), flags)
            match = compiled[id(nodes[0])].match(text, at)
            ways = [match.end()] if match else []
        for way in ways:
            yield from ends(nodes[1:], way, flags)

    def repeated(is_lazy: bool, least: int, most: int, nodes: Any, at: int, flags: int) -> Iterator[int]:
        places = [at]
        while len(places) <= most:
            if is_lazy and len(places) > least:
                yield places[-1]
            end = next(ends(listed(nodes), places[-1], flags), None)  # the patterns need no other way of it
            if end is None:
                break
            places.append(end)
        yield from places[most:] if is_lazy else reversed(places[least:])

    while at <= len(text):
        end = next(ends(listed(parsed(pattern)), at, 0), None)
        found += [] if end is None else [(at, end)]
        at = max(at + 1, end or 0)
    return work, found
