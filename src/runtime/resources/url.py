"""URLs and entries of the allowlist: each text is read once and strictly.

Every function here is pure. Text that two programs could read differently is Malformed, never repaired.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from msgspec import Struct, structs

from ..formats.escape import quote_literal
from ..formats.invisible_chars import CONTROL, INVISIBLE, JOINERS

MAX_URL = 8192  # characters
DEFAULT_PORTS = {"http": 80, "https": 443}


class Malformed(ValueError):
    """Text that names no resource. `reason` is printable ASCII with at most 80 characters of that text.

    `index` is the place of the text in the list it came from, where it came from one.
    """

    def __init__(self, reason: str, index: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.index = index


# ---- URLs ------------------------------------------------------------------------------------------------

URL_TEXT = re.compile(r"[!-\[\]-~]+")  # printable ASCII without space and backslash
_SCHEME = re.compile(r"(https?)://", re.IGNORECASE)
_AUTHORITY_END = re.compile(r"[/?#]")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?")
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")
# compiled for the first URL that has one, as few do
_IPV4 = r"(?:0|[1-9][0-9]{0,2})(?:\.(?:0|[1-9][0-9]{0,2})){3}"
_PORT = r"[1-9][0-9]{0,4}"


class Target(Struct, frozen=True):
    """A URL that a call wants to reach. There is no fragment.

    Attributes:
        scheme: `http` or `https`.
        host: In lower case, IPv6 without brackets.
        port: The port, that of the scheme if the URL names none.
        path: As it was written; begins with "/".
        query: As it was written; None without "?".
    """

    scheme: str
    host: str
    port: int
    path: str
    query: str | None

    @property
    def origin(self) -> str:
        """Scheme, host and port; a default port is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}"

    @property
    def url(self) -> str:
        """The whole URL."""
        return self.origin + self.path + ("" if self.query is None else f"?{self.query}")


def parse_url(text: str) -> Target:
    """Read an absolute http(s) URL. Raises Malformed, and nothing else, for any other object."""
    if not isinstance(text, str):
        raise Malformed("a URL must be text")
    return _parse_url(str.__str__(text))


@lru_cache(maxsize=16)  # the rules read a text more than once within a step
def _parse_url(text: str) -> Target:
    if len(text) > MAX_URL:
        raise Malformed(f"the URL has {len(text)} characters; at most {MAX_URL} are allowed")
    if not URL_TEXT.fullmatch(text):
        raise Malformed(_bad_character(text))
    scheme = _SCHEME.match(text)
    if scheme is None:
        raise Malformed("a URL must start with http:// or https://")
    end = _AUTHORITY_END.search(text, scheme.end())
    rest_at = end.start() if end else len(text)
    name = scheme.group(1).lower()
    host, port = _authority(text[scheme.end() : rest_at], name)
    path, mark, query = text[rest_at:].partition("#")[0].partition("?")
    target = Target(name, host, port, path or "/", query if mark else None)
    if not path and len(target.url) > MAX_URL:
        raise Malformed(f"the URL with its path has more than {MAX_URL} characters")
    return target


def _bad_character(text: str) -> str:
    if not text:
        return "the URL is empty"
    bad = next(c for c in text if not URL_TEXT.fullmatch(c))
    if bad == "\\":
        return "the URL contains a backslash"
    return f"the URL contains the character U+{ord(bad):04X}; only printable ASCII without spaces is allowed"


def _authority(text: str, scheme: str) -> tuple[str, int]:
    """Return (host, port) of "host", "host:port", "[ipv6]" or "[ipv6]:port"."""
    if "@" in text:
        raise Malformed("the URL contains user information before its host")
    if text.startswith("["):
        inside, closed, after = text[1:].partition("]")
        if not closed or (after and not after.startswith(":")):
            raise Malformed(f"not a host in brackets: {quote_literal(text)}")
        return _ipv6(inside), _port(after[1:] if after else None, scheme)
    host, colon, port = text.partition(":")
    return _host(host.lower()), _port(port if colon else None, scheme)


def parse_host(text: str) -> str:
    """Read a host as it stands in a Target: no brackets, no port. Raises Malformed."""
    if not isinstance(text, str) or not text.isascii():
        raise Malformed("a host must be ASCII text")
    return _ipv6(text) if ":" in text else _host(text.lower())


def _port(text: str | None, scheme: str) -> int:
    if text is None:
        return DEFAULT_PORTS[scheme]
    if not re.fullmatch(_PORT, text) or int(text) > 65535:
        raise Malformed(f"not a port from 1 to 65535 in plain digits: {quote_literal(text)}")
    return int(text)


def _host(text: str) -> str:
    """Check a DNS name or a canonical IPv4 address in lower case, and return it."""
    if not text:
        raise Malformed("the URL has no host")
    if len(text) > 253:
        raise Malformed("the host is longer than 253 characters")
    labels = text.split(".")
    # Resolvers read 0177.1, 0x7f.1 and 2130706433 as addresses; only the one spelling all agree on may pass.
    if _NUMERIC_LABEL.fullmatch(labels[-1]):
        if not re.fullmatch(_IPV4, text) or any(int(label) > 255 for label in labels):
            raise Malformed(f"not a canonical IPv4 address: {quote_literal(text)}")
        return text
    for label in labels:
        if not _LABEL.fullmatch(label):
            raise Malformed(f"not a DNS name of letters, digits and hyphens: {quote_literal(text)}")
    return text


