"""What is left when something goes wrong late: a whole record, or nothing that looks like one."""

from __future__ import annotations

import errno
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Policy, Stub, Tool, record, resume
from tachograph.evidence.checking.replay import replay
from tachograph.evidence.checking.verify import verify
from tachograph.evidence.files import folder as folders
from tachograph.evidence.recording import index
from tachograph.fail.errors import OutputError, Suspended, TaskError
from tachograph.runtime.workspace import tool_io
from tests.faults.kept import Case
from tests.support import FILES, INPUT, OUTPUT, policy_data

SEND: Any = {"calls": [{"tool": "send", "arguments": {"n": 1}}]}
POINTS_NOWHERE: Any = {"answer": {"$result": 0, "at": "/nothing"}}


def _agent(turns: list[Any], effect: str = "external") -> Agent:
    tool = Tool("send", "send", INPUT, OUTPUT, effect, False, lambda args, io: {"said": "sent"})
    return Agent(Stub(turns), [tool], Policy.from_dict(policy_data(tool_registry={"allowed": ["send"]})))


# ---- scripts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [[SEND], [SEND, POINTS_NOWHERE]], ids=["ends early", "points nowhere"])
def test_a_script_that_is_wrong_after_an_effect_leaves_four_files(
    tmp_path: Path, turns: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    agent, out = _agent(turns), tmp_path / "run"
    with caplog.at_level(logging.WARNING, "tachograph"):
        result = record(agent, "q", out)
    assert (result.ending, result.mode) == ("failure_mode_terminal", "llm_failure")
    assert sorted(path.name for path in out.iterdir()) == sorted(FILES)
    assert verify(out, tmp_path) == [] and replay(agent, out).mode == "llm_failure"
    assert "the run had effects, and ends with a record" in caplog.text and "<script>" in caplog.text


def test_a_script_that_is_wrong_before_any_effect_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(TaskError):
        record(_agent([POINTS_NOWHERE]), "q", tmp_path / "first")
    with pytest.raises(TaskError):
        record(_agent([SEND, POINTS_NOWHERE], effect="pure"), "q", tmp_path / "pure")
    assert list(tmp_path.iterdir()) == []


# ---- clean-ups -----------------------------------------------------------------------------------------------


def test_what_cannot_be_removed_is_not_put_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(tmp_path, (["put"],))

    def stuck(folder: Path, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise OSError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(folders.shutil, "rmtree", stuck)
        with pytest.raises(Suspended, match="go on with `tachograph resume"):
            case.begin()
    assert not case.out.exists() and (case.partial / "mounts").is_dir()
    assert resume(case.agent(), case.out).ok
    assert sorted(path.name for path in case.out.iterdir()) == sorted(FILES)


# ---- a full disk ---------------------------------------------------------------------------------------------


def _full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_suspends_a_kept_run_whatever_the_tool_makes_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(tmp_path, (["look"], ["put"]))
    with monkeypatch.context() as patch:
        patch.setattr(tool_io, "write_file", _full)
        with pytest.raises(Suspended, match="No space left on device"):
            case.begin()
    assert case.go_on() is not None
    assert case.world.performed == {"kept/1/0": 1, "kept/2/0": 2}


def test_a_full_disk_leaves_nothing_of_a_run_that_can_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(tmp_path, (["put"],))
    with monkeypatch.context() as patch:
        patch.setattr(tool_io, "write_file", _full)
        with pytest.raises(OutputError, match="No space left on device"):
            case.begin(durability="off")
    assert not case.out.exists() and not case.partial.exists()


# ---- the index -----------------------------------------------------------------------------------------------


def test_an_accept_that_was_cut_off_is_named_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/ACCEPTING.jsonl").write_text("")
    assert index.problems(tmp_path) == [
        "runs/ACCEPTING.jsonl: an accept was cut off; complete it with `tachograph index`"
    ]


def test_index_says_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from tachograph.cli import main as cli

    (tmp_path / "policy").mkdir()
    for name in ("a", "b"):
        record(_agent([{"answer": "x"}], effect="pure"), "q", tmp_path / "runs/mine" / name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/INDEX.json").write_bytes(
        index.render({"runs/mine/a": "0" * 64, "runs/mine/c": "0" * 64})
    )
    assert cli.main(["index", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {
        "added": ["runs/mine/b"],
        "changed": ["runs/mine/a"],
        "removed": ["runs/mine/c"],
        "accepted": [],
    }
    assert (tmp_path / "runs/INDEX.json").read_bytes() == index.render(index.digests(tmp_path))
    assert cli.main(["index"]) == 0
    assert capsys.readouterr().out == "index: 2 runs, nothing changed; `tachograph check` proves them\n"


def test_ls_names_the_way_on_from_an_unfinished_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from tachograph.cli import main as cli

    (tmp_path / "policy").mkdir()
    case = Case(tmp_path / "runs/mine", (["look"],))
    monkeypatch.chdir(tmp_path)
    case.partial.mkdir(parents=True)
    (case.partial / "journal.jsonl").write_text("")
    assert cli.main(["ls"]) == 0
    assert "unfinished: go on with `tachograph resume runs/mine/run`\n" in capsys.readouterr().out
