"""The command that writes the index of runs anew: index."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ...runtime.formats.escape import escape_terminal
from .common import Verb, root_of


def add(commands: Any, verb: Verb) -> None:
    """Add the command index."""
    verb(commands, "index", index)


def index(options: argparse.Namespace) -> int:
    """Complete what was cut off in `runs/`, write `runs/INDEX.json` anew, and say what changed."""
    from ...evidence.checking.differences.drift import counted
    from ...evidence.recording import index as indexes
    from ...review.drift.accept import recover

    root = root_of(options, own=True)
    before = indexes.read(root / indexes.INDEX) or {}
    accepted = recover(root)
    indexes.update(root)
    after = indexes.digests(root)
    changes = {
        "added": sorted(after.keys() - before.keys()),
        "changed": sorted(name for name in after.keys() & before.keys() if after[name] != before[name]),
        "removed": sorted(before.keys() - after.keys()),
        "accepted": sorted(entry["run"] for entry in accepted),
    }
    if options.json:
        print(json.dumps(changes, sort_keys=True))
        return 0
    for word, names in changes.items():
        for name in names:
            print(f"{word:9} {escape_terminal(name, 200)}")
    changed = any(changes.values())
    print(
        f"index: {counted(len(after), 'run')}{'' if changed else ', nothing changed'}; `tachograph check` proves them"
    )
    return 0
