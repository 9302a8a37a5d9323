"""Secrets of every kind are found in every way in, and ordinary text stays as it is."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from tachograph.runtime.redaction.kinds import KEY_KINDS, KINDS, RULES
from tachograph.runtime.redaction.pieces import Pieces
from tachograph.runtime.redaction.redactor import Redactor
from tests.redaction.shapes import SHAPES, draw, ordinary

KEY = bytes(32)


def in_pieces(redactor: Redactor, text: str, size: int) -> str:
    pieces = Pieces(redactor)
    shown = [pieces.feed(text[at : at + size]) for at in range(0, len(text), size)]
    return "".join([*shown, pieces.end()])


IN_TEXT: dict[str, Callable[[str], str]] = {
    "alone": lambda text: text,
    "prose": lambda text: f"Please use {text} for now.",
    "code": lambda text: f"value = '{text}'\n",
    "escaped": lambda text: rf"first\n{text}\nlast",
    "JSON": lambda text: json.dumps({"note": f"see {text}\n"}),
    "JSON in JSON": lambda text: json.dumps({"note": json.dumps({"note": f"\n{text}\n"})}),
}
IN_DATA: dict[str, Callable[[str], Any]] = {
    **IN_TEXT,
    "URL": lambda text: f"https://host.test/a?b=c&q={quote(text, '')}&d=e",
    "base64": lambda text: f"data: {b64encode(text.encode()).decode()} end",
    "base64 of URLs": lambda text: urlsafe_b64encode(f"see {text}".encode()).decode(),
    "value": lambda text: {"note": text},
    "key": lambda text: {text: 1},
    "deep": lambda text: [{"a": [1, None, {"b": [f"x\n{text}"]}]}],
}
WAYS: dict[str, Callable[[Redactor, str], Any]] = {
    **{name: (lambda redactor, text, put=put: redactor.data(put(text))) for name, put in IN_DATA.items()},
    "letters": lambda redactor, text: in_pieces(redactor, f"I was told {text} by one.", 1),
    "pieces": lambda redactor, text: in_pieces(redactor, f"I was told {text} by one.", 7),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_planted_secret_is_left_and_without_redaction_each_is_found(way: str) -> None:
    left, missed = [], []
    for name in SHAPES:
        text, secret = draw(name)
        search = Redactor([], {"planted": secret}, KEY)
        shown = json.dumps(WAYS[way](Redactor(KEY_KINDS, {}, KEY), text))
        parts = [secret[at : at + 12] for at in range(len(secret) - 11)]
        if search.holds(shown.encode()) or any(part in shown for part in parts) or "<secret:" not in shown:
            left.append(name)
        if not search.holds(json.dumps(WAYS[way](Redactor([], {}, KEY), text)).encode()):
            missed.append(name)
    assert (left, missed) == ([], [])


@pytest.mark.parametrize("name", SHAPES)
def test_what_stands_beside_a_secret_stays_and_the_secret_can_be_put_back(name: str) -> None:
    for seed in "abc":
        text, _ = draw(name, seed)
        whole = (
            f"Here: {text}"
            if "-----END" not in text and "-----BEGIN" in text
            else f'Here: {text} "and" {text} so.'
        )
        redactor = Redactor(KEY_KINDS, {}, KEY)
        once = redactor.text(whole)
        assert redactor.text(once) == once
        assert redactor.reveal(once, KINDS) == whole
        assert once.startswith("Here: ")
        assert once.endswith((" so.", ">"))


def test_every_rule_finds_one_of_the_shapes() -> None:
    texts = [draw(name)[0] for name in SHAPES] + ["someone@mail.test"]
    lower = [text.lower() for text in texts]
    for rule in RULES:
        assert rule.kind in KINDS
        likely = [n for n, text in enumerate(lower) if any(needle in text for needle in rule.needles)]
        assert any(rule.find(texts[n], lower[n]) for n in likely), rule


@pytest.mark.parametrize("put", IN_TEXT.values(), ids=IN_TEXT)
def test_ordinary_text_stays_as_it_is(put: Callable[[str], str]) -> None:
    redactor = Redactor(KEY_KINDS, {}, KEY)
    for text in ordinary():
        assert redactor.text(put(text)) == put(text)
        assert in_pieces(redactor, put(text), 5) == put(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("postgres://app:S1x2y3z4@db.test/x user=y", "postgres://app:<url_password>@db.test/x user=y"),
        ('{"aws_secret_key": "' + "aB1/" * 10 + '", "b": 1}', '{"aws_secret_key": "<aws_secret_key>", "b": 1}'),
        ("access_token: ghp_" + "a1" * 18 + " b", "access_token: <github_token> b"),
        ("https://ghp_" + "a1" * 18 + ":x1y2@h.test/", "https://<github_token>:<url_password>@h.test/"),
        ("login AKIA" + "A1" * 8 + " password s3cr3t!", "login <aws_access_key> password <service_token>"),
        ("AIza" + "a1" * 17 + "bAKIA" + "A1" * 8 + ".x z", "<google_key> z"),
        ("x%3DAKIA" + "A1" * 8 + "%26y", "x%3D<aws_access_key>%26y"),
    ],
)  # fmt: skip
def test_a_placeholder_swallows_nothing_beside_the_secret(text: str, wanted: str) -> None:
    redactor = Redactor(KEY_KINDS, {}, KEY)
    shown = redactor.text(text)
    for kind, placeholder in redactor.found:
        shown = shown.replace(placeholder, f"<{kind}>")
    assert shown == wanted


HOSTILE = [
    "eyJ-", "eyJaaaaaaaa.", "eyJaaaaaaaa.eyJ.", "a", "a@", "a.", "-----BEGIN ", "bearer ", "sk-", "xox", "AKIA",
    "<secret:", "https://", "https://a:", "https://logic.azure.com", "login a password ", "api_key=", "a_token=",
    "%41", "\\u0041", "\\\\", "&sig=", "M-", "0/1", "a-a_", "password: ", "-----BEGIN PRIVATE KEY-----",
    "AIza" + "a1" * 17 + "b", ".ab8Q~" + "a1" * 17, "login u password xlogin u ", "a@b.test,", ": ", "correct horse ",
]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_text_takes_linear_time(unit: str) -> None:
    """A square of the length would need hours here: the test would stand still, not fail by a clock."""
    redactor = Redactor(KINDS, {"PHRASE": "correct horse battery staple"}, KEY)
    text = unit * (250_000 // len(unit))
    assert in_pieces(redactor, text, 9_973) == redactor.text(text)
