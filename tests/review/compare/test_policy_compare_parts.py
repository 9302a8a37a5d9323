"""Settings that moved, witnesses that are held to what they show, addresses reckoned as the gate judges them."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from tachograph.review.compare import widenings
from tachograph.review.compare.policy_compare import TIGHTENING, WIDENING
from tachograph.review.queries.address_ranges import AddressSet
from tachograph.runtime.core.secret_kinds import KEY_KINDS
from tachograph.runtime.formats.canonical_json import encode
from tachograph.runtime.resources.networks import Networks
from tests.review.compare.test_policy_compare import Data, compare, data

# ---- settings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sections", "name", "before", "after"), [
    ({"retry": {"max_retries": 5}}, "retry.max_retries", 3, 5),
    ({"retry": {"backoff_cap_ms": 5000}}, "retry.backoff_cap_ms", 2000, 5000),
    ({"on_deny": "inform"}, "on_deny", "terminate", "inform"),
    ({"on_failure": {"default": "inform"}}, "on_failure.default", "terminate", "inform"),
    ({"on_failure": {"tools": {"write": "inform"}}}, "on_failure.tools.write", "terminate", "inform"),
    ({"loop_budget": {"wrap_up": True}}, "loop_budget.wrap_up", False, True),
    ({"redact": ["jwt"]}, "redact", sorted(KEY_KINDS), ["jwt"]),
])  # fmt: skip
def test_settings_that_decide_no_call_are_told_apart(
    sections: Data, name: str, before: Any, after: Any
) -> None:
    comparison = compare(data(), data(**sections))
    (setting,) = comparison.settings
    assert comparison.changes == () and not comparison.equal
    assert (setting.name, setting.before, setting.after) == (name, before, after)
    assert setting.at == "<policy>#/" + name.replace(".", "/")


def test_how_many_failures_are_told_counts_where_some_are() -> None:
    told = {"default": "inform", "tools": {"fetch": "inform"}}
    (setting,) = compare(data(on_failure="inform"), data(on_failure={**told, "max_failures": 3})).settings
    assert (setting.name, setting.before, setting.after) == ("on_failure.max_failures", 10, 3)
    assert compare(data(), data(on_failure={"max_failures": 3})).settings == ()


def test_a_secret_that_is_not_looked_for_any_more_is_said_to_enter_records() -> None:
    (setting,) = compare(data(redact=["jwt", "email"]), data(redact=["jwt"])).settings
    assert setting.note == "secrets of the kind email may enter records"


def test_who_gets_a_secret_and_what_a_pattern_looks_for_are_compared() -> None:
    redact = {"kinds": ["jwt", "email"], "patterns": {"customer": "C-[0-9]{8}"}}
    old = data(redact={**redact, "reveal_to": {"write": ["jwt"], "fetch": ["email"]}})
    new = data(redact={**redact, "reveal_to": {"write": ["jwt", "email"]}})
    (setting,) = compare(old, new).settings
    assert setting.name == "redact.reveal_to" and setting.at.endswith("#/redact/reveal_to")
    assert (setting.before, setting.after) == (["fetch: email", "write: jwt"], ["write: email", "write: jwt"])
    assert setting.note == (
        "fetch: email is no longer revealed, and a call with such a placeholder is denied; "
        "write: email is revealed: such a secret reaches that tool"
    )
    assert compare(new, data(redact={**redact, "reveal_to": {"write": ["email", "jwt"]}})).equal
    other = {**redact, "patterns": {"customer": "C-[0-9]{9}"}}
    (setting,) = compare(data(redact=redact), data(redact=other)).settings
    assert (setting.name, setting.before, setting.after) == (
        "redact.patterns.customer",
        "C-[0-9]{8}",
        "C-[0-9]{9}",
    )


def test_how_long_a_person_has_counts_where_one_is_asked() -> None:
    asked = {"required_for": ["write"]}
    (setting,) = compare(data(approval=asked), data(approval={**asked, "timeout_s": 9})).settings
    assert (setting.name, setting.before, setting.after) == ("approval.timeout_s", 300, 9)


# ---- witnesses, addresses, size ------------------------------------------------------------------------


def test_a_witness_that_shows_nothing_is_our_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widenings, "url_texts", lambda target, least=0: ["https://corpus.test/"])
    monkeypatch.setattr(widenings.Widenings, "_new_entry_of", lambda self, text: 1)
    with pytest.raises(RuntimeError, match="no witness of a change of url_allowlist"):
        compare(data(), data(url_allowlist=["https://corpus.test/", "https://x.test/"]))


CIDRS = ["10.0.0.0/9", "172.16.0.0/12", "0.0.0.0/8", "fc00::/7", "2000::/7", "::/8", "::1/128", "192.0.0.0/8"]
MET = [
    *("8.8.8.8", "10.0.0.1", "10.200.0.1", "0.1.2.3", "192.0.2.9", "192.1.1.1", "127.0.0.1", "224.0.0.1"),
    *("fc00::1", "::", "::1", "::2", "::8.8.8.8", "::10.0.0.1", "::10.200.0.1", "64:ff9b::10.0.0.1"),
    *("64:ff9b::10.200.0.1", "2002:808:808::", "2002:a00:1::1", "2002:ac8:1::1", "2001:0:808:808::f7f7:f7f7"),
    *("2001:0:a00:1::f5ff:fffe", "2001:0:808:808::f5ff:fffe", "2001:db8::1", "2606:4700::1", "4000::1"),
]


@pytest.mark.parametrize("more", range(len(CIDRS) + 1))
def test_addresses_are_reckoned_as_the_gate_judges_them(more: int) -> None:
    for cidrs in ([*CIDRS[:more]], [*CIDRS[more:]], [*CIDRS[more : more + 1]]):
        here, networks = AddressSet(cidrs), Networks(cidrs)
        for text in MET:
            assert here.allows_connection(ipaddress.ip_address(text)) == networks.allows(text), (cidrs, text)
        for other in ([], CIDRS[:2], CIDRS[3:5], ["10.0.0.0/8", "::/7"]):
            there, judged = AddressSet(other), Networks(other)
            for i in range(len(cidrs)):
                address = here.not_in(i, there)
                if address is None:
                    inside = [
                        text for text in MET if ipaddress.ip_address(text) in ipaddress.ip_network(cidrs[i])
                    ]
                    assert not [text for text in inside if networks.allows(text) and not judged.allows(text)
                                and not here_by_another(cidrs, i, text)]  # fmt: skip
                else:
                    assert networks.allows(address) and not judged.allows(address), (cidrs[i], other, address)


def here_by_another(cidrs: list[str], entry: int, text: str) -> bool:
    """Whether an address is open by the other networks of a list, as one that carries an address of theirs is."""
    address = ipaddress.ip_address(text)
    carried = isinstance(address, ipaddress.IPv6Address) and any(
        address in ipaddress.IPv6Network(form) for form in ("::/96", "2001::/32", "2002::/16", "64:ff9b::/96")
    )
    return carried and len(cidrs) > 1


@pytest.mark.parametrize(("cidr", "other", "address"), [
    ("2002::/15", [], "2002:808:808::1"),
    ("2000::/15", ["2001::/32", "2001::/16"], None),
    ("::/96", ["::/127"], "::808:808"),
])  # fmt: skip
def test_a_network_that_opens_only_a_form_which_carries_addresses(
    cidr: str, other: list[str], address: str | None
) -> None:
    assert AddressSet([cidr]).not_in(0, AddressSet(other)) == address


def test_a_record_is_plain_data() -> None:
    record = compare(data(), data(url_allowlist=[], redact=["jwt"])).to_dict()
    assert encode(record) and set(record) == {"equal", "changes", "settings", "untold"}


def test_thousands_of_entries_are_told_one_by_one() -> None:
    urls = [f"https://h{i}.test/{i}" for i in range(2000)]
    comparison = compare(data(url_allowlist=urls), data(url_allowlist=[*urls[1:], "https://new.test/"]))
    assert [change.kind for change in comparison.changes] == [WIDENING, TIGHTENING]
