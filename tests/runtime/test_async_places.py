"""Where agents are used in an event loop: in routes of a web service, in cells of a notebook, with a record."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, AgentEvent, Policy, Stub, record_stream
from tests.support import ROOT, answer, ask, policy_data, probe
from tests.support import tool as made_tool

# ---- FastAPI -------------------------------------------------------------------------------------------------


async def _get(app: Any, path: str) -> tuple[int, list[str]]:
    """What a service says to one request: the status, and the parts of the body as they were sent."""
    sent: list[dict[str, Any]] = []
    never = asyncio.Event()
    requests = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Any:
        for request in requests:
            return request
        await never.wait()  # the client stays

    async def send(message: Any) -> None:
        sent.append(message)

    where, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": where,
        "raw_path": where.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", b"service.test")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await app(scope, receive, send)
    parts = [message["body"].decode() for message in sent[1:] if message["body"]]
    return sent[0]["status"], parts


class _Together:
    """A model whose first replies come only when so many runs have asked."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.asking = 0

    async def __call__(self, asked: Any) -> Any:
        if asked.step_index == 1:
            self.asking += 1
            while self.asking < self.count:
                await asyncio.sleep(0)
            return ask(probe(n=1))
        if asked.on_text is not None:
            asked.on_text("You asked: ")
            asked.on_text(asked.messages[0]["content"])
        return answer(f"You asked: {asked.messages[0]['content']}")


def _example(name: str) -> str:
    """Return an example of the page on event loops."""
    page = (ROOT / "docs/async.md").read_text(encoding="utf-8")
    (code,) = re.findall(rf"<!-- {name} -->\n```python\n(.*?)```", page, re.S)
    return str(code)


def _service(agent: Agent) -> Any:
    """The app of the page's example."""
    names: dict[str, Any] = {"agent": agent, "__name__": "service"}
    exec(compile(_example("a service"), "<a service>", "exec", dont_inherit=True), names)
    return names["app"]


def _agent(model: Any, run: Any = None) -> Agent:
    async def probe_async(_arguments: Any, _io: Any) -> Any:
        await asyncio.sleep(0)
        return {"said": "ok"}

    tools = [made_tool(run=run or probe_async), made_tool("echo")]
    return Agent(model, tools, Policy.from_dict(policy_data()))


def test_routes_of_a_fastapi_service_await_their_runs_at_the_same_time() -> None:
    pytest.importorskip("fastapi")
    app = _service(_agent(_Together(8)))

    async def main() -> list[Any]:
        return await asyncio.gather(*(_get(app, f"/ask?question=Q{n}") for n in range(8)))

    for n, (status, parts) in enumerate(asyncio.run(main())):
        said = json.loads("".join(parts))
        assert (status, said) == (200, {"answer": f"You asked: Q{n}", "ending": "final_answer"})


def test_a_route_sends_the_text_as_it_is_written() -> None:
    pytest.importorskip("fastapi")
    status, parts = asyncio.run(_get(_service(_agent(_Together(1))), "/write?question=Where"))
    assert (status, parts) == (200, ["You asked: ", "Where"])


# ---- a notebook ----------------------------------------------------------------------------------------------


async def _notebook(*cells: str) -> dict[str, Any]:
    """The names that cells leave behind; each runs in the event loop that a notebook has, `await` at its top."""
    names: dict[str, Any] = {"agent": _agent(_Together(1))}
    for number, cell in enumerate(cells):
        tree = ast.parse(textwrap.dedent(cell))
        code = compile(tree, f"<cell {number}>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        found = eval(code, names)
        if code.co_flags & 0x80:  # a coroutine
            await found
    return names


def test_cells_of_a_notebook_await_runs_and_stream_them(capsys: pytest.CaptureFixture[str]) -> None:
    names = asyncio.run(_notebook(_example("a cell")))
    assert names["result"].answer == "You asked: Where may a driver sleep?"
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "run_started None None" and shown[-1] == "ended None None"
    assert {"text_delta 2 None", "result 1 tc_1_0"} <= set(shown)


def test_a_cell_may_use_the_sync_way_with_coroutine_functions() -> None:
    names = asyncio.run(_notebook("result = agent.run('Where?')"))
    assert names["result"].answer == "You asked: Where?"


# ---- records -------------------------------------------------------------------------------------------------


def test_a_recorded_run_is_streamed_and_the_record_is_there_when_it_ends(tmp_path: Path) -> None:
    async def main() -> list[AgentEvent]:
        agent = Agent(Stub([{"answer": "At the depot."}]), ["search"], Policy.shipped())
        return [event async for event in record_stream(agent, "Where?", tmp_path / "run", run_id="same")]

    events = asyncio.run(main())
    lines = [json.loads(line) for line in (tmp_path / "run/state.jsonl").read_text().splitlines()]
    whole = [event.data for event in events if event.what in ("run_started", "step", "ended")]
    assert whole == lines and events[-1].what == "ended"
    assert (tmp_path / "run/manifest.json").exists()


def test_closing_a_recorded_stream_leaves_the_complete_record_of_a_cancelled_run(tmp_path: Path) -> None:
    go_on = threading.Event()

    def model(asked: Any) -> Any:
        assert asked.step_index == 1 or go_on.wait(20)
        return ask(probe(n=asked.step_index))

    async def main() -> None:
        events = record_stream(_agent(model), "What now?", tmp_path / "run")
        async for event in events:
            if event.what == "step":
                break
        await events.aclose()  # it waits for the record, and not for the model in its thread
        assert (tmp_path / "run/manifest.json").exists()
        go_on.set()

    asyncio.run(main())
    lines = [json.loads(line) for line in (tmp_path / "run/state.jsonl").read_text().splitlines()]
    assert lines[-1]["type"] == "end" and lines[-1]["terminal_reason"] == "cancelled"
    assert [line["step_index"] for line in lines[1:-1]] == [1, 2]
    assert (tmp_path / "run/manifest.json").exists() and not (tmp_path / "run.partial").exists()


def test_a_mistake_of_the_caller_is_raised_by_the_iterator(tmp_path: Path) -> None:
    async def main() -> None:
        agent = Agent(Stub([{"answer": "At the depot."}]), ["search"], Policy.shipped())
        async for _ in record_stream(agent, "Where?", tmp_path / "run", seed="one"):
            raise AssertionError("a run began")

    with pytest.raises(Exception, match="seed must be an int"):
        asyncio.run(main())
    assert not list(tmp_path.iterdir())
