"""What a JSON Schema cannot say of a policy: names that contradict each other, entries that decide nothing.

An entry that is present and inert is refused: whoever reads it believes that it guards something.
"""

from __future__ import annotations

import ipaddress
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from ..core.secret_kinds import ENV_KIND
from ..formats.escape import quote_literal
from ..resources.http_methods import methods_of, url_text
from ..resources.networks import Networks, holds_shut
from ..resources.url import Entry, Malformed, parse_entry
from ..schema.schema_errors import did_you_mean
from ..tools.contract import Tool
from .own_patterns import MODEL_KINDS, pattern_problem

_SHORTEST: Final = {4: 8, 6: 7}  # a wider network names no place any more
# IPv6 forms that carry an IPv4 address: what is judged is the address inside
_CARRIERS: Final = tuple(ipaddress.IPv6Network(text) for text in ("::ffff:0:0/96", "64:ff9b::/96"))
_RELAYED: Final = tuple(ipaddress.IPv6Network(text) for text in ("::/96", "2001::/32", "2002::/16"))
_OWN: Final = ipaddress.IPv6Network("::/127")  # "any" and loopback look like carriers, and carry nothing

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Checked(Protocol):
    """What is checked of a policy; `Policy` is the one class that has it."""

    @property
    def data(self) -> dict[str, Any]:
        """The merged policy."""

    @property
    def allowed(self) -> Mapping[str, int]:
        """Allowed tools with their place in the list."""

    @property
    def denied(self) -> Mapping[str, int]:
        """Denied tools with their place in the list."""

    @property
    def approval_for(self) -> Mapping[str, int]:
        """Tools that need approval, with their place in the list."""

    @property
    def mounts(self) -> Mapping[str, str]:
        """Mounts with their mode."""

    @property
    def networks(self) -> Networks:
        """The private networks that are open."""

    @property
    def tool_rules(self) -> Mapping[str, Mapping[str, Any]]:
        """The rules of single tools."""

    @property
    def lists(self) -> Mapping[str, list[Any]]:
        """The named lists of values."""

    def error(self, pointer: str, message: str, remedy: str | None = None) -> Exception:
        """Return the complaint at the place of `pointer`."""


def check_names(policy: Checked) -> None:
    """Names of tools that contradict each other. Raises PolicyError."""
    for name, i in policy.denied.items():
        if name in policy.allowed:
            raise policy.error(
                f"/tool_registry/denied/{i}",
                f"{name!r} is both allowed and denied",
                "remove it from one list",
            )
    for name, i in policy.approval_for.items():
        if name not in policy.allowed:
            raise policy.error(
                f"/approval/required_for/{i}",
                f"approval for {name!r} never applies, since the tool is not allowed",
                did_you_mean(name, policy.allowed) or "allow the tool or remove the name",
            )


def check_redaction(policy: Checked) -> None:
    """Patterns that cannot be searched, and kinds that are revealed but never hidden. Raises PolicyError."""
    section = policy.data.get("redact", ())
    if not isinstance(section, Mapping):
        return
    patterns = section.get("patterns", {})
    for kind, text in patterns.items():
        problem = pattern_problem(kind, text)
        if problem is not None:
            raise policy.error(f"/redact/patterns/{kind}", *problem)
    hidden = {
        *section.get("kinds", ()),
        *patterns,
        *MODEL_KINDS,
        *((ENV_KIND,) if section.get("env") else ()),
    }
    for tool, kinds in section.get("reveal_to", {}).items():
        for i, kind in enumerate(kinds):
            if kind not in hidden:
                raise policy.error(
                    f"/redact/reveal_to/{tool}/{i}",
                    f"{kind!r} is not a kind that this policy redacts",
                    did_you_mean(kind, hidden) or "name it in kinds or patterns, or remove it here",
                )


def check_urls(policy: Checked) -> None:
    """Entries that cannot be read, and such as another entry covers. Raises PolicyError."""
    items = policy.data.get("url_allowlist", ())
    texts = [url_text(item) for item in items]
    entries: list[Entry] = []
    for i, text in enumerate(texts):
        try:
            entries.append(parse_entry(text))
        except Malformed as error:
            raise policy.error(
                f"/url_allowlist/{i}",
                f"malformed entry: {error.reason}",
                "write scheme://host[:port][/path-prefix]",
            ) from None
    first: dict[tuple[str, str, int], dict[str, int]] = {}
    for i, entry in enumerate(entries):
        first.setdefault((entry.scheme, entry.host, entry.port), {}).setdefault(entry.prefix, i)
    kept = [methods_of(item) for item in items]
    for i, entry in enumerate(entries):
        prefixes = first[entry.scheme, entry.host, entry.port]
        twin = prefixes[entry.prefix]
        if twin != i and set(kept[twin]) != set(kept[i]):
            raise policy.error(
                f"/url_allowlist/{i}",
                f"this entry names the URL of {quote_literal(texts[twin])} with other methods",
                "write one entry with the methods of both",
            )
        by = _covering(entry.prefix, i, prefixes, kept)
        if by is not None:
            raise policy.error(
                f"/url_allowlist/{i}",
                f"this entry never applies, since {quote_literal(texts[by])} covers it",
                "remove one of the two",
            )


