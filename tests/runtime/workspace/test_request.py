"""`io.request` against a server on loopback: what is sent, what is decided, what is followed and what is not."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tachograph.runtime.agent import Agent
from tachograph.runtime.core.clock import VirtualClock
from tachograph.runtime.models.types import LLMOutput, ToolCall
from tachograph.runtime.policy.gate import Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.resources.http_methods import METHODS
from tachograph.runtime.tools.contract import USES, Tool
from tachograph.runtime.tools.isolation import run_isolated
from tachograph.runtime.tools.loader import load_named
from tachograph.runtime.workspace.http_answer import MAX_HEAD
from tachograph.runtime.workspace.mounts import Host, Mount
from tachograph.runtime.workspace.tool_io import IO
from tachograph.runtime.workspace.workspace import Workspace
from tests.runtime.workspace.test_http import LOOPBACK, Server, ok

LIMITS: dict[str, Any] = {
    "loop_budget": {"max_iterations": 9, "max_tokens": 9999, "max_tool_calls": 9, "max_result_bytes": 99_999},
    "cycle_detection": {"max_repeats": 9},
}


class ApiServer(Server):
    """Reads the body of a request too, as long as its length says; answers by the path."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        super().__init__(lambda peer: peer.sendall(self.answers.get(self.asked[-1][1], ok(b"plain"))))

    def answer(self, accepted: socket.socket) -> None:
        with accepted:
            request = b""
            while b"\r\n\r\n" not in request or len(request.partition(b"\r\n\r\n")[2]) < _length(request):
                piece = accepted.recv(65_536)
                if not piece:
                    return
                request += piece
            self.requests.append(request)
            self.handler(accepted)

    @property
    def asked(self) -> list[tuple[str, str]]:
        """Method and path of each request."""
        return [
            (request.split(b" ")[0].decode(), request.split(b" ")[1].decode()) for request in self.requests
        ]


def _length(request: bytes) -> int:
    head = request.partition(b"\r\n\r\n")[0].decode().lower()
    return next(
        (int(line.partition(":")[2]) for line in head.split("\r\n") if line.startswith("content-length")), 0
    )


class Net:
    """A server that the policy allows with all methods below /v1, and with GET and HEAD elsewhere."""

    def __init__(self) -> None:
        self.server, self.other = ApiServer(), ApiServer()
        self.base = f"http://{LOOPBACK}:{self.server.port}"
        self.policy = Policy.from_dict(
            {
                "schema": "policy/v1",
                "tool_registry": {"allowed": ["probe"]},
                "url_allowlist": [
                    f"{self.base}/",
                    {"url": f"{self.base}/v1/", "methods": [*METHODS]},
                    f"http://{LOOPBACK}:{self.other.port}/",
                ],
                "private_networks": ["127.0.0.0/8"],
                **LIMITS,
            }
        )
        self.gate = Gate(self.policy, {})

    def io(self, effect: str = "external") -> IO:
        return Workspace({}).io(lambda check, _keep: self.gate.decide_late(check), "key", USES[effect])


@pytest.fixture
def net() -> Iterator[Net]:
    made = Net()
    yield made
    made.server.stop()
    made.other.stop()


def answered(status: int, *fields: str, body: bytes = b"") -> bytes:
    head = "".join(f"{field}\r\n" for field in fields)
    return f"HTTP/1.1 {status} X\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def test_a_request_is_sent_as_it_was_given(net: Net) -> None:
    net.server.answers["/v1/orders?x=1"] = answered(201, "Content-Type: application/json", body=b'{"id":7}')
    io = net.io()
    url = f"{net.base}/v1/orders?x=1"
    found = io.request("POST", url, {"Content-Type": "application/json", "user-agent": "mine"}, '{"é":1}')
    assert (found.status, found.text, found.url) == (201, '{"id":7}', url)
    assert found.headers["content-type"] == "application/json"
    head, _, body = net.server.requests[0].partition(b"\r\n\r\n")
    assert head.decode().split("\r\n") == [
        "POST /v1/orders?x=1 HTTP/1.1",
        f"Host: {LOOPBACK}:{net.server.port}",
        "Accept: */*",
        "Accept-Encoding: gzip, identity",
        "Connection: close",
        "Content-Type: application/json",
        "user-agent: mine",
        "Content-Length: 8",
    ]
    assert body.decode() == '{"é":1}'
    assert io.checks == [{"rule": "url_allowlist", "target": url, "hop": 0, "method": "POST"}]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_arrives(net: Net, method: str) -> None:
    found = net.io().request(method, f"{net.base}/v1/x")
    assert (found.status, found.text) == (200, "" if method == "HEAD" else "plain")
    assert net.server.asked == [(method, "/v1/x")]
    assert (b"Content-Length: 0" in net.server.requests[0]) == (method in ("POST", "PUT", "PATCH"))


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_an_entry_without_methods_allows_no_other_than_get_and_head(net: Net, method: str) -> None:
    io = net.io()
    with pytest.raises(PermissionError, match="url_allowlist"):
        io.request(method, f"{net.base}/x", body=None)
    assert io.denied and net.server.connections == 0
    decision = net.gate.decide_late(io.checks[0])
    assert decision.reason == f'"{net.base}" is not in url_allowlist for "{method}"'
    assert decision.at == f"<policy>#/url_allowlist/{net.base.replace('/', '~1')}~1"
    for allowed in ("GET", "HEAD"):
        assert net.io().request(allowed, f"{net.base}/x").status == 200


