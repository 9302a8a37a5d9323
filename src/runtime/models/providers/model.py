"""A model behind an SDK: it is asked once, its reply is streamed, and what failed is said in our words."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Final

import httpx2

from ....fail.errors import InputError, InvalidModelOutput
from ...log.values import ModelName
from ..types import LLMInput, LLMOutput
from .anthropic import AnthropicService, Blocks
from .environment import Endpoint
from .failures import failure_of
from .fields import JsonObject
from .openai import Chunks, OpenAIService

MAX_BYTES: Final = 32 * 2**20
_EVENT_STREAM: Final = "text/event-stream"
# a line of a stream; within an event's JSON there are no line ends
_DONE: Final = re.compile(rb"[\r\n]data: ?\[DONE\]")
# a server without keys gets one all the same, since the SDKs insist
_NO_KEY: Final = "unused"
# seconds for what follows a whole reply, so that the connection can be used again
_REST_S: Final = 1.0

Service = AnthropicService | OpenAIService


class ProviderModel:
    """A live model: an async callable of an LLMInput that returns an LLMOutput. `model_of` makes one.

    No attempt is repeated here: retries are the loop's, and recorded.

    Attributes:
        name: What a record calls it.
        options: What is sent with every request besides the conversation, as the head of a run holds it.
    """

    def __init__(
        self, name: ModelName, options: JsonObject, service: Service, endpoint: Endpoint, timeout_s: float
    ) -> None:
        self.name, self.options = name, options
        self._service, self._endpoint, self._timeout_s = service, endpoint, timeout_s
        # of each event loop in each process its client, and what closes that when the loop shuts down
        self._clients: dict[
            tuple[int, asyncio.AbstractEventLoop], tuple[Any, AsyncGenerator[None, None]]
        ] = {}

    def __repr__(self) -> str:
        return f"<model {self.name.provider}:{self.name.name} at {self._endpoint.host}>"

    def __reduce__(self) -> Any:
        raise TypeError("a live model holds a key and is not written anywhere")

    def with_key(self) -> ProviderModel:
        """Return the model. Raises InputError where its address needs a key, and the environment held none."""
        if self._endpoint.lacks:
            raise InputError(f"{self._endpoint.lacks} is not set", remedy="set it, or give another address")
        return self

    async def __call__(self, asked: LLMInput) -> LLMOutput:
        """Ask the model once, with nobody listening."""
        return await self.ask(asked, lambda text: None)

    async def ask(self, asked: LLMInput, told: Callable[[str], None]) -> LLMOutput:
        """Ask the model once.

        Args:
            asked: The request.
            told: Is called with each piece of visible text as it arrives.

        Raises:
            TransientModelError: Worth another attempt: 429, 5xx, or a reply that breaks off.
            TimeoutError: The service was silent for too long before the reply began.
            InvalidModelOutput: What came is not a reply.
            ModelError: Anything else.
        """
        limit = max(1, min(asked.max_output_tokens, self.options["max_tokens"]))
        body = self._service.body(self.name.name, asked, self.options, limit)
        reply = self._service.reply()
        try:
            await self._converse(body, reply, told)
            return reply.output()
        except Exception as error:  # noqa: BLE001 - an SDK may raise anything
            failed = failure_of(error, self._endpoint, begun=reply.begun)
        raise failed  # outside of the handler: the SDK's exception holds the request, and so the key

    async def _converse(self, body: JsonObject, reply: Blocks | Chunks, told: Callable[[str], None]) -> None:
        """Send a request and feed the reply. Raises anything that the SDK raises before the reply is whole."""
        client = await self._client()
        # events as plain data, with what the SDK does not know of
        kind = self._service.sdk.AsyncStream[object]
        asking = client.post(self._service.path, cast_to=object, body=body, stream=True, stream_cls=kind)
        try:
            async with asyncio.timeout(None) as rest, await asking as stream:
                async for event in stream:
                    if text := reply.take(event):
                        told(text.encode("utf-8", "replace").decode())
                    if reply.over and rest.when() is None:
                        rest.reschedule(asyncio.get_running_loop().time() + _REST_S)
                reply.over = reply.over or stream.response.stream.is_done
        except Exception:
            if not reply.over:
                raise

    async def _client(self) -> Any:
        """Return the client of the running event loop, made where there is none yet.

        It is closed when its loop shuts down, as `asyncio.run` does. A process that was forked never uses or closes one
        that it inherited: its connections are those of the parent.
        """
        pid, loop = os.getpid(), asyncio.get_running_loop()
        if (pid, loop) not in self._clients:
            # other threads, with loops of their own, do the same at the same time
            for old in [old for old in list(self._clients) if old[0] == pid and old[1].is_closed()]:
                self._clients.pop(old, None)
            client = self._new_client()
            self._clients[pid, loop] = client, _kept(client, pid)
            await anext(self._clients[pid, loop][1])  # from now on the loop closes it at its end
        return self._clients[pid, loop][0]

    def _new_client(self) -> Any:
        """Make a client of the SDK. httpx follows no redirect unless it is told to."""
        timeout = httpx2.Timeout(self._timeout_s, connect=min(10.0, self._timeout_s))
        has_proxies = not self._endpoint.is_loopback
        http = httpx2.AsyncClient(timeout=timeout, trust_env=has_proxies, event_hooks={"response": [_bound]})
        return getattr(self._service.sdk, self._service.client)(
            api_key=self._endpoint.key or _NO_KEY,
            base_url=self._endpoint.url,
            max_retries=0,
            timeout=timeout,
            default_headers={"Accept-Encoding": "identity"},
            http_client=http,
            **self._service.client_options,
        )


# ---- the HTTP client below an SDK ------------------------------------------------------------------------------------


class AnswerStream(httpx2.AsyncByteStream):  # type: ignore[misc, unused-ignore]
    """The body of an answer, with its size bounded.

    Args:
        stream: The body.
        most: How many bytes it may have.
        too_long: Is raised where it has more.

    Attributes:
        is_done: Whether `[DONE]` was in it.
    """

    def __init__(self, stream: Any, most: int, too_long: Exception) -> None:
        self._stream, self._most, self._too_long = stream, most, too_long
        self._size, self._tail = 0, b"\n"
        self.is_done = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._size += len(piece)
            if self._size > self._most:
                raise self._too_long
            seen = self._tail + piece
            self.is_done = self.is_done or _DONE.search(seen) is not None
            self._tail = seen[-16:]
            yield piece

    async def aclose(self) -> None:
        """Close the connection, unless all was read."""
        await self._stream.aclose()


async def _bound(response: Any) -> None:
    """Bound the size of an answer, and refuse one that is compressed or no stream of events."""
    too_long = InvalidModelOutput(f"the reply is larger than {MAX_BYTES} bytes")
    response.stream = AnswerStream(response.stream, MAX_BYTES, too_long)
    kind = response.headers.get("content-type", _EVENT_STREAM).lower()
    is_compressed = response.headers.get("content-encoding", "identity").strip().lower() != "identity"
    if is_compressed or (response.is_success and _EVENT_STREAM not in kind):
        raise InvalidModelOutput("the reply is not a plain stream of events: check the address")


async def _kept(client: Any, pid: int) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        if os.getpid() == pid:
            await client.close()
