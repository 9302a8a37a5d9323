"""Drift as a pull request shows it: annotations, the review of records, logs in `git diff`, and merges of records."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tachograph.evidence.accept import accept
from tachograph.evidence.compare import CHANGED, Difference
from tachograph.evidence.drift import github_commands
from tachograph.evidence.project import Project
from tachograph.fail.errors import TaskError
from tachograph.runtime.policy.rules.tool_registry import ToolRegistryRule
from tachograph.runtime.schema.validator import SchemaValidator
from tests.commands import Capsys, output_of
from tests.project import copy_project, edit, made_once
from tests.test_drift import ROOT, RUNS, told
from tests.test_revisions import MINE, commit, git

Edit = Callable[[Path, pytest.MonkeyPatch], None]
Out = Capsys

HOSTILE = [
    "plain", "a:b,line=7,title=c::d", "50%0A::error::e", "\n::error::f", "\r::stop-commands::g",
    "\u2028::set-env name=h::i", "##[error]j", "##vso[task.setvariable variable=k]l", "::error::m",
]  # fmt: skip


def commands_in(out: str) -> list[tuple[dict[str, str], str]]:
    """Return properties and message of each command in what was printed, as the service reads it."""

    found = []
    for line in re.split(r"[\r\n]", out):
        assert not re.search(r"##\w*\[", line)
        if match := re.fullmatch(r"\s*::(.*?)::(.*)", line):
            name, _, properties = match[1].partition(" ")
            assert name == "error"
            pairs = (pair.split("=", 1) for pair in properties.split(","))
            found.append(({key: unquote(it) for key, it in pairs}, unquote(match[2])))
    return found


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_forges_a_command(tmp_path: Path, text: str) -> None:
    (tmp_path / text).write_text("")
    found = {f"s/{text}": [Difference("INPUT", text, CHANGED), Difference("VERDICT", text, text, (text,))]}
    ((properties, message),) = commands_in("\n".join(github_commands(found, tmp_path, tmp_path.joinpath)))
    assert properties.keys() == {"file", "title"}
    if text.isprintable() and text[0] not in "#:":
        assert properties["file"] == text and properties["title"].endswith(text)
        assert message == f"VERDICT {text}: {text}\n  1 run: s/{text}"


REPORT, LOG = "runs/s/0/run_report.md", "runs/s/0/state.jsonl"
PLACES = [
    # the inputs of a cause, the address of its story, and file and line of its annotation
    (("none.md", "policy/v1.yaml:12:3"), "0", "policy/v1.yaml", "12"),
    (("../../outside", "/dev/null"), "0", LOG, None),
    ((), "2.c0.d", LOG, None),
    ((), "state.jsonl:5", LOG, "5"),
    ((), "run_report.md", REPORT, None),
]


@pytest.mark.parametrize(("inputs", "at", "file", "line"), PLACES)
def test_where_an_annotation_stands(tmp_path: Path, inputs: Any, at: str, file: str, line: Any) -> None:
    root = tmp_path / "checkout" / "in"
    (root / "policy").mkdir(parents=True)
    (root / "policy/v1.yaml").write_text("")
    (root.parents[1] / "outside").write_text("")
    (root.parent / ".git").mkdir()
    commands = github_commands({"s/0": [Difference("OTHER", at, "", inputs)]}, root, (root / "runs").joinpath)
    ((properties, _),) = commands_in("\n".join(commands))
    assert (properties["file"], properties.get("line")) == (f"in/{file}", line)


def test_each_cause_has_one_annotation_and_ten_have_at_most(repository: Path, capsys: Out) -> None:
    edit(repository / "tools/read.py", "Read a text", "Read some text")
    edit(repository / "policy/v1.yaml", "https://corpus.test/", "https://other.test/")
    plain = "\n".join(told(capsys))
    assert commands_in(plain) == []
    marked = commands_in("\n".join(told(capsys, "--github")))
    assert [it["title"] for it, _ in marked] == re.findall("(?m)^(What follows .*):$", plain)
    assert {it["file"] for it, _ in marked} == {"policy/v1.yaml", "tools/read.py"}
    many = {f"s/{n}": [Difference("OTHER", f"{n}", "", (f"{n}",))] for n in range(11)}
    assert len(github_commands(many, repository, repository.joinpath)) == 10


def rename_a_tool(root: Path, patch: pytest.MonkeyPatch) -> None:
    (root / "tools/search.py").rename(root / "tools/find.py")
    for path in [path for it in ("policy", "profiles", "tasks") for path in (root / it).rglob("*.yaml")]:
        path.write_text(re.sub(r"\bsearch\b", "find", path.read_text()))


def change_the_loop(root: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ToolRegistryRule, "reason", lambda *_, **__: "so it is")


def change_a_package(root: Path, patch: pytest.MonkeyPatch) -> None:
    """As if the package that validates took everything for valid."""
    patch.setattr(SchemaValidator, "first_mismatch", lambda *_: None)


def edited(file: str, old: str, new: str) -> Edit:
    return lambda root, patch: edit(root / file, old, new)


V1, TASK, GUARD = "policy/v1.yaml", "tasks/canonical/v1.yaml", "tasks/loop/guard.py"
A4, READ, SEARCH, HELP = "data/corpus/v1/op-a4.md", "tools/read.py", "tools/search.py", "counting.py"
NONE = "No recorded input has moved"
CHANGES: dict[str, tuple[Edit, str, str, str, int]] = {
    # what is done, and beside it a comment in which file; the input that is named, class and address of something that
    # follows, and what `review` ends with
    "renamed_tool": (rename_a_tool, "tools/fetch.py", V1, "OTHER 0|VERDICT 1.c0.d", 0),
    "removed_host": (edited(V1, "https://corpus.test/", "https://b.test/"), SEARCH, V1, "VERDICT 2.c0.d", 1),
    "document": (edited(A4, "the", "THE"), HELP, A4, "EFFECT 1.c0.i1", 0),
    "helper": (edited(HELP, "return number", "return 1"), SEARCH, HELP, "EFFECT 4.c0.i1", 0),
    "loop": (change_the_loop, SEARCH, NONE, "ASKED 1.e", 0),
    "package": (change_a_package, READ, NONE, "VERDICT 1.c0.d", 1),
    "line_ends": (edited(READ, "\n", "\r\n"), V1, READ, "OTHER manifest.json", 0),
    "offer": (edited(READ, "Read a text", "Read some text"), SEARCH, READ, "ASKED 0", 0),
    "hook": (edited(GUARD, "op-d", "op-x"), READ, GUARD, "VERDICT 2.c0.i1.d2", 1),
}


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once("repository", tmp_path_factory, make_repository)


def make_repository(root: Path) -> None:
    """Make a repository of the project, in which a tool imports a helper and a task expects nothing."""
    copy_project(root)
    (root / "counting.py").write_text("def most(number):\n    return number\n")
    edit(root / "tools/summarize.py", "import re\n", "import re\nfrom counting import most\n")
    edit(root / "tools/summarize.py", 'args.get("max_sentences", ', 'most(args.get("max_sentences", ')
    edit(root / "tools/summarize.py", "DEFAULT_MAX_SENTENCES))", "DEFAULT_MAX_SENTENCES)))")
    # what changes a decision would not be accepted
    for path in {*(root / "tasks").rglob("*.yaml")} - {*(root / "tasks/live").iterdir()}:
        path.write_text(path.read_text().partition("\nexpected:")[0] + "\nexpected: {}\n")
    shell(root, "tachograph run")
    git(root, "init", "-q", "--template=")
    commit(root)
    git(root, "repack", "-adq")  # few files, since each test copies them


@pytest.fixture
def repository(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "all"
    shutil.copytree(recorded, root)
    monkeypatch.chdir(root)
    monkeypatch.syspath_prepend(root)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delitem(sys.modules, "counting", raising=False)
    return root


def record_anew(root: Path) -> None:
    """Accept all drift, as `accept --exposure` does, but for that of live models."""
    project = Project(root)
    for name in project.task_names():
        task = project.source_of(name)
        if task.is_scripted:
            with suppress(TaskError):  # a script that ends too early now, or reads what is denied
                accept(task, project.folder(name), name)


reviewed = partial(told, command="review")


@pytest.mark.parametrize("change", CHANGES)
def test_what_has_moved_is_named(repository: Path, capsys: Out, change: str) -> None:
    changing, beside, named, story, code = CHANGES[change]
    with pytest.MonkeyPatch.context() as patch:
        changing(repository, patch)
        alone = told(capsys)
        (repository / beside).write_bytes((repository / beside).read_bytes() + b"# a comment\n")
        checked = told(capsys)
        record_anew(repository)
    # where a tool is renamed, others are named first
    assert alone[0].startswith((NONE, f"{named}: ")) or change == "renamed_tool"
    assert alone[-1].endswith(f"of {RUNS} runs hold")
    for lines in (alone, checked, reviewed(capsys, "HEAD", code=code)):
        assert len(lines) <= 30
        blocks = re.split(r"(?m)^(?=\S)", "\n".join(lines))
        heading = NONE if named == NONE else f"What follows from {named}:"
        assert any(it.startswith(heading) and re.search(f"\n  (?:{story}): ", it) for it in blocks)
        assert any(it.startswith(NONE) for it in blocks) == (named == NONE)


def test_what_a_review_tells(repository: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tachograph.evidence.record_files.report", lambda *_: "in another way")
    shutil.copytree(repository / "runs/loop/hooks", repository / "runs/loop/open.partial")
    commit(repository)
    assert reviewed(capsys, "HEAD", code=0) == [f"0 of {RUNS} runs changed since HEAD, 0 added, 0 removed"]
    edit(repository / "policy/secrets.yaml", "email, github_token", "email")
    edit(repository / V1, "https://corpus.test/", '"\n  - "'.join(f"https://{n}.test/" for n in range(11)))
    (repository / "policy/new.yaml").write_text("schema: policy/v1\n")
    (repository / "runs/loop/hooks").rename(repository / "runs/loop/others")
    (repository / "tools/search.py").write_text("raise SystemExit")  # nothing is run
    lines = reviewed(capsys, "HEAD", code=1)
    assert {"Added: 1 run: loop/others", "Removed: 1 run: loop/hooks", "policy/new.yaml: is new"} <= {*lines}
    assert {"  EXPOSURE /redact: github_token is redacted no more", "  and 1 more"} <= {*lines}
    assert any("WIDER /url_allowlist: GET, HEAD https://0.test/" in line for line in lines)
    assert not any("TIGHTER" in line for line in lines) and lines[lines.index("  and 1 more") - 11][0] != " "
    (repository / "policy/team").mkdir()
    (repository / "policy/secrets.yaml").rename(repository / "policy/team/secrets.yml")
    edit(repository / "policy/team/secrets.yml", "extends: ", "extends: ../")
    said = "\n".join(reviewed(capsys, "HEAD", code=1))
    assert re.search("secrets.yaml -> policy/team/secrets.yml: .*\n  EXPOSURE /redact: github_token", said)
    new = repository / "policy/new.yaml"
    new.write_text("schema: policy/v2\n")
    commit(repository)
    assert any(line.startswith("policy/new.yaml:1:") for line in reviewed(capsys, "HEAD", code=2))
    new.write_text("schema: policy/v1\n")  # what it was allows nothing that could be compared
    assert any("HEAD:policy/new.yaml:1:" in line for line in reviewed(capsys, "HEAD", code=1))
    new.unlink()
    assert "policy/new.yaml: is gone" in reviewed(capsys, "HEAD", code=0)


def test_a_task_that_moves_to_another_policy_may_do_more(repository: Path, capsys: Out) -> None:
    edit(repository / "tasks/loop/secrets.yaml", "policy/secrets.yaml", "policy/v1.yaml")
    record_anew(repository)
    said = "\n".join(reviewed(capsys, "HEAD", code=1))
    assert re.search("policy/secrets.yaml -> policy/v1.yaml: .*\n  EXPOSURE /redact: ", said)


def test_a_damaged_record_is_told_on_either_side(repository: Path, capsys: Out) -> None:
    def damage() -> set[str]:
        lines = reviewed(capsys, "HEAD", code=1)
        assert lines[0] == "Damaged records:"
        return {line.split(": ")[0] for line in lines if line.startswith("  DAMAGE ")}

    log, report = (repository / "runs/canonical/v1" / name for name in ("state.jsonl", "run_report.md"))
    report.unlink()
    report.symlink_to(log.name)
    (repository / "runs/loop/hooks/state.jsonl").write_bytes(b"\xff{\n")
    assert damage() == {"  DAMAGE state.jsonl:1", "  DAMAGE run_report.md"}
    commit(repository)
    git(repository, "checkout", "-q", "HEAD~1", "--", "runs")
    assert damage() == {"  DAMAGE state.jsonl:1 at HEAD", "  DAMAGE canonical/v1 at HEAD"}


@pytest.mark.parametrize("base", ["none", "--all", "HEAD^{tree}", ""])
def test_a_base_that_is_no_commit(repository: Path, capsys: Out, base: str) -> None:
    (said,) = output_of(capsys, "review", "--", base, code=2).err.splitlines()
    assert said.startswith(f"tachograph: {base}")


def test_a_review_as_markdown(repository: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / A4).write_text("](http://b.test) @everyone `<img> ##[error]")
    edit(repository / "policy/secrets.yaml", "[email, github_token", "[email")
    edit(repository / "policy/secrets.yaml", "redact:\n", "redact:\n  env: [DESK_KEY]\n")
    record_anew(repository)
    monkeypatch.setenv("DESK_KEY", "what the settings say")  # which a script does not know
    (repository / "policy/@everyone.yaml").write_text("schema: policy/v2\n")
    lines = reviewed(capsys, "HEAD", "--markdown", code=2)
    assert lines[0].startswith("### ") and "`HEAD`" in lines[0] and lines[1] == ""
    prose = re.sub(r"(`+).*?[^`]\1(?!`)", "", "\n".join(lines))  # without code spans
    assert "everyone" not in prose and "everyone" in "".join(lines) and "##[" not in "".join(lines)
    assert all(re.match(r" *- ", line) for line in lines[2:])
    assert "- What follows from `policy/secrets.yaml`:" in lines
    assert "  - EXPOSURE `/redact`: `github_token is redacted no more`" in lines
    assert "  - EXPOSURE `0`: `shows the value of DESK_KEY`" in lines


REVIEW = (ROOT / "docs/review.md").read_text().partition("\n## Comparing two policies\n")[0]


def shell(root: Path, command: str) -> tuple[int, str]:
    """Return exit code and output of a command, for which `tachograph` is on the path."""
    program = root.parent / "bin/tachograph"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m tachograph "$@"\n')
    program.chmod(0o755)
    env = {**MINE, "PATH": f"{program.parent}:{MINE['PATH']}"}
    done = subprocess.run(command, shell=True, cwd=root, env=env, capture_output=True)
    return done.returncode, (done.stdout + done.stderr).decode()


def test_git_shows_versions_of_a_log_as_sentences(repository: Path) -> None:
    shutil.copy(ROOT / ".gitattributes", repository)
    (setting,) = re.findall("(?m)^git config .*", REVIEW)
    assert shell(repository, setting) == (0, "")
    edit(repository / A4, "the", "THE")
    record_anew(repository)
    log = repository / "runs/canonical/v1/state.jsonl"
    code, said = shell(repository, f"git diff -- {log}")
    assert code == 0 and re.search(r"(?m)^\+ +2\.c0\.i1  the tool returned .*THE", said)
    assert '"event":' not in said
    log.write_text(log.read_text().replace("\n", "\n<<<<<<< HEAD\n", 1))
    code, said = shell(repository, f"git diff -- {log}")
    assert code == 0
    assert all(it in said for it in ("          0  run", "+<<<<<<< HEAD", "+line 2 was changed"))


def test_the_transcript_of_a_merge_is_true(tmp_path: Path) -> None:
    root = tmp_path / "all"
    for folder in ("policy", "tools", "data", "tasks/canonical", "runs/canonical"):
        shutil.copytree(ROOT / folder, root / folder)
    shutil.copy(ROOT / "mcp.lock", root)
    git(tmp_path, "init", "-q", "-b", "main", "all")
    commit(root)
    git(root, "branch", "theirs")
    ours, theirs = (TASK, "question: ", "question: Now, "), (V1, "iterations: 10", "iterations: 9")
    for side, (file, old, new) in (("theirs", theirs), ("main", ours)):
        git(root, "checkout", "-q", side)
        edit(root / file, old, new)
        assert shell(root, "tachograph accept canonical/v1")[0] == 0
        commit(root)
    done = [(command, *shell(root, command)) for command in re.findall(r"(?m)^\$ (.*)", REVIEW)]
    assert [command for command, code, _ in done if code] == ["git merge theirs", "tachograph check"], done
    assert "CONFLICT" in done[0][2] and done[-1][2] == "1 of 1 run holds\n"
    assert all(new in (root / file).read_text() for file, _, new in (ours, theirs))
