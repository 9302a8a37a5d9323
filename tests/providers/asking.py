"""What tests of adapters ask: small histories, tools, and an adapter for a server of ours."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from tachograph.runtime.models.providers import Adapter, open_model
from tachograph.runtime.models.types import History, LLMInput, LLMOutput, ToolSpec
from tests.providers.protocols import Turn
from tests.providers.servers import Reply, Server

PACKAGES = {"openai": "openai", "anthropic": "anthropic", "ollama": "openai"}
PROVIDERS = tuple(PACKAGES)
IN_EVENT_LOOP: ContextVar[bool] = ContextVar("whether calls are made in an event loop", default=False)
SCHEMA = (
    '{"additionalProperties":false,"properties":{"query":{"description":"Words.","maxLength":400,'
    '"type":"string"}},"required":["query"],"type":"object"}'
)
PAIR = (("search", '{"query": "a"}'), ("read", "{}"))
LONG = Turn("I look at what the corpus has to say.", PAIR)
SEARCH = ToolSpec("search", "Search the corpus.", SCHEMA)


def asked(*messages: dict[str, Any], tools: tuple[ToolSpec, ...] = (SEARCH,), left: int = 50_000) -> LLMInput:
    """The input of a first step; without messages, a plain question."""
    history = History()
    for message in messages or ({"role": "user", "content": "Where may a driver sleep?"},):
        history.add(message)
    return LLMInput("run", 1, history.window(), tools, left)


def opened(provider: str, base_url: str, **options: Any) -> Adapter:
    """An adapter that gives up soon."""
    return open_model(
        f"{provider}:some-model",
        base_url=base_url,
        **{"timeout_s": 2.0, "total_s": 4.0, "stream": True, **options},
    )


def ask(provider: str, *script: Reply, **options: Any) -> LLMOutput:
    """The outcome of one call, over a server that says this."""
    with Server(script) as server:
        return one_call(opened(provider, server.base_url(provider), **options), asked())


def one_call(adapter: Adapter, given: LLMInput) -> LLMOutput:
    """The reply to one call, in an event loop of its own where a test is about those."""
    return asyncio.run(adapter.ask_async(given)) if IN_EVENT_LOOP.get() else adapter(given)


def failing(provider: str, kind: type[Exception], *script: Reply, **options: Any) -> Exception:
    """The failure of one call: exactly of this kind, and with nothing behind it."""
    with pytest.raises(kind) as caught:
        ask(provider, *script, **options)
    assert type(caught.value) is kind
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    return caught.value
