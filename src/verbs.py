"""What each command does: call, print, exit code."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .console import Paint, Progress, clip, painter
from .fail.errors import InputError


def version(_options: argparse.Namespace) -> int:
    """Print the version."""
    from . import __version__

    print(f"tachograph {__version__}")
    return 0


def _root(options: argparse.Namespace) -> Path:
    from .runtime.places import project_root, shipped

    if options.root is not None:
        root = Path(options.root)
        if not (root / "policy").is_dir():
            raise InputError("holds no policy/ folder", file=options.root, remedy="give the project's root")
        return root
    return project_root(Path.cwd()) or shipped(".")


def _task_path(options: argparse.Namespace) -> tuple[Path, Path]:
    """The task file and the project that its run belongs to."""
    from .runtime.places import project_root, shipped

    path = Path(options.task)
    root = Path(options.root) if options.root else project_root(path.resolve().parent)
    inside = shipped(options.task)
    if not os.path.exists(path) and not path.is_absolute() and os.path.isfile(inside):
        path, root = inside, None  # a task that came with the package; its run goes below the current folder
    return path, root or Path.cwd()


def run(options: argparse.Namespace) -> int:
    """Run a task, record it, and say how it ended."""
    from .evidence import index
    from .evidence.record import ending_ok, live_export, record_run
    from .evidence.task import build, load_task

    path, home = _task_path(options)
    out = Path(options.out or _near(home / "runs" / path.resolve().parent.name / path.stem))
    task = load_task(path, root=options.root)
    agent, setting = build(task)
    paint = painter(sys.stdout, options.no_color)
    listeners: list[Any] = [] if options.json or options.quiet else [Progress(sys.stdout, paint)]
    kind, name = task.kind_and_name
    rejected = Path(_near(home / ".tachograph" / "rejected" / f"{kind}-{name}"))
    with live_export(options.otlp, lambda line: print(f"tachograph: {line}", file=sys.stderr)) as extra:
        result = record_run(
            agent,
            setting,
            out,
            root=task.root,
            listeners=[*listeners, *extra],
            expected=task.expected,
            rejected=rejected,
            durability=options.durability,
        )
    index.update_for(home, out)
    good = ending_ok(result, task.expected)
    _say_result(options, result, out, good, paint)
    if result.mode == "interrupted" and not good:
        return 128 + (result.signum or 2)
    return 0 if good else 1


def _shown(path: Path) -> str:
    """A path for a person: relative where it can be, and inert."""
    return clip(_near(path), 400)


def _say_result(options: argparse.Namespace, result: Any, out: Path, good: bool, paint: Paint) -> None:
    if options.json:
        print(
            json.dumps(
                {
                    "run_id": result.run_id,
                    "ending": result.ending,
                    "failure_mode": result.mode,
                    "answer": result.answer,
                    "as_wanted": good,
                    "folder": str(out),
                },
                sort_keys=True,
            )
        )
    else:
        if result.answer is not None:
            print(f"answer    {clip(result.answer, 2000)}")
        print(f"ending    {paint(result.ending, 'green' if good else 'red')}")
        print(f"files     {_shown(out)}/: state.jsonl trace.json run_report.md manifest.json")


def _near(path: Path) -> str:
    try:
        return path.resolve().relative_to(Path.cwd().resolve()).as_posix()
    except ValueError:
        return str(path)


def _run_folders(options: argparse.Namespace) -> tuple[Path, list[Path]]:
    """The folder that `runs/` is in, and the runs asked for; all of them where none is named."""
    from .evidence.check import runs_below
    from .evidence.manifest import FILES

    here = Path.cwd()
    root = here if options.root is None and not _in_project() and (here / "runs").is_dir() else _root(options)
    for name in options.runs:
        folder = Path(name)
        if not name or not os.path.isdir(folder):
            raise InputError(
                "there is no such run", file=name or "''", remedy="name a folder such as runs/canonical/v1"
            )
        if not any((folder / file).is_file() for file in FILES):
            raise InputError(
                "is no run", file=name, remedy="name the folder of one run, such as runs/canonical/v1"
            )
    folders = [Path(name) for name in options.runs] or runs_below(root)
    if not folders:
        raise InputError(
            "there is no recorded run", file=str(root / "runs"), remedy="record one with `tachograph run`"
        )
    return root, folders


def _in_project() -> bool:
    from .runtime.places import project_root

    return project_root(Path.cwd()) is not None


def check(options: argparse.Namespace) -> int:
    """Make recorded runs again and say what drifted."""
    from .evidence.check import examine
    from .evidence.drift import counted
    from .evidence.index import problems
    from .evidence.recorded import made_from_code

    root, folders = _run_folders(options)
    whole = not options.runs and (root / "policy").is_dir()
    given_root = Path(options.root) if options.root else None
    found = [examine(folder, root=given_root) for folder in folders]
    disagreements = problems(root) if whole else []
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
    from .evidence.check import likely_cause

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
    from .evidence.check import by_gravity, likely_cause

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
    from .evidence.drift import counted
    from .evidence.index import problems
    from .evidence.verify import verify as verify_run

    root, folders = _run_folders(options)
    found = {str(_near(folder)): verify_run(folder, root) for folder in folders}
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
        else f"verify: {names} whole and consistent; nothing was run"
    )
    return 1 if lines else 0


def show(options: argparse.Namespace) -> int:
    """Print a recorded run."""
    from .evidence.show import show

    print(show(Path(options.run), as_json=options.json, paint=painter(sys.stdout, options.no_color)))
    return 0


def resume(options: argparse.Namespace) -> int:
    """Go on with a run that died."""
    from .evidence import index
    from .evidence.recorded import project_of
    from .evidence.resume import resume_folder
    from .runtime.keeping import DONE, NOT_DONE

    out = Path(options.run)
    said = {**dict.fromkeys(options.done, DONE), **dict.fromkeys(options.not_done, NOT_DONE)}
    paint = painter(sys.stdout, options.no_color)
    listeners: list[Any] = [] if options.json or options.quiet else [Progress(sys.stdout, paint)]
    root = Path(options.root) if options.root else None
    result = resume_folder(out, said=said, rebase=options.rebase, root=root, listeners=listeners)
    place = out.with_name(out.name.removesuffix(".partial"))
    index.update_for(project_of(place, root), place)
    _say_result(options, result, place, result.ok, paint)
    if result.mode == "interrupted":
        return 128 + (result.signum or 2)
    return 0 if result.ok else 1


def explain(options: argparse.Namespace) -> int:
    """Say of a recorded run what every rule made of each call."""
    from .evidence.explain import as_data, as_text, explain_run

    found = explain_run(Path(options.run), root=Path(options.root) if options.root else None)
    if options.json:
        print(json.dumps(as_data(found, options.step), sort_keys=True))
    else:
        print(as_text(found, options.step, painter(sys.stdout, options.no_color)))
    return 0


def replay(options: argparse.Namespace) -> int:
    """Make recorded runs again from their own records."""
    from .evidence.replay import replayed

    root, folders = _run_folders(options)
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


def _load_policies(options: argparse.Namespace, files: Sequence[str]) -> list[Any]:
    from .runtime.policy import Policy

    root = _root(options)
    paths = [Path(file) for file in files] or [root / "policy" / "v1.yaml"]
    return [(path, Policy.load(path, options.overlay, root=root)) for path in paths]


def policy_check(options: argparse.Namespace) -> int:
    """Load policies and say what they hold."""
    loaded = _load_policies(options, options.files)
    folder = _root(options) / "tools"
    names = {path.stem for path in folder.glob("*.py")}
    for _, policy in loaded:
        if names:
            policy.check_tools(names)
    if options.json:
        print(json.dumps({_near(path): policy.version for path, policy in loaded}, sort_keys=True))
        return 0
    for path, policy in loaded:
        print(
            f"{_shown(path)}: version {policy.version}, {len(policy.allowed)} tools allowed, "
            f"{len(policy.data.get('url_allowlist', ()))} URL entries, {len(policy.mounts)} mounts"
        )
    return 0


def policy_version(options: argparse.Namespace) -> int:
    """Print the version of policies."""
    loaded = _load_policies(options, options.files)
    if not options.json:
        print("\n".join(policy.version for _, policy in loaded))
    elif len(loaded) == 1:
        print(json.dumps({"version": loaded[0][1].version}))
    else:
        print(json.dumps({_near(path): policy.version for path, policy in loaded}, sort_keys=True))
    return 0


def policy_decide(options: argparse.Namespace) -> int:
    """Decide one call."""
    from .evidence.decide import decide_file, text_of

    ((_, policy),) = _load_policies(options, [options.policy] if options.policy else [])
    found = decide_file(options.call, policy, _root(options))
    if options.json:
        print(json.dumps(found.record(), sort_keys=True))
    else:
        print(text_of(found, painter(sys.stdout, options.no_color)))
    return 0 if found.decision.decision == "allow" else 1
