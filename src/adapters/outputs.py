"""A class as the type of an agent's final answer: its JSON Schema, and how to make an instance of data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

from ..fail.errors import ToolError
from ..runtime.schema.subschemas import JsonSchema
from .plain_hints import NotPlain, plain_argument
from .schemas import require_module

_LABEL: Final = "output_type"


def schema_and_reader(given: Any) -> tuple[JsonSchema, Callable[[Any], Any]]:
    """Return the schema of a dataclass, TypedDict or pydantic model, and what makes an instance of data that fits.

    Pydantic is imported for what only it can read.

    Raises:
        ToolError: It is no such class, or has no exact JSON Schema.
        InputError: It needs pydantic, which is not installed.
    """
    if not isinstance(given, type) or not _has_fields(given):
        raise ToolError(
            f"{getattr(given, '__name__', type(given).__name__)} is not a class with fields",
            remedy="give a JSON Schema, a dataclass, a TypedDict or a pydantic model",
        )
    try:
        hint = plain_argument(given, {})
        return hint.schema, hint.read
    except NotPlain:
        require_module("pydantic", "pydantic", "functions")
        from .annotations import Argument  # imports pydantic

        argument = Argument(given, _LABEL, given.__name__, {})
        return argument.schema, argument.read


def _has_fields(kind: type) -> bool:
    is_typed_dict = type(kind).__name__ == "_TypedDictMeta"
    return is_typed_dict or dataclasses.is_dataclass(kind) or hasattr(kind, "model_fields")
