"""What a command imports: a module that nobody needs costs every command its time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# each takes 1 to 10 ms, and is needed for live models, errors or long runs only
SLOW = (
    "ast",
    "asyncio",
    "dataclasses",
    "importlib.metadata",
    "inspect",
    "jsonschema",
    "logging",
    "orjson",
    "secrets",
    "subprocess",
    "uuid",
)
# what only a run needs: with the agent come the loop, the driver and the workspace
RUNNING = (
    "tachograph.evidence.tasks.task",
    "tachograph.runtime.agent",
    "tachograph.runtime.workspace.workspace",
)
PROGRAM = """
import json, sys
from tachograph.cli.main import main
code = main(sys.argv[1:])
print("\\n" + json.dumps([code, sorted(sys.modules)]))
"""


@pytest.mark.parametrize("command", ["run", "policy decide"])
def test_a_command_does_not_import_what_it_does_not_need(command: str, tmp_path: Path) -> None:
    call = tmp_path / "call.json"
    call.write_text(
        '{"tool": "fetch", "arguments": {"url": "https://corpus.test/op-a4.md"}}', encoding="utf-8"
    )
    words = {
        "run": ["run", "tasks/canonical/v1.yaml", "--out", str(tmp_path / "out"), "--quiet"],
        "policy decide": ["policy", "decide", str(call)],
    }[command]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0, done.stderr
    assert {"yaml", "jsonschema_rs"} <= set(modules)
    unwanted = (*SLOW, *(RUNNING if command == "policy decide" else ()))
    assert [name for name in unwanted if name in modules] == [], "import it inside the function that needs it"


def test_garbage_is_collected_once_a_command_has_started() -> None:
    program = """
import gc
import tachograph.cli.main as cli
from argparse import Namespace
kept = gc.get_freeze_count()
def act(options):
    print(gc.isenabled(), gc.get_freeze_count() > kept)
    return 0
cli.parse = lambda argv: Namespace(command=None, act=act)
cli.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "True"]
