"""What a task file may hold, as types: one scenario, in `tasks/KIND/NAME.yaml`; and what a profile may."""

import builtins
from datetime import datetime  # noqa: TID251 - the type; no clock is read
from enum import StrEnum
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, ValidationError, convert

from ..fail import errors
from ..fail.catalog import Ending, FailureMode, Rule
from ..runtime.log.values import WindowLimits

Count = Annotated[int, Meta(ge=0, le=1_000_000)]
_UTC = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$(?!\n)"
Place = Annotated[int, Meta(ge=1, le=1_000_000)]
Tokens = Annotated[int, Meta(ge=0)]
# how a task names a decision: made of the rules, so that a misspelt one is told with the likely word
Verdict: Any = StrEnum("Verdict", ["allow", *(f"deny:{rule}" for rule in Rule)])  # type: ignore[misc]


class Part(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all parts of a task."""


class Clock(Part, frozen=True):
    """When the run begins, as RFC 3339 in UTC."""

    start: Annotated[str, Meta(pattern=_UTC)] = "2026-01-01T00:00:00Z"


class PolicyPlace(Part, frozen=True):
    """The policy file, relative to the project."""

    file: str


class Setup(Part, frozen=True):
    """A file or a link that stands in a private mount when the run begins."""

    path: str
    text: str | None = None
    link: str | None = None


class HostFolder(Part, frozen=True):
    """A folder of the project that answers for a host, and where its paths lead instead."""

    folder: str
    redirects: dict[str, str] = {}


class McpPlace(Part, frozen=True):
    """Where an MCP server is: a program, or the URL of its endpoint.

    Attributes:
        command: The program and its arguments.
        url: The URL.
        env: Names of variables that the program is given, beside PATH, HOME and LANG; or that headers may name.
        headers: Headers of the requests to the URL, in which `$NAME` stands for the value of such a variable.
        timeout_s: Seconds that a call may take, and the start.
    """

    command: list[str] = []
    url: str = ""
    env: list[str] = []
    headers: dict[str, str] = {}
    timeout_s: Annotated[int, Meta(ge=1, le=3600)] = 60


class ScriptedCall(Part, frozen=True):
    """A call that the script proposes; `arguments_text` is sent as it stands."""

    tool: str
    arguments: dict[str, Any] | None = None
    arguments_text: str | None = None


class ScriptedUsage(Part, frozen=True):
    """The tokens of a reply, as of LLMOutput."""

    input_tokens: Tokens = 0
    output_tokens: Tokens = 0
    cached_tokens: Tokens = 0
    cache_write_tokens: Tokens = 0
    reasoning_tokens: Tokens = 0


class Turn(Part, frozen=True):
    """A reply of the script; `summary` is what it says if it is asked for one before that."""

    say: str | None = None
    calls: list[ScriptedCall] = []
    answer: Any = None
    usage: ScriptedUsage = ScriptedUsage()
    finish_reason: Literal["stop", "tool_calls", "length", "refusal", "pause", "other"] | None = None
    summary: str | None = None


class Stub(Part, frozen=True):
    """The script in the place of a model.

    Attributes:
        turns: Its replies.
        agents: The scripts of agents, by the address of the call that starts each, such as `2.c0` or `2.c0/1.c1`.
    """

    turns: list[Turn]
    agents: dict[str, list[Turn]] = {}


class Llm(Part, frozen=True):
    """What answers.

    Attributes:
        stub: A script.
        live: The live models of which one answers, each as `PROVIDER:MODEL`.
        fallback: The models that are asked in turn where the one before fails for good; names for the same script.
    """

    stub: Stub | None = None
    live: list[str] = []
    fallback: list[str] = []


class FaultSpec(Part, frozen=True):
    """What goes wrong, and where.

    Attributes:
        target: `model`, `tool`, or `io`: the tool runs, and each use of its `io` raises.
        step: The step, from 1.
        call: The call of the reply, from 0.
        attempt: The attempt, from 1; every one unless given.
        raises: The class of a builtin exception, or of one that a model may raise.
        returns: What the tool returns in place of its result.
        delays_ms: How much longer the effect takes.
        cancels: Whether the run is cancelled at the end of the effect.
        agent: The call that started the agent in which it goes wrong, such as `2.c0`; "" for that of the run.
    """

    target: Literal["model", "tool", "io"]
    step: Place
    call: Count = 0
    attempt: Place | None = None
    raises: str | None = None
    returns: dict[str, Any] | None = None
    delays_ms: Count = 0
    cancels: bool = False
    agent: str = ""

    def is_at(self, at: str) -> bool:
        """Return whether it is what goes wrong with the effect at an address."""
        step = f"{self.agent}/{self.step}".removeprefix("/")
        number = at.removeprefix(f"{step}.m" if self.target == "model" else f"{step}.c{self.call}.i")
        return number != at and number.isdecimal() and self.attempt in (None, int(number))


class Said(Part, frozen=True):
    """A turn of a conversation.

    Attributes:
        say: What somebody says.
        at_ms: When it interrupts what the run does then; unless given, it is said when the run waits for it.
        compact: Before that, a summary of what went before is asked for, with this focus.
        plan: Whether a plan is asked for before that.
        undo: Whether the turn before is taken back first.
    """

    say: str
    at_ms: Count | None = None
    compact: str | None = None
    plan: bool = False
    undo: bool = False


class ForkedFrom(Part, frozen=True):
    """The task of the conversation whose first turns these are, as `KIND/NAME`, and how many they have in common."""

    task: str
    turn: Place


class ScriptedAnswer(Part, frozen=True):
    """A person's answer about a call.

    Attributes:
        step: The step, from 1.
        call: The call of the reply, from 0.
        answer: `allow`, `deny` or `silence`.
        by: Who answers.
        why: Why.
        agent: As in FaultSpec.
    """

    step: Place
    answer: Literal["allow", "deny", "silence"]
    call: Count = 0
    by: str = ""
    why: str = ""
    agent: str = ""

    def is_at(self, at: str) -> bool:
        """Return whether it is the answer to the question at an address."""
        return at == f"{self.agent}/{self.step}.c{self.call}.p".removeprefix("/")


class Expected(Part, frozen=True):
    """What the run has to come to.

    Attributes:
        ending: Its ending.
        decisions: Its decisions in order: `allow`, or `deny:RULE`.
        modes: The failure modes of its steps, in order.
        spans: How many spans of each name its trace holds.
    """

    ending: Ending | None = None
    decisions: list[Verdict] | None = None
    modes: list[FailureMode] | None = None
    spans: dict[str, Count] | None = None


class AgentPart(Part, frozen=True, kw_only=True):
    """What tasks and profiles say of an agent.

    Attributes:
        policy: The policy; of a profile, those of every agent above it hold as well.
        tools: The tools, by name; those of an MCP server as `SERVER__TOOL`.
        agents: The profiles that it may start, by name, see `agent_file.py`.
        hand_over_to: The profiles that may go on in its place, by name.
        team: The profiles that it may start as team mates, by name.
        functions: Tools whose functions start agents, each with the profiles that it may start.
        instructions: The system message.
        hooks: Modules of the project with functions called as the points of a run, see `runtime/loop/hooks.py`.
        output_schema: The JSON Schema that the final answer must fit.
        output_retries: How often the model is asked again for an answer that does not fit.
        window: How much of what went before the model is shown; all of it unless given.
        plan: The policy that holds as well until a person has allowed a plan.
        variables: What stands for `{{NAME}}` in the instructions.
        mcp: The MCP servers, by name; what they offer is in `mcp.lock`. These and what follows are those of the run.
        mounts: Folders of the project, by mount.
        hosts: Folders that answer for hosts.
    """

    policy: PolicyPlace = PolicyPlace("")
    tools: list[str] = []
    agents: list[str] = []
    hand_over_to: list[str] = []
    team: list[str] = []
    functions: dict[str, list[str]] = {}
    instructions: str = ""
    hooks: list[str] = []
    output_schema: dict[str, Any] | None = None
    output_retries: Count = 2
    window: WindowLimits | None = None
    plan: PolicyPlace | None = None
    variables: dict[str, str] = {}
    mcp: dict[str, McpPlace] = {}
    mounts: dict[str, str] = {}
    hosts: dict[Annotated[str, Meta(pattern=r"^[^A-Z/\s]+$", examples=["news.test"])], HostFolder] = {}


class TaskFile(AgentPart, frozen=True, kw_only=True):
    """A task.

    Attributes:
        id: `KIND-NAME`.
        title: What it is about.
        profile: The profile that says all of its agent; `variables` beside it count in the place of those there.
        question: What is asked.
        turns: In the place of a question: what is said in a conversation.
        forked: Where the conversation branched off.
        seed: Of the jitter of waits.
        clock: When the run begins.
        setup: What stands in private mounts when the run begins.
        llm: The script, or the live models that it is for.
        approvals: What a person answers.
        faults: What goes wrong.
        deadline_s: Seconds after which the run is stopped; 0 for never.
        expected: What the run has to come to.
    """

    schema: Literal["task/v1"]
    id: Annotated[str, Meta(pattern=r"^[a-z0-9_]+-[a-z0-9_]+$(?!\n)", max_length=100)]
    title: str
    llm: Llm
    profile: str = ""
    question: str = ""
    turns: list[Said] = []
    forked: ForkedFrom | None = None
    seed: Count = 0
    clock: Clock = Clock()
    setup: list[Setup] = []
    approvals: list[ScriptedAnswer] = []
    faults: list[FaultSpec] = []
    deadline_s: Annotated[int, Meta(ge=0, le=604_800)] = 0
    expected: Expected = Expected()


class ProfileFile(AgentPart, frozen=True, kw_only=True):
    """A profile: an agent that a call may start, in `profiles/NAME.yaml`.

    Attributes:
        description: What a model reads about it that may start it.
        model: The live model that it is for, as `PROVIDER:MODEL`; that of the run unless given.
    """

    schema: Literal["profile/v1"]
    description: Annotated[str, Meta(min_length=1)]
    model: str = ""


def exception_of(name: str) -> Exception | None:
    """Return a builtin exception of a name, or one that a model may raise; None where it needs arguments."""
    kind = getattr(builtins, name, None) or getattr(errors, name, None)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return None
    try:
        return kind()
    except TypeError:
        return None


def nanoseconds_of(start: str) -> int | None:
    """Return a time in nanoseconds since 1970, None where there is no such time."""
    try:
        seconds = int(convert(start, datetime).timestamp())
    except ValidationError:
        return None
    return seconds * 1_000_000_000 if seconds >= 0 else None
