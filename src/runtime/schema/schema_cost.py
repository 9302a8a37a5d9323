"""How often a schema may be held against one single value: bounded when it is loaded, not at a call.

Choices that refer to the same schema double the work with each step, and so do choices in a schema that holds
itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ...fail.errors import ToolError
from ..formats.canonical_json import MAX_DEPTH
from .schema_parts import Document, of_item, of_key

MAX_APPLIED: Final = 10_000
# asking what was evaluated holds the same schemas against the same data again
_AGAIN: Final = ("unevaluatedItems", "unevaluatedProperties")

# schemas by identity, each with how often it is applied
_Counts = dict[int, tuple[Any, int]]


def check_cost(document: Document, label: str) -> None:
    """Refuse a schema of which too many parts may meet in one value. Raises ToolError naming `label`."""
    cost = _Cost(document, label)
    cost.check()


class _Cost:
    def __init__(self, document: Document, label: str) -> None:
        self.document, self.label = document, label
        self.together: dict[int, _Counts] = {}

    def check(self) -> None:
        """Step down the data, level by level, as long as the count grows."""
        below: dict[int, list[_Counts]] = {}
        roots = {id(self.document.root): self.document.root}
        left = [self.document.root]
        while left:
            root = left.pop()
            below[id(root)] = self.below(root)
            for counts in below[id(root)]:
                for key, (schema, _) in counts.items():
                    if key not in roots:
                        roots[key] = schema
                        left.append(schema)
        own = {key: self.sum(self.here(schema)) for key, schema in roots.items()}
        worst = own
        for _ in range(MAX_DEPTH + 1):
            deeper = {
                key: max(
                    [own[key], *(sum(times * worst[k] for k, (_, times) in c.items()) for c in below[key])]
                )
                for key in roots
            }
            if max(deeper.values()) > MAX_APPLIED:
                raise self.refusal()
            if deeper == worst:
                return
            worst = deeper

    def refusal(self) -> ToolError:
        return ToolError(
            f"more than {MAX_APPLIED:,} of its parts may be held against one value",
            file=self.label,
            remedy="let fewer choices lead to the same schema",
        )

    def sum(self, counts: _Counts) -> int:
        total = sum(times for _, times in counts.values())
        if total > MAX_APPLIED:
            raise self.refusal()
        return total

    def here(self, schema: Any) -> _Counts:
        """The schemas that are held against the same value as `schema`, itself among them."""
        known = self.together.get(id(schema))
        if known is None:
            known = {id(schema): (schema, 1)}
            if isinstance(schema, dict):
                times = 2 if any(key in schema for key in _AGAIN) else 1
                for sub in self.beside(schema):
                    for key, (part, count) in self.here(sub).items():
                        known[key] = (part, known.get(key, (part, 0))[1] + times * count)
            self.sum(known)
            self.together[id(schema)] = known
        return known

    def beside(self, schema: dict[str, Any]) -> Iterable[Any]:
        document = self.document
        choices = [sub for _, subs in document.choices(schema) for sub in subs]
        negated = [schema["not"]] if "not" in schema else []
        return (*document.always(schema), *choices, *document.perhaps(schema), *negated)

    def below(self, schema: Any) -> list[_Counts]:
        """What is held against one value a level below: one entry for each key or index that is told apart."""
        here = [(part, times) for part, times in self.here(schema).values() if isinstance(part, dict)]
        names = {name for part, _ in here for name in part.get("properties", ())}
        length = max((len(part.get("prefixItems", ())) for part, _ in here), default=0)
        out = [self.counted((of_key(part, name), part, times) for part, times in here) for name in names]
        out.append(self.counted((_of_any_key(part), part, times) for part, times in here))
        for index in (*range(length), None):
            out.append(self.counted((_of_item(part, index), part, times) for part, times in here))
        return out

    @staticmethod
    def counted(found: Iterable[tuple[list[Any], dict[str, Any], int]]) -> _Counts:
        out: _Counts = {}
        for subs, part, times in found:
            subs = [*subs, *(part[key] for key in _AGAIN if key in part)]
            again = 2 if any(key in part for key in _AGAIN) else 1
            named = part.get("properties", {}).values()
            for sub in subs:
                # a declared property is known without a look
                more = times if any(sub is other for other in named) else times * again
                out[id(sub)] = (sub, out.get(id(sub), (sub, 0))[1] + more)
        return out


def _of_any_key(schema: dict[str, Any]) -> list[Any]:
    names = [schema["propertyNames"]] if "propertyNames" in schema else []
    more = [schema["additionalProperties"]] if "additionalProperties" in schema else []
    return [*schema.get("patternProperties", {}).values(), *more, *names]


def _of_item(schema: dict[str, Any], index: int | None) -> list[Any]:
    return [*of_item(schema, index), *([schema["contains"]] if "contains" in schema else [])]
