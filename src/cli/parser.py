"""The parser of the command line. Only the module of the command that is called is imported."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

from ..fail.errors import InputError
from .commands import COMMANDS, EXIT_CODES


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the words after `tachograph`; `act` of what is returned performs the command.

    Raises:
        InputError: There is no such command or option, or an argument is missing or wrong.
        SystemExit: Help was asked for and printed.
    """
    command = _command(words)
    parser = make_parser([command] if command else [])
    options, unknown = parser.parse_known_args(words)
    if unknown:
        _refuse(unknown[0], command, parser)
    if options.command is None and not options.version:
        options.act = partial(_help, parser)
    return options


def make_parser(called: Iterable[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """Return a parser that has the options of the commands `called`; with none, it only lists all commands."""
    parser = _Parser(
        prog="tachograph",
        description="Run agents under a policy, record what they did, and prove the record.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.set_defaults(act=_version)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    kinds = None
    modules = dict.fromkeys(COMMANDS[name][0] for name in called)
    if any(name.startswith("policy") for name in called):
        kinds = _add_policy(commands)
    for module in filter(None, modules):
        below = kinds if module.startswith("policy.") else commands
        import_module(f".commands.{module}", __package__).add(below, _add_command)
    if modules.keys() <= {""}:  # help, which takes its lines from the table
        for name, (_, text) in COMMANDS.items():
            head, _, kind = name.partition(" ")
            if kinds is None and not kind and head not in commands.choices:
                commands.add_parser(name, help=text)
            elif kinds is not None and kind:
                kinds.add_parser(kind, help=text)
    return parser


def _command(words: Sequence[str]) -> str | None:
    """Return the command that is called, or None. Raises InputError where there is no such command."""
    plain = [word for word in words if not word.startswith("-")]
    if not plain:
        return None
    name = plain[0]
    if name == "policy" and len(plain) > 1 and words[words.index(name) + 1] == plain[1]:
        name = f"policy {plain[1]}"
    if name not in COMMANDS:
        prefix = "policy " if name.startswith("policy ") else ""
        known = [other.removeprefix(prefix) for other in COMMANDS if other.startswith(prefix)]
        word = name.removeprefix(prefix)
        remedy = _meant(word, known, prefix) or f"`tachograph {prefix}--help` lists them"
        raise InputError("there is no such command", file=repr(word), remedy=remedy)
    return name


def _refuse(word: str, command: str | None, parser: argparse.ArgumentParser) -> NoReturn:
    """Raise InputError for a word that no option or argument takes."""
    called = f"tachograph {command or ''}".strip()
    more = f"`{called} --help` says what it takes"
    if not word.startswith("-"):
        raise InputError("is one argument too many", file=repr(word), remedy=more)
    part = parser_of(parser, command or "")
    known = [name for action in part._actions for name in action.option_strings]
    name = word.partition("=")[0]
    raise InputError(f"`{called}` has no such option", file=name, remedy=_meant(name, known) or more)


def parser_of(parser: argparse.ArgumentParser, command: str) -> argparse.ArgumentParser:
    """Return the parser of a command, such as `policy diff`, within the whole one."""
    for word in command.split():
        choices = next(action.choices for action in parser._actions if isinstance(action.choices, dict))
        parser = choices[word]
    return parser


def _meant(word: str, known: Sequence[str], prefix: str = "") -> str:
    """Return a question that names what comes closest to `word`, or nothing."""
    from difflib import get_close_matches

    close = get_close_matches(word, known, 1)
    return f"did you mean `{prefix}{close[0]}`?" if close else ""


class _HelpFormatter(argparse.HelpFormatter):
    """Leaves room for the name of each command beside its help."""

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        # before Python 3.13 argparse measures the names of commands without their own indentation
        for command in self._iter_indented_subactions(action):
            name = self._format_action_invocation(command)
            self._action_max_length = max(self._action_max_length, self._current_indent + len(name))


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are of this project, and whose help needs no further module to know its width."""

    def __init__(self, **options: Any) -> None:
        # a width that is given keeps argparse from importing shutil to ask for it
        formatter = partial(_HelpFormatter, width=_width(), max_help_position=28)
        super().__init__(**options, formatter_class=formatter)

    def error(self, message: str) -> NoReturn:
        raise InputError(message, remedy=f"`{self.prog} --help` says what it takes")


def _width() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns - 2
    except (AttributeError, OSError, ValueError):
        return 98


def _add_policy(commands: Any) -> Any:
    policy = commands.add_parser("policy", help=COMMANDS["policy"][1], epilog=EXIT_CODES)
    return policy.add_subparsers(dest="what", metavar="WHAT", required=True)


def _add_command(
    commands: Any, name: str, act: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """Add a command with the options that all have; `act` gets the parsed options and returns the exit code."""
    from .commands.common import path_given

    text = COMMANDS[name][1]
    parser: argparse.ArgumentParser = commands.add_parser(
        name.split()[-1], help=text, description=text, epilog=EXIT_CODES
    )
    parser.set_defaults(act=act)
    if name != "init":  # it is in no project yet
        parser.add_argument(
            "--root",
            type=path_given,
            metavar="DIR",
            help="project root (default: the folder that holds policy/)",
        )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--no-color", action="store_true", help="no colour at a terminal either")
    return parser


def _help(parser: argparse.ArgumentParser, _options: argparse.Namespace) -> int:
    parser.print_help()
    return 0


def _version(_options: argparse.Namespace) -> int:
    from .. import __version__

    print(f"tachograph {__version__}")
    return 0
