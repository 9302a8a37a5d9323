"""The smallest edit of a policy that allows what it refused.

Smallest means: each objection of the gate is answered by the one change that opens least (the exact URL as an
entry, reading before writing, a limit just enough, one address), and no change can be left out. Two exact entries
open less than one entry for the folder they share, so they are two changes.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ...fail.errors import PolicyError
from ...runtime.formats import json_pointer
from ...runtime.policy.gate import ALLOW, ESCALATE, Decision, Gate
from ...runtime.policy.policy import Policy
from ...runtime.resources.url import Allowlist, Malformed, Target, parse_entry, parse_url
from ...runtime.tools.contract import Tool
from ..queries.recorded_queries import Question
from .edits import ADD, REMOVE, REPLACE, Edit, apply, edit

MOST: Final = 32  # edits; a call that takes more is no case for one
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_LONGEST_ENTRY: Final = 2048
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")  # NAT64: an IPv4 address inside


@dataclass(frozen=True)
class Smallest:
    """The edits that allow what was refused, or in `why_not` why no edit of the policy does.

    `edited` is the policy with them made, `wanted` what they are for; `remark` says what a run needs besides.
    """

    edits: tuple[Edit, ...] = ()
    edited: Policy | None = None
    why_not: str | None = None
    remark: str | None = None
    wanted: Wanted | None = None


class _NoEdit(Exception):
    """No edit of the policy answers an objection."""


@dataclass
class Wanted:
    """What a policy is to hold besides: kept apart from edits, since a later want may cover an earlier one."""

    urls: list[str] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)
    networks: list[str] = field(default_factory=list)
    not_denied: list[str] = field(default_factory=list)
    not_approved: list[str] = field(default_factory=list)
    scalars: dict[str, Any] = field(default_factory=dict)

    def also(self, other: Wanted) -> None:
        """Want what another wants too: of two limits the higher, writing before reading."""
        for name in ("urls", "tools", "networks", "not_denied", "not_approved"):
            held = getattr(self, name)
            held += [item for item in getattr(other, name) if item not in held]
        for pointer, value in other.scalars.items():
            known = self.scalars.get(pointer)
            if known is None or (type(value) is int and value > known) or value == "write":
                self.scalars[pointer] = value

    def edits(self, policy: Policy) -> list[Edit]:
        """The wants as edits of a policy, in the order of its sections."""
        found = [edit(policy, f"/tool_registry/denied/{policy.denied[n]}", REMOVE) for n in self.not_denied]
        found += [edit(policy, "/tool_registry/allowed/-", ADD, name) for name in self.tools]
        found += _url_edits(policy, self.urls)
        found += [edit(policy, "/private_networks/-", ADD, network) for network in self.networks]
        for pointer, value in self.scalars.items():
            there = _holds(policy, pointer)
            found.append(edit(policy, pointer, REPLACE if there else ADD, value))
        asked = policy.approval_for
        found += [edit(policy, f"/approval/required_for/{asked[name]}", REMOVE) for name in self.not_approved]
        return found


def _holds(policy: Policy, pointer: str) -> bool:
    data: Any = policy.data
    for part in pointer.split("/")[1:]:
        if not isinstance(data, dict) or part not in data:
            return False
        data = data[part]
    return True


def smallest(
    policy: Policy, tools: Mapping[str, Tool], question: Question, *, may_ask: bool = False
) -> Smallest:
    """The smallest edits under which a gate allows what is asked; none are needed where it does already.

    `tools` are those of the run: an edit lets none in that is not among them. An escalation counts as refused
    unless it `may_ask` a person.
    """
    wanted = Wanted()
    edited = policy
    decision: Decision | None = None
    passes = (ALLOW, ESCALATE) if may_ask else (ALLOW,)
    try:
        for _ in range(MOST + 1):
            decision = question.put(Gate(edited, tools))
            if decision is None or decision.decision in passes:
                edits = tuple(wanted.edits(policy))
                return Smallest(edits, edited, remark=_remark(policy, wanted), wanted=wanted)
            _answer(decision, question, edited, tools, wanted)
            edited = apply(policy, wanted.edits(policy))
    except _NoEdit as reason:
        return Smallest(why_not=str(reason), wanted=wanted)
    except PolicyError as error:
        why_not = f"no policy may be so: {error.message}"
        return Smallest(why_not=why_not)
    return Smallest(why_not=f"it takes more than {MOST} edits")


def _remark(policy: Policy, wanted: Wanted) -> str | None:
    """What else a run under the edited policy needs, which the gate does not ask for."""
    for pointer, access in wanted.scalars.items():
        name = pointer.removeprefix("/sandbox/mounts/")
        if name != pointer and access == "read" and name not in policy.mounts:
            return f"a run has mount {name} for reading only where it binds a folder to it"
    for entry in wanted.urls:
        host = parse_entry(entry).host
        if _is_address(host) and not policy.networks.allows(host):
            return f"a run takes an entry for {host} only where private_networks holds that address"
    return None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


# ---- one objection, one want ------------------------------------------------------------------------------------


def _answer(
    decision: Decision, question: Question, policy: Policy, tools: Mapping[str, Tool], wanted: Wanted
) -> None:
    """Add to `wanted` what an objection of `policy` asks for. Raises _NoEdit."""
    facts = decision.facts
    if decision.rule_id == "tool_registry":
        _registry(question, policy, tools, wanted)
    elif decision.rule_id == "url_allowlist":
        _url(facts, question, policy, wanted)
    elif decision.rule_id == "sandbox_path":
        _mount(facts, policy, wanted)
    elif decision.rule_id == "arg_schema":
        _schema(decision, question, policy, tools, wanted)
    elif decision.rule_id == "cycle_detection":
        _limit("/cycle_detection/max_repeats", facts["used"] + 1, wanted)
    elif decision.rule_id == "loop_budget":
        # a result has to fit, everything else needs room for one more
        more = 0 if question.size is not None else 1
        _limit(f"/loop_budget/{facts['budget']}", facts["used"] + more, wanted)
    elif decision.rule_id == "approval" and question.call is not None:
        wanted.not_approved.append(question.call.name)
    else:
        raise _NoEdit("the gate itself failed, which no policy mends")


def _limit(pointer: str, value: int, wanted: Wanted) -> None:
    if wanted.scalars.get(pointer) == value:
        raise _NoEdit(f"no limit of {pointer[1:].replace('/', '.')} is enough")
    wanted.scalars[pointer] = value


def _registry(question: Question, policy: Policy, tools: Mapping[str, Tool], wanted: Wanted) -> None:
    name = question.call.name if question.call is not None else None
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _NoEdit("no policy can hold that name of a tool")
    if name not in tools:
        raise _NoEdit("the run has no such tool, and a policy brings none")
    if name in policy.denied:
        wanted.not_denied.append(name)
    if name not in policy.allowed:
        wanted.tools.append(name)


def _url(facts: Mapping[str, Any], question: Question, policy: Policy, wanted: Wanted) -> None:
    if "malformed" in facts:
        raise _NoEdit("no policy accepts such a URL: what two programs may read differently is refused")
    target = parse_url(_resource(facts, question, "target"))
    address = question.check.get("address") if question.check is not None else None
    if policy.allowlist.match(target) is None:
        wanted.urls.append(_entry(target))
    elif address is not None:
        wanted.networks.append(_network(str(address), policy, wanted))


def _resource(facts: Mapping[str, Any], question: Question, key: str) -> str:
    """The text of the URL or path that was refused: from the fact, or from the call's arguments."""
    if question.check is not None:
        return str(question.check[key])
    assert question.call is not None and question.call.arguments is not None
    return str(json_pointer.get(question.call.arguments.value(), facts["pointer"]))


