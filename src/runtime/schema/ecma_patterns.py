r"""Rewrite the patterns of a JSON Schema for the linear-time regex engine that judges them.

JSON Schema's patterns are those of ECMA-262 with the `u` flag. The engine (Rust's `regex`) reads most of them alike;
what it reads otherwise is spelled out here, and what only it knows (`(?i)`, `\A`, nested classes) is refused. It has
neither look-around nor references to groups, which is why it needs no more than linear time.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from ..formats.lazy_pattern import lazy_pattern

# Compiled size in bytes: the time a text takes grows with it. `^.{1,2000}$` needs 3 MiB.
MAX_COMPILED: Final = 4 << 20
MIN_COMPILED: Final = 512  # sizes below are not told apart

_ESCAPE = (
    r"\\(?:(?P<kind>[dDwWsS]|[pP]\{[A-Za-z0-9_=]{1,80}\})|(?P<control>[fnrtv])|c(?P<letter>[A-Za-z])|(?P<nul>0(?![0-9]))"
    r"|u(?P<high>[dD][89abAB][0-9A-Fa-f]{2})\\u(?P<low>[dD][c-fC-F][0-9A-Fa-f]{2})"
    r"|(?:x(?P<x>[0-9A-Fa-f]{2})|u(?P<u>[0-9A-Fa-f]{4})|u\{(?P<long>[0-9A-Fa-f]{1,6})\})|(?P<other>[^A-Za-z0-9]))"
)
_TOKEN = lazy_pattern(
    rf"(?P<escape>{_ESCAPE})|(?P<end>\(\?!\[\\s\\S\]\))|(?P<edge>\\[bB])|(?P<count>(?:[*+?]|\{{[0-9]+(?:,[0-9]*)?\}})\??)"
    r"|(?P<group>\((?:\?(?::|<[A-Za-z_][A-Za-z0-9_]*>))?(?!\?))|(?P<syntax>[)|^$])|(?P<any>\.)|(?P<set>\[\^?)"
    r"|(?P<plain>[^\\(])",
    re.DOTALL,
)
_MEMBER = lazy_pattern(rf"(?P<escape>{_ESCAPE})|(?P<back>\\b)|(?P<end>\])|(?P<plain>[^\\])", re.DOTALL)
_CONTROLS: Final = {"f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_PLACES: Final = frozenset({"^", "$", r"\b", r"\B", r"(?![\s\S])"})
_SPELLED_OUT: Final = {
    ".": r"[^\n\r\u{2028}\u{2029}]",
    r"\b": r"(?-u:\b)",  # between ASCII word characters and others, as \w is
    r"\B": r"(?-u:\B)",
    r"(?![\s\S])": "$",  # the very end, as schemas say it for engines whose `$` also stands before a last newline
}


class BadPattern(ValueError):
    """A pattern that is not used; `reason` says why in a few words."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def linear_pattern(pattern: str) -> str:
    """Return `pattern` as the engine has to be given it. Raises BadPattern if it is not supported."""
    return _compiled(pattern)[0]


def compiled_bytes(pattern: str) -> int:
    """Return the compiled size of a pattern in bytes, rounded up to a power of two from MIN_COMPILED on.

    Raises BadPattern if it is not supported.
    """
    return _compiled(pattern)[1]


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> tuple[str, int]:
    from jsonschema_rs import Draft202012Validator, RegexOptions

    out, size = _rewritten(pattern), MIN_COMPILED
    while size <= MAX_COMPILED:
        try:
            Draft202012Validator(
                {"pattern": out}, pattern_options=RegexOptions(size_limit=size), offline=True
            )
        except ValueError:
            size *= 2
        else:
            return out, size
    raise BadPattern("it is not well formed, or counts too far")


def _rewritten(pattern: str) -> str:
    out: list[str] = []
    at, counted = 0, False
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise BadPattern(f"{pattern[at : at + 4]!r} is not supported")
        at, text = token.end(), token[0]
        if token["count"] is not None:
            if counted:
                raise BadPattern("it counts a count, or a place between characters")
            out.append(text)
        elif token["set"] is not None:
            at = _rewrite_class(pattern, at, text, out)
        elif token["escape"] is not None:
            out.append(text if token["kind"] else _literal(_character(token)))
        elif token["plain"] is not None:
            out.append(_literal(text))
        else:
            out.append(_SPELLED_OUT.get(text, text))
        # a place between two characters cannot be counted either
        counted = token["count"] is not None or text in _PLACES
    return "".join(out)


def _rewrite_class(pattern: str, at: int, opening: str, out: list[str]) -> int:
    """Append the class in brackets whose members begin at `at`; return where it ends."""
    out.append(opening)
    members: list[
        tuple[str, str | None]
    ] = []  # as the engine reads it, and the character if it is a single one
    while True:
        token = _MEMBER.match(pattern, at)
        if token is None:
            raise BadPattern(f"{pattern[at : at + 4]!r} is not supported in a class")
        at = token.end()
        if token["end"] is not None:
            break
        if token["kind"] is not None:
            members.append((token[0], None))
        elif token[0] == "-":
            members.append(("-", "-"))
        else:
            character = "\b" if token["back"] else _character(token) if token["escape"] else token[0]
            members.append((_literal(character), character))
    if not members:
        if opening == "[":
            raise BadPattern("an empty class matches nothing")
        out[-1] = r"[\s\S"
    i = 0
    while i < len(members):
        written, low = members[i]
        high = members[i + 2][1] if members[i + 1 : i + 2] == [("-", "-")] and i + 2 < len(members) else None
        if low is not None and high is not None:
            if low > high:
                raise BadPattern("a range in a class runs backwards")
            written = f"{_literal(low)}-{_literal(high)}"
            i += 2
        out.append(r"\-" if written == "-" else written)
        i += 1
    out.append("]")
    return at


def _character(token: re.Match[str]) -> str:
    """Return the character that an escape stands for."""
    if token["high"] is not None:
        return chr(0x10000 + (int(token["high"], 16) - 0xD800) * 0x400 + int(token["low"], 16) - 0xDC00)
    code = token["x"] or token["u"] or token["long"]
    if code is not None:
        number = int(code, 16)
        if number > 0x10FFFF or 0xD800 <= number < 0xE000:
            raise BadPattern(f"{token[0]} is no character")
        return chr(number)
    if token["letter"] is not None:
        return chr(ord(token["letter"]) % 32)
    return "\0" if token["nul"] else _CONTROLS[token["control"]] if token["control"] else str(token["other"])


def _literal(character: str) -> str:
    if character.isalnum() and character.isascii():
        return character
    if 0xD800 <= ord(character) < 0xE000:
        raise BadPattern("it holds half a character")
    return f"\\u{{{ord(character):X}}}"
