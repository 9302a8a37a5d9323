"""URLs and addresses that name another place than they seem to, and plain ones: a label goes with a class.

The policy allows one host. Whatever is not the plain spelling of that host names another one, or the same one
in a disguise that some other program would read differently.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import quote

HOST = "docs.test"
EVIL = "evil.test"
PREFIXED = "tree.test"  # allowed below /open/ only
ENTRIES = [
    f"http://{HOST}",
    f"https://{HOST}",
    "http://127.0.0.1",
    "http://[::1]",
    f"https://{PREFIXED}/open/",
]


def _characters() -> list[str]:
    return [
        chr(c) for c in [*range(0x21), 0x7F, *range(0x80, 0xA1), 0xAD, 0x200B, 0x202E, 0x2028, 0xFEFF, 0x3002]
    ]


def _userinfo() -> Iterator[str]:
    users = ["u", "u:p", ":", "", "u:", "%00", "a@b", EVIL, f"{EVIL}:80", "[::1]", "[", "]", f"{HOST}:80"]
    for user, host, scheme in itertools.product(users, (HOST, EVIL, f"{HOST}:443"), ("http", "https")):
        yield f"{scheme}://{user}@{host}/"


def _backslashes() -> Iterator[str]:
    forms = [
        "https://{1}\\{0}/",
        "https://{1}\\@{0}/",
        "https:\\\\{0}/",
        "https://{0}\\.{1}/",
        "https:/\\{0}/",
    ]
    forms += ["https:\\/{0}/", "https://{0}/\\{1}/"]
    forms += ["https://{0}/a\\..\\b", "https://{0}\\", "\\\\{0}/", "https://{0}?\\", "https://{0}#\\@{1}:80/"]
    for form, hosts, twice in itertools.product(
        forms, ((HOST, EVIL), (EVIL, HOST), (HOST, HOST)), (False, True)
    ):
        yield form.format(*hosts).replace("\\", "\\\\" if twice else "\\")


def _odd_characters() -> Iterator[str]:
    forms = ["https://{h}{c}/", "https://{c}{h}/", "ht{c}tps://{h}/", "https://{h}/{c}", "{c}https://{h}/"]
    for form, character in itertools.product(forms, _characters()):
        yield form.format(h=HOST, c=character)


def _lookalikes() -> Iterator[str]:
    """Each character of the host written as another one that is drawn or folded alike."""
    cyrillic = dict(zip("aceopsxyd", "\u0430\u0441\u0435\u043e\u0440\u0455\u0445\u0443\u0501", strict=True))
    for i, letter in enumerate(HOST):
        others = [chr(ord(letter) + 0xFEE0), cyrillic.get(letter, "\u00b7"), letter + "\u0301"]
        if letter.isalpha():
            others += [chr(0x1D41A + ord(letter) - ord("a")), chr(0x24D0 + ord(letter) - ord("a"))]
        yield from (f"https://{HOST[:i]}{other}{HOST[i + 1 :]}/" for other in others)
        yield f"https://{HOST[:i]}%{ord(letter):02x}{HOST[i + 1 :]}/"
    yield from (f"https://docs{dot}test/" for dot in "\u3002\uff0e\uff61\u2024")


def _neighbours() -> Iterator[str]:
    forms = [
        "{h}.{x}",
        "{x}.{h}",
        "{h}{x}",
        "{x}{h}",
        "{h}-{x}",
        "{h}%2e{x}",
        "{h};{x}",
        "{h},{x}",
        "{h}&{x}",
        "{h}.{x}.",
    ]
    for form, extra, scheme in itertools.product(forms, ("a", EVIL, "test", "docs"), ("http", "https")):
        yield f"{scheme}://{form.format(h=HOST, x=extra)}/"
    yield from (
        f"https://{HOST}{tail}/" for tail in (".", "..", "%2e", "%00", "%20", "%23", "%3f", "!", "'", "$")
    )


def _ports() -> Iterator[str]:
    odd = ["", "0", "00", "080", "0443", "+443", "-1", "65536", "99999"]
    odd += ["443x", "4 3", "443:443", "0x1bb", "4_43"]
    for port in [*odd, "81", "8080", "8443", "22", "1", "65535"]:
        yield from (f"{scheme}://{HOST}:{port}{path}" for scheme in ("http", "https") for path in ("", "/"))
    yield from (f"http://{HOST}:443/", f"https://{HOST}:80/")


def _address_spellings() -> Iterator[str]:
    """Other spellings of 127.0.0.1 and ::1, which the policy allows in their plain form."""
    octets = [("127", "0177", "0x7f", "00127"), ("0", "00", "0x0"), ("0", "0x", "000"), ("1", "01", "0x1")]
    plain = {".".join(parts) for parts in itertools.product(*octets)} - {"127.0.0.1"}
    short = {"127.1", "127.0.1", "2130706433", "0x7f000001", "017700000001", "127.0.0.1.", "127.0.0.1.1"}
    six = {"[0::1]", "[::0:1]", "[0:0:0:0:0:0:0:1]", "[::0001]", "[::ffff:127.0.0.1]", "[::1%251]"}
    yield from (f"http://{host}/" for host in sorted(plain | short | six | {"[::1", "::1]"}))


def _schemes() -> Iterator[str]:
    names = "file ftp gopher dict ldap ws wss data javascript jar blob about httpx xhttp http+unix".split()
    for name in [*names, "1http", "", "h", "https:https", "https%3a", " https", "https "]:
        yield from (f"{name}:{slashes}{HOST}/" for slashes in ("//", "/", "", "///"))
    yield from (
        f"{name}:{slashes}{HOST}/" for name in ("http", "https") for slashes in ("", "/", "///", "////")
    )


def _out_of_the_prefix() -> Iterator[str]:
    """Paths that leave /open/ once somebody decodes, folds or collapses them, or that never stood in it."""
    up = ["..", "%2e%2e", ".%2e", "%2E.", "%252e%252e", "%25252e%25252e", "..;", "..;x=1", "..%00", "..%5c"]
    up += ["%c0%ae%c0%ae", "%e0%80%ae.", "..%2f", "..%252f", "%5c..", "%255c..", "..%09", "..%0d%0a"]
    # dots that are cut off with the blanks behind them, and wide forms that fold into the plain ones
    up += ["...", "....", "..%20", "%20", ".%20.", "%20..", "..%C2%A0", *map(quote, "\u2024\u2025\u2026")]
    up += [
        quote("".join(chr(ord(c) + 0xFEE0) for c in text)) for text in ("..", "/..", "..;", "%2e%2e", "..\\")
    ]
    for climb, form in itertools.product(up, ("/open/{0}/shut", "/open/a/{0}/{0}/shut", "/open/{0}")):
        yield f"https://{PREFIXED}{form.format(climb)}"
    beside = [
        "/",
        "",
        "/opened",
        "/Open/x",
        "/OPEN/x",
        "/%6fpen/x",
        "/open",
        "/ope/n",
        "//open/x",
        "/shut/open/",
    ]
    beside += [
        "/open//x",
        "/open/./x",
        "/open/%",
        "/open/%zz",
        "/open/a;b",
        "/open/%ff",
        "/open/%3b",
        "/open/%2f",
    ]
    yield from (
        f"https://{PREFIXED}{path}" for path in [*beside, "?/open/", "#/open/", "/x?/open/", "/x#/open/"]
    )


DISGUISES: dict[str, Callable[[], Iterable[str]]] = {
    "userinfo": _userinfo, "backslash": _backslashes, "odd characters": _odd_characters, "ports": _ports,
    "neighbouring names": _neighbours, "address spellings": _address_spellings, "schemes": _schemes,
    "lookalikes": _lookalikes, "out of the prefix": _out_of_the_prefix,
}  # fmt: skip


def _plain() -> Iterator[str]:
    paths = [
        "",
        "/",
        "/a/b.c",
        "/a/../b",
        "/%2e%2e/x",
        "//x",
        "/@x",
        "/a;b",
        "/%00",
        '/"<>`{}|^',
        "/a%",
        "/[x]",
    ]
    tails = ["", "?", "?q=http://evil.test/", "?a@b", "#f", "?x#", "?q[]=1&r=%20+"]
    for (scheme, host), path, tail in itertools.product(
        (("HTTPS", HOST), ("http", HOST.upper())), paths, tails
    ):
        yield f"{scheme}://{host}{path}{tail}"


def _in_the_prefix() -> Iterator[str]:
    paths = [
        "",
        "a",
        "a/b.c",
        "a.b/",
        "...a",
        "..a",
        "a..",
        "%41",
        "%E2%82%AC",
        "a%20b",
        "a-b_c~d",
        "(x)",
        "'q'",
    ]
    for path, tail in itertools.product(paths, ("", "?", "?../..", "#/../..", "?a=%2e%2e%2f")):
        yield f"https://{PREFIXED}/open/{path}{tail}"


PLAIN: dict[str, Callable[[], Iterable[str]]] = {"any path": _plain, "in the prefix": _in_the_prefix}


# ---- addresses behind a name: what the special-purpose registries of IANA keep from the internet -----------

_SPECIAL_4 = (
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 "
    "192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4"
)
_SPECIAL_6 = (
    "::/128 ::1/128 64:ff9b:1::/48 100::/64 2001::/32 2001:2::/48 2001:10::/28 2001:db8::/32 3fff::/20 "
    "5f00::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8"
)


def _edges(networks: str) -> Iterator[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    for text in networks.split():
        network = ipaddress.ip_network(text)
        last = network.num_addresses - 1
        yield from (network[0], network[last // 2], network[last])


def _special() -> Iterator[str]:
    yield from map(str, _edges(_SPECIAL_4 + " " + _SPECIAL_6))


def _embedded() -> Iterator[str]:
    """The same IPv4 addresses inside IPv6 ones, where a translator or a tunnel finds them."""
    for address in _edges(_SPECIAL_4):
        number = int(address)
        yield str(ipaddress.IPv6Address(0xFFFF << 32 | number))
        yield str(ipaddress.IPv6Address((0x64FF9B << 96) | number))
        yield str(ipaddress.IPv6Address(0x2002 << 112 | number << 80 | 1))
        yield str(ipaddress.IPv6Address(0x20010000 << 96 | number << 64 | 0xF7F7F7F7))
    yield from (
        str(ipaddress.IPv6Address(int(address))) for address in _edges(_SPECIAL_4) if int(address) > 1
    )


def _no_address() -> Iterator[str]:
    plain = ["8.8.8.8", "2606:4700::1111"]
    forms = [" {}", "{} ", "{}\n", "{}%1", "{}%eth0", "{}/32", "[{}]", "{}.", "0x{}", "{},", "{}\x00"]
    forms += ["\uff10{}", "{}::", ":{}", "-{}", "+{}", "{}x", "http://{}", "x{}", "{0}{0}", "{0} {0}"]
    yield from (form.format(text) for form, text in itertools.product(forms, plain))
    yield from (
        "",
        "localhost",
        HOST,
        "8.8.8.8:443",
        "8.8.8",
        "8.8.8.8.8",
        "134744072",
        "0x08080808",
        "010.8.8.8",
        "8.8.8.256",
    )


CLOSED: dict[str, Callable[[], Iterable[str]]] = {
    "special addresses": _special, "embedded addresses": _embedded, "no address": _no_address,
}  # fmt: skip


def public_addresses() -> Iterator[str]:
    """The nearest addresses outside of each special network, if in no other; and some far away."""
    fours = [ipaddress.ip_network(text) for text in _SPECIAL_4.split()]
    found = []
    for network in fours:
        found += [int(network[0]) - 1, int(network[-1]) + 1]
    found += [first << 24 | 0x05060708 & 0xFFFFFF for first in range(1, 224, 7)]
    for number in found:
        if 0 < number < 2**32 and not any(ipaddress.IPv4Address(number) in network for network in fours):
            yield str(ipaddress.IPv4Address(number))
    # a public IPv4 address inside an IPv6 one is reached through it
    yield from (str(ipaddress.IPv6Address(prefix << 32 | 0x08080808)) for prefix in (0xFFFF, 0x64FF9B << 64))
    yield from (str(ipaddress.IPv6Address((0x2600 + i) << 112 | 1)) for i in range(0, 0x800, 0x80))
