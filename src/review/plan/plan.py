"""What a change of policy does: by the policies alone, and in every recorded run made under the old one.

Nothing is run. A recorded run is answered from its record up to the first decision that differs; what comes after
is counted as hypothetical. Where it cannot be decided whether something is widened, that counts as a widening.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...evidence.checking.differences.drift import counted
from ...evidence.checking.workers import each
from ...evidence.files import manifest as manifests
from ...evidence.files.manifest import FILES, MANIFEST
from ...evidence.queries.counterfactual import against
from ...evidence.queries.flips import NEEDS_APPROVAL, OTHER_WAY, TIGHTENING, WIDENING, Counterfactual
from ...evidence.recording.index import UNFINISHED, cannot_be_read, folders_in
from ...evidence.recording.recorded import relative_name, run_line
from ...evidence.tasks.code.tools import REMEDY, with_tools_in_code
from ...fail.errors import InputError
from ...runtime.core.lines import Line
from ...runtime.formats.read_file import read_unlinked
from ...runtime.formats.shipped_files import shipped
from ...runtime.policy.policy import Policy
from ...runtime.tools.contract import Tool
from ...runtime.tools.loader import load_named, names_in
from ..compare.policy_compare import compare_policies
from .sources import Side

if TYPE_CHECKING:
    from ..compare.policy_compare import Comparison


CANNOT_TELL: Final = "cannot tell"
NOT_UNDER: Final = "not under this policy"
SAME: Final = "same"
KINDS: Final = (WIDENING, NEEDS_APPROVAL, TIGHTENING)
GROUPS: Final = (WIDENING, NEEDS_APPROVAL, TIGHTENING, OTHER_WAY, CANNOT_TELL, NOT_UNDER, SAME)


@dataclass(frozen=True)
class RunChange:
    """What the change does to one recorded run; `result` is None where the run was made under another policy."""

    run: str
    group: str
    result: Counterfactual | None = None

    @property
    def is_otherwise(self) -> bool:
        """Whether the run is in a group that changes."""
        return self.group in (*KINDS, OTHER_WAY)

    @property
    def why(self) -> str | None:
        """Why the run cannot be told, if so."""
        return None if self.result is None else self.result.undecided or self.result.why

    def to_dict(self) -> Line:
        """Return this as JSON data."""
        if self.result is None:
            return {"run": self.run}
        return {**self.result.to_dict(), "run": self.run}


@dataclass
class Plan:
    """What a change of policy does: `comparison` by the policies alone, `runs` by recorded runs (None: not asked)."""

    old: str
    new: str
    versions: tuple[str, str]
    comparison: Comparison
    runs: list[RunChange] | None = None
    again: str = ""
    by_group: dict[str, list[RunChange]] = field(init=False)

    def __post_init__(self) -> None:
        self.by_group = {name: [run for run in self.runs or () if run.group == name] for name in GROUPS}

    def changes(self, kind: str) -> list[Any]:
        """Return the changes of a kind that the policies alone show."""
        return [change for change in self.comparison.changes if change.kind == kind]

    @property
    def otherwise(self) -> int:
        """How many recorded runs are decided differently, or go another way."""
        return sum(run.is_otherwise for run in self.runs or ())

    @property
    def is_equal(self) -> bool:
        """Whether every decision is known to stay the same."""
        return self.comparison.equal and not self.otherwise and not self.by_group[CANNOT_TELL]

    @property
    def widens(self) -> bool:
        """Whether anything is allowed that was not."""
        return bool(self.changes(WIDENING) or self.by_group[WIDENING])

    @property
    def is_undecided(self) -> bool:
        """Whether something else may be widened that could not be decided."""
        return bool(self.comparison.undecided or self.by_group[CANNOT_TELL])

    @property
    def code(self) -> int:
        """The exit code: 1 where something is widened, or may be, and where secrets are let out."""
        return 1 if self.widens or self.is_undecided or self.exposes else 0

    @property
    def exposes(self) -> bool:
        """Whether secrets may enter records, or reach a tool, that were kept from them."""
        return any(setting.exposes for setting in self.comparison.settings)

    @property
    def verdict(self) -> str:
        """One line: what the policies alone show, then the recorded runs."""
        counts = Counter(change.kind for change in self.comparison.changes)
        parts = [_counted(counts[kind], kind) for kind in KINDS if counts[kind]]
        if self.comparison.settings:
            parts.append(counted(len(self.comparison.settings), "other setting"))
        if self.comparison.undecided:
            parts.append(f"{len(self.comparison.undecided)} untold")
        text = ", ".join(parts) if parts else "the two allow and deny the same"
        return f"{text}{self._of_runs()}"

    def _of_runs(self) -> str:
        if self.runs is None:
            return ""
        judged = len(self.runs) - len(self.by_group[NOT_UNDER])
        if not judged:
            return "; no recorded run stands on the old policy"
        verb = "decides" if 1 in (judged, self.otherwise) else "decide"
        clauses = [f"{self.otherwise} of {counted(judged, 'recorded run')} {verb} otherwise"]
        if self.by_group[CANNOT_TELL]:
            clauses.append(f"{len(self.by_group[CANNOT_TELL])} cannot be told")
        if self.by_group[NOT_UNDER]:
            clauses.append(f"{len(self.by_group[NOT_UNDER])} not under this policy")
        return "; " + ", ".join(clauses)

    @property
    def closing(self) -> str | None:
        """Why the check fails although no widening was found; None where it does not."""
        if self.exposes and not self.widens:
            return "secrets may enter records or reach a tool that were kept from them (EXPOSURE)"
        if self.widens or not self.is_undecided:
            return None
        return "whether anything else is widened cannot be told; that counts as if it were"

    def to_dict(self) -> Line:
        """Return this as JSON data."""
        runs = None
        if self.runs is not None:
            runs = {name: [run.to_dict() for run in self.by_group[name]] for name in GROUPS}
        return {
            "old": {"policy": self.old, "version": self.versions[0]},
            "new": {"policy": self.new, "version": self.versions[1]},
            "verdict": self.verdict,
            "equal": self.is_equal,
            "widens": self.widens,
            "exposes": self.exposes,
            "untold": self.is_undecided,
            "policies": self.comparison.to_dict(),
            "runs": runs,
        }


def _counted(number: int, kind: str) -> str:
    return f"{number} {kind}" if kind == NEEDS_APPROVAL else counted(number, kind)


def tools_of(root: Path) -> dict[str, Tool]:
    """Return the project's tools by name; the shipped ones where it has none."""
    folder = root / "tools"
    folder = folder if folder.is_dir() else shipped("tools")
    return {name: load_named(name, folder) for name in names_in(folder) if not name.startswith("_")}


