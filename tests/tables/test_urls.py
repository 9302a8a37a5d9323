"""The table of URLs: decided by the gate when proposed, and again as the target of a redirect."""

from __future__ import annotations

import pytest

from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.models.types import read_call
from tachograph.runtime.policy.gate import ALLOW, DENY, Counters, Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.loader import collect
from tests.tables import urls
from tests.tables.table import rows

DATA = {
    "schema": "policy/v1",
    "tool_registry": {"allowed": ["fetch"]},
    "url_allowlist": urls.ENTRIES,
    "loop_budget": {"max_tool_calls": 1, "max_result_bytes": 1},
    "cycle_detection": {"max_repeats": 1},
}
GATE = Gate(Policy.from_dict(DATA), collect(["fetch"]))


def decided(url: str) -> set[tuple[str, str]]:
    """What the gate says of a URL, proposed and met as a redirect."""
    call = read_call("tc_1_0", "fetch", {"url": url}, Redactor([]))
    found = GATE.decide(call, Counters())
    hop = GATE.decide_late({"rule": "url_allowlist", "target": url, "hop": 1})
    return {(found.decision, found.rule_id), (hop.decision, hop.rule_id)}


def reached(address: str, gate: Gate = GATE) -> str:
    check = {"rule": "url_allowlist", "target": f"https://{urls.HOST}/", "hop": 0, "address": address}
    found = gate.decide_late(check)
    assert found.rule_id == "url_allowlist"
    return found.decision


@pytest.mark.parametrize("name", urls.DISGUISES)
def test_a_disguise_is_denied(name: str) -> None:
    assert [u for u in rows(urls.DISGUISES[name]()) if decided(u) != {(DENY, "url_allowlist")}] == []


@pytest.mark.parametrize("name", urls.PLAIN)
def test_a_plain_form_is_allowed(name: str) -> None:
    assert [u for u in rows(urls.PLAIN[name]()) if decided(u) != {(ALLOW, "url_allowlist")}] == []


@pytest.mark.parametrize("name", urls.CLOSED)
def test_no_allowed_host_leads_to_a_closed_address(name: str) -> None:
    assert [text for text in rows(urls.CLOSED[name]()) if reached(text) != DENY] == []


def test_public_addresses_are_reached() -> None:
    assert [text for text in rows(urls.public_addresses()) if reached(text) != ALLOW] == []


def test_a_named_network_opens_itself_and_nothing_beside() -> None:
    """Each special address is reached once its own block of 256 is named, and no other special one is."""
    every = [text for text in rows(urls.CLOSED["special addresses"]()) if "." in text]
    for text in every[::5]:
        block = text.rpartition(".")[0]
        gate = Gate(Policy.from_dict({**DATA, "private_networks": [f"{block}.0/24"]}), GATE.tools)
        opened = {other for other in every if reached(other, gate) == ALLOW}
        assert opened == {other for other in every if other.rpartition(".")[0] == block}
