"""The same rules in other policy engines: do they agree, and what does a decision of theirs cost?

Tool registry, URL allowlist (scheme, host, port, path prefix in whole segments) and the mode of a mount. An
engine is asked in the form that was found to be its fastest: policy and data compiled before, the resource
parsed, its prefixes listed and all of it encoded outside the time that counts, every list a hash lookup.
The gate gets what a model sends, the arguments' text, and judges cycle, budgets and approval as well.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Protocol

import decisions
from measure import Case, Row, Turns, take_turns

from tachograph import Call, Counters
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.policy.gate import ALLOW, Gate
from tachograph.runtime.resources.mount_path import parse_path
from tachograph.runtime.resources.url import Malformed, parse_entry, parse_url

INSTALL = "pip install -r requirements-bench.txt"
ACCESS = {"path": "read", "target": "write"}

# ---- the rules and a question to them ----------------------------------------------------------------------


@dataclass(frozen=True)
class Rules:
    """What the engines are given: the sections of a policy, with every URL entry taken apart."""

    tools: Sequence[str]
    origins: dict[str, list[str]]
    mounts: dict[str, str]

    @classmethod
    def of(cls, gate: Gate) -> Rules:
        data = gate.policy.data
        origins: dict[str, list[str]] = {}
        for text in data["url_allowlist"]:
            entry = parse_entry(text)
            origins.setdefault(origin(entry), []).append(entry.prefix)
        return cls(data["tool_registry"]["allowed"], origins, data["sandbox"]["mounts"])


@dataclass(frozen=True)
class Question:
    """A call with its one resource parsed. `resource` is an origin or a mount, None where it is malformed."""

    tool: str
    kind: str
    resource: str | None
    access: str = ""
    prefixes: Sequence[str] = ()


def origin(place: Any) -> str:
    return f"{place.scheme}://{place.host}:{place.port}"


def question(tool: str, field: str, text: str) -> Question:
    kind = "url" if field == "url" else "path"
    try:
        if kind == "path":
            return Question(tool, kind, parse_path(text).mount, ACCESS[field])
        target = parse_url(text)
    except Malformed:
        return Question(tool, kind, None)
    return Question(tool, kind, origin(target), "get", prefixes(target.origin, target.path))


_PERHAPS_AMBIGUOUS = re.compile(r"%|;|//|/\.")


def prefixes(where: str, path: str) -> list[str]:
    """Every prefix that would cover a path, itself last; "/" alone where its segments are ambiguous."""
    if _PERHAPS_AMBIGUOUS.search(path):
        try:
            parse_entry(where + path)
        except Malformed:
            return ["/"]
    found, at = ["/"], path.find("/", 1)
    while at > 0:
        found += (path[:at], path[: at + 1])
        at = path.find("/", at + 1)
    if found[-1] != path:
        found.append(path)
    return found


# ---- the engines -------------------------------------------------------------------------------------------


class Engine(Protocol):
    """`ask` makes a question ready, outside the time that counts; `allows` answers it."""

    NAME: str
    PACKAGE: str

    def ask(self, question: Question) -> Any: ...
    def allows(self, asked: Any) -> bool: ...


class Cedar:
    """cedarpy: entities for tools, origins and mounts, so that three policies do, however many entries."""

    NAME = PACKAGE = "cedarpy"
    POLICIES = """
        permit (principal in Tools::"allowed", action == Action::"get", resource in Origins::"allowed")
            when { resource.prefixes.containsAny(context.prefixes) };
        permit (principal in Tools::"allowed", action == Action::"read", resource in Mounts::"declared");
        permit (principal in Tools::"allowed", action == Action::"write", resource in Mounts::"writable");
    """

    def __init__(self, rules: Rules) -> None:
        import cedarpy

        self._is_authorized = cedarpy.is_authorized
        self._policies = cedarpy.PolicySet.from_str(self.policies(rules))
        self._entities = cedarpy.Entities.from_json_str(json.dumps(self.entities(rules)))

    def policies(self, _rules: Rules) -> str:
        return self.POLICIES

    def entities(self, rules: Rules) -> list[dict[str, Any]]:
        def entity(kind: str, name: str, *groups: str, **attrs: Any) -> dict[str, Any]:
            above = [{"type": f"{kind}s", "id": group} for group in groups]
            return {"uid": {"type": kind, "id": name}, "attrs": attrs, "parents": above}

        modes = {"read": ("declared",), "write": ("declared", "writable")}
        return [
            *(entity("Tool", name, "allowed") for name in rules.tools),
            *(entity("Origin", name, "allowed", prefixes=found) for name, found in rules.origins.items()),
            *(entity("Mount", name, *modes[mode]) for name, mode in rules.mounts.items()),
        ]

    def ask(self, question: Question) -> Any:
        kind = "Origin" if question.kind == "url" else "Mount"
        return {
            "principal": {"type": "Tool", "id": question.tool},
            "action": {"type": "Action", "id": question.access or "none"},
            "resource": {"type": kind, "id": question.resource or ""},
            "context": json.dumps({"prefixes": list(question.prefixes)} if kind == "Origin" else {}),
        }

    def allows(self, asked: Any) -> bool:
        return bool(self._is_authorized(asked, self._policies, self._entities).allowed)


class CedarByEntry(Cedar):
    """cedarpy with one policy for each URL entry, as such lists are mostly written."""

    NAME = "cedarpy, a policy for each entry"

    def policies(self, rules: Rules) -> str:
        found = [text for text in self.POLICIES.split(";") if "Mounts" in text]
        for name, entries in rules.origins.items():
            scope = 'principal in Tools::"allowed", action == Action::"get", resource == Origin::'
            found += [f'permit ({scope}"{name}")' + self._condition(prefix) for prefix in entries]
        return "".join(f"{text};\n" for text in found)

    def _condition(self, prefix: str) -> str:
        if prefix == "/":
            return ""
        below = prefix if prefix.endswith("/") else f"{prefix}/"
        return f' when {{ context.path == "{prefix}" || context.path like "{below}*" }}'

    def ask(self, question: Question) -> Any:
        path = question.prefixes[-1] if question.prefixes else "/"
        return {**super().ask(question), "context": json.dumps({"path": path})}


# a rule for each kind of resource: the engine is told which one to evaluate
REGO = """package gate

