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
    """A folder under a name.

    Attributes:
        source: The folder; None for a fresh private one.
        label: What records call it.
        mode: `read` or `write`, as the policy says. A folder that the run only reads may hold hard links; one
            that it writes may overlap no other.
    """

    source: Path | None
    label: str | None = None
    mode: str = "write"


@dataclass(frozen=True, slots=True)
class Host:
    """A host served from a folder instead of the network.

    Attributes:
        folder: The folder that answers.
        label: What records call it.
        redirects: URL path -> location.
    """

    folder: Path
    label: str
    redirects: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class OpenFolders:
    """The mounts and hosts of a run under way, with an open descriptor for each folder.

    Attributes:
        mounts: The mounts, by name.
        hosts: The hosts that folders answer for, by name.
        offline: Whether all other hosts are out of reach.
        roots: The open folders of mounts; empty before the workspace is entered and after it is closed.
        host_roots: The same of hosts.
    """

    mounts: dict[str, Mount]
    hosts: dict[str, Host]
    offline: bool
    roots: dict[str, Root] = field(default_factory=dict)
    host_roots: dict[str, Root] = field(default_factory=dict)
