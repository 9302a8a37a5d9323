"""The journal: what it holds is read back as it was written or refused, and is on the disk when it says so."""

from __future__ import annotations

import contextlib
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph.fail.errors import (
    Cancelled,
    DeadlineExceeded,
    Interrupted,
    OutputError,
    RecordError,
    Suspended,
)
from tachograph.runtime.core.effects import Answer, Call, Fault, Invoke, Outcome, Reply
from tachograph.runtime.core.outcome_codec import outcome_from_dict, outcome_to_dict
from tachograph.runtime.formats import canonical_json
from tachograph.runtime.journal import journal as journals
from tachograph.runtime.journal.journal import Journal, chain_of, read_journal
from tests.faults.kept import Case, Disk
from tests.faults.media import REFUSED, Judge

STEPS = (["look", "put"], ["pay", "look!"], ["book", "look"])
BEGIN = {"type": "begin", "schema": "journal/v1", "run": {}, "package": {}}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The journal of a run that died before its last outcome was written."""
    case = Case(tmp_path_factory.mktemp("journal"), STEPS)
    counting = Disk()
    case.begin(counting)
    case = Case(tmp_path_factory.mktemp("journal"), STEPS)
    assert case.begin(Disk(len(counting.calls) - 1)) is None
    return case.journal.read_bytes()


@pytest.fixture(scope="module")
def judge(data: bytes) -> Judge:
    return Judge(data)


def _entries(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line)["entry"] for line in data.splitlines()]


def _chained(*entries: Any) -> bytes:
    chain, out = "0" * 64, b""
    for entry in entries:
        body = canonical_json.encode(entry)
        chain = chain_of(chain, body)
        out += f'{{"chain":"{chain}","entry":{body}}}\n'.encode()
    return out


# ---- read back -------------------------------------------------------------------------------------------


def test_a_journal_holds_what_was_done_in_its_order(data: bytes) -> None:
    kinds = [entry["type"] for entry in _entries(data)]
    assert kinds[:2] == ["begin", "prepared"] and kinds.count("intent") == 2
    at = [(entry["step"], entry["at"]) for entry in _entries(data) if entry["type"] == "outcome"]
    assert at == [
        (1, "m.1"),
        (1, "i0.1"),
        (1, "i1.1"),
        (2, "m.1"),
        (2, "i0.1"),
        (3, "m.1"),
        (3, "i0.1"),
        (3, "i1.1"),
    ]
    found = read_journal(data, "journal")
    assert found is not None and found.is_prepared and not found.intents and found.torn == 0
    assert found.begin["run"]["run_id"] == "kept"
    assert sorted(found.stamps) == found.stamps and len(set(found.stamps)) == len(found.stamps)


def test_an_intent_stands_until_its_outcome(data: bytes) -> None:
    for number, entry in enumerate(_entries(data), start=1):
        found = read_journal(b"".join(data.splitlines(keepends=True)[:number]), "journal")
        assert found is not None
        assert bool(found.intents) == (entry["type"] == "intent")
        assert all(intent["tool"] in ("pay", "book") for intent in found.intents.values())


def test_decisions_after_the_last_effect_of_a_step_are_kept(data: bytes) -> None:
    """The denied call of step 2 has no effect of its own: its stamps come with step 3."""
    third = next(entry for entry in _entries(data) if entry.get("step") == 3 and entry["type"] == "outcome")
    assert list(third["before"]) == ["d1"]
    found = read_journal(data, "journal")
    assert found is not None and set(third["before"]["d1"]) <= set(found.stamps)


def test_cut_at_every_byte(judge: Judge) -> None:
    for size in range(len(judge.data) + 1):
        judge.cut(size)


def test_zeros(judge: Judge) -> None:
    for size in range(0, len(judge.data), 5):
        judge.zeroed_tail(size)
    for length in (1, 40, 512):
        for begin in range(0, len(judge.data) - length, 11):
            judge.zeroed_within(begin, length)


def test_flipped_bits(judge: Judge) -> None:
    """Every bit of the two last lines, one bit of each byte before."""
    draw = random.Random(1)
    early = judge.ends[-3]
    for bit in (
        *(8 * byte + draw.randrange(8) for byte in range(early)),
        *range(8 * early, 8 * len(judge.data)),
    ):
        judge.flipped(bit)


def test_lines_doubled_swapped_or_lost(judge: Judge) -> None:
    there = list(range(len(judge.lines)))
    draw = random.Random(2)
    for place in there:
        judge.lines_as([*there[:place], *there[place + 1 :]])
        judge.lines_as([*there[: place + 1], *there[place:]])
        judge.lines_as([*there[:place], *there[place : place + 2][::-1], *there[place + 2 :]])
        judge.lines_as(draw.sample(there, draw.randrange(len(there) + 1)))


def test_a_line_of_another_run_does_not_follow(judge: Judge) -> None:
    other = _chained(BEGIN, {"type": "prepared"}).splitlines(keepends=True)
    assert judge.read(judge.data + other[1] + other[1]) == REFUSED
    assert judge.read(other[0] + b"".join(judge.lines[1:])) == REFUSED


def test_a_damaged_intent_is_not_forgiven(tmp_path: Path) -> None:
    """The effect behind it may have been performed: it was durable before."""
    whole = _chained(BEGIN, {"type": "intent", "step": 1, "at": "i0.1", "call": "tc_1_0", "tool": "pay"})
    for byte in range(whole.index(b"\n") + 1, len(whole)):
        damaged = bytearray(whole)
        damaged[byte] ^= 4
        with pytest.raises(RecordError):
            read_journal(bytes(damaged), "journal")


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\0" * 700, _chained(BEGIN)[:-1], b'{"chain":"' + b"\0" * 90 + b"\n"]
)
def test_where_the_first_line_is_torn_there_is_nothing(data: bytes) -> None:
    assert read_journal(data, "journal") is None


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([{**BEGIN, "schema": "journal/v9"}], "schema 'journal/v9'"),
        ([BEGIN, BEGIN], "unknown shape"),
        ([{"type": "prepared"}], "unknown shape"),
        ([BEGIN, {"type": "surprise"}], "unknown shape"),
        ([BEGIN, {"type": "outcome", "step": 1}], "unknown shape"),
        ([BEGIN, {"type": "outcome", "step": 1, "at": "m.1", "stamps": [], "outcome": {}}], "unknown shape"),
        (
            [BEGIN, {"type": "outcome", "step": 1, "at": "m.1", "stamps": {"m.1": 3}, "outcome": {}}],
            "unknown shape",
        ),
        (
            [BEGIN, {"type": "outcome", "step": 1, "at": "m.1", "stamps": {}, "outcome": {"reply": 1}}],
            "unknown shape",
        ),
        ([BEGIN, ["type"]], "does not follow"),
    ],
)
def test_what_is_no_entry_of_ours_is_refused_by_its_line(entries: list[Any], said: str) -> None:
    with pytest.raises(RecordError, match=said) as caught:
        read_journal(_chained(*entries) + _chained(BEGIN), "journal")
    assert caught.value.line == len(entries)


# ---- written ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _failing(monkeypatch: pytest.MonkeyPatch, name: str, error: OSError) -> Any:
    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(journals.os, name, fail)
        yield


def _calls(tmp_path: Path, durability: str) -> list[str]:
    disk = Disk()
    assert Case(tmp_path / durability, STEPS).begin(disk, durability) is not None
    return disk.calls


def test_with_effect_each_entry_is_one_write_and_on_the_disk(tmp_path: Path) -> None:
    # the folder and the one above, then a write and an fsync for each entry
    calls = _calls(tmp_path, "effect")
    assert calls[:2] == ["fsync", "fsync"]
    assert calls[2:] == ["write", "fsync"] * (len(calls) // 2 - 1)
    assert len(calls) // 2 - 1 == 13


def test_with_step_all_is_on_the_disk_before_the_model_is_asked(tmp_path: Path) -> None:
    said = "".join(name[0] for name in _calls(tmp_path, "step"))
    # begin, prepared, then each step's entries with an fsync before its model is asked
    assert said == "ff" + "wfwf" + "f" + "www" + "f" + "www" + "f" + "wwww" + "f" + "w"


def test_a_journal_that_cannot_be_written_suspends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, error in (("write", OSError(28, "full")), ("fsync", OSError(5, "broken"))):
        journal = Journal(tmp_path / name, "effect")
        journal.write(BEGIN)
        with _failing(monkeypatch, name, error), pytest.raises(Suspended, match="resume the run"):
            journal.write({"type": "prepared"})
        journal.close()
        assert (tmp_path / name).exists()


def test_a_journal_that_cannot_even_begin_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("write", "fsync"):
        journal = Journal(tmp_path / name, "effect")
        with (
            _failing(monkeypatch, name, OSError(28, "full")),
            pytest.raises(OutputError, match="did not begin"),
        ):
            journal.write(BEGIN)
        journal.close()
        assert not (tmp_path / name).exists()
    with pytest.raises(OutputError):
        Journal(tmp_path / "gone" / "journal", "effect")


def test_a_journal_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("of another run")
    with pytest.raises(OutputError):
        Journal(tmp_path / "journal", "effect")
    (tmp_path / "link").symlink_to("journal")
    with pytest.raises(Suspended):
        Journal(tmp_path / "link", "effect", "0" * 64, 0)


def test_a_journal_that_was_removed_suspends_the_run(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", "effect")
    journal.write(BEGIN)
    (tmp_path / "journal").unlink()
    with pytest.raises(Suspended):
        journal.write({"type": "prepared"})


def test_going_on_cuts_the_torn_tail_off(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "journal"
    path.write_bytes(data[:-30])
    found = read_journal(path.read_bytes(), "journal")
    assert found is not None and found.torn > 30
    with contextlib.closing(Journal(path, "effect", found.chain, found.size)) as journal:
        assert path.stat().st_size == found.size
        journal.write({"type": "rebased", "run": {}, "package": {}})
    again = read_journal(path.read_bytes(), "journal")
    assert again is not None and again.torn == 0 and len(again.rebased) == 1


def test_the_child_of_a_tool_that_forked_writes_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", "effect")
    journal.write(BEGIN)
    pid = os.fork()
    if pid == 0:
        journal.write({"type": "prepared"})
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 70
    journal.close()
    assert len((tmp_path / "journal").read_bytes().splitlines()) == 1


# ---- outcomes as data --------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
json_data = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | texts,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "é"]), inner, max_size=3)
    ),
    max_leaves=6,
)
fragments = json_data.map(canonical_json.freeze)
objects = st.dictionaries(st.sampled_from(["", "n", "é"]), st.integers(0, 9), max_size=2).map(
    canonical_json.freeze
)
calls = st.builds(Call, texts, texts, objects) | st.builds(Call, texts, texts, st.none(), texts, texts)
replies = st.builds(
    Reply,
    text=st.none() | texts,
    calls=st.lists(calls, max_size=2).map(tuple),
    final_answer=st.none() | texts,
    finish_reason=st.sampled_from([None, "stop", "length"]),
    model=st.none() | texts,
    usage=st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)),
    raw=st.none() | objects,
    problem=st.none() | texts,
)
faults = st.builds(
    Fault,
    texts,
    st.sampled_from(["transient", "timeout", "other"]),
    st.booleans(),
    st.none() | st.integers(0, 9),
)
pairs = st.lists(st.tuples(texts, texts), max_size=2).map(tuple)
outcomes = st.one_of(
    st.builds(Outcome, reply=replies),
    st.builds(Outcome, result=fragments, reads=pairs, writes=pairs),
    st.builds(
        Outcome, fault=faults, writes=pairs, checks=st.just(({"rule": "sandbox_path", "path": "a/b"},))
    ),
    st.builds(
        Outcome, answer=st.builds(Answer, st.sampled_from(["allow", "deny"]), st.none() | texts, texts)
    ),
    st.builds(Outcome, invalid=texts, reads=pairs),
    st.builds(Outcome, returned_bytes=st.integers(0, 9)),
    st.builds(Outcome, result_lost=st.booleans()),
)


@given(outcomes)
def test_an_outcome_comes_back_as_it_was(outcome: Outcome) -> None:
    text = canonical_json.encode(outcome_to_dict(outcome))
    again = outcome_from_dict(json.loads(text))
    assert again == outcome
    assert canonical_json.encode(outcome_to_dict(again)) == text


@pytest.mark.parametrize("stop", [Cancelled("x"), Interrupted(2), DeadlineExceeded("x")])
def test_what_stopped_a_run_comes_back(stop: Cancelled) -> None:
    assert type(outcome_from_dict(outcome_to_dict(stop))) is type(stop)


def test_an_effect_is_named_in_its_intent(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", "effect")
    journal.write(BEGIN)
    call = Call("tc_2_1", "pay", canonical_json.freeze({}))
    journal.intent(Invoke(2, 1, 3, call, "key"), call.id, "pay")
    journal.close()
    found = read_journal((tmp_path / "journal").read_bytes(), "journal")
    intent = {"type": "intent", "step": 2, "at": "i1.3", "call": "tc_2_1", "tool": "pay"}
    assert found is not None and found.intents == {(2, "i1.3"): intent}
