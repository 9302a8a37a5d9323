"""The defaults that a schema gives to what is absent."""

from __future__ import annotations

import copy
from typing import Any


def fill_in(value: Any, schema: Any) -> None:
    """Put the defaults of declared properties into a value where they are absent."""
    if not isinstance(value, dict) or not isinstance(schema, dict):
        return
    for name, part in schema.get("properties", {}).items():
        if isinstance(part, dict):
            if name not in value and "default" in part:
                value[name] = copy.deepcopy(part["default"])
            fill_in(value.get(name), part)
