"""Entries of the URL allowlist that name methods."""

from __future__ import annotations

from typing import Any

import pytest

from tachograph.fail.errors import PolicyError
from tachograph.runtime.policy.gate import ALLOW, DENY, Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.resources.http_methods import METHODS

API = "https://api.test/v1/"


def policy(*entries: Any) -> Policy:
    return Policy.from_dict({"schema": "policy/v1", "url_allowlist": list(entries)})


def allowed(entries: list[Any], path: str) -> set[str]:
    """Return the methods that a policy with these entries allows for a path of the API's host."""
    gate = Gate(policy(*entries), {})
    return {
        method
        for method in METHODS
        if gate.decide_late(
            {"rule": "url_allowlist", "target": f"https://api.test{path}", "hop": 0, "method": method}
        ).decision
        == ALLOW
    }


def test_an_entry_allows_the_methods_that_it_names_else_get_and_head() -> None:
    assert allowed([API], "/v1/x") == {"GET", "HEAD"}
    assert allowed([{"url": API, "methods": ["POST"]}], "/v1/x") == {"POST"}
    both = ["https://api.test", {"url": API, "methods": ["POST", "GET"]}]
    assert allowed(both, "/v1/x") == {"GET", "HEAD", "POST"}
    assert allowed(both, "/x") == {"GET", "HEAD"}
    inside = [{"url": "https://api.test", "methods": ["POST"]}, API]
    assert allowed(inside, "/v1/x") == {"GET", "HEAD", "POST"}
    assert allowed(inside, "/x") == {"POST"}


def test_a_fact_without_a_method_is_a_get() -> None:
    gate = Gate(policy({"url": API, "methods": ["POST"]}), {})
    assert gate.decide_late({"rule": "url_allowlist", "target": API, "hop": 0}).decision == DENY


@pytest.mark.parametrize(
    ("method", "decision"), [("POST", DENY), ("post", DENY), ("TRACE", DENY), ("GET", ALLOW), (None, DENY), (7, DENY)]
)  # fmt: skip
def test_a_method_that_no_entry_can_name_is_denied(method: Any, decision: str) -> None:
    check = {"rule": "url_allowlist", "target": API, "hop": 0, "method": method}
    assert Gate(policy(API), {}).decide_late(check).decision == decision


@pytest.mark.parametrize(
    ("entries", "place", "words"),
    [
        ([API, {"url": API, "methods": ["POST"]}], 1, "with other methods"),
        ([{"url": API, "methods": ["POST"]}, "https://API.test/v1/"], 1, "with other methods"),
        ([{"url": API, "methods": ["POST"]}, {"url": f"{API}x", "methods": ["POST"]}], 1, "never applies"),
        ([f"{API}x", {"url": API, "methods": ["POST", "HEAD", "GET"]}], 0, "never applies"),
        ([API, {"url": "https://api.test/v1/", "methods": ["HEAD", "GET"]}], 1, "never applies"),
        ([{"url": "ftp://x", "methods": ["GET"]}], 0, "malformed entry"),
        ([{"url": API, "methods": ["TRACE"]}], 0, "methods.0 must be one of"),
        ([{"url": API, "methods": []}], 0, "at least 1|empty|short|none"),
        ([{"url": API}], 0, "methods"),
        ([{"url": API, "methods": ["GET"], "header": "x"}], 0, "header"),
    ],
)
def test_an_entry_that_says_nothing_or_twice_is_refused(entries: list[Any], place: int, words: str) -> None:
    with pytest.raises(PolicyError, match=words) as refused:
        policy(*entries)
    assert f"#/url_allowlist/{place}" in str(refused.value)


def test_entries_that_say_something_are_taken() -> None:
    policy(API, {"url": f"{API}x", "methods": ["POST"]}, {"url": f"{API}x/y", "methods": ["POST", "PUT"]})


def test_a_rule_is_named_by_the_url_of_its_entry() -> None:
    made = policy("https://a.test", {"url": API, "methods": ["POST"]})
    gate = Gate(made, {})
    check = {"rule": "url_allowlist", "target": API, "hop": 0, "method": "POST"}
    assert gate.decide_late(check).at == "<policy>#/url_allowlist/https:~1~1api.test~1v1~1"
