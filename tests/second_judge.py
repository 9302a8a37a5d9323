"""A second judge: the rules of the gate once more, written from what is promised, to be compared with it.

It shares nothing with the gate but the readers of URLs and paths, and is plain on purpose: no leaf, no index.
Every rule says what it thinks of a question, and `_answer` takes the first denial in their order.
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from jsonschema import Draft202012Validator

from tachograph.runtime.resources.mount_path import parse_path
from tachograph.runtime.resources.url import Malformed, Target, parse_url

ORDER = "tool_registry url_allowlist sandbox_path arg_schema resources cycle_detection loop_budget".split()
GRANTING = ORDER[:3]  # they have entries; an allow carries the last that grants something the call uses


class Say(NamedTuple):
    """What one rule says. `part` is its id, or `private_networks` for that half of `url_allowlist`.

    `idle`: the rule was asked for nothing yet, as a limit is by the first call.
    """

    part: str
    allows: bool
    idle: bool = False

    @property
    def rule(self) -> str:
        return "url_allowlist" if self.part == "private_networks" else self.part


class Answer(NamedTuple):
    decision: str
    rule: str
    says: Sequence[Say] = ()


def _answer(says: Iterable[Say]) -> Answer:
    says = tuple(says)
    for rule in ORDER:
        if any(say.rule == rule and not say.allows for say in says):
            return Answer("deny", rule, says)
    granting = [rule for rule in GRANTING if any(say.rule == rule for say in says)]
    return Answer("allow", granting[-1], says)


# ---- questions -------------------------------------------------------------------------------------------


def judge(policy: Mapping[str, Any], tools: Iterable[Any], calls: Iterable[Any]) -> list[Answer]:
    """Judge calls in order as those of one run; each allowed one gave the result of its equals."""
    tools = list(tools)
    schemas = {tool["name"]: tool["input_schema"] for tool in tools}
    external = {tool["name"] for tool in tools if tool.get("effect") == "external"}
    made: list[str] = []
    answers = []
    for call in calls:
        name, arguments = call["name"], read_arguments(call["arguments"])
        named = policy.get("tools", {}).get(name, {}).get("resources", {}) if name in external else None
        same = _at_places(schemas.get(name), _filled(schemas.get(name), arguments), _one_spelling, named)
        key = json.dumps([name, same], sort_keys=True)
        answers.append(_answer(_call(policy, schemas, name, arguments, named, made.count(key), len(made))))
        if answers[-1].decision == "allow":
            made.append(key)
    return answers


def _call(
    policy: Mapping[str, Any],
    schemas: Mapping[str, Any],
    name: str,
    arguments: Any,
    named: Mapping[str, str] | None,
    repeats: int,
    used: int,
) -> Iterator[Say]:
    names = policy.get("tool_registry", {})
    is_allowed = name in names.get("allowed", []) and name not in names.get("denied", [])
    yield Say("tool_registry", is_allowed and name in schemas)
    if name not in schemas:
        return
    found: list[tuple[str, str]] = []
    _at_places(schemas[name], arguments, lambda kind, text: found.append((kind, text)), named)
    for kind, text in found:
        if kind == "url" or (kind == "text" and _is_a_url(text)):
            yield from _url(policy, text)
        elif kind.startswith("path:"):
            yield Say("sandbox_path", _path(policy, text, kind.removeprefix("path:")))
        if named is not None:
            yield Say("resources", kind != "unknown")
    yield Say("arg_schema", _fits(policy, schemas[name], arguments), arguments == {})
    most = policy.get("cycle_detection", {}).get("max_repeats", 0)
    yield Say("cycle_detection", repeats < most, not repeats)
    budget = policy.get("loop_budget", {})  # one more call, an attempt at it, and room for its result
    room = budget.get("max_attempts", 1) > 0 and budget.get("max_result_bytes", 0) > 0
    room = room and budget.get("max_wall_clock_s", 1) > 0
    yield Say("loop_budget", room and used < budget.get("max_tool_calls", 0), not used)


def judge_fact(policy: Mapping[str, Any], fact: Mapping[str, Any]) -> Answer:
    """Judge what a tool meets while it runs. What is of an unknown kind is denied."""
    if fact["rule"] == "url_allowlist":
        found = _answer(_url(policy, fact["target"], fact.get("method", "GET"), fact.get("address", "")))
    elif fact["rule"] == "sandbox_path":  # whatever was found on the way is nothing that is followed
        fine = not fact.get("found") and _path(policy, fact["path"], fact.get("access", ""))
        found = _answer([Say("sandbox_path", fine)])
    else:
        return Answer("deny", "gate_error")
    return found


# ---- arguments -------------------------------------------------------------------------------------------


def read_arguments(given: Any) -> Any:
    """Return arguments as data; None where they are not a JSON object, or none that all read alike."""
    try:
        text = given if isinstance(given, str) else json.dumps(given)
        value = _exact(json.loads(text, object_pairs_hook=_each_key_once))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def _exact(value: Any) -> Any:
    if isinstance(value, dict):
        return {_exact(key): _exact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_exact(item) for item in value]
    if isinstance(value, str):
        value.encode()  # a lone surrogate is an error of value
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("not a number of JSON")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and abs(value) >= 2**53:
        raise ValueError("not the same number everywhere")
    return value


def _at_places(
    schema: Any,
    value: Any,
    change: Callable[[str, str], Any],
    named: Mapping[str, str] | None,
    path: tuple[str, ...] = (),
) -> Any:
    """Return a value with its strings changed where the schema marks them, or the policy names them.

    The strings that nothing speaks of are of the kind `unknown`; a policy names those of external tools.
    """
    schema = schema or {}
    if isinstance(value, str):
        return change(schema.get("x-resource") or _named(named or {}, path), value)
    if isinstance(value, list):
        return [_at_places(schema.get("items"), item, change, named, (*path, "*")) for item in value]
    if isinstance(value, dict):
        below, other = schema.get("properties", {}), schema.get("additionalProperties")
        return {
            key: _at_places(below.get(key, other), item, change, named, (*path, key))
            for key, item in value.items()
        }
    return value


def _named(named: Mapping[str, str], path: tuple[str, ...]) -> str:
    for pointer, kind in named.items():
        keys = [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:]]
        if len(keys) == len(path) and all(key in ("*", part) for key, part in zip(keys, path, strict=True)):
            return kind
    return "unknown"


def _is_a_url(text: str) -> bool:
    """Return whether a text as a whole is a URL: one word that begins as one does, behind unseen characters or not."""
    while text and text[0] != "." and _blank(text[0]):
        text = text[1:]
    return len(text.split()) == 1 and text.lower().startswith(("http:", "https:"))


def _filled(schema: Any, value: Any) -> Any:
    """Return a value with the defaults that the tool would fill in."""
    schema = schema or {}
    if isinstance(value, list):
        return [_filled(schema.get("items"), item) for item in value]
    if isinstance(value, dict):
        below = schema.get("properties", {})
        defaults = {name: _exact(part["default"]) for name, part in below.items() if "default" in part}
        return {key: _filled(below.get(key), item) for key, item in {**defaults, **value}.items()}
    return value


def _one_spelling(kind: str, text: str) -> str:
    try:
        return parse_url(text).url if kind == "url" or (kind == "text" and _is_a_url(text)) else text
    except Malformed:
        return text


LIMITS = (
    "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern enum const "
    "minItems maxItems uniqueItems minProperties maxProperties"
).split()


def _fits(policy: Mapping[str, Any], schema: Any, arguments: Any) -> bool:
    how = policy.get("arg_schema_enforcement", "strict")
    return bool(_validator(json.dumps(schema), how).is_valid(arguments))


@cache
def _validator(schema: str, how: str) -> Draft202012Validator:
    data = json.loads(schema, object_hook=_true_ends)
    return Draft202012Validator(data if how == "strict" else _shape(data))


def _true_ends(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part of a schema whose "$" ends the text: in Python a newline may follow it."""
    pattern = part.get("pattern")
    return {**part, "pattern": re.sub(r"\$\Z", r"\\Z", pattern)} if isinstance(pattern, str) else part


