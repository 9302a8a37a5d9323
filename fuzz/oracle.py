"""What must hold of the gate's answers whatever it is asked, and the gates that are asked.

Tests and fuzz targets share this. `need` raises `Finding` where it does not hold.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from jsonschema import Draft202012Validator

from tachograph.fail.catalog import RULES
from tachograph.runtime.core.effects import Call
from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.formats.canonical_json import encode
from tachograph.runtime.models.types import read_call
from tachograph.runtime.policy.gate import ALLOW, DENY, ESCALATE, Counters, Decision, Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.resources.url import DEFAULT_PORTS, Target
from tachograph.runtime.tools.contract import SHIPPED
from tachograph.runtime.tools.loader import load_named

ROOT = Path(__file__).resolve().parent.parent
TOOLS = {name: load_named(name, ROOT / "tools") for name in SHIPPED}
# where the shipped policy lets a call go
HOSTS = {("https", "corpus.test", 443)}
MOUNTS = {"corpus": "read", "sandbox": "write"}
# the sections of a policy in which the rule behind a decision may stand; a refused argument names its tool's schema
SECTIONS = {
    "tool_registry": {"tool_registry"},
    "url_allowlist": {"url_allowlist", "private_networks"},
    "sandbox_path": {"sandbox"},
    "cycle_detection": {"cycle_detection"},
    "loop_budget": {"loop_budget"},
    "approval": {"approval"},
}
NO_SECRETS = Redactor(())


class Finding(AssertionError):
    """Something that must hold does not."""


def need(holds: object, words: str) -> None:
    """Raise Finding with these words unless it holds."""
    if not holds:
        raise Finding(words)


def gate(*overlays: str) -> Gate:
    """The shipped policy over the shipped tools, with overlays of the project."""
    files = [ROOT / "policy" / "overlays" / f"{name}.yaml" for name in overlays]
    return Gate(Policy.load(ROOT / "policy" / "v1.yaml", files, root=ROOT), TOOLS)


def sound(decision: object, *, total: bool = True) -> Decision:
    """A decision that names a rule and its place, and that a record can hold.

    With `total` the gate must not have failed inside, and its reason is one plain line.
    """
    if not isinstance(decision, Decision):
        raise Finding(f"no Decision but {type(decision).__name__}")
    need(decision.decision in (ALLOW, DENY, ESCALATE), f"the decision {decision.decision!r}")
    need(decision.rule_id in RULES, f"the rule {decision.rule_id!r}")
    if total:
        need(decision.reason.isascii() and decision.reason.isprintable(), f"a reason {decision.reason!r}")
        need(len(decision.reason) < 1000, f"a reason of {len(decision.reason)} characters")
    if decision.rule_id == "gate_error":
        need(decision.decision == DENY, "a failure of the gate that allows")
        need(not total, f"the gate failed: {decision.reason}")
    document, mark, pointer = decision.at.partition("#")
    need(document and mark and pointer[:1] in ("", "/"), f"no document and pointer: {decision.at!r}")
    section = pointer.split("/")[1] if pointer else ""
    expected = SECTIONS.get(decision.rule_id)
    need(expected is None or section in expected, f"{decision.rule_id} rests on {decision.at}")
    encode(decision.to_dict())
    return decision


def read(name: str, arguments: object) -> Call:
    """A call as the loop reads it from a model's reply."""
    return read_call("tc_1_0", name, arguments, NO_SECRETS)


def turned(value: Any) -> Any:
    """The same data with the members of every object in the opposite order."""
    if isinstance(value, dict):
        return {key: turned(value[key]) for key in reversed(value)}
    return [turned(item) for item in value] if isinstance(value, list) else value


def judged(asked: Gate, call: Call, counters: Counters) -> Decision:
    """The decision on a call, asked twice and with its arguments turned round, held to what it means."""
    before = (counters.iterations, counters.tokens, counters.tool_calls, counters.result_bytes)
    tables = (dict(counters.repeats), dict(counters.results))
    found = sound(asked.decide(call, counters))
    need(asked.decide(call, counters) == found, "asked again, another decision")
    if call.arguments is not None:
        text = json.dumps(turned(call.arguments.value()))
        need(asked.decide(read(call.name, text), counters) == found, "another order, another decision")
    after = (counters.iterations, counters.tokens, counters.tool_calls, counters.result_bytes)
    need(after == before and tables == (counters.repeats, counters.results), "deciding moved the counters")
    if found.decision != DENY:
        within(call)
    return found


