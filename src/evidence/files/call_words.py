"""The arguments of a recorded call as a person reads them, the same wherever a call is printed."""

from __future__ import annotations

import json
from typing import Any

from ...runtime.core.lines import Line


def arguments_of(call: Line) -> str:
    """Return the arguments of a call of a ledger as compact JSON; as the model wrote them where they are no object."""
    given = call.get("arguments")
    return str(call.get("arguments_text") or "") if given is None else compact(given)


def compact(value: Any) -> str:
    """Return a decoded value as compact JSON; lone surrogates, which canonical JSON refuses, stay as they are."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
