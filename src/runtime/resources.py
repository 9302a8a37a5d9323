"""What rules judge: URLs, mount paths and network addresses, each read once and strictly.

Every function here is pure. Text that two programs could read differently is Malformed, never repaired.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote_to_bytes

MAX_URL = 8192  # characters
MAX_PATH_BYTES = 1024
MAX_PART_BYTES = 255
DEFAULT_PORTS = {"http": 80, "https": 443}

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Malformed(ValueError):
    """Text that names no resource. `reason` is printable ASCII with at most 80 characters of that text.

    `index` is the place of the text in the list it came from, where it came from one.
    """

    def __init__(self, reason: str, index: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.index = index


def _show(text: str) -> str:
    """Untrusted text inside a reason: printable ASCII, at most 80 characters."""
    shown = ascii(text[:76])
    return shown if len(text) <= 76 and len(shown) <= 80 else shown[:76] + "...'"


# ---- URLs ------------------------------------------------------------------------------------------------

_URL_TEXT = re.compile(r"[!-\[\]-~]+")  # printable ASCII without space and backslash
_SCHEME = re.compile(r"(https?)://", re.IGNORECASE)
_AUTHORITY_END = re.compile(r"[/?#]")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?")
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")
_IPV4 = re.compile(r"(?:0|[1-9][0-9]{0,2})(?:\.(?:0|[1-9][0-9]{0,2})){3}")
_PORT = re.compile(r"[1-9][0-9]{0,4}")


@dataclass(frozen=True, slots=True)
class Target:
    """A URL a call wants to reach. `host` is in lower case, IPv6 without brackets; `path` begins with "/".

    `path` and `query` are as they were written; `query` is None without "?". There is no fragment.
    """

    scheme: str
    host: str
    port: int
    path: str
    query: str | None

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}"

    @property
    def url(self) -> str:
        return self.origin + self.path + ("" if self.query is None else f"?{self.query}")


def parse_url(text: str) -> Target:
    """Read an absolute http(s) URL. Raises Malformed, and nothing else, for any other object."""
    if not isinstance(text, str):
        raise Malformed("a URL must be text")
    return _parse_url(str.__str__(text))


@lru_cache(maxsize=16)  # the rules read a text more than once within a step
def _parse_url(text: str) -> Target:
    if len(text) > MAX_URL:
        raise Malformed(f"a URL of {len(text)} characters, at most {MAX_URL} are accepted")
    if not _URL_TEXT.fullmatch(text):
        raise Malformed(_bad_character(text))
    scheme = _SCHEME.match(text)
    if scheme is None:
        raise Malformed("a URL must start with http:// or https://")
    end = _AUTHORITY_END.search(text, scheme.end())
    rest_at = end.start() if end else len(text)
    name = scheme.group(1).lower()
    host, port = _authority(text[scheme.end() : rest_at], name)
    path, mark, query = text[rest_at:].partition("#")[0].partition("?")
    return Target(name, host, port, path or "/", query if mark else None)


def _bad_character(text: str) -> str:
    if not text:
        return "the URL is empty"
    bad = next(c for c in text if not _URL_TEXT.fullmatch(c))
    if bad == "\\":
        return "a URL with a backslash"
    return f"a URL with the character U+{ord(bad):04X}; only printable ASCII without spaces is accepted"


def _authority(text: str, scheme: str) -> tuple[str, int]:
    """(host, port) of "host", "host:port", "[ipv6]" or "[ipv6]:port"."""
    if "@" in text:
        raise Malformed("a URL with user information before its host")
    if text.startswith("["):
        inside, closed, after = text[1:].partition("]")
        if not closed or (after and not after.startswith(":")):
            raise Malformed(f"no host in brackets: {_show(text)}")
        return _ipv6(inside), _port(after[1:] if after else None, scheme)
    host, colon, port = text.partition(":")
    return _host(host.lower()), _port(port if colon else None, scheme)


def _port(text: str | None, scheme: str) -> int:
    if text is None:
        return DEFAULT_PORTS[scheme]
    if not _PORT.fullmatch(text) or int(text) > 65535:
        raise Malformed(f"no port from 1 to 65535 in plain digits: {_show(text)}")
    return int(text)


def _host(text: str) -> str:
    """A DNS name or a canonical IPv4 address, in lower case."""
    if not text:
        raise Malformed("a URL without a host")
    if len(text) > 253:
        raise Malformed("a host longer than 253 characters")
    labels = text.split(".")
    # Resolvers read 0177.1, 0x7f.1 and 2130706433 as addresses; only the one spelling all agree on may pass.
    if _NUMERIC_LABEL.fullmatch(labels[-1]):
        if not _IPV4.fullmatch(text) or any(int(label) > 255 for label in labels):
            raise Malformed(f"no canonical IPv4 address: {_show(text)}")
        return text
    for label in labels:
        if not _LABEL.fullmatch(label):
            raise Malformed(f"no DNS name of letters, digits and hyphens: {_show(text)}")
    return text


def _ipv6(text: str) -> str:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        raise Malformed(f"no IPv6 address: {_show(text)}") from None
    if address.ipv4_mapped is not None:
        raise Malformed("an IPv4 address written as IPv6; write the IPv4 address")
    if "%" in text or text.lower() != address.compressed:
        raise Malformed(f"no canonical IPv6 address without a zone: {_show(text)}")
    return address.compressed


# ---- the allowlist ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of an allowlist. `prefix` begins with "/" and covers whole segments; "/" covers every path."""

    scheme: str
    host: str
    port: int
    prefix: str


