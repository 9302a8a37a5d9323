"""URLs and allowlists: the plain forms pass, every disguise is refused."""

from __future__ import annotations

import string
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.runtime.resources.url import (
    MAX_URL,
    Allowlist,
    Entry,
    Malformed,
    Target,
    parse_entry,
    parse_host,
    parse_url,
)

QUIET = settings(deadline=None, database=None)
HOST = "docs.test"


def reason(call: Callable[[Any], Any], text: Any) -> str:
    with pytest.raises(Malformed) as caught:
        call(text)
    found = caught.value.reason
    assert found.isascii() and found.isprintable() and len(found) <= 160, found
    return found


# ---- URLs --------------------------------------------------------------------------------------------------

URLS: list[tuple[str, Target, str]] = [
    ("https://a.test", Target("https", "a.test", 443, "/", None), "https://a.test/"),
    ("HTTPS://A.Test:443/x", Target("https", "a.test", 443, "/x", None), "https://a.test/x"),
    ("http://a.test:8080/?q#f", Target("http", "a.test", 8080, "/", "q"), "http://a.test:8080/?q"),
    ("http://a.test?", Target("http", "a.test", 80, "/", ""), "http://a.test/?"),
    ("https://a.test/x?u=b@c?d", Target("https", "a.test", 443, "/x", "u=b@c?d"), "https://a.test/x?u=b@c?d"),
    ("https://a.test#@b/", Target("https", "a.test", 443, "/", None), "https://a.test/"),
    ("http://127.0.0.1/", Target("http", "127.0.0.1", 80, "/", None), "http://127.0.0.1/"),
    ("http://[2001:DB8::1]:81", Target("http", "2001:db8::1", 81, "/", None), "http://[2001:db8::1]:81/"),
    ("https://xn--bcher-kva.test/%2e", Target("https", "xn--bcher-kva.test", 443, "/%2e", None),
     "https://xn--bcher-kva.test/%2e"),
    ("https://a_b.test/", Target("https", "a_b.test", 443, "/", None), "https://a_b.test/"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "target", "url"), URLS)
def test_urls(text: str, target: Target, url: str) -> None:
    assert parse_url(text) == target
    assert target.url == url == target.origin + url[len(target.origin) :]
    assert parse_url(target.url) == target


REFUSED_URLS: list[tuple[Any, str]] = [
    (None, "text"), (b"https://a.test", "text"), ("", "empty"), ("https://" + "a" * 9000, "characters"),
    ("a.test", "http"), ("//a.test/", "http"), ("https:/a.test", "http"), ("ftp://a.test/", "http"),
    ("https://", "has no host"), ("https:///x", "has no host"), ("https://:80/", "has no host"),
    ("https://u@a.test/", "user"), ("https://@a.test/", "user"), ("https://a.test\\@b.test/", "backslash"),
    ("https://a.test/\\", "backslash"), ("https://a.test/ x", "U+0020"), ("https://a.test/\u00e9", "U+00E9"),
    ("https://a.test:/", "port"), ("https://a.test:0/", "port"), ("https://a.test:080/", "port"),
    ("https://a.test:65536/", "port"), ("https://a.test:+80/", "port"), ("https://a.test:80:80/", "port"),
    ("https://a.test./", "DNS"), ("https://.a.test/", "DNS"), ("https://a..test/", "DNS"),
    ("https://-a.test/", "DNS"), ("https://a-.test/", "DNS"), ("https://_a.test/", "DNS"),
    ("https://a%2etest/", "DNS"), ("https://*.test/", "DNS"), ("https://" + "a" * 64 + ".test/", "DNS"),
    ("https://" + "a." * 127 + "a/", "253"), ("https://127.1/", "IPv4"), ("https://1.2.3.256/", "IPv4"),
    ("https://01.2.3.4/", "IPv4"), ("https://2130706433/", "IPv4"), ("https://0x7f.1/", "IPv4"),
    ("https://a.0x/", "IPv4"), ("https://a.2/", "IPv4"), ("https://[::1/", "bracket"),
    ("https://[::1]a/", "bracket"), ("https://[0::1]/", "canonical"), ("https://[fe80::1%25x]/", "IPv6"),
    ("https://[fe80::1%x]/", "zone"), ("https://[::ffff:1.2.3.4]/", "IPv4"), ("https://[a.test]/", "IPv6"),
    ("https://::1/", "has no host"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "part"), REFUSED_URLS)
def test_refused_urls(text: Any, part: str) -> None:
    assert part in reason(parse_url, text)


