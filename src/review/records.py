"""Compare the recorded runs of a project, and its policies, with those of a commit: nothing is run or imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path

from msgspec import Struct, structs

from ..evidence.compare import Comparison, Difference, Origin, moved_inputs, moved_offers, with_inputs
from ..evidence.drift import Mark, bullet_of, drift, some
from ..evidence.manifest import MANIFEST, read_manifest
from ..evidence.project import Project, is_policy
from ..evidence.record_files import MOST_BYTES, REPORT, STATE, TRACE, read_files, whole_log
from ..evidence.verify import problems_of
from ..fail.errors import InputError, RecordError
from ..runtime.formats.documents import MAX_BYTES, read_plain
from ..runtime.log.events import RunStarted
from ..runtime.policy.policy import Policy
from ..runtime.tools.project_modules import project_modules
from .compare import Change, diff
from .revisions import Revision, content, is_content
from .static_tools import tools_beside
from .words import summary, told

_MOST = 10  # changes of a policy
_Files = Mapping[str, bytes]
_Policies = dict[str, tuple[Policy | None, Policy | None]]


class Review(Struct):
    """How the recorded runs and the policies of a project differ from those of a commit.

    Attributes:
        base: The commit.
        names: All recorded runs.
        added: Those that the commit lacks.
        removed: The runs that it alone has.
        found: The differences of each run that has changed or is damaged.
        policies: What to say of each policy that has moved, and its changes; none where one side lacks it.
        lost: Which policies are not compared, since those of the commit cannot be read, and why, one line each.
        problems: Why policies cannot be read, one line each.
    """

    base: str
    names: list[str]
    added: list[str]
    removed: list[str]
    found: dict[str, list[Difference]]
    policies: dict[str, tuple[str, list[Change]]]
    lost: list[str]
    problems: list[str]

    @property
    def is_grave(self) -> bool:
        """Whether a decision has moved, something is exposed, or what cannot be read leaves that open."""
        every = chain[Difference | Change](*self.found.values(), *(it for _, it in self.policies.values()))
        return bool(self.lost) or any(it.kind in ("DAMAGE", "EXPOSURE", "VERDICT") for it in every)

    def lines(self, root: Path, mark: Mark = str) -> list[str]:
        """Return it in words.

        Args:
            root: The project.
            mark: Marks text of runs and policies, such as `code_span` for Markdown.
        """
        bullet = bullet_of(mark)
        lines = drift(self.found, root, mark=mark, base=self.base)
        for what, names in (("Added", self.added), ("Removed", self.removed)):
            lines += [f"{bullet}{what}: {some(names, 'run', mark)}"] if names else []
        same: dict[tuple[str, ...], list[str]] = {}
        for name, (what, changes) in self.policies.items():
            grave = [it for it in changes if it.kind in ("WIDER", "EXPOSURE")]
            said = told([structs.replace(it, example=None) for it in grave], [], is_all=True, mark=mark)
            more = [f"{bullet}and {len(said) - _MOST} more"] if said[_MOST:] else []
            same.setdefault((what, *said[:_MOST], *more), []).append(name)
        for (what, *said), names in same.items():
            which = some(names, "policy file", mark) if names[1:] else mark(names[0])
            lines += [f"{bullet}{which}: {what}", *(f"  {line}" for line in said)]
        lines += [f"{bullet}{mark(problem)}" for problem in dict.fromkeys(self.lost + self.problems)]
        counts = f"{len(self.added)} added, {len(self.removed)} removed"
        total = f"{len(self.found)} of {len(self.names)} runs changed since {mark(self.base)}, {counts}"
        return [*lines, total] if mark is str else [f"### {total}", "", *lines]


def review(project: Project, base: str) -> Review:
    """Compare the recorded runs and the policies of a project with those of a commit.

    Args:
        project: The project around the current folder.
        base: The commit, as git names it.

    Raises:
        InputError: Git finds no such commit here.
    """
    then: dict[str, dict[str, str]] = {}
    try:
        revision = Revision(base, "commit")
        for path, entry in revision.files(project.root / "runs").items():
            *run, file = path.split("/", 2)
            if run[1:] and not run[1].endswith(".partial"):  # a run that has not ended is not a record
                then.setdefault("/".join(run), {})[file] = entry
        policies, lost, problems = _policies(project, revision)
    except OSError as problem:
        what = f"git finds no such commit here ({problem.strerror})"
        remedy = "name one of a repository that is yours; a shallow clone has to fetch it"
        raise InputError(what, file=base, remedy=remedy) from None
    tools, names, found = _tools(project.root), project.run_names(), {}
    moves: set[tuple[str, str]] = set()
    for name in names:
        new, differences = _read(name, partial(read_files, project.folder(name), name))
        entries = then.get(name, {})
        is_same = new.keys() == entries.keys() and all(is_content(entries[it], new[it]) for it in new)
        if entries and not differences and not is_same:
            old, differences = _read(name, partial(_contents, entries), f" at {base}")
            differences = differences or _differences(old, new, tools, policies, moves)
        if differences:
            found[name] = differences
    for was, now in sorted(moves):  # the other one may allow more, though no policy has changed
        with suppress(InputError):  # of an agent in code, it is perhaps no file of the project
            both = revision.policy(project.root / was), Policy.load(project.root / now, name=now)
            policies[f"{was} -> {now}"] = both
    beside = tools_beside(project.root / "policy" / "v1.yaml")
    moved: dict[str, tuple[str, list[Change]]] = {}
    gone = {name: before for name, (before, after) in policies.items() if before and not after}
    for name, (before, after) in policies.items():
        # one that is new may be one that had another name: that which it is most like
        known = {name: before} if before else gone
        if after is None or not known:
            moved[name] = "is new" if after else "is gone", []
        elif before is None or before.version != after.version:
            compared = ((was, diff(it, after, beside)) for was, it in known.items())
            was, changes = min(compared, key=lambda it: len(it[1]))
            moved[name if before else f"{was} -> {name}"] = summary(changes, [], None), changes
    added, removed = ([it for it in one if it not in other] for one, other in ((names, then), (then, names)))
    return Review(base, names, added, removed, found, moved, lost, problems)


def _read(name: str, read: Callable[[], _Files], when: str = "") -> tuple[_Files, list[Difference]]:
    """Return the files of a record, and how it is damaged."""
    try:
        files = read()
        problems = problems_of(files, name, rendered=False)
    except (RecordError, OSError) as error:
        said = f"{name}: {error.strerror}" if isinstance(error, OSError) else str(error)
        files, problems = {}, [said]
    parts = [problem.removeprefix(f"{name}/").partition(": ") for problem in problems]
    return files, [Difference("DAMAGE", at + when, words) for at, _, words in parts]


def _contents(entries: Mapping[str, str]) -> _Files:
    return {file: content(entry, MOST_BYTES) for file, entry in entries.items()}


def _differences(
    old: _Files, new: _Files, tools: Mapping[str, set[str]], policies: _Policies, moves: set[tuple[str, str]]
) -> list[Difference]:
    """Return how a record differs from an earlier one, as `check` tells it; both are whole in themselves.

    What its policy was and is goes into `moves` where it is another file.
    """
    was, made = ([line.event for line in whole_log(it[STATE], STATE)] for it in (old, new))
    then, now = (read_manifest(it[MANIFEST], MANIFEST)[0] for it in (old, new))
    head, again = was[0], made[0]
    assert isinstance(head, RunStarted) and isinstance(again, RunStarted)
    uncalled = {name: f"tools/{name}.py" for name in tools if f"tools/{name}.py" not in then}
    moved = moved_inputs(then, now, is_all=True) | moved_offers(uncalled, was, made)
    policy = {path for path in moved if path.startswith("policy/")}
    code = {path for path in moved if path.endswith(".py")}.difference(*tools.values())
    origin = Origin(policy | {again.policy.file}, code | {again.task}, tools)
    if head.policy.file != again.policy.file:
        moves.add((head.policy.file, again.policy.file))
    _, of_today = policies.get(again.policy.file, (None, None))
    found = Comparison(origin, was, made, moved, of_today).differences(is_cut_off=False)
    words = "is another file; all lines are the same"
    found = found or [Difference("OTHER", it, words) for it in (STATE, TRACE, REPORT) if old[it] != new[it]]
    return with_inputs(moved, found)


def _tools(root: Path) -> dict[str, set[str]]:
    """Return the files that each tool is made of; they are read and not imported."""
    found = {}
    for path in (root / "tools").glob("*.py"):
        with suppress(OSError):
            found[path.stem] = {f"tools/{path.name}", *project_modules(read_plain(path, MAX_BYTES), root)}
    return found


def _policies(project: Project, revision: Revision) -> tuple[_Policies, list[str], list[str]]:
    """Return each policy of a project at a revision and now, and why some cannot be read, there or now. Raises OSError.

    One that cannot be read there stands as it is now on both sides.
    """
    then = {*filter(is_policy, revision.files(project.root / "policy"))}
    now = project.policy_names()
    found: _Policies = {}
    lost, problems = [], []
    for name in sorted(then.union(now)):
        path = project.root / "policy" / name
        try:
            old = new = Policy.load(path, name=f"policy/{name}") if name in now else None
        except InputError as error:
            problems.append(str(error))
            continue
        try:
            old = revision.policy(path) if name in then else None
        except InputError as error:
            if new:
                lost.append(f"policy/{name}: read all of it, since the earlier one cannot be: {error}")
        found[f"policy/{name}"] = old, new
    return found, lost, problems
