"""The policy: read strictly, merged, validated, and never defaulted to anything that allows.

Sources are YAML files in the shape of `policy/v1.schema.json`. An absent section allows nothing: without
`loop_budget` the first step is refused, without `cycle_detection` every call is, without `retry` nothing is
tried twice. Absent `approval`, `redact` and `private_networks` are empty lists, absent `on_deny` and `on_failure` are
`terminate`, absent `arg_schema_enforcement` is `strict`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

from ...fail.errors import PolicyError
from ..core.redaction import Redactor
from ..formats import canonical_json
from ..formats.json_pointer import by_index, by_value, escape_pointer
from ..formats.shipped_files import shipped
from ..resources.networks import Networks
from ..resources.url import Allowlist
from ..schema.schema_errors import DocumentValidator, did_you_mean, first_problem
from .consistency import check_names, check_networks, check_redaction, check_urls
from .credentials import Credentials, check_credentials, read_credentials
from .per_tool.principals import check_principals
from .per_tool.tool_rule_checks import check_tool_rules

SCHEMA_FILE: Final = "policy/v1.schema.json"
_IN_CODE: Final = "<policy>"
# of which the model is told before one ends the run, where the policy names no number
MAX_FAILURES: Final = 10


class Policy:
    """A validated policy. Build one with `Policy.load` or `Policy.from_dict`.

    Attributes:
        data: The merged mapping as written, without defaults.
        version: The first 12 hex digits of the SHA-256 of its canonical JSON.
        files: (path relative to the root, SHA-256) of each file, in the order merged.
        sources: What messages call each file -> its absolute path.

    Example:
        >>> from tachograph import Policy
        >>> policy = Policy.from_dict({"schema": "policy/v1", "tool_registry": {"allowed": ["search"]}})
        >>> Policy.from_dict({"schema": "policy/v1", "tool_registry": {"allow": ["search"]}})
        Traceback (most recent call last):
        ...
        tachograph.fail.errors.PolicyError: <policy>#/tool_registry/allow: unknown key 'allow'; did you mean 'allowed'?
    """

    def __init__(
        self,
        data: Mapping[str, Any],
        *,
        files: Sequence[tuple[str, str]] = (),
        sources: Mapping[str, Path] | None = None,
        marks: Mapping[str, tuple[str, int, int]] | None = None,
        values: Mapping[str, tuple[str, int, int]] | None = None,
    ) -> None:
        self.files = tuple(files)
        self.sources = dict(sources or {})
        self._marks = dict(marks or {})
        self._values = dict(values or {})
        self._name = files[0][0] if files else _IN_CODE
        self._rules: dict[str, str] = {}
        frozen = self._freeze(data)
        self.data: dict[str, Any] = frozen.value()
        self.version: str = canonical_json.digest(frozen.text)[:12]
        _validate(self)

    @classmethod
    def load(
        cls,
        path: str | Path,
        overlays: Iterable[str | Path] = (),
        *,
        root: str | Path | None = None,
    ) -> Policy:
        """Read `path` and merge `overlays` over it: mappings merge by key, lists and scalars replace.

        `root` is the folder that recorded paths are relative to (the current folder unless given). Raises
        PolicyError with file, line and column for anything that is not exactly a policy.
        """
        from .loading import load_policy  # the only part of a policy that reads files

        return load_policy(cls, path, overlays, root)

    @classmethod
    def shipped(cls, overlays: Iterable[str | Path] = ()) -> Policy:
        """Load the policy that comes with the package, with overlays merged over it."""
        return cls.load(shipped("policy/v1.yaml"), overlays, root=shipped("."))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Policy:
        """Make a policy from plain data, for code that holds its rules itself. Raises PolicyError."""
        return cls(data)

    def at(self, pointer: str) -> str:
        """`file:line` of the key or list entry at a JSON Pointer, or of the nearest one above it that exists.

        Built in code, a policy has no lines: the place is then `<policy>#` and the pointer.
        """
        if not self._marks:
            return self.rule(pointer)
        file, line, _ = self._mark(pointer)
        return f"{file}:{line}"

    def rule(self, pointer: str) -> str:
        """Return how a record names the rule at a JSON Pointer: `document#pointer`, list entries by their value.

        The document is the file that supplied the value: the policy file or an overlay. No line number is in it, so
        that a comment or a moved line in a file changes no record.
        """
        known = self._rules.get(pointer)
        if known is None:
            above = pointer
            while above and above not in self._marks:
                above = above.rpartition("/")[0]
            name = self._marks[above][0] if above else self._name
            known = self._rules[pointer] = f"{name}#{by_value(self.data, pointer)}"
        return known

    def shown(self, rule: str) -> str:
        """Return `file:line` for a rule as a record names it; the name itself where this policy has no such rule."""
        _, mark, pointer = rule.partition("#/")
        place = by_index(self.data, mark[1:] + pointer)
        if not self._marks or place is None or self.rule(place) != rule:
            return rule
        return self.at(place)

    def error(
        self, pointer: str, message: str, remedy: str | None = None, *, of_value: bool = False
    ) -> PolicyError:
        """Return a PolicyError at the place of `pointer`: of its key, or of the value behind the key."""
        if not self._marks:
            return PolicyError(message, file=f"{self._name}#{pointer}", remedy=remedy)
        file, line, column = self._mark(pointer, of_value)
        return PolicyError(message, file=file, line=line, column=column, remedy=remedy)

    def _freeze(self, data: Mapping[str, Any]) -> canonical_json.Fragment:
        if not isinstance(data, Mapping):
            raise self.error("", "a policy is a mapping of sections", "see policy/README.md")
        for name, section in data.items():
            try:
                canonical_json.freeze({name: section})
            except canonical_json.NotJson as error:
                pointer = f"/{escape_pointer(name)}" if isinstance(name, str) else ""
                raise self.error(pointer, f"is not plain data: {error.reason}", "fix the value") from None
        return canonical_json.freeze(dict(data))

    def _mark(self, pointer: str, of_value: bool = False) -> tuple[str, int, int]:
        if of_value and pointer in self._marks and pointer in self._values:
            return self._values[pointer]
        while pointer and pointer not in self._marks:
            pointer = pointer.rpartition("/")[0]
        return self._marks.get(pointer, (self._name, 1, 1))

    def _order(self, pointer: str, of_value: bool) -> tuple[int, int, int]:
        """Places in the order of the files merged, for sorting."""
        file, line, column = self._mark(pointer, of_value)
        return next((i for i, (name, _) in enumerate(self.files) if name == file), 0), line, column

    def section(self, name: str) -> dict[str, Any]:
        """Return a section of the policy, empty if it is absent."""
        section = self.data.get(name, {})
        return section if isinstance(section, dict) else {}

    @cached_property
    def allowed(self) -> dict[str, int]:
        """Allowed tool names with their position in the list."""
        return {name: i for i, name in enumerate(self.section("tool_registry").get("allowed", ()))}

    @cached_property
    def denied(self) -> dict[str, int]:
        """Denied tool names with their position in the list."""
        return {name: i for i, name in enumerate(self.section("tool_registry").get("denied", ()))}

    @cached_property
    def allowlist(self) -> Allowlist:
        """The URL allowlist."""
        return Allowlist(self.data.get("url_allowlist", ()))

    @cached_property
    def credentials(self) -> Credentials:
        """The credentials that requests get, by host and port."""
        return read_credentials(self.section("credentials"))

    @cached_property
    def networks(self) -> Networks:
        """The private networks that are open."""
        return Networks(self.data.get("private_networks", ()))

    @cached_property
    def mounts(self) -> dict[str, str]:
        """Mount name -> `read` or `write`; a write mount may be read too."""
        return dict(self.section("sandbox").get("mounts", {}))

    @cached_property
    def tool_rules(self) -> dict[str, dict[str, Any]]:
        """The rules of single tools, by tool."""
        return self.section("tools")

    def has_rules(self, kind: str) -> bool:
        """Return whether any single tool has rules of a kind, such as `limits`."""
        return any(kind in rules for rules in self.tool_rules.values())

    @cached_property
    def principals(self) -> dict[str, dict[str, str]]:
        """Principal -> the tools that it is denied; none where the policy does not ask on whose behalf a run acts."""
        return {name: entry["tools"] for name, entry in self.section("principals").items()}

    @cached_property
    def lists(self) -> dict[str, list[Any]]:
        """The named lists of values that rules refer to."""
        return self.section("lists")

    @cached_property
    def approval_for(self) -> dict[str, int]:
        """Tools that need a person's approval, with their place in the list."""
        return {name: i for i, name in enumerate(self.section("approval").get("required_for", ()))}

    @property
    def approval_timeout_s(self) -> int:
        """Seconds that a person has to answer."""
        return int(self.section("approval").get("timeout_s", 0))

    @cached_property
    def signers(self) -> dict[str, str]:
        """Public keys by name, of which one must have signed an answer that allows a call; empty where none must."""
        return dict(self.section("approval").get("signers", {}))

    @cached_property
    def limits(self) -> dict[str, int]:
        """The budgets; an absent one of the four is 0 and allows nothing, `max_attempts` is there if it is given."""
        budget = self.section("loop_budget")
        names = ("max_iterations", "max_tokens", "max_tool_calls", "max_result_bytes")
        own = {"max_attempts": int(budget["max_attempts"])} if "max_attempts" in budget else {}
        return {**{name: int(budget.get(name, 0)) for name in names}, **own}

    @property
    def wrap_up(self) -> bool:
        """Whether the last iteration within the limits is offered without tools."""
        return bool(self.section("loop_budget").get("wrap_up", False))

    @property
    def denies_overdraft(self) -> bool:
        """Whether the calls of a reply that overdraws the tokens are denied."""
        return bool(self.section("loop_budget").get("overdraft") == "deny")

    @cached_property
    def max_repeats(self) -> int:
        """How often the same call may bring the same result."""
        return int(self.section("cycle_detection").get("max_repeats", 0))

    @property
    def on_deny(self) -> str:
        """What follows a denial: `terminate` or `inform`."""
        return str(self.data.get("on_deny", "terminate"))

    @cached_property
    def _on_failure(self) -> dict[str, Any]:
        """The section `on_failure`; a word is short for `default`."""
        section = self.data.get("on_failure", {})
        return {"default": section} if isinstance(section, str) else section

    @cached_property
    def on_failure_of(self) -> dict[str, str]:
        """Tools whose failures are answered in another way than by `on_failure`, with that way."""
        given = self._on_failure.get("tools", {})
        return {name: word for name, word in sorted(given.items()) if word != self.on_failure}

    @cached_property
    def on_failure(self) -> str:
        """What follows a failure of the model or of a tool that is not named: `terminate` or `inform`."""
        return str(self._on_failure.get("default", "terminate"))

    @property
    def max_failures(self) -> int:
        """Of how many failures the model is told in a run; one more ends it."""
        return int(self._on_failure.get("max_failures", MAX_FAILURES))

    @property
    def informs_of_failures(self) -> bool:
        """Whether the model is told of any failure."""
        return self.on_failure == "inform" or "inform" in self.on_failure_of.values()

    @property
    def strict_arguments(self) -> bool:
        """Whether arguments are held to all limits of their schema."""
        return bool(self.data.get("arg_schema_enforcement", "strict") == "strict")

    @cached_property
    def _redact(self) -> dict[str, Any]:
        """The section `redact`; a list of kinds is short for `kinds`."""
        section = self.data.get("redact", ())
        given = dict(section) if isinstance(section, Mapping) else {"kinds": section}
        return {} if given.get("off") else given

    @property
    def redact(self) -> tuple[str, ...]:
        """Kinds of secrets that never reach a record."""
        return tuple(self._redact.get("kinds", ()))

    @property
    def redact_patterns(self) -> dict[str, str]:
        """Kinds of secrets that the policy itself describes, each with its regular expression."""
        return dict(self._redact.get("patterns", {}))

    @property
    def redact_env(self) -> tuple[str, ...]:
        """Environment variables whose values never reach the record of a live run."""
        return tuple(self._redact.get("env", ()))

    @property
    def reveal_to(self) -> dict[str, tuple[str, ...]]:
        """The kinds of placeholders that a tool gets resolved, by tool."""
        return {tool: tuple(kinds) for tool, kinds in self._redact.get("reveal_to", {}).items()}

    @property
    def is_unredacted(self) -> bool:
        """Whether no kind of secret is kept out of records."""
        return not (self.redact or self.redact_patterns or self.redact_env)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What whoever runs under this policy should know, one line each."""
        if not self.is_unredacted:
            return ()
        place = self.at("/redact") if "redact" in self.data else self._name
        return (f"{place}: redaction is off: secrets reach the model and the record; name kinds in redact",)

    def redactor(self, values: Sequence[tuple[str, str]] = ()) -> Redactor:
        """Return a new redactor of the policy's kinds, which also replaces these (kind, secret) pairs."""
        return Redactor(self.redact, values, self.redact_patterns)

    @property
    def tools_named(self) -> frozenset[str]:
        """The tools that any section names."""
        return frozenset(name for _, _, listed in self._lists_of_tools() for name in listed)

    def _lists_of_tools(self) -> tuple[tuple[str, str, Mapping[str, object]], ...]:
        """Return section, key and tools of each list of tools, each tool with its place in the list."""
        return (
            ("tool_registry", "allowed", self.allowed),
            ("tool_registry", "denied", self.denied),
            ("approval", "required_for", self.approval_for),
            ("tools", "", {name: name for name in self.tool_rules}),
            ("redact", "reveal_to", {name: name for name in self.reveal_to}),
            ("on_failure", "tools", {name: name for name in self._on_failure.get("tools", {})}),
        )

    def check_tools(self, known: Iterable[str], remedy: str = "add the tool or remove the name") -> None:
        """Refuse names that no tool answers to: a rule that can decide no call is a mistake, not a rule."""
        names = sorted(set(known))
        for section, key, listed in self._lists_of_tools():
            for name, i in listed.items():
                if name not in names:
                    raise self.error(
                        f"/{section}/{key}/{i}" if key else f"/{section}/{i}",
                        f"there is no tool named {name!r}, neither here nor among the shipped ones",
                        did_you_mean(name, names) or remedy,
                    )


@lru_cache(maxsize=1)
def _validator() -> DocumentValidator:
    try:
        schema = json.loads(shipped(SCHEMA_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        # without it nothing could be refused
        raise PolicyError("the meta-schema is missing", file=SCHEMA_FILE, remedy="restore the file") from None
    return DocumentValidator(schema)


def meta_schema() -> dict[str, Any]:
    """Return the JSON Schema of policies (Draft 2020-12) as plain data."""
    return dict(_validator().schema)


def _validate(policy: Policy) -> None:
    problem = first_problem(_validator(), policy.data, "the policy", policy._order if policy._marks else None)
    if problem is not None:
        raise policy.error(problem.pointer, problem.message, problem.remedy, of_value=problem.of_value)
    check_names(policy)
    check_urls(policy)
    check_networks(policy)
    check_redaction(policy)
    check_credentials(policy)
    check_tool_rules(policy)
    check_principals(policy)
    retry = policy.section("retry")
    if retry and retry["backoff_cap_ms"] < retry["backoff_base_ms"]:
        raise policy.error(
            "/retry/backoff_cap_ms",
            "the cap is below the base",
            "raise backoff_cap_ms or lower backoff_base_ms",
        )