def parse_entry(text: str) -> Entry:
    """Read "scheme://host[:port][/path-prefix]", or a bare host: https on port 443. Raises Malformed."""
    if not isinstance(text, str):
        raise Malformed("an entry must be text")
    if "*" in text:
        raise Malformed("wildcards are not accepted; write one entry for each host")
    if "?" in text or "#" in text:
        raise Malformed("an entry has no query and no fragment; end it with the path")
    if "://" not in text and not re.fullmatch(r"\[[^\]]*\]|[^:/]*", text):
        raise Malformed("an entry with a port or a path needs its scheme; write https:// before it")
    target = parse_url(text if "://" in text else f"https://{text}")
    if not _unambiguous(target.path):
        raise Malformed(
            "a path prefix with dot segments, empty segments, ; or encoded separators covers nothing"
        )
    return Entry(target.scheme, target.host, target.port, target.path)


_OCTET = re.compile(r"%([0-9A-Fa-f]{2})")
_DECODINGS = 8
_SEPARATORS = frozenset(b"./\\;")


def _unambiguous(path: str) -> bool:
    """Whether every server reads the same segments in a path, however often it decodes it."""
    if ";" in path or "//" in path or re.search(r"%(?![0-9A-Fa-f]{2})", path):
        return False
    if any(segment in (".", "..") for segment in path.split("/")):
        return False
    for _ in range(_DECODINGS):
        octets = {int(digits, 16) for digits in _OCTET.findall(path)}
        if any(octet < 0x20 or octet == 0x7F or octet in _SEPARATORS for octet in octets):
            return False
        decoded = unquote_to_bytes(path)
        try:
            decoded.decode("utf-8")  # overlong forms of / and . are no UTF-8
        except UnicodeDecodeError:
            return False
        if 0x25 not in octets:
            return True
        path = decoded.decode("utf-8")
    return False


class Allowlist:
    """Entries, found by origin and then by path prefix without a look at the others."""

    def __init__(self, entries: Sequence[str]) -> None:
        """Raises Malformed with `index`, the place of the first bad entry."""
        self._origins: dict[tuple[str, str, int], dict[str, int]] = {}
        self._longest = 0
        self._shadowed: list[tuple[int, int]] = []
        for index, text in enumerate(entries):
            try:
                entry = parse_entry(text)
            except Malformed as error:
                raise Malformed(error.reason, index) from None
            prefixes = self._origins.setdefault((entry.scheme, entry.host, entry.port), {})
            first = prefixes.setdefault(entry.prefix, index)
            if first != index:
                self._shadowed.append((index, first))
            self._longest = max(self._longest, len(entry.prefix))

    def match(self, target: Target) -> int | None:
        """The index of the entry that allows the target: of the longest prefix, then the first; or None."""
        prefixes = self._origins.get((target.scheme, target.host, target.port))
        if prefixes is None:
            return None
        path = target.path
        if prefixes.keys() != {"/"} and _unambiguous(path):
            if path in prefixes:
                return prefixes[path]
            at = path.rfind("/", 0, self._longest + 1)
            while at > 0:
                for candidate in (path[: at + 1], path[:at]):
                    if candidate in prefixes:
                        return prefixes[candidate]
                at = path.rfind("/", 0, at)
        return prefixes.get("/")

    def knows(self, target: Target) -> bool:
        """Whether any entry is of the target's scheme, host and port."""
        return (target.scheme, target.host, target.port) in self._origins

    def shadowed(self) -> list[tuple[int, int]]:
        """(i, j): entry i decides no call, since entry j, an earlier one, reads the same.

        A broader entry shadows nothing: the longer prefix decides the calls it covers.
        """
        return list(self._shadowed)


# ---- mount paths -----------------------------------------------------------------------------------------

_MOUNT = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_SCHEME_LIKE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
# Drawn as nothing, though Unicode counts them as letters, marks or symbols.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


