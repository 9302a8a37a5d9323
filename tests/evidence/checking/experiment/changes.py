"""Changes of what runs rest on, and of records, each with what is behind the drift of one run.

A cause is written as its inputs with `+` between those that are behind it only together, then how sure it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.evidence.forger import Lines, forge
from tests.evidence.project import DENIED, RETRIED, edit_lines, edit_manifest
from tests.review.drift_changes import (
    ALLOWED,
    GIVEN,
    MINUTES,
    OTHER,
    OVERLAY,
    PAGE,
    POLICY,
    REMARK,
    RUNS,
    task_of,
)
from tests.support import CANONICAL

Edit = tuple[str, str, str] | Callable[[Path], object]

HOOKED, DEPOTS = "runs/loop/hook_denies", "runs/code/depots"
KEPT = tuple(sorted({*RUNS, *(name.removeprefix("runs/") for name in (HOOKED, DEPOTS))}))
CODE, DEPENDENCY, HAND = "the code", "a package that its tools import", "the record was edited by hand"
RENAMED = "data/corpus/v1/op-new.md"
SUMMARIZE = ("tools/summarize.py", '{"summary": " "', '{"summary": "In short: " + " "')
FETCH_DENIED = (POLICY, ALLOWED, "  allowed: [search, read, write, summarize]\n  denied: [fetch]")


@dataclass(frozen=True)
class Change:
    """What is done to a project, and what is behind the drift of `run` then."""

    run: str
    causes: tuple[str, ...]
    edits: tuple[Edit, ...]
    acceptable: bool = True


def crlf(name: str) -> Callable[[Path], object]:
    def edit(project: Path) -> None:
        data = (project / name).read_bytes()
        (project / name).write_bytes(data.replace(b"\n", b"\r\n"))

    return edit


def gone(name: str) -> Callable[[Path], object]:
    return lambda project: (project / name).unlink()


def renamed(name: str, new: str) -> Callable[[Path], object]:
    return lambda project: (project / name).rename(project / new)


def added(name: str, text: str) -> Callable[[Path], object]:
    def edit(project: Path) -> None:
        with (project / name).open("a") as file:
            file.write(text)

    return edit


def by_other_code(run: str, *, told: bool = True) -> Callable[[Path], object]:
    """A record as other code makes it, which says another reason; its manifest tells of the code or does not."""

    def reason(lines: Lines) -> None:
        step = next(line for line in lines if line.get("policy_decisions"))
        step["policy_decisions"][0]["reason"] = "so"

    def edit(project: Path) -> None:
        forge(project / run, reason, root=project)
        if told:
            claim(run, "code", {"git_sha": None, "package": "0" * 64})(project)

    return edit


def claim(run: str, key: str, value: dict[str, Any]) -> Callable[[Path], object]:
    """A manifest that claims something else of how the run was made."""

    def edit(project: Path) -> None:
        edit_manifest(project / run, lambda manifest: manifest[key].update(value))

        forge(project / run, lambda lines: None, root=project)

    return edit


def packages(run: str) -> Callable[[Path], object]:
    return claim(run, "environment", {"packages": {"some-package": "1.0"}})


def edited(run: str) -> Callable[[Path], object]:
    def edit(lines: Lines) -> None:
        lines[1]["step_index"] = 1
        lines[0]["question"] = "Another?"

    return lambda project: edit_lines(project / run, edit)


CHANGES = {
    # one input
    "a tool denied": Change(CANONICAL, (f"{POLICY} tried",), (FETCH_DENIED,), False),
    "an overlay asks no person": Change(GIVEN, (f"{OVERLAY} tried",), ((OVERLAY, "[write]", "[]"),)),
    "a document": Change(RETRIED, (f"{PAGE} tried",), (MINUTES,)),
    "a tool": Change(RETRIED, ("tools/summarize.py tried",), (SUMMARIZE,)),
    "a call of the model": Change(
        GIVEN, (f"{task_of(GIVEN)} tried",), ((task_of(GIVEN), "sandbox/note.md", "sandbox/nota.md"),)
    ),
    "a limit": Change(RETRIED, (f"{POLICY} tried",), ((POLICY, "max_tokens: 50000", "max_tokens: 50001"),)),
    "waits": Change(
        RETRIED, (f"{POLICY} tried",), ((POLICY, "backoff_base_ms: 100", "backoff_base_ms: 200"),)
    ),
    "a setting that nothing asks for": Change(DENIED, (f"{POLICY} tried",), (REMARK,)),
    "the words of a tool that was not called": Change(
        RETRIED,
        ("tools/read.py tried",),
        (("tools/read.py", "Read a text file", "Read a plain text file"),),
    ),
    "hooks": Change(
        HOOKED,
        ("tasks/loop/hook_denies.py tried",),
        (added("tasks/loop/hook_denies.py", "\nafter_call = None\n"),),
    ),
    "an agent in code": Change(
        DEPOTS, ("tasks/code/depots.py tried",), (added("tasks/code/depots.py", "\n# a remark\n"),)
    ),
    # files that moved otherwise
    "line endings of a tool": Change(RETRIED, ("tools/summarize.py tried",), (crlf("tools/summarize.py"),)),
    "line endings of a document": Change(RETRIED, (f"{PAGE} tried",), (crlf(PAGE),)),
    "line endings of a policy": Change(RETRIED, (), (crlf(POLICY),)),
    "a document is gone": Change(CANONICAL, (f"{PAGE} tried",), (gone(PAGE),)),
    "a document is renamed": Change(CANONICAL, (f"{PAGE}+{RENAMED} tried",), (renamed(PAGE, RENAMED),)),
    "a tool is gone": Change(CANONICAL, ("tools/fetch.py tried",), (gone("tools/fetch.py"),), False),
    "the policy is no YAML": Change(CANONICAL, (f"{POLICY} tried",), (added(POLICY, "\n: ["),), False),
    "a tool does not compile": Change(
        CANONICAL, ("tools/summarize.py tried",), (added("tools/summarize.py", "\n("),), False
    ),
    # several inputs
    "a document, and a comment in the policy": Change(
        CANONICAL, (f"{PAGE} tried",), (MINUTES, (POLICY, "# The shipped", "# This shipped"))
    ),
    "a document, and a setting that nothing asks for": Change(
        CANONICAL, (f"{PAGE} tried",), (MINUTES, REMARK)
    ),
    "a document, and a comment in a tool": Change(
        CANONICAL, (f"{PAGE} tried",), (MINUTES, ("tools/summarize.py", '"""Summarize', '"""An extractive'))
    ),
    "a document, and line endings of a tool": Change(
        CANONICAL, (f"{PAGE} tried",), (MINUTES, crlf("tools/summarize.py"))
    ),
    "a tool, and a document that it does not read": Change(
        RETRIED, ("tools/summarize.py tried",), (SUMMARIZE, (OTHER, "\n\n", "\n\n\n"))
    ),
    "a document, and a tool that was not called": Change(
        RETRIED,
        (f"{PAGE} tried",),
        (MINUTES, ("tools/read.py", "Read a text file", "Read a plain text file")),
    ),
    "two documents of which one is quoted": Change(
        CANONICAL, (f"{PAGE} tried",), (MINUTES, (OTHER, "\n\n", "\n\n\n"))
    ),
    "the policy denies, and a document says otherwise": Change(
        CANONICAL, (f"{POLICY} tried", f"{PAGE} tried"), (FETCH_DENIED, MINUTES), False
    ),
    "a limit, and the title of the task": Change(
        RETRIED,
        (f"{POLICY} tried",),
        (
            (POLICY, "max_tokens: 50000", "max_tokens: 50001"),
            added(task_of(RETRIED), "# a comment\n"),
        ),
    ),
    "the policy is no YAML, and a document says otherwise": Change(
        CANONICAL, (f"{POLICY} tried", f"{PAGE} tried"), (added(POLICY, "\n: ["), MINUTES), False
    ),
    "a longer document, and a lower limit": Change(
        RETRIED,
        (f"{POLICY} tried", f"{PAGE}+{POLICY} tried"),
        (
            added(PAGE, "\nA sentence more, which says nothing of what was asked. " * 40),
            (POLICY, "max_result_bytes: 1000000", "max_result_bytes: 2500"),
        ),
        False,
    ),
    "two files change only digests": Change(
        DENIED,
        (f"{POLICY} tried", f"{task_of(DENIED)} tried"),
        (REMARK, (task_of(DENIED), "Arguments of the wrong shape", "A wrong argument")),
    ),
    # the record
    "a value edited by hand": Change(DENIED, (f"{HAND} tried",), (edited(DENIED),), False),
    "a whole record made anew by hand": Change(
        DENIED, (f"{HAND} tried",), (by_other_code(DENIED, told=False),), False
    ),
    "a record made anew by hand, and a setting that nothing asks for": Change(
        DENIED, (f"{HAND} tried",), (by_other_code(DENIED, told=False), REMARK), False
    ),
    "a record made anew by hand, and a document": Change(
        RETRIED, (f"{PAGE} tried", f"{HAND} tried"), (by_other_code(RETRIED, told=False), MINUTES), False
    ),
    # the code and packages, of which only the manifest tells
    "other code": Change(DENIED, (f"{CODE} claim",), (by_other_code(DENIED),), False),
    "other code, and a setting that nothing asks for": Change(
        DENIED, (f"{CODE} claim",), (by_other_code(DENIED), REMARK), False
    ),
    "other code, and a comment in the policy": Change(
        DENIED, (f"{CODE} claim",), (by_other_code(DENIED), (POLICY, "# The", "# This")), False
    ),
    "other code, and a document": Change(
        RETRIED, (f"{PAGE} tried", f"{CODE} claim"), (by_other_code(RETRIED), MINUTES), False
    ),
    "another package": Change(
        DENIED, (f"{DEPENDENCY} claim",), (by_other_code(DENIED, told=False), packages(DENIED)), False
    ),
    "another package, and a document": Change(
        RETRIED,
        (f"{PAGE} tried", f"{DEPENDENCY} claim"),
        (by_other_code(RETRIED, told=False), packages(RETRIED), MINUTES),
        False,
    ),
    "other code and another package": Change(
        DENIED, (f"{CODE} claim", f"{DEPENDENCY} claim"), (by_other_code(DENIED), packages(DENIED)), False
    ),
}
