"""Drift as a pull request shows it: annotations, the review of records, logs in `git diff`, and merges of records."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tachograph.evidence.compare import CHANGED, Difference
from tachograph.evidence.drift import github_commands
from tests.commands import exit_code
from tests.test_drift import edit, project

__all__ = ["project"]

HOSTILE = [
    "plain",
    "a:b,line=7,title=c::d",
    "50%0A::error::e",
    "\n::error::f",
    "\r::stop-commands::g",
    "\u2028::set-env name=h::i",
    "##[error]j",
    "##vso[task.setvariable variable=k]l",
    "::error::m",
]


def commands_in(out: str) -> list[tuple[dict[str, str], str]]:
    """Return properties and message of each command in what was printed, as the service reads it."""

    def plain(text: str) -> str:
        for code, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
            text = text.replace(code, character)
        return text

    found = []
    for line in re.split(r"[\r\n]", out):
        assert not re.search(r"##\w*\[", line)
        if match := re.fullmatch(r"\s*::(.*?)::(.*)", line):
            name, _, properties = match[1].partition(" ")
            assert name == "error"
            pairs = (pair.split("=", 1) for pair in properties.split(","))
            found.append(({key: plain(it) for key, it in pairs}, plain(match[2])))
    return found


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_forges_a_command(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / text).write_text("")
    place = f"in/{text}"
    found = {f"s/{text}": [Difference("INPUT", place, CHANGED), Difference("VERDICT", text, text, (place,))]}
    ((properties, message),) = commands_in("\n".join(github_commands(found, tmp_path)))
    assert properties.keys() == {"file", "title"}
    if text.isprintable() and "##" not in text:
        assert properties["file"] == place and properties["title"].endswith(place)
        assert message == f"VERDICT {text}: {text}\n  1 run: s/{text}"


@pytest.mark.parametrize(
    ("inputs", "at", "file"),
    [
        (("none.md", "policy/v1.yaml:12:3"), "0", ("policy/v1.yaml", "12")),
        (("../../outside", "/dev/null"), "0", ("runs/s/0/state.jsonl", None)),
        ((), "2.c0.d", ("runs/s/0/state.jsonl", None)),
        ((), "state.jsonl:5", ("runs/s/0/state.jsonl", "5")),
        ((), "run_report.md", ("runs/s/0/run_report.md", None)),
    ],
)
def test_where_an_annotation_stands(
    tmp_path: Path, inputs: tuple[str, ...], at: str, file: tuple[str, str | None]
) -> None:
    root = tmp_path / "checkout" / "in"
    (root / "policy").mkdir(parents=True)
    (root / "policy/v1.yaml").write_text("")
    (root.parents[1] / "outside").write_text("")
    (root.parent / ".git").mkdir()
    commands = github_commands({"s/0": [Difference("OTHER", at, "", inputs)]}, root)
    ((properties, _),) = commands_in("\n".join(commands))
    assert (properties["file"], properties.get("line")) == (f"in/{file[0]}", file[1])


def test_one_annotation_for_each_cause_and_ten_at_most(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(project / "tools/read.py", "Read a text", "Read some text")
    edit(project / "policy/v1.yaml", "https://corpus.test/", "https://other.test/")
    assert exit_code("check") == 1
    plain = capsys.readouterr().out
    assert commands_in(plain) == []
    assert exit_code("check", "--github") == 1
    told = commands_in(capsys.readouterr().out)
    assert [it["title"] for it, _ in told] == re.findall("(?m)^(What follows .*):$", plain)
    assert {it["file"] for it, _ in told} == {"policy/v1.yaml", "tools/read.py"}
    many = {f"s/{n}": [Difference("OTHER", f"{n}", "", (f"{n}",))] for n in range(11)}
    assert len(github_commands(many, project)) == 10
