"""Tool schemas: the resources that they declare, and data held against them.

A string that names a resource says so with `"x-resource": "url"`, `"path:read"` or `"path:write"`; one that
only looks like a resource says `"x-resource": "none"`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..fail.errors import ToolError
from .canonical_json import encode
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
    "webhook callback path paths pathname file files filename filenames filepath filepaths dir dirs "
    "directory directories folder folders dest destination cwd root workdir src website websites proxy ip".split()
)
# run together with another word: baseurl, imageURLs, outputpath, logfile; but not profile
_ENDS_LIKE: Final = re.compile(
    r"(?:(?<!c)url|uri|href|path|(?<!pro)file|filename|directory|folder|hostname|endpoint|webhook)s?\Z"
)
_RESOURCE_FORMATS: Final = frozenset(
    "uri uri-reference uri-template iri iri-reference url hostname idn-hostname ipv4 ipv6".split()
)
# keywords whose subschemas the walker does not follow to a place in the arguments
_UNCOVERED_ONE: Final = (
    "not if then else contains propertyNames unevaluatedItems unevaluatedProperties additionalItems".split()
)
_UNCOVERED_LIST: Final = ("anyOf", "oneOf", "allOf")
# keywords that hold subschemas by name, and those that hold data or names, never a schema
_NAMED: Final = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
_NO_SCHEMA: Final = ("enum", "const", "default", "examples", "required", "dependentRequired")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LETTERS = re.compile(r"[A-Za-z]+")


def looks_like_resource(name: str) -> bool:
    """Whether a property name has a word that usually names a URL, a host or a path."""
    if any(word.lower() in _LOOKS_LIKE for word in _WORD.findall(name)):
        return True
    return any(_ENDS_LIKE.search(run.lower()) for run in _LETTERS.findall(name))


def resources_of(schema: Mapping[str, Any], label: str) -> tuple[Resource, ...]:
    """The resources that an input schema declares. Raises ToolError, naming `label`, for one that hides any."""
    found: list[Resource] = []
    _walk(dict(schema), (), None, True, found, label)
    for part in _parts(schema):
        for keyword in _REFERENCES:
            target = part.get(keyword)
            # what stands in $defs was walked and declares nothing; elsewhere it would be met at a second place
            inside = isinstance(target, str) and target.startswith(("#/$defs/", "#/definitions/"))
            if target is not None and not inside and (target != "#" or found):
                raise ToolError(
                    f"{keyword} {str(target)[:80]!r} leads where the gate cannot follow",
                    file=label,
                    remedy="refer to #/$defs/... only",
                )
    return tuple(found)


def check_sound(schema: Mapping[str, Any], label: str) -> None:
    """Refuse what would only fail at a call: a reference that leads nowhere, a pattern that is none."""
    for part in _parts(schema):
        for keyword in _REFERENCES:
            if isinstance(part.get(keyword), str) and not _leads_somewhere(schema, part[keyword]):
                raise ToolError(
                    f"{keyword} {part[keyword][:80]!r} leads nowhere", file=label, remedy="mend the reference"
                )
        named = part.get("patternProperties")
        for pattern in (part.get("pattern"), *(named if isinstance(named, dict) else ())):
            try:
                re.compile(_python_pattern(pattern) if isinstance(pattern, str) else "")
            except re.error:
                raise ToolError(
                    f"{pattern[:80]!r} is no regular expression", file=label, remedy="mend the pattern"
                ) from None


def _leads_somewhere(here: Any, reference: str) -> bool:
    """Whether a reference is a JSON Pointer to a subschema of this very document."""
    start, *tokens = reference.split("/")
    for token in tokens:
        token = token.replace("~1", "/").replace("~0", "~")
        if isinstance(here, list) and token.isdecimal() and int(token) < len(here):
            here = here[int(token)]
        elif isinstance(here, Mapping) and token in here:
            here = here[token]
        else:
            return False
    return start == "#" and isinstance(here, Mapping | bool)


def _parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Every subschema of a schema, itself first."""
    if isinstance(schema, Mapping):
        yield schema
        for key, value in schema.items():
            if key in _NAMED and isinstance(value, Mapping):
                for sub in value.values():
                    yield from _parts(sub)
            elif key not in _NO_SCHEMA:
                yield from _parts(value)
    elif isinstance(schema, list):
        for item in schema:
            yield from _parts(item)


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
    return name is not None and looks_like_resource(name)


def _walk_inside(
    schema: dict[str, Any],
    path: tuple[str, ...],
    name: str | None,
    covered: bool,
    found: list[Resource],
    label: str,
) -> None:
    opens = (covered and "properties" in schema) or _names_type(schema, "object")
    if opens and schema.get("additionalProperties", True) is True and schema.get("x-resource") != "none":
        raise ToolError(
            f"/{'/'.join(path)} lets undeclared properties through",
            file=label,
            remedy='add additionalProperties: false, or "x-resource": "none" if they can hold no resource',
        )
    for key, sub in schema.get("properties", {}).items():
        # "*" as a property name would read as a wildcard
        _walk(sub, (*path, key), key, covered and key != "*" and not key.isdigit(), found, label)
    if "items" in schema or _names_type(schema, "array"):
        items = schema.get("items", True)
        _walk(items, (*path, "*"), name, covered and "prefixItems" not in schema, found, label)
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
    for keyword in ("patternProperties", "$defs", "definitions"):
        for key, sub in schema.get(keyword, {}).items():
            _walk(sub, (*path, keyword), key if looks_like_resource(key) else name, False, found, label)
    for sub in schema.get("dependentSchemas", {}).values():
        _walk(sub, (*path, "dependentSchemas"), name, False, found, label)


