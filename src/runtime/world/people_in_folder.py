"""Ask people by files: a question in a folder, and an answer that somebody writes beside it.

`DIGEST.json` holds a question, `DIGEST.answer.json` its answer: `{"decision": "allow" or "deny", "by", "why"}`. The
digest is that of the question, so an answer counts for one call of one run under one policy. A run whose process ended
finds an answer that was written meanwhile when it is resumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from ...fail.errors import InputError, system_reason
from ..effects import AskPerson
from ..formats import strict_json
from ..formats.documents import read_plain
from ..formats.durable_write import write_durably
from .people import Answer

_MOST_BYTES: Final = 1 << 20
_SUFFIX: Final = ".answer.json"


class FolderApproval:
    """Asks in a folder, and waits for the answer; for `approve` of an agent.

    Args:
        folder: The folder; it is made if it is missing.
        pause_s: Seconds between two looks.
        told: Is given the file of each question.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        pause_s: float = 0.5,
        told: Callable[[Path], None] = lambda file: None,
    ) -> None:
        self._folder, self._pause_s, self._told = Path(folder), pause_s, told

    async def __call__(self, question: AskPerson) -> Answer:
        """Write a question and return its answer."""
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / f"{question.digest}.json"
        if not file.exists():
            write_durably(file, msgspec.json.format(msgspec.json.encode(question)) + b"\n")
        self._told(file)
        while True:
            try:
                answer: Answer = _read(file.with_suffix(_SUFFIX), Answer)
                if _read(file, AskPerson) != question:
                    raise InputError("the question was changed", file=str(file), remedy="ask again")
                return answer
            except FileNotFoundError:
                await asyncio.sleep(self._pause_s)


def read_question(file: str | Path) -> AskPerson:
    """Return the question that a file holds. Raises InputError."""
    if Path(file).with_suffix(_SUFFIX).exists():
        raise InputError(
            "the question was answered before", file=str(file), remedy="look for another question"
        )
    try:
        question: AskPerson = _read(Path(file), AskPerson)
    except OSError as error:
        remedy = "name the file of a question"
        raise InputError(f"cannot be read ({system_reason(error)})", file=str(file), remedy=remedy) from None
    return question


def write_answer(file: str | Path, answer: Answer) -> None:
    """Answer the question in a file. Raises InputError where it was answered before."""
    place = Path(file).with_suffix(_SUFFIX)
    try:
        write_durably(place, msgspec.json.encode(answer) + b"\n", replaces=False)
    except OSError as error:
        what = "the question was answered before" if place.exists() else system_reason(error)
        raise InputError(what, file=str(place), remedy="look for another question") from None


def _read(file: Path, kind: type[Any]) -> Any:
    content = read_plain(file, _MOST_BYTES)
    try:
        return msgspec.convert(strict_json.parse(content.decode()), kind)
    except (ValueError, msgspec.MsgspecError):
        raise InputError(
            f"is no {kind.__name__}", file=str(file), remedy="remove it and answer anew"
        ) from None
