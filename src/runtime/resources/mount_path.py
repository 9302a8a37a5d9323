"""Mount paths: `mount/part/part`, read once and strictly.

Pure. Text that two programs could read differently, or two people as the same, is Malformed, never repaired.
The verdict is the same on every Python: no table of the interpreter's own version of Unicode is asked.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from unicodedata import ucd_3_2_0 as unicode_3_2

from msgspec import Struct

from ..formats.escape import quote_literal
from ..formats.invisible_chars import CONTROL, EMOJI, ENCLOSING, INVISIBLE, JOINERS, PRIVATE, STRAY
from .url import Malformed

MAX_PATH_BYTES: Final = 1024
MAX_PART_BYTES: Final = 255

_MOUNT = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_SCHEME_LIKE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_UNSEEN = f"[{CONTROL}{INVISIBLE}{ENCLOSING}{PRIVATE}\ufe00-\ufe0d]"
# Joiners shape the letters of these scripts and put emoji together, and selectors choose how an emoji is drawn.
# Anywhere else, at an end and twice in a row they only make two names look like one.
_JOINED = r"\u0600-\u109f\u1700-\u1cff\ua800-\ua95f\ua980-\uab2f\uabc0-\uabff\U00010a00-\U00011fff\U0001e900-\U0001e95f"
_STRAY = rf"(?<![{_JOINED}{EMOJI}\ufe0f])[{JOINERS}]|[{JOINERS}](?![{_JOINED}{EMOJI}])|[\ufe0e\ufe0f]{STRAY}"
# the file that a write goes to before it is renamed: never a finished file
TEMPORARY = re.compile(r"\.tachograph-[0-9]+-[0-9]+\.tmp")


class MountPath(Struct, frozen=True):
    """A file below a mount.

    Attributes:
        mount: The mount's name.
        parts: The names below it, at least one.
        text: The path as it was read.
    """

    mount: str
    parts: tuple[str, ...]
    text: str


def parse_path(text: str) -> MountPath:
    """Read "mount/part/part". Raises Malformed, and nothing else, for any other object."""
    if not isinstance(text, str):
        raise Malformed("a path must be text")
    return _parse_path(str.__str__(text))


@lru_cache(maxsize=16)  # the rules read a text more than once within a step
def _parse_path(text: str) -> MountPath:
    if len(text) > MAX_PATH_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_PATH_BYTES:
        raise Malformed(f"the path is longer than {MAX_PATH_BYTES} bytes")
    if not (text.isascii() and text.isprintable()):
        unseen = re.search(_UNSEEN, text) or re.search(_STRAY, text)
        if unseen is not None:
            raise Malformed(f"the path contains the invisible character U+{ord(unseen[0]):04X}")
    if "\\" in text:
        raise Malformed("the path contains a backslash; separate its parts with /")
    if text.startswith(("/", "~")) or (":" in text and _SCHEME_LIKE.match(text)):
        raise Malformed("a path must start with the name of a mount, as in mount/part")
    if not _is_composed(text):
        raise Malformed("the path is not in Unicode NFC")
    mount, *parts = text.split("/")
    if not _MOUNT.fullmatch(mount):
        raise Malformed(f"not a mount name: {quote_literal(mount)}")
    if not parts:
        raise Malformed("a path must name something below its mount, as in mount/part")
    for part in parts:
        if part in ("", ".", ".."):
            raise Malformed("the path has a part that is empty, . or ..")
        if len(part.encode()) > MAX_PART_BYTES:
            raise Malformed(f"a part of the path is longer than {MAX_PART_BYTES} bytes")
        if part[0] == "." and TEMPORARY.fullmatch(part):
            raise Malformed("the path names the temporary file of an unfinished write")
    return MountPath(mount, tuple(parts), text)


def _is_composed(text: str) -> bool:
    """Return whether text is in NFC, as far as Unicode 3.2 knows its characters.

    Newer characters are replaced by "0", which composes with nothing: for them the 3.2 tables would give the
    answer of the interpreter's own version.
    """
    if text.isascii():
        return True
    known = "".join("0" if unicode_3_2.category(c) == "Cn" else c for c in text)
    return unicode_3_2.is_normalized("NFC", known)
