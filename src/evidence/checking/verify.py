"""Verify that a record is complete and consistent in itself, without running anything.

Verified are the ledger's chain, the digests in the manifest, the index, and the three other files, which are
rebuilt from the ledger. Where possible a finding names the line and field that was changed. Only `check` proves
that the code gives this record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...fail.errors import InputError, RecordError
from ...runtime.core.effects import RunEnded, question_digest
from ...runtime.core.lines import Line
from ...runtime.core.outcome_codec import answer_from_dict, call_from_dict
from ...runtime.formats import canonical_json
from ...runtime.formats.escape import escape_terminal
from ...runtime.journal import ledger
from ...runtime.journal.decided_calls import decided_calls
from ...runtime.journal.requests import requests_of
from ...runtime.loop.state import MAX_PARALLEL
from ...runtime.policy.per_tool.principals import is_name
from ...runtime.policy.signers import signer_of
from ...runtime.setup.run_inputs import files_of_called, paths_of
from ..files import manifest as manifests
from ..files import v1
from ..files.claims.volatile import misshapen_claims
from ..files.json_diff import differences
from ..files.manifest import MANIFEST, REPORT, STATE, TRACE
from ..files.owned import OWNED, children_of
from ..files.rebuild import rebuild, run_files
from ..files.tally import Tally
from ..recording.index import INDEX, disagreements
from ..recording.index import read as read_index
from ..tasks.expect import differences as missed_expectations
from ..tasks.place import expected_of_run, place_of
from .differences.drift import shorten
from .hook_answers import hook_problems


def verify(folder: Path, root: Path) -> list[str]:
    """Return one line for each thing wrong with the run in `folder`, in the project `root`; none if it holds."""
    try:
        name = folder.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        name = folder.as_posix()
    try:
        files = run_files(folder, name)
    except RecordError as error:
        return [str(error)]
    out = []
    try:
        out += _totals(files[STATE], f"{name}/{STATE}")
        out += _approvals(files[STATE], f"{name}/{STATE}")
        out += _requests(files[STATE], f"{name}/{STATE}")
        out += _groups(files[STATE], f"{name}/{STATE}")
        out += _hooks(files[STATE], f"{name}/{STATE}")
        out += _inputs(files, name)
        rebuilt = rebuild(files[STATE], f"{name}/{STATE}", files)
    except RecordError as error:
        out.append(str(error))
        rebuilt = {}
    out += _manifest(files, rebuilt, name)
    for file in (TRACE, REPORT):
        if file in rebuilt and files[file] != rebuilt[file]:
            out.append(
                f"{name}/{file}:{_first_line(files[file], rebuilt[file])}: is not what the ledger gives"
            )
    if rebuilt:
        out += _place(folder, files[STATE], name, root)
    for child in children_of(folder):
        out += verify(child, root)
    return out + _index(files[MANIFEST], name, root)


def _place(folder: Path, state: bytes, name: str, root: Path) -> list[str]:
    """Compare the record with the task that its place belongs to."""
    place = place_of(folder, root)
    if place is None or place.inner:
        return []
    try:
        task = place.task()
        lines = list(ledger.read(state, f"{name}/{STATE}"))
        out = place.problems(lines[0], task)
        if out:
            return out
        tally = Tally.of(lines)
        missed = missed_expectations(expected_of_run(task, lines[0]), tally)
        return place.recorded_problems(lines, task) + [f"{name}: expected: {line}" for line in missed]
    except InputError as error:
        return [str(error)]


def _totals(state: bytes, name: str) -> list[str]:
    """Compare the end line with the lines before it."""
    lines = list(ledger.read(state, name))
    totals = ledger.Totals()
    try:
        for line in lines[1:-1]:
            totals.add(line)
        end = lines[-1]
        ended = RunEnded(end["terminal_reason"], end["final_answer"], end["failure_mode"])
        last = ledger.end_line(lines[0], totals, ended, len(lines), end["stamp"])
        derived = {**last, "prev": end["prev"]}
        if lines[0]["schema"] == v1.SCHEMA:
            derived["inputs"] = v1.inputs(lines)
        return [
            f"{name}:{len(lines)}: {escape_terminal(pointer)} is {shorten(a)}, the lines before it give {shorten(b)}"
            for pointer, a, b in differences(end, derived)
        ]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ledger.unknown_shape(name, error) from error


def _inputs(files: dict[str, bytes], name: str) -> list[str]:
    """Compare the paths of the inputs with those that the ledger names; their digests are unproven without a seal.

    Modules that tools import are in the manifest alone.
    """
    lines = list(ledger.read(files[STATE], f"{name}/{STATE}"))
    if lines[0]["schema"] == v1.SCHEMA:
        return []
    try:
        manifest = manifests.read_uncanonical(files[MANIFEST])
        if manifest is None:
            return []  # which is told of the file as a whole
        totals = ledger.Totals()
        for line in lines[1:-1]:
            totals.add(line)
        wanted = paths_of(lines[0], totals) | files_of_called(lines[0], totals)
        listed = [str(item["path"]) for item in manifest["inputs"]]
        canonical = {str(item["path"]) for item in manifest["inputs"] if item.get("canonical") is True}
    except (KeyError, TypeError, ValueError, AttributeError):
        return [f"{name}/{MANIFEST}: names its inputs in an unknown shape"]
    out = [f"does not name {path}, which the ledger names" for path in sorted(wanted - set(listed))]
    others = set(listed) - wanted
    out += [f"names {path}, which the run did not use" for path in sorted(others) if not _is_module(path)]
    shapes = all(_is_input(item) for item in manifest["inputs"])
    if listed != sorted(set(listed)) or not canonical <= wanted or not shapes:
        out.append("names its inputs in another order or shape than a run does")
    return [f"{name}/{MANIFEST}: {escape_terminal(line, 300)}" for line in out]


def _is_input(item: Line) -> bool:
    """Return whether an entry of `inputs` has the form that a run gives it."""
    is_named = item.keys() - {"canonical"} == {"path", "sha256"}
    return is_named and re.fullmatch("[0-9a-f]{64}", str(item["sha256"])) is not None


def _is_module(path: str) -> bool:
    """Return whether an input may be a module: a file, a dotted name, or a tool that was made in code."""
    return path.endswith(".py") or path.startswith("<tool ") or path.replace(".", "_").isidentifier()


def _approvals(state: bytes, name: str) -> list[str]:
    """Check that each answer of a person belongs to its call, under a policy of the run."""
    lines = list(ledger.read(state, name))
    out = []
    try:
        run = lines[0]
        nonce = run.get("nonce")
        if nonce is not None and re.fullmatch("[0-9a-f]{32}", nonce) is None:
            out.append(f"{name}:1: its nonce is not 32 hexadecimal digits")
        if "principal" in run and not is_name(run["principal"]):
            out.append(f"{name}:1: its principal is no name of a principal")
        versions = [run["policy"]["version"], *(item["policy"]["version"] for item in run.get("rebased", ()))]
        for number, line in enumerate(lines[1:-1], start=2):
            calls = {call["id"]: call_from_dict(call) for call in decided_calls(line)}
            for entry in line["policy_decisions"]:
                if "approval" not in entry:
                    continue
                call, place = calls[entry["id"]], f"{name}:{number}"
                asked = [question_digest(call, item, nonce) for item in versions]
                out += [f"{place}: the approval of {call.id} {wrong}" for wrong in _unsigned(entry, run)]
                if entry["approval"]["digest"] not in asked:
                    out.append(
                        f"{place}: the approval of {call.id} was given for another call, policy or run"
                    )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ledger.unknown_shape(name, error) from error
    return out


def _unsigned(entry: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the signature of an answer that allowed a call, under the signers of the run."""
    signers, given = run["policy"].get("signers", {}), answer_from_dict(entry["approval"])
    if entry["decision"] != "allow" or not (signers or given.signature):
        return []
    name = signer_of(given, str(given.digest), signers)
    if name is None:
        return ["has no signature of one of approval.signers"]
    return [] if entry["approval"].get("signer") == name else [f"was signed by {name}"]


