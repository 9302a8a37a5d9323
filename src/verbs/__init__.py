"""What each command does: parse, call, print, exit code.

Each module adds its own commands: `add(commands, verb)`, where `verb(commands, name, act, help)` gives a parser.
"""

from . import checking, looking, policies, running

PARTS = (running, checking, looking, policies)

__all__ = ["PARTS", "checking", "looking", "policies", "running"]
