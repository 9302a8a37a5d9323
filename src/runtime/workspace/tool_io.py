"""The `io` handle: all that a tool may do outside its own process."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Sequence
from functools import partial
from typing import Final

from ...fail.errors import system_reason
from ..formats.canonical_json import digest
from ..formats.escape import escape_terminal
from ..policy.gate import UNBOUND
from ..resources.mount_path import parse_path
from ..resources.url import Malformed
from .attempt_io import HTTP_S as HTTP_S
from .attempt_io import Late as Late
from .decoding import text_of_file
from .safe_open import MAX_FILE_BYTES, Refused, list_files, read_file, write_file
from .web_io import HttpResult as HttpResult
from .web_io import WebIO

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


class IO(WebIO):
    """The files and network of one attempt. Raises builtins only; keeps denials, even if the tool hides them.

    `uses` names the methods that the tool's effect kind covers. A call of another raises PermissionError before
    anything is looked at; `undeclared` is the first such method. Nothing more is done after that either.

    It works until its attempt ends. A tool may use it from several threads: what they have under way when it returns
    is awaited, and belongs to the attempt.
    """

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
