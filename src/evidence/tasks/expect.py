"""Compare what a task expects of its run with what the ledger and the spans show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..files.tally import Tally


def differences(expected: Mapping[str, Any], tally: Tally) -> list[str]:
    """Return one line for each expectation that was missed."""
    out = []
    endings = expected.get("endings") or ([expected["ending"]] if "ending" in expected else None)
    if endings is not None and tally.ending not in endings:
        out.append(f"ending: expected {' or '.join(endings)}, found {tally.ending}")
    for name, actual in (("decisions", tally.decisions), ("modes", tally.modes)):
        if name in expected and list(expected[name]) != actual:
            out.append(f"{name}: expected {_list(expected[name])}, found {_list(actual)}")
    for name, count in sorted(expected.get("spans", {}).items()):
        if tally.span_counts[name] != count:
            out.append(f"spans {name}: expected {count}, found {tally.span_counts[name]}")
    return out


def _list(items: Iterable[str]) -> str:
    return "[" + ", ".join(items) + "]"
