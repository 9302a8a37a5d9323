"""What the comparison of two policies tells, against brute force in a small world."""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from typing import Any

from tachograph.fail.errors import PolicyError
from tachograph.review.compare import diff, gates
from tachograph.runtime.log.values import Call, Reach, Touch
from tachograph.runtime.policy.gate import Gate
from tachograph.runtime.policy.leaf import Question, Result, Step
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.contract import Tool

# `PAIRS=20000` takes minutes
PAIRS = int(os.environ.get("PAIRS", "600"))
ORDER = ("allow", "escalate", "deny")
URLS = "https://h.test/ https://h.test/a https://h.test/a/ https://h.test/a/b http://h.test/ k.test".split()
NETWORKS = "10.0.0.0/8 10.0.0.0/9 10.128.0.0/9 10.1.0.0/16 192.168.0.0/16 fd00::/8 8.0.0.0/7".split()
ADDRESSES = ["8.8.8.8", "10.1.2.3", "10.2.0.1", "10.200.0.1", "192.168.1.1", "fd00::1", "127.0.0.1"]


def tool(name: str, effect: str, **properties: dict[str, Any]) -> Tool:
    schema = {"type": "object", "additionalProperties": False, "properties": properties}
    return Tool(name, "", {**schema, "required": list(properties)}, schema, effect, lambda arguments, io: {})


TOOLS = {
    it.name: it
    for it in (
        tool("fetch", "network", url={"type": "string", "x-resource": "url"}),
        tool("save", "write", path={"type": "string", "x-resource": "path:write"}, text={"type": "string"}),
        tool(
            "pay",
            "external",
            amount={"type": "number", "maximum": 3},
            to={"type": "string"},
            note={"type": "string"},
        ),
    )
}


def condition(draw: random.Random, pointer: str) -> dict[str, Any]:
    if pointer == "/amount":
        lower = draw.choice([{}, {"minimum": draw.randint(0, 2)}, {"exclusiveMinimum": draw.randint(0, 2)}])
        least = max(lower.values(), default=0)
        most = {draw.choice(["maximum", "exclusiveMaximum"]): least + draw.randint(1, 2)}
        return draw.choice(
            [lower or most, most, lower | most, {"in": draw.sample([0, 1, 2], draw.randint(1, 3))}]
        )
    choices = [
        {"in": draw.sample(["a", "b", "c"], draw.randint(1, 3))},
        {"maxLength": draw.randint(1, 3)},
        {"pattern": draw.choice(["^a", "b$"])},
    ]
    return draw.choice(choices)


def conditions(draw: random.Random) -> dict[str, Any]:
    return {pointer: condition(draw, pointer) for pointer in ("/amount", "/to") if draw.random() < 0.5}


def policy(draw: random.Random) -> dict[str, Any]:
    def some(values: list[Any], most: int) -> list[Any]:
        return draw.sample(values, draw.randint(0, most))

    def url() -> Any:
        entry = draw.choice(URLS)
        methods = draw.sample(["GET", "HEAD", "POST"], draw.randint(1, 3))
        return entry if draw.random() < 0.5 else {"url": entry, "methods": methods}

    mounts = {
        name: draw.choice(["read", "write", "write"])
        for name in draw.sample(["a", "b"], draw.choice([0, 1, 2, 2]))
    }
    tools: dict[str, Any] = {}
    if draw.random() < 0.5:
        narrowed = {
            "urls": some(URLS, 3),
            "methods": draw.sample(["GET", "HEAD", "POST"], draw.randint(1, 2)),
        }
        tools["fetch"] = {key: value for key, value in narrowed.items() if draw.random() < 0.6}
    if draw.random() < 0.5:
        own = [*mounts][draw.choice([0, 0, 1]) :]
        tools["save"] = {"mounts": own, "limits": {"calls": draw.choice([0, 1, 1, 2, 2])}}
    if draw.random() < 0.9:
        tools["pay"] = {
            "arguments": conditions(draw),
            "ask_if": conditions(draw) if draw.random() < 0.4 else {},
            "resources": {"/to": "text", "/note": draw.choice(["text", "text", "url", "path:read", "any"])},
        }
    limits = {name: draw.randint(1, 4) for name in ("iterations", "tokens", "tool_calls", "result_bytes")}
    return {
        "schema": "policy/v1",
        "tool_registry": {"allowed": some([*TOOLS], 3) if draw.random() < 0.3 else [*TOOLS]},
        "url_allowlist": [url() for _ in range(draw.choice([0, 1, 2, 2, 3, 3]))],
        "private_networks": some(NETWORKS, 2),
        "sandbox": {"mounts": mounts},
        "arg_schema_enforcement": draw.choice(["strict", "strict", "shape"]),
        "loop_budget": {
            **{f"max_{name}": most for name, most in limits.items()},
            "overdraft": draw.choice(["allow", "deny"]),
            **({"max_cost": f"0.00000{draw.randint(1, 4)} USD"} if draw.random() < 0.3 else {}),
            **({"max_wall_clock_s": draw.randint(1, 4)} if draw.random() < 0.3 else {}),
        },
        "cycle_detection": {"max_repeats": draw.randint(1, 3)},
        "tools": tools,
        "approval": {"required_for": some([*TOOLS], 1)},
        "redact": {"kinds": some(["email", "jwt"], 2), "reveal_to": {"save": some(["email"], 1)}},
    }


