"""The input schema of a foreign tool, taken over: what it says stays, and resources are declared beside it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from ..fail.errors import ToolError
from ..runtime.schema.schema_errors import did_you_mean
from ..runtime.schema.schema_parts import Document, mapped, parts

_CHOICES: Final = ("anyOf", "oneOf")
_COMBINE: Final = ("$ref", "allOf", *_CHOICES, "if", "dependentSchemas", "patternProperties")
_OPEN: Final = ("additionalProperties", "unevaluatedProperties")
_WORDS: Final = ("title", "description", "default", "examples", "deprecated")


def adopt(parameters: Mapping[str, Any], resources: Mapping[str, str], label: str) -> dict[str, Any]:
    """A copy of a tool's schema in which its objects are closed and its resources declared.

    An object that names its properties and says nothing of others takes no others. `resources` says of an
    argument, or of a place such as `/items/*/path`, what it is. Raises ToolError for a place that is not there.
    """
    root = _closed(copy.deepcopy(dict(parameters)))
    for word in ("title", "description"):  # the tool has its own
        root.pop(word, None)
    for place, kind in resources.items():
        _declare(root, place, kind, label)
    return _pruned(root)


def _closed(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    out = mapped(schema, _closed)
    if out.get("type") == "object" and "properties" in out and not out.keys() & {*_COMBINE, *_OPEN}:
        out["additionalProperties"] = False
    return out


def _declare(root: dict[str, Any], place: str, kind: str, label: str) -> None:
    steps = place.split("/")[1:] if place.startswith("/") else [place]
    here: Any = root
    for step in steps:
        here = _own(root, here, place, label)
        there = _below(here, step.replace("~1", "/").replace("~0", "~"))
        if there is None:
            named = list(here.get("properties", ()))
            raise ToolError(
                f"resources= names {place!r}, where the schema has nothing to declare",
                file=label,
                remedy=did_you_mean(step, named) or "name an argument, or a place such as /items/*/path",
            )
        here = there
    if here.get("x-resource", kind) != kind:
        raise ToolError(
            f"resources= says {kind!r} of {place!r}, and its annotation {here['x-resource']!r}",
            file=label,
            remedy="say it once",
        )
    here["x-resource"] = kind


def _below(here: dict[str, Any], step: str) -> dict[str, Any] | None:
    """The schema of a property, of an item by its index, or of any item or value for `*`."""
    found: Any = None
    if step == "*":
        found = here.get("items") if "items" in here else here.get("additionalProperties")
    elif step in here.get("properties", {}):
        found = here["properties"][step]
    elif step.isdigit() and int(step) < len(here.get("prefixItems", ())):
        found = here["prefixItems"][int(step)]
    return found if isinstance(found, dict) else None


def _own(root: dict[str, Any], here: dict[str, Any], place: str, label: str) -> dict[str, Any]:
    """What holds the next step: behind `or null`, and a copy of what is shared, so that no other place changes."""
    for _ in range(32):
        if "$ref" in here:
            try:
                target = copy.deepcopy(Document(root).target(here["$ref"]))
            except (KeyError, ValueError):
                target = None
            if not isinstance(target, dict) or any(k in here for k in target if k not in _WORDS):
                break
            del here["$ref"]
            here.update({key: value for key, value in target.items() if key not in here})
            continue
        subs = [s for key in _CHOICES for s in here.get(key, ()) if s != {"type": "null"}]
        if not subs:
            return here
        if len(subs) > 1 or not isinstance(subs[0], dict):
            break
        here = subs[0]
    raise ToolError(
        f"resources= names {place!r}, to which the schema leads in more than one way",
        file=label,
        remedy="let the argument be of one type, or that and null",
    )


def _pruned(root: dict[str, Any]) -> dict[str, Any]:
    """A schema without definitions that nothing refers to any more."""
    for keyword in ("$defs", "definitions"):
        defs = root.get(keyword)
        while isinstance(defs, dict):
            used = {part["$ref"] for part in parts(root) if "$ref" in part}
            kept = {name: sub for name, sub in defs.items() if f"#/{keyword}/{name}" in used}
            if len(kept) == len(defs):
                break
            defs = root[keyword] = kept
        if defs == {}:
            del root[keyword]
    return root
