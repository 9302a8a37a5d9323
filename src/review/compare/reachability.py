"""What a tool can be called with and reach under one policy, or under several at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cached_property
from itertools import islice, zip_longest
from typing import Any, Final

from jsonschema_rs import CanonicalSchema
from jsonschema_rs import canonical as forms

from ...runtime.core.effects import Call
from ...runtime.formats.canonical_json import Fragment, freeze
from ...runtime.formats.json_pointer import put
from ...runtime.policy.gate import DENY, Gate
from ...runtime.policy.per_tool.argument_rules import conditions_of
from ...runtime.policy.policy import Policy
from ...runtime.policy.usage import Counters
from ...runtime.resources.http_methods import METHODS
from ...runtime.resources.mount_path import MAX_PATH_BYTES
from ...runtime.resources.url import MAX_URL, Target
from ...runtime.schema.dialect import shape
from ...runtime.tools.contract import Tool
from ..queries.witness import Arguments
from .grants import Grants, ToolPolicy, is_narrowed
from .pattern_samples import pattern_samples
from .schema_algebra import Path, Schema, at_path, both, canonical, is_empty, judge, less, nodes_at
from .schema_instances import InstanceGenerator
from .time_windows import ALWAYS, moment_of

KeyOf = Callable[[str], Hashable | None]
Texts = Callable[[int], list[str]]
TextsAt = dict[Path, list[str]]

_TRIED: Final = 400  # arguments that one search asks the gates about
_TEXTS: Final = 48  # texts that are tried at one place
_FEW: Final = 3  # texts that a pattern's samples are put behind


class Reachable(StrEnum):
    """Whether some arguments reach something. `UNKNOWN`: none were found, and nothing rules them out."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class ToolReach:
    """One tool under the policies of some gates: the arguments that none of them denies."""

    def __init__(self, tool: Tool, gates: Iterable[Gate], grants: Grants | None = None) -> None:
        self.tool, self.gates, self.name = tool, tuple(gates), tool.name
        self._grants = grants or Grants(gate.policy for gate in self.gates)
        self._kinds: dict[Path, set[str]] = {}
        for resource in tool.resources:
            self._kinds.setdefault(resource.path, set()).add(resource.kind)
        self._templates: dict[Path, tuple[Fragment, str]] = {}

    # ---- what it reaches -------------------------------------------------------------------------------

    @cached_property
    def follows_hosts(self) -> bool:
        """Whether it may follow redirects and connect to addresses, whatever its arguments name."""
        return "get" in self.tool.uses or (bool(self.places("url")) and self.tool.effect != "pure")

    def method_of(self, methods: Iterable[str]) -> str | None:
        """Return the first of some methods of HTTP that it may send, None if it may send none of them."""
        return next((method for method in methods if f"request:{method}" in self.tool.uses), None)

    def touches(self, access: str) -> bool:
        """Return whether it may read, or write, paths that its arguments do not name."""
        declared = self.places(f"path:{access}") or (access == "read" and self.places("path:write"))
        return access in self.tool.uses or (bool(declared) and self.tool.effect != "pure")

    def places(self, kind: str) -> list[Path]:
        """Return where its arguments hold resources of a kind."""
        return [path for path, kinds in self._kinds.items() if kind in kinds]

    # ---- whether it can be called ----------------------------------------------------------------------

    @cached_property
    def callable(self) -> Reachable:
        """Whether there are arguments that no gate denies."""
        for gate in self.gates:
            policy = gate.policy
            room = (
                policy.limits["max_tool_calls"] and policy.limits["max_result_bytes"] and policy.max_repeats
            )
            if not room or self.tool.name not in policy.allowed or self.tool.name not in gate.tools:
                return Reachable.NO
        if self.arguments is not None:
            return Reachable.YES
        return Reachable.NO if is_empty(self._limited(self._widest)) else Reachable.UNKNOWN

    @cached_property
    def arguments(self) -> Arguments | None:
        """The simplest arguments found that no gate denies; such as fit the whole schema, if there are any."""
        candidates = (self._search(with_texts(schema, texts), texts) for schema, texts in self._schemas)
        return next((arguments for arguments in candidates if arguments is not None), None)

    @cached_property
    def _strict(self) -> bool:
        return any(gate.policy.strict_arguments for gate in self.gates)

    @cached_property
    def _whole(self) -> CanonicalSchema | None:
        return both(canonical(dict(self.tool.input_schema)), self._conditions)

    @cached_property
    def _widest(self) -> CanonicalSchema | None:
        """What some policy holds arguments to: the schema, or its shape if no policy is strict."""
        if self._strict:
            return self._whole
        return both(canonical(shape(dict(self.tool.input_schema))), self._conditions)

    @cached_property
    def _conditions(self) -> CanonicalSchema | None:
        """What all policies demand of its arguments."""
        return canonical({"allOf": [conditions_of(gate.policy, self.tool) for gate in self.gates]})

    @cached_property
    def _schemas(self) -> list[tuple[CanonicalSchema | None, TextsAt]]:
        """The schema and then its shape, where that is enough, with texts to try at places of resources."""
        schemas = dict.fromkeys((self._whole, self._widest))
        return [
            (s, {path: self._fitting(s, path, self._offers(path)) for path in self._kinds}) for s in schemas
        ]

    def permits(self, arguments: Arguments) -> bool:
        """Return whether no gate denies a first call with these arguments."""
        call = Call("tc_1_0", self.tool.name, freeze(arguments))
        counters = Counters(local_times=self.local_times)
        return all(gate.decide(call, counters).decision != DENY for gate in self.gates)

    @cached_property
    def local_times(self) -> dict[str, str]:
        """A time at which all gates let it be called, if one is found."""
        return moment_of((gate.policy for gate in self.gates), self.name) or ALWAYS

    def _search(
        self,
        schema: CanonicalSchema | None,
        texts: TextsAt,
        accepts: Callable[[Arguments], bool] = lambda _: True,
    ) -> Arguments | None:
        """Return arguments that a schema admits and no gate denies, if some are found."""
        if schema is None:
            return None
        generator = InstanceGenerator(text for known in texts.values() for text in known)
        for arguments in islice(generator.values(schema), _TRIED):
            if isinstance(arguments, dict) and accepts(arguments) and self.permits(arguments):
                return arguments
        return None

    # ---- resources in its arguments --------------------------------------------------------------------

    def _offers(self, path: Path) -> Iterator[str]:
        """Yield granted texts for a place: listed ones, and such as keep its limits or just break them."""
        yield from (text for text in self._listed(path) if self._is_granted(text, path))
        lengths, patterns = self._facets(path)
        offers = [self._grants.texts(self._kinds[path], length) for length in lengths]
        few = islice(self._grants.texts(self._kinds[path], 0), _FEW)
        for texts in zip_longest(*offers, _sampled(patterns, few)):
            yield from (text for text in texts if text is not None)

    def _fitting(self, schema: CanonicalSchema | None, path: Path, texts: Iterable[str]) -> list[str]:
        """Return the first of some texts that may stand at a place."""
        checks = [judge(node) for node in _nodes(schema, path) if node is not None]
        fitting = (text for text in texts if not checks or any(check(text) for check in checks))
        return list(dict.fromkeys(islice(fitting, _TEXTS)))

    def _listed(self, path: Path) -> list[str]:
        """Return the texts that lists of values name at a place."""
        out: list[Any] = []
        for node in _nodes(self._whole, path):
            match node and node.view():
                case forms.ConstView(value):
                    out.append(value)
                case forms.EnumView(values):
                    out += values
        return [value for value in out if isinstance(value, str)]

    def _facets(self, path: Path) -> tuple[list[int], list[str]]:
        """Return the lengths that keep or just break the limits of texts at a place, and their patterns."""
        views = [
            view
            for node in _nodes(self._whole, path)
            if isinstance(view := node and node.view(), forms.StringView)
        ]
        lengths = [view.min_length or 0 for view in views]
        if not self._strict:
            lengths += [view.max_length + 1 for view in views if view.max_length is not None]
        return list(dict.fromkeys([0, *lengths])), [pattern for view in views for pattern in view.patterns]

    def _is_granted(self, text: str, path: Path) -> bool:
        """Return whether every gate lets a text pass at a place, as far as the resource itself goes."""
        for kind in self._kinds[path]:
            rule, _, access = kind.partition(":")
            check = {"rule": "url_allowlist", "target": text, "hop": 0}
            if rule == "path":
                check = {"rule": "sandbox_path", "path": text, "access": access}
            if any(gate.decide_late(check, self.name).decision == DENY for gate in self.gates):
                return False
        return True

    def _limited(self, schema: CanonicalSchema | None) -> CanonicalSchema | None:
        """Return what a schema admits at most, given that some resources are granted nowhere."""
        for path, kinds in self._kinds.items():
            refused = [text for text in self._listed(path) if not self._is_granted(text, path)]
            granted = [*self._grants.texts(kinds, 0), *set(self._listed(path)).difference(refused)]
            schema = both(schema, canonical(at_path(path, _window(kinds, granted, refused))))
        return schema

    # ---- beyond the limits of its schema ---------------------------------------------------------------

    @cached_property
    def beyond_limits(self) -> tuple[Reachable, Arguments | None]:
        """Whether there are arguments that no gate denies and that fit only the schema's shape; and such."""
        if self.callable == Reachable.NO:
            return Reachable.NO, None
        schema, texts = self._schemas[-1]
        beyond = less(schema, self._whole)
        arguments = self._search(
            with_texts(beyond, texts),
            texts,
            lambda candidate: not self.tool.input_validator.accepts(candidate),
        )
        if arguments is not None:
            return Reachable.YES, arguments
        return Reachable.NO if is_empty(self._limited(beyond)) else Reachable.UNKNOWN, None

    # ---- with a certain resource -----------------------------------------------------------------------

    def naming(
        self, kind: str, texts: Texts, key: Hashable, key_of: KeyOf
    ) -> tuple[Reachable, Arguments | None]:
        """Return whether arguments can name a certain resource, and such arguments.

        Args:
            kind: Kind of the resource.
            texts: Gives spellings of the resource with at least some length.
            key: The resource that is wanted, as `key_of` returns it.
            key_of: Returns which resource a text names.
        """
        answer = Reachable.NO
        for path in self.places(kind):
            arguments = self._from_template(path, texts(0)) or self._search_naming(path, texts, key, key_of)
            if arguments is not None:
                return Reachable.YES, arguments
            if self._may_name(path, texts, key, key_of):
                answer = Reachable.UNKNOWN
        return answer, None

    def _from_template(self, path: Path, texts: list[str]) -> Arguments | None:
        """Return the arguments found before for another text, with this one in its place."""
        if path not in self._templates:
            return None
        template, pointer = self._templates[path]
        arguments = template.value()
        put(arguments, pointer, texts[0])
        return arguments if self.permits(arguments) else None

    def _search_naming(self, path: Path, texts: Texts, key: Hashable, key_of: KeyOf) -> Arguments | None:
        lengths, patterns = self._facets(path)
        tried = [text for text in self._listed(path) if key_of(text) == key]
        tried += [*(text for length in lengths for text in texts(length)), *_sampled(patterns, texts(0))]
        tried = [text for text in tried if key_of(text) == key]

        def pointers(arguments: Arguments) -> Iterator[str]:
            held = (pair for r in self.tool.resources if r.path == path for pair in r.find(arguments))
            return (pointer for pointer, text in held if key_of(text) == key)

        for schema, known in self._schemas:
            fitting = self._fitting(schema, path, tried)
            if not fitting:
                continue
            others = {place: texts for place, texts in known.items() if place != path}
            wish = canonical(at_path(path, {"enum": fitting}, present=True))
            wish = both(with_texts(schema, others), wish)
            found = self._search(wish, {path: fitting, **others}, lambda arguments: any(pointers(arguments)))
            if found is not None:
                self._templates.setdefault(path, (freeze(found), next(pointers(found))))
                return found
        return None

    def _may_name(self, path: Path, texts: Texts, key: Hashable, key_of: KeyOf) -> bool:
        """Return whether nothing rules out that a place names a certain resource."""
        listed = self._listed(path)
        others = [text for text in listed if key_of(text) != key]
        granted = [*texts(0), *set(listed).difference(others)]
        place = canonical(_window(self._kinds[path], granted, others, optional=False))
        return not all(is_empty(both(node, place)) for node in _nodes(self._widest, path))


