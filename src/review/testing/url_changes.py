"""Entries of a URL allowlist that differ a little from an entry: a wider path, another method."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from ...runtime.resources.http_methods import METHODS, UrlEntry, methods_of, url_text
from ...runtime.resources.url import Entry, Malformed, parse_entry


@lru_cache(maxsize=1 << 16)
def _read(text: str) -> tuple[str, Entry] | None:
    """Return the origin of an entry as written, and the parsed entry; None for a malformed one."""
    try:
        entry = parse_entry(text)
    except Malformed:
        return None
    url = text if "://" in text else f"https://{text}"
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}", entry


def wider_entries(text: str) -> list[str]:
    """Return entries for the parent path and for the whole host; none for an entry of a whole host."""
    parsed = _read(text)
    if parsed is None or parsed[1].prefix == "/":
        return []
    origin, entry = parsed
    above = entry.prefix.rstrip("/").rpartition("/")[0]
    return [origin + above, origin] if above else [origin]


def other_methods(item: UrlEntry) -> Iterator[tuple[list[str], str]]:
    """Yield the methods of an entry with one less and with one more, and what is done; none if it names none."""
    if isinstance(item, str):
        return
    named = list(methods_of(item))
    for method in named if len(named) > 1 else ():
        yield [other for other in named if other != method], f"without {method}"
    for method in METHODS:
        if method not in named:
            yield [*named, method], f"with {method}"


def covers(wider: UrlEntry, item: UrlEntry) -> bool:
    """Return whether an entry allows whatever another one does."""
    one, other = _read(url_text(wider)), _read(url_text(item))
    if one is None or other is None or not set(methods_of(item)) <= set(methods_of(wider)):
        return False
    wide, narrow = one[1], other[1]
    same = (wide.scheme, wide.host, wide.port) == (narrow.scheme, narrow.host, narrow.port)
    return same and (narrow.prefix + "/").startswith(wide.prefix.rstrip("/") + "/")
