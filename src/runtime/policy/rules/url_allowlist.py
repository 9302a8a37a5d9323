"""`url_allowlist`: every URL matches an entry for its method, and no address behind it is a private one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

from msgspec import Struct

from ...formats.escape import quote_untrusted
from ...formats.json_pointer import escape_pointer
from ...log.values import Call, Reach
from ...resources.networks import Networks as NetworkTable
from ...resources.url import Malformed, Target, parse_entry, parse_url, unambiguous
from ...tools.contract import Tool
from ..leaf import Leaf, Leaves, Policy, Question, Rule, Sample, Unreadable
from ..sections import METHODS, SAFE_METHODS

_EXAMPLE = parse_url("https://example.test/")


class UrlPoint(Struct, frozen=True):
    """A URL that is to be reached.

    Attributes:
        target: The URL.
        method: The HTTP method; "" while a call is proposed, when an entry for any method will do.
        address: An IP address of its host; "" where none is known yet.
    """

    target: Target
    method: str = ""
    address: str = ""


class Urls(Leaf[UrlPoint]):
    """URL prefixes with methods, found by origin and then by path prefix without a look at the others.

    Args:
        entries: Each a prefix, as a policy writes it, and the methods that it allows.
        is_for_all: Whether it holds for all tools; the prefixes of one tool are for any method.
    """

    def __init__(self, entries: Iterable[tuple[str, Iterable[str]]] = (), *, is_for_all: bool = True) -> None:
        self.is_for_all = is_for_all
        self.entries: dict[str, tuple[Target, frozenset[str]]] = {}
        self._written: dict[str, str] = {}
        self._origins: dict[tuple[str, str, int], dict[str, str]] = {}  # names of entries by path prefix
        self._longest = 0
        for index, (url, methods) in enumerate(entries):
            try:
                entry = parse_entry(url)
            except Malformed as error:
                raise Malformed(error.reason, index) from None
            name = entry.url
            held = self.entries.get(name, (entry, frozenset()))[1]
            self.entries[name] = entry, held | frozenset(methods)
            self._written.setdefault(name, url)
            self._origins.setdefault((entry.scheme, entry.host, entry.port), {})[entry.path] = name
            self._longest = max(self._longest, len(entry.path))

    def _match(self, point: UrlPoint) -> str | None:
        """Return the name of the entry that allows a point, that with the longest prefix; None where none does."""
        target, method = point.target, point.method
        prefixes = self._origins.get((target.scheme, target.host, target.port))
        if prefixes is None:
            return None
        path = target.path
        if prefixes.keys() != {"/"} and unambiguous(path):
            if path in prefixes and self._has(prefixes[path], method):
                return prefixes[path]
            at = path.rfind("/", 0, self._longest + 1)
            while at > 0:
                for candidate in (path[: at + 1], path[:at]):
                    if candidate in prefixes and self._has(prefixes[candidate], method):
                        return prefixes[candidate]
                at = path.rfind("/", 0, at)
        return prefixes["/"] if "/" in prefixes and self._has(prefixes["/"], method) else None

    def _has(self, name: str, method: str) -> bool:
        return not method or method in self.entries[name][1]

    def knows(self, target: Target) -> bool:
        """Return whether any entry is of the target's scheme, host and port."""
        return (target.scheme, target.host, target.port) in self._origins

    def _rebuilt(self, changes: dict[str, frozenset[str] | None]) -> Urls:
        held: dict[str, frozenset[str] | None] = {url: methods for url, (_, methods) in self.entries.items()}
        entries = [(url, methods) for url, methods in (held | changes).items() if methods]
        return Urls(entries, is_for_all=self.is_for_all)

    def allows(self, point: UrlPoint) -> bool:
        return self._match(point) is not None

    def entry(self, point: UrlPoint) -> str:
        url = self._match(point)
        return "" if url is None else f"/{escape_pointer(self._written[url])}"

    def beyond(self, old: Urls) -> Iterator[tuple[str, UrlPoint]]:
        # exact: no prefix is the union of finitely many longer ones
        for entry, methods in self.entries.values():
            points = [UrlPoint(entry, method) for method in sorted(methods)]
            more = [point for point in points if not old.allows(point)]
            for point in more:
                yield f"{', '.join(it.method for it in more)} {entry.url}", point

    def meet(self, other: Urls, methods: Iterable[str] = METHODS) -> Urls:
        """Return what it and another one allow, of some methods."""
        entries = []
        for mine, theirs in ((self, other), (other, self)):
            for url, (entry, held) in mine.entries.items():
                both = [it for it in methods if it in held and theirs.allows(UrlPoint(entry, it))]
                if both:
                    entries.append((url, both))
        return Urls(entries)

    def larger(self, point: UrlPoint) -> Urls | None:
        url, method = point.target.url.partition("?")[0], point.method or "GET"
        try:
            held = self.entries.get(parse_entry(url).url, (None, frozenset()))[1]
        except Malformed:  # a path that no prefix covers: only its whole host could be allowed
            return None
        return self._rebuilt({url: held | {method} if self.is_for_all else frozenset(METHODS)})

    def data(self) -> list[Any]:
        return [
            url
            if not self.is_for_all or methods == {*SAFE_METHODS}
            else {"url": url, "methods": sorted(methods)}
            for url, (_, methods) in self.entries.items()
        ]

    def changes(self) -> Iterator[tuple[str, Urls]]:
        for url, (entry, methods) in self.entries.items():
            yield f"{url} dropped", self._rebuilt({url: None})
            if entry.path != "/":
                yield f"{url} for its whole host", self._rebuilt({url: None, f"{entry.origin}/": methods})
            if self.is_for_all:
                yield f"POST changed for {url}", self._rebuilt({url: methods ^ {"POST"}})
        held = frozenset({"GET"} if self.is_for_all else METHODS)
        yield "an unlisted host", self._rebuilt({"https://unlisted.test/": held})


