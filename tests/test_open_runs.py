"""What `resume`, `show` and `verify` make of an open run: side files of another shape, a record beside it, its past."""

from __future__ import annotations

import os
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tachograph.evidence.record import earlier_lines, record
from tachograph.evidence.tasks import load_task
from tachograph.runtime.log.file import LogFile
from tests.commands import Capsys, exit_code, output_of
from tests.project import cut, edit


@pytest.mark.parametrize(
    ("file", "content"),
    [("sources.json", it) for it in ("[]", "3", '{"a": 1}', "[" * 9999, None)]
    + [("inputs.jsonl", f"{it}\n") for it in ("[[], 1]", "[1, 2]", '"ab"', "[" * 9999)],
)
def test_a_side_file_of_another_shape_is_refused_each_time(
    two_runs: Path, capsys: Capsys, file: str, content: str | None
) -> None:
    place = cut(two_runs / "runs/s/sent_once", 6) / file
    if content is None:
        os.mkfifo(place)
    else:
        place.write_text(content)
    for _ in range(2):  # no lock is left behind in this process
        assert f"sent_once.partial/{file}" in output_of(capsys, "resume", "s/sent_once", code=2).err
    place.unlink()
    assert exit_code("resume", "s/sent_once") == 0


def test_an_open_run_beside_its_record_is_named_by_its_folder(two_runs: Path, capsys: Capsys) -> None:
    partial = cut(two_runs / "runs/s/sent_once", 6)
    for name, is_open in (("s/sent_once", False), ("runs/s/sent_once.partial", True)):
        assert ("tachograph resume s/sent_once" in output_of(capsys, "show", name).out) == is_open
        assert exit_code("verify", name) == (2 if is_open else 0)
    for is_at_work in (True, False):
        with closing(LogFile(partial)) if is_at_work else nullcontext():
            assert exit_code("run", "s/sent_once") == 2
        assert ("another process" in capsys.readouterr().err) == is_at_work


def test_a_run_that_was_kept_aside_answers_in_a_resume_too(two_tasks: Path) -> None:
    file = two_tasks / "tasks/s/sent_once.yaml"
    edit(file, '"final_answer"', '"cancelled"')
    assert exit_code("run", "s/sent_once") == 1
    edit(file, '"cancelled"', '"final_answer"')
    task, folder = load_task(file), two_tasks / "runs/s/sent_once"

    def interrupt(event: Any) -> None:
        if event.at == "0":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(task, folder, interrupt, earlier=earlier_lines(task, folder))
    assert exit_code("resume", "s/sent_once") == 0


def test_a_project_without_tasks_has_an_empty_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "policy").mkdir()
    monkeypatch.chdir(tmp_path)
    assert exit_code("run") == 0
    assert (tmp_path / "runs/LIST").read_text() == ""


def test_a_record_that_was_to_be_replaced_answers_for_what_it_did(two_runs: Path) -> None:
    """The process died between the two renames, and somebody removed the open run."""
    folder = two_runs / "runs/s/sent_once"
    lines = earlier_lines(load_task(two_runs / "tasks/s/sent_once.yaml"), folder)
    folder.rename(folder.with_name(".sent_once.old"))
    assert lines and earlier_lines(load_task(two_runs / "tasks/s/sent_once.yaml"), folder) == lines
    assert exit_code("run") == 0
    assert {path.name for path in folder.parent.iterdir()} == {"call", "sent_once"}
