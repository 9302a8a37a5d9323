"""What a policy file may hold, as types. `policy/v1.schema.json` is generated from them.

An absent section allows nothing; an empty list means none.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
Mount = Annotated[str, Meta(min_length=1, max_length=32, pattern=r"^[a-z][a-z0-9_-]*$")]
Url = Annotated[str, Meta(min_length=1, max_length=2048)]
Number = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Method = Literal["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST", "PATCH"]


class Section(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all sections."""


class ToolRegistry(Section, frozen=True):
    """Which tools may be called.

    Attributes:
        allowed: Tools that may be called.
        denied: Tools that may not, so that another file cannot allow them unnoticed.
    """

    allowed: list[Name] = []
    denied: list[Name] = []


class UrlWithMethods(Section, frozen=True):
    """A URL prefix with its methods; a prefix alone allows GET and HEAD."""

    url: Url
    methods: Annotated[list[Method], Meta(min_length=1)]


class Sandbox(Section, frozen=True):
    """The mounts and their modes; a mount for writing may be read too."""

    mounts: dict[Mount, Literal["read", "write"]] = {}


class LoopBudget(Section, frozen=True):
    """What a run may use up.

    Attributes:
        max_iterations: Steps.
        max_tokens: Tokens of all replies, both ways.
        max_tool_calls: Calls.
        max_result_bytes: Bytes of all results, as canonical JSON.
        max_attempts: Attempts of tools, each retry counted.
        overdraft: `deny` refuses the calls of a reply that used up more tokens than were left.
    """

    max_iterations: Number = 0
    max_tokens: Number = 0
    max_tool_calls: Number = 0
    max_result_bytes: Number = 0
    max_attempts: Number | None = None
    overdraft: Literal["allow", "deny"] = "allow"


class CycleDetection(Section, frozen=True):
    """How often the same call may give the same result."""

    max_repeats: Number = 0


class Retry(Section, frozen=True):
    """How often a transient failure is tried again, and after how long."""

    max_retries: Annotated[int, Meta(ge=0, le=20)]
    backoff_base_ms: Annotated[int, Meta(ge=0, le=60_000)]
    backoff_cap_ms: Annotated[int, Meta(ge=0, le=600_000)]


class PolicyFile(Section, frozen=True):
    """A policy."""

    schema: Literal["policy/v1"]
    tool_registry: ToolRegistry = ToolRegistry()
    url_allowlist: list[Url | UrlWithMethods] = []
    private_networks: list[str] = []
    sandbox: Sandbox = Sandbox()
    arg_schema_enforcement: Literal["strict", "shape"] = "strict"
    loop_budget: LoopBudget = LoopBudget()
    cycle_detection: CycleDetection = CycleDetection()
    retry: Retry | None = None
    on_deny: Literal["terminate", "inform"] = "terminate"
