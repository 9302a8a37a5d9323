"""What the scenarios show together, counted from their logs: the sets are those of the code, so a new member counts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from tachograph.fail.catalog import Ending, FailureMode, GaveUp, Rule, classify, happenings
from tachograph.review.explain import explain
from tachograph.runtime.effects import AskHook, AskModel, AskPerson, Effect, Invoke, Wait
from tachograph.runtime.log import events as log
from tachograph.runtime.log import values
from tachograph.runtime.log.lines import read_log
from tachograph.runtime.log.steps import steps_of
from tachograph.runtime.policy.rules import RULES
from tachograph.runtime.tools.contract import EFFECTS
from tests.project import POLICY, ROWS, folder_of_row, merged, task_of_row

# of a line, what tells what happened; of the second kind, texts, numbers and times; of all else, whether it is there
SAID = "at event decision rule ending mode kind harmless finish scope fact access method hop".split()
LEFT_OUT = "t took size usage text arguments result id name by why".split()
AT = {"m": AskModel, "s": AskModel, "i": Invoke, "p": AskPerson, "k": AskHook, "w": Wait}

MEMBERS: dict[str, Any] = {
    "event": [kind.__name__ for kind in get_args(log.AnyEvent)],
    "fact": [kind.__name__ for kind in get_args(values.Fact)],
    "effect": [kind.__name__ for kind in get_args(Effect)],
    "effect of a tool": EFFECTS,
    "ending": Ending,
    "mode": FailureMode,
    "told": [
        found.mode
        for found in happenings()
        if isinstance(found, GaveUp) and classify(found, "inform", "inform").ending is None
    ],
    "objection": Rule,
    "allow": [rule.id for rule in RULES],
}
ELSEWHERE = {
    ("event", "Settled"),  # test_scenarios.py resumes each row that has an effect in doubt, with both words
    ("objection", "gate_error"),  # properties/test_second_judge.py asks what no rule can judge
}


def shape(value: Any) -> Any:
    """Return lines without their texts, numbers and times."""
    if isinstance(value, list):
        return [shape(item) for item in value]
    if not isinstance(value, dict):
        return None
    return {key: item if key in SAID else shape(item) for key, item in value.items() if key not in LEFT_OUT}


def shown_by(events: list[log.Event]) -> Iterator[tuple[str, str]]:
    """Yield what a log shows: the name of a set, and a member of it."""
    head: Any = events[0]
    effects = {tool.name: tool.effect for tool in head.tools}
    for event, after in zip(events, [*events[1:], None], strict=True):
        yield "event", type(event).__name__
        if isinstance(event, log.Outcome | log.Answered):
            yield "effect", AT[event.at.rpartition(".")[2][0]].__name__
        for fact in getattr(event, "met", ()):
            yield "fact", type(fact).__name__
        match event:
            case log.Decided(decision="allow"):
                yield "allow", event.rule
            case log.Decided():
                yield "objection", event.rule
            case log.StepEnded():
                yield "mode", event.mode
                if not isinstance(after, log.RunEnded):
                    yield "told", event.mode
            case log.RunEnded():
                yield "ending", event.ending
    for call in (call for step in steps_of(events) for call in step.calls if call.attempts):
        yield "effect of a tool", effects[call.call.name]


def let_pass(project: Path, name: str) -> Iterator[tuple[str, str]]:
    """Yield the rules that allowed a call of a scenario by a section that its policy has."""
    policy = merged(POLICY, ROWS[name].get("policy", {}))
    for line in explain(task_of_row(project, name), folder_of_row(project, name), name):
        if line.startswith("  allow "):
            rule, pointer = line.split()[1], line.rpartition("#/")[2].rstrip(")")
            held: Any = policy
            for key in pointer.split("/")[: 3 if pointer.startswith("tools/") else 1]:
                held = (held or {}).get(key)
            if rule == "arg_schema" or held is not None:  # what a tool itself says needs no section
                yield "allow", rule


@pytest.fixture(scope="module")
def logs(project: Path) -> dict[str, list[log.Event]]:
    """The log of each scenario."""
    folders = sorted((project / "runs" / "s").iterdir())
    return {
        path.name: [line.event for line in read_log((path / "state.jsonl").read_bytes())] for path in folders
    }


def test_the_scenarios_differ_in_more_than_texts(logs: dict[str, list[log.Event]]) -> None:
    shapes = {json.dumps(shape(msgspec.to_builtins(events[1:]))) for events in logs.values()}
    assert len(shapes) >= 150, len(shapes)


def test_each_member_is_shown_by_two_scenarios(project: Path, logs: dict[str, list[log.Event]]) -> None:
    found = Counter(
        member for name, events in logs.items() for member in {*shown_by(events), *let_pass(project, name)}
    )
    rare = {(of, str(member)) for of in MEMBERS for member in MEMBERS[of] if found[of, str(member)] < 2}
    assert rare == ELSEWHERE
