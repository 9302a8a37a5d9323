"""Ollama, by the route of its server that speaks OpenAI's chat completions.

The address is `base_url`, else OLLAMA_HOST, else the local server's; `/v1` is added where it is missing. No key
is needed, and OLLAMA_API_KEY is sent where it is set. The server cuts a prompt that is longer than its context
window without saying so: set OLLAMA_CONTEXT_LENGTH there.
"""

from __future__ import annotations

from typing import Any, Final

from .common import Endpoint, endpoint, environment, key, need_package
from .openai import NEEDED, OpenAIAdapter
from .wire import Options

HOME: Final = "http://127.0.0.1:11434"
_SENT: Final = frozenset(
    "host accept accept-encoding connection content-type content-length user-agent authorization".split()
)


def open_adapter(model: str, base_url: str | None, options: Options) -> OpenAIAdapter:
    """Return an adapter for `model`. Raises InputError."""
    need_package("openai", NEEDED)
    given, named = (base_url, "the base URL") if base_url else (environment("OLLAMA_HOST"), "OLLAMA_HOST")
    target = _endpoint(given or HOME, named)
    if not target.url.endswith("/v1"):
        target = endpoint(f"{target.url}/v1", named)
    return OllamaAdapter(model, target, key("OLLAMA_API_KEY"), options, modern=False)


def _endpoint(given: str, named: str) -> Endpoint:
    """Read an address. OLLAMA_HOST may be a bare host; then the port is Ollama's."""
    if "://" in given:
        return endpoint(given, named)
    target = endpoint(f"http://{given}", named)
    bare = target.host.endswith("]") or ":" not in target.host
    return endpoint(f"http://{target.host}:11434", named) if bare else target


class OllamaAdapter(OpenAIAdapter):
    """A model of an Ollama server."""

    provider = "ollama"

    def own_headers(self, request: Any) -> None:
        """Take out the headers that the SDK adds from OPENAI_* variables, which are meant for another service."""
        for name in list(request.headers):
            if name.lower() not in _SENT and not name.lower().startswith("x-stainless-"):  # the SDK's own
                del request.headers[name]
        request.headers.pop("authorization", None)
        if self._credential is not None:
            request.headers["Authorization"] = f"Bearer {self._credential}"
