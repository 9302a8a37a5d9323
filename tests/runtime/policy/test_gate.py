"""The gate: first-rule order, monotony, totality, and a denial for whatever breaks."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph.fail.catalog import RULES
from tachograph.runtime.core.effects import Call
from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.formats.canonical_json import Fragment, digest, encode, freeze
from tachograph.runtime.formats.escape import quote_untrusted
from tachograph.runtime.models.types import read_call
from tachograph.runtime.policy.gate import Counters, Decision, Gate, call_key, decide
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.policy.resource_rules import ResourceRules
from tachograph.runtime.tools.contract import Tool

NO_REDACTION = Redactor([])


def tool(name: str = "probe") -> Tool:
    closed = {"type": "object", "additionalProperties": False}
    return Tool(
        name,
        "",
        {
            **closed,
            "properties": {
                "url": {"type": "string", "x-resource": "url"},
                "path": {"type": "string", "x-resource": "path:read"},
                "out": {"type": "string", "x-resource": "path:write"},
                "more": {"type": "array", "items": {"type": "string", "x-resource": "url"}},
                "n": {"type": "integer", "maximum": 5},
                "m": {"type": "integer"},
            },
        },
        closed,
        "network",
        True,
        lambda args, io: {},
    )


TOOLS = {name: tool(name) for name in ("probe", "other")}
DATA: dict[str, Any] = {
    "schema": "policy/v1",
    "tool_registry": {"allowed": ["probe"]},
    "url_allowlist": ["https://good.test/"],
    "sandbox": {"mounts": {"box": "read", "desk": "write"}},
    "loop_budget": {"max_iterations": 2, "max_tokens": 100, "max_tool_calls": 4, "max_result_bytes": 50},
    "cycle_detection": {"max_repeats": 3},
    "approval": {"required_for": [], "timeout_s": 9},
}


def gate(**sections: Any) -> Gate:
    return Gate(Policy.from_dict({**DATA, **sections}), TOOLS)


def call(name: Any = "probe", **arguments: Any) -> Call:
    return Call("tc_1_0", name, freeze(arguments))


def verdict(decision: Decision) -> tuple[str, str]:
    return decision.decision, decision.rule_id


# ---- the order of the rules --------------------------------------------------------------------------------

ORDER = (
    "tool_registry",
    "principal",
    "time_window",
    "url_allowlist",
    "sandbox_path",
    "arg_schema",
    "arguments",
    "redact",
    "cycle_detection",
    "tool_limits",
    "loop_budget",
    "approval",
)
SUBSETS = [set(some) for size in range(len(ORDER) + 1) for some in itertools.combinations(ORDER, size)]


@pytest.mark.parametrize(
    "objecting", SUBSETS, ids=lambda some: "+".join(r for r in ORDER if r in some) or "none"
)
def test_the_first_rule_that_objects_answers(objecting: set[str]) -> None:
    """Every set of rules that object at once: the first of them by the contract's order gives the answer."""
    name = "other" if "tool_registry" in objecting else "probe"
    placeholder = "<secret:email:1>" if "redact" in objecting else ""
    wanted = call(
        name,
        url=f"https://{'evil' if 'url_allowlist' in objecting else 'good'}.test/{placeholder}",
        path="cellar/x" if "sandbox_path" in objecting else "box/x",
        n=6 if "arg_schema" in objecting else 5,
        m=6 if "arguments" in objecting else 5,
    )
    counters = Counters(tool_calls=4 if "loop_budget" in objecting else 3)
    counters.principal = "intern" if "principal" in objecting else "clerk"
    counters.calls_of["probe"] = 2 if "tool_limits" in objecting else 1
    for _ in range(3 if "cycle_detection" in objecting else 2):
        counters.count_result(wanted, "{}")
    counters.local_times = {"UTC": f"2026-11-23T{17 if 'time_window' in objecting else 16}:00"}
    required = ["probe"] if "approval" in objecting else []
    conditions = {
        "probe": {
            "between": {"hours": "08:00-17:00", "zone": "UTC"},
            "arguments": {"/m": {"maximum": 5}},
            "limits": {"calls": 2},
        }
    }
    principals = {"clerk": {"tools": {}}, "intern": {"tools": {"probe": "deny"}}}
    made = gate(approval={"required_for": required, "timeout_s": 9}, tools=conditions, principals=principals)
    assert tuple(rule for rule, _ in made.rules) == ORDER
    found = made.decide(wanted, counters)
    first = next((rule for rule in ORDER if rule in objecting), None)
    if first is None:
        assert verdict(found) == ("allow", "sandbox_path")
    else:
        assert verdict(found) == ("escalate" if first == "approval" else "deny", first)


