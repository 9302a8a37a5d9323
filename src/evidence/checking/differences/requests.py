"""What a model was asked with, beside the messages, in two records of a run: which part moved, in words.

A live model that is asked with other tools, instructions or options may answer otherwise. A difference in those parts
is therefore of class ASKED in a live run, and DIGEST-ONLY in a scripted one, whose script does not read them. A record
of `ledger/v1` does not hold them; there the digests of the tools and the policy's version stand in their place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ....runtime.core.lines import Line
from ....runtime.journal import ledger_v1

_PARTS: Final = re.compile(
    r"(run|step)/request_parts/(tools|instructions|options)(?!/[0-9]+/digest\Z)"
    r"|step/llm_input/(tools|instructions|options)\Z"
)
_PARTS_OF_V1: Final = re.compile(
    r"run/(tools/[0-9]+(/(name|schema_digest))?|policy/version)\Z"
    r"|(run|step)/request_parts/(instructions|options)(?!/[0-9]+/digest\Z)"
)


def asked_pattern(ledger: Sequence[Line]) -> re.Pattern[str] | None:
    """Return what matches `TYPE/POINTER` of a difference in what a live model was asked; None for another run."""
    run: Any = ledger[0] if ledger else {}
    model = run.get("model")
    if run.get("type") != "run" or not isinstance(model, dict):
        return None
    if model.get("execution_path") in (None, "stub"):
        return None
    return _PARTS_OF_V1 if run.get("schema") == ledger_v1.SCHEMA else _PARTS


def moved_parts(before: Sequence[Line], after: Sequence[Line]) -> tuple[str, ...]:
    """Return which parts of the requests moved, each once: "tools: description of `search`".

    Entries are paired in the order in which they first appear. Lines of an unknown shape have no parts, and neither
    has a step of `ledger/v1`.
    """
    words: list[str] = []
    for kind, name in (("tools", _of_tools), ("instructions", _of_text), ("options", _of_options)):
        old, new = (_contents(ledger, kind) for ledger in (before, after))
        if kind == "tools" and not old:
            continue  # v1 does not say what was offered
        pairs = zip(old, new, strict=False) if len(old) == len(new) else ((_joined(old), _joined(new)),)
        for one, other in pairs:
            words += [f"{kind}: {what}" for what in name(one, other)]
    return tuple(dict.fromkeys(words))


def _contents(ledger: Sequence[Line], kind: str) -> list[Any]:
    """Return the contents of a kind of part in the order in which they first appear."""
    key = "text" if kind == "instructions" else kind
    found = []
    for line in ledger:
        parts = line.get("request_parts")
        entries = parts.get(kind) if isinstance(parts, dict) else None
        found += [
            entry[key]
            for entry in (entries if isinstance(entries, list) else ())
            if isinstance(entry, dict) and key in entry
        ]
    return found


def _joined(contents: Sequence[Any]) -> Any:
    """Return several contents of a kind as one."""
    if all(isinstance(item, list) for item in contents):
        return [entry for item in contents for entry in item]
    if contents and all(isinstance(item, dict) for item in contents):
        return {key: value for item in contents for key, value in item.items()}
    return contents[0] if len(contents) == 1 else list(contents)


def _of_tools(old: Any, new: Any) -> Iterator[str]:
    before, after = _by_name(old), _by_name(new)
    for name in before:
        if name not in after:
            yield f"`{name}` is no longer offered"
    for name in after:
        if name not in before:
            yield f"`{name}` is new"
            continue
        for key in ("description", "input_schema"):
            if before[name].get(key) != after[name].get(key):
                yield f"{key.replace('_', ' ')} of `{name}`"
    common = [name for name in before if name in after]
    if common != [name for name in after if name in before]:
        yield "their order"


def _by_name(tools: Any) -> dict[str, Mapping[str, Any]]:
    entries = tools if isinstance(tools, list) else ()
    return {str(tool.get("name")): tool for tool in entries if isinstance(tool, dict)}


def _of_text(old: Any, new: Any) -> Iterator[str]:
    if old != new:
        yield "the text"


def _of_options(old: Any, new: Any) -> Iterator[str]:
    before, after = (side if isinstance(side, dict) else {} for side in (old, new))
    for key in sorted({*before, *after}):
        if before.get(key, _of_options) != after.get(key, _of_options):
            yield f"`{key}`"