def test_a_url_and_its_plain_form_have_the_same_limit() -> None:
    longest = "https://a.test/?" + "x" * (MAX_URL - 16)
    assert len(parse_url(longest).url) == len(longest) == MAX_URL
    reason(parse_url, longest + "x")
    shorter = "https://a.test?" + "x" * (MAX_URL - 16)  # its plain form has a path
    assert len(shorter) == MAX_URL - 1 and parse_url(parse_url(shorter).url) == parse_url(shorter)
    assert "8192" in reason(parse_url, shorter + "x")


@pytest.mark.parametrize(
    "text", ["a.test", "a", "a_b.test", "127.0.0.1", "::1", "2001:db8::1", "xn--bcher-kva.test"]
)
def test_a_host_is_read_as_it_stands_in_a_url(text: str) -> None:
    assert parse_host(text) == text == parse_url(f"https://{f'[{text}]' if ':' in text else text}/").host
    assert parse_host(text.upper()) == text


@pytest.mark.parametrize(
    "text", [None, 1, "", "a.test:80", "https://a.test", "a.test/", "u@a.test", "a.test.", "*.test", "[::1]", "0::1",
             "::1%lo", "::ffff:1.2.3.4", "127.1", "a b", "b\u00fccher.test", "\u212a.test", "a" * 254]
)  # fmt: skip
def test_refused_hosts(text: Any) -> None:
    reason(parse_host, text)


# ---- the allowlist -----------------------------------------------------------------------------------------


def test_entries() -> None:
    assert parse_entry("docs.test") == Entry("https", "docs.test", 443, "/")
    assert parse_entry("HTTP://Docs.Test:80/a/") == Entry("http", "docs.test", 80, "/a/")
    assert parse_entry("[::1]") == Entry("https", "::1", 443, "/")


@pytest.mark.parametrize("text", [
    None, "", " ", "*", "*.test", "https://*/", "https://a.test/*", "a.test:80", "a.test/x", "u@a.test",
    "a.test.",
    "https://u@a.test/", "https://a.test/?q", "https://a.test/#f", "https://a.test/a/../b",
    "https://a.test//b",
    "https://a.test/%2e%2e/", "https://a.test/a;b", "https://a.test/a%2fb", "f\u0456xtures.test", "a.test\0",
    "https://a.test/%", "ftp://a.test", "//a.test", "127.1", "https://a.test/.", "https://a.test/%252e/",
    "https://a.test/.../x", "https://a.test/%20/", "https://a.test/%EF%BC%8E%EF%BC%8E/",
])  # fmt: skip
def test_refused_entries(text: Any) -> None:
    reason(parse_entry, text)
    with pytest.raises(Malformed) as caught:
        Allowlist(["https://ok.test", text])
    assert caught.value.index == 1


PREFIXES = Allowlist(
    ["https://a.test/docs", "https://a.test/pub/", "https://a.test/docs/deep", "http://a.test"]
)


@pytest.mark.parametrize(("url", "index"), [
    ("https://a.test/docs", 0), ("https://a.test/docs/", 0), ("https://a.test/docs/x?y", 0),
    ("https://a.test/docs/deep", 2), ("https://a.test/docs/deep/x", 2), ("https://a.test/docs/deeper", 0),
    ("https://a.test/docs2", None), ("https://a.test/doc", None), ("https://a.test/", None),
    ("https://a.test/pub", None), ("https://a.test/pub/", 1), ("https://a.test/pub/x", 1),
    ("https://a.test/Docs", None), ("https://a.test/docs/100%25", 0), ("https://a.test/docs/%c3%a9", 0),
    ("http://a.test/docs/../..", 3), ("http://a.test/docs/deep", 3), ("https://a.test:444/docs", None),
])  # fmt: skip
def test_prefixes(url: str, index: int | None) -> None:
    assert PREFIXES.match(parse_url(url)) == index


def test_generated_ambiguous_paths_are_under_no_prefix() -> None:
    odd = [
        ".",
        "..",
        "%2e",
        "%2E%2e",
        ".%2e",
        "%252e%252e",
        "%25252e",
        "%25%32%65",
        "a%2fb",
        "a%5cb",
        "a%255cb",
        "a;b",
    ]
    odd += [
        "..;",
        "a%3bb",
        "%00",
        "a%0ab",
        "%7f",
        "%c0%ae",
        "%e0%80%af",
        "%ff",
        "a%",
        "%u002e",
        "%2",
        "",
        "%25" * 9 + "2e",
    ]
    # dots and blanks alone: some systems cut blanks, and dots at an end, off a name
    odd += "%20 %20%20 ..%20 %20.. ... .... .%20. %C2%A0.. ..%E3%80%80 %2520.. %25C2%25A0..".split()
    odd += "..%E2%80%8B %C2%AD.. %E2%80%AE %EF%BB%BF. ..%C2%85 %E3%85%A4.".split()
    # what a compatibility form of a separator becomes, or hides
    odd += "%EF%BC%8E %EF%BC%8E%EF%BC%8E %E2%80%A5 %E2%80%A6 %E2%80%A4%E2%80%A4 %25EF%25BC%258E".split()
    odd += "a%EF%BC%8Fb a%EF%BC%BCb a%EF%BC%9Bb a%CD%BEb %EF%BC%852e %E2%84%80 a%E2%92%88".split()
    urls = [f"https://a.test/docs/{form.format(o)}" for o in odd for form in ("{}/x", "y/{}/z", "x/{}/")]
    urls += [f"https://a.test/docs/{o}" for o in odd if o]
    assert len(urls) >= 200
    assert not [url for url in urls if PREFIXES.match(parse_url(url)) is not None]
    whole = Allowlist(["https://a.test"])
    assert not [url for url in urls if whole.match(parse_url(url)) is None]


