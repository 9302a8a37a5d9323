"""What a tool can be called with, and what it can reach, under one policy or under several at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import cached_property
from itertools import islice
from typing import Any, Final

from ...runtime.core.effects import Call
from ...runtime.formats.canonical_json import Fragment, freeze
from ...runtime.formats.json_pointer import put
from ...runtime.policy.gate import DENY, Gate
from ...runtime.policy.policy import Policy
from ...runtime.policy.usage import Counters
from ...runtime.resources.mount_path import MAX_PART_BYTES, MAX_PATH_BYTES
from ...runtime.resources.url import MAX_URL, Target, parse_entry
from ...runtime.schema.schema_parts import of_item, of_key
from ...runtime.schema.tool_schema import shape
from ...runtime.tools.contract import Tool
from .constraints import KINDS, NEGATED, Schema, can_break, fits_plainly, kinds_of, listed_in, loosened
from .pattern_samples import texts_of
from .schema_instances import DEEP, WORLDS, Finder, Path, Wish, inner_of

CAN: Final = "can"
CANNOT: Final = "cannot"
UNSURE: Final = "unsure"  # no arguments were found, and none of the reasons that would rule them out

LIMITS: Final = frozenset((*KINDS, *NEGATED))
PLACES: Final = 2000
_TRIED: Final = 400  # arguments held against the gates in one search
KeyOf = Callable[[str], Hashable | None]
Texts = Callable[[int], list[str]]

_SEARCHES: Final = 64  # searches of one tool for one place
_HASTY: Final = 3  # where another event shows the same
_BROKEN: Final = 60  # limits of a tool that are tried


class Grants:
    """The URLs and mounts that all of some policies allow."""

    def __init__(self, policies: Iterable[Policy]) -> None:
        self.policies = tuple(policies)

    def targets(self) -> Iterator[Target]:
        """The broadest URLs allowed, one an entry; read as far as they are asked for."""
        texts = (text for policy in self.policies for text in policy.data.get("url_allowlist", ()))
        for target in map(target_of, texts):
            if all(policy.allowlist.match(target) is not None for policy in self.policies):
                yield target

    def urls(self, least: int) -> Iterator[str]:
        """URLs of at least so many characters: as entries have them, with a query where they are too short."""
        if least <= MAX_URL:
            for target in self.targets():
                yield from url_texts(target, least)

    def mounts(self, access: str) -> list[str]:
        first, *others = (policy.mounts for policy in self.policies)
        wanted = ("write",) if access == "write" else ("read", "write")
        return [
            name
            for name, mode in first.items()
            if mode in wanted and all(other.get(name) in wanted for other in others)
        ]

    def paths(self, access: str, least: int) -> Iterator[str]:
        return (text for mount in self.mounts(access) for text in path_texts(mount, least))


def target_of(text: str) -> Target:
    """An entry of an allowlist as a target: the broadest thing that it covers."""
    entry = parse_entry(text)
    return Target(entry.scheme, entry.host, entry.port, entry.prefix, None)


def targets_of(policy: Policy) -> list[Target]:
    """The entries of a policy's allowlist as targets."""
    return [target_of(text) for text in policy.data.get("url_allowlist", ())]


def url_texts(target: Target, least: int = 0) -> list[str]:
    """Spellings of a target of at least so many characters; a query changes nothing of what covers it."""
    url = target.url
    if len(url) < least:
        return [f"{url}?{'x' * (least - len(url) - 1)}"] if least <= MAX_URL else []
    return [url, target.origin] if target.path == "/" and len(target.origin) >= least else [url]


def path_texts(mount: str, least: int = 0) -> list[str]:
    """A path below a mount of at least so many characters."""
    if least > MAX_PATH_BYTES:
        return []
    text = f"{mount}/x"
    while len(text) < least:
        part = min(least - len(text), MAX_PART_BYTES - 1)
        text += "x" * part if len(text) + part >= least else f"{'x' * part}/x"
    return [text] if len(text) <= MAX_PATH_BYTES else []


