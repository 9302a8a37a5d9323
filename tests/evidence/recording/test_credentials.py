"""A credential of the policy reaches the service, and nothing else: no byte of record, journal, events or output."""

from __future__ import annotations

import json
import logging
import os
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tachograph import record, replay
from tachograph.evidence.checking.verify import verify
from tachograph.fail.errors import InputError
from tachograph.runtime.agent import Agent
from tachograph.runtime.models.types import LLMInput, LLMOutput, ToolCall
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.contract import Tool
from tachograph.runtime.workspace import http
from tachograph.runtime.workspace.credentials import OpenCredentials
from tests.runtime.workspace.test_http import LOOPBACK, made_certificate
from tests.runtime.workspace.test_request import LIMITS, ApiServer, answered

TOKEN = "tok-4711-abcdefghijkl"
CLOSED = {"type": "object", "additionalProperties": False}
TEXT = {**CLOSED, "properties": {"text": {"type": "string"}}}


class Api(ApiServer):
    """A service behind TLS that says back what it was sent, in its body and in its headers."""

    def __init__(self, certificate: Path) -> None:
        super().__init__()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate)

    def answer(self, accepted: Any) -> None:
        assert self.context is not None
        secure = self.context.wrap_socket(accepted, server_side=True)
        self.handler = lambda peer: peer.sendall(self._said())
        super().answer(secure)

    def _said(self) -> bytes:
        _, path = self.asked[-1]
        if path == "/v1/moved":
            return answered(302, "Location: /v1/there")
        if path == "/v1/leads_away":
            return answered(302, f"Location: /v1/there?token={self.sent[-1]}")
        if path == "/v1/broken":
            return b"HTTP/1.1 200 OK\r\n" + self.requests[-1]
        return answered(200, f"X-Echo: {self.sent[-1]}", body=self.requests[-1])

    @property
    def sent(self) -> list[str | None]:
        """The Authorization header of each request."""
        heads = [request.partition(b"\r\n\r\n")[0].decode().split("\r\n") for request in self.requests]
        return [
            next(
                (line.partition(": ")[2] for line in head if line.lower().startswith("authorization:")), None
            )
            for head in heads
        ]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_certificate(tmp_path_factory.mktemp("tls"), "-addext", "subjectAltName=DNS:name.test")


