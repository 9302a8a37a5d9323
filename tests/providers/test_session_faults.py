"""Whole recorded runs over servers that fail: a classified failure or a recorded retry, in bounded time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.providers import sessions
from tests.providers.protocols import Turn
from tests.providers.servers import Broken, Raw, Reply, Server, Status, body
from tests.providers.sessions import ANSWER, SEARCH, Project, impatient

project = sessions.project

LONG = Turn("I look at what the corpus has to say.", (("search", '{"query": "recorder fails"}'),))
QUICK = "retry: {max_retries: 2, backoff_base_ms: 4, backoff_cap_ms: 40}\n"

# what a server does -> (failure mode, how often it is asked); for each of the three where they differ
KINDS: dict[str, tuple[Reply, str]] = {
    "busy": (Status(429), "llm_failure 3"),
    "overloaded": (Status(529, body=b'{"error": {"type": "overloaded_error"}}'), "llm_failure 3"),
    "server error": (Status(500), "llm_failure 3"),
    "bad key": (Status(401), "llm_failure 1"),
    "no such model": (Status(404), "llm_failure 1"),
    "too large": (Status(413), "llm_failure 1"),
    "redirect": (Status(302, {"Location": "http://127.0.0.1:1/"}), "llm_failure 1"),
    "reset": (Raw(b"", then="reset"), "llm_failure 3"),
    "silent": (Raw(b"", then="stall"), "llm_failure 3"),
    "half a head": (Raw(b"HTTP/1.1 200 OK\r\nContent-Le"), "llm_failure 3"),
    "empty": (Raw(body(b"")), "llm_failure 3"),
    "html": (Raw(body(b"<html>Sign in</html>", "text/html")), "llm_invalid_output 1"),
    "null": (Raw(body(b"null")), "llm_invalid_output 1"),
    "latin-1": (Raw(body(b'{"x": "\xe9\xff"}')), "llm_invalid_output 1"),
    "corrupt event": (Broken(LONG, 6, "corrupt"), "llm_invalid_output 1"),
    "cut before it began": (Broken(LONG, 0, "drop"), "llm_failure 3"),
    "cut by the end": (Broken(LONG, 6, "end"), "llm_failure 1"),
    "cut by a lost connection": (Broken(LONG, 6, "drop"), "llm_failure 1"),
    "cut by a reset": (Broken(LONG, 6, "reset"), "llm_failure 1"),
    "cut by silence": (Broken(LONG, 6, "stall"), "llm_failure 1"),
    "cut by an error": (Broken(LONG, 6, "overloaded_error"), "llm_failure 1"),
    "cut by length": (LONG, "llm_invalid_output 1"),
    "calls without end": (Broken(LONG, 22, "end"), "llm_failure 1"),
}
LENGTH = {"openai": "length", "anthropic": "max_tokens", "ollama": "length"}


def played(kind: str, provider: str) -> tuple[Reply, str, int]:
    reply, wanted = KINDS[kind]
    if kind == "cut by length":
        reply = Turn(LONG.text, LONG.calls, finish=LENGTH[provider])
    mode, _, count = wanted.partition(" ")
    return reply, mode, int(count)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_ends_the_run_classified(
    project: Project, provider: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, 0.2, 0.8)
    project.overlay(QUICK)
    reply, mode, count = played(kind, provider)
    with Server([SEARCH, *[reply] * 5]) as server:
        said = project.run(server, provider)
        asked = len(server.requests) - 1
    lines = project.lines()
    assert (said.code, lines[-1]["terminal_reason"], lines[-1]["failure_mode"]) == (
        1,
        "failure_mode_terminal",
        mode,
    )
    first, last = lines[1], lines[-2]
    assert first["tool_results"][0]["status"] == "ok", "what came before stands"
    assert last["failure_mode"] == mode and asked == count == len(last["llm_attempts"])
    _retries(last["llm_attempts"])
    # nothing of a reply that did not come whole was performed, nor decided
    assert last["policy_decisions"] == [] and lines[-1]["totals"]["tool_calls"] == 1
    assert all(result["status"] == "not_reached" for result in last["tool_results"])
    project.proven()


def _retries(attempts: list[dict[str, Any]]) -> None:
    """Each attempt but the last failed for a moment, and its wait is recorded, within the policy's cap."""
    for number, entry in enumerate(attempts, 1):
        assert entry["attempt"] == number
        if number < len(attempts):
            assert entry["outcome"] == "transient_failure" and 0 <= entry["backoff_ms"] <= 40
        else:
            assert entry["outcome"] in ("exhausted", "failed") and "backoff_ms" not in entry


