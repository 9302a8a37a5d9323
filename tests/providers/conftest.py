"""What tests of live models share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.providers.service import SECRET, Answer, Service


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set keys, and a proxy that is not there: loopback addresses have to be reached past it."""
    for names, value in (
        ("ANTHROPIC_API_KEY OPENAI_API_KEY", SECRET),
        ("HTTP_PROXY http_proxy ALL_PROXY all_proxy", "http://127.0.0.1:9"),
        ("ANTHROPIC_BASE_URL OPENAI_BASE_URL NO_PROXY no_proxy", ""),
    ):
        for name in names.split():
            monkeypatch.setenv(name, value)


@pytest.fixture
def serve() -> Iterator[Callable[..., Service]]:
    services: list[Service] = []

    def start(*answers: Answer) -> Service:
        services.append(Service(*answers))
        return services[-1]

    yield start
    for service in services:
        service.close()
