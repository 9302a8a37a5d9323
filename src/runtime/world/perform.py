"""How effects are performed: foreign code is called, and whatever comes of it becomes an outcome.

The text of an exception may say anything, so no outcome holds it: the class alone is kept.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct, structs, to_builtins

from ...fail import errors
from ..branches import Pending
from ..effects import AskHook, AskModel, Invoke
from ..formats import strict_json
from ..io.tool_io import ToolIO
from ..io.workspace import Workspace
from ..log.events import Failed, HookAnswered, ModelReplied, Outcome, ToolReturned, Waited
from ..log.journal import tell
from ..log.values import Call, Fact, Withheld
from ..models.scripted import Script
from ..models.types import Piece, StreamingModel, clean_text, read_reply
from ..redaction.redactor import placeholders

# what may stand in the place of a placeholder in a URL or a path without changing what the rest of it means;
# compiled for the first placeholder that is in one
_PLAIN = r"[A-Za-z0-9_~-][A-Za-z0-9._~:-]*"


class Fault(Struct, frozen=True):
    """What a task lets happen in place of an effect.

    Attributes:
        error: The exception that is raised, None for none.
        in_io: Whether it is raised where the tool uses its `io`.
        returns: What a tool returns in place of its result.
        delay_ns: How much longer the effect takes.
        cancels: Whether the run is cancelled at the end of the effect.
    """

    error: BaseException | None = None
    in_io: bool = False
    returns: dict[str, Any] | None = None
    delay_ns: int = 0
    cancels: bool = False


NO_FAULT: Final = Fault()


class Performer:
    """Performs what a run asks for.

    Args:
        workspace: What tools may touch.
        fault: Says what happens in place of an effect, by its address; for tests of failures.

    Attributes:
        earlier: Answers for external effects from an earlier record, given address and call; None performs them.
        on_piece: Is told the pieces of the model's text while they come, None for nobody.
    """

    def __init__(self, workspace: Workspace, fault: Callable[[str], Fault | None] = lambda at: None) -> None:
        self._workspace, self.fault = workspace, fault
        self.on_piece: Callable[[Piece], None] | None = None
        self.earlier: Callable[[str, Call], ToolReturned | Failed] | None = None

    async def call(
        self, at: str, function: Callable[..., Any], *arguments: Any, timeout_s: float | None = None
    ) -> Any:
        """Call foreign code and return its result; a world overrides how."""
        raise NotImplementedError

    def _show(self, at: str, text: str) -> None:
        if text:
            self.on_piece = tell(self.on_piece, Piece(at, text))

    async def close(self) -> None:
        """End what is still under way."""

    def raise_if_cancelled(self) -> None:
        """Raise a cancellation by the caller again, once the log is whole; nobody cancels a script."""

    async def perform(self, pending: Pending) -> Outcome:
        """Perform an effect to its end; of Wait, nothing is left to do."""
        effect = pending.effect
        if type(effect) is AskModel:
            return await self.ask_model(pending, effect)
        if type(effect) is Invoke:
            io = ToolIO(self._workspace, effect.tool, effect.decide, effect.key)
            outcome = await self.invoke(pending, effect, io)
            if io.wrote and effect.tool.effect != "write":  # which is known to write anywhere
                texts = effect.tool.texts(effect.call.arguments)
                unnamed = io.wrote - {text for kind, text in texts if kind == "path:write"}
                outcome = structs.replace(outcome, wrote=sorted({it.partition("/")[0] for it in unnamed}))
            return effect.redactor.struct(outcome) if effect.reveals else outcome
        if type(effect) is AskHook:
            return await self.ask_hook(pending, effect)
        return Waited(at=pending.at)

    async def ask_model(self, pending: Pending, effect: AskModel) -> ModelReplied | Failed:
        """Ask the model once."""
        request, model = effect.request, effect.ask
        try:
            fault = self.fault(pending.at)
            if fault is not None and fault.error is not None:
                raise fault.error
            if self.on_piece is not None and isinstance(model, StreamingModel):
                from ..redaction.pieces import Pieces  # slow to import, and most runs show no pieces

                at, pieces = pending.at, Pieces(effect.redactor)
                output = await self.call(
                    at, model.ask, request, lambda text: self._show(at, pieces.feed(text))
                )
                self._show(at, pieces.end())
            else:
                output = await self.call(pending.at, model, request)
            reply = read_reply(output, pending.at, request.step_index, request.messages.size)
            if reply.problem and not isinstance(model, Script):
                errors.warn("the model failed: it returned %s (%s)", errors.class_of(output), reply.problem)
        except BaseException as error:  # noqa: BLE001 - foreign code may raise anything
            return _model_failed(pending.at, error, effect, is_told=self.fault(pending.at) is None)
        return structs.replace(reply, fallback=effect.fallback) if effect.fallback else reply

    async def ask_hook(self, pending: Pending, effect: AskHook) -> HookAnswered | Failed:
        """Ask a function of the caller."""
        at = pending.at
        try:
            data = strict_json.as_json(effect.data)  # a copy, since the function may change it
            answer = await self.call(at, effect.function, data, timeout_s=effect.timeout_s)
        except BaseException as error:
            if errors.asks_to_end(error):
                raise
            if errors.class_of(error) != "CancelledError":
                errors.warn_of(f"the hook {effect.data['event']} failed", error, effect.redactor.text)
            return Failed(at=at, error=errors.class_of(error), kind=_kind_of(error))
        try:
            plain = strict_json.as_json(answer)
            if plain is not None and not isinstance(plain, dict):
                raise strict_json.NotJson("no object")
        except strict_json.NotJson:
            return Failed(at=at, error=errors.class_of(answer), kind="invalid")
        return HookAnswered(at=at, answer=plain)

    async def invoke(self, pending: Pending, effect: Invoke, io: ToolIO) -> ToolReturned | Failed:
        """Make one attempt of a tool call."""
        at, tool = pending.at, effect.tool
        fault = self.fault(at) or NO_FAULT
        is_called = fault.in_io or (fault.error is None and fault.returns is None)
        if self.earlier is not None and tool.acts_beside_io and is_called:
            return self.earlier(at, effect.call)
        arguments, withheld = given(effect)
        if withheld:
            io.close()
            return Failed(at=at, error="PermissionError", met=withheld)
        pid = os.getpid()
        try:
            if fault.in_io:
                io.broken = fault.error
            elif fault.error is not None:
                raise fault.error
            result: Any = fault.returns
            if result is None:
                result = await self.call(at, tool.run, arguments, io, timeout_s=tool.timeout_s)
        except BaseException as error:  # noqa: BLE001 - foreign code may raise anything
            return self._tool_failed(at, effect, error, io)
        finally:
            if os.getpid() != pid:
                os._exit(70)  # the tool forked and returned in the child, which must not go on as the run
            io.close()
        self._raise_if_not_stored(io)
        # a tool may have swallowed the exception; a denial counts all the same
        if io.denied or io.undeclared:
            return Failed(at=at, error="PermissionError", place=io.undeclared, met=io.met)
        judged = _judged(at, effect, result, io)
        if isinstance(judged, Failed) and fault.returns is None:
            wrong = effect.redactor.text(clean_text(f"{judged.error}: {judged.place}"))
            errors.warn("%s: the result cannot be used: %s", tool.file, wrong)
        return judged

    def _raise_if_not_stored(self, io: ToolIO) -> None:
        if (error := io.storage_error) is not None:
            what = f"the system failed under a tool ({errors.system_reason(error)})"
            raise errors.SystemFailure(f"{what}; see to it, and resume the run") from error

    def _tool_failed(self, at: str, effect: Invoke, error: BaseException, io: ToolIO) -> Failed:
        self._raise_if_not_stored(io)
        if errors.asks_to_end(error):
            raise error
        kind, said = _kind_of(error, transient=effect.tool.transient), ""
        if io.denied or io.undeclared:
            kind = "other"
        elif isinstance(error, errors.ToolFailure):
            said = errors.text_of(error, effect.redactor.text)
        elif kind == "other" and self.fault(at) is None and errors.class_of(error) != "CancelledError":
            errors.warn_of(effect.tool.file, error, effect.redactor.text)
        return Failed(
            at=at,
            error=errors.class_of(error),
            kind=kind,
            harmless=isinstance(error, ConnectionRefusedError) and not io.wrote,
            said=said,
            place=io.undeclared,
            met=io.met,
        )


def given(effect: Invoke) -> tuple[Any, list[Fact]]:
    """Return the arguments that a tool is given, and the secrets that it may have and cannot be given.

    The arguments are a copy, since the tool may change them.
    """
    arguments, redactor = effect.call.arguments, effect.redactor
    if not effect.reveals:
        return to_builtins(arguments), []
    granted = [mark for mark, kind in placeholders(arguments) if kind in effect.reveals]
    unknown = {*redactor.unknown(granted)}
    found: list[Fact] = [Withheld(mark, "unknown") for mark in granted if mark in unknown]
    for judged_as, text in effect.tool.texts(arguments):
        for mark, kind in placeholders(text):
            is_put = kind in effect.reveals and judged_as not in ("text", "any") and mark not in unknown
            if is_put and not re.fullmatch(_PLAIN, redactor.reveal(mark, {kind})):
                found.append(Withheld(mark, "not_plain"))
    return to_builtins(redactor.reveal(arguments, effect.reveals)), found


def _judged(at: str, effect: Invoke, result: object, io: ToolIO) -> ToolReturned | Failed:
    """Return a result as an outcome: its size is judged before its schema, and before it is kept."""
    try:
        plain = strict_json.as_json(result)
        if not isinstance(plain, dict):
            raise strict_json.NotJson("no object")
    except strict_json.NotJson as error:
        return Failed(at=at, error=errors.class_of(result), kind="invalid", place=error.reason, met=io.met)
    size = len(strict_json.canonical(plain))
    if size > effect.max_bytes:
        return ToolReturned(at=at, size=size, met=io.met)
    wrong = effect.tool.output_validator.first_mismatch(plain)
    if wrong is not None:
        place = f"{wrong.pointer} {wrong.keyword}"
        return Failed(at=at, error="output_schema", kind="invalid", place=place, met=io.met)
    return ToolReturned(at=at, result=plain, size=size, met=io.met)


def _kind_of(error: BaseException, **classes: Any) -> Any:
    """Return which kind of failure an exception is, given the classes of other kinds than a time-out."""
    kinds = {"timeout": TimeoutError, **classes}
    return next((kind for kind, its in kinds.items() if isinstance(error, its)), "other")


def _model_failed(at: str, error: BaseException, effect: AskModel, *, is_told: bool) -> Failed:
    is_of_script = isinstance(error, errors.InputError) and isinstance(effect.ask, Script)
    if is_of_script or errors.asks_to_end(error):
        raise error
    kind = _kind_of(error, transient=errors.TransientModelError, invalid=errors.InvalidModelOutput)
    after = _whole_ms(getattr(error, "retry_after_ms", None)) if kind in ("timeout", "transient") else None
    status, said = 0, ""
    if isinstance(error, errors.ModelError):
        # a class of the caller may have set neither
        given = getattr(error, "status", 0)
        status = given if type(given) is int else 0
        said = _short(effect.redactor.text(clean_text(getattr(error, "service_text", ""))))
    if is_told and errors.class_of(error) != "CancelledError":
        words = f"; the service said: {said}" if said else ""
        errors.warn_of("the model failed", error, effect.redactor.text, words)
    return Failed(
        at=at,
        error=errors.class_of(error),
        kind=kind,
        retry_after_ms=after,
        status=status,
        said=said,
        fallback=effect.fallback,
    )


def _short(text: str) -> str:
    """Return a text up to the last whole word that may be kept; it was redacted as a whole."""
    return text if len(text) <= errors.MAX_SAID else text[: errors.MAX_SAID].rpartition(" ")[0]


def _whole_ms(wanted: object) -> int | None:
    """Return the wait that a service asked for in whole milliseconds, None if it is not a time."""
    if type(wanted) is float and math.isfinite(wanted):
        wanted = math.ceil(wanted)
    return min(max(wanted, 0), strict_json.MAX_SAFE_INTEGER) if type(wanted) is int else None
