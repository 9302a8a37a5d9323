"""`manifest.json`: what a run is made of, with digests.

Everything in it follows from the ledger and the three other files, save the volatile keys: `timestamp`,
`wall_clock_seconds`, `code`, `environment`. "The same manifest" means the canonical form without those.
"""

from __future__ import annotations

import json
import platform
import subprocess
from pathlib import Path
from typing import Any, Final

from ..runtime import canonical_json
from ..runtime.clock import wall_now
from ..runtime.ledger import SCHEMA as LEDGER_SCHEMA

SCHEMA: Final = "manifest/v1"
TRACE_SCHEMA: Final = "trace/v1"
REPORT_SCHEMA: Final = "report/v1"
VOLATILE: Final = ("timestamp", "wall_clock_seconds", "code", "environment")

STATE: Final = "state.jsonl"
TRACE: Final = "trace.json"
REPORT: Final = "run_report.md"
MANIFEST: Final = "manifest.json"
SEAL: Final = "seal.json"  # not a run's file: what a person adds to one
FILES: Final = (STATE, TRACE, REPORT, MANIFEST)

Line = dict[str, Any]


def build(run_line: Line, end_line: Line, head: str, artifacts: dict[str, str]) -> Line:
    """The manifest without its volatile keys. `head` is the SHA-256 of the ledger's last line."""
    return {
        "schema": SCHEMA,
        "schemas": {"ledger": LEDGER_SCHEMA, "trace": TRACE_SCHEMA, "report": REPORT_SCHEMA},
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


def volatile(root: Path | None, wall_clock_seconds: float, durability: str = "off") -> Line:
    """The facts of this recording that ledger and inputs do not give."""
    return {
        "timestamp": wall_now(),
        "wall_clock_seconds": round(wall_clock_seconds, 3),
        "code": code_of(root),
        "environment": {
            "python": platform.python_version(),
            "platform": f"{platform.system()}-{platform.machine()}",
            "durability": durability,
        },
    }


def render(manifest: Line) -> bytes:
    """The file: sorted, indented, so that a reviewer reads a change line by line."""
    return (
        json.dumps(manifest, ensure_ascii=False, allow_nan=False, sort_keys=True, indent=2) + "\n"
    ).encode("utf-8")


def read(data: bytes) -> Line:
    """A manifest from its file. Raises ValueError where it is not as `render` writes it."""
    try:
        manifest = json.loads(data)
        whole = isinstance(manifest, dict) and manifest.keys() >= set(VOLATILE) and render(manifest) == data
        if not whole:
            raise ValueError("not as it was written")
        stable(manifest)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return manifest  # type: ignore[no-any-return]


def stable(manifest: Line) -> str:
    """Canonical text of a manifest without its volatile keys."""
    return canonical_json.encode({key: value for key, value in manifest.items() if key not in VOLATILE})


# what a run depends on; recorded runs and tests may be in the making
_SOURCES: Final = ("src", "tools", "policy", "tasks", "data", "requirements.txt")


def code_of(root: Path | None) -> Line:
    """`git_sha`, the commit checked out at `root`, and `dirty`, whether sources differ from it.

    Both are null without git or outside a repository.
    """
    sha = _git(root, "rev-parse", "HEAD") if root is not None else None
    if root is None or sha is None:
        return {"git_sha": None, "dirty": None}
    changed = _git(root, "status", "--porcelain", "--", *_SOURCES)
    return {"git_sha": sha, "dirty": None if changed is None else bool(changed)}


def _git(root: Path, *words: str) -> str | None:
    command = ["git", "-C", str(root), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)  # noqa: S603 - fixed words
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
