"""What the adapters share: the callable around an SDK, its address and key, and small pieces of mapping."""

from __future__ import annotations

import importlib
import importlib.metadata
import ipaddress
import json
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import urlsplit

from ....fail.errors import InputError, InvalidModelOutput
from ...core.secret_kinds import PATTERNS, SHORTEST
from ...formats import canonical_json
from ...formats.canonical_json import NotJson
from ..types import LLMInput, LLMOutput, Message, ToolSpec
from .wire import Call, Gather, JsonObject, Options, read

if TYPE_CHECKING:
    from .async_wire import AsyncCall, LoopClients

# room for a long reply; a model whose own limit is smaller needs this set
MAX_OUTPUT_TOKENS: Final = 8192
CONNECT_S: Final = 10.0
_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address to speak to; a loopback address is never asked of a proxy.

    Attributes:
        url: The address.
        host: What may be shown of it.
        loopback: Whether it is this machine.
        bypass: The pattern by which the HTTP libraries know this host.
    """

    url: str
    host: str
    loopback: bool
    bypass: str


class Adapter:
    """A live model: `Callable[[LLMInput], LLMOutput]`.

    `identity` names it in a record, with the `options` that are sent with every request. `host` is what will be
    spoken to, `secrets` holds (kind, value) of each credential, for a redactor and for nobody else. A call keeps no
    connection, and may be made from any thread; `ask_async` keeps a client for each event loop until the loop ends.

    A call raises TransientModelError (429, 5xx, a lost connection), TimeoutError, InvalidModelOutput (no
    reply at all) or ModelError (anything else, and whatever happens once a reply has begun); their texts are
    ours, without key, query or body. `request` and the module's `reply_of` are the mapping, and are pure.
    """

    provider: ClassVar[str]
    package: ClassVar[str]
    client_class: ClassVar[str]  # of the SDK; with Async before it, the one for event loops

    def __init__(
        self, model: str, endpoint: Endpoint, secrets: tuple[tuple[str, str], ...], options: Options
    ) -> None:
        self.identity: dict[str, Any] = {
            "execution_path": "live",
            "provider": self.provider,
            "name": model,
            "script_digest": None,
        }
        if options.extra:
            self.identity["options"] = dict(options.extra)
        self.host = endpoint.host
        self.secrets = tuple(pair for pair in secrets if len(pair[1]) >= SHORTEST)
        self._model = model
        self._endpoint = endpoint
        self._options = options
        self._clients: LoopClients | None = None
        self._sdk: Any = None

    def __repr__(self) -> str:
        return f"<{self.provider} model {self._model!r} at {self.host}>"

    def __reduce__(self) -> Any:
        raise TypeError("an adapter holds a key and is not written anywhere")

    def __call__(self, model_input: LLMInput) -> LLMOutput:
        """Ask the model once. No attempt is repeated here: retries are the loop's, and recorded."""
        body = self.request(model_input)
        sdk = importlib.import_module(self.package)
        call = Call(self._options, self.host, model_input.on_text)
        return call.run(lambda: self._converse(sdk, body, call))

    async def ask_async(self, model_input: LLMInput) -> LLMOutput:
        """Ask the model once in an event loop, by the SDK's own async client: cancelling it ends the request."""
        import asyncio

        from .async_wire import AsyncCall

        body = self.request(model_input)
        if self._sdk is None:  # an import is slow
            self._sdk = await asyncio.to_thread(importlib.import_module, self.package)
        sdk = self._sdk
        call = AsyncCall(self._options, self.host, model_input.on_text)
        return await call.run_async(lambda: self._converse_async(sdk, body, call))

    def request(self, model_input: LLMInput) -> JsonObject:
        """Return the request's body, as the provider's protocol has it."""
        raise NotImplementedError

    def _converse(self, sdk: Any, body: JsonObject, call: Call) -> LLMOutput:
        """Send `body` through the SDK and read the reply; may raise anything that the SDK raises."""
        timeout = self._timeout(sdk, body)
        http = sdk.DefaultHttpxClient(timeout=timeout, **self._http(call.hooks(self.own_headers)))
        with (
            self.client(getattr(sdk, self.client_class), http, timeout) as client,
            self.send(client, body, timeout) as response,
        ):
            output = self.reply_of(read(response, self.gather(), call))
        return self._told(output, call)

    async def _converse_async(self, sdk: Any, body: JsonObject, call: AsyncCall) -> LLMOutput:
        """Send `body` by the client of this event loop, and read the reply."""
        from .async_wire import LoopClients, hooks, read_async

        def make() -> Any:
            http = sdk.DefaultAsyncHttpxClient(timeout=timeout, **self._http(hooks(self.own_headers)))
            return self.client(getattr(sdk, f"Async{self.client_class}"), http, timeout)

        timeout = self._timeout(sdk, body)
        if self._clients is None:
            self._clients = LoopClients()
        client = await self._clients.of_this_loop(make)
        async with self.send(client, body, timeout) as response:
            output = self.reply_of(await read_async(response, self.gather(), call))
        return self._told(output, call)

    def client(self, kind: Any, http: Any, timeout: Any) -> Any:
        """Return a client of the SDK, of its sync or its async kind, over an HTTP client."""
        raise NotImplementedError

    def send(self, client: Any, body: JsonObject, timeout: Any) -> Any:
        """Return the context manager in which a request is sent and its raw response read."""
        raise NotImplementedError

    def gather(self) -> Gather:
        """Return what puts a streamed reply together."""
        raise NotImplementedError

    def reply_of(self, whole: JsonObject) -> LLMOutput:
        """Read a whole reply, as the service sends it unstreamed."""
        raise NotImplementedError

    def own_headers(self, request: Any) -> None:
        """Change what the SDK would send in the head of a request."""

    def _told(self, output: LLMOutput, call: Call) -> LLMOutput:
        """Return a reply; the text of one that came in one piece is handed on as such."""
        if not call.streams:
            call.say(output.text or output.final_answer or "")
        return output

    def _streams(self, model_input: LLMInput) -> bool:
        """Return whether a reply is asked for in pieces: by default where somebody listens to its text."""
        if self._options.stream is not None:
            return self._options.stream
        return self._options.on_text is not None or model_input.on_text is not None

    def _max_tokens(self, model_input: LLMInput) -> int:
        return max(1, min(model_input.max_output_tokens, self._options.max_tokens))

    def _extra(self, model_input: LLMInput) -> JsonObject:
        """Return the caller's own settings for a request, without `tool_choice` if no tools are offered."""
        return {k: v for k, v in self._options.extra.items() if model_input.tools or k != "tool_choice"}

    def _output_schema(self, model_input: LLMInput) -> JsonObject | None:
        """Return the schema that the final answer must fit, None where any text is one."""
        return None if model_input.output_schema is None else json.loads(model_input.output_schema)

    def _http(self, hooks: dict[str, list[Any]]) -> dict[str, Any]:
        """Return settings of the SDK's HTTP client: no redirects, hooks on the reply, no proxy to loopback.

        Apart from that, proxies and certificates are what the SDK takes from the environment.
        """
        settings: dict[str, Any] = {"follow_redirects": False, "event_hooks": hooks}
        if self._endpoint.loopback:
            settings["mounts"] = {self._endpoint.bypass: None}
            if self._endpoint.url.startswith("http:"):
                # no certificates are needed for http, and loading them takes longer than all the rest
                settings["verify"] = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return settings

    def _timeout(self, sdk: Any, body: JsonObject) -> Any:
        """Return how long to wait for a connection and, in a stream, for the next bytes."""
        wait = self._options.timeout_s if body.get("stream", False) else self._options.total_s
        return sdk.Timeout(wait, connect=min(CONNECT_S, self._options.timeout_s))


