"""Edits of a policy made in the text of its file, so that comments and order stay; shown as a unified diff.

What comes of it is read again: text that does not read as the edited policy is given up, and the edits stay words.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from typing import Any, Final

import yaml

from ...runtime.formats.strict_yaml import YamlError, load
from ..remedy.edits import ADD, REMOVE, REPLACE, Edit
from .policy_writer import plain_key, plain_scalar

# the pure Python parser tells where collections end; the C one does not always
_LOADER: Final[Any] = yaml.SafeLoader


def edited_text(text: str, edits: Sequence[Edit], wanted: Any) -> str | None:
    """The text with the edits made, which reads as `wanted`; None where that did not come of it."""
    try:
        for item in _ordered(edits):
            text = _made(text, item)
        found = load(text.encode("utf-8"), "edited").data
    except (YamlError, yaml.YAMLError, LookupError, ValueError):
        return None
    return text if found == wanted else None


def diff(before: str, after: str, name: str) -> str:
    """A unified diff; lines that do not end are none, since a policy's text ends with one."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def _ordered(edits: Sequence[Edit]) -> list[Edit]:
    """Replacements first, then removals from the back, since pointers are of the policy before any edit."""
    removed = [item for item in edits if item.op == REMOVE]
    removed.sort(key=lambda item: (item.pointer.rpartition("/")[0], int(item.pointer.rpartition("/")[2])))
    others = [item for item in edits if item.op != REMOVE]
    others.sort(key=lambda item: item.op != REPLACE)
    replaced = [item for item in others if item.op == REPLACE]
    return [*replaced, *reversed(removed), *(item for item in others if item.op == ADD)]


def _made(text: str, item: Edit) -> str:
    root = yaml.compose(text, Loader=_LOADER)
    *way, last = item.pointer.split("/")[1:]
    node, missing = _down(root, way)
    if item.op == REMOVE:
        return _removed(text, node, int(last))
    if missing:
        # a section that is not there: it comes with all that is below
        value = [item.value] if last == "-" else {last: item.value}
        for key in reversed(missing[1:]):
            value = {key: value}
        return _with_key(text, node, missing[0], value)
    if last == "-":
        return _with_item(text, node, item.value)
    found = _child(node, last)
    if found is None:
        return _with_key(text, node, last, item.value)
    return f"{text[: found.start_mark.index]}{plain_scalar(item.value)}{text[found.end_mark.index :]}"


def _down(node: Any, way: Sequence[str]) -> tuple[Any, list[str]]:
    """The node at the end of a way, or the last that is there and what of the way is missing."""
    for number, part in enumerate(way):
        below = _child(node, part)
        if below is None:
            return node, list(way[number:])
        node = below
    return node, []


def _child(node: Any, part: str) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return node.value[int(part)]
    return next((value for key, value in node.value if key.value == part), None)


def _line_end(text: str, index: int) -> int:
    end = text.find("\n", index)
    return len(text) if end < 0 else end


def _end_of(node: Any) -> int:
    """Where the last scalar of a node ends; a block collection itself ends at what follows it."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return int(node.end_mark.index)


def _with_item(text: str, node: Any, value: Any) -> str:
    if node.flow_style:
        at = node.end_mark.index - 1
        inside = text[node.start_mark.index + 1 : at]
        kept = inside.rstrip()
        comma = "" if not node.value else " " if kept.endswith(",") else ", "
        return f"{text[: at - len(inside) + len(kept)]}{comma}{json.dumps(value)}{text[at - len(inside) + len(kept) :]}"
    at = _line_end(text, _end_of(node))
    return f"{text[:at]}\n{' ' * node.start_mark.column}- {plain_scalar(value)}{text[at:]}"


def _with_key(text: str, node: Any, key: str, value: Any) -> str:
    if node.flow_style:
        at = node.end_mark.index - 1
        comma = ", " if node.value else ""
        return f"{text[:at].rstrip()}{comma}{plain_key(key)}: {_flow(value)}{text[at:]}"
    at = _line_end(text, _end_of(node))
    return f"{text[:at]}\n{' ' * node.start_mark.column}{plain_key(key)}: {_flow(value)}{text[at:]}"


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{plain_key(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    return f"[{', '.join(map(json.dumps, value))}]" if isinstance(value, list) else plain_scalar(value)


def _removed(text: str, node: Any, index: int) -> str:
    item = node.value[index]
    start, end = item.start_mark.index, item.end_mark.index
    if not node.flow_style:
        if len(node.value) == 1:  # an empty list is written in brackets
            return f"{text[: node.start_mark.index]}[]{text[end:]}"
        begin = text.rfind("\n", 0, start) + 1
        return text[:begin] + text[_line_end(text, end) + 1 :]
    if index + 1 < len(node.value):
        return text[:start] + text[node.value[index + 1].start_mark.index :]
    before = node.value[index - 1].end_mark.index if index else node.start_mark.index + 1
    return text[:before] + text[end:]
