"""The scan of committed bytes for secrets: each kind is named at its place and never shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tachograph.evidence.checking.secrets import KINDS, leaks, secrets_in
from tachograph.runtime.core.secret_kinds import PATTERNS
from tests.runtime.core.test_redaction import SECRETS
from tests.support import ROOT

BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7"
SAMPLES = {
    "anthropic_key": "sk-ant-api03-abcdefghijklmnop0123",
    "aws_access_key": "AKIAABCDEFGHIJ234567",
    "bearer_token": "Bearer abcdefghijklmnop0123456789==",
    "github_token": "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "google_key": "AIzaabcdefghijklmnopqrstuvwxyz012345678",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.c2lnbmF0dXJlMTIz",
    "openai_key": "sk-proj-abcdefghijklmnop0123456789",
    "private_key": f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\n-----END RSA PRIVATE KEY-----",
    "slack_token": "xoxb-0123456789-abcdefghij",
}
SAMPLES |= {kind: SECRETS[kind][0] for kind in KINDS if kind not in SAMPLES}
HARMLESS = (
    "basic responsibilities of the driver, and Bearer verylongwordwithoutdigits",
    "<secret:openai_key:1> and <secret::openai_key:12345678901234567890>",
    "task-sk-learn-is-a-name-that-goes-on-for-long",
    "sk-learn-is-a-name-that-goes-on-for-long",
    "it begins with -----BEGIN PRIVATE KEY----- and ends elsewhere",
    "someone@example.com",
    "0123456789abcdef" * 4,
)


def test_every_kind_but_mail_is_looked_for() -> None:
    assert {*KINDS, "email"} == set(PATTERNS) == {*SAMPLES, "email"}


@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.parametrize("as_json", [True, False])
def test_a_secret_is_named_at_its_place_and_not_shown(tmp_path: Path, kind: str, as_json: bool) -> None:
    text = json.dumps(f"here: {SAMPLES[kind]} .") if as_json else SAMPLES[kind]
    file = tmp_path / "runs/live/mine/state.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(f'{{"a": 1}}\n{text}\n', encoding="utf-8")
    (line,) = leaks([tmp_path / "runs"], tmp_path)
    assert line.startswith(f"runs/live/mine/state.jsonl: line 2 holds what looks like a secret ({kind}); ")
    assert SAMPLES[kind] not in line and BODY not in line


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_like_one(text: str) -> None:
    assert list(secrets_in(text)) == []


def test_all_of_them_and_files_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(
        b"\xff\x00" + SAMPLES["openai_key"].encode() + b"\n" + SAMPLES["jwt"].encode()
    )
    (tmp_path / "b").write_text("nothing here", encoding="utf-8")
    (tmp_path / "c").symlink_to("a")
    assert [line.split(" holds")[0] for line in leaks([tmp_path], tmp_path)] == ["a: line 1", "a: line 2"]
    assert len(leaks([tmp_path / "a", tmp_path / "b"], tmp_path)) == 2


def test_the_committed_runs_hold_none() -> None:
    assert leaks([ROOT / "runs"], ROOT) == []
