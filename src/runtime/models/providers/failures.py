"""Turn what went wrong in a call into one of our exceptions. Pure: no SDK is imported here.

The SDKs' exceptions are told apart by the names of their classes, which are the same over the SDKs and the
HTTP libraries below them. The text of an exception of ours holds nothing that a server or an SDK says but a status
and a known word; the service's own message is kept apart, in `service_text`.
"""

from __future__ import annotations

import email.utils
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ....fail.errors import InvalidModelOutput, ModelError, TransientModelError
from ...core.known_secrets import registered

TRANSIENT_STATUS: Final = (408, 409, 425, 429)  # and whatever is 500 or more
# the services' own words for a failure, in an error's `type` or `code`
TRANSIENT_WORDS: Final = frozenset(
    "overloaded_error api_error rate_limit_error timeout_error server_error rate_limit_exceeded "
    "internal_server_error service_unavailable overloaded".split()
)
SPENT_WORDS: Final = frozenset(
    "insufficient_quota billing_hard_limit_reached enforced_spend_limit_reached "
    "contract_spend_limit_reached".split()
)
OTHER_WORDS: Final = frozenset(
    "authentication_error billing_error permission_error not_found_error invalid_request_error "
    "request_too_large invalid_api_key model_not_found context_length_exceeded content_filter "
    "unsupported_parameter unsupported_value".split()
)
_HINTS: Final = {
    400: "it does not take this request",
    401: "check the key",
    403: "this key may not do that",
    404: "no such model, or no such path",
    413: "the request is too large",
}
_TIMEOUTS: Final = {"TimeoutException", "APITimeoutError", "TimeoutError"}
_CONNECTION: Final = {"TransportError", "APIConnectionError", "ConnectionError"}
# a second attempt would end in the same way
_LASTING: Final = {"SSLCertVerificationError", "LocalProtocolError", "UnsupportedProtocol"}
_NUMBER: Final = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class Answered:
    """The head of an HTTP answer, as far as a failure depends on it.

    Attributes:
        status: The status code.
        retry_after_ms: The wait that the service asks for, or None.
        may_retry: False where the service says that asking again is of no use.
    """

    status: int
    retry_after_ms: int | None = None
    may_retry: bool = True


class Cut(Exception):
    """A stream ended, in good order, before the reply did."""


class Refused(Exception):
    """An answer that we do not read, with the reason."""


class Reported(Exception):
    """A reply that is, or breaks off with, an error of the service, with its word for it and its message."""

    def __init__(self, body: object) -> None:
        self.word = word_of(body)
        self.message = message_of(body)
        super().__init__()


def failure_of(error: BaseException, answered: Answered | None, host: str, begun: bool) -> Exception:
    """Return the exception to raise for `error`. Once a reply has begun, none of them is transient."""
    if isinstance(error, InvalidModelOutput):
        return InvalidModelOutput(str(error))
    if isinstance(error, Refused):
        return InvalidModelOutput(f"the reply of {host} is {error}")
    if answered is not None and answered.status >= 300:
        body = getattr(error, "body", None)
        return _by_status(answered, word_of(body), message_of(body), host)
    names = {cls.__name__ for each in _chain(error) for cls in type(each).__mro__}
    said = error.message if isinstance(error, Reported) else None
    transient = isinstance(error, Cut) or (isinstance(error, Reported) and error.word in TRANSIENT_WORDS)
    if begun and (transient or isinstance(error, Reported) or names & (_TIMEOUTS | _CONNECTION)):
        return ModelError(f"{host} broke off in the middle of a reply", service_text=said)
    if isinstance(error, Cut):
        return TransientModelError(f"{host} ended the reply before it began")
    if isinstance(error, Reported):
        text = f"{host} reported a failure" + (f" ({error.word})" if error.word else "")
        kind = TransientModelError if transient else ModelError
        return kind(text, service_text=said)
    if names & _LASTING:
        return ModelError(f"no connection to {host} can be made: its certificate or address is refused")
    if names & _TIMEOUTS:
        return TimeoutError(f"{host} was silent for too long")
    if names & _CONNECTION:
        return TransientModelError(f"the connection to {host} failed or was lost")
    if isinstance(error, ValueError | RecursionError) or "DecodingError" in names:
        return InvalidModelOutput(f"the reply of {host} cannot be read")
    return ModelError(f"the call to {host} failed: {type(error).__name__}")


def _by_status(answered: Answered, word: str | None, said: str | None, host: str) -> Exception:
    status = answered.status
    text = f"{host} answered {status}" + (f" ({word})" if word else "")
    transient = status in TRANSIENT_STATUS or status >= 500
    if transient and answered.may_retry and word not in SPENT_WORDS:
        return TransientModelError(
            text, retry_after_ms=answered.retry_after_ms, status=status, service_text=said
        )
    hint = "it redirects, which is not followed" if status < 400 else _HINTS.get(status)
    return ModelError(f"{text}: {hint}" if hint else text, status=status, service_text=said)


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    for _ in range(16):
        if current is None:
            return
        yield current
        current = current.__cause__ or current.__context__


def message_of(body: object) -> str | None:
    """Return the service's own message in an error body, untrusted text without keys; None if there is none."""
    inner = body.get("error", body) if isinstance(body, dict) else None
    message = inner.get("message") if isinstance(inner, dict) else inner
    if not isinstance(message, str):
        return None
    # services repeat the key that they refuse, and an exception ends up in logs that nothing redacts
    for _, key in sorted(registered(), key=lambda pair: len(pair[1]), reverse=True):
        message = message.replace(key, "[key]")
    return message


def word_of(body: object) -> str | None:
    """Return the service's word for a failure in an error body, or None if it is not a known one."""
    if not isinstance(body, dict):
        return None
    inner = body.get("error", body)
    if not isinstance(inner, dict):
        return None
    details = inner.get("details")
    words: list[Any] = [details.get("error_code") if isinstance(details, dict) else None]
    words += [inner.get("code"), inner.get("type")]
    known = SPENT_WORDS | TRANSIENT_WORDS | OTHER_WORDS
    return next((word for word in words if isinstance(word, str) and word in known), None)


def retry_after_ms(headers: Mapping[str, str], timestamp: float) -> int | None:
    """Return how long an answer asks to wait, in milliseconds, from `retry-after-ms` or `retry-after`, or None.

    A date counts from the answer's own `date`, else from `timestamp` (seconds since the epoch), since clocks differ.
    """
    if _NUMBER.fullmatch(text := headers.get("retry-after-ms", "").strip()):
        return math.ceil(float(text))
    text = headers.get("retry-after", "").strip()
    if _NUMBER.fullmatch(text):
        return math.ceil(float(text) * 1000)
    until = _timestamp(text)
    if until is None:
        return None
    since = _timestamp(headers.get("date", ""))
    return max(0, math.ceil((until - (timestamp if since is None else since)) * 1000))


def _timestamp(text: str) -> float | None:
    parts = email.utils.parsedate_tz(text)
    if parts is None:
        return None
    try:
        return email.utils.mktime_tz((*parts[:9], parts[9] or 0))
    except (ValueError, OverflowError):
        return None
