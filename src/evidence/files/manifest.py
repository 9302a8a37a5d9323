"""`manifest.json`: what a run is made of, with digests.

Everything in it follows from the ledger and the three other files, save `inputs`, the digests of the files that the run
rests on, and the volatile keys: `timestamp`, `wall_clock_seconds`, `code`, `environment`. "The same manifest" means the
canonical form without the volatile keys.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Final

from ...runtime.core.clock import wall_now
from ...runtime.core.lines import Line
from ...runtime.formats import canonical_json
from ...runtime.journal.ledger import SCHEMA as LEDGER_SCHEMA
from .claims.commit import commit_of_package
from .claims.package_digest import package_digest

SCHEMA: Final = "manifest/v2"
TRACE_SCHEMA: Final = "trace/v1"
REPORT_SCHEMA: Final = "report/v1"
VOLATILE: Final = ("timestamp", "wall_clock_seconds", "code", "environment")

STATE: Final = "state.jsonl"
TRACE: Final = "trace.json"
REPORT: Final = "run_report.md"
MANIFEST: Final = "manifest.json"
SEAL: Final = "seal.json"  # not a run's file: what a person adds to one
FILES: Final = (STATE, TRACE, REPORT, MANIFEST)


def build(run_line: Line, inputs: Iterable[Line], head: str, artifacts: dict[str, str]) -> Line:
    """Return the manifest without its volatile keys.

    Args:
        run_line: the first line of the ledger.
        inputs: the files that the run rests on, each with its digest.
        head: SHA-256 of the last line.
        artifacts: SHA-256 of ledger, trace and report by file name.
    """
    return {
        "schema": SCHEMA,
        "schemas": {"ledger": LEDGER_SCHEMA, "trace": TRACE_SCHEMA, "report": REPORT_SCHEMA},
        "run_id": run_line["run_id"],
        "task_id": run_line["task"]["id"] if run_line["task"] is not None else None,
        "inputs": list(inputs),
        "policy_version": run_line["policy"]["version"],
        "tools": {tool["name"]: tool["schema_digest"] for tool in run_line["tools"]},
        "model": run_line["model"],
        "seed": run_line["seed"],
        "clock": run_line["clock"],
        "artifacts": artifacts,
        "ledger_head": head,
    }


def volatile(wall_clock_seconds: float, packages: Mapping[str, str], durability: str = "off") -> Line:
    """Return the volatile keys: facts of this recording that do not follow from ledger and inputs.

    Args:
        wall_clock_seconds: How long the run took.
        packages: Installed packages that its tools import -> version.
        durability: What was kept in a journal.
    """
    environment: dict[str, object] = {
        "python": sys.version.split()[0],
        "platform": f"{os.uname().sysname}-{os.uname().machine}",
        "durability": durability,
    }
    if packages:
        environment["packages"] = dict(packages)
    return {
        "timestamp": wall_now(),
        "wall_clock_seconds": round(wall_clock_seconds, 3),
        "code": {"git_sha": commit_of_package(), "package": package_digest()},
        "environment": environment,
    }


def render(manifest: Line) -> bytes:
    """Return the bytes of the file: sorted and indented, so that a reviewer reads a change line by line."""
    return (
        json.dumps(manifest, ensure_ascii=False, allow_nan=False, sort_keys=True, indent=2) + "\n"
    ).encode("utf-8")


def read(data: bytes) -> Line:
    """Return the manifest of a file. Raises ValueError if the file is not as `render` writes it."""
    try:
        manifest = json.loads(data)
        is_canonical = (
            isinstance(manifest, dict) and manifest.keys() >= set(VOLATILE) and render(manifest) == data
        )
        if not is_canonical:
            raise ValueError("not as it was written")
        stable(manifest)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return manifest  # type: ignore[no-any-return]


def read_uncanonical(data: bytes) -> Line | None:
    """Return the manifest of a file that holds the data of one in whatever form; None if it holds none."""
    try:
        manifest = json.loads(data)
        return read(render(manifest))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def stable(manifest: Line) -> str:
    """Return the canonical text of a manifest without its volatile keys."""
    return canonical_json.encode({key: value for key, value in manifest.items() if key not in VOLATILE})


def with_volatile(stable: Line, replaced: Line | None, made: Line) -> Line:
    """Return a complete manifest, given the one that it replaces and the volatile keys of the new recording.

    Where only inputs moved, the run is the one that was recorded then: its volatile keys stay, so that a remark in a
    tool changes one line.
    """
    if replaced is not None and all(
        replaced.get(key) == value for key, value in stable.items() if key != "inputs"
    ):
        return {**stable, **{key: replaced[key] for key in VOLATILE}}
    return {**stable, **made}
