"""Rules on what single tools may reach that cannot be read or decide nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...formats.escape import quote_literal
from ...formats.json_pointer import escape_pointer
from ...resources.http_methods import SAFE_METHODS, UrlEntry, methods_of, url_text
from ...resources.url import Entry, Malformed, parse_entry
from ...schema.schema_errors import did_you_mean
from ...tools.contract import Tool
from ..consistency import Checked
from .request_rules import PARTS
from .tool_reach import KEYS


class AllowedUrls:
    """The URLs of a policy's allowlist with their methods, found by origin."""

    def __init__(self, items: Iterable[UrlEntry]) -> None:
        self.methods: set[str] = set()
        self._by_origin: dict[tuple[str, str, int], list[tuple[Entry, tuple[str, ...]]]] = {}
        for item in items:
            entry, methods = parse_entry(url_text(item)), methods_of(item)
            self.methods.update(methods)
            self._by_origin.setdefault((entry.scheme, entry.host, entry.port), []).append((entry, methods))

    def methods_within(self, entry: Entry) -> set[str]:
        """Return the methods that are allowed for any URL that an entry covers."""
        others = self._by_origin.get((entry.scheme, entry.host, entry.port), ())
        return {method for other, methods in others if entry.meets(other) for method in methods}


def check_urls_of(policy: Checked, tool: str) -> None:
    """Refuse URLs of a tool that cannot be read, and such as another of them covers. Raises PolicyError."""
    texts = policy.tool_rules[tool].get("urls", ())
    entries: list[Entry] = []
    for i, text in enumerate(texts):
        try:
            entries.append(parse_entry(text))
        except Malformed as error:
            raise policy.error(
                f"/tools/{escape_pointer(tool)}/urls/{i}",
                f"malformed entry: {error.reason}",
                "write scheme://host[:port][/path-prefix]",
            ) from None
    for i, entry in enumerate(entries):
        wider = (j for j, other in enumerate(entries) if other.covers(entry) and (other != entry or j < i))
        by = next(wider, None)
        if by is not None:
            raise policy.error(
                f"/tools/{escape_pointer(tool)}/urls/{i}",
                f"this entry never applies, since {quote_literal(texts[by])} covers it",
                "remove one of the two",
            )


def check_reach(policy: Checked) -> None:
    """Refuse URLs, methods and mounts of tools that no other section allows to any tool. Raises PolicyError."""
    allowed = AllowedUrls(policy.data.get("url_allowlist", ()))
    for tool, rules in policy.tool_rules.items():
        place = f"/tools/{escape_pointer(tool)}"
        within = [allowed.methods_within(parse_entry(text)) for text in rules.get("urls", ())]
        for i, methods in enumerate(within):
            _check_url(policy, f"{place}/urls/{i}", methods, rules.get("methods", SAFE_METHODS))
        known = set().union(*within) if "urls" in rules else allowed.methods
        for i, method in enumerate(rules.get("methods", ())):
            if method not in known:
                raise policy.error(
                    f"{place}/methods/{i}",
                    f"{method} never applies, since url_allowlist allows it for no URL of {tool!r}",
                    "add it there, or remove it here",
                )
        for i, mount in enumerate(rules.get("mounts", ())):
            if mount not in policy.mounts:
                raise policy.error(
                    f"{place}/mounts/{i}",
                    f"{mount!r} is not in sandbox.mounts",
                    did_you_mean(mount, policy.mounts) or "add it there, or remove it here",
                )


def _check_url(policy: Checked, place: str, allowed: set[str], sent: Sequence[str]) -> None:
    """Refuse a URL of a tool for which the allowlist allows no method that the tool may send. Raises PolicyError."""
    if not allowed:
        message, remedy = "url_allowlist allows nothing of it", "add it there, or remove it here"
    elif not allowed.intersection(sent):
        message = f"url_allowlist allows it with {', '.join(sorted(allowed))} only"
        remedy = "name one of them in methods"
    else:
        return
    raise policy.error(place, f"this entry never applies, since {message}", remedy)


def check_reaching(policy: Checked, tool: Tool) -> None:
    """Refuse rules on what a tool may reach if it reaches for nothing of the kind. Raises PolicyError."""
    rules = policy.tool_rules.get(tool.name, {})
    kinds = {resource.kind.partition(":")[0] for resource in tool.resources}
    uses = {use.partition(":")[0] for use in tool.uses}
    for key in (key for key in (*KEYS, *PARTS) if key in rules):
        if key in PARTS:
            used, what = "request" in uses, "sends no requests"
        elif key == "mounts":
            used, what = (
                "path" in kinds or bool({"read", "write", "list"} & uses),
                "reads and writes no files",
            )
        else:
            used, what = "url" in kinds or bool({"get", "request"} & uses), "reaches no host"
        if not used:
            raise policy.error(
                f"/tools/{escape_pointer(tool.name)}/{key}",
                f"these {key if key in KEYS else 'conditions'} never apply, since {tool.name!r} {what}",
                "remove them",
            )
