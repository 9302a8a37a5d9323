"""Schemas, policies and arguments that are meant to be costly: how much CPU does the costliest decision take?

Each input seeds one tool, one policy and arguments of growing size, up to the first that are refused as too costly.
What is counted decides in the product; here the CPU is measured, to see that what is counted bounds it.
"""

from __future__ import annotations

import gc
import random  # noqa: TID251 - seeded by the input
import time  # noqa: TID251 - the CPU that a decision takes is what is looked for
from collections.abc import Iterable
from typing import Any

from fuzz.oracle import Finding, need
from tachograph import Policy, Tool
from tachograph.fail.errors import PolicyError, ToolError
from tachograph.runtime.core.effects import Call
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.policy.gate import Counters, Decision, Gate

WORTH_A_SECOND_LOOK_S = 0.03
TOO_SLOW_S = 1.0  # of one decision, with room for a busy machine; the aim is 0.05
_NOTHING = {"type": "object", "additionalProperties": False}
_PATTERNS = (
    *("^(?:a?a?a?a?a?a?a?){0,7}c", "(a{0,7}){0,7}(a{0,7}){0,7}c", "^(a+)+$", "^.{1,2000}$", "^.{0,300}c"),
    *("[ab]*a[ab]{500}c", "(a?){800}a{800}", r"^[\w.]+@[\w.]+$", "^[a-z]+$", r"(\p{L}{0,40}){0,20}x", "a"),
)
_TEXTS = ("a", "ab", "abc" * 40, "a" * 2000, "b" * 30 + "a" * 30, "\u00e9" * 50, "<secret:email:1>", "")
_NUMBERS = (0, 1, 7, -1, 2**53 - 1, 0.5, 1e-300, 5e-324, 4503599627370495.5, 123456.789, 1e-7)

costliest: tuple[float, str] = (0.0, "nothing was decided")


