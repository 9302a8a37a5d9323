"""What single tools may reach, compared between two policies: held against asking the gate about everything."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tachograph.review.compare import widenings
from tachograph.review.compare.policy_compare import TIGHTENING, WIDENING, Comparison, compare_policies
from tachograph.runtime.core.effects import Call
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.policy.gate import ALLOW, Counters, Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.resources.http_methods import METHODS
from tests.review.compare.test_policy_compare import data, made

URL = {"type": "string", "x-resource": "url"}
PATH = {"type": "string", "x-resource": "path:read"}
TOOLS = {
    tool.name: tool
    for tool in (
        made("post", "external", ("url",), url=URL),
        made("crawl", "network"),
        made("name", "pure", ("url",), url=URL),
        made("read", "read", ("path",), path=PATH),
        made("label", "pure", ("path",), path=PATH),
        made("write", "write"),
    )
}
PREFIXES = (
    "https://a.test",
    "https://a.test/x",
    "https://a.test/x/",
    "https://a.test/x/y",
    "https://b.test/x",
)
URLS = (*PREFIXES, "https://a.test/x/y/z", "https://a.test/w", "https://b.test/")
MOUNTS = {"m": "read", "n": "write", "o": "read"}


def policy(rules: dict[str, Any], **sections: Any) -> Policy:
    known: dict[str, Any] = {
        "tool_registry": {"allowed": list(TOOLS)},
        "url_allowlist": ["https://a.test", {"url": "https://b.test/x", "methods": ["GET", "POST"]}],
        "sandbox": {"mounts": MOUNTS},
        **sections,
        **({"tools": rules} if rules else {}),
    }
    return Policy.from_dict(data(**known))


def told(old: dict[str, Any], new: dict[str, Any]) -> list[tuple[str, str]]:
    found = compare_policies(policy(old), policy(new), TOOLS)
    assert found.undecided == () and found.settings == ()
    return [(change.kind, change.description) for change in found.changes]


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ({"crawl": {"urls": ["https://a.test/x"]}}, {"crawl": {"urls": ["https://a.test/x"], "methods": ["GET"]}},
         [(TIGHTENING, "crawl may no longer reach https://a.test/x with HEAD")]),
        ({"crawl": {"urls": ["https://a.test/x"]}}, {},
         [(WIDENING, "crawl may reach https://a.test/"), (WIDENING, "crawl may reach https://b.test/x with GET")]),
        ({"name": {"urls": ["https://a.test/x"]}}, {"name": {"urls": ["https://a.test/x/"]}},
         [(TIGHTENING, "name may no longer reach https://a.test/x")]),
        ({"post": {"methods": ["GET"]}}, {"post": {"methods": ["GET", "POST"]}},
         [(WIDENING, "post may reach https://b.test/x with POST")]),
        ({"read": {"mounts": ["m"]}}, {"read": {"mounts": ["m", "n"]}},
         [(WIDENING, "read may read below n/")]),
        ({"write": {"mounts": []}}, {"write": {"mounts": ["n"]}}, [(WIDENING, "write may write below n/")]),
        ({"label": {"mounts": ["m"]}}, {},
         [(WIDENING, "label may read below n/"), (WIDENING, "label may read below o/")]),
        ({"read": {"mounts": ["m", "n"]}}, {"read": {"mounts": ["n", "m"]}}, []),
        ({"read": {"mounts": ["m", "n", "o"]}}, {}, []),
        ({"crawl": {"urls": ["https://a.test"]}}, {"crawl": {"urls": ["https://a.test/", "https://b.test"]}},
         [(WIDENING, "crawl may reach https://b.test/x with GET")]),
    ],
)  # fmt: skip
def test_what_a_tool_may_reach_is_compared(
    old: dict[str, Any], new: dict[str, Any], changes: list[tuple[str, str]]
) -> None:
    assert told(old, new) == changes


def test_a_wider_list_of_all_tools_opens_nothing_to_a_tool_that_is_held_to_less() -> None:
    held = {name: {"urls": ["https://b.test/x"]} for name in ("post", "crawl", "name")}
    found = compare_policies(
        policy(held), policy(held, url_allowlist=["https://a.test/w", "https://b.test"]), TOOLS
    )
    assert [change.description for change in found.changes if change.kind == WIDENING] == [
        f"{name} may reach https://b.test/x with HEAD" for name in ("post", "crawl")
    ]


def test_a_policy_that_opens_a_network_opens_it_to_those_who_may_reach_it() -> None:
    held = {name: {"urls": []} for name in ("post", "crawl")}
    opened = compare_policies(policy(held), policy(held, private_networks=["10.0.0.0/8"]), TOOLS)
    assert opened.changes == ()


# ---- everything tried --------------------------------------------------------------------------------------


def reached(gate: Gate) -> Iterator[tuple[str, str]]:
    """Yield the tools with what they may reach, found by asking the gate about each URL and path."""
    for name, tool in TOOLS.items():
        arguments = {key: "m/x" if key == "path" else URLS[0] for key in tool.input_schema["properties"]}
        for url in URLS:
            sent = (
                METHODS if tool.effect == "external" else ("GET", "HEAD") if tool.effect == "network" else ()
            )
            for method in sent:
                check = {"rule": "url_allowlist", "target": url, "hop": 1, "method": method}
                if gate.decide_late(check, name).decision == ALLOW and callable_at_all(gate, name, arguments):
                    yield name, f"{method} {url}"
            if "url" in arguments and allows(gate, name, {"url": url}):
                yield name, f"naming {url}"
        for mount in MOUNTS:
            for access in ("read", "write"):
                check = {"rule": "sandbox_path", "path": f"{mount}/x", "access": access}
                meets = access in tool.uses and gate.decide_late(check, name).decision == ALLOW
                if meets and callable_at_all(gate, name, arguments):
                    yield name, f"{access} {mount}"
            if "path" in arguments and allows(gate, name, {"path": f"{mount}/x"}):
                yield name, f"naming {mount}"


def allows(gate: Gate, name: str, arguments: dict[str, Any]) -> bool:
    return gate.decide(Call("tc_1_0", name, freeze(arguments)), Counters()).decision == ALLOW


def callable_at_all(gate: Gate, name: str, arguments: dict[str, Any]) -> bool:
    if "url" in arguments:
        return any(allows(gate, name, {"url": url}) for url in URLS)
    if "path" in arguments:
        return any(allows(gate, name, {"path": f"{mount}/x"}) for mount in MOUNTS)
    return allows(gate, name, {})


def generated(chance: random.Random) -> Policy:
    """A policy over the small world: some entries for all tools, some for single ones."""
    urls: list[Any] = []
    for prefix in chance.sample(PREFIXES, chance.randrange(4)):
        methods = chance.sample(METHODS[:5], chance.randrange(1, 4))
        entry = prefix if chance.random() < 0.5 else {"url": prefix, "methods": methods}
        try:
            policy({}, url_allowlist=[*urls, entry])
        except Exception:  # noqa: BLE001 - covered by another one
            continue
        urls.append(entry)
    rules: dict[str, Any] = {}
    for name in TOOLS:
        own: dict[str, Any] = {}
        if chance.random() < 0.4:
            own["urls"] = []
            for prefix in chance.sample(PREFIXES, chance.randrange(4)):
                try:
                    policy({name: {"urls": [*own["urls"], prefix]}})
                except Exception:  # noqa: BLE001 - covered by another one
                    continue
                own["urls"].append(prefix)
        if chance.random() < 0.3:
            own["methods"] = chance.sample(METHODS[:5], chance.randrange(1, 4))
        if chance.random() < 0.3:
            own["mounts"] = chance.sample(list(MOUNTS), chance.randrange(4))
        if own:
            rules[name] = own
    mounts = {name: chance.choice(["read", "write"]) for name in MOUNTS if chance.random() < 0.8}
    return policy(rules, url_allowlist=urls, sandbox={"mounts": mounts})


def changed(chance: random.Random, made: Policy) -> Policy:
    """Another policy: apart, or with one part of another."""
    other = generated(chance)
    if chance.random() < 0.3:
        return other
    key = chance.choice(["tools", "url_allowlist", "sandbox"])
    mixed = {**made.data, key: other.data.get(key)}
    return Policy.from_dict({name: value for name, value in mixed.items() if value is not None})


@pytest.mark.parametrize("seed", range(int(os.environ.get("TACHOGRAPH_POLICY_PAIRS", "60"))))
def test_generated_pairs_differ_where_asking_about_everything_says_so(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(widenings, "_NAMED", len(TOOLS))  # so that a line names every tool
    chance = random.Random(seed)
    old = generated(chance)
    new = changed(chance, old)
    found: Comparison = compare_policies(old, new, TOOLS)
    before, after = (set(reached(Gate(made, TOOLS))) for made in (old, new))
    assert found.undecided == ()
    for kind, gained in ((WIDENING, after - before), (TIGHTENING, before - after)):
        named = {
            tool
            for change in found.changes
            if change.kind == kind
            for sentence in change.description.split("; ")
            for tool in sentence.split(" may ")[0].split(", ")
        }
        assert named == {tool for tool, _ in gained}, (kind, old.data, new.data)