def _shape(schema: Any) -> Any:
    """Return a schema without the limits of values."""
    if not isinstance(schema, dict):
        return schema
    shape = {word: _shape(value) for word, value in schema.items() if word not in LIMITS}
    if "properties" in schema:
        shape["properties"] = {name: _shape(value) for name, value in schema["properties"].items()}
    return shape


# ---- URLs, addresses, paths ------------------------------------------------------------------------------

METHODS = ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST", "PATCH"]


def _url(policy: Mapping[str, Any], text: str, method: str | None = None, address: str = "") -> Iterator[Say]:
    """Judge a URL: for any method as long as none is known, and with the address its host resolved to."""
    try:
        target = parse_url(text)
    except Malformed:
        yield Say("url_allowlist", False)
        return
    entries = policy.get("url_allowlist", [])
    yield Say("url_allowlist", any(_covers(entry, target, method) for entry in entries))
    if address:
        yield Say("private_networks", _address(address, policy.get("private_networks", [])))


def _covers(entry: Any, target: Target, method: str | None) -> bool:
    url, methods = (entry, ["GET", "HEAD"]) if isinstance(entry, str) else (entry["url"], entry["methods"])
    if method is not None and (method not in methods or method not in METHODS):
        return False
    own = parse_url(url if "://" in url else f"https://{url}")
    if (own.scheme, own.host, own.port) != (target.scheme, target.host, target.port):
        return False
    if own.path == "/":
        return True
    below = own.path if own.path.endswith("/") else f"{own.path}/"
    return (target.path == own.path or target.path.startswith(below)) and _read_alike(target.path)


