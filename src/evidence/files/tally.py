"""The facts of a run that a task's `expected` may name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Self

from ...runtime.core.lines import Line
from ...tracing.spans import Span, spans_of


class Tally:
    """Count the facts of a run that `expected` may name, line by line."""

    def __init__(self) -> None:
        self.ending: str | None = None
        self.decisions: list[str] = []
        self.modes: list[str] = []
        self.span_counts: Counter[str] = Counter()

    @classmethod
    def of(cls, lines: list[Line]) -> Self:
        """Return the tally of a whole ledger."""
        tally = cls()
        for line in lines:
            tally.line(line)
        tally.spans(spans_of(lines))
        return tally

    def line(self, line: Line) -> None:
        """Count the next line of the ledger."""
        if line["type"] == "end":
            self.ending = line["terminal_reason"]
        elif line["type"] == "step":
            for decision in line["policy_decisions"]:
                denied = decision["decision"] == "deny"
                self.decisions.append(f"deny:{decision['rule_id']}" if denied else decision["decision"])
            if line["failure_mode"] is not None:
                self.modes.append(line["failure_mode"])

    def spans(self, spans: Iterable[Span]) -> None:
        """Count more spans, by name."""
        self.span_counts.update(span.name for span in spans)
