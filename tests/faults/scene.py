"""A run of ten steps with side effects, as a project of its own: tools of every kind, retries, a late decision.

What its tools do outside is one line a deed in `outside/log`, the idempotency key in front: so it can be counted.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from tachograph.evidence.checking.replay import replayed
from tachograph.evidence.checking.verify import verify
from tachograph.evidence.files import manifest
from tests.support import FILES, well_formed

TASK = "tasks/faults/ten.yaml"
RUN = "runs/faults/ten"

POLICY: dict[str, Any] = {
    "schema": "policy/v1",
    "tool_registry": {"allowed": ["look", "put", "get", "list", "pay", "book", "hop", "sign"], "denied": []},
    "url_allowlist": ["https://good.test/"],
    "sandbox": {"mounts": {"box": "write"}},
    "loop_budget": {
        "max_iterations": 12,
        "max_tokens": 100_000,
        "max_tool_calls": 40,
        "max_result_bytes": 100_000,
    },
    "cycle_detection": {"max_repeats": 5},
    "retry": {"max_retries": 2, "backoff_base_ms": 100, "backoff_cap_ms": 2000},
    "approval": {"required_for": ["sign"], "timeout_s": 5},
    "on_deny": "inform",
    "redact": ["private_key"],
}

_HEAD = '''
import os
import time
from pathlib import Path

DESCRIPTION = "a tool of the fault suite"
INPUT_SCHEMA = {"type": "object", "additionalProperties": False, "properties": PROPERTIES}
OUTPUT_SCHEMA = {"type": "object", "additionalProperties": False, "properties": {"said": {"type": "string"}}}
EFFECT = "KIND"
IDEMPOTENT = REPEATS
TRANSIENT = (ConnectionError,)
IMPORTS = ("os", "pathlib", "subprocess", "threading", "time")
LOG = Path(__file__).resolve().parent.parent / "outside" / "log"


def deed(io, what):
    """Leave one line outside, in one write, for good."""
    LOG.parent.mkdir(exist_ok=True)
    fd = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, f"{io.idempotency_key} {what}\\n".encode())
    os.fsync(fd)
    os.close(fd)


def hold():
    """Take as long as the file `hold` is there."""
    root = LOG.parent.parent
    while (root / "hold").exists():
        (root / "held").touch()
        time.sleep(0.005)


def deeds(io):
    return LOG.read_text().split() if LOG.exists() else []


def run(args, io):
    said = args.get("what", "")
    BODY
    return {"said": said}
'''
_WHAT = '{"what": {"type": "string"}}'
_PATH = '{"path": {"type": "string", "x-resource": "path:write"}, "what": {"type": "string"}}'
_URL = '{"url": {"type": "string", "x-resource": "url"}}'
_PROBE = """

def probe(args, io):
    return "done" if io.idempotency_key in deeds(io) else "not_done"
