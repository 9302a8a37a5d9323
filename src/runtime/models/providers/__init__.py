"""Live models over the official SDKs: `model_of("anthropic:MODEL")` is a callable that asks a real service."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import re
from collections.abc import Mapping
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from ....fail.errors import InputError, did_you_mean
from ...clock import variable
from ...formats import strict_json
from ...log.values import ModelName
from ..types import whole_text
from .anthropic import AnthropicService
from .environment import Endpoint
from .fields import JsonObject
from .openai import OpenAIService

if TYPE_CHECKING:
    from .model import ProviderModel


# the address of each provider, and the variables with another one and with the key
PROVIDERS: Final = {
    "anthropic": ("https://api.anthropic.com", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    "openai": ("https://api.openai.com/v1", "OPENAI_BASE_URL", "OPENAI_API_KEY"),
}
_FORM: Final = "write PROVIDER:MODEL, the provider one of " + ", ".join(PROVIDERS)
_MODEL: Final = re.compile(r"[A-Za-z0-9@][A-Za-z0-9._:/@+-]{0,199}")
_MAX_TOKENS: Final = 8192  # room for a long reply; a model with a smaller limit needs the option
# parameters of the SDKs that are not settings, or are set for each request
_OURS: Final = frozenset(
    "self messages model system tools functions function_call stream stream_options n audio modalities "
    "max_completion_tokens extra_headers extra_query timeout".split()
)


def model_of(
    name: str,
    *,
    base_url: str | None = None,
    options: Mapping[str, Any] | None = None,
    timeout_s: float = 300.0,
) -> ProviderModel:
    """Return the model that a name stands for; nothing is contacted yet.

    The key comes from the environment: ANTHROPIC_API_KEY or OPENAI_API_KEY. Only the provider's own address needs one,
    and only a run that asks the model: the record answers for it in a check and a replay.

    Args:
        name: `anthropic:MODEL` or `openai:MODEL`.
        base_url: The address of the service, else the one in ANTHROPIC_BASE_URL or OPENAI_BASE_URL, else the provider's
            own. With `openai` it may be any service that speaks chat completions, such as Ollama.
        options: Settings for every request, called as the SDK calls them; `extra_body` holds what the SDK does not
            know. `max_tokens` is 8192 unless it is set.
        timeout_s: Seconds of silence after which a request has failed.

    Raises:
        InputError: The name, the address, an option or `timeout_s` is refused, the key holds what no key has, or the
            SDK is missing.
    """
    if type(timeout_s) not in (int, float) or not 0 < timeout_s <= 86_400:
        raise InputError("timeout_s is out of range", remedy="give seconds, more than 0 and at most a day")
    provider, _, model = whole_text(name, "the name of a model").partition(":")
    if provider not in PROVIDERS or not _MODEL.fullmatch(model):
        raise InputError(f"{name[:80]!r} names no model", remedy=_FORM)
    home, address_variable, key_variable = PROVIDERS[provider]
    url = (variable(address_variable) if base_url is None else whole_text(base_url, "the base URL")) or home
    if provider == "anthropic":
        url = url.rstrip("/").removesuffix("/v1")  # the SDK writes it itself
    endpoint = Endpoint(url, address_variable if base_url is None else "the base URL", key_variable, home)
    kind = AnthropicService if provider == "anthropic" else OpenAIService
    is_renamed = endpoint.host.endswith(("api.openai.com", ".azure.com"))
    service = kind(_sdk(kind.package, kind.least), "max_completion_tokens" if is_renamed else "max_tokens")
    known = inspect.signature(attrgetter(service.create)(service.sdk)).parameters
    settings = _settings(options or {}, set(known) - _OURS)
    from .model import ProviderModel  # needs what only the SDKs bring

    return ProviderModel(ModelName(provider, model, "live"), settings, service, endpoint, timeout_s)


def _sdk(package: str, least: int) -> Any:
    """Return an SDK. Raises InputError where it is missing or too old."""
    with suppress(ImportError):
        if int(importlib.metadata.version(package).partition(".")[0]) >= least:
            return importlib.import_module(package)
    problem = f"the package {package!r}, version {least} or later, is not installed"
    raise InputError(problem, remedy="run: pip install 'tachograph[live]'")


def _settings(options: Mapping[str, Any], known: set[str]) -> JsonObject:
    """Return a copy of the options. Raises InputError for one that no request has, or that is set for each request."""
    try:
        settings: JsonObject = strict_json.as_json({"max_tokens": _MAX_TOKENS, **options})
    except (TypeError, strict_json.NotJson) as error:
        raise InputError(f"the options are not JSON: {error}", remedy="give plain JSON data") from None
    extra = settings.get("extra_body", {})
    if not isinstance(extra, dict) or extra.keys() & (_OURS | known):
        raise InputError("the option 'extra_body' is not an object of further settings", remedy="give one")
    for name in sorted(settings.keys() - known):
        remedy = did_you_mean(name, known, "leave it out, or put it into 'extra_body'")
        raise InputError(f"no request has the option {name[:80]!r}", remedy=remedy)
    if type(settings["max_tokens"]) is not int or settings["max_tokens"] < 1:
        raise InputError("the option 'max_tokens' is not a number of tokens", remedy="give 1 or more")
    return settings
