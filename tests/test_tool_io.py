"""Files through `io`: what a tool meets becomes a fact, and nothing outside a mount is read or changed."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tachograph.runtime.formats.strict_json import digest
from tachograph.runtime.io.safe_open import (
    MAX_DEPTH,
    MAX_FILE_BYTES,
    Refused,
    list_files,
    open_root,
    read_file,
    write_file,
)
from tachograph.runtime.io.tool_io import ToolIO
from tachograph.runtime.io.workspace import Mount, Workspace
from tachograph.runtime.log.values import Fact, Reach, Touch
from tachograph.runtime.policy.leaf import Verdict
from tests.deaths import ended, forked
from tests.io_world import TOOLS, World, decide, denied, partial_of

# ---- reading ---------------------------------------------------------------------------------------------------------


def test_reading_gives_text_and_tells_of_inputs(world: World) -> None:
    io = world.io()
    assert (io.read("book/a.md"), io.read("book/sub/b.md")) == ("text \u00e9", "b")
    assert world.reads == [("data/book/a.md", digest("text \u00e9")), ("data/book/sub/b.md", digest("b"))]
    assert (io.met, io.denied, io.wrote, io.idempotency_key) == ([], False, set(), "key")
    (world.desk / "x").write_text("x")  # no input of the run: its mount has no label
    assert io.read("desk/x") == "x" and len(world.reads) == 2


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("book/none.md", FileNotFoundError), ("book/none/a.md", FileNotFoundError), ("book/sub", IsADirectoryError),
        ("book/a.md/b", NotADirectoryError), ("book/" + "d/" * MAX_DEPTH + "x", FileNotFoundError),
        ("book/" + "n" * 255, FileNotFoundError),
    ],
)  # fmt: skip
def test_what_is_not_there_is_an_error_and_no_denial(world: World, path: str, error: type[OSError]) -> None:
    io = world.io()
    with pytest.raises(error) as refused:
        io.read(path)
    assert not io.denied and io.met == [] and str(world.book) not in str(refused.value)


ODD_PATHS = "../outside/secret book/../a.md /etc/passwd book/./a.md book//a.md book ~/x other/x".split()
ODD_PATHS += ["book\\a.md", "", "file:///etc/passwd", "book/\x00", "\ud800/x", "book/\udc80"]
ODD_PATHS += ["desk/.tachograph-1-0.tmp"]


@pytest.mark.parametrize("path", ODD_PATHS)
def test_paths_the_rules_refuse(world: World, path: str) -> None:
    recorded = path.encode("utf-8", "backslashreplace").decode()
    one, two = world.io(), world.io()
    denied(one, lambda: one.read(path), Touch(recorded, "read"))
    denied(two, lambda: two.write(path, "x"), Touch(recorded, "write"))
    assert os.listdir(world.desk) == ["sub"]


def test_what_is_decided_is_what_is_used(world: World) -> None:
    """A subclass of str can show each reader another text."""

    class Odd(str):
        def __str__(self) -> str:
            return "book/a.md"

        def encode(self, *_: Any) -> bytes:
            return b"book/a.md"

        def isascii(self) -> bool:
            return True

        def split(self, *_: Any) -> Any:
            return ["book", "a.md"]

    io, net = world.io(), world.io()
    denied(io, lambda: io.read(Odd("/etc/passwd")), Touch("/etc/passwd", "read"))
    denied(net, lambda: net.get(Odd("https://evil.test/")), Reach("https://evil.test/"))
    assert type(io.met[0].path) is type(net.met[0].url) is str  # type: ignore[union-attr]


def test_a_mount_that_the_run_does_not_bind_is_denied(world: World) -> None:
    """The policy allows it, so only the run knows: no error that a tool could take for a missing file."""
    one, two = world.io(), world.io()
    denied(one, lambda: one.read("unbound/x"), Touch("unbound/x", "read", "unbound mount"))
    denied(two, lambda: two.list("unbound"), Touch("unbound/-", "read", "unbound mount"))


@pytest.mark.parametrize("path", [None, 1, b"book/a.md", ["book/a.md"]])
def test_a_path_is_text(world: World, path: Any) -> None:
    io = world.io()
    for use in (io.read, io.list, io.get, lambda path: io.write(path, "x")):
        with pytest.raises(TypeError):
            use(path)
    assert not io.denied and io.met == []


def test_a_file_of_the_largest_size_is_read_and_one_byte_more_is_not(world: World) -> None:
    (world.book / "big").write_bytes(b"x" * MAX_FILE_BYTES)
    assert len(world.io().read("book/big")) == MAX_FILE_BYTES
    (world.book / "big").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    with pytest.raises(OSError, match="too large"):
        world.io().read("book/big")
    with pytest.raises(OSError, match="too large"):
        world.io().write("desk/big", "x" * (MAX_FILE_BYTES + 1))
    assert not (world.desk / "big").exists()


def test_a_file_is_read_to_its_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may come in pieces, and grow meanwhile."""
    path, more = world.book / "log", iter([b"b" * 500])
    path.write_text("a")
    real = os.read

    def growing(fd: int, size: int) -> bytes:
        with path.open("ab") as file:
            file.write(next(more, b""))
        return real(fd, min(size, 7))

    monkeypatch.setattr(os, "read", growing)
    assert world.io().read("book/log") == "a" + "b" * 500


