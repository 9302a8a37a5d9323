"""Things that may stand where a path leads: links, hard links, FIFOs, sockets, devices, folders.

A case is (what stands there, where on the path, read or write). What must come of it follows from the kind of
the thing: the name of what is refused, or the class of a plain error.
"""

from __future__ import annotations

import itertools
import os
import socket
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

SECRET = "the secret of the house"
OWN = "a plain file of the mount"
TARGETS = ("box", "outside")


@dataclass(frozen=True, slots=True)
class Case:
    kind: str
    place: str  # `last`: the file itself; `first`, `deep`: a folder on the way, one or two above it
    access: str


@dataclass(frozen=True, slots=True)
class Kind:
    """`make` puts the thing at a path; `last` and `way` say what must come of meeting it there."""

    make: Callable[[Path, Path], None]  # where, root
    last: str
    way: str


def build(root: Path) -> None:
    """The mount `box` and a folder outside of it, with what the links lead to."""
    for name in TARGETS:
        folder = root / name / "target" / "sub"
        folder.mkdir(parents=True)
        for file in (folder / "file.md", folder.parent / "file.md"):
            file.write_text(SECRET if name == "outside" else OWN)


def _link(to: str) -> Callable[[Path, Path], None]:
    def make(at: Path, root: Path) -> None:
        at.symlink_to(to.format(root=root, up="../" * (len(at.parent.relative_to(root).parts))))

    return make


def _chain(to: str) -> Callable[[Path, Path], None]:
    def make(at: Path, root: Path) -> None:
        at.symlink_to(at.name + ".next")
        _link(to)(at.with_name(at.name + ".next"), root)

    return make


def _hard(of: str) -> Callable[[Path, Path], None]:
    def make(at: Path, root: Path) -> None:
        if of == "twin":
            at.write_text(OWN)
            os.link(at, at.with_name(at.name + ".twin"))
        else:
            # a source of its own, since its other name would change what other cases meet
            source = root / of / f"{at.parent.name}.md"
            source.write_text(SECRET if of.startswith("outside") else OWN)
            os.link(source, at)

    return make


def _plain(at: Path, _root: Path) -> None:
    at.write_text(OWN)


def _socket(at: Path, _root: Path) -> None:
    parent = os.open(at.parent, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{parent}/{at.name}")  # a socket's path is short
    finally:
        os.close(parent)


def _device(kind: int, number: int) -> Callable[[Path, Path], None]:
    return lambda at, _root: os.mknod(at, kind | 0o666, os.makedev(1, number))


_LINKED = {
    "a file outside": "{root}/outside/target/file.md",
    "a folder outside": "{root}/outside/target",
    "a file outside, relative": "{up}outside/target/file.md",
    "a folder outside, relative": "{up}outside/target",
    "a file of the mount": "{root}/box/target/file.md",
    "a folder of the mount, relative": "{up}box/target",
    "the mount itself": "{root}/box",
    "above the mount": "{up}",
    "nothing": "{up}outside/none",
    "nothing in the mount": "none.md",
    "the root": "/",
    "the process": "/proc/self/root",
    "a descriptor": "/proc/self/fd/0",
    "a device": "/dev/zero",
    "here": ".",
}
LINKS: dict[str, Kind] = {f"link to {name}": Kind(_link(to), "link", "link") for name, to in _LINKED.items()}
LINKS |= {
    f"link to a link to {name}": Kind(_chain(to), "link", "link") for name, to in list(_LINKED.items())[:6]
}
LINKS["link to itself"] = Kind(lambda at, _root: at.symlink_to(at.name), "link", "link")

OTHERS: dict[str, Kind] = {
    f"hard link to {name}": Kind(_hard(of), "hard link", "NotADirectoryError")
    for name, of in {
        "a file outside": "outside",
        "a file below, outside": "outside/target",
        "a file of the mount": "box",
        "a file below": "box/target/sub",
        "a twin": "twin",
    }.items()
}
OTHERS |= {
    "FIFO": Kind(lambda at, _root: os.mkfifo(at), "FIFO", "FIFO"),
    "socket": Kind(_socket, "socket", "socket"),
    "folder": Kind(lambda at, _root: at.mkdir(), "IsADirectoryError", "FileNotFoundError"),
    "plain file": Kind(_plain, OWN, "NotADirectoryError"),
}
# only a privileged user may make them
DEVICES: dict[str, Kind] = {
    "null device": Kind(_device(stat.S_IFCHR, 3), "device", "device"),
    "zero device": Kind(_device(stat.S_IFCHR, 5), "device", "device"),
    "memory disk": Kind(_device(stat.S_IFBLK, 1), "device", "device"),
}
KINDS = LINKS | OTHERS | DEVICES
PLACES = ("last", "first", "deep")


def cases(kinds: dict[str, Kind]) -> Iterator[Case]:
    """Every kind at every place, read and written."""
    for kind, place, access in itertools.product(kinds, PLACES, ("read", "write")):
        yield Case(kind, place, access)


def path_of(case: Case, number: int) -> tuple[str, str]:
    """(the mount path that is asked for, where on it the thing stands) of a case, in a folder of its own."""
    thing = f"box/case {number}/thing"
    below = {"last": "", "first": "/file.md", "deep": "/sub/file.md"}
    return thing + below[case.place], thing


def wanted(case: Case) -> str:
    """The name of what is refused, an error's class, or what is read or written."""
    kind = KINDS[case.kind]
    if case.place != "last":
        return "written" if (case.access, kind.way) == ("write", "FileNotFoundError") else kind.way
    return "written" if (case.access, kind.last) == ("write", OWN) else kind.last


def outside(root: Path) -> dict[str, str]:
    """Everything outside of the mount, by name: what it holds, or what it is."""
    found = {}
    for folder, folders, files in os.walk(root):
        if folder == str(root):
            folders.remove("box")
        found[folder] = "folder"
        for name in files:
            path = Path(folder, name)
            found[str(path)] = os.readlink(path) if path.is_symlink() else path.read_text()
    return found
