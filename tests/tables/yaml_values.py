"""Policy files whose values are wrong, or only just right.

Whether a value will do is computed: by `jsonschema` on the meta-schema and by the few rules beside it,
written down here once more. The version of a policy is computed from its data with `json` and `hashlib` alone.
"""

from __future__ import annotations

import copy
import hashlib
import ipaddress
import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from jsonschema import Draft202012Validator

from tests.support import ROOT
from tests.tables.yaml_texts import (
    FULL,
    KEYS,
    LISTS,
    SCALARS,
    VALUES,
    Case,
    changed,
    places,
    spot,
)

META = json.loads((ROOT / "policy" / "v1.schema.json").read_text(encoding="utf-8"))
_VALIDATOR = Draft202012Validator(META)
DATA = yaml.safe_load(FULL)
ALIASES = 16  # that a file may have


@dataclass(frozen=True, slots=True)
class Judged:
    """A file with what must come of it: a version, or a refusal at one of some places (any if none is)."""

    data: bytes
    version: str | None
    at: frozenset[tuple[int, int]] = frozenset()


def version(data: Any) -> str:
    """What docs/policy.md calls the version of a policy; 1.0 and 1 are one number."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, list):
            return [plain(item) for item in value]
        return int(value) if isinstance(value, float) and value.is_integer() else value

    text = json.dumps(plain(data), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return "/" in text


def acceptable(data: Any) -> bool:
    if not _VALIDATOR.is_valid(data):
        return False
    registry, retry = data.get("tool_registry", {}), data.get("retry", {})
    allowed, denied = registry.get("allowed", []), registry.get("denied", [])
    return (
        not set(allowed) & set(denied)
        and set(data.get("approval", {}).get("required_for", [])) <= set(allowed)
        and retry.get("backoff_cap_ms", 0) >= retry.get("backoff_base_ms", 0)
        and all(map(_is_network, data.get("private_networks", [])))
        and all(re.fullmatch(r"(https?://)?[a-z.]+/?", entry) for entry in data.get("url_allowlist", []))
    )


def _judged(text: str, data: Any, at: frozenset[tuple[int, int]]) -> Judged:
    if acceptable(data):
        return Judged(text.encode(), version(data))
    return Judged(text.encode(), None, at if not _VALIDATOR.is_valid(data) else frozenset())


def _replaced(pointer: str, value: Any) -> Any:
    """DATA with another value at a JSON Pointer."""
    data = copy.deepcopy(DATA)
    *way, last = pointer.split("/")[1:] or [None]
    if last is None:
        return value
    here = data
    for token in way:
        here = here[int(token) if isinstance(here, list) else token]
    here[int(last) if isinstance(here, list) else last] = value
    return data


def _types() -> Iterator[Judged]:
    """A value of each type at each pointer."""
    for pointer in ["", *(place.pointer for place in VALUES)]:
        for value in (None, True, False, 0, 1, 1.5, -1, 2.0, "text", "", [], {}, [[]], {"a": 1}, ["a", "a"]):
            data = _replaced(pointer, value)
            text = json.dumps(data, indent=1)
            marks = {(1, 1)} if not pointer else set()
            if isinstance(data, dict) and not _VALIDATOR.is_valid(data):
                # a wrong value is found at itself, an unknown key or a mapping that lacks one at the key
                inside = [p for p in places(text) if f"{p.pointer}/".startswith(f"{pointer}/")]
                marks |= {spot(text, p.start) for p in inside}
            yield _judged(text, data, frozenset(marks))


_NO_NUMBERS = [
    "0x10",
    "010",
    "1_0",
    "+1",
    "1e1",
    ".5",
    "5.",
    "0b1",
    "12:30",
    "-0",
    "00",
    "0o7",
    "10 000",
    "1,0",
    "ten",
]
_NO_NUMBERS += [
    '"7"',
    "'7'",
    "1.5",
    "-1",
    "-1.0",
    "9007199254740992",
    "1" + "0" * 400,
    "\u0661",
    "7 # 8\n9",
    ".inf",
]


def _numbers() -> Iterator[Judged]:
    """Each number around its limits, whole floats too, and what is no number in this reader's YAML."""
    for place in [p for p in SCALARS if isinstance(p.value, int)]:
        schema: Any = META
        for token in place.pointer.split("/")[1:]:
            schema = schema["properties"][token]
        low, high = schema["minimum"], schema["maximum"]
        at = frozenset({spot(FULL, place.start)})
        for number, form in itertools.product(
            (low - 1, low, low + 1, high - 1, high, high + 1), ("{}", "{}.0", "{}.50")
        ):
            text = FULL[: place.start] + form.format(number) + FULL[place.end :]
            value = number + 0.5 if form == "{}.50" else number
            yield _judged(text, _replaced(place.pointer, value), at)
        for form in _NO_NUMBERS:
            yield Judged((FULL[: place.start] + form + FULL[place.end :]).encode(), None)