class Caller:
    """One tool under the policies of some gates: the arguments that none of them denies."""

    def __init__(self, tool: Tool, gates: Iterable[Gate], grants: Grants | None = None) -> None:
        self.tool, self.gates = tool, tuple(gates)
        self.grants = grants or Grants(gate.policy for gate in self.gates)
        self._kinds: dict[Path, set[str]] = {}
        for resource in tool.resources:
            self._kinds.setdefault(resource.path, set()).add(resource.kind)
        self._templates: dict[Path, tuple[Fragment, str]] = {}
        self._worlds_at: dict[Path, list[list[Schema]]] = {}
        self._searches: dict[Path, int] = {}

    # ---- what it reaches -------------------------------------------------------------------------------

    @cached_property
    def asks_hosts(self) -> bool:
        """Whether it may follow redirects and connect to addresses, whatever its arguments name."""
        return self.tool.effect == "network" or (bool(self.places("url")) and self.tool.effect != "pure")

    def touches(self, access: str) -> bool:
        """Whether it may come upon paths that its arguments do not name, to read or to write them."""
        effects = ("write",) if access == "write" else ("read", "write")
        declared = self.places(f"path:{access}") or (access == "read" and self.places("path:write"))
        return self.tool.effect in effects or (bool(declared) and self.tool.effect != "pure")

    def places(self, kind: str) -> list[Path]:
        """Where its arguments hold resources of a kind."""
        return [path for path, kinds in self._kinds.items() if kind in kinds]

    # ---- whether it can be called ----------------------------------------------------------------------

    @cached_property
    def state(self) -> str:
        """CAN, CANNOT or UNSURE: whether there are arguments that no gate denies."""
        for gate in self.gates:
            policy, name = gate.policy, self.tool.name
            room = (
                policy.limits["max_tool_calls"] and policy.limits["max_result_bytes"] and policy.max_repeats
            )
            if name not in policy.allowed or name not in gate.tools or not room:
                return CANNOT
        if self.arguments is not None:
            return CAN
        finder = self._finders[-1]
        return CANNOT if self._blocked(finder, [finder.document.root], ()) else UNSURE

    @cached_property
    def arguments(self) -> dict[str, Any] | None:
        """The simplest arguments found that no gate denies."""
        return self.found(None)

    @cached_property
    def _finders(self) -> list[Finder]:
        """For the schema as it stands, and for its shape where that is what all policies hold arguments to."""
        strict = any(gate.policy.strict_arguments for gate in self.gates)
        schemas = [dict(self.tool.input_schema)] + ([] if strict else [shape(self.tool.input_schema)])
        return [Finder(schema, self._offers) for schema in schemas]

    def _offers(self, path: Path, least: int) -> Iterable[str] | None:
        kinds = self._kinds.get(path)
        if kinds is None:
            return None
        if "url" in kinds:
            return self.grants.urls(least) if kinds == {"url"} else ()
        return self.grants.paths("write" if "path:write" in kinds else "read", least)

    def permits(self, arguments: dict[str, Any]) -> bool:
        """Whether no gate denies a first call with these arguments."""
        call = Call("tc_1_0", self.tool.name, freeze(arguments))
        return all(gate.decide(call, Counters()).decision != DENY for gate in self.gates)

    def found(
        self,
        wish: Wish | None,
        wanted: Callable[[dict[str, Any]], bool] = lambda _: True,
        finders: list[Finder] | None = None,
    ) -> dict[str, Any] | None:
        """Arguments as wished that no gate denies; such as fit the schema as it stands, if there are any."""
        for finder in finders or self._finders:
            whole = finders is None and finder is self._finders[0]
            for arguments in islice(finder.arguments(wish), _TRIED):
                if wanted(arguments) and self.permits(arguments) and not (whole and self._misfits(arguments)):
                    return arguments
        return None

    def _misfits(self, arguments: dict[str, Any]) -> bool:
        return not self.tool.input_validator.accepts(arguments)

    def _blocked(self, finder: Finder, schemas: list[Any], path: Path) -> bool:
        """Whether nothing can stand at a place, since a resource has to and none is granted."""
        if not any(place[: len(path)] == path for place in self._kinds):
            return False
        worlds = list(finder.worlds(schemas))
        return len(worlds) < WORLDS and all(self._blocked_in(finder, world, path) for world in worlds)

    def _blocked_in(self, finder: Finder, world: list[Schema], path: Path) -> bool:
        kinds = kinds_of(world)
        if path in self._kinds and kinds == {"string"}:
            return self._cannot_hold(world, path)
        if kinds == {"object"}:
            names = dict.fromkeys(name for schema in world for name in schema.get("required", ()))
            declared = {name for schema in world for name in schema.get("properties", ())}
            return any(
                self._blocked(finder, [sub for s in world for sub in of_key(s, name)], (*path, name))
                for name in names
                if name in declared
            )
        if kinds == {"array"} and any(schema.get("minItems", 0) for schema in world):
            step = "0" if any(schema.get("prefixItems") for schema in world) else "*"
            return self._blocked(finder, [sub for s in world for sub in of_item(s, 0)], (*path, step))
        return False

    def _cannot_hold(self, world: list[Schema], path: Path) -> bool:
        listed = listed_in(world)
        if listed is not None:
            texts = (text for text in listed if isinstance(text, str) and fits_plainly(text, world))
            return not any(self._granted(text, path) for text in texts)
        least = max((schema.get("minLength", 0) for schema in world), default=0)
        offered = self._offers(path, int(least)) or ()
        if any("pattern" in schema for schema in world):
            return next(iter(offered), None) is None
        return not any(fits_plainly(text, world) for text in offered)

    def _granted(self, text: str, path: Path) -> bool:
        """Whether every gate lets a text pass at a place, as far as the resource itself goes."""
        for kind in self._kinds[path]:
            rule, _, access = kind.partition(":")
            check = {"rule": "url_allowlist", "target": text, "hop": 0}
            if rule == "path":
                check = {"rule": "sandbox_path", "path": text, "access": access}
            if any(gate.decide_late(check).decision == DENY for gate in self.gates):
                return False
        return True

    # ---- beyond its schema's limits --------------------------------------------------------------------

    @property
    def has_limits(self) -> bool:
        """Whether its schema refuses, or may refuse, what its shape lets pass."""
        return bool(self.limits) or loosened(self._finders[0].document.root)

    @cached_property
    def limits(self) -> list[tuple[Path, str, int]]:
        """(place, keyword, cost) of what its schema limits and its shape does not, the cheapest to break first."""
        return _limits_of(self._finders[0], self._breakable)

    def _breakable(self, path: Path, world: list[Schema], keyword: str, limit: Any) -> bool:
        """Whether some value breaks a limit, as far as is known; of a resource, one that is granted."""
        if not can_break(world, keyword, limit):
            return False
        kinds = self._kinds.get(path)
        if kinds is None or keyword not in ("minLength", "maxLength"):
            return True
        if keyword == "maxLength":
            return bool(limit < (MAX_URL if "url" in kinds else MAX_PATH_BYTES))
        return any(len(text) < limit for text in self._offers(path, 0) or ())

    def beyond_limits(self) -> dict[str, Any] | None:
        """Arguments that no gate denies and that fit the schema's shape only."""
        wishes = (Wish(path, broken=keyword) for path, keyword, _ in self.limits)
        tried = (
            self.found(wish, self._misfits, finders=self._finders[:1]) for wish in islice(wishes, _BROKEN)
        )
        found = next((arguments for arguments in tried if arguments is not None), None)
        return found or self.found(None, self._misfits, finders=self._finders)

    # ---- with a certain resource -----------------------------------------------------------------------

    def holding(
        self, kind: str, texts: Texts, key: Hashable, key_of: KeyOf, *, thorough: bool = True
    ) -> tuple[dict[str, Any] | None, bool]:
        """Arguments that name a certain resource, and whether it is known that there are none else.

        `texts` gives spellings of at least some length, `key_of` says which resource a text names, `key` is the
        one wanted. A search that is not `thorough` is given up where it failed a few times.
        """
        sure = True
        for path in self.places(kind):
            found = self._from_template(path, texts(0))
            if found is not None:
                return found, True
            self._searches[path] = self._searches.get(path, 0) + 1
            if self._searches[path] > (_SEARCHES if thorough else _HASTY):
                return None, False
            found, known = self._search(path, texts, key, key_of)
            if found is not None:
                return found, True
            sure = sure and known
        return None, sure

    def _from_template(self, path: Path, texts: list[str]) -> dict[str, Any] | None:
        """What was found before for another text, with this one in its place."""
        if path not in self._templates:
            return None
        template, pointer = self._templates[path]
        arguments = template.value()
        put(arguments, pointer, texts[0])
        return arguments if self.permits(arguments) else None

    def _search(
        self, path: Path, texts: Texts, key: Hashable, key_of: KeyOf
    ) -> tuple[dict[str, Any] | None, bool]:
        worlds = self._worlds(path)
        lists = [listed_in(world) for world in worlds]
        held = [text for listed in lists for text in listed or () if isinstance(text, str)]
        fitting = [text for text in held if key_of(text) == key]
        tried = list(dict.fromkeys([*fitting, *texts(0), *_derived(worlds, texts)]))

        def named(arguments: dict[str, Any]) -> Iterator[str]:
            return (pointer for pointer, text in self._find(path, arguments) if key_of(text) == key)

        found = self.found(
            Wish(path, tuple(tried)), lambda arguments: next(named(arguments), None) is not None
        )
        if found is not None:
            self._templates.setdefault(path, (freeze(found), next(named(found))))
            return found, True
        return None, len(worlds) < WORLDS and not any(
            fits_plainly(text, world) or ("pattern" in schema and listed is None)
            for world, listed in zip(worlds, lists, strict=True)
            for text in (tried if listed is None else fitting)
            for schema in world
        )

    def _worlds(self, path: Path) -> list[list[Schema]]:
        if path not in self._worlds_at:
            self._worlds_at[path] = self._finders[-1].worlds_at(path)
        return self._worlds_at[path]

    def _find(self, path: Path, arguments: dict[str, Any]) -> Iterator[tuple[str, str]]:
        for resource in self.tool.resources:
            if resource.path == path:
                yield from resource.find(arguments)


