"""Rules on what tools send: headers and JSON bodies of `io.request`."""

from __future__ import annotations

from typing import Any

import pytest

from tachograph import Agent, Policy, PolicyError, Stub, VirtualClock
from tachograph.review.compare.policy_compare import compare_policies
from tachograph.review.suggest.kept_rules import rules_of
from tachograph.runtime.policy.gate import Gate
from tests.review.compare.test_policy_compare import made
from tests.runtime.policy.test_argument_rules import DATA

API = "https://api.test/v1"
SAID: list[Any] = []


def rules(**parts: Any) -> Policy:
    return Policy.from_dict(
        {
            **DATA,
            "tool_registry": {"allowed": ["send"]},
            "url_allowlist": [{"url": API, "methods": ["GET", "POST"]}],
            "lists": {"places": ["here", "there"]},
            "tools": {"send": parts},
            "on_deny": "inform",
        }
    )


def refusal(policy: Policy, method: str = "POST", body: str | None = "{}", **headers: str) -> str | None:
    given = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    sent = None if body is None else body.encode()
    return Gate(policy, {}).request_rules.refusal("send", method, given, sent)


BODY = {"/amount": {"maximum": 100}, "/to/*/place": {"in": "places"}}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"amount": 100, "to": [{"place": "here"}]}', None),
        ("{}", None),
        ('{"amount": 101}', "body /amount violates maximum (100)"),
        ('{"amount": "7"}', "body /amount violates type (number)"),
        ('{"to": [{"place": "here"}, {"place": "x"}]}', "body /to/1/place violates enum (here,there)"),
        ('{"to": "here"}', "body /to violates type (array)"),
        ("[1]", "body / violates type (object)"),
        ("amount=7", "body / is no JSON: not JSON"),
        ('{"amount": 1, "amount": 101}', "body / is no JSON: duplicate key"),
        ("", "body / is no JSON: not JSON"),
        (None, "body / is missing"),
    ],
)
def test_a_body_is_held_to_its_conditions(body: str | None, said: str | None) -> None:
    assert refusal(rules(body=BODY), "POST", body) == said


def test_a_request_without_a_body_has_none_to_judge() -> None:
    assert refusal(rules(body=BODY), "GET", None) is None
    assert refusal(rules(body=BODY), "DELETE", '{"amount": 101}') == "body /amount violates maximum (100)"


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"X_Env": "test"}, None),
        ({}, None),
        ({"x_env": "live"}, "headers /x-env violates const (test)"),
        ({"X_Env": "live"}, "headers /x-env violates const (test)"),
        ({"X_Env": "test", "x_env": "test"}, "headers /x-env is given twice"),
    ],
)
def test_headers_are_judged_by_names_in_lower_case(headers: dict[str, str], said: str | None) -> None:
    assert refusal(rules(headers={"/x-env": {"const": "test"}}), **headers) == said


def test_a_rule_on_headers_alone_judges_no_body() -> None:
    assert refusal(rules(headers={"": {"required": ["x-env"]}}), body="no json", x_env="a") is None
    assert refusal(rules(headers={"": {"required": ["x-env"]}})) == "headers / violates required (x-env)"


def send(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
    SAID.append(arguments)
    io.request("POST", API, {"X-Env": "test"}, '{"amount": 101}')
    SAID.append("sent")
    return {}


@pytest.mark.parametrize(("most", "decisions"), [(100, ["allow", "deny"]), (101, ["allow", "allow"])])
def test_a_request_is_judged_before_it_is_made(most: int, decisions: list[str], tmp_path: Any) -> None:
    (tmp_path / "v1.POST").write_text("{}")
    tool = made("send", "external")
    tool = type(tool)(tool.name, "Send.", tool.input_schema, tool.output_schema, "external", False, send)
    usage = {"input_tokens": 1, "output_tokens": 1}
    turns = [
        {"calls": [{"tool": "send", "arguments": {}}], "usage": usage},
        {"answer": "done", "usage": usage},
    ]
    policy = rules(body={"/amount": {"maximum": most}})
    SAID.clear()
    agent = Agent(Stub(turns), [tool], policy, hosts={"api.test": tmp_path})
    result = agent.run("Send.", clock=VirtualClock())
    found = result.steps[0]["policy_decisions"]
    assert [entry["decision"] for entry in found] == decisions
    assert ("sent" in SAID) is (decisions[-1] == "allow")
    if decisions[-1] == "deny":
        assert found[-1]["at"] == "<policy>#/tools/send/body"
        assert found[-1]["facts"]["refused"] == "body /amount violates maximum (100)"
        assert found[-1]["reason"] == 'the request of tool "send": "body /amount violates maximum (100)"'


def test_a_fact_of_another_part_denies() -> None:
    check = {"rule": "url_allowlist", "target": API, "hop": 0, "method": "POST", "refused": "else /"}
    assert Gate(rules(body=BODY), {}).decide_late(check, "send").rule_id == "gate_error"


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"headers": {"/X-Env": {"const": "a"}}}, "/headers/~1X-Env: '/X-Env' names no header"),
        ({"headers": {"/x/y": {"const": "a"}}}, "'/x/y' names no header"),
        ({"body": {"amount": {"maximum": 1}}}, "is no JSON Pointer"),
        ({"body": {"/a": {"in": "nowhere"}}}, "there is no list 'nowhere'"),
    ],
)
def test_a_rule_that_cannot_be_read_is_refused(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError) as refused:
        rules(**parts)
    assert message in str(refused.value)


def test_a_tool_that_sends_nothing_has_no_such_rules() -> None:
    with pytest.raises(PolicyError, match=r"these conditions never apply, since .send. sends no requests"):
        Agent(Stub([{"answer": "done"}]), [made("send", "read")], rules(body=BODY))


def test_policies_that_may_let_more_through_are_not_called_equal() -> None:
    tools = {"send": made("send", "external")}

    def compared(old: Policy, new: Policy) -> tuple[bool, int]:
        found = compare_policies(old, new, tools)
        assert not found.changes
        return found.equal, len([word for word in found.undecided if "tools.send.body differs" in word])

    strict, loose = rules(body={"/a": {"maximum": 1}}), rules(body={"/a": {"maximum": 2}})
    assert compared(strict, strict) == (True, 0)
    assert compared(strict, loose) == (False, 1)
    assert compared(loose, strict) == (False, 0)


def test_a_draft_keeps_them_with_their_lists() -> None:
    assert rules_of(rules(body=BODY), ["send"]) == {
        "tools": {"send": {"body": BODY}},
        "lists": {"places": ["here", "there"]},
    }
