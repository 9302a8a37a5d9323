"""The command `policy test`: what it prints, its JUnit file, and hostile texts in both."""

from __future__ import annotations

import json
import re
from itertools import islice
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tachograph.cli import main as command_line
from tachograph.review.testing.answers import Answer
from tachograph.review.testing.junit import junit
from tachograph.review.testing.policy_tests import Case, Result, load_suite
from tests.review.small_policy import FETCH, GOOD, small_project, written
from tests.support import ROOT, one_line
from tests.support import cli as run_cli
from tests.tables import output_texts


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_project(tmp_path_factory.mktemp("project"))


# ---- the command -----------------------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], root: Path, *words: str) -> tuple[int, str, str]:
    code = command_line.main(["policy", "test", *words, "--root", str(root)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_shipped_policy_and_overlays_pass_their_tests(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, ROOT)
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert (
        lines[0]
        == "ok      policy/tests/approve_write.yaml:5  a write waits a minute for a person, whose refusal ends the run"
    )
    assert lines[-1] == f"{len(lines) - 1} tests: {len(lines) - 1} ok, 0 failed"


def test_every_policy_and_overlay_has_tests() -> None:
    named = {path for file in (ROOT / "policy/tests").glob("*.yaml") for path in load_suite(file, ROOT).stack}
    files = {path for path in (ROOT / "policy").rglob("*.yaml") if path.parent.name != "tests"}
    read_into_one = {
        path
        for path in files
        if path.parent.name == "rules" and "\nschema:" not in path.read_text(encoding="utf-8")
    }
    assert named == files - read_into_one and len(read_into_one) < len(files) / 2


def test_what_fails_is_said_and_counted(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(root, f"{FETCH}, expect: deny, rule: url_allowlist", f"{FETCH}, expect: allow")
    code, out, err = run(capsys, root, str(path))
    assert (code, err) == (1, "")
    assert out.splitlines() == [
        "FAILED  policy/tests/some.yaml:3  t0: expected deny by url_allowlist, got allow by url_allowlist"
        " (policy/v1.yaml:6)",
        "ok      policy/tests/some.yaml:4  t1",
        "2 tests: 1 ok, 1 failed",
    ]
    code, out, _ = run(capsys, root, str(path), "--json")
    told = json.loads(out)
    assert code == 1 and (told["tests"], told["failed"]) == (2, 1)
    (file,) = told["files"]
    assert file["policy"]["files"] == ["policy/v1.yaml"]
    assert file["tests"][0]["expected"] == {"expect": "deny", "rule": "url_allowlist"}
    assert file["tests"][0]["found"] == {"expect": "allow", "rule": "url_allowlist", "at": "policy/v1.yaml:6"}
    assert out == json.dumps(told, sort_keys=True) + "\n"


def test_bad_input_is_one_line_and_nothing_is_written(root: Path, tmp_path: Path) -> None:
    path = written(root, f"{GOOD}, rul: x")
    report = tmp_path / "report.xml"
    done = run_cli("policy", "test", str(path), "--root", str(root), "--junit", str(report))
    assert one_line(done).startswith("tachograph: policy/tests/some.yaml:3:62: unknown key 'rul'")
    assert not report.exists() and done.stdout == ""


def test_no_tests_at_all_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "policy").mkdir()
    code, out, err = run(capsys, tmp_path)
    assert (code, out) == (2, "") and "there are no policy tests; write one" in err


# ---- JUnit -----------------------------------------------------------------------------------------------------


def test_the_junit_file_has_a_suite_a_file_and_a_case_a_test(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(root, f"{FETCH}, expect: deny, rule: url_allowlist", f"{FETCH}, expect: allow")
    other = root / "policy/tests/other.yaml"
    other.write_bytes(path.read_bytes())
    report = tmp_path / "report.xml"
    report.write_text('<?xml version="1.0"?>\n<testsuites name="policy tests"/>', encoding="utf-8")
    assert run(capsys, root, str(path), str(other), "--junit", str(report))[0] == 1
    assert [item.name for item in tmp_path.iterdir()] == ["report.xml"]
    suites = ElementTree.parse(report).getroot()
    _is_junit(suites)
    assert suites.attrib["tests"] == "4" and suites.attrib["failures"] == "2"
    assert [suite.attrib["name"] for suite in suites] == ["policy/tests/some.yaml", "policy/tests/other.yaml"]
    failed, passed = suites[0]
    assert passed.attrib == {"classname": "policy/tests/some.yaml", "name": "t1"} and len(passed) == 0
    (failure,) = failed
    said = "expected deny by url_allowlist, got allow by url_allowlist (policy/v1.yaml:6)"
    assert failure.attrib == {"message": said, "type": "policy"}
    assert failure.text == f"policy/tests/some.yaml:3: {said}"


def _is_junit(suites: ElementTree.Element) -> None:
    """The usual schema, as far as it goes here: names, required attributes, and counts that are so."""
    assert suites.tag == "testsuites"
    cases = 0
    for suite in suites:
        assert suite.tag == "testsuite" and {"name", "tests", "failures", "errors", "skipped"} == set(
            suite.keys()
        )
        for case in suite:
            assert case.tag == "testcase" and {"name", "classname"} == set(case.keys())
            assert all(item.tag == "failure" and {"message", "type"} == set(item.keys()) for item in case)
        assert int(suite.attrib["tests"]) == len(suite)
        assert int(suite.attrib["failures"]) == sum(len(case) for case in suite)
        cases += len(suite)
    assert int(suites.attrib["tests"]) == cases
    assert int(suites.attrib["failures"]) == sum(int(suite.attrib["failures"]) for suite in suites)


def test_a_junit_file_that_cannot_be_written_is_told(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(root, f"{FETCH}, expect: allow")
    code, _, err = run(capsys, root, str(path), "--junit", "nowhere/report.xml")
    said = "tachograph: nowhere/report.xml: cannot be written (No such file or directory);"
    assert code == 2 and err.startswith(said) and err.count("\n") == 1


# ---- hostile texts ---------------------------------------------------------------------------------------------


def _quoted(text: str) -> str:
    """Any text as a scalar of YAML."""
    return '"' + "".join(c if c.isascii() and c.isalnum() else f"\\U{ord(c):08X}" for c in text) + '"'


def _hostile() -> list[str]:
    """Of every table of texts some, as names of tests: each once, none longer than a name may be."""
    some = (text for make in output_texts.TEXTS.values() for text in islice(make(), 0, None, 7))
    plain = (text[:200] for text in some if not re.search("[\ud800-\udfff]", text))
    return [text for text in dict.fromkeys(plain) if text]


def test_names_tools_and_texts_are_inert_whatever_they_hold(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = _hostile()
    assert len(texts) > 300
    path = root / "policy/tests/some.yaml"
    lines = ["schema: policy-tests/v1", "tests:"]
    for i, text in enumerate(texts):
        asked = f"call: {{tool: {_quoted(text)}, arguments: {{}}}}, expect: allow"
        if i % 2:
            asked = f"text: {_quoted(text)}, expect: {_quoted(text + '!')}"
        lines.append(f"  - {{name: {_quoted(text)}, {asked}}}")
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    report = tmp_path / "report.xml"
    code, out, err = run(capsys, root, str(path), "--junit", str(report))
    assert (code, err) == (1, "")
    printed = out.split("\n")
    assert len(printed) == len(texts) + 2
    assert all(line.isprintable() for line in printed)
    assert all(line.startswith("FAILED  policy/tests/some.yaml:") for line in printed[:-2])
    suites = ElementTree.parse(report).getroot()
    _is_junit(suites)
    no_xml = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
    assert [case.attrib["name"] for case in suites[0]] == [no_xml.sub("", text) for text in texts]
    code, out, _ = run(capsys, root, str(path), "--json")
    assert code == 1 and out.count("\n") == 1 and out[:-1].isascii() and out[:-1].isprintable()
    assert [test["name"] for test in json.loads(out)["files"][0]["tests"]] == texts


def test_half_a_pair_and_noncharacters_leave_the_junit_file() -> None:
    case = Case("a\ud800b\ufffec\x00d", 1, {"text": "x"}, {"expect": "y"})
    text = junit([("f", [Result("f", case, Answer("x", "p:1"), False)])])
    assert ElementTree.fromstring(text.encode("utf-8"))[0][0].attrib["name"] == "abcd"
