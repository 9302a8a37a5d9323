"""Commands that hold records against what they should be: check, verify, replay."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from ...fail.errors import InputError, OutputError
from ...runtime.formats.escape import escape_terminal
from ..console import painter, width_of
from .common import Verb, add_files, load_policies, near, owners, path_given, run_folders, why_of, write_file
from .policy.diff import add_jobs, over_runs
from .sealing import add_to_verify, as_data, chain_problems, sealed_runs, summary, verdict_of

_ALL = "folders of runs; runs/ may be left out (default: all below it)"
SKIP: Final = 125  # what `git bisect run` takes for "skip this commit"


def add(commands: Any, verb: Verb) -> None:
    """Add the commands check, verify and replay."""
    parser = verb(commands, "check", check)
    parser.add_argument("runs", nargs="*", type=path_given, metavar="RUN", help=_ALL)
    parser.add_argument(
        "--html", type=path_given, metavar="FILE", help="write what drifted as one page for a browser too"
    )
    parser.add_argument(
        "--github",
        action="store_true",
        help="print annotations for GitHub's runner, add to the job's summary",
    )
    parser.add_argument(
        "--bisect", action="store_true", help="for `git bisect run`: 125 where a run cannot be judged"
    )
    parser.add_argument(
        "--verbose", action="store_true", help="report each run, also where many drifted for one cause"
    )
    add_jobs(parser)
    parser = verb(commands, "verify", verify)
    parser.add_argument("runs", nargs="*", type=path_given, metavar="RUN", help=_ALL)
    parser.add_argument(
        "--key", type=path_given, metavar="FILE", help="each run must have a seal of this key (PEM)"
    )
    add_to_verify(parser)
    parser.add_argument(
        "--fields",
        action="store_true",
        help="say of each run which fields only the record states, sealed or not; `check` derives all others again",
    )
    add_jobs(parser)
    parser = verb(commands, "replay", replay)
    parser.add_argument(
        "--policy",
        type=path_given,
        metavar="FILE",
        help="say what this policy would have decided, up to the first difference",
    )
    add_files(parser, "--overlay", "merge over that policy")
    parser.add_argument("runs", nargs="*", type=path_given, metavar="RUN", help=_ALL)
    add_jobs(parser)


def check(options: argparse.Namespace) -> int:
    """Make recorded runs again and say what drifted."""
    if not options.bisect:
        return _checked(options)
    try:
        return _checked(options)
    except BrokenPipeError:
        raise  # a reader that left says nothing of the commit
    except (InputError, OutputError) as error:
        why = escape_terminal(str(error), 1000)
    except Exception as error:  # noqa: BLE001 - a commit whose code fails is neither good nor bad
        why = f"the code fails ({type(error).__name__})"
    print(f"tachograph: cannot be judged: {why}", file=sys.stderr)
    return SKIP


def _checked(options: argparse.Namespace) -> int:
    from ...evidence.checking.check import examine
    from ...evidence.checking.secrets import leaks
    from ...evidence.recording.index import problems
    from ...review.drift.report import drift_report

    if options.json and options.github:
        raise InputError("--json and --github both want standard output", remedy="choose one of them")
    root, folders = run_folders(options)
    folders = owners(root, folders)
    is_whole_project = not options.runs and (root / "policy").is_dir()
    given_root = Path(options.root) if options.root is not None else None
    counted_too = ("drifted", lambda item: not item.ok)
    findings = over_runs(options, partial(examine, root=given_root), folders, "check", counted_too)
    index = problems(root) if is_whole_project else []
    secrets = leaks([root / "runs"] if is_whole_project else folders, root)
    report = drift_report(findings, root, index=index, secrets=secrets, given_root=options.root)
    if options.html is not None:
        from ...pages.render import MARK
        from ...review.drift.page import drift_page

        write_file(Path(options.html), drift_page(report), ours=MARK.encode(), kind="page of ours")
    if options.json:
        print(json.dumps(report.to_dict(), sort_keys=True))
    else:
        _say_drift(options, report, root, folders)
    return 0 if report.ok else SKIP if options.bisect and not report.judged else 1


def _say_drift(options: argparse.Namespace, report: Any, root: Path, folders: Sequence[Path]) -> None:
    from ...evidence.queries.wrap import fold
    from ...evidence.recording.recorded import made_from_code
    from ...review.drift.text import closing, lines
    from ...runtime.formats.escape import escape_build_log

    if options.github:
        _tell_forge(report, root)
    width = width_of(sys.stdout) if sys.stdout.isatty() else None
    for line in lines(report, painter(sys.stdout, options.no_color), width, verbose=options.verbose):
        print(line)
    if report.runs:
        return
    names = escape_build_log(near(folders[0])) if len(folders) == 1 else f"{len(folders)} runs"
    from_code = sum(made_from_code(folder) for folder in folders)
    last = closing(report, names, from_code, len(folders))
    print(*([last] if width is None else fold(last, width)), sep="\n")


def _tell_forge(report: Any, root: Path) -> None:
    """Annotations for GitHub's runner, and the summary of the job where the runner names a file for it."""
    from ...review.drift.annotations import commands, summary

    given = os.environ  # noqa: TID251 - says where to report to, and decides nothing in a run
    prefix = ""
    if given.get("GITHUB_WORKSPACE"):
        with contextlib.suppress(ValueError):
            place = root.resolve().relative_to(Path(given["GITHUB_WORKSPACE"]).resolve()).as_posix()
            prefix = "" if place == "." else f"{place}/"
    for line in commands(report, prefix):
        print(line)
    if file := given.get("GITHUB_STEP_SUMMARY"):
        try:
            with open(file, "a", encoding="utf-8", newline="\n") as out:
                out.write(summary(report))
        except (OSError, ValueError) as error:
            raise OutputError(
                f"{file}: the summary cannot be added ({why_of(error)}); unset GITHUB_STEP_SUMMARY"
            ) from None


