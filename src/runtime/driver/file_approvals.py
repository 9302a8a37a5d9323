"""Questions to a person that are put and answered in files: one file a question, in a folder.

A file is JSON in the shape of `QUESTION`. Whoever answers writes `allow` or `deny` into `answer`, and may say
in `by` and `why` who and why. The file's name holds the run, the place of the call and the digest of the
question, so that an answer to another call, or under another policy, is another file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ...fail.errors import InputError, OutputError
from ..core.clock import nap, stopwatch
from ..core.effects import Answer, ApprovalAnswer, AskHuman
from ..formats.canonical_json import NotJson, parse
from ..formats.read_file import NotPlain, read_plain

SCHEMA: Final = "approval/v1"
_MAX_BYTES: Final = 16 << 20
_SAID: Final = ("allow", "deny")
_OPEN: Final = ("answer", "by", "why")


class ByFile:
    """Asks by a file in `folder` and waits for its answer, for as long as the policy says.

    To be given as `approve` to a run. `tell` gets the path of each question. `poll_s` is how often the file
    is looked at, in seconds. A file that is no answer is waited on; silence refuses the call.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        poll_s: float = 0.25,
        tell: Callable[[Path, AskHuman], None] | None = None,
    ) -> None:
        self._folder = Path(folder)
        self._poll_s = poll_s
        self._tell = tell

    @property
    def guarded(self) -> dict[str, Path]:
        """What no folder that a run writes may hold, by what messages call it: what is written there would answer."""
        return {"the answers of a person": self._folder / "answer.json"}

    def __call__(self, asked: AskHuman) -> Answer | None:
        """Put the question into a file and wait for the answer in it; None if it does not come in time."""
        path = self._folder / f"{asked.run_id}.{asked.step}.{asked.index}.{asked.digest[:12]}.json"
        begun = stopwatch()
        if not path.exists():
            _write(path, question(asked), new=True)
        if self._tell is not None:
            self._tell(path, asked)
        while True:
            said = _answer_in(path, asked)
            left = asked.timeout_s - (stopwatch() - begun)
            if said is not None or left <= 0:
                return said
            nap(min(self._poll_s, left))


def question(asked: AskHuman) -> dict[str, Any]:
    """Return the question to a person as plain data, with room for the answer."""
    return {
        "schema": SCHEMA,
        "digest": asked.digest,
        "run_id": asked.run_id,
        "step": asked.step,
        "call": asked.index,
        "tool": asked.call.name,
        "arguments": None if asked.call.arguments is None else asked.call.arguments.value(),
        "reason": asked.reason,
        "at": asked.at,
        "policy": asked.policy,
        "timeout_s": asked.timeout_s,
        **({} if asked.nonce is None else {"nonce": asked.nonce}),
        "answer": None,
        "by": None,
        "why": None,
    }


def read_question(path: Path) -> dict[str, Any]:
    """Read the file of a question. Raises InputError for anything else."""
    try:
        text = read_plain(path, _MAX_BYTES)
        if len(text) > _MAX_BYTES:
            raise NotPlain(f"longer than {_MAX_BYTES >> 20} MiB")
        data = parse(text.decode("utf-8")).value()
    except (OSError, UnicodeDecodeError, NotJson) as error:
        what = "no such file" if isinstance(error, FileNotFoundError) else _words(error)
        raise InputError(f"cannot be read as a question ({what})", file=str(path), remedy=_REMEDY) from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("digest"), str):
        raise InputError("is no question to a person", file=str(path), remedy=_REMEDY)
    return data


def _words(error: Exception) -> str:
    if isinstance(error, NotJson):
        return error.reason
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return getattr(error, "strerror", None) or str(error)


_REMEDY: Final = "name a file that `tachograph run --approve FOLDER` wrote"


def answer_file(path: Path, answer: str, by: str | None, why: str | None) -> dict[str, Any]:
    """Write an answer into a question's file, whole or not at all. Raises InputError where it has one."""
    data = read_question(path)
    if data.get("answer") is not None:
        raise InputError(
            f"is answered already: {str(data['answer'])[:20]!r}",
            file=str(path),
            remedy="a question is answered once",
        )
    _write(path, {**data, "answer": answer, "by": by, "why": why})
    return data


def _answer_in(path: Path, asked: AskHuman) -> Answer | None:
    """Return the answer in a file; None if there is none yet, as while somebody edits it."""
    try:
        data = read_question(path)
    except InputError:
        return None
    if data.get("answer") not in _SAID:
        return None
    given = {key: value for key, value in data.items() if key not in _OPEN}
    if given != {key: value for key, value in question(asked).items() if key not in _OPEN}:
        return Answer("deny", why="the question in the file was changed", digest=asked.digest)
    by, why = (data.get(key) if isinstance(data.get(key), str) else None for key in ("by", "why"))
    return Answer(ApprovalAnswer(data["answer"]), by, why, asked.digest)


def _write(path: Path, data: dict[str, Any], *, new: bool = False) -> None:
    """Write a file that only its owner can read, as a whole or not at all."""
    text = json.dumps(data, indent=2, ensure_ascii=True) + "\n"
    made = path.with_name(f".{path.name}.tmp")
    try:
        if new:
            path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(fd, "w", encoding="ascii") as file:
            file.write(text)
        os.replace(made, path)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise OutputError(
            f"{path}: the question cannot be written ({why}); name a folder that can be"
        ) from error
