"""The shape that a final answer must have: whether a text is JSON that fits it, and the value that is made of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from ...fail.errors import InputError, ToolError
from ...light_dataclasses import dataclass, field
from ..formats import canonical_json
from ..formats.canonical_json import NotJson
from .dialect import check_output
from .validator import SchemaValidator, place_of_schema_error

# of corrections that a model is asked for, where nobody says how many
OUTPUT_RETRIES: Final = 2
MAX_RETRIES: Final = 20
_MAX_VALUES: Final = 50_000
_REMEDY: Final = "give the JSON Schema of an object, a dataclass, a TypedDict or a pydantic model"


@dataclass(frozen=True)
class OutputType:
    """What a final answer must be.

    Attributes:
        schema: Canonical text of a JSON Schema.
        retries: How often a model is asked again for an answer that does not fit.
        read: Makes a value of data that fits; None for the data itself.
    """

    schema: str
    retries: int = OUTPUT_RETRIES
    read: Callable[[Any], Any] | None = field(default=None, repr=False, compare=False)

    def mismatch(self, answer: str) -> dict[str, str] | None:
        """Return why an answer does not fit: a problem in words, and the place of a mismatch; None where it fits."""
        try:
            data = canonical_json.parse(answer, most=_MAX_VALUES)
            wrong = _validator(self.schema).mismatch_of_result(data)
        except NotJson as error:
            return {"problem": f"the answer is not JSON alone: {error.reason}"}
        except Exception as error:  # noqa: BLE001 - a schema that cannot be applied accepts nothing
            return {
                "problem": "the answer could not be held against the schema",
                "exception": type(error).__name__,
            }
        if wrong is None:
            return None
        place = {"pointer": wrong.pointer, "keyword": wrong.keyword, "limit": wrong.limit}
        return {"problem": "the answer does not fit the schema", **place}

    def value(self, answer: str) -> Any:
        """Return the value of an answer that fits. Raises InputError where the type itself refuses the data."""
        data = canonical_json.parse(answer, most=_MAX_VALUES).value()
        if self.read is None:
            return data
        try:
            return self.read(data)
        except Exception as error:  # foreign code: a class may demand more than its schema says
            raise InputError(
                f"the answer fits the schema, but its type refuses it ({type(error).__name__})",
                remedy="put the demand into the schema, or read result.answer",
            ) from error


@lru_cache(maxsize=64)
def _validator(schema: str) -> SchemaValidator:
    return SchemaValidator(json.loads(schema))


def output_type(
    schema: object, retries: object = OUTPUT_RETRIES, read: Callable[[Any], Any] | None = None
) -> OutputType:
    """Return the type of an answer by its JSON Schema.

    Raises:
        InputError: The schema is not one of an object, or is not supported; or `retries` is no number of retries.
    """
    if type(retries) is not int or not 0 <= retries <= MAX_RETRIES:
        raise InputError(f"output_retries must be a whole number from 0 to {MAX_RETRIES}", remedy="such as 2")
    try:
        text = canonical_json.encode(schema)
    except NotJson as error:
        raise InputError(f"output_type is not JSON: {error.reason}", remedy=_REMEDY) from None
    plain = json.loads(text)
    if not isinstance(plain, dict) or plain.get("type") != "object":
        raise InputError(
            'output_type is not the schema of an object: it lacks "type": "object"', remedy=_REMEDY
        )
    place = place_of_schema_error(plain)
    if place is not None:
        raise InputError(
            f"output_type is not a valid schema at {place[0]} ({place[1]})", remedy="fix the schema"
        )
    try:
        check_output(plain, "output_type")
        _validator(text)
    except ToolError as error:
        raise InputError(f"output_type: {error.message}", remedy=error.remedy) from None
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"output_type cannot be compiled ({type(error).__name__})", remedy="fix the schema"
        ) from None
    return OutputType(text, retries, read)
