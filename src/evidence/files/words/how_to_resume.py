"""How an unfinished run is resumed: by the command, or from the code that made it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from ....runtime.core.lines import Line
from ....runtime.formats.escape import escape_terminal
from ....runtime.formats.read_file import read_unlinked
from ....runtime.journal.journal import JOURNAL

_FIRST_ENTRY: Final = 4 << 20  # bytes of a journal that are looked at


def resumed_by(shown: str, partial: Path) -> str:
    """Return what resumes the unfinished run whose journal is in `partial`: a command, or a call in code.

    Args:
        shown: The folder of the run, without `.partial`, as it is named to a person.
        partial: The folder that holds the journal.
    """
    try:
        first = read_unlinked(partial / JOURNAL, _FIRST_ENTRY).partition(b"\n")[0]
        return how_to_resume(shown, json.loads(first)["entry"]["run"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        return how_to_resume(shown, None)


def how_to_resume(shown: str, run: Line | None) -> str:
    """Return what resumes an unfinished run, of which `run` is the run line.

    Without a run line it is the command, which puts in place what is whole and says what else is wrong.
    """
    by_code = run is not None and made_in_code(run) is not None
    place = escape_terminal(shown, 400)
    return f"`tachograph.resume(agent, {place!r})` in code" if by_code else f"`tachograph resume {place}`"


def made_in_code(run: Line, *, model_given: bool = False) -> str | None:
    """Return what of a run is in no file, such as `its model`; None where the run can be resumed from files alone.

    A run of a task has all its inputs in files. Else the policy and the tools must be files, and the model one that
    is opened by its name, unless another is given.
    """
    from ....runtime.models.providers import PROVIDERS  # for unfinished runs only

    if run["task"] is not None:
        return None
    if not run["policy"]["files"]:
        return "its policy"
    model = run["model"]
    if not model_given and (model["execution_path"] == "stub" or model["provider"] not in PROVIDERS):
        return "its model"
    return next(
        (f"its tool {str(item['name'])[:80]!r}" for item in run["tools"] if item["file"] is None), None
    )
