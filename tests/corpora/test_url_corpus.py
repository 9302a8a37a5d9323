"""URLs against an allowlist: the outside corpus where it is at hand, and our own generated classes always."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tachograph.runtime.resources import Allowlist, Malformed, parse_entry, parse_url

HOST = "docs.test"
EVIL = "evil.test"
WHOLE = Allowlist([f"http://{HOST}", f"https://{HOST}"])


def allowed(text: str, allowlist: Allowlist = WHOLE) -> bool:
    try:
        return allowlist.match(parse_url(text)) is not None
    except Malformed:
        return False


# ---- generated classes: a URL that names another host, or names the host in a disguise, is not allowed -----


def _characters() -> list[str]:
    return [
        chr(c) for c in [*range(0x21), 0x7F, *range(0x80, 0xA1), 0xAD, 0x200B, 0x202E, 0x2028, 0xFEFF, 0x3002]
    ]


def _userinfo() -> Iterable[str]:
    users = ["u", "u:p", ":", "", "u:", "%00", "a@b", EVIL, f"{EVIL}:80", "[::1]", "[", "]", f"{HOST}:80"]
    for user, host, scheme in itertools.product(users, (HOST, EVIL, f"{HOST}:443"), ("http", "https")):
        yield f"{scheme}://{user}@{host}/"


def _backslashes() -> Iterable[str]:
    forms = [
        "https://{1}\\{0}/",
        "https://{1}\\@{0}/",
        "https:\\\\{0}/",
        "https://{0}\\.{1}/",
        "https:/\\{0}/",
    ]
    forms += ["https://{0}/a\\..\\b", "https://{0}\\", "\\\\{0}/", "https://{0}?\\", "https://{0}#\\@{1}:80/"]
    for form, hosts, twice in itertools.product(
        forms, ((HOST, EVIL), (EVIL, HOST), (HOST, HOST)), (False, True)
    ):
        yield form.format(*hosts).replace("\\", "\\\\" if twice else "\\")


def _odd_characters() -> Iterable[str]:
    forms = ["https://{h}{c}/", "https://{c}{h}/", "ht{c}tps://{h}/", "https://{h}/{c}", "{c}https://{h}/"]
    for form, character in itertools.product(forms, _characters()):
        yield form.format(h=HOST, c=character)


def _neighbours() -> Iterable[str]:
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


def _ports() -> Iterable[str]:
    odd = [
        "",
        "0",
        "00",
        "080",
        "0443",
        "+443",
        "-1",
        "65536",
        "99999",
        "443x",
        "4 3",
        "443:443",
        "0x1bb",
        "4_43",
    ]
    for port in [*odd, "81", "8080", "8443", "22", "1", "65535"]:
        yield from (f"{scheme}://{HOST}:{port}{path}" for scheme in ("http", "https") for path in ("", "/"))
    yield from (f"http://{HOST}:443/", f"https://{HOST}:80/")


def _addresses() -> Iterable[str]:
    """Other spellings of 127.0.0.1 and ::1, against an allowlist that holds both."""
    octets = [("127", "0177", "0x7f", "00127"), ("0", "00", "0x0"), ("0", "0x", "000"), ("1", "01", "0x1")]
    plain = {".".join(parts) for parts in itertools.product(*octets)} - {"127.0.0.1"}
    short = {"127.1", "127.0.1", "2130706433", "0x7f000001", "017700000001", "127.0.0.1.", "127.0.0.1.1"}
    six = {
        "[0::1]",
        "[::0:1]",
        "[0:0:0:0:0:0:0:1]",
        "[::0001]",
        "[::ffff:127.0.0.1]",
        "[::1%251]",
        "[::1",
        "::1]",
    }
    yield from (f"http://{host}/" for host in plain | short | six)


def _schemes() -> Iterable[str]:
    names = "file ftp gopher dict ldap ws wss data javascript jar blob about httpx xhttp http+unix".split()
    for name in [*names, "1http", "", "h", "https:https", "https%3a", " https", "https "]:
        yield from (f"{name}:{slashes}{HOST}/" for slashes in ("//", "/", "", "///"))
    yield from (
        f"{name}:{slashes}{HOST}/" for name in ("http", "https") for slashes in ("", "/", "///", "////")
    )


CLASSES: dict[str, Callable[[], Iterable[str]]] = {
    "userinfo": _userinfo, "backslash": _backslashes, "odd characters": _odd_characters, "ports": _ports,
    "neighbouring names": _neighbours, "address spellings": _addresses, "schemes": _schemes,
}  # fmt: skip


@pytest.mark.parametrize("name", CLASSES)
def test_generated_disguises(name: str) -> None:
    texts = list(CLASSES[name]())
    assert len(texts) >= 50
    allowlist = Allowlist([f"http://{HOST}", f"https://{HOST}", "http://127.0.0.1", "http://[::1]"])
    assert not [text for text in texts if allowed(text, allowlist)]


def test_generated_plain_forms_are_allowed() -> None:
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
    texts = [
        f"{s}://{h}{p}{t}" for s, h in (("HTTPS", HOST), ("http", HOST.upper())) for p in paths for t in tails
    ]
    assert len(texts) >= 50
    assert not [text for text in texts if not allowed(text)]


# ---- the outside corpus -------------------------------------------------------------------------------------


def _rows() -> list[dict[str, Any]]:
    root = os.environ.get("TACHOGRAPH_CORPORA")
    if not root:
        pytest.skip("TACHOGRAPH_CORPORA is not set: the outside corpus of URLs is not at hand")
    text = (Path(root) / "1-url" / "url_cases.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _adapted(hosts: Iterable[str]) -> Allowlist:
    """The corpus allows a host on http and https at their default ports; other text allows nothing."""
    entries = []
    for entry in (f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")):
        try:
            parse_entry(entry)
        except Malformed:
            continue
        entries.append(entry)
    return Allowlist(entries)


def test_shared_corpus() -> None:
    table: dict[str, Counter[str]] = {}
    misses = []
    for row in _rows():
        count = table.setdefault(row["class"], Counter())
        count["rows"] += 1
        try:
            got = allowed(row["url"], _adapted(row["allowlist"]))
        except Exception as error:  # noqa: BLE001 - the corpus looks for whatever is raised
            count["raises"] += 1
            misses.append((row["id"], repr(error)))
            continue
        if got and row["expect"] == "deny":
            count["wrong allows"] += 1
            misses.append((row["id"], f"allowed, severity {row['severity']}"))
        elif not got and row["expect"] == "allow":
            count["wrong denies"] += 1
            misses.append((row["id"], "denied"))
        elif row["expect"] == "either":
            count["either, allowed" if got else "either, denied"] += 1
    columns = ("rows", "wrong allows", "wrong denies", "raises", "either, allowed", "either, denied")
    print("\n" + f"{'class':24}" + "".join(f"{column:>16}" for column in columns))
    for name, count in sorted(table.items()):
        print(f"{name:24}" + "".join(f"{count[column]:>16}" for column in columns))
    assert sum(count["rows"] for count in table.values()) > 1000
    assert not misses
