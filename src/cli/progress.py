"""Progress of a run: one line an event, coloured at a terminal, plain in a pipe."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TextIO

from ..fail.errors import ModelError
from ..runtime.core.effects import AskHuman, AskModel, Call, Decided, Invoke, Wait
from ..runtime.core.redacted_pieces import RedactedPieces
from ..runtime.core.redaction import Redactor
from ..runtime.driver.ports import RunEvent
from ..runtime.formats.escape import escape_terminal
from .console import Paint, width_of


def tell_model_errors(stream: TextIO, redact: Redactor) -> None:
    """Print what a live model's adapter says of a failure, without secrets; no record holds its words."""
    import logging  # slow to import, and a script raises nothing

    class ModelErrors(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            error = record.exc_info[1] if record.exc_info else None
            if isinstance(error, ModelError | TimeoutError) and str(error):
                with contextlib.suppress(OSError, ValueError):
                    said = escape_terminal(redact(str(error)), 400)
                    print(f"tachograph: {said}", file=stream, flush=True)

    logger = logging.getLogger("tachograph")
    logger.setLevel(logging.INFO)
    logger.addHandler(ModelErrors())


class Progress:
    """A listener that prints calls, decisions and attempts as they happen."""

    def __init__(self, stream: TextIO, paint: Paint, width: int | None = None) -> None:
        self._stream = stream
        self._paint = paint
        self._width = width or width_of(stream)
        self._midline = False
        # takes secrets out of a model's text before it is shown
        self.redactor = Redactor(())
        self._pieces: RedactedPieces | None = None  # of the reply that is coming in
        # how the place of a rule is shown: with a policy at hand, its file and line
        self.place_of: Callable[[str], str] = str
        self._step: int | None = None  # the step that was named last
        self._index: int | None = None  # the call in it that was named last

    def __call__(self, notice: RunEvent) -> None:
        """Print what a listener is told."""
        if notice.what == "line" and notice.line is not None:
            self._line(notice.line)
        elif isinstance(notice.item, Decided):
            self._decided(notice.item)
        elif notice.outcome is not None:
            self._performed(notice)

    def token(self, text: str) -> None:
        """Show a piece of a model's text, as far as it is no part of a secret."""
        if self._pieces is None:
            self._pieces = RedactedPieces(self.redactor)
        self._show(self._pieces.add(text))

    def _show(self, text: str) -> None:
        if not text:
            return
        with contextlib.suppress(OSError):
            shown = "\n       ".join(escape_terminal(line) for line in text.split("\n"))
            print(shown if self._midline else f"       {shown}", end="", file=self._stream, flush=True)
            self._midline = True

    def _replied(self, *, is_whole: bool) -> None:
        """Show what is left of a reply. Where it broke off, that may be a part of a secret, and is not shown."""
        pieces, self._pieces = self._pieces, None
        if pieces is not None and is_whole:
            self._show(pieces.rest())

    def _print(self, text: str) -> None:
        if self._midline:
            text, self._midline = f"\n{text}", False
        # its reader left, or a tool closed it: the run goes on, and the end of it says so
        with contextlib.suppress(OSError, ValueError):
            print(text, file=self._stream, flush=True)

    def _line(self, line: dict[str, Any]) -> None:
        if line["type"] == "run":
            model = line["model"]
            name = f"{escape_terminal(model['provider'], 20)}/{escape_terminal(model['name'], 40)}"
            self._print(
                self._paint(escape_terminal(line["run_id"], 60), "bold")
                + f"  policy {line['policy']['version']}  model {name}  seed {line['seed']}"
                + (f"  principal {escape_terminal(line['principal'], 100)}" if "principal" in line else "")
            )
            self._print(f"question  {escape_terminal(line['question'], self._width - 10)}")
        elif line["type"] == "step" and line["failure_mode"] is not None:
            self._print(self._paint(f"       mode {line['failure_mode']}", "yellow"))

    def _decided(self, event: Decided) -> None:
        decision = event.decision
        colour = {"allow": "green", "deny": "red"}.get(decision.decision, "yellow")
        if event.step != self._step:
            self._print(f"step {event.step}")
            self._step, self._index = event.step, None
        if event.call is not None and event.index != self._index:
            self._name(event.call, event.index)
        why = "" if decision.decision == "allow" else f"  {escape_terminal(decision.reason, self._width)}"
        verdict = self._paint(decision.decision.ljust(6), colour)
        place = self._paint(escape_terminal(self.place_of(decision.at), 200), "dim")
        self._print(f"       {verdict} {decision.rule_id}  {place}{why}")

    def _name(self, call: Call, index: int | None) -> None:
        arguments = call.arguments.text if call.arguments else call.raw or ""
        name = escape_terminal(call.name, 40)
        self._print(f"  call {name} {escape_terminal(arguments, self._width - len(name) - 8)}")
        self._index = index

    def _performed(self, notice: RunEvent) -> None:
        item, outcome = notice.item, notice.outcome
        assert outcome is not None
        if isinstance(item, AskModel):
            self._replied(is_whole=outcome.fault is None)
        if isinstance(item, Invoke) and item.index != self._index:
            self._name(item.call, item.index)  # calls that run together were all decided before
        if isinstance(item, Invoke | AskModel):
            if outcome.fault is not None:
                subject = "model" if isinstance(item, AskModel) else "attempt"
                exception = escape_terminal(outcome.fault.exception, 60)
                text = f"{subject} {item.attempt}  {exception} ({outcome.fault.kind})"
                self._print("       " + self._paint(text, "yellow"))
            elif isinstance(item, Invoke):
                size = len(outcome.result.text.encode("utf-8")) if outcome.result is not None else 0
                otherwise = "cancelled" if outcome.cancelled else outcome.invalid or "denied"
                text = f"returned {size} bytes" if outcome.result is not None else otherwise
                self._print(f"       attempt {item.attempt}  {escape_terminal(text, self._width)}")
        elif isinstance(item, Wait):
            self._print(f"       waited {item.ms} ms")
        elif isinstance(item, AskHuman) and outcome.answer is not None:
            by = f" by {escape_terminal(outcome.answer.by, 40)}" if outcome.answer.by else ""
            self._print(f"       approval {outcome.answer.answer}{by}")
