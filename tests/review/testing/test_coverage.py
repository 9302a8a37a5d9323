"""Mutation coverage of policies: what tests and runs notice, what is counted, and the command."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tachograph import Agent, Stub, record
from tachograph.cli import main as command_line
from tachograph.fail.errors import InputError
from tachograph.review.testing import coverage as coverage_room
from tachograph.review.testing.coverage import EQUIVALENT, INVALID, NOTICED, UNGUARDED, cover
from tachograph.review.testing.merge import policy_of
from tachograph.runtime.formats.strict_yaml import load as load_yaml
from tachograph.runtime.policy.policy import Policy
from tests.evidence.project import all_runs
from tests.review.covering import covered, project
from tests.support import ROOT, copy_project

TESTS = sorted((ROOT / "policy/tests").glob("*.yaml"))
OVERLAYS = sorted((ROOT / "policy/overlays").glob("*.yaml"))
# the policies of rules and examples; what stands beside them is no policy, but a list of one
OTHERS = [
    path
    for path in sorted((ROOT / "policy").glob("*/*.yaml"))
    if path.parent.name not in ("overlays", "tests")
    and "schema: policy/v1" in path.read_text(encoding="utf-8")
]


# ---- the shipped policy ----------------------------------------------------------------------------------------


def test_every_change_of_the_shipped_policy_and_its_overlays_is_noticed() -> None:
    found = cover(ROOT, TESTS, ROOT / "runs")
    assert [(v.file, v.line, v.description) for v in found.of(UNGUARDED)] == []
    assert found.aside == tuple(
        (f"runs/code/{name}", "its policy was made in code") for name in ("defect_reported", "depots")
    )
    assert {v.file for v in found.of(NOTICED)} == {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "policy/v1.yaml", *OVERLAYS, *OTHERS)
    }
    assert found.percent == 100 and found.counted > 400
    assert "allowed tool 'search' dropped" in {v.description for v in found.of(NOTICED)}


def test_the_policy_tests_notice_it_alone(tmp_path: Path) -> None:
    found = cover(ROOT, TESTS, tmp_path, jobs=1)
    assert found.runs == 0 and found.of(UNGUARDED) == []


def test_runs_alone_notice_what_they_met_and_no_more() -> None:
    found = cover(ROOT, [], ROOT / "runs")
    by = {verdict.description: verdict for verdict in found.verdicts if verdict.file == "policy/v1.yaml"}
    assert by["URL entry 'https://corpus.test/' dropped"].by == "runs/canonical/v1"
    assert by["on_deny inform instead of terminate"].outcome == NOTICED
    assert by["max_retries 2 instead of 3"].outcome == NOTICED
    assert by["max_repeats 4 instead of 3"].by == "runs/failure_modes/cycle_detection"
    assert by["max_tokens 50001 instead of 50000"].outcome == UNGUARDED
    over = {(verdict.file, verdict.description): verdict for verdict in found.verdicts}
    tokens = over["policy/overlays/few_tokens.yaml", "max_tokens 2000 instead of 1000"]
    assert tokens.by == "runs/policy_gates/pg3_loop_budget_tokens"
    approval = over["policy/overlays/approve_write.yaml", "approval for 'write' dropped"]
    assert approval.by == "runs/policy_gates/approval_given"


def test_without_tests_for_an_overlay_its_lines_are_listed() -> None:
    some = [path for path in TESTS if path.stem != "redact_email"]
    found = cover(ROOT, some, ROOT / "runs/policy_gates")
    assert {v.file for v in found.of(UNGUARDED)} == {"policy/overlays/redact_email.yaml"}
    (one, *_) = found.of(UNGUARDED)
    assert one.policy == {"file": "policy/v1.yaml", "overlays": ["policy/overlays/redact_email.yaml"]}


def test_several_processes_say_what_one_does() -> None:
    one = cover(ROOT, TESTS[:2], ROOT / "runs/loop", jobs=1)
    assert cover(ROOT, TESTS[:2], ROOT / "runs/loop", jobs=2).to_dict() == one.to_dict()


def test_overlays_that_are_named_are_looked_at_together() -> None:
    named = [ROOT / "policy/overlays/inform.yaml", ROOT / "policy/overlays/few_tokens.yaml"]
    found = cover(ROOT, [], ROOT / "runs/policy_gates", overlays=named)
    assert {verdict.file for verdict in found.verdicts} == {
        "policy/v1.yaml",
        "policy/overlays/inform.yaml",
        "policy/overlays/few_tokens.yaml",
    }
    by = {(verdict.file, verdict.description): verdict.outcome for verdict in found.verdicts}
    assert by["policy/v1.yaml", "max_tokens 49999 instead of 50000"] == EQUIVALENT
    assert by["policy/v1.yaml", "on_deny inform instead of terminate"] == EQUIVALENT
    assert found.aside  # runs that were denied go on under these overlays


def test_parts_merge_as_the_loader_merges_them() -> None:
    base = load_yaml((ROOT / "policy/v1.yaml").read_bytes(), "base").data
    for overlay in OVERLAYS:
        merged = policy_of([base, load_yaml(overlay.read_bytes(), "overlay").data])
        assert merged.version == Policy.load(ROOT / "policy/v1.yaml", [overlay]).version


def test_what_alters_nothing_is_not_counted_and_what_is_no_policy_neither(tmp_path: Path) -> None:
    data = {
        "schema": "policy/v1",
        "tool_registry": {"allowed": ["search"], "denied": ["shell"]},
        "loop_budget": {"max_iterations": 1, "max_tokens": 9, "max_tool_calls": 9, "max_result_bytes": 99},
        "cycle_detection": {"max_repeats": 2},
        "approval": {"required_for": [], "timeout_s": 9},
    }
    by = {verdict.description: verdict.outcome for verdict in covered(project(tmp_path, data)).verdicts}
    assert by["denied tool 'shell' dropped"] == EQUIVALENT  # it is not allowed either
    assert by["timeout_s 18 instead of 9"] == EQUIVALENT  # nobody is asked
    assert by["max_iterations 0 instead of 1"] == INVALID
    assert by["max_iterations 2 instead of 1"] == UNGUARDED


def test_a_test_that_fails_before_anything_is_changed_is_refused(tmp_path: Path) -> None:
    test = {"name": "wrong", "call": {"tool": "shell", "arguments": {}}, "expect": "allow"}
    root = project(tmp_path, {"schema": "policy/v1"}, test)
    with pytest.raises(InputError) as caught:
        covered(root)
    assert str(caught.value).startswith("policy/tests/v1.yaml:3: this test fails before anything is changed;")


def test_where_a_line_stands_guards_nothing(tmp_path: Path) -> None:
    data = {"schema": "policy/v1", "tool_registry": {"allowed": [], "denied": ["shell"]}}
    test = {
        "name": "at",
        "call": {"tool": "shell", "arguments": {}},
        "expect": "deny",
        "at": "policy/v1.yaml:1",
    }
    found = covered(project(tmp_path, data, test))
    assert {v.description for v in found.verdicts if v.outcome == NOTICED} == set()


def test_a_blind_coverage_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The checks above rest on tests being asked of the changed policy."""
    monkeypatch.setattr(coverage_room, "_fails", lambda _suite, _gate: None)
    found = cover(ROOT, TESTS, tmp_path, jobs=1)
    assert found.noticed == 0 and len(found.of(UNGUARDED)) > 80


