"""The command that completes commands in a shell: completion.

The script of a shell asks this very command, with `--words`, for what may come next: so names of runs are completed
too, and no list of options can be out of date.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from ...fail.errors import InputError
from . import COMMANDS
from .common import Verb

# what is printed is never evaluated: each shell takes whole lines as candidates
_SCRIPTS: Final = {
    "bash": """\
# put this into ~/.bashrc:  eval "$(tachograph completion bash)"
_tachograph() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("$line")
    done < <(tachograph completion --words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _tachograph tachograph
""",
    "zsh": """\
# put this into ~/.zshrc, after compinit:  eval "$(tachograph completion zsh)"
_tachograph() {
    local -a found
    found=("${(@f)$(tachograph completion --words "${(@)words[2,$CURRENT]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then compadd -- "${found[@]}"; else _files; fi
}
compdef _tachograph tachograph
""",
    "fish": """\
# put this into ~/.config/fish/config.fish:  tachograph completion fish | source
complete -c tachograph -a '(tachograph completion --words (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
""",
}
# names that need no quoting in any shell
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./+-]+")


def add(commands: Any, verb: Verb) -> None:
    """Add the command completion."""
    parser = verb(commands, "completion", completion)
    parser.add_argument("shell", nargs="?", choices=tuple(_SCRIPTS), help="the shell that asks")
    parser.add_argument(
        "--words", nargs=argparse.REMAINDER, metavar="WORD", help="print what the last word may become"
    )


def completion(options: argparse.Namespace) -> int:
    """Print the script of a shell or, with `--words`, what may stand in the place of the last word."""
    if options.words is not None:
        print("".join(f"{text}\n" for text in candidates(options.words)), end="")
    elif options.shell is None:
        raise InputError("it is not said for which shell", remedy=f"name one: {', '.join(_SCRIPTS)}")
    else:
        print(_SCRIPTS[options.shell], end="")
    return 0


def candidates(words: Sequence[str]) -> list[str]:
    """Return what the last of the words after `tachograph` may become, sorted; nothing where a file is asked for."""
    before, last = list(words[:-1]), words[-1] if words else ""
    return sorted({text for text in _next(before, last) if text.startswith(last) and _PLAIN.fullmatch(text)})


def _next(before: Sequence[str], last: str) -> Iterable[str]:
    plain = [word for word in before if not word.startswith("-")]
    if not plain:
        return ["--help", "--version"] if last.startswith("-") else [n for n in COMMANDS if " " not in n]
    if plain == ["policy"]:
        return [name.partition(" ")[2] for name in COMMANDS if " " in name]
    name = " ".join(plain[:2]) if plain[0] == "policy" else plain[0]
    if name not in COMMANDS:
        return []
    from ..parser import make_parser, parser_of

    actions = parser_of(make_parser([name]), name)._actions
    options = {text: action for action in actions for text in action.option_strings}
    if last.startswith("-"):
        return options
    option = options.get(before[-1])
    if option is not None and option.nargs != 0:
        return map(str, option.choices or ())
    arguments = [action for action in actions if not action.option_strings]
    if any(action.metavar == "RUN" for action in arguments):
        return _runs()
    return [str(choice) for action in arguments for choice in action.choices or ()]


def _runs() -> Iterable[str]:
    """Return the names of the project's runs, without `runs/`; none where they cannot be listed."""
    from ...runtime.formats.shipped_files import project_root
    from ...views.site import runs_in

    runs = (project_root(Path.cwd()) or Path.cwd()) / "runs"
    try:
        return [folder.relative_to(runs).as_posix() for folder in runs_in(runs)]
    except InputError:
        return []
