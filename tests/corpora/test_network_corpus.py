"""Redirects, DNS answers and the environment: the real client in a small internet of our own.

Names are resolved from a table, every connection is noted and led to a server on loopback that answers by the
row's script. The corpus allows a host on http and https at their default ports.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tachograph.runtime.workspace import http, web_io
from tests.corpora.internet import HOST, PUBLIC, Internet, fetched, opened, page
from tests.support import Ran


def _rows() -> list[dict[str, Any]]:
    root = os.environ.get("TACHOGRAPH_CORPORA")
    if not root:
        pytest.skip("TACHOGRAPH_CORPORA is not set: the outside corpus of network cases is not at hand")
    text = (Path(root) / "1-url" / "url_network_cases.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


# ---- the internet ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def internet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    with opened(tmp_path_factory.mktemp("home")) as net:
        yield net


@pytest.fixture(scope="module")
def tls(internet: Internet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A server that speaks TLS for the name of the rows, and a client that trusts it alone."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl command to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    both = folder / "both.pem"
    words = f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={HOST}".split()
    words += [
        "-addext",
        f"subjectAltName=DNS:{HOST}",
        "-keyout",
        str(folder / "key"),
        "-out",
        str(folder / "crt"),
    ]
    subprocess.run([openssl, *words], check=True, capture_output=True, timeout=20)
    both.write_text((folder / "key").read_text() + (folder / "crt").read_text())
    with pytest.MonkeyPatch.context() as patched:
        client = internet.speak_tls(both)
        patched.setattr(http, "_tls_context", lambda _given: client)
        yield


def _came_to(ran: Ran) -> str:
    """`allow`, `deny` or `tool-error`."""
    if any(d["decision"] == "deny" for d in ran.decisions):
        return "deny"
    return "allow" if ran.result.ok else "tool-error"


# ---- the rows ----------------------------------------------------------------------------------------------


def _run(row: dict[str, Any], net: Internet, patched: pytest.MonkeyPatch) -> Ran:
    pages, names = {}, row.get("resolver", {HOST: [[PUBLIC]]})
    for hop in row.get("hops", ()):
        location = hop.get("location")
        path = "/" + hop["url"].split("/", 3)[3]
        if location is not None and "\n" in location:
            # a line break would end the header on the wire: here the client hands the value on as it is
            given = http.Response(hop["status"], {"location": location}, b"")
            patched.setattr(http, "request", lambda *_, given=given, **__: given)
            location = None
        pages[path] = page(hop["status"], hop.get("body", ""), location)
    if row["id"] == "net-dns-resolver-timeout":
        patched.setattr(web_io, "HTTP_S", 0.1)
    net.reset(names, {"/": page(200, "ok"), "/plain": page(200, "ok"), **pages})
    return fetched(row["url"] if "url" in row else row["hops"][0]["url"], hosts=row["allowlist"])


def _complaints(row: dict[str, Any], ran: Ran, net: Internet) -> list[str]:
    came_to, out = _came_to(ran), []
    wanted = {row["expect"]} if row["expect"] != "either" else {"allow", "deny", "tool-error"}
    if row["invariant"].startswith("structured tool error or policy denial"):
        wanted |= {"tool-error"} if "deny" in wanted else set()
    if came_to not in wanted:
        out.append(f"came to {came_to}")
    hosts = [
        line.split(": ")[1]
        for text in net.requests
        for line in text.split("\r\n")
        if line.startswith("Host: ")
    ]
    if {*hosts, *net.asked} - {HOST}:
        out.append(f"spoke to or asked for {hosts} {net.asked}")
    allowed = {PUBLIC} if came_to != "deny" or row["class"] == "redirect" else set()
    if {address for address, _ in net.connected} - allowed or {port for _, port in net.connected} - {80, 443}:
        out.append(f"connected to {net.connected}")
    attempts = ran.end["totals"]["attempts"]
    if len(net.asked) != max(len(net.requests), attempts if row["class"] == "dns" else 0):
        out.append(f"asked for an address {len(net.asked)} times")
    if any(word in text for text in net.requests for word in ("CANARY", "Authorization", "Cookie")):
        out.append("credentials were sent")
    if net.proxy.connections:
        out.append("a proxy was used")
    return out + _own_invariant(row, ran, net)


def _own_invariant(row: dict[str, Any], ran: Ran, net: Internet) -> list[str]:
    """What the row's own sentence asks for beyond what holds for all rows."""
    said, name = row["invariant"], row["id"]
    late = [
        span
        for span in ran.named("policy_check")
        if span.attributes["agent.policy.phase"] == "execution"
        and span.attributes["agent.policy.rule_id"] == "url_allowlist"
    ]
    if "two url_allowlist checks" in said:
        checks = [d for d in ran.decisions if d["rule_id"] == "url_allowlist"]
        return [] if len(checks) == 2 and len(net.requests) == 2 else [f"{len(checks)} checks"]
    if "policy_check span" in said or (
        row["class"] == "dns" and row["expect"] == "deny" and "resolve once" in said
    ):
        denied = [span.attributes["agent.policy.decision"] for span in late]
        return [] if denied == ["deny"] else [f"late decisions {denied}"]
    if "never followed" in said:
        return [] if len(net.requests) == 1 and not late else ["followed"]
    if "bounded retry" in said:
        fault = [attempt["outcome"] for attempt in ran.results[0]["attempts"]]
        wanted = ["transient_failure", "transient_failure", "exhausted"]
        return [] if fault == wanted and ran.result.mode == "retry_exhaustion" else [f"attempts {fault}"]
    if "deadline covers DNS" in said:
        return [] if ran.results[0]["attempts"][0]["fault"]["kind"] == "timeout" else ["no time-out"]
    if "search list" in said:
        return [] if not net.asked and not ran.results[0]["attempts"] else ["resolved"]
    known = ("structured tool error", "tool error, no crash", "CANARY", "no credentials", "Host header")
    return [] if said.startswith(known) else [f"{name}: an invariant that nothing here checks"]


