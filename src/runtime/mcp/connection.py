"""The connection of a run to an MCP server: in a thread with an event loop of its own, bounded in time and size."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import re
import signal
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future, wait
from contextvars import ContextVar
from functools import cache
from string import Template
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...fail.errors import InputError, system_reason, warn
from ..clock import begin, later, left, variable
from ..formats.strict_json import NotJson, as_json
from .server import McpServer, ServerPlace, changes

if TYPE_CHECKING:
    from mcp import Client

T = TypeVar("T")
MOST_BYTES: Final = 8_000_000  # of one message
_MOST_BODY: Final = 8 * MOST_BYTES  # of one answer over HTTP, which may be a stream of messages
MOST_TOOLS: Final = 1_000
_PAGES: Final = 100
_GRACE_S: Final = 1.0  # for a program to end by itself, and once more after it was told to
_INHERITED: Final = ("PATH", "HOME", "LANG")
_MOST_SAID: Final = 300  # bytes of what a program wrote before it ended
# what went wrong below the protocol, and not in a tool: a program has ended; an endpoint has ended or does not know the
# session, as SDKs of several languages tell it; it has answered in another way, of which our SDK makes these errors
_CLOSED: Final = "Connection closed"
_LOST: Final = (-32000, -32001, -32600)
_OF_HTTP: Final = (-32700, "Not Found", "Server returned an error response")
_OF_SDK: Final = ("SSE stream", "Unexpected content type")  # of an answer that has come and is none
_STATUSES: Final[ContextVar[list[int]]] = ContextVar("statuses")  # of the answers to a call
# a whole character of two halves or another escape, or half of one
_ESCAPED: Final = re.compile(rb"(\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\[^u])|\\u[dD][89a-fA-F]..")
for _name in ("mcp", "client"):  # the SDK says by these, with a traceback, what is said here in a line
    logging.getLogger(_name).addHandler(logging.NullHandler())


class Connection:
    """A thread that opens a client of the SDK and holds it open. It is used once `ready` has returned.

    Args:
        place: Where the server is.
        server: The server, which has to offer what was accepted; None where that is not yet asked for.

    Attributes:
        client: The client.
        offered: The definitions of its tools, by name.

    Raises:
        InputError: The SDK is not installed.
    """

    client: Client
    offered: dict[str, dict[str, Any]]

    def __init__(self, place: ServerPlace, server: McpServer | None = None) -> None:
        try:
            import mcp  # noqa: F401 - said here, and not in a thread
        except ImportError:
            raise InputError("MCP servers need the SDK", remedy='pip install "tachograph[mcp]"') from None
        self._place, self._server = place, server
        # the last that a program wrote to its standard error, or how an endpoint refused
        self._said = bytearray()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._open: Future[None] = Future()
        self._thread = threading.Thread(target=self._hold, daemon=True)
        atexit.register(self.close)  # an interrupt may come before anybody waits for it
        begin(self._thread, self._loop.close)

    @property
    def is_over(self) -> bool:
        """Whether it could not be opened, was closed, or has lost its server."""
        return self._stop.is_set() or not self._thread.is_alive()

    def ready(self) -> None:
        """Wait until it is open.

        Raises:
            PermissionError: The server offers what is not accepted.
            OSError: It cannot be reached, or what it offers is out of bounds.
        """
        try:
            _in_time(self._open, self._place.timeout_s)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the thread has to end
            self.close()
            raise self._told(error) from None

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool, once the server is open. Raises OSError where it is not or is gone, or TimeoutError."""
        self.ready()
        future = asyncio.run_coroutine_threadsafe(self._called(name, arguments), self._loop)
        try:
            return _in_time(future, self._place.timeout_s)
        except BaseException as error:  # noqa: BLE001 - whatever the SDK or the server makes of it
            if self._stop.is_set():
                self.close()  # what a program wrote last is heard by then
            raise self._told(error) from None
        finally:
            future.cancel()

    def _told(self, error: BaseException) -> BaseException:
        """Return what is raised of an error: what the SDK or a server makes of it is that the connection is lost."""
        is_late = isinstance(error, TimeoutError)
        if (isinstance(error, OSError) and not is_late) or not isinstance(error, Exception):
            return error
        # a server that was passed variables may have said their values
        words = [] if self._place.passed else self._said.decode(errors="replace").split()
        last = f"; the last that it said: {' '.join(words)}" if words else ""
        if is_late:
            return TimeoutError(f"no answer in {self._place.timeout_s:g} s{last}")
        return ConnectionError(f"{type(error).__name__}: {error}".removesuffix(": ") + last)

    def close(self) -> None:
        """End the server and the thread, also while it is being opened. May be called twice."""
        atexit.unregister(self.close)
        with contextlib.suppress(RuntimeError):  # the loop has ended, or the thread could not be begun
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(6 * _GRACE_S)

    def _hold(self) -> None:
        try:
            self._loop.run_until_complete(self._main())
        except BaseException as error:  # noqa: BLE001 - told to whoever waits
            if not self._open.done():
                self._open.set_exception(_first_of(error))
        finally:
            self._open.cancel()  # where it was closed before it was open
            self._loop.close()

    async def _main(self) -> None:
        from mcp import Client

        async with _transport(self._place, self._said) as transport:
            serving = asyncio.ensure_future(self._serve(Client(transport, cache=None)))
            stopping = asyncio.ensure_future(self._stop.wait())
            await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
            if self._open.done():  # else it may never begin
                await asyncio.wait([serving], timeout=4 * _GRACE_S)
            for task in (serving, stopping):
                task.cancel()
            await asyncio.wait([serving, stopping])
            if not serving.cancelled() and (error := serving.exception()) is not None:
                raise error

    async def _serve(self, client: Client) -> None:
        async with client:
            self.client, self.offered = client, await _offered(client)
            self._judge()
            self._open.set_result(None)
            await self._stop.wait()

    def _judge(self) -> None:
        """Refuse what differs from what was accepted. Raises PermissionError."""
        server = self._server
        if server is not None and (differences := changes(server.offered, self.offered)):
            warn(
                "the MCP server %s offers other tools than mcp.lock holds (%s); look at them with "
                "`tachograph mcp inspect %s %s`, and accept them with `tachograph mcp accept` likewise",
                server.name,
                "; ".join(differences[:4]),
                server.name,
                server.place.arguments,
            )
            raise PermissionError("the server offers other tools than those that were accepted")

    async def _called(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        from mcp import MCPError

        _STATUSES.set(statuses := list[int]())
        try:
            result = await self.client.call_tool(name, arguments)
        except MCPError as error:
            # a tool may have any code
            is_own = {*statuses} == {200} and not error.message.startswith(_OF_SDK)
            if error.message == _CLOSED or (self._place.url and error.code in _LOST and not is_own):
                self._stop.set()
                raise
            if self._place.url and (error.code in _OF_HTTP or error.message in _OF_HTTP):
                raise
            return {"text": error.message, "is_error": True}
        texts = [_text_of(item) for item in result.content]
        found: dict[str, Any] = {"text": "\n".join(texts)}
        if result.structured_content is not None:
            try:
                found["structured"] = as_json(result.structured_content)
            except NotJson:
                if not texts:  # mostly they say the same
                    raise
        return found | ({"is_error": True} if result.is_error else {})


def offered_at(place: ServerPlace) -> dict[str, dict[str, Any]]:
    """Return what a server offers, and end it. Raises InputError."""
    connection = Connection(place)
    try:
        connection.ready()
    except OSError as error:
        by_hand = "check the command, written after `--`, by starting it yourself"
        remedy = "check the URL, and which headers it wants" if place.url else by_hand
        where = place.url or " ".join(place.command)
        why = system_reason(error) if place.passed else error.strerror or error or type(error).__name__
        raise InputError(f"no MCP server can be used there ({why})", file=where, remedy=remedy) from None
    connection.close()
    return connection.offered


def _in_time(future: Future[T], timeout_s: float) -> T:
    """Return what comes of something. Raises TimeoutError.

    A signal that comes just before a wait is noticed at the end of it, so none takes more than a second.
    """
    deadline = later(timeout_s)
    while not future.done():
        wait([future], min(left(deadline), 1))
    return future.result()


def _first_of(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _offered(client: Client) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    cursor = None
    for _ in range(_PAGES):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            definition = as_json(tool.model_dump(mode="json", by_alias=True, exclude_none=True))
            if tool.name in found:
                raise OSError(0, f"the server offers two tools of the name {tool.name!r:.80}")
            found[definition.pop("name")] = definition
        cursor = page.next_cursor
        if not cursor or len(found) > MOST_TOOLS:  # some servers end with an empty one
            break
    if cursor or len(found) > MOST_TOOLS:
        raise OSError(0, f"the server offers more than {MOST_TOOLS} tools")
    return found


def _text_of(item: Any) -> str:
    """Return a part of a result as text; what is none is named."""
    part = getattr(item, "resource", item)
    if isinstance(getattr(part, "text", None), str):
        return str(part.text)
    named = (item.type, getattr(part, "uri", None), getattr(part, "mime_type", None))
    held = getattr(part, "data", None) or getattr(part, "blob", None)
    size = f", {len(held)} characters" if held else ""
    return f"[{' '.join(str(it) for it in named if it)}{size}]"


def _whole(text: bytes) -> bytes:
    """Return JSON with `?` for each half of a character, which the SDK does not read."""
    return _ESCAPED.sub(lambda it: it[1] or b"?", text) if b"\\ud" in text.lower() else text


@contextlib.asynccontextmanager
async def _transport(place: ServerPlace, said: bytearray) -> AsyncIterator[Any]:
    """Yield what the SDK takes as a transport."""
    if place.command:
        yield _stdio(place, said)
        return
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    from ..models.providers.model import AnswerStream  # needs what only the SDK brings

    class WholeLines(AnswerStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            begun: list[bytes] = []  # pieces of a line
            async for piece in super().__aiter__():
                rest, end, begins = piece.rpartition(b"\n")
                if end:
                    yield _whole(b"".join([*begun, rest, end]))
                    begun = []
                begun.append(begins)
            yield _whole(b"".join(begun))

    async def bound(response: httpx2.Response) -> None:  # an answer of JSON is read as a whole
        _STATUSES.get([]).append(response.status_code)
        if response.request.method == "POST":  # to a GET, a server without a stream of its own says 405
            status = f"{response.status_code} {response.reason_phrase}"
            said[:] = status.encode() if response.is_error else b""
        # none was asked for, since what is unpacked has no bound
        if (encoding := response.headers.get("content-encoding", "identity").strip().lower()) != "identity":
            said[:] = f"content-encoding: {encoding}".encode()
            raise OSError(0, "an answer is compressed")
        response.stream = WholeLines(response.stream, _MOST_BODY, OSError(0, "an answer is too long"))

    headers = {"accept-encoding": "identity"} | {name: text.strip() for name, text in place.headers.items()}
    if place.passed:
        values = {name: variable(name) for name in place.passed}
        for missing in (name for name, value in values.items() if value is None):
            raise ConnectionError(f"the variable {missing} is not set")
        headers = {name: Template(text).safe_substitute(values).strip() for name, text in headers.items()}
    for name in (it for it, text in headers.items() if not (text.isascii() and text.isprintable())):
        # the SDK would show it
        raise ConnectionError(f"the value of the header {name} cannot be sent")
    async with httpx2.AsyncClient(
        headers=headers,
        # what this ends takes the whole connection with it, and so further attempts of a call have to fit
        timeout=httpx2.Timeout(4 * place.timeout_s),
        trust_env=False,
        event_hooks={"response": [bound]},
    ) as http:
        yield streamable_http_client(place.url, http_client=http, max_sse_event_size=MOST_BYTES)


@contextlib.asynccontextmanager
async def _stdio(place: ServerPlace, said: bytearray) -> AsyncIterator[Any]:
    """Run a program, a message a line; it, and all that it starts, ends with the context."""
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    passed = {name: variable(name) for name in (*_INHERITED, *place.passed)}
    env = {name: value for name, value in passed.items() if value is not None} | dict(place.env)
    process = await asyncio.create_subprocess_exec(
        *place.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
        start_new_session=True,
        limit=MOST_BYTES,
    )
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    assert stdin is not None and stdout is not None and stderr is not None
    told, messages = anyio.create_memory_object_stream[Any](0)
    out, written = anyio.create_memory_object_stream[Any](0)
    warn_once = cache(warn)

    async def read() -> None:
        async with told:
            with contextlib.suppress(ValueError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                while line := await stdout.readline():  # one that is too long is a ValueError, and ends it
                    try:
                        parsed = jsonrpc_message_adapter.validate_json(_whole(line), by_name=False)
                    except (ValueError, RecursionError):
                        warn_once("%s printed a line that is no JSON-RPC message", place.command[0])
                    else:
                        await told.send(SessionMessage(parsed))

    async def write() -> None:
        with contextlib.suppress(OSError, anyio.ClosedResourceError):
            async for message in written:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                stdin.write(text.encode() + b"\n")
                await stdin.drain()
        await told.aclose()

    async def hear() -> None:
        while piece := await stderr.read(1 << 16):
            said.extend(piece)
            del said[:-_MOST_SAID]

    tasks = [asyncio.ensure_future(work) for work in (read(), write(), hear())]
    try:
        yield messages, out
    finally:
        for task in tasks[:2]:
            task.cancel()
        stdin.close()
        await _end(process)
        await asyncio.wait(tasks)  # what the program wrote last is still heard
        for stream in (told, messages, out, written):
            stream.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a program and all that it has started: it may do so by itself, is told to, and is made to."""
    try:
        for sent in (0, signal.SIGTERM):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, sent)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GRACE_S):
                    await process.wait()
                break
    finally:  # also what it left behind
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    # else its pipes are closed when nothing refers to them any more, which may be after the loop
    if (transport := getattr(process, "_transport", None)) is not None:
        transport.close()
        await asyncio.sleep(0)
