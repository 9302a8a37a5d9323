"""A run's mounts and hosts, and the `io` that is a tool's only way out.

A path is `mount/part/part`, opened by `safe_open`. No host path enters a message or a record.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from ...fail.errors import InputError
from ..policy.per_tool.request_rules import RequestRules
from ..resources.mount_path import parse_path
from ..resources.url import Malformed, parse_host
from .credentials import OpenCredentials
from .mount_isolation import check_apart
from .mounts import Host, Mount, OpenFolders
from .safe_open import (
    make_link,
    open_root,
    restrict_to_owner,
    write_file,
)
from .tool_io import IO, Late


class Workspace:
    """The mounts and hosts of one run. Use it as a context manager: private folders go when it closes.

    Args:
        mounts: Folders for paths, by name.
        hosts: Folders that answer instead of the network, by host.
        private: Where private folders are made, by mount name, and stay; without it they are temporary.
        offline: Whether all other hosts are refused.
        guarded: Files that no mount for writing may hold, by what messages call them.
        credentials: What requests get beside what tools give them.
        request_rules: What judges the headers and bodies of requests.

    Raises:
        InputError: A host cannot stand in a URL.
    """

    def __init__(
        self,
        mounts: Mapping[str, Mount],
        hosts: Mapping[str, Host] | None = None,
        *,
        private: Path | None = None,
        offline: bool = False,
        guarded: Mapping[str, Path] | None = None,
        credentials: OpenCredentials | None = None,
        request_rules: RequestRules | None = None,
    ) -> None:
        check_hosts(hosts or {})
        self._place = private
        self._guarded = dict(guarded or {})
        if private is not None:
            self._guarded["the run's record"] = private
        self.open = OpenFolders(
            dict(mounts),
            dict(hosts or {}),
            offline,
            credentials=credentials or OpenCredentials(),
            request_rules=request_rules,
        )
        self._private: list[Path] = []

    def __enter__(self) -> Workspace:
        try:
            for name, mount in self.open.mounts.items():
                own = mount.source is None
                source = mount.source or self._private_folder(name)
                reads_only = mount.mode == "read" and not own
                self.open.roots[name] = open_root(
                    source, f"mount {name!r}", reads_only=reads_only, private=own
                )
            for name, host in self.open.hosts.items():
                self.open.host_roots[name] = open_root(host.folder, f"host {name!r}", reads_only=True)
            self._check_apart()
        except BaseException:
            self.close()
            raise
        return self

    def _check_apart(self) -> None:
        """Refuse a writable folder that overlaps another: writing there would change that one too."""
        written = {
            f"mount {name!r}": str(mount.source)
            for name, mount in self.open.mounts.items()
            if mount.mode == "write" and mount.source is not None
        }
        if not written:
            return
        roots = {f"mount {name!r}": root for name, root in self.open.roots.items()}
        roots |= {f"host {name!r}": root for name, root in self.open.host_roots.items()}
        check_apart(roots, written, self._guarded)

    def _private_folder(self, name: str) -> Path:
        if self._place is not None:
            folder = self._place / name
            for path in (self._place, folder):
                path.mkdir(0o700, parents=True, exist_ok=True)
                restrict_to_owner(path)
            return folder
        folder = Path(tempfile.mkdtemp(prefix="tachograph-"))
        self._private.append(folder)
        restrict_to_owner(folder)
        return folder

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every descriptor and remove the private folders. May be called twice."""
        for root in (*self.open.roots.values(), *self.open.host_roots.values()):
            os.close(root.fd)
        self.open.roots.clear()
        self.open.host_roots.clear()
        for folder in self._private:
            shutil.rmtree(folder, ignore_errors=True)
        self._private = []

    def place(self, path: str, text: str) -> None:
        """Put a file into a private mount before the run starts. Raises Malformed or OSError."""
        target = parse_path(path)
        write_file(self.open.roots[target.mount], target.parts, text.encode("utf-8"), lambda: None)

    def place_link(self, path: str, to: str) -> None:
        """Put a symbolic link into a private mount."""
        target = parse_path(path)
        make_link(self.open.roots[target.mount], target.parts, to)

    def io(self, late: Late, key: str, uses: Collection[str], tool: str = "") -> IO:
        """Return the `io` of one attempt of a tool, for the methods in `uses`; `late` decides what it meets."""
        return IO(self.open, late, key, uses, tool)


def check_hosts(hosts: Iterable[str]) -> None:
    """Raise InputError for a name that no URL can have as its host: its folder would never be asked."""
    for name in hosts:
        known = None
        with contextlib.suppress(Malformed):
            known = parse_host(name)
        if known is None or known != name:
            remedy = (
                "give a host as in a URL, without scheme and port" if known is None else f"write {known!r}"
            )
            raise InputError(f"host {name!r} is in no URL", remedy=remedy)
