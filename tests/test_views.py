"""What people are shown of runs: a tree, a page, a site, and a run as it goes on."""

from __future__ import annotations

import errno
import os
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tachograph.evidence.folder import where_it_lies
from tachograph.runtime import clock
from tachograph.runtime.formats.escape import escape_build_log, escape_terminal
from tachograph.views import site
from tachograph.views.markup import STYLE, element
from tachograph.views.outline import Node, outline
from tachograph.views.page import page
from tachograph.views.tree import drawn
from tests import markup
from tests.commands import Capsys, exit_code, output_of
from tests.hostile import HOSTILE, log_of, run_at, scene
from tests.logs import Log, call
from tests.project import files_below


def shape(node: Node) -> str:
    """Return address and tone of each line of an outline, what is below one in brackets."""
    below = f"({' '.join(map(shape, node.below))})" if node.below else ""
    return node.at + {"good": "+", "bad": "!", "wait": "?", "": ""}[node.tone] + below


def test_every_line_stands_below_what_it_belongs_to() -> None:
    log = Log().failed("m1").waited("m1.w").replied(call(), call(), attempt=2).decided("c0.d").failed("c0.i1")
    log.waited("c0.i1.w").returned("c0.i2").decided("c0.i2.d1", "deny").decided("c1.d", "escalate")
    calls = "1.c0(1.c0.d+ 1.c0.i1!(1.c0.i1.w) 1.c0.i2(1.c0.i2.d1!)) 1.c1(1.c1.d? 1.c1!)"
    assert shape(outline(log.stopped("c1").stepped().decided("d", "deny").stepped().ended("cancelled"))) == (
        f"0(1(1.m1!(1.m1.w) 1.m2 {calls} 1.e) 2(2.d! 2.e) end!)"
    )


FRAME = re.compile("(?m)^[ │├└─]*")


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_changes_the_tree(text: str) -> None:
    plain, coloured = (drawn(outline(scene(text)), width) for width in (None, 300))
    shown = plain + re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert all(line.isprintable() for line in shown.split("\n")) and escape_build_log(text) in plain
    assert FRAME.findall(plain) == FRAME.findall(drawn(outline(scene("calm")), None))


def test_an_address_does_not_nest_without_end() -> None:
    log = Log()
    for depth in range(1, 3_000):
        log.decided(".".join("x" * depth)).decided("y")
    assert drawn(outline(log.events), None).count("\n") == len(log.events) + 1  # and a step


def test_colours_are_for_terminals_and_rich_for_trees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    run = run_at(tmp_path / "run.partial", Log().replied(call()).decided("c0.d").events)
    for term, is_coloured in (("xterm", True), ("dumb", False)):
        monkeypatch.setenv("TERM", term)
        assert ("\x1b[32m" in drawn(outline(scene("calm")), 80)) is is_coloured
    said = output_of(capsys, "show", str(run), "--tree").out
    assert "1.c0.d" in said and "\x1b" not in said and "resume" in said
    monkeypatch.setitem(sys.modules, "rich.tree", None)
    assert "tachograph[views]" in output_of(capsys, "show", str(run), "--tree", code=2).err


# ---- pages -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "p/policy").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "p")
    return tmp_path / "p"


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_changes_more_than_words(project: Path, text: str) -> None:
    kind, name = (part[:60].replace("/", "%2f").replace("\0", "") for part in (text, f"\udcff{text}"))
    names, texts = (f"{kind}/{name}", "calm/calm", "long/long"), (text, "calm", text * 90)
    for at, it in zip(names, texts, strict=True):
        run_at(project / "runs" / at, scene(it))
    assert exit_code("page", f"runs/{names[0]}", "--out", "page.html") == exit_code("site") == 0
    hostile, calm, long = (markup.read(project / f"site/runs/{at}.html") for at in names)
    single = markup.read(project / "page.html")
    for tag in ("h1", "h2", "h3", "header", "main", "section", "li", "a", "dt", "dd"):
        assert hostile.tags.count(tag) == calm.tags.count(tag) == long.tags.count(tag)
    assert "nav" not in single.tags and hostile.tags.count("nav") == 1
    for line in filter(None, re.split(r"\r?\n", text)):
        assert all(escape_terminal(line) in it.text for it in (hostile, single, long))
    index = markup.read(project / "site/index.html")
    assert len(index.links) == 3
    assert all((project / "site" / unquote(href, errors="surrogateescape")).is_file() for href in index.links)


