"""Edits of a policy made in the text of its file, so that comments and order stay; shown as a unified diff."""

from __future__ import annotations

import difflib
import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from ...runtime.formats.strict_yaml import YamlError, load
from ..remedy.edits import Edit, change
from .policy_writer import plain_scalar

_NO_WRAPPING: Final = (
    1_000_000  # ruamel.yaml breaks lines at a width, which would change lines that no edit is of
)


def edited_text(text: str, edits: Sequence[Edit], expected: Any) -> str | None:
    """Return the text of a policy file with the edits made.

    A file laid out as no one YAML writer would (two indentations, say) is laid out anew on the way.

    Args:
        text: The file.
        edits: Edits of the policy that the file holds.
        expected: The data that the result has to read as.

    Returns:
        The text, or None where it would read as something else or lose a comment line, or where ruamel.yaml is not
        installed: the edits are then told in words.
    """
    try:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError
        from ruamel.yaml.scalarstring import DoubleQuotedScalarString
        from ruamel.yaml.util import load_yaml_guess_indent
    except ImportError:
        return None
    if not edits:
        return text if _reads_as(text, expected) else None
    try:
        _, indent, offset = load_yaml_guess_indent(text)
        writer = YAML()
        writer.preserve_quotes, writer.width = True, _NO_WRAPPING
        writer.indent(mapping=2, sequence=indent or 4, offset=2 if offset is None else offset)
        data = writer.load(text)
        quoted = [
            replace(item, value=DoubleQuotedScalarString(item.value)) if _needs_quotes(item.value) else item
            for item in edits
        ]
        change(data, quoted, _remove)
        out = io.StringIO()
        writer.dump(data, out)
    except (YAMLError, LookupError, ValueError):
        return None
    after = out.getvalue()
    return after if _reads_as(after, expected) and _comments(text) <= _comments(after) else None


def _needs_quotes(value: Any) -> bool:
    return isinstance(value, str) and plain_scalar(value) != value


def _remove(items: Any, index: int) -> None:
    """Remove an entry, and keep the lines below it: ruamel.yaml takes comments there for a part of the entry."""
    token = (items.ca.items.get(index) or [None])[0]
    below = token.value.partition("\n")[2] if token is not None else ""
    del items[index]
    if not below:
        return
    if index:
        before = (items.ca.items.get(index - 1) or [None])[0]
        if before is not None:
            before.value += below
        else:
            token.value = f"\n{below}"
            items.ca.items[index - 1] = [token, None, None, None]
    elif items:
        lines = [line.strip().removeprefix("#").strip() for line in below.splitlines() if line.strip()]
        items.yaml_set_comment_before_after_key(0, before="\n".join(lines), indent=items.lc.col)


def _comments(text: str) -> set[str]:
    return {line.strip() for line in text.splitlines() if line.lstrip().startswith("#")}


def _reads_as(text: str, expected: Any) -> bool:
    try:
        return bool(load(text.encode("utf-8"), "edited").data == expected)
    except YamlError:
        return False


def diff(before: str, after: str, name: str) -> str:
    """Return a unified diff; lines that do not end are none, since a policy's text ends with one."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