class Networks(Leaf[UrlPoint]):
    """Networks beside the public ones that an allowed host may resolve to, as CIDR.

    Args:
        cidrs: The networks.
    """

    def __init__(self, cidrs: Iterable[str] = ()) -> None:
        self.cidrs = (*dict.fromkeys(cidrs),)
        self._table = NetworkTable(self.cidrs)

    def allows(self, point: UrlPoint) -> bool:
        return point.address == "" or self._table.allows(point.address)

    def beyond(self, old: Networks) -> Iterator[tuple[str, UrlPoint | None]]:
        for cidr in self.cidrs:
            address = old._table.first_outside(cidr)
            if address is not None:
                is_shown = self._table.allows(address) and not old._table.allows(address)
                yield cidr, UrlPoint(_EXAMPLE, "", address) if is_shown else None

    def larger(self, point: UrlPoint) -> Networks | None:
        try:
            larger = Networks([*self.cidrs, f"{point.address}/{128 if ':' in point.address else 32}"])
        except Malformed:  # no address, or one with a zone
            return None
        return larger if larger.allows(point) else None

    def changes(self) -> Iterator[tuple[str, Networks]]:
        for cidr in self.cidrs:
            yield f"{cidr} dropped", Networks([other for other in self.cidrs if other != cidr])
        yield "one more private network", Networks([*self.cidrs, "172.16.0.0/12"])

    def data(self) -> list[str]:
        return [*self.cidrs]


class Methods(Leaf[UrlPoint]):
    """HTTP methods.

    Args:
        methods: The methods that are allowed.
        urls: The URLs that they are for, which tell what a method is needed for that is not known yet.
    """

    def __init__(self, methods: Iterable[str], urls: Urls) -> None:
        self.methods, self.urls = dict.fromkeys(methods), urls

    def allows(self, point: UrlPoint) -> bool:
        if point.method:
            return point.method in self.methods
        return any(self.urls.allows(UrlPoint(point.target, method)) for method in self.methods)

    def beyond(self, old: Methods) -> Iterator[tuple[str, UrlPoint]]:
        for method in self.methods:
            if method not in old.methods:
                yield method, UrlPoint(_EXAMPLE, method)

    def larger(self, point: UrlPoint) -> Methods | None:
        larger = (Methods([*self.methods, method], self.urls) for method in METHODS)
        return next((leaf for leaf in larger if leaf.allows(point)), None)

    def changes(self) -> Iterator[tuple[str, Methods]]:
        for method in METHODS:
            changed = [other for other in METHODS if (other in self.methods) != (other == method)]
            words = f"{method} {'dropped' if method in self.methods else 'added'}"
            yield words, Methods(changed, self.urls)

    def data(self) -> list[str]:
        return [*self.methods]


