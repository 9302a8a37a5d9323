"""A recorded run as plain data for a page: steps, calls, decisions, attempts, spans, budgets.

Texts in it are as they were recorded: whoever shows them escapes them. Times are nanoseconds since the run's
start.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ..evidence.files.manifest import STATE
from ..evidence.files.words.rule_places import RulePlaces, moved_on
from ..evidence.recording.recorded import project_of, relative_name
from ..fail.errors import RecordError
from ..pages.wording import json_text
from ..runtime.core.clock import epoch_ns
from ..runtime.core.lines import Line
from ..runtime.formats.read_file import read_unlinked, why_unread
from ..runtime.journal import ledger
from ..runtime.journal.journal import JOURNAL
from ..runtime.journal.requests import Request, requests_of
from ..runtime.models.types import NOTICES
from ..tracing.spans import Projector, Span, span_id_of
from .journaled import lines_of_journal

LANES: Final = {"m": "model", "d": "gate", "i": "tool", "w": "wait", "h": "person", "k": "hook"}
BUDGETS: Final = (
    ("iterations", "max_iterations"),
    ("tokens", "max_tokens"),
    ("tool calls", "max_tool_calls"),
    ("result bytes", "max_result_bytes"),
    ("attempts", "max_attempts"),  # where the policy limits them
)
_STATUS: Final = {
    "ok": "result",
    "denied": "no result: denied",
    "failed": "no result: failed",
    "not_reached": "not reached: the run ended before",
    "cancelled": "no result: cancelled",
    "unfinished": "no result yet",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the tree of spans: a span, or a wait or a person's time between two of them."""

    name: str
    detail: str
    depth: int
    start: int
    end: int
    lane: str
    bad: bool


@dataclass(slots=True)
class Call:
    """A call that the model proposed, the decisions on it, and its result."""

    id: str
    name: str
    arguments: Any
    text: str | None
    problem: str | None
    decisions: list[Line]
    attempts: list[Line]
    status: str
    result: Any
    message_to_model: Line | None

    @property
    def arguments_line(self) -> str:
        """The arguments on one line."""
        return (self.text or "") if self.arguments is None else json_text(self.arguments)

    @property
    def status_words(self) -> str:
        """The status as the heading of the result."""
        return _STATUS.get(self.status, self.status)

    @property
    def verdict(self) -> str:
        """`allow`, `deny`, `escalate`, or `not reached` where nothing was decided."""
        if any(decision["decision"] == "deny" for decision in self.decisions):
            return "deny"
        proposed = [decision for decision in self.decisions if decision["phase"] == "proposal"]
        return str(proposed[-1]["decision"]) if proposed else "not reached"


@dataclass(slots=True)
class Step:
    """One step.

    `line` is its ledger line, `used` the budgets used up to its end, in the order of BUDGETS, `request` what the model
    saw, None where it was not asked.
    """

    line: Line
    calls: list[Call]
    refusals: list[Line]
    notice: str | None
    told: Line | None
    begin: int
    end: int
    pieces: list[tuple[str, int, int]]
    rows: list[Row]
    used: tuple[int, ...]
    request: Request | None = None

    @property
    def index(self) -> int:
        """The step's number, from 1."""
        return int(self.line["step_index"])

    @property
    def retries(self) -> int:
        """Attempts after the first, of the model and of tools."""
        tried = [self.line["llm_attempts"], *(call.attempts for call in self.calls)]
        return sum(max(len(attempts) - 1, 0) for attempts in tried)

    @property
    def denials(self) -> int:
        """How many decisions of the step are denials."""
        return sum(decision["decision"] == "deny" for decision in self.line["policy_decisions"])


@dataclass(slots=True)
class PolicyFile:
    """A policy file: its lines where the policy is still the one of the run, else None and why."""

    path: str
    lines: list[str] | None
    why: str


