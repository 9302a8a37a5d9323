"""What each command does: parse, call, print, exit code.

Each module adds its own commands: `add(commands, verb)`, where `verb(commands, name, act, help)` gives a parser.
"""

from . import approving, checking, looking, policies, pushing, running

PARTS = (running, approving, checking, looking, policies, pushing)

__all__ = ["PARTS", "approving", "checking", "looking", "policies", "pushing", "running"]
