"""Whole recorded runs over the shared fault server: each of its faults, met by each SDK, in bounded time."""

from __future__ import annotations

import gzip
import shutil
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from tachograph.evidence.checking.check import examine
from tachograph.evidence.checking.replay import replayed
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.tasks.task import build, load_task
from tachograph.runtime.journal import ledger
from tachograph.runtime.journal.ledger import Line
from tests.evidence.project import replaced
from tests.providers.asking import PROVIDERS, opened
from tests.providers.test_faults import ENOUGH, EXPECTED, WAITING, Connection, _faults, expected
from tests.support import ROOT, TASK

# one retry, soon: what a fault comes to in a whole run
OVERLAY = "retry: {max_retries: 1, backoff_base_ms: 4, backoff_cap_ms: 60}\n"
ENDS = {
    "reply": (None, 1),
    "transient": ("llm_failure", 2),
    "timeout": ("llm_failure", 2),
    "failure": ("llm_failure", 1),
    "invalid": ("llm_invalid_output", 1),
}
BOUND_S = 90  # a guard against hanging: a run that gives up does so within seconds


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    for name in ("policy", "tools", "data"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tasks/canonical").mkdir(parents=True)
    shutil.copy(ROOT / TASK, folder / TASK)
    (folder / "policy/overlays/mine.yaml").write_text(OVERLAY, encoding="utf-8")
    replaced(folder / TASK, "policy/v1.yaml", "policy/v1.yaml\n  overlays: [policy/overlays/mine.yaml]")
    return folder


def recorded(home: Path, provider: str, url: str, path: str) -> float:
    """Record a run against one fault; how many seconds it took."""
    timeout_s, total_s = WAITING.get(path, ENOUGH)
    model = opened(provider, url + path, timeout_s=timeout_s / 2, total_s=total_s / 2)
    agent, setting = build(load_task(home / TASK, root=home), model=model)
    begun = time.monotonic()
    record_run(agent, setting, home / "made" / provider / path.strip("/").replace("/", "-"))
    return time.monotonic() - begun


Runs = dict[tuple[str, str], float]


@pytest.fixture(scope="module")
def runs(home: Path) -> Runs:
    """Every fault recorded for every provider, at the same time: most of it is waiting."""
    faults = _faults()
    for provider in PROVIDERS:
        pytest.importorskip(provider)
    bomb = gzip.compress(b"0" * 50_000_000, 1)
    faults.gzip = SimpleNamespace(compress=lambda *_: bomb)
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=faults.handle, args=(Connection(connection),), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    wanted = [(provider, path) for path in EXPECTED for provider in PROVIDERS if path != "/flaky/1"]
    with listener, ThreadPoolExecutor(8) as pool:
        took = dict(
            zip(wanted, pool.map(lambda what: recorded(home, what[0], url, what[1]), wanted), strict=True)
        )
        for provider in PROVIDERS:
            faults.COUNT.clear()
            took[provider, "/flaky/1"] = recorded(home, provider, url, "/flaky/1")
        listener.shutdown(socket.SHUT_RDWR)
    return took


def lines_of(folder: Path) -> list[Line]:
    return list(ledger.read((folder / "state.jsonl").read_bytes(), "state.jsonl"))


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("path", EXPECTED)
def test_a_fault_in_a_whole_run(provider: str, path: str, runs: Runs, home: Path) -> None:
    folder = home / "made" / provider / path.strip("/").replace("/", "-")
    lines = lines_of(folder)
    step, end = lines[-2], lines[-1]
    mode, attempts = ENDS[expected(provider, path)]
    if path == "/flaky/1":  # the second attempt is answered
        mode, attempts = (ENDS[expected(provider, "/ok")][0], 2)
    assert runs[provider, path] < BOUND_S
    assert (end["failure_mode"], len(step["llm_attempts"])) == (mode, attempts)
    assert end["terminal_reason"] == ("failure_mode_terminal" if mode else "final_answer")
    assert end["final_answer"] == (None if mode else "ok")
    assert end["totals"]["tool_calls"] == 0
    for entry in step["llm_attempts"][:-1]:
        assert entry["outcome"] == "transient_failure" and 0 <= entry["backoff_ms"] <= 60
    assert replayed(folder, root=home).lines == [] and examine(folder, root=home).lines == []
