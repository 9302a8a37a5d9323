"""A run's mounts and hosts, and the `io` that is a tool's only way out.

A path is `mount/part/part`. Opening walks one component at a time by directory descriptor and follows no
link; what is no plain file with one name (links, hard links, devices, FIFOs, sockets) is refused by what
`fstat` says of the open descriptor, so nothing can change between check and use. No host path enters a
message or a record.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urljoin

from ..fail.errors import CorpusError
from .canonical_json import digest
from .gate import ALLOW, Decision
from .resources import Malformed, Target, parse_path, parse_url

MAX_FILE_BYTES: Final = 8_000_000
MAX_LISTED: Final = 100_000
MAX_HOPS: Final = 5
MAX_DEPTH: Final = 32
_DIR_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS: Final = {stat.S_IFLNK: "link", stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket"}

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


class _Refused(Exception):
    """Something on the way that the walk does not follow; `found` says what."""

    def __init__(self, found: str) -> None:
        self.found = found
        super().__init__(found)


class Workspace:
    """The mounts and hosts of one run. Use it as a context manager: private folders go when it closes."""

    def __init__(self, mounts: Mapping[str, Mount], hosts: Mapping[str, Host] | None = None) -> None:
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
                self._roots[name] = _open_root(source, f"mount {name!r}")
            for name, host in self.hosts.items():
                self._host_roots[name] = _open_root(host.folder, f"host {name!r}")
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
        _write_file(self._roots[target.mount], target.parts, text.encode("utf-8"))

    def place_link(self, path: str, to: str) -> None:
        """Put a symbolic link into a private mount."""
        target = parse_path(path)
        parent = _open_parent(self._roots[target.mount], target.parts, create=True)
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
            data = _read_file(self._workspace._roots[mount], parts)
        except _Refused as refused:
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
            _write_file(self._workspace._roots[mount], parts, data)
        except _Refused as refused:
            raise self._deny_found(path, "write", refused.found) from None
        self.writes.append((path, digest(data)))

    def list(self, mount: str) -> list[str]:
        """Sorted mount paths of the plain files of a mount.

        Links and other special files are left out, and so is what no path can name.
        """
        name, _ = self._resolve(f"{mount}/-", "read")
        found: list[str] = []
        _list_files(self._workspace._roots[name], (), found)
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
            data = _read_file(self._workspace._host_roots[target.host], parts)
            text = _decode(data)
        except (Malformed, FileNotFoundError, NotADirectoryError, IsADirectoryError, UnicodeError, _Refused):
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


def _open_root(source: Path, what: str) -> int:
    try:
        return os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise CorpusError(
            f"the folder of {what} cannot be opened ({type(error).__name__})",
            file=str(source),
            remedy="name an existing folder that can be read",
        ) from None


def _step_into(parent: int, name: str, create: bool) -> int:
    """Open folder `name` below `parent`. A link there is refused, whatever it points to."""
    try:
        return os.open(name, _DIR_FLAGS, dir_fd=parent)
    except FileNotFoundError:
        if not create:
            raise
    except OSError:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise _Refused(_KINDS.get(stat.S_IFMT(mode), "device")) from None
        raise
    with contextlib.suppress(FileExistsError):  # made by someone else meanwhile: the open below judges it
        os.mkdir(name, 0o777, dir_fd=parent)
    return os.open(name, _DIR_FLAGS, dir_fd=parent)


def _open_parent(root: int, parts: Sequence[str], *, create: bool) -> int:
    """A descriptor of the folder that holds the last part; the caller closes it."""
    if not parts or len(parts) > MAX_DEPTH:
        raise FileNotFoundError("no such file")
    here = os.dup(root)
    try:
        for name in parts[:-1]:
            below = _step_into(here, name, create)
            os.close(here)
            here = below
    except BaseException:
        os.close(here)
        raise
    return here


def _refuse_odd(info: os.stat_result) -> None:
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError("is a folder")
    if not stat.S_ISREG(info.st_mode):
        raise _Refused(_KINDS.get(stat.S_IFMT(info.st_mode), "device"))
    if info.st_nlink != 1:
        raise _Refused("hard link")


def _read_file(root: int, parts: Sequence[str]) -> bytes:
    parent = _open_parent(root, parts, create=False)
    try:
        try:
            fd = os.open(parts[-1], _FILE_FLAGS, dir_fd=parent)
        except OSError:
            _refuse_odd(os.stat(parts[-1], dir_fd=parent, follow_symlinks=False))
            raise
    finally:
        os.close(parent)
    try:
        info = os.fstat(fd)
        _refuse_odd(info)
        # a file can grow meanwhile, state no size, or come in part: what counts is the read that finds nothing
        data, wanted = b"", info.st_size + 1
        while piece := os.read(fd, min(wanted, MAX_FILE_BYTES + 1 - len(data))):
            data, wanted = data + piece, 65536
    finally:
        os.close(fd)
    if len(data) > MAX_FILE_BYTES:
        raise OSError("file too large")
    return data


def _write_file(root: int, parts: Sequence[str], data: bytes) -> None:
    parent = _open_parent(root, parts, create=True)
    name = parts[-1]
    try:
        with contextlib.suppress(FileNotFoundError):  # a new file
            _refuse_odd(os.stat(name, dir_fd=parent, follow_symlinks=False))
        temporary, fd = _new_file(parent)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            os.unlink(temporary, dir_fd=parent)
            raise
    finally:
        os.close(parent)


def _new_file(parent: int) -> tuple[str, int]:
    """A file under a name of its own: another may be at work here, or have been killed at it."""
    for number in range(MAX_LISTED):
        name = f".tachograph-{os.getpid()}-{number}.tmp"
        with contextlib.suppress(FileExistsError):
            return name, os.open(name, _NEW_FLAGS, 0o666, dir_fd=parent)
    raise OSError("no room for a new file")


def _list_files(folder: int, prefix: tuple[str, ...], found: list[str]) -> None:
    if len(prefix) >= MAX_DEPTH:
        return
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        if len(found) >= MAX_LISTED:
            raise OSError("too many files")
        if entry.is_file(follow_symlinks=False):
            found.append("/".join((*prefix, entry.name)))
        elif entry.is_dir(follow_symlinks=False):
            below = os.open(entry.name, _DIR_FLAGS, dir_fd=folder)
            try:
                _list_files(below, (*prefix, entry.name), found)
            finally:
                os.close(below)
