"""Commands about records and policies: explain, replay under another policy, list, accept, settle."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import structs

from tachograph.evidence.record import record
from tachograph.evidence.tasks import load_task
from tachograph.runtime.log.lines import read_log
from tests.commands import Capsys, exit_code, output_of
from tests.hostile import log_of
from tests.project import ROWS, cut, edit, files_below, make_project, rewrite, write_policy_tests


def test_every_rule_is_explained(two_runs: Path, capsys: Capsys) -> None:
    said = output_of(capsys, "explain", "s/call").out
    for rule in ("tool_registry", "arg_schema", "cycle_detection", "loop_budget", "approval"):
        assert f"allow    {rule}" in said
    assert "(policy/call.yaml#/tool_registry/allowed/echo)" in said and "approval/required_for" not in said
    (two_runs / "runs/s/call/state.jsonl").write_text("{")
    for words, said in ("explain", "1.c0.d"), ("replay", "same"), ("replay --policy policy/call.yaml", ": "):
        told = output_of(capsys, *words.split(), code=2)  # the other run is told all the same
        assert said in told.out.partition("s/sent_once")[2] and "s/call/state.jsonl:1" in told.err


def test_runs_are_replayed_under_another_policy(two_runs: Path, capsys: Capsys) -> None:
    same = (two_runs / "policy/call.yaml").read_text()
    (two_runs / "policy/same.yaml").write_text(f"# the same\n{same}")
    (two_runs / "policy/none.yaml").write_text("schema: policy/v1\n")
    assert exit_code("replay", "s/call", "--policy", "policy/same.yaml") == 0
    said = output_of(capsys, "replay", "s/call", "--policy", "policy/none.yaml", code=1).out
    assert "deny by loop_budget" in said
    assert "policy/none.yaml#/loop_budget" in said
    assert exit_code("replay", "s/call", "--policy", "policy/gone.yaml") == 2


def test_runs_are_listed(two_tasks: Path, capsys: Capsys) -> None:
    assert exit_code("ls") == 2
    exit_code("run")
    (first, second) = output_of(capsys, "ls").out.splitlines()
    assert first.split()[:2] == ["s/call", "final_answer"]
    assert second.split()[0] == "s/sent_once"
    log = two_tasks / "runs/s/call/state.jsonl"
    events = [line.event for line in read_log(log.read_bytes())]
    moved = [structs.replace(it, at="1.mx") if it.at == "1.m1" else it for it in events]
    # the first is shown up to its damage, the second holds in itself and is not a run
    for damaged, shown in ((log.read_bytes()[:-9], 0), (log_of(moved), 2)):
        log.write_bytes(damaged)
        (told, whole) = output_of(capsys, "ls", code=1).out.splitlines()
        assert told.startswith("s/call") and whole == second
        assert len(output_of(capsys, "page", "s/call", code=shown).err.splitlines()) == bool(shown)


def test_programs_read_one_json_document(two_tasks: Path, capsys: Capsys) -> None:
    def said(*words: str, code: int = 0) -> Any:
        return json.loads(output_of(capsys, *words, "--json", code=code).out)

    outcome = {"ending": "final_answer", "mode": "", "answer": "done", "denials": []}
    assert said("run", "s/call") == [{"name": "s/call", **outcome}]
    assert said("run", "s/call", "s/gone", code=2) == [{"name": "s/call", **outcome}]
    exit_code("run")
    found = {"ending": "final_answer", "mode": "", "steps": 2, "model": "stub:script"}
    assert said("ls")[0] == {"name": "s/call", **found}
    assert said("check") == {"runs": {"s/call": [], "s/sent_once": []}, "problems": []}
    assert said("verify", "s/call") == {"runs": {"s/call": []}, "signed_by": None, "problems": []}
    allowed = said("policy", "decide", "policy/call.yaml", "look", '{"path": "book/a.txt"}')
    assert (allowed["decision"], allowed["at"]) == ("allow", "policy/call.yaml#/sandbox/mounts/book")
    test = {"name": "t", "expect": "allow", "call": {"tool": "shell"}}
    write_policy_tests(two_tasks, "policy/call.yaml", test)
    (told,) = said("policy", "test", code=1)
    assert (told["file"], told["test"], len(told["problems"])) == ("policy/tests/t.yaml", "t", 1)
    (two_tasks / "runs/s/call/state.jsonl").write_text("{")
    (two_tasks / "tasks/s/sent_once.yaml").unlink()
    assert "state.jsonl:1" in output_of(capsys, "verify", code=1).out
    assert "problem" in said("ls", code=1)[0] and said("verify", code=1)["runs"]["s/call"]
    drifted = said("check", code=2)
    assert [it["kind"] for it in drifted["runs"]["s/call"]] == ["DAMAGE"] and drifted["problems"]


def test_a_policy_is_asked_about_a_call(two_tasks: Path, capsys: Capsys) -> None:
    ask = ("policy", "decide", "policy/call.yaml")
    assert exit_code(*ask, "look", '{"path": "book/a.txt"}') == 0
    assert exit_code(*ask, "look", '{"path": "no/a.txt"}') == 1
    for words in (["shell"], ["../tools/look"], ["look", "no json"]):
        assert exit_code(*ask, *words) == 1
    said = capsys.readouterr().out.splitlines()
    assert ["sandbox_path" in line for line in said] == [True, True, False, False, False]
    assert "policy/call.yaml#/sandbox/mounts" in said[0]


@pytest.mark.parametrize("section", ["arguments", "ask_if"])
def test_a_condition_on_an_argument_that_is_not_there_is_refused(
    two_tasks: Path, capsys: Capsys, section: str
) -> None:
    condition = f"extends: call.yaml\ntools:\n  look:\n    {section}:\n      /paht: {{in: [a]}}\n"
    (two_tasks / "policy/odd.yaml").write_text(condition)
    write_policy_tests(
        two_tasks, "policy/odd.yaml", {"name": "t", "expect": "deny", "call": {"tool": "look"}}
    )
    exit_code("run", "s/call")
    odd = "policy/odd.yaml"
    for words in (f"policy decide {odd} look", "policy test", f"replay s/call --policy {odd}"):
        assert f"{odd}:5:7: " in output_of(capsys, *words.split(), code=2).err


def test_a_policy_is_shown_as_it_is_in_force(two_tasks: Path, capsys: Capsys) -> None:
    (two_tasks / "policy/less.yaml").write_text("extends: call.yaml\nloop_budget: {max_tokens: 7}\n")
    shown = yaml.safe_load(output_of(capsys, "policy", "show", "policy/less.yaml").out)
    assert (shown["loop_budget"]["max_tokens"], shown["schema"]) == (7, "policy/v1")


def test_an_ending_that_nobody_expects_is_exit_code_1(two_tasks: Path, capsys: Capsys) -> None:
    task = two_tasks / "tasks/s/call.yaml"
    edit(task, '"ending": "final_answer", "decisions": ["allow"]', "")
    edit(task, '"answer": "done"', '"say": "nothing to use"')
    assert "llm_invalid_output" in output_of(capsys, "run", "s/call", code=1).out
    edit(task, '"expected": {', '"expected": {"ending": "failure_mode_terminal"')
    assert exit_code("run", "s/call") == 0


def test_a_word_on_what_is_not_in_doubt_is_refused(two_runs: Path, capsys: Capsys) -> None:
    for number in (2, 4):  # before a mail began, and behind it
        partial = cut(two_runs / "runs/s/sent_once", number)
        before = (partial / "state.jsonl").read_bytes()
        assert "9.c0.i1" in output_of(capsys, "resume", "s/sent_once", "--done", "9.c0.i1", code=2).err
        assert (partial / "state.jsonl").read_bytes() == before
        shutil.rmtree(partial)


def test_a_damaged_log_is_named(two_runs: Path, capsys: Capsys) -> None:
    lines = (two_runs / "runs/s/call/state.jsonl").read_bytes().splitlines(keepends=True)
    partial = two_runs / "runs/s/call.partial"
    partial.mkdir()
    (partial / "state.jsonl").write_bytes(lines[0] + lines[2] + lines[3])
    assert "state.jsonl:2" in output_of(capsys, "resume", "s/call", code=2).err


POLICIES = [
    ("retry: {max_retries: 3}", "backoff_base_ms"),
    ("url_allowlist: ['https://a.test/', 'https://*/']", ":2:36:"),
    ("extends: /etc/base.yaml", "extends is not a path relative"),
    ("extends:", "extends is not a path relative"),
    ('private_networks: ["10.0.0.0/08"]', "such as 10.1.0.0/16"),
    ("tools: {echo: {mounts: [book]}}", "'book' is not declared"),
    ("tool_registry: {allowed: [eco]}", "did you mean 'echo'?"),
    ("on_failure: {max_fail: 3}", ":2:14: unknown key 'max_fail'; did you mean 'max_failures'?"),
    ("loop_budget: {max_tokens: }", "'null'"),
    ("extends: gone.yaml", " for policy/odd.yaml:2:1; name"),
]


@pytest.mark.parametrize(("line", "word"), POLICIES)
def test_what_is_wrong_with_a_policy_is_named(two_tasks: Path, capsys: Capsys, line: str, word: str) -> None:
    (two_tasks / "policy/odd.yaml").write_text(f"schema: policy/v1\n{line}\n")
    assert word in output_of(capsys, "policy", "check", "policy/odd.yaml", code=2).err


def test_drift_is_accepted_without_repeating_what_is_external(two_runs: Path, capsys: Capsys) -> None:
    edit(two_runs / "tools/mail.py", 'return {"bytes": len(args["text"])}', "raise SystemExit")
    (two_runs / "book/a.txt").write_text("other")
    assert exit_code("check", "s/sent_once") == 1
    said = output_of(capsys, "accept", "s/sent_once", "s/call").out
    assert "EFFECT 2.c0.i1" in said and "INPUT book/a.txt" in said and "s/call: holds" in said
    assert exit_code("check") == exit_code("verify") == exit_code("replay") == 0
    assert '"bytes":5' in (two_runs / "runs/s/sent_once/state.jsonl").read_text()
    assert exit_code("run", "s/sent_once") == 0  # nor does recording it again
    assert exit_code("run", "s/sent_once", "--again") == 1
    assert exit_code("check") == 0  # a run that misses what is expected replaces nothing


def test_an_external_effect_that_was_never_made_is_not_made_up(two_runs: Path, capsys: Capsys) -> None:
    edit(two_runs / "tasks/s/sent_once.yaml", "hello", "hello, hello")
    before = (two_runs / "runs/s/sent_once/state.jsonl").read_bytes()
    assert "--again" in output_of(capsys, "accept", "s/sent_once", code=1).err
    assert exit_code("run", "s/sent_once") == 1
    assert (two_runs / "runs/s/sent_once/state.jsonl").read_bytes() == before
    assert not (two_runs / "runs/s/sent_once.partial").exists()
    assert exit_code("run", "s/sent_once", "--again") == 0


def test_an_external_effect_that_failed_is_neither_taken_nor_made_again_unasked(
    two_tasks: Path, capsys: Capsys, caplog: pytest.LogCaptureFixture
) -> None:
    mail, task = two_tasks / "tools/mail.py", two_tasks / "tasks/s/sent_once.yaml"
    edit(mail, "    return", "    raise ValueError\n    return")
    assert exit_code("run") == 1
    edit(mail, "    raise ValueError\n", "")
    shutil.rmtree("runs")
    assert "run s/sent_once --again" in output_of(capsys, "run", "s/sent_once", "s/call", code=1).err
    assert Path("runs/s/call").is_dir()
    assert exit_code("run", "s/sent_once", "--again") == 0 and "taken" not in caplog.text
    assert exit_code("run", "s/sent_once") == 0 and "s/sent_once --again" in caplog.text
    edit(task, '"faults": []', '"faults": [{"target": "tool", "step": 1, "raises": "ValueError"}]')
    edit(task, '"final_answer"', '"failure_mode_terminal"')
    edit(task, '"modes": []', '"modes": ["catalogued_unhandled"]')
    for _ in range(2):  # what only the task makes of it has not acted
        assert exit_code("run", "s/sent_once") == 0


def test_a_damaged_record_is_not_accepted(two_runs: Path, capsys: Capsys) -> None:
    report = two_runs / "runs/s/call/run_report.md"
    report.write_text(report.read_text() + "more")
    assert exit_code("accept", "s/call") == 2
    assert exit_code("accept") == 2
    assert report.read_text().endswith("more")


@pytest.mark.parametrize(("value", "code"), [("true", 2), ("1", 2), ("false", 0), ("0", 0), ("", 0)])
def test_nothing_is_accepted_in_continuous_integration(
    two_runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys, value: str, code: int
) -> None:
    (two_runs / "book/a.txt").write_text("other")
    before = files_below(two_runs / "runs")
    monkeypatch.setenv("CI", value)
    assert exit_code("accept", "s/sent_once") == code
    assert (files_below(two_runs / "runs") == before) == bool(code)
    assert code == 0 or "CI" in capsys.readouterr().err


def test_verdicts_are_told_before_anything_else_and_no_run_is_accepted_without_the_others(
    two_runs: Path, capsys: Capsys
) -> None:
    (two_runs / "book/a.txt").write_text("other")
    edit(two_runs / "policy/call.yaml", '"echo", ', "")
    before = files_below(two_runs / "runs")
    assert exit_code("accept", "s/call") == 1  # the task expects an answer
    assert files_below(two_runs / "runs") == before
    rewrite(two_runs / "tasks/s/call.yaml", expected={})
    report = two_runs / "runs/s/call/run_report.md"
    whole = report.read_bytes()
    report.write_bytes(b"")
    before = files_below(two_runs / "runs")
    assert exit_code("accept", "s/sent_once", "s/call") == 2
    assert files_below(two_runs / "runs") == before
    report.write_bytes(whole)
    lines = output_of(capsys, "accept", "s/sent_once", "s/call").out.splitlines()
    assert lines[0].startswith("s/call: VERDICT 1.c0.d") and "s/sent_once" in lines[1]
    assert exit_code("check") == 0


def test_an_exposure_is_accepted_by_its_flag_alone(two_tasks: Path, capsys: Capsys) -> None:
    policy = two_tasks / "policy/call.yaml"
    plain = policy.read_text()
    policy.write_text(plain.replace('"on_deny"', '"redact": {"kinds": ["jwt"]}, "on_deny"'))
    exit_code("run")
    policy.write_text(plain)
    before = files_below(two_tasks / "runs")
    assert "--exposure" in output_of(capsys, "accept", "s/call", code=2).err
    assert files_below(two_tasks / "runs") == before
    assert exit_code("accept", "s/call", "--exposure") == 0
    assert exit_code("check") == 0


def test_a_run_is_explained_up_to_where_it_goes_another_way(two_runs: Path, capsys: Capsys) -> None:
    edit(two_runs / "policy/sent_once.yaml", '"mail", ', "")
    said = output_of(capsys, "explain", "s/sent_once").out
    assert "deny     tool_registry" in said and "another way" in said


def test_a_miss_does_not_keep_other_tasks_from_running(two_tasks: Path) -> None:
    edit(two_tasks / "tasks/s/call.yaml", '"final_answer"', '"cancelled"')
    assert exit_code("run") == 1
    assert (two_tasks / "runs/LIST").read_text() == "s/sent_once\n"


def test_one_doubt_has_one_word(two_runs: Path, capsys: Capsys) -> None:
    cut(two_runs / "runs/s/sent_once", 4)
    words = ("--done", "1.c0.i1", "--not-done", "1.c0.i1")
    assert "1.c0.i1" in output_of(capsys, "resume", "s/sent_once", *words, code=2).err


def test_a_task_of_another_project_is_refused(two_tasks: Path, tmp_path: Path, capsys: Capsys) -> None:
    other = make_project(tmp_path / "other", [ROWS["call"]])
    assert exit_code("run", "tasks/s/sent_once.yaml", str(other / "tasks/s/call.yaml")) == 2
    assert not (two_tasks / "runs/s/call").exists() and not (other / "runs").exists()


def test_what_a_run_that_was_kept_aside_did_is_not_done_again(two_tasks: Path) -> None:
    task, sent = two_tasks / "tasks/s/sent_once.yaml", two_tasks / "sent"
    noting = f"    with open({str(sent)!r}, 'a') as file:\n        file.write('x')\n    return"
    edit(two_tasks / "tools/mail.py", "    return", noting)
    edit(task, '"final_answer"', '"cancelled"')
    assert exit_code("run", "s/sent_once") == 1
    edit(task, '"cancelled"', '"final_answer"')
    assert exit_code("run", "s/sent_once") == exit_code("check", "s/sent_once") == 0
    assert sent.read_text() == "x"
    assert exit_code("run", "s/sent_once", "--again") == 0
    assert sent.read_text() == "xx"


def test_what_reads_records_runs_no_code_of_the_project(two_runs: Path, tmp_path: Path) -> None:
    code = f"__import__('pathlib').Path({str(tmp_path / 'ran')!r}).touch()\nraise SystemExit"
    for file in ("tools/echo.py", "tools/mail.py", "tools/look.py"):
        (two_runs / file).write_text(code)
    for words in (["verify"], ["ls"], ["show", "s/call"]):
        assert exit_code(*words) == 0
    assert not (tmp_path / "ran").exists()
    assert exit_code("check") == 2 and (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "file", ["policy/sent_once.yaml", "tasks/s/sent_once.yaml", "tools/mail.py", "tools/page.py", "helper.py"]
)
def test_a_run_goes_on_only_from_what_it_began_with(
    two_tasks: Path, file: str, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    """Each is an input from the first line on, whether the run comes to use it or not; a helper is one by its name."""
    monkeypatch.syspath_prepend(two_tasks)
    (two_tasks / "helper.py").write_text("X = 1\n")
    edit(two_tasks / "tools/look.py", "def run", "import helper\n\n\ndef run")
    task, folder = load_task(two_tasks / "tasks/s/sent_once.yaml"), two_tasks / "runs/s/sent_once"

    def interrupt(event: Any) -> None:
        if event.at == "1.e":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(task, folder, interrupt)
    log = (two_tasks / "runs/s/sent_once.partial/state.jsonl").read_bytes()
    path, before = two_tasks / file, (two_tasks / file).read_text()
    for old, new in (
        ("5000", "4999"),
        ("What is there?", "What?"),
        ("Get a page.", "Get it."),
        ("Send a", "Send the"),
        ("X = 1", "X = 2"),
    ):
        path.write_text(path.read_text().replace(old, new))
    assert path.read_text() != before
    assert exit_code("resume", "s/sent_once") == 2
    assert (two_tasks / "runs/s/sent_once.partial/state.jsonl").read_bytes() == log
    path.write_text(before)
    assert exit_code("resume", "s/sent_once") == 0
    assert exit_code("check", "s/sent_once") == 0
    (two_tasks / "helper.py").write_text("X = 3\n")
    assert "helper.py: has changed" in output_of(capsys, "check", "s/sent_once", code=1).out
