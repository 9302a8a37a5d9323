"""The official SDKs and what must not happen: a key that comes back, a host that nobody named."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tachograph.fail.errors import ModelError
from tests.providers.asking import LONG, PROVIDERS, asked, failing, opened
from tests.providers.protocols import Turn
from tests.providers.servers import PATHS, Broken, Raw, Reply, Server, Status, body
from tests.support import ROOT, environment

KEYS = {
    "openai": ("OPENAI_API_KEY", "sk-proj-abcdefghijklmnopqrstuvwxyz0123"),
    "anthropic": ("ANTHROPIC_API_KEY", "sk-ant-api03-abcdefghijklmnopqrstuvwxyz"),
    "ollama": ("OLLAMA_API_KEY", "0123456789abcdef.abcdefgh"),
}


@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_a_redirect_takes_the_key_nowhere(provider: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*KEYS[provider])
    with Server([Turn("x")] * 3) as other:
        away = {"Location": f"http://127.0.0.1:{other.port}{PATHS[provider]}"}
        error = failing(provider, ModelError, Status(code, away))
        assert "redirects, which is not followed" in str(error)
        with Server([Status(code, {"Location": PATHS[provider] + "?again"}), Turn("x")]) as server:
            with pytest.raises(ModelError):
                opened(provider, server.base_url(provider))(asked())
            assert len(server.requests) == 1
        assert other.requests == []


EVERY_KIND: tuple[Reply, ...] = (
    LONG,
    Status(401, body=b'{"error": {"message": "bad key KEY", "type": "KEY"}}'),
    Status(503, {"Retry-After": "KEY"}),
    Status(302, {"Location": "/?key=KEY"}),
    Raw(b"HTTP/1.1 KEY\r\n\r\n"),
    Raw(body(b"KEY")),
    Raw(body(b'{"error": {"type": "KEY", "message": "KEY"}}')),
    Raw(b"", then="reset"),
    Broken(LONG, 6, "drop"),
    Broken(LONG, 6, "corrupt"),
    Broken(LONG, 6, "overloaded_error"),
)


def test_no_key_is_in_anything_that_comes_back(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*KEYS[provider])
    key = KEYS[provider][1]

    def with_key(reply: Reply) -> Reply:
        if isinstance(reply, Raw):
            return Raw(reply.data.replace(b"KEY", key.encode()), then=reply.then)
        if isinstance(reply, Status):
            headers = {name: value.replace("KEY", key) for name, value in reply.headers.items()}
            return Status(reply.code, headers, reply.body.replace(b"KEY", key.encode()))
        return reply

    with Server([with_key(reply) for reply in EVERY_KIND]) as server:
        adapter = opened(provider, server.base_url(provider))
        assert any(value == key for _, value in adapter.secrets)
        came: list[str] = [repr(adapter), repr(adapter.identity), adapter.host]
        for _ in EVERY_KIND:
            try:
                came.append(repr(adapter(asked())))
            except (ModelError, TimeoutError) as error:
                came += [repr(error), repr(vars(error)), repr(error.__cause__), repr(error.__context__)]
        assert all(key in request.headers["authorization"] for request in server.requests)
    assert key not in "\n".join(came)
    assert len(came) > len(EVERY_KIND)


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_ollama_is_asked_at_its_chat_completions_without_the_headers_of_openai(
    suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openai")
    monkeypatch.setenv("OPENAI_API_KEY", KEYS["openai"][1])
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-mine")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-of-mine")
    monkeypatch.setenv(
        "OPENAI_CUSTOM_HEADERS", "X-Gateway-Key: gateway-key-of-mine\nAuthorization: Bearer other"
    )
    with Server([Turn("x"), Turn("x")]) as server:
        place = f"http://127.0.0.1:{server.port}{suffix}"
        assert opened("ollama", place)(asked()).final_answer == "x"
        monkeypatch.setenv(*KEYS["ollama"])
        assert opened("ollama", place)(asked()).final_answer == "x"
        plain, keyed = server.requests
    assert plain.path == keyed.path == "/v1/chat/completions"
    assert "authorization" not in plain.headers
    assert keyed.headers["authorization"] == f"Bearer {KEYS['ollama'][1]}"
    for request in (plain, keyed):
        assert not any("of-mine" in value or "sk-" in value for value in request.headers.values())


WATCHED = """
import sys
seen = []
def hook(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "subprocess.Popen", "os.system"):
        seen.append((event, str(args[1] if event == "socket.connect" else args[:2])))
sys.addaudithook(hook)
from tests.providers.asking import asked, opened
for provider, url in zip(sys.argv[1::2], sys.argv[2::2]):
    print(repr(opened(provider, url)(asked()).final_answer))
for event, what in sorted(set(seen)):
    print(event, what)
"""


def test_nobody_else_is_contacted() -> None:
    for provider in PROVIDERS:
        pytest.importorskip(provider)
    with Server([Turn("x")] * 3) as server:
        named = [word for provider in PROVIDERS for word in (provider, server.base_url(provider))]
        done = subprocess.run(
            [sys.executable, "-c", WATCHED, *named],
            cwd=ROOT,
            env=environment() | {"HTTP_PROXY": "http://127.0.0.1:9", "ALL_PROXY": "http://127.0.0.1:9"},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        port = server.port
    assert done.stdout.splitlines()[:3] == ["'x'"] * 3, done.stderr
    # one SDK asks the system for the processor's name; no other program is run
    assert [line for line in done.stdout.splitlines()[3:] if "'uname'" not in line] == [
        f"socket.connect ('127.0.0.1', {port})",
        f"socket.getaddrinfo ('127.0.0.1', {port})",
    ]


def test_a_proxy_is_used_for_a_host_that_is_not_this_one(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server([Status(418)]) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        with pytest.raises(ModelError, match=r"^llm\.invalid answered 418$"):
            opened(provider, "http://llm.invalid/v1")(asked())
        assert proxy.requests[0].path.startswith("http://llm.invalid/v1/")
