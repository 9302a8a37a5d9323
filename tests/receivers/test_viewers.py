"""Recorded runs in Phoenix and in MLflow, read back over their own interfaces.

Run by `make receivers`, which installs both in an environment of their own and names it in
TACHOGRAPH_RECEIVERS. Each protocol has a server of its own: what the first push stored, a second one keeps.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT, environment

if "TACHOGRAPH_RECEIVERS" not in os.environ:
    pytest.skip("real viewers: run by `make receivers`", allow_module_level=True)

from tests.receivers.viewers import Mlflow, Phoenix, Shown

SCRIPTS = Path(os.environ["TACHOGRAPH_RECEIVERS"]).resolve() / "bin"
CANONICAL = "runs/canonical/v1"
DENIED = "runs/policy_gates/pg1_off_allowlist_url"
RETRIED = "runs/failure_modes/tool_call_failure"
RUNS = (CANONICAL, DENIED, RETRIED)
WAYS = [(Phoenix, "grpc"), (Phoenix, "http/protobuf"), (Mlflow, "http/protobuf"), (Mlflow, "http/json")]


@pytest.fixture(scope="module", params=WAYS, ids=lambda way: f"{way[0].__name__}-{way[1]}")
def way(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, str]]:
    """A viewer under way and the protocol that it is spoken to with."""
    kind, protocol = request.param
    with kind(SCRIPTS, tmp_path_factory.mktemp(kind.__name__)) as viewer:
        yield viewer, protocol


def push(way: tuple[Any, str], *words: str) -> list[dict[str, Any]]:
    """What `tachograph push --json` says of the runs it sent."""
    viewer, protocol = way
    command = [sys.executable, "-m", "tachograph", "push", *words, "--json", *viewer.headers]
    done = subprocess.run(
        [*command, "--endpoint", viewer.endpoints[protocol], "--protocol", protocol],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    sent: list[dict[str, Any]] = json.loads(done.stdout)["sent"]
    assert all(item["rejected"] == 0 and item["requests"] == 1 for item in sent)
    return sent


def recorded(run: str) -> dict[str, Shown]:
    """The spans of `trace.json` as a viewer should give them back."""
    tree = json.loads((ROOT / run / "trace.json").read_bytes())
    made = {}
    for span in tree["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        attributes = {item["key"]: next(iter(item["value"].values())) for item in span["attributes"]}
        made[span["spanId"]] = Shown(
            span["name"],
            span.get("parentSpanId"),
            attributes.get("openinference.span.kind", "UNKNOWN"),
            span.get("status", {}).get("code") == 2,
            int(span["startTimeUnixNano"]) // 1000,
            attributes,
        )
    return made


def queries(viewer: str) -> tuple[str, str]:
    """What the page of queries asks a viewer: denials, and attempts that failed or were repeated."""
    page = (ROOT / "docs/queries.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| {viewer} \| `(.*?)` \| `(.*?)` \|$", page, re.M)
    return row[0], row[1]


def same(shown: dict[str, Shown], wanted: dict[str, Shown], *, shift_us: int = 0) -> None:
    """Hold what a viewer gives back against what was sent; its clock may round."""
    assert set(shown) == set(wanted)
    for key, span in wanted.items():
        assert shown[key][:4] == span[:4]
        assert abs(shown[key].start_us - span.start_us - shift_us) <= 1


def test_a_recorded_run_is_shown_as_it_was_recorded_however_often_it_is_sent(way: tuple[Any, str]) -> None:
    for _ in range(2):
        for item in push(way, *RUNS):
            wanted = recorded(item["run"])
            assert item["spans"] == len(wanted)
            same(way[0].spans(item["trace_id"], len(wanted)), wanted)


def test_the_denial_the_model_the_tokens_and_the_tools_are_there(way: tuple[Any, str]) -> None:
    canonical, denied, retried = push(way, *RUNS)
    shown = way[0].spans(denied["trace_id"], denied["spans"])
    (check,) = [span.attributes for span in shown.values() if span.kind == "GUARDRAIL"]
    assert check["agent.policy.decision"] == "deny" and check["agent.policy.rule_id"] == "url_allowlist"
    assert check["agent.policy.at"] == "policy/v1.yaml#/url_allowlist"
    if isinstance(way[0], Phoenix):
        assert way[0].filtered("agent.policy.decision == 'deny'") == ["policy_check"]
        denials, repeated = queries("Phoenix")
        assert way[0].filtered(denials) == ["policy_check"]
        assert way[0].filtered(repeated) == ["retry_attempt", "retry_attempt"]
        assert "retry_attempt" in way[0].filtered("status_code == 'ERROR'")
    else:
        denials, failed = queries("MLflow")
        assert way[0].filtered(denials) == [denied["trace_id"]]
        assert way[0].filtered(failed) == [retried["trace_id"]]
    assert "TOOL" not in {span.kind for span in shown.values()}
    shown = way[0].spans(canonical["trace_id"], canonical["spans"])
    models = [span.attributes for span in shown.values() if span.kind == "LLM"]
    tools = [span.attributes for span in shown.values() if span.kind == "TOOL"]
    assert {tool["gen_ai.tool.name"] for tool in tools} == {"search", "fetch", "read", "summarize"}
    if isinstance(way[0], Phoenix):
        assert sum(model["llm.token_count.total"] for model in models) == 6130
        assert {model["llm.model_name"] for model in models} <= {"script", "stub"}
        assert {tool["tool.name"] for tool in tools} == {"search", "fetch", "read", "summarize"}
    else:
        assert sum(model["mlflow.chat.tokenUsage"]["total_tokens"] for model in models) == 6130
        assert {model["mlflow.llm.model"] for model in models} <= {"script", "stub"}
    shown = way[0].spans(retried["trace_id"], retried["spans"])
    attempts = [span for span in shown.values() if span.name == "retry_attempt"]
    assert sorted(span.is_error for span in attempts) == [False, False, True, True]


def test_what_was_said_is_shown_where_it_is_sent(way: tuple[Any, str]) -> None:
    canonical, denied = push(way, CANONICAL, DENIED, "--now", "--content")
    shown = way[0].spans(canonical["trace_id"], canonical["spans"])
    (root,) = [span for span in shown.values() if span.parent is None]
    assert root.attributes["agent.recorded.trace_id"] == "ba4c97ae94d7fda0c981b66cc82f2bf8"
    names = ["input.value", "output.value"]
    if isinstance(way[0], Mlflow):
        names = ["mlflow.spanInputs", "mlflow.spanOutputs"]
    asked, said = (str(root.attributes[name]) for name in names)
    assert "What must a driver do" in asked and "Ollerbeck within 20 minutes" in said
    models = [str(span.attributes) for span in shown.values() if span.kind == "LLM"]
    assert all("What must a driver do" in model for model in models)
    assert any("op-a4" in str(span.attributes[names[1]]) for span in shown.values() if span.kind == "TOOL")
    shown = way[0].spans(denied["trace_id"], denied["spans"])
    (check,) = [span.attributes for span in shown.values() if span.kind == "GUARDRAIL"]
    assert "news.example/recorder-failures" in str(check[names[0]])
    assert "is not in url_allowlist" in str(check[names[1]])


def test_a_viewer_that_refuses_says_why(way: tuple[Any, str]) -> None:
    viewer = way[0]
    command = [sys.executable, "-m", "tachograph", "push", CANONICAL, "--protocol", "http/json"]
    done = subprocess.run(
        [*command, "--endpoint", viewer.url], cwd=ROOT, env=environment(),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    if isinstance(viewer, Phoenix):
        assert "status 415" in done.stderr and "try --protocol http/protobuf" in done.stderr
    else:
        assert "status 422" in done.stderr  # it wants the header that names an experiment
