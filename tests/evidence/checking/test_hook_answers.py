"""What `verify` derives again of runs with hooks: whoever changes an answer, or what followed from it, is found."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tachograph import Answer, Hooks, LLMOutput, Policy, ToolCall
from tachograph.evidence.checking.hook_answers import hook_problems
from tachograph.evidence.checking.proof import pointers
from tachograph.evidence.checking.verify import verify
from tachograph.fail.errors import Cancelled
from tachograph.runtime.journal.requests import requests_of
from tests.evidence.forger import forge
from tests.evidence.forgeries import GONE, at, forged_values, put
from tests.evidence.project import copy_inputs
from tests.review.runs import run_of
from tests.support import ROOT

Lines = list[dict[str, Any]]
READ = ToolCall("read", {"path": "corpus/op-a1.md"})
SHORT = {"path": "corpus/op-a1.md", "text": "short"}
RECORDED = ("hook_denies", "hook_rewrites", "hook_raises", "hook_sends_back")


def _policy(**sections: Any) -> Policy:
    data = Policy.load(ROOT / "policy/v1.yaml", [ROOT / "policy/overlays/inform.yaml"], root=ROOT).data
    return Policy.from_dict({**data, **sections})


def _in_turn(*answers: Any) -> Callable[[dict[str, Any]], Any]:
    left = list(answers)
    return lambda data: left.pop(0) if left else None


def _cancelling(data: dict[str, Any]) -> None:
    raise Cancelled


# name -> hooks, and what else decides about the run
MADE: dict[str, Callable[[], dict[str, Any]]] = {
    "a person whom a hook asks": lambda: {
        "hooks": Hooks(before_call=_in_turn({"escalate": "large"}, {"escalate": "large"})),
        "approve": lambda _: Answer("allow", "lead", "so"),
    },
    "a person who refuses what a hook asks": lambda: {
        "hooks": Hooks(before_call=_in_turn({"escalate": "large"})),
        "approve": lambda _: False,
    },
    "an escalation of the gate that a hook denies": lambda: {
        "hooks": Hooks(before_call=_in_turn({"deny": "no"})),
        "policy": _policy(approval={"required_for": ["read"], "timeout_s": 60}),
    },
    "arguments too often": lambda: {
        "hooks": Hooks(before_call=_in_turn(*({"arguments": {"path": f"corpus/{n}"}} for n in range(4)))),
    },
    "arguments that a rule denies": lambda: {
        "hooks": Hooks(before_call=_in_turn({"arguments": {"path": "elsewhere/x"}})),
    },
    "another result": lambda: {"hooks": Hooks(after_call=_in_turn({"result": SHORT}, {"deny": "no"}))},
    "a result that does not fit": lambda: {"hooks": Hooks(after_call=_in_turn({"result": {"x": 1}}))},
    "a result that is too large": lambda: {
        "hooks": Hooks(after_call=_in_turn({"result": {**SHORT, "text": "x" * 6000}})),
        "policy": _policy(loop_budget={**_policy().data["loop_budget"], "max_result_bytes": 5000}),
    },
    "an answer of no use": lambda: {"hooks": Hooks(before_call=_in_turn({"allow": True}, object()))},
    "the run is stopped before the model": lambda: {"hooks": Hooks(before_model=_in_turn(None, {"stop": "enough"}))},
    "the last hook fails": lambda: {"hooks": Hooks(on_stop=lambda data: 1 / 0)},
    "sent back too often": lambda: {"hooks": Hooks(on_stop=lambda data: {"send_back": "Again."})},
    "two hooks": lambda: {
        "hooks": [
            Hooks(before_call=_in_turn(None, {"escalate": "large"}), name="first"),
            Hooks(before_call=_in_turn(None, {"deny": "no"}), after_call=_in_turn({"result": SHORT}), name="second"),
        ],
    },
    "cancelled in a hook": lambda: {"hooks": Hooks(before_call=_cancelling)},
}  # fmt: skip


def _lines_of(folder: Path) -> Lines:
    return [json.loads(text) for text in (folder / "state.jsonl").read_text("utf-8").split("\n")[:-1]]


def _made(name: str, folder: Path) -> Path:
    replies = [LLMOutput(tool_calls=[READ, ToolCall("read", {"path": "corpus/op-e2.md"})])]
    replies += [LLMOutput(final_answer="done")] * 5
    return run_of(folder, replies, **MADE[name]())


def _found(lines: Lines) -> list[str]:
    """What is wrong with hooks, and with what the model was asked."""
    try:
        found = [text for _, text in hook_problems(lines)]
        return found + [problem for request in requests_of(lines) for problem in request.problems]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        return [f"unknown shape: {type(error).__name__}"]


def _of_hooks(lines: Lines) -> Iterator[tuple[int, str]]:
    """The fields of answers, and of decisions that hooks made."""
    for number, line in enumerate(lines):
        if line["type"] != "step":
            continue
        places = [f"/hooks/{n}" for n in range(len(line.get("hooks", ())))]
        places += [
            f"/policy_decisions/{n}"
            for n, entry in enumerate(line["policy_decisions"])
            if entry["rule_id"] == "hook"
        ]
        for place in places:
            yield number, place
            for pointer in pointers(at(line, place)):
                yield number, place + pointer


def _forged(lines: Lines) -> Iterator[tuple[int, str, str, Lines]]:
    for number, pointer in _of_hooks(lines):
        old = at(lines[number], pointer)
        values = (
            [GONE]
            if isinstance(old, dict) and "position" in old
            else list(forged_values(lines[number], pointer, {}))
        )
        if pointer.endswith("/answer"):
            values += [
                None,
                {"deny": "x"},
                {"escalate": "x"},
                {"arguments": {}},
                {"send_back": "x"},
                {"stop": "x"},
                5,
            ]
        for value in values:
            if value != old:
                other = copy.deepcopy(lines)
                put(other[number], pointer, value)
                yield (
                    number,
                    pointer,
                    f"line {number + 1} {pointer} = {'nothing' if value is GONE else value}",
                    other,
                )


# what hooks said here came to nothing: another decision was made in its place
ESCALATED_IN_VAIN = ("an escalation of the gate that a hook denies", "two hooks")
RESULT_IN_VAIN = ("a result that does not fit", "a result that is too large")


def _says_the_same(run: str, old: Any, new: Any) -> bool:
    """Whether nothing else follows from an answer than from the one before."""
    kinds = [_kind(entry) for entry in (old, new)]
    if kinds[0] == kinds[1] == "result":
        return run in RESULT_IN_VAIN
    if run in ESCALATED_IN_VAIN and set(kinds) <= {"escalate", "nothing"}:
        return True
    return kinds[0] == kinds[1] and kinds[0] in ("garbage", "arguments")


def _kind(entry: dict[str, Any]) -> str:
    if "fault" in entry:
        return "fault"
    if entry.get("answer", 0) is None:
        return "nothing"
    answer = entry.get("answer")
    wanted = {
        "before_call": {"deny": str, "escalate": str, "arguments": dict},
        "after_call": {"deny": str, "result": dict},
    }.get(entry["event"], {"stop": str, "send_back": str})
    if isinstance(answer, dict) and len(answer) == 1:
        ((key, value),) = answer.items()
        if type(value) is wanted.get(key):
            return str(key)
    return "garbage"


def _unfound(run: str, lines: Lines) -> tuple[int, list[str]]:
    """How many forgeries were tried, and those that were not found and say something else."""
    tried, out = 0, []
    for number, pointer, what, forged in _forged(lines):
        tried += 1
        if _found(forged):
            continue
        parts = pointer.split("/")
        if parts[1] == "hooks":
            place = "/".join(parts[:3])
            if _says_the_same(run, at(lines[number], place), at(forged[number], place)):
                continue
        # the policy says how long a person is waited for; what a person said vouches for itself
        elif parts[3:] == ["facts", "timeout_s"] or (
            parts[3] == "approval" and parts[4] in ("by", "why", "digest")
        ):
            continue
        out.append(what)
    return tried, out


@pytest.mark.parametrize("name", RECORDED)
def test_every_forged_answer_and_decision_of_a_recorded_run_is_found(name: str) -> None:
    lines = _lines_of(ROOT / "runs/loop" / name)
    assert _found(lines) == []
    tried, unfound = _unfound(name, lines)
    assert tried >= 6 and unfound == []


@pytest.mark.parametrize("name", MADE)
def test_every_forged_answer_and_decision_of_a_run_is_found(name: str, tmp_path: Path) -> None:
    folder = _made(name, tmp_path)
    assert verify(folder, tmp_path) == []
    tried, unfound = _unfound(name, _lines_of(folder))
    assert tried > 10 or name.startswith("cancelled")
    assert unfound == []


def test_what_is_left_out_or_added_is_found() -> None:
    lines = _lines_of(ROOT / "runs/loop/hook_rewrites")
    step = copy.deepcopy(lines)
    step[1]["hooks"].pop()
    assert _found(step) == ["k0.2: the hook hook_rewrites was to be asked at before_call"]
    step = copy.deepcopy(lines)
    step[1]["policy_decisions"].pop()
    assert _found(step) == ["tc_1_0: the gate did not decide the arguments that a hook gave"]
    step = copy.deepcopy(lines)
    step[1]["hooks"].append({**step[1]["hooks"][1], "position": "k0.3"})
    assert _found(step) == ["k0.3: no hook was to be asked there"]
    step = copy.deepcopy(lines)
    del step[0]["hooks"]
    assert _found(step) == ["d0.2: nothing was to be decided again there"]


def test_a_denied_call_was_not_performed() -> None:
    lines = _lines_of(ROOT / "runs/loop/hook_denies")
    result = lines[1]["tool_results"][0]
    result["attempts"] = [{"attempt": 1, "outcome": "success"}]
    assert "tc_1_0: was performed, though it was denied" in _found(lines)
    result.update(status="ok", attempts=[])
    assert "tc_1_0: is ok, though it was denied" in _found(lines)
    result.update(status="denied", told={**result["told"], "reason": "it is late"})
    assert "tc_1_0: the model was told of another denial than was decided" in _found(lines)


def test_the_model_reads_the_result_that_hooks_left(tmp_path: Path) -> None:
    lines = _lines_of(_made("another result", tmp_path))
    lines[1]["tool_results"][0]["result"] = {**SHORT, "text": "other"}
    assert "tc_1_0: its result is not the one that hooks left" in _found(lines)
    lines = _lines_of(tmp_path / "run")
    lines[1]["tool_results"][0]["attempts"][0]["returned"] = SHORT
    assert "tc_1_0: what its tool returned is not recorded as hooks changed it" in _found(lines)


def test_a_run_goes_on_and_ends_as_hooks_said(tmp_path: Path) -> None:
    lines = _lines_of(ROOT / "runs/loop/hook_sends_back")
    assert "the run ends here, and hooks said otherwise" in _found([*lines[:3], lines[-1]])
    lines = _lines_of(_made("the run is stopped before the model", tmp_path))
    stopped = copy.deepcopy(lines[2])
    stopped["llm_input"] = lines[1]["llm_input"]
    assert "the model was asked, though a hook had ended the run" in _found([*lines[:2], stopped, lines[-1]])
    assert "the run goes on here, and hooks said otherwise" in _found([*lines[:3], lines[1], lines[-1]])


def test_verify_names_file_and_line_of_what_does_not_follow(tmp_path: Path) -> None:
    """A forger who makes all else fit, digests and index too, is found by what the hook answered."""
    project = copy_inputs(tmp_path / "project", ["loop/hook_denies"])
    run = project / "runs/loop/hook_denies"

    def allow(lines: Lines) -> None:
        lines[1]["hooks"][0]["answer"] = None

    forge(run, allow, root=project)
    assert verify(run, project) == [
        "runs/loop/hook_denies/state.jsonl:2: d0.2: the decision does not follow from what hooks answered"
    ]


@pytest.mark.parametrize("on_deny", [None, 0, "go_on", []])
def test_lines_that_no_policy_gives_are_of_an_unknown_shape(on_deny: Any) -> None:
    lines = _lines_of(ROOT / "runs/loop/hook_denies")
    lines[0]["policy"]["on_deny"] = on_deny
    with pytest.raises(ValueError, match="no policy answers a denial so"):
        list(hook_problems(lines))