def within(call: Call) -> None:
    """A call that the shipped policy lets through: whatever it names lies where it may go."""
    need(call.arguments is not None, "a call without arguments was let through")
    tool, arguments = TOOLS[call.name], call.arguments.value() if call.arguments else {}
    need(Draft202012Validator(tool.input_schema).is_valid(arguments), "arguments that break the schema")
    for resource in tool.resources:
        for _, text in resource.find(arguments):
            if resource.kind == "url":
                need(reached(text) in HOSTS, f"{text!r} goes to {reached(text)}")
            else:
                need(
                    mode_of(text) in (("write",) if resource.kind == "path:write" else ("read", "write")),
                    text,
                )


def reached(text: str) -> tuple[str, str, int]:
    """Scheme, host and port that urllib and http.client go to. Finding where they differ."""
    split = urlsplit(text)
    need(split.hostname is not None and split.username is None, f"urllib reads no plain host in {text!r}")
    plain = http.client.HTTPConnection(split.netloc)
    default = DEFAULT_PORTS[split.scheme]
    port = split.port or default
    given = plain.port if split.port is not None else default
    need((plain.host.lower(), given) == (split.hostname, port), f"http.client and urllib differ on {text!r}")
    return split.scheme, str(split.hostname), port


def same_place(text: str, target: Target) -> SplitResult:
    """A parsed URL goes where the standard library would go, with that path and query."""
    found = reached(text)
    need(found == (target.scheme, target.host, target.port), f"urllib goes to {found}, not {target}")
    split = urlsplit(text)
    need((split.path or "/") == target.path, f"urllib asks for {split.path!r}, not {target.path!r}")
    need(split.query == (target.query or ""), f"urllib asks {split.query!r}, not {target.query!r}")
    return split


def mode_of(text: str) -> str | None:
    """The mode of the mount that a path leads into, as the file system would read it."""
    plain = posixpath.normpath(text)
    need(plain == text and not posixpath.isabs(text), f"{text!r} is read as {plain!r}")
    mount, _, rest = text.partition("/")
    need(rest and ".." not in text.split("/"), f"{text!r} leaves its mount")
    return MOUNTS.get(mount)


def well_shaped(check: Mapping[str, Any]) -> bool:
    """Whether a late check has one of the shapes that `Gate.decide_late` knows."""
    rule, keys = check.get("rule"), set(check) - {"rule"}
    if rule == "url_allowlist":
        texts = {"target", "address"} & keys
        known = "target" in keys and keys <= {"target", "hop", "address"} and type(check.get("hop", 0)) is int
    else:
        texts = {"path", "found"} & keys
        known = rule == "sandbox_path" and {"path", "access"} <= keys <= {"path", "access", "found"}
        known = known and check["access"] in ("read", "write")
        # the kind of what stands there is a word of ours
        known = known and re.fullmatch(r"[a-z ]+", str(check.get("found", "link"))) is not None
    return known and all(isinstance(check[key], str) for key in texts)


def judged_late(asked: Gate, check: Mapping[str, Any]) -> Decision:
    """The decision on facts met while a tool ran, held to what it means."""
    found = sound(asked.decide_late(check), total=well_shaped(check))
    need(asked.decide_late(check) == found, "asked again, another decision")
    need(found.rule_id in ("gate_error", check.get("rule")), f"{found.rule_id} decided on {check!r}")
    if found.decision == DENY:
        return found
    need(found.decision == ALLOW, "a person is asked about what a tool met")
    if check["rule"] == "url_allowlist":
        need(reached(check["target"]) in HOSTS, f"a hop to {check['target']!r}")
        if "address" in check:
            address = ipaddress.ip_address(check["address"])
            need(address.is_global and not address.is_multicast, f"a connection to {address}")
    else:
        need("found" not in check, "something on the way that is no plain file")
        need(check["access"] in ("read", "write"), f"the access {check['access']!r}")
        modes = ("write",) if check["access"] == "write" else ("read", "write")
        need(mode_of(check["path"]) in modes, f"{check['access']} of {check['path']!r}")
    return found
