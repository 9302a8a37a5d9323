"""Find the resources that an input schema declares, and refuse a schema that could hide one.

The walk goes over the places in the arguments, references and choices followed. A string under a name that looks
like a resource has to declare what it is; free text needs no declaration where type, name and description do not
suggest a resource.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ...fail.errors import ToolError
from ...light_dataclasses import dataclass, replace
from ..formats.escape import escape_terminal
from ..formats.json_pointer import escape_pointer
from .resource_names import is_called_resource, is_part_name, looks_like_resource
from .subschemas import JsonSchema, target

RESOURCES: Final = ("url", "path:read", "path:write", "none")
# schemas that are held against arguments, each counted for every way that leads to it: bounds load and every call
MAX_PARTS: Final = 10_000
_TYPES: Final = frozenset("array boolean null number object string".split())
_NAMES_OF_TYPES: Final = {
    bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Resource:
    """A place in the arguments that holds a resource.

    Attributes:
        path: Property names from the top; `*` for any key or item.
        kind: `url`, `path:read` or `path:write`.
    """

    path: tuple[str, ...]
    kind: str

    def find(self, arguments: Any) -> Iterator[tuple[str, Any]]:
        """Yield (JSON Pointer, text) of every text that stands at such a place in `arguments`."""
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
    name: str | None = None
    """The property's name; items and values of free keys have that of their parent."""
    called: bool = False
    """Whether its description, or that of such a parent, says that it is a resource."""
    parent_is_resource: bool = False
    """Whether its name, or that of the parent whose part it is, looks like a resource."""
    free: bool = False
    """Whether the arguments choose the key."""
    declared_none: bool = False
    """Whether `none` stands here or above."""
    gate_can_reach: bool = True

    def named(self, name: str) -> _Place:
        is_part = is_part_name(name) and (self.parent_is_resource or self.called)
        return _Place(
            (*self.path, name),
            name=name,
            parent_is_resource=looks_like_resource(name) or is_part,
            declared_none=self.declared_none,
            # "*" as a property name would read as a wildcard, a number as that of an item
            gate_can_reach=self.gate_can_reach and name != "*" and not name.isdigit(),
        )

    def inner(self, *, reachable: bool = True, free: bool = False) -> _Place:
        return replace(
            self,
            path=(*self.path, "*"),
            gate_can_reach=self.gate_can_reach and reachable,
            free=free or self.free,
        )


def find_resources(schema: JsonSchema, label: str) -> tuple[Resource, ...]:
    """Return the resources that an input schema of our subset declares.

    Raises ToolError, naming `label`, for one that hides any, refers to itself, or has too many parts.
    """
    walk = _Walk(schema, label)
    for name in ("$defs", "definitions"):
        for sub in schema.get(name, {}).values():
            walk.check_references(sub)
    walk.check_references(schema)
    walk.visit(schema, _Place(), None, [])
    return tuple(dict.fromkeys(walk.resources))


