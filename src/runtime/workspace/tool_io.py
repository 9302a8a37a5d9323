"""The `io` handle: all that a tool may do outside its own process."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from ...fail.errors import system_reason
from ...light_dataclasses import dataclass
from ..core.clock import time_left
from ..formats.canonical_json import digest
from ..formats.escape import escape_terminal
from ..policy.gate import ALLOW, UNBOUND, Decision
from ..resources.mount_path import parse_path
from ..resources.redirects import REDIRECTS, redirected
from ..resources.url import Malformed, Target, parse_url
from .decoding import text_of_body, text_of_file
from .mounts import OpenFolders
from .safe_open import (
    MAX_FILE_BYTES,
    Refused,
    list_files,
    read_file,
    write_file,
)

if TYPE_CHECKING:
    import socket

MAX_HOPS: Final = 5
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
HTTP_S: Final = 30.0  # for all hops together

Check = dict[str, Any]
# decides a fact; the flag says that the caller records the fact even if it is allowed
Late = Callable[[Check, bool], Decision]


@dataclass(frozen=True, slots=True)
class HttpResult:
    """What `io.get` returns.

    Attributes:
        status: The status code.
        headers: Names in lower case -> values.
        text: The body.
        url: The URL that answered, after redirects.
    """

    status: int
    headers: dict[str, str]
    text: str
    url: str


class IO:
    """The files and network of one attempt. Raises builtins only; keeps denials, even if the tool hides them.

    `uses` names the methods that the tool's effect kind covers. A call of another raises PermissionError before
    anything is looked at; `undeclared` is the first such method. Nothing more is done after that either.

    It works until its attempt ends. A tool may use it from several threads: what they have under way when it returns
    is awaited, and belongs to the attempt.
    """

    def __init__(self, folders: OpenFolders, late: Late, key: str, uses: Collection[str]) -> None:
        self._folders = folders
        self._uses = uses
        self._late = late
        self.idempotency_key = key
        self.checks: list[Check] = []
        self.reads: list[tuple[str, str]] = []
        self.writes: list[tuple[str, str]] = []
        self.denied = False
        self.no_room: OSError | None = None  # a write that found the disk full
        self.undeclared: str | None = None
        self._lock = threading.Lock()  # held while a file is worked on or a fact is decided
        self._is_closed = False
        self._calls = threading.Condition()  # guards what follows
        self._under_way = 0
        self._is_over = False
        self._connections: list[socket.socket] = []

    @property
    def is_serving(self) -> bool:
        """Whether a call is under way."""
        return self._under_way > 0

    @contextlib.contextmanager
    def served(self, timeout_s: float | None) -> Iterator[None]:
        """Await at the end of the block what threads of the tool have under way.

        Args:
            timeout_s: Seconds the attempt may take; without a limit, a call may take as long as one request.
        """
        left = time_left(timeout_s, HTTP_S)
        try:
            yield
        except Exception:
            self.end(left())
            raise
        self.end(left())

    def end(self, seconds: float) -> None:
        """Take no more calls. Those under way may go on for some seconds; the connections of others are shut."""
        with self._calls:
            self._is_over = True
            self._calls.wait_for(lambda: not self._under_way, seconds)
        self.close()

    def close(self) -> None:
        """Do nothing more for the tool: its attempt is over. Waits for what is being done with a file."""
        with self._lock:
            self._is_closed = True
        with self._calls:
            self._is_over = True
            connections, self._connections = self._connections, []
        for connection in connections:
            _shut(connection)

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        """Let nothing close this meanwhile. Raises PermissionError where it is closed."""
        with self._lock:
            self._check_open()
            yield

    def _check_open(self) -> None:
        if self._is_closed:
            raise PermissionError("the attempt is over")

    def read(self, path: str) -> str:
        """Return the text of a file `mount/...` (UTF-8, at most 8,000,000 bytes)."""
        with self._serving("read"):
            mount, parts = self._resolve(path, "read")
            try:
                with self._at_work():
                    data = read_file(self._folders.roots[mount], parts)
            except Refused as refused:
                raise self._deny_found(path, "read", refused.kind) from None
            except OSError as error:
                self._tell_unreadable(self._folders.mounts[mount].label, parts, error)
                raise
            self._note_read(self._folders.mounts[mount].label, parts, data)
            return text_of_file(data)

    def write(self, path: str, text: str) -> None:
        """Replace a file `mount/...` as a whole; folders on the way are made."""
        with self._serving("write"):
            mount, parts = self._resolve(path, "write")
            data = text.encode("utf-8")
            if len(data) > MAX_FILE_BYTES:
                raise OSError("file too large")
            # a partial runs in C, so that no interrupt can come between the write and its entry
            done = partial(self.writes.append, ("/".join((mount, *parts)), digest(data)))
            try:
                with self._at_work():
                    write_file(self._folders.roots[mount], parts, data, done)
            except Refused as refused:
                raise self._deny_found(path, "write", refused.kind) from None
            except OSError as error:
                if error.errno in _NO_ROOM:
                    self.no_room = error
                raise

    def list(self, mount: str) -> list[str]:
        """Return the sorted mount paths of the regular files of a mount, which is given by its name alone.

        What a read refuses is left out (links, special files, names that no path can have), and so are folders
        that cannot be listed.
        """
        with self._serving("list"):
            name, parts = self._resolve(f"{mount}/-" if isinstance(mount, str) else mount, "read")
            if parts != ("-",):
                raise ValueError("a listing takes the name of a mount")
            named = []
            with self._at_work():
                found = list(list_files(self._folders.roots[name]))
            for path in found:
                with contextlib.suppress(Malformed):
                    named.append(parse_path(f"{name}/{path}").text)
            return sorted(named)

    def get(self, url: str) -> HttpResult:
        """Return the answer to a GET, following at most 5 redirects; each target is decided before it is contacted.

        All hops together have 30 seconds. A redirect without a Location is an answer.
        """
        with self._serving("get"):
            until = None
            for hop in range(MAX_HOPS + 1):
                target = self._allowed_target(url, hop)
                if target.host in self._folders.hosts:
                    status, headers, text = self._from_folder(target)
                else:
                    until = until or self._deadline()
                    status, headers, text = self._from_network(target, hop, until)
                location = headers.get("location")
                if status not in REDIRECTS or location is None:
                    if status == 429 or status >= 500:
                        raise ConnectionError("the server answered with a transient error")
                    return HttpResult(status, headers, text, target.url)
                url = redirected(target, location)
            raise OSError("too many redirects")

    # ---- what the effect kind covers ---------------------------------------------------------------------

    @contextlib.contextmanager
    def _serving(self, method: str) -> Iterator[None]:
        """Count a call as under way.

        Refuses a method that the tool's effect kind does not cover, and keeps the first one for the record.
        """
        with self._calls:
            if self._is_over:
                self._tell_late(method)
                raise PermissionError("the attempt is over")
            if method not in self._uses and self.undeclared is None:
                self.undeclared = method
            if self.undeclared is not None:
                raise PermissionError("not covered by the tool's effect kind")
            self._under_way += 1
        try:
            yield
        finally:
            with self._calls:
                self._under_way -= 1
                self._calls.notify_all()

    def _tell_late(self, method: str) -> None:
        """Warn of a call after the end of the attempt. It is in no record, since nothing was done."""
        import logging  # slow to import, and few runs come here

        self._folders.late_calls += 1
        words = "tachograph: io.%s was called after the end of its attempt and did nothing (%d such calls in this run)"
        logging.getLogger("tachograph").warning(words, method, self._folders.late_calls)

    # ---- decisions -------------------------------------------------------------------------------------

    def _ask(self, check: Check, *, keep_allow: bool = False) -> None:
        """Let the gate decide a fact; keep a denial for the loop and raise it for the tool."""
        with self._at_work():  # the attempt does not end between a decision and its entry
            if self.denied:
                raise PermissionError("denied before")
            # a record takes plain `str` without lone surrogates; those become backslash escapes, which every
            # rule refuses
            check = {key: _encodable(item) if isinstance(item, str) else item for key, item in check.items()}
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
        parsed = parse_path(path)
        if parsed.mount not in self._folders.roots:
            raise self._deny_found(path, access, UNBOUND)
        return parsed.mount, parsed.parts

    def _deny_found(self, path: str, access: str, kind: str) -> PermissionError:
        try:
            self._ask({"rule": "sandbox_path", "path": path, "access": access, "found": kind})
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

    def _deadline(self) -> float:
        if self._folders.offline:
            raise ConnectionRefusedError("this run reaches no host")
        from . import http  # late, as few runs need it

        return http.later(HTTP_S)

    def _from_network(self, target: Target, hop: int, until: float) -> tuple[int, dict[str, str], str]:
        from . import http

        try:
            response = http.get(
                target.scheme,
                target.host,
                target.port,
                target.path + ("" if target.query is None else f"?{target.query}"),
                allowed=lambda address: self._address_allowed(target, hop, address),
                max_bytes=MAX_FILE_BYTES,
                until=until,
                opened=self._note_connection,
            )
        except http.AddressRefused as refused:
            if not self.denied:  # no plain address, or another peer: refused before a rule was asked
                self._address_allowed(target, hop, refused.address)
            raise PermissionError("denied by url_allowlist") from None
        return response.status, response.headers, text_of_body(response.body, response.headers)

    def _note_connection(self, connection: socket.socket) -> None:
        """Keep a connection, so that it is shut when the attempt ends."""
        with self._calls:
            self._connections.append(connection)
            is_closed = self._is_closed
        if is_closed:
            _shut(connection)

    def _from_folder(self, target: Target) -> tuple[int, dict[str, str], str]:
        host = self._folders.hosts[target.host]
        if target.path in host.redirects:
            octets = host.redirects[target.path].encode("utf-8", "surrogatepass")
            return 302, {"location": octets.decode("latin-1")}, ""  # as it would come over the wire
        try:
            parts = parse_path("folder" + unquote(target.path, errors="strict")).parts
            with self._at_work():
                data = read_file(self._folders.host_roots[target.host], parts)
            text = text_of_file(data)
        except (Malformed, FileNotFoundError, NotADirectoryError, IsADirectoryError, UnicodeError, Refused):
            return 404, {"content-type": "text/plain"}, "not found"
        self._note_read(host.label, parts, data)
        kind = "text/markdown" if parts[-1].endswith(".md") else "text/plain"
        return 200, {"content-type": f"{kind}; charset=utf-8"}, text

    def _tell_unreadable(self, label: str | None, parts: Sequence[str], error: OSError) -> None:
        """Warn of a file that is there and that the system does not let us read; no record holds its words."""
        if error.errno is None or isinstance(
            error, FileNotFoundError | NotADirectoryError | IsADirectoryError
        ):
            return
        import logging  # slow to import, and few runs come here

        file = escape_terminal("/".join([label or "a private mount", *parts]), 400)
        words = "tachograph: %s: cannot be read (%s); check the file's kind and permission"
        logging.getLogger("tachograph").warning(words, file, system_reason(error))

    def _note_read(self, label: str | None, parts: Sequence[str], data: bytes) -> None:
        if label is not None:
            self.reads.append(("/".join((label, *parts)), digest(data)))


def _shut(connection: socket.socket) -> None:
    """Shut a connection that another thread may be waiting on, which ends its wait."""
    import socket

    with contextlib.suppress(OSError):  # it is closed, or was never made
        # past an encrypted connection's own method, which would take its keys from the thread that uses it
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _encodable(text: str) -> str:
    """Return a plain `str` in which lone surrogates are backslash escapes."""
    if type(text) is str and text.isascii():
        return text
    return str.__str__(text).encode("utf-8", "backslashreplace").decode()
