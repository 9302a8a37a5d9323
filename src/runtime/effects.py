"""What a run may ask of the world. The loop asks for an effect and gets its outcome back, see `runtime/log/events.py`.

Nothing else touches anything: an effect is performed by a world (`virtual.py`, `real.py`), or its outcome is taken from
a log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from .log.values import Call, Fact, Struct
from .models.types import LLMInput, Model
from .policy.leaf import Verdict
from .redaction.redactor import Redactor
from .tools.contract import Tool


class _Repeatable(Struct, frozen=True):
    """Base of the effects that may happen twice."""

    is_once = False


class AskModel(_Repeatable, frozen=True):
    """Ask the model. Its outcome is ModelReplied, Failed or Stopped.

    Attributes:
        request: What is asked.
        redactor: Redacts the text while it comes.
        ask: The function of the model, or what stands for it where a record alone answers.
        fallback: Which of the fallbacks is asked, from 1; 0 for the model itself.
    """

    request: LLMInput
    redactor: Redactor
    ask: Model
    fallback: int = 0


class Invoke(Struct, frozen=True):
    """Make one attempt of a tool call. Its outcome is ToolReturned, Failed or Stopped.

    Attributes:
        call: The call.
        tool: Its tool.
        decide: Decides a fact that the tool meets, before it goes on; called from any thread.
        key: The idempotency key, the same for all attempts of the call.
        max_bytes: How large its result may be in canonical JSON. A larger one is not kept.
        redactor: Knows what the placeholders among the arguments stand for.
        reveals: The kinds of secrets that the tool is given.
        is_once: Whether it must not happen twice, so that its beginning is a line of its own.
    """

    call: Call
    tool: Tool
    decide: Callable[[Fact], Verdict]
    key: str
    max_bytes: int
    redactor: Redactor
    reveals: Collection[str]
    is_once: bool


class AskPerson(_Repeatable, frozen=True):
    """Ask a person about a call. The answer enters as Answered; if it is stopped, its outcome is Stopped.

    Attributes:
        call: The call.
        rule: The rule that wants a person.
        place: The entry it rests on.
        reason: Why a person is asked.
        digest: Of tool, arguments, policy version, run and address: an answer belongs to one question.
        timeout_s: Seconds after which silence is a refusal.
        run_id: The name of the run.
    """

    call: Call
    rule: str
    place: str
    reason: str
    digest: str
    timeout_s: int
    run_id: str


class AskHook(_Repeatable, frozen=True):
    """Ask a function of the caller. Its outcome is HookAnswered, Failed or Stopped.

    Attributes:
        function: The function.
        data: What it is asked.
        timeout_s: Seconds that it may take in a live run.
        redactor: Redacts what it raises, for people.
    """

    function: Callable[[dict[str, Any]], Any]
    data: dict[str, Any]
    timeout_s: float
    redactor: Redactor


class Wait(_Repeatable, frozen=True):
    """Wait. Its outcome is Waited or Stopped.

    Attributes:
        ns: Nanoseconds.
    """

    ns: int


Effect = AskModel | Invoke | AskPerson | AskHook | Wait