def _aliases() -> Iterator[Judged]:
    """Mounts that share one value: a few aliases are read, many are not."""
    block = "    corpus: read\n    sandbox: write\n"
    assert block in FULL
    for count in range(60):
        names = [f"m{i}" for i in range(count)]
        lines = ["    corpus: &mode read", *(f"    {name}: *mode" for name in names), "    sandbox: write"]
        text = FULL.replace(block, "\n".join(lines) + "\n")
        data = _replaced(
            "/sandbox/mounts", {"corpus": "read", "sandbox": "write", **dict.fromkeys(names, "read")}
        )
        line = spot(FULL, FULL.index(block))[0] + 1 + ALIASES
        place = frozenset({(line, 5 + len(f"m{ALIASES}: "))})
        yield Judged(text.encode(), None, place) if count > ALIASES else Judged(text.encode(), version(data))


JUDGED: dict[str, Callable[[], Iterator[Judged]]] = {
    "types": _types,
    "numbers": _numbers,
    "aliases": _aliases,
}

# ---- values of the right type that decide nothing, or contradict another -----------------------------------


def _at(pointer: str) -> Any:
    return next(place for place in VALUES if place.pointer == pointer)


def _swapped(pointer: str, value: str, says: str = "") -> Case:
    place = _at(pointer)
    return changed(place.start, place.end, json.dumps(value), says)


def _contradictions() -> Iterator[Case]:
    """Names in two lists, names of nothing, the same entry twice."""
    allowed = DATA["tool_registry"]["allowed"]
    for i, name in enumerate(allowed):
        yield _swapped("/tool_registry/denied/0", name, "both allowed and denied")
        for slip in (name[:-1], name + "s", name.upper(), name.title(), "x" + name):
            mean = f"did you mean '{name}'?" if slip.lower() != name or slip == name.title() else ""
            yield _swapped("/approval/required_for/0", slip, mean)
        for other in allowed[:i] + allowed[i + 1 :]:
            yield _swapped(f"/tool_registry/allowed/{i}", other, "listed twice")
    for place in LISTS:
        if not place.block:
            twice = json.dumps([*place.value, place.value[0]])
            yield changed(place.start, place.end, twice, "listed twice")
    same = [
        "https://corpus.test",
        "HTTPS://corpus.test/",
        "https://CORPUS.test/",
        "corpus.test",
        "Corpus.TEST",
    ]
    for entry in [*same, "https://corpus.test:443/", "https://corpus.test:443"]:
        place = _at("/url_allowlist/0")
        line = spot(FULL, place.end)[0] + 1
        data = f"{FULL[: place.end]}\n  - {json.dumps(entry)}{FULL[place.end :]}"
        yield Case(data.encode(), line, 5, "never applies")


