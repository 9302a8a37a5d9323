"""Where a redirect leads: a Location header joined to the URL that it came from, without repair."""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import replace

from .url import MAX_URL, URL_TEXT, Target

REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))

_BEFORE_PATH: Final = r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://[^/?#]*)?"
_ABSOLUTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_HIGH: Final = re.compile("[\x80-\xff]")
# Read as a path by some programs and as an authority by others: "///host", "https:///host", "https:host".
_UNCLEAR: Final = r"(?i)(?:https?:)?//(?:[/?#]|\Z)|https?:(?!//)"


def redirected(base: Target, location: str) -> str:
    """Return the URL that a Location leads to from `base`, for the rules to decide.

    `location` holds a header's octets as Latin-1. Those above ASCII are percent-encoded behind the authority.
    Nothing else is repaired: what is not plain, or has an unclear form, stays as it is, and no rule allows it.
    The text has at most one character more than a URL may have.
    """
    if len(location) > MAX_URL:
        return location[: MAX_URL + 1]
    before = re.match(_BEFORE_PATH, location)
    assert before is not None  # the pattern matches nothing, too
    at = before.end()
    text = location[:at] + _HIGH.sub(lambda octet: f"%{ord(octet[0]):02X}", location[at:])
    if not URL_TEXT.fullmatch(text) or re.match(_UNCLEAR, text):
        return location
    return _joined(base, text)[: MAX_URL + 1]


def _joined(base: Target, reference: str) -> str:
    """Resolve a reference as in RFC 3986, 5.2; `urljoin` drops empty segments and empty queries."""
    if _ABSOLUTE.match(reference):
        return reference
    if reference.startswith("//"):
        return f"{base.scheme}:{reference}"
    path, mark, query = reference.partition("#")[0].partition("?")
    if not path:
        return replace(base, query=query if mark else base.query).url
    if not path.startswith("/"):
        path = base.path[: base.path.rindex("/") + 1] + path
    return replace(base, path=_without_dots(path), query=query if mark else None).url


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
