"""URLs, allowlists, mount paths and networks: the plain forms pass, every disguise is refused."""

from __future__ import annotations

import string
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.runtime.resources import (
    Allowlist,
    Entry,
    Malformed,
    MountPath,
    Networks,
    Target,
    parse_entry,
    parse_path,
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
    ("https://", "without a host"), ("https:///x", "without a host"), ("https://:80/", "without a host"),
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
    ("https://::1/", "without a host"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "part"), REFUSED_URLS)
def test_refused_urls(text: Any, part: str) -> None:
    assert part in reason(parse_url, text)


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
    urls = [f"https://a.test/docs/{form.format(o)}" for o in odd for form in ("{}/x", "y/{}/z", "x/{}/")]
    assert len(urls) >= 50
    assert not [url for url in urls if PREFIXES.match(parse_url(url)) is not None]
    whole = Allowlist(["https://a.test"])
    assert not [url for url in urls if whole.match(parse_url(url)) is None]


def test_shadowed() -> None:
    entries = [
        "https://a.test",
        "A.TEST",
        "https://a.test/x",
        "https://a.test:443/",
        "http://a.test",
        "https://a.test/x",
    ]
    assert Allowlist(entries).shadowed() == [(1, 0), (3, 0), (5, 2)]


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
    started = time.perf_counter()
    for _ in range(100):
        assert many.match(target) is None
    assert many.match(parse_url("https://a.test/p19999/q/r")) == 19_999
    assert time.perf_counter() - started < 1


# ---- properties --------------------------------------------------------------------------------------------

URL_LIKE = st.text("htps:/.@?#[]%2e\\0x1~ \té", max_size=20).map(lambda tail: "https://" + tail)


@settings(QUIET, max_examples=800)
@given(st.text(max_size=60) | URL_LIKE | st.none() | st.binary(max_size=5))
def test_any_text_is_read_or_malformed(text: Any) -> None:
    for call in (parse_url, parse_entry, parse_path):
        try:
            found = call(text)
        except Malformed as error:
            assert error.reason.isascii() and error.reason.isprintable() and len(error.reason) <= 160
            continue
        if isinstance(found, Target):
            assert parse_url(found.url) == found
        if isinstance(found, MountPath):
            assert found.text == text and parse_path(found.text) == found


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


# ---- mount paths -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [
    "corpus/op-a3.md", "a/b/c", "sandbox/100%2e.txt", "m-1_x/.hidden", "m/...", "m/~user", "m/a b", "m/é☃",
    "m/a:b",
    "m/-rf", "m/" + "x" * 255, "m/" + "/".join(["y" * 100] * 10),
])  # fmt: skip
def test_paths(text: str) -> None:
    path = parse_path(text)
    assert path.text == text and (path.mount, *path.parts) == tuple(text.split("/"))


@pytest.mark.parametrize("text", [
    None, b"m/a", "", "m", "m/", "/", "/etc/passwd", "//m/a", "m//a", "m/a/", "./m/a", "../m", "m/.", "m/..",
    "m/../a",
    "m/a/../../b", "~/a", "~root/a", "c:/a", "C:a", "file:///etc", "http://a/b", "M/a", "1m/a", "m.x/a",
    "é/a",
    "m\\a", "m/a\\b", "m/a\0", "m/a\nb", "m/a\tb", "m/\x1b[2J", "m/\ud800", "m/\u200b", "m/a\u202eb",
    "m/\ufeff", "m/\u2028",
    "m/e\u0301", "m/\u212b", "m/\u00ad", "m/a\ufe0f", "m/\u3164", "m/\ue000", "m/" + "x" * 256,
    "m/" + "é" * 128, "m/a" * 400,
    "a" * 33 + "/b", "m/" + "/".join(["y" * 100] * 11), " m/a", "m /a", "m/\U000e0041",
])  # fmt: skip
def test_refused_paths(text: Any) -> None:
    reason(parse_path, text)


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
    assert parse_url(Lying("https://a.test/")).host == "a.test"
    reason(parse_path, Lying("../x"))
    assert parse_path("box/x") == MountPath("box", ("x",))


# ---- networks ----------------------------------------------------------------------------------------------

PUBLIC = """
1.1.1.1 8.8.8.8 172.32.0.1 192.0.1.1 2606:4700:4700::1111 2a00:1450::5 2002:808:808::1 64:ff9b::808:808
::ffff:8.8.8.8
"""
NOT_PUBLIC = """
0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.9.9.9 169.254.169.254 172.16.0.1
172.31.255.255
192.0.0.192 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255
240.0.0.1
255.255.255.255 168.63.129.16 :: ::1 ::2 fe80::1 fec0::1 fc00::1 fd00:ec2::254 ff02::1 2001:db8::1 3fff::1
100::1
64:ff9b:1::1 4000::1 5f00::1 2001:2::1 2001:10::1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 ::ffff:a00:1
::127.0.0.1
::8.8.8.8 2002:7f00:1::1 2002:a9fe:a9fe::1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b::6464:64c8
2001:0:808:808:8000:63bf:3f57:fdf2 2001:0:4136:e378:8000:63bf:80ff:fffe
"""


def test_networks() -> None:
    none = Networks([])
    assert not [address for address in PUBLIC.split() if not none.allows(address)]
    assert len(NOT_PUBLIC.split()) >= 50
    assert not [address for address in NOT_PUBLIC.split() if none.allows(address)]


@pytest.mark.parametrize(
    "text", ["", "x", "127.1", "0177.0.0.1", "2130706433", "fe80::1%eth0", "8.8.8.8 ", "[::1]", None, 1]
)
def test_no_address(text: Any) -> None:
    assert not Networks(["0.0.0.0/0", "::/0"]).allows(text)


def test_named_networks() -> None:
    named = Networks(["10.1.0.0/16", "::1/128", "2002::/16", "fe80::/10"])
    for address in (
        "10.1.2.3",
        "::1",
        "::ffff:10.1.2.3",
        "64:ff9b::a01:203",
        "2002:a01:203::1",
        "fe80::1",
        "8.8.8.8",
    ):
        assert named.allows(address), address
    for address in (
        "10.2.0.1",
        "::ffff:10.2.0.1",
        "2002:7f00:1::1",
        "127.0.0.1",
        "169.254.169.254",
        "fe80::1%1",
    ):
        assert not named.allows(address), address


@pytest.mark.parametrize(
    "text", ["", "10.1.0.0", "10.1.0.1/16", "10.0.0.0/33", "x/8", "::1", "fe80::%a/64", None]
)
def test_refused_networks(text: Any) -> None:
    with pytest.raises(Malformed) as caught:
        Networks(["10.0.0.0/8", text])
    assert caught.value.index == 1
