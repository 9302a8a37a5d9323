"""The folders that a run may use: mounts for paths, hosts for URLs that a folder answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...fail.errors import CorpusError, PolicyError
from ...light_dataclasses import dataclass, field, replace
from ..policy.per_tool.request_rules import RequestRules
from ..policy.policy import Policy
from .credentials import OpenCredentials
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
        credentials: What requests get beside what tools give them.
        request_rules: What judges the headers and bodies of requests, None where nothing does.
        late_calls: How often a tool used its `io` after the end of the attempt; nothing was done then.
    """

    mounts: dict[str, Mount]
    hosts: dict[str, Host]
    offline: bool
    roots: dict[str, Root] = field(default_factory=dict)
    host_roots: dict[str, Root] = field(default_factory=dict)
    credentials: OpenCredentials = field(default_factory=OpenCredentials)
    request_rules: RequestRules | None = None
    late_calls: int = 0


def mounts_of(policy: Policy, given: Mapping[str, Any]) -> dict[str, Mount]:
    """Return the mounts of an agent, each in the mode that its policy says. Raises InputError for unknown ones."""
    for name in given:
        if name not in policy.mounts:
            raise PolicyError(
                f"mount {name!r} is not in sandbox.mounts",
                file=policy.at("/sandbox/mounts"),
                remedy="declare it",
            )
    out = {}
    for name, mode in policy.mounts.items():
        source = given.get(name)
        if isinstance(source, Mount):
            out[name] = source
        elif source is not None:
            if not Path(source).is_dir():
                raise CorpusError("no such folder", file=str(source), remedy=f"mount {name!r} needs one")
            out[name] = Mount(Path(source), name)
        elif mode == "write":
            out[name] = Mount(None)
    return {name: replace(mount, mode=policy.mounts[name]) for name, mount in out.items()}