def test_quotes_are_escaped_in_attributes_too() -> None:
    assert element("p", "\"'", class_="\"'<") == '<p class="&quot;&#x27;&lt;">&quot;&#x27;</p>'


def test_a_page_of_many_steps_is_small() -> None:
    log = Log()
    for _ in range(999):
        log.replied(call("search", query="what? " * 200)).decided("c0.d").failed("c0.i1", said='"' * 500)
        log.stepped("tool_call_failure")
    found = markup.Page(page("many", log.answered("done\n" * 9_000)))
    assert found.size <= 2_000_000
    assert (found.tags.count("h3"), found.tags.count("section")) == (1_000, 1_000)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_can_be_told_from_the_background(scheme: int) -> None:
    names = ("back", "text", "link", "good", "bad", "wait")
    back, *colours = (re.findall(f"--{name}:(#[0-9a-f]+)", STYLE)[scheme] for name in names)
    assert min(markup.contrast(colour, back) for colour in colours) >= 4.5


def test_a_page_says_what_went_wrong_and_links_to_it(project: Path) -> None:
    log = Log().replied(call()).decided("c0.d", "deny", "url_allowlist").stepped()
    run_at(project / "runs/k/n.partial", log.replied(call()).decided("c0.d", "deny").events)
    assert exit_code("page", "k/n") == 0
    found = markup.read(project / "k-n.partial.html")
    assert [href for href in found.links if href in ("#1.c0.d", "#2.c0.d")] == ["#1.c0.d", "#2.c0.d"] * 2
    assert "open" in found.text and "url_allowlist" in found.text


