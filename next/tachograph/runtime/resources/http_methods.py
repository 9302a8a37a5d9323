"""The methods of HTTP that a policy can allow and a tool can use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

# What an entry of the URL allowlist allows that names no methods. They ask for something and change nothing.
SAFE_METHODS: Final = ("GET", "HEAD")
# Those of which a second request does no more than the first (RFC 9110, 9.2.2).
IDEMPOTENT_METHODS: Final = (*SAFE_METHODS, "OPTIONS", "PUT", "DELETE")
METHODS: Final = (*IDEMPOTENT_METHODS, "POST", "PATCH")

# an entry of `url_allowlist`: a URL, or a URL with its methods
UrlEntry = str | Mapping[str, Any]


def url_text(entry: UrlEntry) -> str:
    """Return the URL of an entry of the allowlist."""
    return entry["url"] if isinstance(entry, Mapping) else entry


def methods_of(entry: UrlEntry) -> tuple[str, ...]:
    """Return the methods that an entry of the allowlist allows."""
    return tuple(entry["methods"]) if isinstance(entry, Mapping) else SAFE_METHODS
