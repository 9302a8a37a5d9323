"""The resources that an input schema declares, and the refusal of every schema that could hide one.

The walk goes from place to place in the arguments. At each meet all schemas that a value there has to fit; what
none of them rules out, the arguments may hold. Free text is let be where type and name say nothing of a resource.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from ...fail.errors import ToolError
from ..formats.escape import inert
from ..formats.json_pointer import escape_pointer
from .resource_names import is_called_resource, is_part_name, looks_like_resource
from .schema_parts import TYPES, Document, may_be, of_item, of_key, parts

RESOURCES: Final = ("url", "path:read", "path:write", "none")
_MAX_PLACES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Resource:
    """A place in the arguments that holds a resource: `path` of property names, `*` for any key or item."""

    path: tuple[str, ...]
    kind: str

    def find(self, arguments: Any) -> Iterator[tuple[str, Any]]:
        """(JSON Pointer, text) of every text that stands at such a place in `arguments`."""
        return _find(arguments, self.path, "")


def _find(value: Any, path: tuple[str, ...], pointer: str) -> Iterator[tuple[str, Any]]:
    if not path:
        if isinstance(value, str):
            yield pointer, value
        return
    head, rest = path[0], path[1:]
    if isinstance(value, dict):
        keys = value if head == "*" else ([head] if head in value else [])
        for key in keys:
            yield from _find(value[key], rest, f"{pointer}/{escape_pointer(key)}")
    elif isinstance(value, list) and (head == "*" or head.isdigit()):
        for i, item in enumerate(value):
            if head == "*" or int(head) == i:
                yield from _find(item, rest, f"{pointer}/{i}")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the walk stands, and what is known of it from above."""

    path: tuple[str, ...] = ()
    name: str | None = None  # the property's name; items and values of free keys have that of their parent
    called: bool = False  # whether such a parent's description says that it is a resource
    under: bool = False  # whether it, or the parent whose part it is, looks like a resource
    free: bool = False  # whether the arguments choose the key
    vouched: bool = False  # whether `none` stands here or above
    covered: bool = True  # whether the gate can follow to here

    @property
    def where(self) -> str:
        return "/" + "/".join(self.path)

    def named(self, name: str) -> _Place:
        return _Place(
            (*self.path, name),
            name=name,
            under=looks_like_resource(name) or (is_part_name(name) and (self.under or self.called)),
            vouched=self.vouched,
            # "*" as a property name would read as a wildcard, a number as that of an item
            covered=self.covered and name != "*" and not name.isdigit(),
        )

    def inner(self, step: str, *, covered: bool, free: bool = False) -> _Place:
        free = free or self.free
        return replace(self, path=(*self.path, step), covered=self.covered and covered, free=free)


def resources_of(schema: dict[str, Any], label: str) -> tuple[Resource, ...]:
    """The resources that an input schema declares. Raises ToolError, naming `label`, for one that hides any.

    The schema has passed `check_sound`.
    """
    walk = _Walk(schema, label)
    walk.place([schema], [], _Place())
    return tuple(dict.fromkeys(walk.found))


