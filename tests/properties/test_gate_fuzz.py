"""Only sound decisions come out of the shipped gate, whatever it is asked; a policy is read or refused.

The oracles are those of `make fuzz`, which looks longer and follows the coverage of the code.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz import mutate, oracle, run, targets
from fuzz.oracle import Finding, gate, judged, judged_late, read, sound
from tachograph.fail.errors import PolicyError
from tachograph.runtime.core.effects import Call
from tachograph.runtime.formats.canonical_json import Fragment
from tachograph.runtime.policy.gate import ALLOW, DENY, ESCALATE, Counters, Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.contract import SHIPPED

GATES = {"shipped": gate(), "with a person": gate("approve_write", "inform", "three_iterations")}
ASKED = st.sampled_from(sorted(GATES)).map(GATES.__getitem__)

# ---- what is asked -------------------------------------------------------------------------------------

PRINTABLE = st.characters(min_codepoint=32, exclude_characters="\x7f", codec="utf-8")
NAMES = st.one_of(st.sampled_from([*SHIPPED, "shell", "Fetch", "fetch "]), st.text(PRINTABLE, max_size=12))


@st.composite
def changed(draw: Any, seeds: Iterable[str], tokens: Iterable[str]) -> str:
    """A seed with pieces put in, taken out and doubled."""
    text = draw(st.sampled_from([*seeds]))
    pieces = st.one_of(st.sampled_from([*tokens]), st.text(max_size=3))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(text)))
        cut = draw(st.integers(0, 3))
        text = text[:at] + draw(pieces) + text[at + cut :]
    return text


URLS = st.sampled_from(targets.URLS) | changed(targets.URLS, targets.URL_TOKENS)
PATHS = st.sampled_from(targets.PATHS) | changed(
    targets.PATHS, ("corpus/", "sandbox/", "/", "..", "/./", "\\", "~", "\0", "é", "\u202e")
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    URLS,
    PATHS,
    st.just("x" * 5000),
)
KEYS = st.one_of(
    st.sampled_from(["url", "path", "content", "query", "top_k", "text", "max_sentences", "URL", "rule"]),
    st.text(max_size=5),
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
# arguments in the shape that the tools want, so that the later rules are reached as well
FITTING = st.fixed_dictionaries(
    {},
    optional={
        "url": URLS,
        "path": PATHS,
        "content": st.text(max_size=3),
        "query": st.text(max_size=3),
        "top_k": st.integers(-1, 30),
        "text": st.text(max_size=3),
    },
)
TEXTS = st.one_of(
    st.dictionaries(KEYS, VALUES, max_size=4).map(json.dumps),
    FITTING.map(json.dumps),
    changed([json.dumps({"url": targets.URLS[0]}), '{"path":"corpus/a","path":"/a"}'], targets.JSON_TOKENS),
    st.text(max_size=30),
    st.integers(1, 300).map(lambda depth: "[" * depth),
)
# as many as a record can hold
COUNTS = st.one_of(
    st.integers(0, 50), st.integers(-(2**50), 2**50), st.sampled_from([10, 40, 50_000, 1_000_000])
)

GOOD: list[tuple[str, dict[str, Any]]] = [
    ("fetch", {"url": targets.URLS[0]}),
    ("read", {"path": "corpus/op-a4.md"}),
    ("write", {"path": "sandbox/x", "content": "x"}),
    ("search", {"query": "seals"}),
]


def used(counts: tuple[int, int, int, int], repeats: int, call: Call) -> Counters:
    counters = Counters(*counts)
    if repeats:
        counters.repeats = {GATES["shipped"].key_of(call): repeats, b"another": 5}
    return counters


# ---- the gate ------------------------------------------------------------------------------------------


@settings(max_examples=250, deadline=None)
@given(ASKED, NAMES, st.one_of(TEXTS, VALUES, FITTING))
def test_any_call_gets_a_sound_decision(asked: Gate, name: str, arguments: object) -> None:
    assert judged(asked, read(name, arguments), Counters()).decision in (ALLOW, DENY, ESCALATE)


@settings(max_examples=120, deadline=None)
@given(
    ASKED,
    st.one_of(st.sampled_from(GOOD), st.tuples(st.sampled_from(SHIPPED), FITTING)),
    st.tuples(*[COUNTS] * 4),
    st.integers(0, 5),
)
def test_any_counters_get_a_sound_decision(
    asked: Gate, wanted: tuple[str, dict[str, Any]], counts: Any, repeats: int
) -> None:
    call = read(*wanted)
    counters = used(counts, repeats, call)
    found = judged(asked, call, counters)
    if wanted in GOOD:
        over = counts[1] > 50_000 or counts[2] >= 40 or counts[3] >= 1_000_000
        assert (found.decision == DENY) == (repeats >= 3 or over)


@pytest.mark.parametrize(
    ("calls", "size", "repeats", "rule"),
    [
        (39, 999_999, 2, None),
        (40, 0, 0, "loop_budget"),
        (0, 1_000_000, 0, "loop_budget"),
        (0, 0, 3, "cycle_detection"),
        (40, 1_000_000, 3, "cycle_detection"),
    ],
)
def test_the_last_call_that_fits(calls: int, size: int, repeats: int, rule: str | None) -> None:
    for wanted in GOOD:
        call = read(*wanted)
        found = judged(GATES["shipped"], call, used((0, 0, calls, size), repeats, call))
        assert (found.decision == "allow") if rule is None else (found.rule_id == rule)


@settings(max_examples=60, deadline=None)
@given(ASKED, st.tuples(*[COUNTS] * 4), COUNTS)
def test_budgets_answer_with_a_sound_denial_or_none(asked: Gate, counts: Any, size: int) -> None:
    counters = Counters(*counts)
    limit = asked.policy.limits
    step, result = asked.decide_step(counters), asked.decide_result(size, counters)
    over = counts[0] >= limit["max_iterations"] or counts[1] >= limit["max_tokens"]
    for found, refused in ((step, over), (result, counts[3] + size > limit["max_result_bytes"])):
        assert (found is not None) == refused
        if found is not None:
            assert sound(found).decision == DENY and found.rule_id == "loop_budget"


LATE_KEYS = ["rule", "target", "hop", "address", "path", "access", "found"]
WELL_SHAPED = st.one_of(
    st.fixed_dictionaries({"rule": st.just("url_allowlist"), "target": URLS, "hop": st.integers(0, 9)}),
    st.fixed_dictionaries(
        {
            "rule": st.just("url_allowlist"),
            "target": st.one_of(URLS, st.just(targets.URLS[0])),
            "address": st.one_of(
                st.ip_addresses().map(str),
                st.sampled_from(["", "::ffff:10.0.0.1", "1.1"]),
                st.text(max_size=9),
            ),
        }
    ),
    st.fixed_dictionaries(
        {"rule": st.just("sandbox_path"), "path": PATHS, "access": st.sampled_from(["read", "write"])},
        optional={"found": st.sampled_from(["link", "hard link", "device"])},
    ),
)
CHECKS = st.one_of(
    WELL_SHAPED,
    # one of the shapes with a member of another kind, and no shape at all
    st.builds(
        lambda check, key, value: {**check, key: value},
        WELL_SHAPED,
        st.sampled_from(LATE_KEYS),
        st.one_of(st.none(), st.just("delete"), VALUES),
    ),
    st.dictionaries(st.sampled_from(LATE_KEYS), VALUES),
)


def _recordable(check: Any) -> bool:
    return read("late", check).arguments is not None


@settings(max_examples=250, deadline=None)
@given(ASKED, CHECKS.filter(_recordable))
def test_any_late_check_gets_a_sound_decision(asked: Gate, check: dict[str, Any]) -> None:
    assert judged_late(asked, check).decision in (ALLOW, DENY)


ODD: dict[str, Call] = {
    "a name that is no text": Call("tc_1_0", 7, Fragment("{}")),  # type: ignore[arg-type]
    "a name that cannot be a key": Call("tc_1_0", ["fetch"], Fragment("{}")),  # type: ignore[arg-type]
    "half a character as name": Call("tc_1_0", "\ud800", Fragment("{}")),
    "a list as arguments": Call("tc_1_0", "fetch", Fragment("[]")),
    "arguments that are no JSON": Call("tc_1_0", "fetch", Fragment('{"url":')),
    "no arguments": Call("tc_1_0", "fetch", None),
    "arguments of another kind": Call("tc_1_0", "fetch", 7),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("call", ODD.values(), ids=ODD)
@pytest.mark.parametrize("name", GATES)
def test_what_no_reader_of_ours_makes_is_denied(name: str, call: Call) -> None:
    assert sound(GATES[name].decide(call, Counters()), total=False).decision == DENY


@pytest.mark.parametrize("field", ["tool_calls", "result_bytes", "repeats", "iterations"])
def test_counters_that_are_none_are_denied(field: str) -> None:
    broken = Counters(**{field: None})  # type: ignore[arg-type]
    call = read("search", {"query": "x"})
    asked = GATES["shipped"]
    found = asked.decide_step(broken) if field == "iterations" else asked.decide(call, broken)
    assert found is not None and sound(found, total=False).rule_id == "gate_error"


# ---- a policy's text -----------------------------------------------------------------------------------

SEEDS = [data.decode() for data in targets.targets()["policy"].seeds()]
POLICIES = st.one_of(
    changed(SEEDS, targets.POLICY_TOKENS).map(str.encode),
    st.binary(max_size=40),
    st.sampled_from(SEEDS)
    .flatmap(lambda text: st.permutations(text.splitlines(True)).map("".join))
    .map(str.encode),
)


@settings(max_examples=200, deadline=None)
@given(POLICIES)
def test_a_policy_is_read_as_written_or_refused_with_its_place(data: bytes) -> None:
    assert targets.load_policy(data) is targets.load_policy(data)


def test_enough_seeds_are_policies(tmp_path: Path) -> None:
    """So that changed ones come near to being one; others are there to be refused."""
    loaded = 0
    for text in SEEDS:
        (tmp_path / "seed.yaml").write_text(text, encoding="utf-8")
        with contextlib.suppress(PolicyError):
            loaded += bool(Policy.load(tmp_path / "seed.yaml", root=tmp_path).version)
    assert loaded > 5


# ---- the oracles and the runner ------------------------------------------------------------------------


@pytest.mark.parametrize("name", targets.targets())
def test_nothing_comes_out_of_the_seeds(name: str) -> None:
    target = targets.targets()[name]
    seeds = list(target.seeds())
    assert seeds
    for data in random.Random(1).sample(seeds, min(len(seeds), 40)):
        target.one(data)


@pytest.mark.parametrize(
    ("name", "inputs"), [("url", 4000), ("path", 4000), ("json", 2000), ("policy", 150), ("record", 100)]
)
def test_nothing_comes_out_of_changed_seeds(name: str, inputs: int) -> None:
    tried, data, error = mutate.fuzz(targets.targets()[name], 1, 5, inputs)
    assert error is None, data
    assert tried > 20


def test_the_oracles_do_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these would be let through by an oracle that says yes to everything."""
    asked = GATES["shipped"]
    allowed = asked.decide(read("fetch", {"url": targets.URLS[0]}), Counters())
    assert allowed.decision == "allow" and sound(allowed) is allowed
    wrong: list[dict[str, Any]] = [
        {"decision": "maybe"},
        {"rule_id": "other"},
        {"reason": "two\nlines"},
        {"at": "policy/v1.yaml:0"},
        {"at": "policy/v1.yaml:9999"},
        {"at": "policy/v1.yaml:11"},  # of another section
        {"decision": "deny", "rule_id": "gate_error"},
    ]
    for change in wrong:
        kept = {name: getattr(allowed, name) for name in ("decision", "rule_id", "reason", "at", "facts")}
        with pytest.raises(Finding):
            sound(type(allowed)(**{**kept, **change}))
    for name, arguments in (
        ("fetch", {"url": "https://evil.test/"}),
        ("write", {"path": "corpus/x", "content": ""}),
    ):
        with pytest.raises(Finding):
            oracle.within(read(name, arguments))
    with pytest.raises(Finding):
        oracle.same_place("https://a.test/x", targets.parse_url("https://a.test/y"))


