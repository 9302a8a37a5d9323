"""Secrets in whole live runs: wherever one enters, nothing that is written or printed holds it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.evidence.project import replaced
from tests.providers import sessions
from tests.providers.protocols import Turn
from tests.providers.servers import Reply, Server, Status
from tests.providers.sessions import Project, everything_below
from tests.support import TASK

project = sessions.project

KEYS = {
    "openai": ("OPENAI_API_KEY", "sk-proj-CANARYenvironment0123456789abcdef", "openai_key"),
    "anthropic": ("ANTHROPIC_API_KEY", "sk-ant-api03-CANARYenvironment0123456789", "anthropic_key"),
    "ollama": ("OLLAMA_API_KEY", "0123456789abCANARYenvironment.cdef", "api_key"),
}
QUESTION = "AKIACANARYQUESTION77"
RESULT = "ghp_CANARYresult0123456789abcdefghijklmnopq"
SECOND = "github_pat_CANARYsecond0123456789_abcdefghij"
URL = "AIzaCANARYurl0123456789abcdefghijklmnopqr"
RAISED = "xoxb-CANARYexception-0123456789"
SAID = "sk-CANARYsaid0123456789abcdefghijklmnop"
BODY = "sk-ant-CANARYbody0123456789"
KINDS = (
    "anthropic_key aws_access_key bearer_token github_token google_key jwt openai_key private_key slack_token"
)
TOOL = """
DESCRIPTION = "Fails with a text."
INPUT_SCHEMA = {"type": "object", "additionalProperties": False, "properties": {}}
OUTPUT_SCHEMA = {"type": "object", "additionalProperties": False, "properties": {}}
EFFECT = "pure"
IDEMPOTENT = True
TRANSIENT = (ConnectionError,)


def run(args, io):
    raise ConnectionError("refused with the token TOKEN")
"""


def prepared(project: Project) -> None:
    """Secrets in the question, in documents and in an exception's text; a policy that names the kinds."""
    document = project.folder / "data/corpus/v1/op-a4.md"
    text = document.read_text(encoding="utf-8")
    document.write_text(f"{text}\nThe keys are {RESULT} and {SECOND}, {RESULT}.\n", encoding="utf-8")
    (project.folder / "tools/boom.py").write_text(TOOL.replace("TOKEN", RAISED), encoding="utf-8")
    replaced(project.task, "tools: [", "tools: [boom, ")
    replaced(project.task, "on the road?", f"on the road, with {QUESTION}?")
    project.overlay(
        "tool_registry: {allowed: [search, fetch, read, write, summarize, boom]}\n"
        "retry: {max_retries: 1, backoff_base_ms: 1, backoff_cap_ms: 1}\n"
        f"on_deny: inform\nredact: [{KINDS.replace(' ', ', ')}]\n"
    )


def turns(key: str) -> list[Reply]:
    """What the model says: it repeats what it should not know, and asks for more of it."""
    read = json.dumps({"path": "corpus/op-a4.md"})
    away = json.dumps({"url": f"https://corpus.test/op-a1.md?key={URL}"})
    there = json.dumps({"url": "https://corpus.test/op-a4.md"})
    note = json.dumps({"path": "sandbox/note.md", "content": f"{SAID} and {key}"})
    error = json.dumps({"error": {"type": "overloaded_error", "message": f"{BODY} {key}"}}).encode()
    return [
        Turn(f"I know {SAID} and {key}.", (("read", read),)),
        Status(503, {"Retry-After": key}, error),
        Turn("", (("fetch", away),)),
        Turn("", (("fetch", there), ("write", note))),
        Turn(f"The tool {key[:9]}", ((f"tool-{SAID}", "{}"), ("search", json.dumps({"query": key})))),
        Turn("", (("search", f'{{"query": "{SAID}'),)),  # no JSON
        Turn("", (("boom", "{}"),)),
    ]


def recorded(project: Project, provider: str, monkeypatch: pytest.MonkeyPatch, *more: str) -> Any:
    """Record it. What was printed, what was written as it stood at each request, what was sent."""
    prepared(project)
    name, key, _ = KEYS[provider]
    monkeypatch.setenv(name, key)
    kept: list[tuple[str, bytes]] = []

    def snapped(reply: Reply) -> Any:
        def answer(_: dict[str, Any]) -> Reply:
            kept.extend(everything_below(project.folder / "made"))
            return reply

        return answer

    with Server([snapped(reply) for reply in turns(key)]) as server:
        said = project.run(server, provider, *more)
        sent = [json.dumps(request.body) for request in server.requests]
    assert any(name.endswith(".partial/journal.jsonl") for name, _ in kept)
    kept += everything_below(project.folder / "made")
    kept += everything_below(project.folder / ".tachograph")
    return said, kept, sent


def leaks(kept: list[tuple[str, bytes]], key: str) -> list[str]:
    canaries = (key, QUESTION, RESULT, SECOND, URL, RAISED, SAID, BODY, "CANARY")
    return sorted(
        {f"{name}: {canary}" for name, data in kept for canary in canaries if canary.encode() in data}
    )


