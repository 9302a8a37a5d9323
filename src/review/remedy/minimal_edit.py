"""The minimal edit of a policy that allows what it refused.

Minimal means: each refusal of the gate is answered by the one change that allows least besides (the exact URL as an
entry, reading before writing, the lowest sufficient limit, one address), and no change can be left out. Two exact
entries allow less than one entry for the folder they share, so they are two changes.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ...fail.errors import PolicyError
from ...runtime.formats import json_pointer
from ...runtime.policy.gate import ALLOW, ESCALATE, Decision, Gate
from ...runtime.policy.policy import Policy
from ...runtime.resources.http_methods import METHODS, SAFE_METHODS, UrlEntry, methods_of, url_text
from ...runtime.resources.url import Allowlist, Malformed, Target, parse_entry, parse_url
from ...runtime.tools.contract import Tool
from ..queries.address_ranges import is_address
from ..queries.recorded_queries import GateQuestion
from .edits import ADD, REMOVE, REPLACE, Edit, apply, edit

MAX_EDITS: Final = 32  # a call that takes more needs another policy, not an edit
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_LONGEST_ENTRY: Final = 2048
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")  # NAT64: an IPv4 address inside


@dataclass(frozen=True)
class MinimalEdit:
    """The edits that allow what was refused, or why no edit of the policy does.

    Attributes:
        edits: The edits; none if the policy allows it already.
        edited: The policy with the edits made.
        why_not: Why no edit helps, else None.
        remark: What a run needs besides, else None.
        plan: What the edits were made from.
    """

    edits: tuple[Edit, ...] = ()
    edited: Policy | None = None
    why_not: str | None = None
    remark: str | None = None
    plan: EditPlan | None = None


class _NoEditHelps(Exception):
    """No edit of the policy answers a refusal."""


@dataclass
class EditPlan:
    """What a policy is to contain in addition; apart from its edits, since a later entry may cover an earlier one.

    Attributes:
        urls: Entries of `url_allowlist` that name no methods.
        methods: Methods that entries of `url_allowlist` are to allow, by URL.
        tools: Names for `tool_registry.allowed`.
        networks: Entries of `private_networks`.
        tools_to_undeny: Names to remove from `tool_registry.denied`.
        tools_to_unapprove: Names to remove from `approval.required_for`.
        scalars: Values by JSON Pointer: limits, mounts, `arg_schema_enforcement`.
    """

    urls: list[str] = field(default_factory=list)
    methods: dict[str, list[str]] = field(default_factory=dict)
    tools: list[str] = field(default_factory=list)
    networks: list[str] = field(default_factory=list)
    tools_to_undeny: list[str] = field(default_factory=list)
    tools_to_unapprove: list[str] = field(default_factory=list)
    scalars: dict[str, Any] = field(default_factory=dict)

    def merge(self, other: EditPlan) -> None:
        """Add what another plan contains: of two limits the higher, and writing before reading."""
        for name in ("urls", "tools", "networks", "tools_to_undeny", "tools_to_unapprove"):
            held = getattr(self, name)
            held += [item for item in getattr(other, name) if item not in held]
        for url, methods in other.methods.items():
            known_methods = self.methods.setdefault(url, [])
            known_methods += [method for method in methods if method not in known_methods]
        for pointer, value in other.scalars.items():
            known = self.scalars.get(pointer)
            if known is None or (type(value) is int and value > known) or value == "write":
                self.scalars[pointer] = value

    def edits(self, policy: Policy) -> list[Edit]:
        """Return the plan as edits of a policy, in the order of its sections."""
        edits = [
            edit(policy, f"/tool_registry/denied/{policy.denied[n]}", REMOVE) for n in self.tools_to_undeny
        ]
        edits += [edit(policy, "/tool_registry/allowed/-", ADD, name) for name in self.tools]
        edits += _url_edits(policy, url_entries(self))
        edits += [edit(policy, "/private_networks/-", ADD, network) for network in self.networks]
        for pointer, value in self.scalars.items():
            edits.append(edit(policy, pointer, REPLACE if _contains(policy, pointer) else ADD, value))
        approvals = policy.approval_for
        edits += [
            edit(policy, f"/approval/required_for/{approvals[name]}", REMOVE)
            for name in self.tools_to_unapprove
        ]
        return edits


def _contains(policy: Policy, pointer: str) -> bool:
    try:
        json_pointer.get(policy.data, pointer)
    except (LookupError, TypeError, ValueError):  # a part above it is missing, or holds no entries
        return False
    return True


def find_minimal_edit(
    policy: Policy, tools: Mapping[str, Tool], question: GateQuestion, *, allow_escalation: bool = False
) -> MinimalEdit:
    """Return the minimal edits under which a gate allows what is asked.

    Args:
        policy: The policy that may refuse it.
        tools: The tools of the run; an edit allows no other.
        question: What the gate is asked.
        allow_escalation: Whether asking a person counts as allowed.
    """
    plan = EditPlan()
    edited = policy
    decision: Decision | None = None
    passes = (ALLOW, ESCALATE) if allow_escalation else (ALLOW,)
    try:
        for _ in range(MAX_EDITS + 1):
            decision = question.put(Gate(edited, tools))
            if decision is None or decision.decision in passes:
                return MinimalEdit(tuple(plan.edits(policy)), edited, remark=_remark(policy, plan), plan=plan)
            _plan_for(decision, question, edited, tools, plan)
            edited = apply(policy, plan.edits(policy))
    except _NoEditHelps as reason:
        return MinimalEdit(why_not=str(reason), plan=plan)
    except PolicyError as error:
        why_not = f"no policy may be so: {error.message}"
        return MinimalEdit(why_not=why_not)
    return MinimalEdit(why_not=f"it takes more than {MAX_EDITS} edits")


def _remark(policy: Policy, plan: EditPlan) -> str | None:
    """Return what a run under the edited policy needs besides, which the gate does not check."""
    for pointer, access in plan.scalars.items():
        name = pointer.removeprefix("/sandbox/mounts/")
        if name != pointer and access == "read" and name not in policy.mounts:
            return f"mount {name} is part of a run only where the run binds a folder to it"
    for entry in [*plan.urls, *plan.methods]:
        host = parse_entry(entry).host
        if is_address(host) and not policy.networks.allows(host):
            return f"a run takes an entry for {host} only where private_networks holds that address"
    return None


# ---- one refusal, one addition to the plan ------------------------------------------------------------


def _plan_for(
    decision: Decision, question: GateQuestion, policy: Policy, tools: Mapping[str, Tool], plan: EditPlan
) -> None:
    """Add to the plan what a refusal of `policy` calls for. Raises _NoEditHelps."""
    facts = decision.facts
    if decision.rule_id == "tool_registry":
        _plan_registry(question, policy, tools, plan)
    elif decision.rule_id in ("url_allowlist", "sandbox_path") and "tool" in facts:
        where = decision.at.rpartition("#/")[2].replace("/", ".")
        raise _NoEditHelps(f"{where} refuses it: what a single tool may reach is for a person")
    elif decision.rule_id == "url_allowlist":
        _plan_url(facts, question, policy, plan)
    elif decision.rule_id == "sandbox_path":
        _plan_mount(facts, policy, plan)
    elif decision.rule_id == "arg_schema":
        _plan_schema(decision, question, policy, tools, plan)
    elif decision.rule_id == "cycle_detection":
        _plan_limit("/cycle_detection/max_repeats", facts["used"] + 1, plan)
    elif decision.rule_id == "loop_budget":
        # a result has to fit, everything else needs room for one more
        more = 0 if question.size is not None else 1
        _plan_limit(f"/loop_budget/{facts['budget']}", facts["used"] + more, plan)
    elif decision.rule_id == "approval" and question.call is not None:
        if question.call.name not in policy.approval_for:
            where = f"tools.{question.call.name}.ask_if"
            raise _NoEditHelps(f"{where} asks a person: whether it still does is for a person")
        plan.tools_to_unapprove.append(question.call.name)
    elif decision.rule_id == "arguments":
        name = question.call.name if question.call is not None else ""
        where = f"tools.{name}.{'ask_if' if f'/tools/{name}/ask_if/' in decision.at else 'arguments'}"
        raise _NoEditHelps(
            f"{where} refuses it: whether the condition or its list is changed is for a person"
        )
    elif decision.rule_id == "principal":
        raise _NoEditHelps("principals refuses it: on whose behalf a tool may be called is for a person")
    elif decision.rule_id == "time_window":
        where = f"tools.{question.call.name if question.call is not None else ''}.between"
        raise _NoEditHelps(f"{where} refuses it: when the tool may be called is for a person")
    elif decision.rule_id == "tool_limits":
        where = f"tools.{question.call.name if question.call is not None else ''}.limits"
        raise _NoEditHelps(f"{where} refuses it: how often the tool may be called is for a person")
    elif decision.rule_id == "redact":
        raise _NoEditHelps("the call holds a placeholder: whether redact.reveal_to names it is for a person")
    else:
        raise _NoEditHelps("the gate itself failed, which no policy fixes")


def _plan_limit(pointer: str, value: int, plan: EditPlan) -> None:
    if plan.scalars.get(pointer) == value:
        raise _NoEditHelps(f"no limit of {pointer[1:].replace('/', '.')} is enough")
    plan.scalars[pointer] = value


def _plan_registry(question: GateQuestion, policy: Policy, tools: Mapping[str, Tool], plan: EditPlan) -> None:
    name = question.call.name if question.call is not None else None
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _NoEditHelps("no policy can hold that name of a tool")
    if name not in tools:
        raise _NoEditHelps("the run has no such tool, and a policy brings none")
    if name in policy.denied:
        plan.tools_to_undeny.append(name)
    if name not in policy.allowed:
        plan.tools.append(name)


def _plan_url(facts: Mapping[str, Any], question: GateQuestion, policy: Policy, plan: EditPlan) -> None:
    if "malformed" in facts:
        raise _NoEditHelps("no policy accepts such a URL: what two programs may read differently is refused")
    if "header" in facts:
        raise _NoEditHelps("the tool sets a header that the policy adds: let the tool leave it out")
    target = parse_url(_resource(facts, question, "target"))
    check = question.check or {}
    address = check.get("address")
    method = check.get("method", "GET") if question.check is not None else None
    if policy.allowlist.match(target, method) is None:
        if method in (None, "GET") and policy.allowlist.match(target) is None:
            plan.urls.append(_entry(target))
        else:
            plan.methods.setdefault(_entry(target), []).append(str(method))
    elif address is not None:
        plan.networks.append(_network(str(address), policy, plan))


def _resource(facts: Mapping[str, Any], question: GateQuestion, key: str) -> str:
    """Return the URL or path that was refused, from the late fact or the call's arguments."""
    if question.check is not None:
        return str(question.check[key])
    assert question.call is not None and question.call.arguments is not None
    return str(json_pointer.get(question.call.arguments.value(), facts["pointer"]))


