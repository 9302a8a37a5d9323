"""Recording: the four files of a run, made whole or not at all.

A run under way lives in `DIR.partial/`, which a lock keeps to one process. Finishing is fsync and rename. A
recording that equals the one in place, volatile keys aside, leaves it untouched.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from signal import SIGINT
from typing import Any, BinaryIO

from ..fail.catalog import ENDINGS
from ..fail.errors import ExpectationError, InputError, Interrupted, OutputError
from ..runtime import canonical_json
from ..runtime.agent import Agent, Listener, RunResult, Setting
from ..runtime.clock import Clock, stopwatch
from ..runtime.driver import Approve, Interrupts
from ..tracing.otlp_json import TraceWriter
from ..tracing.spans import Projector, Span
from . import manifest as manifests
from .expect import Tally, differences
from .manifest import MANIFEST, REPORT, STATE, TRACE
from .report import Report

Line = dict[str, Any]


def record(
    agent: Agent,
    question: str,
    out: str | os.PathLike[str],
    *,
    otlp: str | None = None,
    seed: int = 0,
    run_id: str | None = None,
    listeners: Iterable[Listener] = (),
    approve: Approve | None = None,
    clock: Clock | None = None,
) -> RunResult:
    """Run `question` and leave the four files in the folder `out`, replacing an earlier run there.

    `otlp` is an OTLP endpoint (`http://host:4318`, `grpc://host:4317`) that gets the same spans live. Raises
    OutputError where `out` cannot be used. Ctrl-C leaves a whole record and is raised again.
    """
    setting = agent.setting(question, seed=seed, run_id=run_id, approve=approve, clock=clock)
    with live_export(otlp) as extra:
        result = record_run(agent, setting, Path(out), listeners=(*listeners, *extra))
    if result.mode == "interrupted":
        raise KeyboardInterrupt
    return result


@contextlib.contextmanager
def live_export(
    endpoint: str | None, on_problem: Callable[[str], None] | None = None
) -> Iterator[list[Listener]]:
    """The listeners that send spans to an OTLP endpoint; none, and nothing imported, without one."""
    if endpoint is None:
        yield []
        return
    from ..tracing.live import LiveExport

    export = LiveExport(endpoint, on_problem=on_problem)
    try:
        yield [export]
    finally:
        export.close()


def record_run(
    agent: Agent,
    setting: Setting,
    out: Path,
    *,
    root: Path | None = None,
    listeners: Iterable[Listener] = (),
    expected: Mapping[str, Any] | None = None,
    rejected: Path | None = None,
) -> RunResult:
    """Perform a run and put its four files into `out`.

    A run that misses `expected` never replaces the one in place: it is kept in `rejected`, and
    ExpectationError says so, with Interrupted as its cause where the run was. Bad input leaves nothing
    behind, and neither does a full disk where the run can be made again.
    """
    begun = stopwatch()
    with Interrupts() as interrupts, Folder(out) as folder:
        try:
            with contextlib.closing(Writer(folder.partial)) as writer:
                result = agent.execute(
                    setting,
                    listeners=listeners,
                    on_line=writer.line,
                    keep_steps=False,
                    interrupts=interrupts,
                )
                stable = writer.finish()
            missed = differences(expected or {}, writer.tally)
            if missed:
                kept = folder.keep_as(rejected) if rejected is not None else folder.partial
                cause = Interrupted(SIGINT) if result.mode == "interrupted" else None
                raise ExpectationError(missed, str(kept)) from cause
            if _same_in_place(out, stable):
                folder.discard()
            else:
                whole = {**stable, **manifests.volatile(root or out.parent, stopwatch() - begun)}
                (folder.partial / MANIFEST).write_bytes(manifests.render(whole))
                folder.finish()
        except InputError:
            folder.discard()
            raise
        except OSError as error:
            kept_in = f"what was written is in {folder.partial}"
            if setting.clock.kind == "virtual":
                folder.discard()
                kept_in = "make room or name another place"
            raise OutputError(
                f"{out}: the run cannot be written down ({type(error).__name__}); {kept_in}"
            ) from error
    return result


def _same_in_place(out: Path, stable: Line) -> bool:
    """Whether `out` holds this very run: its manifest says so and its files have the digests it names."""
    try:
        data = (out / MANIFEST).read_bytes()
        there = manifests.read(data)
        if manifests.stable(there) != manifests.stable(stable):
            return False
        names = sorted(path.name for path in out.iterdir())
        return names == sorted(manifests.FILES) and all(
            canonical_json.digest((out / name).read_bytes()) == sha
            for name, sha in stable["artifacts"].items()
        )
    except (OSError, ValueError, TypeError, AttributeError):
        return False


class _Digested:
    """A file being written, with the SHA-256 of what went in."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("xb")
        self._sha = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._sha.update(data)

    def close(self) -> str:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self._sha.hexdigest()

    def abandon(self) -> None:
        with contextlib.suppress(OSError):  # what is lost was lost before
            self._file.close()


