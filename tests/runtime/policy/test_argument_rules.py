"""Conditions of a policy on the arguments of a tool: what they deny, and which of them are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Policy, PolicyError, Tool
from tachograph.runtime.core.effects import Call
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.policy.gate import Counters, Decision, Gate
from tests.support import answer

SEND = Tool(
    "send",
    "",
    {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "amount": {"type": ["number", "string"]},
            "to": {"type": "string", "default": "everybody"},
            "note": {"type": "string", "default": "short"},
            "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        },
        "$defs": {
            "line": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"sum": {"type": "number"}, "kind": {"type": "string", "default": "other"}},
            }
        },
    },
    {"type": "object", "additionalProperties": False},
    "external",
    False,
    lambda arguments, io: {},
)
DATA: dict[str, Any] = {
    "schema": "policy/v1",
    "tool_registry": {"allowed": ["send"]},
    "lists": {"payees": ["a", "b"]},
    "loop_budget": {"max_iterations": 2, "max_tokens": 9, "max_tool_calls": 4, "max_result_bytes": 50},
    "cycle_detection": {"max_repeats": 3},
}


def policy(conditions: dict[str, Any], **sections: Any) -> Policy:
    return Policy.from_dict({**DATA, "tools": {"send": {"arguments": conditions}}, **sections})


def decide(conditions: dict[str, Any], arguments: dict[str, Any], **sections: Any) -> Decision:
    call = Call("tc_1_0", "send", freeze(arguments))
    return Gate(policy(conditions, **sections), {"send": SEND}).decide(call, Counters())


@pytest.mark.parametrize(
    ("conditions", "arguments", "denied"),
    [
        ({"/amount": {"maximum": 100}}, {"amount": 100}, None),
        ({"/amount": {"maximum": 100}}, {"amount": 101}, "/amount"),
        ({"/amount": {"maximum": 100}}, {"amount": "1000"}, "/amount"),
        ({"/amount": {"maximum": 100}}, {}, None),
        ({"/to": {"in": "payees"}}, {"to": "b"}, None),
        ({"/to": {"in": "payees"}}, {"to": "c"}, "/to"),
        ({"/to": {"in": "payees"}}, {}, ""),
        ({"/note": {"maxLength": 5}}, {}, None),
        ({"/note": {"maxLength": 4}}, {}, ""),
        ({"/lines/*/sum": {"maximum": 5}}, {"lines": [{"sum": 5}, {"sum": 6}]}, "/lines/1/sum"),
        ({"/lines/*/sum": {"maximum": 5}}, {"lines": [{"sum": 5}, {}]}, None),
        ({"/lines/*/kind": {"in": "payees"}}, {"lines": [{"kind": "a"}, {}]}, "/lines/1"),
        ({"/lines/*/kind": {"in": "payees"}}, {"lines": []}, None),
        ({"": {"required": ["amount"]}}, {}, ""),
        ({"": {"required": ["amount"]}}, {"amount": 1}, None),
        ({"/to": {"anyOf": [{"in": "payees"}, {"const": "z"}]}}, {"to": "z"}, None),
        ({"/to": {"anyOf": [{"in": "payees"}, {"const": "z"}]}}, {"to": "y"}, "/to"),
        ({"/amount": {"maximum": 9}, "/to": {"in": "payees"}}, {"amount": 9, "to": "x"}, "/to"),
    ],
)
def test_a_condition_denies_what_does_not_meet_it(
    conditions: dict[str, Any], arguments: dict[str, Any], denied: str | None
) -> None:
    """The wrong type, a default that breaks the condition and any wrong item deny; what is absent else does not."""
    found = decide(conditions, arguments)
    if denied is None:
        assert (found.decision, found.rule_id) == ("allow", "tool_registry")
    else:
        assert (found.decision, found.rule_id) == ("deny", "arguments")
        assert found.facts["pointer"] == denied


def test_the_denial_names_the_list_and_the_rule() -> None:
    found = decide({"/amount": {"maximum": 9}, "/to": {"in": "payees"}}, {"to": "evil"})
    assert found.reason == 'argument "/to" is not in the list "payees"'
    assert found.at == "<policy>#/tools/send/arguments/~1to"
    assert found.facts == {"pointer": "/to", "keyword": "in", "limit": "payees"}


def test_a_placeholder_that_the_tool_gets_resolved_is_not_judged_by_its_name() -> None:
    """The tool would get another text than the condition was held against."""
    revealed = {"redact": {"kinds": ["email"], "reveal_to": {"send": ["email"]}}}
    arguments = {"to": "<secret:email:1>"}
    assert decide({"/to": {"maxLength": 50}}, arguments, **revealed).rule_id == "arguments"
    assert decide({"/note": {"maxLength": 50}}, arguments, **revealed).rule_id != "arguments"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "list": ({"/to": {"in": "payes"}}, "/~1to/in: there is no list 'payes'; did you mean 'payees'?"),
    "nested list": (
        {"/lines": {"items": {"in": 3}}},
        "/~1lines/items/in: there is no list '3'; add it to lists",
    ),
    "pointer": ({"to": {"in": "payees"}}, "/to: 'to' is no JSON Pointer; write it like /amount"),
    "empty": (
        {"/to": {}},
        "/~1to: an empty condition judges nothing; name what the value has to meet, or remove it",
    ),
    "keyword": (
        {"/to": {"maxLen": 3}},
        "/~1to/maxLen: 'maxLen' is not a keyword of conditions; did you mean",
    ),
    "format": ({"/to": {"format": "email"}}, "/~1to/format: 'format' is not a keyword of conditions; "),
    "reference": ({"/to": {"$ref": "#/x"}}, "/~1to/$ref: '$ref' is not a keyword of conditions; "),
    "value": (
        {"/to": {"maxLength": "x"}},
        "/~1to/maxLength: 'maxLength' has a value that it cannot have; see ",
    ),
    "pattern": ({"/to": {"pattern": "(?=a)"}}, "/~1to/pattern: the pattern is not usable: "),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_condition_that_cannot_be_read_is_refused_with_its_place(name: str) -> None:
    conditions, message = WRONG[name]
    with pytest.raises(PolicyError) as caught:
        policy(conditions)
    assert str(caught.value).startswith(f"<policy>#/tools/send/arguments{message}")
    assert "\n" not in str(caught.value)


def test_rules_of_a_tool_that_is_not_allowed_are_refused() -> None:
    with pytest.raises(PolicyError, match=r"#/tools/sent: these rules never apply.*did you mean 'send'\?"):
        Policy.from_dict({**DATA, "tools": {"sent": {"arguments": {"/to": {"in": "payees"}}}}})


def test_a_pointer_to_nothing_is_refused_by_the_agent() -> None:
    """A misspelt pointer would guard nothing."""
    with pytest.raises(PolicyError, match=r"'send' takes no argument at '/amout'; did you mean '/amount'\?"):
        Agent(lambda asked: answer(), [SEND], policy({"/amout": {"maximum": 1}}))
    Agent(lambda asked: answer(), [SEND], policy({"/lines/*/sum": {"maximum": 1}}))


# ---- lists in files ----------------------------------------------------------------------------------------

FILE = """schema: policy/v1
tool_registry: {allowed: [send]}
lists:
  payees: {file: payees.yaml}