def test_the_rules_are_those_of_the_catalog() -> None:
    assert (*ORDER, "hook", "gate_error") == RULES


def test_denied_comes_before_not_allowed_before_not_registered() -> None:
    policy = gate(tool_registry={"allowed": ["probe", "ghost"], "denied": ["other"]})
    places = [policy.decide(call(name), Counters()).at for name in ("other", "nobody", "ghost", "probe")]
    assert places == [
        "<policy>#/tool_registry/denied/other", "<policy>#/tool_registry/allowed",
        "<policy>#/tool_registry/allowed/ghost", "<policy>#/tool_registry/allowed/probe",
    ]  # fmt: skip


def test_an_allow_names_the_entry_that_grants_it() -> None:
    policy = gate(url_allowlist=["https://a.test", "https://good.test/x/"])
    found = policy.decide(call(url="https://good.test/x/y"), Counters())
    named = "<policy>#/url_allowlist/https:~1~1good.test~1x~1"
    assert (verdict(found), found.at) == (("allow", "url_allowlist"), named)
    assert gate().decide(call(out="desk/y"), Counters()).at == "<policy>#/sandbox/mounts/desk"
    assert verdict(gate().decide(call(n=1), Counters())) == ("allow", "tool_registry")


# ---- resources ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "rule", "pointer"),
    [
        ({"url": "https://good.test.evil.test/"}, "url_allowlist", "/url"),
        ({"url": "file:///etc/passwd"}, "url_allowlist", "/url"),
        ({"url": "https://u@good.test/"}, "url_allowlist", "/url"),
        ({"url": ""}, "url_allowlist", "/url"),
        ({"more": ["https://good.test/", "https://evil.test/"]}, "url_allowlist", "/more/1"),
        ({"path": "/etc/passwd"}, "sandbox_path", "/path"),
        ({"path": "box/../x"}, "sandbox_path", "/path"),
        ({"path": "box"}, "sandbox_path", "/path"),
        ({"out": "box/x"}, "sandbox_path", "/out"),
        ({"url": 1}, "arg_schema", "/url"),
        ({"url": ["https://evil.test/"]}, "arg_schema", "/url"),
        ({"path": {"a": "/etc/passwd"}}, "arg_schema", "/path"),
        ({"more": "https://evil.test/"}, "arg_schema", "/more"),
        ({"uri": "https://evil.test/"}, "arg_schema", ""),
    ],
)
def test_resources_are_judged_where_they_stand(arguments: dict[str, Any], rule: str, pointer: str) -> None:
    found = gate().decide(call(**arguments), Counters())
    assert verdict(found) == ("deny", rule)
    assert found.facts["pointer"] == pointer


def test_a_write_mount_may_be_read() -> None:
    assert verdict(gate().decide(call(path="desk/x"), Counters())) == ("allow", "sandbox_path")


def test_shape_drops_limits_and_no_resource_rule() -> None:
    loose = gate(arg_schema_enforcement="shape")
    assert loose.decide(call(n=6), Counters()).decision == "allow"
    assert verdict(loose.decide(call(n="6"), Counters())) == ("deny", "arg_schema")
    assert verdict(loose.decide(call(x=1), Counters())) == ("deny", "arg_schema")
    assert verdict(loose.decide(call(n=6, url="https://evil.test/"), Counters())) == ("deny", "url_allowlist")


@pytest.mark.parametrize("text", ["", "x", "[]", '"a"', "null", '{"a":1,"a":2}', '{"n":NaN}', "{" * 9])
def test_text_that_is_no_object_falls_to_arg_schema(text: str) -> None:
    wanted = read_call("tc_1_0", "probe", text, NO_REDACTION)
    found = gate().decide(wanted, Counters())
    assert verdict(found) == ("deny", "arg_schema")
    assert found.facts["limit"] == wanted.problem
    assert (
        verdict(gate().decide(read_call("i", "other", text, NO_REDACTION), Counters()))[1] == "tool_registry"
    )


