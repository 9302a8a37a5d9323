"""Edits of a policy as data, and how they are applied.

A pointer is one into the policy before any edit, so that a set of edits has no order. A pointer that ends in `/-` adds
to a list.
"""

from __future__ import annotations

import copy
import json
import operator
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from ...runtime.core.lines import Line
from ...runtime.formats.json_pointer import parse
from ...runtime.policy.policy import Policy

ADD: Final = "add"
REPLACE: Final = "replace"
REMOVE: Final = "remove"

Marks = dict[str, tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a policy.

    Attributes:
        pointer: JSON Pointer of what changes.
        op: `add`, `replace` or `remove`.
        value: The new value, None for `remove`.
        at: `file:line` of the line to change, or of the nearest one above it.
        text: The edit in one line for people.
    """

    pointer: str
    op: str
    value: Any
    at: str
    text: str

    def to_dict(self) -> Line:
        """Return the edit as JSON data."""
        return asdict(self)


def edit(policy: Policy, pointer: str, op: str, value: Any = None) -> Edit:
    """Return an edit of `policy` with the place of its line."""
    at = policy.at(pointer.removesuffix("/-"))
    return Edit(pointer, op, value, at, f"{at}: {_describe(policy, pointer, op, value)}")


def apply(policy: Policy, edits: Iterable[Edit]) -> Policy:
    """Return the policy with the edits made, its other entries on the lines that they had. Raises PolicyError."""
    given = list(edits)
    if not given:
        return policy
    data = copy.deepcopy(policy.data)
    marks, values = dict(policy._marks), dict(policy._values)
    for place, index in change(data, given):
        for table in (marks, values):
            _shift(table, place, index)
    return Policy(data, files=policy.files, sources=policy.sources, marks=marks, values=values)


def change(
    data: Any, edits: Iterable[Edit], remove: Callable[[list[Any], int], None] = operator.delitem
) -> list[tuple[str, int]]:
    """Make the edits in the data of a policy.

    Args:
        data: Changed in place; any mappings and lists will do.
        edits: Edits of this data.
        remove: Removes an entry of a list by its index.

    Returns:
        The pointer of the list and the index of each entry removed, in the order of removal: from the back.
    """
    removed: list[tuple[str, int]] = []
    for item in edits:
        place, _, last = item.pointer.rpartition("/")
        if item.op == REMOVE:
            removed.append((place, int(last)))
            continue
        holder = _holder(data, place, isinstance(_value_at(data, place), list) or last == "-")
        if last == "-":
            holder.append(item.value)
        else:
            holder[int(last) if isinstance(holder, list) else last] = item.value
    removed.sort(reverse=True)
    for place, index in removed:
        remove(_value_at(data, place), index)
    return removed


def _value_at(data: Any, pointer: str) -> Any:
    for part in parse(pointer):
        data = data.get(part) if isinstance(data, dict) else None
    return data


def _holder(data: Any, pointer: str, is_list: bool) -> Any:
    """Return what is at a pointer; if there is nothing, put an empty list or mapping there."""
    parts = parse(pointer)
    for number, part in enumerate(parts, 1):
        data = data.setdefault(part, [] if is_list and number == len(parts) else {})
    return data


def _shift(marks: Marks, place: str, index: int) -> None:
    """Remove the mark of a list entry and renumber those after it."""
    behind = {
        number: mark
        for pointer, mark in marks.items()
        if pointer.startswith(f"{place}/") and (number := int(pointer[len(place) + 1 :])) >= index
    }
    for number in behind:
        del marks[f"{place}/{number}"]
    marks.update({f"{place}/{number - 1}": mark for number, mark in behind.items() if number > index})


def _describe(policy: Policy, pointer: str, op: str, value: Any) -> str:
    """Return an edit in words; what it quotes is text that a policy can hold."""
    place, _, last = pointer.rpartition("/")
    name = place[1:].replace("/", ".")
    old = _value_at(policy.data, place)
    if op == REMOVE:
        return f"remove {_value_text(old[int(last)])} from {name}"
    if isinstance(old, list) or last == "-":
        if op == REPLACE:
            return f"under {name} write {json.dumps(value)} for {json.dumps(old[int(last)])}"
        if name in ("url_allowlist", "private_networks"):
            return f"under {name} add {json.dumps(value)}"
        return f"add {_value_text(value)} to {name}"
    return f"{f'{name}.{last}' if name else last}: {_value_text(value)}"


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
