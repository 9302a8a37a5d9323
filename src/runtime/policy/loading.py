"""Read policy files: strictly, with the place of every value, and merged in order."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from ...fail.errors import PolicyError, system_reason
from ..formats.document_digest import digest_of_data
from ..formats.escape import quote_literal
from ..formats.json_pointer import escape_pointer
from ..formats.read_file import NotPlain, read_plain
from ..formats.shipped_files import relative_to_root
from ..formats.strict_yaml import Document, YamlError
from ..formats.strict_yaml import load as load_yaml
from .policy import Policy

_MAX_BYTES: Final = 1 << 20


def load_policy(
    kind: type[Policy], path: str | Path, overlays: Iterable[str | Path], root: str | Path | None
) -> Policy:
    """Read and merge policy files; see `Policy.load`."""
    base = Path(root) if root is not None else Path()
    data: dict[str, Any] = {}
    marks: dict[str, tuple[str, int, int]] = {}
    values: dict[str, tuple[str, int, int]] = {}
    files: list[tuple[str, str]] = []
    sources: dict[str, Path] = {}
    for source in (Path(path), *map(Path, overlays)):
        name = relative_to_root(source, base)
        text = _read(source, name)
        document = parse_policy(text, name)
        part_marks = named(document.marks, name)
        digest = digest_of_data(document.data, text)  # of what the file says, before lists are read into it
        sources.update(read_lists(document.data, source, name, part_marks))
        if files:
            _refuse_empty(document.data, part_marks, name)
        _merge(data, document.data, marks, "")
        marks.update(part_marks)
        values = {pointer: place for pointer, place in values.items() if pointer not in part_marks}
        values.update(named(document.values, name))
        files.append((name, digest))
        sources[f"policy {name}"] = source.absolute()
    return kind(data, files=files, sources=sources, marks=marks, values=values)


def read_lists(
    data: dict[str, Any], source: Path, name: str, marks: Mapping[str, tuple[str, int, int]] | None = None
) -> dict[str, Path]:
    """Put lists and the keys of signers that stand in files beside or below the policy into `data`.

    Args:
        data: What a file of a policy says.
        source: That file.
        name: What messages call it.
        marks: The places of its values, for messages.

    Returns:
        The files that were read, by what they are called.

    Raises:
        PolicyError: A list cannot be read.
    """
    sources: dict[str, Path] = {}
    approval = data.get("approval")
    if isinstance(approval, dict) and isinstance(approval.get("signers"), str):
        path, label = _file_beside(approval["signers"], "/approval/signers", source, name, marks)
        keys = _values_in(path, label)
        if not isinstance(keys, dict):
            raise PolicyError(
                "no keys are named", file=label, line=1, remedy="write `NAME: PUBLIC_KEY` lines"
            )
        approval["signers"] = keys
        sources[f"policy signers {label}"] = path.absolute()
    lists = data.get("lists")
    if not isinstance(lists, dict):
        return sources
    for key, entry in lists.items():
        if not isinstance(entry, dict) or not isinstance(entry.get("file"), str) or len(entry) != 1:
            continue
        place = f"/lists/{escape_pointer(key)}/file"
        path, label = _file_beside(entry["file"], place, source, name, marks)
        values = _values_in(path, label)
        if not isinstance(values, list):
            raise PolicyError(
                "a list of values is missing", file=label, line=1, remedy="write `- VALUE` lines"
            )
        lists[key] = values
        sources[f"policy list {label}"] = path.absolute()
    return sources


def _file_beside(
    written: str, place: str, source: Path, name: str, marks: Mapping[str, tuple[str, int, int]] | None
) -> tuple[Path, str]:
    """Return a file that a policy names, and what messages call it. Raises PolicyError for one elsewhere."""
    _, line, column = (marks or {}).get(place, (name, 1, 1))
    if Path(written).is_absolute() or ".." in Path(written).parts:
        raise PolicyError(
            f"a file that a policy names stands beside or below it, and {quote_literal(written)} does not",
            file=name,
            line=line,
            column=column,
            remedy="name it relative to the policy's folder",
        )
    return source.parent / written, f"{name.rpartition('/')[0]}/{written}".lstrip("/")


def _values_in(path: Path, label: str) -> Any:
    """Return what a file says that a policy names. Raises PolicyError."""
    try:
        return load_yaml(_read(path, label), label, max_bytes=_MAX_BYTES).data
    except YamlError as error:
        raise PolicyError(error.message, file=label, line=error.line, column=error.column) from None


def _read(path: Path, name: str) -> bytes:
    try:
        return read_plain(path, _MAX_BYTES)
    except NotPlain:
        raise PolicyError("is not a regular file", file=name, remedy="name a YAML file") from None
    except FileNotFoundError:
        raise PolicyError("no such policy file", file=str(path), remedy="name an existing file") from None
    except OSError as error:
        raise PolicyError(
            f"cannot be read ({system_reason(error)})",
            file=name,
            remedy="check the file's kind and permission",
        ) from None


def parse_policy(text: bytes, name: str) -> Document:
    """Return the document in the text of a policy file, called `name` in messages. Raises PolicyError."""
    try:
        document = load_yaml(text, name, max_bytes=_MAX_BYTES)
    except YamlError as error:
        raise PolicyError(error.message, file=name, line=error.line, column=error.column) from None
    if not isinstance(document.data, dict):
        raise PolicyError(
            "a policy is a mapping of sections", file=name, line=1, column=1, remedy="see policy/README.md"
        )
    return document


def named(places: Mapping[str, tuple[int, int]], name: str) -> dict[str, tuple[str, int, int]]:
    """Return the places of a file with its name."""
    return {pointer: (name, line, column) for pointer, (line, column) in places.items()}


def _refuse_empty(part: dict[str, Any], marks: dict[str, tuple[str, int, int]], name: str) -> None:
    """Refuse an empty overlay or section: it changes nothing and looks as if it did."""
    for pointer, value in [("", part), *((f"/{escape_pointer(key)}", item) for key, item in part.items())]:
        if value == {}:
            _, line, column = marks.get(pointer, (name, 1, 1))
            part_name = "section" if pointer else "overlay"
            raise PolicyError(
                f"an empty {part_name} changes nothing",
                file=name,
                line=line,
                column=column,
                remedy="fill it or remove it",
            )


def _merge(
    into: dict[str, Any], part: dict[str, Any], marks: dict[str, tuple[str, int, int]], prefix: str
) -> None:
    """Merge `part` into `into` and drop the marks of what it replaces."""
    for key, value in part.items():
        pointer = f"{prefix}/{escape_pointer(key)}"
        old = into.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            _merge(old, value, marks, pointer)
            continue
        if key in into:
            for stale in [p for p in marks if p.startswith(pointer + "/")]:
                del marks[stale]
        into[key] = copy.deepcopy(value)  # an alias shares its value, an overlay changes one place