# ---- budgets and cycles: exact bounds ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "field", "limit"), [("max_iterations", "iterations", 2), ("max_tokens", "tokens", 100)]
)
def test_step_budgets(name: str, field: str, limit: int) -> None:
    assert gate().decide_step(Counters(**{field: limit - 1})) is None
    for used in (limit, limit + 1):
        found = gate().decide_step(Counters(**{field: used}))
        assert found is not None and verdict(found) == ("deny", "loop_budget")
        assert found.facts == {"budget": name, "used": used, "limit": limit}
        assert found.at == f"<policy>#/loop_budget/{name}"


@pytest.mark.parametrize(
    ("name", "field", "limit"),
    [("max_tool_calls", "tool_calls", 4), ("max_result_bytes", "result_bytes", 50)],
)
def test_call_budgets(name: str, field: str, limit: int) -> None:
    assert gate().decide(call(), Counters(**{field: limit - 1})).decision == "allow"
    for used in (limit, limit + 1):
        found = gate().decide(call(), Counters(**{field: used}))
        assert verdict(found) == ("deny", "loop_budget")
        assert found.facts == {"budget": name, "used": used, "limit": limit}


def test_the_result_budget() -> None:
    assert gate().decide_result(50, Counters()) is None
    assert gate().decide_result(20, Counters(result_bytes=30)) is None
    found = gate().decide_result(21, Counters(result_bytes=30))
    assert found is not None and found.facts == {"budget": "max_result_bytes", "used": 51, "limit": 50}


def test_the_third_of_three_repeats_is_the_last() -> None:
    counters, wanted = Counters(), call(n=1)
    for _ in range(3):
        assert gate().decide(wanted, counters).decision == "allow"
        counters.count_result(wanted, '{"a":1}')
    found = gate().decide(wanted, counters)
    assert verdict(found) == ("deny", "cycle_detection") and found.facts == {"used": 3, "limit": 3}
    assert gate().decide(call(n=2), counters).decision == "allow"
    assert gate().decide(Call("tc_9_9", "probe", freeze({"n": 1.0})), counters).decision == "deny"


def test_honest_polling_passes_and_repeats_need_not_follow_each_other() -> None:
    counters, wanted = Counters(), call(n=1)
    for i in range(20):
        counters.count_result(wanted, f"[{i}]")
        counters.count_result(call(n=2), f"[{i}]")
    assert gate().decide(wanted, counters).decision == "allow"
    for i in (0, 1, 0):
        counters.count_result(wanted, f"[{i}]")
    assert gate().decide(wanted, counters).facts == {"used": 3, "limit": 3}


def test_a_call_is_its_tool_and_its_arguments() -> None:
    keys = {
        call_key(found)
        for found in (
            call(), call("other"), call(n=1), Call("i", "probe", None, "{}"), Call("i", "probe", None, "{"),
            Call("i", "\ud800", None, "\udfff"), Call("i", None, freeze({})), Call("i", "None", freeze({})),  # type: ignore[arg-type]
        )
    }  # fmt: skip
    assert len(keys) >= 7
    assert call_key(Call("a", "probe", freeze({"n": 1}))) == call_key(Call("b", "probe", freeze({"n": 1.0})))


