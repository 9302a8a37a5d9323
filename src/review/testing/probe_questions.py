"""Questions whose answers a change of a policy may alter: what a policy test that notices it would ask.

A question is no more than a guess; whether it notices the change is found by asking it of both policies.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...runtime.policy.policy import Policy
from ...runtime.resources.url import Malformed, parse_entry
from ...runtime.tools.contract import Tool
from ..queries.witness import Witness
from .answers import USED, Question

# one text of each kind of secret, put together here so that no file holds anything that looks like one
_SECRETS: Final[Mapping[str, str]] = {
    "anthropic_key": "sk-ant-" + "x" * 20,
    "aws_access_key": "AKIA" + "X" * 16,
    "bearer_token": "bearer " + "x" * 20,
    "email": "someone@mail.test",
    "github_token": "ghp_" + "x" * 36,
    "google_key": "AIza" + "x" * 35,
    "jwt": "eyJ" + "x" * 8 + ".eyJ" + "x" * 8 + "." + "x" * 8,
    "openai_key": "sk-" + "x" * 20,
    "private_key": "-----BEGIN PRIVATE KEY-----x-----END PRIVATE KEY-----",
    "slack_token": "xoxb-" + "x" * 12,
}
_LONG: Final = 1 << 20  # a longer text is no example
_UNHEARD_OF: Final = {"call": {"tool": "unlisted", "arguments": {}}}


class Probes:
    """Questions to one policy over the tools of its project."""

    def __init__(self, policy: Policy, tools: Mapping[str, Tool]) -> None:
        self._policy = policy
        self.tools = tools
        self.allowed = tuple(policy.allowed)

    # ---- by what is changed --------------------------------------------------------------------------------

    def of_tool(self, name: str) -> list[Question]:
        tool = self.tools.get(name)
        return [{"call": {"tool": name, "arguments": {} if tool is None else self._arguments(tool)}}]

    def of_url(self, entry: str) -> list[Question]:
        try:
            target = parse_entry(entry)
        except Malformed:
            return []
        host = f"[{target.host}]" if ":" in target.host else target.host
        url = f"{target.scheme}://{host}:{target.port}{target.prefix}"
        shorter = entry if "://" in entry else f"https://{entry}"
        return [
            *self._calls("url", shorter),
            {"late": {"target": shorter, "hop": 1}},
            {"late": {"target": url, "hop": 1}},
        ]

    def of_network(self, text: str) -> list[Question]:
        address = str(ipaddress.ip_network(text)[0])
        entries = self._policy.data.get("url_allowlist", ())
        targets = [entry if "://" in entry else f"https://{entry}" for entry in entries[:1]]
        return [{"late": {"target": target, "address": address}} for target in targets]

    def of_mount(self, name: str) -> list[Question]:
        path = f"{name}/file"
        return [
            *self._calls("path:read", path),
            *self._calls("path:write", path),
            {"late": {"path": path, "access": "read"}},
            {"late": {"path": path, "access": "write"}},
        ]

    def of_schema(self) -> list[Question]:
        """Calls that break nothing but a limit of a value."""
        found: list[Question] = []
        for name in self.allowed:
            tool = self.tools.get(name)
            if tool is None:
                continue
            plain = self._arguments(tool)
            for key, part in tool.input_schema.get("properties", {}).items():
                found += [
                    {"call": {"tool": name, "arguments": {**plain, key: value}}} for value in _beyond(part)
                ]
        return sorted(found, key=lambda question: len(str(question)))

    def of_limit(self, name: str, limit: int) -> list[Question]:
        places = sorted({max(limit - 1, 0), limit})
        if name in ("max_iterations", "max_tokens"):
            used = name.removeprefix("max_")
            return [{"step": True, "used": {used: number}} for number in places]
        if name == "max_result_bytes":
            return [{"result_bytes": size} for size in (limit, limit + 1)]
        return [{**call, "used": {"tool_calls": number}} for call in self._some_calls() for number in places]

    def of_wrap_up(self) -> list[Question]:
        last = max(self._policy.limits["max_iterations"] - 1, 0)
        return [{"step": True, "used": {"iterations": last}}]

    def of_repeats(self, limit: int) -> list[Question]:
        places = sorted({max(limit - 1, 0), limit})
        return [{**call, "used": {"repeats": number}} for call in self._some_calls() for number in places]

    def of_retries(self, limit: int) -> list[Question]:
        return [{"retry": {"attempt": number}} for number in sorted({max(limit, 1), limit + 1})]

    def of_backoff(self) -> list[Question]:
        return [
            {"retry": {"attempt": 1}},
            {"retry": {"attempt": 1, "retry_after_ms": 3_600_000}},
        ]

    def of_denial(self) -> list[Question]:
        return [_UNHEARD_OF]

    def of_approval(self) -> list[Question]:
        return [question for name in self._policy.approval_for for question in self.of_tool(name)]

    def of_secret(self, kind: str) -> list[Question]:
        return [{"text": f"It says {_SECRETS[kind]} there."}] if kind in _SECRETS else []

    def of_section(self, name: str) -> list[Question]:
        """Questions to all that a section says."""
        policy, found = self._policy, list[Question]()
        if name == "tool_registry":
            found = [question for tool in self.tools for question in self.of_tool(tool)]
        elif name == "url_allowlist":
            found = [q for entry in policy.data.get(name, ()) for q in self.of_url(entry)]
        elif name == "private_networks":
            found = [q for network in policy.data.get(name, ()) for q in self.of_network(network)]
        elif name == "sandbox":
            found = [q for mount in policy.mounts for q in self.of_mount(mount)]
        elif name == "arg_schema_enforcement":
            found = self.of_schema()
        elif name == "loop_budget":
            for limit, value in policy.limits.items():
                found += self.of_limit(limit, value)
            found += self.of_wrap_up()
        elif name == "cycle_detection":
            found = self.of_repeats(policy.max_repeats)
        elif name == "retry":
            found = [*self.of_retries(policy.section("retry")["max_retries"]), *self.of_backoff()]
        elif name == "on_deny":
            found = self.of_denial()
        elif name == "approval":
            found = self.of_approval()
        elif name == "redact":
            found = [question for kind in policy.redact for question in self.of_secret(kind)]
        return found

    # ---- calls ---------------------------------------------------------------------------------------------

    def _some_calls(self) -> list[Question]:
        return [question for name in self.allowed for question in self.of_tool(name)]

    def _calls(self, kind: str, value: str) -> Iterator[Question]:
        """A call of each allowed tool that takes such a resource."""
        for name in self.allowed:
            tool = self.tools.get(name)
            if tool is not None:
                for key, part in tool.input_schema.get("properties", {}).items():
                    if isinstance(part, Mapping) and part.get("x-resource") == kind:
                        yield {"call": {"tool": name, "arguments": {**self._arguments(tool), key: value}}}

    def _arguments(self, tool: Tool) -> dict[str, Any]:
        """Arguments that a tool may take: what it requires, as short as it goes."""
        schema = tool.input_schema
        parts = schema.get("properties", {})
        return {key: self._value(parts.get(key, {})) for key in schema.get("required", ())}

    def _value(self, part: Any) -> Any:
        if not isinstance(part, Mapping):
            return "x"
        kind = str(part.get("x-resource", ""))
        if kind == "url":
            entry = next(iter(self._policy.data.get("url_allowlist", ())), "https://unlisted.test/")
            return entry if "://" in entry else f"https://{entry}"
        if kind.startswith("path:"):
            wanted = ("write",) if kind == "path:write" else ("read", "write")
            return next(
                (f"{name}/file" for name, mode in self._policy.mounts.items() if mode in wanted), "x/y"
            )
        return example(part)


def of_witness(found: Witness) -> Iterator[Question]:
    """The questions of an event that two policies decide otherwise."""

    def with_used(kind: str, value: object) -> Question:
        used = {name: count for name, count in found.used.items() if name in USED[kind]}
        return {kind: value, **({"used": used} if used else {})}

    yield with_used("step", True)
    if found.tool is not None:
        yield with_used("call", {"tool": found.tool, "arguments": found.arguments or {}})
    if found.late is not None:
        yield {"late": {key: value for key, value in found.late.items() if key != "rule"}}
    if found.result_bytes is not None:
        yield with_used("result_bytes", found.result_bytes)


def example(part: Mapping[str, Any]) -> Any:
    """A small value for a part of a schema, as far as its plainest keywords say."""
    for key in ("const", "default"):
        if key in part:
            return part[key]
    if part.get("enum"):
        return part["enum"][0]
    kinds = part.get("type", "string")
    kind = kinds if isinstance(kinds, str) else next(iter(kinds), "string")
    if kind in ("integer", "number"):
        return part.get("minimum", min(0, part.get("maximum", 0)))
    if kind == "array":
        items = part.get("items")
        one = example(items) if isinstance(items, Mapping) else "x"
        return [one] * min(part.get("minItems", 0), 100)
    if kind == "object":
        inner = part.get("properties", {})
        return {key: example(inner.get(key, {})) for key in part.get("required", ())}
    if kind == "string":
        return "x" * min(max(part.get("minLength", 1), 1), _LONG)
    return {"boolean": False}.get(kind)


def _beyond(part: Any) -> Iterator[Any]:
    """Values of the right type that break a limit."""
    if not isinstance(part, Mapping):
        return
    if "minimum" in part:
        yield part["minimum"] - 1
    if "maximum" in part:
        yield part["maximum"] + 1
    if part.get("minLength", 0) > 0:
        yield ""
    if part.get("maxLength", _LONG) < _LONG:
        yield "x" * (part["maxLength"] + 1)
    if part.get("minItems", 0) > 0:
        yield []
    if part.get("maxItems", _LONG) < 1000 and isinstance(part.get("items"), Mapping):
        yield [example(part["items"])] * (part["maxItems"] + 1)
