"""Live models: `open_model("anthropic:MODEL")` gives a callable that speaks to a real service.

A new provider is one module here, with a function `open_adapter`, and one line in `PROVIDERS`.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Mapping
from typing import Any, Final

from ....fail.errors import InputError
from ...core.known_secrets import register
from ...formats import canonical_json
from ...formats.canonical_json import NotJson
from ...schema.schema_errors import did_you_mean
from .common import MAX_OUTPUT_TOKENS, Adapter
from .wire import OnText, Options

__all__ = ["PROVIDERS", "Adapter", "open_model", "parse_spec"]

# provider -> (module here, what the model's name is, for a reader)
PROVIDERS: Final = {
    "anthropic": (".anthropic", "a model of the Anthropic API"),
    "openai": (".openai", "a model of OpenAI, or of any service that speaks its chat completions"),
    "ollama": (".ollama", "a model that an Ollama server has"),
}
_MODEL: Final = re.compile(r"[A-Za-z0-9@][A-Za-z0-9._:/@+-]{0,199}")
_OURS: Final = frozenset(
    "model messages system tools stream stream_options max_tokens max_completion_tokens options num_predict n".split()
)
_FORM: Final = "write PROVIDER:MODEL, the provider one of " + ", ".join(PROVIDERS)


def open_model(
    spec: str,
    *,
    base_url: str | None = None,
    on_text: OnText | None = None,
    timeout_s: float = 60.0,
    total_s: float = 600.0,
    max_output_tokens: int = MAX_OUTPUT_TOKENS,
    stream: bool | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Adapter:
    """Return the model that `spec` (PROVIDER:MODEL) names, ready to be asked; nothing is contacted yet.

    The key comes from the environment, from the variable that the provider's own SDK reads.

    Args:
        spec: `PROVIDER:MODEL`, such as `anthropic:MODEL`.
        base_url: The address of the service; by default from the environment, as the SDK reads it. An address
            other than the provider's needs no key.
        on_text: Gets the visible text of a reply as it arrives, in the caller's thread; it should not raise.
        timeout_s: Seconds to wait for the next bytes.
        total_s: Seconds for a call.
        max_output_tokens: The largest reply to ask for; less is asked for if the budget leaves less.
        stream: Whether to ask for replies in pieces; by default where somebody listens to their text. Of a reply in
            one piece `total_s` is the only limit, as a stall looks like thinking.
        extra: Settings for every request, as the service names them (`{"temperature": 0, "seed": 1}`); none is
            sent otherwise. A `tool_choice` is left out where no tools are offered.

    Raises:
        InputError: A malformed spec or address, no SDK, or no key.
    """
    provider, model = parse_spec(spec)
    for name, seconds in (("timeout_s", timeout_s), ("total_s", total_s)):
        if not (math.isfinite(seconds) and 0 < seconds <= 86_400):
            raise InputError(f"{name} is out of range", remedy="give seconds, up to a day")
    if max_output_tokens < 1:
        raise InputError("max_output_tokens is out of range", remedy="give 1 or more")
    if taken := sorted(_OURS & set(extra or {})):
        raise InputError(f"extra holds {taken[0]!r}, which is set for each request", remedy="leave it out")
    try:
        settings = canonical_json.freeze(dict(extra or {})).value()  # a copy of our own
    except NotJson as error:
        raise InputError(f"extra is not JSON: {error.reason}", remedy="give plain JSON data") from None
    module = importlib.import_module(PROVIDERS[provider][0], __name__)
    options = Options(on_text, min(timeout_s, total_s), total_s, max_output_tokens, stream, settings)
    adapter: Adapter = module.open_adapter(model, base_url, options)
    register(adapter.secrets)  # a function wrapped around the model is not known to hold them
    return adapter


def parse_spec(spec: str) -> tuple[str, str]:
    """Return the provider and the model's name that `PROVIDER:MODEL` names. Raises InputError."""
    provider, colon, model = spec.partition(":")
    if not colon or not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", provider):
        raise InputError("a model is named by its provider and its name", remedy=_FORM)
    if provider not in PROVIDERS:
        raise InputError(
            f"no provider is called {provider!r}", remedy=did_you_mean(provider.lower(), PROVIDERS) or _FORM
        )
    if not _MODEL.fullmatch(model):
        raise InputError(f"{provider}: needs the name of {PROVIDERS[provider][1]}", remedy=_FORM)
    return provider, model
