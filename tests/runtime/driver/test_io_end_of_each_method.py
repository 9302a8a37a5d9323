"""After its attempt every method of `io` does nothing; what a thread of a tool is denied belongs to the attempt."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tachograph.runtime.tools.isolation import run_isolated
from tests.runtime.tools.test_isolation import Space
from tests.runtime.tools.test_isolation import tool as isolated
from tests.support import answer, ask, perform, policy_data, probe
from tests.support import tool as tool_in_code

ALL = policy_data(
    url_allowlist=[{"url": "https://good.test/", "methods": ["GET", "POST"]}],
)
CALLS = {
    "read": lambda io: io.read("box/there"),
    "list": lambda io: io.list("box"),
    "write": lambda io: io.write("box/late", "x"),
    "get": lambda io: io.get("https://good.test/page.md"),
    "request": lambda io: io.request("GET", "https://good.test/page.md"),
    "request:POST": lambda io: io.request("POST", "https://good.test/page.md", body="x"),
}


@pytest.mark.parametrize("method", CALLS)
def test_a_call_after_the_attempt_does_nothing_and_is_told(
    method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    go_on, came = threading.Event(), []
    threads: list[threading.Thread] = []
    for name in ("box", "site"):
        (tmp_path / name).mkdir()
    (tmp_path / "box/there").write_text("x")
    (tmp_path / "site/page.md").write_text("page")

    def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
        def later() -> None:
            assert go_on.wait(20)
            try:
                came.append(CALLS[method](io))
            except PermissionError as error:
                came.append(str(error))

        threads.append(threading.Thread(target=later, daemon=True))
        threads[-1].start()
        return {"said": "ok"}

    def model(model_input: Any) -> Any:
        if model_input.step_index == 1:
            return ask(probe())
        go_on.set()
        threads[0].join(20)
        return answer()

    mounts, hosts = {"box": tmp_path / "box"}, {"good.test": tmp_path / "site"}
    with caplog.at_level(logging.WARNING, "tachograph"):
        ran = perform(model, [tool_in_code(run=run, effect="external")], ALL, mounts=mounts, hosts=hosts)
    assert came == ["the attempt is over"]
    assert [record.args for record in caplog.records] == [(method.partition(":")[0], 1)]
    attempt = ran.results[0]["attempts"][0]
    assert {"reads", "writes", "checks"}.isdisjoint(attempt)
    assert [path.name for path in (tmp_path / "box").iterdir()] == ["there"]


def test_a_denial_that_a_thread_of_an_isolated_tool_meets_belongs_to_the_attempt(tmp_path: Path) -> None:
    body = """import threading
def away():
    try:
        io.request("GET", "https://good.test/away")
    except PermissionError:
        pass
thread = threading.Thread(target=away)
thread.start()
thread.join()
return {"said": "ok"}"""
    with Space(tmp_path / "space") as space:
        io = space.out()
        run_isolated(isolated(body), {}, io, 30)
        assert io.denied and [check["target"] for check in io.checks][-1] == "https://evil.test/"


def test_a_thread_that_outlives_an_isolated_tool_writes_nothing(tmp_path: Path) -> None:
    body = """import threading, time
def later():
    time.sleep(0.2)
    io.write("box/late", "x")
threading.Thread(target=later, daemon=True).start()
return {"said": "ok"}"""
    with Space(tmp_path / "space") as space:
        io = space.out()
        run_isolated(isolated(body), {}, io, 30)
        time.sleep(0.5)
        assert list(space.box.iterdir()) == [] and io.writes == []
