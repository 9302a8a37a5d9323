"""The sources of this package that shape a run, for the manifest's `code.package`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from ....runtime.formats.shipped_files import package_place

# what shapes the four files of a run; a test follows the imports of what records them
_SHAPING: Final = (
    "adapters",
    "evidence/files",
    "evidence/recording",
    "evidence/tasks",
    "fail",
    "light_dataclasses.py",
    "runtime",
    "tracing",
)
_COUNTED: Final = (".py", ".json", ".yaml")


def shapes_runs(inside: str) -> bool:
    """Return whether a file of this package shapes the four files of a run, given its path in the package."""
    return inside.endswith(_COUNTED) and any(f"{inside}/".startswith(f"{name}/") for name in _SHAPING)


def package_sources() -> Iterator[tuple[str, bytes]]:
    """Yield path and content of each file of this package that shapes the four files of a run, in a fixed order."""
    package = package_place()
    found = []
    for name in _SHAPING:
        if os.path.isfile(f"{package}/{name}"):
            found.append(name)
        for folder, _, names in os.walk(f"{package}/{name}"):  # five times as fast as `Path.rglob`
            inside = os.path.relpath(folder, package)
            found += [f"{inside}/{one}" for one in names]
    for path in sorted((path for path in found if path.endswith(_COUNTED)), key=lambda path: path.split("/")):
        with open(f"{package}/{path}", "rb") as file:
            yield path, file.read()


@lru_cache(maxsize=1)
def package_digest() -> str:
    """Return the SHA-256 over the files that shape the four files of a run, with their names."""
    sources = hashlib.sha256()
    for path, data in package_sources():
        sources.update(f"{path}\0".encode())
        sources.update(hashlib.sha256(data).digest())
    return sources.hexdigest()
