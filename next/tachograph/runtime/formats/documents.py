"""Policy and task files: strict YAML, read as typed data, or refused with file, line and the likely word."""

from __future__ import annotations

import difflib
import os
import stat
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from ...fail.errors import InputError, system_reason
from .escape import quote_literal
from .json_pointer import join
from .strict_json import canonical, digest
from .strict_yaml import Document, YamlError, load

T = TypeVar("T")
MAX_BYTES: Final = 1 << 20
_TYPES: Final = {
    "object": "a mapping", "array": "a list", "string": "text; quote it", "integer": "a whole number",
    "number": "a number", "boolean": "true or false", "null": "null",
}  # fmt: skip


class TypedDocument(Generic[T]):
    """A document of a known type.

    Attributes:
        name: What messages and records call its file.
        data: Its data.
        value: The same as typed data.
        digest: SHA-256 of its data in canonical JSON, in which comments, order of keys and layout do not count.
    """

    def __init__(self, name: str, document: Document, kind: type[T], error: type[InputError]) -> None:
        self.name, self.data = name, document.data
        self._document, self._error = document, error
        try:
            self.value = msgspec.convert(self.data, kind)
        except msgspec.ValidationError:
            raise self.error(*_explain(self.data, kind)) from None
        self.digest = digest(canonical(self.data))

    def error(self, pointer: str, message: str, remedy: str = "") -> InputError:
        """Return an error at the place of a JSON Pointer into the document."""
        line, column = self._document.at(pointer)
        return self._error(message, file=self.name, line=line, column=column, remedy=remedy or None)


def read_document(path: str | Path, name: str, kind: type[T], error: type[InputError]) -> TypedDocument[T]:
    """Read a YAML file as typed data.

    Args:
        path: The file.
        name: What messages and records call it.
        kind: The type of its data.
        error: The class of the errors.

    Raises:
        InputError: Of the class given, if the file cannot be read or holds something else.
    """
    try:
        text = read_plain(path, MAX_BYTES)
    except OSError as problem:
        reason = system_reason(problem)
        raise error(
            f"cannot be read ({reason})", file=name, remedy="name an existing file that can be read"
        ) from None
    return parse_document(text, name, kind, error)


def parse_document(text: bytes, name: str, kind: type[T], error: type[InputError]) -> TypedDocument[T]:
    """Read the bytes of a YAML file as typed data; see `read_document`."""
    try:
        document = load(text, name, max_bytes=MAX_BYTES)
    except YamlError as problem:
        raise error(problem.message, file=name, line=problem.line, column=problem.column) from None
    return TypedDocument(name, document, kind, error)


def read_plain(path: str | Path, most: int) -> bytes:
    """Return the bytes of a regular file; of a longer one, the first `most` + 1. Raises OSError."""
    try:
        # opening a FIFO would wait for a writer, and a device may give for ever
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError as problem:
        raise FileNotFoundError(str(problem)) from None
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(0, "no plain file")
        return file.read(most + 1)


def _explain(data: Any, kind: type) -> tuple[str, str, str]:
    """Return pointer, message and remedy for the first thing in which data is not of a type."""
    from jsonschema import Draft202012Validator  # slow to import, and few files come here

    errors = Draft202012Validator(msgspec.json.schema(kind)).iter_errors(data)
    found = [leaf for error in errors for leaf in (error.context or [error])]
    worst = max(found, key=_depth, default=None)
    if worst is None:
        return "", "the file is not of its schema", "compare it with the documentation"
    pointer, limit = join(worst.absolute_path), worst.validator_value
    if worst.validator == "additionalProperties":
        known = sorted(worst.schema.get("properties", {}))
        unknown = next(key for key in worst.instance if key not in known)
        likely = difflib.get_close_matches(unknown, known, 1)
        remedy = f"did you mean {likely[0]!r}?" if likely else f"known keys are {', '.join(known)}"
        return f"{pointer}{join([unknown])}", f"unknown key {quote_literal(unknown)}", remedy
    if worst.validator == "required":
        missing = next(key for key in limit if key not in worst.instance)
        return pointer, f"the key {missing!r} is missing", "add it"
    shown = quote_literal(str(worst.instance))
    if worst.validator == "type":
        return pointer, f"{shown} is not {_TYPES.get(str(limit), str(limit))}", "change the value"
    if worst.validator == "enum":
        likely = difflib.get_close_matches(str(worst.instance), [str(item) for item in limit], 1)
        options = f"did you mean {likely[0]!r}?" if likely else f"use one of {', '.join(map(str, limit))}"
        return pointer, f"{shown} is not accepted here", options
    return pointer, f"{shown} violates {worst.validator} {quote_literal(str(limit))}", "change the value"


def _depth(error: Any) -> tuple[int, bool, str]:
    """Return how much an error says: a deep one the most, and of a key that is misspelt not that it is missing."""
    return len(error.absolute_path), error.validator != "required", str(error.validator)
