"""Recorded runs as a static site: an index over all of them and a page each, written whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ..evidence.checking.workers import each
from ..evidence.files.folder import (
    SignalsBlocked,
    absolute,
    directory_lock,
    staging_directory,
    staging_folders,
)
from ..evidence.files.manifest import STATE
from ..evidence.files.owned import CHILDREN
from ..evidence.recording.index import UNFINISHED, raise_unreadable
from ..fail.errors import InputError, OutputError, RecordError
from ..runtime.formats.escape import escape_terminal
from ..runtime.journal.journal import JOURNAL
from .index_page import Entry, entry_of, index_page
from .model import of_known_shape, run_of
from .page import run_page

SITE: Final = "tachograph-site.json"  # says which files of a folder are ours, with their digests
SCHEMA: Final = "site/v1"
INDEX: Final = "index.html"
PAGES: Final = "runs"
_PART = r"[a-z0-9][a-z0-9_]*(?:-[a-z0-9_]+)*"
_PLAIN: Final = re.compile(rf"{_PART}(?:/{_PART})*")
_LONGEST: Final = 120


@dataclass(frozen=True, slots=True)
class Site:
    """What was written: `pages` by run, and why a run has none."""

    pages: dict[str, str] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)


def file_name(name: str) -> str:
    """Return the file name of a run's page: unique, and valid on any server and file system."""
    if _PLAIN.fullmatch(name) and len(name) <= _LONGEST:
        return f"{name.replace('/', '--')}.html"
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "run"
    return f"{slug}---{hashlib.sha256(os.fsencode(name)).hexdigest()[:10]}.html"


def runs_in(folder: Path) -> list[Path]:
    """Return every run below a folder with its children, finished or under way, sorted.

    Raises InputError where there is none, or where a folder cannot be read.
    """
    if not folder.is_dir():
        raise InputError(
            "there is no such folder", file=str(folder), remedy="name a folder of runs such as runs"
        )
    folders = []
    for place, below, files in os.walk(folder, onerror=raise_unreadable):
        if STATE in files or JOURNAL in files:
            path = Path(place)
            below[:] = [name for name in below if name == CHILDREN]  # each has a page of its own
            # what a finish under way has put aside, and a recording without a journal, are not runs yet
            if path.suffix not in UNFINISHED or JOURNAL in files:
                folders.append(path)
    if not folders:
        raise InputError("holds no recorded run", file=str(folder), remedy="record one with `tachograph run`")
    return sorted(folders)


def write_site(
    runs: Path, out: Path, *, root: Path | None = None, tell: Callable[[int, Entry], object] | None = None
) -> Site:
    """Write the site over all runs below `runs` to `out`, which is empty, new or such a site.

    `tell` hears of each run that is done. Raises InputError, OutputError.
    """
    folders = runs_in(runs)
    place = absolute(out, "be a site")
    if any(place == folder.resolve() or folder.resolve() in place.parents for folder in folders):
        raise OutputError(f"{out}: lies in a recorded run; name a folder elsewhere")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _locked(place):
            _refuse_foreign(place, out)
        with staging_directory(place.parent, f".{place.name}-new-") as fresh:
            site = _write(runs, folders, fresh, root, tell)
            with _locked(place):
                _refuse_foreign(place, out)  # what came meanwhile
                _swap_in(fresh, place)
    except OSError as error:
        raise _unwritable(out, error) from error
    return site


