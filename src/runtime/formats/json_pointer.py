"""JSON Pointers (RFC 6901)."""

from __future__ import annotations


def escape_pointer(key: str) -> str:
    """A key as a JSON Pointer token (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
