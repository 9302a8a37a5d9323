"""The `io` handle: all that a tool may do outside its own process."""

from __future__ import annotations

import contextlib
import errno
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

from ...fail.errors import system_reason
from ...light_dataclasses import dataclass
from ..formats.canonical_json import digest
from ..formats.escape import escape_terminal
from ..formats.lazy_pattern import lazy_pattern
from ..policy.gate import ALLOW, UNBOUND, Decision
from ..resources.mount_path import parse_path
from ..resources.redirects import REDIRECTS, redirected
from ..resources.url import Malformed, Target, parse_url
from .mounts import OpenFolders
from .safe_open import (
    MAX_FILE_BYTES,
    Refused,
    list_files,
    read_file,
    write_file,
)

MAX_HOPS: Final = 5
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


HTTP_S: Final = 30.0  # for all hops together


_CHARSET: Final = lazy_pattern(r";\s*charset\s*=\s*\"?([^\s\";]{1,40})", re.IGNORECASE)


# what a page is decoded with, by the name that it gives; under any other name it is taken for UTF-8
_CHARSETS: Final = dict(
    pair.split("=")
    for pair in (
        "us-ascii=cp1252 ascii=cp1252 iso-8859-1=cp1252 latin1=cp1252 windows-1252=cp1252 cp1252=cp1252 "
        "iso-8859-2=iso8859-2 iso-8859-5=iso8859-5 iso-8859-7=iso8859-7 iso-8859-9=cp1254 iso-8859-15=iso8859-15 "
        "windows-1250=cp1250 windows-1251=cp1251 windows-1253=cp1253 windows-1254=cp1254 windows-1256=cp1256 "
        "koi8-r=koi8-r koi8-u=koi8-u shift_jis=cp932 windows-31j=cp932 euc-jp=euc-jp big5=big5 euc-kr=cp949 "
        "gb2312=gb18030 gbk=gb18030 gb18030=gb18030 utf-16=utf-16-le utf-16le=utf-16-le utf-16be=utf-16-be"
    ).split()
)


_BOMS: Final = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))


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
        self._lock = threading.Lock()  # held while something is done with a file
        self._is_closed = False

    def close(self) -> None:
        """Do nothing more for the tool: its attempt was given up. Waits for what is being done with a file."""
        with self._lock:
            self._is_closed = True

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
        self._use("read")
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
        return _decode(data)

    def write(self, path: str, text: str) -> None:
        """Replace a file `mount/...` as a whole; folders on the way are made."""
        self._use("write")
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
        self._use("list")
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
        self._use("get")
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

    def _use(self, method: str) -> None:
        """Refuse a method that the tool's effect kind does not cover; keep the first one for the record."""
        self._check_open()
        if method not in self._uses and self.undeclared is None:
            self.undeclared = method
        if self.undeclared is not None:
            raise PermissionError("not covered by the tool's effect kind")

    # ---- decisions -------------------------------------------------------------------------------------

    def _ask(self, check: Check, *, keep_allow: bool = False) -> None:
        """Let the gate decide a fact; keep a denial for the loop and raise it for the tool."""
        self._check_open()
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
            )
        except http.AddressRefused as refused:
            if not self.denied:  # no plain address, or another peer: refused before a rule was asked
                self._address_allowed(target, hop, refused.address)
            raise PermissionError("denied by url_allowlist") from None
        return response.status, response.headers, _text(response.body, response.headers)

    def _from_folder(self, target: Target) -> tuple[int, dict[str, str], str]:
        host = self._folders.hosts[target.host]
        if target.path in host.redirects:
            octets = host.redirects[target.path].encode("utf-8", "surrogatepass")
            return 302, {"location": octets.decode("latin-1")}, ""  # as it would come over the wire
        try:
            parts = parse_path("folder" + unquote(target.path, errors="strict")).parts
            with self._at_work():
                data = read_file(self._folders.host_roots[target.host], parts)
            text = _decode(data)
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


def _text(body: bytes, headers: Mapping[str, str]) -> str:
    """Decode a body by its byte order mark, else by its charset if that is a known one, else as UTF-8."""
    for mark, encoding in _BOMS:
        if body.startswith(mark):
            return body[len(mark) :].decode(encoding, "replace")
    charset = _CHARSET.search(headers.get("content-type", ""))
    return body.decode(_CHARSETS.get(charset[1].lower(), "utf-8") if charset else "utf-8", "replace")


def _encodable(text: str) -> str:
    """Return a plain `str` in which lone surrogates are backslash escapes."""
    if type(text) is str and text.isascii():
        return text
    return str.__str__(text).encode("utf-8", "backslashreplace").decode()


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise OSError("the file is no UTF-8 text") from None
