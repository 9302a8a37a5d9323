"""Processes that die before, in and after every write of a run: it goes on to the same bytes, or a doubt is named."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

import tachograph
from tachograph import Agent, Policy, tool
from tachograph.cli.main import main
from tachograph.evidence.check import replay
from tachograph.evidence.folder import partial_of
from tachograph.evidence.record import record, resume
from tachograph.evidence.record_files import read_files, recorded_lines
from tachograph.evidence.tasks import Task, load_task
from tachograph.evidence.verify import verify
from tachograph.fail.errors import RecordError
from tachograph.runtime.driver import InDoubt
from tests.deaths import at_each_change, deaths, ended, forked
from tests.project import POLICY, ROWS, make_project, script

SENT = "sent_after_a_refused_connection"
SENDS = """

def run(args, io):
    with open({!r}, "a") as file:
        file.write(args["text"])
    return {{}}
"""


def compared(folder: Path) -> dict[str, bytes]:
    files = read_files(folder, "run")
    before, _, rest = files["manifest.json"].partition(b'"made"')
    return {**files, "manifest.json": before + rest.partition(b"}")[2]}


def project_of(root: Path, *names: str) -> dict[str, Task]:
    """Make a project with some scenarios, in which `sent` holds the texts of mails, and return the tasks."""
    make_project(root, [ROWS[name] for name in names])
    with open(root / "tools/mail.py", "a", encoding="utf-8") as file:
        file.write(SENDS.format(str(root / "sent")))
    tasks = {name: load_task(root / f"tasks/s/{name}.yaml") for name in names}
    for name, task in tasks.items():
        record(task, root / name)
        (root / "sent").write_text("")
    return tasks


def goes_on(task: Task, folder: Path, whole: dict[str, bytes]) -> list[str]:
    """Let an open run go on, to the bytes of the whole one or past doubts, and return these."""
    try:
        resume(task, folder, {})
    except RecordError:  # there was no line yet, and nothing was done
        record(task, folder, earlier=recorded_lines(folder))
    except InDoubt as doubt:
        resume(task, folder, dict.fromkeys(doubt.places, "done"))
        assert verify(folder, "run") == []
        assert replay(task, folder, "run").journal.data == (folder / "state.jsonl").read_bytes()
        return doubt.places
    assert compared(folder) == whole
    return []


@pytest.mark.parametrize(
    ("name", "earlier", "doubts"),
    [
        ("reads_writes_and_pages", "call", {"2.c1.i1"}),
        (SENT, None, {"1.c0.i1", "1.c0.i2", "2.c0.i1"}),
        ("hook_person_secret_and_failure", "hook_person_secret_and_failure", {"2.c1.i1"}),
    ],
)
def test_a_task_that_dies_at_any_write(
    tmp_path: Path, name: str, earlier: str | None, doubts: set[str]
) -> None:
    task, folder = project_of(tmp_path, name, "call")[name], tmp_path / "runs/s/run"
    sent = tmp_path / "sent"
    whole, before = compared(tmp_path / name), None if earlier is None else tmp_path / earlier
    found = set()
    for at in deaths(folder, lambda: record(task, folder, earlier=recorded_lines(folder)), before, (sent,)):
        known = (whole, before is not None and compared(before))
        found_there = folder.exists() and compared(folder)
        if not partial_of(folder).exists():  # before anything was done, or after all of it was
            assert found_there in known
            continue
        assert found_there in (False, *known), at  # and never a part of an earlier record
        found |= {*goes_on(task, folder, whole)}
        assert {path.name for path in folder.parent.iterdir()} == {"run"}
        # never twice, and never what the earlier record answers
        assert sent.read_text() in ("", "hello", "bye", "hellobye"), at
    assert found == doubts


@pytest.mark.parametrize(
    ("name", "point", "doubts"),
    [
        ("call", 10, []), ("recovers", 24, []), ("writes_in_order", 29, []), ("sent_once", 23, ["1.c0.i1"]),
        ("sent_once", 21, []), ("asked_side_by_side", 31, []), ("secret_of_a_result", 33, []),
        ("told_of_two_timeouts", 36, []), ("hook_sends_the_answer_back", 50, []), ("url_allowed", 44, []),
    ],
)  # fmt: skip
def test_a_process_that_is_killed(tmp_path: Path, name: str, point: int, doubts: list[str]) -> None:
    task, folder = project_of(tmp_path, name)[name], tmp_path / "runs/s" / name

    def run() -> None:
        os.chdir(tmp_path)
        at_each_change(lambda now: os.kill(os.getpid(), signal.SIGKILL) if now == point else None)
        main(["run", f"tasks/s/{name}.yaml"])

    assert ended(forked(run)) == -signal.SIGKILL
    assert partial_of(folder).exists() and not folder.exists()
    assert goes_on(task, folder, compared(tmp_path / name)) == doubts


def test_a_live_run_that_dies_at_any_write(tmp_path: Path) -> None:
    @tool(effect="pure", name="echo")
    async def think(text: str) -> str:
        """Think."""
        await asyncio.sleep(0)
        return text

    look, mail = ("look", {"path": "book/a.txt"}), ("mail", {"path": "boss", "text": "b"})
    model = script([("echo", {"text": "a"}), look, look], [mail], "done")
    root = make_project(tmp_path / "p", [])
    tools, mounts = [think, "look", "mail"], {"book": root / "book"}
    agent = Agent(model, tools, Policy.from_dict(POLICY), mounts=mounts, root=root)
    out, found = tmp_path / "runs/out", set()
    whole = {event.at for event in agent.run("?").events}
    for point in deaths(out, lambda: tachograph.record(agent, "?", out=out)):
        log = partial_of(out) / "state.jsonl"
        if not partial_of(out).exists():
            assert not out.exists() or verify(out, "run") == []
            continue
        kept = log.read_bytes() if log.exists() else b""
        kept = kept[: kept.rfind(b"\n") + 1]
        try:
            result = tachograph.resume(agent, out)
        except InDoubt as doubt:
            found |= {*doubt.places}
            result = tachograph.resume(agent, out, settled=dict.fromkeys(doubt.places, "done"))
        except RecordError:  # there was no line yet, and nothing was done
            result = tachograph.record(agent, "?", out=out)
        assert (out / "state.jsonl").read_bytes().startswith(kept), point
        assert verify(out, "run") == []
        assert tachograph.replay(agent, out).events == result.events
        assert {event.at for event in result.events if ".q" not in event.at} == whole
    assert found == {"2.c0.i1"}
