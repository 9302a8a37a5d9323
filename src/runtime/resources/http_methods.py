"""The methods of HTTP that a policy can allow and a tool can use."""

from __future__ import annotations

from typing import Final

# What an entry of the URL allowlist allows that names no methods. They ask for something and change nothing.
SAFE_METHODS: Final = ("GET", "HEAD")
METHODS: Final = (*SAFE_METHODS, "OPTIONS", "PUT", "DELETE", "POST", "PATCH")
