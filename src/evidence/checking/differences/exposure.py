"""Secrets that a change lets into records: a policy that redacts less, and a placeholder that became a value."""

from __future__ import annotations

import re
from typing import Any, Final

from ....runtime.core.redaction import Redactor
from ....runtime.core.secret_kinds import PATTERNS
from ....runtime.policy.policy import Policy

EXPOSURE: Final = "EXPOSURE"
_PLACEHOLDER: Final = re.compile(r"<secret:([a-z_]+):[1-9][0-9]*>")


def is_exposed(before: Any, after: Any) -> bool:
    """Return whether a text is another one, since a secret stands where its placeholder stood.

    A value of the kind has to stand there; of kinds that are not told by a pattern of ours, anything.
    """
    if not isinstance(before, str) or not isinstance(after, str) or "<secret:" not in before:
        return False
    parts = _PLACEHOLDER.split(before)
    rest, kinds = parts[::2], parts[1::2]
    if not kinds or before == after:
        return False
    match = re.fullmatch("([\\s\\S]+?)".join(map(re.escape, rest)), after)
    if match is None:
        return False
    shown = {kind for kind, text in zip(kinds, match.groups(), strict=True) if not _PLACEHOLDER.search(text)}
    ours = shown & PATTERNS.keys()
    return shown != ours or (bool(ours) and Redactor(sorted(ours)).kind_in(after) is not None)


def redacts_less(old: Policy, new: Policy) -> list[str]:
    """Return what `new` lets into records or to tools, that `old` kept from them, in words."""
    before, after = ({*policy.redact, *policy.redact_patterns, *policy.redact_env} for policy in (old, new))
    lost = [f"secrets of the kind {kind} may enter records" for kind in sorted(before - after)]
    same = old.redact_patterns.keys() & new.redact_patterns.keys()
    lost += [
        f"secrets of the kind {name} are other texts"
        for name in sorted(same)
        if old.redact_patterns[name] != new.redact_patterns[name]
    ]
    then, now = (
        {(tool, kind) for tool, kinds in policy.reveal_to.items() for kind in kinds} for policy in (old, new)
    )
    return lost + [f"{tool} gets secrets of the kind {kind}" for tool, kind in sorted(now - then)]
