"""Each tool through an agent under the shipped policy: its good call succeeds, its bad call is denied."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Policy
from tachograph.runtime.log.steps import CallView, steps_of
from tests.project import script

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "data" / "corpus" / "v1"
POLICY = Policy.load(ROOT / "policy" / "v1.yaml")
# `reviewed` starts agents, which only tasks give it: see runs/agents/graph_with_a_loop
NAMES = sorted({path.stem for path in (ROOT / "tools").glob("*.py")} - {"reviewed"})


def called(name: str, which: str) -> CallView:
    examples = runpy.run_path(str(ROOT / "tools" / f"{name}.py"))["EXAMPLES"]
    places: dict[str, Any] = {"mounts": {"corpus": CORPUS}, "hosts": {"corpus.test": CORPUS}, "root": ROOT}
    agent = Agent(script([(name, examples[which])], "done"), [name], POLICY, **places)
    return steps_of(agent.run("Does it work?").events)[0].calls[0]


def test_there_are_tools() -> None:
    assert NAMES, "tools/ holds no tool"
    assert set(POLICY.data["tool_registry"]["allowed"]) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_good_call_succeeds(name: str) -> None:
    call = called(name, "good")
    assert call.decided is not None
    assert (call.decided.decision, call.status) == ("allow", "ok")


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_call_is_denied(name: str) -> None:
    call = called(name, "bad")
    assert call.decided is not None
    assert (call.decided.decision, call.attempts) == ("deny", [])
