"""Changes of generated policies: each is listed where nothing guards it, and what is suggested guards it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tachograph.fail.errors import PolicyError
from tachograph.review.testing.answers import answer
from tachograph.review.testing.coverage import UNGUARDED, as_yaml
from tachograph.review.testing.merge import made_up_tools, policy_of
from tachograph.review.testing.mutations import LIMITS, Unlisted, changes
from tachograph.review.testing.probe_questions import Probes
from tachograph.runtime.core.secret_kinds import PATTERNS
from tachograph.runtime.policy.gate import Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.contract import SHIPPED
from tachograph.runtime.tools.loader import load_named
from tests.review.covering import covered, project
from tests.support import ROOT

TOOLS = {name: load_named(name, ROOT / "tools") for name in SHIPPED}
LISTED = (
    "https://corpus.test/",
    "https://a.test/x/y",
    "https://a.test/z",
    "b.test",
    "http://c.test:8080/p/q/r",
)


FAILURES = [
    *("terminate", "inform"),
    {"default": "inform", "tools": {"write": "terminate", "fetch": "inform"}, "max_failures": 3},
    {"tools": {"write": "inform"}, "max_failures": 1},
]


@st.composite
def policies(draw: st.DrawFn) -> dict[str, Any]:
    def some(items: tuple[str, ...] | list[str]) -> list[str]:
        return draw(st.lists(st.sampled_from(items), unique=True)) if items else []

    allowed = some(SHIPPED)
    data: dict[str, Any] = {
        "schema": "policy/v1",
        "tool_registry": {
            "allowed": allowed,
            "denied": some([n for n in (*SHIPPED, "shell") if n not in allowed]),
        },
        "url_allowlist": some(LISTED),
        "private_networks": some(["10.1.0.0/16", "192.168.7.0/24", "fd00::/8"]),
        "sandbox": {
            "mounts": dict.fromkeys(some(["corpus", "box"]), draw(st.sampled_from(["read", "write"])))
        },
        "arg_schema_enforcement": draw(st.sampled_from(["strict", "shape"])),
        "loop_budget": {
            "max_iterations": draw(st.integers(1, 20)),
            "max_tokens": draw(st.integers(1, 9000)),
            "max_tool_calls": draw(st.integers(0, 9)),
            "max_result_bytes": draw(st.integers(0, 9000)),
            "wrap_up": draw(st.booleans()),
        },
        "cycle_detection": {"max_repeats": draw(st.integers(1, 4))},
        "retry": {
            "max_retries": draw(st.integers(0, 20)),
            "backoff_base_ms": draw(st.integers(1, 500)),
            "backoff_cap_ms": draw(st.integers(500, 5000)),
        },
        "on_deny": draw(st.sampled_from(["terminate", "inform"])),
        "on_failure": draw(st.sampled_from(FAILURES)),
        "approval": {"required_for": some(allowed), "timeout_s": draw(st.integers(1, 600))},
        "redact": some(sorted(PATTERNS)),
    }
    if draw(st.booleans()):
        data["redact"] = {"kinds": ["jwt", "email"], "reveal_to": {key: ["jwt"] for key in some(allowed)}}
    absent = [name for name in data if name not in ("schema", "tool_registry")]
    for name in some(absent)[:2]:
        del data[name]
    return data


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=policies())
def test_what_is_suggested_makes_everything_noticed(
    tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any]
) -> None:
    root = project(tmp_path_factory.mktemp("p"), data)
    before = covered(root)
    assert before.noticed == 0
    listed = before.of(UNGUARDED)
    assert [verdict.description for verdict in listed if verdict.suggestion is None] == []
    project(root, data, *(v.suggestion for v in listed if v.suggestion is not None))
    after = covered(root)
    assert [(v.description, v.suggestion) for v in after.of(UNGUARDED)] == []
    assert after.noticed >= len(listed)  # a test may ask what no run of these tools can meet


def test_what_an_overlay_brings_is_guarded_over_its_policy(tmp_path: Path) -> None:
    root = project(tmp_path, {"schema": "policy/v1", "tool_registry": {"allowed": ["fetch", "write"]}})
    (root / "policy/overlays").mkdir()
    overlay = {
        "url_allowlist": ["https://a.test/x/y"],
        "sandbox": {"mounts": {"box": "write"}},
        "loop_budget": {"max_iterations": 2, "max_tokens": 9, "max_tool_calls": 9, "max_result_bytes": 99},
        "cycle_detection": {"max_repeats": 2},
        "approval": {"required_for": ["write"], "timeout_s": 9},
        "on_deny": "inform",
        "on_failure": {"default": "inform", "tools": {"write": "terminate"}, "max_failures": 2},
        "redact": ["jwt"],
    }
    (root / "policy/overlays/more.yaml").write_text(json.dumps(overlay), encoding="utf-8")
    listed = covered(root).of(UNGUARDED)
    over = [verdict for verdict in listed if verdict.file == "policy/overlays/more.yaml"]
    assert {f"section {name} dropped" for name in overlay} <= {verdict.description for verdict in over}
    lines = [line for verdict in over for line in as_yaml(verdict.suggestion or {})]
    head = f"policy: {json.dumps(over[0].policy)}"
    text = "\n".join(["schema: policy-tests/v1", head, "tests:", *lines, ""])
    (root / "policy/tests/more.yaml").write_text(text, encoding="utf-8")
    left = covered(root).of(UNGUARDED)
    assert left and {verdict.file for verdict in left} == {"policy/v1.yaml"}


@settings(max_examples=15, deadline=None)
@given(data=policies())
def test_every_entry_is_changed_and_nothing_else_is(data: dict[str, Any]) -> None:
    policy = Policy.from_dict(data)
    made = list(changes(policy.data, True, Probes(policy, TOOLS), Unlisted()))
    whats = [change.description for change in made]
    assert len(set(whats)) == len(whats)
    for word, listed in [
        ("URL entry", policy.data.get("url_allowlist", ())),
        ("network", policy.data.get("private_networks", ())),
        ("allowed tool", policy.allowed),
        ("denied tool", policy.denied),
        ("mount", policy.mounts),
        ("approval for", policy.approval_for),
        ("redacted kind", policy.redact),
    ]:
        assert {f"{word} {name!r} dropped" for name in listed} <= set(whats)
    assert policy.data == Policy.from_dict(data).data  # what is changed is a copy
    for change in made:
        assert change.data != policy.data
        try:
            changed = policy_of([change.data])
        except PolicyError:
            continue
        gate = Gate(changed, {**made_up_tools(change.made_up), **TOOLS})
        for question in change.probes:
            assert answer(question, gate).to_dict().get("rule") != "gate_error"


def test_a_dropped_pattern_of_secrets_is_noticed_by_the_test_that_is_suggested(tmp_path: Path) -> None:
    redact = {"kinds": ["jwt"], "patterns": {"customer": "C-[0-9]{8}", "pallet": "P[0-9]{4}"}}
    data = {"schema": "policy/v1", "tool_registry": {"allowed": ["fetch"]}, "redact": redact}
    root = project(tmp_path, data)
    words = [f"redacted pattern {name!r} dropped" for name in redact["patterns"]]
    left = [verdict for verdict in covered(root).of(UNGUARDED) if verdict.description in words]
    assert [verdict.description for verdict in left] == words
    assert all(verdict.suggestion is not None for verdict in left)
    project(root, data, left[0].suggestion)
    now = {verdict.description for verdict in covered(root).of(UNGUARDED)}
    assert words[0] not in now and words[1] in now


REVEALING = {
    "schema": "policy/v1",
    "tool_registry": {"allowed": ["fetch", "read", "write"]},
    "sandbox": {"mounts": {"box": "write"}},
    "loop_budget": {"max_iterations": 2, "max_tokens": 9, "max_tool_calls": 9, "max_result_bytes": 99},
    "cycle_detection": {"max_repeats": 2},
    "redact": {"kinds": ["email", "jwt"], "reveal_to": {"write": ["email"]}},
}


def test_what_a_tool_gets_revealed_is_changed_both_ways_and_guarded_by_what_is_suggested(
    tmp_path: Path,
) -> None:
    words = ["'email' not revealed to 'write'", "secrets revealed to 'write', such as 'jwt'"]
    root = project(tmp_path, REVEALING)
    left = [verdict for verdict in covered(root).of(UNGUARDED) if "revealed" in verdict.description]
    assert [verdict.description for verdict in left] == words
    project(root, REVEALING, left[0].suggestion or {})
    now = {verdict.description for verdict in covered(root).of(UNGUARDED)}
    assert words[0] not in now and words[1] in now


def test_no_change_reveals_what_something_else_denies() -> None:
    data = {**REVEALING, "sandbox": {"mounts": {"box": "read"}}, "redact": ["email"]}
    policy = Policy.from_dict(data)
    made = changes(policy.data, True, Probes(policy, TOOLS), Unlisted())
    assert not [change for change in made if "revealed" in change.description]


def test_a_secret_in_an_item_of_a_list_is_asked_about() -> None:
    properties = {"to": {"type": "array", "items": {"type": "string", "x-resource": "none"}}}
    schema = {"type": "object", "additionalProperties": False, "required": ["to"], "properties": properties}
    mail = made_up_tools(["mail"])["mail"]
    mail = dataclasses.replace(mail, input_schema=schema, effect="external")
    policy = Policy.from_dict(
        {"schema": "policy/v1", "tool_registry": {"allowed": ["mail"]}, "redact": ["email"]}
    )
    asked = Probes(policy, {"mail": mail}).of_revealed("mail", ["email"])
    assert asked == [{"call": {"tool": "mail", "arguments": {"to": ["someone@mail.test"]}}}]


def test_a_policy_that_says_nothing_of_failures_is_changed_to_inform() -> None:
    policy = Policy.from_dict({"schema": "policy/v1", "tool_registry": {"allowed": ["read"]}})
    made = changes(policy.data, True, Probes(policy, TOOLS), Unlisted())
    assert "on_failure inform instead of terminate" in [change.description for change in made]
    overlay = changes({"on_deny": "inform"}, False, Probes(policy, TOOLS), Unlisted())
    assert not [change for change in overlay if "on_failure" in change.description]


def test_the_changes_of_a_policy_are_these() -> None:
    policy = Policy.from_dict(
        {
            "schema": "policy/v1",
            "tool_registry": {"allowed": ["search", "write"], "denied": ["shell"]},
            "url_allowlist": ["https://a.test/"],
            "sandbox": {"mounts": {"box": "write"}},
            "retry": {"max_retries": 1, "backoff_base_ms": 10, "backoff_cap_ms": 40},
            "on_failure": {"tools": {"write": "inform"}, "max_failures": 1},
            "approval": {"required_for": ["write"], "timeout_s": 9},
        }
    )
    made = list(changes(policy.data, True, Probes(policy, TOOLS), Unlisted()))
    names = ["search", "write", "shell", "fetch", "read", "summarize"]
    assert [change.description for change in made if change.description.split()[0] != "section"] == [
        "allowed tool 'search' dropped",
        "allowed tool 'write' dropped",
        "denied tool 'shell' dropped",
        "denied tool 'shell' allowed",
        *(f"unlisted tool '{name}' allowed" for name in TOOLS if name not in names[:3]),
        "tools that are not listed allowed, such as 'unlisted'",
        "URL entry 'https://a.test/' dropped",
        "hosts that are not listed allowed, such as 'https://unlisted.test/'",
        "networks that are not listed allowed, such as '10.0.0.1/32'",
        "mount 'box' dropped",
        "mount 'box' for read instead of write",
        "mounts that are not listed allowed, such as 'unlisted'",
        "arg_schema_enforcement shape instead of strict",
        *(f"{name} 1 instead of 0" for name in LIMITS),
        "wrap_up true instead of false",
        "overdraft deny instead of allow",
        "max_repeats 1 instead of 0",
        "max_retries 0 instead of 1",
        "max_retries 2 instead of 1",
        "backoff_base_ms 5 instead of 10",
        "backoff_base_ms 20 instead of 10",
        "backoff_cap_ms 20 instead of 40",
        "backoff_cap_ms 80 instead of 40",
        "on_deny inform instead of terminate",
        "on_failure inform instead of terminate",
        "on_failure terminate instead of inform for 'write'",
        "max_failures 2 instead of 1",
        "approval for 'write' dropped",
        "approval for 'search' added",
        "timeout_s 8 instead of 9",
        "timeout_s 18 instead of 9",
    ]
    sections = [change.description for change in made if change.description.startswith("section")]
    assert sections == [f"section {name} dropped" for name in policy.data if name != "schema"]


def test_a_wider_url_entry_takes_the_place_of_what_it_covers() -> None:
    policy = Policy.from_dict({"schema": "policy/v1", "url_allowlist": [*LISTED]})
    made = {
        change.description: change.data["url_allowlist"]
        for change in changes(policy.data, True, Probes(policy, {}), Unlisted())
        if "loosened" in change.description
    }
    others = [entry for entry in LISTED if "a.test" not in entry]
    assert made["URL entry 'https://a.test/x/y' loosened to 'https://a.test/x'"] == [
        LISTED[0],
        "https://a.test/x",
        *LISTED[2:],
    ]
    assert sorted(made["URL entry 'https://a.test/x/y' loosened to 'https://a.test'"]) == sorted(
        [*others, "https://a.test"]
    )
    assert "URL entry 'http://c.test:8080/p/q/r' loosened to 'http://c.test:8080/p/q'" in made
    assert not any("corpus.test" in what or "b.test" in what for what in made)