def hop_to(tool: ToolReach, target: Target, hop: int | None = None) -> Arguments:
    """Return the fact that a tool meets a target: as a redirect if its arguments name another one."""
    if hop is None:
        hop = 1 if tool.places("url") else 0
    return {"rule": "url_allowlist", "target": target.url, "hop": hop}


def senders_of(policy: Policy, tools: Sequence[ToolReach]) -> dict[Target, tuple[ToolReach, str | None]]:
    """Return for each entry's target a tool that may connect to it, and the method where that is not GET."""
    senders: dict[Target, tuple[ToolReach, str | None]] = {}
    narrowed = [tool for tool in tools if is_narrowed(policy, tool.name)]
    others = [tool for tool in tools if tool not in narrowed]
    for name, alike in (("", others), *((tool.name, [tool]) for tool in narrowed)):
        reach = ToolPolicy(policy, name)
        for target in reach.targets() if alike else ():
            allowed = [method for method in METHODS if reach.allows(target, method)]
            for tool in alike:
                method = None if "GET" in allowed else tool.method_of(allowed)
                if "GET" in allowed or method is not None:
                    senders.setdefault(target, (tool, method))
    return senders


def with_texts(schema: CanonicalSchema | None, texts: TextsAt) -> CanonicalSchema | None:
    """Return what a schema admits with one of some texts, or null, at each of some places."""
    for path, known in texts.items():
        schema = both(schema, canonical(at_path(path, {"enum": [*known, None]})))
    return schema


def _nodes(schema: CanonicalSchema | None, path: Path) -> list[CanonicalSchema | None]:
    """Return schemas of the values at a place; None is one of which nothing is known."""
    return [None] if schema is None else list(nodes_at(schema, path))


def _window(kinds: set[str], granted: list[str], refused: list[str], *, optional: bool = True) -> Schema:
    """Return a schema that admits at least the texts that are granted, and null if `optional`."""
    if not granted:
        return {"type": "null"} if optional else {"not": {}}
    longest = MAX_URL if "url" in kinds else MAX_PATH_BYTES
    text = {"type": "string", "minLength": min(map(len, granted)), "maxLength": longest}
    return {"anyOf": [{**text, "not": {"enum": refused}}, *([{"type": "null"}] if optional else [])]}


def _sampled(patterns: list[str], texts: Iterable[str]) -> Iterator[str]:
    """Yield texts that patterns may match: samples of them, behind each text and by themselves."""
    samples = [sample for pattern in patterns for sample in pattern_samples(pattern)]
    yield from (f"{text}{way}{sample}" for text in texts for way in ("", "x", "/x") for sample in samples)
    yield from samples
