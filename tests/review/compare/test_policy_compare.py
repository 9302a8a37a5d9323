"""What a change of policy opens and shuts, rule by rule; and changes of its text that change nothing."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tachograph.review.compare.policy_compare import (
    NEEDS_APPROVAL,
    TIGHTENING,
    WIDENING,
    Change,
    Comparison,
    compare_policies,
)
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.contract import SHIPPED, Tool
from tachograph.runtime.tools.loader import load_named
from tests.support import OUTPUT, ROOT

Data = dict[str, Any]
TOOLS = {name: load_named(name, ROOT / "tools") for name in SHIPPED}
BASE: Data = dict(Policy.load(ROOT / "policy/v1.yaml", root=ROOT).data)
BUDGET = BASE["loop_budget"]


def made(name: str, effect: str, required: tuple[str, ...] = (), **properties: Any) -> Tool:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": list(required),
    }
    return Tool(name, f"the tool {name}", schema, OUTPUT, effect, True, lambda args, io: {})


def data(**sections: Any) -> Data:
    """The shipped policy with sections replaced, or merged into where they are mappings; None drops one."""
    out = copy.deepcopy(BASE)
    for name, value in sections.items():
        if value is None:
            out.pop(name, None)
        elif isinstance(value, dict) and isinstance(out.get(name), dict):
            out[name] = {**out[name], **value}
        else:
            out[name] = value
    return out


def compare(old: Data, new: Data, tools: dict[str, Tool] | None = None) -> Comparison:
    return compare_policies(Policy.from_dict(old), Policy.from_dict(new), tools or TOOLS)


def only(comparison: Comparison) -> Change:
    (change,) = comparison.changes
    assert comparison.undecided == ()
    return change


def told(comparison: Comparison) -> list[tuple[str, str, str]]:
    return [(change.kind, change.rule, change.description) for change in comparison.changes]


def there_and_back(old: Data, new: Data, tools: dict[str, Tool] | None = None) -> Change:
    """The one widening from old to new; the way back is the tightening of the same rule."""
    change, back = only(compare(old, new, tools)), only(compare(new, old, tools))
    assert (change.kind, back.kind, back.rule) == (WIDENING, TIGHTENING, change.rule)
    assert change.witness.before == back.witness.after and change.witness.after == back.witness.before
    return change


# ---- what a policy allows more -------------------------------------------------------------------------


def test_a_url_entry_is_a_widening_with_a_url_to_try() -> None:
    change = there_and_back(data(), data(url_allowlist=["https://corpus.test/", "http://x.test:81/a/"]))
    assert (change.rule, change.description) == ("url_allowlist", "fetch may reach http://x.test:81/a/")
    assert change.at == "<policy>#/url_allowlist/http:~1~1x.test:81~1a~1"
    assert change.witness.to_dict() == {
        "tool": "fetch",
        "arguments": {"url": "http://x.test:81/a/"},
        "used": {},
        "late": None,
        "result_bytes": None,
        "before": {
            "decision": "deny",
            "rule_id": "url_allowlist",
            "reason": '"http://x.test:81" is not in url_allowlist',
            "at": "<policy>#/url_allowlist",
            "facts": {"pointer": "/url", "scheme": "http", "host": "x.test", "port": 81},
        },
        "after": {
            "decision": "allow",
            "rule_id": "url_allowlist",
            "reason": '"http://x.test:81" is allowed by url_allowlist',
            "at": "<policy>#/url_allowlist/http:~1~1x.test:81~1a~1",
            "facts": {"pointer": "/url", "scheme": "http", "host": "x.test", "port": 81},
        },
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("https://corpus.test/a", "https://corpus.test/"),
        ("https://corpus.test/a/", "https://corpus.test/a"),
        ("https://corpus.test/a/b", "https://corpus.test/a/"),
        ("https://corpus.test/a/b", "https://corpus.test/a"),
    ],
)
def test_a_shorter_prefix_is_a_widening_and_a_longer_one_a_tightening(old: str, new: str) -> None:
    change = there_and_back(data(url_allowlist=[old]), data(url_allowlist=[new]))
    assert change.witness.arguments == {"url": new}


@pytest.mark.parametrize(
    "new", ["https://corpus.test/ab", "http://corpus.test/a", "https://corpus.test:444/a"]
)
def test_another_prefix_scheme_or_port_is_both(new: str) -> None:
    comparison = compare(data(url_allowlist=["https://corpus.test/a"]), data(url_allowlist=[new]))
    assert [kind for kind, _, _ in told(comparison)] == [WIDENING, TIGHTENING]


URL = {"type": "string", "x-resource": "url"}


def test_one_change_for_each_entry_and_it_names_the_tools() -> None:
    tools = {**TOOLS, "crawl": made("crawl", "network"), "split": made("split", "pure", ("u",), u=URL)}
    allowed = {"tool_registry": {"allowed": ["crawl", *SHIPPED, "split"]}}
    entries = [f"https://h{i}.test/" for i in range(3)]
    more = data(**allowed, url_allowlist=["https://corpus.test/", *entries])
    found = told(compare(data(**allowed), more, tools))
    assert found == [
        (WIDENING, "url_allowlist", f"fetch, crawl, split may reach {entry}") for entry in entries
    ]


def test_a_tool_without_a_url_reaches_an_entry_by_itself_and_one_with_another_by_a_redirect() -> None:
    place = {**URL, "enum": ["https://corpus.test/"]}
    for tool, hop in ((made("t", "network"), 0), (made("t", "network", ("u",), u=place), 1)):
        registry = {"tool_registry": {"allowed": ["t"]}}
        new = data(**registry, url_allowlist=["https://corpus.test/", "https://x.test/"])
        change = there_and_back(data(**registry), new, {"t": tool})
        assert change.witness.late == {"rule": "url_allowlist", "target": "https://x.test/", "hop": hop}


def test_a_tool_is_a_widening_with_arguments_to_try() -> None:
    some = data(tool_registry={"allowed": ["search", "fetch", "read", "summarize"]})
    change = there_and_back(some, data())
    assert (change.rule, change.description) == ("tool_registry", "write may be called")
    assert change.witness.arguments == {"path": "sandbox/x", "content": "x"}
    assert change.at == "<policy>#/tool_registry/allowed/write"


@pytest.mark.parametrize(("access", "mode", "what"), [
    ("read", "read", "read, search, fetch, write may read below more/"),
    ("write", "write", "write, fetch may write below more/; read, search, fetch, write may read below more/"),
])  # fmt: skip
def test_a_mount_is_a_widening(access: str, mode: str, what: str) -> None:
    mounts = BASE["sandbox"]["mounts"]
    change = there_and_back(data(), data(sandbox={"mounts": {**mounts, "more": mode}}))
    assert (change.rule, change.description, change.at) == (
        "sandbox_path",
        what,
        "<policy>#/sandbox/mounts/more",
    )
    assert change.witness.tool == access


def test_a_mount_for_writing_that_was_for_reading() -> None:
    change = there_and_back(data(), data(sandbox={"mounts": {"corpus": "write", "sandbox": "write"}}))
    assert change.description == "write, fetch may write below corpus/"


def test_a_tool_whose_arguments_name_no_path_comes_upon_mounts_while_it_runs() -> None:
    registry = {"tool_registry": {"allowed": ["search"]}}
    mounts = {**BASE["sandbox"]["mounts"], "n": "read"}
    change = there_and_back(data(**registry), data(**registry, sandbox={"mounts": mounts}))
    assert change.description == "search may read below n/"
    assert change.witness.late == {"rule": "sandbox_path", "path": "n/x", "access": "read"}


def test_a_network_is_a_widening_with_an_address_to_try() -> None:
    change = there_and_back(data(), data(private_networks=["10.1.0.0/16"]))
    assert change.rule == "url_allowlist" and change.at == "<policy>#/private_networks/10.1.0.0~116"
    assert change.description == "fetch may connect to addresses in 10.1.0.0/16, such as 10.1.0.1"
    late = {"rule": "url_allowlist", "target": "https://corpus.test/", "hop": 0, "address": "10.1.0.1"}
    assert change.witness.late == late


def test_a_wider_network_is_told_by_an_address_that_is_new() -> None:
    change = there_and_back(data(private_networks=["10.0.0.0/9"]), data(private_networks=["10.0.0.0/8"]))
    assert "such as 10.128.0.1" in change.description


@pytest.mark.parametrize(("name", "used", "size"), [
    ("max_iterations", {"iterations": 10}, None),
    ("max_tokens", {"tokens": 50000}, None),
    ("max_tool_calls", {"tool_calls": 40}, None),
    ("max_result_bytes", {}, 1_000_001),
])  # fmt: skip
def test_a_raised_limit_is_a_widening(name: str, used: dict[str, int], size: int | None) -> None:
    change = there_and_back(data(), data(loop_budget={name: BUDGET[name] + 1}))
    assert (change.rule, change.at) == ("loop_budget", f"<policy>#/loop_budget/{name}")
    assert change.description == f"{name} is {BUDGET[name] + 1}, was {BUDGET[name]}"
    assert (change.witness.used, change.witness.result_bytes) == (used, size)
    assert (change.witness.tool is None) == (name in ("max_iterations", "max_tokens"))


def test_more_repeats_are_a_widening_told_by_what_a_run_can_have_used() -> None:
    change = there_and_back(data(), data(cycle_detection={"max_repeats": 4}))
    assert change.rule == "cycle_detection"
    assert change.witness.used == {"tool_calls": 3, "result_bytes": 6, "repeats": 3}


def test_shape_is_a_widening_for_tools_with_limits() -> None:
    change = there_and_back(data(), data(arg_schema_enforcement="shape"))
    what = "search, read, write, summarize may be called with values beyond the limits of their schemas"
    assert (change.rule, change.description) == ("arg_schema", what)
    assert change.witness.arguments == {"query": "x", "top_k": 0}


def test_approval_asked_is_no_denial_and_approval_dropped_is_a_widening() -> None:
    asked = data(approval={"required_for": ["write"]})
    change, back = only(compare(data(), asked)), only(compare(asked, data()))
    assert (change.kind, back.kind) == (NEEDS_APPROVAL, WIDENING)
    assert change.description == "write needs a person's approval"
    assert back.description == "write is called without a person's approval"
    assert change.at == "<policy>#/approval/required_for/write"
    verdicts = (change.witness.before["decision"], change.witness.after["decision"])
    assert verdicts == ("allow", "escalate")


def test_an_approval_dropped_counts_where_both_policies_let_a_call_pass() -> None:
    """Of other URLs nobody was asked before: they were denied, and their entries are what is told."""
    asked = data(approval={"required_for": ["fetch"]})
    comparison = compare(asked, data(url_allowlist=["https://x.test/"]))
    assert [(kind, rule) for kind, rule, _ in told(comparison)] == [
        (WIDENING, "url_allowlist"),
        (TIGHTENING, "url_allowlist"),
    ]


def test_a_tool_that_comes_with_approval_is_a_widening_all_the_same() -> None:
    none = data(tool_registry={"allowed": ["search"]})
    asked = data(tool_registry={"allowed": ["search", "summarize"]}, approval={"required_for": ["summarize"]})
    change = there_and_back(none, asked)
    assert change.description == "summarize may be called with a person's approval"
    assert change.witness.after["decision"] == "escalate"


def test_widenings_come_first_and_lines_are_those_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text(
        "schema: policy/v1\nloop_budget:\n  max_iterations: 3\n  max_tokens: 9\n"
    )
    (tmp_path / "new.yaml").write_text(
        "schema: policy/v1\nloop_budget:\n  max_tokens: 5\n  max_iterations: 4\n"
    )
    old, new = (Policy.load(tmp_path / f"{name}.yaml", root=tmp_path) for name in ("old", "new"))
    found = [(change.kind, change.at) for change in compare_policies(old, new, TOOLS).changes]
    assert found == [(WIDENING, "new.yaml:4"), (TIGHTENING, "old.yaml:4")]


# ---- what changes nothing ------------------------------------------------------------------------------

TWO = ["https://corpus.test/", "https://x.test/a"]
NETS = ["10.0.0.0/9", "10.128.0.0/9", "fc00::/8", "fd00::/8"]
SAME: dict[str, tuple[Data, Data]] = {
    "order of URLs": (data(url_allowlist=TWO), data(url_allowlist=TWO[::-1])),
    "order of tools": (data(), data(tool_registry={"allowed": sorted(SHIPPED)})),
    "order of mounts": (data(), data(sandbox={"mounts": dict(reversed(BASE["sandbox"]["mounts"].items()))})),
    "case of a host": (data(), data(url_allowlist=["HTTPS://Corpus.TEST/"])),
    "a bare host": (data(), data(url_allowlist=["corpus.test"])),
    "the default port": (data(), data(url_allowlist=["https://corpus.test:443/"])),
    "no path": (data(), data(url_allowlist=["https://corpus.test"])),
    "an absent empty list": (data(redact=[]), data(redact=None, private_networks=None)),
    "absent approval": (data(), data(approval=None)),
    "absent denied": (data(), data(tool_registry={"allowed": BASE["tool_registry"]["allowed"]})),
    "absent defaults": (data(), data(on_deny=None, arg_schema_enforcement=None)),
    "denied where never allowed": (
        data(tool_registry={"allowed": ["fetch"]}),
        data(tool_registry={"allowed": ["fetch"], "denied": ["write", "shell"]}),
    ),
    "networks in halves": (data(private_networks=NETS), data(private_networks=["10.0.0.0/8", "fc00::/7"])),
    "networks without URLs": (
        data(url_allowlist=[]),
        data(url_allowlist=[], private_networks=["10.0.0.0/8"]),
    ),
    "networks without a tool that connects": (
        data(tool_registry={"allowed": ["read"]}),
        data(tool_registry={"allowed": ["read"]}, private_networks=["10.0.0.0/8"]),
    ),
    "networks beside the only addresses named": (
        data(url_allowlist=["http://10.0.0.1/"], private_networks=["10.0.0.1/32"]),
        data(url_allowlist=["http://10.0.0.1/"], private_networks=["10.0.0.0/8"]),
    ),
    "URLs without a tool that reaches them": (
        data(tool_registry={"allowed": ["read", "search"]}),
        data(tool_registry={"allowed": ["read", "search"]}, url_allowlist=TWO),
    ),
    "mounts without a tool that reads": (
        data(tool_registry={"allowed": ["summarize"]}),
        data(tool_registry={"allowed": ["summarize"]}, sandbox={"mounts": {"n": "write"}}),
    ),
    "writing without a tool that writes": (
        data(tool_registry={"allowed": ["read"]}),
        data(
            tool_registry={"allowed": ["read"]}, sandbox={"mounts": {"corpus": "write", "sandbox": "write"}}
        ),
    ),
    "a tool whose URL is never allowed": (
        data(tool_registry={"allowed": ["read"]}, url_allowlist=[]),
        data(tool_registry={"allowed": ["read", "fetch"]}, url_allowlist=[]),
    ),
    "a tool without a mount to write to": (
        data(tool_registry={"allowed": ["read"]}, sandbox={"mounts": {"corpus": "read", "sandbox": "read"}}),
        data(
            tool_registry={"allowed": ["read", "write"]},
            sandbox={"mounts": {"corpus": "read", "sandbox": "read"}},
        ),
    ),
    "anything without a budget": (
        data(loop_budget=None),
        data(
            loop_budget=None, url_allowlist=TWO, tool_registry={"allowed": ["fetch"]}, private_networks=NETS
        ),
    ),
    "anything without a cycle rule": (
        data(cycle_detection=None),
        data(cycle_detection=None, url_allowlist=TWO, arg_schema_enforcement="shape"),
    ),
    "anything without a budget for tokens": (
        {**data(), "loop_budget": {"max_iterations": 9, "max_tool_calls": 9, "max_result_bytes": 9}},
        {
            **data(url_allowlist=TWO),
            "loop_budget": {"max_iterations": 5, "max_tool_calls": 7, "max_result_bytes": 8},
        },
    ),
    "repeats beyond the calls there are": (
        data(loop_budget={"max_tool_calls": 2}),
        data(loop_budget={"max_tool_calls": 2}, cycle_detection={"max_repeats": 9}),
    ),
    "shape without a tool that has limits": (
        data(tool_registry={"allowed": ["fetch"]}),
        data(tool_registry={"allowed": ["fetch"]}, arg_schema_enforcement="shape"),
    ),
    "approval of what nobody can call": (
        data(url_allowlist=[], approval={"required_for": ["fetch"]}),
        data(url_allowlist=[], approval={"required_for": []}),
    ),
    "how long a person has where none is asked": (data(), data(approval={"timeout_s": 9})),
    "waits where nothing is tried twice": (
        data(retry={"max_retries": 0}),
        data(retry=None),
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_equal_policies_are_called_equal(name: str) -> None:
    one, other = SAME[name]
    for pair in ((one, other), (other, one), (one, one)):
        comparison = compare(*pair)
        assert comparison.equal, comparison.to_dict()


def test_overlays_against_one_file(tmp_path: Path) -> None:
    overlay = tmp_path / "more.yaml"
    overlay.write_text("url_allowlist: [https://x.test/]\nloop_budget: {max_iterations: 3}\n")
    merged = Policy.load(ROOT / "policy/v1.yaml", [overlay])
    one = Policy.from_dict(data(url_allowlist=["https://x.test/"], loop_budget={"max_iterations": 3}))
    assert compare_policies(merged, one, TOOLS).equal


def test_a_name_that_no_tool_answers_to_opens_nothing() -> None:
    assert compare(data(), data(tool_registry={"allowed": [*SHIPPED, "shell"]})).equal


def test_a_budget_where_there_was_none_is_what_opens_everything() -> None:
    """The entries that were there before are not told: they are the same in both."""
    assert {change.rule for change in compare(data(loop_budget=None), data()).changes} == {"loop_budget"}
