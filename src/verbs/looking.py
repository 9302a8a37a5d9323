"""Commands that tell: show, explain, version."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ..console import painter
from .common import Verb


def add(commands: Any, verb: Verb) -> None:
    """The commands show and explain."""
    parser = verb(commands, "show", show, "print a recorded run")
    parser.add_argument("run", metavar="RUN", help="folder of a run")
    parser = verb(commands, "explain", explain, "say why each call of a run was decided as it was")
    parser.add_argument("run", metavar="RUN", help="folder of a run")
    parser.add_argument("--step", type=int, metavar="N", help="this step only")


def version(_options: argparse.Namespace) -> int:
    """Print the version."""
    from .. import __version__

    print(f"tachograph {__version__}")
    return 0


def show(options: argparse.Namespace) -> int:
    """Print a recorded run."""
    from ..evidence.show import show

    print(show(Path(options.run), as_json=options.json, paint=painter(sys.stdout, options.no_color)))
    return 0


def explain(options: argparse.Namespace) -> int:
    """Say of a recorded run what every rule made of each call."""
    from ..evidence.explain import as_data, as_text, explain_run

    found = explain_run(Path(options.run), root=Path(options.root) if options.root else None)
    if options.json:
        print(json.dumps(as_data(found, options.step), sort_keys=True))
    else:
        print(as_text(found, options.step, painter(sys.stdout, options.no_color)))
    return 0
