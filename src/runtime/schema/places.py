"""Where the arguments of a tool hold URLs, paths and other texts: by `x-resource` in its schema, or by a policy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final
from urllib.parse import unquote

from msgspec import Struct

from ..formats.invisible_chars import CONTROL, INVISIBLE, JOINERS
from ..formats.json_pointer import get

MARK: Final = "x-resource"
KINDS: Final = ("url", "path:read", "path:write", "text", "any", "none")
# a browser leaves out control characters before a URL, as it does white space, and no reader sees the others;
# compiled for the first text that is judged so, as most tools take none
_WHOLE_URL: Final = rf"(?i)[\s{CONTROL}{INVISIBLE}{JOINERS}\ufe00-\ufe0f]*https?:\S*\s*"
_MOST_PARTS: Final = 50_000
_CHOICES: Final = ("anyOf", "oneOf", "allOf")
# what holds further schemas, in which no mark is followed
_NOT_FOLLOWED: Final = frozenset(
    "if then else not patternProperties dependentSchemas dependencies contains unevaluatedProperties "
    "unevaluatedItems propertyNames contentSchema".split()
)


class Place(Struct, frozen=True):
    """A place in the arguments that holds texts.

    Attributes:
        path: Property names from the top; `*` for any key or item.
        kind: `url`, `path:read`, `path:write`, `text` or `any`.
        is_text: Whether the schema takes nothing but a text here; else each text within a value is judged.
    """

    path: tuple[str, ...]
    kind: str
    is_text: bool = False

    def find(self, arguments: Any) -> list[tuple[str, str]]:
        """Return what each text that stands at the place in some arguments is judged as, and the text."""
        found = _find(arguments, self.path)
        texts = found if self.is_text else _texts(found)
        return [(self.kind_of(text), text) for text in texts if isinstance(text, str)]

    def kind_of(self, text: str) -> str:
        """Return what a text here is judged as: one that as a whole is a URL is one at a place for texts too."""
        return "url" if self.kind == "text" and re.fullmatch(_WHOLE_URL, text) else self.kind

    def covers(self, path: tuple[str, ...]) -> bool:
        """Return whether it is the place of a text, given by `texts_in`."""
        return len(path) == len(self.path) and all(map(fits, self.path, path))


class _OtherKey(str):
    """`*` for the keys of an object that a schema does not declare by name.

    Attributes:
        declared: The keys that it does.
    """

    declared: frozenset[str] = frozenset()


def fits(own: str, key: str) -> bool:
    """Return whether a key is one that a place means."""
    return own == key or (own == "*" and not (isinstance(own, _OtherKey) and key in own.declared))


def _find(arguments: Any, path: tuple[str, ...]) -> list[Any]:
    found = [arguments]
    for head in path:
        below: list[Any] = []
        for value in found:
            if isinstance(value, dict):
                if head == "*":
                    below += [item for key, item in value.items() if fits(head, key)]
                elif head in value:
                    below.append(value[head])
            elif isinstance(value, list) and head == "*":
                below += value
        found = below
    return found


def _texts(value: Any) -> Iterator[str]:
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from [item] if isinstance(item, str) else _texts(item)


def texts_in(arguments: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each text in some arguments, with `*` for an item of a list."""
    if isinstance(arguments, str):
        yield path
    below = arguments.items() if isinstance(arguments, dict) else ()
    for key, value in [("*", item) for item in arguments] if isinstance(arguments, list) else below:
        yield from texts_in(value, (*path, key))


def places_of(schema: dict[str, Any]) -> tuple[Place, ...]:
    """Return the marked places of an input schema.

    Raises:
        ValueError: A mark is none of KINDS, or stands where arguments cannot be followed to it.
    """
    every, parts = {*_marked(schema)}, [*islice(parts_of(schema), _MOST_PARTS)]
    if len(parts) == _MOST_PARTS:  # a few references to references come to billions
        raise ValueError(f"more than {_MOST_PARTS} schemas within it, each counted where it is referred to")
    marked = [(path, part) for path, part in parts if MARK in part]
    is_lost = bool(every - {id(part) for _, part in marked})
    if is_lost or (every and any(_leads_astray(it, schema) for _, it in parts)):
        raise ValueError(f"{MARK} stands where the gate cannot follow it; mark a property or an item")
    kinds = [(path, part[MARK].replace("none", "any"), part.get("type") == "string") for path, part in marked]
    return tuple(dict.fromkeys(Place(*of) for of in kinds))


def _leads_astray(part: dict[str, Any], root: dict[str, Any]) -> bool:
    """Return whether a schema, of those that are followed, may lead to a mark by a way that is not."""
    rest = {key: value for key, value in part.items() if key in _NOT_FOLLOWED}
    has_base = part is not root and "$id" in part  # what it refers to is meant relative to itself
    return has_base or _is_lost(part, root) or _may_hold_mark(rest, root, set())


def _is_lost(part: dict[str, Any], root: dict[str, Any]) -> bool:
    reference = part.get("$ref")
    return "$dynamicRef" in part or (isinstance(reference, str) and target_of(root, reference) is None)


def _may_hold_mark(value: Any, root: dict[str, Any], seen: set[int]) -> bool:
    """Return whether a mark stands in a part of a schema or behind what it refers to, or nobody knows."""
    if isinstance(value, list):
        return any(_may_hold_mark(item, root, seen) for item in value)
    if not isinstance(value, dict) or id(value) in seen:
        return False
    seen.add(id(value))
    if MARK in value or _is_lost(value, root):
        return True
    below = [*value.values(), target_of(root, value.get("$ref"))]
    return any(_may_hold_mark(item, root, seen) for item in below)


def _marked(schema: Any) -> Iterator[int]:
    """Yield the identity of each schema with a mark, wherever it stands."""
    if isinstance(schema, dict):
        if MARK in schema:
            if schema[MARK] not in KINDS:
                raise ValueError(f"{MARK} must be one of {', '.join(KINDS)}")
            yield id(schema)
        for value in schema.values():
            yield from _marked(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _marked(value)


def parts_of(
    schema: Any, path: tuple[str, ...] = (), root: Any = None, depth: int = 0
) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield each schema within a schema, with its path among the data; the others are for the recursion.

    Raises:
        ValueError: It is nested or refers to itself too deeply.
    """
    if not isinstance(schema, dict):
        return
    if depth > 32:
        what = "nested or referring to itself deeper than 32 levels"
        raise ValueError(f"{what}; write out as many as are needed")
    yield path, schema
    root = schema if root is None else root
    below = [(sub, path) for key in _CHOICES for sub in schema.get(key, ())]
    below.append((target_of(root, schema.get("$ref")), path))
    declared = schema.get("properties", {})
    if isinstance(star := declared.get("*"), dict) and MARK in star:
        raise ValueError(f"{MARK} of a property named * would be of every key; give it another name")
    below += [(sub, (*path, name)) for name, sub in declared.items()]
    others = _OtherKey("*")
    others.declared = frozenset(declared)
    below.append((schema.get("additionalProperties"), (*path, others)))
    below += [(sub, (*path, "*")) for sub in (schema.get("items"), *schema.get("prefixItems", ()))]
    for sub, place in below:
        yield from parts_of(sub, place, root, depth + 1)


def target_of(root: Any, reference: Any) -> Any:
    """Return the schema that a `$ref` names within another, None where there is none."""
    if not isinstance(reference, str) or not re.fullmatch("#(/.*)?", reference):
        return None
    try:
        return get(root, unquote(reference)[1:])
    except (LookupError, ValueError, TypeError):
        return None
