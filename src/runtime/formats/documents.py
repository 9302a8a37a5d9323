"""Policy and task files: strict YAML, read as typed data, or refused with file, line and the likely word."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from ...fail.errors import InputError, did_you_mean, system_reason
from .escape import quote_literal
from .json_pointer import escape_pointer, join
from .strict_json import canonical, digest
from .strict_yaml import Document, YamlError, load

T = TypeVar("T")
Read = Callable[[str | Path, int], bytes]
"""Returns the bytes of a file, of one longer than a number its beginning. Raises OSError."""
MAX_BYTES: Final = 1 << 20
_MOST_BASES: Final = 8
_MOST_ERRORS: Final = 1_000  # of which one is told; a file may hold as many as lines
_PIECE: Final = 1 << 20
_TYPES: Final = {
    "object": "a mapping", "array": "a list", "string": "text; quote it", "integer": "a whole number",
    "number": "a number", "boolean": "true or false", "null": "null",
}  # fmt: skip
_schema_of: Final = cache(msgspec.json.schema)


class TypedDocument(Generic[T]):
    """A document of a known type, which may be merged from several files.

    Attributes:
        name: What messages and records call its file.
        data: Its data.
        value: The same as typed data.
        digest: SHA-256 of its data in canonical JSON, in which comments, order of keys and layout do not count.
        files: Name and digest of each file that it was merged from, its own last.
        paths: Where these files lie; none for data made in code.
    """

    def __init__(
        self, name: str, document: Document, kind: type[T], error: type[InputError], base: Any = None
    ) -> None:
        self.name, self.data = name, document.data
        self._marks = {pointer: (name, *mark) for pointer, mark in document.marks.items()}
        self._error = error
        self.paths: tuple[Path, ...] = ()
        self.files: tuple[tuple[str, str], ...] = ((name, digest(canonical(document.data))),)
        if base is not None:
            marks = dict(base._marks)
            self.data = _merged(base.data, document.data, "", marks)
            self._marks = {**marks, **self._marks}
            self.files = (*base.files, *self.files)
        try:
            self.value = msgspec.convert(self.data, kind)
        except msgspec.ValidationError:
            raise self.error(*_explain(self.data, kind)) from None
        self.digest = digest(canonical(self.data))

    def error(self, pointer: str, message: str, remedy: str = "") -> InputError:
        """Return an error at the place of a JSON Pointer into the document."""
        file, line, column = self._mark(pointer)
        if line is None and pointer:
            message = f"{message} (at {pointer})"
        return self._error(message, file=file, line=line, column=column, remedy=remedy or None)

    def file_of(self, pointer: str) -> str:
        """Return the file that says what stands at a JSON Pointer, or at the nearest place above it."""
        return self._mark(pointer)[0]

    def _mark(self, pointer: str) -> tuple[str, int | None, int | None]:
        while pointer and pointer not in self._marks:
            pointer = pointer.rpartition("/")[0]
        return self._marks.get(pointer, (self.name, None, None))


def _merged(base: Any, data: Any, pointer: str, marks: dict[str, Any]) -> Any:
    """Return data laid over a base, by key; what is not a mapping replaces, and takes its marks away."""
    if isinstance(base, dict) and isinstance(data, dict):
        return {
            key: _merged(base[key], data[key], f"{pointer}/{escape_pointer(key)}", marks)
            if key in base and key in data
            else data.get(key, base.get(key))
            for key in {**base, **data}
        }
    for place in [place for place in marks if place.startswith(f"{pointer}/")]:
        del marks[place]
    return data


def path_of(given: object, what: str) -> Path:
    """Return a path that a person gave. Raises InputError for what is none."""
    text = os.fsdecode(given) if isinstance(given, str | os.PathLike) else "\0"
    # no folder holds a name of more bytes
    if "\0" in text or max(map(len, text.encode(errors="replace").split(b"/"))) > 255:
        raise InputError(f"{what} is no path: {given!r:.80}", remedy="give the path of a file or folder")
    return Path(text)


def read_plain(path: str | Path, most: int) -> bytes:
    """Return the bytes of a regular file; of a longer one, the first `most` + 1. Raises OSError."""
    try:
        # opening a FIFO would wait for a writer, and a device may give for ever
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError as problem:
        raise FileNotFoundError(str(problem)) from None
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(0, "not a regular file", str(path))
        pieces, size = [], 0
        # a buffer is made for each
        while size <= most and (piece := file.read(min(_PIECE, most + 1 - size))):
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)


def read_document(
    path: Path,
    name: str,
    kind: type[T],
    error: type[InputError],
    *,
    above: tuple[str, ...] = (),
    read: Read = read_plain,
) -> TypedDocument[T]:
    """Read a YAML file as typed data, merged over the file that its key `extends` names, relative to it.

    Args:
        path: The file.
        name: What messages and records call it.
        kind: The type of its data.
        error: The class of the errors.
        above: Where the files say so that extend this one.
        read: What reads it and the files that it extends.

    Raises:
        InputError: Of the class given, if the file cannot be read or holds something else.
    """
    try:
        text = read(path, MAX_BYTES)
    except OSError as problem:
        what = " for ".join([f"cannot be read ({system_reason(problem)})", *above[-1:]])
        raise error(what, file=name, remedy="name an existing file that can be read") from None
    document = parse_document(text, name, error)
    base, data = None, document.data
    if isinstance(data, dict) and "extends" in data:
        extends = data["extends"]
        line, column = document.marks["/extends"]
        if not isinstance(extends, str) or os.path.isabs(extends):  # a record holds no path of the machine
            what = "extends is not a path relative to this file"
            raise error(what, file=name, line=line, column=column, remedy="name one file")
        if len(above) == _MOST_BASES:
            what = "extends a file that extends this one, or too many"
            raise error(what, file=name, line=line, column=column)
        beside = os.path.normpath(os.path.join(os.path.dirname(name), extends))
        above = (*above, f"{name}:{line}:{column}")
        base = read_document(path.parent / extends, beside, kind, error, above=above, read=read)
        document = Document({key: data[key] for key in data if key != "extends"}, document.marks)
    made = TypedDocument(name, document, kind, error, base)
    made.paths = (*(base.paths if base is not None else ()), path.absolute())
    return made


def read_text(text: bytes, name: str, kind: type[T], error: type[InputError]) -> TypedDocument[T]:
    """Read the bytes of a YAML file as typed data. Raises InputError of the class given."""
    return TypedDocument(name, parse_document(text, name, error), kind, error)


def parse_document(text: bytes, name: str, error: type[InputError]) -> Document:
    """Read the bytes of a YAML file. Raises InputError of the class given."""
    try:
        return load(text, MAX_BYTES)
    except YamlError as problem:
        raise error(problem.message, file=name, line=problem.line, column=problem.column) from None


def _explain(data: Any, kind: type) -> tuple[str, str, str]:
    """Return pointer, message and remedy for the first thing in which data is not of a type."""
    from jsonschema import Draft202012Validator  # slow to import, and few files come here

    errors = Draft202012Validator(_schema_of(kind)).iter_errors(data)
    found = [leaf for error in islice(errors, _MOST_ERRORS) for leaf in _likely(error)]
    worst = max(found, key=_depth, default=None)
    if worst is None:
        return "", "the file does not fit its schema", "compare it with the documentation"
    pointer, limit = join(worst.absolute_path), worst.validator_value
    if worst.validator == "additionalProperties":
        unknown = next(key for key in worst.instance if key not in worst.schema.get("properties", {}))
        if unknown == "extends" and not pointer:
            return "/extends", "only a file may extend another one", "write out what that one holds"
        known = sorted({*worst.schema.get("properties", {}), *([] if pointer else ["extends"])})
        remedy = did_you_mean(unknown, known, f"known keys are {', '.join(known)}")
        return f"{pointer}{join([unknown])}", f"unknown key {quote_literal(unknown)}", remedy
    if worst.validator == "required":
        missing = next(key for key in limit if key not in worst.instance)
        return pointer, f"the key {missing!r} is missing", "add it"
    shown = quote_literal(_text(worst.instance))
    examples = [quote_literal(it) for it in worst.schema.get("examples", ())]
    remedy = f"write it such as {' or '.join(examples)}" if examples else "change the value"
    pointer += join([worst.instance]) if "propertyNames" in worst.relative_schema_path else ""
    if worst.validator == "type":
        return pointer, f"{shown} is not {_TYPES.get(str(limit), str(limit))}", remedy
    if pointer == "/schema":
        return pointer, f"the file is one of {shown}", f"a file of {quote_literal(limit[0])} is needed here"
    if worst.validator == "enum":
        options = [_text(item) for item in limit]
        remedy = did_you_mean(_text(worst.instance), options, f"use one of {', '.join(options)}")
        return pointer, f"{shown} is not accepted here", remedy
    return pointer, f"{shown} violates {worst.validator} {quote_literal(_text(limit))}", remedy


def _text(value: Any) -> str:
    """Return a value as people write it in YAML."""
    return value if isinstance(value, str) else canonical(value).decode()


def _likely(of: Any) -> list[Any]:
    """Return what is wrong with data that fits none of several types: with those of its own kind, if there are any."""
    found = of.context or [of]
    return [it for it in found if it.validator not in ("type", "enum") or it.path] or found


def _depth(error: Any) -> tuple[int, int, str]:
    """Return how much an error says: a deep one the most, then a misspelt key, a missing one, and a wrong type."""
    rank = {"type": 0, "required": 1}.get(error.validator, 2)
    return len(error.absolute_path), rank, str(error.validator)
