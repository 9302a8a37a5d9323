"""Taking an allowance away, adding a denial or using more never lets anything through that was refused.

The gate's own tests narrow a policy once; here the shipped policy is narrowed step after step, every question
that the gate answers is asked, and whole runs are compared.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.runtime.core.effects import Call
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.models.types import ToolCall
from tachograph.runtime.policy.gate import Counters, Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.contract import SHIPPED
from tachograph.runtime.tools.loader import load_named
from tests.support import ROOT, URL, answer, ask, perform, policy_data, tool

Data = dict[str, Any]
RANK = {"deny": 0, "escalate": 1, "allow": 2}
TOOLS = {name: load_named(name, ROOT / "tools") for name in sorted(SHIPPED)}
BASE: Data = dict(Policy.load(ROOT / "policy/v1.yaml", root=ROOT).data)
WIDE: Data = {
    **copy.deepcopy(BASE),
    "url_allowlist": ["https://corpus.test/", "https://other.test:8443/a/", "http://plain.test/"],
    "private_networks": ["10.0.0.0/8", "127.0.0.0/8"],
    "sandbox": {"mounts": {"corpus": "read", "sandbox": "write", "desk": "write"}},
    "arg_schema_enforcement": "shape",
}
SMALL: Data = {**WIDE, "tool_registry": {"allowed": ["fetch", "read", "write"], "denied": []}}

# ---- narrowing -----------------------------------------------------------------------------------------

LISTS = ("url_allowlist", "private_networks")
SECTIONS = (
    *LISTS,
    *("tool_registry", "sandbox", "loop_budget", "cycle_detection", "arg_schema_enforcement"),
)


def _remove_tool(data: Data, draw: Callable[[Any], Any]) -> None:
    allowed = data.get("tool_registry", {}).get("allowed", [])
    if allowed:
        name = draw(st.sampled_from(allowed))
        allowed.remove(name)
        if draw(st.booleans()):
            data["tool_registry"].setdefault("denied", []).append(name)
        approval = data.get("approval", {}).get("required_for", [])
        if name in approval:
            approval.remove(name)


def _remove_entry(data: Data, draw: Callable[[Any], Any]) -> None:
    entries = data.get(draw(st.sampled_from(LISTS)), [])
    if entries:
        entries.remove(draw(st.sampled_from(entries)))


def _deepen_entry(data: Data, draw: Callable[[Any], Any]) -> None:
    entries = data.get("url_allowlist", [])
    if entries:
        index = draw(st.integers(0, len(entries) - 1))
        entries[index] = entries[index] + "a/"


def _remove_mount(data: Data, draw: Callable[[Any], Any]) -> None:
    mounts = data.get("sandbox", {}).get("mounts", {})
    if mounts:
        del mounts[draw(st.sampled_from(sorted(mounts)))]


def _read_only(data: Data, draw: Callable[[Any], Any]) -> None:
    mounts = data.get("sandbox", {}).get("mounts", {})
    if mounts:
        mounts[draw(st.sampled_from(sorted(mounts)))] = "read"


def _lower(data: Data, draw: Callable[[Any], Any]) -> None:
    budget = data.get("loop_budget", {})
    limits = sorted(key for key, value in budget.items() if type(value) is int)
    if limits:
        key = draw(st.sampled_from(limits))
        budget[key] = draw(st.integers(min(1, budget[key]), budget[key]))


def _fewer_repeats(data: Data, draw: Callable[[Any], Any]) -> None:
    cycle = data.get("cycle_detection", {})
    if cycle:
        cycle["max_repeats"] = draw(st.integers(1, cycle["max_repeats"]))


def _strict(data: Data, _draw: Callable[[Any], Any]) -> None:
    if "arg_schema_enforcement" in data:
        data["arg_schema_enforcement"] = "strict"


def _ask_a_person(data: Data, draw: Callable[[Any], Any]) -> None:
    allowed = data.get("tool_registry", {}).get("allowed", [])
    if allowed:
        asked = data.setdefault("approval", {"timeout_s": 1}).setdefault("required_for", [])
        name = draw(st.sampled_from(allowed))
        if name not in asked:
            asked.append(name)


def _drop_section(data: Data, draw: Callable[[Any], Any]) -> None:
    section = draw(st.sampled_from(SECTIONS))
    data.pop(section, None)
    if section == "tool_registry":
        data.pop("approval", None)


NARROWINGS = (
    *(_remove_tool, _remove_entry, _deepen_entry, _remove_mount, _read_only, _lower, _fewer_repeats),
    *(_strict, _ask_a_person, _drop_section),
)


@st.composite
def chains(draw: Any) -> list[Data]:
    """Policies, each narrower than the one before."""
    out = [copy.deepcopy(draw(st.sampled_from([BASE, WIDE, SMALL])))]
    for step in draw(st.lists(st.sampled_from(NARROWINGS), min_size=1, max_size=6)):
        data = copy.deepcopy(out[-1])
        step(data, draw)
        out.append(data)
    return out


# ---- questions -----------------------------------------------------------------------------------------

URLS = [
    *("https://corpus.test/op-a1.md", "https://corpus.test/a/a/x", "https://other.test:8443/a/b"),
    *(
        "https://other.test:8443/",
        "http://plain.test/a/",
        "https://evil.test/",
        "https://corpus.test@evil.test/",
    ),
]
PATHS = ["corpus/op-a1.md", "sandbox/x", "desk/x", "desk/../x", "nowhere/x", "", "/etc/passwd"]
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "url": st.sampled_from(URLS),
        "path": st.sampled_from(PATHS),
        "content": st.text(max_size=3),
        "query": st.sampled_from(["seals", "", 7]),
        "top_k": st.sampled_from([1, 5, 10**6]),
        "text": st.text(max_size=3),
    },
)
CALLS = st.builds(
    lambda name, arguments: Call("tc_1_0", name, freeze(arguments)),
    st.sampled_from([*sorted(SHIPPED), "shell"]),
    ARGUMENTS,
)
GOOD = [
    Call("tc_1_0", "fetch", freeze({"url": URLS[1]})),
    Call("tc_1_0", "read", freeze({"path": "corpus/op-a1.md"})),
    Call("tc_1_0", "write", freeze({"path": "desk/x", "content": "x"})),
    Call("tc_1_0", "search", freeze({"query": "seals"})),
]
LATE: list[dict[str, Any]] = [
    *({"rule": "url_allowlist", "target": url, "hop": 1} for url in URLS),
    *(
        {"rule": "url_allowlist", "target": URLS[0], "address": address}
        for address in ("10.0.0.1", "127.0.0.1", "93.184.216.34")
    ),
    *({"rule": "sandbox_path", "path": path, "access": mode} for path in PATHS for mode in ("read", "write")),
    {"rule": "sandbox_path", "path": "desk/x", "access": "read", "found": "link"},
]


def used(iterations: int, tokens: int, calls: int, size: int, repeats: int, wanted: Call) -> Counters:
    counters = Counters(iterations=iterations, tokens=tokens, tool_calls=calls, result_bytes=size)
    for _ in range(repeats):
        counters.count_result(wanted, "{}")
    return counters


def ranks(data: Data, wanted: Call, counters: Counters) -> list[int]:
    """How far the gate lets everything through that can be asked: more is more allowed."""
    gate = Gate(Policy.from_dict(data), TOOLS)
    budgets = [gate.decide_step(counters), gate.decide_result(500, counters)]
    return [
        RANK[gate.decide(wanted, counters).decision],
        *(RANK[gate.decide_late(check).decision] for check in LATE),
        *(2 if refused is None else RANK[refused.decision] for refused in budgets),
    ]


COUNTS = st.tuples(
    st.integers(0, 11),
    st.sampled_from([0, 999, 49_999, 50_000]),
    st.integers(0, 41),
    st.sampled_from([0, 999_000, 999_501, 1_000_000]),
    st.integers(0, 4),
)


@settings(max_examples=150, deadline=None)
@given(chains(), st.one_of(CALLS, st.sampled_from(GOOD)), COUNTS)
def test_a_narrower_policy_allows_no_more(policies: list[Data], wanted: Call, counts: Any) -> None:
    counters = used(*counts, wanted)
    found = [ranks(data, wanted, counters) for data in policies]
    for wide, narrow, data in zip(found, found[1:], policies[1:], strict=False):
        assert all(a >= b for a, b in zip(wide, narrow, strict=True)), data


@settings(max_examples=80, deadline=None)
@given(st.sampled_from([BASE, WIDE, SMALL]), st.one_of(CALLS, st.sampled_from(GOOD)), COUNTS, COUNTS)
def test_who_has_used_more_is_allowed_no_more(data: Data, wanted: Call, counts: Any, more: Any) -> None:
    less = ranks(data, wanted, used(*counts, wanted))
    total = [a + b for a, b in zip(counts, more, strict=True)]
    assert all(a >= b for a, b in zip(less, ranks(data, wanted, used(*total, wanted)), strict=True))


def test_the_narrowings_do_narrow() -> None:
    """Each of the questions is one that some policy lets through and another refuses."""
    for wanted in GOOD:
        assert ranks(WIDE, wanted, Counters())[0] == 2
        assert ranks({"schema": "policy/v1"}, wanted, Counters())[0] == 0
    open_to = ranks(WIDE, GOOD[0], Counters())[1:]
    shut_to = ranks({"schema": "policy/v1"}, GOOD[0], Counters())[1:]
    assert sum(open_to) > 20 and sum(shut_to) == 0


@settings(max_examples=60, deadline=None)
@given(st.one_of(CALLS, st.sampled_from(GOOD)), st.randoms(use_true_random=False), COUNTS)
def test_the_order_of_arguments_and_of_tools_decides_nothing(wanted: Call, random: Any, counts: Any) -> None:
    assert wanted.arguments is not None
    items = list(wanted.arguments.value().items())
    random.shuffle(items)
    turned = replace(wanted, arguments=freeze(dict(items)))
    names = list(TOOLS)
    random.shuffle(names)
    gates = [
        Gate(Policy.from_dict(WIDE), TOOLS),
        Gate(Policy.from_dict(WIDE), {name: TOOLS[name] for name in names}),
    ]
    counters = used(*counts, wanted)
    assert gates[0].decide(wanted, counters) == gates[1].decide(turned, counters)


# ---- whole runs ----------------------------------------------------------------------------------------

STEPS = st.lists(
    st.lists(
        st.builds(
            ToolCall,
            st.sampled_from(["probe", "echo", "nope"]),
            st.fixed_dictionaries(
                {},
                optional={
                    "n": st.integers(0, 11),
                    "url": st.sampled_from([URL, "https://evil.test/"]),
                    "path": st.sampled_from(["books/a", "box/a", "nowhere/a"]),
                    "target": st.sampled_from(["books/a", "box/a"]),
                },
            ),
        ),
        min_size=1,
        max_size=2,
    ),
    max_size=5,
)
LESS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a tool": {"tool_registry": {"allowed": ["probe"]}},
    "a denied tool": {"tool_registry": {"allowed": ["probe"], "denied": ["write", "echo"]}},
    "a URL": {"url_allowlist": ["https://good.test/deeper/"]},
    "all URLs": {"url_allowlist": None},
    "a mount": {"sandbox": {"mounts": {"books": "read"}}},
    "writing": {"sandbox": {"mounts": {"books": "read", "box": "read"}}},
    "steps": {"loop_budget": {"max_iterations": 2}},
    "calls": {"loop_budget": {"max_tool_calls": 2}},
    "bytes": {"loop_budget": {"max_result_bytes": 30}},
    "tokens": {"loop_budget": {"max_tokens": 100}},
    "repeats": {"cycle_detection": {"max_repeats": 1}},
    "a person": {"approval": {"required_for": ["echo"], "timeout_s": 1}},
}


def executed(steps: list[list[ToolCall]], sections: dict[str, Any]) -> list[str]:
    """The calls that a run really made, in order."""
    made: list[str] = []

    def run(name: str) -> Callable[[dict[str, Any], Any], Any]:
        def act(args: dict[str, Any], _io: Any) -> Any:
            made.append(f"{name} {sorted(args.items())}")
            return {"said": "ok"}

        return act

    data = policy_data()
    for name, value in sections.items():
        if value is None:
            del data[name]
        elif name == "loop_budget":
            data[name] = {**data[name], **value}
        else:
            data[name] = value
    usage = {"input_tokens": 40, "output_tokens": 10}
    replies = [*(ask(*calls, usage=usage) for calls in steps), answer(usage=usage)]
    perform(replies, [tool(run=run("probe")), tool("echo", run("echo"))], data)
    return made


@pytest.mark.parametrize("name", LESS)
@settings(max_examples=12, deadline=None)
@given(steps=STEPS)
def test_a_run_under_less_does_a_beginning_of_what_it_does_under_more(
    name: str, steps: list[list[ToolCall]]
) -> None:
    """Where a denial ends the run, less allowance means ending earlier and never anything else."""
    more, less = executed(steps, {}), executed(steps, LESS[name])
    assert less == more[: len(less)]
