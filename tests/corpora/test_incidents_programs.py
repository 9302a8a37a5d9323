"""Incidents about programs: shells that model text reached, options made of arguments, settings obeyed unasked.

One child process makes a run full of shell text under an audit hook (`audited_run.py`); it is judged here.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Policy, ToolCall, record
from tachograph.fail.errors import CorpusError
from tachograph.runtime.tools.contract import Tool
from tachograph.runtime.tools.loader import load_named
from tachograph.runtime.workspace.mounts import Host
from tests.corpora import audited_run
from tests.corpora.test_incidents import incident
from tests.support import (
    OUTPUT,
    ROOT,
    Ran,
    Script,
    answer,
    ask,
    environment,
    perform,
    policy_data,
    probe,
    tool,
)

READ, WRITE = load_named("read"), load_named("write")
PROGRAMS = (
    "subprocess.",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "os.startfile",
    "pty.",
)
PROGRAMS += ("webbrowser.", "ctypes.")


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run full of shell text did: audit events, files left, how its calls ended."""
    done = subprocess.run(
        [sys.executable, audited_run.__file__],
        cwd=tmp_path_factory.mktemp("audited"),
        env=environment({"PYTHONPATH": str(ROOT)}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    # the hook does hear what would be wrong, and the run did get to its tools
    assert {"subprocess.Popen", "os.system", "socket.bind", "exec"} <= {*found["control"]}
    assert (
        found["ending"] == "final_answer"
        and found["statuses"]["ok"] > 40
        and found["statuses"]["denied"] > 30
    )
    return found


def _heard(audited: dict[str, Any], *begins: str) -> list[str]:
    return [event for event in audited["run"] if event.startswith(begins)]


def _closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


# ---- shells ------------------------------------------------------------------------------------------------


@incident("CVE-2025-49596")
def test_a_run_listens_to_nobody_and_starts_nothing(incident: str, audited: dict[str, Any]) -> None:
    assert _heard(audited, "socket.", *PROGRAMS) == []


@incident("CVE-2025-6514")
def test_where_a_server_leads_is_opened_by_nothing(incident: str, audited: dict[str, Any]) -> None:
    """Five redirects to what a shell or a desktop would run: each is refused as a URL, and that is all."""
    assert _heard(audited, *PROGRAMS) == []
    for place in audited_run.PLACES:
        host = {"good.test": _host(place)}
        ran = perform([ask(probe(url="https://good.test/r"))], [_fetches()], hosts=host)
        assert [d["rule_id"] for d in ran.decisions if d["decision"] == "deny"] == ["url_allowlist"]
        assert [span.attributes["agent.policy.phase"] for span in ran.named("policy_check")][
            -1
        ] == "execution"


def _fetches() -> Tool:
    return tool(run=lambda args, io: {"said": io.get(args["url"]).text})


def _host(location: str) -> Any:
    return Host(ROOT / "tests", "tests", {"/r": location})


@incident("CVE-2025-53967")
def test_arguments_are_data_and_reach_no_shell(incident: str, audited: dict[str, Any]) -> None:
    assert _heard(audited, "exec", "compile", "import", *PROGRAMS) == []
    written = {name for name in audited["files"] if name.startswith("box/")}
    # what could be a file's name is one and holds its text; nothing else came into being
    named = {f"box/{text}" for text in audited_run.TEXTS if "\n" not in text}
    assert written == {"box/plain", *named} and {*audited["files"]} - written == {"books/a.md"}
    assert all(audited["files"][name] == name.removeprefix("box/") for name in named)


def test_no_source_hands_text_to_a_shell_or_an_interpreter() -> None:
    """Programs are started from lists of words, and nothing that a run could have made is ever executed."""
    found = []
    for path in sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "tools").glob("*.py")]):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                text = name.startswith("subprocess.") and isinstance(
                    node.args[0], ast.Constant | ast.JoinedStr
                )
                if f"{path.name}: {name}" in OWN:
                    continue
                if text or name in BANNED or any(word.arg == "shell" for word in node.keywords):
                    found.append(f"{path.name}:{node.lineno}: {name}")
    assert found == []


BANNED = {
    "os.system",
    "os.popen",
    "eval",
    "pickle.load",
    "pickle.loads",
    "marshal.loads",
    "yaml.load",
}
# what a process that this one forked says over a pipe that nobody else has
OWN = {"workers.py: pickle.loads"}
# each takes `echo` and nothing that has more to it
ECHO = ({"enum": ["echo", "ls"]}, {"pattern": "^(echo|ls)$"}, {"const": "echo"})
MORE = "echo; rm|echo\nrm|echo\n|echo |echo\r|echo && rm|\necho|echo\u2028|ECHO|echo\0".split("|")
NAMES = "read; rm|read\n| read|read |READ|read,write|read --force|rea|read\0|read.write".split("|")


