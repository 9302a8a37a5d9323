"""Questions put by file: one answer to one question, and nothing else counts as one."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tachograph.fail.errors import InputError, OutputError
from tachograph.runtime.core.effects import Answer, AskHuman, Call, question_digest
from tachograph.runtime.driver.file_approvals import ByFile, answer_file, question, read_question
from tachograph.runtime.formats.canonical_json import freeze

CALL = Call("tc_2_0", "write", freeze({"path": "sandbox/a.md", "content": "x\u202e"}))
ASKED = AskHuman(2, 0, CALL, 'tool "write" needs a person', "policy/v1.yaml:30", 0, "0" * 12, "demo-s1")


def file_of(folder: Path, asked: AskHuman = ASKED) -> Path:
    return folder / f"demo-s1.2.0.{asked.digest[:12]}.json"


def put(folder: Path, **changes: Any) -> None:
    folder.mkdir(exist_ok=True)
    file_of(folder).write_text(json.dumps({**question(ASKED), **changes}), encoding="utf-8")


def test_a_question_says_everything_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    told: list[Path] = []
    folder = tmp_path / "new" / "questions"
    assert ByFile(folder, tell=lambda path, _: told.append(path))(ASKED) is None  # nobody answered in time
    assert told == [file_of(folder)]
    assert stat.S_IMODE(told[0].stat().st_mode) == 0o600
    data = read_question(told[0])
    assert data["arguments"] == {"path": "sandbox/a.md", "content": "x\u202e"}
    assert (data["tool"], data["at"], data["digest"]) == ("write", "policy/v1.yaml:30", ASKED.digest)
    assert told[0].read_bytes().isascii()


@pytest.mark.parametrize("said", ["allow", "deny"])
def test_the_answer_in_the_file_counts(tmp_path: Path, said: str) -> None:
    put(tmp_path, answer=said, by="ann", why="seen")
    assert ByFile(tmp_path)(ASKED) == Answer(said, "ann", "seen", ASKED.digest)


def test_an_answer_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    found: list[Answer | None] = []
    asking = ByFile(tmp_path, poll_s=0.01, tell=lambda *_: None)
    waiting = Thread(target=lambda: found.append(asking(replace(ASKED, timeout_s=60))))
    waiting.start()
    path = file_of(tmp_path)
    while not path.exists():
        pass
    path.write_text("{", encoding="utf-8")  # somebody's editor
    answer_file_of(path)
    waiting.join(timeout=60)
    assert found == [Answer("allow", "ann", None, ASKED.digest)]


def answer_file_of(path: Path) -> None:
    path.write_text(json.dumps(question(replace(ASKED, timeout_s=60))), encoding="utf-8")
    answer_file(path, "allow", "ann", None)


@pytest.mark.parametrize(
    "changes",
    [
        {"arguments": {"path": "sandbox/a.md", "content": "y"}},
        {"tool": "read"},
        {"policy": "1" * 12},
        {"digest": "0" * 64},
        {"run_id": "other"},
        {"reason": "for fun"},
        {"extra": 1},
    ],
)
def test_a_changed_question_refuses_the_call(tmp_path: Path, changes: dict[str, Any]) -> None:
    put(tmp_path, answer="allow", **changes)
    said = ByFile(tmp_path)(ASKED)
    assert said is not None and said.answer == "deny"


@pytest.mark.parametrize("answer", [None, True, "yes", "ALLOW", ["allow"], 1])
def test_what_is_no_answer_is_silence(tmp_path: Path, answer: Any) -> None:
    put(tmp_path, answer=answer)
    assert ByFile(tmp_path)(ASKED) is None


def test_another_call_or_another_policy_is_another_question(tmp_path: Path) -> None:
    put(tmp_path, answer="allow")
    other_call = replace(ASKED, call=Call("tc_2_0", "write", freeze({"path": "sandbox/b.md"})))
    for other in (other_call, replace(ASKED, policy="1" * 12)):
        assert other.digest != ASKED.digest
        assert ByFile(tmp_path)(other) is None
        assert file_of(tmp_path, other).exists()


def test_a_question_is_answered_once(tmp_path: Path) -> None:
    put(tmp_path)
    answer_file(file_of(tmp_path), "deny", None, "no")
    with pytest.raises(InputError, match="is answered already"):
        answer_file(file_of(tmp_path), "allow", None, None)
    assert read_question(file_of(tmp_path))["answer"] == "deny"
    assert [path.name for path in tmp_path.iterdir()] == [file_of(tmp_path).name]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "approval/v1"}', "\ud800"])
def test_other_files_are_no_questions(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    with pytest.raises(InputError, match="question"):
        read_question(path)
    with pytest.raises(InputError, match="no such file"):
        read_question(tmp_path / "b.json")


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(OutputError, match="cannot be written"):
        ByFile(tmp_path / "file" / "below")(ASKED)


def test_the_digest_is_of_tool_arguments_and_policy_alone() -> None:
    same = Call("tc_9_9", "write", freeze({"content": "x\u202e", "path": "sandbox/a.md"}))
    assert question_digest(same, "0" * 12) == ASKED.digest
    assert question_digest(replace(same, name="read"), "0" * 12) != ASKED.digest
