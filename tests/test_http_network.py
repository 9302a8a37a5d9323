"""The network behind `io.get`: names, addresses and redirects, in a small internet of our own.

The corpus allows a host on http and https at their default ports.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tachograph.runtime.clock import later
from tachograph.runtime.io import http, http_answer, tool_io
from tachograph.runtime.io.tool_io import ToolIO
from tachograph.runtime.io.workspace import Workspace
from tachograph.runtime.log.values import Fact, Reach
from tachograph.runtime.policy.gate import Gate
from tachograph.runtime.policy.leaf import Question, Verdict
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.resources.url import parse_url
from tachograph.runtime.tools.contract import Tool
from tests.servers import LOOPBACK, PATIENCE, PUBLIC, Internet, Serve, certificate, ok, page, serve
from tests.tables.rows import closed, roomy

__all__ = ["certificate", "serve"]  # fixtures
HOST = "fixtures.local"
TOOL = Tool("t", "", closed(), closed(), "network", lambda arguments, io: {})
ALLOW = Verdict("allow", "url_allowlist", "", "")


class Got:
    """What came of `io.get`, and what the gate was asked on the way."""

    def __init__(self, url: str, hosts: Sequence[str] = (HOST,), networks: Sequence[str] = ()) -> None:
        urls = [f"{scheme}://{host}/" for host in hosts for scheme in ("http", "https")]
        policy = roomy([], url_allowlist=urls, private_networks=[*networks])
        gate = Gate(Policy.from_dict(policy), [TOOL])
        self.asked: list[Fact] = []
        self.error: Exception | None = None
        with Workspace({}, network=True) as workspace:
            self.io = ToolIO(workspace, TOOL, lambda fact: self._decide(gate, fact), "key")
            try:
                self.io.get(url)
            except OSError as error:  # anything else is not a builtin that a tool may meet
                self.error = error
            self.io.close()
        assert not self.io.wrote

    def _decide(self, gate: Gate, fact: Fact) -> Verdict:
        self.asked.append(fact)
        return gate.ask(Question(fact, "t"))

    @property
    def came_to(self) -> str:
        """`allow`, `deny` or `tool-error`."""
        if self.io.denied:
            return "deny"
        return "tool-error" if self.error else "allow"


@pytest.fixture
def net(certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Internet]:
    """An internet that the client is led to, and an environment full of advice that must not be taken."""
    made = Internet(certificate)
    for name in ("netrc", ".netrc"):
        (tmp_path / name).write_text(f"machine {HOST} login root password CANARY\n")
        (tmp_path / name).chmod(0o600)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        for written in (name, name.upper()):
            monkeypatch.setenv(written, f"http://{LOOPBACK}:{made.proxy.port}")
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setattr(http, "socket", made.module())
    monkeypatch.setattr(http, "HOSTS_FILE", str(tmp_path / "hosts"))
    yield made
    made.stop()


# ---- the corpus ------------------------------------------------------------------------------------------------------


def rows() -> list[dict[str, Any]]:
    root = os.environ.get("TACHOGRAPH_CORPORA")
    if not root:
        return []
    text = (Path(root) / "1-url" / "url_network_cases.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def test_the_corpus_is_whole() -> None:
    if not rows():
        pytest.skip("TACHOGRAPH_CORPORA is not set: the outside corpora are not at hand")
    assert len(rows()) > 30


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["id"])
def test_shared_corpus(row: dict[str, Any], net: Internet, monkeypatch: pytest.MonkeyPatch) -> None:
    net.names = row.get("resolver", {HOST: [[PUBLIC]]})
    net.pages = {path: page(200, "ok") for path in ("/", "/plain")}
    for hop in row.get("hops", ()):
        location = hop.get("location")
        if location is not None and "\n" in location:
            # it would end the header on the wire: here the client hands the value on as it is
            given = 302, {"location": location}, ""
            monkeypatch.setattr(http, "fetch", lambda *_, given=given: given)
            continue
        net.pages["/" + hop["url"].split("/", 3)[3]] = page(hop["status"], hop.get("body", ""), location)
    if row["id"] == "net-dns-resolver-timeout":
        monkeypatch.setattr(tool_io, "HTTP_S", 0.05)
    found = Got(row.get("url") or row["hops"][0]["url"], row["allowlist"])
    net.stop()
    expected = {"allow", "deny", "tool-error"} if row["expect"] == "either" else {row["expect"]}
    assert found.came_to in expected, found.error
    _nothing_else_was_reached(row, found, net)
    _its_own_sentence_holds(row, found, net)


def _nothing_else_was_reached(row: dict[str, Any], found: Got, net: Internet) -> None:
    lines = [line for request in net.requests for line in request.split("\r\n")]
    assert {line for line in lines if line.startswith("Host: ")} <= {f"Host: {HOST}"}
    assert {*net.asked} <= {HOST} and {*net.server_names} <= {HOST}
    is_denied_at_once = found.came_to == "deny" and row["class"] != "redirect"
    assert {address for address, _ in net.connected} <= (set() if is_denied_at_once else {PUBLIC})
    assert {port for _, port in net.connected} <= {80, 443}
    assert len(net.asked) == len(net.requests) or (len(net.asked) == 1 and row["class"] == "dns")
    assert not any(word in line for line in lines for word in ("CANARY", "Authorization", "Cookie"))
    assert net.proxy.connections == 0


def _its_own_sentence_holds(row: dict[str, Any], found: Got, net: Internet) -> None:
    said = row["invariant"]
    hops = [fact for fact in found.io.met if isinstance(fact, Reach) and fact.hop > 0]
    if "two url_allowlist checks" in said:
        assert len(hops) == 1 and len(net.requests) == 2
    elif "policy_check span" in said or (row["class"] == "dns" and row["expect"] == "deny" and "pin" in said):
        assert len(found.io.met) == 1 and found.came_to == "deny"
        assert type(found.error) is PermissionError
    elif "never followed" in said:
        assert len(net.requests) == 1 and found.io.met == []
    elif "classified transient" in said:
        assert type(found.error) is ConnectionRefusedError
    elif "deadline covers DNS" in said:
        assert type(found.error) is TimeoutError
    elif "search list" in said:
        assert net.asked == [] and len(found.asked) == 1


# ---- names and addresses ---------------------------------------------------------------------------------------------


def test_a_second_hop_is_resolved_and_checked_anew(net: Internet) -> None:
    net.names, net.pages = {HOST: [[PUBLIC], ["127.0.0.1"]]}, {"/r": page(302, "", "/there")}
    found = Got(f"http://{HOST}/r")
    there = f"http://{HOST}/there"
    assert found.io.met == [Reach(there, hop=1), Reach(there, address="127.0.0.1", hop=1)]
    assert net.asked == [HOST, HOST] and net.connected == [(PUBLIC, 80)]


def test_only_the_checked_address_is_connected_to(net: Internet) -> None:
    net.names, net.pages = {HOST: [["10.0.0.5"], ["10.0.0.6"]]}, {"/": page(200, "ok")}
    assert Got(f"http://{HOST}/", networks=("10.0.0.0/29",)).came_to == "allow"
    assert (net.asked, net.connected) == ([HOST], [("10.0.0.5", 80)])
    net.names, net.connected[:] = {HOST: [["10.0.0.5", "10.0.0.8"]]}, []
    found = Got(f"http://{HOST}/", networks=("10.0.0.0/29",))
    assert found.io.met == [Reach(f"http://{HOST}/", address="10.0.0.8")] and net.connected == []


def test_host_header_and_server_name_stay_the_name_of_the_url(net: Internet) -> None:
    net.names, net.pages = {HOST: [[PUBLIC]]}, {"/": page(200, "ok")}
    assert Got(f"https://{HOST}/").came_to == "allow"
    assert net.connected == [(PUBLIC, 443)] and net.server_names == [HOST]
    names = [line.partition(":")[0] for line in net.requests[0].split("\r\n")[1:-2]]
    assert names == ["Host", "User-Agent", "Accept", "Accept-Encoding", "Connection"]  # none of a netrc
    assert f"\r\nHost: {HOST}\r\n" in net.requests[0]


ODD = ["fe80::1%1", "::ffff:127.0.0.1%1", "elsewhere.test", "127.1"]
KEPT = {
    **{odd: odd for odd in ODD}, "": "none", "x" * 999: "x" * 128, "\ud800": "\\ud800",
    "::ffff:127.0.0.1": LOOPBACK, "0:0::1": "::1",
}  # fmt: skip


@pytest.mark.parametrize("found", KEPT, ids=ascii)
def test_an_address_is_kept_in_one_spelling_and_refused_if_it_is_none(net: Internet, found: str) -> None:
    net.names = {HOST: [[PUBLIC, found]]}
    came = Got(f"http://{HOST}/")
    assert came.came_to == "deny" and net.connected == []
    assert came.io.met == [Reach(f"http://{HOST}/", address=KEPT[found])]


def test_another_peer_than_the_checked_one_is_refused_and_kept(
    net: Internet, monkeypatch: pytest.MonkeyPatch
) -> None:
    net.names = {HOST: [[PUBLIC]]}
    monkeypatch.setattr(http.socket.socket, "getpeername", lambda _self: ("10.0.0.1", 80))
    found = Got(f"http://{HOST}/", networks=("10.0.0.0/8",))
    net.stop()
    # no address: a rule that allows 10.0.0.1 does not allow this
    kept = f"10.0.0.1 port 80 instead of {PUBLIC} port 80"
    assert found.io.met == [Reach(f"http://{HOST}/", address=kept)] and net.requests == []


def test_the_machines_own_table_of_hosts_comes_first(net: Internet) -> None:
    table = Path(http.HOSTS_FILE)
    table.write_bytes(b"\xff\n10.0.0.1\tone.test  TWO.test\n::1 one.test # three.test\n10.0.0.9 x.three.test")
    net.names = {"three.test": [[PUBLIC]]}
    for name, addresses in (("one.test", ["10.0.0.1", "::1"]), ("two.test", ["10.0.0.1"]),
                            ("localhost", [LOOPBACK, "::1"]), ("three.test", [PUBLIC])):  # fmt: skip
        asked: list[str] = []
        with pytest.raises(PermissionError):
            http.fetch(
                parse_url(f"http://{name}/"),
                lambda address, asked=asked, last=addresses[-1]: asked.append(address) or address != last,  # type: ignore[misc]
                later(PATIENCE),
            )
        assert asked == addresses
    assert net.asked == ["three.test"] and net.connected == []


def test_a_literal_address_is_asked_about_and_not_resolved(net: Internet) -> None:
    for host, address in ((LOOPBACK, LOOPBACK), ("[::1]", "::1")):
        found = Got(f"http://{host}/", (host,))
        assert [getattr(fact, "address", "") for fact in found.io.met] == [address], host
    assert net.asked == net.connected == []


def test_the_next_address_is_tried_when_one_does_not_answer(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(ok(b"second"))
    monkeypatch.setattr(http, "_addresses", lambda name, port: ["127.0.0.77", LOOPBACK])
    url = parse_url(f"http://two.test:{server.port}/")
    assert http.fetch(url, lambda address: True, later(PATIENCE))[2] == "second"
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        http.fetch(url, lambda address: True, later(PATIENCE))


# ---- the life of an attempt ------------------------------------------------------------------------------------------


def test_all_hops_have_one_deadline(net: Internet, monkeypatch: pytest.MonkeyPatch) -> None:
    deadlines, real = [], http.fetch

    def noting(target: Any, decide: Any, deadline: int, opened: Any) -> Any:
        deadlines.append(deadline)
        return real(target, decide, deadline, opened)

    net.names, net.pages = {HOST: [[PUBLIC]]}, {"/": page(302, "", "/x"), "/x": page(200, "ok")}
    monkeypatch.setattr(http, "fetch", noting)
    assert Got(f"http://{HOST}/").came_to == "allow" and len(deadlines) == 2 and len({*deadlines}) == 1


def waiting_for(io: ToolIO, url: str, found: list[OSError]) -> threading.Thread:
    def wait() -> None:
        try:
            io.get(url)
        except OSError as error:
            found.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_end_of_an_attempt_shuts_its_connections(net: Internet, scheme: str) -> None:
    """A thread that waits for an answer goes on as soon as the attempt is over."""
    asked, over, found = threading.Event(), threading.Event(), list[OSError]()
    server = net.secure if scheme == "https" else net.plain

    def hang(peer: socket.socket) -> None:
        asked.set()
        server.stopped.wait(PATIENCE)
        over.set()

    net.names, server.answer = {HOST: [[PUBLIC]]}, hang
    with Workspace({}, network=True) as workspace:
        io = ToolIO(workspace, TOOL, lambda fact: ALLOW, "key")
        thread = waiting_for(io, f"{scheme}://{HOST}/", found)
        assert asked.wait(PATIENCE)
        io.close()
        thread.join(PATIENCE)
        assert not over.is_set()  # nor did the end wait for a lock that is held meanwhile
        assert not thread.is_alive() and [type(error) for error in found] == [ConnectionError]


@pytest.mark.parametrize("at", ["_checked", "_connected"])
def test_nothing_is_connected_after_the_end_of_an_attempt(
    net: Internet, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    net.names, real = {HOST: [[PUBLIC]]}, getattr(http, at)
    with Workspace({}, network=True) as workspace:
        io = ToolIO(workspace, TOOL, lambda fact: ALLOW, "key")
        monkeypatch.setattr(http, at, lambda *given: (io.close(), real(*given))[1])
        with pytest.raises((PermissionError, ConnectionRefusedError)):
            io.get(f"http://{HOST}/")
    net.stop()
    assert net.connected == [] and net.plain.connections == 0 and io.met == []


def test_a_body_may_be_as_large_as_a_file() -> None:
    assert http_answer.MAX_BODY == 8_000_000 and tool_io.HTTP_S == 30 and tool_io.MAX_HOPS == 5
