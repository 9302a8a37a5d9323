"""The generated pages: what catalog and runs give, stale where they are not, and inert."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from dev import docs
from tachograph.fail.catalog import ENDINGS, MODES, Denied, classify, happenings, key_of
from tachograph.fail.errors import InputError
from tests.evidence.project import (
    CANONICAL_TRACE,
    DENIED,
    FEW,
    RETRIED,
    all_runs,
    copy_inputs,
    edit_lines,
    replaced,
)
from tests.support import ROOT, TASK, tree


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return copy_inputs(tmp_path / "project", FEW)


def rows(text: str, title: str) -> list[list[str]]:
    """The cells of the first table after a heading."""
    lines = text.split(f"{title}\n", 1)[1].splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("|---"))
    out = []
    for line in lines[begin + 1 :]:
        if not line.startswith("| "):
            break
        out.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return out


def test_the_committed_pages_are_what_catalog_and_runs_give() -> None:
    assert docs.stale(ROOT) == []


def test_every_run_is_listed() -> None:
    for kind, page in (("policy_gates", docs.GATES), ("failure_modes", docs.MODES_PAGE)):
        names = re.findall(r"^- `(\w+)`: ", (ROOT / page).read_text(), re.M)
        assert names == [run.name for run in all_runs() if run.parent.name == kind]
    assert set(docs.pages(ROOT)) == {
        docs.GATES,
        docs.MODES_PAGE,
        docs.CATALOG,
        docs.EVIDENCE,
        docs.CAPABILITIES,
    }


def test_the_pages_repeat_the_catalog() -> None:
    text = (ROOT / docs.MODES_PAGE).read_text()
    assert [row[0].strip("`") for row in rows(text, "# Failure modes")] == list(MODES)
    assert not [row for row in rows(text, "# Failure modes") if row[2] == "0"]
    assert [row[0].strip("`") for row in rows(text, "## Endings")] == list(ENDINGS)
    happened = rows(text, "## What happens, and what follows")
    # a repeated denial has one row, whatever the rule
    listed = [it for it in happenings() if not (isinstance(it, Denied) and it.repeated)]
    assert len(happened) == len(listed) + 1
    for happening in happenings():
        terminate, inform = (classify(happening, how, how) for how in ("terminate", "inform"))
        row = next(row for row in happened if row[0] == f"`{docs.words_of(happening)}`")
        assert row[1] == (f"`{terminate.mode}`" if terminate.mode else "none")
        assert row[2] == (f"`{key_of(happening)}`" if terminate != inform else "either")
        for said, found in zip(row[3:], (terminate, inform), strict=True):
            assert said == f"`{found.ending}`" if found.ending else "goes on" in said


def test_no_line_is_wider_than_a_page() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        lines = page.read_text(encoding="utf-8").splitlines()
        wide = [line for line in lines if len(line) > 120 and not line.startswith("> |")]  # rows of a report
        assert wide == [], page.name


def test_links_lead_somewhere() -> None:
    for page in (docs.GATES, docs.MODES_PAGE):
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / page).read_text()):
            assert (ROOT / page).parent.joinpath(target).exists(), target


@pytest.mark.parametrize("page", [docs.GATES, docs.MODES_PAGE, docs.CAPABILITIES])
def test_a_stale_page_is_named_and_mended(page: str, project: Path) -> None:
    assert docs.stale(project) == []
    whole = (project / page).read_text()
    place = "schema_mismatch`" if page != docs.CAPABILITIES else "3 agent_step"
    replaced(project / page, place, "x`")
    assert docs.stale(project) == [
        f"{page}: is not what catalog and runs give; write it with `make evidence-build`"
    ]
    others = {name: kept for name, kept in tree(project).items() if name != page}
    docs.write(project)
    assert (project / page).read_text() == whole
    assert {name: kept for name, kept in tree(project).items() if name != page} == others


def test_pages_that_are_gone_are_written_anew(project: Path) -> None:
    shutil.rmtree(project / "docs")
    assert len(docs.stale(project)) == 3
    docs.write(project)
    assert docs.stale(project) == []


def test_a_title_forges_nothing(project: Path) -> None:
    task = project / "tasks/policy_gates/pg5_arg_schema.yaml"
    replaced(task, "Arguments of the wrong shape", "a | b <b> [x](http://x) `c` **d** # e")
    docs.write(project)
    for page in (docs.GATES, docs.CAPABILITIES):
        (line,) = [line for line in (project / page).read_text().splitlines() if "http" in line]
        assert "<b>" not in line and "](http" not in line and "**d" not in line


@pytest.mark.parametrize("run", [DENIED, RETRIED])
@pytest.mark.parametrize("key", ["policy_decisions", "tool_results", "failure_mode", "stamps"])
def test_a_ledger_of_another_shape_is_one_complaint(run: str, key: str, project: Path) -> None:
    edit_lines(project / run, lambda lines: lines[1].pop(key), chain=True)
    with pytest.raises(InputError) as caught:
        docs.pages(project)
    assert str(caught.value).startswith(f"{run}/state.jsonl: has lines of an unknown shape")


def test_a_page_that_is_no_text_is_one_complaint(project: Path) -> None:
    (project / docs.GATES).write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"docs/policy-gates\.md: cannot be read \(UnicodeDecodeError\)"):
        docs.stale(project)


def test_what_the_table_says_comes_from_the_ledger_not_from_the_trace(project: Path) -> None:
    (project / CANONICAL_TRACE).unlink()
    assert docs.stale(project) == []
    (project / TASK).unlink()
    with pytest.raises(InputError, match=f"there is no task {TASK}"):
        docs.pages(project)
