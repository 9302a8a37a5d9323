"""Addresses that one list of private networks opens and another does not."""

from __future__ import annotations

import ipaddress
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ...runtime.resources.networks import _NOT_PUBLIC, _UNICAST_V6, _embedded

Range = tuple[int, int]
_TOP: Final = {4: 2**32 - 1, 6: 2**128 - 1}
# IPv6 addresses that carry an IPv4 one. A network of a policy holds all of each form or nothing of it, and a form
# that is judged by the address inside alone is never opened by an IPv6 network.
_JUDGED_INSIDE: Final = ("::ffff:0:0/96", "64:ff9b::/96")
_FORMS: Final = {
    "::/96": "::808:808",
    "2001::/32": "2001:0:808:808::f7f7:f7f7",
    "2002::/16": "2002:808:808::1",
}
_OWN: Final = (0, 1)  # "any" and loopback look like carriers, and carry nothing


def is_address(host: str) -> bool:
    """Return whether a host is a literal address and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _range(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> Range:
    return int(network.network_address), int(network.broadcast_address)


def _merged(ranges: Iterable[Range]) -> list[Range]:
    out: list[Range] = []
    for low, high in sorted(ranges):
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(high, out[-1][1]))
        else:
            out.append((low, high))
    return out


def _holes(ranges: Sequence[Range], top: int) -> list[Range]:
    out, low = [], 0
    for first, last in ranges:
        if low < first:
            out.append((low, first - 1))
        low = last + 1
    return [*out, (low, top)] if low <= top else out


def _public(version: int) -> list[Range]:
    shut = [_range(network) for network in _NOT_PUBLIC if network.version == version]
    if version == 6:
        shut += _holes([_range(_UNICAST_V6)], _TOP[6])
    return _holes(_merged(shut), _TOP[version])


class AddressSet:
    """The addresses that a list of networks allows connections to, public ones included; look-ups take log time."""

    def __init__(self, cidrs: Sequence[str]) -> None:
        named = list(map(ipaddress.ip_network, cidrs))
        self.named = [(network.version, _range(network)) for network in named]
        self._sorted = sorted((*pair, i) for i, pair in enumerate(self.named))
        self._ranges = {
            version: _merged([*_public(version), *(_range(n) for n in named if n.version == version)])
            for version in (4, 6)
        }
        carried = [_range(ipaddress.ip_network(text)) for text in _JUDGED_INSIDE]
        forms = [_range(ipaddress.ip_network(text)) for text in _FORMS]
        self._settled = {4: self._ranges[4], 6: _merged([*self._ranges[6], *carried, *_less_own(forms)])}

    def allows(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        """Return whether an address itself is public or named, whatever address it carries."""
        return _first_hole(self._ranges[address.version], int(address), int(address)) is None

    def allows_connection(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        """Return what `Networks.allows` says of an address."""
        if isinstance(address, ipaddress.IPv4Address):
            return self.allows(address)
        inside, carried = _embedded(address)
        return all(map(self.allows, inside)) and (carried or self.allows(address))

    def opened_by(self, host: str, other: AddressSet) -> int | None:
        """Return the index of the network that opens a literal address which the other list does not open."""
        address = ipaddress.ip_address(host)
        if not self.allows_connection(address) or other.allows_connection(address):
            return None
        carried = _embedded(address)[0] if isinstance(address, ipaddress.IPv6Address) else ()
        shut = next(part for part in (*carried, address) if not other.allows(part))
        at = bisect_right(self._sorted, (shut.version, (int(shut), _TOP[6] + 1), 0)) - 1
        return self._sorted[at][2]

    def not_in(self, entry: int, other: AddressSet) -> str | None:
        """Return an address that the network at index `entry` opens and the other list does not, if any."""
        version, (low, high) = self.named[entry]
        hole = _first_hole(other._settled[version], low, high)
        if hole is not None:
            # the next address reads better than that of a network itself
            better = _first_hole(other._settled[version], hole + 1, min(hole + 1, high)) == hole + 1
            number = hole + 1 if better and hole < high else hole
            return str(ipaddress.IPv4Address(number) if version == 4 else ipaddress.IPv6Address(number))
        return next(self._forms(version, low, high, other), None)

    def _forms(self, version: int, low: int, high: int, other: AddressSet) -> Iterator[str]:
        for text in _FORMS.values() if version == 6 else ():
            address = ipaddress.IPv6Address(text)
            if low <= int(address) <= high and not other.allows(address):
                yield str(address)


def _less_own(ranges: Iterable[Range]) -> Iterator[Range]:
    for low, high in ranges:
        yield (max(low, _OWN[1] + 1), high)


def _first_hole(ranges: Sequence[Range], low: int, high: int) -> int | None:
    """Return the first number from `low` to `high` that no range holds, None if there is none."""
    at = bisect_right(ranges, (low, _TOP[6] + 1)) - 1
    if at >= 0 and ranges[at][1] >= low:
        low = ranges[at][1] + 1
    return low if low <= high else None