def _entry(target: Target) -> str:
    """The narrowest entry that allows a target: its path if an entry can name that, else a folder above it."""
    path = target.path
    while True:
        text = f"{target.origin}{path}"
        if len(text) <= _LONGEST_ENTRY and _matches(text, target):
            return text
        if path == "/":
            raise _NoEdit("no entry of a URL list can name such a URL")
        # below a folder: first with the slash, which covers less
        path = path[:-1] if path.endswith("/") else path[: path.rindex("/") + 1]


def _matches(entry: str, target: Target) -> bool:
    try:
        return Allowlist([entry]).match(target) is not None
    except Malformed:
        return False


def _network(address: str, policy: Policy, wanted: Wanted) -> str:
    """The network of one address, or of the IPv4 address that it carries."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        raise _NoEdit("what was met is no plain address, and no policy allows that") from None
    carried = [parsed]
    if isinstance(parsed, ipaddress.IPv6Address) and (parsed in _TRANSLATED or parsed.ipv4_mapped):
        carried = [ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)]
    network = f"{carried[0]}/{carried[0].max_prefixlen}"
    if network in wanted.networks or "%" in address:
        raise _NoEdit("no network of a policy opens such an address")
    return network


def _mount(facts: Mapping[str, Any], policy: Policy, wanted: Wanted) -> None:
    if "malformed" in facts:
        raise _NoEdit("no policy accepts such a path: what two programs may read differently is refused")
    if "found" in facts:
        if facts["found"] == "unbound mount":
            raise _NoEdit("the run binds no folder to that mount, which a policy does not do")
        raise _NoEdit(f"the sandbox follows no {facts['found']}, whatever a policy says")
    wanted.scalars[f"/sandbox/mounts/{facts['mount']}"] = facts["access"]


def _schema(
    decision: Decision, question: Question, policy: Policy, tools: Mapping[str, Tool], wanted: Wanted
) -> None:
    call = question.call
    assert call is not None
    arguments = call.arguments.value() if call.arguments is not None else None
    fits = isinstance(arguments, dict) and call.name in tools
    if not (policy.strict_arguments and fits and tools[call.name].shape_validator.accepts(arguments)):
        pointer, keyword = decision.facts["pointer"] or "/", decision.facts["keyword"]
        raise _NoEdit(f"the tool's schema decides, not the policy ({pointer} {keyword})")
    wanted.scalars["/arg_schema_enforcement"] = "shape"


# ---- URL entries ------------------------------------------------------------------------------------------------


def _url_edits(policy: Policy, urls: Sequence[str]) -> list[Edit]:
    """Entries to add; an entry that a new one covers makes room for it, since a policy may hold no such entry."""
    held = list(policy.data.get("url_allowlist", ()))
    found: list[Edit] = []
    for url in uncovered(urls):
        inert = [i for i, entry in enumerate(held) if _covers(url, entry)]
        if not inert:
            found.append(edit(policy, "/url_allowlist/-", ADD, url))
            continue
        found.append(edit(policy, f"/url_allowlist/{inert[0]}", REPLACE, url))
        found += [edit(policy, f"/url_allowlist/{i}", REMOVE) for i in inert[1:]]
    return found


def uncovered(urls: Iterable[str]) -> list[str]:
    """Entries without those that others of them cover."""
    entries = {url: parse_entry(url) for url in urls}
    held = {(entry.scheme, entry.host, entry.port, entry.prefix) for entry in entries.values()}
    return [
        url
        for url, entry in entries.items()
        if not any((entry.scheme, entry.host, entry.port, wider) in held for wider in _wider(entry.prefix))
    ]


def _wider(prefix: str) -> Iterator[str]:
    """Every prefix that covers this one."""
    places = [at for at, sign in enumerate(prefix) if sign == "/"]
    for cut in {1, *places, *(at + 1 for at in places)} - {0, len(prefix)}:
        yield prefix[:cut]


def _covers(wide: str, narrow: str) -> bool:
    """Whether one entry allows all that another does."""
    try:
        return Allowlist([wide]).match(parse_url(_whole(narrow))) is not None
    except Malformed:
        return False


def _whole(entry: str) -> str:
    return entry if "://" in entry else f"https://{entry}"
