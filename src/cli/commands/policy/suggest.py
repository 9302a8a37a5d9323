"""The command `policy suggest`."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....fail.errors import InputError
from ..common import RUN_HELP, Verb, path_given, root_of, run_named, write_new

if TYPE_CHECKING:
    from ....review.suggest.suggest import Suggestion
    from ....runtime.policy.policy import Policy


def add(kinds: Any, verb: Verb) -> None:
    """Add the commands of this module, which stand below `policy`."""
    parser = verb(kinds, "policy suggest", policy_suggest)
    parser.add_argument("run", type=path_given, metavar="RUN", help=RUN_HELP)
    parser.add_argument(
        "--out", type=path_given, metavar="FILE", help="write the draft to a new file outside policy/"
    )
    parser.add_argument(
        "--policy", type=path_given, metavar="FILE", help="print the smallest edits of this policy instead"
    )


def policy_suggest(options: argparse.Namespace) -> int:
    """Draft a policy from a run, or edits of a policy; both for review."""
    from ....review.suggest.suggest import suggest, suggest_edits
    from ....runtime.policy.policy import Policy

    root = Path(options.root) if options.root is not None else None
    if options.out is not None and options.policy is not None:
        raise InputError("--out and --policy do not go together", remedy="edits are only printed")
    out, run = _new_file(options), run_named(options, options.run)
    if options.policy is not None:
        base = root_of(options)
        policy = Policy.load(options.policy, root=base)
        suggestion = suggest_edits(run, policy, root=root)
        text = _edits(suggestion, Path(options.policy), policy)
    else:
        suggestion = suggest(run, root=root)
        text = suggestion.text
    if out is not None:
        write_new(out, text)
    if options.json:
        print(json.dumps({**suggestion.to_dict(), "text": text}, sort_keys=True))
    elif out is None:
        print(text, end="")
    return 0 if suggestion.proof.is_complete else 1


def _new_file(options: argparse.Namespace) -> Path | None:
    """Where a draft may be written: a file that is not there, and not among the project's policies."""
    if options.out is None:
        return None
    out = Path(options.out)
    if os.path.lexists(out):
        raise InputError(
            "is there already", file=options.out, remedy="name a new file: a draft replaces nothing"
        )
    if out.resolve().is_relative_to((root_of(options) / "policy").resolve()):
        raise InputError(
            "is among the project's policies",
            file=options.out,
            remedy="write the draft elsewhere, to be reviewed",
        )
    return out


def _edits(suggestion: Suggestion, file: Path, policy: Policy) -> str:
    """Return the edits as a diff of the file, explained in lines that patch programs skip."""
    from ....review.remedy.edits import apply
    from ....review.suggest.policy_writer import comment_lines
    from ....review.suggest.text_edits import diff, edited_text
    from ....runtime.formats.escape import escape_terminal

    edits = suggestion.edits or ()
    paragraphs = [
        f"run: {suggestion.run_id} ({suggestion.run})",
        *suggestion.proof.sentences(),
        *suggestion.notes,
    ]
    paragraphs += [f"for {text}" for text in suggestion.widened]
    paragraphs += suggestion.proof.not_allowed()
    if not edits:
        paragraphs.append(f"no edit {'is needed' if suggestion.proof.is_complete else 'changes that'}")
    before = file.read_text(encoding="utf-8")
    after = edited_text(before, edits, apply(policy, edits).data)
    if after is None:
        paragraphs += [f"edit: {item.text}" for item in edits]
        if importlib.util.find_spec("ruamel") is None:
            paragraphs.append("to see a diff of the file, run: pip install 'tachograph[desk]'")
    head = "".join(f"{line}\n" for line in comment_lines(paragraphs))
    return head if after is None else head + diff(before, after, escape_terminal(policy.files[0][0]))
