"""The example that the README begins with, through the official SDKs, over a server of ours."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from tests.providers.protocols import Turn
from tests.providers.servers import BASES, Request, Server
from tests.support import ROOT, environment

CODE = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
TURNS = [Turn("", (("opening_hours", '{"depot": "Oslo"}'),)), Turn("From six to ten.")]
BASE = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL", "ollama": "OLLAMA_HOST"}
KEY = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "ollama": "OLLAMA_API_KEY"}


TOLD = """
from tachograph import Agent, record
history = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello."}]
agent = Agent("PROVIDER:some-model", instructions="You answer drivers of {depot}.")
result = record(agent, "When?", out="run", variables={"depot": "Oslo"}, history=history)
print(result.answer)
"""


def asked(code: str, provider: str, folder: Path, turns: list[Turn]) -> list[Request]:
    """What a server is sent by a program, which prints the answer."""
    with Server(turns) as server:
        address = f"http://127.0.0.1:{server.port}{'' if provider == 'ollama' else BASES[provider]}"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            env=environment({BASE[provider]: address, KEY[provider]: "key-of-a-test-0123456789"}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stdout) == (0, "From six to ten.\n"), done.stderr
    return server.requests


def test_instructions_are_the_system_message_before_the_history(provider: str, tmp_path: Path) -> None:
    (request,) = asked(TOLD.replace("PROVIDER", provider), provider, tmp_path, TURNS[1:])
    said = "You answer drivers of Oslo."
    messages = request.body["messages"]
    if provider == "anthropic":
        assert request.body["system"] == said
    else:
        assert messages.pop(0) == {"role": "system", "content": said}
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert "When?" in json.dumps(messages[2])


def test_it_asks_calls_records_and_prints(provider: str, tmp_path: Path) -> None:
    assert CODE is not None
    code = CODE[1].replace("anthropic:MODEL", f"{provider}:some-model")
    first, second = asked(code, provider, tmp_path, TURNS)
    assert "06:00 to 22:00" not in json.dumps(first.body)
    assert "06:00 to 22:00" in json.dumps(second.body)
    lines = (tmp_path / "my-runs/live/state.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[1])["tool_results"][0]["result"] == {"result": "06:00 to 22:00"}


def test_the_example_with_pieces_of_text_writes_them_at_a_terminal(provider: str, tmp_path: Path) -> None:
    page = (ROOT / "docs/async.md").read_text(encoding="utf-8")
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "asyncio.run" in block]
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 10
    code = code.replace("anthropic:MODEL", f"{provider}:some-model")
    said = "In the cab, if the lorry stands still."

    with Server([Turn(said)]) as server:
        address = f"http://127.0.0.1:{server.port}{'' if provider == 'ollama' else BASES[provider]}"
        leader, follower = pty.openpty()
        program = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=environment({BASE[provider]: address, KEY[provider]: "key-of-a-test-0123456789"}),
            stdout=follower,
            stderr=subprocess.PIPE,
        )
        os.close(follower)
        try:
            shown = b""
            while said.encode() not in shown:
                shown += os.read(leader, 1024)
            _, complaints = program.communicate(timeout=60)
        finally:
            program.kill()
            os.close(leader)
        (request,) = server.requests
    assert (program.returncode, shown.decode(), complaints) == (0, said, b"")
    assert request.body["stream"] is True
