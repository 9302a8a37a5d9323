"""SIGKILL of a run while several calls of a group are open, and of a run with hooks: real processes, at every call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import yaml

from tachograph.runtime.journal.journal import read_journal

from .kills import converge
from .lab import Done, Fault, Lab
from .registry import fault
from .scene import POLICY, TASK, TASK_DATA, tool_text

SENDS = 5
_SWITCH = '''
PARALLEL = True


def switch():
    """Let another call of the group go on, where a test performs them in turns."""
    orders = sys.modules.get("tests.group_orders")
    if orders is not None:
        orders.switch()
'''
_SEND = (
    tool_text("sign")
    .replace("deed(io, said)", "switch(); deed(io, said); switch()")
    .replace("import time", "import sys\nimport time")
    .replace('IMPORTS = ("os",', 'IMPORTS = ("os", "sys",')
) + _SWITCH
_OVERLAPPED = """
import sys
from tests.group_orders import overlapped
from tachograph.cli import main as cli
with overlapped({seed}):
    sys.exit(cli.main(["run", {task!r}, "--quiet", "--durability", "effect"]))
"""
_HOOKS = '''
def before_model(data):
    return None


def before_call(data):
    """Deny one call, and give another one other arguments."""
    name, given = data["call"]["name"], data["call"]["arguments"]
    if name == "look" and given.get("what") == "back":
        return {"deny": "not back"}
    if given.get("what") == "two":
        return {"arguments": {"what": "two and a half"}}
    return None


def after_call(data):
    return {"result": {"said": "a list"}} if data["call"]["name"] == "list" else None


def on_stop(data):
    return {"send_back": "Say it again."} if data["answer"].startswith("I have") else None
'''


@contextmanager
def another_task(lab: Lab, files: Mapping[str, str], **changes: Any) -> Iterator[None]:
    """Put another task, and files that it needs, in the place of the lab's."""
    task = lab.scene.root / TASK
    before = task.read_text(encoding="utf-8")
    kept = {key: lab.__dict__.pop(key) for key in ("whole", "deeds", "middle") if key in lab.__dict__}
    places = [lab.scene.root / name for name in files]
    try:
        for place, text in zip(places, files.values(), strict=True):
            place.parent.mkdir(exist_ok=True)
            place.write_text(text, encoding="utf-8")
        task.write_text(yaml.safe_dump({**TASK_DATA, **changes}, sort_keys=False), encoding="utf-8")
        yield
    finally:
        task.write_text(before, encoding="utf-8")
        for place in places:
            place.unlink(missing_ok=True)
        for key in ("whole", "deeds", "middle"):
            lab.__dict__.pop(key, None)
        lab.__dict__.update(kept)
        lab.scene.clear()


def _turns(*steps: tuple[str, ...]) -> list[dict[str, Any]]:
    calls = [[{"tool": word.split()[0], "arguments": {"what": word}} for word in step] for step in steps]
    return [*({"calls": step} for step in calls), {"answer": "done"}]


def together(lab: Lab, *, every: int = 1) -> Iterator[str]:
    """A run with groups killed before each call, resumed, compared; of each open call a person says what came of it."""
    policy = {key: value for key, value in POLICY.items() if key != "approval"}
    policy["tool_registry"] = {"allowed": ["look", "send"], "denied": []}
    script = _turns(("send a", "send b", "look x", "send c", "send d"), ("look y", "send e"))
    changes: dict[str, Any] = {"tools": ["look", "send"], "llm": {"stub": {"turns": script}}}
    changes |= {
        "policy": {"file": "policy/together.yaml"},
        "hosts": {},
        "setup": [],
        "approvals": [],
        "faults": [],
    }
    files = {"tools/send.py": _SEND, "policy/together.yaml": yaml.safe_dump(policy)}
    with another_task(lab, files, **changes):
        whole = lab.whole
        open_at_once = in_doubt = 0
        for seed in (1, 2):
            lab.scene.clear()
            points = lab.points(lambda plan, seed=seed: _overlapped(lab, seed, plan))
            assert lab.scene.files() == whole, "the order of the calls is to be seen in the record"
            for number in range(1, len(points) + 1, every):
                yield f"order {seed}, before call {number}: {points[number - 1].op} {points[number - 1].path}"
                lab.scene.clear()
                assert _overlapped(lab, seed, Fault(number)).code == -9
                open_at_once = max(open_at_once, _open(lab))
                in_doubt += bool(_settled(lab, whole))
        assert open_at_once >= (3 if every == 1 else 2), "at no kill were several calls open"
        assert in_doubt >= SENDS / every, "no call was ever in doubt"


def _overlapped(lab: Lab, seed: int, plan: Fault) -> Done:
    return lab.do(code=_OVERLAPPED.format(seed=seed, task=TASK), fault=plan)


def _open(lab: Lab) -> int:
    """How many calls were begun and have no outcome, as the journal has it."""
    if not lab.scene.journal.exists():
        return 0
    found = read_journal(lab.scene.journal.read_bytes(), "journal")
    return 0 if found is None else len(found.intents)


def _settled(lab: Lab, whole: dict[str, bytes]) -> list[str]:
    """Go on until the run is whole: the same bytes, but for results that were lost. Returns what a person said."""
    scene = lab.scene
    done, said = lab.go_on()
    if done.code == 2 and not scene.run.exists():
        assert not scene.deeds(), "something was done that nothing is left of"
        done = lab.run()
    assert done.code == 0 or "no unfinished run" in done.said, done
    unseen = scene.unseen()
    assert sorted(unseen) == sorted(word.split()[1] for word in said if word.startswith("done"))
    if unseen:
        scene.sound()
    else:
        assert scene.files() == whole
    assert Counter(scene.deeds().values()) == {1: SENDS}, scene.deeds()
    return said


def hooks(lab: Lab, *, every: int = 1) -> Iterator[str]:
    """A run with hooks killed before each call, resumed, compared."""
    turns = [*TASK_DATA["llm"]["stub"]["turns"], {"answer": "That was it."}]
    files = {"hooks/guard.py": _HOOKS}
    with another_task(lab, files, hooks="hooks/guard.py", llm={"stub": {"turns": turns}}):
        asked = lab.whole["state.jsonl"].count(b'"hook":"guard"')
        assert asked > 30, asked
        lab.scene.clear()
        points = lab.points(lambda plan: lab.run(fault=plan))
        for number in range(1, len(points) + 1, every):
            yield f"before call {number}: {points[number - 1].op} {points[number - 1].path}"
            lab.scene.clear()
            assert lab.run(fault=Fault(number)).code == -9
            converge(lab)


@fault("kill.together", "SIGKILL before each call of a run whose calls run together, and resumed")
def kill_together(lab: Lab) -> Iterator[str]:
    yield from together(lab)


@fault("kill.hooks", "SIGKILL before each call of a run with hooks, and resumed")
def kill_hooks(lab: Lab) -> Iterator[str]:
    yield from hooks(lab, every=2)
