"""The digest of a YAML document by what it says, in which comments, order of keys and layout do not count."""

from __future__ import annotations

from typing import Any, Final, NotRequired, TypedDict

from . import canonical_json
from .strict_yaml import YamlError, load

_MAX_BYTES: Final = 8 << 20


class RunInput(TypedDict):
    """One input, as the manifest names it."""

    path: str
    sha256: str
    canonical: NotRequired[bool]


def digest_of_data(data: Any, text: bytes) -> str:
    """Return SHA-256 of parsed data in canonical JSON; of the bytes `text` where that is no JSON data."""
    try:
        return canonical_json.digest(canonical_json.encode(data))
    except canonical_json.NotJson:
        return canonical_json.digest(text)


def digest_of_document(text: bytes) -> str:
    """Return SHA-256 of a document's data in canonical JSON; of its bytes where it cannot be read."""
    try:
        return digest_of_data(load(text, "", max_bytes=_MAX_BYTES).data, text)
    except YamlError:
        return canonical_json.digest(text)
