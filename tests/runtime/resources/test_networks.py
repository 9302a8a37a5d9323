"""Addresses: public ones pass, everything else only where its network is named, on every Python alike."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from tachograph.runtime.resources.networks import Networks
from tachograph.runtime.resources.url import Malformed

PUBLIC = """
1.1.1.1 8.8.8.8 172.32.0.1 192.0.1.1 2606:4700:4700::1111 2a00:1450::5 64:ff9b::808:808 ::ffff:8.8.8.8
"""
# 2002:808:808::1 is 6to4 around a public address: releases of Python differ about it, and which relay would
# carry it nobody chose. Those of 192.0.0.0/24 and 2001::/23 that IANA calls global are no tool's business.
NOT_PUBLIC = """
0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.9.9.9 169.254.169.254 172.16.0.1
172.31.255.255 192.0.0.192 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1
239.255.255.255 240.0.0.1 255.255.255.255 168.63.129.16 :: ::1 ::2 fe80::1 fec0::1 fc00::1 fd00:ec2::254
ff02::1 2001:db8::1 3fff::1 100::1 64:ff9b:1::1 4000::1 5f00::1 2001:2::1 2001:10::1 ::ffff:127.0.0.1
::ffff:169.254.169.254 ::ffff:a00:1 ::127.0.0.1 ::8.8.8.8 2002:7f00:1::1 2002:a9fe:a9fe::1 64:ff9b::7f00:1
64:ff9b::a9fe:a9fe 64:ff9b::6464:64c8 2001:0:808:808:8000:63bf:3f57:fdf2
2001:0:4136:e378:8000:63bf:80ff:fffe 2002:808:808::1 192.0.0.9 192.0.0.10 2001:1::1 2001:3::1 2001:4:112::1
2001:20::1 2001:30::1
"""
# block, the address before it, the address behind it; None where that one is not public either
BLOCKS: list[tuple[str, str | None, str | None]] = [
    ("0.0.0.0/8", None, "1.0.0.0"), ("10.0.0.0/8", "9.255.255.255", "11.0.0.0"),
    ("100.64.0.0/10", "100.63.255.255", "100.128.0.0"), ("127.0.0.0/8", "126.255.255.255", "128.0.0.0"),
    ("168.63.129.16/32", "168.63.129.15", "168.63.129.17"), ("169.254.0.0/16", "169.253.255.255", "169.255.0.0"),
    ("172.16.0.0/12", "172.15.255.255", "172.32.0.0"), ("192.0.0.0/24", "191.255.255.255", "192.0.1.0"),
    ("192.0.2.0/24", "192.0.1.255", "192.0.3.0"), ("192.88.99.0/24", "192.88.98.255", "192.88.100.0"),
    ("192.168.0.0/16", "192.167.255.255", "192.169.0.0"), ("198.18.0.0/15", "198.17.255.255", "198.20.0.0"),
    ("198.51.100.0/24", "198.51.99.255", "198.51.101.0"), ("203.0.113.0/24", "203.0.112.255", "203.0.114.0"),
    ("224.0.0.0/3", "223.255.255.255", None), ("::/96", None, None),
    ("64:ff9b:1::/48", None, None), ("100::/8", None, None),
    ("2001::/23", "2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2001:200::"),
    ("2001:db8::/32", "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db9::"),
    ("2002::/16", "2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2003::"),
    ("3fff::/20", "3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "3fff:1000::"),
    ("4000::/2", "3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None), ("fc00::/7", None, None),
    ("fe80::/10", None, None), ("ff00::/8", None, None),
]  # fmt: skip


def test_networks() -> None:
    none = Networks([])
    assert not [address for address in PUBLIC.split() if not none.allows(address)]
    assert len(NOT_PUBLIC.split()) >= 50
    assert not [address for address in NOT_PUBLIC.split() if none.allows(address)]


@pytest.mark.parametrize(("block", "before", "behind"), BLOCKS)
def test_a_block_is_closed_to_its_edges_and_no_further(
    block: str, before: str | None, behind: str | None
) -> None:
    none, network = Networks([]), ipaddress.ip_network(block)
    edges = (network[0], network[-1], network[network.num_addresses // 2])
    assert not [address for address in edges if none.allows(str(address))]
    around = (
        type(network[0])(number)
        for number in (int(network[0]) - 1, int(network[-1]) + 1)
        if 0 <= number < 2**network.max_prefixlen
    )
    assert {str(address) for address in around if none.allows(str(address))} == {before, behind} - {None}


def test_a_named_block_is_open_with_its_edges() -> None:
    for block, _, _ in BLOCKS:
        network = ipaddress.ip_network(block)
        # what carries an IPv4 address needs leave for that one too
        named = Networks([block, "0.0.0.0/0"])
        assert named.allows(str(network[0])) and named.allows(str(network[-1])), block


def test_what_python_thinks_of_an_address_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(_self: object) -> bool:
        raise AssertionError("the verdict of a Python release")

    for kind in (ipaddress.IPv4Address, ipaddress.IPv6Address):
        for name in dir(kind):
            if name.startswith("is_") or name in ("ipv4_mapped", "sixtofour", "teredo"):
                monkeypatch.setattr(kind, name, property(asked))
    test_networks()
    test_named_networks()


@pytest.mark.parametrize(
    "text", ["", "x", "127.1", "0177.0.0.1", "2130706433", "fe80::1%eth0", "8.8.8.8 ", "[::1]", None, 1]
)
def test_no_address(text: Any) -> None:
    assert not Networks(["0.0.0.0/0", "::/0"]).allows(text)


def test_named_networks() -> None:
    named = Networks(["10.1.0.0/16", "::1/128", "2002::/16", "2001::/32", "fe80::/10"])
    allowed = "10.1.2.3 ::1 ::ffff:10.1.2.3 64:ff9b::a01:203 2002:a01:203::1 2002:808:808::1 fe80::1 8.8.8.8"
    allowed += " 2001:0:808:808:8000:63bf:f5fe:fdfc"  # Teredo: server 8.8.8.8, client 10.1.2.3
    refused = "10.2.0.1 ::ffff:10.2.0.1 2002:7f00:1::1 127.0.0.1 169.254.169.254 fe80::1%1"
    refused += " 2001:0:808:808:8000:63bf:80ff:fffe 2001:0:7f00:1:8000:63bf:f5fe:fdfc"
    assert not [address for address in allowed.split() if not named.allows(address)]
    assert not [address for address in refused.split() if named.allows(address)]


@pytest.mark.parametrize(
    "text", ["", "10.1.0.0", "10.1.0.1/16", "10.0.0.0/33", "x/8", "::1", "fe80::%a/64", None]
)
def test_refused_networks(text: Any) -> None:
    with pytest.raises(Malformed) as caught:
        Networks(["10.0.0.0/8", text])
    assert caught.value.index == 1
