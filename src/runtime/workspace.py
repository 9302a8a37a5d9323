"""A run's mounts and hosts, and the `io` that is a tool's only way out.

A path is `mount/part/part`, opened by the walk of `walk.py`. No host path enters a message or a record.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urljoin

from .canonical_json import digest
from .gate import ALLOW, Decision
from .resources import Malformed, Target, parse_path, parse_url
from .walk import MAX_FILE_BYTES, Refused, list_files, open_parent, open_root, read_file, write_file

MAX_HOPS: Final = 5

Check = dict[str, Any]
# decides a fact; the flag says that the caller keeps the fact even where it is allowed
Late = Callable[[Check, bool], Decision]


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder under a name. `source` None is a fresh private folder; `label` names it in records."""

    source: Path | None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """A host served from a folder instead of the network; `redirects` maps URL paths to locations."""

    folder: Path
    label: str
    redirects: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HttpResult:
    """What `io.get` returns. `headers` have lower-case names, `url` is the one that answered."""

    status: int
    headers: dict[str, str]
    text: str
    url: str


class Workspace:
    """The mounts and hosts of one run. Use it as a context manager: private folders go when it closes."""

    def __init__(
        self, mounts: Mapping[str, Mount], hosts: Mapping[str, Host] | None = None, *, offline: bool = False
    ) -> None:
        self.offline = offline
        self.mounts = dict(mounts)
        self.hosts = dict(hosts or {})
        self._roots: dict[str, int] = {}
        self._host_roots: dict[str, int] = {}
        self._private: list[Path] = []

    def __enter__(self) -> Workspace:
        try:
            for name, mount in self.mounts.items():
                source = mount.source
                if source is None:
                    source = Path(tempfile.mkdtemp(prefix="tachograph-"))
                    self._private.append(source)
                self._roots[name] = open_root(source, f"mount {name!r}")
            for name, host in self.hosts.items():
                self._host_roots[name] = open_root(host.folder, f"host {name!r}")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every descriptor and remove the private folders. May be called twice."""
        for fd in (*self._roots.values(), *self._host_roots.values()):
            os.close(fd)
        self._roots, self._host_roots = {}, {}
        for folder in self._private:
            shutil.rmtree(folder, ignore_errors=True)
        self._private = []

    def place(self, path: str, text: str) -> None:
        """Put a file into a private mount before the run starts. Raises Malformed or OSError."""
        target = parse_path(path)
        write_file(self._roots[target.mount], target.parts, text.encode("utf-8"))

    def place_link(self, path: str, to: str) -> None:
        """Put a symbolic link into a private mount."""
        target = parse_path(path)
        parent = open_parent(self._roots[target.mount], target.parts, create=True)
        try:
            os.symlink(to, target.parts[-1], dir_fd=parent)
        finally:
            os.close(parent)

    def io(self, late: Late, key: str) -> IO:
        """The way out for one attempt. `late` decides facts that are met on the way."""
        return IO(self, late, key)


class IO:
    """One attempt's way out. Raises builtins only; denials are kept, whatever the tool does with them."""

    def __init__(self, workspace: Workspace, late: Late, key: str) -> None:
        self._workspace = workspace
        self._late = late
        self.idempotency_key = key
        self.checks: list[Check] = []
        self.reads: list[tuple[str, str]] = []
        self.writes: list[tuple[str, str]] = []
        self.denied = False

    def read(self, path: str) -> str:
        """The text of a file `mount/...` (UTF-8, at most 8,000,000 bytes)."""
        mount, parts = self._resolve(path, "read")
        try:
            data = read_file(self._workspace._roots[mount], parts)
        except Refused as refused:
            raise self._deny_found(path, "read", refused.found) from None
        self._note_read(self._workspace.mounts[mount].label, parts, data)
        return _decode(data)

    def write(self, path: str, text: str) -> None:
        """Replace a file `mount/...` as a whole; folders on the way are made."""
        mount, parts = self._resolve(path, "write")
        data = text.encode("utf-8")
        if len(data) > MAX_FILE_BYTES:
            raise OSError("file too large")
        try:
            write_file(self._workspace._roots[mount], parts, data)
        except Refused as refused:
            raise self._deny_found(path, "write", refused.found) from None
        self.writes.append((path, digest(data)))

    def list(self, mount: str) -> list[str]:
        """Sorted mount paths of the plain files of a mount.

        Links and other special files are left out, and so is what no path can name.
        """
        name, _ = self._resolve(f"{mount}/-", "read")
        found: list[str] = []
        list_files(self._workspace._roots[name], (), found)
        named = []
        for path in found:
            with contextlib.suppress(Malformed):
                named.append(parse_path(f"{name}/{path}").text)
        return sorted(named)

    def get(self, url: str) -> HttpResult:
        """GET a URL, following at most 5 redirects; each target is decided before it is spoken to."""
        for hop in range(MAX_HOPS + 1):
            target = self._allowed_target(url, hop)
            status, headers, text = self._fetch(target, hop)
            location = headers.get("location")
            if status not in (301, 302, 303, 307, 308) or location is None:
                if status == 429 or status >= 500:
                    raise ConnectionError("the server answered with a transient error")
                return HttpResult(status, headers, text, target.url)
            with contextlib.suppress(ValueError):  # what cannot be joined is left for the rules to refuse
                location = urljoin(target.url, location)
            url = location
        raise OSError("too many redirects")

    # ---- decisions -------------------------------------------------------------------------------------

    def _ask(self, check: Check, *, keep_allow: bool = False) -> None:
        """Have a fact decided; keep a denial for the loop and raise it for the tool."""
        if self.denied:
            raise PermissionError("denied before")
        allowed = self._late(check, keep_allow).decision == ALLOW
        if not allowed or keep_allow:
            self.checks.append(check)
        if not allowed:
            self.denied = True
            raise PermissionError(f"denied by {check['rule']}")

    def _resolve(self, path: str, access: str) -> tuple[str, tuple[str, ...]]:
        if not isinstance(path, str):
            raise TypeError("a path is a string")
        self._ask({"rule": "sandbox_path", "path": path, "access": access})
        found = parse_path(path)
        if found.mount not in self._workspace._roots:
            raise FileNotFoundError("this run has no such mount")
        return found.mount, found.parts

    def _deny_found(self, path: str, access: str, found: str) -> PermissionError:
        try:
            self._ask({"rule": "sandbox_path", "path": path, "access": access, "found": found})
        except PermissionError as error:
            return error
        return PermissionError("denied by sandbox_path")

    def _allowed_target(self, url: str, hop: int) -> Target:
        if not isinstance(url, str):
            raise TypeError("a URL is a string")
        self._ask({"rule": "url_allowlist", "target": url, "hop": hop}, keep_allow=hop > 0)
        return parse_url(url)

    def _address_allowed(self, target: Target, hop: int, address: str) -> bool:
        try:
            self._ask({"rule": "url_allowlist", "target": target.url, "hop": hop, "address": address})
        except PermissionError:
            return False
        return True

    # ---- the world -------------------------------------------------------------------------------------

    def _fetch(self, target: Target, hop: int) -> tuple[int, dict[str, str], str]:
        if target.host in self._workspace.hosts:
            return self._from_folder(target)
        if self._workspace.offline:
            raise ConnectionRefusedError("this run reaches no host")
        from . import http

        response = http.get(
            target.scheme,
            target.host,
            target.port,
            target.path + ("" if target.query is None else f"?{target.query}"),
            allowed=lambda address: self._address_allowed(target, hop, address),
            max_bytes=MAX_FILE_BYTES,
        )
        return response.status, response.headers, response.body.decode("utf-8", "replace")

    def _from_folder(self, target: Target) -> tuple[int, dict[str, str], str]:
        host = self._workspace.hosts[target.host]
        if target.path in host.redirects:
            return 302, {"location": host.redirects[target.path]}, ""
        try:
            parts = parse_path("folder" + unquote(target.path, errors="strict")).parts
            data = read_file(self._workspace._host_roots[target.host], parts)
            text = _decode(data)
        except (Malformed, FileNotFoundError, NotADirectoryError, IsADirectoryError, UnicodeError, Refused):
            return 404, {"content-type": "text/plain"}, "not found"
        self._note_read(host.label, parts, data)
        kind = "text/markdown" if parts[-1].endswith(".md") else "text/plain"
        return 200, {"content-type": f"{kind}; charset=utf-8"}, text

    def _note_read(self, label: str | None, parts: Sequence[str], data: bytes) -> None:
        if label is not None:
            self.reads.append(("/".join((label, *parts)), digest(data)))


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise OSError("the file is no UTF-8 text") from None
