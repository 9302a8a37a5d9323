"""The files of a run of schema `ledger/v1`, where they are not as today: what `verify` needs to prove such a run."""

from __future__ import annotations

from typing import Final

from ...runtime.core.lines import Line
from ...runtime.journal.ledger_v1 import SCHEMA as SCHEMA

_SCHEMAS: Final = {"ledger": SCHEMA, "trace": "trace/v1", "report": "report/v1"}


def manifest(run_line: Line, end_line: Line, head: str, artifacts: dict[str, str]) -> Line:
    """Return the manifest of a v1 run without its volatile keys; arguments as for `manifest.build`."""
    return {
        "schema": "manifest/v1",
        "schemas": dict(_SCHEMAS),
        "run_id": run_line["run_id"],
        "task_id": run_line["task"]["id"] if run_line["task"] is not None else None,
        "inputs": end_line["inputs"],
        "policy_version": run_line["policy"]["version"],
        "tools": {tool["name"]: tool["schema_digest"] for tool in run_line["tools"]},
        "model": run_line["model"],
        "seed": run_line["seed"],
        "clock": run_line["clock"],
        "artifacts": artifacts,
        "ledger_head": head,
    }
