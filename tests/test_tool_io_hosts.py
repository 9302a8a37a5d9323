"""Listings and hosts through `io`: all that is listed can be read, and every hop of a redirect is decided."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

import pytest

from tachograph.fail.errors import InputError
from tachograph.runtime.formats.strict_json import digest
from tachograph.runtime.io.safe_open import MAX_DEPTH
from tachograph.runtime.io.tool_io import MAX_HOPS, ToolIO
from tachograph.runtime.io.workspace import Host, Workspace
from tachograph.runtime.log.values import Reach, Touch
from tests.io_world import TOOLS, World, decide, denied

# ---- listing ---------------------------------------------------------------------------------------------------------


def test_all_that_is_listed_can_be_read(world: World) -> None:
    """Names that no path can hold are left out: reading one would be a denial."""
    for name in (b"\xff.md", b"new\nline", b"back\\slash", "e\u0301".encode(), b"\xe2\x80\xae.md"):
        (world.book / os.fsdecode(name)).write_text("odd")
    for plain in ("Z", "a b", "\u00e9", "sub/0"):
        (world.book / plain).write_text("")
    deep = world.book.joinpath(*["d"] * MAX_DEPTH)
    deep.mkdir(parents=True)
    (deep / "too deep").write_text("")
    (deep.parent / "deep").write_text("")
    io = world.io()
    listed = io.list("book")
    assert listed == sorted(listed) == io.list("book")
    assert [path for path in listed if "/d/" not in path] == [
        "book/Z", "book/a b", "book/a.md", "book/sub/0", "book/sub/b.md", "book/\u00e9",
    ]  # fmt: skip
    for path in listed:
        io.read(path)
    assert not io.denied and io.met == [] and len(listed) == 7


@pytest.mark.parametrize("mount", ["other", "", "book/..", "/", "Book"])
def test_only_mounts_are_listed(world: World, mount: str) -> None:
    io = world.io()
    denied(io, lambda: io.list(mount), Touch(f"{mount}/-", "read"))


@pytest.mark.parametrize("folder", ["book/sub", "book/none", "book/a.md"])
def test_a_folder_of_a_mount_is_not_listed_by_itself(world: World, folder: str) -> None:
    io = world.io()
    with pytest.raises(ValueError, match="name of a mount"):
        io.list(folder)
    assert not io.denied


# ---- hosts -----------------------------------------------------------------------------------------------------------


def test_a_host_answers_from_its_folder(world: World) -> None:
    io = world.io()
    found = io.get("https://SITE.test/docs/x.md?q=1#top")
    assert (found.status, found.text, found.url) == (200, "page", "https://site.test/docs/x.md?q=1")
    assert found.headers == {"content-type": "text/markdown; charset=utf-8"}
    assert world.reads == [("hosts/site/docs/x.md", digest("page"))] and io.met == [] and not io.wrote
    assert world.io().get("https://site.test/docs/%78.md").text == "page"


@pytest.mark.parametrize(
    "path",
    ["/", "/none", "/docs", "/docs/", "/docs/x.md/y", "/docs%00", "/%ff", "/docs//x.md", "/link", "/fifo"],
)
def test_a_host_has_no_other_pages(world: World, path: str) -> None:
    (world.site / "link").symlink_to(world.outside / "secret")
    os.mkfifo(world.site / "fifo")
    found = world.io().get(f"https://site.test{path}")
    assert (found.status, found.text, world.reads) == (404, "not found", [])


@pytest.mark.parametrize(
    "path", ["/..%2f..%2foutside/secret", "/%2e%2e/outside/secret", "/../outside/secret"]
)
def test_no_url_leads_out_of_the_folder(world: World, path: str) -> None:
    io = world.io()
    with contextlib.suppress(PermissionError):
        assert io.get(f"https://site.test{path}").status == 404
    assert world.reads == []


def test_a_redirect_inside_is_followed_and_each_hop_is_kept(world: World) -> None:
    io = world.io()
    found = io.get("https://site.test/old")
    assert (found.status, found.url) == (200, "https://site.test/docs/x.md")
    assert io.met == [Reach("https://site.test/docs/x.md", hop=1)] and not io.denied
    (world.site / "docs" / "caf\u00e9.md").write_text("here")
    assert world.io().get("https://site.test/kept").url == "https://site.test/docs//x.md?"
    assert world.io().get("https://site.test/folded").url == "https://site.test/docs/caf%C3%A9.md"


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("/away", "https://evil.test/"), ("/odd", "https://[::1"), ("/file", "file:///etc/passwd"), ("/nowhere", ""),
        ("/userinfo", "https://a@site.test/docs/x.md"), ("/blank", "/docs/x.md /docs/x.md"),
        ("/tab", "/do\tcs/x.md"), ("/bare", "https:/docs/x.md"), ("/three", "///site.test/docs/x.md"),
        ("/wide", "https://site\xe3\x80\x82test/docs/x.md"),
    ],
)  # fmt: skip
def test_a_redirect_to_elsewhere_is_denied(world: World, path: str, url: str) -> None:
    io = world.io()
    denied(io, lambda: io.get(f"https://site.test{path}"), Reach(url, hop=1))
    assert world.reads == []


def test_redirects_are_bounded(world: World) -> None:
    io = world.io()
    with pytest.raises(OSError, match="redirects"):
        io.get("https://site.test/loop")
    assert [fact.hop for fact in io.met if isinstance(fact, Reach)] == list(range(1, MAX_HOPS + 1))
    assert world.io().get(f"https://site.test/hop{9 - MAX_HOPS}").status == 404
    with pytest.raises(OSError, match="redirects"):
        world.io().get(f"https://site.test/hop{8 - MAX_HOPS}")


@pytest.mark.parametrize(
    "url",
    ["", *"https://evil.test/ http://site.test/ https://site.test:8443/ x https://site.test/\ud800".split()],
)
def test_a_url_the_rules_refuse_is_not_asked_for(world: World, url: str) -> None:
    io = world.io()
    denied(io, lambda: io.get(url), Reach(url.encode("utf-8", "backslashreplace").decode()))


def test_without_a_network_a_host_is_out_of_reach(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Workspace({}) as workspace, caplog.at_level(logging.WARNING):
        io = ToolIO(workspace, TOOLS["network"], decide, "key")
        with pytest.raises(ConnectionRefusedError):
            io.get("https://far.test/")
    assert "far.test" in caplog.text and not io.denied and not io.wrote


@pytest.mark.parametrize(
    ("status", "is_error"), [(200, False), (404, False), (429, True), (500, True), (503, True)]
)
def test_a_network_answers_and_5xx_is_worth_another_attempt(
    world: World, status: int, is_error: bool
) -> None:
    world.answers = {
        "https://far.test/a": (302, {"location": "https://site.test/old"}, ""),
        "https://far.test/": (status, {}, "far"),
        "https://far.test/odd": (302, {}, "a redirect to nowhere is an answer"),
    }
    io = world.io()
    assert io.get("https://far.test/a").text == "page" and io.get("https://far.test/odd").status == 302
    assert [fact.hop for fact in io.met if isinstance(fact, Reach)] == [1, 2]
    if is_error:
        with pytest.raises(ConnectionError) as refused:
            io.get("https://far.test/")
        assert type(refused.value) is ConnectionError
    else:
        assert io.get("https://far.test/").text == "far"


ODD = "Site.test site.test:443 https://site.test site.test. *.test [::1] b\u00fccher.test".split()


@pytest.mark.parametrize("name", ["", *ODD])
def test_a_host_that_no_url_names_is_bad_input(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError) as refused:
        Workspace({}, {name: Host(tmp_path)})
    assert refused.value.remedy
