"""Questions to a person that are put and answered in files: one file a question, in a folder.

A file is JSON in the shape of `QUESTION`. Whoever answers writes `allow` or `deny` into `answer`, and may say
in `by` and `why` who and why. The file's name holds the run, the place of the call and the digest of the
question, so that an answer to another call, or under another policy, is another file.

A question waits until `until`, on the system clock. Its answer is taken once: from then on it is closed
(`answer_folder`). A run that is resumed waits on for a question that is open, and else asks anew, in `NAME.2.json`:
also where it ended after the answer was taken and before that was in its journal, so that no answer serves twice.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Final

from ...fail.errors import InputError, OutputError
from ..core.clock import epoch_ns, iso_of, nap, stopwatch, time_ns, wall_now
from ..core.effects import Answer, ApprovalAnswer, AskHuman
from ..core.stopping import IS_OVER
from ..formats.canonical_json import NotJson, parse
from ..formats.read_file import NotPlain, read_plain
from ..policy.signers import signed_text
from .answer_folder import alone_in, close, closed_as, write_whole

SCHEMA: Final = "approval/v1"
_MAX_BYTES: Final = 16 << 20
_SAID: Final = ("allow", "deny")
_OPEN: Final = ("answer", "by", "why", "signature")


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
        begun = stopwatch()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise OutputError(
                f"{self._folder}: the question cannot be written ({why}); name a folder that can be"
            ) from error
        path, put = self._put(asked)
        if self._tell is not None:
            self._tell(path, asked)
        while True:
            left = asked.timeout_s - (stopwatch() - begun)
            said, is_over = _take(path, put, asked, is_late=left <= 0)
            if is_over:
                return said
            nap(min(self._poll_s, left))

    def _put(self, asked: AskHuman) -> tuple[Path, dict[str, Any]]:
        """Put the question, or find it where it is still open, as where the run was resumed; return file and data."""
        name = f"{asked.run_id}.{asked.step}.{asked.index}.{asked.digest[:12]}"
        with alone_in(self._folder):
            for number in count(1):
                path = self._folder / (f"{name}.json" if number == 1 else f"{name}.{number}.json")
                if closed_as(path) is not None:
                    continue
                if not os.path.lexists(path):
                    until = iso_of(time_ns() + asked.timeout_s * 1_000_000_000)
                    put = {**question(asked), "until": until}
                    write_whole(path, put)
                    return path, put
                with contextlib.suppress(InputError):
                    waits = read_question(path).get("until")
                    if not _is_past(waits) and not _is_beyond(waits, asked.timeout_s):
                        return path, {**question(asked), "until": waits}
                close(path, "expired", wall_now())
        raise AssertionError("there is always a further number")


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


def answer_file(
    path: Path,
    answer: str,
    by: str | None,
    why: str | None,
    sign: Callable[[bytes], str] | None = None,
) -> dict[str, Any]:
    """Write an answer into a question's file, whole or not at all; return the question.

    Args:
        path: The file.
        answer: `allow` or `deny`.
        by: Who answers.
        why: The reason.
        sign: Returns the signature of some bytes in hexadecimal digits; without it the answer is not signed.

    Raises:
        InputError: It has an answer, or it is closed, or its time is over.
    """
    read_question(path)
    with alone_in(path.parent):
        data = read_question(path)
        if data.get("answer") is not None:
            raise InputError(
                f"is answered already: {str(data['answer'])[:20]!r}",
                file=str(path),
                remedy="a question is answered once",
            )
        closed = closed_as(path)
        if closed is not None or ("until" in data and _is_past(data["until"])):
            raise InputError(
                f"is no longer open ({closed or 'expired'})",
                file=str(path),
                remedy="answer the question that the run asks anew, if it goes on",
            )
        signature = {} if sign is None else {"signature": sign(signed_text(answer, data["digest"]))}
        write_whole(path, {**data, "answer": answer, "by": by, "why": why, **signature})
    return data


def _take(path: Path, put: dict[str, Any], asked: AskHuman, *, is_late: bool) -> tuple[Answer | None, bool]:
    """Take the answer in a file, once; return it, None if there is none, and whether the question is closed now.

    A file that is no question is waited on: somebody may be editing it.
    """
    with alone_in(path.parent):
        if IS_OVER.get()():
            return None, True  # the question stays open: a run that is resumed finds it
        if closed_as(path) is not None:
            return Answer("deny", why="the answer in the file was taken already", digest=asked.digest), True
        if is_late or _is_past(put["until"]):
            close(path, "expired", wall_now())
            return None, True
        try:
            data = read_question(path)
        except InputError:
            return None, False
        if data.get("answer") not in _SAID:
            return None, False
        given = {key: value for key, value in data.items() if key not in _OPEN}
        if given != {key: value for key, value in put.items() if key not in _OPEN}:
            close(path, "refused", wall_now())
            return Answer("deny", why="the question in the file was changed", digest=asked.digest), True
        close(path, "taken", wall_now())
    by, why, signature = (
        data.get(key) if isinstance(data.get(key), str) else None for key in ("by", "why", "signature")
    )
    return Answer(ApprovalAnswer(data["answer"]), by, why, asked.digest, signature), True


def _is_past(until: object) -> bool:
    """Return whether a time is over, by the system clock; one that is none is."""
    try:
        return time_ns() >= epoch_ns(str(until))
    except ValueError:
        return True


def _is_beyond(until: object, seconds: int) -> bool:
    """Return whether a time, which is one, is further away than a question waits."""
    return epoch_ns(str(until)) > time_ns() + seconds * 1_000_000_000