@pytest.mark.parametrize("effect", ["pure", "read", "write", "network"])
def test_a_method_that_may_change_something_needs_an_external_tool(net: Net, effect: str) -> None:
    io = net.io(effect)
    with pytest.raises(PermissionError, match="effect kind"):
        io.request("POST", f"{net.base}/v1/x")
    assert io.undeclared == "request:POST" and net.server.connections == 0 and not io.checks
    if effect == "network":
        assert net.io(effect).request("HEAD", f"{net.base}/v1/x").status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"a b": "x"}, {"a:": "x"}, {"": "x"}, {"a\r\nb": "x"}, {"a": "x\r\nb: c"}, {"a": "x\n"}, {"a": "x\0"},
        {"a": " x"}, {"a": "é"}, {"a": "1", "A": "2"}, {f"a{i}": "x" for i in range(51)}, {"a": "x" * 16_384},
        {"Host": "evil.test"}, {"Content-Length": "0"}, {"Transfer-Encoding": "chunked"}, {"Connection": "x"},
        {"TE": "trailers"}, {"Upgrade": "h2c"}, {"Expect": "100-continue"}, {"Accept-Encoding": "br"},
        {"X-HTTP-Method-Override": "DELETE"}, {"X-Original-URL": "/admin"}, {"x-forwarded-host": "evil.test"},
        {"Proxy-Authorization": "x"},
    ],
)  # fmt: skip
def test_a_header_that_is_not_a_tools_to_set_is_refused_before_anything(
    net: Net, headers: dict[str, str]
) -> None:
    io = net.io()
    with pytest.raises(ValueError, match="header"):
        io.request("GET", f"{net.base}/v1/x", headers)
    assert net.server.connections == 0 and not io.checks


