"""Make one call to a service in an event loop; who cancels it ends the request.

An SDK's async client belongs to one event loop, so each loop has one of its own, which all calls in it share. What is
known of a call under way hangs on its task.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final

from ..types import LLMOutput
from .wire import Call, EventReader, Gather, JsonObject, parsed, shown

_UNDER_WAY: Final[ContextVar[AsyncCall]] = ContextVar("call of a model under way")


class AsyncCall(Call):
    """A call under way in an event loop."""

    _unheard: Exception | None = None

    async def run_async(self, work: Callable[[], Awaitable[LLMOutput]]) -> LLMOutput:
        """Await `work` and return its outcome by the deadline, or raise an error of ours."""
        token = _UNDER_WAY.set(self)
        failed: Exception | None = None
        try:
            async with asyncio.timeout(self._options.total_s) as limit:
                return await work()
        except Exception as error:  # noqa: BLE001 - becomes a failure of ours
            failed = self._unheard or (self._out_of_time() if limit.expired() else self._failure(error))
        finally:
            _UNDER_WAY.reset(token)
        raise failed

    def say(self, text: str) -> None:
        """Hand visible text on, if anybody listens."""
        if not text:
            return
        try:
            self._show(shown(text))
        except Exception as error:
            self._unheard = error
            raise

    def _bounded(self, stream: Any) -> Any:
        base = next(cls for cls in type(stream).__mro__ if cls.__name__ == "AsyncByteStream")
        count = self._count

        class Bounded(base):  # type: ignore[misc, valid-type]
            async def __aiter__(self) -> AsyncIterator[bytes]:
                async for chunk in stream:
                    count(len(chunk))
                    yield chunk

            async def aclose(self) -> None:
                await stream.aclose()

        return Bounded()


def hooks(own_headers: Callable[[Any], None]) -> dict[str, list[Any]]:
    """Return what the HTTP client of an event loop calls before a request and after the head of its answer."""

    async def asking(request: Any) -> None:
        own_headers(request)

    async def answering(response: Any) -> None:
        _UNDER_WAY.get().answering(response)

    return {"request": [asking], "response": [answering]}


async def read_async(response: Any, gather: Gather, call: AsyncCall) -> JsonObject:
    """Read the reply from an SDK's raw response, streamed or in one piece, whatever was asked for."""
    if not call.streams:
        return parsed(await response.read())
    reader = EventReader()
    async for chunk in response.iter_bytes():
        for event, data in reader.feed(chunk):
            call.take(gather, event, data)
            if gather.done:
                return gather.message()
    return gather.message()


class LoopClients:
    """The clients of event loops, one each.

    A client is closed when its loop shuts down, as `asyncio.run` does. A process that was forked never uses or closes
    one that it inherited: the connections are those of its parent.
    """

    def __init__(self) -> None:
        self._of: dict[asyncio.AbstractEventLoop, _Held] = {}
        self._inherited: list[_Held] = []

    async def of_this_loop(self, make: Callable[[], Any]) -> Any:
        """Return the client of the running event loop, which `make` makes where there is none yet."""
        loop = asyncio.get_running_loop()
        held = self._of.get(loop)
        if held is not None and held.pid != os.getpid():
            self._inherited.append(self._of.pop(loop))
            held = None
        if held is None:
            for other in [other for other in self._of if other.is_closed()]:
                del self._of[other]
            held = self._of[loop] = _Held(make())
            await anext(held.keeper)  # from now on the loop closes it at its end; nothing else runs meanwhile
        return held.client


class _Held:
    """A client, and the async generator by which an event loop closes it when it shuts down."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.pid = os.getpid()
        self.keeper = _kept(client, self.pid)


async def _kept(client: Any, pid: int) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        if os.getpid() == pid:
            await client.close()