class Maker:
    """Makes schemas, values that nearly fit them, and policies."""

    def __init__(self, data: bytes) -> None:
        self.pick = random.Random(data)  # noqa: S311 - nothing secret

    def value(self, depth: int = 2) -> Any:
        """A value for a list, or of no particular schema."""
        kind = self.pick.randrange(6 if depth else 4)
        if kind == 0:
            return self.pick.choice(_TEXTS)
        if kind == 1:
            return self.pick.choice(_NUMBERS)
        if kind == 2:
            return self.pick.choice((None, True, False))
        if kind == 3:
            return self.pick.randrange(10**6) + self.pick.choice((0, 0.5))
        many = self.pick.choice((1, 2, 15, 60))
        if kind == 4:
            return [self.value(0)] * many + [self.value(depth - 1)]
        return {f"k{i}": self.value(0) for i in range(many)}

    def listed(self) -> list[Any]:
        """Values of one shape that differ in one place only."""
        many = self.pick.choice((1, 20, 200, 2000, 20000))
        shape = self.pick.randrange(5)
        if shape == 0:
            return [f"{'a' * 9}{i}" for i in range(many)]
        if shape == 1:
            return [i + self.pick.choice((0, 0.5)) for i in range(many)]
        if shape == 2:
            return [i / 4 for i in range(many)]
        base = self.value()
        many = min(many, 2000)
        return [[base, i] for i in range(many)] if shape == 3 else [{"a": base, "b": i} for i in range(many)]

    def leaf(self, listed: list[Any]) -> dict[str, Any]:
        """The schema of a value that holds nothing else, `listed` being what it may choose from."""
        pick = self.pick
        kind = pick.randrange(8)
        if kind == 0:
            return {"type": "string", "pattern": pick.choice(_PATTERNS)}
        if kind == 1:
            return {"type": "number", "multipleOf": abs(pick.choice(_NUMBERS)) or 3}
        if kind == 2:
            low, high = sorted((pick.choice(_NUMBERS), pick.choice(_NUMBERS)))
            return {"type": "number", "minimum": low, "exclusiveMaximum": high}
        if kind == 3:
            return {"type": "string", "minLength": 1, "maxLength": pick.choice((10, 100000))}
        if kind == 4:
            return {"type": "string", "x-resource": pick.choice(("url", "path:read", "path:write"))}
        return {"enum": listed} if pick.random() < 0.8 else {"const": listed[-1]}

    def schema(self, depth: int, listed: list[Any]) -> dict[str, Any]:
        """A schema of the subset for input schemas; not each is accepted."""
        pick = self.pick
        kind = pick.randrange(5) if depth else 0
        if kind == 0:
            return self.leaf(listed)
        if kind == 1:
            return {
                "type": "array",
                "items": self.schema(depth - 1, listed),
                "uniqueItems": pick.random() < 0.7,
            }
        if kind == 2:
            names = [f"p{i}" for i in range(pick.choice((1, 3, 40)))]
            inner = self.schema(depth - 1, listed)
            closed = {"type": "object", "additionalProperties": False}
            return {
                **closed,
                "properties": dict.fromkeys(names, inner),
                "required": names[: pick.randrange(9)],
            }
        if kind == 3:
            many = pick.choice((2, 30, 300))
            return {pick.choice(("anyOf", "oneOf")): [self.schema(0, [i]) for i in range(many)]}
        return {"anyOf": [self.schema(depth - 1, listed) for _ in range(pick.choice((2, 5)))]}

    def fitting(self, schema: dict[str, Any], listed: list[Any], many: int) -> Any:
        """A value that may fit, with `many` items in each array."""
        pick = self.pick
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self.fitting(schema[keyword][-1], listed, many)
        if schema.get("type") == "array":
            below = max(1, many // 50)
            few = [self.fitting(schema["items"], listed, below) for _ in range(min(many, 5))]
            if pick.random() < 0.3 and isinstance(few[0], list) and len(few[0]) < 10**4:
                return [[*few[0], i] for i in range(min(many, 15))]
            return (few * (many // len(few) + 1))[:many]
        if "properties" in schema:
            return {name: self.fitting(sub, listed, many) for name, sub in schema["properties"].items()}
        if "enum" in schema or "const" in schema:
            chosen = schema.get("enum", [schema.get("const")])
            return chosen[-1] if pick.random() < 0.7 else self.value()
        if "x-resource" in schema:
            roots = ("https://a.test/7/x/" + "%25" * 600, "https://b.test/7", "m/" + "a/" * 300, "m/a")
            return pick.choice(roots)
        if schema.get("type") == "string":
            return pick.choice(_TEXTS) * max(1, many // pick.choice((1, 10, 100)))
        return pick.choice(_NUMBERS)

    def foreign(self) -> dict[str, Any]:
        """Arguments that no schema allows, and that are large or nearly too large."""
        item = self.pick.choice((1, 1.5, "", "a", [], {}, [[[[]]]], {"b": []}))
        many = self.pick.choice((15_000, 30_000, 60_000, 300_000))
        if self.pick.random() < 0.5:
            return {f"q{number}": item for number in range(many)}
        return {self.pick.choice("ab"): [item] * many}

    def policy(self, schema: dict[str, Any], listed: list[Any]) -> dict[str, Any]:
        """A policy for the tool, perhaps with conditions on its arguments."""
        plain = [item for item in listed if not isinstance(item, dict | list)] or ["a"]
        conditions = [
            *({"in": "many"}, {"enum": listed}, {"pattern": self.pick.choice(_PATTERNS)}),
            *({"multipleOf": 1e-7}, {"uniqueItems": True}, {"items": {"in": "many"}}),
            {"anyOf": [{"in": "many"}, {"pattern": self.pick.choice(_PATTERNS)}]},
        ]
        pointers = ("/a", "/a/*", "/a/*/*", "/a/*/p0", "/a/p0", "")
        many = self.pick.choice((0, 1, 3, 6))
        chosen = {pointer: self.pick.choice(conditions) for pointer in self.pick.sample(pointers, many)}
        return {
            "schema": "policy/v1",
            "tool_registry": {"allowed": ["t"]},
            "lists": {"many": plain},
            "redact": {"kinds": ["email"], "reveal_to": {"t": ["email"]}},
            "url_allowlist": [f"https://a.test/{i}/x" for i in range(300)] + ["https://b.test/"],
            "sandbox": {"mounts": {"m": "write"}},
            "cycle_detection": {"max_repeats": 9},
            "loop_budget": {"max_iterations": 9, "max_tokens": 9, "max_tool_calls": 9, "max_result_bytes": 9},
            **({"tools": {"t": {self.pick.choice(("arguments", "ask_if")): chosen}}} if chosen else {}),
            "approval": {"required_for": [], "timeout_s": 9},
        }


def measure(data: bytes) -> None:
    """Decide calls of growing size, and keep the costliest. Raises Finding for one that is far too slow."""
    maker = Maker(data)
    listed = maker.listed()
    inner = maker.schema(3, listed)
    schema = {**_NOTHING, "properties": {"a": inner}}
    try:
        tool = Tool("t", "", schema, _NOTHING, "external", False, lambda arguments, io: {})
        policy = Policy.from_dict(maker.policy(inner, listed))
    except (ToolError, PolicyError):
        return
    gate = Gate(policy, {"t": tool}).prepared()
    decide(gate, maker.foreign(), data)
    many = 1
    while many <= 40_000:
        arguments = {"a": maker.fitting(inner, listed, many)}
        if decide(gate, arguments, data):
            return
        many *= maker.pick.choice((2, 3))


def timed(gate: Gate, call: Call) -> tuple[Decision, float]:
    """Return a decision and the CPU that it took.

    What was made before is kept from the collector of memory: a decision about many arrays sets it off, and it would
    look through all that the fuzzing itself has made.
    """
    gc.freeze()
    try:
        begun = time.thread_time()
        request = gate.request_for(call, Counters())
        decision = gate.decide_request(request)
        need(len(request.key) == 32, "no key")
        return decision, time.thread_time() - begun
    finally:
        gc.unfreeze()


def decide(gate: Gate, data: dict[str, Any], seed: bytes) -> bool:
    """Decide one call, and return whether it was too costly to judge, or too long to try."""
    global costliest
    arguments = freeze(data)
    if len(arguments.text) > 4_000_000:
        return True
    decision, spent = timed(gate, Call("tc_1_0", "t", arguments))
    if spent > WORTH_A_SECOND_LOOK_S:  # something else may have kept the processor busy
        spent = min(spent, *(timed(gate, Call("tc_1_0", "t", arguments))[1] for _ in range(2)))
    need(decision.rule_id != "gate_error" or "limit" in decision.facts, f"broke: {decision.facts}")
    shown = f"{decision.decision} by {decision.rule_id}, {len(arguments.text):,} characters, input {seed!r}"
    costliest = max(costliest, (spent, shown))
    if spent > TOO_SLOW_S:
        raise Finding(f"{spent:.2f} s of CPU: {shown}: {arguments.text[:300]}")
    return decision.rule_id == "gate_error"


def seeds() -> Iterable[bytes]:
    """Numbers as text; every byte string seeds another input."""
    return [str(number).encode() for number in range(200)]


def said() -> str:
    """What was costliest so far, in one line."""
    return f"costliest decision {costliest[0] * 1000:.0f} ms of CPU: {costliest[1]}"
