"""Compare two executions of a run: which inputs changed, where the ledgers differ, which files differ."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from ....fail.errors import RecordError, system_reason
from ....light_dataclasses import dataclass, field
from ....runtime.core.lines import Line
from ....runtime.formats import canonical_json
from ....runtime.formats.document_digest import digest_of_document
from ....runtime.formats.escape import escape_terminal
from ....runtime.formats.read_file import read_unlinked
from ....runtime.journal import ledger_v1
from ...files import manifest as manifests
from ...files.claims.volatile import misshapen_claims
from ...files.manifest import MANIFEST, REPORT, STATE, TRACE
from ...files.rebuild import rebuild
from .drift import Drift, compare
from .exposure import EXPOSURE
from .found_cause import CLAIM, FoundCause

_PARTS = 5  # parts of a request that are named in a line
BROKEN = "BROKEN"  # the class of a record that cannot be compared, or that does not hold in itself


@dataclass
class Findings:
    """The result of checking one run.

    Attributes:
        run: Name of the run.
        lines: What is wrong, for people; empty if the run holds.
        moved: Path of each changed input -> how it changed, in words.
        digests: Path of each changed input -> its digests before and after; None for a missing file.
        roles: Path of an input -> what it is to the run: `policy`, `task`, `agent`, `hooks` or `tool NAME`.
        code: Digests of the code that made the run and of the present code.
        packages: Installed packages that the run's tools import -> version.
        drift: How the ledgers differ.
        rerendered: Files that differ although the ledgers do not -> the first line that differs.
        tampered: The record was changed by hand.
        missed: Expectations of the task that the run misses now.
        unrecorded: A call of an external tool moved, so that no recorded result answers it.
        judged: The run could be executed again, whatever the result.
        fresh: The four files that the run gives now.
        moved_packages: What the manifest claims of packages that are of another version here.
        causes: What is behind the drift; None until it was looked for.
        exposes: What the policy redacts less than the recorded one, in words.
        guess: Why the causes could not be found by trying; None where they were, or nothing was to be tried.
        accept: The command that accepts them.
    """

    run: str
    lines: list[str] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)
    digests: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    code: tuple[str | None, str] | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    drift: Drift | None = None
    rerendered: dict[str, int] = field(default_factory=dict)
    tampered: bool = False
    missed: list[str] = field(default_factory=list)
    unrecorded: bool = False
    judged: bool = True
    fresh: Mapping[str, bytes] | None = field(default=None, repr=False)
    moved_packages: list[str] = field(default_factory=list)
    causes: list[FoundCause] | None = None
    exposes: list[str] = field(default_factory=list)
    guess: str | None = None
    accept: str | None = None

    @property
    def rests_on_a_claim(self) -> bool:
        """Whether only the manifest says what is behind some of the drift."""
        return any(cause.certainty == CLAIM for cause in self.causes or ())

    @property
    def is_exposure(self) -> bool:
        """Whether secrets enter records, or may, that were kept out of them."""
        return bool(self.exposes) or (self.drift is not None and self.drift.counts[EXPOSURE] > 0)

    @property
    def ok(self) -> bool:
        """Whether the run holds."""
        return not self.lines

    @property
    def broken(self) -> bool:
        """Whether more is wrong than drift."""
        return self.tampered or bool(self.missed) or not self.judged

    @property
    def asked_otherwise(self) -> bool:
        """Whether a live model would be asked with something else, so that its recorded replies stand for nothing."""
        return self.drift is not None and self.drift.counts["ASKED"] > 0

    @property
    def kind(self) -> str:
        """The gravest class of drift; BROKEN if the record is broken and at most digests drifted."""
        if self.unrecorded:
            return "EFFECT"
        kind = self.drift.kind if self.drift is not None else None
        if self.broken and kind in (None, "DIGEST-ONLY"):
            return BROKEN
        if kind is None and self.fresh is None:
            return BROKEN
        if self.is_exposure:
            return EXPOSURE
        if kind is None and self.moved and not self.rerendered:
            return "DIGEST-ONLY"
        return kind or ("TEXT" if list(self.rerendered) == [REPORT] else "SHAPE")


def compare_files(
    findings: Findings, recorded: Mapping[str, bytes], fresh_files: Mapping[str, bytes], name: str, base: Path
) -> None:
    """Add to `findings` how the fresh files of the run `name` of the project `base` differ from the recorded ones."""
    recorded_manifest = _manifest(findings, recorded[MANIFEST], name)
    fresh_manifest = json.loads(fresh_files[MANIFEST])
    findings.fresh = fresh_files
    findings.digests = _moved_inputs(recorded_manifest, fresh_manifest)
    items = _items(recorded_manifest)
    for path, (then, now) in findings.digests.items():
        change = in_words(then, now) if now is not None else change_on_disk(items[path], base)
        if now is None and change is not None and change != in_words(then, None):
            change = f"{change}, and is no longer read"
        if change is None:
            findings.lines.append(f"input no longer read: {escape_terminal(path)}")
        else:
            findings.moved[path] = change
            findings.lines.append(f"input moved: {escape_terminal(path)} {change}")
    if recorded_manifest and manifests.stable(recorded_manifest) != manifests.stable(fresh_manifest):
        keys = {*recorded_manifest, *fresh_manifest} - set(manifests.VOLATILE)
        moved = sorted(key for key in keys if recorded_manifest.get(key) != fresh_manifest.get(key))
        findings.lines.append(f"{MANIFEST}: differs in {', '.join(escape_terminal(key) for key in moved)}")
    if recorded[STATE] != fresh_files[STATE]:
        _compare_ledgers(findings, recorded[STATE], fresh_files[STATE], name)
    for file in (TRACE, REPORT):
        if recorded[file] != fresh_files[file]:
            findings.lines.append(_first_line(file, recorded[file], fresh_files[file]))
    if findings.lines:
        hold_against_itself(findings, recorded, name)


def hold_against_itself(findings: Findings, recorded: Mapping[str, bytes], name: str) -> None:
    """Distinguish a record that was changed by hand from one whose inputs or code changed.

    Files that the ledger no longer gives, although all digests match, were rendered by other code: `rerendered`
    names them. A file changed together with all its digests looks the same.
    """
    try:
        own = rebuild(recorded[STATE], f"{name}/{STATE}", recorded)
    except RecordError as error:
        findings.tampered = True
        findings.lines.append(f"the record does not hold in itself: {error}")
        return
    wrong = {file: _first_different(recorded[file], own[file]) for file in (TRACE, REPORT)}
    wrong = {file: line for file, line in wrong.items() if recorded[file] != own[file]}
    if _digests_hold(recorded) and _copies_hold(recorded, own):
        findings.rerendered = wrong if findings.drift is None else {}
        return
    files = list(wrong)
    with contextlib.suppress(ValueError, TypeError):
        if manifests.stable(manifests.read(recorded[MANIFEST])).encode("utf-8") != own[MANIFEST]:
            files.append(MANIFEST)
    findings.tampered = True
    if files:
        findings.lines.append(
            f"the record does not hold in itself: its ledger gives another {', '.join(files)}"
        )


def _digests_hold(recorded: Mapping[str, bytes]) -> bool:
    """Return whether the manifest has the digests of the three other files."""
    try:
        artifacts = manifests.read(recorded[MANIFEST])["artifacts"]
        return all(
            artifacts[file] == canonical_json.digest(recorded[file]) for file in (STATE, TRACE, REPORT)
        )
    except (ValueError, TypeError, KeyError):
        return False


def _copies_hold(recorded: Mapping[str, bytes], own: Mapping[str, bytes]) -> bool:
    """Return whether the manifest agrees with the ledger in everything that it repeats from there."""
    try:
        manifest = manifests.read(recorded[MANIFEST])
    except (ValueError, TypeError):
        return False
    derived: Line = json.loads(own[MANIFEST])
    drawn = ("schema", "schemas", "artifacts")
    return all(manifest[key] == derived[key] for key in manifest.keys() & derived.keys() - set(drawn))


def _manifest(findings: Findings, text: bytes, name: str) -> Line:
    try:
        manifest = manifests.read(text)
    except ValueError:
        findings.tampered = True
        same = manifests.read_uncanonical(text)
        wrong = "is not as it was written" if same is None else "is not in canonical form"
        findings.lines.append(f"{name}/{MANIFEST}: {wrong}")
        if same is None:
            return {}
        manifest = same
    misshapen = misshapen_claims(manifest)
    findings.tampered = findings.tampered or bool(misshapen)
    findings.lines += [f"{name}/{MANIFEST}: {problem}" for problem in misshapen]
    return manifest


def _moved_inputs(committed: Line, fresh: Line) -> dict[str, tuple[str | None, str | None]]:
    """Return the inputs with other digests. A module on one side only follows from other calls, and is none."""
    before, after = _digests(committed), _digests(fresh)
    pairs = {path: (before.get(path), after.get(path)) for path in sorted({*before, *after})}
    return {
        path: pair
        for path, pair in pairs.items()
        if pair[0] != pair[1] and not (path.endswith(".py") and None in pair)
    }


def change_on_disk(item: Line, base: Path) -> str | None:
    """Return how the file of a recorded input has changed since; None where it has not, or is no file of `base`."""
    then = str(item["sha256"])
    try:
        file = (base / str(item["path"])).resolve()
        if not file.is_relative_to(base.resolve()):
            return None
        text = read_unlinked(file)
    except FileNotFoundError:
        return in_words(then, None)
    except (OSError, ValueError, RuntimeError) as error:
        return f"cannot be read ({system_reason(error)})"
    now = digest_of_document(text) if item.get("canonical") is True else canonical_json.digest(text)
    return None if then == now else in_words(then, now)


def in_words(old: str | None, new: str | None) -> str:
    """Return how an input changed, given its digests; None for a file that a run does not read."""
    return "is new" if old is None else "is gone" if new is None else f"{old[:12]} -> {new[:12]}"


def _digests(manifest: Line) -> dict[str, str]:
    return {path: str(item["sha256"]) for path, item in _items(manifest).items()}


def _items(manifest: Line) -> dict[str, Line]:
    """Return the inputs of a manifest by path; none where one has another shape."""
    try:
        items = {str(item["path"]): item for item in manifest.get("inputs", ())}
        return items if all({"path", "sha256"} <= item.keys() for item in items.values()) else {}
    except (TypeError, KeyError, AttributeError):
        return {}


def _compare_ledgers(findings: Findings, before: bytes, after: bytes, name: str) -> None:
    lines = decoded(before)
    if isinstance(lines, int):
        findings.tampered = True
        findings.lines.append(
            f"{STATE} line {lines}: is no line that a run writes; {name}/{STATE} was changed"
        )
        return
    fresh = decoded(after)
    assert not isinstance(fresh, int)
    note_drift(findings, lines, fresh)
    if findings.drift is not None and findings.drift.first is None:
        findings.tampered = True
        findings.lines.append(f"{STATE}: says the same in other bytes; {name}/{STATE} was changed")


def note_drift(findings: Findings, before: list[Line], after: list[Line]) -> None:
    """Add to `findings` the first and the gravest difference of two ledgers."""
    findings.drift = compare(before, after)
    findings.lines += findings.drift.summary_lines(STATE)
    if findings.drift.parts:
        moved = "; ".join(escape_terminal(part, 120) for part in findings.drift.parts[:_PARTS])
        more = f" and {len(findings.drift.parts) - _PARTS} more" if len(findings.drift.parts) > _PARTS else ""
        findings.lines.append(f"what the model is asked with moved: {moved}{more}")
    for run in (before[:1], after[:1]):
        findings.roles.update(_roles(run[0]) if run else {})
    for file in _tools_offered_otherwise(before, after) - findings.moved.keys():
        findings.moved[file] = "declares something else"
        findings.lines.append(f"input moved: {escape_terminal(file)} {findings.moved[file]}")


def _tools_offered_otherwise(before: list[Line], after: list[Line]) -> set[str]:
    """Return the files of tools that both ledgers offer the model, with other words, schemas or effects.

    A tool that was not called is no input of a manifest, and moves a run by what it declares alone.
    """
    then, now = (_declared(lines[0]) if lines else {} for lines in (before, after))
    pairs = ((file, key) for file in then.keys() & now.keys() for key in then[file].keys() & now[file].keys())
    return {file for file, key in pairs if then[file][key] != now[file][key]}


def _declared(run: Line) -> dict[str, Line]:
    """Return what the tools of a `run` line declare, by file: to the gate, and to the model if that may see them."""
    declared: dict[str, Line] = {}
    with contextlib.suppress(KeyError, TypeError, AttributeError):
        offered = [spec for part in run.get("request_parts", {}).get("tools", ()) for spec in part["tools"]]
        words = {spec["name"]: {"model": spec} for spec in offered}
        for tool in run["tools"]:
            if tool["file"] is not None:
                declared[tool["file"]] = {"gate": tool, **words.get(tool["name"], {})}
    return declared


def _roles(run: Line) -> dict[str, str]:
    """Return the roles of the files that a `run` line names; every other input is a document."""
    roles: dict[str, str] = {}
    with contextlib.suppress(KeyError, TypeError, AttributeError):
        roles.update({str(item["file"]): f"tool {item['name']}" for item in run["tools"]})
        roles.update({str(item["path"]): "policy" for item in run["policy"]["files"]})
        roles.update({str(item["path"]): "agent" for item in run.get("modules", ())})
        roles.update({str(item["file"]): "hooks" for item in run.get("hooks", ()) if item["file"]})
        if run["task"] is not None:
            roles[str(run["task"]["path"])] = "task"
    return roles


def decoded(state: bytes) -> list[Line] | int:
    """Return the lines of a ledger, its chain unchecked, or the number of the first that is not an object."""
    out: list[Line] = []
    for number, text in enumerate(state.split(b"\n")[:-1], start=1):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            return number
        if not isinstance(line, dict):
            return number
        out.append(ledger_v1.lifted(line))
    return out if state.endswith(b"\n") else len(out) + 1


def _first_different(before: bytes, after: bytes) -> int:
    """Return the number of the first line in which two files differ."""
    pairs = enumerate(zip(before.split(b"\n"), after.split(b"\n"), strict=False), start=1)
    return next(
        (number for number, (a, b) in pairs if a != b), 1 + min(before.count(b"\n"), after.count(b"\n"))
    )


def _first_line(file: str, before: bytes, after: bytes) -> str:
    old, new = before.split(b"\n"), after.split(b"\n")
    for number, (a, b) in enumerate(zip(old, new, strict=False), start=1):
        if a != b:
            return f"{file} line {number}: committed is not what the run gives"
    return f"{file}: committed {len(old)} lines, the run gives {len(new)}"