def _only(*names: str, **sections: Any) -> dict[str, Any]:
    return policy_data(tool_registry={"allowed": [*names], "denied": []}, **sections)


@incident("CVE-2025-54795")
def test_an_allowed_word_does_not_carry_a_second_one_in(incident: str) -> None:
    said: list[str] = []

    def run(args: dict[str, Any], io: Any) -> dict[str, str]:
        said.append(args["word"])
        return {}

    for more in ECHO:
        do = Tool("do", "", _closed(word={"type": "string", **more}), OUTPUT, "read", True, run)
        for word in MORE:
            ran = perform([ask(ToolCall("do", {"word": word}))], [do], _only("do"))
            assert [d["rule_id"] for d in ran.decisions] == ["arg_schema"], (more, word)
        assert perform([ask(ToolCall("do", {"word": "echo"})), answer()], [do], _only("do")).result.ok
    assert said == ["echo"] * 3
    for name in NAMES:
        ran = perform([ask(ToolCall(name, {"path": "box/a"}))], [READ], _only("read"))
        assert [d["rule_id"] for d in ran.decisions] == ["tool_registry"], name


@incident("CVE-2025-68144")
def test_an_argument_that_looks_like_an_option_is_none(incident: str, tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    options = ["--output=../x", "-o../x", "--output=/etc/x", "--", "-"]

    def run(*calls: ToolCall) -> Ran:
        data = _only("read", "write", on_deny="inform")
        return perform([ask(*calls), answer()], [READ, WRITE], data, mounts={"box": tmp_path / "box"})

    denied = run(*(ToolCall("write", {"path": option, "content": "x"}) for option in options))
    assert [d["rule_id"] for d in denied.decisions] == ["sandbox_path"] * len(options)
    # below a mount it is a file's name and nothing else
    named = {"path": "box/--output=x"}
    kept = run(ToolCall("write", {**named, "content": "x"}), ToolCall("read", named))
    assert [r["status"] for r in kept.results] == ["ok", "ok"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["--output=x", "box"]


# ---- settings and surroundings -----------------------------------------------------------------------------


@incident("CVE-2026-22708")
def test_no_call_changes_the_surroundings_of_a_later_one(
    incident: str, audited: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert audited["same_surroundings"] and _heard(audited, "os.putenv", "os.unsetenv", "os.chdir") == []
    (tmp_path / "a.txt").write_text("plain")

    def run() -> bytes:
        read, write = {"path": "books/a.txt"}, {"path": "box/a", "content": "x"}
        replies = [ask(ToolCall("read", read), ToolCall("write", write)), answer()]
        return perform(replies, [READ, WRITE], _only("read", "write"), mounts={"books": tmp_path}).state

    before = run()
    for name in (
        "PATH",
        "HOME",
        "PAGER",
        "GIT_EDITOR",
        "PYTHONPATH",
        "LD_PRELOAD",
        "BASH_ENV",
        "TZ",
        "LANG",
        "IFS",
    ):
        monkeypatch.setenv(name, "; touch X")
    for name in (
        "TACHOGRAPH_POLICY",
        "TACHOGRAPH_ROOT",
        "OPENAI_BASE_URL",
        "HTTPS_PROXY",
        "OTEL_SDK_DISABLED",
    ):
        monkeypatch.setenv(name, "http://evil.test")
    assert run() == before


@incident("CVE-2025-59536 / CVE-2026-21852")
def test_settings_in_a_folder_that_the_model_writes_are_not_obeyed(incident: str, tmp_path: Path) -> None:
    """The model turns the folder of its own run into a repository whose settings name a program."""
    if shutil.which("git") is None:
        pytest.skip("no git, so nothing that would read such settings")
    work, mark = tmp_path / "work", tmp_path / "hooked"
    work.mkdir()
    hook = f'"touch {mark}; false"'
    files = {
        ".git/config": f"[core]\n\trepositoryformatversion = 0\n\tfsmonitor = {hook}\n\tpager = {hook}\n",
        ".git/HEAD": "ref: refs/heads/main\n",
        ".git/refs/heads/main": "0" * 39 + "1\n",
        ".git/objects/none": "",
        "policy/v1.yaml": "schema: policy/v1\n",
    }
    replies = [
        ask(*(ToolCall("write", {"path": f"box/{n}", "content": t}) for n, t in files.items())),
        answer(),
    ]
    agent = Agent(Script(replies), [WRITE], Policy.from_dict(_only("write")), mounts={"box": work})
    with pytest.raises(CorpusError, match="holds the run's record"):
        record(agent, "What now?", work / "runs" / "one", run_id="one")
    result = record(agent, "What now?", tmp_path / "one", run_id="one")
    assert result.ok and (work / ".git" / "config").exists()
    assert (tmp_path / "one" / "manifest.json").exists()
    assert not mark.exists()
    assert sorted(os.listdir(tmp_path)) == ["one", "work"]
