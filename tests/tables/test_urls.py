"""URLs and addresses that name another place than they seem to, and plain ones: a label goes with a class.

The policy allows one host. Whatever is not the plain spelling of that host names another one, or the same one in a
disguise that some other program would read differently. Each is decided when proposed, and as the target of a redirect.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from itertools import product
from urllib.parse import quote

import pytest

from tachograph.testing import decide, decide_fact
from tests.tables.rows import Made, closed, roomy, rows

HOST, EVIL = "docs.test", "evil.test"
PREFIXED = "tree.test"  # allowed at /meadow, and below it and /open/ only
ENTRIES = f"http://{HOST} https://{HOST} http://127.0.0.1 http://[::1] https://{PREFIXED}/open/".split()
URL = {"type": "string", "x-resource": "url"}
FETCH = {"name": "fetch", "effect": "network", "input_schema": closed(url=URL)}
POLICY = roomy(["fetch"], url_allowlist=[*ENTRIES, f"https://{PREFIXED}/meadow"])


def _userinfo() -> Iterator[str]:
    users = ["u", "u:p", ":", "", "u:", "%00", "a@b", EVIL, f"{EVIL}:80", "[::1]", "[", "]", f"{HOST}:80"]
    for user, host, scheme in product(users, (HOST, EVIL, f"{HOST}:443"), ("http", "https")):
        yield f"{scheme}://{user}@{host}/"


def _backslashes() -> Iterator[str]:
    forms = r"https://{1}\{0}/ https://{1}\@{0}/ https:\\{0}/ https://{0}\.{1}/ https:/\{0}/ https:\/{0}/"
    forms += r" https://{0}/\{1}/ https://{0}/a\..\b https://{0}\ \\{0}/ https://{0}?\ https://{0}#\@{1}:80/"
    hosts = ((HOST, EVIL), (EVIL, HOST), (HOST, HOST))
    for form, pair, slash in product(forms.split(), hosts, ("\\", "\\\\")):
        yield form.format(*pair).replace("\\", slash)


def _odd_characters() -> Iterator[str]:
    codes = [*range(0x21), 0x7F, *range(0x80, 0xA1), 0xAD, 0x200B, 0x202E, 0x2028, 0xFEFF, 0x3002]
    forms = ["https://{h}{c}/", "https://{c}{h}/", "ht{c}tps://{h}/", "https://{h}/{c}", "{c}https://{h}/"]
    for form, code in product(forms, codes):
        yield form.format(h=HOST, c=chr(code))


def _lookalikes() -> Iterator[str]:
    """Each character of the host written as another one that is drawn or folded alike."""
    cyrillic = dict(zip("aceopsxyd", "\u0430\u0441\u0435\u043e\u0440\u0455\u0445\u0443\u0501", strict=True))
    for i, letter in enumerate(HOST):
        others = [chr(ord(letter) + 0xFEE0), cyrillic.get(letter, "\u00b7")]
        others += [letter + "\u0301", f"%{ord(letter):x}"]
        if letter.isalpha():
            others += [chr(0x1D41A + ord(letter) - ord("a")), chr(0x24D0 + ord(letter) - ord("a"))]
        yield from (f"https://{HOST[:i]}{other}{HOST[i + 1 :]}/" for other in others)
    yield from (f"https://docs{dot}test/" for dot in "\u3002\uff0e\uff61\u2024")


def _neighbours() -> Iterator[str]:
    forms = "{h}.{x} {x}.{h} {h}{x} {x}{h} {h}-{x} {h}%2e{x} {h};{x} {h},{x} {h}&{x} {h}.{x}."
    for form, extra, scheme in product(forms.split(), ("a", EVIL, "test", "docs"), ("http", "https")):
        yield f"{scheme}://{form.format(h=HOST, x=extra)}/"
    yield from (f"https://{HOST}{tail}/" for tail in ". .. %2e %00 %20 %23 %3f ! ' $".split())


def _ports() -> Iterator[str]:
    odd = ["", "4 3", *"0 00 080 0443 +443 -1 65536 99999 443x 443:443 0x1bb 4_43".split()]
    for port in [*odd, "81", "8080", "8443", "22", "1", "65535"]:
        yield from (f"{scheme}://{HOST}:{port}{path}" for scheme in ("http", "https") for path in ("", "/"))
    yield from (f"http://{HOST}:443/", f"https://{HOST}:80/")


def _address_spellings() -> Iterator[str]:
    """Other spellings of 127.0.0.1 and ::1, which the policy allows in their plain form."""
    octets = [("127", "0177", "0x7f", "00127"), ("0", "00", "0x0"), ("0", "0x", "000"), ("1", "01", "0x1")]
    found = {".".join(parts) for parts in product(*octets)} - {"127.0.0.1"}
    found |= {"127.1", "127.0.1", "2130706433", "0x7f000001", "017700000001", "127.0.0.1.", "127.0.0.1.1"}
    found |= {*"[0::1] [::0:1] [0:0:0:0:0:0:0:1] [::0001] [::ffff:127.0.0.1] [::1%251] [::1 ::1]".split()}
    yield from (f"http://{host}/" for host in sorted(found))


def _schemes() -> Iterator[str]:
    names = "file ftp gopher dict ldap ws wss data javascript jar blob about httpx xhttp http+unix 1http h".split()
    for name in [*names, "", "https:https", "https%3a", " https", "https "]:
        yield from (f"{name}:{slashes}{HOST}/" for slashes in ("//", "/", "", "///"))
    for name, slashes in product(("http", "https"), ("", "/", "///", "////")):
        yield f"{name}:{slashes}{HOST}/"


def _out_of_the_prefix() -> Iterator[str]:
    """Paths that leave /open/ once somebody decodes, folds or collapses them, or that never stood in it."""
    up = ".. %2e%2e .%2e %2E. %252e%252e %25252e%25252e ..; ..;x=1 ..%00 ..%5c %c0%ae%c0%ae %e0%80%ae. ..%2f ..%252f"
    up += " ..%3f ..%23x %25u002e%25u002e"  # ? and # end a path where what is decoded is read as a URL again
    # dots that are cut off with the blanks behind them, and wide forms that fold into the plain ones
    up += " %5c.. %255c.. ..%09 ..%0d%0a ... .... ..%20 %20 .%20. %20.. ..%C2%A0 .%EF%B8%8F."
    wide = ["".join(chr(ord(c) + 0xFEE0) for c in text) for text in ("..", "/..", "..;", "%2e%2e", "..\\")]
    wide += [f"..{like}" for like in "\xa5\u20a9\u2044\u2215\u2216"]  # slashes on a code page of Windows
    climbs = [*up.split(), *map(quote, ["\u2024", "\u2025", "\u2026", *wide])]
    for climb, form in product(climbs, ("/open/{0}/shut", "/open/a/{0}/{0}/shut", "/open/{0}")):
        yield f"https://{PREFIXED}{form.format(climb)}"
    beside = "/ /opened /Open/x /OPEN/x /%6fpen/x /open /ope/n //open/x /shut/open/ /open//x /open/./x"
    beside += " /open/% /open/%zz /open/a;b /open/%ff /open/%3b /open/%2f ?/open/ #/open/ /x?/open/ /x#/open/"
    yield from (f"https://{PREFIXED}{path}" for path in ["", "/meadows", *beside.split()])


DISGUISES = [
    _userinfo, _backslashes, _odd_characters, _ports, _neighbours, _address_spellings, _schemes, _lookalikes,
    _out_of_the_prefix,
]  # fmt: skip


def _plain() -> Iterator[str]:
    paths = ["", *'/ /a/b.c /a/../b /%2e%2e/x //x /@x /a;b /%00 /"<>`{}|^ /a% /[x]'.split()]
    tails = ["", "?", "?q=http://evil.test/", "?a@b", "#f", "?x#", "?q[]=1&r=%20+"]
    for origin, path, tail in product((f"HTTPS://{HOST}", f"http://{HOST.upper()}"), paths, tails):
        yield f"{origin}{path}{tail}"


def _in_the_prefix() -> Iterator[str]:
    paths = ["", *"a a/b.c a.b/ ...a ..a a.. a%3F.. %41 %C2%A5 %E2%82%AC a%20b a-b_c~d (x) 'q'".split()]
    for path, tail in product(paths, ("", "?", "?../..", "#/../..", "?a=%2e%2e%2f")):
        yield from (f"https://{PREFIXED}/{top}/{path}{tail}" for top in ("open", "meadow"))


PLAIN = [_plain, _in_the_prefix]


def decided(urls: list[str]) -> list[tuple[str, str, str]]:
    """Return each URL with what the gate says of it, proposed and met as a redirect; once where it is one."""
    calls = [{"name": "fetch", "arguments": {"url": url}} for url in urls]
    found = []
    for url, proposed in zip(urls, decide(POLICY, [FETCH], calls), strict=True):
        hop = decide_fact(POLICY, {"rule": "url_allowlist", "target": url, "hop": 1})
        found += [(url, *pair) for pair in {(each.decision, each.rule_id) for each in (proposed, hop)}]
    return found


@pytest.mark.parametrize("made", DISGUISES)
def test_a_disguise_is_denied(made: Made) -> None:
    assert [row for row in decided(rows(made())) if row[1:] != ("deny", "url_allowlist")] == []


@pytest.mark.parametrize("made", PLAIN)
def test_a_plain_form_is_allowed(made: Made) -> None:
    assert [row for row in decided(rows(made())) if row[1:] != ("allow", "url_allowlist")] == []


# ---- addresses behind a name: what the special-purpose registries of IANA keep from the internet -------------------

SPECIAL_4 = (
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 "
    "192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24 "
    "203.0.113.0/24 224.0.0.0/4 240.0.0.0/4"
)
SPECIAL_6 = (
    "::/128 ::1/128 64:ff9b:1::/48 100::/64 2001::/32 2001:2::/48 2001:10::/28 2001:db8::/32 2620:4f:8000::/48 "
    "3fff::/20 5f00::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8"
)


def _edges(networks: str) -> Iterator[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    for text in networks.split():
        network = ipaddress.ip_network(text)
        last = network.num_addresses - 1
        yield from (network[0], network[last // 2], network[last])


def _special() -> Iterator[str]:
    yield from map(str, _edges(f"{SPECIAL_4} {SPECIAL_6}"))


def _embedded() -> Iterator[str]:
    """The same IPv4 addresses inside IPv6 ones, where a translator or a tunnel finds them."""
    for number in map(int, _edges(SPECIAL_4)):
        found = [above | number for above in (0xFFFF << 32, 0x64FF9B << 96, 0x2600 << 112 | 0x5EFE << 32)]
        found += [0x2002 << 112 | number << 80 | 1, 0x2001 << 112 | number << 64 | 0xF7F7F7F7, max(number, 2)]
        yield from (str(ipaddress.IPv6Address(each)) for each in found)


def _no_address() -> Iterator[str]:
    forms = [" {}", "{} ", "{}\n", "{}\x00", "\uff10{}", "{0} {0}", *"{}%1 {}%eth0 {}/32 [{}] {}.".split()]
    forms += "0x{} {}, {}:: :{} -{} +{} {}x http://{} x{} {0}{0}".split()
    yield from (form.format(text) for form in forms for text in ("8.8.8.8", "2606:4700::1111"))
    yield from f"localhost {HOST} 8.8.8.8:443 8.8.8 8.8.8.8.8 134744072 0x08080808 010.8.8.8 8.8.8.256".split()


CLOSED = [_special, _embedded, _no_address]


def _public() -> Iterator[str]:
    """The nearest addresses outside of each special network, if in no other; and some far away."""
    fours = [ipaddress.ip_network(text) for text in SPECIAL_4.split()]
    found = [int(network[0]) - 1 for network in fours] + [int(network[-1]) + 1 for network in fours]
    found += [first << 24 | 0x050607 for first in range(1, 224, 7)]
    for address in (ipaddress.IPv4Address(number) for number in found if 0 < number < 2**32):
        if not any(address in network for network in fours):
            yield str(address)
    # a public IPv4 address inside an IPv6 one is reached through it
    yield from (str(ipaddress.IPv6Address(prefix << 32 | 0x08080808)) for prefix in (0xFFFF, 0x64FF9B << 64))
    yield from (str(ipaddress.IPv6Address((0x2600 + i) << 112 | 1)) for i in range(0, 0x800, 0x80))


def reached(address: str, **sections: list[str]) -> str:
    fact = {"rule": "url_allowlist", "target": f"https://{HOST}/", "address": address}
    found = decide_fact({**POLICY, **sections}, fact)
    assert found.rule_id == "url_allowlist", (address, found)
    return found.decision


@pytest.mark.parametrize("made", CLOSED)
def test_no_allowed_host_leads_to_a_closed_address(made: Made) -> None:
    assert [text for text in rows(made()) if reached(text) != "deny"] == []


def test_public_addresses_are_reached() -> None:
    assert [text for text in rows(_public()) if reached(text) != "allow"] == []


def test_a_named_network_opens_itself_and_nothing_beside() -> None:
    """Each special address is reached once its own block of 256 is named, and no other special one is."""
    every = [text for text in _special() if "." in text]
    for block in [text.rpartition(".")[0] for text in every[::5]]:
        opened = [other for other in every if reached(other, private_networks=[f"{block}.0/24"]) == "allow"]
        assert opened == [other for other in every if other.rpartition(".")[0] == block]
