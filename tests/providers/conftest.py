"""Every test here starts without keys, addresses and proxies in the environment."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.providers.asking import IN_EVENT_LOOP, PACKAGES, PROVIDERS

PREFIXES = ("OPENAI_", "ANTHROPIC_", "OLLAMA_", "AZURE_OPENAI_")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(PREFIXES) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> str:
    """Each provider whose SDK is installed."""
    pytest.importorskip(PACKAGES[request.param])
    return str(request.param)


@pytest.fixture(params=["sync", "async"])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways to make a call: by the SDK's sync client, and by its async one."""
    token = IN_EVENT_LOOP.set(request.param == "async")
    yield
    IN_EVENT_LOOP.reset(token)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C raises here even where the tests were started with the signal ignored, as in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
