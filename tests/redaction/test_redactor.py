"""Placeholders are keyed, nobody forges one, and a value comes back only where it is known and may."""

from __future__ import annotations

import hmac
import json
import re
from base64 import b64encode, urlsafe_b64encode
from html import escape
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph.fail.errors import InputError
from tachograph.runtime.log.events import ModelReplied
from tachograph.runtime.log.values import Call, Usage
from tachograph.runtime.redaction.kinds import KINDS, KNOWN
from tachograph.runtime.redaction.redactor import PLACEHOLDER, Redactor, placeholders, scripted_key
from tests.redaction.shapes import SHAPES, draw

KEY = scripted_key("run")
ALL = (*KINDS, KNOWN)
PHRASE, ODD = "correct horse battery staple", 'pä"ss\\w/o+r d=?'
MAIL, TOKEN, FORGED = "zo\xeb@m\xfcll.test", "ghp_" + "a1B2" * 9, "<secret:email:0123ab>"


def redactor(kinds: tuple[str, ...] = KINDS, known: dict[str, str] | None = None) -> Redactor:
    return Redactor(kinds, {"PHRASE": PHRASE, "ODD": ODD} if known is None else known, KEY)


SECRETS = [*(draw(shape)[0] for shape in SHAPES[::4]), PHRASE, ODD, quote(ODD, ""), MAIL, TOKEN]
PARTS = r"= : login password Bearer api_key a1B2c3D4e5F6g7H8 <secret: <secret::email:0123ab> -----BEGIN %20 \n \" %3D"
words = st.sampled_from([*SECRETS, *PARTS.split(), "-p", FORGED, "PRIVATE KEY-----", "correct horse"])
between = st.sampled_from(["", " ", "\n", ", ", "%20"])
texts = st.builds(
    lambda glue, parts: glue.join(parts), between, st.lists(words | st.text(max_size=6), max_size=9)
)
names = texts | st.sampled_from(["password", "api_key", "note", FORGED])
data = st.recursive(
    texts | st.none() | st.integers(-9, 9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=6,
)


def keys_in(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(keys_in, value.values()))
    return sum(map(keys_in, value)) if isinstance(value, list) else 0


@given(data)
def test_redaction_is_done_once_keeps_every_key_and_leaves_no_known_value(value: Any) -> None:
    redact = redactor()
    once = redact.data(value)
    assert redact.data(once) == once
    assert redact.holds(json.dumps(once, ensure_ascii=False).encode()) is None
    assert redact.unknown(once) == []
    assert keys_in(once) == keys_in(value) == keys_in(redact.reveal(once, ALL))


@given(texts)
def test_what_was_given_out_can_be_put_back(text: str) -> None:
    redact = redactor()
    apart = PLACEHOLDER.sub(lambda match: match[0].replace(":", "::", 1), text)
    assert redact.reveal(redact.text(text), ALL) == apart


def test_keys_that_would_be_one_stay_two() -> None:
    assert len(redactor().data({FORGED: 1, FORGED.replace(":", "::", 1): 2})) == 2
    redact = redactor()
    assert sorted(redact.reveal({redact.text(MAIL): 1, MAIL: 2}, ALL).values()) == [1, 2]


def test_a_placeholder_follows_from_key_and_value_alone() -> None:
    one, two = redactor(), redactor(known={})
    two.text(f"{TOKEN} first")
    assert one.text(f"to {MAIL}") == two.text(f"to {MAIL}")
    assert one.text(f"to {MAIL}") != Redactor(KINDS, {}, scripted_key("another run")).text(f"to {MAIL}")
    assert one.text(f"{MAIL} {MAIL}") == f"{one.text(MAIL)} {one.text(MAIL)}"
    assert placeholders(one.text(f"{MAIL} {MAIL}")) == [(one.text(MAIL), "email")]


def test_a_model_may_repeat_what_was_given_out_and_forge_none() -> None:
    redact = redactor()
    shown = redact.text(MAIL)
    assert redact.text(f"to {shown}, and {FORGED}") == f"to {shown}, and <secret::email:0123ab>"
    assert redact.data({FORGED: [FORGED]}) == {"<secret::email:0123ab>": ["<secret::email:0123ab>"]}
    assert redact.text(redact.text(FORGED)) == redact.text(FORGED)
    other = shown[:-2] + ("1>" if shown[-2] == "0" else "0>")
    assert redact.text(other) != other


def test_a_tool_gets_the_kinds_that_it_may_and_no_other() -> None:
    redact = redactor()
    once = redact.data({"to": MAIL, "note": f"{TOKEN} {PHRASE}", MAIL: 1})
    revealed = redact.reveal(once, {"email"})
    assert revealed == {"to": MAIL, "note": once["note"], MAIL: 1}
    assert [kind for _, kind in placeholders(revealed)] == ["github_token", KNOWN]
    assert redact.reveal(once, ()) == once
    assert redact.reveal({"to": FORGED}, ALL) == {"to": FORGED}
    assert redact.unknown({"to": [FORGED, redact.text(MAIL)]}) == [FORGED]


def test_after_a_resume_a_placeholder_is_kept_and_revealed_once_its_value_is_met_again() -> None:
    before, after = redactor(), redactor()
    line = json.dumps(before.data([f"{MAIL} {PHRASE}"])).encode()
    mail, phrase = (placeholder for placeholder, _ in placeholders(json.loads(line)))
    after.admit(line)
    assert after.text(f"to {mail}") == f"to {mail}"
    assert after.unknown([mail, phrase]) == [mail]
    assert after.reveal([mail, phrase], ALL) == [mail, PHRASE]
    after.text(MAIL)
    assert after.unknown([mail, phrase]) == []
    assert after.reveal(mail, ALL) == MAIL


def test_of_two_values_with_one_placeholder_neither_is_revealed() -> None:
    met: dict[str, str] = {}
    for value in (f"a{number}@mail.test" for number in range(200_000)):
        digest = hmac.new(KEY, value.encode(), "sha256").hexdigest()[:6]
        if met.setdefault(digest, value) != value:
            break
    redact = redactor(("email",), {})
    shown = redact.text(value)
    assert redact.reveal(shown, ALL) == value
    assert redact.text(met[digest]) == shown
    assert redact.reveal(shown, ALL) == shown
    assert redact.unknown(shown) == [shown]


HIDDEN = {
    "password": "x",
    "DB_PASSWORD_2": "only letters",
    "api_key": "a1B2c3D4e5F6g7H8",
    "aws_secret_key": "aB1/" * 10,
}
SHOWN = {"note": "a1B2c3D4e5F6g7H8", "api_key": "see the manual", "max_tokens": "4096", "password": ""}


def test_a_value_is_judged_with_its_key_in_view() -> None:
    for name, value in HIDDEN.items():
        redact = redactor()
        once = redact.data({name: [value]})
        assert redact.data({name: value})[name] == once[name][0] == placeholders(once)[0][0]
        assert redact.data({"name": name, "value": value})["value"] == once[name][0]
        for key, own in (("key", "value"), ("Key", "Value"), ("ParameterKey", "ParameterValue")):
            assert redact.data([{own: [value], key: name}])[0][own] == once[name]
        assert redact.data(["x", f"--{name}", value])[2] == once[name][0]
        assert redact.reveal(once, ALL) == {name: [value]}
    assert redactor().data(SHOWN) == SHOWN
    assert "x1y2z3" not in str(redactor().data(["mysql", "-u", "root", "-px1y2z3"]))
    assert redactor().data(["mkdir", "-p", "a1/b2c3d4e5"]) == ["mkdir", "-p", "a1/b2c3d4e5"]


def written(value: str) -> list[str]:
    data, in_json, in_url = value.encode(), json.dumps(value), quote(value, "")
    forms = [value, value.lower(), in_json, json.dumps(value, ensure_ascii=False), json.dumps(in_json)]
    forms += [in_url, in_url.replace("%2F", "%2f").replace("%3D", "%3d"), quote(value), quote_plus(value)]
    forms += [escape(value), re.sub(r"([^\w ])", r"\\\1", value), data.hex(), data.hex().upper(), repr(data)]
    forms += ["".join(form.format(ord(letter)) for letter in value) for form in ("&#{};", "&#x{:X};")]
    forms += [b64encode(b"xyz"[:n] + data + b"end").decode() for n in range(3)]
    return [*forms, urlsafe_b64encode(b"~" + data).decode(), f"Basic {b64encode(b'user:' + data).decode()}"]


@pytest.mark.parametrize("form", range(len(written(ODD))))
@pytest.mark.parametrize("value", [PHRASE, ODD, "plain-word-0", "Ünïcödé-Wörter"])
def test_a_known_value_is_found_in_every_form(value: str, form: int) -> None:
    text = f"a {written(value)[form]} z"
    redact = redactor((), {"X": value})
    shown = redact.text(text)
    assert redactor((), {}).text(text) == text
    assert redact.holds(json.dumps(text, ensure_ascii=False).encode()) == "X"
    assert redact.holds(json.dumps(shown).encode()) is None
    assert placeholders(shown)[0][1] == KNOWN
    assert redact.reveal(shown, ALL) == text


def test_a_known_value_keeps_its_kind_and_its_placeholder_beside_names() -> None:
    redact = redactor(known={"TOKEN": TOKEN})
    placeholder = redact.text(TOKEN)
    assert placeholder.startswith(f"<secret:{KNOWN}:")
    assert redact.data({"password": TOKEN})["password"] == placeholder
    for before in ("Authorization: Bearer ", "access_token=", "https://x:"):
        assert redact.text(f"{before}{TOKEN}@h.test") == f"{before}{placeholder}@h.test"
    key = f"-----BEGIN PRIVATE KEY-----\nabcdefgh {TOKEN} ijklmnop\n-----END PRIVATE KEY-----"
    assert "ijklmnop" not in redact.text(key)


def test_what_stands_beside_a_secret_is_searched_as_if_it_stood_alone() -> None:
    known, other = "X1Y2Z3W4V5", "AKIA" + "A1" * 8
    redact = redactor(known={"X": known})
    for text in (f"{known}{other}", f"{other}{known}"):
        assert "A1A1" not in redact.text(text)
        assert redact.text(redact.text(text)) == redact.text(text)


def test_the_strings_of_a_line_are_redacted_and_nothing_else() -> None:
    redact = redactor()
    calls = [Call("tc_1_0", "login", {"password": "x", PHRASE: [1]}), Call("tc_1_1", "t", text=f'{{"{TOKEN}')]
    reply = ModelReplied(at="1.m1", text=f"{MAIL} says {PHRASE}", calls=calls, usage=Usage(1, 1))
    hidden = redact.struct(reply)
    assert not any(value in repr(hidden) for value in (MAIL, PHRASE, TOKEN, "'x'"))
    assert (hidden.at, hidden.usage, hidden.calls[0].name) == (reply.at, reply.usage, "login")
    assert redact.struct(hidden) is hidden


def test_without_kinds_and_values_all_stays() -> None:
    off = Redactor((), {}, KEY)
    value = {"password": TOKEN, FORGED: FORGED}
    assert off.data(value) == value
    assert (off.text(FORGED), off.given_out, off.holds(TOKEN.encode())) == (FORGED, {}, None)


@pytest.mark.parametrize("known", [{"SHORT": "seven77"}, {"BLANK": " " * 9}, {}])
def test_what_cannot_be_redacted_is_refused(known: dict[str, str]) -> None:
    with pytest.raises(InputError):
        Redactor(() if known else ("no_kind",), known, KEY)
