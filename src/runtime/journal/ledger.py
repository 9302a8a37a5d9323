"""The ledger: `state.jsonl`, the only source of everything else that a run leaves.

One canonical JSON object a line, split at LF alone: a `run` line, a `step` line per step, an `end` line.
Every line carries `prev`, the SHA-256 of the line before it (null in the first), so that a changed, lost,
doubled or moved line is seen and named.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ...fail.errors import RecordError
from ..core.effects import RunEnded
from ..core.lines import EndLine, LedgerLine
from ..core.lines import Line as Line
from ..core.outcome_codec import pairs_from_dict
from ..formats import canonical_json
from . import ledger_v1

SCHEMA: Final = "ledger/v2"


def ledger_schema() -> dict[str, Any]:
    """Return the JSON Schema (Draft 2020-12) of a ledger's lines as plain data."""
    path = Path(__file__).with_name("ledger.v2.schema.json")
    schema: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return schema


class Ledger:
    """Chains lines and keeps the head."""

    def __init__(self) -> None:
        self.head: str | None = None
        self.lines = 0

    def append(self, line: LedgerLine) -> str:
        """Chain one line; returns its text without LF."""
        line["prev"] = self.head
        # a step is made of our own data; the run line holds what users and models say of themselves
        trusted = line["type"] == "step"
        text = canonical_json.encode_trusted(line) if trusted else canonical_json.encode(line)
        self.head = canonical_json.digest(text)
        self.lines += 1
        return text


class Totals:
    """Running sums over step lines, for the end line; also used to prove them against the steps.

    `called` are the tools that were called, `documents` the files that they read.
    """

    def __init__(self) -> None:
        self.steps = self.tool_calls = self.attempts = self.denials = 0
        self.input_tokens = self.output_tokens = self.result_bytes = self.hidden_verdicts = 0
        self.told_failures = 0
        self.called: set[str] = set()
        self.documents: set[str] = set()

    def add(self, step: Line) -> None:
        """Add one step line."""
        self.steps += 1
        self.input_tokens += step["usage"]["input_tokens"]
        self.output_tokens += step["usage"]["output_tokens"]
        self.denials += sum(d["decision"] == "deny" for d in step["policy_decisions"])
        self.told_failures += told_failures(step)
        for result in step["tool_results"]:
            attempts = result["attempts"]
            self.tool_calls += bool(attempts)
            self.attempts += len(attempts)
            if attempts:
                self.called.add(result["name"])
            if result["result"] is not None:
                self.result_bytes += len(text_of(result["result"]).encode("utf-8"))
            for attempt in attempts:
                self.hidden_verdicts += sum("hidden" in check for check in attempt.get("checks", ()))
                self.documents.update(path for path, _ in pairs_from_dict(attempt, "reads"))

    def to_dict(self) -> dict[str, int]:
        """Return the totals of the end line."""
        return {
            "steps": self.steps,
            "tool_calls": self.tool_calls,
            "attempts": self.attempts,
            "retries": self.attempts - self.tool_calls,
            "denials": self.denials,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "result_bytes": self.result_bytes,
            **({"hidden_verdicts": self.hidden_verdicts} if self.hidden_verdicts else {}),
            **({"told_failures": self.told_failures} if self.told_failures else {}),
        }


def told_failures(step: Line) -> int:
    """Return of how many failures of a step the model was told: of its reply, which is one, or of calls."""
    told = [result["status"] for result in step["tool_results"] if "told" in result]
    return told.count("failed") + ("not_reached" in told or "told" in step)


def text_of(value: Any) -> str:
    """Canonical text of a value of a line, decoded or not."""
    return value.text if isinstance(value, canonical_json.Fragment) else canonical_json.encode(value)


def end_line(run_line: Line, totals: Totals, ending: RunEnded, lines: int, stamp: int) -> EndLine:
    """Return the last line, computed from the lines before it."""
    return {
        "type": "end",
        "run_id": run_line["run_id"],
        "terminal_reason": str(ending.reason),
        "final_answer": ending.answer,
        "failure_mode": None if ending.mode is None else str(ending.mode),
        "totals": totals.to_dict(),
        "lines": lines,
        "stamp": stamp,
    }


def _suspects(number: int) -> str:
    """Return which lines may have been changed where the chain breaks before a line."""
    earlier = (
        "" if number < 2 else "line 1 or " if number == 2 else f"line {number - 1} or an earlier one, or "
    )
    return f"{earlier}the link in this line was changed, or a line was lost, doubled or moved"


def read(data: bytes, name: str, *, as_written: bool = False) -> Iterator[Line]:
    """Yield the lines of a ledger, each checked against the chain. Raises RecordError naming the line.

    A ledger without its end line is cut off; so is one whose last line has no LF. Lines of an earlier schema come
    in the present shape, or with `as_written` as they stand.
    """
    head: str | None = None
    kind = None
    number = 0
    texts = data.split(b"\n")
    if texts.pop() != b"":
        raise RecordError("the last line is cut off", file=name, line=len(texts) + 1, remedy=_REMAKE)
    for number, text in enumerate(texts, start=1):
        line = _line(text, name, number)
        if line.get("prev") != head:
            raise RecordError(
                f"does not follow from the line before: {_suspects(number)}",
                file=name,
                line=number,
                remedy=_REMAKE,
            )
        head = canonical_json.digest(text)
        wanted = ("run",) if number == 1 else ("step", "end")
        if kind == "end" or line.get("type") not in wanted:
            raise RecordError("a line out of place", file=name, line=number, remedy=_REMAKE)
        kind = line["type"]
        if number == 1 and line.get("schema") not in (SCHEMA, ledger_v1.SCHEMA):
            raise RecordError(
                f"schema {str(line.get('schema'))[:40]!r}, this version reads {SCHEMA!r} and {ledger_v1.SCHEMA!r}",
                file=name,
                line=1,
                remedy="record the run again, or read it with the version that wrote it",
            )
        yield line if as_written or number > 1 else ledger_v1.lifted(line)
    if kind != "end":
        raise RecordError(
            "has no end line: the ledger is cut off", file=name, line=number + 1, remedy=_REMAKE
        )


_REMAKE: Final = "restore the file or record the run again"


def _line(text: bytes, name: str, number: int) -> Line:
    try:
        line = json.loads(text)
        canonical = isinstance(line, dict) and canonical_json.encode(line).encode("utf-8") == text
    except (ValueError, RecursionError):
        canonical = False
    if not canonical:
        raise RecordError("is no canonical JSON object", file=name, line=number, remedy=_REMAKE)
    return line  # type: ignore[no-any-return]


def unknown_shape(name: str, error: Exception) -> RecordError:
    """Return the error for a ledger whose lines are chained but do not have the expected keys."""
    return RecordError(
        f"has lines of an unknown shape ({type(error).__name__})",
        file=name,
        remedy="read it with the version that wrote it",
    )