def _write(
    runs: Path,
    folders: Sequence[Path],
    fresh: Path,
    root: Path | None,
    tell: Callable[[int, Entry], object] | None,
) -> Site:
    (fresh / PAGES).mkdir()

    def work(folder: Path) -> Entry:
        name = _name(folder, runs)
        address = f"{PAGES}/{file_name(name)}"
        try:
            run = run_of(folder, root, f"{runs.resolve().name}/{name}")
            text = run_page(run, home=f"../{INDEX}")
            with of_known_shape(run.name):
                entry = entry_of(run, name, address)
        except RecordError as error:
            return Entry(name=name, why=str(error))
        (fresh / address).write_bytes(text.encode("utf-8"))
        return entry

    entries = each(work, folders, tell=tell)
    (fresh / INDEX).write_bytes(index_page(entries).encode("utf-8"))
    listed = {path: hashlib.sha256((fresh / path).read_bytes()).hexdigest() for path in _files(fresh)}
    marker = {"schema": SCHEMA, "files": listed}
    (fresh / SITE).write_text(json.dumps(marker, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    good = {entry.name: entry.address for entry in entries if not entry.why}
    return Site(good, {entry.name: entry.why for entry in entries if entry.why})


def _name(folder: Path, runs: Path) -> str:
    """Return a run's name in the site: relative to the folder of runs."""
    name = folder.relative_to(runs).as_posix()
    return folder.resolve().name if name == "." else name


# ---- the folder --------------------------------------------------------------------------------------------


def _files(folder: Path) -> list[str]:
    """Return every file and link below a folder, sorted; links are not followed."""
    paths = []
    for place, below, files in os.walk(folder):
        links = [name for name in below if os.path.islink(os.path.join(place, name))]
        paths += [Path(place, name).relative_to(folder).as_posix() for name in (*files, *links)]
    return sorted(paths)


def _refuse_foreign(place: Path, out: Path) -> None:
    """Raise OutputError unless a folder is absent, empty, or holds nothing but a site as it was written."""
    if not os.path.lexists(place):
        return
    if not place.is_dir():
        raise OutputError(f"{out}: is not a folder; name another place for the site")
    paths = _files(place)
    if not paths:
        return
    listed = _listed(place)
    if listed is None:
        raise OutputError(f"{out}: holds files that no site wrote; name an empty folder")
    for path in paths:
        if path == SITE:
            continue
        if path not in listed or os.path.islink(place / path):
            raise OutputError(
                f"{out}: holds a file that no site wrote: {escape_terminal(path)[:200]}; move it away"
            )
        if hashlib.sha256((place / path).read_bytes()).hexdigest() != listed[path]:
            raise OutputError(f"{out}: {escape_terminal(path)[:200]} was changed by hand; move it away")


def _listed(place: Path) -> dict[str, Any] | None:
    """Return the files that a site lists as its own; None where a folder is not a site."""
    try:
        data = json.loads((place / SITE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        return None
    files = data.get("files")
    return files if isinstance(files, dict) else None


@contextlib.contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Hold the lock on a place for a site, signals deferred, after cleaning up what a killed process left there."""
    with SignalsBlocked(), directory_lock(place.parent):
        for old in staging_folders(place.parent, f".{place.name}-old-"):
            if old.is_symlink() or not old.is_dir() or (_files(old) and _listed(old) is None):
                continue  # not ours
            if _files(old) and not os.path.lexists(place):
                old.rename(place)
            else:
                with contextlib.suppress(OSError):  # something else was put into it
                    _remove_site(old)
        yield


def _swap_in(fresh: Path, place: Path) -> None:
    """Replace the old folder by the new one, by rename; the old one is moved aside first."""
    mask = os.umask(0)
    os.umask(mask)
    fresh.chmod(0o777 & ~mask)  # a temporary folder is closed to others, a site is not
    if not place.exists():
        fresh.rename(place)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{place.name}-old-", dir=place.parent))
    place.rename(old)
    try:
        fresh.rename(place)
    except BaseException:
        old.rename(place)
        raise
    _remove_site(old)


def _remove_site(old: Path) -> None:
    """Remove an old site: its own files, and its folders if nothing else is in them."""
    for path in [*(_listed(old) or ()), SITE]:
        (old / path).unlink(missing_ok=True)
    for folder, _, _ in os.walk(old, topdown=False):
        os.rmdir(folder)


def _unwritable(out: Path, error: OSError) -> OutputError:
    return OutputError(
        f"{out}: cannot be written to ({error.strerror or type(error).__name__}); check the folder and its permission"
    )
