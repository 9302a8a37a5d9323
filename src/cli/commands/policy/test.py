"""Commands that prove a policy: test, coverage."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....fail.errors import InputError
from ....runtime.formats.escape import escape_terminal
from ...console import Paint, painter, width_of
from ..common import OVERLAY_HELP, Verb, add_files, path_given, root_of, write_file
from .diff import add_jobs

if TYPE_CHECKING:
    from ....review.testing.coverage import Coverage


def add(kinds: Any, verb: Verb) -> None:
    """Add the commands of this module, which stand below `policy`."""
    parser = verb(kinds, "policy test", policy_test)
    _tests_and_policy(parser)
    parser.add_argument("--junit", type=path_given, metavar="FILE", help="write the results as JUnit XML too")
    parser = verb(kinds, "policy coverage", policy_coverage)
    _tests_and_policy(parser)
    parser.add_argument(
        "--runs",
        type=path_given,
        metavar="DIR",
        help="folder of recorded runs (default: the project's runs/)",
    )
    parser.add_argument(
        "--min", type=_percent, default=100, metavar="PERCENT", help="exit 0 from here on (default: 100)"
    )
    add_jobs(parser)


def _tests_and_policy(parser: argparse.ArgumentParser) -> None:
    text = "policy tests (default: policy/tests/*.yaml)"
    parser.add_argument("files", nargs="*", type=path_given, metavar="FILE", help=text)
    text = "in place of the policy file that the tests name"
    parser.add_argument("--policy", type=path_given, metavar="FILE", help=text)
    add_files(parser, "--overlay", OVERLAY_HELP)


def _percent(text: str) -> float:
    with contextlib.suppress(ValueError):
        number = float(text)
        if 0 <= number <= 100:
            return number
    raise argparse.ArgumentTypeError(f"{escape_terminal(text, 40)!r} must be a number from 0 to 100")


def _test_files(options: argparse.Namespace, root: Path) -> list[Path]:
    return [Path(file) for file in options.files] or sorted((root / "policy" / "tests").glob("*.yaml"))


def policy_test(options: argparse.Namespace) -> int:
    """Hold policies against their tests."""
    from ....review.testing.junit import HEAD, junit
    from ....review.testing.policy_tests import load_suite, run_suite

    # tests that name their policy are of a project; with both given there is nothing of a project's to judge
    root = root_of(options, own=not options.files or options.policy is None)
    files = _test_files(options, root)
    if not files:
        raise InputError(
            "there are no policy tests",
            file=str(root / "policy" / "tests"),
            remedy="write one as docs/review.md says",
        )
    base = Path(options.policy) if options.policy is not None else None
    overlays = [Path(file) for file in options.overlay]
    suites = [load_suite(file, root, base, overlays) for file in files]
    ran = [(suite, *run_suite(suite, root)) for suite in suites]
    results = [result for _, _, some in ran for result in some]
    failed = sum(not result.ok for result in results)
    if options.junit is not None:
        document = junit([(suite.file, some) for suite, _, some in ran])
        write_file(Path(options.junit), document, ours=HEAD.encode(), kind="report of ours")
    if options.json:
        documents = [
            {
                "file": suite.file,
                "policy": {"version": policy.version, "files": [path for path, _ in policy.files]},
                "tests": [result.to_dict() for result in some],
            }
            for suite, policy, some in ran
        ]
        print(json.dumps({"failed": failed, "files": documents, "tests": len(results)}, sort_keys=True))
        return 1 if failed else 0
    paint = painter(sys.stdout, options.no_color)
    wide = width_of(sys.stdout) - 8 if sys.stdout.isatty() else 400
    for result in results:
        place = escape_terminal(f"{result.place}  {result.case.name}", 400)
        if result.ok:
            print(f"{paint('ok', 'green')}      {escape_terminal(place, wide)}")
        else:
            print(f"{paint('FAILED', 'red')}  {place}: {escape_terminal(result.problem, 1000)}")
    print(f"{len(results)} tests: {len(results) - failed} ok, {failed} failed")
    return 1 if failed else 0


def policy_coverage(options: argparse.Namespace) -> int:
    """Say which changes of a policy neither a test nor a recorded run notices."""
    from ....evidence.recording.index import refuse_unreadable
    from ....review.testing.coverage import cover

    root = root_of(options, own=True)
    runs = Path(options.runs) if options.runs is not None else root / "runs"
    if options.runs is not None and not runs.is_dir():
        raise InputError("there is no such folder", file=options.runs, remedy="name a folder of runs")
    refuse_unreadable(runs)  # what is not seen notices nothing, and is not said to
    progress = _Progress()
    coverage = cover(
        root,
        _test_files(options, root),
        runs,
        base=Path(options.policy) if options.policy is not None else None,
        overlays=[Path(file) for file in options.overlay],
        jobs=options.jobs,
        tell=progress,
    )
    progress.clear()
    if options.json:
        print(json.dumps(coverage.to_dict(), sort_keys=True))
    else:
        _tell_coverage(coverage, painter(sys.stdout, options.no_color))
    return 0 if coverage.percent >= options.min else 1


def _tell_coverage(coverage: Coverage, paint: Paint) -> None:
    from ....review.testing.coverage import EQUIVALENT, INVALID, UNGUARDED, as_yaml

    for run, why in coverage.aside:
        print(escape_terminal(f"not counted: {run}: {why}", 400), file=sys.stderr)
    for verdict in coverage.of(UNGUARDED):
        change = escape_terminal(f"{verdict.file}:{verdict.line}  {verdict.description}", 400)
        print(f"{paint('unguarded', 'red')}  {change}")
        if verdict.suggestion is None:
            print("    # no single question shows it")
            continue
        print(f"    # policy: {escape_terminal(json.dumps(verdict.policy), 400)}")
        for line in as_yaml(verdict.suggestion):
            print(f"    {escape_terminal(line, 4000)}")
    none, broken = len(coverage.of(EQUIVALENT)), len(coverage.of(INVALID))
    print(f"not counted: {none} changes alter nothing, {broken} give no policy")
    print(
        f"coverage: {coverage.noticed} of {coverage.counted} changes are noticed ({int(coverage.percent)} %) "
        f"by {coverage.tests} tests and {coverage.runs} runs"
    )


class _Progress:
    """How far it is, on one line of a terminal; nothing elsewhere."""

    def __init__(self) -> None:
        self._shown = False

    def __call__(self, done: int, total: int) -> None:
        if sys.stderr.isatty() and (done % 10 == 0 or done == total):
            self._shown = True
            with contextlib.suppress(OSError):
                print(f"\rcoverage: {done} of {total} changes", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._shown:
            with contextlib.suppress(OSError):
                print(f"\r{'':<60}\r", end="", file=sys.stderr, flush=True)
