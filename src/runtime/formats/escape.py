"""Text of others, made safe to show: inside our sentences, at a terminal, in Markdown."""

from __future__ import annotations

from .invisible_chars import HIDDEN


def shown(text: str) -> str:
    """Untrusted text inside a reason: printable ASCII, at most 80 characters."""
    out = ascii(text[:76])
    return out if len(text) <= 76 and len(out) <= 80 else out[:76] + "...'"


def printable(text: str, limit: int = 120) -> str:
    """Foreign text inside a sentence of ours: printable ASCII, quoted, cut at `limit`."""
    short = text if len(text) <= limit else text[: limit - 3] + "..."
    plain = short.encode("ascii", "backslashreplace").decode("ascii").replace('"', "'")
    if not plain.isprintable():
        plain = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in plain)
    return f'"{plain}"'


def inert(text: str) -> str:
    """A foreign name inside an error: every such character as an escape."""
    return HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
