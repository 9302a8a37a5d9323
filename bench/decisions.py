"""One gate decision against its necessary parts, and with a growing run, a growing policy, rules of single tools."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from jsonschema import Draft202012Validator
from measure import Case, Row, Turns, take_turns

from tachograph import Call, Counters, Policy, Tool
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.policy.gate import ALLOW, Gate
from tachograph.runtime.resources.mount_path import parse_path
from tachograph.runtime.resources.url import parse_url
from tachograph.runtime.schema.validator import SchemaValidator

RESOURCES = {"url": "url", "path": "path:read", "target": "path:write"}
# a tool by each set of resources in its arguments
TOOLS = {"by_url": ("url",), "by_path": ("path",), "by_both": ("url", "path"), "by_target": ("target",)}
WORDS = {"by_url": "a URL", "by_path": "a path", "by_both": "a URL and a path"}
CHECKS: dict[str, Callable[[str], object]] = {"url": parse_url, "path": parse_path}


def tool(name: str, fields: Sequence[str], note: dict[str, Any]) -> Tool:
    properties: dict[str, Any] = {
        field: {"type": "string", "minLength": 1, "maxLength": 2048, "x-resource": RESOURCES[field]}
        for field in fields
    }
    properties["note"] = note
    properties["limit"] = {"type": "integer", "minimum": 1, "maximum": 100}
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": [*fields],
        "properties": properties,
    }
    return Tool(name, "", schema, {"type": "object", "additionalProperties": False}, "pure", True, _nothing)


def _nothing(_arguments: dict[str, Any], _io: Any) -> dict[str, Any]:
    return {}


def policy(urls: list[str], per_tool: dict[str, Any] | None = None) -> Policy:
    names = dict.fromkeys([*TOOLS, *(per_tool or {})])
    return Policy.from_dict(
        {
            "schema": "policy/v1",
            **({"tools": per_tool, "approval": {"required_for": [], "timeout_s": 300}} if per_tool else {}),
            "tool_registry": {"allowed": [*names]},
            "url_allowlist": urls,
            "sandbox": {"mounts": {"corpus": "read", "sandbox": "write"}},
            "loop_budget": {
                "max_iterations": 1_000_000,
                "max_tokens": 1_000_000_000,
                "max_tool_calls": 1_000_000,
                "max_result_bytes": 1_000_000_000,
            },
            "cycle_detection": {"max_repeats": 3},
        }
    )


TEXT: dict[str, Any] = {"type": "string", "maxLength": 200}
# a text that only the schema library judges
PATTERNED: dict[str, Any] = {**TEXT, "pattern": "^[a-z0-9 ]*$"}


# rules of one tool that the calls of `arguments` pass
RULES: dict[str, Any] = {
    "arguments": {"/limit": {"maximum": 100}, "/note": {"maxLength": 100}},
    "ask_if": {"/limit": {"exclusiveMinimum": 100}},
    "limits": {"calls": 1_000_000},
}


def rules_of(count: int) -> dict[str, Any]:
    """Return rules of the tools of the calls and of others, `count` tools in all."""
    return dict.fromkeys((*TOOLS, *(f"other_{n}" for n in range(count - len(TOOLS)))), RULES)


def gate(
    urls: list[str],
    *,
    schema: bool = True,
    note: dict[str, Any] = TEXT,
    per_tool: dict[str, Any] | None = None,
) -> Gate:
    """Return a gate over `TOOLS`, each with a `note` of that schema; without `schema` that rule allows all."""
    tools = {name: tool(name, fields, note) for name, fields in TOOLS.items()}
    if not schema:
        for each in tools.values():
            each.__dict__["input_validator"] = SchemaValidator({})
    return Gate(policy(urls, per_tool), tools)


def url(n: int) -> str:
    return f"https://host-{n % 10}.example.com/documents/{n}/page-{n}.md?revision={n}"


def path(n: int) -> str:
    return f"corpus/documents/{n}/page-{n}.md"


RESOURCE: dict[str, Callable[[int], str]] = {"url": url, "path": path}


def arguments(name: str, n: int) -> dict[str, Any]:
    given: dict[str, Any] = {field: RESOURCE[field](n) for field in TOOLS[name]}
    return {**given, "note": f"page {n}", "limit": 1 + n % 100}


def call(name: str, n: int) -> Call:
    return Call(f"tc_{n}_0", name, freeze(arguments(name, n)))


def urls(count: int) -> list[str]:
    """URL entries: ten hosts, which the calls go to, and then others."""
    few = [f"https://host-{n}.example.com/" for n in range(10)]
    return few + [f"https://other-{n}.example.com/documents" for n in range(count - 10)]


def prefixes(count: int) -> list[str]:
    """Return a prefix on each of the ten hosts that the calls go to, and others beside it."""
    few = [f"https://host-{n}.example.com/documents/" for n in range(10)]
    return few + [f"https://host-{n % 10}.example.com/others/{n}/" for n in range(count - 10)]


def worn(entries: int) -> Counters:
    """Return the counters of a run that has made `entries` calls."""
    keys = [hashlib.sha256(str(n).encode()).digest() for n in range(entries)]
    return Counters(
        iterations=entries,
        tokens=entries,
        tool_calls=entries,
        result_bytes=entries,
        repeats=dict.fromkeys(keys, 1),
        results={hashlib.sha256(key).digest(): 1 for key in keys},
    )


def decide(which: Gate, name: str, counters: Counters) -> Case:
    assert which.decide(call(name, 0), counters).decision == ALLOW
    return Case(lambda c: which.decide(c, counters), lambda n: call(name, n))


def validate(which: Gate, name: str) -> Case:
    """Validate with a kept validator of `jsonschema`, the reference of the field, whatever the gate uses."""
    validator = Draft202012Validator(dict(which.tools[name].input_schema))
    assert not list(validator.iter_errors(arguments(name, 0)))
    return Case(lambda data: list(validator.iter_errors(data)), lambda n: arguments(name, n))


def rows(*, quick: bool) -> list[Row]:
    full, bare = gate(urls(10)), gate(urls(10), schema=False)
    library, ruled = gate(urls(10), note=PATTERNED), gate(urls(10), per_tool=rules_of(len(TOOLS)))
    fresh = Counters()
    cases = {
        "steps-10000": decide(full, "by_url", worn(10_000)),
        "entries-1000": decide(gate(urls(1000)), "by_url", fresh),
        "prefixes-10": decide(gate(prefixes(20)), "by_url", fresh),
        "prefixes-1000": decide(gate(prefixes(1000)), "by_url", fresh),
        "by_path-rules-1000": decide(gate(urls(10), per_tool=rules_of(1000)), "by_path", fresh),
        "library": decide(library, "by_both", fresh),
        "library-schema": validate(library, "by_both"),
    }
    for field, check in CHECKS.items():
        cases[f"{field}-check"] = Case(check, RESOURCE[field])
    for name in ("by_url", "by_path", "by_both"):
        cases |= {
            name: decide(full, name, fresh),
            f"{name}-bare": decide(bare, name, fresh),
            f"{name}-rules": decide(ruled, name, fresh),
            f"{name}-schema": validate(full, name),
        }
    turns = take_turns(cases, 5 if quick else 100)
    return [*_parts(turns), *_flat(turns)]


def _parts(turns: Turns) -> list[Row]:
    both = ("url-check", "path-check")
    checks = {"by_url": both[:1], "by_path": both[1:], "by_both": both}

    def us(name: str) -> str:
        return f"{turns.us(name):.1f} us"

    return [
        *(
            Row(
                f"decision on {WORDS[name]} : validation + checks",
                turns.ratio(name, f"{name}-schema", *checks[name]),
                1.5,
                note=f"{us(name)}, validation {us(f'{name}-schema')}",
            )
            for name in checks
        ),
        Row(
            "the same, a schema for the library : validation + checks",
            turns.ratio("library", "library-schema", *both),
            1.5,
            note=f"{us('library')}, validation {us('library-schema')}",
        ),
        *(
            Row(
                f"decision on {WORDS[name]}, no schema rule : checks",
                turns.ratio(f"{name}-bare", *checks[name]),
                15,
                note=f"{us(f'{name}-bare')}, " + ", ".join(f"{check} {us(check)}" for check in checks[name]),
            )
            for name in checks
        ),
    ]


def _flat(turns: Turns) -> list[Row]:
    return [
        Row("decision after 10,000 steps : after none", turns.ratio("steps-10000", "by_url"), 1.25),
        Row("decision with 1,000 URL entries : with 10", turns.ratio("entries-1000", "by_url"), 1.25),
        Row(
            "decision with 990 prefixes on 10 hosts : with 10",
            turns.ratio("prefixes-1000", "prefixes-10"),
            1.25,
        ),
        *(
            Row(
                f"decision on {words} with rules of the tool : without",
                turns.ratio(f"{name}-rules", name),
                1.3,
                note=f"{turns.us(f'{name}-rules'):.1f} us",
            )
            for name, words in WORDS.items()
        ),
        Row(
            "decision with rules of 1,000 tools : of 4",
            turns.ratio("by_path-rules-1000", "by_path-rules"),
            1.25,
        ),
    ]
