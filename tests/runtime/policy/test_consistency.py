"""Entries of a policy that decide nothing: refused at their place, and only they."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.fail.errors import PolicyError
from tachograph.runtime.policy.consistency import check_addresses, check_uses
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.resources.networks import Networks
from tachograph.runtime.resources.url import Allowlist, Target, parse_entry, parse_url
from tachograph.runtime.tools.contract import Tool
from tachograph.runtime.tools.loader import collect

QUIET = settings(deadline=None, database=None)
SCHEMA = "schema: policy/v1\n"
TOOLS = {tool.name: tool for tool in collect(["search", "fetch", "read", "write", "summarize"]).values()}


def load(folder: Path, text: str) -> Policy:
    path = folder / "p.yaml"
    path.write_text(SCHEMA + text, encoding="utf-8")
    return Policy.load(path, root=folder)


# ---- each refusal at its place -----------------------------------------------------------------------------

REFUSED: list[tuple[str, int, int, str]] = [
    ("tool_registry: {allowed: [a, b], denied: [c, b]}\n", 2, 46, "'b' is both allowed and denied"),
    ("tool_registry: {allowed: [reads]}\napproval:\n  required_for: [reads, read]\n  timeout_s: 1\n",
     4, 25, "did you mean 'reads'?"),
    ("approval: {required_for: [x], timeout_s: 1}\n", 2, 27, "allow the tool or remove the name"),
    ("url_allowlist: [a.test, 'ftp://a.test']\n", 2, 25, "malformed entry: a URL must start with http"),
    ("url_allowlist: ['*.test']\n", 2, 17, "wildcards"),
    ("url_allowlist:\n  - a.test\n  - https://A.test:443/\n", 4, 5, "'a.test' covers it"),
    ("url_allowlist: [a.test, 'https://a.test/b']\n", 2, 25, "'a.test' covers it"),
    ("url_allowlist: ['https://a.test/b', a.test]\n", 2, 17, "'a.test' covers it"),
    ("url_allowlist: ['https://a.test/b/', 'https://a.test/b']\n", 2, 17, "'https://a.test/b' covers it"),
    ("url_allowlist: ['https://a.test/b/c/d', x.test, 'https://a.test/b']\n", 2, 17, "covers it"),
    ("private_networks: [10.0.0.0/8, fd00::/129]\n", 2, 32, "malformed network"),
    ("private_networks: [10.0.0.1/8]\n", 2, 20, "malformed network"),
    ("private_networks: [0.0.0.0/0]\n", 2, 20, "opens everything"),
    ("private_networks: ['::/0']\n", 2, 20, "opens everything"),
    ("private_networks: [10.0.0.0/8, '::ffff:10.0.0.0/104']\n", 2, 32, "written as IPv6 never applies"),
    ("private_networks: ['64:ff9b::/96']\n", 2, 20, "written as IPv6 never applies"),
    ("private_networks: ['::2/128']\n", 2, 20, "are not opened"),
    ("private_networks: ['2002:a00::/24']\n", 2, 20, "are not opened"),
    ("private_networks: ['2001:0:a00::/40']\n", 2, 20, "are not opened"),
    ("private_networks: [8.8.8.0/24]\n", 2, 20, "public addresses"),
    ("private_networks: ['2606:4700::/32']\n", 2, 20, "public addresses"),
    ("private_networks:\n  - 10.0.0.0/8\n  - 10.1.0.0/16\n", 4, 5, "'10.0.0.0/8' name the same"),
    ("private_networks: [10.1.0.0/16, 10.0.0.0/8]\n", 2, 33, "remove the narrower"),
    ("private_networks: ['fd00::/8', 'FD00::/8']\n", 2, 32, "name the same"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "column", "part"), REFUSED)
def test_refused_at_its_place(tmp_path: Path, text: str, line: int, column: int, part: str) -> None:
    with pytest.raises(PolicyError) as refused:
        load(tmp_path, text)
    error = refused.value
    assert (error.file, error.line, error.column) == ("p.yaml", line, column), str(error)
    assert part in str(error) and error.remedy


ACCEPTED = [
    "tool_registry: {allowed: [a], denied: [b]}\napproval: {required_for: [a], timeout_s: 1}\n",
    "url_allowlist: [a.test, 'http://a.test', 'https://a.test:444', b.a.test, 'https://b.test/a']\n",
    "url_allowlist: ['https://a.test/b', 'https://a.test/bc', 'https://a.test/B', 'https://a.test/c/b']\n",
    "private_networks: [10.0.0.0/8, 127.0.0.0/8, 192.168.1.0/24, 192.168.2.0/24, 'fd00::/8']\n",
    "private_networks: ['::1/128', 198.0.0.0/8, 203.0.113.0/24, 168.63.128.0/23]\n",
]


@pytest.mark.parametrize("text", ACCEPTED)
def test_what_decides_something_is_accepted(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, text).data


# ---- what a run's tools can reach --------------------------------------------------------------------------


def _tool(effect: str, resource: str) -> Tool:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"at": {"type": "string", "x-resource": resource}},
    }
    return Tool(
        name="t",
        description="d",
        input_schema=schema,
        output_schema={"type": "object", "additionalProperties": False},
        effect=effect,
        idempotent=True,
        transient=(),
        run=lambda _args, _io: {},
    )


USES = "url_allowlist: [a.test]\nsandbox: {mounts: {a: read}}\n"


@pytest.mark.parametrize(
    ("tools", "line", "column"),
    [
        ([], 2, 1),
        ([TOOLS["summarize"]], 2, 1),
        ([TOOLS["read"], TOOLS["write"], TOOLS["search"]], 2, 1),
        ([TOOLS["fetch"]], 3, 11),
        ([_tool("pure", "none"), _tool("pure", "url")], 3, 11),
        ([_tool("network", "none")], 3, 11),
    ],
)
def test_what_no_tool_can_reach_is_refused(tmp_path: Path, tools: list[Tool], line: int, column: int) -> None:
    policy = load(tmp_path, USES)
    with pytest.raises(PolicyError, match="never appl") as refused:
        check_uses(policy, tools)
    assert (refused.value.file, refused.value.line, refused.value.column) == ("p.yaml", line, column)


@pytest.mark.parametrize(
    "tools",
    [
        [TOOLS["fetch"], TOOLS["read"]],
        [TOOLS["fetch"], TOOLS["search"]],
        [_tool("network", "none"), _tool("read", "none")],
        [_tool("pure", "url"), _tool("pure", "path:write")],
        [_tool("pure", "url"), _tool("write", "none")],
    ],
)
def test_what_a_tool_can_reach_is_accepted(tmp_path: Path, tools: list[Tool]) -> None:
    for policy, used in ((load(tmp_path, USES), tools), (load(tmp_path, ""), [])):
        assert check_uses(policy, used) is None


ADDRESSES = "url_allowlist: [a.test, 'http://127.0.0.1:8080/a', 8.8.8.8.test, 'https://[fd00::1]/']\n"


def test_addresses_that_are_shut_are_refused(tmp_path: Path) -> None:
    for more, hosts, column in (
        ("", [], 25),
        ("private_networks: ['fd00::/8']\n", [], 25),
        ("private_networks: [127.0.0.0/8]\n", [], 66),
        ("", ["127.0.0.1"], 66),
        ("private_networks: [10.0.0.0/8]\n", ["fd00::1", "a.test"], 25),
    ):
        with pytest.raises(PolicyError, match="not a public address and not in private_networks") as refused:
            check_addresses(load(tmp_path, ADDRESSES + more), hosts)
        assert (refused.value.file, refused.value.line, refused.value.column) == ("p.yaml", 2, column)


def test_addresses_that_can_be_connected_to_are_accepted(tmp_path: Path) -> None:
    for text, hosts in (
        (ADDRESSES + "private_networks: [127.0.0.0/8, 'fd00::/8']\n", []),
        (ADDRESSES + "private_networks: ['fd00::/8']\n", ["127.0.0.1"]),
        ("url_allowlist: ['https://8.8.8.8/', 'https://[2606:4700::1]/']\n", []),
    ):
        assert check_addresses(load(tmp_path, text), hosts) is None


# ---- what is refused decides nothing, what is accepted decides something -----------------------------------


def blamed(section: str, entries: list[str]) -> tuple[int, PolicyError] | None:
    """The place of the entry that is refused, with the refusal."""
    try:
        Policy.from_dict({"schema": "policy/v1", section: entries})
    except PolicyError as error:
        assert error.file is not None
        assert error.file.startswith(f"<policy>#/{section}/"), str(error)
        return int(error.file.rpartition("/")[2]), error
    return None


def without(entries: list[str], index: int) -> list[str]:
    return entries[:index] + entries[index + 1 :]


SEGMENTS = ["a", "b", "ab", "A", "%61", "a.b", "..a"]
ORIGINS = ["https://a.test", "http://a.test", "https://b.a.test", "https://a.test:444", "https://10.0.0.1"]
SPELT = ["", "HTTPS://A.test", "https://a.test:443", "a.test", "http://A.TEST:80", "https://A.test:444"]
PREFIXES = st.lists(st.sampled_from(SEGMENTS), max_size=3).flatmap(
    lambda parts: (
        st.sampled_from(["/" + "/".join(parts), "/" + "/".join([*parts, ""])]) if parts else st.just("")
    )
)
ENTRIES = st.builds(
    lambda origin, spelt, path: spelt if spelt == "a.test" and not path else (spelt or origin) + path,
    st.sampled_from(ORIGINS), st.sampled_from(SPELT), PREFIXES,
).filter(lambda text: "://" in text or text == "a.test")  # fmt: skip
ODD_PATHS = ["/", "//", "/a//b", "/a/../b", "/a/./b", "/a;x/b", "/a%2fb", "/a/%2e%2e/b", "/a\u002e/b", "/%ff"]
PATHS = [
    *ODD_PATHS,
    *("/" + "/".join(parts) + end for n in (1, 2, 3) for parts in itertools.product(SEGMENTS[:3], repeat=n)
      for end in ("", "/")),
]  # fmt: skip
TARGETS = [parse_url(origin + path) for origin in ORIGINS for path in PATHS]


def _allowed(entries: list[str], targets: Iterable[Target]) -> list[bool]:
    allowlist = Allowlist(entries)
    return [allowlist.match(target) is not None for target in targets]


@settings(QUIET, max_examples=120)
@given(st.lists(ENTRIES, max_size=6, unique=True))
def test_url_entries(entries: list[str]) -> None:
    while (found := blamed("url_allowlist", entries)) is not None:
        i, error = found
        assert "covers it" in error.message
        own = parse_entry(entries[i])
        near = [
            parse_url(f"{own.scheme}://{own.host}:{own.port}{own.prefix}{more}")
            for more in ("", "/x", "x", "/?q")
        ]
        asked = [*TARGETS, *near]
        assert _allowed(entries, asked) == _allowed(without(entries, i), asked), entries[i]
        entries = without(entries, i)
    for i, text in enumerate(entries):
        own = parse_entry(text)
        only = Target(own.scheme, own.host, own.port, own.prefix, None)
        assert Allowlist(entries).match(only) == i
        assert Allowlist(without(entries, i)).match(only) is None


BASES = [
    "10.0.0.0", "10.1.0.0", "10.128.0.0", "127.0.0.1", "169.254.169.254", "192.168.0.0", "8.8.8.8", "1.0.0.0",
    "100.64.0.0", "168.63.129.16", "172.16.0.0", "198.18.0.0", "203.0.113.0", "224.0.0.0", "255.255.255.255",
    "fd00::", "fd12::", "fe80::", "2606:4700::", "2000::", "2001::", "2001:db8::", "2002:a00::", "2002:808::",
    "::1", "::", "::a00:1", "::ffff:a00:0", "64:ff9b::", "3fff::", "ff02::",
]  # fmt: skip
SPECIAL = [
    "0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "168.63.129.16", "169.254.169.254", "172.16.0.1",
    "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
    "224.0.0.1", "255.255.255.255", "8.8.8.8", "::", "::1", "::2", "fd00::1", "fe80::1", "ff02::1",
    "2001:db8::1", "3fff::1", "2001::1", "2606:4700::1111", "::ffff:10.0.0.1", "64:ff9b::a00:1",
    "64:ff9b:1::1",
    "2002:a00:1::1", "2002:808:808::1", "2001:0:a00:1::", "::10.0.0.1",
]  # fmt: skip
NETWORKS = st.builds(
    lambda base, length: str(
        ip_network(f"{base}/{length if ':' in base else min(length, 32)}", strict=False)
    ),
    st.sampled_from(BASES),
    st.sampled_from([7, 8, 9, 10, 12, 16, 20, 24, 31, 32]) | st.sampled_from([48, 64, 96, 112, 127, 128]),
)


@pytest.mark.parametrize(
    ("networks", "refused"),
    [((), True), (("10.0.0.0/8",), True), (("127.0.0.0/8",), False), (("::1/128",), False)],
)
def test_localhost_is_this_machine_wherever_a_policy_is_used(
    networks: tuple[str, ...], refused: bool
) -> None:
    data = {"url_allowlist": ["https://a.test/", "http://localhost:8080/x"], "private_networks": [*networks]}
    policy = Policy.from_dict({"schema": "policy/v1", **data})
    assert check_addresses(policy, ["localhost"]) is None  # a folder answers
    if not refused:
        assert check_addresses(policy, ()) is None
        return
    with pytest.raises(
        PolicyError, match=r"url_allowlist/1: this entry never applies, since localhost is 127\.0\.0\.1"
    ):
        check_addresses(policy, ())


def _addresses(networks: list[str]) -> list[str]:
    """Addresses in and around networks, and one of each special kind."""
    found = set(SPECIAL)
    for network in map(ip_network, networks):
        size = network.num_addresses
        found |= {str(network[i]) for i in (0, 1 % size, size // 3, size // 2, size - 1)}
        found |= {each for each in SPECIAL if ip_address(each) in network}
        around = (int(network[0]) - 1, int(network[-1]) + 1)
        found |= {str(type(network[0])(n)) for n in around if 0 <= n < 1 << network.max_prefixlen}
    return sorted(found)


def _open(networks: list[str], addresses: list[str]) -> list[bool]:
    return [Networks(networks).allows(address) for address in addresses]


@settings(QUIET, max_examples=150)
@given(st.lists(NETWORKS, max_size=5, unique=True))
def test_networks(networks: list[str]) -> None:
    while (found := blamed("private_networks", networks)) is not None:
        i, error = found
        addresses = _addresses(networks)
        if "same addresses" in error.message:
            one = ip_network(networks[i])
            other: Any = next(
                n for n in map(ip_network, networks[:i]) if n.version == one.version and n.overlaps(one)
            )
            i = networks.index(str(max(one, other, key=lambda n: n.prefixlen)))
        less = without(networks, i)
        opens = (
            "opens everything" in error.message or "not opened" in error.message
        )  # refused for what it opens
        assert opens or _open(networks, addresses) == _open(less, addresses), (networks, str(error))
        networks = less
    for i, network in enumerate(networks):
        addresses = _addresses([network])
        only = zip(_open(networks, addresses), _open(without(networks, i), addresses), strict=True)
        assert (True, False) in only, network


@QUIET
@given(st.lists(st.tuples(st.integers(8, 32), st.integers(0, 63), st.integers(0, 7)), min_size=1, max_size=7))
def test_the_first_network_that_overlaps_an_earlier_one_is_refused(
    places: list[tuple[int, int, int]],
) -> None:
    networks = []
    for length, high, low in places:
        number = (10 << 24 | high << 18 | low) >> (32 - length) << (32 - length)
        networks.append(ip_network((number, length)))
    networks = list(dict.fromkeys(networks))
    wrong = [i for i, one in enumerate(networks) if any(one.overlaps(other) for other in networks[:i])]
    data = {"schema": "policy/v1", "private_networks": [str(network) for network in networks]}
    if not wrong:
        Policy.from_dict(data)
        return
    with pytest.raises(PolicyError) as found:
        Policy.from_dict(data)
    assert str(found.value).startswith(f"<policy>#/private_networks/{wrong[0]}: ")
