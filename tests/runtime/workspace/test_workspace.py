"""Mounts, hosts and `io`: nothing outside a mount is read or changed, whatever stands on the way."""

from __future__ import annotations

import contextlib
import gzip
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph.fail.errors import CorpusError, InputError
from tachograph.runtime.agent import Agent
from tachograph.runtime.core.clock import VirtualClock
from tachograph.runtime.formats.canonical_json import digest
from tachograph.runtime.models.types import LLMInput, LLMOutput, ToolCall
from tachograph.runtime.policy.gate import ALLOW, DENY, Decision, Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.resources.url import MAX_URL, Malformed
from tachograph.runtime.tools.contract import USES, Tool
from tachograph.runtime.workspace import decoding, http, web_io
from tachograph.runtime.workspace.mounts import Host, Mount
from tachograph.runtime.workspace.safe_open import MAX_DEPTH, MAX_FILE_BYTES
from tachograph.runtime.workspace.tool_io import IO
from tachograph.runtime.workspace.web_io import MAX_HOPS
from tachograph.runtime.workspace.workspace import Workspace, check_hosts
from tests.runtime.workspace.test_http import LOOPBACK, Server, ok

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
            "/nowhere": "",
            "/blank": "/docs/x.md /docs/x.md",
            "/tab": "/do\tcs/x.md",
            "/bare": "https:/docs/x.md",
            "/three": "///site.test/docs/x.md",
            "/wide": "https://site\u3002test/docs/x.md",
            "/folded": "/docs/caf\u00e9.md",
            "/userinfo": "https://a@site.test/docs/x.md",
            "/file": "file:///etc/passwd",
            **{f"/hop{i}": f"/hop{i + 1}" for i in range(9)},
        }
        self.workspace = Workspace(
            {"corpus": Mount(self.corpus, "data/corpus", "read"), "desk": Mount(self.desk, None, "write")},
            {"site.test": Host(self.site, "hosts/site", redirects)},
        )

    def io(self) -> IO:
        return self.workspace.io(late, "key", USES["external"])


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
        ("corpus/sub", IsADirectoryError), ("corpus/a.md/b", NotADirectoryError),
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
    recorded = path.encode("utf-8", "backslashreplace").decode()
    denied(io, lambda: io.read(path), path=recorded, access="read")
    denied(io, lambda: io.write(path, "x"))
    denied(io, lambda: io.read("corpus/a.md"))


def test_a_mount_that_the_run_does_not_bind_is_denied(world: World) -> None:
    """The policy allows it, so only the run knows: a denial, and no error that a tool could take for a missing file."""
    for act in (lambda io: io.read("unbound/x"), lambda io: io.list("unbound")):
        io = world.io()
        denied(io, lambda act=act, io=io: act(io), found="unbound mount", access="read")


@pytest.mark.parametrize("path", [None, 1, b"corpus/a.md", ["corpus/a.md"]])
def test_a_path_is_text(world: World, path: Any) -> None:
    io = world.io()
    with pytest.raises(TypeError):
        io.read(path)
    with pytest.raises(TypeError):
        io.list(path)
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


@pytest.mark.parametrize("name", sorted({*ODD} - {"hard link"}))
def test_what_is_no_plain_file_is_neither_read_nor_written(world: World, name: str) -> None:
    kind, make = ODD[name]
    for folder in (world.corpus, world.desk):
        make(folder / "odd", world)
    reading, writing = world.io(), world.io()
    denied(reading, lambda: reading.read("corpus/odd"), found=kind, access="read", path="corpus/odd")
    denied(writing, lambda: writing.write("desk/odd", "mine"), found=kind, access="write")
    assert (world.outside / "secret").read_text() == "secret"
    assert reading.reads == [] and writing.writes == []
    assert "corpus/odd" not in world.io().list("corpus")


def test_a_second_name_is_refused_where_the_run_writes(world: World) -> None:
    """Installers share files by hard links; where a run only reads, that changes nothing for anybody."""
    for folder in (world.corpus, world.desk):
        (folder / "odd").hardlink_to(world.outside / "secret")
    for act in (lambda io: io.read("desk/odd"), lambda io: io.write("desk/odd", "mine")):
        io = world.io()
        denied(io, lambda act=act, io=io: act(io), found="hard link", path="desk/odd")
    assert (world.outside / "secret").read_text() == "secret"
    io = world.io()
    assert io.read("corpus/odd") == "secret" and io.reads == [("data/corpus/odd", digest("secret"))]
    assert "corpus/odd" in io.list("corpus") and io.list("desk") == []
    (world.site / "shared").hardlink_to(world.outside / "secret")
    assert io.get("https://site.test/shared").text == "secret"


