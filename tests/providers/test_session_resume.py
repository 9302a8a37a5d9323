"""A live run that is killed goes on where it was, with the server there again and nothing asked twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from tachograph.runtime.core.known_secrets import forget_all
from tests.providers import sessions
from tests.providers.protocols import Turn
from tests.providers.servers import Broken, Raw, Reply, Server
from tests.providers.sessions import ANSWER, READ, SEARCH, Project
from tests.support import FILES, ROOT, environment

project = sessions.project

BOUND_S = 60
# the command line, which notices Ctrl-C even where the tests were started with the signal ignored
ATTENTIVE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from tachograph.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
WRITE = Turn("I write.", (("write", '{"path": "sandbox/note.md", "content": "noted"}'),))
LONG = Turn("I write something longer than that.", WRITE.calls)


def killed(project: Project, server: Server, requests: int, *words: str) -> None:
    """Start a command; kill it with -9 once the server has this many requests, the last one left open."""
    with started(project, *words) as process:
        try:
            reached(server, requests, process)
        finally:
            process.kill()
        process.communicate(timeout=BOUND_S)
    assert process.returncode == -signal.SIGKILL


def started(project: Project, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", ATTENTIVE, *words],
        cwd=project.folder,
        env=environment({"PYTHONPATH": str(ROOT)}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def reached(server: Server, requests: int, process: subprocess.Popen[bytes]) -> None:
    limit = time.monotonic() + BOUND_S
    while len(server.requests) < requests and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.02)
    assert process.poll() is None, process.communicate()
    assert len(server.requests) == requests
    time.sleep(0.05)  # let it read what it is sent


STALLS: dict[str, Reply] = {"before a reply": Raw(b"", then="stall"), "in a reply": Broken(LONG, 6, "stall")}


@pytest.mark.parametrize("when", STALLS)
def test_a_killed_run_goes_on(project: Project, provider: str, when: str) -> None:
    with Server([SEARCH, WRITE, STALLS[when]]) as server:
        killed(project, server, 3, *project.words(server, provider))
    partial = project.folder / "made/live/v1.partial"
    assert partial.is_dir() and not project.place().exists()
    with Server([READ, ANSWER]) as server:
        said = project("resume", "made/live/v1.partial", "--base-url", server.base_url(provider))
        assert said.code == 0, said
        bodies = [request.body for request in server.requests]
    assert said.err.startswith(f"tachograph: the model {provider}:some-model is asked at 127.0.0.1:")
    assert len(bodies) == 2, "only what was not answered is asked again"
    told = json.dumps(bodies[0]["messages"])
    assert "op-a4" in told and "note.md" in told
    lines = project.lines()
    assert [call["name"] for line in lines[1:-1] for call in line["intended_tool_calls"]] == [
        "search",
        "write",
        "read",
    ]
    assert [len(line["llm_attempts"]) for line in lines[1:-1]] == [1, 1, 1, 1]
    assert lines[-1]["final_answer"] == ANSWER.text and not partial.exists()
    assert sorted(path.name for path in project.place().iterdir()) == sorted(FILES)
    project.proven()


def test_the_record_is_that_of_a_run_that_was_not_killed(project: Project) -> None:
    pytest.importorskip("openai")
    with Server([SEARCH, WRITE, Raw(b"", then="stall")]) as server:
        killed(project, server, 3, *project.words(server, "openai"))
    with Server([READ, ANSWER]) as server:
        assert project("resume", "made/live/v1", "--base-url", server.base_url("openai")).code == 0
    forget_all()  # this process may have opened other models
    with Server([SEARCH, WRITE, READ, ANSWER]) as server:
        assert project.run(server, "openai", name="whole").code == 0
    resumed, whole = project.lines(), project.lines("whole")
    parted = set().union(*(sessions.differing(a, b) for a, b in zip(resumed, whole, strict=True)))
    parted = {at for at in parted if not at.startswith("/stamps/")}
    assert parted == {"/run_id", "/clock/start", "/prev", "/stamp"}


def test_it_can_die_again_and_again(project: Project) -> None:
    pytest.importorskip("openai")
    with Server([SEARCH, Raw(b"", then="stall")]) as server:
        killed(project, server, 2, *project.words(server, "openai"))
    for reply in (WRITE, READ):
        with Server([reply, Raw(b"", then="stall")]) as server:
            killed(project, server, 2, "resume", "made/live/v1", "--base-url", server.base_url("openai"))
    with Server([ANSWER]) as server:
        assert project("resume", "made/live/v1", "--base-url", server.base_url("openai")).code == 0
        assert len(server.requests) == 1
    assert len(project.lines()) == 6
    project.proven()


def test_what_was_asked_for_is_asked_for_again(project: Project) -> None:
    pytest.importorskip("openai")
    more = ("--llm-option", "temperature=0", "--llm-option", 'stop=["x"]')
    with Server([SEARCH, Raw(b"", then="stall")]) as server:
        killed(project, server, 2, *project.words(server, "openai", *more))
        asked = server.requests[1].body
    with Server([ANSWER]) as server:
        assert project("resume", "made/live/v1", "--base-url", server.base_url("openai")).code == 0
        again = server.requests[0].body
    assert again["temperature"] == 0 and again["stop"] == ["x"]
    again.pop("stream", None), again.pop("stream_options", None)
    asked.pop("stream", None), asked.pop("stream_options", None)
    assert again == asked
    project.proven()


def test_it_waits_where_the_server_is_still_away(project: Project) -> None:
    """A model that is away ends a run that is gone on with like any other."""
    pytest.importorskip("openai")
    project.overlay("retry: {max_retries: 1, backoff_base_ms: 1, backoff_cap_ms: 1}\n")
    with Server([SEARCH, Raw(b"", then="stall")]) as server:
        killed(project, server, 2, *project.words(server, "openai"))
        where = server.base_url("openai")
    said = project("resume", "made/live/v1", "--base-url", where)
    assert said.code == 1 and project.lines()[-1]["failure_mode"] == "llm_failure"
    project.proven()


def test_no_key_is_in_the_journal_of_a_killed_run(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openai")
    key = "sk-proj-CANARYkilled0123456789abcdef"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with Server([Turn(f"{key}", SEARCH.calls), Raw(b"", then="stall")]) as server:
        killed(project, server, 2, *project.words(server, "openai"))
    kept = dict(sessions.everything_below(project.folder / "made"))
    assert any(name.endswith("journal.jsonl") for name in kept)
    assert not any(key.encode() in data for data in kept.values())
    other = "sk-proj-CANARYanother123456789abcdef"
    monkeypatch.setenv("OPENAI_API_KEY", other)
    with Server([Turn(f"{key} {other}")]) as server:
        assert project("resume", "made/live/v1", "--base-url", server.base_url("openai")).code == 0
    kept = dict(sessions.everything_below(project.folder / "made"))
    assert not any(other.encode() in data for data in kept.values())


def test_ctrl_c_while_a_model_is_silent_suspends_the_run(project: Project, provider: str) -> None:
    with Server([SEARCH, Raw(b"", then="stall")]) as server:
        with started(project, *project.words(server, provider)) as process:
            reached(server, 2, process)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=BOUND_S)
        assert process.returncode == 130
    assert not project.place().exists()
    with Server([ANSWER]) as server:
        assert project("resume", "made/live/v1", "--base-url", server.base_url(provider)).code == 0
    project.proven()


def test_ctrl_c_while_a_model_is_silent_may_end_the_run(project: Project, provider: str) -> None:
    with Server([SEARCH, Raw(b"", then="stall")]) as server:
        with started(project, *project.words(server, provider, "--on-signal", "cancel")) as process:
            reached(server, 2, process)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=BOUND_S)
        assert process.returncode == 130
    end = project.lines()[-1]
    assert (end["terminal_reason"], end["failure_mode"]) == ("cancelled", "interrupted")
    project.proven()
