"""Tools, hosts, mounts, addresses and principals in tests and runs that a policy does not list."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ...fail.errors import PolicyError
from ...runtime.formats.canonical_json import encode
from ...runtime.policy.policy import Policy
from ...runtime.resources.mount_path import parse_path
from ...runtime.resources.url import Malformed, parse_url
from ...runtime.tools.contract import Tool
from .mutations import Unlisted
from .policy_tests import Case
from .tool_changes import scalars_in

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}\Z")
_MOST: Final = 50  # of each kind; more would show nothing new


class Observed:
    """Collects what a policy does not list, in the order it was observed."""

    def __init__(self, policy: Policy, tools: Mapping[str, Tool]) -> None:
        self._policy = policy
        self._tools = tools
        self._names: dict[str, None] = {}
        self._origins: dict[str, None] = {}
        self._mounts: dict[str, None] = {}
        self._networks: dict[str, None] = {}
        self._values: dict[str, Any] = {}
        self._principals: dict[str, None] = {}

    def unlisted(self) -> Unlisted:
        """Return what was observed; for a kind without any, an example."""
        plain = Unlisted()
        return Unlisted(
            tuple(self._names)[:_MOST] or plain.tools,
            tuple(self._origins)[:_MOST] or plain.origins,
            tuple(self._mounts)[:_MOST] or plain.mounts,
            tuple(self._networks)[:_MOST] or plain.networks,
            tuple(self._values.values()),
            tuple(self._principals)[:_MOST],
        )

    def add_tests(self, cases: Iterable[Case]) -> None:
        """Note what policy tests ask about."""
        for case in cases:
            self._principal(case.question.get("principal"))
            if "call" in case.question:
                self._call(case.question["call"]["tool"], case.question["call"]["arguments"])
            elif "late" in case.question:
                self._fact(case.question["late"])

    def add_run(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Note what a recorded run called and met."""
        self._principal(lines[0].get("principal"))
        for line in lines[1:-1]:
            for call in line["intended_tool_calls"]:
                self._call(call["name"], call["arguments"])
            for result in line["tool_results"]:
                for attempt in result["attempts"]:
                    for check in attempt.get("checks", ()):
                        self._fact(check)

    def _principal(self, name: str | None) -> None:
        if name is not None and name not in self._policy.principals:
            self._principals[name] = None

    def _call(self, name: str, arguments: object) -> None:
        if name in self._policy.tool_rules and len(self._values) < _MOST:
            self._values.update((encode(value), value) for value in scalars_in(arguments))
        tool = self._tools.get(name)
        if tool is None:
            if _NAME.match(name) and name not in self._policy.denied:
                self._names[name] = None
            return
        for resource in tool.resources:
            for _, value in resource.find(arguments):
                if isinstance(value, str):
                    self._url(value) if resource.kind == "url" else self._path(value)

    def _fact(self, fact: Mapping[str, Any]) -> None:
        if "target" in fact:
            self._url(fact["target"])
        if "path" in fact:
            self._path(fact["path"])
        if "address" in fact:
            self._address(fact["address"])

    def _url(self, text: str) -> None:
        try:
            target = parse_url(text)
        except Malformed:
            return
        if not self._policy.allowlist.knows(target):
            self._origins[target.origin] = None

    def _path(self, text: str) -> None:
        try:
            mount = parse_path(text).mount
        except Malformed:
            return
        if mount not in self._policy.mounts:
            self._mounts[mount] = None

    def _address(self, text: str) -> None:
        if self._policy.networks.allows(text):
            return
        try:
            network = str(ipaddress.ip_network(text))
            Policy.from_dict({"schema": "policy/v1", "private_networks": [network]})
        except (ValueError, PolicyError):
            return  # no network that a policy may name
        self._networks[network] = None
