"""Changes of the principals of a policy: one dropped or added, a denial dropped or added."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

# (the keys that lead to what is replaced, what stands there instead, what is done in words, principal, its tools)
Changed = tuple[tuple[str, ...], Any, str, str, Sequence[str]]


def changed_principals(
    section: Mapping[str, Any], allowed: Sequence[str], unlisted: Iterable[str]
) -> Iterator[Changed]:
    """Yield the principals of a policy with one change each.

    Args:
        section: The section `principals` of a file; nothing is added where it is absent.
        allowed: The tools that the policy allows.
        unlisted: Principals that tests and runs name.
    """
    for principal, entry in section.items():
        if len(section) > 1:
            yield ("principals", principal), None, f"principal {principal!r} dropped", principal, allowed
        for tool in (*entry["tools"], *(name for name in allowed if name not in entry["tools"])):
            keys, denied = ("principals", principal, "tools", tool), tool in entry["tools"]
            words = f"denial of {tool!r} for {principal!r} {'dropped' if denied else 'added'}"
            yield keys, None if denied else "deny", words, principal, [tool]
    names = [name for name in unlisted if name not in section] or ["unlisted"]
    if section:
        words = f"principals that are not listed added, such as {names[0]!r}"
        added = {**section, **{name: {"tools": {}} for name in names}}
        yield ("principals",), added, words, names[0], allowed
