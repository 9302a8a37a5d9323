"""The example that the README begins with, through the official SDKs, over a server of ours."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.providers.protocols import Turn
from tests.providers.servers import BASES, Server
from tests.support import ROOT, environment

CODE = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
TURNS = [Turn("", (("opening_hours", '{"depot": "Oslo"}'),)), Turn("From six to ten.")]
BASE = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL", "ollama": "OLLAMA_HOST"}
KEY = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "ollama": "OLLAMA_API_KEY"}


def test_it_asks_calls_records_and_prints(provider: str, tmp_path: Path) -> None:
    assert CODE is not None
    code = CODE[1].replace("anthropic:MODEL", f"{provider}:some-model")
    with Server(TURNS) as server:
        address = f"http://127.0.0.1:{server.port}{'' if provider == 'ollama' else BASES[provider]}"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=environment({BASE[provider]: address, KEY[provider]: "key-of-a-test-0123456789"}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stdout) == (0, "From six to ten.\n"), done.stderr
    assert len(server.requests) == 2
    assert "06:00 to 22:00" in json.dumps(server.requests[1].body)
    lines = (tmp_path / "my-runs/live/state.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[1])["tool_results"][0]["result"] == {"result": "06:00 to 22:00"}
