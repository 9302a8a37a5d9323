"""A small world of tools, and what two gates say of everything that can be asked in it.

Nothing here knows how policies are compared: the real gates are asked.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tachograph.review.compare.policy_compare import TIGHTENING, WIDENING
from tachograph.runtime.core.effects import Call
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.policy.gate import Counters, Decision, Gate
from tachograph.runtime.resources.url import parse_url
from tachograph.runtime.tools.contract import SHIPPED, Tool
from tachograph.runtime.tools.loader import load_named
from tests.support import OUTPUT, ROOT

Data = dict[str, Any]
RANK = {"allow": 0, "escalate": 1, "deny": 2}

# ---- tools ---------------------------------------------------------------------------------------------


def made(name: str, effect: str, required: list[str] | None = None, **properties: Any) -> Tool:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": required or [],
    }
    return Tool(name, f"the tool {name}", schema, OUTPUT, effect, True, lambda args, io: {})


URL = {"type": "string", "x-resource": "url"}
READ = {"type": "string", "x-resource": "path:read"}
WRITE = {"type": "string", "x-resource": "path:write"}
TOOLS: dict[str, Tool] = {
    **{name: load_named(name, ROOT / "tools") for name in ("search", "fetch", "write")},
    "news": made("news", "network"),
    "split": made("split", "pure", ["url"], url=URL),
    "narrow": made("narrow", "pure", ["url"], url={**URL, "enum": ["https://x.test/a/b", "http://x.test/"]}),
    "short": made("short", "pure", ["url"], url={**URL, "maxLength": 15}),
    "copy": made("copy", "write", ["src"], src=READ, dst=WRITE),
    "name_of": made("name_of", "pure", ["path"], path=READ),
    "count": made("count", "pure", ["n"], n={"type": "integer", "maximum": 3}),
    "plain": made("plain", "pure", n={"type": "integer"}),
    "load": made("load", "network", ["url", "to"], url=URL, to=WRITE),
}
assert {"search", "fetch", "write"} <= set(SHIPPED)

# ---- everything that can be asked ----------------------------------------------------------------------

HOSTS = (
    "https://x.test",
    "http://x.test",
    "https://y.test:8443",
    "http://10.0.0.1",
    "http://[2002:a00:1::1]",
)
# what entries are made of: each entry is among the URLs asked about
PREFIXES = ("/", "/a", "/a/", "/a/b", "/a/b/", "/ab")
PATHS_OF_URLS = (
    *("", "/", "/a", "/a/", "/ab", "/a/b", "/a/b/", "/a/b/c", "/a?q", "/c"),
    *("/a/../b", "/a%2e/", "//", "/a;b"),
)
URLS = [HOSTS[0] + path for path in PATHS_OF_URLS]
URLS += [host + path for host in HOSTS[1:] for path in ("", *PREFIXES, "/a/b/c", "/a%2e/")]
URLS += ["https://z.test/", "x", "https://x.test:443/a"]
PATHS = ["m/x", "n/x/y", "m", "m/../n", "o/x", ""]
ADDRESSES = (
    *(
        "8.8.8.8",
        "10.0.0.1",
        "10.127.255.255",
        "10.128.0.0",
        "127.0.0.1",
        "192.0.2.1",
        "192.168.1.1",
        "0.0.0.0",
    ),
    *("fc00::1", "2002:808:808::1", "2002:a00:1::1", "2001:0:808:808::f7f7:f7f7", "2001:0:a00:1::f7f7:f7f7"),
    *(
        "::8.8.8.8",
        "::10.0.0.1",
        "::",
        "::1",
        "64:ff9b::8.8.8.8",
        "64:ff9b::a00:1",
        "100::1",
        "2001:db8::1",
        "1::1",
    ),
    *("2606:4700::1", "::2", "2001:1::1"),
)
# longer than the tools' own schemas let pass
LONG = [f"{mount}/{'/'.join(['x' * 200] * 3)}" for mount in ("m", "n")]
ARGUMENTS: dict[str, list[Any]] = {
    "url": URLS, "path": [*PATHS, *LONG], "src": PATHS, "dst": PATHS[:3], "to": PATHS[:2], "n": [0, 3, 4, "x"],
    "query": ["x", ""], "top_k": [1, 21], "content": ["x"],
}  # fmt: skip


def calls_of(tool: Tool) -> Iterator[dict[str, Any]]:
    names = list(tool.input_schema["properties"])
    rows = [[None, *ARGUMENTS[name]] for name in names]
    for values in itertools.product(*rows):
        yield {name: value for name, value in zip(names, values, strict=True) if value is not None}


CALLS = {name: [Call("tc_1_0", name, freeze(a)) for a in calls_of(tool)] for name, tool in TOOLS.items()}


def late_of(tool: Tool) -> list[Data | None]:
    """What may be met while a tool runs."""
    kinds = {resource.kind for resource in tool.resources}
    out: list[Data | None] = [None]
    if "get" in tool.uses or ("url" in kinds and tool.effect != "pure"):
        for url in URLS:
            out.append({"rule": "url_allowlist", "target": url, "hop": 1})
    reads = "read" in tool.uses or (tool.effect != "pure" and kinds & {"path:read", "path:write"})
    writes = "write" in tool.uses or (tool.effect != "pure" and "path:write" in kinds)
    for path in PATHS:
        for access in ["read"] * bool(reads) + ["write"] * bool(writes):
            out.append({"rule": "sandbox_path", "path": path, "access": access})
            out.append({"rule": "sandbox_path", "path": path, "access": access, "found": "link"})
    return out


LATE = {name: late_of(tool) for name, tool in TOOLS.items()}
# what kinds of facts each tool may meet
KINDS = {
    name: {(item["rule"], item.get("access", "hop")) for item in found if item is not None}
    for name, found in LATE.items()
}


def addresses(old: Gate, new: Gate) -> list[Data]:
    """Addresses behind the first name that one gate, the other and both let pass, and those that URLs name."""
    hop = [{"rule": "url_allowlist", "target": url, "hop": 0} for url in URLS if url != "x"]
    ranks = [tuple(gate.decide_late(check).decision for gate in (old, new)) for check in hop]
    names: dict[tuple[str, ...], Data] = {}
    out: list[Data] = []
    for check, rank in zip(hop, ranks, strict=True):
        host = parse_url(check["target"]).host
        if host.startswith(("10.", "2002:")):
            out.append({**check, "address": host})
        else:
            names.setdefault(rank, check)
    return [*out, *({**check, "address": address} for check in names.values() for address in ADDRESSES)]


STEPS = [(i, t) for i in range(4) for t in range(4)]
# each repeat was a call, and brought two bytes at least
COUNTS = [
    (calls, size, repeats)
    for calls in range(4)
    for size in (0, 1, 2, 3, 4, 5, 6, 7, 9)
    for repeats in range(4)
    if repeats <= calls and 2 * repeats <= size and (calls or not size)
]
SIZES = (None, 2, 3, 4, 7, 8, 9, 10)


class Part(NamedTuple):
    """What two gates say of a part of an event: ranks, the rule that speaks, the entries that grant it."""

    old: int = 0
    new: int = 0
    rule: str = ""
    old_at: str | None = None
    new_at: str | None = None


@dataclass
class Found:
    """What the gates say apart in one direction: by rule, tool and entry where one rule alone speaks against it."""

    any: bool
    alone: set[tuple[str, str | None, str | None]]


def both(old: Gate, new: Gate) -> dict[str, Found]:
    """Whether some event is let through further by one than by the other."""
    found = {WIDENING: Found(False, set()), TIGHTENING: Found(False, set())}

    def note(name: str | None, parts: tuple[Part, ...]) -> None:
        before, after = max(part.old for part in parts), max(part.new for part in parts)
        if before == after:
            return
        kind = WIDENING if after < before else TIGHTENING
        found[kind].any = True
        against = [part for part in parts if (part.old if kind == WIDENING else part.new)]
        if len(against) == 1:
            place = against[0].new_at if kind == WIDENING else against[0].old_at
            found[kind].alone.add((against[0].rule, name, place))

    steps = {part(old, new, lambda gate, step=step: gate.decide_step(Counters(*step))) for step in STEPS}
    for step in steps:
        note(None, (step,))
    fits = {used: frozenset(sized(old, new, size, used) for size in SIZES) for _, used, _ in COUNTS}
    for name in TOOLS:
        met = [*LATE[name], *(addresses(old, new) if ("url_allowlist", "hop") in KINDS[name] else ())]
        lates = {part(old, new, lambda gate, late=late: late and gate.decide_late(late)) for late in met}
        calls, seen = unlike(old, new, name), set()
        for counts in COUNTS:
            sizes = fits[counts[1]]
            proposals = frozenset(proposed(old, new, call, counts) for call in calls)
            if (sizes, proposals) not in seen:
                seen.add((sizes, proposals))
                for parts in itertools.product(proposals, steps, lates, sizes):
                    note(name, parts)
    return found


def part(old: Gate, new: Gate, ask: Callable[[Gate], Decision | None], *, many: bool = False) -> Part:
    """What the gates answer, told apart by the entries that grant it unless `many` may."""
    answers = [ask(gate) or Decision("allow", "", "", "") for gate in (old, new)]
    worse = max(answers, key=lambda answer: RANK[answer.decision])
    told = worse.rule_id in ("url_allowlist", "sandbox_path") and "address" not in worse.facts and not many
    granted = [
        answer.at if told and answer.decision == "allow" and answer.rule_id == worse.rule_id else None
        for answer in answers
    ]
    return Part(*(RANK[answer.decision] for answer in answers), worse.rule_id, *granted)


def sized(old: Gate, new: Gate, size: int | None, used: int) -> Part:
    return part(old, new, lambda gate: size and gate.decide_result(size, Counters(result_bytes=used)))


def proposed(old: Gate, new: Gate, call: Call, counts: tuple[int, int, int]) -> Part:
    def ask(gate: Gate) -> Decision:
        counters = Counters(tool_calls=counts[0], result_bytes=counts[1])
        counters.repeats[gate.key_of(call)] = counts[2]
        return gate.decide(call, counters)

    return part(old, new, ask, many=len(TOOLS[call.name].resources) > 1)


def unlike(old: Gate, new: Gate, name: str) -> list[Call]:
    """A call for each answer that a tool's calls get when nothing was used: all of them are asked then."""
    if all(name not in gate.policy.allowed for gate in (old, new)):
        return CALLS[name][:1]
    found: dict[Part, Call] = {}
    for call in CALLS[name]:
        found.setdefault(proposed(old, new, call, (0, 0, 0)), call)
    return list(found.values())
