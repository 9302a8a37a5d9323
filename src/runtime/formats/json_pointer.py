"""JSON Pointers (RFC 6901)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

# no sign, no leading zero (section 4), and no longer than a list is
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")


def escape_pointer(key: str) -> str:
    """Return a key as a token of a pointer."""
    return key.replace("~", "~0").replace("/", "~1") if "~" in key or "/" in key else key


def parse(pointer: str) -> list[str]:
    """Return the keys of a pointer; none for "", the whole document. Raises ValueError if it is not a pointer."""
    first, *tokens = pointer.split("/")
    if first:
        raise ValueError("a pointer begins with /")
    return [token.replace("~1", "/").replace("~0", "~") for token in tokens]


def join(keys: Iterable[str | int]) -> str:
    """Return the pointer that leads through `keys`."""
    return "".join(f"/{escape_pointer(str(key))}" for key in keys)


def get(data: Any, pointer: str) -> Any:
    """Return the value at a pointer. Raises KeyError, IndexError, ValueError or TypeError."""
    for key in parse(pointer):
        if isinstance(data, list) and not _INDEX.fullmatch(key):
            raise ValueError("no index")
        data = data[int(key) if isinstance(data, list) else key]
    return data


def by_index(data: Any, pointer: str) -> str | None:
    """Return a pointer in which entries of lists that are named by their value have their index; None without one."""
    tokens: list[str | int] = []
    for key in parse(pointer):
        if isinstance(data, list):
            index = next((i for i, item in enumerate(data) if _name_of(item, str(i)) == key), None)
            if index is None:
                return None
            data = data[index]
            tokens.append(index)
        else:
            data = data.get(key) if isinstance(data, dict) else None
            tokens.append(key)
    return join(tokens)


def _name_of(item: Any, index: str) -> str:
    """Return what an entry of a list is called: its value, an object's `url`, else its place."""
    if isinstance(item, dict):
        return str(item.get("url", index))
    return index if item is None or isinstance(item, list) else str(item)
