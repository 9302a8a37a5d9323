"""Sabotage: each mutation of `mutations.yaml` is made in a copy of the project and must turn a check red.

    python tests/sabotage/run.py [--sample | --needs | ID ...]

With `--sample` those are tried that `dev/sample.py` chooses. Mutations that are noticed by tests with a package that is
not installed (`needs`) are left out and counted; `--needs` tries those alone, and all of them have to be tried.
What has to notice a mutation is the tests that it names; where it names none, the check of the recorded runs.
An unharmed copy has to pass all of them. Prints one line a mutation and the score; exit code 1 if a mutation
survives, 2 if the list is wrong: a place that is not there exactly once, tests that cannot be run.
"""

from __future__ import annotations

import compileall
import importlib.util
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    ".gitattributes",
    *("src", "dev", "policy", "tools", "data", "tasks", "runs", "tests", "docs"),
    *("pyproject.toml", "README.md", "Makefile"),
)
SECONDS = 300
RUNS = ("-m", "tachograph", "check", "--jobs", "1")
# the same examples every time, no plug-in that is not needed, assertions as they stand
TESTS = (
    *("-m", "pytest", "-q", "-x", "--tb=short", "--assert=plain", "-p", "no:cacheprovider"),
    *("-p", "_hypothesis_pytestplugin", "--hypothesis-profile=ci"),
)
GREEN, RED = 0, 1  # of both commands; whatever else they end with is no verdict

Mutation = dict[str, Any]


class Wrong(Exception):
    """The list of mutations is wrong, or nothing can be told by it."""


def mutations() -> list[Mutation]:
    """The list, as data."""
    data: list[Mutation] = yaml.safe_load((ROOT / "tests/sabotage/mutations.yaml").read_text("utf-8"))
    return data


def problems(listed: list[Mutation]) -> list[str]:
    """What is wrong with a list: each mutation has to hit one place, and to name tests that are there."""
    times = Counter(str(mutation.get("id")) for mutation in listed)
    out = [f"{name}: is there {number} times" for name, number in times.items() if number > 1]
    for mutation in listed:
        name = mutation.get("id")
        if (
            set(mutation) - {"tests", "slow", "needs"} != {"id", "file", "find", "put"}
            or mutation.get("tests") == []
        ):
            out.append(f"{name}: needs id, file, find and put; may name tests, be slow, and need a package")
            continue
        file = ROOT / mutation["file"]
        found = file.read_text(encoding="utf-8").count(mutation["find"]) if file.is_file() else 0
        if found != 1:
            out.append(f"{name}: its text stands {found} times in {mutation['file']}, not once")
        if mutation["find"] == mutation["put"]:
            out.append(f"{name}: changes nothing")
        out += [
            f"{name}: there is no test {test}" for test in mutation.get("tests", ()) if not _is_test(test)
        ]
    return out


def _is_test(place: str) -> bool:
    path, _, name = place.partition("::")
    file = ROOT / path
    if not file.is_file():
        return False
    return not name or re.search(rf"^def {re.escape(name)}\(", file.read_text("utf-8"), re.M) is not None


