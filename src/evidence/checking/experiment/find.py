"""Find the causes of drift by trying.

A run with n moved inputs is made again at most 1 + 2n times: with all of them as recorded, with all but one, and with
one. If it gives the record with all of them as recorded, they are behind the drift, and what each does alone tells
which. If it does not, something else differs too: the code or a package, if the manifest claims others, or else the
record was edited by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ....light_dataclasses import dataclass, field
from ....runtime.core.lines import Line
from ....runtime.formats.canonical_json import digest
from ....runtime.formats.read_file import read_unlinked
from ...files import manifest as manifests
from ...files.git_objects import GitObjects
from ...files.manifest import FILES, MANIFEST, STATE
from ..differences.cause import guessed, offer_to_accept
from ..differences.compare import Findings, decoded
from ..differences.drift import compare
from ..differences.exposure import EXPOSURE
from ..differences.found_cause import CLAIM, CODE, DEPENDENCY, HAND, TRIED, FoundCause
from ..workers import cores
from .attribution import FAILS, Key, behind, key_of, keys_of
from .input_diff import input_diff
from .moved_policy import exposures
from .recorded_inputs import Earlier, recorded_inputs
from .scratch_copy import TooLarge
from .trials import Files, State, Trials, state_of


@dataclass
class _Case:
    """A run that drifted, its inputs as they were, and the states in which it is made again."""

    findings: Findings
    earlier: Earlier
    all_back: State = frozenset()
    alone: dict[str, State] = field(default_factory=dict)
    without: dict[str, State] = field(default_factory=dict)

    def __post_init__(self) -> None:
        paths = sorted(self.earlier.data)
        self.all_back = state_of(self.earlier.data, paths)
        if len(paths) > 1:
            self.alone = {path: state_of(self.earlier.data, set(paths) - {path}) for path in paths}
            self.without = {path: state_of(self.earlier.data, [path]) for path in paths}

    @property
    def run(self) -> str:
        return self.findings.run


def find_causes(
    drifted: Iterable[Findings],
    root: Path,
    *,
    jobs: int | None = None,
    tell: Callable[[int, int], object] | None = None,
) -> None:
    """Set `causes` of the runs that drifted, and withdraw the offer to accept those that were edited by hand.

    Args:
        drifted: The findings of runs that do not hold.
        root: The project.
        jobs: How many processes at once; as many as there are cores if None.
        tell: Called with the number of runs made again so far, and of those that are to be made.
    """
    todo = [item for item in drifted if not item.ok and item.causes is None]
    for item in todo:
        item.causes = guessed(item)
    open_cases = [item for item in todo if _can_be_tried(item)]
    if not open_cases:
        return
    objects = GitObjects.around(root)
    if objects is None:
        _mark(open_cases, "there is no git history here")
        return
    with objects:
        cases = list(_cases(open_cases, root, objects))
    trials = Trials(root, [case.run for case in cases], jobs or cores(), tell)
    try:
        _make(trials, cases, lambda case: [case.all_back])
        several = [case for case in cases if case.alone and not _only_digests(trials, case)]
        _make(trials, several, lambda case: [*case.alone.values(), *case.without.values()])
    except TooLarge as error:
        _mark([case.findings for case in cases], str(error))
        return
    for case in cases:
        _conclude(case, trials, root)


def _can_be_tried(findings: Findings) -> bool:
    """Return whether restored inputs may give the record: it was not found to be edited, and inputs of it moved."""
    return not findings.tampered and bool(findings.moved)


def _mark(items: Iterable[Findings], why: str) -> None:
    for item in items:
        item.guess = why


def _cases(items: Sequence[Findings], root: Path, objects: GitObjects) -> Iterable[_Case]:
    for item in items:
        earlier = recorded_inputs(item, root, objects)
        if earlier.missing:
            cut = ", whose history is cut off here," if objects.is_shallow else ""
            names = ", ".join(earlier.missing[:3])
            _mark([item], f"git{cut} does not have {names} as recorded")
        else:
            yield _Case(item, earlier)


def _make(trials: Trials, cases: Iterable[_Case], states: Callable[[_Case], Iterable[State]]) -> None:
    wanted: dict[State, list[str]] = {}
    data: dict[tuple[str, str], bytes | None] = {}
    for case in cases:
        for state in states(case):
            if case.run not in wanted.setdefault(state, []):
                wanted[state].append(case.run)
        for content in case.earlier.data.items():
            data.update(dict.fromkeys(state_of(dict([content]), content[:1]), content[1]))
    trials.make(wanted, data)


def _lines(files: Files) -> list[Line]:
    lines = decoded(files[STATE])
    assert not isinstance(lines, int)
    return lines


def _only_digests(trials: Trials, case: _Case) -> bool:
    """Return whether the moved inputs change nothing but digests, so that all of them are behind it."""
    back, now = trials.files(case.all_back, case.run), case.findings.fresh
    return back is None or (now is not None and not keys_of(_lines(back), _lines(now)))


def _conclude(case: _Case, trials: Trials, root: Path) -> None:
    """Say what is behind the drift of a run, given what it gave."""
    findings = case.findings
    back = trials.files(case.all_back, case.run)
    if back is None:
        _mark([findings], "the run could not be made again with its inputs as recorded")
        return
    is_recorded = _same_as_recorded(root / findings.run, back)
    if not is_recorded and case.earlier.unproven:
        names = ", ".join(case.earlier.unproven[:3])
        _mark([findings], f"no digest is recorded of {names}, and what git has does not give the record")
        return
    rest = [] if is_recorded else _of_the_rest(findings)
    # what only digests moved by is no cause of what else differs
    found = [] if rest and _only_digests(trials, case) else _of_inputs(case, trials, back, root)
    findings.causes = [*found, *rest]
    findings.exposes = exposures(_lines(back)[0], case.earlier, root)
    findings.lines += [f"{EXPOSURE}: {words}" for words in findings.exposes]
    if findings.accept is not None:
        offer_to_accept(findings)
    if HAND in (source for cause in rest for source in cause.sources):
        findings.tampered = True
        findings.accept = None
        findings.lines.append(
            "with all inputs as recorded the run gives another record: it was edited by hand"
        )


def _same_as_recorded(folder: Path, files: Files) -> bool:
    for name in FILES:
        recorded = read_unlinked(folder / name)
        if name == MANIFEST:
            recorded = manifests.stable(manifests.read(recorded)).encode("utf-8")
        if digest(recorded) != digest(files[name]):
            return False
    return True


def _of_the_rest(findings: Findings) -> list[FoundCause]:
    """Return what differs beside the inputs: what the manifest claims to have been other, or else the record."""
    then, now = findings.code or (None, "")
    claims = [FoundCause((CODE,), CLAIM)] if then != now else []
    claims += [FoundCause((DEPENDENCY,), CLAIM)] if findings.moved_packages else []
    return claims or [FoundCause((HAND,), TRIED)]


def _of_inputs(case: _Case, trials: Trials, back: Files, root: Path) -> list[FoundCause]:
    """Return the inputs that are behind the differences between the run as it was, `back`, and as it is."""
    paths = sorted(case.earlier.data)
    diffs = {path: input_diff(path, case.earlier.data[path], root) for path in paths}

    def cause(sources: tuple[str, ...]) -> FoundCause:
        lines = tuple(line for path in sources for line in diffs[path])
        return FoundCause(sources, TRIED, lines)

    if len(paths) == 1 or _only_digests(trials, case):
        return [cause((path,)) for path in paths]
    alone = {path: _keys(trials.files(state, case.run), back) for path, state in case.alone.items()}
    without = {path: _keys(trials.files(state, case.run), back) for path, state in case.without.items()}
    shown = _shown(_lines(back), case.findings.fresh)
    return [cause(sources) for sources in _sources(shown, alone, without)]


def _shown(back: list[Line], now: Files | None) -> list[Key]:
    """Return the differences that a report shows: the first and the gravest, or that the run cannot be made."""
    if now is None:
        return [FAILS]
    drift = compare(back, _lines(now))
    return [key_of(item) for item in (drift.first, drift.grave) if item is not None]


def _keys(files: Files | None, back: Files) -> set[Key]:
    return {FAILS} if files is None else keys_of(_lines(back), _lines(files))


def _sources(
    shown: Sequence[Key], alone: dict[str, set[Key]], without: dict[str, set[Key]]
) -> list[tuple[str, ...]]:
    """Return the inputs behind the shown differences, then those that change something else by themselves."""
    found: dict[tuple[str, ...], None] = {}
    for item in shown:
        found.update(dict.fromkeys(behind(item, alone, without)))
    named = {path for sources in found for path in sources}
    found.update({(path,): None for path, keys in alone.items() if keys and path not in named})
    return list(found)
