"""The URLs and mounts that policies allow to every tool, or to one with rules of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...runtime.policy.per_tool.tool_reach import KEYS, reach_of
from ...runtime.policy.policy import Policy
from ...runtime.resources.http_methods import METHODS, url_text
from ...runtime.resources.mount_path import MAX_PART_BYTES, MAX_PATH_BYTES
from ...runtime.resources.url import MAX_URL, Target, parse_entry


class Grants:
    """The URLs and mounts that all of some policies allow: to every tool or, with its name, to one."""

    def __init__(self, policies: Iterable[Policy], tool: str = "") -> None:
        self.policies = tuple(policies)
        self._reaches = [ToolPolicy(policy, tool) for policy in self.policies]

    def texts(self, kinds: set[str], least: int) -> Iterator[str]:
        """Yield texts of at least `least` characters for a place with these resources."""
        if "url" in kinds:
            if kinds == {"url"} and least <= MAX_URL:
                yield from (text for target in self._targets() for text in url_texts(target, least))
            return
        modes = ("write",) if "path:write" in kinds else ("read", "write")
        for mount in self.policies[0].mounts:
            if all(reach.mode(mount) in modes for reach in self._reaches):
                yield from path_texts(mount, least)

    def _targets(self) -> Iterator[Target]:
        """Yield the broadest URLs allowed, one for each entry."""
        for target in (target for reach in self._reaches for target in reach.targets()):
            if all(reach.allows(target, None) for reach in self._reaches):
                yield target


class ToolPolicy:
    """What a policy allows one tool to reach, with the rules on that tool; every tool without a name."""

    def __init__(self, policy: Policy, tool: str) -> None:
        self.policy = policy
        self.rules = policy.tool_rules.get(tool, {})
        self._limits = reach_of(self.rules)

    def allows(self, target: Target, method: str | None) -> bool:
        """Return whether a URL may be reached with a method; None where any method does."""
        if method is None:
            return any(self.allows(target, each) for each in METHODS)
        return self.policy.allowlist.match(target, method) is not None and self._limits.allows_url(
            target, method
        )

    def targets(self) -> Iterator[Target]:
        """Yield targets, the broadest of all that is allowed among them: whoever reaches more reaches one of them."""
        entries = [url_text(entry) for entry in self.policy.data.get("url_allowlist", ())]
        yield from (target_of(text) for text in (*entries, *self.rules.get("urls", ())))

    def mode(self, mount: str) -> str | None:
        """Return the mode of a mount, None for one that is shut."""
        return self.policy.mounts.get(mount) if self._limits.allows_mount(mount) else None


def is_narrowed(policy: Policy, tool: str) -> bool:
    """Return whether a policy has rules on what a tool may reach."""
    return any(key in policy.tool_rules.get(tool, {}) for key in KEYS)


def target_of(text: str) -> Target:
    """Return the broadest target that an entry of an allowlist covers."""
    return parse_entry(text).target


def url_texts(target: Target, least: int = 0) -> list[str]:
    """Return spellings of a target with at least `least` characters; a query does not change what covers it."""
    url = target.url
    if len(url) < least:
        return [f"{url}?{'x' * (least - len(url) - 1)}"] if least <= MAX_URL else []
    return [url, target.origin] if target.path == "/" and len(target.origin) >= least else [url]


def path_texts(mount: str, least: int = 0) -> list[str]:
    """Return a path below a mount with at least `least` characters, if there is one."""
    if least > MAX_PATH_BYTES:
        return []
    text = f"{mount}/x"
    while len(text) < least:
        part = min(least - len(text), MAX_PART_BYTES - 1)
        text += "x" * part if len(text) + part >= least else f"{'x' * part}/x"
    return [text] if len(text) <= MAX_PATH_BYTES else []
