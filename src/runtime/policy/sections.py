"""What a policy file may hold, as types, from which `policy/v1.schema.json` is made.

An absent section allows nothing; an empty list means none.
"""

from typing import Annotated, Any, Final, Literal, get_args

from msgspec import UNSET, Meta, Struct, UnsetType, field

Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z][A-Za-z0-9_-]*$(?!\n)")]
Mount = Annotated[str, Meta(min_length=1, max_length=32, pattern=r"^[a-z][a-z0-9_-]*$(?!\n)")]
Url = Annotated[str, Meta(min_length=1, max_length=2048)]
Number = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Cost = Annotated[str, Meta(pattern=r"^[0-9]{1,6}(\.[0-9]{1,6})? USD$(?!\n)", examples=["0.50 USD"])]
TokenPrice = Annotated[str, Meta(pattern=r"^[0-9]{1,6}(\.[0-9]{1,6})?$(?!\n)", examples=["2.50"])]
ModelKey = Annotated[
    str, Meta(pattern=r"^[a-z0-9_.-]+:[^\s]+$(?!\n)", max_length=250, examples=["openai:gpt-5-mini"])
]
Method = Literal["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST", "PATCH"]
METHODS: Final[tuple[str, ...]] = get_args(Method)
# What an entry of the URL allowlist allows that names no methods. They ask for something and change nothing.
SAFE_METHODS: Final = ("GET", "HEAD")


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
        max_cost: What all replies may cost, such as `0.50 USD`; the section `prices` says what tokens cost.
        max_wall_clock_s: Seconds since the run began after which no step, call or further attempt begins.
        max_turn_iterations: Steps of one turn of a conversation.
        max_turn_tokens: Tokens of one turn.
        max_turn_tool_calls: Calls of one turn.
        overdraft: `deny` refuses the calls of a reply that used up more tokens than were left.
    """

    max_iterations: Number = 0
    max_tokens: Number = 0
    max_tool_calls: Number = 0
    max_result_bytes: Number = 0
    max_attempts: Number | UnsetType = UNSET
    max_cost: Cost | UnsetType = UNSET
    max_wall_clock_s: Number | UnsetType = UNSET
    max_turn_iterations: Number | UnsetType = UNSET
    max_turn_tokens: Number | UnsetType = UNSET
    max_turn_tool_calls: Number | UnsetType = UNSET
    overdraft: Literal["allow", "deny"] = "allow"


class ModelPrice(Section, frozen=True):
    """What a million tokens of a model cost in US dollars, written as text.

    Attributes:
        input: Tokens of requests.
        output: Tokens of replies.
        cached: Tokens of requests that come from a cache; as `input` unless given.
        cache_write: Tokens of requests that go into a cache; as `input` unless given.
        dated: The day on which these were the prices, for readers.
    """

    input: TokenPrice
    output: TokenPrice
    cached: TokenPrice | UnsetType = UNSET
    cache_write: TokenPrice | UnsetType = UNSET
    dated: Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$(?!\n)")] | UnsetType = UNSET


class CycleDetection(Section, frozen=True):
    """How often the same call may give the same result."""

    max_repeats: Number = 0


class Retry(Section, frozen=True):
    """How often a transient failure is tried again, and after how long."""

    max_retries: Annotated[int, Meta(ge=0, le=20)]
    backoff_base_ms: Annotated[int, Meta(ge=0, le=60_000)]
    backoff_cap_ms: Annotated[int, Meta(ge=0, le=600_000)]


class Condition(Section, frozen=True):
    """A condition on a value among the arguments of a tool; each keyword demands its type.

    Attributes:
        maximum: The largest number.
        minimum: The smallest number.
        exclusiveMaximum: What a number has to be below.
        exclusiveMinimum: What a number has to be above.
        maxLength: The most characters of a text.
        pattern: A regular expression that has to match somewhere in a text.
        in_: The values that are allowed: a list of the section `lists`, by name, or the values themselves.
    """

    maximum: int | float | UnsetType = UNSET
    minimum: int | float | UnsetType = UNSET
    exclusiveMaximum: int | float | UnsetType = UNSET
    exclusiveMinimum: int | float | UnsetType = UNSET
    maxLength: Number | UnsetType = UNSET
    pattern: Annotated[str, Meta(max_length=1000)] | UnsetType = UNSET
    in_: str | list[str | int | float | bool | None] | UnsetType = field(default=UNSET, name="in")


class CallLimits(Section, frozen=True):
    """How often a tool may be called: in a run, and in any minute of it."""

    calls: Number | UnsetType = UNSET
    per_minute: Number | UnsetType = UNSET


Pointer = Annotated[str, Meta(pattern=r"^(/([^~/]|~[01])*)+$(?!\n)", max_length=200, examples=["/top_k"])]
Resource = Literal["url", "path:read", "path:write", "text", "any"]


class ToolRules(Section, frozen=True):
    """What holds for one tool beside what holds for all.

    Attributes:
        urls: URL prefixes that it may reach, of those that the policy allows.
        methods: HTTP methods that it may use, likewise.
        mounts: Mounts that it may use, likewise.
        arguments: Conditions that its arguments have to meet, by JSON Pointer; `*` stands for each item of a list.
        ask_if: Conditions on which a person is asked.
        limits: How often it may be called.
        resources: What texts among the arguments of an external tool are, likewise; `*` stands for any key or item.
        effect: `read` where a tool of an MCP server changes nothing; unless said, it is `external`.
    """

    urls: list[Url] | UnsetType = UNSET
    methods: list[Method] | UnsetType = UNSET
    mounts: list[Mount] | UnsetType = UNSET
    arguments: dict[Pointer, Condition] = {}
    ask_if: dict[Pointer, Condition] = {}
    limits: CallLimits = CallLimits()
    resources: dict[Pointer, Resource] = {}
    effect: Literal["read", "external"] | UnsetType = UNSET


Word = Literal["terminate", "inform"]


class OnFailure(Section, frozen=True):
    """What follows from a failure.

    Attributes:
        default: `terminate` ends the run, `inform` tells the model, which may go on.
        tools: The same for single tools.
        max_failures: Of how many failures the model of a run is told.
    """

    default: Word = "terminate"
    tools: dict[Name, Word] = {}
    max_failures: Number = 10


class Approval(Section, frozen=True):
    """What a person is asked about.

    Attributes:
        required_for: Tools whose calls all need a person.
        timeout_s: Seconds a person has; silence is a refusal.
    """

    required_for: list[Name] = []
    timeout_s: Annotated[int, Meta(ge=1, le=604_800)] = 300


EnvName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$(?!\n)", max_length=100)]


class Agents(Section, frozen=True):
    """Which agents a run may start. All policies above an agent hold for it, and what it starts counts for all of them.

    Attributes:
        max_depth: How many levels of agents there may be below this one.
        max_children: How many agents may be started in all.
        max_parallel: How many are at work for one agent at the same time; others of the same reply wait.
    """

    max_depth: Annotated[int, Meta(ge=0, le=50)] = 0
    max_children: Number = 0
    max_parallel: Number = 1


class Redact(Section, frozen=True):
    """What becomes a placeholder wherever it enters a run.

    Attributes:
        kinds: Kinds of secrets, see `runtime/redaction/kinds.py`.
        env: Variables of the environment whose values are secrets of the kind `env`, in live runs.
        reveal_to: Kinds that a tool is given, by its name.
    """

    kinds: list[str] = []
    env: list[EnvName] = []
    reveal_to: dict[Name, list[str]] = {}


class PolicyFile(Section, frozen=True):
    """A policy."""

    schema: Literal["policy/v1"]
    tool_registry: ToolRegistry = ToolRegistry()
    url_allowlist: list[Url | UrlWithMethods] = []
    private_networks: list[str] = []
    sandbox: Sandbox = Sandbox()
    arg_schema_enforcement: Literal["strict", "shape"] = "strict"
    loop_budget: LoopBudget = LoopBudget()
    prices: dict[ModelKey, ModelPrice] = {}
    cycle_detection: CycleDetection = CycleDetection()
    retry: Retry | None = None
    on_deny: Word = "terminate"
    on_failure: Word | OnFailure = "terminate"
    tools: dict[Name, ToolRules] = {}
    lists: dict[str, list[str | int | float | bool | None]] = {}
    approval: Approval = Approval()
    agents: Agents = Agents()
    redact: Redact = Redact()


def policy_schema() -> dict[str, Any]:
    """Return the JSON Schema (Draft 2020-12) of a policy file; one that extends another need not say its schema."""
    from ..schema.python_types import schema_of  # a run needs it not

    schema = schema_of(PolicyFile)
    file = schema["$defs"]["PolicyFile"]
    file["properties"]["extends"] = {"type": "string", "description": "The file that this one is laid over."}
    del file["required"]
    file["anyOf"] = [{"required": ["schema"]}, {"required": ["extends"]}]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