class _Walk:
    def __init__(self, root: JsonSchema, label: str) -> None:
        self.root, self.label = root, label
        self.resources: list[Resource] = []
        self.count = 0
        self.sound: set[int] = set()
        self.open: set[int] = set()

    def check_references(self, schema: Any) -> None:
        """Refuse a reference that leads back to a schema that holds it."""
        if not isinstance(schema, dict) or id(schema) in self.sound:
            return
        if id(schema) in self.open:
            raise ToolError(
                "a reference leads back to itself, which is not supported in an input schema",
                file=self.label,
                remedy="write out as many levels as are needed",
            )
        self.open.add(id(schema))
        for sub in (*_children(schema), *([target(self.root, schema["$ref"])] if "$ref" in schema else ())):
            self.check_references(sub)
        self.open.discard(id(schema))
        self.sound.add(id(schema))

    def refuse(self, place: _Place, problem: str, remedy: str) -> ToolError:
        # names in a schema come from outside, and an error is one line without control characters
        words = [escape_terminal(text) for text in (f"/{'/'.join(place.path)} {problem}", self.label, remedy)]
        return ToolError(words[0], file=words[1], remedy=words[2])

    def visit(self, schema: Any, place: _Place, declared: str | None, notes: list[dict[str, Any]]) -> None:
        """Visit a schema of a place.

        Args:
            schema: One of the schemas that a value at the place has to fit.
            place: Where the value stands.
            declared: The resource that the references and choices on the way declare, if any.
            notes: The schemas on the way, whose names and texts may tell of a resource.
        """
        if schema is False:
            return  # nothing may stand here
        schema = {} if schema is True else schema
        self.count_part()
        kind = schema.get("x-resource", declared)
        if declared is not None and kind != declared:
            raise self.refuse(place, f"is declared {declared!r} and {kind!r}", "declare it once")
        if kind is None:
            notes = [*notes, schema]
        if "$ref" in schema:
            self.visit(target(self.root, schema["$ref"]), place, kind, notes)
        elif "anyOf" in schema or "oneOf" in schema:
            self.visit_choices(schema.get("anyOf") or schema["oneOf"], place, kind, notes)
        else:
            self.visit_plain(schema, place, kind, notes)

    def count_part(self) -> None:
        self.count += 1
        if self.count > MAX_PARTS:
            raise ToolError(
                f"has too many places to walk: more than {MAX_PARTS:,}",
                file=self.label,
                remedy="nest or refer less, or split the tool",
            )

    def visit_choices(
        self, choices: list[Any], place: _Place, kind: str | None, notes: list[dict[str, Any]]
    ) -> None:
        if kind is None:  # what is said of one choice is said of the place
            notes = [*notes, *(part for sub in choices for part in self.meeting(sub))]
        # one schema or null: the gate skips values that are not text
        if len(choices) != 2 or not any(map(_is_null, choices)):
            place = replace(place, gate_can_reach=False)
        for sub in choices:
            if not _is_null(sub):
                self.visit(sub, place, kind, notes)

    def meeting(self, schema: Any) -> Iterator[JsonSchema]:
        """Yield every schema that is held against the same value and declares nothing."""
        self.count_part()
        if not isinstance(schema, dict) or "x-resource" in schema:
            return
        yield schema
        subs = [target(self.root, schema["$ref"])] if "$ref" in schema else []
        for sub in (*subs, *schema.get("anyOf", ()), *schema.get("oneOf", ())):
            yield from self.meeting(sub)

    def visit_plain(
        self, schema: JsonSchema, place: _Place, kind: str | None, notes: list[dict[str, Any]]
    ) -> None:
        types = _types(schema)
        if kind == "none":
            place = replace(place, name=None, called=False, parent_is_resource=False, declared_none=True)
        elif kind is not None:
            if not (place.gate_can_reach and {"string"} <= types <= {"string", "null"}):
                raise self.refuse(
                    place,
                    "declares a resource where the gate cannot follow it",
                    "declare it on a property or item of type string, or string and null, that no choice holds",
                )
            self.resources.append(Resource(place.path, kind))
            return
        else:
            if is_called_resource(place.name, notes):
                place = replace(place, called=True)
            if not ("enum" in schema or "const" in schema):  # a closed list is its own allowlist
                self.check(schema, types, place)
        for name, sub in schema.get("properties", {}).items():
            self.visit(sub, place.named(name), None, [])
        if "additionalProperties" in schema:
            alone = not schema.get("properties")
            self.visit(schema["additionalProperties"], place.inner(reachable=alone, free=True), None, [])
        if "items" in schema:
            self.visit(schema["items"], place.inner(), None, [])

    def check(self, schema: JsonSchema, types: frozenset[str], place: _Place) -> None:
        """Refuse a place that lets more pass than it says, or may hold a resource and does not say so."""
        if not place.declared_none:
            if ("type" not in schema) or (
                "object" in types and schema.get("additionalProperties", True) is True
            ):
                raise self.refuse(
                    place,
                    "lets undeclared properties through",
                    'say its type, of an object additionalProperties: false too; or "x-resource": "none"',
                )
            if "array" in types and "items" not in schema:
                raise self.refuse(
                    place, "lets undeclared items through", 'say its items, or "x-resource": "none"'
                )
        looks = place.parent_is_resource or place.called
        if "string" in types and (looks or (place.free and not place.declared_none)):
            raise self.refuse(
                place,
                "looks like a resource and declares none" if looks else "is any text under any key",
                'add "x-resource": "url", "path:read", "path:write" or "none"',
            )
        if looks and "object" in types and schema.get("additionalProperties", True) is not False:
            raise self.refuse(
                place,
                "looks like a resource and lets any keys through",
                'name them in properties, or add "x-resource": "none"',
            )


def _children(schema: JsonSchema) -> Iterator[Any]:
    """Yield the schemas that stand directly in one of our subset."""
    yield from schema.get("properties", {}).values()
    yield from (schema[key] for key in ("additionalProperties", "items") if key in schema)
    yield from (*schema.get("anyOf", ()), *schema.get("oneOf", ()))


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null" and "x-resource" not in schema


def _types(schema: JsonSchema) -> frozenset[str]:
    """Return the types of values that a schema without choices and references takes; an integer is a number."""
    declared = schema.get("type", [*_TYPES])
    types = frozenset(
        "number" if kind == "integer" else kind
        for kind in ([declared] if isinstance(declared, str) else declared)
    )
    listed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    return types if listed is None else types & {_NAMES_OF_TYPES.get(type(value), "null") for value in listed}