def _entry(target: Target) -> str:
    """Return the narrowest entry that allows a target: its path if an entry can name it, else a folder above it."""
    path = target.path
    while True:
        text = f"{target.origin}{path}"
        if len(text) <= _LONGEST_ENTRY and _matches(text, target):
            return text
        if path == "/":
            raise _NoEditHelps("no entry of a URL list can name such a URL")
        # below a folder: first with the slash, which covers less
        path = path[:-1] if path.endswith("/") else path[: path.rindex("/") + 1]


def _matches(entry: str, target: Target) -> bool:
    try:
        return Allowlist([entry]).match(target) is not None
    except Malformed:
        return False


def _network(address: str, policy: Policy, plan: EditPlan) -> str:
    """Return the network of one address, or of the IPv4 address embedded in it."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        raise _NoEditHelps("the address is not a plain one, and no policy allows that") from None
    embedded = [parsed]
    if isinstance(parsed, ipaddress.IPv6Address) and (parsed in _TRANSLATED or parsed.ipv4_mapped):
        embedded = [ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)]
    network = f"{embedded[0]}/{embedded[0].max_prefixlen}"
    if network in plan.networks or "%" in address:
        raise _NoEditHelps("no network of a policy opens such an address")
    return network


def _plan_mount(facts: Mapping[str, Any], policy: Policy, plan: EditPlan) -> None:
    if "malformed" in facts:
        raise _NoEditHelps("no policy accepts such a path: what two programs may read differently is refused")
    if "found" in facts:
        if facts["found"] == "unbound mount":
            raise _NoEditHelps("the run binds no folder to that mount, which a policy does not do")
        raise _NoEditHelps(f"the sandbox follows no {facts['found']}, whatever a policy says")
    plan.scalars[f"/sandbox/mounts/{facts['mount']}"] = facts["access"]


def _plan_schema(
    decision: Decision, question: GateQuestion, policy: Policy, tools: Mapping[str, Tool], plan: EditPlan
) -> None:
    call = question.call
    assert call is not None
    arguments = call.arguments.value() if call.arguments is not None else None
    fits = isinstance(arguments, dict) and call.name in tools
    if not (policy.strict_arguments and fits and tools[call.name].shape_validator.accepts(arguments)):
        pointer, keyword = decision.facts["pointer"] or "/", decision.facts["keyword"]
        raise _NoEditHelps(f"the tool's schema decides, not the policy ({pointer} {keyword})")
    plan.scalars["/arg_schema_enforcement"] = "shape"


# ---- URL entries ------------------------------------------------------------------------------------------------


def _url_edits(policy: Policy, entries: Sequence[UrlEntry]) -> list[Edit]:
    """Return the edits that add entries; one that a new entry covers is replaced, as a policy may not contain both."""
    held = list(policy.data.get("url_allowlist", ()))
    edits: list[Edit] = []
    for entry in entries:
        url, methods = url_text(entry), set(methods_of(entry))
        twin = next(
            (i for i, item in enumerate(held) if parse_entry(url_text(item)) == parse_entry(url)), None
        )
        if twin is not None:  # one entry for a URL, with all of its methods
            methods |= set(methods_of(held[twin]))
            entry = with_methods(url, methods)
        covered = [
            i
            for i, item in enumerate(held)
            if _covers(url, url_text(item)) and set(methods_of(item)) <= methods
        ]
        if not covered:
            edits.append(edit(policy, "/url_allowlist/-", ADD, entry))
            continue
        edits.append(edit(policy, f"/url_allowlist/{covered[0]}", REPLACE, entry))
        edits += [edit(policy, f"/url_allowlist/{i}", REMOVE) for i in covered[1:]]
    return edits


def with_methods(url: str, methods: Collection[str]) -> UrlEntry:
    """Return an entry for a URL with some methods, in the shortest form."""
    if set(methods) == set(SAFE_METHODS):
        return url
    return {"url": url, "methods": [method for method in METHODS if method in methods]}


def url_entries(plan: EditPlan) -> list[UrlEntry]:
    """Return the entries that a plan adds: URLs that no other of them covers, and those of methods besides."""
    plain = uncovered(plan.urls)
    out: list[UrlEntry] = []
    for url in dict.fromkeys([*plain, *plan.methods]):
        more = SAFE_METHODS if url in plain else ()
        out.append(with_methods(url, {*more, *plan.methods.get(url, ())}))
    return out


def uncovered(urls: Iterable[str]) -> list[str]:
    """Return the entries that no other of them covers."""
    entries = {url: parse_entry(url) for url in urls}
    held = {(entry.scheme, entry.host, entry.port, entry.prefix) for entry in entries.values()}
    return [
        url
        for url, entry in entries.items()
        if not any((entry.scheme, entry.host, entry.port, wider) in held for wider in _wider(entry.prefix))
    ]


def _wider(prefix: str) -> Iterator[str]:
    """Yield every prefix that covers this one."""
    places = [at for at, sign in enumerate(prefix) if sign == "/"]
    for cut in {1, *places, *(at + 1 for at in places)} - {0, len(prefix)}:
        yield prefix[:cut]


def _covers(wide: str, narrow: str) -> bool:
    """Return whether one entry allows all that another does."""
    try:
        return Allowlist([wide]).match(parse_url(_with_scheme(narrow))) is not None
    except Malformed:
        return False


def _with_scheme(entry: str) -> str:
    return entry if "://" in entry else f"https://{entry}"