def verify(options: argparse.Namespace) -> int:
    """Check records in themselves."""
    from ...evidence.checking.differences.drift import counted
    from ...evidence.checking.secrets import leaks
    from ...evidence.checking.verify import verify as verify_run
    from ...evidence.recording.index import problems
    from ...evidence.sending.seal import check_key, check_seal

    _refuse_keys_as_root(options)
    root, folders = run_folders(options)
    key = Path(options.key) if options.key is not None else None
    if key is not None:
        check_key(key)  # else what is wrong with it is told of each run
    verdict = verdict_of(options, root)

    def held(folder: Path) -> list[str]:
        return [*verify_run(folder, root), *check_seal(folder, key, root)]

    wrong = over_runs(options, held, folders, "verify", ("with problems", bool))
    by_run = dict(zip((str(near(folder)) for folder in folders), wrong, strict=True))
    lines = [line for run in by_run.values() for line in run]
    is_whole_project = verdict is not None or (not options.runs and (root / "policy").is_dir())
    if is_whole_project:
        lines += [line for line in problems(root) if line not in lines]
        lines += chain_problems(root) if verdict is None else verdict.problems
    lines += leaks([root / "runs"] if is_whole_project else folders, root)
    unsealed = verdict.unsealed if verdict is not None else []
    failed = bool(lines or (options.strict and unsealed))
    proofs = _proofs(folders) if options.fields else {}
    sealed_here = {
        name
        for name in proofs
        if (key is not None and not by_run[name]) or name in sealed_runs(verdict, root)
    }
    if options.json:
        data = {"runs": len(by_run), "problems": lines, **as_data(verdict)}
        if options.fields:
            data["fields"] = {
                name: proof.to_dict(is_sealed=name in sealed_here) for name, proof in proofs.items()
            }
        print(json.dumps(data, sort_keys=True))
        return int(failed)
    for name, proof in proofs.items():
        for line in proof.in_words(name, is_sealed=name in sealed_here):
            print(escape_terminal(line, 400))
    for line in lines:
        print(escape_terminal(line, 400))
    for line in unsealed:
        print(f"unsealed: {escape_terminal(line, 400)}")
    names = escape_terminal(next(iter(by_run)), 400) if len(by_run) == 1 else f"{len(by_run)} runs"
    sealed = (", sealed with that key" if key else "") + summary(verdict, root)
    strictly = f"{counted(len(unsealed), 'unsealed change')}, which --strict refuses"
    print(
        f"verify: {counted(len(lines), 'problem')}"
        if lines
        else f"verify: {strictly}"
        if failed
        else f"verify: {names} whole and consistent{sealed}; nothing was run"
    )
    return int(failed)


