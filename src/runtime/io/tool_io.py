"""The `io` handle of one attempt: all that a tool may do outside its own process."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

from ...fail.errors import warn
from ..clock import later
from ..formats.strict_json import digest
from ..log.values import Fact, Reach, Touch
from ..policy.leaf import Verdict
from ..policy.rules.sandbox_path import UNBOUND
from ..resources.mount_path import parse_path
from ..resources.url import REDIRECTS, Malformed, Target, parse_url, redirected
from ..tools.contract import Tool
from .decoding import text_of_file
from .safe_open import MAX_FILE_BYTES, Refused, Root, list_files, read_file, write_file
from .workspace import Held, Host, Workspace

MAX_HOPS: Final = 5
HTTP_S: Final = 30.0  # for all hops together
Answer = tuple[int, dict[str, str], str]
"""Status, headers with names in lower case, and text of an answer to one request."""
_TEXTS: Final = {Reach: ("url", "address"), Touch: ("path",)}
# of these, another run of the same call knows nothing
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class HttpResult(Struct, frozen=True):
    """What `io.get` returns.

    Attributes:
        status: The status code.
        headers: Names in lower case, and values.
        text: The body.
        url: The URL that answered, after redirects.
    """

    status: int
    headers: dict[str, str]
    text: str
    url: str


class ToolIO:
    """The files and hosts of one attempt. Every use is decided before it happens; all methods raise builtins only.

    A tool may use it from several threads. After a denial, or a use that the effect kind of the tool does not cover, it
    does nothing more, whatever the tool makes of the exception; so too once the attempt is over.

    Args:
        workspace: What it may touch.
        tool: The tool.
        decide: Decides what the tool meets.
        key: The idempotency key.

    Attributes:
        idempotency_key: The same for all attempts of a call.
        deps: The caller's own object.
        met: What the run decides again: redirects and the fact that was denied.
        denied: Whether a fact was denied.
        undeclared: The method that the effect kind of the tool does not cover, such as `io.get`; "" without one.
        wrote: The paths at which it wrote.
        storage_error: The error that ends the run and not the tool: the system has no room for a file that is used, or
            a read cannot be noted.
        broken: What every use raises in place of being done, once storage failed or for tests; None for nothing.
    """

    def __init__(self, workspace: Workspace, tool: Tool, decide: Callable[[Fact], Verdict], key: str) -> None:
        self.idempotency_key, self.deps = key, workspace.deps
        self.met: list[Fact] = []
        self.denied = False
        self.undeclared = ""
        self.wrote: set[str] = set()
        self.storage_error: OSError | None = None
        self.broken: BaseException | None = None
        self._workspace, self._tool, self._decide = workspace, tool, decide
        # held from a decision to what follows from it, so that the attempt does not end between them
        self._lock = threading.RLock()
        self._is_closed = False
        self._connections: list[socket.socket] = []

    def close(self) -> None:
        """Do nothing more: the attempt is over. Waits for what is being done with a file, and shuts connections."""
        with self._lock:
            self._is_closed = True
            connections, self._connections = self._connections, []
        for connection in connections:  # on one of them another thread may be waiting, whose wait ends
            with contextlib.suppress(OSError):  # it is closed, or was never made
                # past an encrypted connection's own method, which would take its keys from the thread that uses it
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def _note_connection(self, connection: socket.socket) -> None:
        """Keep a connection, so that it is shut when the attempt ends. Raises PermissionError where it has ended."""
        with self._lock:
            if self._is_closed:
                raise PermissionError("the attempt is over")
            self._connections.append(connection)

    def held(self, key: object, open_it: Callable[[], Held]) -> Held:
        """Return what is open for as long as the run is; `open_it` opens it when it is first asked for."""
        with self._lock:
            if self._is_closed:
                raise PermissionError("the attempt is over")
        return self._workspace.held(key, open_it)

    # ---- files -------------------------------------------------------------------------------------------------------

    def read(self, path: str) -> str:
        """Return the text of a file `mount/...` (UTF-8, at most 8,000,000 bytes)."""
        with self._using(path, "read"):
            root, mount, parts = self._resolved("read", path, "read")
            data = read_file(root, parts)
            self._note_read(self._workspace.mounts[mount].label, parts, data)
            return text_of_file(data)

    def write(self, path: str, text: str) -> None:
        """Replace a file `mount/...` as a whole; folders on the way are made."""
        with self._using(path, "write"):
            root, mount, parts = self._resolved("write", path, "write")
            data, plain = text.encode(), "/".join((mount, *parts))
            if len(data) > MAX_FILE_BYTES:
                raise OSError("file too large")
            # a partial runs in C, so that no interrupt can come between the write and its note
            write_file(root, parts, data, partial(self.wrote.add, plain))

    def list(self, mount: str) -> list[str]:
        """Return the sorted paths of the regular files of a mount, which is given by its name alone.

        What a read refuses is left out (links, special files, names that no path can have).
        """
        with self._using(mount, "read"):
            some = f"{mount}/-" if isinstance(mount, str) else mount
            root, name, parts = self._resolved("list", some, "read")
            if parts != ("-",):
                raise ValueError("a listing takes the name of a mount")
            named = []
            for path in list_files(root):
                with contextlib.suppress(Malformed):
                    named.append(parse_path(f"{name}/{path}").text)
            return sorted(named)

    @contextlib.contextmanager
    def _using(self, path: str, access: str) -> Iterator[None]:
        """Hold the lock, deny what is refused there, and note where the system has no room for what is done."""
        with self._lock:
            try:
                yield
            except Refused as refused:
                raise self._denial(Touch(path, access, refused.kind)) from None
            except OSError as error:
                if error.errno in _NO_ROOM:
                    self.storage_error = self.broken = error
                raise

    def _resolved(self, method: str, path: str, access: str) -> tuple[Root, str, tuple[str, ...]]:
        self._check(method)
        if not isinstance(path, str):
            raise TypeError("a path is a string")
        self._ask(Touch(path, access))
        parsed = parse_path(path)
        root = self._workspace.roots.get(parsed.mount)
        if root is None:
            raise self._denial(Touch(path, access, UNBOUND))
        return root, parsed.mount, parsed.parts

    def _note_read(self, label: str, parts: tuple[str, ...], data: bytes) -> None:
        if label:
            try:
                self._workspace.on_read("/".join((label, *parts)), digest(data))
            except OSError as error:
                self.storage_error = self.broken = error
                raise

    # ---- hosts -------------------------------------------------------------------------------------------------------

    def get(self, url: str) -> HttpResult:
        """Return the answer to a GET, following at most 5 redirects; each target is decided before it is contacted."""
        deadline = later(HTTP_S)
        for hop in range(MAX_HOPS + 1):
            with self._using(url, "read"):
                self._check("get")
                if not isinstance(url, str):
                    raise TypeError("a URL is a string")
                self._ask(Reach(url, hop=hop), keep=hop > 0)
                target = parse_url(url)
                host = self._workspace.hosts.get(target.host)
                answer = None if host is None else self._from_folder(target, host)
            # without the lock, since a network may be slow and the end of the attempt does not wait for it
            status, headers, text = answer or self._from_network(target, hop, deadline)
            location = headers.get("location")
            if status not in REDIRECTS or location is None:
                if status == 429 or status >= 500:
                    raise ConnectionError("the server answered with a transient error")
                return HttpResult(status, headers, text, target.url)
            url = redirected(target, location)
        raise OSError("too many redirects")

    def _from_network(self, target: Target, hop: int, deadline: int) -> Answer:
        if not self._workspace.network:
            warn("no folder answers for %s, and this run reaches no network", target.host)
            raise ConnectionRefusedError("no network in this run")
        from . import http  # slow to import, and few runs come here

        def decide_address(address: str) -> bool:
            try:
                with self._lock:
                    self._check("get")
                    self._ask(Reach(target.url, address=address, hop=hop))
            except PermissionError:
                return False
            return True

        return http.fetch(target, decide_address, deadline, self._note_connection)

    def _from_folder(self, target: Target, host: Host) -> Answer:
        if target.path in host.redirects:
            octets = host.redirects[target.path].encode("utf-8", "surrogatepass")
            return 302, {"location": octets.decode("latin-1")}, ""  # as it would come over the wire
        try:
            parts = parse_path("folder" + unquote(target.path, errors="strict")).parts
            data = read_file(self._workspace.host_roots[target.host], parts)
            text = text_of_file(data)
        except (Malformed, FileNotFoundError, NotADirectoryError, IsADirectoryError, UnicodeError, Refused):
            return 404, {"content-type": "text/plain"}, "not found"
        self._note_read(host.label, parts, data)
        kind = "text/markdown" if parts[-1].endswith(".md") else "text/plain"
        return 200, {"content-type": f"{kind}; charset=utf-8"}, text

    # ---- decisions ---------------------------------------------------------------------------------------------------

    def _check(self, method: str) -> None:
        """Raise where nothing may be done; the lock is held until what is done is over."""
        if self._is_closed:
            warn("io.%s was called after the end of its attempt and did nothing", method)
            raise PermissionError("the attempt is over")
        if self.denied:
            raise PermissionError("denied before")
        if method not in self._tool.uses and not self.undeclared:
            self.undeclared = f"io.{method}"
            warn("%s: io.%s is not for a tool of the effect %s", self._tool.file, method, self._tool.effect)
        if self.undeclared:
            raise PermissionError("not covered by the tool's effect kind")
        if self.broken is not None:
            raise self.broken

    def _ask(self, fact: Reach | Touch, *, keep: bool = False) -> None:
        """Let the gate decide a fact; keep a denial for the run, and raise it for the tool."""
        # a record takes plain text; lone surrogates become backslash escapes, which every rule refuses
        for name in _TEXTS[type(fact)]:
            text = getattr(fact, name)
            if type(text) is not str or not text.isascii():
                plain = str.__str__(text).encode("utf-8", "backslashreplace").decode()
                fact = replace(fact, **{name: plain})
        verdict = self._decide(fact)
        if verdict.decision != "allow" or keep:
            self.met.append(fact)
        if verdict.decision != "allow":
            self.denied = True
            raise PermissionError(f"denied by {verdict.rule}")

    def _denial(self, fact: Touch) -> PermissionError:
        try:
            self._ask(fact)
        except PermissionError as error:
            return error
        return PermissionError("denied by sandbox_path")