@pytest.fixture
def api(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    server = Api(certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setattr(http, "_addresses", lambda *_: [LOOPBACK])
    monkeypatch.setenv("EXAMPLE_TOKEN", TOKEN)
    yield server
    server.stop()


Use = Callable[[Any, str], Any]


def agent_of(
    api: Api, use: Use, seen: list[str] | None = None, look: Path | None = None, **credential: str
) -> Agent:
    """An agent with a live model and one external tool, which does what `use` does with the API's address."""
    base = f"https://name.test:{api.port}"

    def run(_arguments: dict[str, Any], io: Any) -> dict[str, Any]:
        return {"text": str(use(io, base))}

    def model(asked: LLMInput) -> LLMOutput:
        heard.append(repr(asked.messages))
        for path in look.rglob("*") if look is not None else ():  # while the run is under way
            heard.append(f"{path.name}: " + (path.read_bytes().decode("latin-1") if path.is_file() else ""))
        if len(asked.messages) == 1:
            return LLMOutput(tool_calls=[ToolCall("probe", "{}")])
        return LLMOutput(final_answer="done")

    heard = [] if seen is None else seen
    policy = Policy.from_dict(
        {
            "schema": "policy/v1",
            "tool_registry": {"allowed": ["probe"]},
            "url_allowlist": [{"url": f"{base}/v1/", "methods": ["GET", "POST"]}],
            "credentials": {
                f"name.test:{api.port}": {
                    "header": "Authorization",
                    "from_env": "EXAMPLE_TOKEN",
                    **credential,
                }
            },
            "private_networks": ["127.0.0.0/8"],
            "on_failure": "inform",
            "redact": {"off": True},
            **LIMITS,
        }
    )
    return Agent(model, [Tool("probe", "Ask.", CLOSED, TEXT, "external", False, run)], policy)


def use_everything(io: Any, base: str) -> str:
    """Ask for an echo, follow a redirect, meet a broken answer."""
    found = io.request("POST", f"{base}/v1/x", {"X-Mine": "1"}, "body")
    io.request("GET", f"{base}/v1/moved")
    try:
        io.request("GET", f"{base}/v1/broken")
    except ConnectionError as error:
        told = f"{found.text} {found.headers} {found.url} {error} {vars(io)}"
        assert TOKEN not in found.text + str(found.headers) + str(error)
        return f"{told} {os.environ['EXAMPLE_TOKEN']}"  # a tool is trusted code
    raise AssertionError("the answer was not broken")


@pytest.mark.parametrize("scheme", [None, "Bearer"])
def test_the_credential_reaches_the_service_and_no_byte_besides(
    api: Api,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    scheme: str | None,
) -> None:
    caplog.set_level(logging.DEBUG)
    seen: list[str] = []
    agent = agent_of(api, use_everything, seen, tmp_path, **({} if scheme is None else {"scheme": scheme}))
    events: list[str] = []

    result = record(agent, "?", out=tmp_path / "run", listeners=[lambda event: events.append(repr(event))])
    assert result.answer == "done", result.steps
    header = TOKEN if scheme is None else f"{scheme} {TOKEN}"
    assert api.sent == [header, header, None, header]  # the redirect's target gets none
    said = capfd.readouterr()
    texts = [*events, said.out, said.err, caplog.text, repr(result), str([dict(s) for s in result.steps])]
    texts += seen
    assert events and any("journal" in text.partition(":")[0] for text in seen)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"state.jsonl", "trace.json", "run_report.md", "manifest.json"} <= {path.name for path in files}
    for text in texts:
        assert TOKEN not in text
    for path in files:
        assert TOKEN.encode() not in path.read_bytes(), path
    ledger = (tmp_path / "run" / "state.jsonl").read_text()
    assert "<credential:EXAMPLE_TOKEN>" in ledger and "<secret:credential:1>" in ledger
    assert '"credential":"authorization"' in ledger
    assert verify(tmp_path / "run", tmp_path) == []
    monkeypatch.delenv("EXAMPLE_TOKEN")  # a record answers without it
    assert replay(agent, tmp_path / "run").ok and len(api.sent) == 4


@pytest.mark.parametrize("path", ["x", "leads_away"])
def test_what_a_service_says_back_reaches_the_tool_without_the_credential(
    api: Api, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("EXAMPLE_TOKEN", f"Token {TOKEN}")
    found: list[str] = []

    def use(io: Any, base: str) -> int:
        answer = io.request("GET", f"{base}/v1/{path}")
        found.append(answer.text + str(answer.headers))
        return 0

    result = agent_of(api, use).run("?", run_id="r")
    assert api.sent[0] == f"Token {TOKEN}"
    if path == "x":
        assert found[0].count("<credential:EXAMPLE_TOKEN>") == 2 and TOKEN not in found[0]
    else:  # nor does a redirect carry it
        assert api.asked[1] == ("GET", "/v1/there?token=<credential:EXAMPLE_TOKEN>") and api.sent[1] is None
    assert TOKEN not in str(found) + str(result.steps)


def test_a_credential_is_found_however_it_is_escaped() -> None:
    secret = 'k"4/7+\\abcdefgh'
    values = OpenCredentials(values={"A": secret, "B": f"Bearer {secret}x"})
    for said in (
        secret,
        json.dumps(secret),
        json.dumps(secret).replace("/", "\\/"),
        quote(secret),
        quote(secret, ""),
    ):
        assert values.without(f"you sent {said}.").count("<credential:A>") == 1
    assert values.without(f"{secret}x") == "<credential:B>"
    assert values.without("Bearer abcdefgh") == "Bearer abcdefgh"


def test_a_missing_variable_is_one_line_before_the_run(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_of(api, use_everything)
    for value, words in (
        (None, "is not set"),
        ("short", "fewer than 8"),
        ("with\nbreak" + TOKEN, "cannot stand"),
    ):
        if value is None:
            monkeypatch.delenv("EXAMPLE_TOKEN")
        else:
            monkeypatch.setenv("EXAMPLE_TOKEN", value)
        with pytest.raises(InputError, match=words) as refused:
            record(agent, "?", out=tmp_path / "run")
        line = str(refused.value)
        assert "\n" not in line and "EXAMPLE_TOKEN" in line and "<policy>#/credentials/name.test" in line
        assert value is None or value not in line
        assert list(tmp_path.iterdir()) == [] and api.connections == 0


def test_a_tool_that_sets_the_header_itself_is_denied_and_sends_nothing(api: Api) -> None:
    agent = agent_of(api, lambda io, base: io.request("GET", f"{base}/v1/x", {"AUTHORIZATION": "mine"}))
    result = agent.run("?", run_id="r")
    assert result.ending == "policy_denial_terminal" and api.connections == 0
    assert "the policy adds the header" in str(result.why) and "mine" not in str(result.steps)


def test_get_carries_no_credential(api: Api) -> None:
    agent = agent_of(api, lambda io, base: io.get(f"{base}/v1/x").status)
    assert agent.run("?", run_id="r").answer == "done" and api.sent == [None]
