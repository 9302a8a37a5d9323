"""What went wrong, told apart without an SDK: by status, by the service's word, by the names of exceptions."""

from __future__ import annotations

import json
import ssl

import pytest

from tachograph.fail.errors import InvalidModelOutput, ModelError, TransientModelError
from tachograph.runtime.models.providers.failures import (
    OTHER_WORDS,
    SPENT_WORDS,
    TRANSIENT_WORDS,
    Answered,
    Cut,
    Refused,
    Reported,
    failure_of,
    retry_after_ms,
    word_of,
)

NOW = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT


class TransportError(Exception):
    """Named as the HTTP libraries name theirs, as are the others here."""


class TimeoutException(TransportError):
    pass


class LocalProtocolError(TransportError):
    pass


class APIConnectionError(Exception):
    pass


class APITimeoutError(APIConnectionError):
    pass


class APIStatusError(Exception):
    def __init__(self, body: object) -> None:
        self.body = body
        super().__init__("sk-ant-IN-THE-TEXT")


def kind(error: BaseException, answered: Answered | None = None, begun: bool = False) -> str:
    failure = failure_of(error, answered, "host.test", begun)
    assert "sk-ant" not in repr(failure) and "IN-THE" not in repr(failure)
    names = {TransientModelError: "transient", TimeoutError: "timeout", InvalidModelOutput: "invalid"}
    return names.get(type(failure), "failure") if type(failure) is not ModelError else "failure"


def caused(outer: Exception, inner: BaseException) -> Exception:
    outer.__cause__ = inner
    return outer


# ---- by status ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "wanted"),
    [(status, "transient") for status in (408, 409, 425, 429, 500, 501, 502, 503, 504, 520, 529, 599)]
    + [
        (status, "failure")
        for status in (300, 301, 302, 307, 400, 401, 402, 403, 404, 405, 410, 413, 422, 431)
    ],
)
def test_a_status_decides(status: int, wanted: str) -> None:
    assert kind(APIStatusError(None), Answered(status)) == wanted
    # reading the body of an error may fail in turn
    assert kind(TimeoutException(), Answered(status)) == wanted


def test_a_service_may_say_that_asking_again_is_useless() -> None:
    assert kind(APIStatusError(None), Answered(429, may_retry=False)) == "failure"
    for word in SPENT_WORDS:
        assert kind(APIStatusError({"error": {"code": word}}), Answered(429)) == "failure"
    assert kind(APIStatusError({"error": {"type": "rate_limit_error"}}), Answered(429)) == "transient"


def test_texts_name_host_status_and_known_words_only() -> None:
    body = {
        "error": {"type": "not_found_error", "code": "sk-ant-IN-THE-BODY", "message": "sk-ant-IN-THE-BODY"}
    }
    failure = failure_of(APIStatusError(body), Answered(404), "host.test", False)
    assert str(failure) == "host.test answered 404 (not_found_error): no such model, or no such path"
    failure = failure_of(APIStatusError({"type": "sk_ant"}), Answered(503, 250), "host.test", False)
    assert str(failure) == "host.test answered 503"
    assert isinstance(failure, TransientModelError) and failure.retry_after_ms == 250


@pytest.mark.parametrize(
    "body", [None, "text", [], {}, {"error": None}, {"error": "text"}, {"error": {"type": 7}}]
)
def test_bodies_without_a_word(body: object) -> None:
    assert word_of(body) is None


def test_words_are_found_where_the_services_put_them() -> None:
    assert word_of({"type": "error", "error": {"type": "overloaded_error"}}) == "overloaded_error"
    assert word_of({"code": "insufficient_quota", "type": "insufficient_quota"}) == "insufficient_quota"
    spent = {"type": "rate_limit_error", "details": {"error_code": "enforced_spend_limit_reached"}}
    assert word_of({"error": spent}) == "enforced_spend_limit_reached"
    assert not (SPENT_WORDS & TRANSIENT_WORDS) and not (OTHER_WORDS & (SPENT_WORDS | TRANSIENT_WORDS))


# ---- by exception -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (TransportError(), "transient"),
        (APIConnectionError(), "transient"),
        (ConnectionResetError(), "transient"),
        (Cut(), "transient"),
        (Reported({"error": {"type": "overloaded_error"}}), "transient"),
        (TimeoutException(), "timeout"),
        (APITimeoutError(), "timeout"),
        (caused(APIConnectionError(), TimeoutError()), "timeout"),
        (Reported({"error": {"type": "invalid_request_error"}}), "failure"),
        (Reported({"error": {"message": "quota"}}), "failure"),
        (LocalProtocolError("Illegal header value sk-ant-IN-THE-TEXT"), "failure"),
        (caused(APIConnectionError(), LocalProtocolError()), "failure"),
        (caused(APIConnectionError(), ssl.SSLCertVerificationError()), "failure"),
        (RuntimeError("sk-ant-IN-THE-TEXT"), "failure"),
        (SystemExit(), "failure"),
        (RecursionError(), "invalid"),
        (Refused("too large"), "invalid"),
        (InvalidModelOutput("no content"), "invalid"),
        (json.JSONDecodeError("sk-ant-IN-THE-TEXT", "sk-ant-IN-THE-TEXT", 0), "invalid"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "sk-ant-IN-THE-TEXT"), "invalid"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_an_exception_decides(error: BaseException, wanted: str) -> None:
    assert kind(error) == wanted
    assert kind(error, Answered(200)) == wanted
    begun = kind(error, Answered(200), begun=True)
    assert begun == (wanted if wanted in ("invalid", "failure") else "failure"), "never in mid-stream"


# ---- how long to wait ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({}, None),
        ({"retry-after": "1"}, 1000),
        ({"retry-after": " 2 "}, 2000),
        ({"retry-after": "0.5"}, 500),
        ({"retry-after": "0.0001"}, 1),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "99999999999"}, 99_999_999_999_000),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "NaN"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1e3"}, None),
        ({"retry-after": "٣"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "9" * 5000}, None),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:10 GMT"}, 10_000),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:10 -0000"}, 10_000),
        ({"retry-after": "Fri, 15 Jan 2027 09:00:10 +0100"}, 10_000),
        ({"retry-after": "Fri, 15 Jan 2027 07:00:00 GMT"}, 0),
        ({"retry-after": "Fri, 15 Jan 2027 07:00:10 GMT", "date": "Fri, 15 Jan 2027 07:00:00 GMT"}, 10_000),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:10 GMT", "date": "nonsense"}, 10_000),
        ({"retry-after": "Fri, 99 Jan 9999999 08:00:10 GMT"}, None),
        ({"retry-after-ms": "250", "retry-after": "1"}, 250),
        ({"retry-after-ms": "0.5"}, 1),
        ({"retry-after-ms": "x", "retry-after": "1"}, 1000),
    ],
    ids=str,
)
def test_retry_after(headers: dict[str, str], wanted: int | None) -> None:
    assert retry_after_ms(headers, NOW) == wanted