def _names() -> Iterator[Case]:
    """Names that no tool, mount or secret can have; wildcards are not names."""
    odd = [
        "*",
        "re*d",
        "read ",
        " read",
        "read/x",
        "re.d",
        "../read",
        "",
        "1read",
        "-read",
        "_read",
        "r\u00e9ad",
        "**",
    ]
    odd += ["read\n", "r" * 65, "read,write", "read|write", "?", "[a-z]", "all tools", "read\tx", "\u0440ead"]
    for pointer, name in itertools.product(
        ("/tool_registry/allowed/2", "/tool_registry/denied/0", "/approval/required_for/0"), odd
    ):
        yield _swapped(pointer, name)
    mounts = [key for key in KEYS if key.pointer.startswith("/sandbox/mounts/")]
    for key, name in itertools.product(
        mounts, [*odd, "Corpus", "CORPUS", "a/b", ".", "..", "~", "c" * 33, "9"]
    ):
        yield changed(key.start, key.end, json.dumps(name))
    for kind in META["$defs"]["secret_kind"]["enum"]:
        for slip in (kind[:-1], kind + "s", kind.upper()):
            yield _swapped("/redact/kinds/0", slip, f"did you mean '{kind}'?" if slip.islower() else "")


def _entries() -> Iterator[Case]:
    """Entries of the allowlist and networks that read like something and can decide no call."""
    urls = [
        "*",
        "https://*",
        "https://*.test/",
        "https://corpus.test/*",
        "*.corpus.test",
        "https://a@corpus.test/",
    ]
    urls += [
        "https://corpus.test/?q",
        "https://corpus.test/#f",
        "https://corpus.test/../",
        "https://corpus.test/a/./b",
    ]
    urls += [
        "https://corpus.test//a",
        "https://corpus.test/a;b",
        "https://corpus.test/%2e%2e/",
        "https://corpus.test/%",
    ]
    urls += [
        "https://corpus.test/%2f",
        "ftp://corpus.test/",
        "file:///a",
        "//corpus.test/",
        "/a",
        "corpus.test/a",
        "",
    ]
    urls += [
        "corpus.test:443",
        "https:corpus.test",
        "https:///",
        "https://",
        "https://corpus.test:0/",
        "https://corpus .test",
    ]
    urls += [
        "https://corpus.test:99999/",
        "https://corpus.test:x/",
        "https://corpus.test./",
        "https://.test/",
        "https://-a/",
    ]
    urls += [
        "https://corpus\\.test/",
        "https://c\u00f6rpus.test/",
        "https://127.1/",
        "https://0x7f.0.0.1/",
        "https://[::1",
    ]
    urls += [
        "https://[0::1]/",
        "https://[::ffff:1.2.3.4]/",
        "https://1.2.3.256/",
        "https://" + "a" * 64 + ".test/",
    ]
    urls += [
        "https://" + "a." * 127 + "test/",
        "https://corpus.test/" + "a" * 2048,
        "\nhttps://corpus.test/",
        "a,b",
        "a b",
    ]
    yield from (_swapped("/url_allowlist/0", url) for url in urls)
    networks = [
        "10.1.0.0",
        "10.1.0.1/16",
        "10.1.0.0/33",
        "10.1.0.0/-1",
        "10.1.0.0/x",
        "10.1/16",
        "0x0a.0.0.0/8",
        "::1",
    ]
    networks += [
        "::/129",
        "fe80::%1/64",
        "fe80::1/64",
        "localhost/8",
        "corpus.test",
        "",
        "/",
        "10.1.0.0/16,10.2.0.0/16",
    ]
    networks += [
        "10.1.0.0/16 ",
        " 10.1.0.0/16",
        "*/8",
        "10.*.0.0/16",
        "10.1.0.0-10.1.0.9",
        "\u0661\u0660.1.0.0/16",
    ]
    yield from (_swapped("/private_networks/0", network) for network in networks)


REFUSED: dict[str, Callable[[], Iterator[Case]]] = {
    "contradictions": _contradictions, "names": _names, "entries": _entries,
}  # fmt: skip
