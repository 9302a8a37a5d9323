"""Ask a person for real, by whatever was given as `approve`, and read the answer strictly."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ...fail.errors import Cancelled
from ...light_dataclasses import replace
from ..core.clock import Clock
from ..core.effects import ANOTHER_QUESTION, Answer, AskHuman, Outcome
from ..core.redaction import Redactor
from ..core.stopping import IS_OVER
from ..policy.signers import is_signature
from .foreign_calls import Attempt, ForeignCalls, Manner, log_failure
from .ports import Approve


async def ask_person(
    approve: Approve | None,
    effect: AskHuman,
    calls: ForeignCalls,
    manner: Manner,
    attempt: Attempt,
    begun: Callable[..., Any],
    clock: Clock,
    redact: Redactor,
) -> Outcome:
    """Return the answer of a person to a question; silence where there is none in time.

    Args:
        approve: Who is asked; None where nobody is.
        effect: The question.
        calls: How foreign code is called.
        manner: Whether it is awaited, called here or in a thread.
        attempt: What ends the call.
        begun: Calls foreign code, and runs its coroutine to its end where nothing awaits it.
        clock: The clock of the run.
        redact: Takes secrets out of what is said.
    """
    real = clock.kind == "system"  # on a virtual clock nobody is slow
    since = clock.stamp() if real else 0
    said: object = None
    over = threading.Event()

    def asked() -> Any:
        token = IS_OVER.set(over.is_set)
        try:
            return begun(approve, effect)
        finally:
            IS_OVER.reset(token)

    try:
        if approve is not None:
            said, failed = await calls.call(asked, manner, attempt)
            if failed is not None:
                raise failed
    except Cancelled:
        raise
    except Exception as error:  # noqa: BLE001 - foreign code; who did not allow a call refused it
        log_failure("asking a person raised", error=error, redact=redact)
        said = Answer("deny", why=f"asking raised {type(error).__name__}")
    finally:
        over.set()  # a thread that the run left takes no answer any more
    late = real and clock.stamp() - since > effect.timeout_s * 1_000_000_000
    if said is None or late or (isinstance(said, Answer) and said.answer == "silence"):
        if clock.kind == "virtual":
            clock.sleep(effect.timeout_s * 1000)
        return Outcome(answer=Answer("silence", digest=effect.digest))
    clock.spend("person")
    return Outcome(answer=replace(_read(said, effect.digest, redact), digest=effect.digest))


def _read(said: object, digest: str, redact: Redactor) -> Answer:
    """Read a person's answer strictly: anything else, or an answer to another question, is a refusal."""
    if isinstance(said, bool):
        return Answer("allow" if said else "deny")
    if not isinstance(said, Answer) or said.answer not in ("allow", "deny", "silence"):
        return Answer("deny", why="the answer was none")
    if said.digest is not None and said.digest != digest:
        return Answer("deny", why=ANOTHER_QUESTION)
    # of another form it is none, and may be anything
    signature = said.signature if is_signature(said.signature) else _text(said.signature, redact)
    return Answer(said.answer, _text(said.by, redact), _text(said.why, redact), signature=signature)


def _text(text: object, redact: Redactor) -> str | None:
    return redact(text.encode("utf-8", "replace").decode()) if isinstance(text, str) else None
