"""The commands `tachograph mcp ...`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..fail.errors import InputError
from .common import FAILED, HEADERS, OK, PATH, count, end_as_by_ctrl_c, say

if TYPE_CHECKING:
    from ..runtime.mcp.server import ServerPlace


@click.group()
def mcp() -> None:
    """Look at the tools of MCP servers, and accept them."""


def _of_a_server(function: Callable[..., Any]) -> Callable[..., Any]:
    for decorate in (
        click.option("--lock", default="mcp.lock", metavar="FILE", type=PATH, help="Instead of mcp.lock."),
        click.option("--env", multiple=True, metavar="NAME", help="A variable that the program is given."),
        click.option("--url", default="", metavar="URL", help="The endpoint of a server over HTTP."),
        HEADERS,
        click.argument("command", nargs=-1, metavar="[-- COMMAND...]"),
        click.argument("name"),
    ):
        function = decorate(function)
    return function


def _place(name: str, env: tuple[str, ...], **where: Any) -> ServerPlace:
    from ..runtime.clock import variable
    from ..runtime.mcp.server import ServerPlace, check_place

    for missing in [it for it in env if variable(it) is None]:
        raise InputError(f"the variable {missing} is not set", file="--env", remedy="set it")
    place = ServerPlace(passed=env, **where)
    check_place(name, place)
    end_as_by_ctrl_c()
    say(f"{name}: waiting for the server, for {place.timeout_s:g} s at most", err=True)
    return place


@mcp.command()
@_of_a_server
def inspect(name: str, env: tuple[str, ...], lock: Path, **where: Any) -> int:
    """Print the tools of the server NAME, and how they differ.

    They are compared with what was accepted in mcp.lock.
    Exit code 1 if they differ.
    """
    from ..runtime.mcp.connection import offered_at
    from ..runtime.mcp.server import changes, read_lock

    accepted = read_lock(lock, str(lock)).get(name, {})
    offered = offered_at(_place(name, env, **where))
    for tool, definition in offered.items():
        say(f"{name}__{tool}: {definition.get('description', '')}")
        declared = definition["inputSchema"].get("properties")
        for argument, schema in declared.items() if isinstance(declared, dict) else ():
            say(f"  {argument}: {schema.get('type', 'any') if isinstance(schema, dict) else 'any'}")
    differences = changes(accepted, offered)
    for line in differences:
        say(f"{lock}: {name}__{line}")
    return FAILED if differences else OK


@mcp.command()
@_of_a_server
def accept(name: str, env: tuple[str, ...], lock: Path, **where: Any) -> None:
    """Write the tools of the server NAME to mcp.lock. Commit that file."""
    from ..runtime.formats.durable_write import write_durably
    from ..runtime.mcp.connection import offered_at
    from ..runtime.mcp.server import McpServer, changes, lock_text, read_lock

    servers, place = read_lock(lock, str(lock)), _place(name, env, **where)
    offered = offered_at(place)
    made = McpServer(name, place, offered, lock.name)  # refuses here what no run could use
    for line in changes(servers.get(name, {}), offered):
        say(f"{name}__{line}")
    for tool, error in made.left_out.items():
        say(f"{name}__{tool}: no agent is given it: {error.message}", err=True)
    write_durably(lock, lock_text({**servers, name: offered}).encode())
    say(f"{lock}: {count(len(offered), 'tool')} of {name} accepted")
