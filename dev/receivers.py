"""Show every recorded run, and one while it goes on, to two viewers of traces, and ask both what they understood.

    make receivers

Arize Phoenix and MLflow listen on loopback, and what they get is thrown away. The filter of each must find the runs in
which something was denied and no other. Tokens of runs, and times, kinds and errors of spans must be as recorded.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from tachograph import Agent, LLMOutput, Policy, ToolCall, record

VENV = Path(".venv/receivers").absolute()
PATIENCE_S = 180
# its receiver for gRPC would listen on all interfaces
PHOENIX = """
from phoenix.server import grpc_server, main
async def listen_not(self, *_): pass
grpc_server.GrpcServer.__aenter__ = grpc_server.GrpcServer.__aexit__ = listen_not
main.main()
"""
USAGE, NONE = "mlflow.trace.tokenUsage", '{"total_tokens": 0}'
SETTINGS = {
    "PHOENIX_HOST": "127.0.0.1",
    "MLFLOW_HOST": "127.0.0.1",
    "MLFLOW_WORKERS": "1",
    "PHOENIX_TELEMETRY_ENABLED": "false",
    "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}
Facts = dict[str, dict[str, Any]]  # `denied` and `tokens` by the id of a trace, the others by that of a span


def add(facts: Facts, span: str, begun_us: float, ended_us: float, kind: str, is_error: bool) -> None:
    """Add a span; times are in microseconds, which is all that Phoenix keeps."""
    facts["begun"][span], facts["ended"][span] = begun_us, ended_us
    facts["kind"][span], facts["error"][span] = kind, is_error


def told(folders: Iterable[Path]) -> Facts:
    """Return what records say, read as plain JSON."""
    facts: Facts = defaultdict(dict)
    for folder in folders:
        events = [json.loads(line) for line in (folder / "state.jsonl").read_text().splitlines()]
        spans = json.loads((folder / "trace.json").read_bytes())["resourceSpans"][0]["scopeSpans"][0]["spans"]
        trace = spans[0]["traceId"]
        facts["denied"][trace] = any(
            event.get("decision") == "deny" or (event["event"] == "answered" and event["answer"] != "allow")
            for event in events
        )
        used = [event["usage"] for event in events if event["event"] == "model_replied"]
        facts["tokens"][trace] = sum(usage["input_tokens"] + usage["output_tokens"] for usage in used)
        for span in spans:
            said = {item["key"]: item["value"].get("stringValue") for item in span["attributes"]}
            times = (int(span[f"{which}TimeUnixNano"]) / 1000 for which in ("start", "end"))
            add(facts, span["spanId"], *times, said.get("openinference.span.kind", "CHAIN"), "status" in span)
    return facts


def ask(url: str, body: Any = None, **query: Any) -> Any:
    """Return the JSON that an address answers with."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"{url}?{urlencode(query)}", data, {"content-type": "application/json"})
    with urlopen(request, timeout=60) as response:
        return json.load(response)


def ask_phoenix(url: str) -> Facts:
    """Return what Phoenix shows; in its filter of traces, attributes are those of the root."""
    facts, traces = defaultdict(dict), f"{url}/v1/projects/default/traces"
    shown = ask(traces, limit=1000, include_spans=True)["data"]
    found = ask(traces, limit=1000, filter="attributes['tachograph']['denied'] == True")["data"]
    for trace in shown:
        facts["denied"][trace["trace_id"]] = trace["id"] in {each["id"] for each in found}
        facts["tokens"][trace["trace_id"]] = trace["token_count_total"]
        for span in trace["spans"]:
            times = (datetime.fromisoformat(span[f"{which}_time"]) for which in ("start", "end"))
            in_us = (time.timestamp() * 1e6 for time in times)
            add(facts, span["span_id"], *in_us, span["span_kind"], span["status_code"] == "ERROR")
    return facts


