"""The adapters against servers that others wrote, where they are installed.

`@copilotkit/aimock` (npm; OpenAI, Anthropic) is found as $TACHOGRAPH_AIMOCK or `aimock`, `llmock`
(PyPI; OpenAI, Anthropic, broken streams) as $TACHOGRAPH_LLMOCK or `llmock`.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tachograph.fail.errors import InvalidModelOutput, ModelError, TransientModelError
from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.models.types import read_reply
from tests.providers.asking import asked, opened
from tests.providers.test_sdk_sessions import canonical_run, canonical_turns, essence
from tests.support import ROOT, environment

START_S = 20
BASES = {
    "aimock": {"openai": "/v1", "anthropic": "", "ollama": "/v1"},
    "llmock": {"openai": "/v1", "anthropic": "/anthropic"},
}


def command(variable: str, name: str, says: str) -> str:
    """The program to start, told from another of the same name by what its help says."""
    found = os.environ.get(variable) or shutil.which(name)
    if not found:
        pytest.skip(f"{name} is not installed")
    shown = subprocess.run([found, "--help"], capture_output=True, text=True, timeout=START_S, check=False)
    if says not in shown.stdout + shown.stderr:
        pytest.skip(f"{name} is another program")
    return found


@contextmanager
def serving(program: Sequence[str], port: int) -> Iterator[str]:
    """The address of a server in a process of its own."""
    with subprocess.Popen(
        program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()
    ) as process:
        try:
            limit = time.monotonic() + START_S
            while time.monotonic() < limit:
                assert process.poll() is None, f"{program[0]} ended with {process.returncode}"
                with closing(socket.socket()) as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        return int(taken.getsockname()[1])


def question(text: str) -> Any:
    return asked({"role": "user", "content": text})


# ---- aimock ------------------------------------------------------------------------------------------------


def fixtures() -> dict[str, Any]:
    """The canonical task by turns, and one question for each other case."""
    found: list[dict[str, Any]] = []
    for i, turn in enumerate(canonical_turns()):
        calls = [{"name": name, "arguments": text} for name, text in turn.calls]
        response: dict[str, Any] = {"content": turn.text}
        if calls:
            response["toolCalls"] = calls
        read, written = turn.usage or (0, 0)
        usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        usage |= {"input_tokens": read, "output_tokens": written}
        match = {"userMessage": "What must a driver do", "turnIndex": i}
        found.append({"match": match, "response": response | {"usage": usage}})
    error = {"message": "later", "type": "rate_limit_error"}
    found += [
        {"match": {"userMessage": "busy"}, "response": {"error": error, "status": 429, "retryAfter": 7}},
        {
            "match": {"userMessage": "overloaded"},
            "response": {"error": {"message": "later", "type": "overloaded_error"}, "status": 529},
        },
        {
            # it resets the connection, which loses what was not read by then: so it writes slowly
            "match": {"userMessage": "cut"},
            "response": {"content": "x" * 400},
            "latency": 30,
            "truncateAfterChunks": 4,
        },
        {
            "match": {"userMessage": "think"},
            "response": {
                "content": "I look.",
                "toolCalls": [{"name": "search", "arguments": '{"query": "a"}'}],
                "reasoning": "first this",
                "reasoningSignature": "c2lnbmVk",
            },
        },
    ]
    return {"fixtures": found}


@pytest.fixture(scope="module")
def aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = command("TACHOGRAPH_AIMOCK", "aimock", "aimock")
    folder = tmp_path_factory.mktemp("aimock")
    (folder / "fixtures.json").write_text(json.dumps(fixtures()), encoding="utf-8")
    settings = {"llm": {"fixtures": str(folder / "fixtures.json")}}
    (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    port = free_port()
    with serving([program, "--config", str(folder / "config.json"), "--port", str(port)], port) as url:
        yield url


@pytest.mark.parametrize("stream", [True, False])
def test_aimock_canonical_task(aimock: str, provider: str, stream: bool, tmp_path: Path) -> None:
    recorded = (ROOT / "runs/canonical/v1/state.jsonl").read_text(encoding="utf-8").splitlines()
    adapter = opened(provider, aimock + BASES["aimock"][provider], stream=stream)
    lines = canonical_run(adapter, tmp_path / "state.jsonl")
    wanted = [essence(json.loads(line)) for line in recorded[1:-1]]
    for found, same in zip([essence(line) for line in lines[1:-1]], wanted, strict=True):
        found[0].pop("usage")
        same[0].pop("usage")
        # how many tokens it counts is the server's own affair, and the budget goes by them
        assert found[0] == same[0] and found[2:5] == same[2:5]
        assert found[1]["digest"] == same[1]["digest"]
    assert lines[-1]["final_answer"] == json.loads(recorded[-1])["final_answer"]


def test_aimock_failures(aimock: str, provider: str) -> None:
    adapter = opened(provider, aimock + BASES["aimock"][provider])
    with pytest.raises(TransientModelError, match="answered 429") as caught:
        adapter(question("busy"))
    assert caught.value.retry_after_ms == 7000
    with pytest.raises(TransientModelError, match="answered 529"):
        adapter(question("overloaded"))
    with pytest.raises(ModelError) as cut:
        adapter(question("cut"))
    assert type(cut.value) is ModelError and "in the middle of a reply" in str(cut.value)


def test_aimock_thinking_comes_back_as_it_was(aimock: str) -> None:
    pytest.importorskip("anthropic")
    adapter = opened("anthropic", aimock)
    output = adapter(question("think"))
    reply = read_reply(output, 1, Redactor([]))
    assert reply.raw is not None and reply.text == "I look."
    calls = [{"id": "tc_1_0", "name": "search", "arguments": '{"query":"a"}'}]
    turn = {"role": "assistant", "content": "I look.", "tool_calls": calls, "raw": reply.raw.value()}
    result = {"role": "tool", "tool_call_id": "tc_1_0", "name": "search", "content": "{}"}
    sent = adapter.request(asked({"role": "user", "content": "think"}, turn, result))["messages"]
    assert sent[1]["content"][0] == {"type": "thinking", "thinking": "first this", "signature": "c2lnbmVk"}
    assert [block["type"] for block in sent[1]["content"]] == ["thinking", "text", "tool_use"]
    assert adapter(asked({"role": "user", "content": "think"}, turn, result)).tool_calls


# ---- llmock ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def llmock() -> Iterator[str]:
    program = command("TACHOGRAPH_LLMOCK", "llmock", "Chaos engineering")
    port = free_port()
    with serving([program, "serve", "--port", str(port), "--log-level", "warning"], port) as url:
        yield url


@pytest.fixture(params=BASES["llmock"])
def scripted(llmock: str, request: pytest.FixtureRequest) -> Any:
    """Asks one provider's adapter once, after the server was told how to behave."""
    pytest.importorskip(request.param)

    def ask(*behaviors: dict[str, Any], **options: Any) -> Any:
        _post(f"{llmock}/_llmock/reset", {})
        _post(f"{llmock}/_llmock/scenario", {"behaviors": list(behaviors)})
        return opened(request.param, llmock + BASES["llmock"][request.param], **options)(asked())

    return ask