def _derived(worlds: list[list[Schema]], texts: Texts) -> list[str]:
    """Longer texts that name the same, and such as the patterns of a place ask for."""
    out: list[str] = []
    for world in worlds:
        out += texts(int(max((schema.get("minLength", 0) for schema in world), default=0)))
        samples = [text for s in world if "pattern" in s for text in texts_of(s["pattern"])]
        out += [f"{text}{way}{sample}" for sample in samples for text in texts(0) for way in ("", "x", "/x")]
        out += samples
    return out


def _limits_of(
    finder: Finder, breakable: Callable[[Path, list[Schema], str, Any], bool]
) -> list[tuple[Path, str, int]]:
    """(place, keyword, cost) of each limit that arguments can break, the cheapest first."""
    found: dict[tuple[Path, str], int] = {}
    left: list[tuple[list[Any], Path]] = [([finder.document.root], ())]
    seen: set[tuple[tuple[int, ...], Path]] = set()
    while left and len(seen) < PLACES:
        schemas, path = left.pop(0)
        key = (tuple(map(id, schemas)), path)
        if key in seen or len(path) > DEEP:
            continue
        seen.add(key)
        for world in finder.worlds(schemas):
            for schema in world:
                for keyword in LIMITS & schema.keys():
                    if breakable(path, world, keyword, schema[keyword]):
                        costs = keyword in ("maxLength", "maxItems", "maxProperties", "maxContains")
                        found.setdefault((path, keyword), int(schema[keyword]) if costs else 0)
            left += inner_of(world, path)
    return sorted(((path, keyword, cost) for (path, keyword), cost in found.items()), key=_by_cost)


def _by_cost(limit: tuple[Path, str, int]) -> tuple[int, int, Path, str]:
    path, keyword, cost = limit
    return cost, len(path), path, keyword