# ---- late checks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "decision", "rule"),
    [
        ({"rule": "url_allowlist", "target": "https://good.test/a", "hop": 1}, "allow", "url_allowlist"),
        ({"rule": "url_allowlist", "target": "https://evil.test/a", "hop": 1}, "deny", "url_allowlist"),
        ({"rule": "url_allowlist", "target": "http://good.test/", "hop": 1}, "deny", "url_allowlist"),
        (
            {"rule": "url_allowlist", "target": "https://good.test/", "address": "93.184.216.34"},
            "allow",
            "url_allowlist",
        ),
        (
            {"rule": "url_allowlist", "target": "https://good.test/", "address": "127.0.0.1"},
            "deny",
            "url_allowlist",
        ),
        (
            {"rule": "url_allowlist", "target": "https://good.test/", "address": "::ffff:10.0.0.1"},
            "deny",
            "url_allowlist",
        ),
        (
            {"rule": "url_allowlist", "target": "https://good.test/", "address": "nonsense"},
            "deny",
            "url_allowlist",
        ),
        (
            {"rule": "url_allowlist", "target": "https://evil.test/", "address": "93.184.216.34"},
            "deny",
            "url_allowlist",
        ),
        ({"rule": "url_allowlist", "target": 7}, "deny", "url_allowlist"),
        ({"rule": "sandbox_path", "path": "box/x", "access": "read"}, "allow", "sandbox_path"),
        ({"rule": "sandbox_path", "path": "box/x", "access": "write"}, "deny", "sandbox_path"),
        ({"rule": "sandbox_path", "path": "desk/x", "access": "write"}, "allow", "sandbox_path"),
        ({"rule": "sandbox_path", "path": "none/x", "access": "read"}, "deny", "sandbox_path"),
        (
            {"rule": "sandbox_path", "path": "desk/x", "access": "read", "found": "link"},
            "deny",
            "sandbox_path",
        ),
        ({"rule": "sandbox_path", "path": "desk/../x", "access": "read"}, "deny", "sandbox_path"),
        ({"rule": "sandbox_path", "path": None, "access": "read"}, "deny", "sandbox_path"),
        ({"rule": "sandbox_path", "path": "box/x"}, "deny", "gate_error"),
        ({"rule": "url_allowlist"}, "deny", "gate_error"),
        ({"rule": "tool_registry"}, "deny", "gate_error"),
        ({}, "deny", "gate_error"),
    ],
)
def test_late_facts(check: dict[str, Any], decision: str, rule: str) -> None:
    found = gate().decide_late(check)
    assert verdict(found) == (decision, rule)
    for fact in ("hop", "address", "found"):
        if fact in check and rule != "gate_error":
            assert found.facts[fact] == check[fact]


def test_a_private_address_is_allowed_where_its_network_is_named() -> None:
    check = {"rule": "url_allowlist", "target": "https://good.test/", "address": "10.1.2.3"}
    assert gate().decide_late(check).at == "<policy>#/private_networks"
    assert gate(private_networks=["10.1.0.0/16"]).decide_late(check).decision == "allow"
    assert gate(private_networks=["10.2.0.0/16"]).decide_late(check).decision == "deny"


# ---- whatever breaks denies --------------------------------------------------------------------------------

INSIDE = [
    "_tool_registry",
    "_resources",
    "_url",
    "_path",
    "_arg_schema",
    "_cycle",
    "_call_budget",
    "_approval",
]


@pytest.mark.parametrize("error", [RuntimeError("secret"), RecursionError(), KeyError("x"), MemoryError()])
@pytest.mark.parametrize("name", INSIDE)
def test_a_broken_rule_denies(monkeypatch: pytest.MonkeyPatch, name: str, error: Exception) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Gate if hasattr(Gate, name) else ResourceRules, name, broken)
    found = gate().decide(call(url="https://good.test/", path="box/x"), Counters())
    assert verdict(found) == ("deny", "gate_error")
    assert found.facts == {"exception": type(error).__name__}
    assert "secret" not in found.reason


def test_a_gate_without_rules_denies() -> None:
    empty = gate()
    empty.rules = ()
    assert verdict(empty.decide(call(), Counters())) == ("deny", "gate_error")