def _read_alike(path: str) -> bool:
    """Return whether every server sees the same segments in a path, whatever it decodes."""
    if re.search("%(?![0-9A-Fa-f]{2})", path):
        return False
    try:
        text = unquote_to_bytes(path).decode()
    except UnicodeDecodeError:
        return False
    plain = unicodedata.normalize("NFKC", text)
    if any(plain.count(mark) != path.count(mark) for mark in "./\\;") or plain.count("%") != text.count("%"):
        return False  # a separator or a dot in disguise
    if re.search(r"%u?[0-9A-Fa-f]{2}|[;\x00-\x1f\x7f]|//", plain):
        return False  # encoded again, parameters, control characters, an empty segment
    parts = (re.split("[?#]", part)[0] for part in re.split("[/\xa5\u20a9\u2044\u2215\u2216]", plain))
    return not any(part and all(map(_blank, part)) for part in parts)


def _blank(character: str) -> bool:
    is_unseen = unicodedata.category(character) in ("Cc", "Cf") or "\ufe00" <= character <= "\ufe0f"
    return character == "." or character.isspace() or is_unseen


NOT_PUBLIC = [
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 "
        "192.0.2.0/24 192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/3 "
        "192.31.196.0/24 192.52.193.0/24 192.175.48.0/24 2620:4f:8000::/48 "
        "168.63.129.16/32 ::/3 4000::/2 8000::/1 2001::/23 2001:db8::/32 2002::/16 3fff::/20"
    ).split()
]
CARRIERS = [ipaddress.ip_network(text) for text in ("::ffff:0:0/96", "64:ff9b::/96")]


def _address(text: str, networks: Sequence[str]) -> bool:
    """Judge an address: public or in a network of the policy, and IPv4 within IPv6 as what it carries."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if "%" in text:
        return False
    asked = [address]
    if isinstance(address, ipaddress.IPv6Address):
        low = int(address) & 0xFFFFFFFF
        carried = [*filter(None, [address.sixtofour, *(address.teredo or ())])]
        if 1 < int(address) == low or int(address) >> 32 & 0xFDFFFFFF == 0x5EFE:
            carried = carried or [ipaddress.IPv4Address(low)]
        asked += carried  # a tunnel is never public itself, and what it carries is judged too
        if any(address in carrier for carrier in CARRIERS):
            asked = [ipaddress.IPv4Address(low)]
    return all(
        any(one in ipaddress.ip_network(network) for network in networks)
        or not any(one in network for network in NOT_PUBLIC)
        for one in asked
    )


def _path(policy: Mapping[str, Any], text: str, access: str) -> bool:
    try:
        mount = parse_path(text).mount
    except Malformed:
        return False
    mode = policy.get("sandbox", {}).get("mounts", {}).get(mount)
    return (access == "read" and mode in ("read", "write")) or access == mode == "write"
