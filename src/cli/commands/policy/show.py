"""The command `policy show`: the policy that is in force."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ..common import OVERLAY_HELP, Verb, add_files, near, path_given, root_of


def add(kinds: Any, verb: Verb) -> None:
    """Add the command, which stands below `policy`."""
    parser = verb(kinds, "policy show", policy_show)
    parser.add_argument(
        "file",
        nargs="?",
        type=path_given,
        metavar="FILE",
        help="policy file (default: policy/v1.yaml of the project, the built-in policy where there is none)",
    )
    parser.add_argument(
        "--built-in", action="store_true", help="the policy of an agent in code that is given none"
    )
    add_files(parser, "--overlay", OVERLAY_HELP)


def policy_show(options: argparse.Namespace) -> int:
    """Print the effective policy as a policy file, overlays merged, or with `--json` as data."""
    from ....fail.errors import InputError
    from ....runtime.formats.shipped_files import project_root
    from ....runtime.policy.built_in import BUILT_IN, built_in_policy, built_in_text

    if options.built_in and (options.file is not None or options.overlay):
        raise InputError("--built-in shows a policy that has no files", remedy="leave out FILE and --overlay")
    # an agent without a policy does not run under the shipped one, which stands in for a project elsewhere
    has_project = options.root is not None or project_root(Path.cwd()) is not None
    root = root_of(options, own=options.file is None and bool(options.overlay))
    file = Path(options.file) if options.file is not None else root / "policy" / "v1.yaml"
    is_there = options.file is not None or (has_project and file.exists())
    if options.built_in or not (is_there or options.overlay):
        policy = built_in_policy({})
        name, text = BUILT_IN, built_in_text().decode("utf-8")
    else:
        from ....review.suggest.policy_writer import policy_text
        from ....runtime.policy.policy import Policy

        policy = Policy.load(file, options.overlay, root=root)
        names = [near(file), *map(near, map(Path, options.overlay))]
        name = " + ".join(names)
        text = policy_text(policy.data, [f"Policy {name}, version {policy.version}."], {})
    if options.json:
        print(json.dumps({"policy": name, "version": policy.version, "data": policy.data}, sort_keys=True))
    else:
        print(text, end="")
    return 0
