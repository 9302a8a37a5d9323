"""Patterns of secrets that a policy describes itself, and which of them are refused.

They run in Python's engine, which tries one way after another. So a pattern is refused that may be tried in many ways
at one place of a text, or that may match a text of any length: the time it takes then grows faster than the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from ..core.secret_kinds import ENV_KIND, PATTERNS

# kinds of the keys of models, which no policy needs to name
MODEL_KINDS: Final = ("api_key",)
MAX_WAYS: Final = 10_000  # to match at one place
MAX_LENGTH: Final = 10_000  # of what may be matched
_REMEDY: Final = "count with small numbers, such as {1,64}, and nest no counts"


def pattern_problem(kind: str, text: str) -> tuple[str, str] | None:
    """Return what is wrong with a pattern of a policy, and a remedy; None if it is fine."""
    if kind in PATTERNS or kind in (*MODEL_KINDS, ENV_KIND):
        return f"{kind!r} is the name of a kind that exists", "give the pattern another name"
    try:
        pattern = re.compile(f"(?P<{kind}>{text})")
        parsed = _parsed(text)
    except (re.error, RecursionError, OverflowError):
        return "the pattern is not a regular expression", "write one in the syntax of Python's re"
    if pattern.groups > 1:
        return "the pattern has a group", "write (?:...) in place of (...)"
    if parsed is None or ways(parsed) > MAX_WAYS:
        return "the pattern may be tried in too many ways at one place of a text", _REMEDY
    if parsed.getwidth()[1] > MAX_LENGTH:
        return f"the pattern may match more than {MAX_LENGTH:,} characters", _REMEDY
    if pattern.search("") is not None:
        return "the pattern matches an empty text", "let it match at least one character"
    return None


def _parsed(text: str) -> Any:
    # the standard library has no public parser of patterns; what it cannot read is refused
    parser: Any = getattr(re, "_parser", None)
    return None if parser is None else parser.parse(text)


def ways(parsed: Iterable[tuple[Any, Any]]) -> int:
    """Return in how many ways a parsed pattern may be tried at one place; counting ends beyond MAX_WAYS."""
    out = 1
    for operation, argument in parsed:
        name = str(operation)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            out *= _repeated(*argument)
        elif name == "BRANCH":
            out *= sum(map(ways, argument[1]))
        elif name in ("SUBPATTERN", "ASSERT", "ASSERT_NOT"):
            out *= ways(argument[-1])
        elif name == "ATOMIC_GROUP":
            out *= ways(argument)
        elif name == "GROUPREF_EXISTS":
            out *= sum(ways(part) for part in argument[1:] if part is not None)
        if out > MAX_WAYS:
            return MAX_WAYS + 1
    return out


def _repeated(least: int, most: int, part: Iterable[tuple[Any, Any]]) -> int:
    one = ways(part)
    if one == 1:
        return min(most - least, MAX_WAYS) + 1
    out = 0
    for times in range(int(least), int(most) + 1):
        out += one**times if times < MAX_WAYS.bit_length() else MAX_WAYS + 1
        if out > MAX_WAYS:
            break
    return out
