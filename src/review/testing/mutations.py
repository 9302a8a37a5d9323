"""Changes of a policy, one at a time: each entry dropped, loosened or added, each limit moved, each switch flipped.

A change is of one source file: the policy, or one overlay. Sections that an overlay does not bring are not
changed there.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ...runtime.core.secret_kinds import ENV_KIND
from ...runtime.formats.json_pointer import escape_pointer
from ...runtime.policy.credentials import read_credentials
from ...runtime.resources.http_methods import methods_of, url_text
from .answers import Question
from .principal_changes import changed_principals
from .probe_questions import Probes
from .tool_changes import questions_about, rules_of_tool, values_of_list
from .url_changes import covers, other_methods, wider_entries

Data = dict[str, Any]

LIMITS: Final = ("max_iterations", "max_tokens", "max_tool_calls", "max_result_bytes")


@dataclass(frozen=True)
class Unlisted:
    """What tests and runs name and the policy does not list: if it is allowed by mistake, they can notice."""

    tools: tuple[str, ...] = ("unlisted",)
    origins: tuple[str, ...] = ("https://unlisted.test",)
    mounts: tuple[str, ...] = ("unlisted",)
    networks: tuple[str, ...] = ("10.0.0.1/32",)
    values: tuple[Any, ...] = ()
    principals: tuple[str, ...] = ()


@dataclass(frozen=True)
class Change:
    """One change: the place in its file, what it is in words, and the file's data after it.

    `probes` are questions whose answers it may alter; `made_up` are tools that are allowed in it and that no
    project has.
    """

    pointer: str
    description: str
    data: Data
    probes: tuple[Question, ...] = field(default=(), compare=False)
    made_up: tuple[str, ...] = ()


def changes(data: Mapping[str, Any], is_policy: bool, probes: Probes, unlisted: Unlisted) -> Iterator[Change]:
    """Yield every change of one source file that holds `data`; `whole`: it is a policy, not an overlay.

    `probes` knows the policy that the file is part of.
    """
    builder = _Changes(data, is_policy, probes, unlisted)
    for part in (
        builder.sections,
        builder.tools,
        builder.urls,
        builder.credentials,
        builder.rules_of_tools,
        builder.lists,
        builder.principals,
        builder.networks,
        builder.mounts,
        builder.schema,
        builder.limits,
        builder.repeats,
        builder.retry,
        builder.on_deny,
        builder.on_failure,
        builder.approval,
        builder.redact,
    ):
        yield from part()


_OTHER: Final = {"terminate": "inform", "inform": "terminate"}


class _Changes:
    def __init__(self, data: Mapping[str, Any], is_policy: bool, probes: Probes, unlisted: Unlisted) -> None:
        self._data = data
        self._is_policy = is_policy
        self._probes = probes
        self._unlisted = unlisted

    # ---- making one ----------------------------------------------------------------------------------------

    def _has(self, *keys: str) -> bool:
        """Return whether the file has a value there."""
        return self._at(*keys) is not None

    def _may(self, *keys: str) -> bool:
        """Return whether something can be added: the list of an overlay replaces, so only to one that it has."""
        return self._is_policy or self._has(*keys)

    def _at(self, *keys: str) -> Any:
        value: Any = self._data
        for key in keys:
            if not isinstance(value, Mapping) or key not in value:
                return None
            value = value[key]
        return value

    def _list(self, *keys: str) -> list[Any]:
        return list(self._at(*keys) or ())

    def _put(
        self,
        keys: Sequence[str],
        value: object,
        description: str,
        probes: Iterable[Question],
        *,
        at: str = "",
        made_up: tuple[str, ...] = (),
    ) -> Change:
        """Return the change that puts a value at some keys; None removes what is there."""
        data = copy.deepcopy(dict(self._data))
        inner = data
        for key in keys[:-1]:
            inner = inner.setdefault(key, {})
        if value is None:
            del inner[keys[-1]]
        else:
            inner[keys[-1]] = value
        place = "".join(f"/{escape_pointer(key)}" for key in keys)
        return Change(place + at, description, data, tuple(probes), made_up)

    def _dropped(self, keys: Sequence[str], label: str, probes: Any) -> Iterator[Change]:
        """Yield a change for each entry of a list, dropped; `probes` gives the questions for an entry."""
        listed = self._list(*keys)
        for i, item in enumerate(listed):
            rest = listed[:i] + listed[i + 1 :]
            yield self._put(keys, rest, f"{label} {item!r} dropped", probes(item), at=f"/{i}")

    # ---- what can be changed -------------------------------------------------------------------------------

    def sections(self) -> Iterator[Change]:
        for name in self._data:
            if name != "schema":
                yield self._put([name], None, f"section {name} dropped", self._probes.of_section(name))

    def tools(self) -> Iterator[Change]:
        keys = ("tool_registry", "allowed")
        yield from self._dropped(keys, "allowed tool", self._probes.of_tool)
        denied = self._list("tool_registry", "denied")
        yield from self._dropped(("tool_registry", "denied"), "denied tool", self._probes.of_tool)
        if not self._may(*keys):
            return
        allowed = self._list(*keys)
        for i, name in enumerate(denied):
            change = self._put(
                keys,
                [*allowed, name],
                f"denied tool {name!r} allowed",
                self._probes.of_tool(name),
                made_up=self._made_up([name]),
            )
            del change.data["tool_registry"]["denied"][i]
            yield change
        unlisted = [name for name in self._probes.tools if name not in {*allowed, *denied}]
        for name in unlisted:
            description = f"unlisted tool {name!r} allowed"
            yield self._put(keys, [*allowed, name], description, self._probes.of_tool(name))
        names = [name for name in self._unlisted.tools if name not in {*allowed, *denied, *unlisted}]
        if names:
            yield self._put(
                keys,
                [*allowed, *names],
                f"tools that are not listed allowed, such as {names[0]!r}",
                self._probes.of_tool(names[0]),
                made_up=tuple(names),
            )

    def _made_up(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in names if name not in self._probes.tools)

    def urls(self) -> Iterator[Change]:
        keys = ("url_allowlist",)
        listed = self._list(*keys)
        yield from self._dropped(keys, "URL entry", self._probes.of_url)
        for i, item in enumerate(listed):
            text = url_text(item)
            for wider in wider_entries(text):
                loosened = wider if isinstance(item, str) else {**item, "url": wider}
                rest = [other for other in listed if other == item or not covers(loosened, other)]
                rest[rest.index(item)] = loosened
                description = f"URL entry {text!r} loosened to {wider!r}"
                probe = f"{wider}/beside" if isinstance(item, str) else {**item, "url": f"{wider}/beside"}
                yield self._put(keys, rest, description, self._probes.of_url(probe), at=f"/{i}")
            for methods, word in other_methods(item):
                changed = [*listed[:i], {"url": text, "methods": methods}, *listed[i + 1 :]]
                description = f"URL entry {text!r} {word}"
                probe = {"url": text, "methods": sorted({*methods, *methods_of(item)})}
                yield self._put(keys, changed, description, self._probes.of_url(probe), at=f"/{i}")
        if self._may(*keys) and self._unlisted.origins:
            added = [f"{origin}/" for origin in self._unlisted.origins]
            description = f"hosts that are not listed allowed, such as {added[0]!r}"
            yield self._put(keys, listed + added, description, self._probes.of_url(added[0]))

    def credentials(self) -> Iterator[Change]:
        section = self._at("credentials") or {}
        for credential in read_credentials(section).values():
            place, probes = ("credentials", credential.key), self._probes.of_credential(credential)
            if len(section) > 1:
                yield self._put(place, None, f"credential for {credential.key!r} dropped", probes)
            other = "x-api-key" if credential.header != "x-api-key" else "authorization"
            description = f"header {other!r} instead of {credential.header!r}"
            yield self._put((*place, "header"), other, description, probes)

    def rules_of_tools(self) -> Iterator[Change]:
        section = self._at("tools") or {}
        for name, rules in section.items():
            keys = ("tools", name)
            probes = [*questions_about(name, rules, self._probes.of_tool)]
            if len(section) > 1:
                yield self._put(keys, None, f"rules of {name!r} dropped", probes)
            for changed, at, words in rules_of_tool(rules):
                yield self._put(keys, changed, f"rules of {name!r}: {words}", probes, at=at)

    def lists(self) -> Iterator[Change]:
        for name, values in (self._at("lists") or {}).items():
            for changed, at, words in values_of_list(values, self._unlisted.values):
                yield self._put(("lists", name), changed, f"list {name!r}: {words}", (), at=at)

    def principals(self) -> Iterator[Change]:
        section, names = self._at("principals") or {}, self._unlisted.principals
        for keys, value, words, principal, tools in changed_principals(section, self._probes.allowed, names):
            calls = (call for name in tools for call in self._probes.of_tool(name))
            yield self._put(keys, value, words, ({**call, "principal": principal} for call in calls))

    def networks(self) -> Iterator[Change]:
        keys = ("private_networks",)
        yield from self._dropped(keys, "network", self._probes.of_network)
        if self._may(*keys) and self._unlisted.networks:
            added = list(self._unlisted.networks)
            description = f"networks that are not listed allowed, such as {added[0]!r}"
            yield self._put(keys, self._list(*keys) + added, description, self._probes.of_network(added[0]))

    def mounts(self) -> Iterator[Change]:
        for name, mode in (self._at("sandbox", "mounts") or {}).items():
            keys = ("sandbox", "mounts", name)
            probes = self._probes.of_mount(name)
            other = "read" if mode == "write" else "write"
            yield self._put(keys, None, f"mount {name!r} dropped", probes)
            yield self._put(keys, other, f"mount {name!r} for {other} instead of {mode}", probes)
        if self._may("sandbox", "mounts") and self._unlisted.mounts:
            added = dict.fromkeys(self._unlisted.mounts, "read")
            description = f"mounts that are not listed allowed, such as {self._unlisted.mounts[0]!r}"
            probes = self._probes.of_mount(self._unlisted.mounts[0])
            mounts = {**(self._at("sandbox", "mounts") or {}), **added}
            yield self._put(("sandbox", "mounts"), mounts, description, probes)

    def schema(self) -> Iterator[Change]:
        if self._may("arg_schema_enforcement"):
            current = self._at("arg_schema_enforcement") or "strict"
            other = "shape" if current == "strict" else "strict"
            description = f"arg_schema_enforcement {other} instead of {current}"
            yield self._put(("arg_schema_enforcement",), other, description, self._probes.of_schema())

    def limits(self) -> Iterator[Change]:
        for name in LIMITS:
            if self._may("loop_budget", name):
                current = self._at("loop_budget", name) or 0
                probes = self._probes.of_limit(name, current)
                for value in sorted({current - 1, current + 1, current * 2, 0} - {current, -1}):
                    keys = ("loop_budget", name)
                    yield self._put(keys, value, f"{name} {value} instead of {current}", probes)
        attempts = self._at("loop_budget", "max_attempts")
        if attempts is not None:
            for value in (*sorted({attempts - 1, attempts + 1, 0} - {attempts, -1}), None):
                what = "dropped" if value is None else f"{value} instead of {attempts}"
                probes = self._probes.of_limit("max_attempts", attempts)
                yield self._put(("loop_budget", "max_attempts"), value, f"max_attempts {what}", probes)
        if self._may("loop_budget", "wrap_up"):
            current = bool(self._at("loop_budget", "wrap_up"))
            description = f"wrap_up {str(not current).lower()} instead of {str(current).lower()}"
            yield self._put(("loop_budget", "wrap_up"), not current, description, self._probes.of_wrap_up())
        if self._may("loop_budget", "overdraft"):
            before = self._at("loop_budget", "overdraft") or "allow"
            other = "allow" if before == "deny" else "deny"
            description = f"overdraft {other} instead of {before}"
            yield self._put(("loop_budget", "overdraft"), other, description, self._probes.of_overdraft())

    def repeats(self) -> Iterator[Change]:
        keys = ("cycle_detection", "max_repeats")
        if self._may(*keys):
            current = self._at(*keys) or 0
            for value in sorted({current - 1, current + 1} - {-1}):
                description = f"max_repeats {value} instead of {current}"
                yield self._put(keys, value, description, self._probes.of_repeats(current))

    def retry(self) -> Iterator[Change]:
        current = self._at("retry", "max_retries")
        if current is not None:
            for value in sorted({current - 1, current + 1} - {-1}):
                description = f"max_retries {value} instead of {current}"
                yield self._put(
                    ("retry", "max_retries"), value, description, self._probes.of_retries(current)
                )
        for name in ("backoff_base_ms", "backoff_cap_ms"):
            current = self._at("retry", name)
            if current is not None:
                for value in sorted({current // 2, current * 2} - {0}):
                    description = f"{name} {value} instead of {current}"
                    yield self._put(("retry", name), value, description, self._probes.of_backoff())

    def on_deny(self) -> Iterator[Change]:
        if self._may("on_deny"):
            current = self._at("on_deny") or "terminate"
            other = _OTHER[current]
            words = f"on_deny {other} instead of {current}"
            yield self._put(("on_deny",), other, words, self._probes.of_denial())

    def on_failure(self) -> Iterator[Change]:
        section = self._at("on_failure")
        if section is None:
            if self._may("on_failure"):
                description = "on_failure inform instead of terminate"
                yield self._put(("on_failure",), "inform", description, self._probes.of_failure())
            return
        keys = ("on_failure",) if isinstance(section, str) else ("on_failure", "default")
        current = section if isinstance(section, str) else section.get("default", "terminate")
        other = _OTHER[current]
        description = f"on_failure {other} instead of {current}"
        yield self._put(keys, other, description, self._probes.of_failure())
        for name, word in (self._at("on_failure", "tools") or {}).items():
            description = f"on_failure {_OTHER[word]} instead of {word} for {name!r}"
            place = ("on_failure", "tools", name)
            yield self._put(place, _OTHER[word], description, self._probes.of_failure())
        limit = self._at("on_failure", "max_failures")
        if limit is not None:
            for value in sorted({limit - 1, limit + 1} - {0}):
                description = f"max_failures {value} instead of {limit}"
                probes = self._probes.of_failure(min(value, limit))
                yield self._put(("on_failure", "max_failures"), value, description, probes)

    def approval(self) -> Iterator[Change]:
        keys = ("approval", "required_for")
        yield from self._dropped(keys, "approval for", self._probes.of_tool)
        listed = self._list(*keys)
        if self._may(*keys):
            for name in self._probes.allowed:
                if name not in listed:
                    description = f"approval for {name!r} added"
                    change = self._put(keys, [*listed, name], description, self._probes.of_tool(name))
                    change.data["approval"].setdefault("timeout_s", 300)
                    yield change
        current = self._at("approval", "timeout_s")
        if current is not None:
            for value in sorted({current - 1, current * 2} - {0}):
                description = f"timeout_s {value} instead of {current}"
                yield self._put(("approval", "timeout_s"), value, description, self._probes.of_approval())

    def redact(self) -> Iterator[Change]:
        keys = ("redact", "kinds") if isinstance(self._at("redact"), Mapping) else ("redact",)
        yield from self._dropped(keys, "redacted kind", self._probes.of_secret)
        patterns: Mapping[str, str] = (self._at("redact", "patterns") if len(keys) == 2 else None) or {}
        for name, pattern in patterns.items():
            rest = {other: text for other, text in patterns.items() if other != name}
            description = f"redacted pattern {name!r} dropped"
            yield self._put(
                ("redact", "patterns"), rest, description, self._probes.of_pattern(pattern), at=f"/{name}"
            )
        yield from self._reveal_to([*self._list(*keys), *patterns])

    def _reveal_to(self, redacted: list[str]) -> Iterator[Change]:
        """Yield changes of the kinds that a tool which writes gets resolved.

        What a tool that reads gets resolved alters no decision, and values of the environment stand in no test.
        """
        granted: Mapping[str, list[str]] = self._at("redact", "reveal_to") or {}
        for tool in self._probes.writing:
            kinds = granted.get(tool, [])
            for i, kind in enumerate(kinds):
                rest = [other for other in kinds if other != kind]
                description = f"{kind!r} not revealed to {tool!r}"
                probes = self._probes.of_revealed(tool, [kind])
                if kind != ENV_KIND and probes:
                    keys = ("redact", "reveal_to", tool)
                    yield self._put(keys, rest or None, description, probes, at=f"/{i}")
        section = self._at("redact")
        if section is None:  # nothing is redacted in this file, and so nothing can be revealed
            return
        section = dict(section) if isinstance(section, Mapping) else {"kinds": list(section)}
        for tool in self._probes.writing:
            kinds = [kind for kind in redacted if kind not in granted.get(tool, ())]
            probes = self._probes.of_revealed(tool, kinds)
            if probes:
                wider = {**granted, tool: [*granted.get(tool, ()), *kinds]}
                description = f"secrets revealed to {tool!r}, such as {kinds[0]!r}"
                yield self._put(("redact",), {**section, "reveal_to": wider}, description, probes)
