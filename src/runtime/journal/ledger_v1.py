"""Records of schema `ledger/v1`, read as if they had the present schema.

In v1 the model's options stood in the description of the model, and neither the tools that the model was offered nor
any digest of them stood in the ledger: a step of such a record names no `tools`.
"""

from __future__ import annotations

from typing import Any, Final

from ..core.lines import Line
from ..formats.canonical_json import NotJson
from ..models.request_parts import option_set

SCHEMA: Final = "ledger/v1"


def lifted(line: Line) -> Line:
    """Return a line of a v1 ledger in the present shape; its `schema` still says what it was written as.

    A run line of an unknown shape is returned as it is, for whoever uses it to refuse.
    """
    if line.get("schema") != SCHEMA:
        return line
    model, parts = line.get("model"), {}
    if isinstance(model, dict) and isinstance(model.get("options"), dict):
        try:
            parts = {"options": [option_set(model["options"])]}
        except NotJson:
            return line
        model = {key: value for key, value in model.items() if key != "options"}
    out: dict[str, Any] = {**line, "request_parts": parts}
    return {**out, "model": model} if "model" in line else out