def test_the_same_seed_tries_the_same_inputs() -> None:
    target = targets.targets()["url"]

    def first(seed: int) -> list[bytes]:
        mutator = mutate.Mutator(target, seed)
        return [mutator.next() for _ in range(60)]

    assert first(1) == first(1) != first(2)
    assert len(set(first(1))) > 40


def test_a_finding_is_printed_and_kept_and_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(data: bytes) -> None:
        if b"evil" in data:
            raise Finding("it goes to evil")

    planted = targets.Target("url", breaks, targets.targets()["url"].seeds, targets.URL_TOKENS)
    monkeypatch.setattr(run, "targets", lambda: {"url": planted})
    monkeypatch.setattr(run, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(run, "missing", lambda: "ModuleNotFoundError: none")
    assert run.main(["--seconds", "5"]) == 1
    out = capsys.readouterr().out
    (kept,) = (tmp_path / "kept").iterdir()
    assert b"evil" in kept.read_bytes()
    assert "no atheris here" in out and "it goes to evil" in out and os.fspath(kept) in out
    assert run.main(["--target", "url", "--replay", os.fspath(kept)]) == 1
    monkeypatch.setattr(run, "targets", targets.targets)
    assert run.main(["--target", "path", "--inputs", "50", "--engine", "random"]) == 0
    assert run.main(["--engine", "atheris"]) == 2
