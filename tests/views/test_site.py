"""A site over runs: the same bytes for the same runs, written whole or not at all, over nothing but itself."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tachograph.evidence.checking.workers import each
from tachograph.fail.errors import InputError, OutputError
from tachograph.views import site as sites
from tachograph.views.site import file_name, runs_in, write_site
from tests.faults.kept import Case, Disk
from tests.support import ROOT, cli, environment, one_line
from tests.views.reading import Page, folder_of, lines_of, must_be_sound, must_lead_somewhere

SOME = ("canonical/v1", "policy_gates/approval_given", "failure_modes/llm_failure")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A project with a few runs."""
    shutil.copytree(ROOT / "policy", tmp_path / "policy")
    for name in SOME:
        shutil.copytree(ROOT / "runs" / name, tmp_path / "runs" / name)
    return tmp_path / "runs"


def _bytes(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_a_site_over_the_recorded_runs(tmp_path: Path) -> None:
    out = tmp_path / "site"
    made = write_site(ROOT / "runs", out)
    names = sorted(
        path.parent.relative_to(ROOT / "runs").as_posix() for path in ROOT.glob("runs/*/*/state.jsonl")
    )
    assert sorted(made.pages) == names and made.unreadable == {}
    page = must_be_sound((out / "index.html").read_text(encoding="utf-8"))
    must_lead_somewhere(page)
    rows = {a["href"] for a in page.all("a") if a["href"].startswith("runs/")}
    assert rows == set(made.pages.values()) == {f"runs/{path.name}" for path in (out / "runs").iterdir()}
    for path in sorted((out / "runs").iterdir())[:5]:
        inner = must_be_sound(path.read_text(encoding="utf-8"))
        assert inner.all("a")[1]["href"] == "../index.html"
    ends = [json.loads((ROOT / "runs" / n / "state.jsonl").read_bytes().splitlines()[-1]) for n in names]
    answered = sum(end["terminal_reason"] == "final_answer" for end in ends)
    tokens = sum(end["totals"]["input_tokens"] + end["totals"]["output_tokens"] for end in ends)
    assert f"{len(names)} runs, {answered} answered, " in page.text and f"{tokens:,} tokens" in page.text
    assert _row(page, "retry_exhaustion") == [
        "failure_mode_terminal",
        " retry_exhaustion",
        "stub / script",
        "1",
        "1",
        "0",
        "3",
    ]


def _row(page: Page, name: str) -> list[str]:
    at = page.words.index(("a", name))
    return [words for _, words in page.words[at + 2 : at + 9]]


def test_the_same_runs_give_the_same_bytes(runs: Path, tmp_path: Path) -> None:
    write_site(runs, tmp_path / "one")
    write_site(runs, tmp_path / "two")
    first = _bytes(tmp_path / "one")
    assert first == _bytes(tmp_path / "two")
    write_site(runs, tmp_path / "one")
    assert _bytes(tmp_path / "one") == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "policy", "runs", "two"]
    assert (tmp_path / "one").stat().st_mode & 0o777 == (tmp_path / "runs").stat().st_mode & 0o777


def test_a_run_that_is_gone_leaves_no_page(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "site"
    before = write_site(runs, out).pages
    shutil.rmtree(runs / SOME[0])
    assert sorted(write_site(runs, out).pages) == sorted(SOME[1:])
    assert not (out / before[SOME[0]]).exists() and (out / before[SOME[1]]).exists()


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda out: (out / "notes.txt").write_text("mine"), "no site wrote: notes.txt"),
        (lambda out: (out / "runs/notes.txt").write_text("mine"), "no site wrote: runs/notes.txt"),
        (lambda out: (out / "index.html").write_text("mine"), "index.html was changed by hand"),
        (lambda out: (out / "tachograph-site.json").write_text("[]"), "holds files that no site wrote"),
        (lambda out: (out / "tachograph-site.json").unlink(), "holds files that no site wrote"),
        (lambda out: (out / "link").symlink_to(out.parent), "no site wrote: link"),
    ],
)
def test_what_is_no_site_stays(runs: Path, tmp_path: Path, spoil: Any, what: str) -> None:
    out = tmp_path / "site"
    write_site(runs, out)
    spoil(out)
    before = {path: os.lstat(path).st_mtime_ns for path in sorted(tmp_path.rglob("*"))}
    with pytest.raises(OutputError, match=what):
        write_site(runs, out)
    assert {path: os.lstat(path).st_mtime_ns for path in sorted(tmp_path.rglob("*"))} == before


