"""The files of a run of schema `ledger/v1`, where they are not as today: what `verify` needs to prove such a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...runtime.core.lines import Line
from ...runtime.journal.ledger_v1 import SCHEMA as SCHEMA
from .manifest import build

_SCHEMAS: Final = {"ledger": SCHEMA, "trace": "trace/v1", "report": "report/v1"}


def manifest(run_line: Line, end_line: Line, head: str, artifacts: dict[str, str]) -> Line:
    """Return the manifest of a v1 run without its volatile keys; arguments as for `manifest.build`."""
    common = build(run_line, end_line["inputs"], head, artifacts)
    return {**common, "schema": "manifest/v1", "schemas": dict(_SCHEMAS)}


def inputs(lines: Sequence[Line]) -> list[dict[str, str]]:
    """Return what the last line of a v1 ledger names: every file read, with its digest."""
    run = lines[0]
    found = {item["path"]: item["sha256"] for item in run["policy"]["files"]}
    found.update({t["file"]: t["module_digest"] for t in run["tools"] if t["file"] and t["module_digest"]})
    if run["task"] is not None:
        found[run["task"]["path"]] = run["task"]["sha256"]
    documents: dict[str, str] = {}
    for line in lines[1:-1]:
        for result in line["tool_results"]:
            for attempt in result["attempts"]:
                for path, sha in attempt.get("reads", ()):
                    documents.setdefault(path, sha)
    found.update(documents)
    return [{"path": path, "sha256": found[path]} for path in sorted(found)]
