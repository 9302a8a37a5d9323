"""The parts of a model request beside its messages, as a ledger holds them: each once, named by its digest.

A tool set is what the model is offered, in order; model options are settings such as a temperature. The digest of a
part is the SHA-256 of its canonical JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from ..core.lines import Line, OptionsEntry, RequestPartsEntry, ToolSetEntry
from ..formats import canonical_json
from ..formats.canonical_json import Fragment
from .types import ToolSpec

# the key of the options that holds the schema of the final answer, which each provider takes in its own way
OUTPUT_SCHEMA: Final = "output_schema"


@lru_cache(maxsize=128)
def _tool_set(specs: tuple[ToolSpec, ...]) -> tuple[str, str]:
    """Return the canonical text of a tool set and its digest. Cached: the runs of an agent offer the same one."""
    text = canonical_json.encode(
        [
            {"name": spec.name, "description": spec.description, "input_schema": Fragment(spec.input_schema)}
            for spec in specs
        ]
    )
    return text, canonical_json.digest(text)


def tools_digest(specs: tuple[ToolSpec, ...]) -> str:
    """Return the digest of the tools that are offered."""
    return _tool_set(specs)[1]


def tool_set(specs: tuple[ToolSpec, ...]) -> ToolSetEntry:
    """Return the entry of the tools that are offered; the tools are a Fragment, as results in a line are."""
    text, digest = _tool_set(specs)
    return {"digest": digest, "tools": Fragment(text)}  # type: ignore[typeddict-item]


def option_set(options: Mapping[str, Any]) -> OptionsEntry:
    """Return the entry of model options, as plain data. Raises NotJson."""
    text = canonical_json.encode(dict(options))
    return {"digest": canonical_json.digest(text), "options": json.loads(text)}


def first_parts(
    specs: tuple[ToolSpec, ...], options: Mapping[str, Any], instructions: str | None = None
) -> RequestPartsEntry:
    """Return the parts that a run begins with, as plain data; each only where there is one. Raises NotJson."""
    text, digest = _tool_set(specs)
    parts: RequestPartsEntry = {"tools": [{"digest": digest, "tools": json.loads(text)}]}
    if options:
        parts["options"] = [option_set(options)]
    if instructions is not None:
        digest = canonical_json.digest(canonical_json.encode(instructions))
        parts["instructions"] = [{"digest": digest, "text": instructions}]
    return parts


def first_digests(parts: RequestPartsEntry) -> dict[str, str]:
    """Return the digests, by kind, of the parts that stay the same all run long; tools may change."""
    kinds: dict[str, Any] = {kind: parts.get(kind) for kind in ("instructions", "options")}
    return {kind: entries[0]["digest"] for kind, entries in kinds.items() if entries}


def options_of(run_line: Line) -> dict[str, Any]:
    """Return the model options that a run line holds, without the schema of the answer; none where it has none."""
    return {key: value for key, value in _all_options(run_line).items() if key != OUTPUT_SCHEMA}


def output_schema_of(run_line: Line) -> dict[str, Any] | None:
    """Return the schema of the final answer that a run line holds, None where any text is one."""
    schema: dict[str, Any] | None = (
        _all_options(run_line).get(OUTPUT_SCHEMA) if "output" in run_line else None
    )
    return schema


def _all_options(run_line: Line) -> dict[str, Any]:
    entries = run_line["request_parts"].get("options", [])
    return dict(entries[0]["options"]) if entries else {}
