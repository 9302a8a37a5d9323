"""One governed step against its parts, and where its time goes.

A step is the difference between a long and a short run, so that what a run costs once does not count. The
parts are the least that a step of this kind can be made of, done with the libraries themselves.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from measure import Case, Row, take_turns

from runs import READ, Runs, corpus, name
from tachograph import Tool
from tachograph.evidence.files import writer
from tachograph.evidence.files.report import Report
from tachograph.runtime.driver import live_executor
from tachograph.runtime.formats.canonical_json import encode
from tachograph.runtime.journal import ledger
from tachograph.runtime.models import types as llm
from tachograph.runtime.policy.gate import Gate
from tachograph.runtime.schema.validator import SchemaValidator
from tachograph.tracing.otlp_json import TraceWriter
from tachograph.tracing.spans import Projector
from tachograph.tracing.step_template import StepTemplates

SHORT, LONG = 20, 220
SPANS = 5
PARTS = {
    "schema": "one schema validation",
    "path": "one path resolution",
    "read": "one file read",
    "line": "one canonical line of 1.5 kB, encoded and written",
    "digest": "one SHA-256 of such a line",
    "spans": "its five spans encoded",
}


def rows(*, quick: bool) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder).resolve()
        mount = corpus(base / "corpus", LONG)
        runs = Runs(base / "runs", "read", mount)
        rounds = 3 if quick else 50
        with open(base / "lines", "wb") as file:
            parts, own = _parts(runs, mount, file)
            assert parts.keys() == PARTS.keys()
            turns = take_turns(
                {
                    "short": Case(lambda _: runs.record(SHORT), batch=1),
                    "long": Case(lambda _: runs.record(LONG), batch=1),
                    **parts,
                    **{f"own-{name}": case for name, case in own.items()},
                },
                rounds,
            )
        times = turns.times
        step = [(times["long"][i] - times["short"][i]) / (LONG - SHORT) for i in range(rounds)]
        sums = [sum(times[part][i] for part in parts) for i in range(rounds)]
        mine = [sum(times[f"own-{p}" if p in own else p][i] for p in parts) for i in range(rounds)]
        out = [
            Row(
                "governed step : sum of its parts, with the libraries alone",
                median(a / b for a, b in zip(step, sums, strict=True)),
                2.0,
                note=f"{median(step) / 1000:.0f} us : {median(sums) / 1000:.0f} us",
            ),
            Row(
                "governed step : the same parts, done by this package",
                median(a / b for a, b in zip(step, mine, strict=True)),
                note=f"{median(step) / 1000:.0f} us : {median(mine) / 1000:.0f} us",
            ),
        ]
        out += [
            Row(
                f"  part: {PARTS[part]}",
                turns.us(part) * 1000 / median(step),
                unit="of a step",
                note=f"{turns.us(part):.1f} us"
                + (f", by this package {turns.us(f'own-{part}'):.1f} us" if part in own else ""),
            )
            for part in parts
        ]
        return [*out, *_split(runs, median(step))]


def _parts(runs: Runs, mount: Path, file: Any) -> tuple[dict[str, Case], dict[str, Case]]:
    """Return the parts of a step, with libraries alone and, where this package differs, with its own code."""
    whole = runs.record(LONG)
    lines = [json.loads(line) for line in (whole / "state.jsonl").read_bytes().splitlines()]
    projector = Projector(lines[0])
    spans = [projector.step(line) for line in lines[1:-2]]
    (traced,) = json.loads((whole / "trace.json").read_bytes())["resourceSpans"]
    objects = traced["scopeSpans"][0]["spans"]
    validator = READ.input_validator
    compact = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
    ordered = json.JSONEncoder(
        ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True
    ).encode

    def line(n: int) -> dict[str, Any]:
        return {**lines[1 + n % len(spans)], "step_index": n}

    def objects_of(n: int) -> list[dict[str, Any]]:
        at = SPANS * (n % len(spans))
        return objects[at : at + SPANS]

    assert abs(len(ordered(line(1))) - 1500) < 50 and len(spans[0]) == SPANS
    sink = TraceWriter(lambda _: None)
    parts = {
        "schema": Case(
            validator.first_mismatch,
            lambda n: {"path": f"corpus/{name(n)}", "note": f"step {n} of a run"},
        ),
        "path": Case(os.path.realpath, lambda n: f"{mount}/{name(n % LONG)}"),
        "read": Case(_read, lambda n: f"{mount}/{name(n % LONG)}"),
        "line": Case(lambda data: file.write(ordered(data).encode() + b"\n"), line),
        "digest": Case(lambda data: hashlib.sha256(data).hexdigest(), lambda n: ordered(line(n)).encode()),
        "spans": Case(lambda some: [compact(span) for span in some], objects_of),
    }
    own = {
        "line": Case(lambda data: file.write(encode(data).encode() + b"\n"), line),
        "spans": Case(sink.add, lambda n: spans[n % len(spans)]),
    }
    return parts, own


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


# ---- where the time goes -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Watched:
    """A function whose time counts; `less` names one that is called inside it and counts by itself."""

    owner: Any
    attribute: str
    less: str | None = None
    only: Callable[..., bool] | None = None


def _writes(file: str) -> Callable[..., bool]:
    return lambda digested, *_: Path(digested._file.name).name == file


_WATCHED = {
    "model: the reply read strictly": Watched(live_executor, "read_reply"),
    "gate: the decision": Watched(Gate, "decide_request"),
    "tool: run, with its I/O and late decisions": Watched(READ, "run"),
    "tool: the result frozen": Watched(live_executor.LiveExecutor, "_read_result"),
    "tool: the result held against its schema": Watched(
        SchemaValidator, "first_mismatch", only=lambda judge, *_: judge is READ.output_validator
    ),
    "history: what the model will read": Watched(llm.History, "add"),
    "ledger: the line encoded and chained": Watched(ledger.Ledger, "append"),
    "ledger: totals": Watched(ledger.Totals, "add"),
    "ledger: written and digested": Watched(writer._Digested, "write", only=_writes("state.jsonl")),
    "trace: spans of the step, from a template": Watched(StepTemplates, "render"),
    "trace: written and digested": Watched(writer._Digested, "write", only=_writes("trace.json")),
    "trace: passed to the file": Watched(TraceWriter, "add_text", less="trace: written and digested"),
    "report: its rows": Watched(Report, "step"),
}


@contextmanager
def _watch(watched: Watched, spent: Callable[[int], None]) -> Iterator[None]:
    owner, attribute = watched.owner, watched.attribute
    real = getattr(owner, attribute)

    @functools.wraps(real)
    def timed(*args: Any, **kwargs: Any) -> Any:
        if watched.only is not None and not watched.only(*args):
            return real(*args, **kwargs)
        begun = time.perf_counter_ns()
        try:
            return real(*args, **kwargs)
        finally:
            spent(time.perf_counter_ns() - begun)

    put = object.__setattr__ if isinstance(owner, Tool) else setattr  # a Tool is frozen
    put(owner, attribute, timed)
    try:
        yield
    finally:
        put(owner, attribute, real)


def _split(runs: Runs, step_ns: float) -> list[Row]:
    """Shares of a step by what is done, each watched in runs of its own; the rest is the loop itself."""
    shares: dict[str, float] = {}
    for label, watched in _WATCHED.items():
        found = []
        for _ in range(3):
            spent: list[int] = []
            with _watch(watched, spent.append):
                runs.record(LONG)
            spent = sorted(spent)[: len(spent) * 9 // 10]  # the slowest met other programs
            calls_a_step = round(len(spent) / LONG / 0.9)
            found.append(mean(spent) * calls_a_step / step_ns)
        shares[label] = median(found)
    for label, watched in _WATCHED.items():
        if watched.less is not None:
            shares[label] -= shares[watched.less]
    shares["loop, driver, stamps, events"] = 1 - sum(shares.values())
    return [Row(f"  share: {label}", share, unit="of a step") for label, share in shares.items()]
