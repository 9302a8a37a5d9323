"""Import a tool or hooks from a file of their own, by its source."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType

from ...fail.errors import InputError, asks_to_end, system_reason
from . import source_scan


def module_of(
    path: Path, label: str, prefix: str, error: type[InputError], remedy: str
) -> tuple[ModuleType, bytes]:
    """Import a file, once its source was looked through.

    Args:
        path: The file.
        label: What messages call it.
        prefix: What the module's name begins with.
        error: What is raised.
        remedy: What helps where the file cannot be read.

    Returns:
        The module, and the source that it was made from.

    Raises:
        InputError: The file cannot be read or imported.
    """
    try:
        source = path.read_bytes()
    except OSError as failed:
        raise error(f"cannot be read ({system_reason(failed)})", file=label, remedy=remedy) from None
    source_scan.scan_unloaded(source, label, file=str(path))
    module = ModuleType(f"{prefix}_{path.stem}")
    module.__file__ = str(path)
    try:
        # compiled from the very bytes that are digested: no cached bytecode, none written
        exec(_compiled(source, label), module.__dict__)  # noqa: S102 - code of the project
    except BaseException as raised:
        if asks_to_end(raised):
            raise
        line = raised.lineno if isinstance(raised, SyntaxError) else None
        what = f"importing it raised {type(raised).__name__}"
        raise error(what, file=label, line=line, remedy="fix the module") from raised
    return module, source


@lru_cache(maxsize=256)
def _compiled(source: bytes, label: str) -> CodeType:
    return compile(source, label, "exec", dont_inherit=True)
