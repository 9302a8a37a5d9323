"""The type of an agent's final answer: whether a text is JSON of this type, and the value that is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...fail.errors import InputError, TachographError
from ..formats import strict_json
from ..formats.escape import quote_untrusted
from .validator import validator_of

_BEGIN, _END = "```json\n", "\n```"


class AnswerMismatch(TachographError, ValueError):
    """An answer that is not of its type.

    Attributes:
        pointer: JSON Pointer into the answer; "" for the answer as a whole.
        reason: A few words of ours, or what the type itself says; that enters no record.
    """

    def __init__(self, pointer: str, reason: str) -> None:
        self.pointer, self.reason = pointer, reason
        super().__init__(f"{quote_untrusted(pointer)} {reason}" if pointer else reason)


class AnswerType:
    """What a final answer must be.

    Args:
        kind: The JSON Schema of an object; a dataclass, TypedDict, msgspec Struct or pydantic model; or any other type
            that has a JSON form: such an answer is the property `result` of an object.

    Attributes:
        schema: The JSON Schema of the answer.

    Raises:
        InputError: It has no exact JSON Schema.
    """

    def __init__(self, kind: Any) -> None:
        problems: list[str] = []
        self._kind, schema, self._is_wrapped = Any, kind, False
        if not isinstance(kind, Mapping):
            from .python_types import result_schema  # few runs come here

            self._kind = kind
            schema, self._is_wrapped = result_schema(kind, "validation", problems)
        try:
            self.schema: dict[str, Any] = strict_json.as_json(dict(schema))
            self._validator = validator_of(strict_json.canonical(self.schema))
        except ValueError as error:
            problems.append(str(error))
        if schema.get("type") != "object":
            problems.append("a schema that is not that of an object")
        if problems:
            raise InputError(f"the type of the answer: {'; '.join(problems)}", remedy="give another type")

    def data(self, text: str) -> dict[str, Any]:
        """Return an answer as plain data that fits the schema; code of the type does not run.

        Raises:
            AnswerMismatch: It is not JSON alone, but for one surrounding fence, or does not fit the schema.
        """
        text = text.strip()
        if text.startswith(_BEGIN) and text.endswith(_END):
            text = text[len(_BEGIN) : -len(_END)]
        try:
            data = strict_json.parse(text, most=50_000)
        except strict_json.NotJson as error:
            raise AnswerMismatch("", f"is not JSON alone: {error.reason}") from None
        wrong = self._validator.first_mismatch(data)
        if wrong is not None:
            raise AnswerMismatch(wrong.pointer, f"violates {wrong.keyword} {wrong.limit}".rstrip())
        return data  # type: ignore[no-any-return]

    def read(self, text: str) -> Any:
        """Return an answer as a value of the type; plain data where a schema was given.

        Raises:
            AnswerMismatch: As of `data`, or code of the type refuses what fits its schema.
        """
        from .python_types import plain_type, read_as

        data = self.data(text)
        try:
            return read_as(plain_type(self._kind), data["result"] if self._is_wrapped else data)
        except Exception as error:  # noqa: BLE001 - code of the type runs here
            raise AnswerMismatch("", f"is refused by its type: {' '.join(str(error).split())}") from None

    def instructions(self) -> str:
        """Return what tells a model the shape of the answer, where its service takes no schema."""
        text = "Give the final answer as JSON, with nothing before or after it, that fits this JSON Schema: "
        return text + strict_json.canonical(self.schema).decode()
