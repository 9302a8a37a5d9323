"""What the tools of a run may touch: mounts and hosts, each a folder that is held open.

A path is `mount/part/part`, opened by `safe_open`. No path of the machine enters a message to a tool or a record.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from ...fail.errors import InputError
from ..resources.mount_path import parse_path
from ..resources.url import Malformed, parse_host
from .mount_isolation import check_apart
from .safe_open import Root, make_link, open_root, restrict_to_owner, write_file


class Closing(Protocol):
    """What has to be closed."""

    @property
    def is_over(self) -> bool:
        """Whether it is of no use any more."""

    def close(self) -> None:
        """Close it."""


Held = TypeVar("Held", bound=Closing)


class Mount(Struct, frozen=True):
    """A folder for paths.

    Attributes:
        mode: `read` or `write`, as the policy says.
        source: The folder; None for a private one, which goes with the run.
        label: What records call the folder; "" where what is read there is no input of the run.
    """

    mode: str
    source: Path | None = None
    label: str = ""


class Host(Struct, frozen=True):
    """A folder that answers for a host.

    Attributes:
        folder: The folder.
        label: What records call it.
        redirects: Where a path leads instead, as a Location header says it.
    """

    folder: Path
    label: str = ""
    redirects: dict[str, str] = {}


class Workspace:
    """The mounts and hosts of one run. Use it as a context manager: private folders go when it closes.

    Args:
        mounts: Folders for paths, by name.
        hosts: Folders that answer for hosts, by host.
        private: Where private folders are made and stay; without it they are temporary.
        guarded: Files that no mount for writing may hold, by what messages call them.
        on_read: Is told path and SHA-256 of each file that is read and has a label.
        network: Whether hosts for which no folder answers are reached over the network.
        deps: The caller's own object, for tools that take a Context.

    Attributes:
        opened: What is held open for as long as the run is, by what it is known by.

    Raises:
        InputError: A host cannot stand in a URL.
    """

    def __init__(
        self,
        mounts: Mapping[str, Mount],
        hosts: Mapping[str, Host] | None = None,
        *,
        private: Path | None = None,
        guarded: Mapping[str, Path] | None = None,
        on_read: Callable[[str, str], None] = lambda path, sha256: None,
        network: bool = False,
        deps: Any = None,
    ) -> None:
        self.mounts, self.hosts, self.on_read = dict(mounts), dict(hosts or {}), on_read
        self.network, self.deps = network, deps
        self.roots: dict[str, Root] = {}
        self.host_roots: dict[str, Root] = {}
        self._place, self._guarded = private, dict(guarded or {})
        if private is not None:
            self._guarded["the run's record"] = private
        self._temporary: list[Path] = []
        self.opened: dict[Any, Closing] = {}
        self._lock = threading.Lock()  # held while something is opened, which is done once
        self._is_closed = False
        for name in self.hosts:
            known = None
            with contextlib.suppress(Malformed):
                known = parse_host(name)
            if known != name:
                remedy = f"write {known!r}" if known else "give a host name without scheme and port"
                raise InputError(f"host {name!r} is not written as in a URL", remedy=remedy)

    def __enter__(self) -> Workspace:
        try:
            for name, mount in self.mounts.items():
                own = mount.source is None
                source = mount.source or self._private_folder(name)
                reads_only = mount.mode == "read" and not own
                self.roots[name] = open_root(source, f"mount {name!r}", reads_only=reads_only, private=own)
            for name, host in self.hosts.items():
                self.host_roots[name] = open_root(host.folder, f"host {name!r}", reads_only=True)
            self._check_apart()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_apart(self) -> None:
        """Refuse a writable folder that overlaps another: writing there would change that one too."""
        given = [(f"mount {name!r}", it) for name, it in self.mounts.items() if it.source is not None]
        written = {name: str(it.source) for name, it in given if it.mode == "write"}
        if written:
            roots = {f"mount {name!r}": root for name, root in self.roots.items()}
            roots |= {f"host {name!r}": root for name, root in self.host_roots.items()}
            check_apart(roots, written, self._guarded)

    def _private_folder(self, name: str) -> Path:
        if self._place is not None:
            folder = self._place / name
            for path in (self._place, folder):
                path.mkdir(0o700, parents=True, exist_ok=True)
                restrict_to_owner(path)
            return folder
        import tempfile  # slow to import, and few runs have such a folder

        folder = Path(tempfile.mkdtemp(prefix="tachograph-"))
        self._temporary.append(folder)
        restrict_to_owner(folder)
        return folder

    def held(self, key: Any, open_it: Callable[[], Held]) -> Held:
        """Return what is open for as long as the run is, such as a connection. Raises what beginning it raises.

        Args:
            key: What it is known by.
            open_it: Begins to open it, when it is first asked for and once more when it is over; it does not wait.
        """
        with self._lock:
            if self._is_closed:
                raise ConnectionError("the run is over")
            if key in self.opened and self.opened[key].is_over:
                self.opened.pop(key).close()
            if key not in self.opened:
                self.opened[key] = open_it()
            return self.opened[key]  # type: ignore[return-value]

    def let_go(self) -> None:
        """Close all that is held open, which may take seconds."""
        with self._lock:
            self._is_closed = True
            for it in self.opened.values():
                it.close()
            self.opened.clear()

    def close(self) -> None:
        """Close all that is held open, every folder, and remove the temporary ones. May be called twice."""
        self.let_go()
        for root in (*self.roots.values(), *self.host_roots.values()):
            os.close(root.fd)
        self.roots.clear()
        self.host_roots.clear()
        for folder in self._temporary:
            shutil.rmtree(folder, ignore_errors=True)
        self._temporary.clear()

    def place(self, path: str, text: str | None, link: str = "") -> None:
        """Put a file, or a symbolic link, into a mount before the run starts. Raises Malformed or OSError."""
        target = parse_path(path)
        if text is None:
            make_link(self.roots[target.mount], target.parts, link)
        else:
            write_file(self.roots[target.mount], target.parts, text.encode(), lambda: None)
