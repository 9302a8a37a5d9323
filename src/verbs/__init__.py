"""What each command does: parse, call, print, exit code.

Each module adds its own commands: `add(commands, verb)`, where `verb(commands, name, act, help)` gives a parser.
"""

from . import accepting, approving, beginning, checking, looking, pages, policies, pushing, running

PARTS = (beginning, running, approving, checking, accepting, looking, pages, policies, pushing)

__all__ = [
    "PARTS",
    "accepting",
    "approving",
    "beginning",
    "checking",
    "looking",
    "pages",
    "policies",
    "pushing",
    "running",
]
