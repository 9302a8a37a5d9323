"""Bound how often the parts of a schema are held against one single value.

Choices that refer to the same schema double the work with each step, and so do choices in a schema that holds itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ...fail.errors import ToolError
from ..formats.canonical_json import MAX_DEPTH
from .subschemas import JsonSchema, subschemas, target

MAX_APPLIED: Final = 10_000
_SAME_VALUE: Final = frozenset("allOf anyOf oneOf not if then else dependentSchemas".split())
# asking what was evaluated holds the same schemas against the same data again
_AGAIN: Final = frozenset({"unevaluatedItems", "unevaluatedProperties"})

# schemas by identity, each with how often it is applied
_Counts = dict[int, tuple[Any, int]]


def check_bounds(schema: JsonSchema, label: str) -> None:
    """Refuse a schema whose parts may meet too often in one value, or that refers to itself without a step down.

    Raises ToolError naming `label`.
    """
    _Bounds(schema, label).check()


class _Bounds:
    def __init__(self, root: JsonSchema, label: str) -> None:
        self.root, self.label = root, label
        self.known: dict[int, _Counts] = {}
        self.open: set[int] = set()

    def check(self) -> None:
        """Follow the data level by level, as long as the count grows. Raises ToolError."""
        below: dict[int, list[_Counts]] = {}
        left = [self.root]
        while left:
            schema = left.pop()
            if id(schema) not in below:
                below[id(schema)] = self.below(schema)
                left += [part for counts in below[id(schema)] for part, _ in counts.values()]
        worst = own = {key: self.total(self.known[key]) for key in below}
        for _ in range(MAX_DEPTH + 1):
            deeper = {
                key: max(
                    [own[key], *(sum(n * worst[k] for k, (_, n) in counts.items()) for counts in below[key])]
                )
                for key in below
            }
            if max(deeper.values()) > MAX_APPLIED:
                raise self.refusal()
            if deeper == worst:
                return
            worst = deeper

    def total(self, counts: _Counts) -> int:
        applied = sum(times for _, times in counts.values())
        if applied > MAX_APPLIED:
            raise self.refusal()
        return applied

    def refusal(self) -> ToolError:
        return ToolError(
            f"more than {MAX_APPLIED:,} of its parts may be held against one value",
            file=self.label,
            remedy="let fewer choices lead to the same schema",
        )

    def applied_with(self, schema: Any) -> _Counts:
        """Return the schemas that are held against the same value as `schema`, itself among them."""
        if id(schema) in self.known:
            return self.known[id(schema)]
        if id(schema) in self.open:
            raise ToolError(
                "a reference leads back to itself",
                file=self.label,
                remedy="let it go through properties or items",
            )
        self.open.add(id(schema))
        counts: _Counts = {id(schema): (schema, 1)}
        for sub in self.beside(schema):
            for key, (part, times) in self.applied_with(sub).items():
                counts[key] = (part, counts.get(key, (part, 0))[1] + times * _times(schema))
        self.total(counts)
        self.open.discard(id(schema))
        self.known[id(schema)] = counts
        return counts

    def beside(self, schema: Any) -> Iterator[Any]:
        """Yield the schemas directly in `schema` that are held against the same value."""
        if isinstance(schema, dict):
            if "$ref" in schema:
                yield target(self.root, schema["$ref"])
            yield from (sub for key, _, sub in subschemas(schema) if key in _SAME_VALUE)

    def below(self, schema: Any) -> list[_Counts]:
        """Return what is held against one value a level below, for each key or index that is told apart."""
        applied = [
            (part, times) for part, times in self.applied_with(schema).values() if isinstance(part, dict)
        ]
        names = {name for part, _ in applied for name in part.get("properties", ())}
        length = max((len(part.get("prefixItems", ())) for part, _ in applied), default=0)
        groups = [[(part, times, _of_key(part, name)) for part, times in applied] for name in (*names, None)]
        indices = (*range(length), None)
        groups += [[(part, times, _of_item(part, index)) for part, times in applied] for index in indices]
        return [_counted(group) for group in groups]


def _counted(group: list[tuple[JsonSchema, int, list[Any]]]) -> _Counts:
    out: _Counts = {}
    for part, times, subs in group:
        declared = {id(sub) for sub in part.get("properties", {}).values()}  # known without a look
        for sub in subs:
            more = times if id(sub) in declared else times * _times(part)
            out[id(sub)] = (sub, out.get(id(sub), (sub, 0))[1] + more)
    return out


def _of_key(schema: JsonSchema, name: str | None) -> list[Any]:
    """Return the schemas that may be held against the value or name of a key; None is any that is not declared."""
    named = schema.get("properties", {})
    subs = [*schema.get("patternProperties", {}).values()]
    subs += (
        [named[name]]
        if name in named
        else [schema[key] for key in ("additionalProperties",) if key in schema]
    )
    return subs + [schema[key] for key in ("propertyNames", "unevaluatedProperties") if key in schema]


def _of_item(schema: JsonSchema, index: int | None) -> list[Any]:
    """Return the schemas that may be held against an item; None is any behind those with a schema of their own."""
    own = schema.get("prefixItems", ())
    subs = (
        [own[index]]
        if index is not None and index < len(own)
        else [schema[key] for key in ("items",) if key in schema]
    )
    return subs + [schema[key] for key in ("contains", "unevaluatedItems") if key in schema]


def _times(schema: JsonSchema) -> int:
    return 1 if _AGAIN.isdisjoint(schema) else 2
