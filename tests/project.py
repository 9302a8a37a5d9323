"""Projects that tests make: a policy, the tools of the kit, tasks; and scenarios, from which tasks are made."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import signal
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

import tachograph
from tachograph import Agent, LLMInput, LLMOutput, RunResult, ToolCall
from tachograph.evidence.folder import partial_of
from tachograph.evidence.record import record
from tachograph.evidence.tasks import Task, load_task
from tachograph.evidence.verify import verify

HERE = Path(__file__).parent
TOOLS = ["echo", "look", "save", "log", "mail", "page", "odd"]
TEAM = ["send_message", "list_agents", "stop_agent"]
BOARD = ["create_todo", "claim_todo", "complete_todo", "list_todos"]
TOKEN = "ghp_" + "a1B2" * 9
BOOK = {"a.txt": "alpha", "b.txt": "beta", "deep/c.txt": "gamma \u2028 delta", f"{TOKEN}.txt": "named so"}
# what no record of a scenario may hold: secrets, words of an exception, and what a tool makes of a denial
PLANTED = (b"someone@mail.test", b"a1B2a1B2a1B2", b"sk-0123456789", b"the text of an exception", b"swallowed")
# what a task takes of a scenario as it stands there
AS_THEY_ARE = "output_schema output_retries deadline_s window hand_over_to team functions llm".split()
# agents that a scenario may start: one that may start others like itself, one that only reads, and one that plans
PROFILES: dict[str, dict[str, Any]] = {
    "helper": {"tools": [*TOOLS, *TEAM], "agents": ["helper", "reader"], "instructions": "Help."},
    "reader": {"tools": [*TOOLS], "hooks": ["hooks/words.py"]},
    "planner": {"tools": [*TOOLS], "plan": {"file": "policy/planning.yaml"}, "hand_over_to": ["reader"]},
    "anna": {"tools": [*TOOLS, *TEAM, *BOARD]},
    "ben": {"tools": [*TOOLS, *TEAM, *BOARD], "team": ["anna"]},
}
POLICY: dict[str, Any] = {
    "schema": "policy/v1",
    "tool_registry": {"allowed": [*TOOLS, "absent"], "denied": ["shell"]},
    "url_allowlist": ["https://good.test/", {"url": "https://api.test/v1/", "methods": ["GET", "POST"]}],
    "sandbox": {"mounts": {"book": "read", "box": "write"}},
    "loop_budget": {
        "max_iterations": 8,
        "max_tokens": 5000,
        "max_tool_calls": 10,
        "max_result_bytes": 2000,
        "overdraft": "deny",
    },
    "cycle_detection": {"max_repeats": 2},
    "retry": {"max_retries": 2, "backoff_base_ms": 100, "backoff_cap_ms": 1000},
    "on_deny": "terminate",
}


def merged(base: dict[str, Any], delta: dict[str, Any]) -> dict[str, Any]:
    """Return data with a delta: mappings merge, anything else replaces, and None takes a key away."""
    out = deepcopy(base)
    for key, value in delta.items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, dict) and isinstance(out.get(key), dict):
            out[key] = merged(out[key], value)
        else:
            out[key] = deepcopy(value)
    return out


POLICIES = {
    "helper": {
        "tool_registry": {"allowed": [*TOOLS, *TEAM, *PROFILES]},
        "agents": {"max_depth": 2, "max_children": 9, "max_parallel": 2},
        "loop_budget": {"max_iterations": 30},
        "on_deny": "inform",
    },
    "reader": {"tool_registry": {"allowed": ["echo", "look"]}, "loop_budget": {"max_iterations": 3}},
    "planner": {
        "tool_registry": {"allowed": [*TOOLS, "exit_plan", "to_reader"]},
        "agents": {"max_depth": 1, "max_children": 2},
    },
    "anna": {
        "tool_registry": {"allowed": [*TOOLS, *TEAM, *BOARD]},
        "loop_budget": {"max_iterations": 30},
        "on_deny": "inform",
    },
    "ben": {
        "tool_registry": {"allowed": ["echo", "look", "anna", *TEAM, *BOARD]},
        "loop_budget": {"max_iterations": 30, "max_turn_iterations": 4},
        "agents": {"max_depth": 1, "max_children": 1},
    },
    "planning": {"tool_registry": {"allowed": ["look", "exit_plan"]}, "on_deny": "inform"},
}


def make_project(root: Path, scenarios: list[dict[str, Any]]) -> Path:
    """Make a project with one task for each scenario."""
    for folder in ("tools", "hooks"):
        shutil.copytree(HERE / "kit" / folder, root / folder)
    shutil.copy(root / "tools" / "echo.py", root / "tools" / "absent.py")
    shutil.copy(root / "tools" / "log.py", root / "tools" / "save.py")
    edit(root / "tools" / "save.py", "IDEMPOTENT = False", "IDEMPOTENT = True")
    for name, text in BOOK.items():
        path = root / "book" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for folder in ("policy", "tasks/s", "profiles"):
        (root / folder).mkdir(parents=True)
    for name, profile in PROFILES.items():
        about = {"schema": "profile/v1", "description": name, "policy": {"file": f"policy/{name}.yaml"}}
        (root / "profiles" / f"{name}.yaml").write_text(json.dumps(about | profile), encoding="utf-8")
    for name, delta in POLICIES.items():
        policy = json.dumps(merged(POLICY, delta))
        (root / "policy" / f"{name}.yaml").write_text(policy, encoding="utf-8")
    for scenario in scenarios:
        name = scenario["name"]
        policy, task = merged(POLICY, scenario.get("policy", {})), task_of(scenario)
        others = *scenario.get("team", []), *(f"to_{it}" for it in scenario.get("hand_over_to", []))
        if agents := [*scenario.get("agents", []), *others]:
            policy["tool_registry"]["allowed"] += [*agents, *TEAM, *BOARD, *scenario.get("tools", [])]
        if "plan" in scenario or {"planner", "to_planner"} & {*agents}:
            policy["tool_registry"]["allowed"] += ["exit_plan", "to_reader"]
        if "plan" in scenario:
            plan = json.dumps(merged(policy, scenario["plan"]))
            (root / "policy" / f"{name}_plan.yaml").write_text(plan, encoding="utf-8")
        (root / "policy" / f"{name}.yaml").write_text(json.dumps(policy), encoding="utf-8")
        (root / "tasks" / "s" / f"{name}.yaml").write_text(json.dumps(task), encoding="utf-8")
    return root


def copy_project(root: Path) -> None:
    """Copy this project, as far as its runs are made from it, and its runs."""
    for folder in ("policy", "tools", "data", "tasks", "profiles", "runs"):
        shutil.copytree(HERE.parent / folder, root / folder, dirs_exist_ok=True)
    shutil.copy(HERE.parent / "mcp.lock", root)


def task_of(scenario: dict[str, Any]) -> dict[str, Any]:
    """Return the task of a scenario."""
    return {
        "schema": "task/v1",
        "id": f"s-{scenario['name']}",
        "title": scenario["name"],
        **(
            {"turns": [said_of(it) for it in scenario["said"]]}
            if "said" in scenario
            else {"question": scenario.get("question", "What is there?")}
        ),
        "instructions": scenario.get("instructions", ""),
        "seed": 7,
        "policy": {"file": f"policy/{scenario['name']}.yaml"},
        "tools": [
            *TOOLS,
            *(TEAM if {"agents", "team"} & scenario.keys() else ()),
            *(BOARD if "team" in scenario else ()),
            *scenario.get("tools", []),
        ],
        "mounts": {"book": "book"},
        "setup": scenario.get("setup", [{"path": "box/a.txt", "text": "in the box"}]),
        "hosts": {"good.test": {"folder": "book", "redirects": scenario.get("redirects", {})}},
        "llm": {
            "stub": {
                "turns": [
                    {"summary": scenario.get("summary"), **turn_of(turn)} for turn in scenario["turns"]
                ],
                "agents": {
                    at: [turn_of(turn) for turn in turns] for at, turns in scenario.get("scripts", {}).items()
                },
            },
            "fallback": scenario.get("fallback", []),
        },
        "faults": scenario.get("faults", []),
        "approvals": scenario.get("approvals", []),
        "hooks": scenario.get("hooks", []),
        "agents": scenario.get("agents", []),
        **({"plan": {"file": f"policy/{scenario['name']}_plan.yaml"}} if "plan" in scenario else {}),
        **{key: scenario[key] for key in AS_THEY_ARE if key in scenario},
        "expected": scenario["expect"],
    }


def made(root: Path, name: str) -> tuple[Task, Path]:
    """Make a project with a scenario, and return its task and where its record would lie."""
    make_project(root, [ROWS[name]])
    return load_task(root / f"tasks/s/{name}.yaml"), folder_of_row(root, name)


def recorded(root: Path, name: str) -> tuple[Task, Path]:
    """Record a scenario in a project of its own, and return its task and where the record lies."""
    task, folder = made(root, name)
    record(task, folder)
    return task, folder


def files_below(folder: Path) -> dict[Path, bytes]:
    """Return the content of each file in a folder and below it."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def edit(file: Path, old: str, new: str) -> None:
    """Put another text in the place of one that a file holds."""
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_bytes(text.replace(old, new).encode())


