"""The command that goes through drift with a person at a terminal: `tachograph review`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from ...fail.errors import InputError, OutputError
from ...runtime.formats.escape import escape_terminal
from ..console import painter, width_of
from ..keys import Terminal
from .accept import accept_changes, examined, refuse_in_ci
from .common import Verb, in_project, owners, path_given, root_of, run_folders
from .policy.diff import add_jobs, over_runs

_KEYS: Final = "a accept, s skip, v view, e explain, q quit > "
_HELP: Final = (
    "a  record these runs anew; a reason is asked for first",
    "s  leave these runs as they are and go on to the next cause",
    "v  show what differs in each run",
    "e  say why they drifted, what changed in the inputs, and what accepting does",
    "q  end the review; what was accepted stays accepted",
)


def add(commands: Any, verb: Verb) -> None:
    """Add the command review."""
    parser = verb(commands, "review", review)
    parser.add_argument(
        "runs", nargs="*", type=path_given, metavar="RUN", help="folders of runs (default: all below runs/)"
    )
    add_jobs(parser)


def review(options: argparse.Namespace) -> int:
    """Go through drifted runs by cause and accept, with a reason each, what a person lets pass."""
    from ...evidence.checking.check import examine
    from ...review.drift.groups import groups
    from ...review.drift.report import drift_report

    terminal = Terminal()
    if options.json or not terminal.is_there:
        raise InputError(
            "review asks a person at a terminal" + (" and prints no JSON" if options.json else ""),
            remedy="`tachograph check` says what drifted, `tachograph accept RUN --reason TEXT` accepts it",
        )
    refuse_in_ci()
    root, folders = run_folders(options)
    folders = owners(root, folders)
    work = partial(examine, root=root)
    findings = over_runs(options, work, folders, "review", ("drifted", lambda item: not item.ok))
    report = drift_report(findings, root, given_root=options.root)
    found = groups(report, findings, folders, root)
    if not found:
        terminal.say(f"review: none of {len(findings)} runs drifted, so there is nothing to review")
        return 0
    causes = "1 cause" if len(found) == 1 else f"{len(found)} causes"
    terminal.say(
        f"review: {len(report.runs)} of {len(findings)} runs drifted, for {causes}; "
        "nothing is written before you accept"
    )
    return _Session(options, terminal, root, found, report.blocked).go_through()


class _Session:
    """The groups that a person goes through, and what was accepted of them."""

    def __init__(
        self,
        options: argparse.Namespace,
        terminal: Terminal,
        root: Path,
        found: Sequence[Any],
        blocked: str | None,
    ) -> None:
        self._options, self._terminal, self._root = options, terminal, root
        self._groups, self._blocked = found, blocked
        self._paint = painter(sys.stdout, options.no_color)
        self._begun: list[Any] = []

    def go_through(self) -> int:
        """Ask about each group; return the exit code: 0 if all runs that drifted were accepted."""
        try:
            for number, group in enumerate(self._groups, start=1):
                if not self._asked(number, group):
                    break
        except KeyboardInterrupt:
            self._say_what_was_done()
            raise
        return 0 if self._say_what_was_done() else 1

    def _asked(self, number: int, group: Any) -> bool:
        """Ask about one group; return whether to go on to the next."""
        from ...review.drift.groups import explanation, head

        first, *rest = head(group)
        self._folded(["", f"{self._paint(f'{number} of {len(self._groups)}', 'bold')}  {first}", *rest])
        while True:
            key = self._terminal.key(_KEYS)
            if key is None or key == "q":
                return False
            if key == "s":
                return True
            if key == "a":
                is_over = self._accept(group)
                if is_over is not None:
                    return is_over
            elif key == "v":
                if not self._terminal.pages(list(self._differences(group))):
                    return False
            elif key == "e":
                if not self._terminal.pages(list(self._fold(explanation(group)))):
                    return False
            else:
                self._terminal.forget_typed()  # a sentence that was typed is no row of keys
                self._terminal.say("there is no such key", *_HELP)

    def _differences(self, group: Any) -> Iterable[str]:
        from ...review.drift.text import run_lines

        for member in group.members:
            yield from run_lines(member.run, self._paint, width_of(sys.stdout))

    def _accept(self, group: Any) -> bool | None:
        """Accept a group; True when it is settled, False at the end of input, None to ask again about it."""
        from ...review.drift.accept import change, preview
        from ...review.drift.groups import refusals

        takes = group.acceptable
        if self._blocked is not None:
            self._folded([f"nothing can be accepted: {escape_terminal(self._blocked, 1000)}"])
            return None
        if not takes:
            self._folded(["none of these runs can be accepted:", *refusals(group)])
            return None
        changes = [change(one.findings, one.folder, self._root, "", 0.0) for one in takes]
        self._folded([escape_terminal(line, 400) for line in preview(changes)])
        if len(takes) < len(group.members):
            self._folded(["left as they are:", *refusals(group)])
        asked = self._reason()
        if asked is None or not asked:
            return False if asked is None else None
        if group.verdicts or group.claims or group.exposures:
            agreed = self._agreed(group)
            if not agreed:
                return False if agreed is None else None
        return self._put_in_place(takes, changes, asked)

    def _reason(self) -> str | None:
        """Return a reason that can be recorded; "" to go back, None at the end of input."""
        from ...review.drift.accept import reason_of

        empty = 0
        while empty < 2:
            typed = self._terminal.line("why may they differ? > ")
            if typed is None:
                return None
            try:
                return reason_of(typed)
            except InputError as error:
                empty += not typed.strip()
                again = "" if empty < 2 else "; nothing was accepted"
                self._folded([f"{escape_terminal(error.message, 200)}{again}"])
        return ""

    def _agreed(self, group: Any) -> bool | None:
        """Return whether what is grave in a group is confirmed by a whole word; None at the end of input."""
        self._terminal.forget_typed()  # agreed to is only what has been read
        what = []
        if group.verdicts:
            number = group.verdicts
            what.append(
                "1 verdict of the gate changes" if number == 1 else f"{number} verdicts of the gate change"
            )
        if group.claims:
            what.append(f"that the code or a package changed is only claimed, in {group.claims} of the runs")
        if group.exposures:
            what.append(
                f"secrets may enter records that were kept out of them, in {group.exposures} of the runs"
            )
        self._folded(what)
        typed = self._terminal.line("type yes to accept that > ")
        if typed is not None and typed.strip().lower() != "yes":
            self._terminal.say("nothing was accepted")
            return False
        return None if typed is None else True

    def _put_in_place(self, takes: Sequence[Any], shown: Sequence[Any], reason: str) -> bool | None:
        """Accept what was shown, if a check gives the same now."""
        from ...review.drift.accept import recover

        try:
            if self._options.root is not None or in_project():
                recover(root_of(self._options))
            # confirmed before, where a run differs by a claim or exposes secrets
            self._options.code_changed = self._options.expose_secrets = True
            folders = [one.folder for one in takes]
            changes, left, _ = examined(self._options, self._root, folders, reason)
            seen = {one.findings.run: {**one.entry, "reason": reason} for one in shown}
            moved = sorted(
                {*left, *(one.findings.run for one in changes if one.entry != seen[one.findings.run])}
            )
            gone = sorted(seen.keys() - left.keys() - {one.findings.run for one in changes})
            if moved or gone:
                names = " ".join(escape_terminal(name, 200) for name in [*moved, *gone])
                self._folded(
                    [
                        f"changed since this review began: {names}; nothing was accepted, so begin the review again"
                    ]
                )
                return None
            self._begun += changes
            accept_changes(self._options, self._root, changes, {}, announced=True)
        except (InputError, OutputError) as error:
            self._folded([f"not accepted: {escape_terminal(str(error), 1000)}"])
            return None
        return True

    def _say_what_was_done(self) -> bool:
        """Say how much was accepted and what is left; return whether nothing is."""
        from ...review.drift.accept import stands

        total = sum(len(group.members) for group in self._groups)
        # what is in place counts: Ctrl-C may have come while it was put there
        accepted = sum(stands(one) for one in self._begun)
        left = total - accepted
        done = f"accepted {accepted} of {total} runs that drifted" if accepted else "nothing was accepted"
        rest = "; `tachograph check` says what is left" if left else ""
        self._terminal.say("", f"review: {done}{rest}")
        return not left

    def _fold(self, lines: Iterable[str]) -> Iterable[str]:
        from ...evidence.queries.wrap import fold

        for line in lines:
            yield from fold(line, width_of(sys.stdout)) if line else [""]

    def _folded(self, lines: Iterable[str]) -> None:
        self._terminal.say(*self._fold(lines))