def ask_mlflow(url: str) -> Facts:
    """Return what MLflow shows; its filter of attributes searches the text of each span."""
    facts, traces = defaultdict(dict), f"{url}/api/3.0/mlflow/traces"
    place = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "0"}}
    search = {"locations": [place], "max_results": 500}
    found = ask(f"{traces}/search", {**search, "filter": "span.attributes.tachograph.denied LIKE '%true%'"})
    for trace in ask(f"{traces}/search", search).get("traces", []):
        name = trace["trace_id"].removeprefix("tr-")
        facts["denied"][name] = trace["trace_id"] in {each["trace_id"] for each in found.get("traces", [])}
        facts["tokens"][name] = json.loads(trace["trace_metadata"].get(USAGE, NONE))["total_tokens"]
        for span in ask(f"{traces}/get", trace_id=trace["trace_id"])["trace"]["spans"]:
            said = {item["key"]: item["value"].get("string_value") for item in span["attributes"]}
            times = (int(span[f"{which}_time_unix_nano"]) / 1000 for which in ("start", "end"))
            is_error = span["status"].get("code") == "STATUS_CODE_ERROR"
            add(facts, base64.b64decode(span["span_id"]).hex(), *times, said.get("mlflow.spanType"), is_error)
    return facts


def until(spans: Set[str], look: Callable[[str], Facts], url: str, place: Path) -> Facts:
    """Ask a viewer until it shows some spans: it may still start, and what it has taken need not be shown yet."""
    facts, end = None, time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with suppress(URLError):
            facts = look(url)
        if facts is not None and facts["kind"].keys() >= spans:
            return facts
        time.sleep(1)
    return facts or sys.exit(f"does not answer:\n{(place / 'log').read_text()[-2000:]}")


@contextmanager
def serving(command: list[str], place: Path) -> Iterator[str]:
    """Run a viewer until the block ends, and give its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    env = {"PATH": f"{VENV}/bin:{os.environ['PATH']}", "HOME": str(place), **SETTINGS}
    env |= {"PHOENIX_PORT": port, "MLFLOW_PORT": port}
    with (place / "log").open("wb") as log:  # a session of its own: what it starts itself ends with it
        server = subprocess.Popen(command, cwd=place, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        for kind in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(server.pid, kind)
                server.wait(20)


def run_denied(out: Path) -> None:
    """Make a run in which a call is denied."""
    calls, usage = [ToolCall("erase", {})], {"input_tokens": 100, "output_tokens": 10}
    replies = iter([LLMOutput(tool_calls=calls, usage=usage), LLMOutput(final_answer="No.", usage=usage)])
    budget = dict.fromkeys(["max_iterations", "max_tokens", "max_tool_calls", "max_result_bytes"], 9999)
    rules = {"schema": "policy/v1", "tool_registry": {"allowed": []}, "loop_budget": budget}
    agent = Agent(lambda _: next(replies), [], Policy.from_dict({**rules, "on_deny": "inform"}))
    record(agent, "Erase all.", out=out)


def show(name: str, command: list[str], look: Callable[[str], Facts], headers: dict[str, str]) -> int:
    """Show all runs to a viewer and print how much of each kind of facts it gets right. Returns what it does not."""
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, serving(command, place := Path(folder)) as url:
        until(set(), look, url, place)
        run_denied(place / "live")
        push = [sys.executable, "-m", "tachograph", "push", "--endpoint", f"{url}/v1/traces"]
        words = [f"--header={key}={value}" for key, value in headers.items()]
        for runs in ([], [str(place / "live")]):
            subprocess.run([*push, *words, *runs], check=True, stdout=subprocess.DEVNULL)
        held = told([*Path("runs").glob("*/*/"), place / "live"])
        shown = until(held["kind"].keys(), look, url, place)
    print(f"{name} shows {len(shown['tokens'])} runs, of them {sum(shown['denied'].values())} as denied")
    for kind, values in held.items():
        off = set(values.keys() ^ shown[kind].keys())
        off |= {it for it in values.keys() & shown[kind].keys() if not is_same(values[it], shown[kind][it])}
        print(f"  {kind:7} {len(values):4} told, {len(off)} wrong", *sorted(off)[:3])
        wrong += len(off)
    return wrong


def is_same(held: Any, shown: Any) -> bool:
    """Return whether two facts are the same; a time may be rounded to a microsecond."""
    return abs(held - shown) < 1 if isinstance(held, float) else bool(held == shown)


if __name__ == "__main__":
    wrong = show("Phoenix", ["python", "-c", PHOENIX, "serve"], ask_phoenix, {})
    wrong += show("MLflow", ["mlflow", "server"], ask_mlflow, {"x-mlflow-experiment-id": "0"})
    sys.exit(1 if wrong else 0)
