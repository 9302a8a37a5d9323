"""Read the trace of a recorded run, to be sent elsewhere: only if it follows from the ledger."""

from __future__ import annotations

from pathlib import Path

from ...fail.errors import RecordError
from ...light_dataclasses import dataclass
from ...runtime.core.lines import Line
from ...runtime.journal import ledger
from ...tracing.content import moved, with_content
from ...tracing.spans import Span, spans_of
from ..checking.verify import verify
from ..files.manifest import STATE, TRACE
from ..files.rebuild import run_files
from ..recording.recorded import relative_name


@dataclass(frozen=True)
class Trace:
    """The spans of a run; `document` is its `trace.json`, or None where the spans are not those of the file."""

    name: str
    spans: list[Span]
    document: bytes | None

    @property
    def trace_id(self) -> str:
        """Return the id that all spans of the trace have."""
        return self.spans[0].trace_id


def check_run(folder: Path, root: Path) -> None:
    """Raise RecordError unless the record in `folder` is whole and its files are what its ledger gives."""
    wrong = verify(folder, root)
    if wrong:
        raise RecordError(
            f"nothing was sent, for the record is not whole: {wrong[0]}",
            file=relative_name(folder, root),
            remedy="see `tachograph verify`",
        )


def trace_of(folder: Path, root: Path, *, content: bool = False, end_ns: int | None = None) -> Trace:
    """Return the trace of a run that passed `check_run`.

    With `content`, messages, arguments and results are in its spans; with `end_ns`, it is moved to end at
    that time, under ids of its own. Raises RecordError.
    """
    name = relative_name(folder, root)
    files = run_files(folder, name)
    try:
        lines: list[Line] = list(ledger.read(files[STATE], f"{name}/{STATE}"))
        spans = spans_of(lines)
        if content:
            spans = with_content(lines, spans)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ledger.unknown_shape(f"{name}/{STATE}", error) from error
    if end_ns is not None:
        spans = moved(spans, end_ns)
    return Trace(name, spans, None if content or end_ns is not None else files[TRACE])
