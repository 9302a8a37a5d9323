"""What a run has used so far, who it acts for, and when two calls are the same call."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from typing import Any, Final

from ...light_dataclasses import dataclass, field
from ..core.effects import Call
from ..formats import canonical_json, json_pointer
from ..resources.url import Malformed, parse_url
from ..tools.contract import Tool

MINUTE: Final = 60_000_000_000


@dataclass(slots=True)
class Counters:
    """What a run has used so far; the gate reads it, the loop adds to it.

    Attributes:
        iterations: Steps begun.
        tokens: Tokens of all model calls, both ways.
        tool_calls: Calls of tools that were executed.
        result_bytes: Bytes of all results.
        repeats: Identity of a call -> how often it gave the same result at most.
        results: Digest of a call with its result -> how often it came.
        attempts: Executions of tools, each retry counted.
        calls_of: Tool -> how many of its calls were executed.
        now: The time of the call that is decided, in nanoseconds since the run's start.
        times_of: Tool -> when those of its calls that are less than a minute old were decided.
        principal: On whose behalf the run acts, None where nobody said so.
        local_times: Zone -> the local time at which the call is decided, `YYYY-MM-DDThh:mm`.
    """

    iterations: int = 0
    tokens: int = 0
    tool_calls: int = 0
    result_bytes: int = 0
    repeats: dict[bytes, int] = field(default_factory=dict)
    results: dict[bytes, int] = field(default_factory=dict)
    attempts: int = 0
    calls_of: dict[str, int] = field(default_factory=dict)
    now: int = 0
    times_of: dict[str, tuple[int, ...]] = field(default_factory=dict)
    principal: str | None = None
    local_times: Mapping[str, str] = field(default_factory=dict)

    def count_call(self, name: str, *, timed: bool = False) -> None:
        """Note that a call of a tool is executed, and when it was decided if it is `timed`."""
        if timed:
            self.times_of[name] = (*self.lately(name), self.now)
        self.tool_calls += 1
        self.calls_of[name] = self.calls_of.get(name, 0) + 1

    def lately(self, name: str) -> tuple[int, ...]:
        """Return when the calls of a tool were decided that are less than a minute old."""
        return tuple(time for time in self.times_of.get(name, ()) if time > self.now - MINUTE)

    def count_result(self, call: Call, result: str, key: bytes | None = None) -> None:
        """Note that `call` brought `result` (canonical text); `key` is its identity, if `Gate.key_of` says another."""
        key = key or call_key(call)
        pair = hashlib.sha256(key + result.encode("utf-8")).digest()
        seen = self.results.get(pair, 0) + 1
        self.results[pair] = seen
        self.repeats[key] = max(self.repeats.get(key, 0), seen)


def call_key(call: Call) -> bytes:
    """Identity of a call: tool and canonical arguments."""
    arguments = call.arguments.text if call.arguments is not None else f"\0{call.raw}"
    return _key_of(call.name if isinstance(call.name, str) else repr(call.name), arguments)


def _key_of(name: str, arguments: str) -> bytes:
    return hashlib.sha256(f"{name}\0{arguments}".encode("utf-8", "backslashreplace")).digest()


def key_of_reading(call: Call, tool: Tool) -> bytes:
    """Return a call's key, the same however its URLs are spelled, and whether or not a default is written out."""
    urls = tuple(place for place in tool.resources if place.kind == "url")
    if call.arguments is None or not (urls or tool.has_defaults):
        return call_key(call)
    arguments = call.arguments.value()
    changed = tool.has_defaults and _fill_in(arguments, tool.input_schema)
    for place in urls:
        for pointer, text in place.find(arguments):
            try:
                url = parse_url(text).url
            except Malformed:
                continue
            if url != text:
                json_pointer.put(arguments, pointer, url)
                changed = True
    return _key_of(call.name, canonical_json.encode(arguments)) if changed else call_key(call)


def _fill_in(value: Any, schema: Any) -> bool:
    """Put the defaults of declared properties where they are absent; return whether any was put."""
    changed = False
    for name, part in schema.get("properties", {}).items() if isinstance(value, dict) else ():
        if not isinstance(part, dict):
            continue
        if name not in value and "default" in part:
            value[name] = copy.deepcopy(part["default"])
            changed = True
        changed = _fill_in(value.get(name), part) or changed
    return changed
