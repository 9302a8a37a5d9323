"""Tell how runs have drifted: what has moved, and the gravest thing that follows from it, told once for all runs."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct, structs

from ..fail.errors import InputError
from ..runtime.formats.escape import workflow_command
from .compare import CHANGED, GRAVEST_FIRST, Difference
from .record_files import NAMES, STATE

Found = Mapping[str, Sequence[Difference]]
"""The differences of each run, by its name."""
Mark = Callable[[str], str]
"""What marks text that comes from a run."""

_LINES: Final = 25  # of all causes; what else has moved comes after them
_CAUSES: Final = 6
_FILES: Final = 4
_NAMES: Final = 4
_ANNOTATIONS: Final = 10  # the service shows no more
_PLACE: Final = re.compile(r"(.*?)(?::([0-9]+))?(?::[0-9]+)?", re.DOTALL)


def not_made(error: InputError) -> list[Difference]:
    """Return the differences of a run that cannot be made any more."""
    place, _, words = str(error).partition(": ")
    return [Difference("INPUT", place, words), Difference("ENDING", "0", "the run cannot be made", (place,))]


class Cause(Struct):
    """Why some runs have drifted.

    Attributes:
        inputs: The moved inputs that it is; none for damage, and where no recorded input has moved.
        stories: The gravest difference of each run, the gravest first, and the runs that share it.
    """

    inputs: list[str]
    stories: list[tuple[Difference, list[str]]]

    def heading(self, mark: Mark = str) -> str:
        """Return what it is called."""
        if self.stories[0][0].kind == "DAMAGE":
            return "Damaged records"
        if self.inputs:
            return f"What follows from {some(self.inputs, 'input', mark) if self.inputs[1:] else mark(*self.inputs)}"
        what = "code of Tachograph, of a package or of an uncalled tool is another"
        return f"No recorded input has moved; {what}"

    def lines(self, mark: Mark = str, most: int = 6) -> list[str]:
        """Return its stories, two lines for each of the first."""
        bullet, lines = bullet_of(mark), []
        for story, names in self.stories[:most]:
            lines.append(f"{bullet}{story.kind} {mark(story.at)}: {mark(story.words)}")
            lines.append(f"  {bullet}{some(names, 'run', mark)}")
        if others := [name for _, names in self.stories[most:] for name in names]:
            lines[-1] += f", and otherwise {some(others, 'run', mark)}"
        return lines


def causes(found: Found) -> list[Cause]:
    """Return why runs have drifted, what has the gravest story first."""
    runs: dict[Difference, list[str]] = {}
    inputs: dict[Difference, set[str]] = {}
    for name, differences in found.items():
        gravest = min(differences, key=_gravity)
        story = structs.replace(gravest, rests_on=())
        runs.setdefault(story, []).append(name)
        inputs.setdefault(story, set()).update(gravest.rests_on)
    by_heading: dict[str, Cause] = {}
    for story in sorted(runs, key=lambda story: (_gravity(story), -len(runs[story]))):
        cause = Cause(sorted(inputs[story]), [(story, runs[story])])
        if (first := by_heading.setdefault(cause.heading(), cause)) is not cause:
            first.stories += cause.stories
    return [*by_heading.values()]


def drift(found: Found, root: Path, *, mark: Mark = str, base: str = "") -> list[str]:
    """Return what to say of runs that have drifted, in at most 25 lines.

    Args:
        found: The differences of each run, by its name.
        root: The project.
        mark: Marks text of runs, such as `code_span` for Markdown.
        base: The commit that the project is compared with; none where it is compared with its own records.
    """
    moved: dict[str, str] = {}
    for differences in found.values():
        # that other inputs are read now, or not any more, mostly follows
        near = {*min(differences, key=_gravity).rests_on}
        inputs = [it for it in differences if it.kind == "INPUT"]
        moved |= {it.at: it.words for it in inputs if it.words == CHANGED or it.at in near}
    bullet, paths = bullet_of(mark), sorted(moved)
    told = ((path, moved[path] + _hint(root, path, base)) for path in paths[:_FILES])
    lines = [f"{bullet}{mark(path)}: {mark(words)}" for path, words in told]
    if len(moved) > _FILES:
        lines.append(f"{bullet}and {some(paths[_FILES:], 'more input', mark)}")
    every = causes(found)
    others = [name for cause in every[_CAUSES:] for _, names in cause.stories for name in names]
    left = _LINES - len(lines) - bool(others) - 3 * len(every[:_CAUSES])  # a heading and a story each
    for cause in every[:_CAUSES]:
        stories = cause.lines(mark, 1 + max(0, left // 2))
        left += 2 - len(stories)
        lines += [f"{bullet}{cause.heading(mark)}:", *(f"  {line}" for line in stories)]
    if others:
        lines.append(f"{bullet}and for other reasons {some(others, 'run', mark)}")
    return lines


def github_commands(found: Found, root: Path, folder: Callable[[str], Path]) -> list[str]:
    """Return commands of GitHub Actions, one for each of the first causes: at a moved file, or else at a record.

    Args:
        found: The differences of each run, by its name.
        root: The project.
        folder: Returns the folder of a run.
    """
    top, commands = _checkout(root) or root, []
    for cause in causes(found)[:_ANNOTATIONS]:
        story, names = cause.stories[0]
        own = story.at if _split(story.at)[0] in NAMES else STATE
        for place in (*(root / it for it in cause.inputs), folder(names[0]) / own):
            path, line = _split(str(place))
            file = os.path.relpath(path, top)
            if os.path.isfile(path) and not file.startswith(".."):
                break
        properties = {"file": file, **({"line": line} if line else {}), "title": cause.heading()}
        commands.append(workflow_command("error", properties, cause.lines()))
    return commands


def bullet_of(mark: Mark) -> str:
    """Return what begins a line: nothing for a terminal, where text is not marked."""
    return "" if mark is str else "- "


def _gravity(difference: Difference) -> int:
    return GRAVEST_FIRST.index(difference.kind)


def some(names: Sequence[str], noun: str, mark: Mark) -> str:
    """Return how many there are of some things, and the names of the first."""
    more = ", ..." if names[_NAMES:] else ""
    return f"{len(names)} {noun}{'s' if names[1:] else ''}: {', '.join(map(mark, names[:_NAMES]))}{more}"


def _hint(root: Path, path: str, base: str) -> str:
    """Return how to see what has changed in a file of a project."""
    file = root / _split(path)[0]
    while not os.path.exists(file) and file != root:  # a tool of an MCP server is a part of mcp.lock
        file = file.parent
    # what cannot be read has been told already
    has_returns = os.path.isfile(file) and os.access(file, os.R_OK) and b"\r\n" in file.read_bytes()
    ends = " (its lines end with carriage returns)" if has_returns else ""
    # nothing of git is run: the configuration of a repository may start programs
    command = shlex.join(["git", "diff", *filter(None, [base]), "--", os.path.relpath(file)])
    return f"{ends}; {command}" if _checkout(root) and file != root else ends


def _split(place: str) -> tuple[str, str | None]:
    """Return file and line of a place."""
    match = _PLACE.fullmatch(place)
    assert match is not None
    return match[1], match[2]


def _checkout(root: Path) -> Path | None:
    """Return the git checkout that a project lies in, None where it lies in none."""
    return next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), None)
