"""The runs of an earlier commit, made again by today's code: what would it have decided otherwise?

    python -m dev.regression COMMIT

Policy, tools, corpus, tasks and runs are taken from the commit, the code from this checkout. So whatever is
reported comes from the code alone.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

from tachograph.evidence.checking.check import by_gravity, examine, runs_below
from tachograph.evidence.checking.differences.compare import Findings
from tachograph.evidence.checking.differences.drift import counted
from tachograph.evidence.files.json_diff import CLASSES
from tachograph.fail.errors import InputError
from tachograph.runtime.formats.escape import escape_terminal

INPUTS: Final = ("policy", "tools", "data", "tasks", "runs")
# a change of these is a change of behaviour
GRAVE: Final = ("BROKEN", *CLASSES[: CLASSES.index("ENDING") + 1])


def checkout(repository: Path, commit: str, place: Path) -> None:
    """Put the inputs and runs of a commit into `place`. Raises InputError where git has no such commit."""
    listed = _git(repository, "ls-tree", "--name-only", commit)
    names = [name for name in INPUTS if name in listed.decode("utf-8", "replace").split("\n")]
    if "runs" not in names or "tasks" not in names:
        raise InputError("has no recorded runs", file=commit, remedy="name a commit with tasks/ and runs/")
    archive = _git(repository, "archive", "--format=tar", commit, *names)
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            if odd := [item.name for item in tar if not (item.isfile() or item.isdir())]:
                raise InputError(
                    f"holds {odd[0]!r}, which is not a regular file",
                    file=commit,
                    remedy="compare with another commit",
                )
            if hasattr(tarfile, "data_filter"):  # early versions of 3.11 know no filter
                tar.extraction_filter = tarfile.data_filter
            tar.extractall(place)  # noqa: S202 - plain files under names that git gave
    except (tarfile.TarError, OSError) as error:
        raise InputError(
            f"cannot be laid out ({type(error).__name__})",
            file=commit,
            remedy="make room",
        ) from None


def _git(repository: Path, *words: str) -> bytes:
    command = ["git", "-C", str(repository), *words]
    try:
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)  # noqa: S603 - fixed words
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(f"git cannot be run ({type(error).__name__})", remedy="install git") from None
    if done.returncode != 0:
        raise InputError("git knows no such commit", file=words[-1], remedy="name a commit, tag or branch")
    return done.stdout


def compare(repository: Path, commit: str) -> list[Findings]:
    """Check the runs of a commit against this code; return the findings, gravest first."""
    if commit.startswith("-"):
        raise InputError("is not a commit", file=commit, remedy="name a commit, tag or branch")
    with tempfile.TemporaryDirectory(prefix="tachograph-regression-") as folder:
        place = Path(folder)
        checkout(repository, commit, place)
        return by_gravity([examine(run, root=place) for run in runs_below(place)])


def main(argv: list[str]) -> int:
    """Print what changed; exit code 1 where a decision, an effect, an answer or an ending did."""
    commit = argv[0] if argv and argv[0] else "HEAD"
    try:
        found = compare(Path.cwd(), commit)
    except InputError as error:
        print(f"tachograph: {escape_terminal(str(error))}", file=sys.stderr)
        return 2
    drifted = [item for item in found if not item.ok]
    grave = [item for item in drifted if item.kind in GRAVE]
    for item in grave:
        print(f"{item.kind}  {item.run}")
        for line in item.lines:
            print(f"  {escape_terminal(line)}")
    lesser = Counter(item.kind for item in drifted if item not in grave)
    for kind, count in sorted(lesser.items()):
        print(f"{kind}  {counted(count, 'run')}, no change of behaviour")
    print(
        f"regression: {counted(len(found), 'run')} of {escape_terminal(commit)} made again, "
        f"{len(grave)} behave otherwise, {len(drifted) - len(grave)} differ in lesser ways"
    )
    return 1 if grave or not found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
