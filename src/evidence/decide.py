"""One call from a file, decided as the first call of a run would be."""

from __future__ import annotations

import sys
from pathlib import Path

from ..fail.errors import InputError
from ..runtime.canonical_json import NotJson, freeze, parse
from ..runtime.effects import Call
from ..runtime.gate import Counters, Decision, decide
from ..runtime.policy import Policy
from ..runtime.tools import load_named


def decide_file(place: str, policy: Policy, root: Path) -> Decision:
    """Decide `{"tool": NAME, "arguments": {...}}` read from a file, or from standard input for `-`.

    Tools come from `root/tools`, else the shipped ones. Raises InputError.
    """
    try:
        text = sys.stdin.read() if place == "-" else Path(place).read_text(encoding="utf-8")
        data = parse(text).value()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot be read ({type(error).__name__})", file=place, remedy="give a JSON file"
        ) from None
    except NotJson as error:
        raise InputError(
            f"is no JSON: {error.reason}", file=place, remedy='write {"tool": ..., "arguments": {...}}'
        ) from None
    if not isinstance(data, dict) or set(data) != {"tool", "arguments"} or not isinstance(data["tool"], str):
        raise InputError(
            "is no call", file=place, remedy='write {"tool": "fetch", "arguments": {"url": "..."}}'
        )
    given = data["arguments"]
    problem = None if isinstance(given, dict) else "not an object"
    call = Call("tc_1_0", data["tool"], freeze(given) if problem is None else None, str(given)[:200], problem)
    folder = root / "tools"
    where = folder if folder.is_dir() else None
    tools = {name: load_named(name, where) for name in policy.allowed}
    return decide(call, policy, Counters(), tools)
