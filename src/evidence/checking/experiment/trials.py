"""Make runs again in processes of their own, under several states of their inputs."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Final

from ....runtime.formats.canonical_json import digest
from ...files.manifest import FILES
from .scratch_copy import ScratchCopy

Files = Mapping[str, bytes]
# the inputs that are as recorded: path -> SHA-256 of its bytes, "" for a file that was not there
State = frozenset[tuple[str, str]]

_SECONDS_A_RUN: Final = 60.0
_SECONDS_TO_START: Final = 60.0


def state_of(earlier: Mapping[str, bytes | None], paths: Iterable[str]) -> State:
    """Return the state in which some inputs are as recorded and all others as they are."""
    return frozenset((path, "" if (data := earlier[path]) is None else digest(data)) for path in paths)


class Trials:
    """Makes runs again. What was made once is kept.

    Args:
        root: The project.
        runs: Names of all runs that may be asked for.
        jobs: How many processes at once.
        tell: Called with the number of runs made so far, and of those that are to be made.
    """

    def __init__(
        self, root: Path, runs: Sequence[str], jobs: int, tell: Callable[[int, int], object] | None = None
    ) -> None:
        self._root = root
        self._runs = runs
        self._jobs = jobs
        self._tell = tell
        self._made: dict[tuple[State, str], Files | None] = {}
        self._count = self._asked = 0

    def make(
        self, wanted: Mapping[State, Sequence[str]], data: Mapping[tuple[str, str], bytes | None]
    ) -> None:
        """Make runs again under states of the inputs.

        Args:
            wanted: State -> names of the runs.
            data: The content that each entry of a state stands for.

        Raises:
            TooLarge: The project cannot be copied.
        """
        todo = [
            (state, [run for run in runs if (state, run) not in self._made]) for state, runs in wanted.items()
        ]
        todo = [(state, runs) for state, runs in todo if runs]
        self._asked += sum(len(runs) for _, runs in todo)
        with contextlib.ExitStack() as stack:
            workers = min(self._jobs, len(todo))
            copies = [stack.enter_context(ScratchCopy(self._root, self._runs)) for _ in range(workers)]
            for state, made in _in_threads(copies, todo, data):
                self._made.update({(state, run): files for run, files in made.items()})
                self._count += len(made)
                if self._tell is not None:
                    self._tell(self._count, self._asked)

    def files(self, state: State, run: str) -> Files | None:
        """Return the files that a run gives under a state; None where it could not be made."""
        return self._made[state, run]


def _in_threads(
    copies: Sequence[ScratchCopy],
    todo: Sequence[tuple[State, list[str]]],
    data: Mapping[tuple[str, str], bytes | None],
) -> Iterator[tuple[State, dict[str, Files | None]]]:
    """Yield what was made under each state, as it is done; each thread waits for one process at a time."""
    waiting: SimpleQueue[tuple[State, list[str]] | None] = SimpleQueue()
    done: SimpleQueue[tuple[State, dict[str, Files | None]] | BaseException] = SimpleQueue()
    for item in [*todo, *[None] * len(copies)]:
        waiting.put(item)

    def work(copy: ScratchCopy) -> None:
        while (item := waiting.get()) is not None:
            try:
                copy.put_back({path: data[path, sha] for path, sha in item[0]})
                done.put((item[0], _made(copy.root, item[1])))
            except BaseException as error:  # noqa: BLE001 - raised again where the results are taken
                done.put(error)

    threads = [Thread(target=work, args=(copy,), daemon=True) for copy in copies]
    for thread in threads:
        thread.start()
    try:
        for _ in todo:
            result = done.get()
            if isinstance(result, BaseException):
                raise result
            yield result
    finally:
        with contextlib.suppress(Exception):
            while True:
                waiting.get_nowait()
        for _ in threads:
            waiting.put(None)
        for thread in threads:
            thread.join()


def _made(root: Path, runs: list[str]) -> dict[str, Files | None]:
    """Return the files that runs give in a copy of the project, made by a process of its own."""
    import subprocess  # slow to import, and needed where a run drifted alone

    with tempfile.TemporaryDirectory(prefix="tachograph-remade-") as name:
        out = Path(name)
        given = json.dumps({"root": str(root), "runs": runs, "out": name})
        # a compiled module of the copy could be older than the file that was put back
        command = [sys.executable, "-B", "-P", "-m", "tachograph.evidence.checking.experiment.remake"]
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(  # noqa: S603 - this interpreter, with words of ours
                command,
                input=given.encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=root,
                timeout=_SECONDS_TO_START + _SECONDS_A_RUN * len(runs),
                check=False,
            )
        return {run: _files(out / str(number)) for number, run in enumerate(runs)}


def _files(folder: Path) -> Files | None:
    if not os.path.isdir(folder):
        return None
    return {file: (folder / file).read_bytes() for file in FILES}