"""
# name: properties, EFFECT, IDEMPOTENT, body of run, what follows
TOOLS: dict[str, tuple[str, str, bool, str, str]] = {
    "look": (_WHAT, "pure", True, "said = said.upper()", ""),
    "put": (_PATH, "write", True, 'io.write(args["path"], said)', ""),
    "get": (_PATH.replace("path:write", "path:read"), "read", True, 'said = io.read(args["path"])', ""),
    "list": (_WHAT, "read", True, 'said = " ".join(io.list("box"))', ""),
    "pay": (_WHAT, "write", False, "hold(); deed(io, said)", ""),
    "sign": (_WHAT, "write", False, "deed(io, said)", ""),
    "book": (_WHAT, "write", False, "deed(io, said)", _PROBE),
    "hop": (_URL, "network", True, 'said = io.get(args["url"]).text', ""),
}
# tools that may not be repeated, and must not have been
ONCE = ("pay", "sign", "book")
PROBED = "tc_4_0"  # the call of the one that says itself whether it was done


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": name, "arguments": arguments}


def _turns() -> list[dict[str, Any]]:
    box = "box/note.txt"
    steps = [
        [_call("look", what="around")],
        [_call("put", path=box, what="first"), _call("put", path="elsewhere/x", what="refused")],
        [_call("pay", what="one")],
        [_call("book", what="room"), _call("get", path=box)],
        [_call("hop", url="https://good.test/away")],
        [_call("pay", what="two")],
        [_call("put", path=box, what={"$join": ["then ", {"$result": 0, "at": "/said"}]})],
        [_call("sign", what="contract")],
        [_call("get", path=box), _call("pay", what="three"), _call("list"), _call("look", what="back")],
    ]
    turns: list[dict[str, Any]] = [{"say": f"step {n}", "calls": calls} for n, calls in enumerate(steps, 1)]
    return [*turns, {"answer": {"$join": ["I have ", {"$result": 8, "at": "/said"}]}}]


TASK_DATA: dict[str, Any] = {
    "schema": "task/v1",
    "id": "faults-ten",
    "title": "Ten steps with side effects",
    "question": "Do it all.",
    "seed": 3,
    "policy": {"file": "policy/v1.yaml"},
    "tools": list(TOOLS),
    "hosts": {"good.test": {"folder": "site", "redirects": {"/away": "https://good.test/page.md"}}},
    "setup": [{"path": "box/first.txt", "text": "set up"}],
    "approvals": [{"step": 8, "call": 0, "answer": "allow", "by": "ann", "why": "fine"}],
    "faults": [
        {"target": "tool", "step": 5, "call": 0, "attempt": 1, "raises": "ConnectionError"},
        {"target": "tool", "step": 6, "call": 0, "attempt": 1, "raises": "ConnectionRefusedError"},
        {"target": "model", "step": 7, "attempt": 1, "raises": "TransientModelError"},
    ],
    "llm": {"stub": {"turns": _turns()}},
    "expected": {"ending": "final_answer"},
}


def tool_text(name: str) -> str:
    """The source of a tool's module."""
    properties, kind, repeats, body, more = TOOLS[name]
    text = _HEAD.replace("PROPERTIES", properties, 1).replace("KIND", kind).replace("REPEATS", str(repeats))
    return text.replace("BODY", body) + more


class Scene:
    """The project in a folder: made, looked at, cleared again."""

    def __init__(self, root: Path, **changes: Any) -> None:
        self.root = root
        self.run = root / RUN
        self.partial = root / f"{RUN}.partial"
        self.journal = self.partial / "journal.jsonl"
        self.log = root / "outside" / "log"
        self.hold, self.held = root / "hold", root / "held"
        self.rejected = root / ".tachograph/rejected/faults-ten"
        texts = {
            "policy/v1.yaml": yaml.safe_dump(POLICY),
            "site/page.md": "a page",
            TASK: yaml.safe_dump({**TASK_DATA, **changes}, sort_keys=False),
            **{f"tools/{name}.py": tool_text(name) for name in TOOLS},
        }
        for name, text in texts.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        (root / "runs").mkdir(exist_ok=True)

    def clear(self) -> None:
        """As if nothing had ever been run."""
        for name in ("runs", "outside", ".tachograph", "elsewhere"):
            shutil.rmtree(self.root / name, ignore_errors=True)
        for name in ("hold", "held"):
            (self.root / name).unlink(missing_ok=True)
        (self.root / "runs").mkdir()

    def deeds(self) -> Counter[str]:
        """Idempotency key -> how often it was done."""
        text = self.log.read_text() if self.log.exists() else ""
        return Counter(line.split()[0] for line in text.splitlines())

    def files(self) -> dict[str, bytes]:
        """The four files, the manifest without its volatile keys; fails where there are others or none."""
        there = {path.name: path.read_bytes() for path in self.run.iterdir()}
        assert sorted(there) == sorted(FILES), sorted(there)
        there["manifest.json"] = manifest.stable(manifest.read(there["manifest.json"])).encode()
        return there

    def sound(self) -> None:
        """The record in place holds in itself, and in a replay; nothing else lies about."""
        well_formed((self.run / "state.jsonl").read_bytes())
        assert verify(self.run, self.root) == []
        found = replayed(self.run, root=self.root)
        assert found.ok, found.lines
        left = [path.name for path in self.run.parent.iterdir() if path != self.run]
        assert left == [], left

    def unseen(self) -> list[str]:
        """The calls of the record whose results were lost."""
        lines = [json.loads(line) for line in (self.run / "state.jsonl").read_bytes().splitlines()]
        return [
            result["id"]
            for line in lines
            if line["type"] == "step"
            for result in line["tool_results"]
            if any("unseen" in attempt for attempt in result["attempts"])
        ]