def rewrite(file: Path, **parts: Any) -> None:
    """Put other parts in the place of those of a file in JSON; None takes one away."""
    data = json.loads(file.read_text(encoding="utf-8")) | parts
    file.write_text(json.dumps({key: it for key, it in data.items() if it is not None}), encoding="utf-8")


def write_policy_tests(root: Path, policy: str, *tests: dict[str, Any], name: str = "t") -> None:
    """Write a file with tests of a policy."""
    (root / "policy/tests").mkdir(exist_ok=True)
    data = {"schema": "policy-tests/v1", "policy": policy, "tests": tests}
    (root / f"policy/tests/{name}.yaml").write_text(json.dumps(data), encoding="utf-8")


def cut(record: Path, end: int, run: Path | None = None) -> Path:
    """Lay the first lines of a record as an open run, beside it or for another one, and return its folder."""
    partial = partial_of(run or record)
    partial.mkdir()
    lines = (record / "state.jsonl").read_bytes().splitlines(keepends=True)
    (partial / "state.jsonl").write_bytes(b"".join(lines[:end]))
    return partial


def said_of(said: Any) -> dict[str, Any]:
    """Return what somebody says in a conversation: text, or a mapping."""
    return {"say": said} if isinstance(said, str) else said


def turn_of(turn: Any) -> dict[str, Any]:
    """Return a turn of a script: text is an answer, a list of [tool, arguments] are calls, a mapping stays."""
    if isinstance(turn, str):
        return {"answer": turn, "usage": {"input_tokens": 20, "output_tokens": 5}}
    if isinstance(turn, dict):
        return turn
    calls = []
    for tool, arguments in turn:
        key = "arguments_text" if isinstance(arguments, str) else "arguments"
        calls.append({"tool": tool, key: arguments})
    return {"calls": calls, "usage": {"input_tokens": 20, "output_tokens": 5}}


