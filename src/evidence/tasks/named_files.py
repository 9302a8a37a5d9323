"""The files and folders that a task names: all of them lie inside its project."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...fail.errors import CorpusError, InputError, system_reason
from ...runtime.formats import canonical_json
from ...runtime.formats.canonical_json import NotJson, digest
from ...runtime.formats.escape import quote_literal
from ...runtime.formats.read_file import NotPlain, read_plain
from ...runtime.formats.shipped_files import relative_to_root
from ...runtime.policy.policy import Policy
from ...runtime.schema.output_type import OUTPUT_RETRIES, OutputType, output_type
from ...runtime.setup.opening import check_template
from ...runtime.tools.hooks import Hooks, load_hooks

if TYPE_CHECKING:
    from .task import Task

_MAX_TEXT: Final = 1 << 20


def policy_of(task: Task) -> Policy:
    """Return the policy that a task names, overlays included. Raises InputError for one that cannot be loaded."""
    source = task.data["policy"]
    files = [path_inside(task, source["file"], "/policy/file")]
    for i, overlay in enumerate(source.get("overlays", ())):
        files.append(path_inside(task, overlay, f"/policy/overlays/{i}"))
    for pointer, file in zip(
        ["/policy/file", *(f"/policy/overlays/{i}" for i in range(len(files)))], files, strict=False
    ):
        if not file.is_file():
            raise task.error(pointer, "no such policy file", "name a file under policy/")
    return _load_policy(task.root, tuple(files), tuple(_bytes_of(file) for file in files))


@lru_cache(maxsize=64)
def _load_policy(root: Path, files: tuple[Path, ...], _contents: tuple[bytes | None, ...]) -> Policy:
    """Load a policy once for all tasks that name the same files, as long as their contents stay the same."""
    return Policy.load(files[0], files[1:], root=root)


def _bytes_of(file: Path) -> bytes | None:
    try:
        return read_plain(file, 1 << 20)
    except OSError:
        return None  # the loader reports what is wrong


def instructions_of(task: Task) -> tuple[str | None, dict[str, str] | None]:
    """Return the instructions of a task, and path and digest of the file that they are from, if they are from one.

    Raises:
        TaskError: The file cannot be read, or holds no text.
    """
    given = task.data.get("instructions")
    if given is None or isinstance(given, str):
        _check(task, "/instructions", given)
        return given, None
    text, file = _text_of(task, given["file"], "/instructions/file")
    _check(task, "/instructions/file", text)
    return text, file


def output_of(task: Task) -> tuple[OutputType | None, dict[str, str] | None]:
    """Return what a task says of the final answer, and path and digest of the file that its schema is from, if one is.

    The first is None where the answer is any text.

    Raises:
        TaskError: The file cannot be read, or the schema is not one that answers can be held against.
    """
    if "output_schema" not in task.data:
        return None, None
    schema, file = task.data["output_schema"], None
    pointer = "/output_schema"
    if schema.keys() == {"file"}:
        pointer = "/output_schema/file"
        text, file = _text_of(task, schema["file"], pointer)
        try:
            schema = canonical_json.parse(text).value()
        except NotJson as error:
            raise task.error(pointer, f"is not JSON: {error.reason}", "name a JSON Schema in JSON") from None
    try:
        return output_type(schema, task.data.get("output_retries", OUTPUT_RETRIES)), file
    except InputError as error:
        raise task.error(pointer, error.message, error.remedy) from None


def _text_of(task: Task, place: str, pointer: str) -> tuple[str, dict[str, str]]:
    """Return the text of a file that a task names at `pointer`, and its path and digest. Raises TaskError."""
    path = path_inside(task, place, pointer)
    try:
        data = read_plain(path, _MAX_TEXT)
        text = data.decode("utf-8")
    except (OSError, NotPlain):
        raise task.error(pointer, "cannot be read", "name a text file of the project") from None
    except UnicodeDecodeError:
        raise task.error(pointer, "is not UTF-8 text", "save it as UTF-8") from None
    return text, {"path": relative_to_root(path, task.root), "sha256": digest(data)}


def _check(task: Task, pointer: str, text: str | None) -> None:
    try:
        if text is not None:
            check_template(text)
    except InputError as error:
        raise task.error(pointer, error.message, error.remedy) from None


def path_inside(task: Task, place: str, pointer: str) -> Path:
    """Return the path that a task names at `pointer`. Raises InputError for one outside the project."""
    try:
        path = (task.root / place).resolve()
        path.exists()
    except PermissionError as error:
        reason = system_reason(error)
        raise task.error(
            pointer, f"{place!r} cannot be read ({reason})", "check the permissions of its folders"
        ) from None
    except (OSError, RuntimeError, ValueError):
        raise task.error(pointer, "is not a usable path", "use a path below the project's root") from None
    if not path.is_relative_to(task.root.resolve()):
        raise task.error(pointer, "is outside the project", "use a path below the project's root")
    return path


def folder_inside(task: Task, place: str, pointer: str) -> Path:
    """Return the folder that a task names at `pointer`. Raises InputError for one that does not exist."""
    path = path_inside(task, place, pointer)
    if not path.is_dir():
        line, column = task.document.at(pointer)
        raise CorpusError(
            f"there is no folder {quote_literal(place)}",
            file=task.file,
            line=line,
            column=column,
            remedy="name an existing folder",
        )
    return path


def hooks_of(task: Task) -> tuple[Hooks, ...]:
    """Return the hooks in the file that a task names, none where it names none. Raises InputError."""
    if "hooks" not in task.data:
        return ()
    place = str(task.data["hooks"])
    path = path_inside(task, place, "/hooks")
    if not path.is_file():
        raise task.error("/hooks", f"there is no file {quote_literal(place)}", "name a file with hooks")
    return (load_hooks(path, relative_to_root(path, task.root)),)
