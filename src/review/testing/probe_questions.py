"""Questions whose answers a change of a policy may alter, for policy tests that notice the change.

A question is a guess; whether it shows the change is found by asking both policies.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from ...fail.catalog import Rule
from ...runtime.policy.credentials import Credential, credential_of
from ...runtime.policy.gate import Gate
from ...runtime.policy.placeholder_rule import WRITING
from ...runtime.policy.policy import Policy
from ...runtime.resources.http_methods import UrlEntry, methods_of, url_text
from ...runtime.resources.url import Malformed, parse_entry, parse_url
from ...runtime.schema.dialect import shape
from ...runtime.tools.contract import Tool
from ..compare.pattern_samples import pattern_samples
from ..compare.reachability import with_texts
from ..compare.schema_algebra import Path, at_path, both, canonical, less
from ..compare.schema_instances import InstanceGenerator
from ..queries.witness import Witness
from .answers import USED, Question, answer

# one text of each kind of secret, put together here so that no file holds anything that looks like one
_SECRETS: Final[Mapping[str, str]] = {
    "anthropic_key": "sk-ant-" + "x" * 20,
    "aws_access_key": "AKIA" + "X" * 16,
    "aws_secret_key": "aws_secret_access_key = " + "x" * 40,
    "bearer_token": "bearer 1" + "x" * 20,
    "email": "someone@mail.test",
    "github_token": "ghp_" + "x" * 36,
    "gitlab_token": "glpat-" + "x" * 20,
    "google_key": "AIza" + "x" * 35,
    "huggingface_token": "hf_" + "x" * 34,
    "jwt": "eyJ" + "x" * 8 + ".eyJ" + "x" * 8 + "." + "x" * 8,
    "npm_token": "npm_" + "x" * 36,
    "openai_key": "sk-" + "x" * 20,
    "private_key": "-----BEGIN PRIVATE KEY-----x-----END PRIVATE KEY-----",
    "pypi_token": "pypi-AgE" + "x" * 40,
    "service_token": "gsk_" + "x" * 48,
    "slack_token": "xoxb-" + "x" * 12,
    "stripe_key": "sk_live_" + "x" * 24,
    "url_password": "https://someone:xxxxxxxx@host.test/",
    "webhook_url": "https://hooks.slack.com/services/" + "x" * 30,
}
_FEW: Final = 8  # calls of one tool that break limits
_UNLISTED: Final = {"call": {"tool": "unlisted", "arguments": {}}}


class Probes:
    """Questions to one policy over the tools of its project."""

    def __init__(self, policy: Policy, tools: Mapping[str, Tool]) -> None:
        self._policy = policy
        self.tools = tools
        self.allowed = tuple(policy.allowed)

    @property
    def writing(self) -> list[str]:
        """Names of the allowed tools that may leave something behind, or tell somebody."""
        return [tool.name for tool in self._tools() if tool.effect in WRITING]

    # ---- by what is changed --------------------------------------------------------------------------------

    def of_tool(self, name: str) -> list[Question]:
        """Return questions about a call of a tool."""
        tool = self.tools.get(name)
        return [{"call": {"tool": name, "arguments": {} if tool is None else self._arguments(tool)}}]

    def of_url(self, item: UrlEntry) -> list[Question]:
        """Return questions about an entry of the URL allowlist."""
        entry = url_text(item)
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
            *(
                {"late": {"target": url, "hop": 0, "method": method}}
                for method in methods_of(item)
                if not isinstance(item, str)
            ),
        ]

    def of_network(self, text: str) -> list[Question]:
        """Return questions about a private network."""
        address = str(ipaddress.ip_network(text)[0])
        entries = self._policy.data.get("url_allowlist", ())
        targets = [_url(url_text(entry)) for entry in entries[:1]]
        return [{"late": {"target": target, "address": address}} for target in targets]

    def of_credential(self, credential: Credential) -> list[Question]:
        """Return questions about a request that sets the header of a credential itself."""
        items = self._policy.data.get("url_allowlist", ())
        targets = [(parse_url(_url(url_text(item))), methods_of(item)) for item in items]
        questions: list[Question] = [
            {"late": {"target": target.url, "hop": 0, "method": methods[0], "header": credential.header}}
            for target, methods in targets
            if credential_of(self._policy.credentials, target) == credential
        ]
        return questions[:1]

    def of_mount(self, name: str) -> list[Question]:
        """Return questions about a mount."""
        path = f"{name}/file"
        return [
            *self._calls("path:read", path),
            *self._calls("path:write", path),
            {"late": {"path": path, "access": "read"}},
            {"late": {"path": path, "access": "write"}},
        ]

    def of_schema(self) -> list[Question]:
        """Return calls that break nothing but a limit of a value."""
        questions: list[Question] = []
        for tool in self._tools():
            schema = dict(tool.input_schema)
            beyond = with_texts(less(canonical(shape(schema)), canonical(schema)), self._texts(tool))
            values = InstanceGenerator().values(beyond) if beyond is not None else iter(())
            questions += [{"call": {"tool": tool.name, "arguments": value}} for value in islice(values, _FEW)]
        return sorted(questions, key=lambda question: len(str(question)))

    def of_limit(self, name: str, limit: int) -> list[Question]:
        """Return questions about a limit of the budgets."""
        places = sorted({max(limit - 1, 0), limit})
        if name in ("max_iterations", "max_tokens"):
            used = name.removeprefix("max_")
            return [{"step": True, "used": {used: number}} for number in places]
        if name == "max_result_bytes":
            return [{"result_bytes": size} for size in (limit, limit + 1)]
        used = name.removeprefix("max_")
        return [{**call, "used": {used: number}} for call in self._some_calls() for number in places]

    def of_overdraft(self) -> list[Question]:
        """Return calls of a reply that has overdrawn the tokens."""
        used = {"tokens": self._policy.limits["max_tokens"] + 1}
        return [{**call, "used": used} for call in self._some_calls()]

    def of_wrap_up(self) -> list[Question]:
        """Return questions about the last step within the limits."""
        last = max(self._policy.limits["max_iterations"] - 1, 0)
        return [{"step": True, "used": {"iterations": last}}]

    def of_repeats(self, limit: int) -> list[Question]:
        """Return questions about the limit of repeated calls."""
        places = sorted({max(limit - 1, 0), limit})
        return [{**call, "used": {"repeats": number}} for call in self._some_calls() for number in places]

    def of_retries(self, limit: int) -> list[Question]:
        """Return questions about the number of retries."""
        return [{"retry": {"attempt": number}} for number in sorted({max(limit, 1), limit + 1})]

    def of_backoff(self) -> list[Question]:
        """Return questions about the waits between attempts."""
        return [
            {"retry": {"attempt": 1}},
            {"retry": {"attempt": 1, "retry_after_ms": 3_600_000}},
        ]

    def of_denial(self) -> list[Question]:
        """Return questions about what follows a denial."""
        return [_UNLISTED]

    def of_failure(self, told: int = 0) -> list[Question]:
        """Return questions about what follows a failure of the model and of each tool, after some that were told."""
        used = {"used": {"failures": told}} if told else {}
        return [{"failure": {}, **used}, *({"failure": {"tool": name}, **used} for name in self.allowed)]

    def of_approval(self) -> list[Question]:
        """Return questions about calls that need approval."""
        return [question for name in self._policy.approval_for for question in self.of_tool(name)]

    def of_secret(self, kind: str) -> list[Question]:
        """Return questions about a kind of secret."""
        return [{"text": f"It says {_SECRETS[kind]} there."}] if kind in _SECRETS else []

    def of_pattern(self, pattern: str) -> list[Question]:
        """Return questions about texts that a pattern of secrets matches."""
        return [{"text": f"It says {sample} there."} for sample in pattern_samples(pattern)]

    def of_revealed(self, name: str, kinds: Iterable[str]) -> list[Question]:
        """Return calls of a tool with a secret of one of some kinds in a text; none that something else denies."""
        tool, patterns = self.tools.get(name), self._policy.redact_patterns
        samples = [
            sample
            for kind in kinds
            for sample in ([_SECRETS[kind]] if kind in _SECRETS else pattern_samples(patterns.get(kind, "")))
        ]
        if tool is None or not samples:
            return []
        gate = Gate(self._policy, self.tools)
        declared = {resource.path: self._text(resource.kind) for resource in tool.resources}
        questions: list[Question] = []
        for path in _text_places(tool.input_schema):
            for sample in samples:
                arguments = self._arguments(tool, path, declared.get(path, "") + sample)
                question = {"call": {"tool": name, "arguments": arguments}}
                found = answer(question, gate)
                if arguments and (found.expect != "deny" or found.more["rule"] == Rule.REDACT):
                    questions.append(question)
        return questions

    def of_section(self, name: str) -> list[Question]:
        """Return questions about everything in a section."""
        policy, questions = self._policy, list[Question]()
        if name == "tool_registry":
            questions = [question for tool in self.tools for question in self.of_tool(tool)]
        elif name == "url_allowlist":
            questions = [q for entry in policy.data.get(name, ()) for q in self.of_url(entry)]
        elif name == "private_networks":
            questions = [q for network in policy.data.get(name, ()) for q in self.of_network(network)]
        elif name == "credentials":
            questions = [
                q for credential in policy.credentials.values() for q in self.of_credential(credential)
            ]
        elif name == "sandbox":
            questions = [q for mount in policy.mounts for q in self.of_mount(mount)]
        elif name == "arg_schema_enforcement":
            questions = self.of_schema()
        elif name == "loop_budget":
            for limit, value in policy.limits.items():
                questions += self.of_limit(limit, value)
            questions += [*self.of_wrap_up(), *self.of_overdraft()]
        elif name == "cycle_detection":
            questions = self.of_repeats(policy.max_repeats)
        elif name == "retry":
            questions = [*self.of_retries(policy.section("retry")["max_retries"]), *self.of_backoff()]
        elif name == "on_deny":
            questions = self.of_denial()
        elif name == "on_failure":
            questions = self.of_failure()
        elif name == "approval":
            questions = self.of_approval()
        elif name == "redact":
            questions = [question for kind in policy.redact for question in self.of_secret(kind)]
        return questions

    # ---- calls ---------------------------------------------------------------------------------------------

    def _some_calls(self) -> list[Question]:
        return [question for name in self.allowed for question in self.of_tool(name)]

    def _tools(self) -> Iterator[Tool]:
        return (self.tools[name] for name in self.allowed if name in self.tools)

    def _calls(self, kind: str, value: str) -> Iterator[Question]:
        """Yield a call of each allowed tool that takes such a resource."""
        for tool in self._tools():
            for path in (resource.path for resource in tool.resources if resource.kind == kind):
                arguments = self._arguments(tool, path, value)
                if arguments:
                    yield {"call": {"tool": tool.name, "arguments": arguments}}

    def _arguments(self, tool: Tool, path: Path = (), value: str = "") -> dict[str, Any]:
        """Return the shortest arguments that a tool may take; if `path` is given, with `value` there."""
        texts = self._texts(tool) | ({path: [value]} if path else {})
        schema = with_texts(canonical(dict(tool.input_schema)), texts)
        if path:
            schema = both(schema, canonical(at_path(path, {"type": "string"}, present=True)))
        values = InstanceGenerator().values(schema) if schema is not None else iter(())
        return next(values, {})

    def _texts(self, tool: Tool) -> dict[Path, list[str]]:
        """Return a text for each place of a tool's arguments that holds a resource."""
        return {resource.path: [self._text(resource.kind)] for resource in tool.resources}

    def _text(self, kind: str) -> str:
        if kind == "url":
            entry = url_text(next(iter(self._policy.data.get("url_allowlist", ())), "https://unlisted.test/"))
            return entry if "://" in entry else f"https://{entry}"
        modes = ("write",) if kind == "path:write" else ("read", "write")
        return next((f"{name}/file" for name, mode in self._policy.mounts.items() if mode in modes), "x/y")


