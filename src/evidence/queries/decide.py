"""Read one call from a file to be decided, and render explanations as text."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from ...fail.errors import InputError, ToolError
from ...runtime.core.effects import Call
from ...runtime.core.local_time import minute_of_week, times_given
from ...runtime.formats.canonical_json import NotJson, parse
from ...runtime.formats.escape import escape_terminal, quote_literal
from ...runtime.formats.read_file import NotPlain, read_plain
from ...runtime.formats.shipped_files import shipped
from ...runtime.models.types import read_call
from ...runtime.policy.explain import (
    ASKS,
    FAILED,
    NOT_ASKED,
    PASSED,
    Budget,
    Explanation,
    RuleVerdict,
)
from ...runtime.policy.gate import Counters, Gate
from ...runtime.policy.per_tool.principals import check_name
from ...runtime.policy.per_tool.time_windows import zones_of
from ...runtime.policy.policy import Policy
from ...runtime.schema.schema_errors import did_you_mean
from ...runtime.tools.contract import Tool
from ...runtime.tools.loader import load_named, names_in
from ..tasks.code.tools import REMEDY, with_tools_in_code

Paint = Callable[[str, str], str]

_EXAMPLE: Final = '{"tool": "fetch", "arguments": {"url": "https://corpus.test/op-a1.md"}}'
_KEYS: Final = ("tool", "arguments", "used", "principal")
_JSON_FILE: Final = "give a JSON file, or -"
_MOST: Final = 16 << 20
USED_BEFORE: Final = (
    "iterations",
    "tokens",
    "tool_calls",
    "result_bytes",
    "attempts",
    "calls_of_tool",
    "calls_in_minute",
    "repeats",
)


def read_file(
    place: str, policy: Policy, root: Path, principal: str | None = None, at: str | None = None
) -> tuple[Gate, Call, Counters]:
    """Read `{"tool": NAME, "arguments": ..., "used": ..., "principal": NAME}` from a file, or standard input for `-`.

    `arguments` is an object, or text as a model writes it. `used` is optional: what the run has used before
    (`iterations`, `tokens`, `tool_calls`, `calls_of_tool`, `result_bytes`, and `repeats` of this very call).
    `principal` is on whose behalf the call is made, if anybody says so.

    Args:
        place: The file, or `-`.
        policy: The policy that decides.
        root: The project; its `tools/` is used if it exists, else the shipped tools.
        principal: On whose behalf the call is made, whatever the file says.
        at: The time of the call, see `counters_at`; without one it is not known.

    Returns:
        What a decision needs: the gate, the call and the counters.

    Raises:
        InputError: The file cannot be read or is not a call, or `at` is no time.
    """
    name = "standard input" if place == "-" else place
    data = _read(place, name)
    unknown = sorted(set(data) - set(_KEYS))
    if unknown:
        hint = did_you_mean(unknown[0], _KEYS) or f"write {_EXAMPLE}"
        raise InputError(f"unknown key {unknown[0]!r}", file=name, remedy=hint)
    for key in ("tool", "arguments"):
        if key not in data:
            raise InputError(f"has no {key}", file=name, remedy=f"write {_EXAMPLE}")
    if not isinstance(data["tool"], str):
        raise InputError("tool must be a string", file=name, remedy=f"write {_EXAMPLE}")
    gate = Gate(policy, tools_of(policy.allowed, root))
    call = call_of(data["tool"], data["arguments"], policy)
    given = data.get("principal") if principal is None else principal
    check_name(given)
    counters = counters_of(_used(data.get("used", {}), name), gate.key_of(call), call.name, given)
    return gate, call, counters if at is None else _at(counters, at, policy, call)


def _at(counters: Counters, given: str, policy: Policy, call: Call) -> Counters:
    try:
        return counters_at(counters, given, policy, call.name)
    except ValueError:
        remedy = "write a local time like 2026-11-23T10:00, or a moment like 2026-11-23T10:00+01:00"
        raise InputError(f"--at {quote_literal(given)} is no time", remedy=remedy) from None


def counters_at(counters: Counters, given: str | Mapping[str, str], policy: Policy, tool: str) -> Counters:
    """Return counters with the local times that decide about a tool, at a time or as given by zone.

    A time without an offset is what the wall clock shows in every zone that the policy names for the tool, one with an
    offset is a moment. Raises ValueError.
    """
    zones = zones_of(policy, tool)
    if isinstance(given, str):
        counters.local_times = times_given(given, zones)
    else:
        counters.local_times = {zone: time for zone, time in given.items() if minute_of_week(time) >= 0}
    return counters


def tools_of(names: Iterable[str], root: Path) -> dict[str, Tool]:
    """Load tools by name from a project, or the shipped ones if it has no `tools/`.

    A tool that is in no such folder is that of an agent in code which a task of the project names.

    Raises:
        ToolError: There is no tool of a name.
    """
    folder = root / "tools"
    where = folder if folder.is_dir() else None
    wanted, there = list(names), names_in(where or shipped("tools"))
    tools = {name: load_named(name, where) for name in wanted if name in there}
    tools = with_tools_in_code(tools, wanted, root)
    for name in wanted:
        if name not in tools:
            raise ToolError(
                f"there is no tool {name!r}",
                file="tools",
                remedy=did_you_mean(name, [*tools, *there]) or REMEDY,
            )
    return {name: tools[name] for name in wanted}


def call_of(tool: str, arguments: object, policy: Policy) -> Call:
    """Read a call as from a model's reply, secrets redacted as the policy says."""
    return read_call("tc_1_0", tool, arguments, policy.redactor())


