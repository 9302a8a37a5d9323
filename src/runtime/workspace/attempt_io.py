"""What all of `io` stands on: its life within one attempt, its tool's effect kind, its facts for the gate."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..core.clock import time_left
from ..formats.canonical_json import digest
from ..policy.gate import ALLOW, Decision
from .mounts import OpenFolders

if TYPE_CHECKING:
    import socket

HTTP_S: Final = 30.0  # for all hops together

Check = dict[str, Any]
# decides a fact; the flag says that the caller records the fact even if it is allowed
Late = Callable[[Check, bool], Decision]


class AttemptIO:
    """The `io` of one attempt without its methods: when it works, and what it asks the gate."""

    def __init__(
        self, folders: OpenFolders, late: Late, key: str, uses: Collection[str], tool: str = ""
    ) -> None:
        self._folders = folders
        self._tool = tool
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
        self._actions = 0  # requests that may have changed something
        self._is_over = False
        self._connections: list[socket.socket] = []

    @property
    def is_serving(self) -> bool:
        """Whether a call is under way."""
        return self._under_way > 0

    @property
    def may_have_acted(self) -> bool:
        """Whether something was written, or sent that may have had an effect."""
        return bool(self.writes) or self._actions > 0

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

    @contextlib.contextmanager
    def _acting(self, *, is_safe: bool) -> Iterator[None]:
        """Count what may change something, unless it is refused before anything is sent."""
        with self._calls:
            self._actions += not is_safe
        try:
            yield
        except ConnectionRefusedError:
            with self._calls:
                self._actions -= not is_safe
            raise

    def _tell_late(self, method: str) -> None:
        """Warn of a call after the end of the attempt. It is in no record, since nothing was done."""
        import logging  # slow to import, and few runs come here

        self._folders.late_calls += 1
        words = "tachograph: io.%s was called after the end of its attempt and did nothing (%d such calls in this run)"
        called = method.partition(":")[0]  # without the method of HTTP
        logging.getLogger("tachograph").warning(words, called, self._folders.late_calls)

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

    # ---- what it notes ---------------------------------------------------------------------------------

    def _note_connection(self, connection: socket.socket) -> None:
        """Keep a connection, so that it is shut when the attempt ends."""
        with self._calls:
            self._connections.append(connection)
            is_closed = self._is_closed
        if is_closed:
            _shut(connection)

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