@pytest.mark.parametrize(
    ("method", "headers", "body", "error"),
    [
        ("get", None, None, ValueError), ("TRACE", None, None, ValueError), ("CONNECT", None, None, ValueError),
        ("GET\r\n", None, None, ValueError), (b"GET", None, None, ValueError), ("GET", {"a": 1}, None, TypeError),
        ("GET", {1: "a"}, None, TypeError), ("POST", None, b"x", TypeError), ("GET", None, "x", ValueError),
        ("HEAD", None, "", ValueError), ("POST", None, "x" * 8_000_001, ValueError),
        ("POST", None, "é" * 4_000_001, ValueError),
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused_before_anything(
    net: Net, method: Any, headers: Any, body: Any, error: type[Exception]
) -> None:
    io = net.io()
    with pytest.raises(error):
        io.request(method, f"{net.base}/v1/x", headers, body)
    assert net.server.connections == 0 and not io.checks


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_a_redirect_of_another_method_is_an_answer(net: Net, method: str, status: int) -> None:
    net.server.answers["/v1/x"] = answered(status, "Location: /v1/y", body=b"there")
    found = net.io().request(method, f"{net.base}/v1/x")
    assert (found.status, found.headers["location"], found.text) == (status, "/v1/y", "there")
    assert net.server.asked == [(method, "/v1/x")]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_redirect_of_get_and_head_is_followed_with_the_method(net: Net, method: str) -> None:
    net.server.answers["/v1/x"] = answered(303, "Location: /v1/y")
    io = net.io()
    assert io.request(method, f"{net.base}/v1/x", {"X-Mine": "1"}).url == f"{net.base}/v1/y"
    assert net.server.asked == [(method, "/v1/x"), (method, "/v1/y")]
    assert all(b"X-Mine: 1" in request for request in net.server.requests)
    assert [(check["hop"], check["method"]) for check in io.checks] == [(0, method), (1, method)]


def test_headers_stay_behind_where_a_redirect_leads_to_another_host(net: Net) -> None:
    there = f"http://{LOOPBACK}:{net.other.port}/y"
    net.server.answers["/v1/x"] = answered(302, f"Location: {there}")
    net.other.answers["/y"] = answered(302, f"Location: {net.base}/v1/z")
    io = net.io()
    assert io.request("GET", f"{net.base}/v1/x", {"X-Mine": "1"}).url == f"{net.base}/v1/z"
    first, last = net.server.requests
    assert b"X-Mine" in first and b"X-Mine" not in last and b"X-Mine" not in net.other.requests[0]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_only_what_may_be_repeated_is_a_transient_error(net: Net, status: int) -> None:
    net.server.answers["/v1/x"] = answered(status, body=b"why")
    for method in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE"):
        with pytest.raises(ConnectionError, match="transient"):
            net.io().request(method, f"{net.base}/v1/x")
    for method in ("POST", "PATCH"):
        found = net.io().request(method, f"{net.base}/v1/x")
        assert (found.status, found.text) == (status, "why")


@pytest.mark.parametrize("first", ["POST", "GET", "write", "none"])
def test_a_refused_connection_proves_nothing_after_something_was_done(
    net: Net, first: str, tmp_path: Path
) -> None:
    with socket.socket() as unused:  # nobody listens there
        unused.bind((LOOPBACK, 0))
        refuses = f"http://{LOOPBACK}:{unused.getsockname()[1]}"
        data = dict(net.policy.data, retry={"max_retries": 2, "backoff_base_ms": 1, "backoff_cap_ms": 1})
        data |= {"sandbox": {"mounts": {"box": "write"}}}
        data["url_allowlist"] = [{"url": f"{net.base}/v1/", "methods": ["GET", "POST"]}, f"{refuses}/"]
        tried: list[int] = []

        def run(_arguments: dict[str, Any], io: IO) -> dict[str, Any]:
            tried.append(1)
            if first == "write":
                io.write("box/x", "done")
            elif first != "none":
                io.request(first, f"{net.base}/v1/x")
            io.get(f"{refuses}/")
            return {}

        schema = {"type": "object", "additionalProperties": False}
        tool = Tool("probe", "Ask.", schema, schema, "external", False, run, transient=(ConnectionError,))
        box = {"box": Mount(tmp_path, "box", "write")}
        agent = Agent(
            lambda _: LLMOutput(tool_calls=[ToolCall("probe", "{}")]),
            [tool],
            Policy.from_dict(data),
            mounts=box,
        )
        result = agent.run("?", run_id="r", clock=VirtualClock())
    assert len(tried) == (1 if first in ("POST", "write") else 3)
    assert result.ending == "failure_mode_terminal"


def test_a_refused_request_did_nothing(net: Net) -> None:
    net.server.stop()
    io = net.io()
    with pytest.raises(ConnectionRefusedError):
        io.request("POST", f"{net.base}/v1/x", body="pay")
    assert not io.may_have_acted


def test_an_answer_to_head_names_a_length_and_has_no_body(net: Net) -> None:
    net.server.answers["/v1/x"] = b"HTTP/1.1 200 OK\r\nContent-Length: 99000000\r\n\r\n"
    found = net.io().request("HEAD", f"{net.base}/v1/x")
    assert (found.headers["content-length"], found.text) == ("99000000", "")


def test_an_answer_is_bounded(net: Net) -> None:
    for answer in (
        b"HTTP/1.1 200 OK\r\nContent-Length: 8000001\r\n\r\n",
        b"HTTP/1.1 500 X\r\nx: " + b"x" * MAX_HEAD,
        answered(200, "Content-Encoding: gzip", body=gzip.compress(bytes(8_000_001))),
    ):
        net.server.answers["/v1/x"] = answer
        with pytest.raises(OSError, match="too large"):
            net.io().request("POST", f"{net.base}/v1/x")


def test_an_address_is_decided_for_the_method_too(net: Net) -> None:
    data = {**net.policy.data, "private_networks": []}
    gate = Gate(Policy.from_dict({key: value for key, value in data.items() if value}), {})
    io = Workspace({}).io(lambda check, _keep: gate.decide_late(check), "key", USES["external"])
    with pytest.raises(PermissionError):
        io.request("POST", f"{net.base}/v1/x")
    assert io.checks[-1]["address"] == LOOPBACK and io.checks[-1]["method"] == "POST"
    assert net.server.connections == 0


def a_tool(run: Callable[[dict[str, Any], Any], Any], effect: str) -> Tool:
    closed = {"type": "object", "additionalProperties": False}
    opened = {**closed, "properties": {"text": {"type": "string"}}}
    return Tool("probe", "", closed, opened, effect, False, run)


def test_a_run_records_the_method_and_a_denial_of_it(net: Net) -> None:
    def run(_args: dict[str, Any], io: IO) -> dict[str, Any]:
        found = io.request("POST", f"{net.base}/v1/x", {"X-Mine": "value-of-mine"}, "body-of-mine")
        io.request("PUT", f"{net.base}/x")
        return {"text": found.text}

    agent = Agent(
        lambda _asked: LLMOutput(tool_calls=[ToolCall("probe", "{}")]), [a_tool(run, "external")], net.policy
    )
    result = agent.run("?", run_id="r", clock=VirtualClock())
    assert result.ending == "policy_denial_terminal"
    decided = [d for d in result.steps[0]["policy_decisions"] if d["phase"] == "execution"]
    assert [(d["decision"], d["facts"]["method"]) for d in decided] == [("allow", "POST"), ("deny", "PUT")]
    assert "of-mine" not in str(result.steps)
    assert net.server.asked == [("POST", "/v1/x")]


def test_a_method_that_the_kind_does_not_cover_is_a_failure_that_names_it(net: Net) -> None:
    def run(_args: dict[str, Any], io: IO) -> dict[str, Any]:
        io.request("DELETE", f"{net.base}/v1/x")
        return {}

    agent = Agent(
        lambda _asked: LLMOutput(tool_calls=[ToolCall("probe", "{}")]), [a_tool(run, "network")], net.policy
    )
    result = agent.run("?", run_id="r", clock=VirtualClock())
    [attempt] = result.steps[0]["tool_results"][0]["attempts"]
    assert attempt["fault"]["undeclared"] == "io.request:DELETE" and net.server.connections == 0


def test_a_folder_answers_each_method_with_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "orders").write_text("[]")
    (tmp_path / "v1" / "orders.POST").write_text('{"id":7}')
    policy = Policy.from_dict(
        {"schema": "policy/v1", "url_allowlist": [{"url": "https://api.test/v1/", "methods": [*METHODS]}]}
    )
    gate = Gate(policy, {})
    with Workspace({}, {"api.test": Host(tmp_path, "data/api")}, offline=True) as workspace:

        def asked(method: str) -> tuple[int, str]:
            io = workspace.io(lambda check, _keep: gate.decide_late(check), "key", USES["external"])
            found = io.request(method, "https://api.test/v1/orders")
            return found.status, found.text

        assert [asked(method) for method in ("GET", "HEAD", "POST", "PUT")] == [
            (200, "[]"),
            (200, ""),
            (200, '{"id":7}'),
            (404, "not found"),
        ]


MODULE = """
DESCRIPTION = "Ask."
INPUT_SCHEMA = {"type": "object", "additionalProperties": False, "properties": {
    "url": {"type": "string", "x-resource": "url"}, "body": {"type": "string"}}}
OUTPUT_SCHEMA = {"type": "object", "additionalProperties": False, "properties": {
    "status": {"type": "integer"}, "text": {"type": "string"}}}
EFFECT, IDEMPOTENT, TRANSIENT, ISOLATE = "external", False, (), True

def run(args, io):
    found = io.request("POST", args["url"], {"X-Mine": "1"}, args.get("body"))
    return {"status": found.status, "text": found.text}
"""


def test_a_tool_in_a_worker_sends_requests_too(net: Net, tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text(MODULE)
    tool = load_named("probe", tmp_path)
    io, url = net.io(), f"{net.base}/v1/x"
    assert run_isolated(tool, {"url": url, "body": "é"}, io, 20) == {"status": 200, "text": "plain"}
    head, _, body = net.server.requests[0].partition(b"\r\n\r\n")
    assert b"X-Mine: 1" in head and body.decode() == "é"
    assert run_isolated(tool, {"url": url}, io, 20)["status"] == 200
    assert net.server.requests[1].endswith(b"Content-Length: 0\r\n\r\n")
    with pytest.raises(ValueError, match="too large"):
        run_isolated(tool, {"url": url, "body": "x" * 8_000_001}, io, 20)
    assert net.server.connections == 2
