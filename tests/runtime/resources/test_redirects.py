"""A Location joined to its base: as RFC 3986 says, or left as it is for the rules to refuse."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.runtime.resources.redirects import redirected
from tachograph.runtime.resources.url import MAX_URL, Malformed, parse_url

ORIGIN = "https://a.test:8443"
BASE = parse_url(f"{ORIGIN}/b/c/d;p?q")


def allowed_anywhere(text: str) -> bool:
    """Whether the text is a URL at all: what is none is allowed by no policy."""
    try:
        parse_url(text)
    except Malformed:
        return False
    return True


# the examples of RFC 3986, 5.4, and what they leave out
JOINED = {
    "g": "/b/c/g", "./g": "/b/c/g", "g/": "/b/c/g/", "/g": "/g", "?y": "/b/c/d;p?y", "g?y": "/b/c/g?y",
    "#s": "/b/c/d;p?q", "g#s": "/b/c/g", "g?y#s": "/b/c/g?y", ";x": "/b/c/;x", "g;x": "/b/c/g;x",
    "g;x?y#s": "/b/c/g;x?y", ".": "/b/c/", "./": "/b/c/", "..": "/b/", "../": "/b/", "../g": "/b/g",
    "../..": "/", "../../": "/", "../../g": "/g", "../../../g": "/g", "../../../../g": "/g", "/./g": "/g",
    "/../g": "/g", "g.": "/b/c/g.", ".g": "/b/c/.g", "g..": "/b/c/g..", "..g": "/b/c/..g", "./../g": "/b/g",
    "./g/.": "/b/c/g/", "g/./h": "/b/c/g/h", "g/../h": "/b/c/h", "g;x=1/./y": "/b/c/g;x=1/y",
    "g;x=1/../y": "/b/c/y", "g?y/./x": "/b/c/g?y/./x", "g?y/../x": "/b/c/g?y/../x",
    "?": "/b/c/d;p?", "/g?": "/g?", "/": "/", "/x//y": "/x//y", "/.//evil.test/x": "//evil.test/x",
    "1:2": "/b/c/1:2", "/%2e%2e/x": "/%2e%2e/x", "x?a=//b": "/b/c/x?a=//b",
}  # fmt: skip


@pytest.mark.parametrize("location", JOINED)
def test_a_relative_location_stays_on_its_origin(location: str) -> None:
    assert redirected(BASE, location) == ORIGIN + JOINED[location]
    assert parse_url(redirected(BASE, location)).origin == ORIGIN


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("//b.test/x", "https://b.test/x"), ("//b.test", "https://b.test"), ("http://b.test", "http://b.test"),
        ("HTTP://B.test/../x#f", "HTTP://B.test/../x#f"), ("ftp://b.test/", "ftp://b.test/"),
        ("javascript:alert(1)", "javascript:alert(1)"), ("a:b", "a:b"),
    ],
)  # fmt: skip
def test_an_absolute_location_is_decided_as_it_is(location: str, url: str) -> None:
    assert redirected(BASE, location) == url


@pytest.mark.parametrize(
    "location",
    ["", " ", " /x", "/x ", "/a b", "/a\tb", "ht\ttp://b.test/", "/\\b.test", "\\\\b.test", "/x\x00", "/x\x7f",
     "/x, /x", "///b.test/", "////b.test/", "//", "//?x", "//#", "http:///x", "https:////b.test/", "https:",
     "https:x", "https:/x", "HTTPS:x", "http:?x", "https://", "http://[::1", "http://[v1.x]/", "//u@b.test/",
     "//b.test:/", "//b.test:99999/", "//b.test:0x50/", "//b.t\xe9st/", "http://b\xff.test/x", "/\u0100", "/\u3002",
     "\u3002/x", "x:\xe9"],
)  # fmt: skip
def test_what_is_not_plain_is_allowed_nowhere(location: str) -> None:
    assert not allowed_anywhere(redirected(BASE, location))


def test_octets_above_ascii_are_encoded_behind_the_authority_alone() -> None:
    assert redirected(BASE, "/caf\xc3\xa9?\xe4#\xff") == f"{ORIGIN}/caf%C3%A9?%E4"
    assert redirected(BASE, "caf\x85") == f"{ORIGIN}/b/c/caf%85"
    assert redirected(BASE, "//b.test/\xc3\xa9") == "https://b.test/%C3%A9"
    assert redirected(BASE, "http://b.test?\xc3\xa9") == "http://b.test?%C3%A9"
    assert redirected(BASE, "http://\xe9.test/\xe9") == "http://\xe9.test/\xe9"
    assert redirected(BASE, "/\xe9 x") == "/\xe9 x"


def test_a_long_location_is_cut_where_it_is_too_long_for_a_url() -> None:
    longest = "/" + "x" * (MAX_URL - len(ORIGIN) - 1)
    assert redirected(BASE, longest) == ORIGIN + longest and allowed_anywhere(ORIGIN + longest)
    for location in (
        longest + "x",
        "/" + "x" * 60_000,
        "/x#" + "y" * 60_000,
        "/x/.." * 5000,
        "/" + "\xff" * 8000,
    ):
        found = redirected(BASE, location)
        assert len(found) == MAX_URL + 1 and not allowed_anywhere(found)


@settings(deadline=None, max_examples=500)
@given(st.text("ab./\\?#;@[]% \t\xe9\u3002", max_size=12))
def test_a_location_without_scheme_and_authority_never_leaves_its_origin(location: str) -> None:
    found = redirected(BASE, location)
    if not location.startswith("//") and allowed_anywhere(found):
        assert parse_url(found).origin == ORIGIN
        assert parse_url(parse_url(found).url) == parse_url(found)
