"""A recorded run read back: its files, and the three that follow from the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...fail.errors import RecordError, system_reason
from ...runtime.core.lines import Line
from ...runtime.formats import canonical_json
from ...runtime.formats.read_file import read_unlinked, why_unread
from ...runtime.journal import ledger
from ...tracing.otlp_json import document
from ...tracing.spans import spans_of
from . import manifest as manifests
from . import v1
from .manifest import FILES, MANIFEST, REPORT, SEAL, STATE, TRACE
from .owned import OWNED, check_owned
from .report import Report


def run_files(folder: Path, name: str) -> dict[str, bytes]:
    """Return the four files of a run by name. Raises RecordError for a missing or a foreign file."""
    if not folder.is_dir():
        raise RecordError("there is no such run", file=name, remedy="record it with `tachograph run TASK`")
    out = {}
    try:
        present = sorted(folder.iterdir())
    except OSError as error:
        raise RecordError(
            f"cannot be read ({system_reason(error)})", file=name, remedy="check its permission"
        ) from None
    for path in present:
        if path.name not in (*FILES, SEAL, *OWNED):
            raise RecordError(
                f"holds a file that does not belong to a run: {path.name[:80]!r}",
                file=name,
                remedy="remove it",
            )
    for file in FILES:
        try:
            out[file] = read_unlinked(folder / file)
        except OSError as error:
            is_shut = isinstance(error, PermissionError)
            raise RecordError(
                f"cannot be read ({why_unread(error)})",
                file=f"{name}/{file}",
                remedy="check its permission" if is_shut else "restore it or record the run again",
            ) from None
    check_owned(folder, out[MANIFEST], name)
    return out


def rebuild(state: bytes, name: str, recorded: Mapping[str, bytes] | None = None) -> dict[str, bytes]:
    """Return the three other files, derived from a ledger; the manifest comes without its volatile keys.

    Args:
        state: The ledger.
        name: What messages call it.
        recorded: The files beside it. Taken from here is what does not follow from the ledger: the inputs in the
            manifest, and the report of a v1 run, which is worded otherwise today and held against its digest only.

    Raises:
        RecordError: the lines are no ledger.
    """
    try:
        lines = list(ledger.read(state, name, as_written=True))
        trace = document(spans_of(lines))
        is_v1 = lines[0]["schema"] == v1.SCHEMA
        text = (recorded or {}).get(REPORT, b"") if is_v1 else _report(lines)
        head = canonical_json.digest(state[:-1].rpartition(b"\n")[2])
        artifacts = {
            STATE: canonical_json.digest(state),
            TRACE: canonical_json.digest(trace),
            REPORT: canonical_json.digest(text),
        }
        if is_v1:
            stable = v1.manifest(lines[0], lines[-1], head, artifacts)
        else:
            stable = manifests.build(lines[0], _inputs(recorded or {}), head, artifacts)
        manifest = manifests.stable(stable).encode("utf-8")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise RecordError(
            f"has lines of an unknown shape ({type(error).__name__})",
            file=name,
            remedy="record the run again",
        ) from error
    return {TRACE: trace, REPORT: text, MANIFEST: manifest}


def _report(lines: list[Line]) -> bytes:
    report = Report(lines[0])
    for line in lines[1:-1]:
        report.step(line)
    return report.end(lines[-1]).encode("utf-8")


def _inputs(recorded: Mapping[str, bytes]) -> list[Line]:
    """Return the inputs that a recorded manifest names; none if it cannot be read, which is reported elsewhere."""
    try:
        inputs = manifests.read(recorded[MANIFEST])["inputs"]
    except (KeyError, ValueError, TypeError):
        return []
    return inputs if isinstance(inputs, list) else []
