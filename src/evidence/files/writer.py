"""Write ledger, trace and report from ledger lines as they come, into files or into memory."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

from ...runtime.agent import Agent
from ...runtime.core.lines import Line
from ...runtime.formats import canonical_json
from ...runtime.setup.run_config import RunConfig
from ...tracing.otlp_json import TraceWriter
from ...tracing.spans import Projector, Span
from ...tracing.step_template import StepTemplates
from . import manifest
from .manifest import MANIFEST, REPORT, STATE, TRACE
from .report import Report
from .tally import Tally

# bytes; an unfinished run's files are thrown away, so nothing is gained by writing often
_BUFFER: Final = 1 << 16
# steps of a run before a template of their spans is made: it costs as much as it saves in some twelve steps
_BEFORE_TEMPLATE: Final = 10


class _Digested:
    """A file being written, on disk or in memory, with the SHA-256 of what went in."""

    def __init__(self, path: Path | None) -> None:
        self._file: BinaryIO = BytesIO() if path is None else path.open("xb", buffering=_BUFFER)
        self._durable = path is not None
        self._sha = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._sha.update(data)

    def close(self) -> str:
        """Make the file durable and return its digest. What is in memory stays readable."""
        if self._durable:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        return self._sha.hexdigest()

    def abandon(self) -> None:
        with contextlib.suppress(OSError):  # a write failed before, and has been reported
            self._file.close()

    def content(self) -> bytes:
        """Return the content of a file in memory."""
        assert isinstance(self._file, BytesIO)
        return self._file.getvalue()


class Writer:
    """Write ledger, trace and report from ledger lines, into a folder or (None) into memory."""

    def __init__(self, folder: Path | None) -> None:
        self._state, self._trace_file, self._report_file = (
            _Digested(None if folder is None else folder / name) for name in (STATE, TRACE, REPORT)
        )
        self._trace = TraceWriter(self._trace_file.write)
        self._projector: Projector | None = None
        self._templates: StepTemplates | None = None
        self._report: Report | None = None
        self._report_text = ""
        self._run_line: Line = {}
        self._end_line: Line = {}
        self._head = ""
        self.tally = Tally()

    def line(self, line: Line, text: str) -> None:
        """Write the next line, given as data and as its canonical text. The end line completes trace and report."""
        data = text.encode("utf-8")
        self._state.write(data + b"\n")
        self.tally.line(line)
        if line["type"] == "run":
            self._run_line = line
            self._projector = Projector(line)
            self._templates = StepTemplates(self._projector)
            self._report = Report(line)
            return
        assert self._projector is not None and self._report is not None
        if line["type"] == "step":
            self._step(line)
            self._report.step(line)
        else:
            self._end_line = line
            self._head = canonical_json.digest(data)
            self._spans([self._projector.end(line)])
            self._trace.close()
            self._report_text = self._report.end(line)

    def _step(self, line: Line) -> None:
        assert self._projector is not None and self._templates is not None
        rendered = self._templates.render(line) if line["step_index"] > _BEFORE_TEMPLATE else None
        if rendered is None:
            self._spans(self._projector.step(line))
        else:
            text, names = rendered
            self._trace.add_text(text)
            self.tally.span_counts.update(names)

    def _spans(self, spans: list[Span]) -> None:
        self._trace.add(spans)
        self.tally.spans(spans)

    def finish(self, inputs: Iterable[Line]) -> Line:
        """Close the three files and return the manifest without its volatile keys; `inputs` as the run gave them."""
        self._report_file.write(self._report_text.encode("utf-8"))
        artifacts = {
            STATE: self._state.close(),
            TRACE: self._trace_file.close(),
            REPORT: self._report_file.close(),
        }
        return manifest.build(self._run_line, inputs, self._head, artifacts)

    def close(self) -> None:
        """Close the files, finished or not."""
        for file in (self._state, self._trace_file, self._report_file):
            file.abandon()

    def contents(self) -> dict[str, bytes]:
        """Return the three files of a writer in memory, by name."""
        return {
            STATE: self._state.content(),
            TRACE: self._trace_file.content(),
            REPORT: self._report_file.content(),
        }


def derive(agent: Agent, config: RunConfig) -> tuple[dict[str, bytes], Tally]:
    """Perform a run and return its four files and its tally; nothing is written to disk.

    The manifest is canonical and without its volatile keys.
    """
    writer = Writer(None)
    result = agent.execute(config, on_line=writer.line, keep_steps=False)
    stable = writer.finish(result.inputs)
    return {**writer.contents(), MANIFEST: manifest.stable(stable).encode("utf-8")}, writer.tally