# a compressed reply could unpack to more than any limit on what is received
IDENTITY: Final = {"Accept-Encoding": "identity"}


# ---- what an adapter is opened with --------------------------------------------------------------------


def environment(name: str) -> str | None:
    """Return an environment variable, or None if it is unset or empty."""
    return os.environ.get(name) or None


def need_package(package: str, least: str) -> None:
    """Raise InputError unless the SDK is installed in version `least` or later. It is not imported yet."""
    try:
        installed = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        problem = f"the package {package!r} is not installed"
    else:
        if _numbers(installed) >= _numbers(least):
            return
        problem = f"the package {package!r} is version {installed[:20]}, and {least} or later is needed"
    raise InputError(problem, remedy="run: pip install 'tachograph[live]'")


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]{1,9}", version)[:3]]


def key(name: str) -> str | None:
    """Return a credential from the environment. Raises InputError for characters that no key has."""
    value = environment(name)
    if value is not None and not re.fullmatch(r"[\x21-\x7e]{1,4096}", value):
        raise InputError(f"{name} holds a character that no key has", remedy="set it again, without spaces")
    return value


def secret(kind: str, value: str) -> tuple[str, str]:
    """Return `(kind, value)` if the value looks like a key of that kind, else `("api_key", value)`."""
    return (kind if re.fullmatch(PATTERNS[kind], value) else "api_key", value)