RUN = ("tokens", "cost", "wall_clock_s")


def world() -> list[Question]:
    calls = [Call("c", "fetch", {"url": f"https://h.test{path}"}) for path in ("/", "/a", "/a/b", "/c")]
    calls += [Call("c", "fetch", {"url": url}) for url in ("http://h.test/", "https://k.test/")]
    calls += [Call("c", "save", {"path": f"{mount}/x", "text": "t"}) for mount in "abc"]
    secrets = ("<secret:email:000000>", "<secret:jwt:000000>")
    calls += [Call("c", "save", {"path": "a/x", "text": secret}) for secret in secrets]
    amounts = (-1, 0, 0.5, 1, 1.5, 2, 3, 4, "1")
    names, notes = ("a", "b", "cb", "abcd", 7), ("a", "https://h.test/a", "a/x")
    pays = itertools.product(amounts, names, notes)
    calls += [Call("c", "pay", {"amount": amount, "to": to, "note": note}) for amount, to, note in pays]
    found = [Question(call, call.name) for call in calls]
    some = [
        calls[0],
        Call("c", "save", {"path": "b/x", "text": "t"}),
        Call("c", "pay", {"amount": 1, "to": "a", "note": "a"}),
    ]
    for call in some:
        for number in range(5):
            found.append(Question(call, call.name, repeats=number))
            for name in (*RUN, "tool_calls", "result_bytes", "attempts", "calls", "per_minute"):
                found.append(Question(call, call.name, {name: number}))
    for number in range(5):
        found += [Question(Step(), "", {name: number}) for name in ("iterations", *RUN)]
        found.append(Question(Result(1), "fetch", {"result_bytes": number}))
    for path in ("/", "/a", "/ab", "/a/", "/a/b", "/a/c", "/a/b/c"):
        for origin in ("https://h.test", "http://h.test", "https://k.test"):
            for method in ("GET", "HEAD", "POST"):
                found.append(Question(Reach(origin + path, method), "fetch"))
    found += [Question(Reach("https://h.test/a", "GET", address), "fetch") for address in ADDRESSES]
    return found + [
        Question(Touch(f"{mount}/x", access), "save") for mount in "abc" for access in ("read", "write")
    ]


def answer(gate: Gate, question: Question) -> int:
    """Return how freely a gate answers; a tool that may not be called meets nothing."""
    limits = gate.policy.tool_rules(question.tool).limits.limits
    if question.tool and (not gate.policy.names.allows(question.tool) or 0 in limits.values()):
        return ORDER.index("deny")
    return ORDER.index(gate.ask(question, explains=False).decision)


def test_what_is_not_told_is_not_wider() -> None:
    draw = random.Random(7)
    questions, counted = world(), Counter[str]()
    for _ in range(PAIRS):
        first = policy(draw)
        second = {**policy(draw), **{key: first[key] for key in first if draw.random() < 0.5}}
        try:
            old, new = Policy.from_dict(first), Policy.from_dict(second)
        except PolicyError:  # a mount of a tool that is not declared
            continue
        told = [change for change in diff(old, new, TOOLS) if change.kind in ("WIDER", "EXPOSURE")]
        changes = [change for change in told if change.kind == "WIDER"]
        counted["pairs"] += 1
        counted["told"] += bool(changes)
        if not any(change.example for change in changes):  # else what is told is shown
            before, after = gates(old, new, TOOLS)
            really = next((it for it in questions if answer(after, it) < answer(before, it)), None)
            assert told or really is None, (first, second, really)
            counted["falsely"] += bool(changes) and really is None
        counted["entries"] += len(changes)
        counted["shown"] += sum(change.example is not None for change in changes)
    print(counted)
    assert counted["told"] < counted["pairs"]
    assert counted["shown"] >= 0.85 * counted["entries"]
    assert counted["falsely"] <= 0.08 * counted["pairs"]
