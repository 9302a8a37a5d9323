"""The folders that a run may use: mounts for paths, hosts for URLs that a folder answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...light_dataclasses import dataclass, field
from .safe_open import (
    Root,
)


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder under a name. `source` None is a fresh private folder; `label` names it in records.

    `mode` is `read` or `write`, as the policy says. A folder that the run only reads may hold hard links; one that it
    writes may overlap no other.
    """

    source: Path | None
    label: str | None = None
    mode: str = "write"


@dataclass(frozen=True, slots=True)
class Host:
    """A host served from a folder instead of the network; `redirects` maps URL paths to locations."""

    folder: Path
    label: str
    redirects: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class OpenFolders:
    """The mounts and hosts of a run under way, with an open descriptor for each folder.

    `roots` and `host_roots` are empty before the workspace is entered and after it is closed.
    """

    mounts: dict[str, Mount]
    hosts: dict[str, Host]
    offline: bool
    roots: dict[str, Root] = field(default_factory=dict)
    host_roots: dict[str, Root] = field(default_factory=dict)
