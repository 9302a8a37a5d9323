"""What a JSON Schema cannot say of the rules per tool and the named lists of a policy.

A rule that could decide nothing is refused like every other entry that is inert: whoever reads it believes that it
guards something.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...core.local_time import NoZones, zone_names
from ...formats.escape import quote_literal
from ...formats.json_pointer import escape_pointer, parse
from ...schema.ecma_patterns import BadPattern, linear_pattern
from ...schema.schema_errors import did_you_mean
from ...schema.subschemas import located, parts
from ...schema.validator import SchemaValidator, place_of_schema_error
from ...schema.work import MAX_WORK, work_of
from ...tools.contract import Tool
from ..consistency import Checked
from .argument_schema import IN, KEYWORDS, condition_schema, leads_nowhere
from .request_rules import PARTS
from .tool_reach import KEYS
from .windows_of_the_week import BETWEEN, BadWindow, Window, read_window, written

_CONDITIONS: Final = ("arguments", "ask_if")


def check_tool_rules(policy: Checked) -> None:
    """Rules per tool that cannot be read or decide nothing. Raises PolicyError."""
    if isinstance(policy.data.get("approval", {}).get("signers"), str):
        raise policy.error(
            "/approval/signers",
            "signers in a file are read only where the policy itself is a file",
            "give the keys by name",
        )
    for name, entry in policy.data.get("lists", {}).items():
        if isinstance(entry, dict):
            raise policy.error(
                f"/lists/{name}",
                "a list in a file is read only where the policy itself is a file",
                "give the values",
            )
    for tool, entry in policy.tool_rules.items():
        place = f"/tools/{escape_pointer(tool)}"
        if tool not in policy.allowed:
            raise policy.error(
                place,
                f"these rules never apply, since {tool!r} is not allowed",
                did_you_mean(tool, policy.allowed) or "allow the tool or remove the rules",
            )
        if "urls" in entry:
            from .tool_reach_checks import check_urls_of  # few policies have such rules

            check_urls_of(policy, tool)
        for section in (*_CONDITIONS, *PARTS):
            for pointer, condition in entry.get(section, {}).items():
                _check_condition(policy, f"{place}/{section}/{escape_pointer(pointer)}", pointer, condition)
        _check_windows(policy, f"{place}/{BETWEEN}", entry.get(BETWEEN, ()))
        _check_headers(policy, f"{place}/headers", entry.get("headers", {}))
        if "ask_if" in entry and tool in policy.approval_for:
            raise policy.error(
                f"{place}/ask_if",
                f"these conditions never decide, since approval.required_for names {tool!r} in any case",
                "remove one of the two",
            )
        if "ask_if" in entry and "approval" not in policy.data:
            raise policy.error(
                f"{place}/ask_if",
                "nothing says how long a person is waited for",
                "add approval: {required_for: [], timeout_s: 300}",
            )


def _check_windows(policy: Checked, place: str, between: Any) -> None:
    """Refuse a window that cannot be read, or that another one covers. Raises PolicyError."""
    windows: list[Window] = []
    for i, data in enumerate(written(between)):
        at = place if isinstance(between, Mapping) else f"{place}/{i}"
        try:
            window = read_window(data)
        except BadWindow as error:
            raise policy.error(f"{at}/{error.key}", error.message, error.remedy) from None
        try:
            names = zone_names()
        except NoZones:
            raise policy.error(
                f"{at}/zone", "the zone database is not there", "install the package tzdata"
            ) from None
        if window.zone not in names:
            raise policy.error(
                f"{at}/zone",
                f"there is no zone {quote_literal(window.zone)}",
                did_you_mean(window.zone, names) or "name one like Europe/Berlin, or UTC",
            )
        covered = [j for j, other in enumerate(windows) if _covers(other, window) or _covers(window, other)]
        if covered:
            raise policy.error(
                at, f"of this window and window {covered[0] + 1} one lies within the other", "remove one"
            )
        windows.append(window)


def _covers(window: Window, other: Window) -> bool:
    return window.zone == other.zone and not other.minutes & ~window.minutes


def _check_headers(policy: Checked, place: str, conditions: Mapping[str, Any]) -> None:
    """Refuse pointers that name no header as it is judged. Raises PolicyError."""
    for pointer in conditions:
        names = parse(pointer)
        if names and (len(names) > 1 or names[0] != names[0].lower() or not names[0]):
            raise policy.error(
                f"{place}/{escape_pointer(pointer)}",
                f"{quote_literal(pointer)} names no header: headers are judged as texts by names in lower case",
                f"write {quote_literal('/' + names[0].lower())}",
            )


def _check_condition(policy: Checked, place: str, pointer: str, condition: Any) -> None:
    """Refuse a condition that cannot be read. Raises PolicyError."""
    try:
        parse(pointer)
    except ValueError:
        raise policy.error(
            place, f"{quote_literal(pointer)} is no JSON Pointer", "write it like /amount"
        ) from None
    if not condition:
        raise policy.error(
            place, "an empty condition judges nothing", "name what the value has to meet, or remove it"
        )
    problem = place_of_schema_error({key: value for key, value in condition.items() if key != IN})
    if problem is not None:
        keyword = problem[0].split("/")[1]
        raise policy.error(
            f"{place}/{escape_pointer(keyword)}",
            f"{keyword!r} has a value that it cannot have",
            "see docs/policy.md",
        )
    for at, part in located(condition):
        if "oneOf" in part and any(IN in inner for inner in parts(part)):
            raise policy.error(
                f"{place}{at}/oneOf",
                "a value that two of its lists share would meet neither, so that a longer list could deny more",
                "write anyOf",
            )
        for key in part:
            if key not in KEYWORDS:
                raise policy.error(
                    f"{place}{at}/{escape_pointer(key)}",
                    f"{quote_literal(key)} is not a keyword of conditions",
                    did_you_mean(key, sorted(KEYWORDS)) or f"use {', '.join(sorted(KEYWORDS))}",
                )
        if IN in part and (not isinstance(part[IN], str) or part[IN] not in policy.lists):
            raise policy.error(
                f"{place}{at}/{IN}",
                f"there is no list {quote_literal(str(part[IN]))}",
                did_you_mean(str(part[IN]), policy.lists) or "add it to lists",
            )
        if "pattern" in part:
            try:
                linear_pattern(part["pattern"])
            except BadPattern as error:
                raise policy.error(
                    f"{place}{at}/pattern",
                    f"the pattern is not usable: {error.reason}",
                    "look-around and references to groups are not supported",
                ) from None
    judged = {"properties": {"": condition_schema(condition, policy.lists)}}
    SchemaValidator(judged)  # raises for whatever the checks above let pass
    steps = work_of(judged).least()
    if steps > MAX_WORK:
        raise policy.error(
            place,
            f"judging one value may take {steps:,} steps, more than a decision may take ({MAX_WORK:,})",
            "shorten its lists or patterns",
        )


def check_rules_of(policy: Checked, tools: Iterable[Tool]) -> None:
    """Refuse pointers to no argument, and URLs and mounts that a tool cannot reach anyway. Raises PolicyError."""
    tools = list(tools)
    if any(key in rules for rules in policy.tool_rules.values() for key in (*KEYS, *PARTS)):
        from .tool_reach_checks import check_reach, check_reaching

        check_reach(policy)
        for tool in tools:
            check_reaching(policy, tool)
    for tool in tools:
        rules = policy.tool_rules.get(tool.name, {})
        for section, pointer in [(key, one) for key in _CONDITIONS for one in rules.get(key, {})]:
            if leads_nowhere(pointer, tool.input_schema):
                names = [f"/{escape_pointer(name)}" for name in tool.input_schema.get("properties", {})]
                raise policy.error(
                    f"/tools/{escape_pointer(tool.name)}/{section}/{escape_pointer(pointer)}",
                    f"{tool.name!r} takes no argument at {quote_literal(pointer)}",
                    did_you_mean(pointer, names) or f"it takes {', '.join(names) or 'none'}",
                )