def _refuse_keys_as_root(options: argparse.Namespace) -> None:
    """Raise InputError where the keys to trust are given as the project's root."""
    if options.root is not None and os.path.isfile(options.root):
        raise InputError(
            "is a file, but --root names the folder of the project",
            file=options.root,
            remedy=f"keys to trust are given with --trust {options.root}",
        )


def _proofs(folders: Sequence[Path]) -> dict[str, Any]:
    """Return by run how its fields are proved; a run that cannot be read is among the problems."""
    from ...evidence.checking.proof import proof_of_run

    proofs = {near(folder): proof_of_run(folder) for folder in folders}
    return {name: proof for name, proof in proofs.items() if proof is not None}


def replay(options: argparse.Namespace) -> int:
    """Make recorded runs again from their own records."""
    from ...evidence.checking.replay import replayed

    root, folders = run_folders(options)
    if options.policy is not None:
        return _other_policy(options, root, folders)
    counted_too = ("differ", lambda item: not item.ok)
    results = over_runs(options, partial(replayed, root=root), folders, "replay", counted_too)
    bad = [item for item in results if not item.ok]
    if options.json:
        data = {"runs": len(results), "differ": {item.run: item.lines for item in bad}}
        print(json.dumps(data, sort_keys=True))
        return 1 if bad else 0
    paint = painter(sys.stdout, options.no_color)
    for item in bad:
        word = "not replayed" if item.fresh is None and item.drift is None else "differs"
        print(f"{paint(word, 'red')}  {escape_terminal(item.run, 400)}")
        for line in item.lines:
            print(f"  {escape_terminal(line, 400)}")
    if not bad:
        names = escape_terminal(results[0].run, 400) if len(results) == 1 else f"{len(results)} runs"
        print(f"replay: {names} answered from the record alone, all files identical")
    return 1 if bad else 0


def _other_policy(options: argparse.Namespace, root: Path, folders: Sequence[Path]) -> int:
    """Say what another policy would have decided in each run, up to where it parts from the record."""
    from ...evidence.checking.differences.drift import counted
    from ...evidence.queries.counterfactual import ToolsInCode, under
    from ...evidence.queries.flips import Counterfactual
    from ...review.plan.text import difference_words

    ((_, policy),) = load_policies(options, [options.policy])
    counted_too = ("otherwise", lambda item: not item.is_same and not item.skipped)

    def look(folder: Path) -> Any:
        try:
            return under(folder, policy, root=root)
        except ToolsInCode as error:
            if len(folders) == 1:
                raise
            return Counterfactual(near(folder), None, policy.version, undecided=str(error), skipped=True)

    results = over_runs(options, look, folders, "replay", counted_too)
    if options.json:
        print(json.dumps([item.to_dict() for item in results], sort_keys=True))
        return 0 if all(item.is_same or item.skipped for item in results) else 1
    paint = painter(sys.stdout, options.no_color)
    for item in results:
        if item.flip is None:
            words = f"{counted(item.same, 'decision')} the same"
            words += f"; then the run takes another way: {item.why}" if item.why else ""
            if item.undecided:
                words = f"nothing can be told: {item.undecided}"
            state = paint("same", "green") if item.is_same else paint("open", "yellow")
            state = paint("skip", "yellow") if item.skipped else state
            print(f"{state}  {escape_terminal(item.run, 200)}  {escape_terminal(words, 400)}")
            continue
        print(f"{paint(item.flip.kind, 'yellow')}  {escape_terminal(item.run, 200)}")
        for words in difference_words(item):
            print(f"  {escape_terminal(words, 500)}")
    flips = sum(item.flip is not None for item in results)
    skipped = sum(item.skipped for item in results)
    left_out = f"; {skipped} skipped" if skipped else ""
    judged = counted(len(results) - skipped, "run")
    print(f"replay: {flips} of {judged} would have gone another way under {policy.version}{left_out}")
    return 0 if all(item.is_same or item.skipped for item in results) else 1
