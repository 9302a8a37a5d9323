"""Mount paths: the plain forms pass, every disguise is refused, and every Python says the same."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.runtime.formats import invisible_chars as unseen
from tachograph.runtime.resources import mount_path
from tachograph.runtime.resources.mount_path import MountPath, parse_path
from tachograph.runtime.resources.url import Malformed

QUIET = settings(deadline=None, database=None)
EVERY = "".join(map(chr, range(0x110000)))


def reason(text: Any) -> str:
    with pytest.raises(Malformed) as caught:
        parse_path(text)
    found = caught.value.reason
    assert found.isascii() and found.isprintable() and len(found) <= 160, found
    return found


def passes(text: str) -> bool:
    try:
        return parse_path(text).text == text
    except Malformed:
        return False


@pytest.mark.parametrize("text", [
    "corpus/op-a3.md", "a/b/c", "sandbox/100%2e.txt", "m-1_x/.hidden", "m/...", "m/~user", "m/a b", "m/é☃", "m/a:b",
    "m/-rf", "m/" + "x" * 255, "m/" + "/".join(["y" * 100] * 10), "m/.tachograph", "m/.tachograph-1.tmp",
    "m/.tachograph-1-0.tmp.md", "m/a\u00a0b", "m/a\u3000b",
])  # fmt: skip
def test_paths(text: str) -> None:
    path = parse_path(text)
    assert path.text == text and (path.mount, *path.parts) == tuple(text.split("/"))


@pytest.mark.parametrize("text", [
    None, b"m/a", "", "m", "m/", "/", "/etc/passwd", "//m/a", "m//a", "m/a/", "./m/a", "../m", "m/.", "m/..", "m/../a",
    "m/a/../../b", "~/a", "~root/a", "c:/a", "C:a", "file:///etc", "http://a/b", "M/a", "1m/a", "m.x/a", "é/a",
    "m\\a", "m/a\\b", "m/a\0", "m/a\nb", "m/a\tb", "m/\x1b[2J", "m/\ud800", "m/\u200b", "m/a\u202eb", "m/\ufeff",
    "m/\u2028", "m/e\u0301", "m/\u212b", "m/\u00ad", "m/a\ufe0f", "m/\u3164", "m/\ue000", "m/" + "x" * 256,
    "m/" + "é" * 128, "m/a" * 400, "a" * 33 + "/b", "m/" + "/".join(["y" * 100] * 11), " m/a", "m /a",
    "m/\U000e0041", "m/\u2800", "m/\ufdd0", "m/\U0010ffff", "m/\u0605",
])  # fmt: skip
def test_refused_paths(text: Any) -> None:
    reason(text)


def test_what_a_write_under_way_leaves_has_no_path() -> None:
    for path in ("m/.tachograph-1-0.tmp", "m/a/.tachograph-4711-99999.tmp", "m/.tachograph-1-0.tmp/x"):
        assert "unfinished" in reason(path)


class Lying(str):
    """Text that says something else each time it is asked what it is."""

    def __eq__(self, _other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash("box/x")

    def __str__(self) -> str:
        return "box/x"

    def split(self, *_: Any) -> list[Any]:
        return ["box", "x"]


def test_text_of_another_class_is_read_as_the_text_that_it_is() -> None:
    assert parse_path("box/x") == MountPath("box", ("x",))
    assert parse_path(Lying("desk/y")) == MountPath("desk", ("y",))
    assert type(parse_path(Lying("desk/y")).mount) is str
    reason(Lying("../x"))
    assert parse_path("box/x") == MountPath("box", ("x",))


@settings(QUIET, max_examples=800)
@given(
    st.text(max_size=60) | st.text("m/a.\\~\u200d\u0301é\ud800", max_size=12).map("m/".__add__) | st.none()
)
def test_any_text_is_read_or_malformed(text: Any) -> None:
    try:
        found = parse_path(text)
    except Malformed as error:
        assert error.reason.isascii() and error.reason.isprintable() and len(error.reason) <= 160
    else:
        assert found.text == text and parse_path(found.text) == found


# ---- what nobody sees --------------------------------------------------------------------------------------

NAMES = """
r\u00e9sum\u00e9.pdf \u65e5\u672c\u8a9e.md \u2764\ufe0f.md \U0001f468\u200d\U0001f469\u200d\U0001f467.jpg
\U0001f3f3\ufe0f\u200d\U0001f308 \U0001f469\U0001f3fd\u200d\U0001f4bb 1\ufe0f\u20e3.md #\ufe0f\u20e3 \xa9\ufe0e
\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645.txt \u0dc1\u0dca\u200d\u0dbb\u0dd3.txt \u0915\u094d\u200d\u0937
\u1000\u103c\u1014\u103a\u1019\u102c \U0001f1e9\U0001f1ea.md \U0001fae8.md
""".split()
STRAY = """
a\u200db \u200da a\u200d \u200d a\u200c\u200db \u0645\u200c \u200c\u0645 \u0645\u200c\u200c\u06cc \u0645\u200ca
a\u200c\u0645 \u1e3f\u200d\u1e3f \u03b1\u200c\u03b2 a\ufe0f 1\ufe0f 1\ufe0e.md \ufe0f x\ufe0f\u20e3 \u65e5\ufe0f
\u2764\ufe0f\ufe0f \u2764\ufe00
""".split()


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_names_of_all_scripts_and_emoji_pass(name: str) -> None:
    assert parse_path(f"box/{name}").parts == (name,)


@pytest.mark.parametrize("name", STRAY, ids=ascii)
def test_a_joiner_or_selector_that_shapes_nothing_is_refused(name: str) -> None:
    assert re.search("U\\+(200C|200D|FE0[0EF])", reason(f"box/{name}"))


def test_every_character_that_is_no_sign_is_refused() -> None:
    """Against the interpreter's tables: what they call a control, format, private or separating character."""
    for character in EVERY:
        kind = unicodedata.category(character)
        if kind in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp"):
            assert not passes(f"m/a{character}b") and unseen.HIDDEN.match(character), f"{ord(character):x}"
        elif kind == "Zs" and character != " ":
            assert unseen.HIDDEN.match(character)
        elif unseen.HIDDEN.match(character):
            assert kind in ("Cn", "Mn", "Lo", "So"), f"{ord(character):x}"
    assert unseen.HIDDEN.search(" ~é\U0001fae8\u0897") is None


def _digest(verdicts: list[bool]) -> str:
    return hashlib.sha256(bytes(verdicts)).hexdigest()[:16]


def test_the_verdicts_are_the_same_on_every_python() -> None:
    """Pinned: none of this may change with the interpreter's version of Unicode."""
    refused = [match.start() for match in mount_path._UNSEEN.finditer(EVERY)]
    assert hashlib.sha256(repr(refused).encode()).hexdigest()[:16] == "dec4d2193942c372"
    hidden = [match.start() for match in unseen.HIDDEN.finditer(EVERY)]
    assert hashlib.sha256(repr(hidden).encode()).hexdigest()[:16] == "7e0cb755b0060ba4"
    late = "\u0897\u1abf\u1acf\U00010d69\U0001e4ec\U0001e4ed\U0001e6e3\U000105c9\U0001fae9"
    old = unicodedata.ucd_3_2_0
    marks = [c for c in EVERY[:0x3100] if old.combining(c) and old.category(c) != "Cn"]
    composed = [
        mount_path._is_composed(f"{a}{b}") for a in (*"a\u0323\u0301\u1100", *late) for b in (*marks, *late)
    ]
    assert _digest(composed) == "1927d4a59d94e327"
    assert all(passes(f"m/{character}") for character in late)