class _Walk:
    def __init__(self, root: dict[str, Any], label: str) -> None:
        self.document, self.label = Document(root), label
        self.found: list[Resource] = []
        self.open: set[tuple[Any, ...]] = set()  # places that are being walked
        self.count = 0

    def refuse(self, place: _Place, what: str, remedy: str) -> ToolError:
        # names in a schema are whoever's, and an error is one line that shows what it holds
        words = [inert(text) for text in (f"{place.where} {what}", self.label, remedy)]
        return ToolError(words[0], file=words[1], remedy=words[2])

    def place(self, own: list[Any], also: list[Any], place: _Place) -> None:
        """Walk the schemas `own` of a place; those of `also` are held against it too and are walked elsewhere."""
        members = [sub for schema in own for sub in self.all_of(schema)]
        known = [*members, *(sub for schema in also for sub in self.all_of(schema))]
        if False in known:
            return  # nothing may stand here
        place = self.learn(known, place)
        if not self.declared(members, known, place):
            self.check(known, place)
            self.go_on(members, known, place)

    def branch(self, schema: Any, known: list[Any], place: _Place) -> None:
        """Walk one of several schemas for a place; whether they let too much pass was asked of all together."""
        members = self.all_of(schema)
        known = [*members, *known]
        place = self.learn(members, place)
        if not self.declared(members, known, place):
            self.go_on(members, known, place)

    def all_of(self, schema: Any) -> list[Any]:
        """A schema and those that a value has to fit besides."""
        if not isinstance(schema, dict):
            return [schema]
        return [schema, *(sub for part in self.document.always(schema) for sub in self.all_of(part))]

    def learn(self, known: list[Any], place: _Place) -> _Place:
        """A place with what its schemas say of it."""
        if any(map(self.vouches, known)):
            return replace(place, name=None, called=False, under=False, vouched=True)
        here = [part for schema in known for part in self.document.here(schema) if "x-resource" not in part]
        return replace(place, called=True) if is_called_resource(place.name, here) else place

    def vouches(self, schema: Any) -> bool:
        """Whether a schema says that what it holds is no resource."""
        return any(isinstance(s, dict) and s.get("x-resource") == "none" for s in self.all_of(schema))

    def declared(self, members: list[Any], known: list[Any], place: _Place) -> bool:
        """Note the resources that a place declares; whether there are any."""
        if not any(_kind(schema) for schema in known):
            return False
        hidden = not place.covered and any(_kind(schema) for schema in members)
        if hidden or not {"string"} <= self.types(known) <= {"string", "null"}:
            raise self.refuse(
                place,
                "declares a resource where the gate cannot follow it",
                "declare it on a property or item of type string, or string and null, that no choice holds",
            )
        if place.covered:
            self.found += [Resource(place.path, kind) for schema in known if (kind := _kind(schema))]
        return True

    # ---- what a place lets pass ------------------------------------------------------------------------

    def types(self, known: list[Any]) -> set[str]:
        return {kind for kind in TYPES if self.all_let(known, partial(may_be, kind=kind))}

    def all_let(self, known: list[Any], what: Callable[[dict[str, Any]], bool]) -> bool:
        return all(self.document.lets(schema, what) for schema in known)

    def check(self, known: list[Any], place: _Place) -> None:
        """Refuse a place that may hold a resource and says nothing."""
        if any(isinstance(schema, dict) and "x-resource" in schema for schema in known):
            return
        if not place.vouched:
            self.check_open(known, place)
        looks = place.under or place.called
        if (looks or (place.free and not place.vouched)) and self.all_let(known, _has_free_text):
            raise self.refuse(
                place,
                "looks like a resource and declares none" if looks else "is any text under any key",
                'add "x-resource": "url", "path:read", "path:write" or "none"',
            )
        named = [s["propertyNames"] for s in known if isinstance(s, dict) and "propertyNames" in s]
        looks = looks or is_called_resource(None, [part for s in named for part in self.document.here(s)])
        if looks and self.all_let(known, _has_free_keys):
            raise self.refuse(
                place,
                "looks like a resource and lets any keys through",
                'name them in properties, or add "x-resource": "none"',
            )

    def check_open(self, known: list[Any], place: _Place) -> None:
        """Refuse a place that lets more pass than it says."""
        if self.all_let(known, _has_open_keys):
            raise self.refuse(
                place,
                "lets undeclared properties through",
                'say its type, of an object additionalProperties: false too; or "x-resource": "none"',
            )
        if self.all_let(known, _has_open_items):
            raise self.refuse(
                place, "lets undeclared items through", 'say its items, or "x-resource": "none"'
            )

    # ---- further places --------------------------------------------------------------------------------

    def go_on(self, members: list[Any], known: list[Any], place: _Place) -> None:
        key = (*map(id, members), None, *map(id, known), replace(place, path=()))
        if key in self.open:
            self.refuse_declared(members, place, "refers to itself")
            return
        self.count += 1
        if self.count > _MAX_PLACES:
            raise ToolError(
                "has too many places to walk", file=self.label, remedy="nest or refer less, or split the tool"
            )
        self.open.add(key)
        schemas = [member for member in members if isinstance(member, dict)]
        others = [schema for schema in known if isinstance(schema, dict)]
        self.keys(schemas, others, place)
        self.items(schemas, others, place)
        for schema in schemas:
            self.branches(schema, known, place)
        self.open.discard(key)

    def refuse_declared(self, schemas: list[Any], place: _Place, why: str) -> None:
        """Refuse a resource that is declared somewhere in schemas whose places are not walked."""
        left, seen = [*schemas], set[str]()
        while left:
            for part in parts(left.pop()):
                if _kind(part):
                    raise self.refuse(
                        place,
                        f"{why} and declares a resource, where the gate cannot follow it",
                        "declare resources elsewhere",
                    )
                if "$ref" in part and part["$ref"] not in seen:
                    seen.add(part["$ref"])
                    left.append(self.document.target(part["$ref"]))

    def keys(self, schemas: list[dict[str, Any]], known: list[dict[str, Any]], place: _Place) -> None:
        for name in dict.fromkeys(name for schema in schemas for name in schema.get("properties", ())):
            own = [s["properties"][name] for s in schemas if name in s.get("properties", ())]
            also = [
                sub
                for s in known
                for sub in of_key(s, name)
                # `none` for any key says nothing of one that has a name
                if not _stands_in(sub, own) and (name in s.get("properties", ()) or not self.vouches(sub))
            ]
            self.place(own, also, place.named(name))
        for schema in schemas:
            elsewhere = [sub for s in known if s is not schema for sub in of_key(s, None)]
            if "additionalProperties" in schema:
                alone = not schema.get("properties") and not schema.get("patternProperties")
                inner = place.inner("*", covered=alone, free=True)
                self.place([schema["additionalProperties"]], elsewhere, inner)
            for pattern, sub in schema.get("patternProperties", {}).items():
                inner = place.inner("*", covered=False, free=True)
                self.place([sub], [], replace(inner, under=inner.under or looks_like_resource(pattern)))
            if "unevaluatedProperties" in schema:
                inner = place.inner("*", covered=False, free=True)
                self.place([schema["unevaluatedProperties"]], elsewhere, inner)

    def items(self, schemas: list[dict[str, Any]], known: list[dict[str, Any]], place: _Place) -> None:
        for schema in schemas:
            rest = [s for s in known if s is not schema]
            for i, sub in enumerate(schema.get("prefixItems", ())):
                also = [other for s in rest for other in of_item(s, i)]
                self.place([sub], also, place.inner(str(i), covered=True))
            also = [other for s in rest for other in of_item(s, None)]
            for keyword in ("items", "unevaluatedItems", "contains"):
                if keyword in schema:
                    covered = keyword == "items" and "prefixItems" not in schema
                    more = also if keyword == "items" else [*also, *of_item(schema, None)]
                    self.place([schema[keyword]], more, place.inner("*", covered=covered))

    def branches(self, schema: dict[str, Any], known: list[Any], place: _Place) -> None:
        away = replace(place, covered=False)
        for _, subs in self.document.choices(schema):
            for sub in subs:
                # a thing or null: the gate skips what is no text
                optional = len(subs) == 2 and any(_is_null(other) for other in subs if other is not sub)
                self.branch(sub, known, place if optional else away)
        for sub in self.document.perhaps(schema):
            self.branch(sub, known, away)
        for keyword in ("not", "propertyNames", "contentSchema"):
            if keyword in schema:
                self.refuse_declared([schema[keyword]], place, f"has {keyword}")


