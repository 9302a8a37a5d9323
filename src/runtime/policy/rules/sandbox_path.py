"""`sandbox_path`: every path lies in a mount whose mode allows the access."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from ...formats.escape import quote_untrusted
from ...formats.json_pointer import escape_pointer
from ...log.values import Call, Touch
from ...resources.mount_path import parse_path
from ...resources.url import Malformed
from ...tools.contract import Tool
from ..leaf import Leaf, Leaves, Policy, Question, Rule, Sample, Unreadable

# reported while a tool runs: the mount of the policy has no folder in this run
UNBOUND = "unbound mount"


class PathPoint(Struct, frozen=True):
    """A path that is to be opened.

    Attributes:
        mount: The mount.
        access: `read` or `write`.
        path: The whole path.
    """

    mount: str
    access: str
    path: str


class Mounts(Leaf[PathPoint]):
    """Mounts with their modes.

    Args:
        modes: The name of a mount and `read` or `write`; a mount for writing may be read too.
        is_for_all: Whether it holds for all tools.
    """

    def __init__(self, modes: Mapping[str, str] | None = None, *, is_for_all: bool = True) -> None:
        self.modes, self.is_for_all = dict(modes or {}), is_for_all

    def allows(self, point: PathPoint) -> bool:
        mode = self.modes.get(point.mount)
        return mode == "write" or (mode == "read" and point.access == "read")

    def entry(self, point: PathPoint) -> str:
        return f"/{point.mount}" if point.mount in self.modes else ""

    def beyond(self, old: Mounts) -> Iterator[tuple[str, PathPoint]]:
        for mount in self.modes:
            for access in ("read", "write"):
                point = PathPoint(mount, access, f"{mount}/example.txt")
                if self.allows(point) and not old.allows(point):
                    yield f"{mount}: {access}", point

    def larger(self, point: PathPoint) -> Mounts:
        return self._with({**self.modes, point.mount: point.access})

    def _with(self, modes: Mapping[str, str]) -> Mounts:
        return Mounts(modes, is_for_all=self.is_for_all)

    def meet(self, own: Mounts) -> Mounts:
        """Return what it allows of the mounts that a tool may use."""
        return Mounts({name: self.modes[name] for name in own.modes if name in self.modes})

    def changes(self) -> Iterator[tuple[str, Mounts]]:
        for mount, mode in self.modes.items():
            rest = {name: mode for name, mode in self.modes.items() if name != mount}
            yield f"{mount} dropped", self._with(rest)
            other = "read" if mode == "write" else "write"
            yield f"{mount}: {other}", self._with({**self.modes, mount: other})
        yield "another mount", self._with({**self.modes, "another": "read"})

    def data(self) -> dict[str, str] | list[str]:
        return self.modes if self.is_for_all else [*self.modes]


class SandboxPathRule(Rule):
    """Judges paths at the marked places of a call, and those that a tool opens."""

    id = "sandbox_path"
    grants = True
    judges = (Call, Touch)

    def leaves(self, policy: Policy, tool: str) -> Iterable[tuple[str, Mounts]]:
        yield "/sandbox/mounts", policy.mounts
        own = policy.tool_rules(tool).mounts
        if own is not None:
            yield f"/tools/{escape_pointer(tool)}/mounts", own

    def compared(self, policy: Policy, tool: Tool | None) -> Iterable[tuple[str, Mounts]]:
        if tool is not None and (tool.uses or any(it.kind.startswith("path:") for it in tool.places)):
            yield "/sandbox/mounts", usable(policy, tool.name)

    def points(self, question: Question, tool: Tool | None, leaves: Leaves) -> Iterator[Any]:
        about = question.about
        if type(about) is Touch:
            yield _point(about.path, about.access)
            if about.found == UNBOUND:
                mount = about.path.partition("/")[0]
                yield Unreadable(f"mount {quote_untrusted(mount)} is not part of this run")
            elif about.found != "":
                yield Unreadable(f"the path contains a {about.found}, which the sandbox does not follow")
        elif isinstance(about, Call) and tool is not None:
            for kind, text in tool.texts(about.arguments):
                if kind.startswith("path:"):
                    yield _point(text, kind.removeprefix("path:"))

    def reason(self, point: Any, leaf: Mounts, *, allowed: bool) -> str:
        mount = f"mount {quote_untrusted(point.mount)}"
        if allowed:
            return f"{mount} allows {point.access}"
        where = "sandbox.mounts" if leaf.is_for_all else "the mounts of this tool"
        return f"{mount} is read-only" if point.mount in leaf.modes else f"{mount} is not in {where}"

    def questions(self, point: PathPoint, sample: Sample) -> Iterator[Question]:
        yield Question(Touch(point.path, point.access), sample.tool)


def usable(policy: Policy, tool: str) -> Mounts:
    """Return what a tool may use: the mounts of the policy, as far as they are the tool's too."""
    own = policy.tool_rules(tool).mounts
    return policy.mounts if own is None else policy.mounts.meet(own)


def _point(text: str, access: str) -> PathPoint | Unreadable:
    if access not in ("read", "write"):
        return Unreadable("the access is unknown")
    try:
        path = parse_path(text)
    except Malformed as error:
        return Unreadable(f"malformed path: {error.reason}")
    return PathPoint(path.mount, access, path.text)
