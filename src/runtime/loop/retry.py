"""Bounded retry: what a failure is, whether it may be tried again, and after how long."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, Final

from ...fail.errors import ModelError, TransientModelError
from ...light_dataclasses import dataclass, replace
from ..core.effects import Fault, FaultKind
from ..formats.canonical_json import MAX_SAFE_INTEGER

# of a service's message in a record, in characters
MAX_SERVICE_TEXT: Final = 500


@dataclass(frozen=True, slots=True)
class Schedule:
    """The policy's retry section; without one, nothing is tried twice."""

    max_retries: int = 0
    base_ms: int = 0
    cap_ms: int = 0

    @classmethod
    def of(cls, section: dict[str, Any]) -> Schedule:
        """Return the schedule of a policy's `retry` section."""
        if not section:
            return cls()
        return cls(section["max_retries"], section["backoff_base_ms"], section["backoff_cap_ms"])

    def backoff_ms(self, attempt: int, identity: str, retry_after_ms: int | None = None) -> int:
        """Milliseconds to wait after failed `attempt` (from 1): `min(base * 2^(attempt-1) +- 20 %, cap)`.

        The jitter is a pure function of `identity`. A server's Retry-After replaces the exponential part,
        up to the cap.
        """
        if retry_after_ms is not None:
            return max(0, min(retry_after_ms, self.cap_ms))
        draw = int.from_bytes(hashlib.sha256(identity.encode("utf-8")).digest()[:8], "big") % 401
        return min((self.base_ms << (attempt - 1)) * (800 + draw) // 1000, self.cap_ms)


def fault_from_error(
    error: BaseException, transient: Sequence[type[BaseException]] = (), *, has_acted: bool = False
) -> Fault:
    """Return an exception as a Fault: its class name and whether it may be repeated. Its own text is dropped.

    What a model's service answered is kept: its status, and its message, which is yet to be redacted.

    Args:
        error: The exception.
        transient: The kinds of exceptions after which another attempt is worthwhile.
        has_acted: Whether something may have happened before it, so that a refused connection proves nothing.
    """
    fault = _classified(error, transient)
    if has_acted:
        fault = replace(fault, nothing_happened=False)
    if not isinstance(error, ModelError):
        return fault
    status = error.status if type(error.status) is int and 100 <= error.status <= 999 else None
    return replace(fault, status=status, text=_line(error.service_text))


def _line(said: object) -> str | None:
    """Return a service's message as one line that a record can hold, None if there is none."""
    if not isinstance(said, str):
        return None
    text = str.__str__(said)
    if len(text) > 4 * MAX_SERVICE_TEXT:
        # without the last word, which may be a part of a secret: it would not be known as one
        text = text[: 4 * MAX_SERVICE_TEXT].rsplit(None, 1)[0]
    words = " ".join(text.split())
    return words.encode("utf-8", "replace").decode("utf-8") or None


def _classified(error: BaseException, transient: Sequence[type[BaseException]]) -> Fault:
    name = type(error).__name__
    retry_after = _whole_ms(error.retry_after_ms) if isinstance(error, TransientModelError) else None
    if isinstance(error, TimeoutError):
        return Fault(name, FaultKind.TIMEOUT)
    nothing = isinstance(error, ConnectionRefusedError)
    if isinstance(error, (TransientModelError, *transient)):
        return Fault(name, FaultKind.TRANSIENT, nothing, retry_after)
    return Fault(name, FaultKind.OTHER, nothing)


def _whole_ms(wanted: object) -> int | None:
    """Return the wait that a provider asked for in whole milliseconds, None if it is not a time."""
    if type(wanted) is float and math.isfinite(wanted):
        wanted = math.ceil(wanted)
    return min(max(wanted, 0), MAX_SAFE_INTEGER) if type(wanted) is int else None


def may_repeat(fault: Fault, idempotent: bool) -> bool:
    """Whether a failed effect may be performed again: only what is named, and never blindly a second time."""
    if fault.kind == FaultKind.OTHER:
        return False
    return idempotent or fault.nothing_happened
