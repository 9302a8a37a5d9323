"""Tools of MCP servers: accepted, called, refused when they change, and ended with the run, whatever a server does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Policy, check, mcp, record, replay, tool
from tachograph.evidence.project import Project
from tachograph.fail.errors import InputError, PolicyError, ToolError
from tachograph.review.replays import what_if
from tachograph.runtime.agent import RunResult
from tachograph.runtime.formats.strict_json import canonical
from tachograph.runtime.log.events import Event, Failed, RunEnded, RunStarted, ToolReturned
from tachograph.runtime.mcp.connection import Connection, offered_at
from tachograph.runtime.mcp.server import ServerPlace
from tachograph.testing import decide
from tests.commands import Capsys, exit_code, output_of
from tests.project import rewrite, script
from tests.servers import PATIENCE, McpOverHttp
from tests.tables.rows import roomy

SERVER = str(Path(__file__).with_name("mcp_server.py"))
POLICY = roomy(
    ["srv__note", "srv__other"],
    url_allowlist=["https://good.test/"],
    on_deny="inform",
    on_failure="inform",
    tools={"srv__note": {"resources": {"/text": "text"}}},
)
RETRY = {"retry": {"max_retries": 1, "backoff_base_ms": 1, "backoff_cap_ms": 1}}
READS = {"tools": {"srv__note": {"resources": {"/text": "text"}, "effect": "read"}}}


_locks: dict[str, bytes] = {}


def accepted(tmp_path: Path, mode: str = "plain") -> Path:
    lock = tmp_path / "mcp.lock"
    if mode not in _locks:
        assert exit_code("mcp", "accept", "srv", "--lock", str(lock), "--", sys.executable, SERVER, mode) == 0
        _locks[mode] = lock.read_bytes()
    lock.write_bytes(_locks[mode])
    return lock


def agent(
    lock: Path,
    *command: str,
    text: str = "hello",
    tool: str = "srv__note",
    timeout_s: float = 60.0,
    **sections: Any,
) -> Agent:
    server = mcp("srv", command=command, lock=lock, timeout_s=timeout_s)
    return Agent(model_of_one_call(text, tool), [server], Policy.from_dict({**POLICY, **sections}))


def model_of_one_call(text: str, tool: str = "srv__note") -> Any:
    return script([(tool, {"text": text})], None)


def called(tmp_path: Path, lock: Path, mode: str, **given: Any) -> RunResult:
    """Record a run with one call, and make it again where there is no server."""
    command = [sys.executable, SERVER, mode, str(tmp_path)]
    made = record(agent(lock, *command, **given), "What?", out=tmp_path / "run")
    without = agent(lock, "/nowhere", **given)
    assert replay(without, tmp_path / "run").answer == made.answer
    assert check(without, tmp_path / "run") == []
    assert exit_code("verify", str(tmp_path / "run")) == 0
    assert not is_alive(str(tmp_path))
    return made


def is_alive(argument: str) -> bool:
    """Return whether a process with an argument goes on; what a server has started has its arguments too."""
    for folder in Path("/proc").iterdir():
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if argument.encode() in command:
            with contextlib.suppress(ProcessLookupError):  # it may have been told to end, and is about to
                if not select.select([os.pidfd_open(int(folder.name))], [], [], PATIENCE)[0]:
                    return True
    return False


def outcome(made: RunResult) -> ToolReturned | Failed | None:
    return next((it for it in reversed(made.events) if isinstance(it, ToolReturned | Failed)), None)


@contextlib.contextmanager
def served() -> Iterator[str]:
    """A server over HTTP that wants a key; its URL."""
    service = ThreadingHTTPServer(("127.0.0.1", 0), McpOverHttp)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{service.server_port}/mcp"
    finally:
        service.shutdown()
        service.server_close()


def project_of(root: Path, sections: dict[str, Any]) -> Path:
    """Make a project with a task that calls a tool of a server, and return the file of the task."""
    (root / "policy").mkdir()
    (root / "tasks/mcp").mkdir(parents=True)
    (root / "policy/p.yaml").write_text(json.dumps({**POLICY, **sections}))
    call = {"tool": "srv__note", "arguments": {"text": "a"}}
    task = {
        "schema": "task/v1",
        "id": "mcp-note",
        "title": "A note",
        "question": "What?",
        "policy": {"file": "policy/p.yaml"},
        "tools": ["srv__note"],
        "mcp": {"srv": {"command": [sys.executable, SERVER]}},
        "llm": {"stub": {"turns": [{"calls": [call]}, {"answer": "b"}]}},
        "expected": {"ending": "final_answer", "decisions": ["allow"]},
    }
    file = root / "tasks/mcp/note.yaml"
    file.write_text(json.dumps(task))
    return file


@pytest.mark.parametrize("text", "hello half wrong odd huge zipped deflated lost ended hangs".split())
def test_a_server_over_http(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    lock = tmp_path / "mcp.lock"
    with served() as url:
        at = ("--lock", str(lock), "--url", url, "--header", "x-key=key")
        assert exit_code("mcp", "accept", "srv", *at) == 0 and b"again" not in lock.read_bytes()
        timeout_s = 1.5 if text == "hangs" else 20
        server = mcp("srv", url=url, headers={"x-key": "key\n"}, lock=lock, timeout_s=timeout_s)
        policy = {**POLICY, **READS, **RETRY}
        made = Agent(model_of_one_call(text), [server], Policy.from_dict(policy)).run("What?")
    results = {it: [{"text": f"key{it}", "is_error": True}] for it in ("wrong", "odd")}
    results |= {"hello": [{"text": "keyhello"}], "half": [{"text": "keyhal?"}]}
    assert [it.result for it in made.events if isinstance(it, ToolReturned)] == results.get(text, [])
    errors = ["TimeoutError"] * 2 if text == "hangs" else ["ConnectionError"] * (text not in results)
    assert [it.error for it in made.events if isinstance(it, Failed)] == errors
    told = [it for it in ("gzip", "deflate", "405") if it in caplog.text]
    assert told == {"zipped": ["gzip"], "deflated": ["deflate"]}.get(text, [])


def test_what_an_endpoint_said_of_one_call_is_not_told_of_the_next() -> None:
    with served() as url:
        server = Connection(ServerPlace(url=url, headers={"x-key": "key"}))
        for text, told in (("fails", "; the last that it said: 500"), ("ended", "SSE stream ended[^;]*$")):
            with pytest.raises(ConnectionError, match=told):
                server.call("note", {"text": text})
        server.close()


RESULTS: dict[str, dict[str, Any]] = {
    "plain": {"text": "hello"},
    "codes": {"text": "\u001b[2J\u001b]0;owned\u0007hello"},
    "no_json": {"text": "hello"},
    "is_error": {"text": "hello", "is_error": True},
    "structured": {"text": "hello", "structured": {"n": 1}},
    "says_no": {"text": "no such note", "is_error": True},
    "error": {"text": "no such note", "is_error": True},
    "half": {"text": "hello?\U0001f600\\ud83d"},  # what is whole stays
    "link": {"text": "[resource_link file:///a text/plain]"},
    "large": {"text": "hello"},
    "some_odd": {"text": "hello"},
    "image": {"text": "[image image/png, 8 characters]"},
    "leaves_a_child": {"text": "hello"},
}


@pytest.mark.parametrize("mode", RESULTS)
def test_a_result_is_recorded(tmp_path: Path, mode: str) -> None:
    found = outcome(called(tmp_path, accepted(tmp_path, mode), mode))
    assert isinstance(found, ToolReturned)
    assert found.result == RESULTS[mode]


def test_a_server_that_ended_is_started_again_by_the_next_call(tmp_path: Path) -> None:
    model = script(*[[("srv__note", {"text": text})] for text in "ab"], "done")
    server = mcp("srv", command=[sys.executable, SERVER, "dies_once", str(tmp_path)], lock=accepted(tmp_path))
    made = Agent(model, [server], Policy.from_dict(POLICY)).run("What?")
    assert [type(it) for it in made.events if isinstance(it, ToolReturned | Failed)] == [Failed, ToolReturned]
    assert not is_alive(str(tmp_path))


FAILURES = {
    "huge": "ConnectionError",
    "dies": "ConnectionError",
    "flood": "TimeoutError",
    "hangs": "TimeoutError",
    "wrong_id": "TimeoutError",
    "batched": "TimeoutError",
    "slow": "TimeoutError",
    **dict.fromkeys(("many", "twice"), "OSError"),
    **dict.fromkeys("description schema annotation title renamed added removed".split(), "PermissionError"),
}


@pytest.mark.parametrize("mode", FAILURES)
def test_a_hostile_server_is_a_failure_and_no_more(
    tmp_path: Path, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    timeout_s = 1.5 if FAILURES[mode] == "TimeoutError" else 60.0
    found = outcome(called(tmp_path, accepted(tmp_path), mode, timeout_s=timeout_s))
    assert isinstance(found, Failed)
    assert found.error == FAILURES[mode]
    assert ("the disk is full" in caplog.text) == (mode == "dies")
    assert ("JSON-RPC" in caplog.text) == (mode == "batched")


def test_an_event_loop_goes_on_while_a_server_that_was_starting_is_ended(tmp_path: Path) -> None:
    slow = agent(accepted(tmp_path), sys.executable, SERVER, "slow", str(tmp_path), timeout_s=10)
    rounds: list[None] = []

    async def go_round() -> None:
        for _ in range(100):
            rounds.append(await asyncio.sleep(0))

    def listen(event: Event) -> None:
        if isinstance(event, RunEnded):  # the server is ended after the last line
            beside.append(asyncio.create_task(go_round()))

    beside: list[Any] = []
    assert asyncio.run(slow.arun("What?", deadline_s=1, listen=listen)).mode == "timeout"
    assert len(rounds) > 1
    assert not is_alive(str(tmp_path))


@pytest.mark.parametrize(
    ("mode", "sections", "told"),
    [
        ("plain", {}, ["external", "tool_started", "tool_returned"]),
        ("plain", READS, ["read", "tool_returned"]),
        ("hangs", RETRY, ["external", "tool_started", "failed"]),
        ("hangs", {**RETRY, **READS}, ["read", "failed", "failed"]),
    ],
)
def test_what_only_reads_may_be_called_twice(
    tmp_path: Path, mode: str, sections: dict[str, Any], told: list[str]
) -> None:
    """And yet the record answers for it where there is no server, which `called` sees to."""
    lock = accepted(tmp_path)
    made = called(tmp_path, lock, mode, timeout_s=1.5 if mode == "hangs" else 60.0, **sections)
    head, *others = made.events
    assert isinstance(head, RunStarted)
    lines = [json.loads(canonical(event))["event"] for event in others]
    kinds = [kind for kind in lines if kind in ("tool_started", "tool_returned", "failed")]
    assert [head.tools[0].effect, *kinds] == told
    other = {**RETRY, **({} if "tools" in sections else READS)}
    found = check(agent(lock, "/nowhere", **other), tmp_path / "run")
    assert "<policy>" in {difference.at for difference in found}


def test_reads_of_one_reply_share_a_server(tmp_path: Path) -> None:
    model = script([("srv__note", {"text": text}) for text in "abcd"], "done")
    server = mcp("srv", command=[sys.executable, SERVER], lock=accepted(tmp_path))
    made = Agent(model, [server], Policy.from_dict({**POLICY, **READS})).run("What?")
    results = [event.result for event in made.events if isinstance(event, ToolReturned)]
    assert sorted(it["text"] for it in results if it) == [*"abcd"]


def test_the_effect_of_a_tool_of_a_server_changes_no_decision(tmp_path: Path) -> None:
    tools = mcp("srv", command=["/nowhere"], lock=accepted(tmp_path)).tools
    texts = ["hello", "https://evil.test/", "<secret:email:000000>"]
    calls = [{"name": "srv__note", "arguments": {"text": text}} for text in texts]
    policies = [{**POLICY, "redact": {"kinds": ["email"]}, **sections} for sections in ({}, READS)]
    found = [[it.rule_id for it in decide(policy, tools, calls)] for policy in policies]
    assert found == [["tool_registry", "url_allowlist", "redact"]] * 2


def test_an_effect_moves_no_recorded_decision() -> None:
    data = Policy.load(Path(__file__).parents[1] / "policy/servers.yaml").data
    tools = {name: {k: v for k, v in it.items() if k != "effect"} for name, it in data["tools"].items()}
    policy, project = Policy.from_dict({**data, "tools": tools}), Project(Path(__file__).parents[1])
    sources = {name: project.source_of(name) for name in project.run_names()}
    found = {name: it for name, it in sources.items() if it.policy.file == "policy/servers.yaml"}
    assert len(found) == 4
    for name, source in found.items():
        assert what_if(source, project.folder(name), name, policy) is None


@pytest.mark.parametrize("effect", ["pure", "write", "network", "Read", "", None, ["read"]])
def test_a_policy_says_of_a_server_that_it_reads_and_nothing_else(effect: Any) -> None:
    with pytest.raises(PolicyError, match="effect"):
        Policy.from_dict({**POLICY, "tools": {"srv__note": {"effect": effect}}})


@pytest.mark.parametrize("effect", ["read", "external"])
@pytest.mark.parametrize("own", ["pure", "write", "external"])
def test_an_own_tool_says_its_effect_itself(effect: str, own: str) -> None:
    policy = Policy.from_dict({**POLICY, "tools": {"note": {"effect": effect}}})
    note = tool(effect=own, name="note", description="Note.")(lambda: "")  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="no MCP server"):
        Agent(model_of_one_call(""), [note], policy)


def test_a_server_gets_no_key_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "a secret")
    found = outcome(called(tmp_path, accepted(tmp_path), "env"))
    assert isinstance(found, ToolReturned)
    assert found.result is not None
    assert {*found.result["text"].split()} <= {"HOME", "LANG", "PATH", "LC_CTYPE"}


def test_what_a_server_says_of_its_places_counts_for_nothing(tmp_path: Path) -> None:
    lock = accepted(tmp_path, "marked")
    assert '"x-resource"' in lock.read_text()
    made = agent(lock, sys.executable, SERVER, "marked", text="https://evil.test/").run("What?")
    assert outcome(made) is None
    assert "url_allowlist" in (made.answer or "")


def test_a_text_that_nobody_has_said_anything_of_is_denied(tmp_path: Path) -> None:
    made = called(tmp_path, accepted(tmp_path), "plain", tool="srv__other")
    assert outcome(made) is None
    assert "resources" in (made.answer or "")


def test_a_changed_lock_is_drift(tmp_path: Path) -> None:
    lock = accepted(tmp_path)
    called(tmp_path, lock, "plain")
    data = json.loads(lock.read_text())
    data["servers"]["srv"]["note"]["annotations"] = {"readOnlyHint": True}
    lock.write_text(json.dumps(data))
    found = check(agent(lock, "/nowhere"), tmp_path / "run")
    assert "mcp.lock/srv/note" in {difference.at for difference in found}


def test_what_is_not_accepted_is_refused(tmp_path: Path, capsys: Capsys) -> None:
    command = [sys.executable, SERVER]
    url = "http://a.test/"
    for given, words in (
        ({"command": [*command, "a b"], "env": {"KEY": "hidden"}}, ["--env=KEY", "--", *command, "a b"]),
        ({"url": url, "headers": {"A": "hidden"}}, ["--header=A=...", "--url", url]),
    ):
        with pytest.raises(ToolError, match="tachograph mcp accept srv") as refused:
            mcp("srv", lock=tmp_path / "mcp.lock", **given)  # type: ignore[arg-type]
        assert shlex.split(str(refused.value.remedy))[-len(words) :] == words
    texts = {"command": "a"}, {"command": ["a"], "env": {"KEY": None}}, {"url": url, "headers": ["a"]}
    for given in ({}, {"command": ["a"], "url": url}, *texts):
        with pytest.raises(InputError, match="command"):
            mcp("srv", **given)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not a name"):
        mcp("s__v", command=command)
    lock = accepted(tmp_path)
    before = lock.read_bytes()
    at = ("srv", "--lock", str(lock), "--")
    assert exit_code("mcp", "inspect", *at, *command) == 0
    assert "srv__third: added" in output_of(capsys, "mcp", "inspect", *at, *command, "added", code=1).out
    assert "\u001b" not in output_of(capsys, "mcp", "accept", *at, *command, "odd", code=2).err
    assert "nested" in output_of(capsys, "mcp", "accept", *at, *command, "deep", code=2).err
    assert exit_code("mcp", "accept", *at, "/nowhere/at/all") == 2
    ends = (sys.executable, "-c", "import not_there")
    assert "not_there'" in output_of(capsys, "mcp", "inspect", "srv", "--", *ends, code=2).err
    with pytest.raises(InputError, match="said: log in"):
        offered_at(ServerPlace(("sh", "-c", "echo log in >&2; sleep 60"), timeout_s=1.5))
    assert exit_code("mcp", "accept", "srv", "--env=NOT_SET_AT_ALL", "--lock", str(lock), "--", *command) == 2
    assert lock.read_bytes() == before
    dag = {str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 4} for n in range(14)} | {"14": {}}
    odd = [1, {"inputSchema": {"properties": None}}, {"inputSchema": {"$defs": dag, "$ref": "#/$defs/0"}}]
    odd += [{"inputSchema": {"type": "object"}, "description": 5}]
    locks = [json.dumps({"schema": "mcp-lock/v1", "servers": {"srv": {"a": it}}}) for it in odd]
    closed = '{"type": "object"}, "description": '
    twice = '{"inputSchema": ' + closed + '"\\ud800"}', '{"inputSchema": {}, "inputSchema": ' + closed + '""}'
    locks += [locks[0].replace("1}}", f"{it}}}}}") for it in twice]
    for text in ("{", "[" * 100_000, '{"schema": "mcp-lock/v1"}', *locks):
        lock.write_text(text)
        with pytest.raises(ToolError, match=r"mcp\.lock"):
            mcp("srv", command=command, lock=lock)
    assert str(lock) in output_of(capsys, "mcp", "inspect", *at, *command, code=2).err


EARLY = "Connection.ready = lambda self: os.kill(os.getpid(), int(open('go').read()))"


@pytest.mark.parametrize("early", ["pass", EARLY])
def test_no_server_outlives_a_command_that_is_told_to_end(tmp_path: Path, early: str) -> None:
    """Also where it is told so before it waits for the server."""
    code = "import os; from tachograph.cli.main import main; "
    code += f"from tachograph.runtime.mcp.connection import Connection; {early}; main()"
    fifo, go = tmp_path / "fifo", tmp_path / "go"
    os.mkfifo(fifo)
    os.mkfifo(go)
    stubborn = "import os, signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    stubborn += "open(sys.argv[1], 'w').write(str(os.getpid())); signal.alarm(60); signal.pause()"
    server = [sys.executable, "-c", stubborn, str(fifo)]
    inspect = [sys.executable, "-c", code, "mcp", "inspect", "srv", "--", *server]
    command = subprocess.Popen(inspect, cwd=tmp_path)
    pid = int(fifo.read_text())
    if early == "pass":
        command.terminate()
    else:
        go.write_text(str(int(signal.SIGTERM)))
    assert command.wait(30) == 130
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_task_names_a_server_that_wants_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SRV_KEY", "key")
    task = project_of(tmp_path, {"tool_registry": {"allowed": ["srv__note"]}})
    monkeypatch.chdir(tmp_path)
    with served() as url:
        assert exit_code("mcp", "accept", "srv", "--url", url, "--header", "x-key=key") == 0
        for env, code in (([], 2), (["SRV_KEY"], 0)):
            rewrite(task, mcp={"srv": {"url": url, "env": env, "headers": {"x-key": "a $SRV_KEY,"}}})
            output_of(capsys, "run", "mcp/note", code=code)
    assert b'{"text":"a key,a"}' in (tmp_path / "runs/mcp/note/state.jsonl").read_bytes()
    monkeypatch.delenv("SRV_KEY")
    assert exit_code("check") == exit_code("run") == exit_code("run", "--again") == 0
    assert b'"failed"' in (tmp_path / "runs/mcp/note/state.jsonl").read_bytes()
    monkeypatch.setenv("SRV_KEY", "hidden\nkey")
    assert exit_code("run", "--again") == 0
    assert "hidden" not in caplog.text


@pytest.mark.parametrize("sections", [{}, READS])
def test_a_task_names_tools_of_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sections: dict[str, Any]
) -> None:
    task = project_of(tmp_path, sections)
    monkeypatch.chdir(tmp_path)
    assert exit_code("run", "mcp/note") == 2
    accepted(tmp_path)
    assert exit_code("run", "mcp/note") == 0
    state = (tmp_path / "runs/mcp/note/state.jsonl").read_bytes()
    assert (b'"effect":"read"' in state) is bool(sections)
    rewrite(task, mcp={"srv": {"command": ["/nowhere"]}})
    for words in ("run mcp/note", "check", "verify", "doctor", "policy check policy/p.yaml"):
        assert exit_code(*words.split()) == 0
    assert (tmp_path / "runs/mcp/note/state.jsonl").read_bytes() == state
    assert exit_code("run", "mcp/note", "--again") == 0
    assert b'"failed"' in (tmp_path / "runs/mcp/note/state.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("named", "code"), [([], 0), (["own"], 0), (["srv__note"], 2), (["own", "other"], 2)]
)
def test_a_damaged_lock_stops_runs_under_policies_that_name_more_than_own_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: list[str], code: int
) -> None:
    task = project_of(tmp_path, {"tool_registry": {"allowed": named}, "tools": {}})
    rewrite(task, tools=[], mcp={}, llm={"stub": {"turns": [{"answer": "b"}]}}, expected={})
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/own.py").write_text("")
    (tmp_path / "mcp.lock").write_text("{")
    monkeypatch.chdir(tmp_path)
    assert exit_code("run", "mcp/note") == code
    assert exit_code("doctor") == 1 and exit_code("policy", "check", "policy/p.yaml") == 2