@dataclass(slots=True)
class Run:
    """A run.

    Attributes:
        name: What it is called.
        lines: The lines of its ledger.
        steps: Its steps.
        end: The last line, None where the run is unfinished.
        policy: The files of its policy.
        digest: SHA-256 of its ledger or journal.
        places: Where the rules that it names stand today.
        remark: How the policy of today is not the one of the run, None if it is.
        open: What the journal of an unfinished run leaves open, in words.
    """

    name: str
    lines: list[Line]
    steps: list[Step]
    end: Line | None
    policy: list[PolicyFile]
    digest: str
    places: RulePlaces
    remark: str | None = None
    open: list[str] = field(default_factory=list)

    @property
    def run(self) -> Line:
        """The run line."""
        return self.lines[0]

    @property
    def title(self) -> str:
        """The task's title, else the run's name."""
        task = self.run["task"]
        return str(task["id"] if task is not None else self.run["run_id"])

    @property
    def duration(self) -> int:
        """Nanoseconds from start to end."""
        last = self.steps[-1].end if self.steps else 0
        return int(self.end["stamp"]) if self.end is not None else last

    def line_at(self, at: str) -> tuple[int, int, str | None] | None:
        """Return (number of the policy file, line, text) of a rule; None for one that no policy file holds.

        Where the policy has moved on since the run, there is no text and the line is 0.
        """
        numbers = {file.path: index for index, file in enumerate(self.policy)}
        index = numbers.get(at.partition("#")[0])
        if index is None or "#" not in at:
            return None
        place = self.places.find(at) if self.policy[index].lines is not None else None
        return (index, 0, None) if place is None else (index, place.line, place.text)


def run_of(folder: Path, root: Path | None = None, name: str | None = None) -> Run:
    """Return the run in `folder`, finished or under way. Raises RecordError if none can be read.

    `name` is how it is called; without one it is its place in its project, or the end of its path.
    """
    journal = (folder / JOURNAL).is_file()
    base = project_of(folder, root)
    place = name or relative_name(folder, base)
    file = f"{place}/{JOURNAL if journal else STATE}"
    # a page is shown to others: it says nothing of the machine that made it
    shown = "/".join(folder.resolve().parts[-2:]) if place.startswith("/") else place
    try:
        data = read_unlinked(folder / (JOURNAL if journal else STATE))
    except OSError as error:
        raise RecordError(
            f"cannot be read ({why_unread(error)})", file=file, remedy="name the folder of a recorded run"
        ) from None
    left: list[str] = []
    if journal:
        lines, left = lines_of_journal(data, file, shown)
    else:
        lines = list(ledger.read(data, file))
    with of_known_shape(file):
        return _run(shown, lines, hashlib.sha256(data).hexdigest(), left, base)


