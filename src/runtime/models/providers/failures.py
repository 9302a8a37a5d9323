"""What went wrong in a call, as an exception of ours. Pure: exceptions of the SDKs are told by the names of classes.

The text of an exception of ours holds nothing that a service says but a status and a known word, since services repeat
the key that they refuse.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple

from ....fail.errors import InvalidModelOutput, ModelError, TransientModelError
from .environment import Endpoint
from .fields import Cut

# the services' own words for a failure, in an error's `code` or `type`
_TRANSIENT_WORDS: Final = frozenset(
    "overloaded_error api_error rate_limit_error timeout_error server_error rate_limit_exceeded "
    "internal_server_error service_unavailable overloaded".split()
)
_SPENT_WORDS: Final = frozenset("insufficient_quota billing_hard_limit_reached billing_error".split())
_TIMEOUTS: Final = {"TimeoutException", "APITimeoutError", "TimeoutError"}
_CONNECTION: Final = {"TransportError", "APIConnectionError", "ConnectionError", "SSLError", "EndOfStream"}
# another attempt would end in the same way
_LASTING: Final = {"SSLCertVerificationError", "LocalProtocolError", "UnsupportedProtocol"}
_NUMBER: Final = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?")
_LONGEST: Final = 20_000
_ECHO: Final = 8  # where so many characters of the key stand in a text of the service, the text is not kept


class Unaddressed(NamedTuple):
    """A service that other code speaks to: what a message calls it, and the key that none may repeat."""

    host: str
    key: str
    key_variable: str = "its key"


def failure_of(error: BaseException, endpoint: Endpoint | Unaddressed, *, begun: bool) -> Exception:
    """Return the exception to raise.

    Args:
        error: What was raised.
        endpoint: What was spoken to.
        begun: Whether some of the reply has come. No call of it was made, so it may be asked for again.
    """
    host, chain = endpoint.host, [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) and len(chain) < 16:
        chain.append(cause)
    names = {cls.__name__ for each in chain for cls in type(each).__mro__}
    statuses = [getattr(error, name, None) for name in ("status_code", "code")]
    status = next((it for it in statuses if type(it) is int), 0)
    body = getattr(error, "body", None)
    word, said = _word_of(body), _service_text(body, endpoint.key)
    is_lost = isinstance(error, Cut) or bool(names & (_TIMEOUTS | _CONNECTION))
    for each in chain:
        if isinstance(each, InvalidModelOutput):  # the SDKs wrap what is raised below them
            return InvalidModelOutput(f"{host}: {each}")
    if status >= 300:
        headers: Any = getattr(getattr(error, "response", None), "headers", None) or {}
        is_spent = word in _SPENT_WORDS
        is_passing = status in (408, 409, 425, 429) or status >= 500
        advice = "check the model's name, address and options"
        if status in (401, 403):
            advice = f"check {endpoint.key_variable}"
        elif is_passing:
            advice = f"{'its quota is used up' if is_spent else 'it is busy or failing'}: try again later"
        told = f"{host} answered {status} {type(error).__name__}; {advice}"
        if is_passing and not is_spent and headers.get("x-should-retry") != "false":
            return TransientModelError(told, retry_after_ms=_after(headers), status=status, service_text=said)
        return ModelError(told, status=status, service_text=said)
    kind = TransientModelError if is_lost or word in _TRANSIENT_WORDS else ModelError
    if begun and (is_lost or body is not None):
        return kind(f"{host} broke off in the middle of a reply", service_text=said)
    if body is not None:
        return kind(f"{host} reported {word or 'a failure'} in place of a reply", service_text=said)
    if names & _LASTING:
        return ModelError(f"no connection to {host} can be made: its certificate or address is refused")
    if names & _TIMEOUTS:
        return TimeoutError(f"{host} was silent for too long")
    if is_lost:
        return TransientModelError(f"the connection to {host} failed, or ended before a reply began")
    if isinstance(error, ValueError | RecursionError):
        return InvalidModelOutput(f"{host}: the reply cannot be read")
    return ModelError(f"the call to {host} failed: {type(error).__name__}")


def _error_in(body: object) -> dict[str, Any]:
    inner = body.get("error", body) if isinstance(body, dict) else None
    return inner if isinstance(inner, dict) else {}


def _word_of(body: object) -> str | None:
    """Return the service's word for a failure, if it is a known one."""
    words = (_error_in(body).get("code"), _error_in(body).get("type"))
    return next((word for word in words if word in [*_SPENT_WORDS, *_TRANSIENT_WORDS]), None)


def _service_text(body: object, key: str) -> str | None:
    """Return the service's own message, unless it repeats a part of the key."""
    text = _error_in(body).get("message")
    if not isinstance(text, str) or any(key[i : i + _ECHO] in text for i in range(len(key) - _ECHO + 1)):
        return None
    return text[:_LONGEST]  # what is kept is cut much shorter, once secrets are replaced in it


def _after(headers: Mapping[str, str]) -> int | None:
    """Return how many milliseconds an answer asks to wait, or None. A date counts from the answer's own `Date`."""
    for name, factor in (("retry-after-ms", 1), ("retry-after", 1000)):
        if _NUMBER.fullmatch(text := headers.get(name, "").strip()):
            return math.ceil(float(text) * factor)
    try:
        until, since = (parsedate_to_datetime(headers.get(name, "")) for name in ("retry-after", "date"))
        return max(0, int((until - since).total_seconds())) * 1000
    except (ValueError, TypeError, OverflowError):
        return None