@dataclass(frozen=True, slots=True)
class MountPath:
    """A file below a mount: the mount's name and at least one part."""

    mount: str
    parts: tuple[str, ...]

    @property
    def text(self) -> str:
        return "/".join((self.mount, *self.parts))


def parse_path(text: str) -> MountPath:
    """Read "mount/part/part". Raises Malformed, and nothing else, for any other object."""
    if not isinstance(text, str):
        raise Malformed("a path must be text")
    return _parse_path(str.__str__(text))


@lru_cache(maxsize=16)
def _parse_path(text: str) -> MountPath:
    if len(text) > MAX_PATH_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_PATH_BYTES:
        raise Malformed(f"a path longer than {MAX_PATH_BYTES} bytes")
    if not (text.isascii() and text.isprintable()):
        _refuse_unseen(text)
    if "\\" in text:
        raise Malformed("a path with a backslash; separate its parts with /")
    if text.startswith(("/", "~")) or _SCHEME_LIKE.match(text):
        raise Malformed("a path must start with the name of a mount, as in mount/part")
    if not unicodedata.is_normalized("NFC", text):
        raise Malformed("a path that is not in Unicode NFC")
    mount, *parts = text.split("/")
    if not _MOUNT.fullmatch(mount):
        raise Malformed(f"no name of a mount: {_show(mount)}")
    if not parts:
        raise Malformed("a path must name something below its mount, as in mount/part")
    for part in parts:
        if part in ("", ".", ".."):
            raise Malformed("a path with an empty part, . or ..")
        if len(part.encode()) > MAX_PART_BYTES:
            raise Malformed(f"a part of a path is longer than {MAX_PART_BYTES} bytes")
    return MountPath(mount, tuple(parts))


def _refuse_unseen(text: str) -> None:
    """Raise Malformed for characters that a reader cannot see; printable ASCII has none."""
    for character in text:
        if unicodedata.category(character)[0] == "C" or unicodedata.category(character) in ("Zl", "Zp"):
            raise Malformed(f"a path with the character U+{ord(character):04X}, which cannot be seen")
    if _BLANK.search(text):
        raise Malformed("a path with characters that cannot be seen")


# ---- networks --------------------------------------------------------------------------------------------

# Beside what ipaddress calls not global: it differs between Python releases, and it knows nothing of
# 168.63.129.16, where a cloud answers its own machines at a public address.
_NOT_PUBLIC: tuple[_Network, ...] = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 "
        "192.0.2.0/24 192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 "
        "224.0.0.0/3 168.63.129.16/32 2001::/23 2001:db8::/32 3fff::/20"
    ).split()
)
_UNICAST_V6 = ipaddress.IPv6Network("2000::/3")  # all that is handed out to the public internet
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")


class Networks:
    """Which addresses a call may connect to: public ones, and those inside the networks named."""

    def __init__(self, cidrs: Sequence[str]) -> None:
        """Raises Malformed with `index`, the place of the first text that is no network."""
        named: list[_Network] = []
        for index, text in enumerate(cidrs):
            if not isinstance(text, str) or "/" not in text or "%" in text:
                raise Malformed("a network must be text such as 10.1.0.0/16", index)
            try:
                named.append(ipaddress.ip_network(text))
            except ValueError:
                raise Malformed(f"no network, or bits set behind its prefix: {_show(text)}", index) from None
        self._named = tuple(named)

    def allows(self, address: str) -> bool:
        """Whether a connection to the address is allowed; False for what is no address. Never raises."""
        if not isinstance(address, str) or "%" in address:
            return False
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        if isinstance(parsed, ipaddress.IPv4Address):
            return self._allowed(parsed)
        inside, carried = _embedded(parsed)
        return all(map(self._allowed, inside)) and (carried or self._allowed(parsed))

    def _allowed(self, address: _Address) -> bool:
        return _is_public(address) or any(address in network for network in self._named)


def _embedded(address: ipaddress.IPv6Address) -> tuple[tuple[ipaddress.IPv4Address, ...], bool]:
    """The IPv4 addresses inside an IPv6 one, and whether it is no more than another way to reach them."""
    low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address.ipv4_mapped is not None or address in _NAT64:
        return (low,), True
    if address.sixtofour is not None:
        return (address.sixtofour,), False
    if address.teredo is not None:
        return address.teredo, False
    if address in _COMPATIBLE and int(address) > 1:
        return (low,), False
    return (), False


def _is_public(address: _Address) -> bool:
    if not address.is_global or address.is_multicast or address.is_reserved:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address not in _UNICAST_V6:
        return False
    return not any(address in network for network in _NOT_PUBLIC)