@pytest.mark.parametrize("fault", [Status(503), Raw(b"", then="reset"), Broken(LONG, 0, "end")])
def test_a_fault_that_passes_is_a_recorded_retry(project: Project, provider: str, fault: Reply) -> None:
    project.overlay(QUICK)
    with Server([SEARCH, fault, fault, ANSWER]) as server:
        said = project.run(server, provider)
    assert said.code == 0, said
    last = project.lines()[-2]
    assert [entry["outcome"] for entry in last["llm_attempts"]] == [*["transient_failure"] * 2, "success"]
    order = sorted(last["stamps"], key=lambda position: last["stamps"][position])
    assert order == ["m.1", "wm.1", "m.2", "wm.2", "m.3"]
    project.proven()


@pytest.mark.parametrize(
    ("headers", "waits"),
    [
        ({"Retry-After": "0.02"}, 20),
        ({"Retry-After": "30"}, 150),
        ({"Retry-After": "99999999999"}, 150),
        ({"Retry-After": "Wed, 21 Oct 2037 07:28:00 GMT", "Date": "Wed, 21 Oct 2037 07:27:59 GMT"}, 150),
        ({"Retry-After": "Wed, 21 Oct 2037 07:28:00 GMT", "Date": "Wed, 21 Oct 2037 07:28:00 GMT"}, 0),
        ({"retry-after-ms": "35"}, 35),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else None,
)
def test_retry_after_is_honoured_up_to_the_cap(
    project: Project, headers: dict[str, str], waits: int | None
) -> None:
    pytest.importorskip("openai")
    project.overlay("retry: {max_retries: 1, backoff_base_ms: 50, backoff_cap_ms: 150}\n")
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    busy = f"HTTP/1.1 429 Busy\r\n{head}Content-Length: 2\r\nConnection: close\r\n\r\n{{}}"
    with Server([Raw(busy.encode()), ANSWER]) as server:
        assert project.run(server, "openai").code == 0
    step = project.lines()[1]
    waited = step["llm_attempts"][0]["backoff_ms"]
    if waits is None:
        assert 40 <= waited <= 60  # the policy's own schedule
    else:
        assert waited == waits
    begun, ended = step["stamps"]["wm.1"]
    assert waited * 1e6 <= ended - begun
    project.proven()


def test_no_retry_where_the_policy_has_none(project: Project, provider: str) -> None:
    text = project.folder / "policy/v1.yaml"
    kept = text.read_text(encoding="utf-8")
    head, _, rest = kept.partition("retry:\n")
    text.write_text(head + rest.partition("on_deny")[1] + rest.partition("on_deny")[2], encoding="utf-8")
    with Server([Status(503), ANSWER]) as server:
        assert project.run(server, provider).code == 1
        assert len(server.requests) == 1
    assert project.lines()[-1]["failure_mode"] == "llm_failure"


def test_a_run_that_waits_can_be_told_to_end(project: Project) -> None:
    pytest.importorskip("openai")
    project.overlay("retry: {max_retries: 5, backoff_base_ms: 400, backoff_cap_ms: 400}\n")
    with Server([Status(503)] * 9) as server:
        said = project.run(server, "openai", "--timeout", "0.6")
    assert said.code == 1 and project.lines()[-1]["failure_mode"] == "timeout"
    project.proven()
