"""Input schemas of foreign tools: references followed, objects closed, resources declared."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..fail.errors import InputError, ToolError
from ..runtime.formats.json_pointer import unescape_pointer
from ..runtime.schema.schema_errors import did_you_mean
from ..runtime.schema.subschemas import JsonSchema, mapped, target

_DEFINITIONS: Final = ("$defs", "definitions")
# keywords beside `$ref` that do not change which values fit
_ANNOTATIONS: Final = frozenset(
    "title description default examples deprecated readOnly writeOnly $comment x-resource".split()
)
# what nobody reads in the schema of a result
_UNREAD: Final = frozenset(("title", "description", "default", "x-resource"))
# subschemas after all references are followed; the largest tool schemas in public collections have a few hundred
_MOST_PARTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class resource:
    """What a string is, beside its annotation: `Annotated[str, resource("url")]`.

    Attributes:
        kind: `url`, `path:read`, `path:write` or `none`.
    """

    kind: str

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Callable[[Any], Any]) -> Any:
        """Return the schema of the annotated type with this declaration; called by pydantic."""
        return {**handler(core_schema), "x-resource": self.kind}


def without_keywords(schema: Any, keywords: frozenset[str]) -> Any:
    """Return `schema` and everything in it without some keywords."""
    if not isinstance(schema, dict):
        return schema
    kept = mapped(schema, lambda part: without_keywords(part, keywords))
    return {key: value for key, value in kept.items() if key not in keywords}


def closed(properties: dict[str, Any], required: list[str]) -> JsonSchema:
    """Return the schema of an object that has these properties and no others."""
    schema: JsonSchema = {"type": "object", "additionalProperties": False, "properties": properties}
    return {**schema, "required": required} if required else schema


def result_schema(returned: JsonSchema) -> JsonSchema:
    """Return the schema of `{"result": ...}`, given that of what a function returns."""
    made = without_keywords(returned, _UNREAD)
    definitions = made.pop("$defs", None)
    schema = closed({"result": made}, ["result"])
    return {**schema, "$defs": definitions} if definitions else schema


def adopt(parameters: Mapping[str, Any], resources: Mapping[str, str], label: str) -> JsonSchema:
    """Return a foreign input schema in the form that our loader judges.

    Every reference is replaced by what it refers to, and an object that names its properties and does not mention
    others takes no others.

    Args:
        parameters: The JSON Schema of the tool's arguments; it is not changed.
        resources: What a string is, by argument name or by a place such as `/items/*/path`.
        label: Names the tool in an error.

    Raises:
        ToolError: A reference cannot be followed, or a place in `resources` does not exist.
    """
    root = inline(parameters, label)
    for word in ("title", "description"):  # the tool has its own
        root.pop(word, None)
    for place, kind in resources.items():
        _declare(root, place, kind, label)
    adopted: JsonSchema = _closed(root)
    return adopted


def inline(root: Mapping[str, Any], label: str) -> JsonSchema:
    """Return a copy of a schema with every reference replaced by what it refers to. Raises ToolError."""
    copied: JsonSchema = _Inliner(root, label).inline(root, ("#",))
    return copied


class _Inliner:
    """Replaces references within one document."""

    def __init__(self, root: Mapping[str, Any], label: str) -> None:
        self._root, self._label = dict(root), label
        self._left = _MOST_PARTS

    def inline(self, schema: Any, open_references: tuple[str, ...]) -> Any:
        if not isinstance(schema, Mapping):
            return schema
        self._left -= 1
        if self._left < 0:
            raise self._refuse("its schema is too large once references are followed", "split the tool")
        # pydantic's `discriminator` repeats what `oneOf` says
        kept = {k: v for k, v in schema.items() if k not in (*_DEFINITIONS, "discriminator")}
        reference = kept.pop("$ref", None)
        if reference is None:
            return mapped(kept, lambda part: self.inline(part, open_references))
        if reference in open_references:
            raise self._refuse(f"{reference!r} refers to itself", "use a type that does not contain itself")
        try:
            definition = target(self._root, reference)
        except (KeyError, TypeError, ValueError):
            definition = None
        if kept.keys() - _ANNOTATIONS or not isinstance(definition, Mapping):
            raise self._refuse(
                f"the reference {reference!r} cannot be followed",
                "let it stand alone and name an entry of $defs",
            )
        return {**self.inline(definition, (*open_references, reference)), **kept}

    def _refuse(self, what: str, remedy: str) -> ToolError:
        return ToolError(what, file=self._label, remedy=remedy)


def _closed(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    out = mapped(schema, _closed)
    if out.get("type") == "object" and "properties" in out:
        out.setdefault("additionalProperties", False)
    return out


def _declare(root: JsonSchema, place: str, kind: str, label: str) -> None:
    here: Any = root
    for step in place.split("/")[1:] if place.startswith("/") else [place]:
        here = _single_choice(here, place, label)
        below = _below(here, unescape_pointer(step))
        if below is None:
            raise ToolError(
                f"resources= names {place!r}, where the schema has nothing to declare",
                file=label,
                remedy=did_you_mean(step, list(here.get("properties", ())))
                or "name an argument, or a place such as /items/*/path",
            )
        here = below
    if here.get("x-resource", kind) != kind:
        raise ToolError(
            f"resources= says {kind!r} of {place!r}, and its annotation {here['x-resource']!r}",
            file=label,
            remedy="say it once",
        )
    here["x-resource"] = kind


def _below(here: JsonSchema, step: str) -> JsonSchema | None:
    """Return the schema of a property, or of any item or value for `*`."""
    found: Any = None
    if step == "*":
        found = here.get("items") if "items" in here else here.get("additionalProperties")
    elif step in here.get("properties", {}):
        found = here["properties"][step]
    return found if isinstance(found, dict) else None


def _single_choice(here: JsonSchema, place: str, label: str) -> JsonSchema:
    """Return the schema that holds the next step, where it is an alternative to null."""
    while choices := [
        part for key in ("anyOf", "oneOf") for part in here.get(key, ()) if part != {"type": "null"}
    ]:
        if len(choices) > 1 or not isinstance(choices[0], dict):
            raise ToolError(
                f"resources= names {place!r}, to which the schema leads in more than one way",
                file=label,
                remedy="let the argument be of one type, or that and null",
            )
        here = choices[0]
    return here


def require_module(module: str, package: str, extra: str) -> Any:
    """Return an optional module. Raises InputError if its package is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(
            f"the package {package!r} is not installed", remedy=f"run: pip install 'tachograph[{extra}]'"
        ) from None
