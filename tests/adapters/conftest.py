"""Every test here starts without keys, addresses, proxies and tracing in the environment."""

from __future__ import annotations

import os

import pytest

PREFIXES = ("OPENAI_", "ANTHROPIC_", "LANGCHAIN_", "LANGSMITH_")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(PREFIXES) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
