"""What a tool may put into a request: its method, its headers, its body."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ...light_dataclasses import dataclass
from ..resources.http_methods import IDEMPOTENT_METHODS, METHODS, SAFE_METHODS
from .safe_open import MAX_FILE_BYTES

MAX_REQUEST_HEADERS: Final = 50
MAX_HEADER_CHARACTERS: Final = 16_384  # of all headers together
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_VALUE: Final = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?")  # no line can begin in it
# The connection and the framing are ours, and so is what is decided: some servers take the method, the path or the
# host that such a header names in place of those that the policy allowed.
_OURS: Final = frozenset(
    (
        "host connection content-length transfer-encoding te trailer upgrade expect keep-alive accept-encoding "
        "http2-settings forwarded x-host x-http-host-override x-http-method x-http-method-override "
        "x-method-override x-original-host x-original-method x-original-uri x-original-url x-rewrite-url"
    ).split()
)
_OUR_PREFIXES: Final = ("proxy-", "x-forwarded-", "sec-")


@dataclass(frozen=True, slots=True)
class RequestParts:
    """A request but for its URL.

    Attributes:
        method: One of METHODS.
        headers: Names and values.
        body: The body; None for a request without one.
    """

    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None

    @property
    def is_safe(self) -> bool:
        """Whether it only asks, as GET and HEAD do. Redirects of such a request are followed."""
        return self.method in SAFE_METHODS

    @property
    def may_be_repeated(self) -> bool:
        """Whether a second request does no more than the first."""
        return self.method in IDEMPOTENT_METHODS


def request_parts(method: str, headers: Mapping[str, str] | None, body: str | None) -> RequestParts:
    """Check what a tool wants to send.

    Raises:
        TypeError: Something is not text.
        ValueError: It cannot be sent as it stands.
    """
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(f"a method is one of {', '.join(METHODS)}")
    pairs = tuple((headers or {}).items())
    if len(pairs) > MAX_REQUEST_HEADERS:
        raise ValueError("too many request headers")
    for name, value in pairs:
        _check_header(name, value)
    names = [name.lower() for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError("a request header is given twice")
    if sum(len(name) + len(value) for name, value in pairs) > MAX_HEADER_CHARACTERS:
        raise ValueError("the request headers are too long")
    if body is None:
        return RequestParts(method, pairs)
    if not isinstance(body, str):
        raise TypeError("a request body is text")
    if method in SAFE_METHODS:
        raise ValueError(f"a request with {method} has no body")
    data = body.encode("utf-8")
    if len(data) > MAX_FILE_BYTES:
        raise ValueError("the request body is too large")
    return RequestParts(method, pairs, data)


def _check_header(name: object, value: object) -> None:
    if not isinstance(name, str) or not isinstance(value, str):
        raise TypeError("request headers are text")
    if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        raise ValueError("a request header has a character that it may not have")
    if name.lower() in _OURS or name.lower().startswith(_OUR_PREFIXES):
        raise ValueError(f"the request header {name.lower()} is not a tool's to set")
