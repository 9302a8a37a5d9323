"""The walk below a folder: what it passes, refuses, leaves behind; and folders that must stand apart."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tachograph.fail.errors import CorpusError
from tachograph.runtime.agent import Agent
from tachograph.runtime.core.clock import VirtualClock
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.workspace.mounts import Host, Mount
from tachograph.runtime.workspace.safe_open import (
    MAX_LISTED,
    Refused,
    Root,
    list_files,
    make_link,
    open_parent,
    open_root,
    read_file,
    write_file,
)
from tachograph.runtime.workspace.workspace import Workspace
from tests.support import Script, answer, policy_data, tool

POLICY = "# ours\nschema: policy/v1\n"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    folder = tmp_path / "root"
    folder.mkdir()
    made = open_root(folder, "mount 'm'")
    yield made
    os.close(made.fd)


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Without the rights of a privileged user, who passes every folder."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(Refused) as caught:
        act()
    return caught.value.kind


def write(root: Root, path: str, data: bytes = b"new") -> list[str]:
    """What was said to be done."""
    done: list[str] = []
    write_file(root, path.split("/"), data, lambda: done.append(path))
    return done


# ---- what is passed and what is not ------------------------------------------------------------------------


def test_another_file_system_below_is_a_mount_point(root: Root, tmp_path: Path) -> None:
    (tmp_path / "root/a").mkdir()
    (tmp_path / "root/a/x").write_text("x")
    (tmp_path / "root/top").write_text("top")
    elsewhere = replace(root, device=root.device + 1)
    assert refused(lambda: read_file(elsewhere, ["a", "x"])) == "mount point"
    assert refused(lambda: write(elsewhere, "a/y")) == "mount point"
    assert (
        read_file(elsewhere, ["top"]) == b"top"
    )  # an overlay gives its files other devices than its folders
    assert list_files(elsewhere) == ["top"] and list_files(root) == ["a/x", "top"]
    assert os.listdir(tmp_path / "root/a") == ["x"]


def test_the_processes_below_the_root_of_all_are_not_read() -> None:
    if os.stat("/").st_dev == os.stat("/proc").st_dev:
        pytest.skip("/proc is no file system of its own")
    everything = open_root(Path("/"), "mount 'm'", reads_only=True)
    try:
        assert refused(lambda: read_file(everything, ["proc", "self", "environ"])) == "mount point"
    finally:
        os.close(everything.fd)


def test_a_second_name_counts_where_the_run_writes_or_another_owns_the_file(
    root: Root, tmp_path: Path
) -> None:
    (tmp_path / "outside").write_text("shared")
    (tmp_path / "root/x").hardlink_to(tmp_path / "outside")
    read = replace(root, reads_only=True)
    assert read_file(read, ["x"]) == b"shared" and list_files(read) == ["x"]
    for other in (root, replace(root, private=True), replace(read, owner=root.owner + 1)):
        assert refused(lambda other=other: read_file(other, ["x"])) == "hard link"
        assert list_files(other) == []
    assert refused(lambda: write(root, "x")) == "hard link"
    (tmp_path / "outside").unlink()
    assert read_file(replace(read, owner=root.owner + 1), ["x"]) == b"shared"


def test_folders_that_can_be_passed_but_not_listed(root: Root, tmp_path: Path) -> None:
    for folder in ("pass/in", "shut"):
        (tmp_path / "root" / folder).mkdir(parents=True)
    (tmp_path / "root/pass/in/x").write_text("x")
    (tmp_path / "root/shut/y").write_text("y")
    (tmp_path / "root/z").write_text("z")
    (tmp_path / "root/pass").chmod(0o111)
    (tmp_path / "root/shut").chmod(0)
    try:
        with as_nobody():
            assert read_file(root, ["pass", "in", "x"]) == b"x"
            assert list_files(root) == ["z"]
            with pytest.raises(PermissionError):
                read_file(root, ["shut", "y"])
        (tmp_path / "root").chmod(0o111)
        with as_nobody():
            assert read_file(root, ["z"]) == b"z"
            with pytest.raises(PermissionError):
                list_files(root)
    finally:
        for folder in ("root", "root/pass", "root/shut"):
            (tmp_path / folder).chmod(0o755)


def test_a_root_that_cannot_be_passed_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "shut").mkdir(mode=0o600)
    here = os.getcwd()
    os.chdir(tmp_path)  # where nobody could go by its whole path
    try:
        with as_nobody(), pytest.raises(CorpusError, match="mount 'm' cannot be opened"):
            open_root(Path("shut"), "mount 'm'")
    finally:
        os.chdir(here)
    with pytest.raises(CorpusError, match="cannot be opened"):
        open_root(tmp_path / "a\0b", "mount 'm'")


def test_a_folder_that_becomes_a_link_while_it_is_listed(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("")
    (tmp_path / "root/a").mkdir()
    real = os.open

    def swapping(path: Any, *given: Any, **more: Any) -> int:
        if path == "a":
            (tmp_path / "root/a").rmdir()
            (tmp_path / "root/a").symlink_to(tmp_path / "outside")
        return real(path, *given, **more)

    monkeypatch.setattr(os, "open", swapping)
    assert list_files(root) == []


def test_too_many_files_are_an_error(root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tachograph.runtime.workspace.safe_open.MAX_LISTED", 2)
    assert MAX_LISTED > 2
    for name in ("a/1", "a/2", "b"):
        (tmp_path / "root" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "root" / name).write_text("")
    with pytest.raises(OSError, match="too many files"):
        list_files(root)


# ---- writing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o022, 0o777])
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755, 0o444, 0o666])
def test_a_file_keeps_its_mode_and_its_secret(
    root: Root, tmp_path: Path, mode: int, umask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "root/x"
    path.write_text("old")
    path.chmod(mode)
    modes = []
    real = os.fdopen

    def opened(fd: int, how: str) -> Any:
        modes.append(stat.S_IMODE(os.fstat(fd).st_mode))
        return real(fd, how)

    monkeypatch.setattr(os, "fdopen", opened)
    before = os.umask(umask)
    try:
        assert write(root, "x") == ["x"]
    finally:
        os.umask(before)
    assert path.read_bytes() == b"new" and stat.S_IMODE(path.stat().st_mode) == mode
    assert modes == [mode & ~umask]  # never open to more people than before, not even while it is written


def test_no_file_that_runs_as_its_owner_is_given_other_content(root: Root, tmp_path: Path) -> None:
    (tmp_path / "root/x").write_text("old")
    (tmp_path / "root/x").chmod(0o6755)
    write(root, "x")
    assert stat.S_IMODE((tmp_path / "root/x").stat().st_mode) == 0o755


class _Broken:
    """Stands for `os.rename`: fails before or after it does its work."""

    def __init__(self, error: type[BaseException], *, late: bool = False) -> None:
        self._real, self._error, self._late = os.rename, error, late

    def __call__(self, *given: Any, **more: Any) -> None:
        if self._late:
            self._real(*given, **more)
        raise self._error


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, FileNotFoundError])
def test_a_write_that_fails_leaves_nothing(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    (tmp_path / "root/there").mkdir()
    monkeypatch.setattr(os, "rename", _Broken(error))
    done: list[str] = []
    for path in ("a/b/c/x", "there/d/x", "there/x"):
        with pytest.raises(error):
            write_file(root, path.split("/"), b"new", lambda: done.append("done"))
    assert done == []
    assert [path.name for path in (tmp_path / "root").rglob("*")] == ["there"]


def test_a_name_that_no_file_can_have_leaves_no_folder(root: Root, tmp_path: Path) -> None:
    with pytest.raises(OSError):
        write(root, "a/b/" + "n" * 256)
    assert list((tmp_path / "root").iterdir()) == []


def test_an_interrupt_right_after_the_rename_is_a_write(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "rename", _Broken(KeyboardInterrupt, late=True))
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        write_file(root, ["a", "x"], b"new", lambda: done.append("done"))
    assert done == ["done"]
    assert os.listdir(tmp_path / "root/a") == ["x"] and (tmp_path / "root/a/x").read_bytes() == b"new"


def test_what_somebody_else_put_into_a_new_folder_stays(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rename(*_: object, **__: object) -> None:
        (tmp_path / "root/a/b/theirs").write_text("")
        raise OSError

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(OSError):
        write(root, "a/b/c/x")
    assert sorted(path.name for path in (tmp_path / "root").rglob("*")) == ["a", "b", "theirs"]


def test_no_descriptor_is_left_open(root: Root, tmp_path: Path) -> None:
    (tmp_path / "root/a").mkdir()
    (tmp_path / "root/link").symlink_to("a")
    elsewhere = replace(root, device=root.device + 1)
    before = len(os.listdir("/proc/self/fd"))
    for act in (
        lambda: read_file(elsewhere, ["a", "x"]),
        lambda: read_file(root, ["link", "x"]),
        lambda: write(root, "a/b/" + "n" * 256),
        lambda: write(root, "link"),
        lambda: make_link(root, ["a"], "to"),
        lambda: open_parent(root, []),
    ):
        with pytest.raises((OSError, Refused)):
            act()
    list_files(elsewhere)
    assert len(os.listdir("/proc/self/fd")) == before


# ---- folders that stand apart ------------------------------------------------------------------------------


def enter(mounts: dict[str, Mount], hosts: dict[str, Host] | None = None, place: Path | None = None) -> None:
    before = len(os.listdir("/proc/self/fd"))
    try:
        with Workspace(mounts, hosts, private=place):
            pass
    finally:
        assert len(os.listdir("/proc/self/fd")) == before


def complaint(
    mounts: dict[str, Mount], hosts: dict[str, Host] | None = None, place: Path | None = None
) -> str:
    with pytest.raises(CorpusError) as caught:
        enter(mounts, hosts, place)
    assert caught.value.remedy and "\n" not in str(caught.value)
    return caught.value.message


@pytest.fixture
def here(tmp_path: Path) -> Path:
    for name in ("a/in", "b"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "to-a").symlink_to(tmp_path / "a")
    return tmp_path


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a", "a"),
        ("a", "a/in"),
        ("a/in", "a"),
        ("a", "to-a"),
        ("to-a/in", "a"),
        ("a/in", "a/in/../../to-a"),
        ("", "b"),
    ],
)
def test_what_is_written_overlaps_no_other_folder(here: Path, one: str, other: str) -> None:
    box = Mount(here / one, "box", "write")
    for mode in ("read", "write", None):
        found = complaint({"box": box, "books": Mount(here / other, "books", mode)})
        assert found in (
            "mount 'box' is for writing and overlaps mount 'books'",
            "mount 'books' is for writing and overlaps mount 'box'",
        )
    found = complaint({"box": box}, {"a.test": Host(here / other, "h")})
    assert found == "mount 'box' is for writing and overlaps host 'a.test'"


def test_folders_that_nobody_writes_may_be_one(here: Path) -> None:
    mounts = {
        "books": Mount(here / "a", "a", "read"),
        "more": Mount(here / "a/in", "in", "read"),
        "own": Mount(None),
    }
    enter(mounts, {"a.test": Host(here / "a", "h")})
    enter({**mounts, "box": Mount(here / "b", "b", "write")}, {"a.test": Host(here / "a", "h")})


def test_what_is_written_holds_neither_the_record_nor_a_private_mount(here: Path) -> None:
    box = {"box": Mount(here / "a", "box", "write")}
    place = here / "a/in/run.partial/mounts"
    place.parent.mkdir()
    assert complaint(box, place=place) == "mount 'box' is for writing and holds the run's record"
    enter(box, place=here / "b/mounts")
    books = {"books": Mount(here, "books", "read"), "own": Mount(None, None, "write")}
    enter(books, place=place)  # its own folder may lie in what it reads


def test_an_agent_sees_to_it(here: Path) -> None:
    def agent(box: Path) -> Agent:
        mounts = {"box": Mount(box, "box", "write"), "books": Mount(here / "a", "books", "read")}
        return Agent(
            Script([answer()]), [tool(), tool("echo")], Policy.from_dict(policy_data()), mounts=mounts
        )

    with pytest.raises(CorpusError, match="overlaps"):
        agent(here / "a/in").run("?", run_id="r", clock=VirtualClock())
    assert agent(here / "b").run("?", run_id="r", clock=VirtualClock()).ending == "final_answer"


# ---- a project's own folders -------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    for name in (
        "policy",
        "tools",
        "tasks/more",
        "runs",
        ".git/hooks",
        "src",
        "data/corpus",
        "out/deep",
        "my-runs",
    ):
        (made / name).mkdir(parents=True)
    (made / "policy/v1.yaml").write_text(POLICY)
    return made


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("policy", "lies in a project's policy/"),
        ("tools", "lies in a project's tools/"), ("tasks/more", "lies in a project's tasks/"),
        ("runs", "lies in a project's runs/"), (".git/hooks", "lies in a project's .git/"),
        ("out/../tools", "lies in a project's tools/"),
    ],
)  # fmt: skip
def test_what_governs_a_project_is_not_written(project: Path, place: str, said: str) -> None:
    assert (
        complaint({"box": Mount(project / place, "box", "write")}) == f"mount 'box' is for writing and {said}"
    )
    enter({"box": Mount(project / place, "box", "read")})


def test_a_run_may_not_write_the_policy_that_decides_it(project: Path) -> None:
    (project / "out/link.yaml").symlink_to("../policy/v1.yaml")
    (project / "src/other.yaml").write_text(POLICY)
    (project / "my-runs/far.yaml").symlink_to("../src/other.yaml")
    guarded = {"policy v1": project / "policy/v1.yaml", "policy link": project / "out/link.yaml"}
    guarded["policy far"] = project / "my-runs/far.yaml"
    for place, name in (
        (".", "v1"),
        ("..", "v1"),
        ("policy", "v1"),
        ("out", "link"),
        ("src", "far"),
        ("my-runs", "far"),
    ):
        workspace = Workspace({"box": Mount(project / place, "box", "write")}, guarded=guarded)
        with pytest.raises(CorpusError, match=f"for writing and holds policy {name};"), workspace:
            pass
    for mount in (
        Mount(project / "data", "data", "write"),
        Mount(project, "all", "read"),
        Mount(None, None, "write"),
    ):
        with Workspace({"box": mount}, guarded={**guarded, "gone": project / "none/x"}):
            pass


def test_what_a_run_left_in_its_folder_keeps_no_later_run_from_it(project: Path) -> None:
    """Else a run could see to it that no other one begins."""
    enter({"box": Mount(project, "box", "write")})


@pytest.mark.parametrize("place", ["out", "out/deep", "src", "data", "data/corpus", "my-runs"])
def test_the_rest_of_a_project_may_be_written(project: Path, place: str) -> None:
    enter({"box": Mount(project / place, "box", "write")})


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("policy/rules.rego", "package main\n"), ("policy/v1.yaml", "schema: other/v1\n"),
        ("policy/v1.yaml", "# schema: policy/v1\n"), ("policy/v1.md", POLICY), ("policy", POLICY), ("v1.yaml", POLICY),
    ],
)  # fmt: skip
def test_a_folder_of_that_name_is_no_project_by_itself(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    enter({"box": Mount(tmp_path / "tools", "box", "write")})


def test_odd_things_among_policies_stop_nobody(tmp_path: Path) -> None:
    for name in ("policy", "tools"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "policy/a.yaml")
    (tmp_path / "policy/b.yaml").mkdir()
    (tmp_path / "policy/c.yaml").symlink_to("nothing")
    enter({"box": Mount(tmp_path / "tools", "box", "write")})
    (tmp_path / "policy/d.yaml").write_text(POLICY)
    assert "tools/" in complaint({"box": Mount(tmp_path / "tools", "box", "write")})
