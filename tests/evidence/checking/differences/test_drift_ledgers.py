"""Two ledgers compared: every difference is seen and has a class; a record that was touched is told from drift."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph.evidence.checking.check import by_gravity, examine
from tachograph.evidence.checking.differences.cause import causes, in_words
from tachograph.evidence.checking.differences.compare import BROKEN, Findings
from tachograph.evidence.checking.differences.drift import Divergence, class_of, compare, counted
from tachograph.evidence.files.json_diff import ABSENT, CLASSES, differences
from tachograph.runtime.journal import ledger
from tests.evidence.project import DENIED, all_runs, copy_inputs, edit_lines
from tests.support import CANONICAL, ROOT


def _lines(run: str | Path) -> list[dict[str, Any]]:
    return list(ledger.read((Path(run) / "state.jsonl").read_bytes(), "state.jsonl"))


@pytest.mark.parametrize("run", all_runs(), ids=lambda run: run.name)
def test_a_ledger_does_not_differ_from_itself(run: Path) -> None:
    lines = _lines(run)
    drift = compare(lines, copy.deepcopy(lines))
    assert (drift.first, drift.gravest, drift.kind, drift.follow_ups) == (None, None, None, 0)
    assert not drift.counts


def test_a_run_that_goes_on_differs_in_how_it_ends() -> None:
    """The ends are compared with each other, however many steps lie before them."""
    lines = _lines(ROOT / CANONICAL)
    shorter = [*copy.deepcopy(lines[:2]), copy.deepcopy(lines[-1])]
    shorter[-1].update(terminal_reason="policy_denial_terminal", final_answer=None)
    for before, after in ((lines, shorter), (shorter, lines)):
        drift = compare(before, after)
        assert drift.counts["ANSWER"] == drift.counts["ENDING"] == 1
        assert drift.first is not None and drift.first.line == 3 and drift.first.step == 2
        assert drift.kind == "ANSWER"


def test_what_is_compared_with_nothing() -> None:
    end = {"type": "end", "lines": 1}
    for before, after in (([], [end]), ([end], []), ([{}], []), ([], [{"type": "step", "step_index": 4}])):
        drift = compare(before, after)
        assert drift.kind == "SHAPE" and str(drift.first)


POINTERS = st.lists(
    st.one_of(
        st.sampled_from(
            "policy_decisions tool_results attempts decision facts told reason errors llm_output usage totals "
            "inputs prev final_answer terminal_reason policy limits 0 1 12 \n".split(" ")
        ),
        st.text(max_size=3),
    ),
    max_size=5,
).map(lambda parts: "".join(f"/{part}" for part in parts))


def test_other_arguments_of_a_hook_are_an_effect() -> None:
    """The tool is called with them; they stand nowhere else in the step."""
    lines = _lines(ROOT / "runs/loop/hook_rewrites")
    other = copy.deepcopy(lines)
    other[1]["hooks"][0]["answer"]["arguments"]["path"] = "corpus/op-a2.md"
    assert compare(lines, other).kind == "EFFECT"


@given(st.one_of(st.sampled_from(["run", "step", "end", ""]), st.text(max_size=4)), POINTERS)
def test_every_pointer_has_a_class(line_type: str, pointer: str) -> None:
    assert class_of(line_type, pointer) in CLASSES


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)
LINES = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["run", "step", "end"])},
        optional={"step_index": st.integers(1, 3), "errors": VALUES, "totals": VALUES, "policy": VALUES},
    ),
    max_size=4,
)


@given(LINES, LINES)
def test_comparing_is_total_and_sees_every_difference(
    before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> None:
    assert compare(before, copy.deepcopy(before)).kind is None
    drift, back = compare(before, after), compare(after, before)
    assert (drift.kind is None) == _equal(before, after) == (drift.first is None)
    assert drift.counts == back.counts and drift.kind == back.kind
    if drift.gravest is not None and drift.first is not None:
        assert drift.gravest.kind == drift.kind
        assert CLASSES.index(drift.first.kind) >= CLASSES.index(drift.gravest.kind)
        assert "\n" not in str(drift.first) and drift.first.to_dict()


def _equal(a: Any, b: Any) -> bool:
    """Equal as JSON: a boolean is no number."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


@given(VALUES, VALUES)
def test_differences_are_leaves_that_differ(a: Any, b: Any) -> None:
    found = list(differences(a, b))
    assert bool(found) == (not _equal(a, b))
    assert all(not _equal(left, right) for _, left, right in found if _plain(left) and _plain(right))
    assert len({pointer for pointer, _, _ in found}) == len(found)


def _plain(value: Any) -> bool:
    return value is not ABSENT