@pytest.mark.parametrize(
    "path",
    "a%20b %20a a%20 .a ..a a.. .a. a...b C%2B%2B a%3Ab a%3Fb %23 ~x %7Ex a+b a|b 100%25 a%2520b @x - _ a,b "
    '%E6%97%A5%E6%9C%AC caf%C3%A9 %EF%BC%A1 %C2%BD %E2%84%A2 a%C2%A0b %EF%BC%9A "x"'.split(),
)
def test_plain_paths_are_under_their_prefix(path: str) -> None:
    for url in (
        f"https://a.test/docs/{path}",
        f"https://a.test/docs/{path}/x",
        f"https://a.test/docs/x/{path}/",
    ):
        assert PREFIXES.match(parse_url(url)) == 0


SEGMENTS = st.lists(st.sampled_from(["a", "b", "ab", ""]), max_size=5).map(
    lambda parts: "/" + "/".join(parts)
)


@settings(QUIET, max_examples=500)
@given(st.lists(SEGMENTS.filter(lambda p: "//" not in p), max_size=6), SEGMENTS)
def test_match_is_the_longest_covering_prefix(prefixes: list[str], path: str) -> None:
    def covers(prefix: str) -> bool:
        if prefix == "/":
            return True
        return "//" not in path and (path == prefix or path.startswith(prefix.rstrip("/") + "/"))

    best = max(
        (i for i in range(len(prefixes)) if covers(prefixes[i])),
        key=lambda i: (len(prefixes[i]), -i),
        default=None,
    )
    found = Allowlist([f"https://a.test{p}" for p in prefixes]).match(parse_url(f"https://a.test{path}"))
    assert found == best


def test_a_long_allowlist_and_a_long_path_cost_little() -> None:
    many = Allowlist(
        [f"https://a.test/p{i}/q" for i in range(20_000)] + [f"https://h{i}.test" for i in range(20_000)]
    )
    target = parse_url("https://a.test" + "/x" * 4000)
    started = time.process_time()
    for _ in range(100):
        assert many.match(target) is None
    assert many.match(parse_url("https://a.test/p19999/q/r")) == 19_999
    assert time.process_time() - started < 1


# ---- properties --------------------------------------------------------------------------------------------

URL_LIKE = st.text("htps:/.@?#[]%2e\\0x1~ \té", max_size=20).map(lambda tail: "https://" + tail)


@settings(QUIET, max_examples=800)
@given(st.text(max_size=60) | URL_LIKE | st.none() | st.binary(max_size=5))
def test_any_text_is_read_or_malformed(text: Any) -> None:
    for call in (parse_url, parse_entry):
        try:
            found = call(text)
        except Malformed as error:
            assert error.reason.isascii() and error.reason.isprintable() and len(error.reason) <= 160
            continue
        if isinstance(found, Target):
            assert parse_url(found.url) == found


@settings(QUIET, max_examples=800)
@given(st.data())
def test_a_changed_host_is_another_host(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(HOST)))
    cut = data.draw(st.integers(0, 2))
    put = data.draw(st.text(string.printable + "\u0131\uff0e\u3002\u00ad\u200b\u0131K", max_size=2))
    host = HOST[:at] + put + HOST[at + cut :]
    if not any(c in host for c in ":/?#") and host.lower() != HOST:
        try:
            target = parse_url(f"https://{host}/")
        except Malformed:
            return
        assert Allowlist([f"https://{HOST}"]).match(target) is None


class Lying(str):
    """Text that says something else when it is asked what it is."""

    def __str__(self) -> str:
        return "https://b.test/"


def test_text_of_another_class_is_read_as_the_text_that_it_is() -> None:
    assert parse_url(Lying("https://a.test/")).host == "a.test"
