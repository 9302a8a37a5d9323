"""The commands, one module each: parse, call, print, exit code.

Each module has `add(commands, verb)`, where `verb(commands, name, act, help)` gives a parser. `PARTS` lists the
modules in the order in which `--help` names their commands.
"""

from . import accept, approve, check, init, pages, policy_check, push, run, show

PARTS = (init, run, approve, check, accept, show, pages, policy_check, push)

__all__ = ["PARTS", "accept", "approve", "check", "init", "pages", "policy_check", "push", "run", "show"]