def test_gravity_orders_and_words_agree() -> None:
    def finding(run: str, kind: str | None) -> Findings:
        drift = None if kind is None else compare([{"type": kind}], [])
        return Findings(run, ["x"], drift=drift)

    assert [f.run for f in by_gravity([finding("b", "step"), finding("a", "step"), finding("z", None)])] == [
        "z",
        "a",
        "b",
    ]
    kinds = ["ENDING", "ASKED", "ANSWER", "DIGEST-ONLY", "EFFECT", "VERDICT"]
    found = by_gravity([cast("Findings", SimpleNamespace(run="a", kind=kind)) for kind in kinds])
    assert [item.kind for item in found] == ["VERDICT", "EFFECT", "ANSWER", "ASKED", "ENDING", "DIGEST-ONLY"]
    assert counted(1, "run") == "1 run" and counted(0, "run") == "0 runs"
    assert str(Divergence(4, None, "/a", "x", 1, "SHAPE")) == "line 4 /a: x -> 1"


def test_nothing_stands_for_itself_in_every_process() -> None:
    (pointer, left, right), *_ = differences({"a": 1}, {})
    assert (pointer, left) == ("/a", 1) and right is ABSENT
    assert pickle.loads(pickle.dumps(right)) is ABSENT and copy.deepcopy(right) is ABSENT


# ---- records that were touched -------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return copy_inputs(tmp_path / "project", [DENIED.removeprefix("runs/")])


def _byte(run: Path, number: int, old: bytes, new: bytes) -> None:
    lines = (run / "state.jsonl").read_bytes().split(b"\n")
    assert old in lines[number - 1]
    lines[number - 1] = lines[number - 1].replace(old, new, 1)
    (run / "state.jsonl").write_bytes(b"\n".join(lines))


@pytest.mark.parametrize(
    ("number", "old", "new", "kind", "first"),
    [
        (2, b'"decision":"deny"', b'"decision":"dony"', "VERDICT", "step 1 /policy_decisions/0/decision: "),
        (2, b'"top_k":3', b'"top_k":4', "EFFECT", "step 1 /intended_tool_calls/0/arguments/top_k: 4 -> 3"),
        (3, b'"denials":1', b'"denials":0', "SHAPE", "line 3 /totals/denials: 0 -> 1"),
        (1, b'"seed":7', b'"seed":8', "SHAPE", "line 1 /seed: 8 -> 7"),
        (2, b'"prev":"', b'"prev":"0', BROKEN, "step 1 /prev: "),
    ],
)
def test_one_byte_of_a_ledger(
    project: Path, number: int, old: bytes, new: bytes, kind: str, first: str
) -> None:
    _byte(project / DENIED, number, old, new)
    found = examine(project / DENIED, root=project)
    assert found.kind == kind and found.broken and found.moved == {}
    assert any(f"first difference: {first}" in line for line in found.lines)
    assert any(line.startswith("the record does not hold in itself: ") for line in found.lines)
    assert found.tampered and found.accept is None
    assert in_words(causes([found])) == "the record was edited by hand (1 of them)"


def test_a_ledger_in_other_bytes(project: Path) -> None:
    _byte(project / DENIED, 1, b'"seed":7', b'"seed": 7')
    found = examine(project / DENIED, root=project)
    assert found.kind == BROKEN
    assert any("says the same in other bytes" in line for line in found.lines)


def test_hostile_text_is_inert_in_what_is_told(project: Path) -> None:
    def forge(lines: list[dict[str, Any]]) -> None:
        lines[1]["intended_tool_calls"][0]["arguments"]["\x1b[31m\n"] = "\x1b]0;x\x07\u202e"

    edit_lines(project / DENIED, forge, chain=True)
    found = examine(project / DENIED, root=project)
    assert found.drift is not None and found.drift.kind == "EFFECT"
    text = "".join(found.lines)
    assert "first difference" in text
    assert [character for character in "\x1b\x07\n\u202e" if character in text] == []


CALLS: dict[str, Callable[[Path], object]] = {
    "a missing file": lambda run: (run / "trace.json").unlink(),
    "a stray file": lambda run: (run / "x").write_text(""),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_cannot_be_compared_is_broken(name: str, project: Path) -> None:
    CALLS[name](project / DENIED)
    found = examine(project / DENIED, root=project)
    assert found.kind == BROKEN and len(found.lines) == 1 and found.lines[0].startswith(DENIED)


def test_other_words_for_what_is_malformed_are_text() -> None:
    """Why an argument cannot be read is told in our words, which a release may change; whether it can is no text."""
    facts = "/policy_decisions/0/facts"
    assert class_of("step", f"{facts}/malformed") == "TEXT"
    assert class_of("step", f"{facts}/target") == "SHAPE"