def _url(entry: str) -> str:
    return entry if "://" in entry else f"https://{entry}"


def _text_places(schema: Any, path: Path = ()) -> Iterator[Path]:
    """Yield where the arguments that a schema describes may hold a text: property names, and `*` for any item."""
    if not isinstance(schema, Mapping):
        return
    if schema.get("type") == "string":
        yield path
    for key, inner in schema.get("properties", {}).items():
        yield from _text_places(inner, (*path, key))
    yield from _text_places(schema.get("items"), (*path, "*"))


def of_witness(witness: Witness) -> Iterator[Question]:
    """Yield the questions of an event that two policies decide differently."""

    def with_used(kind: str, value: object) -> Question:
        used = {name: count for name, count in witness.used.items() if name in USED[kind]}
        return {kind: value, **({"used": used} if used else {})}

    yield with_used("step", True)
    if witness.tool is not None:
        asked = with_used("call", {"tool": witness.tool, "arguments": witness.arguments or {}})
        given = {"principal": witness.principal, "time": witness.local_times}
        yield {**asked, **{key: value for key, value in given.items() if value}}
    if witness.late is not None:
        yield {"late": {key: value for key, value in witness.late.items() if key != "rule"}}
    if witness.result_bytes is not None:
        yield with_used("result_bytes", witness.result_bytes)
