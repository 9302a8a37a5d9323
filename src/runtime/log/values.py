"""The plain values that lines of a log hold."""

from typing import Annotated, Any, Final, Literal

import msgspec

from ...fail.catalog import StopReason

USER: Final = "user"  # the sender of what somebody outside says
THIS_STEP: Final = "this step"  # stands for the scope of a stop until it enters
NOTHING: Final = "0"  # the scope of one that came when nothing was under way: the head of the run
# a StopReason; a text, since most of those who stop something have one
Why = Annotated[str, msgspec.Meta(pattern=rf"^({'|'.join(StopReason)})\Z")]


class Struct(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Base of all plain values that a log holds."""


class Call(Struct, frozen=True):
    """A tool call that the model proposed.

    Attributes:
        id: `tc_<step>_<index>`.
        name: The tool.
        arguments: The arguments; None where the model's text is not a JSON object.
        text: What the model wrote in place of a JSON object.
        problem: Why that text is not a JSON object.
    """

    id: str
    name: str
    arguments: dict[str, Any] | None = None
    text: str = ""
    problem: str = ""


class Message(Struct, frozen=True):
    """What an agent, or somebody outside, says to an agent.

    Attributes:
        sender: The call that started the agent which says it, or the name of a team mate; "" for the agent of the run,
            `user` for somebody outside.
        text: What it says.
        is_answer: Whether it is what that agent came to.
    """

    sender: str
    text: str
    is_answer: bool = False


class Forked(Struct, frozen=True):
    """Where a conversation branched off: the name of the run, and the number of the last turn that both have."""

    run_id: str
    turn: int


class WindowLimits(Struct, frozen=True):
    """How much of what went before a model is shown; the log keeps all of it.

    Attributes:
        max_bytes: Beyond this many bytes of messages, old results are left out, and then the older half is summed up.
        keep_messages: How many of the last messages stay as they are.
        max_message_bytes: Of a longer result or message of an agent the beginning alone is shown; 0 for no such bound.
    """

    max_bytes: Annotated[int, msgspec.Meta(ge=1000, le=100_000_000)]
    keep_messages: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 8
    max_message_bytes: Annotated[int, msgspec.Meta(ge=0, le=100_000_000)] = 0


class Usage(Struct, frozen=True):
    """Tokens of one reply.

    Attributes:
        input_tokens: All tokens of the request.
        output_tokens: All tokens of the reply.
        estimated: Whether the service reported none, and bytes stand in for them.
        cached_tokens: Those of the request that came from a cache.
        cache_write_tokens: Those of the request that were put into a cache.
        reasoning_tokens: Those of the reply that the model thought with.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    estimated: bool = False
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0


class Reach(Struct, tag_field="fact", tag="reach", frozen=True):
    """A URL that a tool is about to reach.

    Attributes:
        url: The URL, as the parser writes it, or the text that is none.
        method: The HTTP method.
        address: An IP address that its host has, where one was looked up.
        hop: How many redirects led to it.
    """

    url: str
    method: str = "GET"
    address: str = ""
    hop: int = 0


class Touch(Struct, tag_field="fact", tag="touch", frozen=True):
    """A path that a tool is about to open.

    Attributes:
        path: The path below its mount: `corpus/a.md`.
        access: `read` or `write`.
        found: What stands at the path and may not be opened, such as `link`; empty where nothing speaks against it.
    """

    path: str
    access: str = "read"
    found: str = ""


class Withheld(Struct, tag_field="fact", tag="withheld", frozen=True):
    """A secret that a tool was not given, so that it was not begun.

    `why` is `unknown` where this process does not know it, `not_plain` where it would change what a URL or path means.
    """

    placeholder: str
    why: Literal["unknown", "not_plain"]


Fact = Reach | Touch | Withheld


class ToolOffer(Struct, frozen=True):
    """A tool as the model is offered it; `input_schema` is without our own keywords."""

    name: str
    description: str
    effect: str
    input_schema: dict[str, Any]


class ModelName(Struct, frozen=True):
    """Which model is asked; `path` is `stub` for a script and `live` otherwise."""

    provider: str
    name: str
    path: Literal["stub", "live"] = "live"


class ModelChoice(Struct, frozen=True):
    """A model, and what it is sent with every request."""

    name: ModelName
    options: dict[str, Any] = {}


class PolicyHead(Struct, frozen=True):
    """The policy of a run; `hides` names the kinds of secrets and the variables that are redacted."""

    file: str
    version: str
    on_deny: str
    limits: dict[str, int]
    hides: list[str] = []