def header_secrets(name: str) -> tuple[tuple[str, str], ...]:
    """Return the credentials in a variable that holds HTTP headers, one `Name: value` a line, as SDKs read it."""
    secrets = []
    for line in (environment(name) or "").split("\n"):
        header, colon, value = line.partition(":")
        if colon and re.search(r"(?i)auth|key|token|secret|cookie|password", header):
            secrets += [("api_key", part) for part in value.split() if len(part) >= SHORTEST]
    return tuple(secrets)


def endpoint(url: str, named: str) -> Endpoint:
    """Parse a base URL strictly. Raises InputError, in which `named` says where the URL came from."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if not host or parts.scheme not in ("http", "https") or not re.fullmatch(r"[\x21-\x7e]+", url):
        raise InputError(f"{named} is not an address", remedy="write http://HOST:PORT or https://HOST/PATH")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise InputError(
            f"{named} holds more than an address", remedy="leave out user, password, query and fragment"
        )
    shown = f"[{host}]" if ":" in host else host
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost" or host.endswith(".localhost")
    where = shown if port is None else f"{shown}:{port}"
    return Endpoint(url.rstrip("/"), where, loopback, f"all://{shown}")


# ---- mapping -------------------------------------------------------------------------------------------


def wire_name(name: str) -> str:
    """Return a tool's name as the services accept it: a model may have invented one that they would refuse."""
    return _NAME.sub("_", name)[:64] or "_"


def arguments_object(text: str) -> JsonObject:
    """Return the arguments of an earlier call as an object; other text is wrapped as the model wrote it."""
    try:
        value = canonical_json.parse(text).value()
    except NotJson:
        value = None
    return value if isinstance(value, dict) else {"unparsed": text}


def tool_schema(tool: ToolSpec) -> Any:
    """Return the whole JSON Schema of a tool's arguments."""
    return json.loads(tool.input_schema)


def own_raw(message: Message, provider: str) -> JsonObject:
    """Return what this provider's adapter kept of an earlier reply, or an empty dict."""
    raw = message.get("raw")
    return raw if isinstance(raw, dict) and raw.get("provider") == provider else {}


def finish_of(word: object, table: Mapping[str, str], called: bool) -> str:
    """Map the provider's finish reason by `table`; an unknown one, or one that contradicts the calls, is `other`."""
    finish = table.get(word, "other") if isinstance(word, str) else "other"
    if called:
        return "tool_calls" if finish == "stop" else finish
    return "other" if finish == "tool_calls" else finish


def usage_of(read: object, written: object) -> dict[str, int] | None:
    """Return token counts, or None unless both are integers."""
    if type(read) is not int or type(written) is not int:
        return None
    return {"input_tokens": read, "output_tokens": written}


def text_of(value: object) -> str:
    """Return a text of the reply, empty for None. Raises InvalidModelOutput for anything else."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidModelOutput("the reply has something else where text belongs")
    return value


def list_of(value: object) -> list[JsonObject]:
    """Return a list of objects of the reply, empty for None. Raises InvalidModelOutput for anything else."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InvalidModelOutput("the reply has something else where a list of objects belongs")
    return value