def test_other_places_are_refused(runs: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "a").write_text("a")
    with pytest.raises(OutputError, match="no site wrote"):
        write_site(runs, mine)
    with pytest.raises(OutputError, match="not a folder"):
        write_site(runs, mine / "a")
    with pytest.raises(OutputError, match="cannot be written to"):
        write_site(runs, mine / "a" / "b")
    with pytest.raises(OutputError, match="lies in a recorded run"):
        write_site(runs, runs / SOME[0] / "site")
    with pytest.raises(InputError, match="holds no recorded run"):
        write_site(mine, tmp_path / "site")
    with pytest.raises(InputError, match="no such folder"):
        write_site(mine / "none", tmp_path / "site")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "policy", "runs"]


@pytest.mark.parametrize("there", [False, True])
def test_a_site_that_fails_leaves_the_old_one(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    out = tmp_path / "site"
    if there:
        write_site(runs, out)
    before = _bytes(tmp_path)

    def fails(*_: object) -> str:
        raise OSError(28, "full")

    monkeypatch.setattr(sites, "index_page", fails)
    with pytest.raises(OutputError, match="cannot be written"):
        write_site(runs, out)
    monkeypatch.undo()
    real = Path.rename

    def renames(path: Path, to: Path) -> Path:
        if to == out.resolve() and path.name.startswith(".site-") and "old" not in path.name:
            raise OSError(28, "full")
        return real(path, to)

    monkeypatch.setattr(Path, "rename", renames)
    with pytest.raises(OutputError, match="cannot be written"):
        write_site(runs, out)
    monkeypatch.undo()
    assert _bytes(tmp_path) == before


def test_many_at_once_leave_one_site(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "site"
    write_site(runs, out)
    wanted = _bytes(out)
    code = (
        "import sys\nfrom pathlib import Path\nfrom tachograph.views.site import write_site\n"
        "for _ in range(12): write_site(Path(sys.argv[1]), Path(sys.argv[2]))\n"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(runs), str(out)],
            cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True,
        )
        for _ in range(4)
    ]  # fmt: skip
    said = [child.communicate(timeout=60)[1] for child in children]
    assert ([child.returncode for child in children], said) == ([0] * 4, [""] * 4)
    assert _bytes(out) == wanted
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy", "runs", "site"]


@pytest.mark.parametrize("aside", ["whole", "in part", "empty"])
@pytest.mark.parametrize("there", [True, False])
def test_what_a_killed_one_left_is_put_right(runs: Path, tmp_path: Path, aside: str, there: bool) -> None:
    out, old, new = tmp_path / "site", tmp_path / ".site-old-abcd1234", tmp_path / ".site-new-abcd1234"
    write_site(runs, out)
    wanted = _bytes(out)
    shutil.copytree(out, old)
    (new / "runs").mkdir(parents=True)
    if aside != "whole":
        (old / "index.html").unlink()
    if aside == "empty":
        shutil.rmtree(old)
        old.mkdir()
    if not there:
        shutil.rmtree(out)
    theirs = tmp_path / ".site-old-mine"
    theirs.mkdir()
    (theirs / "a").write_text("a")
    write_site(runs, out)
    assert _bytes(out) == wanted and _bytes(theirs) == {"a": b"a"}
    assert sorted(path.name for path in tmp_path.iterdir()) == [".site-old-mine", "policy", "runs", "site"]