class Writer:
    """Turns ledger lines into ledger, trace and report in a folder, as the lines come."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._state = _Digested(folder / STATE)
        self._trace_file = _Digested(folder / TRACE)
        self._report_file = _Digested(folder / REPORT)
        self._trace = TraceWriter(self._trace_file.write)
        self._projector: Projector | None = None
        self._report: Report | None = None
        self._report_text = ""
        self._run_line: Line = {}
        self._end_line: Line = {}
        self._head = ""
        self.tally = Tally()

    def line(self, line: Line, text: str) -> None:
        """Take the next line. The end line completes trace and report."""
        data = text.encode("utf-8")
        self._state.write(data + b"\n")
        self.tally.line(line)
        if line["type"] == "run":
            self._run_line = line
            self._projector = Projector(line)
            self._report = Report(line)
            return
        assert self._projector is not None and self._report is not None
        if line["type"] == "step":
            self._spans(self._projector.step(line))
            self._report.step(line)
        else:
            self._end_line = line
            self._head = canonical_json.digest(data)
            self._spans([self._projector.end(line)])
            self._trace.close()
            self._report_text = self._report.end(line)

    def _spans(self, spans: list[Span]) -> None:
        self._trace.add(spans)
        self.tally.spans(spans)

    def finish(self) -> Line:
        """Close the three files and return the manifest without its volatile keys."""
        self._report_file.write(self._report_text.encode("utf-8"))
        artifacts = {
            STATE: self._state.close(),
            TRACE: self._trace_file.close(),
            REPORT: self._report_file.close(),
        }
        return manifests.build(self._run_line, self._end_line, self._head, artifacts)

    def close(self) -> None:
        """Let go of the files, finished or not."""
        for file in (self._state, self._trace_file, self._report_file):
            file.abandon()


class Folder:
    """`DIR.partial/` under a lock, and its way to `DIR`.

    The lock is on the folder itself, so that it holds from the first byte until the folder has its final
    name and nothing is left to clear away.
    """

    def __init__(self, out: Path) -> None:
        self._shown = out
        self.out = _absolute(out)
        self.partial = self.out.with_name(self.out.name + ".partial")
        self._old = self.out.with_name(self.out.name + ".old")
        self._lock = -1
        self._keep = True
        self._made: list[Path] = []

    def __enter__(self) -> Folder:
        try:
            self._made = [path for path in self.out.parents if not path.exists()]
            self.out.parent.mkdir(parents=True, exist_ok=True)
            if self.out.exists() and not self.out.is_dir():
                raise OutputError(f"{self._shown}: is no folder; name another place for the run")
            for folder, shown in ((self.out, f"{self._shown}"), (self.partial, f"{self._shown}.partial")):
                if folder.is_dir() and any(path.name not in manifests.FILES for path in folder.iterdir()):
                    raise OutputError(
                        f"{shown}: holds files that are no run's; name a new folder or clear it"
                    )
            self._lock = self._take_lock()
            with _swapping(self.out.parent):
                if self._old.is_dir() and not self.out.exists():
                    self._old.rename(self.out)  # a finish that was cut between its two renames
                elif self._old.is_dir():
                    shutil.rmtree(self._old)  # one that was cut after them
            for path in self.partial.iterdir():
                path.unlink()  # left by a run that died; a stub run is simply made again
        except OSError as error:
            self._leave(keep=False)
            raise OutputError(
                f"{self._shown}: cannot be written to ({type(error).__name__}); check the folder and its permission"
            ) from error
        except OutputError:
            self._leave(keep=True)
            raise
        return self

    def _take_lock(self) -> int:
        """A descriptor of `partial` that holds the lock. Whoever finishes renames the folder: then again."""
        while True:
            self.partial.mkdir(exist_ok=True)
            try:
                lock = os.open(self.partial, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(lock), os.stat(self.partial)):
                    return lock
            except BlockingIOError:
                os.close(lock)
                raise OutputError(f"{self._shown}: another process is recording there; wait for it") from None
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)

    def __exit__(self, kind: object, *_: object) -> None:
        self._leave(keep=self._keep)

    def _leave(self, *, keep: bool) -> None:
        """Let go; without `keep` nothing that was made here stays."""
        if self._lock >= 0:
            if not keep:
                shutil.rmtree(self.partial, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1
        for path in self._made:
            with contextlib.suppress(OSError):
                path.rmdir()  # only where it is empty

    def discard(self) -> None:
        """Leave nothing behind."""
        self._keep = False

    def keep_as(self, place: Path) -> Path:
        """Move what was written to `place` for a person to look at."""
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(self.partial, place)
        return place

    def finish(self) -> None:
        """Put the folder in place: fsync, then rename, the old one aside first."""
        _sync(self.partial / MANIFEST)
        _sync(self.partial)
        with _swapping(self.out.parent):
            shutil.rmtree(self._old, ignore_errors=True)
            if self.out.exists():
                self.out.rename(self._old)
            self.partial.rename(self.out)
            _sync(self.out.parent)
            shutil.rmtree(self._old, ignore_errors=True)


def _absolute(out: Path) -> Path:
    """Where the folder of a run really stands, behind links."""
    try:
        place = out.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise OutputError(f"{out}: is no usable path ({type(error).__name__}); name a folder") from None
    if not place.name:
        raise OutputError(f"{out}: is no place for a run; name a folder")
    return place


@contextlib.contextmanager
def _swapping(parent: Path) -> Iterator[None]:
    """Alone among those who rename runs in `parent`, for a moment."""
    fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def ending_ok(result: RunResult, expected: Mapping[str, Any]) -> bool:
    """Whether a run ended as wanted: with an answer, or as its task expects."""
    wanted = expected.get("endings") or [expected.get("ending", "final_answer")]
    return result.ending in wanted and result.ending in ENDINGS