def counters_of(
    used: Mapping[str, int], key: bytes, tool: str = "", principal: str | None = None
) -> Counters:
    """Return the counters of a run that has used so much; `repeats` and `calls_of_tool` are those of one call."""
    before: dict[str, Any] = {name: used[name] for name in USED_BEFORE[:-3] if name in used}
    counts = Counters(**before, principal=principal)
    counts.repeats[key] = used.get("repeats", 0)
    counts.calls_of[tool] = used.get("calls_of_tool", 0)
    counts.times_of[tool] = (0,) * used.get("calls_in_minute", 0)
    return counts


def _read(place: str, name: str) -> dict[str, Any]:
    try:
        text = sys.stdin.read(_MOST + 1) if place == "-" else read_plain(place, _MOST).decode("utf-8")
    except FileNotFoundError:
        raise InputError("cannot be read (no such file)", file=name, remedy=_JSON_FILE) from None
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or "not UTF-8"
        problem = str(error) if isinstance(error, NotPlain) else problem
        raise InputError(f"cannot be read ({problem})", file=name, remedy=_JSON_FILE) from None
    if len(text) > _MOST:
        raise InputError(f"is longer than {_MOST >> 20} MiB", file=name, remedy=_JSON_FILE)
    try:
        data = parse(text).value()
    except NotJson as error:
        why = "" if error.reason == "not JSON" else f": {error.reason}"
        raise InputError(f"is not JSON{why}", file=name, remedy=f"write {_EXAMPLE}") from None
    if not isinstance(data, dict):
        raise InputError("is not a call", file=name, remedy=f"write {_EXAMPLE}")
    return data


def _used(used: object, name: str) -> Mapping[str, int]:
    all_counts = isinstance(used, dict) and all(type(n) is int and n >= 0 for n in used.values())
    if not isinstance(used, dict) or not all_counts or not set(used) <= set(USED_BEFORE):
        remedy = f"give whole numbers for some of {', '.join(USED_BEFORE)}"
        raise InputError("used must be an object of counts", file=name, remedy=remedy)
    return used


# ---- as text ------------------------------------------------------------------------------------------------

_COLOURS: Final = {PASSED: "green", FAILED: "red", ASKS: "yellow", NOT_ASKED: "dim"}


def text_of(explanation: Explanation, paint: Paint, indent: str = "") -> str:
    """Return an explanation as text: the decision, a table of rules, a table of budgets."""
    lines = [
        decision_line({**explanation.decision.to_dict(), "line": explanation.line}, paint),
        "",
        *rule_lines(explanation.rules, paint),
        "",
    ]
    lines += budget_lines(explanation.budgets)
    return "\n".join(f"{indent}{line}".rstrip() for line in lines)


def decision_line(decision: Mapping[str, Any], paint: Paint) -> str:
    """Return a decision in one line, with the line of its rule where it is known as `line`."""
    colour = {"allow": "green", "deny": "red"}.get(decision["decision"], "yellow")
    head = paint(escape_terminal(decision["decision"]), colour)
    place = decision.get("line", decision["at"])
    return "  ".join((head, *map(escape_terminal, (decision["rule_id"], place, decision["reason"]))))


def rule_lines(rules: tuple[RuleVerdict, ...], paint: Paint) -> list[str]:
    """Return a table of verdicts, each with its policy line."""
    wide = max((len(rule.at) for rule in rules), default=0)
    return [
        f"{rule.rule_id:<16} {paint(f'{rule.verdict:<13}', _COLOURS[rule.verdict])} "
        f"{escape_terminal(rule.at):<{wide}}  {escape_terminal(rule.reason)}"
        for rule in rules
    ]


def budget_lines(budgets: tuple[Budget, ...]) -> list[str]:
    """Return a table of budgets: used, allowed, policy line."""
    return [
        f"{budget.name:<16} {budget.used:>9} of {budget.limit:<9} {escape_terminal(budget.at)}"
        for budget in budgets
    ]
