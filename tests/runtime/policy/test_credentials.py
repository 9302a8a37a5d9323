"""Credentials in a policy: which requests get one, and what is refused when the policy is read."""

from __future__ import annotations

from typing import Any

import pytest

from tachograph.fail.errors import PolicyError
from tachograph.runtime.policy.gate import ALLOW, DENY, Gate
from tachograph.runtime.policy.policy import Policy
from tests.review.compare.test_policy_compare import TOOLS, compare_policies, data

ITEM = {"header": "Authorization", "from_env": "EXAMPLE_TOKEN"}
ENTRIES = [
    "https://api.test/v1/", "http://api.test/", "http://api.test:443/", "https://api.test:8443/", "https://b.test/",
    {"url": "https://api.test/v1/orders", "methods": ["POST"]},
]  # fmt: skip


def policy(credentials: Any, entries: list[Any] = ENTRIES) -> Policy:
    return Policy.from_dict({"schema": "policy/v1", "url_allowlist": entries, "credentials": credentials})


def facts(made: Policy, target: str, **check: Any) -> dict[str, Any]:
    asked = {"rule": "url_allowlist", "target": target, "hop": 0, "method": "GET", **check}
    decision = Gate(made, {}).decide_late(asked)
    assert decision.decision == ALLOW
    return dict(decision.facts)


def test_a_request_over_https_to_exactly_the_host_and_port_gets_it() -> None:
    made = policy({"api.test": ITEM})
    assert facts(made, "https://api.test/v1/x")["credential"] == "authorization"
    assert facts(made, "https://API.test:443/v1/x")["credential"] == "authorization"
    assert facts(made, "https://api.test/v1/orders", method="POST")["credential"] == "authorization"
    for other in (
        "http://api.test/v1/x",
        "http://api.test:443/v1/x",
        "https://api.test:8443/v1/x",
        "https://b.test/",
    ):
        assert "credential" not in facts(made, other)
    assert "credential" not in facts(made, "https://api.test/v1/x", hop=1)
    made = policy({"api.test:8443": ITEM})
    assert "credential" not in facts(made, "https://api.test/v1/x")
    assert facts(made, "https://api.test:8443/")["credential"] == "authorization"


def test_what_is_no_request_gets_none() -> None:
    made = policy({"api.test": ITEM})
    gate = Gate(made, {})
    decision = gate.decide_late({"rule": "url_allowlist", "target": "https://api.test/v1/x", "hop": 0})
    assert decision.decision == ALLOW and "credential" not in decision.facts


def test_a_tool_that_sets_the_same_header_is_denied() -> None:
    gate = Gate(policy({"api.test": ITEM}), {})
    check = {"rule": "url_allowlist", "target": "https://api.test/v1/x", "hop": 0, "method": "GET"}
    denied = gate.decide_late({**check, "header": "authorization"})
    assert (denied.decision, denied.at) == (DENY, "<policy>#/credentials/api.test")
    assert denied.reason == 'the policy adds the header "authorization", which the tool sets too'
    assert denied.facts["header"] == "authorization"
    assert gate.decide_late({**check, "header": "x-other"}).decision == ALLOW


@pytest.mark.parametrize(
    ("credentials", "words"),
    [
        ({"api.test/": ITEM}, "not a host"), ({"https://api.test": ITEM}, "not a host"),
        ({"api.test:443": ITEM}, "not a host"),
        ({"API.test": ITEM}, "not a host"), ({"api.test:x": ITEM}, "not a host"), ({"a@api.test": ITEM}, "not a host"),
        ({"*.test": ITEM}, "not a host"), ({"api.test?x": ITEM}, "not a host"), ({"c.test": ITEM}, "never applies"),
        ({"api.test:81": ITEM}, "never applies"), ({"api.test": {**ITEM, "header": "Host"}}, "not a header"),
        ({"api.test": {**ITEM, "header": "proxy-authorization"}}, "not a header"),
        ({"api.test": {**ITEM, "header": "a: b"}}, "header"), ({"api.test": {**ITEM, "from_env": "A B"}}, "from_env"),
        ({"api.test": {**ITEM, "scheme": "Bearer x"}}, "scheme"), ({"api.test": {**ITEM, "value": "x"}}, "value"),
        ({"api.test": {"header": "A"}}, "from_env"),
    ],
)  # fmt: skip
def test_a_credential_that_is_wrong_or_never_applies_is_refused(credentials: Any, words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        policy(credentials)


def test_a_changed_credential_is_a_setting_of_the_comparison() -> None:
    old = Policy.from_dict(data())
    new = Policy.from_dict(data(credentials={"corpus.test": {**ITEM, "scheme": "Bearer"}}))
    found = compare_policies(old, new, TOOLS)
    [setting] = found.settings
    assert (setting.name, setting.before, setting.after, found.changes) == (
        "credentials.corpus.test",
        None,
        "authorization from EXAMPLE_TOKEN with Bearer",
        (),
    )
    [back] = compare_policies(new, old, TOOLS).settings
    assert back.note == "requests to this host get no credential"