@pytest.mark.parametrize("name", ["_over_budget", "decide_late_url", "decide_late_path"])
def test_a_broken_late_rule_or_budget_denies(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(Gate if hasattr(Gate, name) else ResourceRules, name, broken)
    found = [
        gate().decide_step(Counters(tokens=100)),
        gate().decide_result(51, Counters()),
        gate().decide_late({"rule": "url_allowlist", "target": "https://good.test/"}),
        gate().decide_late({"rule": "sandbox_path", "path": "box/x", "access": "read"}),
    ]
    assert all(
        d is not None
        and verdict(d) in (("deny", "gate_error"), ("deny", "loop_budget"), ("allow", d.rule_id))
        for d in found
    )
    assert any(d is not None and d.rule_id == "gate_error" for d in found)


def test_a_schema_that_fails_at_the_call_denies(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def first_mismatch(self, _data: object) -> None:
            raise RuntimeError

    broken = tool()
    monkeypatch.setitem(vars(broken), "input_validator", Broken())
    for n in (1, 9):
        found = decide(call(n=n), Policy.from_dict(DATA), Counters(), {"probe": broken})
        assert verdict(found) == ("deny", "gate_error")


# ---- any call at all ---------------------------------------------------------------------------------------

NAMES = st.sampled_from(["probe", "other", "Probe", "probe ", ""]) | st.text(max_size=8)
WORDS = st.text(st.characters(exclude_categories=["Cs"], max_codepoint=0xFFFF), max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | WORDS
    | st.sampled_from(["https://good.test/", "https://evil.test/", "box/x", "desk/y", "/etc/passwd", "box/../x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
ARGUMENTS = st.dictionaries(st.sampled_from(["url", "path", "out", "more", "n"]) | WORDS, VALUES, max_size=4)
TEXTS = st.text(max_size=30) | ARGUMENTS.map(json.dumps) | st.sampled_from(["[" * 2000, '{"n":1e999}', "{}"])


def is_plain(value: Any) -> bool:
    if type(value) is dict:
        return all(type(key) is str and is_plain(item) for key, item in value.items())
    return type(value) in (str, int, bool, type(None))


def check_decision(found: Decision) -> None:
    assert type(found) is Decision
    assert found.decision in ("allow", "deny", "escalate") and found.rule_id in RULES
    assert is_plain(found.to_dict())
    assert found.reason.isascii() or "…" in found.reason
    assert "\n" not in found.reason and len(found.reason) < 400
    assert found.at.startswith("<tool probe>#" if found.rule_id == "arg_schema" else "<policy>#")
    encode(found.to_dict())


@given(NAMES, TEXTS, st.integers(0, 5), st.integers(0, 60))
def test_any_call_gets_a_decision(name: str, text: str, calls: int, size: int) -> None:
    wanted = read_call("tc_1_0", name, text, NO_REDACTION)
    check_decision(gate().decide(wanted, Counters(tool_calls=calls, result_bytes=size)))


@pytest.mark.parametrize(
    "name", [None, 1, b"probe", ["probe"], {}, object(), type("Name", (str,), {})("probe"), "\ud800"]
)
def test_a_name_that_is_no_name_is_denied(name: Any) -> None:
    found = gate().decide(call(name), Counters())
    check_decision(found)
    assert verdict(found) == ("deny", "tool_registry")


@pytest.mark.parametrize("text", ["[]", "1", "null", '"x"', "not json", ""])
def test_a_fragment_that_is_no_object_is_denied(text: str) -> None:
    found = gate().decide(Call("i", "probe", Fragment(text)), Counters())
    check_decision(found)
    assert found.decision == "deny"


@given(st.dictionaries(st.sampled_from(["target", "path", "access", "hop", "address", "found"]), VALUES))
def test_any_late_fact_gets_a_decision(check: dict[str, Any]) -> None:
    for rule in ("url_allowlist", "sandbox_path", "tool_registry", None):
        found = gate().decide_late({**check, "rule": rule})
        assert found.decision in ("allow", "deny")
        encode(found.to_dict())


@given(ARGUMENTS, st.randoms(use_true_random=False))
def test_the_order_of_arguments_does_not_matter(arguments: dict[str, Any], random: Any) -> None:
    def turned(value: Any) -> Any:
        if isinstance(value, list):
            return [turned(item) for item in value]
        if not isinstance(value, dict):
            return value
        items = [(key, turned(item)) for key, item in value.items()]
        random.shuffle(items)
        return dict(items)

    one = read_call("i", "probe", json.dumps(arguments), NO_REDACTION)
    two = read_call("i", "probe", json.dumps(turned(arguments), indent=1), NO_REDACTION)
    assert gate().decide(one, Counters()) == gate().decide(two, Counters())
    assert call_key(one) == call_key(two)


@given(ARGUMENTS)
def test_deciding_changes_nothing(arguments: dict[str, Any]) -> None:
    counters = Counters(tool_calls=1)
    wanted = call(**arguments)
    asked = gate()
    before = (digest(encode(asked.policy.data)), repr(counters), wanted.arguments)
    assert asked.decide(wanted, counters) == asked.decide(wanted, counters)
    assert (digest(encode(asked.policy.data)), repr(counters), wanted.arguments) == before


# ---- less allowed is never more allowed --------------------------------------------------------------------

RANK = {"deny": 0, "escalate": 1, "allow": 2}
POLICIES = st.fixed_dictionaries(
    {
        "schema": st.just("policy/v1"),
        "tool_registry": st.fixed_dictionaries({"allowed": st.lists(st.sampled_from(["probe", "other"]), unique=True)}),
        "url_allowlist": st.lists(
            st.sampled_from(["https://good.test/", "https://good.test:8443/a/", "https://evil.test", "http://good.test"]),
            unique=True,
        ),
        "private_networks": st.lists(st.sampled_from(["10.0.0.0/8", "127.0.0.0/8"]), unique=True),
        "sandbox": st.fixed_dictionaries(
            {"mounts": st.dictionaries(st.sampled_from(["box", "desk"]), st.sampled_from(["read", "write"]))}
        ),
        "loop_budget": st.fixed_dictionaries(
            {"max_tool_calls": st.integers(0, 4), "max_result_bytes": st.integers(0, 50)}
        ),
        "cycle_detection": st.fixed_dictionaries({"max_repeats": st.integers(1, 3)}),
        "arg_schema_enforcement": st.sampled_from(["strict", "shape"]),
    }
)  # fmt: skip


def narrower(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Every policy that lacks one allowance, or has one denial more."""
    out = [{k: v for k, v in data.items() if k != section} for section in data if section != "schema"]
    for section, key in (("tool_registry", "allowed"), ("sandbox", "mounts")):
        for item in data[section][key]:
            rest = [x for x in data[section][key] if x != item]
            left = {x: data[section][key][x] for x in rest} if key == "mounts" else rest
            out.append({**data, section: {key: left}})
            if key == "allowed":
                out.append({**data, section: {key: rest, "denied": [item]}})
                out.append({**data, "approval": {"required_for": [item], "timeout_s": 1}})
    for section in ("url_allowlist", "private_networks"):
        out.extend({**data, section: [x for x in data[section] if x != item]} for item in data[section])
    out.extend(
        {**data, "sandbox": {"mounts": {**data["sandbox"]["mounts"], mount: "read"}}}
        for mount in data["sandbox"]["mounts"]
    )
    out.append({**data, "arg_schema_enforcement": "strict"})
    out.append({**data, "cycle_detection": {"max_repeats": 1}})
    out.append({**data, "loop_budget": {**data["loop_budget"], "max_tool_calls": 0}})
    return out


CALLS = st.builds(
    lambda name, some: call(name, **some),
    st.sampled_from(["probe", "other"]),
    st.fixed_dictionaries(
        {},
        optional={
            "url": st.sampled_from(["https://good.test/", "https://good.test/a/b", "https://evil.test/x"]),
            "path": st.sampled_from(["box/x", "desk/x"]),
            "out": st.sampled_from(["box/x", "desk/x"]),
            "n": st.integers(4, 7),
        },
    ),
)


@given(POLICIES, CALLS, st.integers(0, 4), st.integers(0, 3))
def test_taking_an_allowance_away_never_widens(
    data: dict[str, Any], wanted: Call, used: int, repeats: int
) -> None:
    counters = Counters(tool_calls=used)
    for _ in range(repeats):
        counters.count_result(wanted, "{}")
    late = {"rule": "url_allowlist", "target": "https://good.test/a/b", "address": "10.0.0.1"}

    def ranks(policy: dict[str, Any]) -> tuple[int, int]:
        asked = Gate(Policy.from_dict(policy), TOOLS)
        return RANK[asked.decide(wanted, counters).decision], RANK[asked.decide_late(late).decision]

    wide = ranks(data)
    for less in narrower(data):
        assert all(a <= b for a, b in zip(ranks(less), wide, strict=True)), less


# ---- where it stands ---------------------------------------------------------------------------------------

FILE = """\
schema: policy/v1
tool_registry:
  allowed:
    - probe
    - other
  denied:
    - shell
url_allowlist:
  - https://good.test/a/
  - https://good.test/b/
sandbox:
  mounts:
    box: read
arg_schema_enforcement: strict
loop_budget:
  max_iterations: 1
  max_tokens: 10
  max_tool_calls: 2
  max_result_bytes: 5
cycle_detection:
  max_repeats: 1
approval:
  required_for: [other]
  timeout_s: 1
private_networks: []
"""


def test_each_decision_points_at_the_line_that_holds_the_matter(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(FILE)
    asked = Gate(Policy.load(tmp_path / "p.yaml", root=tmp_path), TOOLS)
    lines = FILE.splitlines()
    repeated = Counters()
    repeated.count_result(call(), "{}")
    late = {"rule": "url_allowlist", "target": "https://good.test/b/", "address": "10.0.0.1"}
    decided = [
        (asked.decide(call("shell"), Counters()), "shell"),
        (asked.decide(call("nobody"), Counters()), "allowed:"),
        (asked.decide(call(), Counters()), "probe"),
        (asked.decide(call(url="https://good.test/b/x"), Counters()), "https://good.test/b/"),
        (asked.decide(call(url="https://evil.test/"), Counters()), "url_allowlist:"),
        (asked.decide(call(path="box/x"), Counters()), "box: read"),
        (asked.decide(call(out="box/x"), Counters()), "box: read"),
        (asked.decide(call(path="none/x"), Counters()), "mounts:"),
        (asked.decide(call(path="../x"), Counters()), "mounts:"),
        (asked.decide(call(), repeated), "max_repeats:"),
        (asked.decide(call(), Counters(tool_calls=2)), "max_tool_calls:"),
        (asked.decide(call(), Counters(result_bytes=5)), "max_result_bytes:"),
        (asked.decide(call("other"), Counters()), "required_for:"),
        (asked.decide_step(Counters(iterations=1)), "max_iterations:"),
        (asked.decide_step(Counters(tokens=10)), "max_tokens:"),
        (asked.decide_result(6, Counters()), "max_result_bytes:"),
        (asked.decide_late(late), "private_networks:"),
    ]
    for found, text in decided:
        assert found is not None
        file, mark, _ = found.at.partition("#")
        assert (file, mark) == ("p.yaml", "#")
        file, _, line = asked.policy.shown(found.at).partition(":")
        assert file == "p.yaml"
        assert text in lines[int(line) - 1], (found, lines[int(line) - 1])
    found = asked.decide(call(n=9), Counters())
    assert found.at == asked.policy.shown(found.at) == "<tool probe>#/properties/n/maximum"


def test_a_moved_line_or_a_comment_changes_no_decision(tmp_path: Path) -> None:
    """A record names rules by document and pointer, so that only what a policy says can change it."""
    decided = []
    for text in (FILE, "# a remark\n\n" + FILE.replace("sandbox:\n", "# another\nsandbox:\n")):
        (tmp_path / "p.yaml").write_text(text)
        asked = Gate(Policy.load(tmp_path / "p.yaml", root=tmp_path), TOOLS)
        found = [asked.decide(call(path="box/x"), Counters()), asked.decide(call("shell"), Counters())]
        decided.append([one.to_dict() for one in found])
    assert decided[0] == decided[1]
    assert [one["at"] for one in decided[0]] == [
        "p.yaml#/sandbox/mounts/box",
        "p.yaml#/tool_registry/denied/shell",
    ]


@given(st.text())
def test_foreign_text_in_a_reason_is_one_quoted_ascii_word(text: str) -> None:
    shown = quote_untrusted(text)
    assert shown[0] == shown[-1] == '"' and '"' not in shown[1:-1]
    assert shown.isascii() and len(shown) < 1250


def test_an_escalation_carries_its_time(tmp_path: Path) -> None:
    found = gate(approval={"required_for": ["probe"], "timeout_s": 9}).decide(call(), Counters())
    assert (found.decision, found.facts, found.at) == (
        "escalate", {"timeout_s": 9}, "<policy>#/approval/required_for/probe",
    )  # fmt: skip