def _groups(state: bytes, name: str) -> list[str]:
    """Check that calls which are said to have run together may have."""
    lines = list(ledger.read(state, name))
    try:
        most = lines[0].get("max_parallel", MAX_PARALLEL)
        return [
            f"{name}:{number}: {escape_terminal(', '.join(map(str, group)), 200)} cannot have run together"
            for number, line in enumerate(lines[1:-1], start=2)
            for group in line.get("groups", ())
            if not (2 <= len(group) <= most and _may_be_group(line, group))
        ]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ledger.unknown_shape(name, error) from error


def _hooks(state: bytes, name: str) -> list[str]:
    """Check that what was decided around hooks follows from what they answered."""
    lines = list(ledger.read(state, name))
    try:
        return [f"{name}:{number}: {escape_terminal(text, 300)}" for number, text in hook_problems(lines)]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ledger.unknown_shape(name, error) from error


def _may_be_group(line: Line, group: list[str]) -> bool:
    """Return whether calls are different ones in order, all decided by rules, and none begun before all were."""
    places = {call["id"]: number for number, call in enumerate(line["intended_tool_calls"])}
    members = [places.get(call, -1) for call in group]
    if members != sorted(set(members)) or members[0] < 0:
        return False
    calls = {
        (call["name"], canonical_json.encode(call["arguments"]))
        for call in line["intended_tool_calls"]
        if call["id"] in group
    }
    decided = max(line["stamps"][f"d{member}"][1] for member in members)
    begun = [line["stamps"].get(f"i{member}.1", (-1,))[0] for member in members]
    asked = any(f"h{member}" in line["stamps"] for member in members)
    return len(calls) == len(group) and min(begun) > decided and not asked


