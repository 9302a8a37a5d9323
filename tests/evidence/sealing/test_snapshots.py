"""Signed snapshots of a project: what is signed, by whom, and which attacks they find."""

from __future__ import annotations

import base64
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.cli import main as cli
from tachograph.evidence.recording import index
from tachograph.evidence.sealing import seal_all as sealing
from tachograph.evidence.sealing import snapshots as files
from tachograph.evidence.sealing.keys import TrustedKeys, trusted_keys
from tachograph.evidence.sealing.seal_all import add_signature, seal_all, verify_snapshot
from tachograph.evidence.sealing.statement import read_statement, statement, tree_of
from tachograph.fail.errors import InputError, OutputError, RecordError
from tests.evidence.forger import Lines, forge
from tests.evidence.keys import HAS_LIBRARY, key_pair, needs_library, trust_file
from tests.evidence.project import DENIED, FEW, RETRIED, copy_inputs, replaced, tachograph
from tests.support import CANONICAL, tree

LIVE = "runs/live/smollm"
FIRST, SECOND, THIRD = (f"seals/{number:06}.json" for number in (1, 2, 3))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_inputs(tmp_path_factory.mktemp("snapshots") / "project", keep=(*FEW, "live/smollm"))


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "project")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the key pairs of ann, bob and eve, and files of trusted keys."""
    folder = tmp_path_factory.mktemp("keys")
    if HAS_LIBRARY:
        for name in ("ann", "bob", "eve"):
            key_pair(folder, name)
        trust_file(folder / "one", 1, folder / "ann.pub")
        trust_file(folder / "two", 2, folder / "ann.pub", folder / "bob.pub")
    return folder


@pytest.fixture
def ann(keys: Path) -> TrustedKeys:
    return trusted_keys(keys / "one")


@pytest.fixture
def sealed(project: Path, keys: Path) -> Path:
    """A project that ann sealed twice; its policy changed in between."""
    seal_all(project, [keys / "ann"])
    with (project / "policy/v1.yaml").open("a") as policy:
        policy.write("# a comment\n")
    seal_all(project, [keys / "ann"])
    return project


def _edit(project: Path, file: str, change: Callable[[dict[str, Any]], object], *, payload: bool) -> None:
    """Change the statement in a snapshot, or its envelope."""
    path = project / file
    envelope = json.loads(path.read_bytes())
    if payload:
        data = json.loads(base64.b64decode(envelope["payload"]))
        change(data)
        text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        envelope["payload"] = base64.b64encode(text.encode()).decode()
    else:
        change(envelope)
    path.write_text(json.dumps(envelope))


def _only(lines: list[str]) -> str:
    assert len(lines) == 1, lines
    return lines[0]


# ---- what is sealed ----------------------------------------------------------------------------------------


def test_a_statement_covers_files_and_runs_and_reads_back(project: Path) -> None:
    found = tree_of(project)
    assert set(found.runs) == {*(f"runs/{name}" for name in FEW), LIVE}
    assert {name for name, run in found.runs.items() if not run.can_be_remade} == {LIVE}
    every = {
        path.relative_to(project).as_posix()
        for folder in ("policy", "tasks", "tools")
        for path in (project / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    kept = {f"runs/{name}" for name in ("INDEX.json", "ACCEPTED.jsonl") if (project / "runs" / name).exists()}
    assert set(found.files) == {*every, *kept} and len(every) > 8
    assert read_statement(statement(found, 7, "ab")) == (found, 7, "ab")


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"predicate":{"runs":[]}}'])
def test_what_is_no_statement_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        read_statement(text)


def test_what_a_statement_holds_besides_is_refused(project: Path) -> None:
    text = statement(tree_of(project), 1, None)
    for other in (
        text + b"\n",
        text.replace(b'"_type"', b'"_more":1,"_type"', 1),
        text.replace(b":1}", b":1.0}", 1),
    ):
        assert other != text
        with pytest.raises(ValueError, match="not as it was written"):
            read_statement(other)


@pytest.mark.parametrize("place", ["policy/more.yaml", "tools/folder"])
def test_a_link_is_not_sealed(project: Path, place: str) -> None:
    (project / place).symlink_to(project / ("data" if place == "tools/folder" else "README.md"))
    with pytest.raises(InputError, match=f"{place}: cannot be sealed"):
        tree_of(project)


@needs_library
def test_snapshots_are_numbered_and_chained(sealed: Path, ann: TrustedKeys) -> None:
    snapshots, problems = files.read_snapshots(sealed)
    assert problems == [] and [item.file for item in snapshots] == [FIRST, SECOND]
    assert [item.previous for item in snapshots] == [None, snapshots[0].digest]
    verdict = verify_snapshot(sealed, ann, at_least=2)
    assert (verdict.problems, verdict.unsealed, verdict.names) == ([], [], ("ann",))
    assert set(verdict.runs) == {*(f"runs/{name}" for name in FEW), LIVE}
    assert sorted(path.name for path in (sealed / "seals").iterdir()) == ["000001.json", "000002.json"]


@needs_library
def test_sealing_again_writes_nothing_where_nothing_changed(sealed: Path, keys: Path) -> None:
    before = tree(sealed)
    assert seal_all(sealed, [keys / "ann"]).keys == ()
    assert tree(sealed) == before


@needs_library
def test_only_a_project_that_holds_is_sealed(project: Path, keys: Path) -> None:
    (project / CANONICAL / "trace.json").write_bytes(b"{}")
    with pytest.raises(RecordError, match="nothing was sealed"):
        seal_all(project, [keys / "ann"])
    assert not (project / "seals").exists()


@needs_library
def test_a_run_that_is_not_in_the_index_is_not_sealed(project: Path, keys: Path) -> None:
    index_file = project / index.INDEX
    data = json.loads(index_file.read_bytes())
    del data[DENIED]
    index_file.write_bytes(index.render(data))
    with pytest.raises(RecordError, match="nothing was sealed"):
        seal_all(project, [keys / "ann"])


@needs_library
def test_a_project_that_changes_meanwhile_is_not_sealed(
    project: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(root: Path) -> list[str]:
        (root / "policy/late.yaml").write_text("")
        return []

    monkeypatch.setattr(sealing, "index_problems", change)
    with pytest.raises(OutputError, match="changed while it was being sealed"):
        seal_all(project, [keys / "ann"])
    assert not (project / "seals").exists()


@needs_library
def test_a_snapshot_never_replaces_one_that_another_process_wrote(sealed: Path) -> None:
    before = tree(sealed)
    with pytest.raises(OutputError, match=f"{SECOND}: is there already"):
        files.write(sealed, 2, {})
    assert tree(sealed) == before


@needs_library
def test_a_snapshot_that_cannot_be_written_leaves_nothing(
    sealed: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(sealed / "policy/v1.yaml", "# a comment", "# another")
    before = tree(sealed)

    def fail(*_: object) -> None:
        raise OSError(28, "full")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OutputError, match=f"{THIRD}: cannot be written"):
        seal_all(sealed, [keys / "ann"])
    assert tree(sealed) == before


# ---- attacks -----------------------------------------------------------------------------------------------


def _swap(project: Path) -> None:
    """Two runs change places, with their lines of the index."""
    (project / DENIED).rename(project / "aside")
    (project / RETRIED).rename(project / DENIED)
    (project / "aside").rename(project / RETRIED)
    index.update(project)


def _delete(project: Path) -> None:
    """A run is deleted with its task and its line of the index."""
    shutil.rmtree(project / DENIED)
    (project / f"tasks{DENIED.removeprefix('runs')}.yaml").unlink()
    index.update(project)


def _copy(project: Path) -> None:
    shutil.copytree(project / DENIED, project / f"{DENIED}_again")
    index.update(project)


def _copy_with_another_time(project: Path) -> None:
    _copy(project)
    manifest = project / f"{DENIED}_again/manifest.json"
    data = json.loads(manifest.read_bytes())
    replaced(manifest, data["timestamp"], "2020-01-01T00:00:00Z")
    index.update(project)


def _move(project: Path) -> None:
    (project / DENIED).rename(project / f"{DENIED}_again")
    index.update(project)


def _answer_otherwise(lines: Lines) -> None:
    lines[-1]["final_answer"] = "Yes, always."
    lines[-2]["llm_output"]["final_answer"] = "Yes, always."


def _rechain(project: Path) -> None:
    forge(project / LIVE, _answer_otherwise, root=project)


ATTACKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "swap": (_swap, f"{RETRIED} and {DENIED}: have changed places since {SECOND}"),
    "delete": (_delete, f"{DENIED}: is gone, but {SECOND} holds it"),
    "copy": (_copy, f"{DENIED}_again: is a copy of {DENIED} as {SECOND} holds it"),
    "copy with another time": (_copy_with_another_time, f"{DENIED}_again: is a copy of {DENIED}"),
    "move": (_move, f"{DENIED}_again: is the run that {SECOND} holds as {DENIED}, which is gone"),
    "re-chain a live run": (
        _rechain,
        f"{LIVE}: is another run than in {SECOND}, and no check makes it again",
    ),
    "an unsigned snapshot on top": (
        lambda project: files.write(project, 3, _unsigned(project)),
        f"{THIRD}: has 0 of 1 signatures needed",
    ),
    "replace the last by the one before": (
        lambda project: shutil.copy(project / FIRST, project / SECOND),
        f"{SECOND}: states that it is snapshot 1",
    ),
    "delete the first": (lambda project: (project / FIRST).unlink(), f"{FIRST}: is missing"),
    "re-number the file": (
        lambda project: (project / SECOND).rename(project / THIRD),
        f"{SECOND}: is missing, but {THIRD} is there",
    ),
    "re-number the statement": (
        lambda project: _edit(
            project, SECOND, lambda data: data["predicate"].update(sequence=3), payload=True
        ),
        f"{SECOND}: states that it is snapshot 3",
    ),
    "change the statement": (
        lambda project: _edit(
            project, SECOND, lambda data: data["predicate"].update(accepted_bytes=1), payload=True
        ),
        f"{SECOND}: has 0 of 1 signatures needed (the signature of ann is not valid)",
    ),
    "change an earlier statement": (
        lambda project: _edit(
            project, FIRST, lambda data: data["predicate"].update(accepted_bytes=1), payload=True
        ),
        f"{SECOND}: does not go on from {FIRST} as it stands",
    ),
    "another link": (
        lambda project: _edit(
            project, SECOND, lambda data: data["predicate"].update(previous=None), payload=True
        ),
        f"{SECOND}: does not go on from {FIRST} as it stands",
    ),
    "strip the signature": (
        lambda project: _edit(project, SECOND, lambda data: data.update(signatures=[]), payload=False),
        f"{SECOND}: has 0 of 1 signatures needed;",
    ),
    "a signature of zeros": (
        lambda project: _edit(
            project,
            SECOND,
            lambda data: data["signatures"][0].update(sig=base64.b64encode(bytes(64)).decode()),
            payload=False,
        ),
        f"{SECOND}: has 0 of 1 signatures needed (the signature of ann is not valid)",
    ),
    "no snapshot": (lambda project: (project / SECOND).write_text("{}"), f"{SECOND}: is no snapshot"),
    "a foreign file": (
        lambda project: (project / "seals/notes.txt").write_text(""),
        "seals/notes.txt: is no snapshot; remove it",
    ),
    "a folder": (
        lambda project: ((project / SECOND).unlink(), (project / SECOND).mkdir()),
        f"{SECOND}: cannot be read",
    ),
    "no seals": (lambda project: shutil.rmtree(project / "seals"), "seals: there is no snapshot"),
}


def _unsigned(project: Path) -> dict[str, Any]:
    last = files.read_snapshots(project)[0][-1]
    return files.sign(statement(tree_of(project), 3, last.digest), [])


@needs_library
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_found_and_named_in_one_line(sealed: Path, ann: TrustedKeys, name: str) -> None:
    attack, begin = ATTACKS[name]
    attack(sealed)
    line, *more = verify_snapshot(sealed, ann).problems
    assert line.startswith(begin) and "\n" not in line, line
    if name == "change an earlier statement":  # both ends of the link that is broken
        assert _only(more).startswith(f"{FIRST}: has 0 of 1 signatures needed")
    else:
        assert more == []


@needs_library
def test_a_roll_back_of_everything_is_found_by_its_number(
    sealed: Path, keys: Path, ann: TrustedKeys, tmp_path: Path
) -> None:
    old = shutil.copytree(sealed, tmp_path / "old")
    replaced(sealed / "policy/v1.yaml", "# a comment", "# another")
    seal_all(sealed, [keys / "ann"])
    assert verify_snapshot(sealed, ann, at_least=3).problems == []
    assert verify_snapshot(old, ann).problems == [], "by itself it is whole"
    assert _only(verify_snapshot(old, ann, at_least=3).problems).startswith(
        "seals: the last snapshot with enough signatures is number 2, but number 3 was made"
    )


@needs_library
def test_a_key_that_is_not_listed_does_not_count(sealed: Path, keys: Path, ann: TrustedKeys) -> None:
    replaced(sealed / "policy/v1.yaml", "# a comment", "# another")
    seal_all(sealed, [keys / "eve"])
    verdict = verify_snapshot(sealed, ann)
    line = _only(verdict.problems)
    eve = trusted_keys(keys / "eve.pub").by_name["eve"].keyid
    assert line.startswith(f"{THIRD}: has 0 of 1 signatures needed (key {eve[:16]} is not in ")
    assert verdict.snapshot is not None and verdict.snapshot.sequence == 2
    assert verdict.unsealed == [f"policy/v1.yaml: has changed since {SECOND}"]


@needs_library
def test_a_listed_name_on_a_foreign_signature_does_not_count(
    sealed: Path, keys: Path, ann: TrustedKeys
) -> None:
    replaced(sealed / "policy/v1.yaml", "# a comment", "# another")
    seal_all(sealed, [keys / "eve"])
    keyid = ann.by_name["ann"].keyid
    _edit(sealed, THIRD, lambda data: data["signatures"][0].update(keyid=keyid), payload=False)
    assert "(the signature of ann is not valid)" in _only(verify_snapshot(sealed, ann).problems)


@needs_library
def test_a_run_of_an_earlier_snapshot_is_named_as_such(sealed: Path, keys: Path, ann: TrustedKeys) -> None:
    old = shutil.copytree(sealed / LIVE, sealed.parent / "old")
    _rechain(sealed)
    seal_all(sealed, [keys / "ann"])
    shutil.rmtree(sealed / LIVE)
    shutil.copytree(old, sealed / LIVE)
    index.update(sealed)
    assert f"{LIVE}: is another run than in {THIRD}, but again as in {SECOND}, and" in _only(
        verify_snapshot(sealed, ann).problems
    )


@needs_library
def test_accepted_changes_are_added_to_and_never_taken_out(
    project: Path, keys: Path, ann: TrustedKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted = project / "runs/ACCEPTED.jsonl"
    accepted.write_text('{"reason":"one"}\n{"reason":"two"}\n')
    monkeypatch.setattr(sealing, "index_problems", lambda root: [])
    seal_all(project, [keys / "ann"])
    with accepted.open("a") as file:
        file.write('{"reason":"three"}\n')
    verdict = verify_snapshot(project, ann)
    assert (verdict.problems, verdict.unsealed) == ([], [f"runs/ACCEPTED.jsonl: 1 new line since {FIRST}"])
    for text in ('{"reason":"one"}\n{"reason":"too"}\n', '{"reason":"two"}\n', None):
        if text is None:
            accepted.unlink()
        else:
            accepted.write_text(text)
        assert "runs/ACCEPTED.jsonl: lines that" in _only(verify_snapshot(project, ann).problems)


@needs_library
def test_seals_that_are_a_link_are_refused(sealed: Path, ann: TrustedKeys) -> None:
    (sealed / "seals").rename(sealed.parent / "elsewhere")
    (sealed / "seals").symlink_to(sealed.parent / "elsewhere")
    with pytest.raises(InputError, match=re.escape("seals: cannot be read (it is a link)")):
        verify_snapshot(sealed, ann)


@needs_library
def test_any_changed_byte_of_a_sealed_file_is_found(sealed: Path, ann: TrustedKeys) -> None:
    for number, name in enumerate(sorted(tree_of(sealed).files)):
        path = sealed / name
        text = path.read_bytes()
        place = number * 7919 % len(text)
        path.write_bytes(text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :])
        verdict = verify_snapshot(sealed, ann)
        lines = [*verdict.problems, *verdict.unsealed]
        assert lines and all(line.startswith(f"{name}: ") for line in lines), (name, lines)
        path.write_bytes(text)
    assert verify_snapshot(sealed, ann).unsealed == []


@pytest.fixture(scope="module")
def small(made: Path, keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sealed project that a property may write to, if it puts everything back."""
    project = shutil.copytree(made, tmp_path_factory.mktemp("small") / "project")
    seal_all(project, [keys / "ann"])
    return project


