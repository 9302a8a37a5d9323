"""The command that answers a question put by file: approve."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ...fail.errors import InputError
from ...runtime.formats.escape import escape_terminal
from ..console import painter
from .common import Verb, path_given


def add(commands: Any, verb: Verb) -> None:
    """Add the command approve."""
    parser = verb(commands, "approve", approve)
    parser.add_argument(
        "file",
        type=path_given,
        metavar="FILE",
        help="a question, below the folder of run --approve FOLDER",
    )
    answers = parser.add_mutually_exclusive_group()
    answers.add_argument(
        "--allow", dest="answer", action="store_const", const="allow", help="allow this one call"
    )
    answers.add_argument("--deny", dest="answer", action="store_const", const="deny", help="refuse it")
    parser.add_argument("--by", metavar="NAME", help="who answers; stands in the record")
    parser.add_argument("--why", metavar="TEXT", help="the reason; stands in the record")
    parser.add_argument(
        "--key",
        type=path_given,
        metavar="FILE",
        help="private ed25519 key (PEM) to sign the answer with, where the policy names signers",
    )


def approve(options: argparse.Namespace) -> int:
    """Show a question and, where an answer is given, write it."""
    from ...runtime.driver.file_approvals import answer_file, read_question

    path = Path(options.file)
    if options.answer is None and options.key is not None:
        raise InputError("there is no answer to sign", remedy="give --allow or --deny too")
    if options.answer is not None:
        sign = None
        if options.key is not None:
            from ...evidence.sealing.keys import private_signer

            signer = private_signer(Path(options.key))

            def sign(data: bytes) -> str:
                return str(signer.sign(data).signature)

        data = answer_file(path, options.answer, options.by, options.why, sign)
        data = {**data, "answer": options.answer, "by": options.by, "why": options.why}
    else:
        data = read_question(path)
    if options.json:
        print(json.dumps(data, sort_keys=True))
        return 0
    paint = painter(sys.stdout, options.no_color)
    for key in ("run_id", "step", "call", "reason", "at", "policy", "digest", "until", "tool"):
        print(f"{key:<10}{escape_terminal(str(data.get(key)), 400)}")
    print("arguments")
    for line in json.dumps(data.get("arguments"), indent=2, ensure_ascii=True, sort_keys=True).split("\n"):
        print(f"  {line}")
    answer = data.get("answer")
    colour = {"allow": "green", "deny": "red"}.get(str(answer), "yellow")
    print(
        f"answer    {paint(escape_terminal(str(answer or 'none yet: give --allow or --deny'), 80), colour)}"
    )
    for key in ("by", "why"):
        if data.get(key) is not None:
            print(f"{key:<10}{escape_terminal(str(data[key]), 400)}")
    return 0