def _names_type(schema: dict[str, Any], kind: str) -> bool:
    kinds = schema.get("type")
    return kinds == kind or (isinstance(kinds, list) and kind in kinds)


# ---- validation ----------------------------------------------------------------------------------------

_VALUE_LIMITS: Final = frozenset(
    "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern format "
    "minItems maxItems uniqueItems minProperties maxProperties enum const minContains maxContains contains".split()
)


def shape(schema: Any) -> Any:
    """A schema without limits on values; types, required and undeclared properties remain.

    Whatever fits the schema fits its shape. A keyword that counts or negates would turn that round once its
    subschema is wider: `oneOf` becomes `anyOf` then, `not` goes, and of `if` either branch will do.
    """
    if isinstance(schema, list):
        return [shape(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out: dict[str, Any] = {}
    also: list[Any] = []
    for key, value in schema.items():
        if key in _NAMED:
            out[key] = {name: shape(sub) for name, sub in value.items()}
        elif key in _NO_SCHEMA or key == "propertyNames":
            if key not in _VALUE_LIMITS:
                out[key] = value
        elif key == "oneOf" and _widens(value):
            also.append({"anyOf": shape(value)})
        elif key == "if" and _widens(value):
            met = {"allOf": [shape(value), shape(schema.get("then", True))]}
            also.append({"anyOf": [met, shape(schema.get("else", True))]})
        elif key not in _VALUE_LIMITS and not (key == "not" and _widens(value)):
            out[key] = shape(value)
    if "if" not in out:
        out.pop("then", None)
        out.pop("else", None)
    return {**out, "allOf": [*out.get("allOf", ()), *also]} if also else out


def _widens(schema: Any) -> bool:
    """Whether a subschema, or what it may refer to, is wider in shape."""
    return shape(schema) != schema or any("$ref" in part for part in _parts(schema))


def without_extensions(schema: Any) -> Any:
    """A schema without our `x-` keywords."""
    if isinstance(schema, list):
        return [without_extensions(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {}
    for key, value in schema.items():
        if key in _NAMED:
            out[key] = {name: without_extensions(sub) for name, sub in value.items()}
        elif not key.startswith("x-"):
            out[key] = value if key in _NO_SCHEMA else without_extensions(value)
    return out


class _Pattern(str):
    """A pattern for Python's `re`; `written` is what stands in the schema."""

    __slots__ = ("written",)
    written: str


_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\$", re.DOTALL)
_ASCII_CLASS: Final = {
    "\\d": "[0-9]",
    "\\D": "[^0-9]",
    "\\w": "[A-Za-z0-9_]",
    "\\W": "[^A-Za-z0-9_]",
    "$": r"\Z",
}


def _python_pattern(pattern: str) -> _Pattern:
    """A pattern as ECMA-262 reads it: `$` is the very end, not before a last newline; digits are ASCII."""

    def token(match: re.Match[str]) -> str:
        text = match.group()
        if text.startswith("["):
            return re.sub(
                r"\\.", lambda m: {"\\d": "0-9", "\\w": "A-Za-z0-9_"}.get(m[0], m[0]), text, flags=re.DOTALL
            )
        return _ASCII_CLASS.get(text, text)

    out = _Pattern(_TOKEN.sub(token, pattern))
    out.written = pattern
    return out


def _for_python(schema: Any) -> Any:
    """A schema with every pattern in it put for Python's `re`, which the library asks."""
    if isinstance(schema, list):
        return [_for_python(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "patternProperties":
            out[key] = {_python_pattern(name): _for_python(sub) for name, sub in value.items()}
        elif key in _NAMED:
            out[key] = {name: _for_python(sub) for name, sub in value.items()}
        elif key == "pattern":
            out[key] = _python_pattern(value)
        else:
            out[key] = value if key in _NO_SCHEMA else _for_python(value)
    return out


def validator(schema: Mapping[str, Any]) -> Any:
    """A validator (Draft 2020-12) to be kept; `iter_errors` is what is used of it."""
    from jsonschema import Draft202012Validator
    from referencing import Registry

    # an empty registry: a $ref to elsewhere is an error here, never a fetch
    return Draft202012Validator(_for_python(dict(schema)), registry=Registry())


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
        found.append((pointer, str(error.validator or "false"), _limit(error)))
    return Mismatch(*min(found)) if found else None


def _limit(error: Any) -> str:
    keyword, value = error.validator, error.validator_value
    if keyword == "required":
        missing = [name for name in value if name not in error.instance]
        return ",".join(sorted(missing)[:5])
    if keyword == "additionalProperties":
        known, patterns = error.schema.get("properties", {}), error.schema.get("patternProperties", ())
        extra = [key for key in error.instance if key not in known]
        return ",".join(sorted(key for key in extra if not any(re.search(p, key) for p in patterns))[:5])[:80]
    if keyword in ("type", "enum") and isinstance(value, list):
        return ",".join(_short(item) for item in value[:10])[:80]
    return "" if isinstance(value, dict | list) or value is None else _short(value)[:80]


def _short(value: Any) -> str:
    return getattr(value, "written", value) if isinstance(value, str) else encode(value)
