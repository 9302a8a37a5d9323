"""Where a service is, and the key for it, which the environment holds."""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

from ....fail.errors import InputError
from ...clock import variable

_VISIBLE: Final = re.compile(r"[\x21-\x7e]{1,4096}")
# without user, query and fragment
_PLAIN: Final = re.compile(r"[^\x00-\x20\x7f-\U0010ffff@?#\\]{1,4096}")


class Endpoint:
    """Where a service is, and the key for it.

    Args:
        url: Its address.
        named: Where the address came from, for a message.
        key_variable: The variable with the key.
        home: The provider's own address, which needs a key.

    Attributes:
        url: Its address.
        host: What a message may show of it: host and port.
        is_loopback: Whether it is this machine, which no proxy is asked for.
        key_variable: The variable with the key.
        key: The key; "" where there is none.
        lacks: The variable with the key that it needs and that is not set; "" where it needs none or has one.

    Raises:
        InputError: The address is none, or the key holds characters that no key has.
    """

    def __init__(self, url: str, named: str, key_variable: str, home: str) -> None:
        try:
            parts = urlsplit(url)
            is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address or not _PLAIN.fullmatch(url):
            remedy = "write http://HOST:PORT or https://HOST/PATH"
            raise InputError(f"{named} is not a plain URL", remedy=remedy)
        try:
            self.is_loopback = ipaddress.ip_address(parts.hostname or "").is_loopback
        except ValueError:
            self.is_loopback = parts.hostname == "localhost"
        self.url, self.host = url.rstrip("/"), parts.netloc
        self.key_variable, self.key = key_variable, variable(key_variable) or ""
        self.lacks = "" if self.key or self.url != home else key_variable
        if self.key and not _VISIBLE.fullmatch(self.key):
            raise InputError(f"{key_variable} holds what no key has", remedy="set it again, without blanks")
