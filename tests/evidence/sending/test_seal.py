"""A seal: who holds the key vouches for four files. It is checked without the key as far as that goes."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tachograph.cli import main as cli
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.sealing.snapshots import PAYLOAD
from tachograph.evidence.sealing.statement import STATEMENT
from tachograph.evidence.sending import seal as seals
from tachograph.evidence.sending.seal import PREDICATE, check_seal, seal
from tachograph.evidence.tasks.task import build, load_task
from tachograph.fail.errors import InputError, RecordError
from tachograph.runtime.formats import canonical_json
from tests.evidence.keys import HAS_LIBRARY, key_pair, needs_library, put_key
from tests.evidence.project import FEW, copy_inputs, replaced, tachograph
from tests.support import CANONICAL, FILES, TASK, environment, tree


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_inputs(tmp_path_factory.mktemp("seal") / "project", keep=FEW)


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "project")


def _envelope(run: Path, **changes: Any) -> dict[str, Any]:
    """A seal that was made without any library, and signed by nobody."""
    statement = {
        "_type": STATEMENT,
        "predicateType": PREDICATE,
        "predicate": {},
        "subject": [
            {"name": name, "digest": {"sha256": canonical_json.digest((run / name).read_bytes())}}
            for name in FILES
        ],
        **changes,
    }
    payload = base64.b64encode(json.dumps(statement).encode()).decode()
    return {"payload": payload, "payloadType": PAYLOAD, "signatures": []}


# ---- without the library -----------------------------------------------------------------------------------


def test_a_run_without_a_seal_is_fine_until_one_is_asked_for(project: Path) -> None:
    assert check_seal(project / CANONICAL, None, project) == []
    (line,) = check_seal(project / CANONICAL, project / "key.pem", project)
    assert line.startswith(f"{CANONICAL}: has no seal; make one with `tachograph seal {CANONICAL} --key")


@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_is_named_without_any_key(project: Path, name: str) -> None:
    run = project / CANONICAL
    (run / "seal.json").write_text(json.dumps(_envelope(run)))
    assert check_seal(run, None, project) == []
    (run / name).write_bytes((run / name).read_bytes() + b"\n")
    assert check_seal(run, None, project) == [f"{CANONICAL}/{name}: is not the file that was sealed"]


NO_SEALS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no JSON": lambda envelope: b"{",
    "a list": lambda envelope: b"[]",
    "a number": lambda envelope: b"1",
    "too deep": lambda envelope: b"[" * 100_000,
    "no text": lambda envelope: b"\xff\xfe",
    "no payload": lambda envelope: {**envelope, "payload": None},
    "a payload that is no base64": lambda envelope: {**envelope, "payload": "§"},
    "a payload that is no JSON": lambda envelope: {**envelope, "payload": "AAAA"},
    "a payload that is a text": lambda envelope: {**envelope, "payload": base64.b64encode(b'"x"').decode()},
    "another kind of payload": lambda envelope: {**envelope, "payloadType": "text/plain"},
    "no kind of payload": lambda envelope: {"payload": envelope["payload"]},
}
NO_STATEMENTS: dict[str, dict[str, Any]] = {
    "another statement": {"_type": "https://in-toto.io/Statement/v0"},
    "another predicate": {"predicateType": "urn:x"},
    "no files": {"subject": []},
    "files of another kind": {"subject": [{"name": "x", "digest": {"sha256": "0"}}]},
    "too few files": {"subject": [{"name": FILES[0], "digest": {"sha256": "0"}}]},
    "files without digests": {"subject": [{"name": name} for name in FILES]},
    "files that are a text": {"subject": "state.jsonl"},
}


@pytest.mark.parametrize("case", [*NO_SEALS, *NO_STATEMENTS])
def test_what_is_no_seal_is_named(made: Path, tmp_path: Path, case: str) -> None:
    run = shutil.copytree(made / CANONICAL, tmp_path / "run")
    envelope = _envelope(run, **NO_STATEMENTS.get(case, {}))
    text = NO_SEALS[case](envelope) if case in NO_SEALS else envelope
    (run / "seal.json").write_bytes(text if isinstance(text, bytes) else json.dumps(text).encode())
    assert check_seal(run, None, tmp_path) == ["run/seal.json: is no seal of a run"]


def test_a_seal_that_cannot_be_read_is_named(made: Path, tmp_path: Path) -> None:
    run = shutil.copytree(made / CANONICAL, tmp_path / "run")
    (run / "seal.json").mkdir()
    assert check_seal(run, None, tmp_path) == ["run/seal.json: cannot be read (no plain file)"]


def test_a_sealed_run_is_checked_verified_and_replayed_like_any_other(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = project / CANONICAL
    (run / "seal.json").write_text(json.dumps(_envelope(run)))
    for verb in ("check", "verify", "replay"):
        assert tachograph(project, capsys, monkeypatch, verb)[0] == 0
        assert tachograph(project, capsys, monkeypatch, verb, CANONICAL)[0] == 0


def test_verify_names_a_file_that_was_not_sealed(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = project / CANONICAL
    envelope = _envelope(run)
    (run / "run_report.md").write_bytes((run / "run_report.md").read_bytes() + b"\n")
    (run / "seal.json").write_text(json.dumps(envelope))
    code, out = tachograph(project, capsys, monkeypatch, "verify", CANONICAL)
    assert code == 1 and f"{CANONICAL}/run_report.md: is not the file that was sealed" in out


def test_recording_again_keeps_a_seal_that_still_holds_and_drops_one_that_does_not(project: Path) -> None:
    run = project / CANONICAL
    (run / "seal.json").write_text(json.dumps(_envelope(run)))
    before = tree(run)

    def again() -> None:
        agent, setting = build(load_task(project / TASK))
        assert record_run(agent, setting, run).ok

    again()
    assert tree(run) == before
    policy = project / "policy/v1.yaml"
    policy.write_bytes(policy.read_bytes() + b"# a remark\n")
    again()
    assert tree(run) == before, "a remark in the policy changes no record"
    replaced(policy, "backoff_base_ms: 100", "backoff_base_ms: 101")
    again()
    assert sorted(path.name for path in run.iterdir()) == sorted(FILES), "a seal of other files is none"


def test_without_the_library_one_is_told_how_to_get_it(project: Path) -> None:
    """In an interpreter that cannot have it."""
    hide = "import sys; sys.modules['securesystemslib'] = None\n"
    hide += "from tachograph.cli.main import main; sys.exit(main(sys.argv[1:]))"
    run = project / CANONICAL
    (run / "seal.json").write_text(json.dumps(_envelope(run)))
    (project / "key.pem").write_text("x")
    for verb in ("seal", "verify"):
        done = subprocess.run(
            [sys.executable, "-c", hide, verb, CANONICAL, "--key", "key.pem"],
            cwd=project,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 2, done
        assert done.stderr == (
            "tachograph: sealing needs the package securesystemslib; run: pip install 'tachograph[seal]'\n"
        )
    # what needs no key needs no library
    assert check_seal(run, None, project) == []


# ---- with it -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """PEM files: two ed25519 keys with their public halves, an RSA key, an encrypted one, and none."""
    if not HAS_LIBRARY:
        pytest.skip("needs securesystemslib[crypto]")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

    folder = tmp_path_factory.mktemp("keys")
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    for name in ("ann", "bob"):
        key_pair(folder, name)
    key_pair(folder, "rsa", rsa.generate_private_key(65537, 2048))
    locked = serialization.BestAvailableEncryption(b"word")
    put_key(folder / "locked", ed25519.Ed25519PrivateKey.generate().private_bytes(pem, pkcs8, locked))
    put_key(folder / "none", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    put_key(folder / "empty", b"")
    return {path.name: path for path in folder.iterdir()}


@needs_library
def test_a_seal_is_an_in_toto_statement_over_the_four_files(project: Path, keys: dict[str, Path]) -> None:
    run = project / CANONICAL
    before = tree(run)
    keyid = seal(run, keys["ann"], project)
    assert {name: item for name, item in tree(run).items() if name != "seal.json"} == before
    envelope = json.loads((run / "seal.json").read_bytes())
    assert [signature["keyid"] for signature in envelope["signatures"]] == [keyid]
    said = json.loads(base64.b64decode(envelope["payload"]))
    assert (said["_type"], said["predicateType"]) == ("https://in-toto.io/Statement/v1", PREDICATE)
    assert {item["name"]: item["digest"]["sha256"] for item in said["subject"]} == {
        name: canonical_json.digest((run / name).read_bytes()) for name in FILES
    }
    assert said["predicate"]["run_id"] == "canonical-v1-s7"
    assert not list(run.parent.glob(".*")), "nothing is left beside it"


@needs_library
def test_a_seal_holds_with_its_key_public_or_private_and_no_other(
    project: Path, keys: dict[str, Path]
) -> None:
    run = project / CANONICAL
    seal(run, keys["ann"], project)
    for name in ("ann", "ann.pub"):
        assert check_seal(run, keys[name], project) == []
    for name in ("bob", "bob.pub", "rsa.pub"):
        (line,) = check_seal(run, keys[name], project)
        assert line.startswith(f"{CANONICAL}/seal.json: is not signed with that key"), line
    assert check_seal(run, None, project) == []


@needs_library
def test_a_changed_statement_or_signature_does_not_hold(project: Path, keys: dict[str, Path]) -> None:
    run = project / CANONICAL
    seal(run, keys["ann"], project)
    good = json.loads((run / "seal.json").read_bytes())
    for change in ("statement", "signature", "none", "shape"):
        envelope = json.loads(json.dumps(good))
        if change == "statement":
            said = json.loads(base64.b64decode(envelope["payload"]))
            said["predicate"]["run_id"] = "another"
            envelope["payload"] = base64.b64encode(json.dumps(said).encode()).decode()
        elif change == "signature":
            first = envelope["signatures"][0]
            first["sig"] = base64.b64encode(bytes(64)).decode()
        elif change == "none":
            envelope["signatures"] = []
        else:
            envelope["signatures"] = "none"
        (run / "seal.json").write_text(json.dumps(envelope))
        (line,) = check_seal(run, keys["ann.pub"], project)
        assert "is not signed with that key" in line


@needs_library
def test_two_may_seal_and_the_last_one_counts(project: Path, keys: dict[str, Path]) -> None:
    run = project / CANONICAL
    seal(run, keys["ann"], project)
    seal(run, keys["bob"], project)
    assert check_seal(run, keys["bob.pub"], project) == []
    assert len(check_seal(run, keys["ann.pub"], project)) == 1


@needs_library
@pytest.mark.parametrize("name", ["rsa", "locked", "none", "empty", "ann.pub", "not there"])
def test_a_key_that_cannot_sign_is_refused(made: Path, keys: dict[str, Path], name: str) -> None:
    key = keys.get(name, keys["ann"].with_name("gone"))
    with pytest.raises(InputError) as caught:
        seal(made / CANONICAL, key, made)
    assert "openssl genpkey -algorithm ed25519" in str(caught.value)
    assert not (made / CANONICAL / "seal.json").exists()


@needs_library
@pytest.mark.parametrize("name", ["none", "empty", "not there"])
def test_a_key_that_cannot_verify_is_bad_input(project: Path, keys: dict[str, Path], name: str) -> None:
    seal(project / CANONICAL, keys["ann"], project)
    with pytest.raises(InputError):
        check_seal(project / CANONICAL, keys.get(name, keys["ann"].with_name("gone")), project)


@needs_library
def test_only_a_record_that_holds_is_sealed(project: Path, keys: dict[str, Path]) -> None:
    run = project / CANONICAL
    (run / "trace.json").write_bytes((run / "trace.json").read_bytes() + b"\n")
    with pytest.raises(RecordError, match="a seal is for a whole record"):
        seal(run, keys["ann"], project)
    assert not (run / "seal.json").exists()


@needs_library
def test_a_seal_that_cannot_be_written_leaves_the_one_that_is_there(
    project: Path, keys: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = project / CANONICAL
    seal(run, keys["ann"], project)
    before = tree(run.parent)

    def fail(*_: object) -> None:
        raise OSError(28, "full")

    monkeypatch.setattr(seals.os, "replace", fail)
    with pytest.raises(Exception, match="cannot be written"):
        seal(run, keys["bob"], project)
    assert tree(run.parent) == before


@needs_library
def test_the_commands(
    project: Path, keys: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out = tachograph(project, capsys, monkeypatch, "seal", CANONICAL, "--key", str(keys["ann"]))
    assert code == 0 and out.startswith(f"sealed    {CANONICAL}/seal.json with key ")
    key = ("--key", str(keys["ann.pub"]))
    code, out = tachograph(project, capsys, monkeypatch, "verify", CANONICAL, *key)
    assert code == 0 and "sealed with that key" in out
    code, out = tachograph(project, capsys, monkeypatch, "verify", *key)
    assert code == 1 and out.count("has no seal") == len(FEW) - 1
    assert tachograph(project, capsys, monkeypatch, "check")[0] == 0
    assert cli.main(["verify", CANONICAL, "--key", str(keys["empty"])]) == 2
    assert "is no public ed25519 key" in capsys.readouterr().err