def copy_project(place: Path) -> None:
    """The project, compiled once so that no copy of it has to be."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "sabotage")
            shutil.copytree(source, place / name, ignore=ignored, symlinks=True)
        else:
            shutil.copy2(source, place / name)
    (place / "tachograph").symlink_to("src")
    for name in ("src", "tests"):
        compileall.compile_dir(
            place / name, quiet=1, rx=re.compile("/template/"), workers=os.cpu_count() or 1
        )


def change(place: Path, mutation: Mutation) -> None:
    """Make a mutation in a copy."""
    file = place / mutation["file"]
    text = file.read_text(encoding="utf-8")
    changed = text.replace(mutation["find"], mutation["put"])
    if text.count(mutation["find"]) != 1 or changed == text:
        raise Wrong(f"{mutation['id']}: its text does not stand once in {mutation['file']}")
    try:
        if file.suffix == ".py":
            compile(changed, str(file), "exec")
    except SyntaxError as error:
        raise Wrong(f"{mutation['id']}: is no Python any more: {error}") from None
    file.write_text(changed, encoding="utf-8")
    Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)


def run(place: Path, *command: str) -> tuple[int | None, str]:
    """How a command ends in `place`, None if it has to be stopped, and what it says. No process of it stays."""
    own = {
        "PYTHONPATH": str(place),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    env = {name: value for name, value in os.environ.items() if name != "TACHOGRAPH_CORPORA"} | own
    with tempfile.TemporaryFile() as out:
        done = subprocess.Popen(
            [sys.executable, *command],
            cwd=place,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        try:
            code = done.wait(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(done.pid, signal.SIGKILL)
            done.wait()
        out.seek(0)
        return code, out.read().decode("utf-8", "replace")


def is_noticed(place: Path, tests: list[str] | None) -> bool:
    """Whether the tests, or without any the check of the recorded runs, are red in `place`."""
    code, said = run(place, *(*TESTS, *tests) if tests else RUNS)
    if code not in (GREEN, RED):
        raise Wrong(f"{tests or 'check'} ended with {code}, which is neither green nor red:\n{said[-2000:]}")
    return code == RED


class Copies:
    """Copies of a project, one for each that works at the same time, each as it was when it is taken."""

    def __init__(self, project: Path, number: int) -> None:
        self._project = project
        self._clean = _files(project)
        self._free: SimpleQueue[Path] = SimpleQueue()
        for i in range(number):
            place = project.with_name(f"copy{i}")
            shutil.copytree(project, place, symlinks=True)
            self._free.put(place)

    @contextmanager
    def one(self) -> Iterator[Path]:
        place = self._free.get()
        try:
            yield place
        finally:
            self._restore(place)
            self._free.put(place)

    def _restore(self, place: Path) -> None:
        """Undo what a mutation, or what ran under it, did to a copy."""
        there = _files(place)
        for name in sorted(there, reverse=True):
            if name not in self._clean:
                path = place / name
                path.rmdir() if there[name] is None else path.unlink()
        for name in sorted(self._clean):
            if there.get(name, ()) == self._clean[name]:
                continue
            if self._clean[name] is None:
                (place / name).mkdir(exist_ok=True)
            else:
                (place / name).unlink(missing_ok=True)
                shutil.copy2(self._project / name, place / name, follow_symlinks=False)


def _files(folder: Path) -> dict[str, tuple[int, int] | None]:
    """Everything in a folder with what tells a change of it: time and size, None of a folder."""
    found: dict[str, tuple[int, int] | None] = {}
    for at, below, files in os.walk(folder):
        base = os.path.relpath(at, folder)
        for name in below + files:
            info = os.lstat(os.path.join(at, name))
            held = None if stat.S_ISDIR(info.st_mode) else (info.st_mtime_ns, info.st_size)
            found[os.path.normpath(os.path.join(base, name))] = held
    return found


def sabotage(copies: Copies, mutation: Mutation) -> tuple[bool, float]:
    """Whether a mutation is noticed in a copy of the project, and the seconds that it took."""
    with copies.one() as place:
        begun = time.monotonic()
        change(place, mutation)
        try:
            return is_noticed(place, mutation.get("tests")), time.monotonic() - begun
        except Wrong as error:
            raise Wrong(f"{mutation['id']}: {error}") from None


def harmed(copies: Copies, chosen: list[Mutation]) -> str | None:
    """What is red although nothing was changed: it would count every mutation as noticed."""
    tests = sorted({test for mutation in chosen for test in mutation.get("tests", ())})
    files = {test for test in tests if "::" not in test}
    tests = [test for test in tests if test in files or test.partition("::")[0] not in files]
    with copies.one() as place:
        for command in (RUNS, (*TESTS, *tests)) if tests else (RUNS,):
            code, said = run(place, *command)
            if code != GREEN:
                return f"an unharmed copy is not green ({code}):\n{said[-3000:]}"
    return None


def sampled() -> list[str]:
    """Return the ids of the mutations whose file was touched lately, and of the tenth that the commit selects."""
    sys.path.insert(0, str(ROOT))
    from dev.sample import choose

    found = choose({mutation["id"]: [mutation["file"]] for mutation in mutations()}, ROOT)
    print(f"sabotage: {found.why}", flush=True)
    return [*found.names]


def lacks(mutation: dict[str, Any]) -> bool:
    """Return whether the tests that notice a mutation need a package that is not installed."""
    return "needs" in mutation and importlib.util.find_spec(mutation["needs"]) is None


def main(wanted: list[str]) -> int:
    left_out: list[str] = []
    if wanted == ["--needs"]:
        wanted = [mutation["id"] for mutation in mutations() if "needs" in mutation]
    elif wanted in ([], ["--sample"]):
        wanted = sampled() if wanted else [mutation["id"] for mutation in mutations()]
        left_out = [
            mutation["id"] for mutation in mutations() if mutation["id"] in wanted and lacks(mutation)
        ]
        wanted = [name for name in wanted if name not in left_out]
    chosen = [mutation for mutation in mutations() if mutation["id"] in wanted]
    chosen.sort(key=lambda mutation: not mutation.get("slow"))  # else the last one is waited for alone
    wrong = problems(chosen)
    wrong += [
        f"{mutation['id']}: needs {mutation['needs']}; `make test-live` installs it"
        for mutation in chosen
        if lacks(mutation)
    ]
    wrong += [
        f"{name}: is no mutation of the list" for name in wanted if name not in {m["id"] for m in chosen}
    ]
    if wrong:
        print(*wrong, sep="\n", file=sys.stderr)
        return 2
    survivors = []
    with tempfile.TemporaryDirectory(prefix="tachograph-sabotage-") as folder:
        project = Path(folder) / "project"
        project.mkdir()
        copy_project(project)
        workers = os.cpu_count() or 1
        copies = Copies(project, workers)
        with ThreadPoolExecutor(max_workers=workers) as pool:
            unharmed = pool.submit(harmed, copies, chosen)
            tried = [pool.submit(sabotage, copies, mutation) for mutation in chosen]
            for mutation, trial in zip(chosen, tried, strict=True):
                try:
                    noticed, seconds = trial.result()
                except Wrong as error:
                    wrong.append(str(error))
                    continue
                print(
                    f"{'noticed ' if noticed else 'survives'} {seconds:5.1f} s  {mutation['id']}", flush=True
                )
                survivors += [] if noticed else [mutation["id"]]
            wrong += [red] if (red := unharmed.result()) is not None else []
    if wrong:
        print(*wrong, sep="\n", file=sys.stderr)
        return 2
    more = f"; {len(left_out)} left out, which need what `make test-live` installs" if left_out else ""
    print(f"sabotage: {len(chosen) - len(survivors)} of {len(chosen)} mutations noticed{more}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
