"""The life of an attempt and of a workspace: what ends, ends whole, and nothing comes after."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tachograph.fail.errors import CorpusError
from tachograph.runtime.io import http
from tachograph.runtime.io.tool_io import ToolIO
from tachograph.runtime.io.workspace import Host, Mount, Workspace
from tachograph.runtime.log.values import Fact, Touch
from tachograph.runtime.policy.leaf import Verdict
from tachograph.runtime.resources.url import Malformed
from tachograph.runtime.tools.contract import EFFECTS, USES
from tests.io_world import TOOLS, World, decide, partial_of

# ---- the life of an attempt ------------------------------------------------------------------------------------------

USING: dict[str, Callable[[ToolIO], object]] = {
    "read": lambda io: io.read("book/a.md"),
    "list": lambda io: io.list("book"),
    "write": lambda io: io.write("desk/x", "x"),
    "get": lambda io: io.get("https://site.test/docs/x.md"),
}


@pytest.mark.parametrize("effect", EFFECTS)
def test_an_effect_kind_covers_its_own_uses_alone(
    world: World, effect: str, caplog: pytest.LogCaptureFixture
) -> None:
    for name, use in USING.items():
        io = world.io(effect)
        if name in USES[effect]:
            use(io)
            assert io.undeclared == ""
            continue
        before = list(world.reads), (world.desk / "x").exists()
        with pytest.raises(PermissionError):
            use(io)
        assert (io.undeclared, io.denied, io.met) == (f"io.{name}", False, [])
        assert f"io.{name}" in caplog.messages[-1]  # whoever wrote the tool is told
        for other in USING.values():  # what the tool makes of the exception does not matter
            with pytest.raises(PermissionError):
                other(io)
        assert io.undeclared == f"io.{name}" and (world.reads, (world.desk / "x").exists()) == before


@pytest.mark.parametrize("name", USING)
def test_after_the_end_nothing_is_done_and_people_are_told(
    world: World, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[Fact] = []

    def noting(fact: Fact) -> Verdict:
        asked.append(fact)
        return decide(fact)

    io = world.io(decide=noting)
    io.close()
    io.close()
    with pytest.raises(PermissionError), caplog.at_level(logging.WARNING):
        USING[name](io)
    assert f"io.{name}" in caplog.text and (asked, io.met, io.denied, world.reads) == ([], [], False, [])
    assert not (world.desk / "x").exists()


def test_the_end_waits_for_a_file_operation_and_no_use_begins_after_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    io, real = world.io(), os.rename
    begun, go_on, order = threading.Event(), threading.Event(), list[str]()

    def slow(*given: Any, **more: Any) -> None:
        begun.set()
        assert go_on.wait(20)
        real(*given, **more)
        order.append("written")

    monkeypatch.setattr(os, "rename", slow)
    writer = threading.Thread(target=lambda: io.write("desk/x", "x"))
    closer = threading.Thread(target=lambda: (io.close(), order.append("closed")))
    writer.start()
    assert begun.wait(20)
    closer.start()
    closer.join(0.05)
    assert closer.is_alive()
    go_on.set()
    writer.join(20)
    closer.join(20)
    assert order == ["written", "closed"] and io.wrote


def test_the_end_does_not_wait_for_a_network(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    io, begun, go_on = world.io(), threading.Event(), threading.Event()
    failed: list[type[BaseException]] = []

    def slow(*_: Any) -> Any:
        begun.set()
        assert go_on.wait(20)
        return 302, {"location": "https://site.test/docs/x.md"}, ""

    def get() -> None:
        try:
            io.get("https://far.test/")
        except PermissionError as error:
            failed.append(type(error))

    monkeypatch.setattr(http, "fetch", slow)
    getter = threading.Thread(target=get)
    getter.start()
    assert begun.wait(20)
    io.close()
    go_on.set()
    getter.join(20)
    assert failed == [PermissionError] and world.reads == [] and io.met == []


def test_threads_that_meet_a_denial_keep_it_once(world: World) -> None:
    io = world.io()
    start = threading.Barrier(8)

    def use() -> None:
        start.wait(20)
        with contextlib.suppress(PermissionError):
            io.read("/etc/passwd")

    with ThreadPoolExecutor(8) as pool:
        for used in [pool.submit(use) for _ in range(8)]:
            used.result(20)
    assert io.met == [Touch("/etc/passwd", "read")]


def test_a_broken_io_raises_and_touches_nothing(world: World) -> None:
    for use in USING.values():
        io = world.io()
        io.broken = ConnectionError()
        with pytest.raises(ConnectionError):
            use(io)
        assert (io.met, io.wrote, io.denied) == ([], set(), False)
    assert world.reads == [] and not (world.desk / "x").exists()


# ---- the life of a workspace -----------------------------------------------------------------------------------------


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_private_folders_and_descriptors_go_when_it_closes(world: World) -> None:
    before = _open_files()
    workspace = Workspace({"desk": Mount("write"), "other": Mount("write")}, {"h": Host(world.site)})
    with workspace:
        ToolIO(workspace, TOOLS["write"], decide, "k").write("desk/a/b", "x")
        folders = list(workspace._temporary)
        assert len(set(folders)) == 2 and _open_files() == before + 3
        (folders[0] / "link").symlink_to(world.outside)
    assert not any(folder.exists() for folder in folders) and (world.outside / "secret").exists()
    assert _open_files() == before
    workspace.close()


def test_no_descriptor_is_left_open_by_refusals(world: World) -> None:
    for folder in (world.book, world.desk):
        (folder / "link").symlink_to("a.md")
    (world.book / "latin").write_bytes(b"\xe9")
    before = _open_files()
    paths = ("link", "link/x", "sub", "none/x", "latin", "sub/b.md/c")
    for mount, path, access in itertools.product(("book", "desk"), paths, ("read", "write")):
        with contextlib.suppress(OSError):
            partial_of(world.io(), access, f"{mount}/{path}")()
    with pytest.raises(PermissionError):
        world.io().get("https://site.test/away")
    world.io().list("book")
    assert _open_files() == before


@pytest.mark.parametrize("what", ["mount", "host"])
def test_a_folder_that_is_none_is_bad_input_and_leaves_nothing(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "file").write_text("")
    for missing in (tmp_path / "none", tmp_path / "file"):
        mounts = {"desk": Mount("write"), **({"bad": Mount("read", missing)} if what == "mount" else {})}
        before = _open_files()
        with (
            pytest.raises(CorpusError) as refused,
            Workspace(mounts, {"bad": Host(missing)} if what == "host" else {}),
        ):
            pass
        assert refused.value.remedy and "'bad'" in str(refused.value)
        assert os.listdir(tmp_path) == ["file"] and _open_files() == before


@pytest.mark.parametrize("where", ["same", "below", "above", "link", "host", "guarded", "private"])
def test_a_folder_for_writing_overlaps_no_other(tmp_path: Path, where: str) -> None:
    """A second name of a folder that is only read would have the weaker rule."""
    for name in ("one/sub", "two"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to("one")
    written = {"below": "one/sub", "link": "link"}.get(where, "one")
    other = tmp_path / {"above": "one/sub", "guarded": "two", "private": "two"}.get(where, "one")
    given: dict[str, Any] = {"hosts": {"h": Host(other)}} if where == "host" else {}
    given |= {"guarded": {"the policy": tmp_path / "one" / "sub" / "p.yaml"}} if where == "guarded" else {}
    given |= {"private": tmp_path / "one" / "run"} if where == "private" else {}
    mounts = {"desk": Mount("write", tmp_path / written)}
    mounts |= {} if where == "host" else {"book": Mount("read", other)}
    with pytest.raises(CorpusError, match="desk"), Workspace(mounts, **given):
        pass
    with Workspace({"desk": Mount("write", tmp_path / "one"), "book": Mount("read", tmp_path / "two")}):
        pass


def test_a_task_places_files_and_links(tmp_path: Path) -> None:
    with Workspace({"desk": Mount("write")}) as workspace:
        workspace.place("desk/a/x.md", "\u00e9")
        workspace.place("desk/a/l", None, "../x")
        io = ToolIO(workspace, TOOLS["write"], decide, "k")
        assert io.list("desk") == ["desk/a/x.md"] and io.read("desk/a/x.md") == "\u00e9"
        with pytest.raises(PermissionError):
            io.read("desk/a/l")
        assert io.met == [Touch("desk/a/l", "read", "link")]
        for bad in ("desk/../x", "/etc/x"):
            with pytest.raises(Malformed):
                workspace.place(bad, "x")
            with pytest.raises(Malformed):
                workspace.place(bad, None, "x")