def _post(url: str, data: dict[str, Any]) -> None:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(data).encode(), headers, method="POST")
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10):
        pass


CALL = {"type": "reply", "text": "I look.", "tool_calls": [{"name": "search", "arguments": {"query": "a b"}}]}
LONG = {"type": "reply", "text": "word " * 60}


@pytest.mark.parametrize("stream", [True, False])
def test_llmock_text_and_calls(scripted: Any, stream: bool) -> None:
    reply = read_reply(scripted(CALL, stream=stream), 1, Redactor([]))
    assert reply.problem is None and reply.finish_reason == "tool_calls"
    (call,) = reply.calls
    assert call.name == "search" and call.arguments is not None
    assert call.arguments.value() == {"query": "a b"}
    output = scripted({"type": "reply", "text": "Sleep in the cab."}, stream=stream)
    assert output.final_answer == "Sleep in the cab." and output.finish_reason == "stop"
    assert output.usage is not None and output.usage["output_tokens"] > 0


def test_llmock_broken_calls(scripted: Any) -> None:
    reply = read_reply(scripted({"type": "tool_fault", "kind": "malformed_arguments"}), 1, Redactor([]))
    assert reply.calls[0].arguments is None and reply.calls[0].problem
    reply = read_reply(scripted({"type": "tool_fault", "kind": "unknown_tool"}), 1, Redactor([]))
    assert reply.calls[0].name != "search"


@pytest.mark.parametrize("status", [429, 500, 503, 529])
def test_llmock_busy(scripted: Any, status: int) -> None:
    with pytest.raises(TransientModelError) as caught:
        scripted({"type": "fail", "status": status, "retry_after": 2})
    assert caught.value.retry_after_ms == 2000


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413])
def test_llmock_refusals(scripted: Any, status: int) -> None:
    with pytest.raises(ModelError) as caught:
        scripted({"type": "fail", "status": status})
    assert type(caught.value) is ModelError


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("disconnect", ModelError),
        ("truncate", ModelError),
        ("stall", ModelError),
        ("malformed", InvalidModelOutput),
    ],
)
def test_llmock_broken_streams(scripted: Any, kind: str, wanted: type[Exception]) -> None:
    with pytest.raises(wanted) as caught:
        scripted(LONG, {"type": "stream_fault", "kind": kind, "after_chunks": 5}, timeout_s=0.4)
    assert type(caught.value) is wanted


def test_llmock_slow(scripted: Any) -> None:
    with pytest.raises(TimeoutError):
        scripted({"type": "delay", "seconds": 1}, timeout_s=0.3)