def _requests(state: bytes, name: str) -> list[str]:
    """Check that each step was asked with what the lines before it give."""
    try:
        unasked: list[str] = []
        found = [
            f"{name}: step {request.step}: {escape_terminal(problem, 200)}"
            for request in requests_of(ledger.read(state, name), unasked)
            for problem in request.problems
        ]
        return found + [f"{name}: {escape_terminal(problem, 200)}" for problem in unasked]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ledger.unknown_shape(name, error) from error


def _manifest(files: dict[str, bytes], rebuilt: dict[str, bytes], name: str) -> list[str]:
    try:
        manifest = manifests.read(files[MANIFEST])
    except (ValueError, TypeError):
        is_other_form = manifests.read_uncanonical(files[MANIFEST]) is not None
        wrong = "is not in canonical form" if is_other_form else "is not as it was written"
        return [f"{name}/{MANIFEST}: {wrong}"]
    out = [f"{name}/{MANIFEST}: {problem}" for problem in misshapen_claims(manifest)]
    artifacts = manifest.get("artifacts")
    for file in (STATE, TRACE, REPORT):
        recorded = artifacts.get(file) if isinstance(artifacts, dict) else None
        if recorded != canonical_json.digest(files[file]):
            out.append(f"{name}/{file}: its digest is not the one in {MANIFEST}")
    if MANIFEST in rebuilt:
        derived = json.loads(rebuilt[MANIFEST])
        apart = (*manifests.VOLATILE, *OWNED)  # the latter were compared with the folder
        stable = {key: value for key, value in manifest.items() if key not in apart}
        for pointer, a, b in differences(stable, derived):
            out.append(
                f"{name}/{MANIFEST}: {escape_terminal(pointer)} is {shorten(a)}, the ledger gives {shorten(b)}"
            )
    return out


def _first_line(a: bytes, b: bytes) -> int:
    pairs = zip(a.split(b"\n"), b.split(b"\n"), strict=False)
    return next(
        (n for n, (x, y) in enumerate(pairs, start=1) if x != y), min(a.count(b"\n"), b.count(b"\n")) + 1
    )


def _index(manifest: bytes, name: str, root: Path) -> list[str]:
    path = root / INDEX
    if not name.startswith("runs/") or name.count("/") != 2 or not path.is_file():
        # neither runs outside a project nor children are in the index; a missing index is reported for the project
        return []
    listed = read_index(path)
    if listed is None:
        return [f"{INDEX}: is not an index; restore it, or recording any task (`tachograph run`) writes it"]
    return disagreements(name, listed.get(name), canonical_json.digest(manifest), has_task=True)
