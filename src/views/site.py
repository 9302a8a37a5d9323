"""The runs of a project as a folder of pages with an index, and how pages are put where they go."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from ..evidence.folder import exchange
from ..evidence.show import MOST, overview
from ..fail.errors import OutputError
from ..runtime.formats.durable_write import write_durably
from ..runtime.formats.escape import truncate
from ..runtime.log.events import Event, RunStarted
from .markup import BEGIN, Html, document, element, link
from .outline import tone_of
from .page import page


def site(runs: Sequence[tuple[str, Sequence[Event]]]) -> Iterator[tuple[str, str]]:
    """Yield path and text of each page, the index last.

    Args:
        runs: Name and log of each run, sorted; a name is `KIND/NAME`, that of an open run ends in `.partial`.
    """
    for name, events in runs:
        yield f"runs/{name}.html", page(f"runs/{name}", events, index="../../index.html")
    kinds: list[Html] = []
    for kind, of_kind in groupby(runs, lambda run: run[0].partition("/")[0]):
        kinds += [element("h2", kind), element("ul", *(_entry(*run) for run in of_kind))]
    head = element("header", element("h1", "Recorded runs"))
    yield "index.html", document("Recorded runs", head, element("main", *kinds))


def _entry(name: str, events: Sequence[Event]) -> Html:
    head, (ending, mode, steps, model) = events[0], overview(events)
    question = truncate(head.question, MOST) if isinstance(head, RunStarted) else ""
    said = f"{ending}{f', {mode}' if mode else ''}"
    return element(
        "li",
        link(name, path=f"runs/{name}.html"),
        element("span", said, class_="wait" if ending == "open" else tone_of(events[-1])),
        f"; steps: {steps}; {model}",
        element("div", question),
    )


def write_page(file: Path, text: str) -> None:
    """Write a page, as a whole or not at all.

    Raises:
        OutputError: Something else than a page lies there.
        OSError: It cannot be written.
    """
    if os.path.lexists(file) and not _is_page(file):
        raise _other(file)
    write_durably(file, text.encode())


def write_site(folder: Path, pages: Iterable[tuple[str, str]]) -> None:
    """Write a site in the place of an earlier one, as a whole or not at all.

    Raises:
        OutputError: Something else than a site lies there.
        OSError: It cannot be written.
    """
    for path in [folder, *folder.rglob("*")] if os.path.lexists(folder) else ():
        is_folder = path.is_dir() and not path.is_symlink()
        if not is_folder and (path == folder or not _is_page(path)):
            raise _other(path)
    made = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(made, ignore_errors=True)
    try:
        made.mkdir(parents=True)
        for name, text in pages:
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            write_durably(made / name, text.encode())
        exchange(made, folder)
    except OSError as error:  # names the folder, and not the one beside it
        raise OSError(error.errno, error.strerror, str(folder)) from None
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _is_page(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(BEGIN)) == BEGIN.encode()
    except OSError as error:  # a read names no file
        raise OSError(error.errno, error.strerror, str(path)) from None


def _other(path: Path) -> OutputError:
    return OutputError(f"{path}: lies here and is not one of our pages; remove it, or name another place")
