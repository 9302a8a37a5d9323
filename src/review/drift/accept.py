"""Accept drift: new results replace recorded ones, and a line records what changed and why.

Scripted runs are made again from their tasks, runs of a live model from their own record, as in a check. Everything
is written beside the runs first; then the folders are renamed, the index is written, and last
`runs/ACCEPTED.jsonl` gets its lines.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...evidence.checking.check import by_gravity
from ...evidence.checking.differences.cause import CODE_CHANGED, EXPOSE, causes_of
from ...evidence.checking.differences.compare import Findings
from ...evidence.checking.differences.drift import counted
from ...evidence.files import accepted, manifest
from ...evidence.files.folder import Folder, SignalsBlocked
from ...evidence.files.manifest import FILES, MANIFEST
from ...evidence.files.owned import OWNED
from ...evidence.recording import index
from ...fail.errors import InputError, OutputError
from ...runtime.core.lines import Line
from ...runtime.formats.canonical_json import digest
from ...runtime.formats.escape import escape_terminal
from ...runtime.formats.read_file import read_unlinked
from .report import QUIET

MAX_REASON: Final = 2000
NEEDS_WORD: Final = (
    "differs by the code or a package, which only its manifest claims to have been another one"
)


@dataclass(frozen=True)
class Change:
    """One run to be accepted: its folder, the findings of a check, its line in `runs/ACCEPTED.jsonl`."""

    folder: Path
    findings: Findings
    entry: Line
    seconds: float


def reason_of(text: str | None) -> str:
    """Return a reason as it is recorded. Raises InputError for an empty or unusable one."""
    reason = (text or "").strip()
    if not reason:
        raise InputError(
            "a change is accepted for a reason", remedy='give --reason "why the runs may differ"'
        )
    if len(reason) > MAX_REASON or any("\ud800" <= character <= "\udfff" for character in reason):
        raise InputError(
            f"the reason is longer than {MAX_REASON} characters or no text", remedy="say it in a sentence"
        )
    return reason


def refusal(
    findings: Findings, folder: Path, root: Path, *, code_changed: bool = False, expose: bool = False
) -> str | None:
    """Return why a run is not accepted, with what to do; None where it is.

    Args:
        findings: The findings of a check, with their causes.
        folder: The folder of the run.
        root: The project.
        code_changed: A person says that the code or a package is another one, as the manifest claims.
        expose: A person says that secrets may enter its record that were kept out of it.
    """
    parts = Path(findings.run).parts
    inside = len(parts) == 3 and parts[0] == "runs" and folder.resolve() == (root / findings.run).resolve()
    if findings.ok:
        return "does not drift, so there is nothing to accept"
    if findings.tampered:
        return "was changed by hand, which is not drift; restore it"
    if not findings.judged:
        return f"cannot be made again: {findings.lines[0]}"
    if findings.unrecorded:
        return f"would perform external calls; {findings.lines[0]}"
    if findings.missed:
        return f"misses what its task expects ({findings.missed[0]}); fix the task first"
    if findings.asked_otherwise:
        drift = findings.drift
        moved = drift.parts[0] if drift is not None and drift.parts else "its tools or policy"
        return f"its model would be asked with something else ({moved}); record it with `{findings.accept}`"
    if findings.fresh is None:
        return (
            f"needs its model again; record it with `{findings.accept}`"
            if findings.accept
            else "cannot be made again"
        )
    if findings.rests_on_a_claim and not code_changed:
        return f"{NEEDS_WORD}; if you know that they changed, give {CODE_CHANGED}"
    if findings.is_exposure and not expose:
        what = findings.exposes[0] if findings.exposes else "something else stands where a placeholder stood"
        return f"puts into its record what was kept out of it ({what}); if that is meant, give {EXPOSE}"
    if any(os.path.lexists(folder / kind) for kind in OWNED):
        return f"holds {' or '.join(OWNED)}, which would be lost; record it again with `tachograph run`"
    if not inside:
        return "is not a run below runs/ of this project; record it again with `tachograph run`"
    return None


def change(findings: Findings, folder: Path, root: Path, reason: str, seconds: float) -> Change:
    """Return what accepting a run would change; `refusal` must have returned None for it."""
    assert findings.fresh is not None
    first = findings.drift.first if findings.drift is not None else None
    entry = {
        "cause": causes_of(findings),
        "class": findings.kind,
        "classes": dict(findings.drift.counts) if findings.drift is not None else {},
        "first": first.to_dict() if first is not None else None,
        "inputs": [
            {"path": path, "before": before, "after": after}
            for path, (before, after) in findings.digests.items()
        ],
        "manifest": {
            "before": accepted.digest_of(read_unlinked(folder / MANIFEST)),
            "after": digest(findings.fresh[MANIFEST]),
        },
        "reason": reason,
        "run": findings.run,
        "schema": accepted.SCHEMA,
    }
    return Change(folder, findings, entry, seconds)


def preview(changes: Sequence[Change]) -> list[str]:
    """Return lines that announce what will be accepted: how many verdicts change, in which runs; then each run."""
    verdicts = {one.findings.run: one.entry["classes"].get("VERDICT", 0) for one in changes}
    moved = {run: count for run, count in sorted(verdicts.items()) if count}
    summary = "no verdict changes"
    if moved:
        where = ", ".join(f"{escape_terminal(run)} ({count})" for run, count in moved.items())
        total = sum(moved.values())
        summary = (
            f"{counted(total, 'verdict')} change{'s' * (total == 1)} in {counted(len(moved), 'run')}: {where}"
        )
    lines = [f"accept: {counted(len(changes), 'run')} will be recorded anew; {summary}"]
    ordered = by_gravity([one.findings for one in changes])
    for findings in ordered:
        if findings.kind != QUIET and findings.drift is not None and findings.drift.first is not None:
            lines.append(f"{findings.kind}  {escape_terminal(findings.run)}  {findings.drift.first}")
        elif findings.kind != QUIET:
            lines.append(f"{findings.kind}  {escape_terminal(findings.run)}")
    quiet = [escape_terminal(findings.run) for findings in ordered if findings.kind == QUIET]
    if quiet:
        lines.append(f"{QUIET}  {counted(len(quiet), 'run')}: {' '.join(quiet)}")
    return lines


def accept(root: Path, changes: Sequence[Change]) -> list[Line]:
    """Replace the recorded runs; return the lines added to `runs/ACCEPTED.jsonl`.

    Raises InputError where that file does not hold, OutputError where something cannot be written. Nothing is
    in place then, unless it fails between two renames: what is in place has its line in the file. Ctrl-C and
    SIGTERM leave everything as it was, or wait until all is done.
    """
    entries = needs_line(root, changes)
    done: list[Change] = []
    folders = []
    with SignalsBlocked() as signals, contextlib.ExitStack() as stack:
        for one in changes:
            folders.append((one, _written(stack, one)))
            signals.allow_pending()
        accepted.announce(root, [one.entry for one in changes if one.findings.run in entries])
        try:
            for one, folder in folders:
                folder.finish()
                done.append(one)
        except OSError as error:
            raise OutputError(
                f"{escape_terminal(one.findings.run)}: cannot be put in place ({type(error).__name__}); accept again"
            ) from error
        finally:
            if done:
                index.update(root)
            added = accepted.complete(root)
    return added


def recover(root: Path) -> list[Line]:
    """Complete what a process was doing in `runs/` that was killed, and return the lines of its accepted runs.

    Runs that were moved aside and not replaced are put back, what was only prepared is removed, and runs that were
    replaced get their lines. A run that `resume` can go on with is left as it is.
    """
    runs = root / "runs"
    for left in sorted([*runs.glob("*/*.old"), *runs.glob("*/*.partial")]):
        with contextlib.suppress(OutputError), Folder(left.with_suffix("")) as folder:
            folder.discard()
    for name in (index.INDEX, accepted.ACCEPTED, accepted.PENDING):
        (runs / f".{Path(name).name}.tmp").unlink(missing_ok=True)
    if not (root / accepted.PENDING).exists():
        return []
    index.update(root)
    return accepted.complete(root)


def needs_line(root: Path, changes: Sequence[Change]) -> set[str]:
    """Return the runs that need a new line; a run reverted to its previous state keeps its last one.

    Raises InputError where `runs/ACCEPTED.jsonl` does not hold.
    """
    history = accepted.history(root)
    if history.wrong:
        raise InputError(history.wrong[0])
    new = set()
    for one in changes:
        run, pair = one.findings.run, one.entry["manifest"]
        _, before, after = history.stands.get(run, (0, "", ""))
        if (before, after) == (pair["before"], pair["after"]):
            continue
        line = history.left.get(run, {}).get(pair["before"])
        if line is not None:
            raise InputError(
                f"{run} stands as before that line, which said that it was accepted as another",
                file=accepted.ACCEPTED,
                line=line,
                remedy="restore the run, or take the line out",
            )
        new.add(run)
    return new


def _written(stack: contextlib.ExitStack, one: Change) -> Folder:
    """Write the four files of a run to its partial folder, which is removed again unless it is finished."""
    folder = stack.enter_context(Folder(one.folder))
    folder.discard()
    fresh = one.findings.fresh
    assert fresh is not None
    replaced = manifest.read(read_unlinked(one.folder / MANIFEST))
    made = manifest.volatile(one.seconds, one.findings.packages)
    full_manifest = manifest.with_volatile(json.loads(fresh[MANIFEST]), replaced, made)
    files = {**fresh, MANIFEST: manifest.render(full_manifest)}
    try:
        for name in FILES:
            with (folder.partial / name).open("xb") as file:
                file.write(files[name])
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise OutputError(
            f"{escape_terminal(one.findings.run)}: cannot be written down ({why}); make room"
        ) from error
    return folder


def stands(one: Change) -> bool:
    """Return whether an accepted run is in place."""
    try:
        found = accepted.digest_of(read_unlinked(one.folder / MANIFEST))
    except (OSError, ValueError):
        return False
    return bool(found == one.entry["manifest"]["after"])


def sealed(changes: Sequence[Change]) -> Iterator[str]:
    """Yield the runs that have a seal, which is for their old files."""
    for one in changes:
        if (one.folder / manifest.SEAL).exists():
            yield one.findings.run
