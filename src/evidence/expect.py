"""What a task expects of its run, compared with what the ledger and the spans show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ..tracing.spans import Span


class Tally:
    """The facts of a run that `expected` may name, counted as lines and spans come."""

    def __init__(self) -> None:
        self.ending: str | None = None
        self.decisions: list[str] = []
        self.modes: list[str] = []
        self.span_counts: Counter[str] = Counter()

    def line(self, line: dict[str, Any]) -> None:
        if line["type"] == "end":
            self.ending = line["terminal_reason"]
        elif line["type"] == "step":
            for decision in line["policy_decisions"]:
                denied = decision["decision"] == "deny"
                self.decisions.append(f"deny:{decision['rule_id']}" if denied else decision["decision"])
            if line["failure_mode"] is not None:
                self.modes.append(line["failure_mode"])

    def spans(self, spans: Iterable[Span]) -> None:
        self.span_counts.update(span.name for span in spans)


def differences(expected: Mapping[str, Any], tally: Tally) -> list[str]:
    """One line for each expectation that was missed."""
    out = []
    endings = expected.get("endings") or ([expected["ending"]] if "ending" in expected else None)
    if endings is not None and tally.ending not in endings:
        out.append(f"ending: expected {' or '.join(endings)}, found {tally.ending}")
    for name, found in (("decisions", tally.decisions), ("modes", tally.modes)):
        if name in expected and list(expected[name]) != found:
            out.append(f"{name}: expected {_list(expected[name])}, found {_list(found)}")
    for name, count in sorted(expected.get("spans", {}).items()):
        if tally.span_counts[name] != count:
            out.append(f"spans {name}: expected {count}, found {tally.span_counts[name]}")
    return out


def _list(items: Iterable[str]) -> str:
    return "[" + ", ".join(items) + "]"
