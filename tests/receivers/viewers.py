"""Phoenix and MLflow on loopback: started with free ports and a folder of their own, read back, stopped."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

START_S = 180  # two cores that others use too
STOP_S = 15
QUIET = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "PHOENIX_TELEMETRY_ENABLED": "false",
    "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    "PHOENIX_DISABLE_AGENT_ASSISTANT": "true",
}


class Shown(NamedTuple):
    """A span as a viewer gives it back; `start_us` in microseconds, `attributes` under their dotted names."""

    name: str
    parent: str | None
    kind: str
    is_error: bool
    start_us: int
    attributes: dict[str, Any]


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


def get(url: str, asked: dict[str, Any] | None = None) -> Any:
    """The JSON that an address answers with; with `asked` it is posted to."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    data = None if asked is None else json.dumps(asked).encode()
    request = urllib.request.Request(url, data=data, headers={"content-type": "application/json"})
    with opener.open(request, timeout=30) as answer:
        return json.loads(answer.read())


class Viewer:
    """A server under way within a `with` block. `log` is what it printed."""

    def __init__(self, command: list[str], more: dict[str, str], health: str, folder: Path) -> None:
        self._health = health
        self.log = folder / "log.txt"
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(folder), "LANG": "C.UTF-8"}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env={**environment, **QUIET, **more},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # its helpers end with it
            )

    def __enter__(self) -> Viewer:
        end = time.monotonic() + START_S
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while time.monotonic() < end and self._process.poll() is None:
            with suppress(OSError), opener.open(self._health, timeout=5):
                return self
            time.sleep(0.2)
        self.__exit__()
        raise RuntimeError(f"it did not start: {self.log.read_text(errors='replace')[-2000:]}")

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)


class Phoenix(Viewer):
    """Arize Phoenix. `endpoints` by protocol."""

    def __init__(self, scripts: Path, folder: Path) -> None:
        port, grpc_port = free_ports(2)
        self.url = f"http://127.0.0.1:{port}"
        self.endpoints = {"grpc": f"grpc://127.0.0.1:{grpc_port}", "http/protobuf": self.url}
        self.headers: list[str] = []
        more = {
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(port),
            "PHOENIX_GRPC_PORT": str(grpc_port),
            "PHOENIX_WORKING_DIR": str(folder),
        }
        super().__init__([str(scripts / "phoenix"), "serve"], more, f"{self.url}/healthz", folder)

    def all_spans(self) -> list[dict[str, Any]]:
        """Every span of the project, each as often as it is stored."""
        found: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = get(f"{self.url}/v1/projects/default/spans?limit=200{cursor}")
            found += page["data"]
            if not page.get("next_cursor"):
                return found
            cursor = f"&cursor={page['next_cursor']}"

    def spans(self, trace_id: str, wanted: int) -> dict[str, Shown]:
        """The spans of a trace by id, once there are as many as wanted; Phoenix takes a moment."""
        end = time.monotonic() + 20
        found: list[dict[str, Any]] = []
        while len(found) < wanted and time.monotonic() < end:
            with suppress(urllib.error.HTTPError):  # no project before the first span
                found = [span for span in self.all_spans() if span["context"]["trace_id"] == trace_id]
            time.sleep(0.1)
        assert len({span["context"]["span_id"] for span in found}) == len(found), "a span is stored twice"
        return {
            span["context"]["span_id"]: Shown(
                span["name"],
                span["parent_id"],
                span["span_kind"],
                span["status_code"] == "ERROR",
                _microseconds(span["start_time"]),
                span["attributes"],
            )
            for span in found
        }

    def filtered(self, condition: str) -> list[str]:
        """Names of the spans that the filter of Phoenix's page finds."""
        project = get(f"{self.url}/v1/projects/default")["data"]["id"]
        query = (
            "query($id: ID!, $c: String!) {node(id: $id) {... on Project"
            " {spans(first: 50, filterCondition: $c) {edges {node {name}}}}}}"
        )
        answer = get(f"{self.url}/graphql", {"query": query, "variables": {"id": project, "c": condition}})
        return [edge["node"]["name"] for edge in answer["data"]["node"]["spans"]["edges"]]


def _microseconds(iso: str) -> int:
    from datetime import UTC, datetime, timedelta

    return (datetime.fromisoformat(iso) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


class Mlflow(Viewer):
    """MLflow's tracking server. `endpoints` by protocol."""

    def __init__(self, scripts: Path, folder: Path) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.endpoints = {"http/protobuf": self.url, "http/json": self.url}
        self.headers = ["--header", "x-mlflow-experiment-id=0"]
        command = [str(scripts / "mlflow"), "server", "--host", "127.0.0.1", "--port", str(port)]
        command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
        super().__init__(
            [*command, "--artifacts-destination", str(folder / "artifacts")], {}, f"{self.url}/health", folder
        )

    def spans(self, trace_id: str, wanted: int) -> dict[str, Shown]:
        """The spans of a trace by id."""
        trace = get(f"{self.url}/api/3.0/mlflow/traces/get?trace_id=tr-{trace_id}")["trace"]
        found = trace["spans"]
        made = {}
        for span in found:
            attributes = {item["key"]: _value(item["value"]) for item in span["attributes"]}
            made[_hex(span["span_id"])] = Shown(
                span["name"],
                _hex(span["parent_span_id"]) if span.get("parent_span_id") else None,
                attributes.get("mlflow.spanType", "UNKNOWN"),
                span.get("status", {}).get("code") in (2, "STATUS_CODE_ERROR"),
                span["start_time_unix_nano"] // 1000,
                attributes,
            )
        assert len(made) == len(found), "a span is stored twice"
        assert len(made) == wanted
        return made

    def filtered(self, condition: str) -> list[str]:
        """Ids of the traces that the filter of MLflow's page finds."""
        where = [{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "0"}}]
        asked = {"locations": where, "filter": condition, "max_results": 50}
        found = get(f"{self.url}/api/3.0/mlflow/traces/search", asked)
        return [trace["trace_id"].removeprefix("tr-") for trace in found.get("traces", ())]


def _hex(text: str) -> str:
    return base64.b64decode(text).hex()


def _value(value: dict[str, Any]) -> Any:
    """An OTLP value as plain data."""
    ((kind, inner),) = value.items()
    if kind == "kvlist_value":
        return {item["key"]: _value(item["value"]) for item in inner["values"]}
    return [_value(item) for item in inner["values"]] if kind == "array_value" else inner
