"""Any policy, any question: the edits suffice, none can go, and where there is none no policy helps."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.evidence.queries.explain import as_text, explain_run
from tachograph.fail.errors import PolicyError
from tachograph.review.compare.policy_compare import WIDENING, compare_policies
from tachograph.review.queries.recorded_queries import GateQuestion
from tachograph.review.remedy.edits import apply
from tachograph.review.remedy.explain_denial import add_explanations
from tachograph.review.remedy.minimal_edit import MinimalEdit, find_minimal_edit
from tachograph.runtime.core.effects import Call
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.policy.gate import Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.policy.usage import Counters
from tachograph.runtime.resources.http_methods import METHODS
from tests.support import ROOT, policy_data, tool

LATE = "url_allowlist"


def meets(**check: Any) -> GateQuestion:
    return GateQuestion(check=check)


PROBES = {"probe": tool(), "echo": tool("echo"), "late": tool("late")}
HOSTS = ("good.test", "evil.test")
URLS = [
    f"https://{host}{path}"
    for host in HOSTS
    for path in ("/", "/a", "/a/", "/a/b", "/a/b?q", "/a;b", "/a*/c")
]
URLS += ["http://good.test:81/a", "ftp://good.test/", "https://x@good.test/", "https://10.0.0.1/a"]
PATHS = ["books/a", "box/a", "new/a", "books", "../x", "box/./a"]
ADDRESSES = [
    "10.0.0.1",
    "127.0.0.1",
    "93.184.216.34",
    "fd00::1",
    "::ffff:10.0.0.1",
    "2002::1",
    "fe80::1%a",
    "x",
]
ENTRIES = [
    "https://good.test/",
    "https://good.test/a",
    "https://good.test/a/b",
    "https://evil.test/a/",
    "good.test",
    {"url": "https://good.test/", "methods": ["POST"]},
    {"url": "https://good.test/a", "methods": ["GET", "PUT"]},
    {"url": "https://evil.test/a/b", "methods": ["HEAD", "DELETE"]},
]

ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "n": st.sampled_from([1, 99, "x"]),
        "url": st.sampled_from(URLS),
        "path": st.sampled_from(PATHS),
        "target": st.sampled_from(PATHS),
        "other": st.just(1),
    },
)
NAMES = st.sampled_from(["probe", "echo", "late", "nope", "no name"])


@st.composite
def policies(draw: Any) -> Policy:
    """A policy that the loader takes: sections left out, lists cut, limits low."""
    tools = draw(st.lists(st.sampled_from(["probe", "echo", "late"]), unique=True))
    denied = draw(
        st.lists(
            st.sampled_from([n for n in ("probe", "echo", "late", "write") if n not in tools]), unique=True
        )
    )
    data = policy_data(
        tool_registry={"allowed": tools, "denied": denied},
        url_allowlist=draw(st.lists(st.sampled_from(ENTRIES), unique_by=repr, max_size=3)),
        private_networks=draw(st.sampled_from([[], ["10.0.0.0/30"], ["127.0.0.1/32"]])),
        loop_budget={name: draw(st.integers(1, 4)) for name in ("max_iterations", "max_tool_calls")},
        cycle_detection={"max_repeats": draw(st.integers(1, 3))},
        approval={
            "required_for": draw(st.lists(st.sampled_from(tools), unique=True)) if tools else [],
            "timeout_s": 1,
        },
        arg_schema_enforcement=draw(st.sampled_from(["strict", "shape"])),
    )
    data["sandbox"] = {
        "mounts": draw(st.dictionaries(st.sampled_from(["books", "box"]), st.sampled_from(["read", "write"])))
    }
    for name in draw(st.lists(st.sampled_from(sorted(set(data) - {"schema"})), unique=True, max_size=3)):
        if not (name == "tool_registry" and data.get("approval", {}).get("required_for")):
            data.pop(name, None)
    try:
        return Policy.from_dict(data)
    except PolicyError:
        return Policy.from_dict({**data, "url_allowlist": []})


@st.composite
def asked(draw: Any) -> GateQuestion:
    """Any of the questions that a gate may be asked."""
    used = Counters(*(draw(st.integers(0, most)) for most in (5, 60_000, 5, 12_000)))
    kind = draw(st.sampled_from(["call", "call", "call", "step", "result", "url", "address", "path"]))
    if kind == "call":
        call = Call("tc_1_0", draw(NAMES), freeze(draw(ARGUMENTS)))
        used.repeats[Gate(OPEN, PROBES).key_of(call)] = draw(st.integers(0, 4))
        return GateQuestion(call, used)
    if kind == "result":
        return GateQuestion(counters=used, size=draw(st.integers(0, 20_000)))
    if kind == "path":
        return meets(
            rule="sandbox_path",
            path=draw(st.sampled_from(PATHS)),
            access=draw(st.sampled_from(["read", "write"])),
        )
    if kind in ("url", "address"):
        more = {"address": draw(st.sampled_from(ADDRESSES))} if kind == "address" else {}
        more |= draw(st.sampled_from([{}, *({"method": method} for method in METHODS)]))
        return meets(rule=LATE, target=draw(st.sampled_from(URLS)), hop=1, **more)
    return GateQuestion(counters=used)


# everything that any policy could let through of what is asked here: what it refuses, no edit allows
OPEN = Policy.from_dict(
    policy_data(
        tool_registry={"allowed": ["probe", "echo", "late"], "denied": []},
        url_allowlist=[{"url": url, "methods": [*METHODS]}
                       for url in (*(f"https://{host}/" for host in HOSTS),
                                   "http://good.test:81/", "https://10.0.0.1/")],
        private_networks=["10.0.0.0/8", "127.0.0.0/8", "fc00::/7", "fe80::/10"],
        sandbox={"mounts": {"books": "write", "box": "write", "new": "write"}},
        loop_budget=dict.fromkeys(("max_iterations", "max_tokens", "max_tool_calls", "max_result_bytes"), 10**6),
        cycle_detection={"max_repeats": 10**6},
        arg_schema_enforcement="shape",
    )
)  # fmt: skip


def passes(policy: Policy, question: GateQuestion) -> bool:
    found = question.put(Gate(policy, PROBES))
    return found is None or found.decision == "allow"


def parts(found: MinimalEdit, policy: Policy) -> list[Policy]:
    """What the edited policy is with one edit less; an edit that the rest cannot do without gives none."""
    out = []
    for i in range(len(found.edits)):
        try:
            out.append(apply(policy, [*found.edits[:i], *found.edits[i + 1 :]]))
        except PolicyError:
            continue
    return out


@settings(max_examples=200, deadline=None)
@given(policies(), asked())
def test_the_edits_suffice_none_can_go_and_where_there_is_none_no_policy_helps(
    policy: Policy, question: GateQuestion
) -> None:
    before = copy.deepcopy(policy.data)
    found = find_minimal_edit(policy, PROBES, question)
    assert policy.data == before
    if found.why_not is not None:
        assert not passes(OPEN, question), found
        return
    assert found.edited is not None
    assert passes(found.edited, question)
    assert apply(policy, found.edits).data == found.edited.data
    assert passes(policy, question) == (not found.edits)
    for less in parts(found, policy):
        assert not passes(less, question), found.edits


UNIVERSE = [
    *(GateQuestion(Call("tc_1_0", name, freeze(arguments)), Counters(tool_calls=calls))
      for name in PROBES
      for arguments in ({}, {"n": 99}, *({"url": url} for url in URLS), *({"path": p} for p in PATHS),
                        *({"target": p} for p in PATHS))
      for calls in (0, 2)),
    *(GateQuestion(counters=Counters(iterations=n, tokens=m)) for n in (0, 2, 3) for m in (0, 50_001)),
]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(policies(), asked())
def test_an_edit_opens_nothing_that_the_comparison_does_not_name(
    policy: Policy, question: GateQuestion
) -> None:
    found = find_minimal_edit(policy, PROBES, question)
    if not found.edits or found.edited is None:
        return
    before, then = Gate(policy, PROBES), Gate(found.edited, PROBES)
    if before.decide_step(Counters()) is not None:
        return  # nothing is ever asked under such a policy
    opened = [q for q in UNIVERSE if _rank(q, then) < _rank(q, before)]
    named = compare_policies(policy, found.edited, PROBES)
    rules = {change.rule for change in named.changes if change.kind == WIDENING}
    for one in opened:
        refusal = one.put(before)
        assert refusal is not None
        assert named.undecided or refusal.rule_id in rules, (refusal, named)


def _rank(question: GateQuestion, gate: Gate) -> int:
    found = question.put(gate)
    return 0 if found is None else {"allow": 0, "escalate": 1, "deny": 2}[found.decision]


def test_a_condition_on_arguments_is_left_to_a_person() -> None:
    """The gate decided, and did not fail: what a condition or its list says is never loosened by a suggestion."""
    folder = ROOT / "runs/tool_rules/recipient_not_on_the_list"
    found = explain_run(folder, root=ROOT)
    add_explanations(found, None, lambda text, _: text)
    said = as_text(found, None, lambda text, _: text)
    assert "no edit of the policy allows it: tools.send_money.arguments refuses it" in said
