"""Incidents about the network: hosts compared as text, names resolved twice, redirects followed unasked."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tachograph import LLMOutput, ToolCall, ToolError
from tachograph.runtime.tools.contract import Tool
from tachograph.runtime.workspace import http
from tests.corpora.internet import HOST, PUBLIC, Internet, fetched, opened, page
from tests.corpora.test_incidents import incident
from tests.support import OUTPUT, Ran, answer, ask, perform, policy_data, probe, tool

PAGES = {"/": page(200, "ok"), "/docs/a": page(200, "ok")}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    with opened(tmp_path_factory.mktemp("home")) as net:
        yield net


@pytest.fixture
def internet(world: Internet) -> Internet:
    """Two names at one public address, of which the policy allows the first."""
    world.reset({HOST: [[PUBLIC]], "evil.test": [[PUBLIC]]}, PAGES)
    return world


def _denied(ran: Ran) -> bool:
    return [d["rule_id"] for d in ran.decisions if d["decision"] == "deny"] == ["url_allowlist"]


def _refused(internet: Internet, *urls: str, **how: Any) -> None:
    """No URL is allowed, and nobody is even asked for an address."""
    for url in urls:
        assert _denied(fetched(url, **how)), url
    assert (internet.asked, internet.connected) == ([], [])


# ---- hosts compared as text ----------------------------------------------------------------------------------


@incident("CVE-2026-24052")
def test_a_host_that_begins_like_an_allowed_one_is_another(incident: str, internet: Internet) -> None:
    hosts = [
        f"{HOST}.evil.test",
        f"{HOST}evil.test",
        f"{HOST}-evil.test",
        f"{HOST}@evil.test",
        f"{HOST}%2eevil.test",
    ]
    _refused(internet, *(f"{scheme}://{host}/" for host in hosts for scheme in ("http", "https")))
    _refused(internet, f"http://evil.test/{HOST}", f"http://evil.test#{HOST}", f"http://evil.test?{HOST}")
    assert fetched(f"http://{HOST}/").result.ok


@incident("CVE-2024-0243 / CVE-2025-2828")
def test_a_prefix_covers_whole_segments_of_one_host(incident: str, internet: Internet) -> None:
    paths = [
        "docs-private/a",
        "docsa",
        "docs/../admin",
        "docs/%2e%2e/admin",
        "docs/..%2fadmin",
        "docs/;/../admin",
        "",
    ]
    docs = {"hosts": [f"{HOST}/docs"]}
    _refused(internet, *(f"http://{HOST}/{path}" for path in paths), **docs)
    _refused(
        internet,
        f"http://evil.test/{HOST}/docs",
        "http://169.254.169.254/docs",
        "http://127.0.0.1/docs",
        **docs,
    )
    assert fetched(f"http://{HOST}/docs/a", **docs).result.ok
    for name in ("uri", "href", "base_url", "webhook", "endpoint"):
        schema = {"type": "object", "additionalProperties": False, "properties": {name: {"type": "string"}}}
        with pytest.raises(ToolError):
            Tool("request", "", schema, OUTPUT, "network", True, lambda args, io: {})


@incident("Guan 2026 (SOCKS5 NUL)")
def test_a_name_with_a_nul_is_no_name(incident: str, internet: Internet) -> None:
    for name in (f"evil.test\0.{HOST}", f"evil.test%00.{HOST}", "evil.test\0", f"{HOST}\0.evil.test"):
        _refused(internet, f"http://{name}/")
        with pytest.raises(ValueError, match="character"):
            http.request(http.RequestParts(), "http", name, 80, "/", allowed=lambda address: True)
    internet.pages = {"/r": page(302, "", f"http://evil.test\0.{HOST}/")}
    ran = fetched(f"http://{HOST}/r")
    assert not ran.result.ok and {*internet.asked} == {HOST}


@incident("PraisonAI#1578")
def test_a_backslash_makes_no_second_reading_of_a_url(incident: str, internet: Internet) -> None:
    urls = [
        "http://127.0.0.1:6666\\@1.1.1.1",
        "http://127.0.0.1\\@1.1.1.1/",
        "http:\\\\1.1.1.1/",
        "http://1.1.1.1\\.evil.test/",
    ]
    urls += ["http://127.0.0.1:6666\\\\@1.1.1.1/", "http://1.1.1.1/\\..\\x", "http://evil.test\\1.1.1.1/"]
    _refused(internet, *urls, hosts=["1.1.1.1"])
    assert fetched("http://1.1.1.1/", hosts=["1.1.1.1"]).result.ok
    assert internet.connected == [("1.1.1.1", 80)]


@incident("CVE-2023-24329, CVE-2024-11168, CVE-2025-0938 (ids from memory)")
def test_what_a_lenient_parser_takes_for_another_host_is_refused(incident: str, internet: Internet) -> None:
    blanks = [f"{blank}http://evil.test/" for blank in (" ", "\t", "\n", "\x0b", "\x1f", "\u00a0")]
    brackets = [
        f"http://[{HOST}]/",
        f"http://{HOST}[evil.test]/",
        f"http://[::1]{HOST}/",
        f"http://[v1.{HOST}]/",
    ]
    brackets += [
        f"http://{HOST}]/",
        f"http://[{HOST}/",
        f"http://{HOST}[/",
        f"http://e[vil].{HOST}/",
        "http://[::1%251]/",
    ]
    _refused(internet, *blanks, *(f" http://{HOST}/", f"http://{HOST}\t/"), *brackets)


# ---- names resolved twice --------------------------------------------------------------------------------------


@incident("CVE-2025-66416")
def test_a_name_that_moves_is_held_to_the_address_that_was_checked(incident: str, internet: Internet) -> None:
    """The protection needs no setting: a policy that says nothing of networks has it."""
    internet.names = {HOST: [[PUBLIC], ["127.0.0.1"]]}
    assert fetched(f"http://{HOST}/", private_networks=None).result.ok
    assert (internet.asked, internet.connected) == ([HOST], [(PUBLIC, 80)])
    for private in ("127.0.0.1", "10.0.0.1", "169.254.169.254", "0.0.0.0", "::1", "::ffff:127.0.0.1"):
        internet.reset({HOST: [[private], [PUBLIC]]}, PAGES)
        assert _denied(fetched(f"http://{HOST}/", private_networks=None)), private
        assert (internet.asked, internet.connected) == ([HOST], [])


@incident("CVE-2026-26013 / CVE-2026-41488")
def test_there_is_one_way_to_fetch_and_it_asks_once(
    incident: str, internet: Internet, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside: list[Any] = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *of, **_: outside.append(of) or [])
    monkeypatch.setattr(socket.socket, "connect", lambda _self, to: outside.append(to))
    seen = f"http://{HOST}/cat.png"
    content = [{"type": "image_url", "image_url": {"url": seen}}]
    said = tool(run=lambda args, io: {"said": f"![cat]({seen}) <img src={seen}>"})
    replies = [
        LLMOutput(text=f"![cat]({seen})", tool_calls=[ToolCall("probe", {})], raw={"content": content}),
        answer(f"![cat]({seen})"),
    ]
    allowed = policy_data(url_allowlist=[f"http://{HOST}"])
    assert perform(replies, [said], allowed).result.ok
    assert (outside, internet.asked, internet.connected) == ([], [], [])
    monkeypatch.undo()
    assert fetched(seen).results[0]["status"] == "ok"
    assert (internet.asked, internet.connected) == ([HOST], [(PUBLIC, 80)])


# ---- checked once, used later ----------------------------------------------------------------------------------


@incident("CVE-2025-31490; crewAI#6520; CVE-2026-42344/44284")
def test_what_was_checked_is_what_is_used(incident: str, internet: Internet) -> None:
    for location in (
        "http://evil.test/",
        "//evil.test/",
        "http://169.254.169.254/",
        "http://127.0.0.1:8080/",
    ):
        internet.reset({HOST: [[PUBLIC]], "evil.test": [[PUBLIC]]}, {"/r": page(302, "", location)})
        ran = fetched(f"http://{HOST}/r")
        assert _denied(ran) and (internet.asked, internet.connected) == ([HOST], [(PUBLIC, 80)])
        assert [span.attributes["agent.policy.phase"] for span in ran.named("policy_check")] == [
            "proposal",
            "execution",
        ]

    # a URL that was fine when a call was proposed says nothing for the one that a tool kept from elsewhere
    internet.reset({HOST: [[PUBLIC]], "evil.test": [[PUBLIC]]}, PAGES)
    kept = {"url": f"http://{HOST}/"}

    def later(args: dict[str, Any], io: Any) -> dict[str, str]:
        said = io.get(kept["url"]).text
        kept["url"] = "http://evil.test/"
        return {"said": said}

    replies = [ask(probe(url=f"http://{HOST}/"), probe(url=f"http://{HOST}/")), answer()]
    ran = perform(replies, [tool(run=later)], policy_data(url_allowlist=[f"http://{HOST}"]))
    assert [r["status"] for r in ran.results] == ["ok", "denied"]
    assert "evil.test" not in internet.asked