def _kind(schema: Any) -> str | None:
    """The resource that a schema declares, if any."""
    said = schema.get("x-resource", "none") if isinstance(schema, dict) else "none"
    return None if said == "none" else str(said)


def _stands_in(schema: Any, among: Iterable[Any]) -> bool:
    return any(schema is other for other in among)


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"


def _is_listed(schema: dict[str, Any]) -> bool:
    """Whether a schema's values are a closed list, its own allowlist, or said to be what they are."""
    return "enum" in schema or "const" in schema or "x-resource" in schema


def _has_free_text(schema: dict[str, Any]) -> bool:
    return may_be(schema, "string") and not _is_listed(schema)


def _has_open_keys(schema: dict[str, Any]) -> bool:
    said = schema.get("additionalProperties", True) is not True or "unevaluatedProperties" in schema
    return may_be(schema, "object") and not _is_listed(schema) and not said


def _has_open_items(schema: dict[str, Any]) -> bool:
    said = "items" in schema or "unevaluatedItems" in schema
    return may_be(schema, "array") and not _is_listed(schema) and not said


def _has_free_keys(schema: dict[str, Any]) -> bool:
    if not may_be(schema, "object") or _is_listed(schema):
        return False
    names = schema.get("propertyNames")
    if isinstance(names, dict) and _is_listed(names) and "x-resource" not in names:
        return False
    closed = schema.get("additionalProperties", True) is False
    return not closed or bool(schema.get("patternProperties"))