default url := false

default path := false

url if {
    data.rules.tools[input.tool]
    entries := data.rules.origins[input.resource]
    some prefix in input.prefixes
    entries[prefix]
}

path if {
    data.rules.tools[input.tool]
    mode := data.rules.mounts[input.resource]
    data.rules.grants[input.access][mode]
}
"""


def rego_data(rules: Rules) -> dict[str, Any]:
    return {
        "rules": {
            "tools": dict.fromkeys(rules.tools, True),
            "origins": {name: dict.fromkeys(found, True) for name, found in rules.origins.items()},
            "mounts": rules.mounts,
            "grants": {"read": {"read": True, "write": True}, "write": {"write": True}},
        }
    }


def rego_input(question: Question) -> dict[str, Any]:
    asked = {"tool": question.tool, "access": question.access, "prefixes": list(question.prefixes)}
    return asked if question.resource is None else {**asked, "resource": question.resource}


class RegoCpp:
    """regopy, the Rego engine in C++: a bundle is built once, the input document made beforehand."""

    NAME = PACKAGE = "regopy"

    def __init__(self, rules: Rules) -> None:
        import regopy

        self._input = regopy.Input
        self._engine = regopy.Interpreter()
        self._engine.add_module("gate", REGO)
        self._engine.add_data(rego_data(rules))
        self._bundle = self._engine.build("true", ["gate/url", "gate/path"])

    def ask(self, question: Question) -> Any:
        return f"gate/{question.kind}", self._input(rego_input(question))

    def allows(self, asked: Any) -> bool:
        rule, document = asked
        self._engine.set_input(document)
        answer = self._engine.query_bundle_entrypoint(self._bundle, rule)
        return answer.results[0].expressions[0] is True


class Regorus:
    """Regorus, the Rego engine in Rust, whose wheels on PyPI are celine-regorus."""

    NAME = "regorus"
    PACKAGE = "celine-regorus"

    def __init__(self, rules: Rules) -> None:
        import regorus

        self._engine = regorus.Engine()
        self._engine.add_policy("gate.rego", REGO)
        self._engine.add_data_json(json.dumps(rego_data(rules)))

    def ask(self, question: Question) -> Any:
        return f"data.gate.{question.kind}", json.dumps(rego_input(question))

    def allows(self, asked: Any) -> bool:
        rule, document = asked
        self._engine.set_input_json(document)
        return self._engine.eval_rule(rule) is True


# ---- do they agree? ----------------------------------------------------------------------------------------

_HOST = "https://host-1.example.com"
_PREFIX = "https://other-1.example.com/documents"
# by tool, argument and whether the rules allow it
_TEXTS: dict[tuple[str, str, bool], tuple[str, ...]] = {
    ("by_url", "url", True): (
        *(f"{_HOST}/", f"{_HOST}/a/b.md?c=d#e", f"{_HOST}:443/a", f"{_HOST}/a/../b"),
        *("HTTPS://HOST-1.example.COM/a", _PREFIX, f"{_PREFIX}/", f"{_PREFIX}?revision=7"),
        f"{_PREFIX}/7/page.md?revision=7",
    ),
    ("by_url", "url", False): (
        *("", f"{_HOST}:444/a", f"{_HOST}.evil.test/a", f"{_HOST}./a", f"{_HOST}\\a"),
        *("http://host-1.example.com/a", "http://host-1.example.com:443/a", "host-1.example.com/a"),
        *("https://evil.test/host-1.example.com/", "https://host-1.example.com@evil.test/"),
        *("https://www.host-1.example.com/a", "https://other-1.example.com/Documents/7"),
        *("https://other-1.example.com/", "https://other-1.example.com//documents/7"),
        *(f"{_PREFIX}-old/7", f"{_PREFIX[:-1]}", f"{_PREFIX}/../secret", f"{_PREFIX}%2f7"),
    ),
    ("by_path", "path", True): ("corpus/a.md", "sandbox/a/b.md"),
    ("by_path", "path", False): ("corpus", "corpus/../a", "Corpus/a.md", "corpora/a.md", "/corpus/a.md"),
    ("by_target", "target", True): ("sandbox/a.md",),
    ("by_target", "target", False): ("corpus/a.md", "elsewhere/a.md"),
    ("by_other", "url", False): (f"{_HOST}/",),
    ("By_url", "url", False): (f"{_HOST}/",),
    ("by_other", "path", False): ("corpus/a.md",),
}
CALLS = [(*kind[:2], text, kind[2]) for kind, texts in _TEXTS.items() for text in texts]


def disagreements(gate: Gate, engine: Engine | None) -> list[str]:
    """Return the calls that the gate, or an engine, decides otherwise than expected."""
    wrong = []
    for tool, field, text, wanted in CALLS:
        if engine is None:
            found = gate.decide(Call("tc_1_0", tool, freeze({field: text})), Counters()).decision == ALLOW
        else:
            found = engine.allows(engine.ask(question(tool, field, text)))
        if found != wanted:
            wrong.append(f"{tool} {text!r}")
    return wrong


# ---- what it costs -----------------------------------------------------------------------------------------


def asked(engine: Engine, field: str) -> Case:
    def make(n: int) -> Any:
        return engine.ask(question(f"by_{field}", field, decisions.RESOURCE[field](n)))

    assert engine.allows(make(0))
    return Case(engine.allows, make, batch=50)


def parsed(engine: Engine, field: str) -> Case:
    """Decide from the text that the gate gets too: read arguments, parse the resource, ask the engine."""

    def decide(call: Call) -> bool:
        assert call.arguments is not None
        return engine.allows(engine.ask(question(call.name, field, call.arguments.value()[field])))

    return Case(decide, lambda n: decisions.call(f"by_{field}", n), batch=50)


def rows(*, quick: bool) -> list[Row]:
    few, many = (decisions.gate(decisions.urls(count), schema=False) for count in (20, 1000))
    fresh = Counters()
    cases = {
        "gate-url": decisions.decide(few, "by_url", fresh),
        "gate-path": decisions.decide(few, "by_path", fresh),
        "gate-url-1000": decisions.decide(many, "by_url", fresh),
    }
    out = [_agreement("the gate", "", disagreements(few, None))]
    there: list[str] = []
    for kind in (Cedar, CedarByEntry, RegoCpp, Regorus):
        try:
            engines: list[Engine] = [kind(Rules.of(few)), kind(Rules.of(many))]
        except ImportError as error:
            if kind is not CedarByEntry:
                why = "" if isinstance(error, ModuleNotFoundError) else f" ({error})"
                out.append(Row(f"{kind.NAME} is not installed{why}", math.nan, unit="", note=INSTALL))
            continue
        there.append(kind.NAME)
        out.append(_agreement(kind.NAME, version(kind.PACKAGE), disagreements(few, engines[0])))
        cases |= {
            f"{kind.NAME}-url": asked(engines[0], "url"),
            f"{kind.NAME}-path": asked(engines[0], "path"),
            f"{kind.NAME}-url-text": parsed(engines[0], "url"),
            f"{kind.NAME}-url-1000": asked(engines[1], "url"),
        }
    turns = take_turns(cases, 3 if quick else 40)
    for name in there:
        if name != CedarByEntry.NAME:  # the slower form; its growth alone is of interest
            out += _against(turns, name)
    return [*out, *(_larger(turns, name) for name in ("gate", *there))]


def _agreement(name: str, version: str, wrong: list[str]) -> Row:
    first = f", the first: {wrong[0]}" if wrong else ""
    return Row(
        f"{name}: answers that the rules do not give",
        len(wrong),
        0,
        unit="",
        note=f"of {len(CALLS)} calls{first} {version}".rstrip(),
    )


def _against(turns: Turns, name: str) -> list[Row]:
    # what is left of these rules for Regorus are lookups; the gate reads the call too, so that only reports
    target = None if name == Regorus.NAME else 1.0
    return [
        *(
            Row(
                f"gate on a {field} : {name} on a parsed one",
                turns.ratio(f"gate-{field}", f"{name}-{field}"),
                target,
                note=f"{turns.us(f'gate-{field}'):.1f} us : {turns.us(f'{name}-{field}'):.1f} us",
            )
            for field in ("url", "path")
        ),
        Row(
            f"gate on a url : {name} and the parsing that it needs",
            turns.ratio("gate-url", f"{name}-url-text"),
            1.0,
            note=f"{turns.us('gate-url'):.1f} us : {turns.us(f'{name}-url-text'):.1f} us",
        ),
    ]


def _larger(turns: Turns, name: str) -> Row:
    """Growth with the number of entries; a target for the gate alone."""
    return Row(
        f"{name}, 1,000 URL entries : 20",
        turns.ratio(f"{name}-url-1000", f"{name}-url"),
        1.25 if name == "gate" else None,
        note=f"{turns.us(f'{name}-url-1000'):.1f} us : {turns.us(f'{name}-url'):.1f} us",
    )
