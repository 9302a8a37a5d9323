"""The canonical task through the official SDKs, recorded by the command line, and proven without them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.providers import sessions
from tests.providers.asking import PACKAGES, PROVIDERS
from tests.providers.protocols import Turn
from tests.providers.servers import Server
from tests.providers.sessions import ANSWER, SEARCH, Project, differing, watched
from tests.providers.test_sdk_sessions import canonical_turns, essence
from tests.support import CANONICAL, FILES, ROOT, TASK, environment

project = sessions.project


def canonical_lines() -> list[dict[str, object]]:
    text = (ROOT / CANONICAL / "state.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n")[:-1]]


@pytest.mark.parametrize("stream", ["--no-color", "--quiet", "--json", "--no-stream"])
def test_recorded_with_a_server_proven_without(project: Project, provider: str, stream: str) -> None:
    with Server(canonical_turns()) as server:
        said = project.run(server, provider, stream)
        host = f"127.0.0.1:{server.port}"
    assert said.code == 0 and "final_answer" in said.out
    assert said.err == f"tachograph: the model {provider}:some-model is asked at {host}\n"
    assert len(server.requests) == 5 and all("stream" in r.body for r in server.requests) == (
        stream == "--no-color"
    )
    wanted, lines = canonical_lines(), project.lines()
    assert list(map(essence, lines[1:-1])) == list(map(essence, wanted[1:-1]))
    assert lines[-1]["final_answer"] == wanted[-1]["final_answer"]
    assert lines[0]["model"] == {
        "execution_path": "live",
        "provider": provider,
        "name": "some-model",
        "script_digest": None,
    }
    assert sorted(path.name for path in project.place().iterdir()) == sorted(FILES)
    for path in FILES:  # who was asked, and where, is nobody's business later on
        assert host.encode() not in (project.place() / path).read_bytes()
    project.proven()


# what the ledgers of two runs of the same session differ in: their names, their times, and the provider
RUN_AND_TIME = {"/run_id", "/clock/start", "/prev", "/stamp"}


def _parted(one: list[dict[str, object]], other: list[dict[str, object]]) -> set[str]:
    found: set[str] = set().union(*(differing(a, b) for a, b in zip(one, other, strict=True)))
    return {at for at in found if at not in RUN_AND_TIME and not at.startswith("/stamps/")}


@pytest.mark.parametrize("stream", ["--no-color", "--no-stream"])
def test_ledgers_differ_in_provider_fields_alone(project: Project, stream: str) -> None:
    for name in PROVIDERS:
        pytest.importorskip(PACKAGES[name])
        with Server(canonical_turns()) as server:
            assert project.run(server, name, stream, name=name).code == 0
    one = project.lines("openai")
    for name in ("anthropic", "ollama"):
        assert _parted(one, project.lines(name)) == {"/model/provider"}


def test_thinking_is_the_other_provider_field(project: Project) -> None:
    thoughtful = Turn(SEARCH.text, SEARCH.calls, thinking="first this")
    for name in ("openai", "anthropic"):
        pytest.importorskip(PACKAGES[name])
        with Server([thoughtful, ANSWER]) as server:
            assert project.run(server, name, name=name).code == 0
        project.proven(name)
    # a signed thought comes back as it was: the prompt of the next step differs by it, and so its digest
    parted = _parted(project.lines("openai"), project.lines("anthropic"))
    assert {at.split("/")[1] for at in parted} == {"model", "llm_output", "llm_input"}
    assert {at for at in parted if "/raw" not in at} == {"/model/provider", "/llm_input/digest"}


@pytest.mark.parametrize("verb", ["replay", "check", "verify", "show"])
def test_no_sdk_and_no_network_behind_a_record(project: Project, verb: str) -> None:
    pytest.importorskip("openai")
    with Server([SEARCH, ANSWER]) as server:
        assert project.run(server, "openai").code == 0
    done = subprocess.run(
        watched(verb, "made/live/v1"),
        cwd=project.folder,
        env=environment({"PYTHONPATH": str(ROOT)}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "[] [] 0"


def test_a_live_run_would_be_seen_by_that(project: Project) -> None:
    pytest.importorskip("openai")
    with Server([ANSWER]) as server:
        done = subprocess.run(
            watched(*project.words(server, "openai")),
            cwd=project.folder,
            env=environment({"PYTHONPATH": str(ROOT)}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert "'openai'" in done.stdout.splitlines()[-1] and "socket.connect" in done.stdout.splitlines()[-1]


def test_a_recorded_live_run_is_not_replaced_unasked(project: Project) -> None:
    pytest.importorskip("openai")
    with Server([ANSWER]) as server:
        assert project.run(server, "openai").code == 0
        before = (project.place() / "state.jsonl").read_bytes()
        said = project.run(server, "openai")
        assert said.code == 2 and "--replace" in said.err and len(server.requests) == 1
        assert (project.place() / "state.jsonl").read_bytes() == before
    with Server([ANSWER]) as server:
        assert project.run(server, "openai", "--replace").code == 0
    project.proven()


def test_options_stand_in_the_record(project: Project) -> None:
    pytest.importorskip("openai")
    with Server([ANSWER]) as server:
        words = ("--llm-option", "temperature=0", "--llm-option", "seed=7")
        assert project.run(server, "openai", *words).code == 0
        assert server.requests[0].body["temperature"] == 0 and server.requests[0].body["seed"] == 7
    run, step, *_ = project.lines()
    (entry,) = run["request_parts"]["options"]
    assert entry["options"] == {"temperature": 0, "seed": 7}
    assert step["llm_input"]["options"] == entry["digest"] and "options" not in run["model"]
    project.proven()


def test_nothing_is_written_where_nothing_can_be_asked(project: Project, tmp_path: Path) -> None:
    pytest.importorskip("openai")
    said = project("run", TASK, "--llm", "openai:some-model", "--out", "made/live/v1")
    assert said.code == 2 and said.err.count("\n") == 1 and "OPENAI_API_KEY is not set" in said.err
    assert not (project.folder / "made").exists()
