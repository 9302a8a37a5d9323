"""The tools beside a policy, as their modules say in plain literals: nothing of them is imported or run."""

from __future__ import annotations

import ast
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from warnings import catch_warnings

from ..evidence.tasks import root_around
from ..fail.errors import InputError
from ..runtime.formats.documents import MAX_BYTES, read_plain
from ..runtime.loop.team import team_tool
from ..runtime.mcp.server import accepted_tools, profile_names
from ..runtime.tools.agents import TEAM_NAMES, AgentsByName, agent_tool, delegate
from ..runtime.tools.contract import Tool, not_run

_LONGEST: Final = 256  # characters of a text that may be named often


def tools_beside(policy_file: Path) -> dict[str, Tool]:
    """Read the tools of the project around a policy from the text of their modules.

    Args:
        policy_file: The policy.

    Returns:
        The tools by name. One is left out if its schemas and effect are not literals, or may be changed later; its
        description is empty if that is not a literal. To run one raises.
    """
    root = root_around(policy_file.parent)
    if root is None:
        return {}
    found = {}
    for path in sorted((root / "tools").glob("*.py")):
        with suppress(Exception), catch_warnings(action="ignore"):  # much can be wrong
            found[path.stem] = _tool(path)
    with suppress(InputError):
        found |= accepted_tools(root)
    names, unread = profile_names(root), AgentsByName([])  # profiles are not read
    agents = [agent_tool(name, "", unread) for name in names]
    agents += [delegate(agents)] if agents else []
    agents += [agent_tool(f"to_{name}", "", unread, hands_over=True) for name in names]
    return found | {tool.name: tool for tool in (*agents, *map(team_tool, TEAM_NAMES))}


def _tool(path: Path) -> Tool:
    source = read_plain(path, MAX_BYTES)
    if len(source) > MAX_BYTES:
        raise ValueError
    said = _literals(ast.parse(source))
    schemas = said["INPUT_SCHEMA"], said["OUTPUT_SCHEMA"]
    about = said.get("DESCRIPTION", "")
    return Tool(path.stem, about, *schemas, said["EFFECT"], not_run, file=f"tools/{path.name}")


def _literals(tree: ast.Module) -> dict[str, Any]:
    """Return the values of names that a module assigns once, at its top, as a literal, and that it does not use."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    stored = Counter(node.id for node in names if not isinstance(node.ctx, ast.Load))
    used = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    constants = _Constants()
    found = {}
    for statement in tree.body:
        match statement:
            case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), _, ast.expr() as value):
                value = constants.visit(value)
                is_short = isinstance(value, ast.Constant) and len(str(value.value)) <= _LONGEST
                if stored[name] == 1 and is_short:
                    constants.known[name] = value
                if stored[name] == 1 and name not in used:
                    with suppress(ValueError):
                        found[name] = ast.literal_eval(value)
    return found


class _Constants(ast.NodeTransformer):
    """Puts numbers and short texts in the place of their names; longer values could grow without bound."""

    def __init__(self) -> None:
        self.known: dict[str, ast.Constant] = {}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.known.get(node.id, node)
