"""Questions put by file: one answer to one question, and nothing else counts as one."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest

from tachograph.fail.errors import InputError, OutputError
from tachograph.runtime.core.clock import iso_of, time_ns
from tachograph.runtime.core.effects import Answer, AskHuman, Call, question_digest
from tachograph.runtime.driver import file_approvals
from tachograph.runtime.driver.answer_folder import closed_as
from tachograph.runtime.driver.file_approvals import ByFile, answer_file, question, read_question
from tachograph.runtime.formats.canonical_json import freeze

CALL = Call("tc_2_0", "write", freeze({"path": "sandbox/a.md", "content": "x\u202e"}))
ASKED = AskHuman(2, 0, CALL, 'tool "write" needs a person', "policy/v1.yaml:30", 0, "0" * 12, "demo-s1")
WAITED = replace(ASKED, timeout_s=60)


def file_of(folder: Path, asked: AskHuman = ASKED) -> Path:
    return folder / f"demo-s1.2.0.{asked.digest[:12]}.json"


def put(folder: Path, **changes: Any) -> None:
    """A question that waits, as a run which is resumed finds it."""
    folder.mkdir(exist_ok=True)
    until = iso_of(time_ns() + 30_000_000_000)
    data = {**question(WAITED), "until": until, **changes}
    file_of(folder).write_text(json.dumps(data), encoding="utf-8")


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
    assert ByFile(tmp_path)(WAITED) == Answer(said, "ann", "seen", ASKED.digest)


def test_an_answer_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    found: list[Answer | None] = []
    asking = ByFile(tmp_path, poll_s=0.01, tell=lambda *_: None)
    waiting = Thread(target=lambda: found.append(asking(replace(ASKED, timeout_s=60))))
    waiting.start()
    path = file_of(tmp_path)
    while not path.exists():
        pass
    whole = path.read_text(encoding="utf-8")
    path.write_text("{", encoding="utf-8")  # somebody's editor
    path.write_text(whole, encoding="utf-8")
    answer_file(path, "allow", "ann", None)
    waiting.join(timeout=60)
    assert found == [Answer("allow", "ann", None, ASKED.digest)]


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
    said = ByFile(tmp_path)(WAITED)
    assert said is not None and (said.answer, said.why) == ("deny", "the question in the file was changed")
    assert closed_as(file_of(tmp_path)) == "refused"


@pytest.mark.parametrize("answer", [None, True, "yes", "ALLOW", ["allow"], 1])
def test_what_is_no_answer_is_silence(tmp_path: Path, answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, answer=answer)
    times = iter((0.0, 1.0, 61.0))
    monkeypatch.setattr(file_approvals, "stopwatch", lambda: next(times))
    assert ByFile(tmp_path, poll_s=0)(WAITED) is None
    assert list(times) == []


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


# ---- an answer serves once, and in time ---------------------------------------------------------------------


def test_an_answer_is_taken_once_also_where_its_file_is_put_back(tmp_path: Path) -> None:
    put(tmp_path, answer="allow", by="ann")
    file = file_of(tmp_path)
    answered = file.read_text(encoding="utf-8")
    first = ByFile(tmp_path)(WAITED)
    assert first is not None and first.answer == "allow" and closed_as(file) == "taken"
    file.unlink()
    file.write_text(answered, encoding="utf-8")
    told: list[Path] = []

    def offer(path: Path, _: AskHuman) -> None:
        told.append(path)
        path.write_text(answered, encoding="utf-8")

    again = ByFile(tmp_path, tell=offer)(WAITED)
    assert told == [file.with_name(f"{file.stem}.2.json")]
    assert again is not None and (again.answer, again.why) == ("deny", "the question in the file was changed")
    with pytest.raises(InputError, match="is answered already"):
        answer_file(file, "allow", None, None)


def test_of_two_who_wait_for_one_answer_one_gets_it(tmp_path: Path) -> None:
    put(tmp_path)
    said: list[Answer | None] = []
    waiting = Barrier(3, timeout=60)

    def wait() -> None:
        said.append(ByFile(tmp_path, poll_s=0.01, tell=lambda *_: waiting.wait())(WAITED))

    threads = [Thread(target=wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    waiting.wait()
    answer_file(file_of(tmp_path), "allow", "ann", None)
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(str(item.answer) for item in said if item is not None) == ["allow", "deny"]
    assert [item.why for item in said if item is not None and item.answer == "deny"] == [
        "the answer in the file was taken already"
    ]


def test_of_two_who_answer_one_does(tmp_path: Path) -> None:
    put(tmp_path)
    together, refused = Barrier(8, timeout=60), []

    def say(number: int) -> None:
        together.wait()
        try:
            answer_file(file_of(tmp_path), "deny" if number % 2 else "allow", str(number), None)
        except InputError as error:
            refused.append(str(error))

    threads = [Thread(target=say, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    data = read_question(file_of(tmp_path))
    assert len(refused) == 7 and all("is answered already" in line for line in refused)
    assert data["answer"] == ("deny" if int(data["by"]) % 2 else "allow")


def test_an_answer_after_the_time_out_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((0.0, 0.0, 61.0))
    monkeypatch.setattr(file_approvals, "stopwatch", lambda: next(times))
    monkeypatch.setattr(file_approvals, "nap", lambda _: answer_by_hand(tmp_path))
    assert ByFile(tmp_path)(WAITED) is None
    assert read_question(file_of(tmp_path))["answer"] == "allow" and closed_as(file_of(tmp_path)) == "expired"
    put(tmp_path)
    with pytest.raises(InputError, match=r"is no longer open \(expired\)"):
        answer_file(file_of(tmp_path), "allow", None, None)
    assert read_question(file_of(tmp_path))["answer"] is None


def answer_by_hand(folder: Path) -> None:
    path = file_of(folder)
    data = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**data, "answer": "allow"}), encoding="utf-8")


@pytest.mark.parametrize(
    "until",
    [
        pytest.param(lambda: iso_of(time_ns() - 1), id="past"),
        pytest.param(lambda: iso_of(time_ns() + 10**15), id="far"),
        pytest.param(lambda: None, id="none"),
    ],
)
def test_an_answer_that_expired_while_nobody_waited_is_asked_for_again(tmp_path: Path, until: Any) -> None:
    put(tmp_path, answer="allow", until=until())
    told: list[Path] = []

    def deny(path: Path, _: AskHuman) -> None:
        told.append(path)
        answer_file(path, "deny", "ann", "seen anew")

    said = ByFile(tmp_path, tell=deny)(WAITED)
    assert said == Answer("deny", "ann", "seen anew", ASKED.digest)
    assert closed_as(file_of(tmp_path)) == "expired" and told != [file_of(tmp_path)]


def test_a_question_whose_time_is_over_takes_no_answer(tmp_path: Path) -> None:
    put(tmp_path, until=iso_of(time_ns() - 1))
    with pytest.raises(InputError, match=r"is no longer open \(expired\)"):
        answer_file(file_of(tmp_path), "allow", None, None)
    assert read_question(file_of(tmp_path))["answer"] is None


def test_an_answer_that_cannot_be_marked_as_taken_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, answer="allow")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tachograph.runtime.driver.answer_folder.os.link", full)
    with pytest.raises(OutputError, match="cannot be written"):
        ByFile(tmp_path)(WAITED)
