"""Answers that count only with a signature: `approval: {signers: FILE}`."""

from __future__ import annotations

import base64
import builtins
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Answer, InputError, Policy, PolicyError, Stub, record, replay
from tachograph.cli.main import main
from tachograph.evidence.checking.verify import _unsigned, verify
from tachograph.review.compare.policy_compare import compare_policies
from tachograph.runtime.core.effects import AskHuman
from tachograph.runtime.driver.file_approvals import answer_file
from tachograph.runtime.policy.signers import signed_text, signer_of
from tests.evidence.forger import forge
from tests.runtime.policy.test_argument_rules import DATA, SEND

ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
from cryptography.hazmat.primitives import serialization  # noqa: E402

USAGE = {"input_tokens": 1, "output_tokens": 1}


def key_pair(number: int) -> Any:
    return ed25519.Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)


def public(number: int) -> str:
    der = (
        key_pair(number)
        .public_key()
        .public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return base64.b64encode(der).decode()


SIGNERS = {"ann": public(1), "ben": public(2)}


def signed(asked: AskHuman, number: int, answer: str = "allow", said: str | None = None) -> Answer:
    signature = key_pair(number).sign(signed_text(said or answer, asked.digest)).hex()
    return Answer(answer, "Ann", None, asked.digest, signature)  # type: ignore[arg-type]


def agent(signers: dict[str, str] | None = None) -> Agent:
    known = SIGNERS if signers is None else signers
    approval = {"required_for": ["send"], "timeout_s": 60, **({"signers": known} if known else {})}
    data = {**DATA, "approval": approval, "on_deny": "inform"}
    call = {"calls": [{"tool": "send", "arguments": {"amount": 1}}], "usage": USAGE}
    return Agent(Stub([call, {"answer": "done", "usage": USAGE}]), [SEND], Policy.from_dict(data))


def entry_of(result: Any) -> dict[str, Any]:
    (entry,) = result.steps[0]["policy_decisions"]
    return dict(entry)


def test_an_answer_that_one_of_them_signed_counts_and_its_signature_is_recorded() -> None:
    entry = entry_of(agent().run("Pay.", approve=lambda asked: signed(asked, 2)))
    assert (entry["decision"], entry["approval"]["signer"]) == ("allow", "ben")
    assert len(bytes.fromhex(entry["approval"]["signature"])) == 64


@pytest.mark.parametrize(
    "answer",
    [
        lambda asked: True,
        lambda asked: Answer("allow", "Ann", None, asked.digest),
        lambda asked: signed(asked, 3),
        lambda asked: replace(signed(replace(asked, nonce="0" * 32), 1), digest=asked.digest),
        lambda asked: signed(asked, 1, "allow", said="deny"),
        lambda asked: replace(signed(asked, 1), signature="zz"),
        lambda asked: replace(signed(asked, 1), signature="00" * 63),
        lambda asked: replace(signed(asked, 1), signature=7),
        lambda asked: replace(signed(asked, 1), signature=str(signed(asked, 1).signature).upper()),
        lambda asked: replace(signed(asked, 1), signature=f"{signed(asked, 1).signature}  "),
    ],
    ids=[
        *(
            "a bool",
            "unsigned",
            "of a stranger",
            "of another run",
            "of a refusal",
            "no hex",
            "cut",
            "no text",
        ),
        *("in capitals", "with blanks"),
    ],
)
def test_any_other_answer_allows_nothing(answer: Any) -> None:
    entry = entry_of(agent().run("Pay.", approve=answer))
    assert (entry["decision"], entry["rule_id"]) == ("deny", "approval")
    assert entry["reason"].endswith("without the signature of one of approval.signers")
    assert "signature" not in entry["approval"]


def test_a_refusal_needs_no_signature() -> None:
    entry = entry_of(agent().run("Pay.", approve=lambda asked: False))
    assert entry["reason"].endswith(": refused")


def test_a_policy_without_signers_records_no_signature() -> None:
    entry = entry_of(agent({}).run("Pay.", approve=lambda asked: signed(asked, 1)))
    assert entry["decision"] == "allow" and "signature" not in entry["approval"]


# ---- records -------------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Path]:
    out = tmp_path / "run"
    record(agent(), "Pay.", out, approve=lambda asked: signed(asked, 1))
    yield out


def test_a_record_is_verified_and_replayed_with_its_signature(recorded: Path) -> None:
    assert verify(recorded, recorded.parent) == []
    assert entry_of(replay(agent(), recorded))["decision"] == "allow"
    first = json.loads((recorded / "state.jsonl").read_text().split("\n")[0])
    assert first["policy"]["signers"] == SIGNERS


def test_a_forged_signature_is_found_in_a_record(recorded: Path) -> None:
    """Of a person's answer only the record says what it was, but not whose signature allowed it."""
    state = recorded / "state.jsonl"
    lines = [json.loads(line) for line in state.read_text().splitlines()]
    (entry,) = lines[1]["policy_decisions"]
    run = lines[0]
    assert _unsigned(entry, run) == []
    forged = {**entry["approval"], "signature": "00" * 64}
    assert _unsigned({**entry, "approval": forged}, run) == ["has no signature of one of approval.signers"]
    assert _unsigned({**entry, "approval": {**entry["approval"], "signer": "ben"}}, run) == [
        "was signed by ann"
    ]
    stranger = {**run, "policy": {**run["policy"], "signers": {"ben": public(2)}}}
    assert _unsigned(entry, stranger) == ["has no signature of one of approval.signers"]

    def change(lines: list[dict[str, Any]]) -> None:
        lines[1]["policy_decisions"][0]["approval"]["signature"] = "00" * 64

    forge(recorded, change, root=recorded.parent)
    assert any("has no signature" in problem for problem in verify(recorded, recorded.parent))


# ---- files -----------------------------------------------------------------------------------------------------


def pem(path: Path, number: int) -> Path:
    path.write_bytes(
        key_pair(number).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    path.chmod(0o600)
    return path


def test_approve_signs_with_the_key_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("securesystemslib")
    question = tmp_path / "question.json"
    question.write_text(json.dumps({"schema": "approval/v1", "digest": "a" * 64, "answer": None}))
    assert main(["approve", str(question), "--key", str(pem(tmp_path / "key.pem", 1))]) == 2
    assert "there is no answer to sign" in capsys.readouterr().err
    assert main(["approve", str(question), "--allow", "--key", str(tmp_path / "key.pem")]) == 0
    said = json.loads(question.read_text())
    answer = Answer(said["answer"], signature=said["signature"])
    assert signer_of(answer, "a" * 64, SIGNERS) == "ann"
    assert signer_of(replace(answer, answer="deny"), "a" * 64, SIGNERS) is None


def test_an_answer_in_a_file_is_signed_by_what_it_is_given(tmp_path: Path) -> None:
    question = tmp_path / "question.json"
    question.write_text(json.dumps({"schema": "approval/v1", "digest": "a" * 64, "answer": None}))
    answer_file(question, "deny", None, None, lambda data: data.hex())
    assert bytes.fromhex(json.loads(question.read_text())["signature"]) == signed_text("deny", "a" * 64)


def test_the_keys_in_a_file_are_part_of_the_version(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "schema: policy/v1\ntool_registry: {allowed: [send]}\n"
        "approval:\n  required_for: [send]\n  timeout_s: 60\n  signers: keys.yaml\n"
    )
    (tmp_path / "keys.yaml").write_text(f"ann: {public(1)}\n")
    one = Policy.load(tmp_path / "p.yaml", root=tmp_path)
    assert one.signers == {"ann": public(1)}
    (tmp_path / "keys.yaml").write_text(f"ann: {public(2)}\n")
    assert Policy.load(tmp_path / "p.yaml", root=tmp_path).version != one.version
    for text, words in (
        ("- x\n", "keys.yaml:1: no keys are named"),
        ("ann: abc\n", "'abc' is not a public ed25519 key"),
    ):
        (tmp_path / "keys.yaml").write_text(text)
        with pytest.raises(PolicyError, match=words):
            Policy.load(tmp_path / "p.yaml", root=tmp_path)
    (tmp_path / "p.yaml").write_text(
        "schema: policy/v1\napproval: {required_for: [], timeout_s: 1, signers: ../k}\n"
    )
    with pytest.raises(PolicyError, match="stands beside or below"):
        Policy.load(tmp_path / "p.yaml", root=tmp_path)


def test_a_file_of_keys_is_refused_where_the_policy_is_none() -> None:
    with pytest.raises(PolicyError, match="only where the policy itself is a file"):
        Policy.from_dict({**DATA, "approval": {"required_for": [], "timeout_s": 1, "signers": "keys.yaml"}})


# ---- without the library, and compared -----------------------------------------------------------------------------


def test_nothing_is_begun_where_signatures_cannot_be_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    asked: list[AskHuman] = []
    with pytest.raises(InputError, match="nothing here verifies signatures"):
        agent().run("Pay.", approve=asked.append)  # type: ignore[arg-type]
    assert asked == []


def test_other_signers_are_told_by_policy_diff() -> None:
    def settings(old: dict[str, str] | None, new: dict[str, str] | None) -> list[str]:
        plain = {"required_for": ["send"], "timeout_s": 60}
        policies = [
            Policy.from_dict({**DATA, "approval": plain if keys is None else {**plain, "signers": keys}})
            for keys in (old, new)
        ]
        found = compare_policies(*policies, {"send": SEND})
        return [f"{setting.name}: {setting.note}" for setting in found.settings]

    def unknown(old: dict[str, str], new: dict[str, str]) -> list[str]:
        plain = {"required_for": ["send"], "timeout_s": 60}
        policies = [
            Policy.from_dict({**DATA, "approval": {**plain, **({"signers": keys} if keys else {})}})
            for keys in (old, new)
        ]
        return [word.partition(",")[0] for word in compare_policies(*policies, {"send": SEND}).undecided]

    ann, ben = {"ann": public(1)}, {"ben": public(2)}
    assert unknown(ann, {}) == ["approval.signers: answers count without a signature"]
    assert unknown(ann, {**ann, **ben}) == ["approval.signers: answers that ben signed count"]
    assert unknown(ann, {"anne": public(1)}) == unknown({**ann, **ben}, ann) == unknown({}, ann) == []
    assert settings(None, ann) == ["approval.signers: answers count with a signature only"]
    assert settings(ann, None) == ["approval.signers: answers count without a signature"]
    assert settings(ann, {**ann, **ben}) == ["approval.signers: answers that ben signed count"]
    assert settings({**ann, **ben}, ben) == ["approval.signers: answers that ann signed no longer count"]