class UrlAllowlistRule(Rule):
    """Judges URLs at the marked places of a call, and those that a tool meets."""

    id = "url_allowlist"
    grants = True
    judges = (Call, Reach)

    def leaves(self, policy: Policy, tool: str) -> Iterable[tuple[str, Leaf[UrlPoint]]]:
        rules, place = policy.tool_rules(tool), f"/tools/{escape_pointer(tool)}"
        yield "/url_allowlist", policy.urls
        if rules.urls is not None:
            yield f"{place}/urls", rules.urls
        if rules.methods is not None:
            yield f"{place}/methods", rules.methods
        yield "/private_networks", policy.networks

    def compared(self, policy: Policy, tool: Tool | None) -> Iterable[tuple[str, Leaf[UrlPoint]]]:
        if tool is None or not ("get" in tool.uses or any(it.kind in ("url", "text") for it in tool.places)):
            return  # it meets no URL
        urls = reached(policy, tool.name)
        yield "/url_allowlist", urls
        yield "/private_networks", policy.networks if urls.entries else Networks()

    def points(self, question: Question, tool: Tool | None, leaves: Leaves) -> Iterator[Any]:
        about = question.about
        if type(about) is Reach:
            if about.method not in METHODS:
                yield Unreadable("the HTTP method is unknown")
            yield _point(about.url, about.method, about.address)
        elif isinstance(about, Call) and tool is not None:
            yield from (_point(text) for kind, text in tool.texts(about.arguments) if kind == "url")

    def reason(self, point: Any, leaf: Any, *, allowed: bool) -> str:
        origin = quote_untrusted(point.target.origin)
        if allowed:
            return f"{origin} is allowed"
        if isinstance(leaf, Networks):
            # the address itself is for the record, not for the model
            return f"{origin} resolves to an address that is not public"
        if isinstance(leaf, Methods):
            return f"{point.method or 'none that is allowed there'} is not a method that this tool may use"
        if leaf.allows(UrlPoint(point.target)):
            return f"{origin} is not allowed for {point.method}"
        return f"{origin}{' with this path' if leaf.knows(point.target) else ''} is not allowed"

    def questions(self, point: UrlPoint | None, sample: Sample) -> Iterator[Question]:
        if point is None:
            return
        targets = [(point.target.url, point.method)]
        if point.address:  # of whichever host
            entries = reached(sample.policy, sample.tool).entries.values()
            targets = [(entry.url, min(methods)) for entry, methods in islice(entries, 1)]
        for url, method in targets:
            yield Question(Reach(url, method, point.address), sample.tool)


def reached(policy: Policy, tool: str) -> Urls:
    """Return what a tool may reach: the policy's URLs, as far as they are the tool's too."""
    rules, urls = policy.tool_rules(tool), policy.urls
    if rules.urls is None and rules.methods is None:
        return urls
    return _met(urls, rules.urls or urls, METHODS if rules.methods is None else (*rules.methods.methods,))


@lru_cache(maxsize=64)  # asked of many tools that are narrowed alike, and of many networks
def _met(urls: Urls, own: Urls, methods: tuple[str, ...]) -> Urls:
    return urls.meet(own, methods)


def _point(text: str, method: str = "", address: str = "") -> UrlPoint | Unreadable:
    try:
        return UrlPoint(parse_url(text), method, address)
    except Malformed as error:
        return Unreadable(f"malformed URL: {error.reason}")