@needs_library
@given(place=st.integers(0, 10**6), put=st.binary(max_size=3), cut=st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_a_damaged_snapshot_is_named_unless_it_states_and_signs_the_same(
    small: Path, keys: Path, place: int, put: bytes, cut: int
) -> None:
    path = small / FIRST
    text = path.read_bytes()
    start = place % len(text)
    changed = text[:start] + put + text[start + cut :]
    trusted = trusted_keys(keys / "one")
    before = files.read_snapshots(small)[0][0]
    path.write_bytes(changed)
    try:
        found, problems = files.read_snapshots(small)
        problem = files.signature_problem(found[0], trusted) if found else problems[0]
        assert problem is not None or found[0].payload == before.payload
    finally:
        path.write_bytes(text)


# ---- later changes -----------------------------------------------------------------------------------------


@needs_library
def test_later_changes_are_listed_as_unsealed(sealed: Path, ann: TrustedKeys) -> None:
    replaced(sealed / "policy/v1.yaml", "# a comment\n", "")
    (sealed / "tasks/canonical/new.yaml").write_text("")
    (sealed / "tools/fetch.py").unlink()
    forge(sealed / CANONICAL, _answer_otherwise, root=sealed)
    shutil.copytree(sealed / DENIED, sealed / "runs/loop/new")
    forge(sealed / "runs/loop/new", lambda lines: [line.update(run_id="new") for line in lines], root=sealed)
    shutil.copytree(sealed / LIVE, sealed / "runs/loop/invented")
    forge(sealed / "runs/loop/invented", _answer_otherwise, root=sealed)
    verdict = verify_snapshot(sealed, ann)
    assert verdict.problems == []
    assert verdict.unsealed == [
        f"{CANONICAL}: is another run than in {SECOND}",
        f"runs/loop/invented: is a new run since {SECOND}, and no check makes it again",
        f"runs/loop/new: is a new run since {SECOND}",
        f"policy/v1.yaml: has changed since {SECOND}, but again as in {FIRST}",
        f"tasks/canonical/new.yaml: is new since {SECOND}",
        f"tools/fetch.py: is gone since {SECOND}",
    ]
    assert CANONICAL not in verdict.runs and LIVE in verdict.runs


@needs_library
def test_a_manifest_that_alone_has_changed_is_unsealed(sealed: Path, ann: TrustedKeys) -> None:
    manifest = sealed / LIVE / "manifest.json"
    replaced(manifest, json.loads(manifest.read_bytes())["timestamp"], "2020-01-01T00:00:00Z")
    index.update(sealed)
    verdict = verify_snapshot(sealed, ann)
    assert verdict.problems == []
    assert verdict.unsealed == [f"{LIVE}/manifest.json: is not the one in {SECOND}; its ledger is"]


@needs_library
def test_another_index_of_the_same_runs_is_named(sealed: Path, ann: TrustedKeys) -> None:
    (sealed / index.INDEX).write_text("{}\n")
    assert verify_snapshot(sealed, ann).unsealed == [f"{index.INDEX}: has changed since {SECOND}"]


# ---- a threshold of keys -----------------------------------------------------------------------------------


@needs_library
def test_a_threshold_needs_as_many_different_keys(project: Path, keys: Path) -> None:
    two = trusted_keys(keys / "two")
    seal_all(project, [keys / "ann", keys / "ann"])
    line = _only(verify_snapshot(project, two).problems)
    assert line.startswith(f"{FIRST}: has 1 of 2 signatures needed;")
    digest = files.read_snapshots(project)[0][0].digest
    add_signature(project, [keys / "bob"])
    assert files.read_snapshots(project)[0][0].digest == digest
    verdict = verify_snapshot(project, two)
    assert (verdict.problems, verdict.names) == ([], ("ann", "bob"))
    _edit(project, FIRST, lambda data: data["signatures"].pop(), payload=False)
    assert "has 1 of 2" in _only(verify_snapshot(project, two).problems)


@needs_library
def test_several_keys_sign_at_once(project: Path, keys: Path) -> None:
    seal_all(project, [keys / "ann", keys / "bob"])
    assert verify_snapshot(project, trusted_keys(keys / "two")).problems == []


@needs_library
def test_a_copied_signature_does_not_count_twice(project: Path, keys: Path) -> None:
    seal_all(project, [keys / "ann"])
    _edit(project, FIRST, lambda data: data["signatures"].append(dict(data["signatures"][0])), payload=False)
    assert "has 0 of 2" in _only(verify_snapshot(project, trusted_keys(keys / "two")).problems)


@needs_library
def test_a_snapshot_that_awaits_a_signature_leaves_the_one_before_in_force(project: Path, keys: Path) -> None:
    two = trusted_keys(keys / "two")
    seal_all(project, [keys / "ann", keys / "bob"])
    (project / "tools/more.txt").write_text("")
    seal_all(project, [keys / "ann"])
    verdict = verify_snapshot(project, two)
    assert _only(verdict.problems).startswith(f"{SECOND}: has 1 of 2 signatures needed")
    assert verdict.unsealed == [f"tools/more.txt: is new since {FIRST}"]


@needs_library
def test_a_second_signature_is_for_the_project_as_it_stands(sealed: Path, keys: Path) -> None:
    (sealed / "tools/more.txt").write_text("")
    before = tree(sealed)
    with pytest.raises(RecordError, match=f"{SECOND}: is not the project as it stands: tools/more.txt"):
        add_signature(sealed, [keys / "bob"])
    assert tree(sealed) == before
    shutil.rmtree(sealed / "seals")
    with pytest.raises(RecordError, match="there is no snapshot to sign"):
        add_signature(sealed, [keys / "bob"])


@needs_library
def test_a_chain_that_is_broken_is_not_gone_on_with(sealed: Path, keys: Path) -> None:
    (sealed / FIRST).unlink()
    (sealed / "tools/more.txt").write_text("")
    for act in (seal_all, add_signature):
        with pytest.raises(RecordError, match=f"{FIRST}: is missing"):
            act(sealed, [keys / "ann"])


@needs_library
def test_sealing_may_ask_who_signed_the_snapshot_before(sealed: Path, keys: Path, ann: TrustedKeys) -> None:
    (sealed / "tools/more.txt").write_text("")
    seal_all(sealed, [keys / "eve"], None)
    (sealed / "tools/more.txt").write_text("x")
    with pytest.raises(RecordError, match=f"{THIRD}: has 0 of 1"):
        seal_all(sealed, [keys / "ann"], ann)
    (sealed / THIRD).unlink()
    assert seal_all(sealed, [keys / "ann"], ann).file == THIRD


# ---- the commands ------------------------------------------------------------------------------------------


@needs_library
def test_the_commands(
    project: Path, keys: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*words: str) -> tuple[int, str]:
        return tachograph(project, capsys, monkeypatch, *words)

    key, trust = ("--key", str(keys / "ann")), ("--trust", str(keys / "one"))
    code, out = run("seal", "--all", *key)
    assert code == 0 and out.startswith(f"sealed    {FIRST}: 4 runs, ")
    assert run("seal", "--all", *key) == (
        0,
        f"unchanged {FIRST}: nothing changed since it, so no snapshot was written\n",
    )
    code, out = run("verify", *trust, "--strict", "--at-least", "1")
    assert (code, out) == (
        0,
        f"verify: 4 runs whole and consistent, 4 runs as sealed in {FIRST} by ann; nothing was run\n",
    )
    (project / "tools/more.txt").write_text("")
    code, out = run("verify", *trust)
    assert code == 0 and out.startswith(f"unsealed: tools/more.txt: is new since {FIRST}\nverify: 4 runs ")
    assert "; 1 later change unsealed; nothing was run" in out
    code, out = run("verify", *trust, "--strict")
    assert code == 1 and out.endswith("verify: 1 unsealed change, which --strict refuses\n")
    code, out = run("verify", *trust, "--json")
    data = json.loads(out)
    assert (data["snapshot"], data["keys"], data["problems"]) == (1, ["ann"], [])
    assert data["unsealed"] == [f"tools/more.txt: is new since {FIRST}"] and LIVE in data["sealed"]
    code, out = run("verify", *trust, "--at-least", "2")
    assert code == 1 and "the project was rolled back" in out
    code, out = run("seal", "--all", *key, *trust)
    assert code == 0 and f"changed   tools/more.txt: is new since {FIRST}\n" in out
    assert run("seal", "--all", "--add-signature", "--key", str(keys / "bob"))[0] == 0
    code, out = run("verify", "--trust", str(keys / "two"))
    assert code == 0 and f"as sealed in {SECOND} by ann, bob" in out
    code, out = run("verify")
    assert (code, out) == (
        0,
        "verify: 4 runs whole and consistent, compared with no snapshot in seals/ (--trust KEYS); nothing was run\n",
    )
    (project / FIRST).unlink()
    code, out = run("verify")
    assert code == 1 and f"{FIRST}: is missing" in out


@needs_library
def test_fields_of_a_sealed_run_are_sealed_from_any_folder(
    sealed: Path, keys: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fields(folder: Path, *words: str) -> str:
        out = tachograph(folder, capsys, monkeypatch, "verify", "--fields", *words)[1]
        return next(line for line in out.splitlines() if f"{LIVE}: of " in line)

    trust = ("--trust", str(keys / "one"))
    for folder, words in ((sealed, ()), (sealed / "tools", ()), (sealed.parent, ("--root", "project"))):
        assert fields(folder, *trust, *words).endswith("are only sealed, 0 are unproven")
    assert ", 0 are only sealed, " in fields(sealed)
    _rechain(sealed)
    assert ", 0 are only sealed, " in fields(sealed, *trust)


@needs_library
def test_a_project_without_policies_is_compared_all_the_same(
    sealed: Path, keys: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(sealed / "policy")
    _delete(sealed)
    trust = ("--trust", str(keys / "one"))
    code, out = tachograph(sealed, capsys, monkeypatch, "verify", *trust)
    assert code == 1 and f"{DENIED}: is gone, but {SECOND} holds it" in out
    assert f"unsealed: policy/v1.yaml: is gone since {SECOND}" in out


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "strict alone": (("verify", "--strict"), "--strict: needs the keys to trust"),
    "number alone": (("verify", "--at-least", "1"), "--at-least: needs the keys to trust"),
    "no number": (("verify", "--trust", "KEYS", "--at-least", "0"), "--at-least: '0' must be the number"),
    "a run": (("verify", CANONICAL, "--trust", "KEYS"), "--trust: a snapshot is of the whole project"),
    "keys as the root": (("verify", "--root", "KEYS"), "is a file, but --root names the folder"),
    "nothing to seal": (("seal", "--key", "KEYS"), "it is not said what to seal"),
    "too much to seal": (("seal", CANONICAL, "--all", "--key", "KEYS"), "it is not said what to seal"),
    "a signature for a run": (
        ("seal", CANONICAL, "--add-signature", "--key", "KEYS"),
        "--add-signature: is for snapshots",
    ),
    "trust for a run": (("seal", CANONICAL, "--trust", "KEYS", "--key", "KEYS"), "--trust: is for snapshots"),
    "two keys for a run": (
        ("seal", CANONICAL, "--key", "a", "--key", "b"),
        "--key: a run is sealed with one",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_options_that_do_not_go_together_are_refused(
    made: Path, keys: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words, what = WRONG[name]
    (keys / "KEYS").write_text("threshold: 1\n")
    monkeypatch.chdir(made)
    assert cli.main([str(keys / "KEYS") if word == "KEYS" else word for word in words]) == 2
    assert what in capsys.readouterr().err
    assert not (made / "seals").exists()


# ---- without the library -----------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--trust", "--key"])
def test_a_wanted_signature_check_fails_where_the_library_is_not_installed(
    project: Path,
    keys: Path,
    option: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if HAS_LIBRARY:
        seal_all(project, [keys / "ann"])
    monkeypatch.setitem(sys.modules, "securesystemslib", None)
    (keys / "wanted").write_text(f"threshold: 1\nkeys:\n  ann: {'A' * 59}=\n")
    monkeypatch.chdir(project)
    assert cli.main(["verify", option, str(keys / "wanted")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err == (
        "tachograph: sealing needs the package securesystemslib; run: pip install 'tachograph[seal]'\n"
    )
