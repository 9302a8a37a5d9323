"""Redaction: every kind, numbered by first appearance, and nothing that can pass for a placeholder."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph.runtime.core.redaction import PATTERNS, Redactor
from tachograph.runtime.formats import canonical_json
from tachograph.runtime.formats.canonical_json import freeze, parse
from tachograph.runtime.models.types import read_call

A, B = "Ab1" * 12, "Zy9" * 12
# kind: two secrets of it, put together here so that no file of the repository looks like one that leaks
SECRETS: dict[str, tuple[str, str]] = {
    "anthropic_key": ("sk-" + f"ant-api03-{A}", "sk-" + f"ant-{B}"),
    "aws_access_key": ("AKIA" + "ABCDEFGHIJKLMNOP", "ASIA" + "0123456789ABCDEF"),
    "bearer_token": (f"Bearer {A}", f"bearer  {B}=="),
    "email": ("a.b+c" + "@" + "mail.example.test", "x" + "@" + "y.test"),
    "github_token": ("ghp_" + A, "github_pat_" + B),
    "google_key": ("AIza" + A[:35], "AIza" + B[:35]),
    "jwt": (f"eyJ{A}.eyJ{A}.{A}", f"eyJ{B}.eyJ{B}.{B}"),
    "openai_key": ("sk-" + A, "sk-proj-" + B),
    "private_key": (
        "-----BEGIN RSA " + "PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN " + "PRIVATE KEY-----\nwithout an end",
    ),
    "slack_token": ("xoxb-" + A, "xoxp-" + B),
}
ALL = Redactor(list(PATTERNS))
PLACEHOLDER = re.compile(r"<secret:(\w+):([1-9][0-9]*)>")


def test_every_kind_has_its_examples() -> None:
    assert set(SECRETS) == set(PATTERNS)


@pytest.mark.parametrize("kind", SECRETS)
def test_a_kind_alone(kind: str) -> None:
    one, two = SECRETS[kind]
    redact = Redactor([kind])
    assert redact(f"<{one}>") == f"<<secret:{kind}:1>>"
    assert redact(two) == f"<secret:{kind}:2>"
    assert redact(f"{one} {one}" if kind != "private_key" else one).count(f"<secret:{kind}:1>") >= 1
    others = Redactor([other for other in PATTERNS if other != kind])
    assert Redactor([])(one) == one
    assert f":{kind}:" not in others(one)


@pytest.mark.parametrize("kind", SECRETS)
def test_a_kind_beside_the_others_leaves_nothing_of_the_secret(kind: str) -> None:
    for secret in SECRETS[kind]:
        out = Redactor(list(PATTERNS))(f"see {secret} there")
        assert PLACEHOLDER.search(out)
        for part in (A, B, "mail.example", "ABCDEFGHIJKLMNOP", "abc\n", "0123456789ABCDEF"):
            assert part not in out


@pytest.mark.parametrize(
    "text",
    ["", "sk-short", "AKIA", "bearer of news", "a@b", "@home", "eyJ.eyJ.x", "xoxb-1", "-----BEGIN CERTIFICATE-----",
     "task-force", "gh_x", "AIza", "1 < 2", "<secret", "risk-" + "a" * 9, "sky-" + "a" * 30],
)  # fmt: skip
def test_text_without_secrets_stays(text: str) -> None:
    assert Redactor(list(PATTERNS))(text) == text


def test_numbers_follow_the_first_appearance_and_equal_secrets_share_one() -> None:
    redact = Redactor(["email", "aws_access_key"])
    (e1, e2), (k1, k2) = SECRETS["email"], SECRETS["aws_access_key"]
    assert (
        redact(f"{e2} {k2} {e1} {e2}")
        == "<secret:email:1> <secret:aws_access_key:1> <secret:email:2> <secret:email:1>"
    )
    assert redact(f"{k1},{e1}") == "<secret:aws_access_key:2>,<secret:email:2>"


def test_two_runs_number_alike_and_know_nothing_of_each_other() -> None:
    text = " ".join(SECRETS["email"])
    assert Redactor(["email"])(text) == Redactor(["email"])(text)


@pytest.mark.parametrize("kind", SECRETS)
def test_the_order_of_kinds_in_the_policy_does_not_matter(kind: str) -> None:
    kinds = [kind, *(other for other in PATTERNS if other != kind)]
    for secret in SECRETS[kind]:
        assert Redactor(kinds)(secret) == Redactor(list(PATTERNS))(secret)


# ---- placeholders cannot be forged -------------------------------------------------------------------------


def test_what_looks_like_a_placeholder_is_escaped() -> None:
    redact = Redactor(["email"])
    assert redact("<secret:email:1>") == "<secret::email:1>"
    assert redact("<secret::email:1>") == "<secret:::email:1>"
    assert redact("<<secret:<secret:") == "<<secret::<secret::"


PIECES = st.sampled_from(
    [
        "<secret:",
        "<secret",
        ":",
        "email",
        ":1>",
        "<",
        ">",
        "secret:",
        "1",
        "<secret:email:1>",
        "a@b.test",
        " ",
        "Bearer ",
        "x" * 20,
    ]
)


@given(st.lists(PIECES, max_size=8).map("".join))
def test_every_placeholder_in_the_output_stands_for_a_secret(text: str) -> None:
    """Each one can be put back: with the secrets in place of the placeholders, the input comes out again."""
    redact = Redactor(["email", "bearer_token"])
    out = redact(text)
    given_out = {f"<secret:{kind}:{number}>": secret for (kind, secret), number in redact._numbers.items()}
    found = {match.group() for match in PLACEHOLDER.finditer(out)}
    assert found == set(given_out)
    for placeholder, secret in given_out.items():
        out = out.replace(placeholder, secret)
    assert out.replace("<secret::", "<secret:") == text


@given(st.text(max_size=40), st.text(max_size=40))
def test_two_texts_never_become_one(one: str, two: str) -> None:
    redact = Redactor(["email"])
    assert (redact(one) == redact(two)) == (one == two)


# ---- data --------------------------------------------------------------------------------------------------


def test_secrets_behind_json_escapes_are_found() -> None:
    secret = SECRETS["anthropic_key"][0]
    escaped = "".join(f"\\u{ord(c):04x}" if i % 3 == 0 else c for i, c in enumerate(secret))
    assert secret not in escaped and json.loads(f'"{escaped}"') == secret
    call = read_call("i", "t", f'{{"a":["{escaped}"]}}', Redactor(["anthropic_key"]))
    assert call.arguments is not None
    assert call.arguments.text == '{"a":["<secret:anthropic_key:1>"]}'


def test_keys_are_redacted_too() -> None:
    one, two = SECRETS["email"]
    redacted = Redactor(["email"]).data(freeze({one: {two: [one]}, "n": [1, True, None]}))
    assert redacted.value() == {
        "<secret:email:1>": {"<secret:email:2>": ["<secret:email:1>"]},
        "n": [1, True, None],
    }


def test_no_two_keys_become_one() -> None:
    keys = [*SECRETS["email"], "<secret:email:1>", "<secret::email:1>", "<secret:email:2>", "secret"]
    redacted = Redactor(["email"]).data(freeze(dict.fromkeys(keys, 0)))
    assert len(redacted.value()) == len(keys)


def test_without_kinds_data_comes_back_as_it_is() -> None:
    data = freeze({"a": SECRETS["email"][0], "b": "<secret:email:1>"})
    assert Redactor([]).data(data) is data


JSON = st.recursive(
    st.none() | st.integers(-9, 9) | st.sampled_from([*SECRETS["email"], "<secret:", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", *SECRETS["email"]]), inner),
)  # fmt: skip


@given(JSON)
def test_redacted_data_is_canonical_and_holds_no_secret(data: Any) -> None:
    redacted = Redactor(["email"]).data(freeze(data))
    assert parse(redacted.text) == redacted
    assert not any(secret in redacted.text for secret in SECRETS["email"])
    assert isinstance(canonical_json.encode(redacted.value()), str)


@pytest.mark.parametrize(
    "unit",
    [
        "eyJ-",
        "eyJ_",
        "eyJaaaaaaaa.",
        "eyJaaaaaaaa.eyJ.",
        "a",
        "a@",
        "a.",
        "-----BEGIN ",
        "bearer ",
        "sk-",
        "xox",
        "gh",
        "AKIA",
        "PRIVATE KEY ",
        "<secret:",
    ],
)
def test_hostile_text_takes_linear_time(unit: str) -> None:
    """A quadratic pattern would need minutes here: the test would stand still, not fail by a clock."""
    redact = Redactor(list(PATTERNS))
    text = "-----BEGIN " + unit * (600_000 // len(unit))
    assert redact(text)


def test_a_token_behind_a_word_and_a_dash_is_found() -> None:
    token = SECRETS["jwt"][0]
    for text in (f"token-{token}", f"x={token}", f"_{token}", f"-{token}"):
        assert A not in Redactor(["jwt"])(text)


def test_a_model_may_repeat_the_placeholders_that_were_given_out_and_forge_none() -> None:
    redactor = Redactor(["email"])
    assert redactor("a@b.example and c@d.example") == "<secret:email:1> and <secret:email:2>"
    model = redactor.for_model_output()
    assert model("I saw <secret:email:2>.") == "I saw <secret:email:2>."
    for forged in ("<secret:email:3>", "<secret:email:01>", "<secret:jwt:1>", "<secret:", "<secret:email:1"):
        assert model(forged) == forged.replace("<secret:", "<secret::")
    # a new secret of a model's counts on from the shared numbers
    assert model("e@f.example") == "<secret:email:3>"
    assert redactor("e@f.example, <secret:email:1>") == "<secret:email:3>, <secret::email:1>"