def script(*turns: Any) -> Any:
    """A model: text is an answer, a list are calls, each a tool and its arguments; None answers with what it read."""

    def model(asked: LLMInput) -> LLMOutput:
        turn = turns[asked.step_index - 1]
        if turn is None or isinstance(turn, str):
            return LLMOutput(final_answer=asked.messages[-1]["content"] if turn is None else turn)
        return LLMOutput(tool_calls=[ToolCall(*call) for call in turn])

    return model


def hanging(begun: Any) -> Any:
    """A model, a person or the function of a tool that sets an event when it is asked, and never answers."""

    async def model(*asked: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    return model


def interrupted(other: Any) -> Any:
    """A model as another one, which is interrupted when it is asked for the second time."""

    def model(asked: LLMInput) -> Any:
        if asked.step_index == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return other(asked)

    return model


def proved(agent: Agent, out: Path, question: str = "?", **how: Any) -> RunResult:
    """Return what a run in code comes to, once it was recorded, verified, replayed and checked."""
    made = tachograph.record(agent, question, out=out, **how)
    assert verify(out, "run") == [] == tachograph.check(agent, out)
    assert tachograph.replay(agent, out).events == made.events
    return made


# all rows of the table, which nobody changes
SCENARIOS: list[dict[str, Any]] = [
    row
    for path in sorted((HERE / "scenarios").glob("*.yaml"))
    for row in yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
]
ROWS = {row["name"]: row for row in SCENARIOS}


def made_once(name: str, factory: pytest.TempPathFactory, make: Callable[[Path], object]) -> Path:
    """Return a folder that one of the processes that run tests makes for all of them. Nobody writes into it."""
    base = factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with open(f"{place}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            make(place)
    return place


_loaded: dict[Path, dict[Any, Any]] = {}


def task_of_row(root: Path, name: str) -> Task:
    """Return the task of a scenario in a project; those of a project share what they load, as in one command."""
    task = load_task(root / "tasks" / "s" / f"{name}.yaml")
    task.share(_loaded.setdefault(root, {}))
    return task


def folder_of_row(root: Path, name: str) -> Path:
    """Return the folder of its run."""
    return root / "runs" / "s" / name
