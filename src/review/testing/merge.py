"""Policy files changed in memory: read them, merge them, and tell whether two policies say the same."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...runtime.formats.read_file import read_plain
from ...runtime.formats.strict_yaml import Document
from ...runtime.formats.strict_yaml import load as load_yaml
from ...runtime.loop.retry import Schedule
from ...runtime.policy.loading import read_lists
from ...runtime.policy.policy import Policy
from ...runtime.resources.http_methods import methods_of, url_text
from ...runtime.resources.url import parse_entry
from ...runtime.tools.contract import Tool

# a policy file and its overlays, resolved
Stack = tuple[Path, ...]


@dataclass(frozen=True)
class Part:
    """One file of a policy; `name` is its path as a person reads it."""

    path: Path
    name: str
    document: Document

    @property
    def data(self) -> Mapping[str, Any]:
        """The file's mapping."""
        data: Mapping[str, Any] = self.document.data
        return data


def read_part(path: Path, name: str) -> Part:
    """Read a file that a policy was loaded from."""
    document = load_yaml(read_plain(path, 1 << 20), name)
    read_lists(document.data, path, name)
    return Part(path, name, document)


def policy_of(parts: Sequence[Mapping[str, Any]]) -> Policy:
    """Return the policy of some files' data, merged as `Policy.load` does. Raises PolicyError."""
    data: dict[str, Any] = {}
    for part in parts:
        _merge(data, part)
    return Policy.from_dict(data)


def _merge(into: dict[str, Any], part: Mapping[str, Any]) -> None:
    for key, value in part.items():
        old = into.get(key)
        if isinstance(old, dict) and isinstance(value, Mapping):
            _merge(old, value)
        else:
            into[key] = copy.deepcopy(value)


def made_up_tools(names: Iterable[str]) -> dict[str, Tool]:
    """Return tools without arguments or effects, for names that no project has."""
    schema = {"type": "object", "additionalProperties": False, "properties": {}}
    return {
        name: Tool(name, "Nothing.", schema, schema, "pure", True, lambda _args, _io: {}) for name in names
    }


def equivalent(one: Policy, other: Policy) -> bool:
    """Return whether two policies say the same, apart from order and from settings without effect."""
    return _content(one) == _content(other)


def _content(policy: Policy) -> tuple[Any, ...]:
    schedule = Schedule.of(policy.section("retry"))
    # a tool that is not allowed cannot fail
    told = {name: word for name, word in policy.on_failure_of.items() if name in policy.allowed}
    return (
        frozenset(policy.allowed),
        frozenset(
            (parse_entry(url_text(entry)), frozenset(methods_of(entry)))
            for entry in policy.data.get("url_allowlist", ())
        ),
        frozenset(policy.data.get("private_networks", ())),
        policy.credentials,
        policy.mounts,
        policy.strict_arguments,
        policy.limits,
        policy.wrap_up,
        policy.denies_overdraft,
        policy.max_repeats,
        schedule if schedule.max_retries else None,
        policy.on_deny,
        (policy.on_failure, told),
        policy.max_failures if "inform" in (policy.on_failure, *told.values()) else None,
        frozenset(policy.approval_for),
        policy.tool_rules,
        policy.principals,
        policy.lists if policy.tool_rules else None,
        policy.approval_timeout_s if policy.approval_for or policy.tool_rules else None,
        frozenset(policy.redact),
        policy.redact_patterns,
        frozenset(policy.redact_env),
        {tool: frozenset(kinds) for tool, kinds in policy.reveal_to.items()},
    )
