"""Perform runs into which marked values are put, and search every byte that they write.

Searched are the four files of a run, its journal while it is under way, the index, the names of files, the bodies that
an OTLP receiver gets, the events that listeners get, what the command line prints, and the log. Not searched are the
files that the tools of a run write: they are what the run is to leave behind.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TextIO

from ...fail.errors import InputError
from ...light_dataclasses import dataclass
from ...runtime.core.redaction import Redactor
from ...runtime.driver.ports import Listener, RunEvent
from ...runtime.events import AgentEvent, EventListener
from ...tracing.live import LiveExport
from ...tracing.push import Sender
from ..recording.index import update
from ..recording.record import record
from ..recording.resume import resume
from ..sending.push import trace_of
from .agent import Model, agent_of, approver, environment, history_of, pages_of, policy_for, turns_of
from .loopback import TRACES, Loopback
from .marks import WAYS, Found, Search, marked_values

_RUN: Final = "runs/canary/trial"
_CUT_AT: Final = 4  # in the midst of the turns
_WHOLE: Final = "final_answer"


@dataclass(frozen=True)
class Kind:
    """A kind of run.

    Attributes:
        live: Whether its model is asked over loopback, rather than read from a script.
        streams: Whether the text of its replies comes in pieces.
        resumed: Whether it dies in its midst and is resumed.
    """

    live: bool
    streams: bool = False
    resumed: bool = False

    @property
    def name(self) -> str:
        """The kind in a few words."""
        words = ["live" if self.live else "scripted"]
        words += ["streamed"] * self.streams + ["resumed"] * self.resumed
        return ", ".join(words)


KINDS: Final = tuple(
    Kind(live, streams, resumed)
    for live, streams in ((False, False), (True, False), (True, True))
    for resumed in (False, True)
)


@dataclass(frozen=True)
class Shown:
    """How a run is shown while it is under way.

    Attributes:
        listener: Prints what happens.
        on_text: Prints the pieces of a reply.
    """

    listener: Callable[[RunEvent], object]
    on_text: Callable[[str], None]


# (stream, redactor) -> what prints to the stream
Show = Callable[[TextIO, Redactor], Shown]


@dataclass(frozen=True)
class Trial:
    """What came of a run of one kind.

    Attributes:
        kind: The kind of run.
        ending: How the run ended.
        found: What was found, and where.
        places: Where was searched, with the bytes that each place had.
        not_tried: What could not be tried, and why.
    """

    kind: Kind
    ending: str
    found: list[Found]
    places: Mapping[str, int]
    not_tried: list[str]

    @property
    def problems(self) -> list[str]:
        """What the run does not show: a way in that it did not get to, or what could not be tried."""
        early = [] if self.ending == _WHOLE else [f"a {self.kind.name} run ended early, as {self.ending}"]
        return early + self.not_tried

    @property
    def is_clean(self) -> bool:
        """Whether the run got to its end, and nothing was found."""
        return self.ending == _WHOLE and not self.found

    def to_dict(self) -> dict[str, Any]:
        """Return this as JSON data."""
        found: dict[str, list[str]] = {way: [] for way in WAYS}
        for item in self.found:
            found[item.way].append(item.place)
        return {
            "ending": self.ending,
            "found": found,
            "places": dict(self.places),
            "not_tried": self.not_tried,
        }


def tried(kind: Kind, redact: Any, show: Show) -> Trial:
    """Perform a run of a kind under a section `redact` of a policy, and search what it writes for marked values."""
    values = marked_values()
    pages = pages_of(values)
    with tempfile.TemporaryDirectory() as place, environment(values):
        with Loopback(turns_of(values), pages) as server:
            seen = _Seen(Path(place))
            ending, not_tried = _performed(kind, redact, values, server, seen, show)
            for number, body in enumerate(server.bodies):
                seen.add(f"OTLP body {number + 1}", body)
            found = Search(values).found(seen.places())
        return Trial(kind, ending, found, {name: len(data) for name, data in seen.places()}, not_tried)


class _Seen:
    """What a run has written so far, by place."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.out = io.StringIO()
        self.log = io.StringIO()
        self.events = io.StringIO()
        self.pieces = io.StringIO()
        self._places: dict[str, bytes] = {}

    def add(self, name: str, data: bytes) -> None:
        """Add bytes to a place."""
        self._places[name] = self._places.get(name, b"") + data

    def files(self) -> None:
        """Add the files that are there now, and their names; a file that only grew is kept once."""
        for path in sorted(self.root.rglob("*")):
            name = path.relative_to(self.root).as_posix()
            if "/mounts/" in name or "/private/" in name:
                continue
            self._places[f"the name of {name}"] = name.encode("utf-8", "replace")
            if path.is_file():
                data = path.read_bytes()
                kept = self._places.get(name, b"")
                self._places[name] = data if data.startswith(kept) else kept + data

    def places(self) -> Iterator[tuple[str, bytes]]:
        """Yield (place, bytes) of all that was written."""
        yield from self._places.items()
        streams = {
            "standard output": self.out,
            "log": self.log,
            "events": self.events,
            "pieces of text": self.pieces,
        }
        for name, stream in streams.items():
            yield name, stream.getvalue().encode("utf-8", "replace")

    def hear(self, event: AgentEvent) -> None:
        """Add an event as a listener gets it; pieces of text follow one another, as a terminal shows them."""
        said = {"what": event.what, "step": event.step, "call": event.call, "data": event.data}
        self.events.write(f"{json.dumps(said)}\n")
        if event.what == "text_delta":
            self.pieces.write(event.data["text"])


def _performed(
    kind: Kind, redact: Any, values: Mapping[str, str], server: Loopback, seen: _Seen, show: Show
) -> tuple[str, list[str]]:
    policy = policy_for(redact, server.address)
    turns = turns_of(values)
    not_tried: list[str] = []
    with _logged(seen.log), contextlib.ExitStack() as opened:
        listeners: list[Listener] = [EventListener(seen.hear)]
        listeners.append(lambda _event: seen.files())
        try:
            listeners.append(opened.enter_context(LiveExport(f"{server.url}{TRACES}")))
            sender = Sender(server.url)
        except InputError as error:
            not_tried.append(f"an OTLP receiver: {error}")
            sender = None

        def agent(cut_at: int | None) -> Any:
            address = server.address if kind.live else None
            model = Model(turns, address, kind.streams, values["model_exception"], cut_at=cut_at)
            made = agent_of(model, policy, values, server.url)
            shown = show(seen.out, made.redactor())
            model.on_text = shown.on_text
            return made, [*listeners, shown.listener]

        out = seen.root / _RUN
        made, hearing = agent(_CUT_AT if kind.resumed else None)
        try:
            result = record(
                made,
                f"What of {values['question']}?",
                out,
                variables={"variable": values["variable"]},
                history=history_of(values),
                run_id="canary",
                listeners=hearing,
                approve=approver(values),
                durability="effect",
            )
        except InputError:
            if not kind.resumed:
                raise
            seen.files()
            made, hearing = agent(None)
            result = resume(made, out, listeners=hearing, approve=approver(values))
    seen.out.write(str(result.answer))
    update(seen.root)
    for content in (False, True):
        if sender is not None:
            sender.send(trace_of(out, seen.root, content=content).spans)
    seen.files()
    return result.ending, not_tried


@contextlib.contextmanager
def _logged(stream: TextIO) -> Iterator[None]:
    """Write what the runtime logs to a stream, with tracebacks."""
    logger, handler = logging.getLogger("tachograph"), logging.StreamHandler(stream)
    level, handed_on = logger.level, logger.propagate
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = handed_on
