"""Methods of URL entries in the comparison of policies, in its suggestions and in the changes of a coverage."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.fail.errors import PolicyError
from tachograph.review.compare.policy_compare import TIGHTENING, WIDENING, Comparison, compare_policies
from tachograph.review.testing.merge import equivalent
from tachograph.runtime.policy.gate import ALLOW, Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.resources.http_methods import METHODS
from tests.review.compare.test_policy_compare import data, made

URL = {"type": "string", "x-resource": "url"}
TOOLS = {tool.name: tool for tool in (made("post", "external", ("url",), url=URL), made("crawl", "network"))}
REGISTRY = {"tool_registry": {"allowed": ["post", "crawl"]}}
API = "https://api.test/v1/"


def policy(*entries: Any) -> Policy:
    return Policy.from_dict(data(**REGISTRY, url_allowlist=list(entries)))


def compare(old: list[Any], new: list[Any]) -> Comparison:
    return compare_policies(policy(*old), policy(*new), TOOLS)


def told(old: list[Any], new: list[Any]) -> list[tuple[str, str]]:
    found = compare(old, new)
    assert found.undecided == ()
    return [(change.kind, change.description) for change in found.changes]


def of(*methods: str, url: str = API) -> dict[str, Any]:
    return {"url": url, "methods": list(methods)}


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ([API], [of("GET", "HEAD", "POST")], [(WIDENING, f"post may send POST to {API}")]),
        ([of("GET", "POST")], [API], [(WIDENING, f"crawl, post may send HEAD to {API}"),
                                      (TIGHTENING, f"post may no longer send POST to {API}")]),
        ([], [of("POST", "PUT")], [(WIDENING, f"post may reach {API} with POST, PUT")]),
        ([], [of("GET", "POST")], [(WIDENING, f"crawl, post may reach {API} with GET, POST")]),
        (["https://api.test"], ["https://api.test", of("DELETE")], [(WIDENING, f"post may send DELETE to {API}")]),
        ([of("POST", "GET")], [of("GET", "POST")], []),
        ([of("HEAD", "GET")], [API], []),
    ],
)  # fmt: skip
def test_methods_that_an_entry_gains_or_loses(
    old: list[Any], new: list[Any], changes: list[tuple[str, str]]
) -> None:
    found = told(old, new)
    assert [
        (kind, ", ".join(sorted(words.split(" may")[0].split(", "))), words.split(" may")[1])
        for kind, words in found
    ] == [(kind, words.split(" may")[0], words.split(" may")[1]) for kind, words in changes]


ENTRIES = st.lists(
    st.tuples(
        st.sampled_from(["https://api.test/", API, f"{API}a", "https://b.test/"]),
        st.sampled_from([None, ("GET",), ("POST",), ("HEAD", "PUT"), ("GET", "HEAD", "POST")]),
    ).map(lambda pair: pair[0] if pair[1] is None else of(*pair[1], url=pair[0])),
    unique_by=repr,
    max_size=3,
)


def reach(gate: Gate) -> set[tuple[str, str]]:
    """Return what a policy allows of all URLs and methods here, beside which URLs a call may name."""
    urls = [
        "https://api.test/",
        "https://api.test/x",
        API,
        f"{API}x",
        f"{API}a",
        f"{API}a/b",
        "https://b.test/",
    ]
    out = set()
    for url in urls:
        for method in METHODS:
            check = {"rule": "url_allowlist", "target": url, "hop": 0, "method": method}
            if gate.decide_late(check).decision == ALLOW:
                out.add((url, method))
    return out


@settings(max_examples=150, deadline=None)
@given(ENTRIES, ENTRIES)
def test_the_comparison_of_methods_is_that_of_trying_them_all(old: list[Any], new: list[Any]) -> None:
    try:
        before, after = policy(*old), policy(*new)
    except PolicyError:
        return
    found = compare_policies(before, after, TOOLS)
    one, other = reach(Gate(before, TOOLS)), reach(Gate(after, TOOLS))
    kinds = {change.kind for change in found.changes}
    assert (WIDENING in kinds) == bool(other - one) and (TIGHTENING in kinds) == bool(one - other)
    assert equivalent(before, after) <= (one == other) and found.undecided == ()