# ---- runs ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield copy_project(tmp_path_factory.mktemp("coverage") / "project")


def test_a_run_that_leaves_its_record_anyway_notices_nothing(copied: Path) -> None:
    policy = copied / "policy/v1.yaml"
    text = policy.read_text(encoding="utf-8")
    try:
        policy.write_text(text.replace("https://corpus.test/", "https://elsewhere.test/"), encoding="utf-8")
        (copied / "runs/loop/wrap_up/state.jsonl").write_text("no record\n", encoding="utf-8")
        found = cover(copied, [], copied / "runs", jobs=1)
    finally:
        policy.write_text(text, encoding="utf-8")
    aside = dict(found.aside)
    assert "goes another way" in aside["runs/canonical/v1"]
    assert "runs/loop/wrap_up" in aside and found.runs == len(all_runs()) - len(aside)
    assert not any(verdict.by in aside for verdict in found.verdicts)


# ---- the command -----------------------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = command_line.main(["policy", "coverage", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


SMALL = {"schema": "policy/v1", "tool_registry": {"allowed": ["search"]}, "redact": ["email"]}


def test_the_command_lists_what_is_unguarded_with_line_and_suggestion(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(tmp_path, SMALL)
    code, out, err = run(capsys, "--root", str(root), "--jobs", "1")
    assert code == 1 and err == ""
    lines = out.splitlines()
    at = lines.index("unguarded  policy/v1.yaml:1  redacted kind 'email' dropped")
    assert lines[at + 1 : at + 5] == [
        '    # policy: {"file": "policy/v1.yaml"}',
        "    - name: \"guards: redacted kind 'email' dropped\"",
        '      text: "It says someone@mail.test there."',
        '      expect: "It says <secret:email:1> there."',
    ]
    unguarded = sum(line.startswith("unguarded") for line in lines)
    assert lines[-1] == f"coverage: 0 of {unguarded} changes are noticed (0 %) by 0 tests and 0 runs"
    assert run(capsys, "--root", str(root), "--jobs", "1", "--min", "0")[0] == 0
    code, out, _ = run(capsys, "--root", str(root), "--json", "--jobs", "1")
    told = json.loads(out)
    assert code == 1 and told["counted"] == unguarded and told["noticed"] == 0
    assert out == json.dumps(told, sort_keys=True) + "\n"


def test_nearly_all_is_not_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    some = [path for path in TESTS if path.stem != "approve_write"]
    code, out, _ = run(capsys, *map(str, some), "--root", str(ROOT), "--runs", str(tmp_path))
    (percent,) = re.findall(r"\((\d+) %\)", out.splitlines()[-1])
    assert code == 1 and 90 < int(percent) < 100
    assert (
        run(capsys, *map(str, some), "--root", str(ROOT), "--runs", str(tmp_path), "--min", percent)[0] == 0
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--runs", "nowhere"], "nowhere: there is no such folder; name a folder of runs"),
        (["--policy", "nowhere.yaml"], "nowhere.yaml: no such policy file; name an existing file"),
        (
            ["nowhere.yaml"],
            "nowhere.yaml: no such file of policy tests; name a file such as policy/tests/v1.yaml",
        ),
    ],
)
def test_bad_input_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *words, "--root", str(ROOT))
    assert (code, out, err) == (2, "", f"tachograph: {said}\n")


def test_another_policy_takes_the_place_of_the_one_that_tests_and_runs_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stricter = tmp_path / "stricter.yaml"
    text = (ROOT / "policy/v1.yaml").read_text(encoding="utf-8")
    stricter.write_text(text.replace("max_repeats: 3", "max_repeats: 5"), encoding="utf-8")
    test, runs = ROOT / "policy/tests/redact_email.yaml", ROOT / "runs/failure_modes"
    words = [str(test), "--policy", str(stricter), "--root", str(ROOT), "--runs", str(runs)]
    code, out, err = run(capsys, *words)
    assert code == 1 and "not counted: runs/failure_modes/cycle_detection" in err
    assert "max_repeats 4 instead of 5" in out and "max_repeats 4 instead of 3" not in out


def test_a_run_under_the_built_in_policy_is_not_counted(tmp_path: Path) -> None:
    agent = Agent(Stub([{"answer": "At six."}]), [])
    record(agent, "When does it open?", tmp_path / "runs/code/hours")
    with pytest.raises(InputError, match=r"^its policy is the built-in one$"):
        coverage_room._recorded(tmp_path / "runs/code/hours", tmp_path, None, ())