def _covering(
    prefix: str, index: int, first: Mapping[str, int], methods: Sequence[tuple[str, ...]]
) -> int | None:
    """Return the place of another entry that allows everything this one does; `first` holds its host's prefixes."""
    if first[prefix] != index:
        return first[prefix]
    if len(first) == 1:
        return None
    candidates = {"/"}
    at = prefix.rfind("/")
    while at > 0:
        candidates |= {prefix[: at + 1], prefix[:at]}
        at = prefix.rfind("/", 0, at)
    wider = (first[other] for other in candidates - {prefix} if other in first)
    return min((other for other in wider if set(methods[index]) <= set(methods[other])), default=None)


def check_networks(policy: Checked) -> None:
    """Networks that cannot be read, open everything, or open nothing that was shut. Raises PolicyError."""
    seen: list[tuple[Network, str]] = []
    firsts: list[tuple[int, int]] = []  # version and address of each seen, sorted
    wider: dict[tuple[int, int], set[int]] = {}  # as in Networks
    for i, text in enumerate(policy.data.get("private_networks", ())):
        where = f"/private_networks/{i}"
        try:
            Networks([text])
        except Malformed as error:
            raise policy.error(
                where, f"malformed network: {error.reason}", "write a CIDR such as 10.1.0.0/16"
            ) from None
        network = ipaddress.ip_network(text)
        problem = _inert(network)
        if problem is not None:
            raise policy.error(where, *problem)
        low, high = int(network.network_address), int(network.broadcast_address)
        at = bisect_left(firsts, (network.version, low))
        overlaps = at < len(firsts) and firsts[at] <= (network.version, high)
        overlaps = overlaps or any(
            version == network.version and low >> shift in known for (version, shift), known in wider.items()
        )
        for other, written in seen if overlaps else ():
            if network.version == other.version and (_inside(network, other) or _inside(other, network)):
                raise policy.error(
                    where,
                    f"{text!r} and {written!r} name the same addresses",
                    "remove the narrower of the two",
                )
        seen.append((network, text))
        firsts.insert(at, (network.version, low))
        shift = network.max_prefixlen - network.prefixlen
        wider.setdefault((network.version, shift), set()).add(low >> shift)


def _inside(one: Network, other: Network) -> bool:
    return one.subnet_of(other)  # type: ignore[arg-type]  # of one version, see above


def _inert(network: Network) -> tuple[str, str] | None:
    """Return what is wrong with a network and what to do, None for one that opens something."""
    if network.prefixlen < _SHORTEST[network.version]:
        return (
            f"a network of /{network.prefixlen} opens everything, also the addresses of cloud metadata",
            "name the networks that are meant",
        )
    if isinstance(network, ipaddress.IPv6Network) and any(network.subnet_of(c) for c in _CARRIERS):
        return "an IPv4 network written as IPv6 never applies", "write the IPv4 network, such as 10.1.0.0/16"
    relayed = isinstance(network, ipaddress.IPv6Network) and any(network.subnet_of(r) for r in _RELAYED)
    if relayed and not _inside(network, _OWN):
        return "IPv4-compatible, Teredo and 6to4 addresses are not opened", "name the network that is meant"
    if not holds_shut(network):
        return "public addresses are allowed without a network", "remove it"
    return None


def check_uses(policy: Checked, tools: Iterable[Tool]) -> None:
    """Hosts and mounts that no tool of a run can reach for, allowed or not. Raises PolicyError.

    A tool that the registry shuts out counts: an overlay that takes a tool away stays a policy.
    """
    tools = list(tools)
    kinds = {resource.kind for tool in tools for resource in tool.resources}
    uses = {use for tool in tools for use in tool.uses}
    effects = {tool.effect for tool in tools}
    if policy.data.get("url_allowlist") and "url" not in kinds and "get" not in uses:
        raise policy.error(
            "/url_allowlist",
            "these entries never apply, since no tool takes a URL or reaches the network",
            "allow such a tool or remove the entries",
        )
    if policy.mounts and not ({"path:read", "path:write"} & kinds or {"read", "write", "external"} & effects):
        raise policy.error(
            "/sandbox/mounts",
            "these mounts never apply, since no tool takes a path, reads or writes",
            "allow such a tool or remove the mounts",
        )


def check_addresses(policy: Checked, hosts: Iterable[str]) -> None:
    """Entries for an address that no connection may be made to. Raises PolicyError.

    `hosts` are answered by folders, and need no connection.
    """
    mapped = set(hosts)
    for i, item in enumerate(policy.data.get("url_allowlist", ())):
        host = parse_entry(url_text(item)).host
        addresses = _addresses_of(host)
        if addresses and host not in mapped and not any(map(policy.networks.allows, addresses)):
            named = f"{host} is {addresses[0]}, which" if host not in addresses else host
            raise policy.error(
                f"/url_allowlist/{i}",
                f"this entry never applies, since {named} is not a public address and not in private_networks",
                "name its network there or remove the entry",
            )


def _addresses_of(host: str) -> tuple[str, ...]:
    """Return the addresses that a host has wherever the policy is used, none for a name that is resolved there."""
    if host == "localhost":
        return "127.0.0.1", "::1"
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return ()
    return (host,)
