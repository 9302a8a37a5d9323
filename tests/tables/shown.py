"""Foreign text in every place where it enters a run, and everything that such a run leaves or prints."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tachograph.cli.main import main
from tachograph.evidence.record_files import derive
from tachograph.evidence.report import MAX_ANSWER
from tachograph.runtime.formats.escape import truncate
from tachograph.runtime.log.events import Event, ToolReturned
from tachograph.runtime.log.journal import Journal
from tachograph.runtime.log.lines import read_log
from tachograph.runtime.log.steps import steps_of
from tachograph.runtime.models.types import LLMInput, LLMOutput, ToolCall
from tachograph.runtime.tools.contract import Tool
from tachograph.testing import run
from tests.tables.rows import closed, roomy
from tests.test_report import ARROW, blocks, drawn, live

TEXT = {"type": "string"}
INPUT = closed(
    how=TEXT, text=TEXT, more={"type": "object"}, path={**TEXT, "x-resource": "path:read"},
    url={**TEXT, "x-resource": "url"},
)  # fmt: skip
OUTPUT = closed(said=TEXT, more={"type": "object"})
POLICY = roomy(["probe"], on_deny="inform")
BUILD_COMMAND = re.compile(r"##\w*\[|^\s*::", re.MULTILINE)


def events_of(text: str, question: str, answer: str, last: str) -> list[Event]:
    """Return the log of a run with a text in it.

    Args:
        text: The text.
        question: The question, which is shown in as many lines as it has.
        answer: The answer, likewise.
        last: What the last call brings: `result`, `key` of a result that does not fit, or `exception`.
    """

    def probe(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
        if arguments.get("how") == "exception":
            raise type(text.replace("\0", "0"), (Exception,), {})
        if arguments.get("how") == "reach":
            io.get(f"https://evil.test/{text}")
        return {text: 1} if arguments.get("how") == "key" else {"said": text, "more": {text: text}}

    def call(**arguments: Any) -> ToolCall:
        return ToolCall("probe", arguments)

    steps: list[list[ToolCall]] = [
        [
            call(),
            call(text=text),
            call(more={text: 1}),
            ToolCall("probe", f"<{text}"),
            ToolCall(f"{text}.", {}),
        ],
        [call(path=text), call(path=f"other/{text}"), call(url=text), call(url=f"ftp://evil.test/{text}")],
        [call(how="reach"), call(how=last)],
    ]

    def model(asked: LLMInput) -> LLMOutput:
        if asked.step_index <= len(steps):
            return LLMOutput(text=text, tool_calls=steps[asked.step_index - 1], model=text)
        return LLMOutput(final_answer=answer, model=text, raw={text: text})

    return run(POLICY, [Tool("probe", "", INPUT, OUTPUT, "network", probe)], model, question).events


def shape(value: Any, text: str) -> Any:
    """Return the skeleton of JSON data; a key that is the text itself counts as a calm one."""
    if isinstance(value, dict):
        return sorted(("calm" if key == text else key, shape(item, text)) for key, item in value.items())
    return [shape(item, text) for item in value] if isinstance(value, list) else type(value).__name__


class Shown:
    """What a run leaves and prints: log, trace, report, and what `show` says at a terminal."""

    def __init__(self, events: list[Event], text: str, folder: Path, capsys: Any) -> None:
        journal = Journal()
        for event in events:
            journal.append(event)
        derived = derive(journal.data, events, steps_of(events), {}, {})
        files = {name: data.decode() for name, data in derived.items()}
        (folder / "runs/s/x").mkdir(parents=True, exist_ok=True)
        (folder / "policy").mkdir(exist_ok=True)
        (folder / "runs/s/x/state.jsonl").write_bytes(journal.data)
        with pytest.raises(SystemExit) as ended:
            main(["show", "s/x"])
        self.printed = capsys.readouterr().out
        self.report, log = files["run_report.md"], journal.data.decode()
        self.is_read = ended.value.code == 0 and [line.event for line in read_log(journal.data)] == events
        self.structure = {
            "events": [(type(event).__name__, event.at, getattr(event, "rule", "")) for event in events],
            "log": [shape(json.loads(line), text) for line in log.split("\n")[:-1]],
            "trace": (shape(json.loads(files["trace.json"]), text), files["trace.json"].count("\n")),
            "show": self.printed.count("\n"),
            "blocks": blocks(self.report),
            "live": live(self.report),
            "diagram": len(drawn(self.report)),
        }


@cache
def _calm(text: str, prose: str, said: str, last: str, folder: Path, capsys: Any) -> dict[str, Any]:
    return Shown(events_of(text, prose, said, last), text, folder, capsys).structure


def forged(text: str, last: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what a text changes that a calm one of the same shape does not."""
    lines = truncate(text, MAX_ANSWER).replace("\r\n", "\n").split("\n")
    prose = "\n".join("x" if line.strip(" ") else "" for line in lines)
    said, calm_said = (text, prose) if text.strip() else ("x", "x")  # a blank answer is none
    events = events_of(text, text, said, last)
    got = Shown(events, text, folder, capsys)
    calm = _calm("calm" if text else "", prose, calm_said, last, folder, capsys)
    found = [name for name in calm if got.structure[name] != calm[name]]
    found += [name for name in ("report", "printed") if not _is_printable(getattr(got, name))]
    found += [] if got.is_read else ["not read as it was written"]
    found += [] if all(map(ARROW.fullmatch, drawn(got.report))) else ["a line of the diagram"]
    found += ["a command to a build service"] if BUILD_COMMAND.search(got.printed) else []
    results = [event.result or {} for event in events if isinstance(event, ToolReturned)]
    kept = any(text in result.values() for result in results)
    return found + ([] if kept else ["the log holds another text"])


def _is_printable(text: str) -> bool:
    # Python takes a variation selector for printable, also where it chooses nothing and is seen by nobody
    hides = re.search("[\ufe00-\ufe0d]|[^\u2190-\U0001faff][\ufe0e\ufe0f](?!\u20e3)", text)
    return hides is None and text.replace("\n", "").isprintable()
