"""Values that a schema admits, written from its canonical form.

They are candidates: a form that is not followed here costs a find at most, as the gates have the last word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import chain, islice, zip_longest
from typing import Any, Final

from jsonschema_rs import CanonicalSchema
from jsonschema_rs import canonical as forms

from ...runtime.formats.canonical_json import MAX_SAFE_INTEGER
from ..queries.witness import Arguments
from .pattern_samples import pattern_samples
from .schema_algebra import both, judge, less

_MAX_LENGTH: Final = 2_000_000  # of texts
_MAX_ITEMS: Final = 10_000
_PICKS: Final = 6  # values tried for one property
_MISSING: Final = object()
_PLAIN: Final[dict[str, list[Any]]] = {
    "string": ["x", ""], "object": [{}], "array": [[]], "number": [1, 0, 0.5], "integer": [1, 0, *range(2, 40)],
    "boolean": [False, True], "null": [None],
}  # fmt: skip


class InstanceGenerator:
    """Values of canonical schemas; of listed values, those of `preferred` come first."""

    def __init__(self, preferred: Iterable[Any] = ()) -> None:
        self._ranks = {value: rank for rank, value in enumerate(preferred)}

    def values(self, node: CanonicalSchema) -> Iterator[Any]:
        """Yield values that a schema admits, the simplest first."""
        match node.view():
            case forms.ConstView(value):
                yield value
            case forms.EnumView(values):
                last = len(self._ranks)
                yield from sorted(
                    values, key=lambda v: self._ranks.get(v, last) if isinstance(v, str) else last
                )
            case forms.TrueView():
                yield from chain(*_PLAIN.values())
            case forms.MultiTypeView(types):
                yield from chain(*(_PLAIN[kind] for kind in _PLAIN if kind in types))
            case forms.TypedGroupView(_, body):
                yield from self.values(body)
            case forms.AnyOfView(branches) | forms.OneOfView(branches):
                yield from _in_turns(map(self.values, branches))
            case forms.AllOfView(branches):
                yield from _admitted(node, chain.from_iterable(map(self.values, branches)))
            case forms.StringView() as view:
                yield from _admitted(node, _texts(view))
            case forms.IntegerView() | forms.NumberView() as view:
                yield from _admitted(node, _numbers(view))
            case forms.ArrayView() as view:
                yield from _admitted(node, self._arrays(view))
            case forms.ObjectView() as view:
                yield from self._objects(view)

    def _arrays(self, view: forms.ArrayView) -> Iterator[list[Any]]:
        needed = [both(rule.schema, view.items) if view.items else rule.schema for rule in view.contains]
        held = [value for node in needed if node is not None for value in islice(self.values(node), 1)]
        repeated = view.distinctness == forms.Distinctness.SOME_REPEATED
        least = max(view.min_items or 0, len(held), 2 if repeated else 0)
        fixed = [value for node in view.prefix_items for value in islice(self.values(node), 1)]
        held = [*fixed, *held]
        for length in (least, least + 1):
            left = min(length - len(held), _MAX_ITEMS)
            items = ["x"] if view.items is None else islice(self.values(view.items), max(left, _PICKS))
            if view.distinctness == forms.Distinctness.ALL_DISTINCT:
                yield [*held, *[item for item in items if item not in held][:left]]
            else:
                yield from ([*held, *[item] * left] for item in items)

    def _objects(self, view: forms.ObjectView) -> Iterator[Arguments]:
        free = list(dict.fromkeys(self._names(view)))
        names = [*view.required, *(name for name in free if name not in view.required)]
        names = names[: max(len(view.required), view.min_properties or 0, len(view.violations))]
        values = {name: islice(self._of_property(view, name), _PICKS) for name in names}
        first = {name: value for name in names for value in islice(values[name], 1)}
        if len(first) == len(names):
            yield first
            for name in names:
                yield from ({**first, name: other} for other in values[name])
            for name in free:
                yield from ({**first, name: value} for value in islice(self._of_property(view, name), 1))

    def _names(self, view: forms.ObjectView) -> Iterator[str]:
        yield from view.properties
        if view.property_names is None:
            yield from (f"x{i}" for i in range(max(1, min(view.min_properties or 0, _MAX_ITEMS))))
        else:
            yield from islice(self.values(view.property_names), max(_PICKS, view.min_properties or 0))

    def _of_property(self, view: forms.ObjectView, name: str) -> Iterator[Any]:
        node = view.properties.get(name, view.additional_properties)
        for rule in view.violations:
            if isinstance(rule, forms.UndeclaredValueFailsView) and name not in rule.names:
                node = less(node, rule.additional)
        return iter(("x", 1, None)) if node is None else self.values(node)


def _in_turns(branches: Iterable[Iterator[Any]]) -> Iterator[Any]:
    """Yield a value of each branch in turn, the one with the shortest first value first."""
    firsts = [(value, branch) for branch in branches for value in islice(branch, 1)]
    firsts.sort(key=lambda pair: len(str(pair[0])))
    yield from (value for value, _ in firsts)
    for turn in zip_longest(*(branch for _, branch in firsts), fillvalue=_MISSING):
        yield from (value for value in turn if value is not _MISSING)


def _admitted(node: CanonicalSchema, candidates: Iterable[Any]) -> Iterator[Any]:
    return filter(judge(node), candidates)


def _texts(view: forms.StringView) -> Iterator[str]:
    least = view.min_length or 0
    if least > _MAX_LENGTH:
        return
    samples = [text for pattern in view.patterns for text in pattern_samples(pattern)]
    yield from (sample + (sample[-1:] or "x") * (least - len(sample)) for sample in samples)
    yield from (character * max(least, 1) for character in "x- 0")
    yield "x" * least


def _numbers(view: forms.IntegerView | forms.NumberView) -> Iterator[int | float]:
    ends = [Fraction(end) for end in (view.minimum, view.maximum) if end is not None]
    steps = [Fraction(step) for step in view.multiple_of] or [Fraction(1)]
    near = [(end // step + more) * step for end in ends for step in steps for more in (0, 1, -1)]
    middle = [sum(ends, Fraction()) / len(ends)] if ends else []
    halves = [Fraction(1, 2), *(step / 2 for step in map(Fraction, view.not_multiple_of))]
    for number in (*map(Fraction, _PLAIN["integer"]), *ends, *near, *steps, *middle, *halves):
        if abs(number) <= MAX_SAFE_INTEGER:
            yield int(number) if number.denominator == 1 else float(number)