def compare_sides(old: Side, new: Side, root: Path, again: str = "") -> Plan:
    """Compare the policies by themselves. Raises InputError for an invalid one, or an unknown tool in the new one."""
    before, after = old.load(), new.load()
    tools = with_tools_in_code(tools_of(root), before.tools_named | after.tools_named, root)
    after.check_tools(tools, REMEDY)
    versions = (before.version, after.version)
    return Plan(old.name, new.name, versions, compare_policies(before, after, tools), again=again)


# ---- recorded runs ------------------------------------------------------------------------------------------


def runs_in(places: Iterable[Path]) -> list[Path]:
    """Return the runs at `places`, each a run or a folder of runs such as `runs/`.

    Raises InputError where a place holds no run or cannot be read.
    """
    folders: list[Path] = []
    for place in places:
        if not place.is_dir():
            raise InputError("there is no such folder", file=str(place), remedy="name one such as runs/")
        kinds = folders_in(place)
        below = [place, *kinds, *(run for kind in kinds for run in folders_in(kind))]
        runs = [path for path in below if path.suffix not in UNFINISHED and _is_run(path)]
        if not runs:
            raise InputError("holds no recorded run", file=str(place), remedy="name one such as runs/")
        folders += [path for path in runs if path not in folders]
    return folders


def _is_run(folder: Path) -> bool:
    try:
        return not set(FILES).isdisjoint(os.listdir(folder))
    except OSError as error:
        raise cannot_be_read(error) from None


def ask_runs(
    folders: Sequence[Path],
    old: Side,
    new: Side,
    root: Path,
    *,
    tell: Callable[[int, RunChange], object] | None = None,
    jobs: int | None = None,
) -> list[RunChange]:
    """Return what each run made under `old` does under `new` with its own overlays; nothing is run."""
    pairs: dict[tuple[str, ...], tuple[Policy, Policy] | str] = {}
    overlays: dict[Path, tuple[str, ...] | None] = {}
    for folder in folders:
        files = _policy_files(folder)
        if files is not None and not old.is_under(files):
            overlays[folder] = None
            continue
        own = tuple(path for path, _ in (files or ())[len(old.files) :])
        overlays[folder] = own
        if own not in pairs:
            pairs[own] = _both(old, new, own)

    def ask(folder: Path) -> RunChange:
        own = overlays[folder]
        both = None if own is None else pairs[own]
        if both is None:
            return RunChange(relative_name(folder, root), NOT_UNDER)
        if isinstance(both, str):
            result = Counterfactual(relative_name(folder, root), None, "", undecided=both)
        else:
            result = against(folder, *both, root=root)
        return RunChange(result.run, group_of(result), result)

    return each(ask, folders, tell=tell, jobs=jobs)


def _both(old: Side, new: Side, own: tuple[str, ...]) -> tuple[Policy, Policy] | str:
    try:
        return old.load(own), new.load(own)
    except InputError as error:
        return str(error)


def _policy_files(folder: Path) -> list[tuple[str, str]] | None:
    """Return the policy files of a run (path, canonical digest) in order; None if its record cannot be read."""
    try:
        line = run_line(folder) or {}
        inputs = manifests.read(read_unlinked(folder / MANIFEST))["inputs"]
        digests = {str(item["path"]): str(item["sha256"]) for item in inputs}
        paths = [str(item["path"]) for item in line["policy"]["files"]]
        return [(path, digests.get(path, "")) for path in paths]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def group_of(result: Counterfactual) -> str:
    """Return the group a run belongs to."""
    if result.undecided is not None:
        return CANNOT_TELL
    if result.flip is not None:
        return result.flip.kind
    return OTHER_WAY if result.why is not None else SAME
