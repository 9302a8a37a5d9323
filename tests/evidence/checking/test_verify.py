"""`verify` runs nothing: it names the line and the field that were touched, and says what it cannot see."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tachograph.evidence.checking.check import examine
from tachograph.evidence.checking.verify import verify
from tachograph.evidence.files.rebuild import rebuild
from tachograph.evidence.recording import index
from tachograph.runtime.formats import canonical_json
from tests.evidence.project import (
    DENIED,
    FEW,
    RETRIED,
    all_runs,
    copy_inputs,
    edit_lines,
    edit_manifest,
    replaced,
    tachograph,
)
from tests.support import FILES, ROOT

Lines = list[dict[str, Any]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return copy_inputs(tmp_path / "project", FEW)


@pytest.mark.parametrize("run", all_runs(), ids=lambda run: f"{run.parent.name}-{run.name}")
def test_every_committed_run_is_whole(run: Path) -> None:
    assert verify(run, ROOT) == []


def _verdict(lines: Lines) -> None:
    lines[1]["policy_decisions"][0]["decision"] = "allow"


def _total(lines: Lines) -> None:
    lines[-1]["totals"]["denials"] = 0


EDITS: dict[str, tuple[Callable[[Lines], object], str]] = {
    "a verdict": (_verdict, "/totals/denials is 1, the lines before it give 0"),
    "a total": (_total, "/totals/denials is 0, the lines before it give 1"),
    "the number of lines": (
        lambda lines: lines[-1].update(lines=9),
        "/lines is 9, the lines before it give 3",
    ),
    "the run of the end": (lambda lines: lines[-1].update(run_id="x"), "/run_id is x, "),
    "the tokens of a step": (
        lambda lines: lines[1]["usage"].update(input_tokens=1),
        "/totals/input_tokens is 380, the lines before it give 1",
    ),
}


@pytest.mark.parametrize("chain", [False, True], ids=["chain broken", "chained anew"])
@pytest.mark.parametrize("name", EDITS)
def test_an_edited_ledger_is_named_by_line_and_field(name: str, chain: bool, project: Path) -> None:
    change, field = EDITS[name]
    edit_lines(project / DENIED, change, chain=chain)
    found = verify(project / DENIED, project)
    edited = 2 if name in ("a verdict", "the tokens of a step") else 3
    if chain:
        assert found[0].startswith(f"{DENIED}/state.jsonl:3: {field}")
        assert any(f"{DENIED}/manifest.json: /ledger_head is " in line for line in found)
    elif edited == 2:
        assert found[0].startswith(f"{DENIED}/state.jsonl:3: does not follow from the line before")
    assert f"{DENIED}/state.jsonl: its digest is not the one in manifest.json" in found


def test_what_was_written_by_hand_is_no_canonical_line(project: Path) -> None:
    replaced(project / DENIED / "state.jsonl", '"seed":7', '"seed": 7')
    assert verify(project / DENIED, project)[0].startswith(
        f"{DENIED}/state.jsonl:1: is no canonical JSON object; "
    )


@pytest.mark.parametrize("line", [b"null", b"{}", b'{"type":"step"}', b"[" * 9000], ids=repr)
def test_a_line_of_another_shape_is_named(line: bytes, project: Path) -> None:
    state = project / DENIED / "state.jsonl"
    lines = state.read_bytes().split(b"\n")
    lines[1] = line
    state.write_bytes(b"\n".join(lines))
    assert verify(project / DENIED, project)[0].startswith(f"{DENIED}/state.jsonl:2: ")


def test_lines_without_their_keys_are_one_complaint(project: Path) -> None:
    edit_lines(project / DENIED, lambda lines: lines[1].pop("policy_decisions"), chain=True)
    first = verify(project / DENIED, project)[0]
    assert first.startswith(f"{DENIED}/state.jsonl: has lines of an unknown shape (KeyError); ")
    edit_lines(project / RETRIED, lambda lines: lines[1]["stamps"].clear(), chain=True)
    assert any("unknown shape (ValueError)" in line for line in verify(project / RETRIED, project))


@pytest.mark.parametrize(
    "key", ["timestamp", "wall_clock_seconds", "code", "environment", "seed", "artifacts"]
)
def test_no_key_of_the_manifest_may_be_missing(key: str, project: Path) -> None:
    edit_manifest(project / DENIED, lambda manifest: manifest.pop(key))
    found = verify(project / DENIED, project)
    place = f"{DENIED}/manifest.json: "
    volatile = key not in ("seed", "artifacts")
    wanted = place + ("is not as it was written" if volatile else f"/{key} is nothing, the ledger gives ")
    assert any(line.startswith(wanted) for line in found), found


@pytest.mark.parametrize("text", ["", "null\n", "[" * 100_000, '{"seed": NaN}\n', "{}\n"])
def test_a_manifest_that_is_none_is_named(text: str, project: Path) -> None:
    (project / DENIED / "manifest.json").write_text(text)
    found = verify(project / DENIED, project)
    assert f"{DENIED}/manifest.json: is not as it was written" in found


def test_hostile_text_is_inert_in_what_is_told(project: Path) -> None:
    edit_lines(project / DENIED, lambda lines: lines[-1].update({"\x1b[31m\n": "\u202e"}), chain=True)
    edit_manifest(project / DENIED, lambda manifest: manifest.update({"\x1b[31m\n": "\u202e"}))
    text = "".join(verify(project / DENIED, project))
    assert "\\u{1b}[31m" in text
    assert [character for character in "\x1b\n\u202e" if character in text] == []


def test_an_artefact_is_named_by_its_first_line(project: Path) -> None:
    replaced(project / DENIED / "trace.json", '"llm_call"', '"llm_talk"')
    found = verify(project / DENIED, project)
    assert found == [
        f"{DENIED}/trace.json: its digest is not the one in manifest.json",
        f"{DENIED}/trace.json:3: is not what the ledger gives",
    ]


def test_runs_outside_a_project_have_no_index(project: Path, tmp_path: Path) -> None:
    (project / DENIED).rename(tmp_path / "alone")
    assert verify(tmp_path / "alone", project) == []
    replaced(tmp_path / "alone" / "run_report.md", "#", "##")
    assert verify(tmp_path / "alone", project)[0].startswith(str(tmp_path / "alone/run_report.md"))


def test_as_json(project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out = tachograph(project, capsys, monkeypatch, "verify", "--json")
    assert (code, json.loads(out)) == (0, {"runs": 3, "problems": []})
    edit_lines(project / DENIED, _total, chain=True)
    code, out = tachograph(project, capsys, monkeypatch, "verify", DENIED, "--json")
    assert code == 1 and json.loads(out)["problems"] == verify(project / DENIED, project)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda inputs: inputs.pop(0), "/manifest.json: does not name data/corpus/v1/"),
        (
            lambda inputs: inputs.insert(0, {"path": "data/a.md", "sha256": "0" * 64}),
            "names data/a.md, which the run did",
        ),
        (lambda inputs: inputs.reverse(), "names its inputs in another order or shape"),
        (lambda inputs: inputs.insert(0, 3), "names its inputs in an unknown shape"),
        (lambda inputs: inputs[0].update(sha256="0" * 63), "names its inputs in another order or shape"),
        (lambda inputs: inputs[0].update(sealed=True), "names its inputs in another order or shape"),
    ],
    ids=["gone", "new", "order", "shape", "digest", "key"],
)
def test_inputs_are_those_that_the_ledger_names(
    change: Callable[[Any], object], words: str, project: Path
) -> None:
    """Their digests are the manifest's claim; which files they are, the ledger says."""
    edit_manifest(project / RETRIED, lambda manifest: change(manifest["inputs"]))
    assert any(words in line for line in verify(project / RETRIED, project)), verify(
        project / RETRIED, project
    )


