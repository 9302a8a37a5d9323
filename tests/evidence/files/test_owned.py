"""A run's folder holds its files, and what its manifest names in `blobs/` and `children/`; nothing else."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tachograph.evidence.checking.check import examine
from tachograph.evidence.checking.verify import verify
from tachograph.evidence.files import manifest as manifests
from tachograph.evidence.files.rebuild import run_files
from tachograph.evidence.recording import index
from tachograph.evidence.sealing.keys import trusted_keys
from tachograph.evidence.sealing.seal_all import seal_all, verify_snapshot
from tachograph.fail.errors import RecordError
from tachograph.review.drift.accept import refusal
from tachograph.runtime.formats.canonical_json import digest
from tachograph.views.site import write_site
from tests.evidence.keys import key_pair, needs_library, trust_file
from tests.evidence.project import DENIED, FEW, RETRIED, copy_inputs, replaced
from tests.support import CANONICAL


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project in which one run has a blob and a child that has a child."""
    project = copy_inputs(tmp_path / "project", FEW)
    run = project / CANONICAL
    child = run / "children/first"
    shutil.copytree(project / DENIED, child)
    shutil.copytree(project / RETRIED, child / "children/second")
    (run / "blobs").mkdir()
    (run / "blobs/page").write_bytes(b"a page")
    _state(child, children={"second": _sha(child / "children/second/manifest.json")})
    _state(run, blobs={"page": digest(b"a page")}, children={"first": _sha(child / "manifest.json")})
    index.update(project)
    return project


def _sha(file: Path) -> str:
    return digest(file.read_bytes())


def _state(run: Path, **more: Any) -> None:
    manifest = json.loads((run / "manifest.json").read_bytes())
    (run / "manifest.json").write_bytes(manifests.render({**manifest, **more}))


def test_what_a_manifest_names_belongs_to_the_run(project: Path) -> None:
    assert verify(project / CANONICAL, project) == []
    assert index.problems(project) == []


def _fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.rename(path.with_name("aside"))
    path.symlink_to(path.with_name("aside"))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "another blob": (
        lambda run: (run / "blobs/more").write_text("x"),
        "blobs/'more': is not in the manifest",
    ),
    "a hidden blob": (lambda run: (run / "blobs/.x").write_text("x"), "blobs/'.x': is not in the manifest"),
    "a changed blob": (lambda run: (run / "blobs/page").write_text("x"), "blobs/'page': its digest is not"),
    "a missing blob": (lambda run: (run / "blobs/page").unlink(), "blobs/'page': is missing"),
    "no blobs": (lambda run: shutil.rmtree(run / "blobs"), "blobs/'page': is missing"),
    "a FIFO for a blob": (
        lambda run: _fifo(run / "blobs/page"),
        "blobs/'page': cannot be read (no plain file)",
    ),
    "a link for a blob": (lambda run: _link(run / "blobs/page"), "blobs/'aside': is not in the manifest"),
    "a folder for a blob": (
        lambda run: ((run / "blobs/page").unlink(), (run / "blobs/page").mkdir()),
        "blobs/'page': cannot be read (no plain file)",
    ),
    "a file for the blobs": (
        lambda run: (shutil.rmtree(run / "blobs"), (run / "blobs").write_text("x")),
        "holds what is no run's: 'blobs'",
    ),
    "blobs that nothing names": (lambda run: _state(run, blobs={}), "holds what is no run's: 'blobs'"),
    "blobs of another shape": (lambda run: _state(run, blobs=["page"]), "/blobs is no object"),
    "another child": (
        lambda run: shutil.copytree(run / "children/first", run / "children/other"),
        "children/'other': is not in the manifest",
    ),
    "a changed child": (
        lambda run: _state(run / "children/first", seed=8),
        "children/'first': its digest is not",
    ),
    "a missing child": (lambda run: shutil.rmtree(run / "children/first"), "children/'first': is missing"),
    "a child without a manifest": (
        lambda run: (run / "children/first/manifest.json").unlink(),
        "children/'first': cannot be read",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_anything_else_is_named(name: str, project: Path) -> None:
    do, said = DAMAGES[name]
    do(project / CANONICAL)
    with pytest.raises(RecordError) as raised:
        run_files(project / CANONICAL, CANONICAL)
    assert said in str(raised.value)
    assert any(said in line for line in verify(project / CANONICAL, project))


@pytest.mark.parametrize("child", ["children/first", "children/first/children/second"])
def test_a_child_is_verified_with_its_owner(project: Path, child: str) -> None:
    (project / CANONICAL / child / "trace.json").write_text("{}")
    found = verify(project / CANONICAL, project)
    assert found and all(line.startswith(f"{CANONICAL}/{child}") for line in found), found


# ---- the commands ----------------------------------------------------------------------------------------------


def test_check_finds_what_the_run_does_not_make(project: Path) -> None:
    """The folder agrees with its manifest, but this run, made again, has neither blobs nor children."""
    found = examine(project / CANONICAL, root=project)
    assert "manifest.json: differs in blobs, children" in found.lines
    inner = examine(project / CANONICAL / "children/first", root=project)
    assert inner.run == CANONICAL, "a child is checked with the run that owns it"


def test_accept_never_drops_them(project: Path) -> None:
    replaced(project / "tools/read.py", '"""Read one', '"""Read just one')
    found = examine(project / CANONICAL, root=project)
    found.tampered = False
    why = refusal(found, project / CANONICAL, project)
    assert why is not None and why.startswith("holds blobs or children, which would be lost")
    shutil.rmtree(project / CANONICAL / "blobs")
    shutil.rmtree(project / CANONICAL / "children")
    assert refusal(found, project / CANONICAL, project) is None


@needs_library
@pytest.mark.parametrize("inner", ["blobs/page", "children/first/manifest.json", "children/first/trace.json"])
def test_a_seal_covers_them(project: Path, inner: str, tmp_path: Path) -> None:
    key_pair(tmp_path, "ann")
    trust_file(tmp_path / "trusted", 1, tmp_path / "ann.pub")
    seal_all(project, [tmp_path / "ann"])
    trusted = trusted_keys(tmp_path / "trusted")
    verdict = verify_snapshot(project, trusted)
    assert verdict.problems == [] and CANONICAL in verdict.runs and verify(project / CANONICAL, project) == []
    with (project / CANONICAL / inner).open("ab") as file:
        file.write(b" ")
    assert verify(project / CANONICAL, project) != [], (
        "the sealed manifest has the digest of what was changed"
    )


def test_the_index_is_of_the_owner(project: Path) -> None:
    before = (project / index.INDEX).read_bytes()
    assert b"children" not in before
    _state(project / CANONICAL / "children/first", seed=8)
    assert index.update(project) is False, "a child is reached through the manifest of its owner"
    assert any("its digest is not" in line for line in verify(project / CANONICAL, project))


def test_the_site_has_a_page_for_each_child(project: Path, tmp_path: Path) -> None:
    site = write_site(project / "runs", tmp_path / "site", root=project)
    name = CANONICAL.removeprefix("runs/")
    assert site.unreadable == {}
    assert {name, f"{name}/children/first", f"{name}/children/first/children/second"} <= site.pages.keys()
    page = (tmp_path / "site" / site.pages[f"{name}/children/first"]).read_text(encoding="utf-8")
    assert f"runs/{name}/children/first" in page
