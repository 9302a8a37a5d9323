"""Secrets of every kind are found in every way in, and ordinary text stays as it is."""

from __future__ import annotations

import json
import re
from base64 import b64encode, encodebytes, urlsafe_b64encode
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tachograph.runtime.redaction.kinds import KINDS, RULES, Rule
from tachograph.runtime.redaction.pieces import Pieces
from tachograph.runtime.redaction.redactor import Redactor, placeholders
from tests.redaction.shapes import KEY_KINDS, SHAPES, draw, ordinary
from tests.redaction.work import search

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
    "hex": lambda text: f"\\x{text.encode().hex()} 0x{text.encode().hex().upper()}",
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
        known = json.dumps(WAYS[way](Redactor([], {"of the environment": text}, KEY), text))
        parts = [secret[at : at + 12] for at in range(len(secret) - 11)]
        is_left = any(search.holds(it.encode()) or "<secret:" not in it for it in (shown, known))
        if is_left or any(part in shown + known for part in parts):
            left.append(name)
        if not search.holds(json.dumps(WAYS[way](Redactor([], {}, KEY), text)).encode()):
            missed.append(name)
    assert (left, missed) == ([], [])


def test_what_stands_beside_a_secret_stays_and_the_secret_can_be_put_back() -> None:
    for name, seed in product(SHAPES, "abc"):
        text, _ = draw(name, seed)
        whole = (
            f"Here: {text}"
            if "-----END" not in text and "-----BEGIN" in text
            else f'Here: {text} "and" {text} so.'
        )
        redactor = Redactor(KEY_KINDS, {}, KEY)
        once = redactor.text(whole)
        assert redactor.text(once) == once, name
        assert redactor.reveal(once, KINDS) == whole, name
        assert once.startswith("Here: ") and once.endswith((" so.", ">")), name


TEXTS = [draw(name)[0] for name in SHAPES] + ["someone@mail.test"]


def found_by(rule: Rule) -> list[str]:
    """Return the texts with a secret in which a rule finds one."""
    likely = [text for text in TEXTS if any(needle in text.lower() for needle in rule.needles)]
    return [text for text in likely if rule.find(text, text.lower())]


def test_every_rule_finds_one_of_the_shapes() -> None:
    assert [rule.name for rule in RULES if not (found_by(rule) and rule.source)] == []
    assert len({rule.name for rule in RULES}) == len(RULES) >= 200


@pytest.mark.parametrize("put", IN_TEXT.values(), ids=IN_TEXT)
def test_ordinary_text_stays_as_it_is(put: Callable[[str], str]) -> None:
    redactor = Redactor(KEY_KINDS, {}, KEY)
    for text in ordinary():
        assert redactor.text(put(text)) == put(text)
        assert in_pieces(redactor, put(text), 5) == put(text)


@pytest.mark.parametrize(
    "end", ["some-ordinary-words-of-2026-and-no-key", "A_NAME_OF_2026_THAT_IS_LONG_AND_NO_KEY"]
)
def test_words_that_begin_as_a_secret_does_stay(end: str) -> None:
    begins = {begin for rule in RULES for needle in rule.needles for begin in (needle, needle.upper())}
    for begin in sorted(begins - {"@"}):
        text = f"{begin}{end}{end.replace('-', '_')}"
        assert Redactor(KEY_KINDS, {}, KEY).text(text) == text


def test_the_source_the_pages_and_the_lock_of_this_project_stay() -> None:
    redactor = Redactor(KEY_KINDS, {}, KEY)
    root = Path(__file__).parents[2]
    files = [*root.glob("src/**/*"), *root.glob("docs/*.md"), *root.glob("*.*")]
    texts = [file.read_text() for file in files if file.suffix in (".py", ".json", ".md", ".txt", ".lock")]
    assert len(texts) > 150
    assert [text[:60] for text in texts if redactor.text(text) != text] == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("postgres://app:S1x2y3z4@db.test/x user=y", "postgres://app:<url_password>@db.test/x user=y"),
        ('{"aws_secret_key": "' + "aB1/" * 10 + '", "b": 1}', '{"aws_secret_key": "<aws_secret_key>", "b": 1}'),
        ("access_token: ghp_" + "a1" * 18 + " b", "access_token: <github_token> b"),
        ("https://ghp_" + "a1" * 18 + ":x1y2@h.test/", "https://<github_token>:<url_password>@h.test/"),
        ("login AKIA" + "A1" * 8 + " password s3cr3t!", "login <aws_access_key> password <service_token>"),
        ("AIza" + "a1" * 17 + "bAKIA" + "A1" * 8 + ".x z", "<google_key> z"),
        (encodebytes(b"\xc3\xa9 and so on " * 4 + b"ghp_" + b"a1" * 18).decode() + "x y", "<github_token>\nx y"),
        ("x%3DAKIA" + "A1" * 8 + "%26y", "x%3D<aws_access_key>%26y"),
    ],
)  # fmt: skip
def test_a_placeholder_swallows_nothing_beside_the_secret(text: str, wanted: str) -> None:
    shown = Redactor(KEY_KINDS, {}, KEY).text(text)
    assert in_pieces(Redactor(KEY_KINDS, {}, KEY), text, 3) == shown
    for placeholder, kind in placeholders(shown):
        shown = shown.replace(placeholder, f"<{kind}>")
    assert shown == wanted


HOSTILE = [
    "eyJ-", "a", "a@", "a.", "-----BEGIN ", "bearer ", "sk-", "<secret:", "https://a:", "login a password ", "api_key=",
    "%41", "\\u0041", "\\\\", "M-", "0/1", "password: ", "-----BEGIN PRIVATE KEY-----", "AIza" + "a1" * 17 + "b", ": ",
    ".ab8Q~" + "a1" * 17, "login u password xlogin u ", "a@b.test,", "correct horse ", "A1b2" * 16 + "\n",
]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_text_takes_linear_time(unit: str) -> None:
    """A square of the length would need hours here: the test would stand still, not fail by a clock."""
    redactor = Redactor(KINDS, {"PHRASE": "correct horse battery staple"}, KEY)
    text = unit * (50_000 // len(unit))
    assert in_pieces(redactor, text, 4_987) == redactor.text(text)


def grows(pattern: str, unit: str) -> float:
    """Return how much more work a search is in a text twice as long."""
    short, long = (unit * (size // len(unit) + 1) for size in (400, 800))
    work, found = search(pattern, short)
    assert found == [match.span() for match in re.finditer(pattern, short)]
    return search(pattern, long)[0] / work


def test_the_work_of_every_rule_is_linear() -> None:
    assert grows("ab[a-z]*!", "ab") > 3.5  # a square is seen
    for rule in RULES:
        text = found_by(rule)[0]
        needle = next(needle for needle in rule.needles if needle in text.lower())
        for unit in (text[: text.lower().index(needle) + len(needle)], text[:-1]):
            assert grows(rule.pattern, unit) < 3, (rule.name, unit)
            assert not rule.hint or grows(rule.hint, unit.lower()) < 3, (rule.name, unit)