def test_without_a_mode_a_second_name_is_refused(world: World) -> None:
    (world.corpus / "odd").hardlink_to(world.outside / "secret")
    with Workspace({"corpus": Mount(world.corpus)}) as workspace:
        io = workspace.io(late, "key", USES["external"])
        assert "corpus/odd" not in io.list("corpus")
        denied(io, lambda: io.read("corpus/odd"), found="hard link")


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

        return world.workspace.io(late_and_change, "key", USES["external"])

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


def test_a_killed_writers_leftover_stops_nobody_and_is_no_file(world: World) -> None:
    leftover = world.desk / f".tachograph-{os.getpid()}-0.tmp"
    leftover.write_text("half")
    world.io().write("desk/x", "whole")
    assert world.io().read("desk/x") == "whole" and leftover.read_text() == "half"
    assert world.io().list("desk") == ["desk/x"]
    io = world.io()
    denied(io, lambda: io.read(f"desk/{leftover.name}"))


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
    assert (world.desk / "x").read_text() == "new" and io.writes == [("desk/x", digest("new"))]


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


def test_a_private_mount_works_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        with contextlib.ExitStack() as stack:
            for place in (None, tmp_path / "kept"):
                workspace = stack.enter_context(Workspace({"desk": Mount(None)}, private=place))
                folder = workspace._private[0] if place is None else place / "desk"
                workspace.place("desk/a/b/x", "x")
                workspace.io(late, "key", USES["external"]).write("desk/a/y", "y")
                modes = {
                    path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))
                }
                assert modes == {folder.name: 0o700, "a": 0o700, "b": 0o700, "x": 0o600, "y": 0o600}
        assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o700
    finally:
        os.umask(before)


@given(st.text())
def test_text_is_written_as_it_is_or_not_at_all(text: str) -> None:
    with Workspace({"desk": Mount(None)}) as workspace:
        io = workspace.io(late, "key", USES["external"])
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


@pytest.mark.parametrize("folder", ["corpus/sub", "corpus/none", "corpus/a.md"])
def test_a_folder_of_a_mount_is_not_listed_by_itself(world: World, folder: str) -> None:
    """Rather than answering with all of the mount."""
    io = world.io()
    with pytest.raises(ValueError, match="name of a mount"):
        io.list(folder)
    assert not io.denied


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
        ("/userinfo", "https://a@site.test/docs/x.md"), ("/nowhere", ""), ("/blank", "/docs/x.md /docs/x.md"),
        ("/tab", "/do\tcs/x.md"), ("/bare", "https:/docs/x.md"), ("/three", "///site.test/docs/x.md"),
        ("/wide", "https://site\xe3\x80\x82test/docs/x.md"),
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


def test_a_redirect_to_a_name_beyond_ascii_is_the_encoded_one(world: World) -> None:
    (world.site / "docs" / "caf\u00e9.md").write_text("here")
    found = world.io().get("https://site.test/folded")
    assert (found.text, found.url) == ("here", "https://site.test/docs/caf%C3%A9.md")


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("Site.test", "'site.test'"), ("site.test:443", "host"), ("https://site.test", "host"), ("site.test.", "host"),
     ("*.test", "host"), ("", "host"), ("[::1]", "host"), ("0::1", "host"), ("b\u00fccher.test", "host"),
     (None, "host")],
)  # fmt: skip
def test_a_host_that_no_url_names_is_bad_input(tmp_path: Path, name: Any, remedy: str) -> None:
    with pytest.raises(InputError, match=remedy):
        Workspace({}, {name: Host(tmp_path, "h")})
    check_hosts(["site.test", "::1", "127.0.0.1", "h", "xn--bcher-kva.test"])


@pytest.mark.parametrize(
    "url", ["https://evil.test/", "http://site.test/", "https://site.test:8443/", "", "x"]
)
def test_a_url_the_rules_refuse_is_not_asked_for(world: World, url: str) -> None:
    io = world.io()
    denied(io, lambda: io.get(url), target=url, hop=0)


# ---- the network -------------------------------------------------------------------------------------------


