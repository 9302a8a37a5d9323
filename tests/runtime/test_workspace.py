"""Mounts, hosts and `io`: nothing outside a mount is read or changed, whatever stands on the way."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph.fail.errors import CorpusError
from tachograph.runtime.agent import Agent
from tachograph.runtime.canonical_json import digest
from tachograph.runtime.clock import VirtualClock
from tachograph.runtime.gate import ALLOW, DENY, Decision, Gate
from tachograph.runtime.llm import LLMInput, LLMOutput, ToolCall
from tachograph.runtime.policy import Policy
from tachograph.runtime.resources import Malformed
from tachograph.runtime.tools import Tool
from tachograph.runtime.walk import MAX_DEPTH, MAX_FILE_BYTES
from tachograph.runtime.workspace import IO, MAX_HOPS, Host, Mount, Workspace

DATA: dict[str, Any] = {
    "schema": "policy/v1",
    "tool_registry": {"allowed": ["probe"]},
    "url_allowlist": ["https://site.test/"],
    "sandbox": {"mounts": {"corpus": "read", "desk": "write", "unbound": "read"}},
    "loop_budget": {"max_iterations": 9, "max_tokens": 9999, "max_tool_calls": 9, "max_result_bytes": 9999},
    "cycle_detection": {"max_repeats": 9},
}
GATE = Gate(Policy.from_dict(DATA), {})


def late(check: dict[str, Any], _keep: bool) -> Decision:
    return GATE.decide_late(check)


class World:
    """A mount to read, a mount to write, a folder outside and a host."""

    def __init__(self, root: Path) -> None:
        self.corpus, self.desk = root / "corpus", root / "desk"
        self.outside, self.site = root / "outside", root / "site"
        for folder in (self.corpus / "sub", self.desk / "sub", self.outside, self.site / "docs"):
            folder.mkdir(parents=True)
        (self.corpus / "a.md").write_text("text é")
        (self.corpus / "sub" / "b.md").write_text("b")
        (self.outside / "secret").write_text("secret")
        (self.site / "docs" / "x.md").write_text("page")
        redirects = {
            "/old": "/docs/x.md",
            "/away": "https://evil.test/",
            "/loop": "/loop",
            "/odd": "https://[::1",
            "/userinfo": "https://a@site.test/docs/x.md",
            "/file": "file:///etc/passwd",
            **{f"/hop{i}": f"/hop{i + 1}" for i in range(9)},
        }
        self.workspace = Workspace(
            {"corpus": Mount(self.corpus, "data/corpus"), "desk": Mount(self.desk)},
            {"site.test": Host(self.site, "hosts/site", redirects)},
        )

    def io(self) -> IO:
        return self.workspace.io(late, "key")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    with made.workspace:
        yield made


def denied(io: IO, act: Callable[[], object], **fact: object) -> None:
    """`act` is refused for the tool, and the denial is kept with its fact."""
    with pytest.raises(PermissionError) as refused:
        act()
    assert io.denied
    assert GATE.decide_late(io.checks[-1]).decision == DENY
    assert fact.items() <= io.checks[-1].items()
    assert "/" not in str(refused.value)


# ---- reading -----------------------------------------------------------------------------------------------


def test_reading_gives_text_and_keeps_its_digest(world: World) -> None:
    io = world.io()
    assert io.read("corpus/a.md") == "text é"
    assert io.read("corpus/sub/b.md") == "b"
    assert io.reads == [
        ("data/corpus/a.md", digest("text é")), ("data/corpus/sub/b.md", digest("b")),
    ]  # fmt: skip
    assert io.checks == [] and io.writes == [] and not io.denied
    assert io.idempotency_key == "key"


def test_reading_from_an_unlabelled_mount_is_no_input_of_the_run(world: World) -> None:
    (world.desk / "x").write_text("x")
    io = world.io()
    assert io.read("desk/x") == "x" and io.reads == []


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("corpus/none.md", FileNotFoundError), ("corpus/none/a.md", FileNotFoundError),
        ("corpus/sub", IsADirectoryError), ("corpus/a.md/b", NotADirectoryError), ("unbound/x", FileNotFoundError),
        ("corpus/" + "d/" * MAX_DEPTH + "x", FileNotFoundError), ("corpus/" + "n" * 255, FileNotFoundError),
    ],
)  # fmt: skip
def test_what_is_not_there_is_an_error_and_no_denial(world: World, path: str, error: type[OSError]) -> None:
    io = world.io()
    with pytest.raises(error) as refused:
        io.read(path)
    assert not io.denied and io.checks == []
    assert str(world.corpus) not in str(refused.value)


@pytest.mark.parametrize(
    "path", ["../outside/secret", "corpus/../a.md", "/etc/passwd", "corpus/./a.md", "corpus//a.md", "corpus", "~/x",
             "corpus\\a.md", "other/x", "", "file:///etc/passwd", "corpus/\x00", "\ud800/x"]
)  # fmt: skip
def test_paths_the_rules_refuse(world: World, path: str) -> None:
    io = world.io()
    denied(io, lambda: io.read(path), path=path, access="read")
    denied(io, lambda: io.write(path, "x"))
    denied(io, lambda: io.read("corpus/a.md"))


@pytest.mark.parametrize("path", [None, 1, b"corpus/a.md", ["corpus/a.md"]])
def test_a_path_is_text(world: World, path: Any) -> None:
    io = world.io()
    with pytest.raises(TypeError):
        io.read(path)
    with pytest.raises(TypeError):
        io.get(path)


def test_a_file_of_the_largest_size_is_read_and_one_byte_more_is_not(world: World) -> None:
    (world.corpus / "big").write_bytes(b"x" * MAX_FILE_BYTES)
    assert len(world.io().read("corpus/big")) == MAX_FILE_BYTES
    (world.corpus / "big").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    with pytest.raises(OSError, match="too large"):
        world.io().read("corpus/big")
    with pytest.raises(OSError, match="too large"):
        world.io().write("desk/big", "x" * (MAX_FILE_BYTES + 1))
    assert not (world.desk / "big").exists()


def test_a_file_that_comes_in_pieces_is_read_as_a_whole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "0123456789" * 50
    (world.corpus / "long").write_text(text)
    real = os.read
    monkeypatch.setattr(os, "read", lambda fd, size: real(fd, min(size, 7)))
    assert world.io().read("corpus/long") == text


def test_a_file_that_grows_while_it_is_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = world.corpus / "log"
    path.write_text("a")
    real, more = os.read, iter([b"b" * 100_000])

    def growing(fd: int, size: int) -> bytes:
        with path.open("ab") as file:
            file.write(next(more, b""))
        return real(fd, size)

    monkeypatch.setattr(os, "read", growing)
    assert world.io().read("corpus/log") == "a" + "b" * 100_000
    path, more = world.corpus / "big", iter([b"y"])
    path.write_bytes(b"x" * MAX_FILE_BYTES)
    with pytest.raises(OSError, match="too large"):
        world.io().read("corpus/big")


def test_a_file_that_is_no_utf_8_is_no_text(world: World) -> None:
    (world.corpus / "latin").write_bytes(b"\xe9")
    with pytest.raises(OSError, match="UTF-8"):
        world.io().read("corpus/latin")


# ---- what stands on the way --------------------------------------------------------------------------------


def _socket(at: Path) -> None:
    here = os.open(".", os.O_RDONLY)
    os.chdir(at.parent)  # a socket's path is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(at.name)
    finally:
        os.fchdir(here)
        os.close(here)


def _device(at: Path) -> None:
    try:
        os.mknod(at, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("making a device needs rights that this user lacks")


ODD: dict[str, tuple[str, Callable[[Path, World], object]]] = {
    "link to a file outside": ("link", lambda at, w: at.symlink_to(w.outside / "secret")),
    "link to a file inside": ("link", lambda at, w: at.symlink_to("a.md")),
    "link to nothing": ("link", lambda at, w: at.symlink_to("nothing")),
    "link to itself": ("link", lambda at, w: at.symlink_to(at.name)),
    "link to a folder": ("link", lambda at, w: at.symlink_to(w.outside)),
    "link into proc": ("link", lambda at, w: at.symlink_to("/proc/self/environ")),
    "hard link": ("hard link", lambda at, w: at.hardlink_to(w.outside / "secret")),
    "FIFO": ("FIFO", lambda at, w: os.mkfifo(at)),
    "socket": ("socket", lambda at, w: _socket(at)),
    "device": ("device", lambda at, w: _device(at)),
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_no_plain_file_is_neither_read_nor_written(world: World, name: str) -> None:
    kind, make = ODD[name]
    for folder in (world.corpus, world.desk):
        make(folder / "odd", world)
    reading, writing = world.io(), world.io()
    denied(reading, lambda: reading.read("corpus/odd"), found=kind, access="read", path="corpus/odd")
    denied(writing, lambda: writing.write("desk/odd", "mine"), found=kind, access="write")
    assert (world.outside / "secret").read_text() == "secret"
    assert reading.reads == [] and writing.writes == []
    assert "corpus/odd" not in world.io().list("corpus") or kind == "hard link"


@pytest.mark.parametrize(
    "name", ["link to a folder", "link to a file outside", "link to nothing", "FIFO", "socket"]
)
def test_no_folder_on_the_way_is_a_link_or_worse(world: World, name: str) -> None:
    kind, make = ODD[name]
    for folder in (world.corpus, world.desk):
        make(folder / "odd", world)
    reading, writing = world.io(), world.io()
    denied(reading, lambda: reading.read("corpus/odd/secret"), found=kind)
    denied(writing, lambda: writing.write("desk/odd/new", "x"), found=kind)
    denied(deep := world.io(), lambda: deep.write("desk/odd/a/b/new", "x"), found=kind)
    assert sorted(os.listdir(world.outside)) == ["secret"]


def test_a_swap_between_decision_and_use_is_seen(world: World) -> None:
    """The rule allows the path; then the tree changes, and the open itself must refuse."""

    def swapping(change: Callable[[], object]) -> IO:
        def late_and_change(check: dict[str, Any], keep: bool) -> Decision:
            decision = late(check, keep)
            if "found" not in check:
                change()
            return decision

        return world.workspace.io(late_and_change, "key")

    def folder_becomes_link() -> None:
        (world.corpus / "sub").rename(world.corpus / "gone")
        (world.corpus / "sub").symlink_to(world.outside)

    def file_becomes_link() -> None:
        (world.corpus / "a.md").unlink()
        (world.corpus / "a.md").symlink_to(world.outside / "secret")

    def target_becomes_link() -> None:
        (world.desk / "new").symlink_to(world.outside / "secret")

    one = swapping(folder_becomes_link)
    denied(one, lambda: one.read("corpus/sub/secret"), found="link")
    two = swapping(file_becomes_link)
    denied(two, lambda: two.read("corpus/a.md"), found="link")
    three = swapping(target_becomes_link)
    denied(three, lambda: three.write("desk/new", "x"), found="link")
    assert (world.outside / "secret").read_text() == "secret"


def test_a_denial_cannot_be_swallowed(world: World) -> None:
    """A tool that catches the refusal and goes on gets nothing more, and its call is denied."""
    seen: list[str] = []

    def run(args: dict[str, Any], io: IO) -> dict[str, Any]:
        for path in ("desk/../x", "corpus/a.md", "desk/more"):
            with contextlib.suppress(PermissionError):
                seen.append(io.read(path))
        with contextlib.suppress(PermissionError):
            io.write("desk/more", "x")
        return {}

    closed = {"type": "object", "additionalProperties": False}
    tool = Tool("probe", "", closed, closed, "write", True, run, (PermissionError,))

    def model(_asked: LLMInput) -> LLMOutput:
        return LLMOutput(tool_calls=[ToolCall("probe", "{}")])

    agent = Agent(model, [tool], Policy.from_dict(DATA), mounts={"corpus": world.corpus, "desk": world.desk})
    result = agent.run("?", run_id="r", clock=VirtualClock())
    assert result.ending == "policy_denial_terminal"
    assert seen == [] and not (world.desk / "more").exists()
    attempts = result.steps[0]["tool_results"][0]["attempts"]
    assert [attempt["outcome"] for attempt in attempts] == ["denied"]
    assert attempts[0]["checks"] == [{"rule": "sandbox_path", "path": "desk/../x", "access": "read"}]


# ---- writing -----------------------------------------------------------------------------------------------


def test_writing_replaces_as_a_whole_and_keeps_its_digest(world: World) -> None:
    io = world.io()
    io.write("desk/new/deep/x.md", "é")
    io.write("desk/new/deep/x.md", "second")
    assert (world.desk / "new/deep/x.md").read_text() == "second"
    assert io.writes == [("desk/new/deep/x.md", digest("é")), ("desk/new/deep/x.md", digest("second"))]
    assert os.listdir(world.desk / "new/deep") == ["x.md"]
    assert io.read("desk/new/deep/x.md") == "second"


def test_a_mount_to_read_is_not_written(world: World) -> None:
    io = world.io()
    denied(io, lambda: io.write("corpus/a.md", "x"), access="write")
    assert (world.corpus / "a.md").read_text() == "text é"


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.io().write("desk/x", "old")

    def broken(*_: object, **__: object) -> None:
        raise OSError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", broken)
        with pytest.raises(OSError, match="no room"):
            world.io().write("desk/x", "new")
    assert world.io().read("desk/x") == "old"
    assert world.io().list("desk") == ["desk/x"]


def test_a_killed_writers_leftover_stops_nobody(world: World) -> None:
    leftover = world.desk / f".tachograph-{os.getpid()}-0.tmp"
    leftover.write_text("half")
    world.io().write("desk/x", "whole")
    assert world.io().read("desk/x") == "whole" and leftover.read_text() == "half"


@pytest.mark.parametrize(
    ("path", "error"), [("desk/sub", IsADirectoryError), ("desk/f/x", NotADirectoryError)]
)
def test_what_cannot_be_written_is_an_error(world: World, path: str, error: type[OSError]) -> None:
    (world.desk / "f").write_text("")
    with pytest.raises(error):
        world.io().write(path, "x")


def test_the_umask_decides_who_may_read(world: World) -> None:
    before = os.umask(0o027)
    try:
        world.io().write("desk/new/x", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((world.desk / "new/x").stat().st_mode) == 0o640
    assert stat.S_IMODE((world.desk / "new").stat().st_mode) == 0o750


@given(st.text())
def test_text_is_written_as_it_is_or_not_at_all(text: str) -> None:
    with Workspace({"desk": Mount(None)}) as workspace:
        io = workspace.io(late, "key")
        try:
            io.write("desk/x", text)
        except UnicodeEncodeError:
            assert io.writes == [] and io.list("desk") == []
        else:
            assert io.read("desk/x") == text


# ---- listing -----------------------------------------------------------------------------------------------


def test_listing_is_sorted_deep_and_repeatable(world: World) -> None:
    for name in ("Z", "a b", "é", "sub/0"):
        (world.corpus / name).write_text("")
    expected = ["corpus/Z", "corpus/a b", "corpus/a.md", "corpus/sub/0", "corpus/sub/b.md", "corpus/é"]
    io = world.io()
    assert io.list("corpus") == io.list("corpus") == expected
    assert io.checks == [] and io.reads == []


def test_all_that_is_listed_can_be_read(world: World) -> None:
    """Names that no path can hold are left out: reading one would be a denial that ends the run."""
    for name in (b"\xff.md", b"new\nline", b"back\\slash", "e\u0301".encode(), b"\xe2\x80\xae.md"):
        (world.corpus / os.fsdecode(name)).write_text("odd")
    deep = world.corpus.joinpath(*["d"] * MAX_DEPTH)
    deep.mkdir(parents=True)
    (deep / "too deep").write_text("")
    (deep.parent / "deep").write_text("")
    io = world.io()
    listed = io.list("corpus")
    for path in listed:
        io.read(path)
    assert [path for path in listed if "/d/" not in path] == ["corpus/a.md", "corpus/sub/b.md"]
    assert len(listed) == 3 and not io.denied


@pytest.mark.parametrize("mount", ["other", "", "corpus/..", "/", "Corpus"])
def test_only_mounts_are_listed(world: World, mount: str) -> None:
    io = world.io()
    denied(io, lambda: io.list(mount))


# ---- hosts -------------------------------------------------------------------------------------------------


def test_a_mapped_host_answers_from_its_folder(world: World) -> None:
    io = world.io()
    found = io.get("https://SITE.test/docs/x.md?q=1#top")
    assert (found.status, found.text, found.url) == (200, "page", "https://site.test/docs/x.md?q=1")
    assert found.headers == {"content-type": "text/markdown; charset=utf-8"}
    assert io.reads == [("hosts/site/docs/x.md", digest("page"))] and io.checks == []
    assert world.io().get("https://site.test/docs/%78.md").text == "page"


@pytest.mark.parametrize(
    "path", ["/", "/none", "/docs", "/docs/", "/docs/x.md/y", "/..%2f..%2foutside/secret", "/%2e%2e/outside/secret",
             "/../outside/secret", "/docs%00", "/%ff", "/docs//x.md", "/odd-link", "/fifo"]
)  # fmt: skip
def test_a_mapped_host_has_no_other_pages(world: World, path: str) -> None:
    (world.site / "odd-link").symlink_to(world.outside / "secret")
    os.mkfifo(world.site / "fifo")
    found = world.io().get(f"https://site.test{path}")
    assert (found.status, found.text) == (404, "not found")


def test_a_redirect_inside_is_followed_and_each_hop_is_kept(world: World) -> None:
    io = world.io()
    found = io.get("https://site.test/old")
    assert (found.status, found.url) == (200, "https://site.test/docs/x.md")
    assert io.checks == [{"rule": "url_allowlist", "target": "https://site.test/docs/x.md", "hop": 1}]
    assert not io.denied


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/away", "https://evil.test/"), ("/odd", "https://[::1"), ("/file", "file:///etc/passwd"),
        ("/userinfo", "https://a@site.test/docs/x.md"),
    ],
)  # fmt: skip
def test_a_redirect_to_elsewhere_is_denied(world: World, path: str, target: str) -> None:
    io = world.io()
    denied(io, lambda: io.get(f"https://site.test{path}"), target=target, hop=1)
    assert io.reads == []


def test_redirects_are_bounded(world: World) -> None:
    io = world.io()
    with pytest.raises(OSError, match="redirects"):
        io.get("https://site.test/loop")
    assert [check["hop"] for check in io.checks] == list(range(1, MAX_HOPS + 1))
    assert world.io().get(f"https://site.test/hop{9 - MAX_HOPS}").status == 404
    with pytest.raises(OSError, match="redirects"):
        world.io().get(f"https://site.test/hop{8 - MAX_HOPS}")


@pytest.mark.parametrize(
    "url", ["https://evil.test/", "http://site.test/", "https://site.test:8443/", "", "x"]
)
def test_a_url_the_rules_refuse_is_not_asked_for(world: World, url: str) -> None:
    io = world.io()
    denied(io, lambda: io.get(url), target=url, hop=0)


# ---- the life of a workspace -------------------------------------------------------------------------------


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_private_folders_and_descriptors_go_when_it_closes(world: World, tmp_path: Path) -> None:
    before = _open_files()
    workspace = Workspace({"desk": Mount(None), "other": Mount(None)}, {"h": Host(world.site, "h")})
    with workspace:
        workspace.io(late, "k").write("desk/a/b", "x")
        folders = list(workspace._private)
        assert len(set(folders)) == 2 and all(stat.S_IMODE(f.stat().st_mode) == 0o700 for f in folders)
        (folders[0] / "link").symlink_to(world.outside)
        assert _open_files() == before + 3
    assert not any(folder.exists() for folder in folders)
    assert (world.outside / "secret").exists()
    assert _open_files() == before
    workspace.close()


def test_no_descriptor_is_left_open_by_refusals(world: World) -> None:
    (world.corpus / "link").symlink_to("a.md")
    (world.desk / "link").symlink_to("a.md")
    (world.corpus / "latin").write_bytes(b"\xe9")
    before = _open_files()
    for act in (
        lambda: world.io().read("corpus/link"),
        lambda: world.io().read("corpus/link/x"),
        lambda: world.io().read("corpus/sub"),
        lambda: world.io().read("corpus/none/x"),
        lambda: world.io().read("corpus/latin"),
        lambda: world.io().write("desk/link", "x"),
        lambda: world.io().write("desk/link/x", "x"),
        lambda: world.io().write("desk/sub", "x"),
        lambda: world.io().get("https://site.test/away"),
    ):
        with pytest.raises(OSError):
            act()
    world.io().list("corpus")
    assert _open_files() == before


@pytest.mark.parametrize("what", ["mount", "host"])
def test_a_folder_that_is_none_is_bad_input_and_leaves_nothing(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "file").write_text("")
    for missing in (tmp_path / "none", tmp_path / "file"):
        mounts = {"desk": Mount(None), **({"bad": Mount(missing)} if what == "mount" else {})}
        hosts = {"bad": Host(missing, "h")} if what == "host" else {}
        before = _open_files()
        with pytest.raises(CorpusError) as refused, Workspace(mounts, hosts):
            pass
        assert refused.value.remedy and "'bad'" in str(refused.value)
        assert os.listdir(tmp_path) == ["file"] and _open_files() == before


def test_a_task_places_files_and_links(world: World) -> None:
    with Workspace({"desk": Mount(None)}) as workspace:
        workspace.place("desk/a/x.md", "é")
        workspace.place_link("desk/a/l", "../x")
        io = workspace.io(late, "k")
        assert io.list("desk") == ["desk/a/x.md"] and io.read("desk/a/x.md") == "é"
        denied(io, lambda: io.read("desk/a/l"), found="link")
        for bad in ("desk/../x", "/etc/x"):
            with pytest.raises(Malformed):
                workspace.place(bad, "x")


def test_the_default_answer_of_this_file_is_the_gates() -> None:
    assert late({"rule": "sandbox_path", "path": "corpus/a", "access": "read"}, False).decision == ALLOW
