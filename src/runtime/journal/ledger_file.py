"""Write a ledger to a file of its own, as `Agent.run(..., ledger=FILE)` asks for."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from ...fail.errors import InputError, OutputError, system_reason


@contextlib.contextmanager
def ledger_file(
    path: str | os.PathLike[str] | None,
) -> Iterator[Callable[[dict[str, Any], str], object] | None]:
    """Open a ledger file and yield the function that appends a line; None without a path. Bad input leaves no file."""
    if path is None:
        yield None
        return
    try:
        file = open(path, "xb", buffering=0)  # noqa: SIM115 - closed below; a line is in the file once it is put
    except OSError as error:
        raise OutputError(
            f"{os.fspath(path)}: the ledger cannot be created ({system_reason(error)}); name a new file"
        ) from None

    def put(_line: dict[str, Any], text: str) -> None:
        data = f"{text}\n".encode()
        try:
            while data:
                data = data[file.write(data) :]
        except OSError as error:
            raise OutputError(
                f"{os.fspath(path)}: the ledger cannot be written ({system_reason(error)}); make room"
            ) from error

    with file:
        try:
            yield put
        except InputError:
            os.unlink(path)
            raise
