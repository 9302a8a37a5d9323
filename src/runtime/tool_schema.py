"""Tool schemas: the resources that they declare, and data held against them.

A string that names a resource says so with `"x-resource": "url"`, `"path:read"` or `"path:write"`; one that
only looks like a resource says `"x-resource": "none"`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..fail.errors import ToolError
from .schema_errors import escape_pointer

RESOURCES: Final = ("url", "path:read", "path:write", "none")


@dataclass(frozen=True, slots=True)
class Resource:
    """A place in the arguments that holds a resource: `path` of property names, `*` for any key or item."""

    path: tuple[str, ...]
    kind: str

    def find(self, arguments: Any) -> Iterator[tuple[str, Any]]:
        """(JSON Pointer, value) of every such place in `arguments`."""
        return _find(arguments, self.path, "")


def _find(value: Any, path: tuple[str, ...], pointer: str) -> Iterator[tuple[str, Any]]:
    if not path:
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


_LOOKS_LIKE: Final = frozenset(
    "url urls uri uris href hrefs link links endpoint endpoints host hosts hostname hostnames domain domains "
    "webhook callback origin path paths pathname file files filename filenames filepath filepaths dir dirs "
    "directory directories folder folders dest destination cwd root workdir src website ip".split()
)
_RESOURCE_FORMATS: Final = frozenset(
    "uri uri-reference uri-template iri iri-reference url hostname idn-hostname ipv4 ipv6".split()
)
# keywords whose subschemas the walker does not follow to a place in the arguments
_UNCOVERED_ONE: Final = (
    "not if then else contains propertyNames unevaluatedItems unevaluatedProperties additionalItems".split()
)
_UNCOVERED_LIST: Final = ("anyOf", "oneOf", "allOf")
_UNCOVERED_MAP: Final = ("patternProperties", "dependentSchemas", "$defs", "definitions")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def looks_like_resource(name: str) -> bool:
    """Whether a property name has a word that usually names a URL, a host or a path."""
    return any(word.lower() in _LOOKS_LIKE for word in _WORD.findall(name))


def resources_of(schema: Mapping[str, Any], label: str) -> tuple[Resource, ...]:
    """The resources that an input schema declares. Raises ToolError, naming `label`, for one that hides any."""
    found: list[Resource] = []
    _walk(dict(schema), (), None, True, found, label)
    return tuple(found)


def _walk(
    schema: Any, path: tuple[str, ...], name: str | None, covered: bool, found: list[Resource], label: str
) -> None:
    """Collect declared resources; refuse what looks like one and says nothing, or stands where we cannot look.

    `name` is the nearest property name above, which array items inherit.
    """
    where = "/" + "/".join(path)
    may_be_string = schema is True
    if isinstance(schema, dict):
        kinds = schema.get("type")
        may_be_string = kinds is None or "string" in kinds
        declared = schema.get("x-resource")
        if declared is not None and declared not in RESOURCES:
            raise ToolError(
                f"{where} declares x-resource {declared!r}",
                file=label,
                remedy=f"use one of {', '.join(RESOURCES)}",
            )
        if declared in ("url", "path:read", "path:write"):
            if not covered or kinds != "string":
                raise ToolError(
                    f"{where} declares a resource where the gate cannot follow it",
                    file=label,
                    remedy="declare it on a property or item of type string, outside combinators, $ref and patterns",
                )
            found.append(Resource(path, declared))
            return
        if declared is None and _suspicious(schema, name, may_be_string):
            raise ToolError(
                f"{where} looks like a resource and declares none",
                file=label,
                remedy='add "x-resource": "url", "path:read", "path:write" or "none"',
            )
        if declared == "none":
            name = None
        _walk_inside(schema, path, name, covered, found, label)
    elif may_be_string and name is not None and looks_like_resource(name):
        raise ToolError(
            f"{where} looks like a resource and declares none", file=label, remedy="give it a schema"
        )


def _suspicious(schema: dict[str, Any], name: str | None, may_be_string: bool) -> bool:
    if not may_be_string or "enum" in schema or "const" in schema:
        # a closed list of values is the schema's own allowlist
        return False
    if schema.get("format") in _RESOURCE_FORMATS:
        return True
    return name is not None and looks_like_resource(name) and "properties" not in schema


def _walk_inside(
    schema: dict[str, Any],
    path: tuple[str, ...],
    name: str | None,
    covered: bool,
    found: list[Resource],
    label: str,
) -> None:
    if covered and "properties" in schema and "additionalProperties" not in schema:
        raise ToolError(
            f"/{'/'.join(path)} lets undeclared properties through",
            file=label,
            remedy="add additionalProperties: false",
        )
    for key, sub in schema.get("properties", {}).items():
        # "*" as a property name would read as a wildcard
        _walk(sub, (*path, key), key, covered and key != "*" and not key.isdigit(), found, label)
    if isinstance(schema.get("items"), dict):
        _walk(schema["items"], (*path, "*"), name, covered and "prefixItems" not in schema, found, label)
    for i, sub in enumerate(schema.get("prefixItems", ())):
        _walk(sub, (*path, str(i)), name, covered, found, label)
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        _walk(extra, (*path, "*"), name, covered and not schema.get("properties"), found, label)
    for keyword in _UNCOVERED_ONE:
        if isinstance(schema.get(keyword), dict):
            _walk(schema[keyword], (*path, keyword), name, False, found, label)
    for keyword in _UNCOVERED_LIST:
        for sub in schema.get(keyword, ()):
            _walk(sub, (*path, keyword), name, False, found, label)
    for keyword in _UNCOVERED_MAP:
        for key, sub in schema.get(keyword, {}).items():
            _walk(sub, (*path, keyword), key, False, found, label)


# ---- validation ----------------------------------------------------------------------------------------

_VALUE_LIMITS: Final = frozenset(
    "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern format "
    "minItems maxItems uniqueItems minProperties maxProperties enum const minContains maxContains contains".split()
)


def shape(schema: Any) -> Any:
    """A schema without limits on values; types, required and undeclared properties remain."""
    if isinstance(schema, dict):
        return {
            key: (
                {name: shape(sub) for name, sub in value.items()}
                if key in ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
                else shape(value)
            )
            for key, value in schema.items()
            if key not in _VALUE_LIMITS
        }
    if isinstance(schema, list):
        return [shape(item) for item in schema]
    return schema


def without_extensions(schema: Any) -> Any:
    """A schema without our `x-` keywords."""
    if isinstance(schema, dict):
        return {key: without_extensions(value) for key, value in schema.items() if not key.startswith("x-")}
    if isinstance(schema, list):
        return [without_extensions(item) for item in schema]
    return schema


def validator(schema: Mapping[str, Any]) -> Any:
    """A validator (Draft 2020-12) to be kept; `iter_errors` is what is used of it."""
    from jsonschema import Draft202012Validator
    from referencing import Registry

    # an empty registry: a $ref to elsewhere is an error here, never a fetch
    return Draft202012Validator(dict(schema), registry=Registry())


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Where data does not fit a schema: JSON Pointer, schema keyword, the keyword's limit if it is short."""

    pointer: str
    keyword: str
    limit: str


def first_mismatch(validator: Any, data: Any) -> Mismatch | None:
    """The first mismatch by (pointer, keyword), whatever order the library finds them in; None if it fits."""
    found = []
    for error in validator.iter_errors(data):
        pointer = "".join(f"/{escape_pointer(str(part))}" for part in error.absolute_path)
        found.append((pointer, str(error.validator), error))
    if not found:
        return None
    pointer, keyword, error = min(found, key=lambda item: item[:2])
    return Mismatch(pointer, keyword, _limit(error))


def _limit(error: Any) -> str:
    keyword, value = error.validator, error.validator_value
    if keyword == "required":
        missing = [name for name in value if name not in error.instance]
        return ",".join(sorted(missing)[:5])
    if keyword == "additionalProperties":
        known = error.schema.get("properties", {})
        return ",".join(sorted(key for key in error.instance if key not in known)[:5])[:80]
    if isinstance(value, str | int | float | bool):
        return str(value)[:80]
    if isinstance(value, Sequence):
        return ",".join(str(item) for item in value[:10])[:80]
    return ""
