"""Which addresses a call may connect to, by a table of our own.

`ipaddress` reads addresses and compares them with networks here. What it calls global or private is not
asked: that differs between Python releases, and a verdict may not.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from ..formats.escape import quote_literal
from .url import Malformed

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# The special-purpose registries of IANA, and what is not unicast. Exceptions that the registries make inside
# 192.0.0.0/24 and 2001::/23 are anycast services and test beds that no tool has to reach.
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # behind a carrier's NAT; 100.100.100.200 is a cloud's metadata
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # public by its number, yet a cloud answers its own machines there
        "169.254.0.0/16",  # link-local; 169.254.169.254 is most clouds' metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; 192.0.0.192 is a cloud's metadata
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112: anycast, answered by whoever runs the network that one is in
        "192.52.193.0/24",  # relays of multicast, anycast too
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/3",  # multicast, reserved, broadcast
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: a relay of nobody's choosing leads to the IPv4 address inside
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)
_CIDR = r"[0-9A-Fa-f.:]+/(?:0|[1-9][0-9]{0,2})"  # compiled for the first policy that names a network
_UNICAST_V6 = ipaddress.IPv6Network("2000::/3")  # all that is handed out to the public internet

_COMPATIBLE = ipaddress.IPv6Network("::/96")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class Networks:
    """Which addresses a call may connect to: public ones, and those inside the networks named."""

    def __init__(self, cidrs: Sequence[str]) -> None:
        """Read the networks. Raises Malformed with `index`, the place of the first text that is not a network."""
        # version -> bits behind the prefix -> the numbers that such networks begin with: one look a length
        self._named: dict[int, dict[int, set[int]]] = {4: {}, 6: {}}
        for index, text in enumerate(cidrs):
            # a mask in the place of the length, or a length such as 08, is not read alike everywhere
            if not isinstance(text, str) or not re.fullmatch(_CIDR, text):
                raise Malformed("a network must be text such as 10.1.0.0/16", index)
            try:
                network = ipaddress.ip_network(text)
            except ValueError:
                what = f"not a network, or bits are set after its prefix: {quote_literal(text)}"
                raise Malformed(what, index) from None
            shift = network.max_prefixlen - network.prefixlen
            known = self._named[network.version].setdefault(shift, set())
            known.add(int(network.network_address) >> shift)

    def allows(self, address: str) -> bool:
        """Return whether a connection to the address is allowed; False for what is not an address. Never raises."""
        if not isinstance(address, str) or "%" in address:
            return False
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        if isinstance(parsed, ipaddress.IPv4Address):
            return self._allowed(parsed)
        inside, carried = _embedded(parsed)
        return all(map(self._allowed, inside)) and (carried or self._allowed(parsed))

    def first_outside(self, cidr: str) -> str | None:
        """Return the first address of another network that is neither public nor in one of these; None without one."""
        network = ipaddress.ip_network(cidr)
        kind, at, last = type(network.network_address), int(network.network_address), int(network[-1])
        while at <= last:
            address = kind(at)
            shift = self._shift(address)
            if shift is not None:
                at = (at >> shift) + 1 << shift
            elif _is_public(address):
                at = _public_until(address) + 1
            else:
                return str(address)
        return None

    def _allowed(self, address: _Address) -> bool:
        return _is_public(address) or self._shift(address) is not None

    def _shift(self, address: _Address) -> int | None:
        """Return the bits behind the prefix of the largest of the networks that holds an address, None without one."""
        own = self._named[address.version].items()
        return max((shift for shift, known in own if int(address) >> shift in known), default=None)


def _embedded(address: ipaddress.IPv6Address) -> tuple[tuple[ipaddress.IPv4Address, ...], bool]:
    """Return the IPv4 addresses inside an IPv6 address, and whether it only is another way to reach them."""
    number = int(address)
    lowest = ipaddress.IPv4Address(number & 0xFFFFFFFF)
    if address.ipv4_mapped is not None or address in _NAT64:
        return (lowest,), True
    if address.sixtofour is not None:
        return (address.sixtofour,), False
    if address.teredo is not None:
        return address.teredo, False
    is_isatap = number >> 32 & 0xFDFFFFFF == 0x5EFE  # whatever the network is
    if is_isatap or (address in _COMPATIBLE and number > 1):
        return (lowest,), False
    return (), False


def _is_public(address: _Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address not in _UNICAST_V6:
        return False
    return not any(address in network for network in _NOT_PUBLIC)


def _public_until(address: _Address) -> int:
    """Return the last address of the public ones that a public one lies among."""
    last = int(_UNICAST_V6[-1] if address.version == 6 else address.__class__(2**32 - 1))
    starts = (int(it.network_address) for it in _NOT_PUBLIC if it.version == address.version)
    return min((start - 1 for start in starts if start > int(address)), default=last)
