"""What fails in a call: told apart, and never with the key."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tachograph.fail.errors import InvalidModelOutput, ModelError, TransientModelError
from tests.providers.service import LANGUAGES, SECRET, A, O, answer, asked, chunked, model, silence, whole
from tests.servers import unused_port

DATE = "Date: Wed, 21 Oct 2015 07:28:00 GMT"


def failure(language: Any, service: Any, **more: Any) -> Any:
    """Return what asking once raises; the key is nowhere in it."""
    with pytest.raises((ModelError, TimeoutError)) as caught:
        asyncio.run(model(language, service, **more)(asked("?")))
    error = caught.value
    assert SECRET[:8] not in f"{error!r} {vars(error)}"
    assert "\n" not in str(error) and error.__context__ is None and error.__cause__ is None
    return error


def problem(word: str, message: str = "no") -> bytes:
    return json.dumps({"type": "error", "error": {"type": word, "code": word, "message": message}}).encode()


def refusal(status: int, word: str = "odd", message: str = "no", *headers: str) -> bytes:
    return answer(problem(word, message), "Content-Type: application/json", *headers, status=status)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 408, 422, 429, 500, 503, 529])
def test_statuses(serve: Any, language: Any, status: int) -> None:
    service = serve(refusal(status))
    error = failure(language, service)
    kind = TransientModelError if status in (408, 429, 500, 503, 529) else ModelError
    assert type(error) is kind and error.status == status and str(status) in str(error)
    assert ("busy" in str(error)) == (kind is TransientModelError)
    assert len(service.requests) == 1  # retries are the loop's


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_refused_key_is_not_repeated(serve: Any, language: Any) -> None:
    echo = f"Incorrect API key provided: {SECRET[:12]}***"
    error = failure(language, serve(refusal(401, "invalid_api_key", echo)))
    assert language.variable in str(error) and error.service_text is None
    error = failure(language, serve(refusal(400, "odd", "top_p is too large")))
    assert error.service_text == "top_p is too large" and error.service_text not in str(error)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("headers", "after"),
    [
        ([], None),
        (["Retry-After: 7"], 7000),
        (["retry-after-ms: 12.5"], 13),
        (["Retry-After: Wed, 21 Oct 2015 07:28:30 GMT", DATE], 30_000),
        (["Retry-After: Wed, 21 Oct 2015 07:27:00 GMT", DATE], 0),
        (["Retry-After: Wed, 21 Oct 2015 07:28:30 GMT"], None),
        (["Retry-After: Wed, 99 Oct 2015 07:28:30 GMT", DATE], None),
    ],
)
def test_how_long_to_wait(serve: Any, language: Any, headers: list[str], after: int | None) -> None:
    error = failure(language, serve(refusal(429, "odd", "no", *headers)))
    assert type(error) is TransientModelError and error.retry_after_ms == after


@pytest.mark.parametrize("language", LANGUAGES)
def test_some_refusals_last(serve: Any, language: Any) -> None:
    for given in (["insufficient_quota"], ["odd", "no", "x-should-retry: false"]):
        assert type(failure(language, serve(refusal(429, *given)))) is ModelError


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("is_begun", [False, True])
def test_replies_that_break_off(serve: Any, language: Any, is_begun: bool) -> None:
    begun = language.start() + (language.said("hi") if is_begun else b"")
    ways = [chunked(begun, is_whole=False), answer(begun), chunked(begun, is_whole=True)]
    ways += [answer(begun + b"event: error\ndata: " + problem("overloaded_error") + b"\n\n")]
    ways += [answer(begun + language.said("x") + language.stopped("stop"))]
    kinds = {type(failure(language, serve(way))) for way in ways}
    kinds.add(type(failure(language, f"http://127.0.0.1:{unused_port()}")))
    assert kinds == {TransientModelError}
    lasting = begun + b"event: error\ndata: " + problem("odd") + b"\n\n"
    assert type(failure(language, serve(answer(lasting)))) is ModelError


def test_done_without_a_reason_is_no_reply(serve: Any) -> None:
    assert type(failure(O, serve(answer(O.said("hi") + O.end)))) is TransientModelError
    text = O.said("data: [DONE]", "\ndata: [DONE]\n") + O.stopped("stop")  # said is not done
    assert type(failure(O, serve(answer(text)))) is TransientModelError


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    "body",
    [
        b"event: message_start\ndata: {{{\n\n",
        b"event: message_start\ndata: \xff\n\n",
        b"event: message_start\ndata: " + b"[" * 100_000 + b"\n\n",
        A.event("content_block_delta", index=0, delta={"text": "x"}, choices=5),
        A.event("content_block_start", index=0, content_block={"text": 1}, choices=[1]),
        A.event("message_start", message="x", choices=[{"delta": {"content": 5}}]),
        A.event("message_delta", usage=[], delta={}, choices=[{"delta": {"tool_calls": {}}}]),
    ],
)
def test_what_is_no_reply(serve: Any, language: Any, body: bytes) -> None:
    assert type(failure(language, serve(answer(body + language.end)))) is InvalidModelOutput


@pytest.mark.parametrize("language", LANGUAGES)
def test_answers_that_are_not_read(serve: Any, language: Any) -> None:
    for headers in (["Content-Type: text/html"], ["Content-Encoding: gzip"]):
        service = serve(answer(whole(language, language.said("hi")), *headers))
        assert type(failure(language, service)) is InvalidModelOutput


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("status", [200, 400])
def test_an_answer_is_bounded(serve: Any, language: Any, status: int, monkeypatch: Any) -> None:
    pytest.importorskip("httpx2", reason="no SDK is installed")
    monkeypatch.setattr("tachograph.runtime.models.providers.model.MAX_BYTES", 50_000)
    endless = answer(b"data: " + b"x" * 60_000, "Content-Type: text/event-stream", status=status)
    assert type(failure(language, serve(endless))) is InvalidModelOutput


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_redirect_is_not_followed(serve: Any, language: Any) -> None:
    other = serve(answer(b""))
    error = failure(language, serve(answer(b"", f"Location: {other.url}{language.path}", status=307)))
    assert type(error) is ModelError and "address" in str(error) and not other.requests


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("is_begun", [False, True])
def test_silence(serve: Any, language: Any, is_begun: bool) -> None:
    service = serve(silence(answer(language.said("hi") if is_begun else b"")))
    assert type(failure(language, service, timeout_s=0.2)) is (
        TransientModelError if is_begun else TimeoutError
    )


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_listener_that_raises_ends_the_call(serve: Any, language: Any) -> None:
    service = serve(silence(answer(language.said("hi"))))
    with pytest.raises(ModelError, match="KeyError"):
        asyncio.run(model(language, service).ask(asked("?"), {}.__getitem__))


@pytest.mark.parametrize("language", LANGUAGES)
async def test_cancelling_hangs_up(serve: Any, language: Any) -> None:
    service = serve(silence(answer(language.said("hi"))))
    begun = asyncio.Event()
    asking = asyncio.create_task(model(language, service).ask(asked("?"), lambda text: begun.set()))
    await begun.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await asyncio.to_thread(service.hung_up.wait, 20)