@pytest.mark.parametrize("how", ["--no-stream", "--json", "--quiet"])
def test_no_secret_is_written_printed_or_sent_back(
    project: Project, provider: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, kept, sent = recorded(project, provider, monkeypatch, how)
    key = KEYS[provider][1]
    kept += [("stdout", said.out.encode()), ("stderr", said.err.encode())]
    assert leaks(kept, key) == []
    # nor is the model told: what it repeats it made up, or was told by its service
    told = [("told", text.encode()) for text in sent]
    assert leaks(told, key) == []
    lines = project.lines()
    assert lines[-1]["failure_mode"] == "retry_exhaustion", "the run came to its last turn"
    assert lines[0]["question"].endswith("with <secret:aws_access_key:1>?")
    text = (project.place() / "state.jsonl").read_text(encoding="utf-8")
    for kind in ("github_token:1", "github_token:2", "google_key:1", "openai_key:1"):
        assert f"<secret:{kind}>" in text
    assert f"<secret:{KEYS[provider][2]}:" in text


def test_what_was_redacted_is_replayed_and_checked(
    project: Project, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(project, provider, monkeypatch)
    monkeypatch.delenv(KEYS[provider][0])
    project.proven()


def test_equal_secrets_have_one_number(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openai")
    recorded(project, "openai", monkeypatch)
    result = project.lines()[1]["tool_results"][0]["result"]["text"]
    assert result.endswith(
        "The keys are <secret:github_token:1> and <secret:github_token:2>, <secret:github_token:1>.\n"
    )


def test_a_key_of_one_s_own_is_hidden_without_a_word_of_the_policy(
    project: Project, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, key, kind = KEYS[provider]
    monkeypatch.setenv(name, key)
    with Server([Turn(f"My key is {key}.")]) as server:
        assert project.run(server, provider).code == 0
        assert key in server.requests[0].headers["authorization"]
    assert project.lines()[-1]["final_answer"] == f"My key is <secret:{kind}:1>."
    assert leaks(list(everything_below(project.folder / "made")), key) == []
    monkeypatch.delenv(name)
    project.proven()


@pytest.mark.parametrize("where", ["question", "reply", "call"])
def test_numbers_that_were_given_out_before_a_tool_ran(
    project: Project, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two secrets of one kind: the tool's has number 2, also where a check lets the tool work again."""
    pytest.importorskip("openai")
    prepared(project)
    other = "ghp_CANARYother00123456789abcdefghijklmnopq"
    if where == "question":
        replaced(project.task, QUESTION, other)
    path = {"path": "corpus/op-a4.md", "x": other} if where == "call" else {"path": "corpus/op-a4.md"}
    first = Turn("", (("read", json.dumps(path)),)) if where == "call" else Turn("", ())
    read = Turn(other if where == "reply" else "", (("read", '{"path": "corpus/op-a4.md"}'),))
    with Server([*([first] if where == "call" else []), read, Turn("Done.")]) as server:
        assert project.run(server, "openai").code == 0
    assert "<secret:github_token:2> and <secret:github_token:3>" in json.dumps(project.lines())
    project.proven()


def test_a_key_of_one_s_own_in_a_document(
    project: Project, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check, which does not know the key, finds it where the record has its placeholder."""
    name, key, kind = KEYS[provider]
    monkeypatch.setenv(name, key)
    document = project.folder / "data/corpus/v1/op-a4.md"
    document.write_text(f"The key is {key}, and that is all.", encoding="utf-8")
    with Server([Turn("", (("read", '{"path": "corpus/op-a4.md"}'),)), Turn("Done.")]) as server:
        assert project.run(server, provider).code == 0
    text = project.lines()[1]["tool_results"][0]["result"]["text"]
    assert text == f"The key is <secret:{kind}:1>, and that is all."
    monkeypatch.delenv(name)
    project.proven()
    document.write_text(f"The key is {key}, and that is not all.", encoding="utf-8")
    said = project("check", "made/live/v1")
    assert said.code == 1 and "input differs at step 2" in said.out


def _live_run(provider: str, where: str) -> tuple[str, ...]:
    return ("run", TASK, "--llm", f"{provider}:some-model", "--base-url", where, "--out", "made/live/v1")


def test_a_key_in_an_address_is_not_shown(
    project: Project, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place in the path is sent and shown nowhere; a query or a user is refused, and not shown either."""
    with Server([Status(404)]) as server:
        where = f"http://127.0.0.1:{server.port}/{SAID}"
        said = project(*_live_run(provider, where))
        assert SAID in server.requests[0].path
    assert said.code == 1 and "CANARY" not in said.out + said.err
    assert leaks(list(everything_below(project.folder / "made")), SAID) == []
    for where in (
        f"http://127.0.0.1:1/v1?key={SAID}",
        f"http://user:{SAID}@127.0.0.1:1/v1",
        f"ftp://{SAID}/",
    ):
        said = project(*_live_run(provider, where))
        assert said.code == 2 and "CANARY" not in said.out + said.err


def test_the_search_would_find_one(project: Project, tmp_path: Path) -> None:
    pytest.importorskip("openai")
    policy = project.folder / "policy/v1.yaml"
    policy.write_text(
        re.sub(r"(?ms)^redact:.*", 'redact: {"off": true}\n', policy.read_text(encoding="utf-8"))
    )
    with Server([Turn(f"My key is {SAID}.")]) as server:  # it is no key of ours
        assert project.run(server, "openai").code == 0
    found = leaks(list(everything_below(project.folder / "made")), "none")
    assert any("state.jsonl" in line for line in found) and any("run_report.md" in line for line in found)