def _ipv6(text: str) -> str:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        raise Malformed(f"not an IPv6 address: {quote_literal(text)}") from None
    if address.ipv4_mapped is not None:
        raise Malformed("the host is an IPv4 address written as IPv6; write the IPv4 address")
    if "%" in text or text.lower() != address.compressed:
        raise Malformed(f"not a canonical IPv6 address without a zone: {quote_literal(text)}")
    return address.compressed


# ---- redirects -------------------------------------------------------------------------------------------

REDIRECTS = frozenset((301, 302, 303, 307, 308))

# compiled for the first redirect
_BEFORE_PATH = r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://[^/?#]*)?"
_ABSOLUTE = r"[A-Za-z][A-Za-z0-9+.-]*:"
_HIGH = "[\x80-\xff]"
# Read as a path by some programs and as an authority by others: "///host", "https:///host", "https:host".
_UNCLEAR = r"(?i)(?:https?:)?//(?:[/?#]|\Z)|https?:(?!//)"


def redirected(base: Target, location: str) -> str:
    """Return the URL that a Location leads to from `base`, for the rules to decide.

    `location` holds a header's octets as Latin-1. Those above ASCII are percent-encoded behind the authority.
    Nothing else is repaired: what is not plain, or has an unclear form, stays as it is, and no rule allows it.
    The text has at most one character more than a URL may have.
    """
    if len(location) > MAX_URL:
        return location[: MAX_URL + 1]
    rest = re.sub(_BEFORE_PATH, "", location, count=1)
    text = location.removesuffix(rest) + re.sub(_HIGH, lambda octet: f"%{ord(octet[0]):02X}", rest)
    if not URL_TEXT.fullmatch(text) or re.match(_UNCLEAR, text):
        return location
    return _joined(base, text)[: MAX_URL + 1]


def _joined(base: Target, reference: str) -> str:
    """Resolve a reference as in RFC 3986, 5.2; `urljoin` drops empty segments and empty queries."""
    if re.match(_ABSOLUTE, reference):
        return reference
    if reference.startswith("//"):
        return f"{base.scheme}:{reference}"
    path, mark, query = reference.partition("#")[0].partition("?")
    if not path:
        return structs.replace(base, query=query if mark else base.query).url
    if not path.startswith("/"):
        path = base.path[: base.path.rindex("/") + 1] + path
    return structs.replace(base, path=_without_dots(path), query=query if mark else None).url


def _without_dots(path: str) -> str:
    """Return a path that begins with "/" without the segments "." and ".."."""
    parts: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            del parts[-1:]
        elif segment != ".":
            parts.append(segment)
    if segments[-1] in (".", ".."):
        parts.append("")
    return "/" + "/".join(parts)


# ---- entries of the allowlist ----------------------------------------------------------------------------


def parse_entry(text: str) -> Target:
    """Read "scheme://host[:port][/path-prefix]", or a bare host: https on port 443. Raises Malformed.

    An entry is the broadest target that it covers: its path covers whole segments, and "/" every path.
    """
    if not isinstance(text, str):
        raise Malformed("an entry must be text")
    if "*" in text:
        raise Malformed("wildcards are not accepted; write one entry for each host")
    if "?" in text or "#" in text:
        raise Malformed("an entry cannot have a query or a fragment; end it with the path")
    if "://" not in text and not re.fullmatch(r"\[[^\]]*\]|[^:/]*", text):
        raise Malformed("an entry with a port or a path needs its scheme; write https:// before it")
    target = parse_url(text if "://" in text else f"https://{text}")
    # most entries are for all that a host has, and the patterns take long to compile
    if target.path != "/" and not unambiguous(target.path):
        odd = "dot, blank or empty segments, ; or encoded separators"
        raise Malformed(f"a path prefix with {odd} covers nothing")
    return target


_OCTET = re.compile(r"%([0-9A-Fa-f]{2})")
_ENCODED_AGAIN = r"%u?[0-9A-Fa-f]{2}"  # %u002e is a dot to some servers
_SEPARATORS = frozenset(b"./\\;")
_MARKS = "./\\;%"
_LIKE_SLASHES = r"\xa5\u20a9\u2044\u2215\u2216"  # code pages of Windows make slashes and backslashes of them
# a segment of dots and blanks alone: a system that cuts blanks off is left with a dot segment, and so is one that
# hands a path on decoded, where ? or # ends it
_HOLLOW = rf"[/{_LIKE_SLASHES}][.\s{CONTROL}{INVISIBLE}{JOINERS}\ufe00-\ufe0f]+(?:[/?#{_LIKE_SLASHES}]|\Z)"


def unambiguous(path: str) -> bool:
    """Return whether every server reads the same segments in a path, however often it decodes it."""
    if ";" in path or "//" in path or re.search(r"%(?![0-9A-Fa-f]{2})", path):
        return False
    octets = {int(digits, 16) for digits in _OCTET.findall(path)}
    if any(octet < 0x20 or octet == 0x7F or octet in _SEPARATORS for octet in octets):
        return False
    try:
        text = unquote_to_bytes(path).decode("utf-8")  # overlong forms of / and . are not UTF-8
    except UnicodeDecodeError:
        return False
    plain = unicodedata.normalize("NFKC", text)  # some servers fold fullwidth forms into / and .
    if any(plain.count(mark) != text.count(mark) for mark in _MARKS):
        return False
    return not (re.search(_ENCODED_AGAIN, plain) or re.search(_HOLLOW, plain))
