"""What an agent's `output_type` may be: a JSON Schema, or a class whose fields are one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...fail.errors import InputError, ToolError
from ..core.lines import Line
from ..models.request_parts import output_schema_of
from ..schema.output_type import OUTPUT_RETRIES as OUTPUT_RETRIES
from ..schema.output_type import OutputType, output_type


def output_of(given: Any, retries: object) -> OutputType | None:
    """Return the type of an agent's final answer; None where it is any text.

    Raises:
        InputError: It has no exact JSON Schema, or is not one that answers can be held against.
    """
    if given is None or isinstance(given, OutputType):
        return given
    if isinstance(given, Mapping):
        return output_type(dict(given), retries)
    from ...adapters.outputs import schema_and_reader  # reads annotations, which most agents do not need

    try:
        schema, read = schema_and_reader(given)
    except ToolError as error:
        raise InputError(f"output_type: {error.message}", remedy=error.remedy) from None
    return output_type(schema, retries, read)


def recorded_output(run: Line) -> OutputType | None:
    """Return the type of the final answer that a run line names; None where it names none."""
    schema = output_schema_of(run)
    return None if schema is None else output_type(schema, run["output"]["retries"])