@contextmanager
def of_known_shape(file: str) -> Iterator[None]:
    """Raise RecordError for a record whose chain holds but whose lines have an unknown shape."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
        raise ledger.unknown_shape(file, error) from error


def _run(name: str, lines: list[Line], digest: str, left: list[str], base: Path) -> Run:
    run = lines[0]
    end = lines[-1] if lines[-1]["type"] == "end" else None
    tree = _Tree(run)
    totals = ledger.Totals()
    iterations = 0
    steps = []
    requests = {request.step: request for request in requests_of(lines)}
    for line in lines[1 : None if end is None else -1]:
        totals.add(line)
        iterations += bool(line["llm_attempts"])
        tokens = totals.input_tokens + totals.output_tokens
        steps.append(
            _step(line, tree, (iterations, tokens, totals.tool_calls, totals.result_bytes, totals.attempts))
        )
        steps[-1].request = requests.get(line["step_index"])
    places = RulePlaces(base)
    note = moved_on(run, base)
    files = [_policy_file(str(item["path"]), places, note) for item in run["policy"]["files"]]
    return Run(name, lines, steps, end, files, digest, places, note, left)


def _step(line: Line, tree: _Tree, used: tuple[int, ...]) -> Step:
    stamps = line["stamps"]
    notice = NOTICES.get(line["notice"], str(line["notice"])) if "notice" in line else None
    times = [time for pair in stamps.values() for time in pair]
    return Step(
        line=line,
        calls=_calls(line),
        refusals=[decision for decision in line["policy_decisions"] if decision["id"] is None],
        notice=notice,
        told=line.get("told"),
        begin=min(times, default=0),
        end=max(times, default=0),
        pieces=sorted(
            (
                (LANES[at[0]], start, end)
                for at, (start, end) in stamps.items()
                if at[0] in LANES and ".c" not in at
            ),
            key=lambda piece: piece[1:],
        ),
        rows=tree.rows(line) if stamps else [],
        used=used,
    )


def _calls(line: Line) -> list[Call]:
    results = {result["id"]: result for result in line["tool_results"]}
    nothing: Line = {"attempts": [], "status": "not_reached", "result": None}
    out = []
    for call in line["intended_tool_calls"]:
        result = results.get(call["id"], nothing)
        own = [decision for decision in line["policy_decisions"] if decision["id"] == call["id"]]
        out.append(
            Call(
                id=call["id"],
                name=call["name"],
                arguments=call["arguments"],
                text=call.get("arguments_text"),
                problem=call.get("problem"),
                decisions=own,
                attempts=result["attempts"],
                status=result["status"],
                result=result["result"],
                message_to_model=result.get("told"),
            )
        )
    return out


class _Tree:
    """The spans of a run, step by step, as rows: parents before children, in order of time."""

    def __init__(self, run: Line) -> None:
        self._projector = Projector(run)
        self._zero = epoch_ns(run["clock"]["start"])

    def rows(self, line: Line) -> list[Row]:
        spans = self._projector.step(line)
        below: dict[str | None, list[tuple[int, str, Row]]] = {}
        for span in spans[1:]:
            below.setdefault(span.parent_id, []).append((span.start_ns, span.span_id, self._row(span)))
        for at, (start, end) in line["stamps"].items():
            if at[0] in "wh":
                row = self._between(at, line, start, end)
                below.setdefault(self._parent(at, line), []).append((self._zero + start, "", row))
        out: list[Row] = []
        self._walk(spans[0].span_id, self._row(spans[0]), 0, below, out)
        return out

    def _walk(self, key: str, row: Row, depth: int, below: Line | Any, out: list[Row]) -> None:
        out.append(Row(row.name, row.detail, depth, row.start, row.end, row.lane, row.bad))
        for _, child, inner in sorted(below.get(key, ()), key=lambda item: item[:2]):
            self._walk(child, inner, depth + 1, below, out)

    def _parent(self, at: str, line: Line) -> str:
        """Return the id of the span that a wait (`wm.1`, `w0.1`) or a person's time (`h0`) belongs to."""
        where = at[1:].partition(".")[0]
        path = "m" if where == "m" else f"t{where}" if at[0] == "w" else f"d{where}"
        return span_id_of(self._projector.trace_id, f"s{line['step_index']}/{path}")

    @staticmethod
    def _between(at: str, line: Line, start: int, end: int) -> Row:
        if at[0] == "w":
            return Row("wait", "", 0, start, end, "wait", False)
        answers = [d["approval"]["answer"] for d in line["policy_decisions"] if "approval" in d]
        return Row("person", answers[0] if len(answers) == 1 else "", 0, start, end, "person", False)

    def _row(self, span: Span) -> Row:
        attributes = span.attributes
        detail, bad, lane = "", span.error_type is not None, "step"
        if span.name == "agent_step":
            detail = str(attributes["agent.step_index"])
        elif span.name == "llm_call":
            detail, lane = str(attributes["gen_ai.request.model"]), "model"
        elif span.name == "policy_check":
            detail, lane = (
                f"{attributes['agent.policy.decision']}, {attributes['agent.policy.rule_id']}",
                "gate",
            )
            bad = attributes["agent.policy.decision"] == "deny"
        elif span.name == "tool_call":
            detail, lane = str(attributes["agent.tool_name"]), "tool"
        elif span.name == "retry_attempt":
            detail, lane = f"{attributes['agent.retry.attempt']}, {attributes['agent.retry.outcome']}", "tool"
        elif span.name == "hook":
            detail, lane = f"{attributes['agent.hook.name']}, {attributes['agent.hook.event']}", "hook"
        return Row(span.name, detail, 0, span.start_ns - self._zero, span.end_ns - self._zero, lane, bad)


def _policy_file(path: str, places: RulePlaces, note: str | None) -> PolicyFile:
    if note is not None:
        return PolicyFile(path, None, note)
    text = places.text(path)
    if text is None:
        return PolicyFile(path, None, "it is not at hand")
    return PolicyFile(path, text.decode("utf-8", "replace").removesuffix("\n").split("\n"), "")


def lane_totals(steps: Iterable[Step]) -> dict[str, int]:
    """Return nanoseconds by lane over all steps."""
    out = dict.fromkeys(LANES.values(), 0)
    for step in steps:
        for lane, start, end in step.pieces:
            out[lane] += end - start
    return out


def limits_of(run: Run) -> Sequence[tuple[str, int]]:
    """Return (name, allowed) of each budget that the policy limits, in the order of BUDGETS."""
    limits = run.run["policy"]["limits"]
    return [(name, int(limits[key])) for name, key in BUDGETS if key != "max_attempts" or key in limits]
