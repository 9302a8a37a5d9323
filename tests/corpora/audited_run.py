"""A program: a run full of shell text under an audit hook, in the current folder. Prints what it did as JSON."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tachograph import Agent, LLMInput, LLMOutput, Policy, ToolCall, VirtualClock
from tachograph.runtime.tools.contract import SHIPPED
from tachograph.runtime.workspace.mounts import Host

TEXTS = (
    "$(touch X)", "; touch X", "| touch X", "`touch X`", "&& touch X", "\ntouch X\n", "-rf", "--output=X",
    "%(touch X)", "{touch,X}", "__import__('os').system('touch X')", "!!python/object/apply:os.system [touch X]",
)  # fmt: skip
PLACES = (
    "a:$(touch X)?&calc.exe",
    "file:///c:/calc.exe",
    "https://good.test/$(touch X)",
    "javascript:x",
    "vbscript:x",
)
# file and folder events are left to the test that looks at the files
QUIET = (
    "open",
    "object.",
    "sys.",
    "tempfile.",
    "shutil.",
    "marshal.",
    "os.listdir",
    "os.scandir",
    "os.mkdir",
)
QUIET += (
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "pathlib.",
    "code.__new__",
    "builtins.id",
)

heard: list[str] = []
listening = False


def hook(name: str, _arguments: Any) -> None:
    if listening and not name.startswith(QUIET):
        heard.append(name)


def said(text: str) -> Iterator[ToolCall]:
    yield ToolCall("search", {"query": f"{text} touch"})
    yield ToolCall("write", {"path": "box/plain", "content": text})
    yield ToolCall("write", {"path": f"box/{text}", "content": text})
    yield ToolCall("summarize", {"text": f"{text} touch X."})
    yield ToolCall("fetch", {"url": f"https://good.test/{text}"})
    yield ToolCall(text, {"path": text})
    yield ToolCall("search", text)


def model(asked: LLMInput) -> LLMOutput:
    step = asked.step_index - 1
    if step < len(TEXTS):
        return LLMOutput(text=TEXTS[step], tool_calls=list(said(TEXTS[step])))
    if step < len(TEXTS) + len(PLACES):
        return LLMOutput(tool_calls=[ToolCall("fetch", {"url": f"https://good.test/{step - len(TEXTS)}"})])
    return LLMOutput(final_answer=TEXTS[0])


def agent() -> Agent:
    for name in ("box", "books", "host"):
        Path(name).mkdir(exist_ok=True)
    Path("books", "a.md").write_text("# A\n\ntouch X")
    policy = Policy.from_dict(
        {
            "schema": "policy/v1",
            "tool_registry": {"allowed": [*SHIPPED]},
            "url_allowlist": ["https://good.test/"],
            "sandbox": {"mounts": {"box": "write", "corpus": "read"}},
            "loop_budget": {
                "max_iterations": 99,
                "max_tokens": 10**7,
                "max_tool_calls": 99,
                "max_result_bytes": 10**6,
            },
            "cycle_detection": {"max_repeats": 9},
            "on_deny": "inform",
        }
    )
    redirects = {f"/{i}": place for i, place in enumerate(PLACES)}
    hosts = {"good.test": Host(Path("host"), "host", redirects)}
    return Agent(model, SHIPPED, policy, mounts={"corpus": "books", "box": "box"}, hosts=hosts)


def main() -> None:
    """One run to load whatever is loaded late, one that is listened to, and then what must not go unheard."""
    global listening
    sys.addaudithook(hook)
    made = agent()
    around = dict(os.environ), os.getcwd(), list(sys.path)
    made.run(TEXTS[0], clock=VirtualClock())
    listening = True
    result = made.run(TEXTS[0], clock=VirtualClock())
    listening = False
    in_run, heard[:] = sorted({*heard}), []
    listening = True
    subprocess.run([sys.executable, "-c", ""], check=True)
    os.system("true")
    socket.create_server(("127.0.0.1", 0)).close()
    exec("1")
    listening = False
    results = [r for step in result.steps for r in step["tool_results"]]
    found = {
        "run": in_run,
        "control": sorted({*heard}),
        "ending": result.ending,
        "statuses": Counter(r["status"] for r in results),
        "rules": Counter(
            d["rule_id"] for s in result.steps for d in s["policy_decisions"] if d["decision"] == "deny"
        ),
        "files": {p.as_posix(): p.read_text() for p in sorted(Path().rglob("*")) if p.is_file()},
        "same_surroundings": around == (dict(os.environ), os.getcwd(), list(sys.path)),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