def test_an_old_site_stands_again_where_the_new_one_cannot_be_made(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "site"
    write_site(runs, out)
    wanted = _bytes(out)
    out.rename(tmp_path / ".site-old-abcd1234")
    (runs / "canonical/v1/state.jsonl").rename(tmp_path / "kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sites, "index_page", lambda _entries: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            write_site(runs, out)
    assert _bytes(out) == wanted


def test_a_signal_waits_until_the_site_is_in_its_place(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "site"
    write_site(runs, out)
    real = Path.rename

    def rename(path: Path, to: Path) -> Path:
        signal.raise_signal(signal.SIGINT)
        return real(path, to)

    shutil.rmtree(runs / SOME[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            write_site(runs, out)
    assert len(list((out / "runs").iterdir())) == len(SOME) - 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy", "runs", "site"]


def test_a_broken_record_is_told_of_and_the_rest_is_written(runs: Path, tmp_path: Path) -> None:
    state = runs / SOME[0] / "state.jsonl"
    state.write_bytes(state.read_bytes()[:-9])
    out = tmp_path / "site"
    done = cli("site", str(runs), str(out), cwd=tmp_path)
    assert done.returncode == 1
    assert "unreadable  runs/canonical/v1/state.jsonl:7: the last line is cut off" in done.stdout
    assert "over 2 runs" in done.stdout and str(tmp_path) not in done.stdout
    page = must_be_sound((out / "index.html").read_text(encoding="utf-8"))
    assert "Records that cannot be read" in page.text and "the last line is cut off" in page.text
    done = cli("site", str(runs), str(out), "--json", cwd=tmp_path)
    assert sorted(json.loads(done.stdout)["pages"]) == sorted(SOME[1:])


def test_a_site_says_nothing_of_the_machine(runs: Path, tmp_path: Path) -> None:
    shutil.rmtree(runs / SOME[1])
    (runs / SOME[2] / "state.jsonl").write_text("{}")
    case = Case(tmp_path / "kept", (["look", "put"], ["pay", "look!"], ["look"]))
    assert case.begin(Disk(20)) is None
    case.partial.rename(runs / "under.partial")
    shutil.rmtree(tmp_path / "policy")
    write_site(runs, tmp_path / "site")
    for text in _bytes(tmp_path / "site").values():
        assert str(tmp_path).encode() not in text and str(ROOT).encode() not in text


def test_a_run_under_way_is_in_the_site(runs: Path, tmp_path: Path) -> None:
    case = Case(tmp_path / "kept", (["look", "put"], ["pay", "look!"], ["look"]))
    assert case.begin(Disk(20)) is None
    case.partial.rename(runs / "under.partial")
    made = write_site(runs, tmp_path / "site")
    assert "under.partial" in made.pages
    assert "unfinished" in Page((tmp_path / "site/index.html").read_text(encoding="utf-8")).text
    # what a finish puts aside for a moment is no run
    (runs / "canonical/v1.old").mkdir()
    (runs / "canonical/v1.old/state.jsonl").write_text("")
    assert runs / "canonical/v1.old" not in runs_in(runs)


def test_names_of_pages_are_plain_and_apart() -> None:
    names = [
        "a/b", "a--b", "a-b", "a_b", "A/b", "a/B", "a b", "a%20b", "a?b", "a#b", "../x", ".x", "_x", "x.", "con",
        "\u00e9", "e\u0301", "x" * 300, "x" * 301, "a\nb", "-", "--", "a/-b", "a-/b", "a/b-", "\udce9",
    ]  # fmt: skip
    made = [file_name(name) for name in names]
    assert len({name.lower() for name in made}) == len(names)
    for name in made:
        assert all(c in "abcdefghijklmnopqrstuvwxyz0123456789_-." for c in name)
        assert name.endswith(".html") and name[0].isalnum() and len(name) < 140
    assert file_name("policy_gates/pg4_forbidden_tool") == "policy_gates--pg4_forbidden_tool.html"


def test_a_site_is_made_on_all_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []

    def noted(work: Any, items: Any, **more: Any) -> Any:
        used.append(len(items))
        return each(work, items, **more, jobs=2)

    monkeypatch.setattr(sites, "each", noted)
    told: list[int] = []
    write_site(ROOT / "runs", tmp_path / "many", tell=lambda done, _entry: told.append(done))
    assert used == [len(told)] and told == list(range(1, len(told) + 1))
    monkeypatch.setattr(sites, "each", lambda work, items, **_: [work(item) for item in items])
    write_site(ROOT / "runs", tmp_path / "one")
    assert _bytes(tmp_path / "many") == _bytes(tmp_path / "one")


def test_hostile_names_are_inert(runs: Path, tmp_path: Path) -> None:
    lines = lines_of("canonical/v1")
    for name in ("<img src=x>", "a\u202eb", "x\ny", "%2e%2e", '"onmouseover="x'):
        folder_of(json.loads(json.dumps(lines)), runs / name / "\x1b[31m")
    done = cli("site", str(runs), str(tmp_path / "site"), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    page = must_be_sound((tmp_path / "site/index.html").read_text(encoding="utf-8"))
    assert len([a for a in page.all("a") if a["href"].startswith("runs/")]) == 8
    for link in page.all("a"):
        if link["href"].startswith("runs/"):
            assert (tmp_path / "site" / link["href"]).is_file()


def test_the_command_refuses_in_one_line(tmp_path: Path) -> None:
    done = cli("site", "runs", str(tmp_path / "a\nb" / "\x1b"), cwd=ROOT)
    assert done.returncode == 0
    done = cli("site", "docs", str(tmp_path / "site"), cwd=ROOT)
    assert done.returncode == 2 and "holds no recorded run" in one_line(done)
