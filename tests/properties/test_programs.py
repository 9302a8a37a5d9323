"""Random agents: whatever they do, a replay makes the same bytes, and so does a run that was cut off anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.evidence.report import report
from tachograph.evidence.tasks import Task, load_task
from tachograph.fail.catalog import ENDINGS
from tachograph.runtime.driver import InDoubt
from tachograph.runtime.log.events import Entered, StopAsked
from tachograph.runtime.log.journal import Journal
from tachograph.runtime.log.lines import Line, read_log
from tachograph.runtime.run import make_run
from tachograph.runtime.world.virtual import Virtual, run_now
from tachograph.tracing.spans import spans_of
from tachograph.views.outline import outline
from tests.project import make_project

MS = 1_000_000
# what the hooks of the kit answer to, and what they do not
WORDS = "a|b|a|b|change a|deny me|ask|odd|hide|refuse|raise|stop the run|mail someone@mail.test".split("|")
AGENTS = ["helper", "reader"]
PLACES = ["1.c0", "1.c1", "2.c0", "1.c0/1.c0", "1.c0/1.c1", "1.c1/1.c0", "1.c0/1.c0/1.c0"]
LIMITS = ["max_depth", "max_children", "max_parallel"]


def calls_of(*tools: str, **arguments: Sequence[str]) -> st.SearchStrategy[list[Any]]:
    """Return calls of some tools, each argument of which is one of some texts."""
    drawn = st.fixed_dictionaries({name: st.sampled_from(texts) for name, texts in arguments.items()})
    return st.tuples(st.sampled_from(tools), drawn).map(list)


starts = calls_of("helper", *AGENTS, task="abc")
calls = st.one_of(
    starts,
    calls_of("echo", text=WORDS),
    calls_of("look", path=["book/a.txt", "box/a.txt", "no/x"]),
    calls_of("log", path=["box/n"], text="xy"),
    calls_of("mail", path=["boss"], text="xy"),
    calls_of("odd", how=["nan", "exit", "float"]),
    calls_of("shell"),
    st.just(["echo", "no json"]),
)
turns = st.lists(st.lists(calls, min_size=1, max_size=3), max_size=5)
turns_with_agents = st.builds(
    lambda first, rest: [first, *rest], st.lists(starts, min_size=1, max_size=3), turns
)
where = {"agent": st.sampled_from(["", "", *PLACES]), "step": st.integers(1, 4), "call": st.integers(0, 2)}
faults = st.lists(
    st.fixed_dictionaries(
        where
        | {
            "target": st.sampled_from(["model", "tool"]),
            "attempt": st.integers(1, 3),
            "raises": st.sampled_from(["ConnectionError", "TimeoutError", "TransientModelError", "KeyError"]),
            "delays_ms": st.sampled_from([0, 15, 300]),
            "cancels": st.booleans(),
        }
    ),
    max_size=3,
)
SCOPES = ["1.c0/", "1.c0/1.c0", "1.c0/1", "1.c1/", "1.c0/1.c0/", "1.c0", "2.c1", "3.m1", ""]
stops = st.lists(st.tuples(st.integers(0, 1500), st.sampled_from(SCOPES), st.just("cancelled")), max_size=3)
answers = st.lists(st.fixed_dictionaries(where | {"answer": st.sampled_from(["allow", "deny"])}), max_size=4)
programs = st.fixed_dictionaries(
    {
        "turns": turns_with_agents,
        "scripts": st.fixed_dictionaries(dict.fromkeys(PLACES, turns_with_agents)),
        "limits": st.fixed_dictionaries(dict.fromkeys(LIMITS, st.sampled_from([3, 9, 2, 1]))),
        "faults": faults,
        "stops": stops,
        "answers": answers,
        "asked": st.lists(st.sampled_from(["log", "echo", "mail"]), unique=True, min_size=1, max_size=2),
        "on_deny": st.sampled_from(["terminate", "inform"]),
        "on_failure": st.sampled_from(["terminate", "inform"]),
        "hooks": st.sampled_from([[], ["hooks/words.py"]]),
        "kinds": st.sampled_from([[], ["email"]]),
    }
)


def scripts_of(program: dict[str, Any]) -> dict[str, list[Any]]:
    """Return a script for each agent that a script may start; those without one of their own answer at once."""
    found: dict[str, list[Any]] = {}
    waiting = [("", program["turns"])]
    for place, turns in waiting:
        for step, turn in enumerate(turns, 1):
            for at in (f"{place}{step}.c{n}" for n, (name, _) in enumerate(turn) if name in AGENTS):
                own = program["scripts"].get(at, [])
                found[at] = [*own, "done"]
                waiting.append((f"{at}/", own))
    return found


def task_of(root: Path, program: dict[str, Any]) -> Task:
    scenario = {
        "name": "p",
        "turns": [*program["turns"], "done"],
        "agents": AGENTS,
        "scripts": scripts_of(program),
        "faults": program["faults"],
        "approvals": program["answers"],
        "hooks": program["hooks"],
        "policy": {
            "on_deny": program["on_deny"],
            "on_failure": program["on_failure"],
            "agents": program["limits"],
            "redact": {"kinds": program["kinds"]},
            "loop_budget": {"max_tokens": 100_000, "max_iterations": 30, "max_tool_calls": 30},
            "approval": {"required_for": program["asked"], "timeout_s": 1},
        },
        "expect": {},
    }
    make_project(root, [scenario])
    return load_task(root / "tasks/s/p.yaml")


class Open:
    """A workspace that stays over the death of a process, and the runs in it."""

    def __init__(
        self, task: Task, arrivals: Sequence[tuple[int, Entered]], stack: ExitStack, place: Path
    ) -> None:
        self.task, self.arrivals = task, arrivals
        self.workspace = stack.enter_context(task.workspace(lambda path, sha256: None, place))
        task.set_up(self.workspace)

    def run(self, past: Sequence[Line] = (), settled: Any = None) -> Journal:
        world = Virtual(self.workspace, self.task.fault, self.arrivals, self.task.answer)
        return run_now(make_run(self.task.run_spec(), self.task.head(), world, past, settled=settled)).journal


@settings(max_examples=60, deadline=None, derandomize=True)
@given(program=programs, data=st.data())
def test_programs(
    tmp_path_factory: pytest.TempPathFactory, program: dict[str, Any], data: st.DataObject
) -> None:
    place = tmp_path_factory.mktemp("program")
    task = task_of(place / "p", program)
    arrivals = [
        (time * MS, StopAsked(at="", scope=scope, why=why))
        for time, scope, why in sorted(program["stops"], key=lambda stop: stop[0])
    ]
    with ExitStack() as stack:
        whole = Open(task, arrivals, stack, place / "whole").run()
        lines = read_log(whole.data)
        assert lines[-1].event.ending in ENDINGS  # type: ignore[attr-defined]
        assert run_now(make_run(task.run_spec(), task.head(), None, lines)).journal.data == whole.data
        spans_of(whole.events)
        report(whole.events)
        outline(whole.events)
        cut = data.draw(st.integers(0, len(lines) - 1))
        _play(Open(task, arrivals, stack, place / "died"), lines[:cut], whole)


def _play(died: Open, past: list[Line], whole: Journal) -> None:
    """Let a run go on from some lines; what the lost process had written stands in the folders already."""
    died.run()
    try:
        journal = died.run(past)
    except InDoubt as doubt:
        journal = died.run(past, dict.fromkeys(doubt.places, "done"))
        assert sum(event.at.partition(".q")[2] == "1" for event in journal.events) == len(doubt.places)
        again = run_now(
            make_run(died.task.run_spec(), died.task.head(), None, read_log(journal.data))
        ).journal
        assert again.data == journal.data
    else:
        assert journal.data == whole.data