def test_shared_corpus(internet: Internet, tls: None) -> None:
    table: dict[str, Counter[str]] = {}
    misses = []
    for row in _rows():
        count = table.setdefault(row["class"], Counter())
        count["rows"] += 1
        try:
            with pytest.MonkeyPatch.context() as patched:
                ran = _run(row, internet, patched)
            found = _complaints(row, ran, internet)
        except Exception as error:  # noqa: BLE001 - the corpus looks for whatever is raised
            count["raises"] += 1
            misses.append((row["id"], repr(error)))
            continue
        count[_came_to(ran)] += 1
        misses += [(row["id"], line) for line in found]
    columns = ("rows", "allow", "deny", "tool-error", "raises")
    print("\n" + f"{'class':12}" + "".join(f"{column:>12}" for column in columns))
    for name, count in sorted(table.items()):
        print(f"{name:12}" + "".join(f"{count[column]:>12}" for column in columns))
    assert sum(count["rows"] for count in table.values()) > 30
    assert not misses


# ---- and without the corpus --------------------------------------------------------------------------------


def test_a_second_hop_is_resolved_and_checked_anew(internet: Internet) -> None:
    internet.reset({HOST: [[PUBLIC], ["127.0.0.1"]]}, {"/r": page(302, "", "/there")})
    ran = fetched(f"http://{HOST}/r")
    assert _came_to(ran) == "deny" and internet.asked == [HOST, HOST]
    assert internet.connected == [(PUBLIC, 80)]
    assert [d["decision"] for d in ran.decisions] == ["allow", "allow", "deny"]


def test_an_address_of_a_network_that_the_policy_names_is_connected_to_as_it_was_checked(
    internet: Internet,
) -> None:
    internet.reset({HOST: [["10.0.0.5"], ["10.0.0.6"]]}, {"/": page(200, "ok")})
    ran = fetched(f"http://{HOST}/", private_networks=["10.0.0.0/29"])
    assert ran.result.ok and (internet.asked, internet.connected) == ([HOST], [("10.0.0.5", 80)])
    internet.reset({HOST: [["10.0.0.5", "10.0.0.8"]]}, {"/": page(200, "ok")})
    assert _came_to(fetched(f"http://{HOST}/", private_networks=["10.0.0.0/29"])) == "deny"
    assert internet.connected == []


def test_host_header_and_server_name_stay_the_name_of_the_url(internet: Internet, tls: None) -> None:
    internet.reset({HOST: [[PUBLIC]]}, {"/": page(200, "ok")})
    assert fetched(f"https://{HOST}/").result.ok
    assert internet.connected == [(PUBLIC, 443)] and internet.server_names == [HOST]
    assert f"\r\nHost: {HOST}\r\n" in internet.requests[0]