tools: {send: {arguments: {/to: {in: payees}}}}
"""


def load(folder: Path, values: str, text: str = FILE) -> Policy:
    (folder / "one.yaml").write_text(text)
    (folder / "payees.yaml").write_text(values)
    return Policy.load(folder / "one.yaml", root=folder)


def test_the_values_of_a_list_in_a_file_are_part_of_the_version(tmp_path: Path) -> None:
    made = load(tmp_path, "- a\n- b\n")
    assert made.lists == {"payees": ["a", "b"]}
    assert made.version == Policy.from_dict(made.data).version != load(tmp_path, "- a\n").version
    assert made.sources["policy list payees.yaml"] == tmp_path / "payees.yaml"


@pytest.mark.parametrize(
    ("values", "text", "message"),
    [
        ("a: b\n", FILE, "payees.yaml:1: a list of values is missing; write `- VALUE` lines"),
        ("- [", FILE, "payees.yaml:1:"),
        (
            "- a\n",
            FILE.replace("payees.yaml", "../payees.yaml"),
            "one.yaml:4:12: a file that a policy names stands beside",
        ),
        ("- a\n", FILE.replace("payees.yaml", "none.yaml"), f"{'{}'}/none.yaml: no such policy file"),
    ],
)
def test_a_file_that_holds_no_list_is_refused(tmp_path: Path, values: str, text: str, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        load(tmp_path, values, text)
    assert str(caught.value).startswith(message.replace("{}", str(tmp_path)))


def test_a_policy_in_code_gives_its_values() -> None:
    with pytest.raises(PolicyError, match="only where the policy itself is a file; give the values"):
        policy({"/to": {"in": "payees"}}, lists={"payees": {"file": "payees.yaml"}})
