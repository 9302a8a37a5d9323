"""Scan recorded files for the kinds of keys that redaction knows.

Redaction keeps a secret out of a run if the policy names its kind. This scan finds secrets that no policy names,
and those in files that were changed later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from ...fail.errors import system_reason
from ...runtime.core.redaction import Redactor
from ...runtime.core.secret_kinds import KEY_KINDS
from ...runtime.formats.lazy_pattern import lazy_pattern
from ..recording.recorded import relative_name
from .workers import each

KINDS: Final = KEY_KINDS
_SEARCH: Final = Redactor(KINDS)
_DIGIT: Final = re.compile(r"[0-9]")
_MANY: Final = 400  # from so many files on, starting processes saves time
_BLOCK: Final = lazy_pattern(r"[A-Za-z0-9+/]{40}")


def leaks(places: Iterable[Path], root: Path) -> list[str]:
    """Return one line for each secret in files, or in the files below folders; no line shows the secret.

    A file that cannot be read gets a line too, since it may hold one. Names of files are searched as well.
    """
    files = list(_files(places))
    by_file = each(partial(_leaks_in, root=root), files, jobs=None if len(files) >= _MANY else 1)
    return [line for lines in by_file for line in lines]


def _leaks_in(file: Path, root: Path) -> list[str]:
    path = relative_name(file, root)
    in_name = [kind for _, kind in secrets_in(path)]
    name = _hidden(path) if in_name else path
    try:
        text = file.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        return [f"{name}: cannot be searched for secrets ({system_reason(error)}); check its permission"]
    remedy = (
        "take it out of where it came from, or name its kind in the policy's redact, and record the run again"
    )
    return [
        f"{name}: {place} holds what looks like a secret ({kind}); revoke it, {remedy}"
        for place, kind in [
            *(("its name", kind) for kind in in_name),
            *((f"line {line}", kind) for line, kind in secrets_in(text)),
        ]
    ]


def _hidden(text: str) -> str:
    """Return a text with each secret in it replaced."""
    pattern = _SEARCH.pattern_for(text)
    return text if pattern is None else pattern.sub("<secret>", text)


def secrets_in(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, kind) of each secret in a text."""
    pattern = _SEARCH.pattern_for(text)
    if pattern is None:
        return
    for match in pattern.finditer(text):
        kind = str(match.lastgroup)
        if _is_secret(kind, match.group()):
            yield text.count("\n", 0, match.start()) + 1, kind


def _is_secret(kind: str, text: str) -> bool:
    """Return whether a match is likely a secret: words have no digits, a private key has more than a heading."""
    if kind == "private_key":
        return _BLOCK.search(text) is not None
    return _DIGIT.search(text) is not None


def _files(places: Iterable[Path]) -> Iterator[Path]:
    for place in places:
        inside = sorted(place.rglob("*")) if place.is_dir() else [place]
        yield from (path for path in inside if path.is_file() and not path.is_symlink())
