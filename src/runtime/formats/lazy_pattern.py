"""Regular expressions that are compiled when they are first used: most commands use few of them."""

from __future__ import annotations

import re
from typing import Any, cast


class _LazyPattern:
    """Stands for a compiled pattern and becomes one at the first use."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._source = pattern, flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        compiled = re.compile(*self._source)
        for method in ("match", "fullmatch", "search", "sub", "split", "findall", "finditer", "pattern"):
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def lazy_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return a stand-in for `re.compile(pattern, flags)` that compiles at its first use.

    It has the pattern's methods and is no `re.Pattern` itself.
    """
    return cast("re.Pattern[str]", _LazyPattern(pattern, flags))
