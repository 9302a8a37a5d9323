"""One gate decision against the parts that it cannot do without, and against a growing run and policy."""

from __future__ import annotations

import hashlib
from typing import Any

from measure import Case, Row, take_turns

from tachograph import Call, Counters, Policy, Tool
from tachograph.runtime.canonical_json import freeze
from tachograph.runtime.gate import ALLOW, Gate
from tachograph.runtime.resources import parse_path, parse_url

RESOURCES = {"url": "url", "path": "path:read"}


def tool(name: str, field: str) -> Tool:
    properties = {
        field: {"type": "string", "minLength": 1, "maxLength": 2048, "x-resource": RESOURCES[field]},
        "note": {"type": "string", "maxLength": 200},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100},
    }
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": [field],
        "properties": properties,
    }
    return Tool(name, "", schema, {"type": "object", "additionalProperties": False}, "pure", True, _nothing)


def _nothing(_arguments: dict[str, Any], _io: Any) -> dict[str, Any]:
    return {}


def policy(urls: list[str]) -> Policy:
    return Policy.from_dict(
        {
            "schema": "policy/v1",
            "tool_registry": {"allowed": ["by_url", "by_path"]},
            "url_allowlist": urls,
            "sandbox": {"mounts": {"corpus": "read"}},
            "loop_budget": {
                "max_iterations": 1_000_000,
                "max_tokens": 1_000_000_000,
                "max_tool_calls": 1_000_000,
                "max_result_bytes": 1_000_000_000,
            },
            "cycle_detection": {"max_repeats": 3},
        }
    )


def gate(urls: list[str], *, schema: bool = True) -> Gate:
    tools = {"by_url": tool("by_url", "url"), "by_path": tool("by_path", "path")}
    if not schema:
        for each in tools.values():
            each.__dict__["input_fits"] = lambda _data: True
    return Gate(policy(urls), tools)


def url(n: int) -> str:
    return f"https://host-{n % 10}.example.com/documents/{n}/page-{n}.md?revision={n}"


def path(n: int) -> str:
    return f"corpus/documents/{n}/page-{n}.md"


def arguments(field: str, n: int) -> dict[str, Any]:
    return {field: url(n) if field == "url" else path(n), "note": f"page {n}", "limit": 1 + n % 100}


def call(field: str, n: int) -> Call:
    return Call(f"tc_{n}_0", f"by_{field}", freeze(arguments(field, n)))


def worn(entries: int) -> Counters:
    """The counters of a run that has made `entries` calls."""
    keys = [hashlib.sha256(str(n).encode()).digest() for n in range(entries)]
    return Counters(
        iterations=entries,
        tokens=entries,
        tool_calls=entries,
        result_bytes=entries,
        repeats=dict.fromkeys(keys, 1),
        results={hashlib.sha256(key).digest(): 1 for key in keys},
    )


def rows(*, quick: bool) -> list[Row]:
    few = [f"https://host-{n}.example.com/" for n in range(10)]
    many = few + [f"https://other-{n}.example.com/documents" for n in range(990)]
    prefixes = [f"https://host-{n % 10}.example.com/documents/{n}/" for n in range(990)]
    full, bare = gate(few), gate(few, schema=False)
    gates = {
        "entries-1000": gate(many),
        "prefixes-10": gate(few + prefixes[:10]),
        "prefixes-1000": gate(few + prefixes),
    }
    fresh, old = Counters(), worn(10_000)

    def decide(which: Gate, field: str, counters: Counters) -> Case:
        assert which.decide(call(field, 0), counters).decision == ALLOW
        return Case(lambda c: which.decide(c, counters), lambda n: call(field, n))

    cases = {
        "steps-10000": decide(full, "url", old),
        "steps-0": decide(full, "url", fresh),
        **{name: decide(which, "url", fresh) for name, which in gates.items()},
    }
    for field, parse in (("url", parse_url), ("path", parse_path)):
        validator = full.tools[f"by_{field}"].input_validator
        cases |= {
            f"{field}": decide(full, field, fresh),
            f"{field}-bare": decide(bare, field, fresh),
            f"{field}-schema": Case(
                lambda data, v=validator: list(v.iter_errors(data)), lambda n, f=field: arguments(f, n)
            ),
            f"{field}-parse": Case(parse, url if field == "url" else path),
        }
    turns = take_turns(cases, 5 if quick else 120)
    out = []
    for field in ("url", "path"):
        out += [
            Row(
                f"decision on a {field} : schema alone + {field} check alone",
                turns.ratio(field, f"{field}-schema", f"{field}-parse"),
                2.0,
                note=f"{turns.us(field):.0f} us",
            ),
            Row(
                f"decision on a {field} without the schema rule : {field} check alone",
                turns.ratio(f"{field}-bare", f"{field}-parse"),
                note=f"{turns.us(f'{field}-bare'):.0f} us",
            ),
        ]
    return [
        *out,
        Row("decision after 10,000 steps : after none", turns.ratio("steps-10000", "steps-0"), 1.25),
        Row("decision with 1,000 URL entries : with 10", turns.ratio("entries-1000", "steps-0"), 1.25),
        Row(
            "decision with 1,000 prefixes on 10 hosts : with 10",
            turns.ratio("prefixes-1000", "prefixes-10"),
            1.25,
        ),
    ]