class Net:
    """A server on loopback under a policy that allows it by address and as name.test, on addresses of its own."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        self.slow = 0.0
        self.server = Server(self._answer)
        self.base, self.name = f"http://{LOOPBACK}:{self.server.port}", f"http://name.test:{self.server.port}"
        data = {key: DATA[key] for key in DATA if key != "sandbox"}
        data |= {"url_allowlist": [self.base, self.name], "private_networks": ["127.0.0.0/8", "fe80::/10"]}
        self.policy = Policy.from_dict(data)
        self.gate = Gate(self.policy, {})

    def _answer(self, peer: socket.socket) -> None:
        time.sleep(self.slow)
        peer.sendall(self.answers.get(self.asked[-1], ok(b"plain")))

    @property
    def asked(self) -> list[str]:
        return [request.split(b" ")[1].decode() for request in self.server.requests]

    def io(self) -> IO:
        return Workspace({}).io(lambda check, _keep: self.gate.decide_late(check), "key", USES["network"])


@pytest.fixture
def net() -> Iterator[Net]:
    made = Net()
    yield made
    made.server.stop()


def moved(location: bytes, status: int = 302) -> bytes:
    return b"HTTP/1.1 %d X\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % (status, location)


class Elsewhere(socket.socket):
    """A socket that says it is connected to a public address, which the policy allows too."""

    def getpeername(self) -> tuple[str, int]:
        return "8.8.8.8", 80


@pytest.mark.parametrize(
    "answer", [["fe80::1%1"], [LOOPBACK, "::1%lo"], ["127.1"], ["\u0661.1.1.1"], ["peer"]]
)
def test_an_address_that_no_rule_can_allow_is_a_denial_that_no_tool_swallows(
    net: Net, monkeypatch: pytest.MonkeyPatch, answer: list[str]
) -> None:
    monkeypatch.setattr(http, "_addresses", lambda *_: [LOOPBACK] if answer == ["peer"] else answer)
    if answer == ["peer"]:
        monkeypatch.setattr(http.socket, "socket", Elsewhere)
    io = net.io()
    with pytest.raises(PermissionError) as refused:
        io.get(f"{net.name}/")
    assert type(refused.value) is PermissionError and refused.value.__suppress_context__ and io.denied
    [check] = io.checks
    where = check.pop("address")
    assert where == answer[-1] or where == f"8.8.8.8 port 80 instead of {LOOPBACK} port {net.server.port}"
    assert check == {"rule": "url_allowlist", "target": f"{net.name}/", "hop": 0}
    assert net.asked == []

    def run(args: dict[str, Any], io: IO) -> dict[str, Any]:
        with contextlib.suppress(Exception):
            io.get(f"{net.name}/")
        return {}

    closed = {"type": "object", "additionalProperties": False}
    tool = Tool("probe", "", closed, closed, "network", True, run, (PermissionError,))
    agent = Agent(lambda _asked: LLMOutput(tool_calls=[ToolCall("probe", "{}")]), [tool], net.policy)
    result = agent.run("?", run_id="r", clock=VirtualClock())
    assert result.ending == "policy_denial_terminal"
    [attempt] = result.steps[0]["tool_results"][0]["attempts"]
    assert attempt["outcome"] == "denied" and [c["address"] for c in attempt["checks"]] == [where]
    assert result.steps[0]["policy_decisions"][-1]["facts"]["address"] == where


def test_only_builtins_leave_io(net: Net) -> None:
    net.answers["/br"] = ok(b"x", "Content-Encoding: br")
    net.answers["/bad"] = b"nonsense\r\n\r\n"
    for path, kind in (("/br", OSError), ("/bad", ConnectionError)):
        with pytest.raises(OSError) as caught:
            net.io().get(net.base + path)
        assert type(caught.value) is kind


def test_a_run_that_reaches_no_host_asks_none(net: Net) -> None:
    io = Workspace({}, offline=True).io(
        lambda check, _keep: net.gate.decide_late(check), "key", USES["network"]
    )
    with pytest.raises(ConnectionRefusedError, match="no host"):
        io.get(f"{net.base}/")
    assert net.asked == []


def test_all_hops_together_have_one_deadline(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_io, "HTTP_S", 0.4)
    net.slow = 0.15
    net.answers = {f"/{i}": moved(b"/%d" % (i + 1)) for i in range(9)}
    with pytest.raises(TimeoutError):
        net.io().get(f"{net.base}/0")
    assert len(net.asked) <= 3


@pytest.mark.parametrize(
    ("location", "asked"),
    [
        (b"/ok?a|b", "/ok?a|b"), (b"/caf\xc3\xa9?\xff", "/caf%C3%A9?%FF"), (b"?", "/r?"), (b"//127.0.0.1:{}/x", "/x"),
        (b"x/../y#z", "/y"), (b"/x\r\nlocation: /x", "/x"),
    ],
)  # fmt: skip
def test_a_location_is_joined_decided_and_asked_for_in_one_form(
    net: Net, location: bytes, asked: str
) -> None:
    net.answers["/r"] = moved(location.replace(b"{}", str(net.server.port).encode()))
    io = net.io()
    found = io.get(f"{net.base}/r")
    assert (found.text, found.url, net.asked) == ("plain", net.base + asked, ["/r", asked])
    assert [check["target"] for check in io.checks] == [net.base + asked.replace("/y", "/y")]


@pytest.mark.parametrize(
    "location",
    [b"", b"/a b", b"/a\tb", b"///x", b"http:x", b"http://", b"/\\x", b"/x\r\nLocation: /y", b"//b\xff.test/",
     b"/" + b"a" * 60_000, b"/x#" + b"\xff" * 60_000],
)  # fmt: skip
def test_a_location_that_readers_read_differently_is_denied(net: Net, location: bytes) -> None:
    net.answers["/r"] = moved(location)
    io = net.io()
    with pytest.raises(PermissionError):
        io.get(f"{net.base}/r")
    assert io.denied and net.asked == ["/r"]
    [check] = io.checks
    assert check["hop"] == 1 and len(check["target"]) <= MAX_URL + 1


def test_the_page_of_a_redirect_and_of_an_error_is_not_read(net: Net) -> None:
    unreadable = b"\r\nContent-Encoding: br\r\nContent-Length: 9000000\r\n\r\nxxx"
    net.answers["/r"] = b"HTTP/1.1 302 X\r\nLocation: /there" + unreadable
    assert net.io().get(f"{net.base}/r").url == f"{net.base}/there"
    for status in (429, 500, 503):
        net.answers["/e"] = b"HTTP/1.1 %d X" % status + unreadable
        with pytest.raises(ConnectionError, match="transient"):
            net.io().get(f"{net.base}/e")


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ("caf\u00e9".encode(), "", "caf\u00e9"), ("caf\u00e9".encode(), "text/html; charset=utf-8", "caf\u00e9"),
        (b"caf\xe9 \x93", "text/html; charset=ISO-8859-1", "caf\u00e9 \u201c"),
        (b"caf\xe9", "text/html;Charset = \"latin1\"; x=y", "caf\u00e9"), (b"caf\xe9", "text/html", "caf\ufffd"),
        (b"caf\xe9", "text/html; charset=klingon", "caf\ufffd"), (b"a\x81", "x;charset=windows-1252", "a\ufffd"),
        (b"a+AOk-", "text/plain; charset=utf-7", "a+AOk-"), (b"a", "text/plain; charset=", "a"),
        (b"YQ==", "text/plain; charset=base64", "YQ=="), (b"a", "text/plain; charset=../../x", "a"),
        ("\u65e5\u672c".encode("shift_jis"), "text/html; charset=Shift_JIS", "\u65e5\u672c"),
        ("\u65e5".encode("gb18030"), "text/html; charset=gb2312", "\u65e5"),
        ("abc".encode("utf-16-le"), "text/plain; charset=utf-16", "abc"),
        (b"\xff\xfe" + "abc".encode("utf-16-le"), "text/plain; charset=utf-8", "abc"),
        (b"\xfe\xff" + "abc".encode("utf-16-be"), "", "abc"), (b"\xef\xbb\xbf{}", "application/json", "{}"),
        (b"\xef\xbb\xbf\xc3\xa9", "x; charset=latin1", "\u00e9"), (b"\xff\xfe\x00\xd8", "", "\ufffd"),
        (b"\xe9", "text/html; notcharset=latin1", "\ufffd"), (b"", "text/html; charset=utf-16", ""),
    ],
)  # fmt: skip
def test_a_page_is_read_in_its_own_encoding(net: Net, body: bytes, kind: str, text: str) -> None:
    net.answers["/"] = ok(
        gzip.compress(body), "Content-Encoding: gzip", *([f"Content-Type: {kind}"] if kind else [])
    )
    assert net.io().get(f"{net.base}/").text == text


def test_every_charset_that_is_known_is_one_of_python() -> None:
    for encoding in decoding._CHARSETS.values():
        assert isinstance(b"a b".decode(encoding, "replace"), str)


# ---- the life of a workspace -------------------------------------------------------------------------------


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_private_folders_and_descriptors_go_when_it_closes(world: World, tmp_path: Path) -> None:
    before = _open_files()
    workspace = Workspace({"desk": Mount(None), "other": Mount(None)}, {"h": Host(world.site, "h")})
    with workspace:
        workspace.io(late, "k", USES["external"]).write("desk/a/b", "x")
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
        io = workspace.io(late, "k", USES["external"])
        assert io.list("desk") == ["desk/a/x.md"] and io.read("desk/a/x.md") == "é"
        denied(io, lambda: io.read("desk/a/l"), found="link")
        for bad in ("desk/../x", "/etc/x"):
            with pytest.raises(Malformed):
                workspace.place(bad, "x")


def test_the_default_answer_of_this_file_is_the_gates() -> None:
    assert late({"rule": "sandbox_path", "path": "corpus/a", "access": "read"}, False).decision == ALLOW