# ---- forgeries that fit together -----------------------------------------------------------------------


def _forge(project: Path, run: str) -> None:
    """Change the reason of the denial, and make every file of the run follow from that."""

    def change(lines: Lines) -> None:
        lines[1]["policy_decisions"][0]["reason"] = "forged"

    edit_lines(project / run, change, chain=True)
    recorded = {"manifest.json": (project / run / "manifest.json").read_bytes()}
    made = rebuild((project / run / "state.jsonl").read_bytes(), "state.jsonl", recorded)
    for file in FILES[1:3]:
        (project / run / file).write_bytes(made[file])
    edit_manifest(project / run, lambda manifest: manifest.update(json.loads(made["manifest.json"])))


def test_a_forgery_that_fits_together_is_found_by_the_index(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _forge(project, DENIED)
    found = verify(project / DENIED, project)
    assert found == [
        f"{DENIED}/manifest.json: is not the one in the index; restore it or record the run again"
    ]
    assert tachograph(project, capsys, monkeypatch, "verify")[0] == 1


def test_a_forgery_with_its_index_is_found_by_the_check_alone(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a chain of digests cannot show: whoever rewrites every file is found only by running it again."""
    _forge(project, DENIED)
    assert index.update(project)
    assert tachograph(project, capsys, monkeypatch, "verify") == (
        0,
        "verify: 3 runs whole and consistent; nothing was run\n",
    )
    code, out = tachograph(project, capsys, monkeypatch, "check")
    assert code == 1 and f"TEXT  {DENIED}" in out
    assert "step 1 /policy_decisions/0/reason: forged -> " in out
    assert "does not hold in itself" not in out


def _forge_text(project: Path, line: int) -> list[str]:
    """Return what verify says where the text beside a reply was forged, with all that follows from the ledger."""
    edit_lines(project / RETRIED, lambda lines: lines[line]["llm_output"].update(text="x"), chain=True)
    recorded = {"manifest.json": (project / RETRIED / "manifest.json").read_bytes()}
    made = rebuild((project / RETRIED / "state.jsonl").read_bytes(), "state.jsonl", recorded)
    for file in FILES[1:3]:
        (project / RETRIED / file).write_bytes(made[file])
    edit_manifest(project / RETRIED, lambda manifest: manifest.update(json.loads(made["manifest.json"])))
    index.update(project)
    return verify(project / RETRIED, project)


def test_a_forged_text_of_the_model_is_found_by_the_request_that_follows(project: Path) -> None:
    found = _forge_text(project, 1)
    assert [line.partition("state.jsonl: ")[2] for line in found] == [
        f"step {step}: the lines before it give other messages than the model was asked with"
        for step in (2, 3)
    ]


def test_a_forged_text_of_the_last_reply_is_found_by_the_check_alone(project: Path) -> None:
    """No request follows it whose digest would hold it."""
    assert _forge_text(project, -2) == []
    assert not examine(project / RETRIED, root=project).ok


def test_the_digests_are_sha_256_of_the_files() -> None:
    for run in all_runs():
        manifest = json.loads((run / "manifest.json").read_bytes())
        for file, sha in manifest["artifacts"].items():
            assert canonical_json.digest((run / file).read_bytes()) == sha
        last = (run / "state.jsonl").read_bytes().split(b"\n")[-2]
        assert manifest["ledger_head"] == canonical_json.digest(last)


# ---- calls that ran together -------------------------------------------------------------------------------

TOGETHER = "runs/loop/parallel_calls"


def _swapped(lines: Lines) -> None:
    lines[1]["groups"][0].reverse()


def _stamped_early(lines: Lines) -> None:
    lines[1]["stamps"]["i0.1"][0] = lines[1]["stamps"]["d3"][1] - 1


@pytest.mark.parametrize(
    "change",
    [
        _swapped,
        _stamped_early,
        lambda lines: lines[1].update(groups=[["tc_1_0"]]),
        lambda lines: lines[1].update(groups=[["tc_1_0", "tc_9_9"]]),
        lambda lines: lines[1].update(groups=[["tc_1_0", "tc_1_0"]]),
        lambda lines: lines[1].update(groups=[["tc_1_0", "tc_1_2"]]),
        lambda lines: lines[1].update(groups=[["tc_1_0", "tc_1_4"]]),
        lambda lines: lines[0].update(max_parallel=2),
        lambda lines: lines[1]["stamps"].update({"h1": [1, 2]}),
    ],
)
def test_calls_that_cannot_have_run_together_are_named(
    change: Callable[[Lines], object], tmp_path: Path
) -> None:
    project = copy_inputs(tmp_path / "project", ["loop/parallel_calls"])
    assert verify(project / TOGETHER, project) == []
    edit_lines(project / TOGETHER, change, chain=True)
    found = [line for line in verify(project / TOGETHER, project) if "cannot have run together" in line]
    assert found and found[0].startswith(f"{TOGETHER}/state.jsonl:2: tc_1_")


@pytest.mark.parametrize("groups", [None, 3, [3], [[]], "tc", [None]])
def test_groups_of_another_shape_are_one_complaint(groups: Any, tmp_path: Path) -> None:
    project = copy_inputs(tmp_path / "project", ["loop/parallel_calls"])
    edit_lines(project / TOGETHER, lambda lines: lines[1].update(groups=groups), chain=True)
    assert any(line.startswith(f"{TOGETHER}/state.jsonl") for line in verify(project / TOGETHER, project))
