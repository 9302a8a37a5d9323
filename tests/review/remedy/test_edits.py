"""The smallest edit that allows what a policy refuses: what it is, that it suffices, and that nothing in it can go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tachograph.review.queries.recorded_queries import GateQuestion
from tachograph.review.remedy.edits import ADD, REMOVE, Edit, apply
from tachograph.review.remedy.explain_denial import DenialExplanation, explain_denial
from tachograph.review.remedy.minimal_edit import find_minimal_edit
from tachograph.runtime.core.effects import Call
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.policy.gate import Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.policy.usage import Counters
from tachograph.runtime.tools.contract import SHIPPED
from tachograph.runtime.tools.loader import load_named
from tests.support import ROOT

Data = dict[str, Any]
TOOLS = {name: load_named(name, ROOT / "tools") for name in SHIPPED}
SHIPPED_POLICY = Policy.load(ROOT / "policy/v1.yaml", root=ROOT)
LATE = "url_allowlist"


def asks(name: str, **arguments: Any) -> GateQuestion:
    return GateQuestion(Call("tc_1_0", name, freeze(arguments)), Counters())


def after(question: GateQuestion, **used: int) -> GateQuestion:
    return GateQuestion(question.call, Counters(**used), size=question.size)


def meets(**check: Any) -> GateQuestion:
    return GateQuestion(check=check)


def texts(question: GateQuestion, policy: Policy = SHIPPED_POLICY) -> list[str]:
    return [item.text for item in find_minimal_edit(policy, TOOLS, question).edits]


# ---- what it is ------------------------------------------------------------------------------------------


FETCH = asks("fetch", url="https://other.test/a/b.md")
WRITE = asks("write", path="corpus/x", content="x")
TABLE: list[tuple[str, GateQuestion, list[str]]] = [
    ("url", FETCH, ['6: under url_allowlist add "https://other.test/a/b.md"']),
    ("port", asks("fetch", url="https://other.test:8443/"), ['6: under url_allowlist add "https://other.test:8443/"']),
    ("query", asks("fetch", url="https://o.test/a?q=1#f"), ['6: under url_allowlist add "https://o.test/a"']),
    ("no entry names the path", asks("fetch", url="https://o.test/a/b*"), ['6: under url_allowlist add "https://o.test/a/"']),
    ("a doubtful path", asks("fetch", url="https://o.test/a;b/c"), ['6: under url_allowlist add "https://o.test/"']),
    ("long path", asks("fetch", url="https://o.test/a/" + "b" * 2040), ['6: under url_allowlist add "https://o.test/a/"']),
    ("write", WRITE, ["11: sandbox.mounts.corpus: write"]),
    ("new mount", asks("read", path="new/x"), ["10: sandbox.mounts.new: read"]),
    ("calls", after(asks("search", query="x"), tool_calls=40), ["17: loop_budget.max_tool_calls: 41"]),
    ("bytes", after(asks("search", query="x"), result_bytes=10**6), ["18: loop_budget.max_result_bytes: 1000001"]),
    ("shape", asks("search", query="x" * 500), ["13: arg_schema_enforcement: shape"]),
    ("steps", GateQuestion(counters=Counters(iterations=10)), ["15: loop_budget.max_iterations: 11"]),
    ("tokens", GateQuestion(counters=Counters(tokens=50_010)), ["16: loop_budget.max_tokens: 50011"]),
    (
        "result",
        GateQuestion(counters=Counters(result_bytes=9), size=10**6),
        ["18: loop_budget.max_result_bytes: 1000009"],
    ),
    ("hop", meets(rule=LATE, target="https://o.test/x", hop=1), ['6: under url_allowlist add "https://o.test/x"']),
    (
        "address",
        meets(rule=LATE, target="https://corpus.test/x", hop=0, address="10.1.2.3"),
        ['8: under private_networks add "10.1.2.3/32"'],
    ),
    (
        "address v6",
        meets(rule=LATE, target="https://corpus.test/x", hop=0, address="fd00::1"),
        ['8: under private_networks add "fd00::1/128"'],
    ),
    (
        "address inside another",
        meets(rule=LATE, target="https://corpus.test/x", hop=0, address="64:ff9b::a01:203"),
        ['8: under private_networks add "10.1.2.3/32"'],
    ),
    (
        "two budgets",
        after(asks("search", query="x"), tool_calls=50, result_bytes=10**6),
        ["17: loop_budget.max_tool_calls: 51", "18: loop_budget.max_result_bytes: 1000001"],
    ),
    ("nothing", asks("search", query="x"), []),
]  # fmt: skip


@pytest.mark.parametrize(("question", "wanted"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_each_refusal_has_its_edit(question: GateQuestion, wanted: list[str]) -> None:
    assert texts(question) == [f"policy/v1.yaml:{text}" for text in wanted]


def test_a_repeat_is_allowed_just_once_more() -> None:
    question = asks("search", query="x")
    assert question.call is not None and question.counters is not None
    key = Gate(SHIPPED_POLICY, TOOLS).key_of(question.call)
    for _ in range(5):
        question.counters.count_result(question.call, "{}", key)
    assert texts(question) == ["policy/v1.yaml:21: cycle_detection.max_repeats: 6"]


NONE = {
    "a tool that is not there": (asks("shell", text="x"), "the run has no such tool"),
    "no name": (asks("ls -la"), "no policy can hold that name"),
    "a URL of two readings": (asks("fetch", url="https://a@b.test/"), "two programs may read differently"),
    "a path of two readings": (asks("read", path="corpus/../x"), "two programs may read differently"),
    "the wrong type": (asks("search", query=5), "the tool's schema decides, not the policy (/query type)"),
    "a link": (meets(rule="sandbox_path", path="sandbox/x", access="read", found="link"), "follows no link"),
    "an unbound mount": (
        meets(rule="sandbox_path", path="sandbox/x", access="read", found="unbound mount"),
        "binds no folder",
    ),
    "a relayed address": (
        meets(rule=LATE, target="https://corpus.test/x", hop=0, address="2002:a00:1::"),
        "6to4 addresses are not opened",
    ),
    "no address": (meets(rule=LATE, target="https://corpus.test/x", hop=0, address="?"), "not a plain one"),
    "another rule": (meets(rule="unheard of"), "the gate itself failed"),
    "more than a limit may be": (
        after(asks("search", query="x"), tool_calls=10**6),
        "no policy may be so",
    ),
}


@pytest.mark.parametrize(("question", "said"), NONE.values(), ids=NONE)
def test_where_no_edit_helps_it_says_why(question: GateQuestion, said: str) -> None:
    found = find_minimal_edit(SHIPPED_POLICY, TOOLS, question)
    assert found.edits == () and found.why_not is not None
    assert said in found.why_not


def test_overlays_are_edited_where_the_deciding_line_stands(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_bytes((ROOT / "policy/v1.yaml").read_bytes())
    (tmp_path / "over.yaml").write_text(
        "tool_registry: {denied: [write], allowed: [read]}\n\nsandbox:\n  mounts:\n    corpus: read\n"
        "approval: {required_for: [read], timeout_s: 5}\n"
    )
    policy = Policy.load(tmp_path / "base.yaml", [tmp_path / "over.yaml"], root=tmp_path)
    assert texts(WRITE, policy) == [
        "over.yaml:1: remove write from tool_registry.denied",
        "over.yaml:1: add write to tool_registry.allowed",
        "over.yaml:5: sandbox.mounts.corpus: write",
    ]
    assert texts(asks("read", path="corpus/x"), policy) == [
        "over.yaml:6: remove read from approval.required_for"
    ]
    assert texts(FETCH, policy)[-1] == 'base.yaml:6: under url_allowlist add "https://other.test/a/b.md"'


def test_an_entry_that_a_new_one_covers_makes_room() -> None:
    held = ["https://o.test/a/b", "https://x.test/", "https://o.test/a/c"]
    policy = Policy.from_dict({**SHIPPED_POLICY.data, "url_allowlist": held})
    found = find_minimal_edit(policy, TOOLS, asks("fetch", url="https://o.test/a"))
    assert found.edited is not None
    assert found.edited.data["url_allowlist"] == ["https://o.test/a", "https://x.test/"]
    assert [(item.op, item.pointer) for item in found.edits] == [
        ("replace", "/url_allowlist/0"),
        ("remove", "/url_allowlist/2"),
    ]


def test_a_policy_without_sections_gets_what_the_call_takes_and_no_more() -> None:
    bare = Policy.from_dict({"schema": "policy/v1"})
    found = find_minimal_edit(bare, TOOLS, asks("read", path="corpus/x"))
    assert found.edited is not None
    assert found.edited.data == {
        "schema": "policy/v1",
        "tool_registry": {"allowed": ["read"]},
        "sandbox": {"mounts": {"corpus": "read"}},
        "loop_budget": {"max_tool_calls": 1, "max_result_bytes": 1},
        "cycle_detection": {"max_repeats": 1},
    }
    assert found.remark == "mount corpus is part of a run only where the run binds a folder to it"


def test_an_address_in_a_url_needs_its_network_too() -> None:
    found = find_minimal_edit(SHIPPED_POLICY, TOOLS, asks("fetch", url="https://10.0.0.9/"))
    assert found.remark == "a run takes an entry for 10.0.0.9 only where private_networks holds that address"


def test_an_edited_policy_keeps_its_lines() -> None:
    policy = Policy.load(ROOT / "policy/v1.yaml", root=ROOT)
    edits = [
        Edit("/tool_registry/allowed/1", REMOVE, None, "", ""),
        Edit("/tool_registry/allowed/3", REMOVE, None, "", ""),
        Edit("/url_allowlist/0", REMOVE, None, "", ""),
        Edit("/url_allowlist/-", ADD, "https://o.test/", "", ""),
    ]
    edited = apply(policy, edits)
    assert edited.data["tool_registry"]["allowed"] == ["search", "read", "summarize"]
    assert edited.data["url_allowlist"] == ["https://o.test/"]
    assert edited.at("/sandbox/mounts/sandbox") == "policy/v1.yaml:12"
    assert edited.at("/url_allowlist/0") == "policy/v1.yaml:6"
    assert policy.data["url_allowlist"] == ["https://corpus.test/"]
    assert edited.version != policy.version == Policy.load(ROOT / "policy/v1.yaml", root=ROOT).version


# ---- what else it opens ------------------------------------------------------------------------------------


def opened(
    question: GateQuestion, call: Call | None = None, policy: Policy = SHIPPED_POLICY
) -> DenialExplanation:
    return explain_denial(policy, TOOLS, question, call)


def test_an_entry_opens_what_is_below_it_and_the_witness_is_not_what_was_refused() -> None:
    (item,) = opened(FETCH).opens
    assert item.rule == "url_allowlist" and item.witness is not None
    assert item.witness.arguments == {"url": "https://other.test/a/b.md/x"}
    assert (item.witness.before["decision"], item.witness.after["decision"]) == ("deny", "allow")


@pytest.mark.parametrize(
    "question",
    [
        asks("write", path="corpus/x", content="x"),
        asks("search", query="x" * 500),
        after(asks("search", query="x"), tool_calls=40),
        FETCH,
    ],
    ids=["write", "shape", "calls", "url"],
)
def test_every_witness_is_another_call_that_the_edit_lets_through(question: GateQuestion) -> None:
    found = opened(question)
    assert question.call is not None and found.opens
    for item in found.opens:
        assert (
            item.witness is not None and item.witness.arguments is not None and item.witness.tool is not None
        )
        assert question.call.arguments is not None
        assert (
            item.witness.arguments != question.call.arguments.value()
            or item.witness.tool != question.call.name
        )
        call = Call("x", item.witness.tool, freeze(item.witness.arguments))
        counters = Counters(**{k: v for k, v in item.witness.used.items() if k != "repeats"})
        assert found.minimal.edited is not None
        assert Gate(SHIPPED_POLICY, TOOLS).decide(call, counters).decision == "deny"
        assert Gate(found.minimal.edited, TOOLS).decide(call, counters).decision == "allow"


def test_a_limit_for_one_more_step_opens_nothing_else() -> None:
    (item,) = opened(GateQuestion(counters=Counters(iterations=10))).opens
    assert item.witness is None and item.description == "max_iterations is 11, was 10"


def test_a_network_shows_another_host_that_may_be_there() -> None:
    check = {"rule": LATE, "target": "https://corpus.test/x", "hop": 0, "address": "10.1.2.3"}
    (item,) = opened(
        GateQuestion(check=check), Call("tc_1_0", "fetch", freeze({"url": "https://corpus.test/x"}))
    ).opens
    assert "10.1.2.3/32" in item.description and item.witness is not None
    assert item.witness.late is not None and item.witness.late["target"] != "https://corpus.test/x"


def test_no_approval_any_more_is_said_with_a_call_that_nobody_is_asked_about() -> None:
    overlay = ROOT / "policy/overlays/approve_write.yaml"
    policy = Policy.load(ROOT / "policy/v1.yaml", [overlay], root=ROOT)
    found = opened(asks("write", path="sandbox/a", content="a"), None, policy)
    assert [item.text for item in found.minimal.edits] == [
        "policy/overlays/approve_write.yaml:3: remove write from approval.required_for"
    ]
    (item,) = found.opens
    assert item.description == "write is called without a person's approval"
    assert item.witness is not None and item.witness.before["decision"] == "escalate"