def test_what_cannot_be_written_is_named_and_leaves_nothing(
    project: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_at(project / "runs/k/n", Log().answered())

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for out, disk, n in (("nowhere/it.html", os.fsync, 2), ("it.html", full, 1)):
        monkeypatch.setattr(os, "fsync", disk)
        before = files_below(project)
        assert output_of(capsys, "page", "k/n", "--out", out, code=n).err.startswith(f"tachograph: {out}: ")
        assert files_below(project) == before


WRITE = [["page", "k/n", "--out", "it"], ["site", "--out", "it"]]


@pytest.mark.parametrize("words", WRITE)
@pytest.mark.parametrize("kind", ["file", "note", "link", "other kind"])
def test_nothing_else_is_replaced(project: Path, words: list[str], kind: str) -> None:
    run_at(project / "runs/k/n", Log().answered())
    assert exit_code(*words) == exit_code(*words) == 0  # what an earlier call wrote is
    place, keep = project / "it", project / "keep.html"
    if kind == "other kind":
        place.unlink() if place.is_file() else site.shutil.rmtree(place)
        assert exit_code(*(WRITE[0] if words == WRITE[1] else WRITE[1])) == 0
    elif kind == "link":
        place.rename(keep)
        place.symlink_to(keep)
    elif kind == "file" or place.is_file():
        (place if place.is_file() else place / "runs/k/n.html").write_text("<!doctype html>\n")
    else:
        (place / "note").touch()
    before = files_below(project)
    assert exit_code(*words) == 2
    assert files_below(project) == before


def test_a_site_is_whole_or_not_there(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys) -> None:
    for name in ("a", "b", "c"):
        run_at(project / "runs/k" / name, Log().answered())
    run_at(project / "runs/k/none.partial", [])
    run_at(project / "runs/k/a.partial", Log().events)
    assert exit_code("site") == 0
    pages = sorted(path.name for path in (project / "site/runs/k").iterdir())
    assert pages == ["a.html", "a.partial.html", "b.html", "c.html"]
    assert "/dev/null/it:" in output_of(capsys, "site", "--out", "/dev/null/it", code=2).err
    assert "/proc/self/mem:" in output_of(capsys, "page", "k/a", "--out", "/proc/self/mem", code=1).err
    before = files_below(project / "site")
    run_at(project / "runs/k/d.partial", Log().events)
    write = site.write_durably

    def fail(path: Path, data: bytes) -> None:
        if path.name == "b.html":
            raise OSError(28, "No space left on device", str(path))
        write(path, data)

    monkeypatch.setattr(site, "write_durably", fail)
    assert "No space" in output_of(capsys, "site", code=1).err
    assert files_below(project / "site") == before and not [*project.glob(".site*")]


# ---- a run as it goes on ---------------------------------------------------------------------------------------------

LOG = log_of(Log().replied(call()).decided("c0.d").returned("c0.i1").stepped().answered())
CUT = LOG.index(b'{"event":"tool_returned"')  # where the fourth line begins
Followed = tuple[list[Any], list[int], int]
FOLLOWED: list[Followed] = [
    # what happens at each wait (a number: the log is then so long), how many lines were printed before it and at the
    # end, and the exit code
    ([len(LOG)], [2, 8], 0),
    ([CUT - 1, CUT, CUT + 10, "nothing", CUT, len(LOG) - 1, len(LOG)], [2, 2, 3, 3, 3, 3, 7, 8], 0),
    ([CUT, "put in place", CUT + 10, len(LOG)], [2, 3, 3, 3, 8], 0),
    ([(len(LOG), "put in place")], [2, 8], 0),
    ([(len(LOG), "removed")], [2, 8], 0),
    (["removed"], [2, 2], 2),
    ([CUT, "damaged"], [2, 3, 3], 2),
    ([CUT, "stopped"], [2, 3, 3], 130),
]


@pytest.mark.parametrize("row", FOLLOWED)
def test_a_run_is_followed_to_its_end(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys, row: Followed
) -> None:
    happens, printed, code = row
    folder, partial = project / "runs/k/n", project / "runs/k/n.partial"
    lines: list[str] = []
    counts: list[int] = []

    def happen(what: Any) -> None:
        file = where_it_lies(folder) / "state.jsonl"
        if isinstance(what, int):
            before = file.read_bytes()[:what]
            os.truncate(file, len(before))
            with file.open("ab") as log:
                log.write(LOG[len(before) : what])
        elif what == "put in place":
            partial.rename(folder)
        elif what == "removed":
            site.shutil.rmtree(partial)
        elif what == "damaged":
            file.write_bytes(LOG[:CUT] + b"{}\n")
        elif what == "stopped":
            raise KeyboardInterrupt

    def wait(_: float) -> None:
        lines.extend(capsys.readouterr().out.splitlines())
        counts.append(len(lines))
        what = happens[len(counts) - 1]
        for it in what if isinstance(what, tuple) else (what,):
            happen(it)

    partial.mkdir(parents=True)
    (partial / "state.jsonl").write_bytes(LOG[: CUT - 10])
    monkeypatch.setattr(clock, "pause", wait)
    assert exit_code("show", "k/n", "--follow") == code
    lines.extend(capsys.readouterr().out.splitlines())
    assert [*counts, len(lines)] == printed


def test_an_open_run_is_followed_before_a_recorded_one(project: Path, capsys: Capsys) -> None:
    run_at(project / "runs/k/n", Log(question="earlier").answered())
    assert exit_code("show", "k/n", "--follow") == 0
    run_at(project / "runs/k/n.partial", Log(question="later").answered())
    assert exit_code("show", "runs/k/n", "--follow") == 0
    assert re.findall("earlier|later", capsys.readouterr().out) == ["earlier", "later"]
    assert exit_code("show", "k/n", "--follow", "--tree") == 2
    (project / "runs/k/n.partial/state.jsonl").unlink()
    (project / "runs/k/n/state.jsonl").unlink()
    assert exit_code("show", "k/n", "--follow") == 2
