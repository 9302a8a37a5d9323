"""Commands that write pages for a browser: site, and the page of `show --html`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ....runtime.formats.escape import escape_terminal
from ..common import Verb, escaped_path, path_given, write_file


def add(commands: Any, verb: Verb) -> None:
    """Add the command site."""
    parser = verb(commands, "site", site)
    parser.add_argument(
        "runs", type=path_given, metavar="RUNS_DIR", help="folder with runs below it, such as runs"
    )
    parser.add_argument(
        "out", type=path_given, metavar="OUT", help="folder to write; empty, new, or a site made before"
    )


def site(options: argparse.Namespace) -> int:
    """Write a site over all runs below a folder."""
    from ....evidence.checking.differences.drift import counted
    from ....evidence.checking.workers import Ticker
    from ....views.site import runs_in, write_site

    runs = Path(options.runs)
    root = Path(options.root) if options.root is not None else None
    stream = None if options.json else sys.stderr
    with Ticker(stream, "site", len(runs_in(runs)), "unreadable", lambda entry: bool(entry.why)) as ticker:
        written = write_site(runs, Path(options.out), root=root, tell=ticker)
    if options.json:
        data = {"out": options.out, "pages": written.pages, "unreadable": written.unreadable}
        print(json.dumps(data, sort_keys=True))
        return 1 if written.unreadable else 0
    for why in written.unreadable.values():
        print(f"unreadable  {escape_terminal(why, 400)}")
    print(f"site      {escaped_path(Path(options.out))}/index.html over {counted(len(written.pages), 'run')}")
    return 1 if written.unreadable else 0


def show_page(options: argparse.Namespace, runs: Sequence[Path]) -> int:
    """`show RUN --html FILE`; of two runs the page that compares them, exit code 1 where they part."""
    from ....pages.render import MARK
    from ....views.compare_page import compare_page, compared
    from ....views.model import run_of
    from ....views.page import run_page

    root = Path(options.root) if options.root is not None else None
    loaded = [run_of(folder, root) for folder in runs]
    both = compared(*loaded) if len(loaded) == 2 else None
    page = run_page(loaded[0]) if both is None else compare_page(both)
    write_file(Path(options.html), page, ours=MARK.encode(), kind="page of ours")
    if options.json:
        print(json.dumps({"html": options.html, "runs": [run.name for run in loaded]}, sort_keys=True))
    else:
        print(f"page      {escaped_path(Path(options.html))}")
    return 0 if both is None or both.first is None else 1
