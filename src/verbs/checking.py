"""Commands that hold records against what they should be: check, verify, replay."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..console import Paint, clip, painter
from .common import Verb, load_policies, near, run_folders

_ALL = "folders of runs (default: all below runs/)"


def add(commands: Any, verb: Verb) -> None:
    """The commands check, verify, seal and replay."""
    parser = verb(commands, "check", check, "make recorded runs again and compare them byte for byte")
    parser.add_argument("runs", nargs="*", metavar="RUN", help=_ALL)
    parser = verb(commands, "verify", verify, "check records in themselves, without running anything")
    parser.add_argument("runs", nargs="*", metavar="RUN", help=_ALL)
    parser.add_argument("--key", metavar="FILE", help="each run must have a seal of this key (PEM)")
    parser = verb(commands, "seal", seal, "sign the four files of runs with an ed25519 key")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folders of runs")
    parser.add_argument("--key", required=True, metavar="FILE", help="private key (PEM)")
    parser = verb(commands, "replay", replay, "make runs again from their own records: no model, no tools")
    parser.add_argument(
        "--policy", metavar="FILE", help="say what this policy would have decided, up to the first difference"
    )
    parser.add_argument(
        "--overlay", action="append", default=[], metavar="FILE", help="merge over that policy"
    )
    parser.add_argument("runs", nargs="*", metavar="RUN", help=_ALL)


def check(options: argparse.Namespace) -> int:
    """Make recorded runs again and say what drifted."""
    from ..evidence.check import examine
    from ..evidence.drift import counted
    from ..evidence.index import problems
    from ..evidence.recorded import made_from_code
    from ..evidence.secrets import leaks

    root, folders = run_folders(options)
    whole = not options.runs and (root / "policy").is_dir()
    given_root = Path(options.root) if options.root else None
    found = [examine(folder, root=given_root) for folder in folders]
    disagreements = [*problems(root), *leaks([root / "runs"], root)] if whole else []
    bad = [item for item in found if not item.ok]
    if options.json:
        print(json.dumps(_drift_as_data(found, disagreements), sort_keys=True))
        return 1 if bad or disagreements else 0
    paint = painter(sys.stdout, options.no_color)
    if bad:
        _print_drift(bad, len(found), paint)
    for line in disagreements:
        print(f"{paint('index', 'red')}  {clip(line, 400)}")
    if bad:
        accept = bad[0].accept if len(bad) == 1 else _accept_all(bad)
        print(
            f"accept it: {clip(accept, 1000)}" if accept else "nothing to accept: mend the files named above"
        )
        return 1
    if disagreements:
        places = counted(len(disagreements), "place")
        print(f"check: {len(found)} runs re-derived, but runs, tasks and index disagree in {places}")
        return 1
    names = clip(found[0].run, 400) if len(found) == 1 else f"{len(found)} runs"
    from_code = sum(made_from_code(folder) for folder in folders)
    if from_code == len(found):
        print(
            f"check: {names} made from code: whole and consistent, but there is no task to make it again from"
        )
    else:
        note = f" ({counted(from_code, 'run')} made from code verified only)" if from_code else ""
        print(f"check: {names} re-derived, all files identical{note}")
    return 0


def _accept_all(bad: Sequence[Any]) -> str | None:
    return "make evidence-build" if any(item.accept for item in bad) else None


def _drift_as_data(found: Sequence[Any], disagreements: Sequence[str]) -> dict[str, Any]:
    from ..evidence.check import likely_cause

    bad = [item for item in found if not item.ok]
    firsts = {item.run: item.drift.first for item in bad if item.drift is not None and item.drift.first}
    return {
        "runs": len(found),
        "cause": likely_cause(bad),
        "drifted": {item.run: item.lines for item in bad},
        "classes": {item.run: item.kind for item in bad},
        "first": {run: first.record() for run, first in firsts.items()},
        "accept": {item.run: item.accept for item in bad},
        "index": list(disagreements),
    }


def _print_drift(bad: Sequence[Any], total: int, paint: Paint) -> None:
    """What matters first: how many, why, then each run by gravity; runs where only digests moved in one line."""
    from ..evidence.check import by_gravity, likely_cause

    cause = likely_cause(bad)
    print(
        f"check: {len(bad)} of {total} runs drifted"
        + (f"; likely cause: {clip(cause, 400)}" if cause else "")
    )
    quiet = [item for item in bad if item.kind == "DIGEST-ONLY"] if len(bad) > 1 else []
    told: dict[tuple[str, ...], list[Any]] = {}
    for item in by_gravity([item for item in bad if item not in quiet]):
        told.setdefault((item.kind, *item.lines), []).append(item)
    for (kind, *lines), items in told.items():
        names = (
            items[0].run if len(items) == 1 else f"{len(items)} runs: {' '.join(item.run for item in items)}"
        )
        print(f"{paint(kind, 'red')}  {clip(names, 400)}")
        for line in lines:
            print(f"  {clip(line, 400)}")
        if items[0].accept and len(items) == 1 and len(bad) > 1:
            print(f"  accept this one: {clip(items[0].accept, 1000)}")
    if quiet:
        names = " ".join(sorted(item.run for item in quiet))
        print(f"{paint('DIGEST-ONLY', 'yellow')}  {len(quiet)} runs: {clip(names, 400)}")


def verify(options: argparse.Namespace) -> int:
    """Check records in themselves."""
    from ..evidence.drift import counted
    from ..evidence.index import problems
    from ..evidence.seal import check_seal
    from ..evidence.verify import verify as verify_run

    root, folders = run_folders(options)
    key = Path(options.key) if options.key else None
    found = {
        str(near(folder)): [*verify_run(folder, root), *check_seal(folder, key, root)] for folder in folders
    }
    lines = [line for run in found.values() for line in run]
    if not options.runs and (root / "policy").is_dir():
        lines += [line for line in problems(root) if line not in lines]
    if options.json:
        print(json.dumps({"runs": len(found), "problems": lines}, sort_keys=True))
        return 1 if lines else 0
    for line in lines:
        print(clip(line, 400))
    names = clip(next(iter(found)), 400) if len(found) == 1 else f"{len(found)} runs"
    print(
        f"verify: {counted(len(lines), 'problem')}"
        if lines
        else f"verify: {names} whole and consistent{', sealed with that key' if key else ''}; nothing was run"
    )
    return 1 if lines else 0


def seal(options: argparse.Namespace) -> int:
    """Sign the four files of recorded runs."""
    from ..evidence.seal import seal as seal_run

    root, folders = run_folders(options)
    keys = {near(folder): seal_run(folder, Path(options.key), root) for folder in folders}
    if options.json:
        print(json.dumps(keys, sort_keys=True))
        return 0
    for name, keyid in keys.items():
        print(f"sealed    {clip(name, 400)}/seal.json with key {keyid[:16]}")
    return 0


def replay(options: argparse.Namespace) -> int:
    """Make recorded runs again from their own records."""
    from ..evidence.replay import replayed

    root, folders = run_folders(options)
    if options.policy:
        return _other_policy(options, root, folders)
    found = [replayed(folder, root=root) for folder in folders]
    bad = [item for item in found if not item.ok]
    if options.json:
        data = {"runs": len(found), "differ": {item.run: item.lines for item in bad}}
        print(json.dumps(data, sort_keys=True))
        return 1 if bad else 0
    paint = painter(sys.stdout, options.no_color)
    for item in bad:
        print(f"{paint('differs', 'red')}  {clip(item.run, 400)}")
        for line in item.lines:
            print(f"  {clip(line, 400)}")
    if not bad:
        names = clip(found[0].run, 400) if len(found) == 1 else f"{len(found)} runs"
        print(f"replay: {names} answered from the record alone, all files identical")
    return 1 if bad else 0


def _other_policy(options: argparse.Namespace, root: Path, folders: Sequence[Path]) -> int:
    """Say what another policy would have decided in each run, up to where it parts from the record."""
    from ..evidence.counterfactual import under

    ((_, policy),) = load_policies(options, [options.policy])
    found = [under(folder, policy, root=root) for folder in folders]
    if options.json:
        print(json.dumps([item.record() for item in found], sort_keys=True))
        return 1 if any(item.flip or item.why for item in found) else 0
    paint = painter(sys.stdout, options.no_color)
    for item in found:
        if item.flip is None:
            same = f"{item.same} decisions the same" + (
                f"; then the run goes on otherwise: {item.why}" if item.why else ""
            )
            word = paint("open", "yellow") if item.why else paint("same", "green")
            print(f"{word}  {clip(item.run, 200)}  {clip(same, 400)}")
            continue
        flip = item.flip
        before, after = (
            "no objection" if side is None else f"{side['decision']} {side['rule_id']} ({side['at']})"
            for side in (flip.before, flip.after)
        )
        print(f"{paint(flip.kind, 'yellow')}  {clip(item.run, 200)}")
        print(
            f"  step {flip.step} {clip(flip.tool or 'budget', 64)}: {clip(before, 200)} -> {clip(after, 200)}"
        )
        known = "; what the call would have brought is not known" if flip.kind == "widening" else ""
        print(
            f"  {item.same} decisions before it are the same, {item.behind} behind it are hypothetical{known}"
        )
    flips = sum(item.flip is not None for item in found)
    print(f"replay: {flips} of {len(found)} runs would have gone another way under {policy.version}")
    return 1 if flips or any(item.why for item in found) else 0