def test_a_file_that_is_no_utf_8_is_no_text(world: World) -> None:
    (world.book / "latin").write_bytes(b"\xe9")
    with pytest.raises(OSError, match="UTF-8"):
        world.io().read("book/latin")


# ---- what stands on the way ------------------------------------------------------------------------------------------


def _socket(at: Path, _: World) -> None:
    parent = os.open(at.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{parent}/{at.name}")  # a socket's path is short
    os.close(parent)


def _hard(at: Path, world: World) -> None:
    source = world.outside / f"of {at.parent.name}"
    source.write_text("secret")
    at.hardlink_to(source)


def _device(at: Path, _: World) -> None:
    try:
        os.mknod(at, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("making a device needs rights that this user lacks")


# what stands there, what it is called as the file itself, and as a folder on the way; an error's class is not a denial
ODD: dict[str, tuple[Callable[[Path, World], object], str, str]] = {
    "link to a file outside": (lambda at, w: at.symlink_to(w.outside / "secret"), "link", "link"),
    "link to a file inside": (lambda at, w: at.symlink_to("a.md"), "link", "link"),
    "link to nothing": (lambda at, w: at.symlink_to("nothing"), "link", "link"),
    "link to itself": (lambda at, w: at.symlink_to(at.name), "link", "link"),
    "link to a folder": (lambda at, w: at.symlink_to(w.outside), "link", "link"),
    "link above": (lambda at, w: at.symlink_to("../.."), "link", "link"),
    "link into proc": (lambda at, w: at.symlink_to("/proc/self/root"), "link", "link"),
    "hard link": (_hard, "hard link", "NotADirectoryError"),
    "FIFO": (lambda at, w: os.mkfifo(at), "FIFO", "FIFO"),
    "socket": (_socket, "socket", "socket"),
    "device": (_device, "device", "device"),
}


def outside(world: World) -> dict[str, str]:
    return {path.name: path.read_text() for path in world.outside.iterdir()}


@pytest.mark.parametrize("meets", ["standing", "swapped"])
@pytest.mark.parametrize("access", ["read", "write"])
@pytest.mark.parametrize("below", ["", "/secret", "/deep/er/new"])
@pytest.mark.parametrize("name", ODD)
def test_nothing_outside_is_read_or_changed(
    world: World, name: str, below: str, access: str, meets: str
) -> None:
    """The odd thing stands there, or is put there between the decision and the use."""
    make, as_file, as_folder = ODD[name]
    thing, path, found = world.desk / "odd", f"desk/odd{below}", as_folder if below else as_file

    def put() -> None:
        if not thing.is_symlink() and (not thing.exists() or meets == "swapped"):
            if thing.exists():
                thing.rename(thing.with_name("put aside"))
            make(thing, world)

    if meets == "swapped":
        (world.desk / f"odd{below}").parent.mkdir(parents=True, exist_ok=True)
        (world.desk / f"odd{below}").write_text("plain")
    else:
        put()

    def swapping(fact: Fact) -> Verdict:
        verdict = decide(fact)
        if isinstance(fact, Touch) and not fact.found:
            put()
        return verdict

    io = world.io(decide=swapping)
    before: dict[str, str] = {} if meets == "swapped" else outside(world)
    act = partial_of(io, access, path)
    if found.endswith("Error"):
        with pytest.raises(OSError) as refused:
            act()
        assert type(refused.value).__name__ == found and not io.denied
    else:
        denied(io, act, Touch(path, access, found))
    assert {**before, "secret": "secret"}.items() <= outside(world).items()
    assert set(outside(world).values()) == {"secret"} and not io.wrote
    assert "desk/odd" not in world.io().list("desk")


@pytest.mark.parametrize("instead", ["", "plain"])
def test_a_second_name_that_goes_while_it_is_opened_is_not_read(
    world: World, instead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was opened has one name again then, and that one stands outside."""
    thing, real = world.desk / "odd", os.open
    thing.hardlink_to(world.outside / "secret")

    def opening(path: str, *given: Any, **more: Any) -> int:
        fd = real(path, *given, **more)
        if path == "odd":
            thing.unlink()
            if instead:
                thing.write_text(instead)
        return fd

    monkeypatch.setattr(os, "open", opening)
    with pytest.raises(OSError, match="replaced" if instead else "No such file"):
        world.io().read("desk/odd")


@pytest.mark.parametrize("kind", ["second name", "file"])
def test_what_another_process_replaces_all_the_time(world: World, kind: str) -> None:
    """A second name is not read, whenever it is removed; a file is read and written all the same."""
    thing, other = world.desk / "odd", world.desk / "other"
    root = world.workspace.roots["desk"]

    def replace_it() -> None:
        while kind == "file":
            other.write_text("plain")
            other.replace(thing)
        while True:
            os.link(world.outside / "secret", thing)
            os.unlink(thing)

    if kind == "file":
        thing.write_text("plain")
    child = forked(replace_it)
    try:
        for _ in range(3_000):
            if kind == "file":
                assert read_file(root, ["odd"]) == b"plain"
                write_file(root, ["odd"], b"plain", lambda: None)
            else:
                with pytest.raises((Refused, OSError)):
                    read_file(root, ["odd"])
    finally:
        os.kill(child, signal.SIGKILL)
        ended(child)


def test_a_second_name_is_no_matter_where_the_run_only_reads(world: World) -> None:
    """Installers share files by hard links."""
    (world.book / "shared").hardlink_to(world.outside / "secret")
    (world.site / "shared").hardlink_to(world.outside / "secret")
    io = world.io()
    assert io.read("book/shared") == io.get("https://site.test/shared").text == "secret"
    assert "book/shared" in io.list("book")


def test_a_mount_point_ends_the_walk_and_files_may_be_of_other_devices(world: World) -> None:
    """An overlay gives files the devices of its layers, so folders alone are compared."""
    (world.book / "shared").hardlink_to(world.outside / "secret")
    here = open_root(world.book, "book", reads_only=True)
    mounted, of_another = replace(here, device=here.device + 1), replace(here, owner=here.owner + 1)
    assert read_file(mounted, ["a.md"]) == "text \u00e9".encode()
    assert list_files(mounted) == ["a.md", "shared"]
    with pytest.raises(Refused, match="mount point"):
        read_file(mounted, ["sub", "b.md"])
    with pytest.raises(Refused, match="hard link"):
        read_file(of_another, ["shared"])
    os.close(here.fd)


# ---- writing ---------------------------------------------------------------------------------------------------------


def test_writing_replaces_as_a_whole(world: World) -> None:
    io = world.io()
    io.write("desk/new/deep/x.md", "\u00e9")
    assert io.wrote
    io.write("desk/new/deep/x.md", "second")
    assert io.read("desk/new/deep/x.md") == "second" and os.listdir(world.desk / "new/deep") == ["x.md"]
    assert io.met == []


def test_a_mount_to_read_is_not_written(world: World) -> None:
    io = world.io()
    denied(io, lambda: io.write("book/a.md", "x"), Touch("book/a.md", "write"))
    assert (world.book / "a.md").read_text() == "text \u00e9"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.EIO])
@pytest.mark.parametrize("call", ["rename", "open", "mkdir", "readlink", "get"])
def test_a_use_that_fails_leaves_the_old_file_and_a_full_disk_is_known(
    world: World, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    """Whatever the tool makes of it: a full disk ends the run, not the tool."""
    world.io().write("desk/x", "old")
    io, real = world.io(), getattr(os, call, os.readlink)

    def broken(path: Any, *given: Any, **more: Any) -> Any:
        if call != "open" or ".tachograph-" in str(path):
            raise OSError(code, "a word of the system")
        return real(path, *given, **more)

    with monkeypatch.context() as patched, contextlib.suppress(OSError):
        patched.setattr(os, real.__name__, broken)
        io.get("https://site.test/docs/x.md") if call == "get" else io.read("desk/x")
        io.write("desk/folder/x" if call == "mkdir" else "desk/x", "new")
    assert (io.storage_error is not None) == (code != errno.EIO) and not io.wrote and not io.denied
    assert world.io().read("desk/x") == "old" and world.io().list("desk") == ["desk/x"]
    assert io.broken is io.storage_error and not (world.desk / "folder").exists()


def test_an_interrupt_right_after_the_rename_leaves_the_write_noted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.rename

    def interrupted(*given: Any, **more: Any) -> None:
        real(*given, **more)
        raise KeyboardInterrupt

    io = world.io()
    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        io.write("desk/x", "new")
    assert (world.desk / "x").read_text() == "new" and io.wrote


def test_a_killed_writers_leftover_stops_nobody_and_is_no_file(world: World) -> None:
    leftover = world.desk / f".tachograph-{os.getpid()}-0.tmp"
    leftover.write_text("half")
    world.io().write("desk/x", "whole")
    assert leftover.read_text() == "half" and world.io().list("desk") == ["desk/x"]


@pytest.mark.parametrize(
    ("path", "error"), [("desk/sub", IsADirectoryError), ("desk/f/x", NotADirectoryError)]
)
def test_what_cannot_be_written_is_an_error(world: World, path: str, error: type[OSError]) -> None:
    (world.desk / "f").write_text("")
    io = world.io()
    with pytest.raises(error):
        io.write(path, "x")
    assert not io.wrote


def test_modes_of_what_is_written(world: World) -> None:
    (world.desk / "set").write_text("x")
    (world.desk / "set").chmod(0o4751)
    before = os.umask(0o027)
    try:
        world.io().write("desk/new/x", "x")
        world.io().write("desk/set", "y")
    finally:
        os.umask(before)
    modes = {name: stat.S_IMODE((world.desk / name).stat().st_mode) for name in ("new/x", "new", "set")}
    assert modes == {"new/x": 0o640, "new": 0o750, "set": 0o751}  # never the bits that run as another user


@pytest.mark.parametrize("umask", [0o777, 0o022, 0o000])
def test_private_folders_are_the_owners_under_any_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        for place in (None, tmp_path / "kept"):
            with Workspace({"desk": Mount("write")}, private=place) as workspace:
                (folder,) = workspace._temporary if place is None else [place / "desk"]
                workspace.place("desk/a/b/x", "x")
                ToolIO(workspace, TOOLS["write"], decide, "key").write("desk/a/y", "y")
                paths = (folder, *folder.rglob("*"))
                modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in paths}
                assert modes == {folder.name: 0o700, "a": 0o700, "b": 0o700, "x": 0o600, "y": 0o600}
            assert folder.exists() == (place is not None)
        assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o700
    finally:
        os.umask(before)


@given(st.text())
def test_text_is_written_as_it_is_or_not_at_all(text: str) -> None:
    with Workspace({"desk": Mount("write")}) as workspace:
        io = ToolIO(workspace, TOOLS["write"], decide, "key")
        try:
            io.write("desk/x", text)
        except UnicodeEncodeError:
            assert not io.wrote and io.list("desk") == []
        else:
            assert io.read("desk/x") == text
