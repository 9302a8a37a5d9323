"""The hello worlds of five libraries, as the page has them, against a server of ours."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.providers.protocols import Turn
from tests.providers.servers import Server
from tests.support import ROOT, environment

PAGE = (ROOT / "docs/hello-worlds.md").read_text(encoding="utf-8")
# library -> its code
WORLDS = dict(re.findall(r"^## ([^\n]+)\n\n(?:[^`#\n][^\n]*\n+)*```python\n(.*?)```", PAGE, re.S | re.M))
LISTED = {name: int(lines) for name, lines in re.findall(r"^\| (\S[^|]*?) \| (\d+) \|$", PAGE, re.M)}
MODULES = {
    "tachograph": "openai",
    "pydantic-ai": "pydantic_ai",
    "OpenAI Agents SDK": "agents",
    "LangGraph": "langchain",
    "smolagents": "smolagents",
}
# the server speaks chat completions, which two of them do not speak unless they are told to
TOLD = {
    "pydantic-ai": ("openai:MODEL", "openai-chat:MODEL"),
    "OpenAI Agents SDK": (
        "from agents import",
        "import agents\nagents.set_default_openai_api('chat_completions')\nfrom agents import",
    ),
}
# the other libraries have an environment of their own: what they need need not fit together with ours
PEERS = Path(sys.executable).parent.parent / "hello-worlds" / "bin" / "python"
ANSWER = "From six to ten."


def test_the_page_counts_the_lines_of_each() -> None:
    counted = {
        name: len([line for line in code.splitlines() if line.strip()]) for name, code in WORLDS.items()
    }
    assert counted == LISTED and set(counted) == set(MODULES)
    assert counted["tachograph"] <= 9


def _python(name: str) -> str:
    """The interpreter of a library; the test is skipped where it is not installed."""
    python = Path(sys.executable) if name == "tachograph" else PEERS
    probe = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({MODULES[name]!r}) is None)"
    if not python.exists() or subprocess.run([python, "-c", probe], check=False, timeout=60).returncode:
        pytest.skip(f"{name} is not installed: make test-adapters")
    return str(python)


@pytest.mark.parametrize("name", WORLDS)
def test_it_asks_calls_and_prints(name: str, tmp_path: Path) -> None:
    python = _python(name)
    assert WORLDS[name].count("MODEL") == 1
    code = WORLDS[name].replace(*TOLD.get(name, ("", ""))).replace('MODEL"', 'some-model"')
    call = Turn("", (("opening_hours", '{"depot": "Oslo"}'),))
    last = Turn(ANSWER)
    if name == "smolagents":  # an answer is a call there
        last = Turn("", (("final_answer", json.dumps({"answer": ANSWER})),))
    (tmp_path / "hello.py").write_text(code, encoding="utf-8")
    with Server([call, last]) as server:
        done = subprocess.run(
            [python, "hello.py"],
            cwd=tmp_path,
            env=environment(
                {
                    "OPENAI_BASE_URL": f"http://127.0.0.1:{server.port}/v1",
                    "OPENAI_API_KEY": "key-of-a-test-0123456789",
                    "OPENAI_AGENTS_DISABLE_TRACING": "1",
                    "LANGSMITH_TRACING": "false",
                }
            ),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "Deprecat" not in done.stderr, "a newcomer would be warned of this program"
    assert done.stdout.rstrip().splitlines()[-1] == ANSWER
    first, second = server.requests
    assert any(tool["function"]["name"] == "opening_hours" for tool in first.body["tools"])
    assert "Be brief." in json.dumps(first.body["messages"])
    assert "06:00 to 22:00" in json.dumps(second.body["messages"])
