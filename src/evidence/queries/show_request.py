"""Show what the model saw at a step of a recorded run: messages, instructions, tools, options."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ...fail.errors import RecordError
from ...runtime.formats import canonical_json
from ...runtime.formats.escape import escape_terminal
from ...runtime.formats.read_file import read_unlinked, why_unread
from ...runtime.journal import ledger, ledger_v1
from ...runtime.journal.requests import Request, requests_of
from ..files.manifest import STATE

Paint = Callable[[str, str], str]


def show_request(folder: Path, step: int, *, as_json: bool, paint: Paint) -> str:
    """Return the request of step `step` of the run in `folder`, as text or JSON, from its ledger alone.

    Raises:
        RecordError: The ledger cannot be read, or the model was not asked in that step.
    """
    name = (folder / STATE).as_posix()
    try:
        lines = list(ledger.read(read_unlinked(folder / STATE), name))
    except OSError as error:
        raise RecordError(
            f"cannot be read ({why_unread(error)})", file=name, remedy="name the folder of a recorded run"
        ) from None
    try:
        requests = {request.step: request for request in requests_of(lines)}
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ledger.unknown_shape(name, error) from error
    if step not in requests:
        asked = ", ".join(map(str, sorted(requests))) or "none"
        raise RecordError(f"the model was not asked in step {step}", file=name, remedy=f"steps: {asked}")
    request = requests[step]
    is_v1 = lines[0]["schema"] == ledger_v1.SCHEMA
    if as_json:
        return json.dumps(_data(request), sort_keys=True)
    return "\n".join(_text(request, is_v1, paint))


def _data(request: Request) -> dict[str, Any]:
    data: dict[str, Any] = {
        "step": request.step,
        "messages": list(request.messages),
        "max_output_tokens": request.max_output_tokens,
        "not_vouched_for": list(request.problems),
    }
    parts = {
        "instructions": request.instructions,
        "tools": request.tools,
        "options": request.options,
    }
    return data | {kind: part for kind, part in parts.items() if part is not None}


def _text(request: Request, is_v1: bool, paint: Paint) -> Iterator[str]:
    yield paint(f"what the model saw at step {request.step}", "bold")
    for problem in request.problems:
        yield paint(f"not vouched for: {escape_terminal(problem, 200)}", "red")
    if request.instructions is not None:
        yield from _part("instructions", request.instructions, paint)
    for number, message in enumerate(request.messages, start=1):
        who = f"message {number}  {message['role']}"
        if message["role"] == "tool":
            who += f" {message['name']} ({message['tool_call_id']})"
        yield from _part(who, message["content"], paint)
        for call in message.get("tool_calls", ()):
            yield f"  call {escape_terminal(call['name'])} {escape_terminal(call['arguments'])}"
        if "raw" in message:
            yield f"  sent back as it came: {escape_terminal(canonical_json.encode(message['raw']))}"
    if request.tools is None:
        words = f"a record of {ledger_v1.SCHEMA} does not say" if is_v1 else "not in the ledger"
        yield from _part("tools", words, paint)
    elif not request.tools:
        yield from _part("tools", "none", paint)
    for tool in request.tools or ():
        yield from _part(f"tool {tool['name']}", tool["description"], paint)
        yield f"  {escape_terminal(canonical_json.encode(tool['input_schema']))}"
    if request.options is not None:
        yield from _part("options", canonical_json.encode(request.options), paint)
    yield f"{paint('at most', 'bold')}  {request.max_output_tokens} tokens of reply"


def _part(name: str, text: str, paint: Paint) -> Iterator[str]:
    """Yield a heading and, below it, a text with its lines kept apart."""
    yield paint(escape_terminal(name), "bold")
    yield from (f"  {escape_terminal(line)}".rstrip() for line in text.split("\n"))
