"""Say whether an installation and a project are sound: one finding for each thing that runs and records stand on."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, NamedTuple

from ..fail.errors import InputError
from ..runtime.io.safe_open import OPEN_FILES
from ..runtime.mcp.server import profile_names, tool_names
from ..runtime.policy.consistency import check_names
from ..runtime.policy.policy import Policy
from ..runtime.tools.loader import load_tools
from .agent_file import read_profile
from .folder import not_ended, partial_of
from .project import Project

_NAME: Final = __name__.partition(".")[0]
_PACKAGE: Final = Path(__file__).resolve().parents[1]
# what each extra of the package is for, and the packages that it brings
_EXTRAS: Final = {
    "chat": ("packages for `tachograph chat`", "prompt_toolkit"),
    "live": ("packages for live models", "anthropic openai httpx2"),
    "mcp": ("packages for MCP servers", "mcp"),
    "views": ("packages for views", "rich"),
}
_MOST: Final = 5  # findings of one kind that are not ok


class Finding(NamedTuple):
    """What was looked at, and how it is.

    Attributes:
        status: `ok`, `warn`, or `bad` where runs or records would fail.
        what: What was looked at.
        words: How it is, and what to do about it.
    """

    status: Literal["ok", "warn", "bad"]
    what: str
    words: str


def examine(start: Path) -> list[Finding]:
    """Return findings on the installation, and on the project that a folder lies in. Tools and hooks are imported."""
    found = [*_installation()]
    try:
        found += _of_project(Project(start))
    except (InputError, OSError) as error:  # what was found before stays
        found.append(Finding("bad", "project", str(error)))
    return found


def _installation() -> Iterator[Finding]:
    # an older one imports nothing of this package
    yield Finding("ok", "python", f"{platform.python_version()} in {sys.prefix}")
    wrong = [] if os.path.isdir(OPEN_FILES) else ["is not mounted; mount it"]
    yield from _all("/proc", "is here", wrong, "bad")
    for extra, (what, packages) in _EXTRAS.items():
        missing = [name for name in packages.split() if find_spec(name) is None]
        words = f"{', '.join(missing)} missing; pip install 'tachograph[{extra}]'" if missing else "is here"
        yield Finding("warn" if missing else "ok", what, words)


def _of_project(project: Project) -> Iterator[Finding]:
    root, own = project.root, project.root / _NAME
    if (own / "__init__.py").is_file() and own.resolve() != _PACKAGE:
        yield Finding("bad", "package", f"{_PACKAGE} hides {own}; pip install -e {root}")
    yield Finding("ok", "project", str(root))
    tools = sorted(path.stem for path in (root / "tools").glob("*.py"))

    def policy(name: str) -> None:
        loaded = Policy.load(root / "policy" / name, name=f"policy/{name}")
        if known := tool_names(root):
            check_names(loaded, known)

    yield from _each("policies", project.policy_names(), policy)
    yield from _each("profiles", sorted(profile_names(root)), lambda name: read_profile(root, name))
    yield from _each("tools", tools, lambda name: load_tools([name], root))
    yield from _each("tasks", project.task_names(), lambda name: project.task_of(name).run_spec())
    is_open = project.open_names()
    waiting = [str(not_ended(f"runs/{name}", partial_of(project.folder(name)))) for name in is_open]
    yield from _all("open runs", "none", waiting, "warn")
    rejected = sorted((root / ".tachograph" / "rejected").glob("*/run_report.md"))
    kept = [f"{os.path.relpath(path.parent)}; read its report, then remove it" for path in rejected]
    yield from _all("rejected runs", "none", kept, "warn")
    yield from _all("list of runs", "agrees with tasks and runs", project.problems(), "warn")


def _each(what: str, names: Sequence[str], look: Callable[[str], object]) -> Iterator[Finding]:
    """Yield one finding if all of some things can be read, else one for each that cannot."""
    wrong = []
    for name in names:
        try:
            look(name)
        except InputError as error:
            wrong.append(str(error))
    return _all(what, f"{len(names)} can be read", wrong, "bad")


def _all(what: str, words: str, wrong: list[str], status: Literal["warn", "bad"]) -> Iterator[Finding]:
    """Yield that all is well, or what is wrong, at most so much of it that other findings are seen."""
    if not wrong:
        yield Finding("ok", what, words)
    for line in wrong[:_MOST]:
        yield Finding(status, what, line)
    if wrong[_MOST:]:
        yield Finding(status, what, f"and {len(wrong) - _MOST} more")
