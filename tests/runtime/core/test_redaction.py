"""Redaction: every kind, numbered by first appearance, and nothing that can pass for a placeholder."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph.fail.errors import InputError
from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.core.secret_kinds import KEY_KINDS, NEEDLES, PATTERNS
from tachograph.runtime.formats import canonical_json
from tachograph.runtime.formats.canonical_json import freeze, parse
from tachograph.runtime.models.types import read_call

A, B = "Ab1" * 12, "Zy9" * 12
# kind: two secrets of it, put together here so that no file of the repository looks like one that leaks
SECRETS: dict[str, tuple[str, str]] = {
    "anthropic_key": ("sk-" + f"ant-api03-{A}", "sk-" + f"ant-{B}"),
    "aws_access_key": ("AKIA" + "ABCDEFGHIJKLMNOP", "ASIA" + "0123456789ABCDEF"),
    "aws_secret_key": (f"aws_secret_access_key = {(A + B)[:40]}", f"AWS_SECRET_KEY:'{(B + A)[:40]}'"),
    "bearer_token": (f"Bearer {A}", f"bearer  {B}=="),
    "email": ("a.b+c" + "@" + "mail.example.test", "x" + "@" + "y.test"),
    "github_token": ("ghp_" + A, "github_pat_" + B),
    "gitlab_token": ("glpat" + "-" + A[:20], "gldt" + "-" + B[:24]),
    "google_key": ("AIza" + A[:35], "AIza" + B[:35]),
    "huggingface_token": ("hf" + "_" + A[:34], "hf" + "_" + B[:34]),
    "jwt": (f"eyJ{A}.eyJ{A}.{A}", f"eyJ{B}.eyJ{B}.{B}"),
    "npm_token": ("npm" + "_" + A[:36], "npm" + "_" + B[:36]),
    "openai_key": ("sk-" + A, "sk-proj-" + B),
    "private_key": (
        "-----BEGIN RSA " + "PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN " + "PRIVATE KEY-----\nwithout an end",
    ),
    "pypi_token": ("pypi" + "-AgE" + A, "pypi" + "-AgE" + B),
    "service_token": ("gsk" + "_" + A + A[:12], "SG" + f".{B[:22]}.{A}{A[:7]}"),
    "slack_token": ("xoxb-" + A, "xoxp-" + B),
    "stripe_key": ("sk" + "_live_" + A, "rk" + "_test_" + B),
    "url_password": (f"https://someone:{A}@host.test/", f"postgres://app:{B}@[::1]/db"),
    "webhook_url": (
        "https://hooks.slack." + f"com/services/T1/{A}",
        "https://discord.com/api/" + f"webhooks/123/{A}{B}",
    ),
}
# kinds of which only a part is the secret: what stands around it stays
IN_CONTEXT = {"aws_secret_key", "url_password"}
ALL = Redactor(list(PATTERNS))
PLACEHOLDER = re.compile(r"<secret:(\w+):([1-9][0-9]*)>")


def test_every_kind_has_its_examples() -> None:
    assert set(SECRETS) == set(PATTERNS)


@pytest.mark.parametrize("kind", SECRETS)
def test_a_kind_alone(kind: str) -> None:
    one, two = SECRETS[kind]
    redact = Redactor([kind])
    assert f"<secret:{kind}:1>" in redact(f"<{one}>")
    assert f"<secret:{kind}:2>" in redact(two)
    if kind not in IN_CONTEXT:
        assert redact(f"<{one}>") == f"<<secret:{kind}:1>>"
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


# ---- what stands around a secret ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"https://app:{A}@host.test/a?b=c", "https://app:<secret:url_password:1>@host.test/a?b=c"),
        (f"postgres://:{A}@[::1]:5432/db user=x", "postgres://:<secret:url_password:1>@[::1]:5432/db user=x"),
        (
            f"aws_secret_access_key={(A + B)[:40]}&region=eu",
            "aws_secret_access_key=<secret:aws_secret_key:1>&region=eu",
        ),
        (
            f'{{"aws_secret_key": "{(A + B)[:40]}", "user": "x"}}',
            '{"aws_secret_key": "<secret:aws_secret_key:1>", "user": "x"}',
        ),
        (f"key=sk-{A}&user=x", "key=<secret:openai_key:1>&user=x"),
        (f'{{"key":"ghp_{A}","user":"x"}}', '{"key":"<secret:github_token:1>","user":"x"}'),
        (f"Bearer {A}, user=x", "<secret:bearer_token:1>, user=x"),
    ],
)
def test_a_placeholder_swallows_no_field_beside_the_secret(text: str, wanted: str) -> None:
    assert Redactor(list(KEY_KINDS))(text) == wanted


@pytest.mark.parametrize("kind", SECRETS)
def test_the_hints_of_a_kind_stand_in_each_of_its_secrets(kind: str) -> None:
    """Whatever the case of the letters: a text without a hint is not searched at all."""
    for secret in SECRETS[kind]:
        assert any(needle in secret.lower() for needle in NEEDLES[kind])
    assert all(needle == needle.lower() for needle in NEEDLES[kind])


@given(
    st.lists(
        st.sampled_from([needle for needles in NEEDLES.values() for needle in needles]) | st.text(max_size=3)
    )
)
def test_a_kind_is_searched_where_one_of_its_hints_stands(pieces: list[str]) -> None:
    text = "x".join(pieces)
    wanted = [kind for kind in PATTERNS if any(needle in text.lower() for needle in NEEDLES[kind])]
    pattern = Redactor(list(PATTERNS)).pattern_for(text)
    found = () if pattern is None else pattern.groupindex
    assert [kind for kind in found if kind in PATTERNS] == wanted


def test_the_longest_of_known_secrets_is_replaced_first() -> None:
    short, long = "abcdefgh", "abcdefghijkl"
    for values in ([("api_key", short), ("env", long)], [("env", long), ("api_key", short)]):
        redact = Redactor([], values)
        assert redact(f"{long} {short}") == "<secret:env:1> <secret:api_key:1>"


def test_a_known_secret_that_is_too_short_is_refused() -> None:
    with pytest.raises(InputError, match="fewer than 8 characters"):
        Redactor([], [("api_key", "seven77")])
    assert Redactor([], [("api_key", "")]).is_noop


def test_a_pattern_of_the_policy_is_a_kind_like_another() -> None:
    redact = Redactor(["email"], patterns={"customer": "C-[0-9]{4}"})
    assert redact("C-1234 a@b.test C-5678 C-1234") == (
        "<secret:customer:1> <secret:email:1> <secret:customer:2> <secret:customer:1>"
    )


# ---- numbers over a resume, and back to secrets ------------------------------------------------------------------


def test_numbers_survive_a_resume_without_the_secrets() -> None:
    one, two = Redactor(["email"]), Redactor(["email"])
    one.restore_numbers(b"key", ())
    one("a@b.test c@d.test")
    told = one.new_numbers()
    assert one.new_numbers() == [] and "b.test" not in json.dumps(told)
    two.restore_numbers(b"key", told)
    two.restore_counters({"email": 2})
    assert two("e@f.test c@d.test a@b.test") == "<secret:email:3> <secret:email:2> <secret:email:1>"
    other = Redactor(["email"])
    other.restore_numbers(b"another key", told)
    assert other("c@d.test") == "<secret:email:1>", "the digests are keyed"


def test_a_placeholder_is_resolved_only_for_the_kinds_that_are_granted() -> None:
    redact = Redactor(["email"], [("env", "long value")])
    shown = redact("a@b.test long value <secret:email:1>")
    data = {"to": shown}
    assert redact.reveal(data, ("email",)) == ({"to": "a@b.test <secret:env:1> <secret::email:1>"}, None)
    assert redact.reveal(data, ()) == (data, None)
    assert redact.reveal({"to": "<secret:email:7>"}, ("email",)) == ({"to": "<secret:email:7>"}, ("email", 7))


def test_a_secret_that_only_its_name_tells_is_found_under_that_name() -> None:
    value = (A + B)[:40]
    redact = Redactor(["aws_secret_key", "github_token"])
    data = {
        "keys": [{"aws_secret_access_key": value, "Region": "eu"}, {"AWS_SECRET_KEY": f"{value}"}],
        "github": "ghp_" + A,
        "aws_secret_access_key": "ask me",
        "digest": value,
    }
    assert redact.data(freeze(data)).value() == {
        "keys": [
            {"aws_secret_access_key": "<secret:aws_secret_key:1>", "Region": "eu"},
            {"AWS_SECRET_KEY": "<secret:aws_secret_key:1>"},
        ],
        "github": "<secret:github_token:1>",
        "aws_secret_access_key": "ask me",
        "digest": value,
    }
    assert Redactor(["github_token"]).data(freeze(data)).value()["keys"] == data["keys"]
    said = {"aws_secret_access_key": f"<secret:x:1> {value}"}
    assert redact.data(freeze(said)).value() == {"aws_secret_access_key": f"<secret::x:1> {value}"}
