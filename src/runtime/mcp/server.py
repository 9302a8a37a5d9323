"""An MCP server as tools of a run. What it offers has been accepted before, in `mcp.lock`.

The lock file holds the definitions of the tools, so a run is made again without the server, and a server that offers
something else is refused when a run first calls it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import MsgspecError, Struct, convert

from ...fail.errors import InputError, ToolError, system_reason
from ..formats.documents import path_of, read_plain
from ..formats.strict_json import NotJson, canonical, digest, parse
from ..tools.agents import DELEGATE, TEAM_NAMES
from ..tools.contract import CLOSED, Tool, without_marks

LOCK: Final = "mcp.lock"
PROFILES: Final = "profiles"
_MOST_BYTES: Final = 16 << 20
_REMEDY: Final = "restore it from git, or remove it and accept the servers again"
# the tasks of a project share one
_parsed: Final = lru_cache(maxsize=1)(lambda data: parse(data.decode()))
_NAME: Final = r"[A-Za-z][A-Za-z0-9-]{0,30}"
_RESULT: Final = {
    **CLOSED,
    "required": ["text"],
    "properties": {"text": {"type": "string"}, "structured": {}, "is_error": {"const": True}},
}


class ServerPlace(Struct, frozen=True):
    """Where a server is.

    Attributes:
        command: The program and its arguments; empty for a server behind a URL.
        url: The URL of its streamable HTTP endpoint.
        env: Variables that the program is given beside PATH, HOME and LANG.
        passed: Names of variables of this process that it is given too.
        headers: Headers of the requests, such as a key. Where names are passed, `$NAME` stands for the value of one.
        timeout_s: Seconds that a call may take, and the start.
    """

    command: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, str] = {}
    passed: tuple[str, ...] = ()
    headers: Mapping[str, str] = {}
    timeout_s: float = 60.0

    @property
    def arguments(self) -> str:
        """What `tachograph mcp accept` is given for it, quoted for a shell, without the values of keys."""
        given = [f"--env={name}" for name in (*self.passed, *self.env)]
        given += [f"--header={it}={text if self.passed else '...'}" for it, text in self.headers.items()]
        return shlex.join([*given, *(["--url", self.url] if self.url else ["--", *self.command])])


class _Definition(Struct):
    """What is looked at in the definition of a tool; a server may say more."""

    inputSchema: dict[str, Any]
    description: str = ""
    title: str = ""


class _Lock(Struct):
    schema: Literal["mcp-lock/v1"]
    servers: dict[str, dict[str, _Definition]]


class McpServer:
    """A server whose tools an agent is given. Make one with `mcp`.

    Attributes:
        name: What the names of its tools begin with.
        place: Where it is.
        offered: The accepted definitions, by the server's own name of the tool.
        tools: The tools.
        left_out: Why others cannot be tools of a run, by the server's own name.

    Raises:
        ToolError: None of them can be.
    """

    def __init__(
        self, name: str, place: ServerPlace, offered: Mapping[str, Mapping[str, Any]], lock: str
    ) -> None:
        self.name, self.place, self.offered = name, place, offered
        self.tools: list[Tool] = []
        self.left_out: dict[str, ToolError] = {}
        for tool, definition in offered.items():
            try:
                self.tools.append(self._tool(tool, definition, lock))
            except ToolError as error:
                self.left_out[tool] = error
        if self.left_out and not self.tools:
            raise next(iter(self.left_out.values()))

    def _tool(self, name: str, definition: Mapping[str, Any], lock: str) -> Tool:
        def run(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
            from .connection import Connection  # needs the SDK, which is an extra

            connection: Connection = io.held(self, lambda: Connection(self.place, self))
            return connection.call(name, arguments)

        # a place is what the policy says it is, and never what a server says
        schema = {**without_marks(definition["inputSchema"]), "additionalProperties": False}
        return Tool(
            f"{self.name}__{name}",
            definition.get("description") or definition.get("title") or name,
            schema,
            _RESULT,
            "external",
            run,
            timeout_s=self.place.timeout_s,
            digest=digest(canonical(definition)),
            file=f"{lock}/{self.name}/{name}",
            is_foreign=True,
        )


def mcp(
    name: str,
    *,
    command: Sequence[str] = (),
    url: str = "",
    env: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
    lock: str | Path = LOCK,
) -> McpServer:
    """Return the tools of an MCP server, for `tools` of an agent; each is called `NAME__TOOL`.

    The server is started, or connected to, when a run first calls one of its tools, and ended with the run. Its tools
    are external, unless the policy says that they only read: a check takes their results from the record, and each text
    among their arguments is judged by what the policy says of it under `resources`.

    Args:
        name: Letters, digits and `-`.
        command: The program and its arguments, for a server over stdio.
        url: The endpoint of a server over streamable HTTP.
        env: Variables for the program, beside PATH, HOME and LANG; it gets no other.
        headers: Headers of the requests to `url`.
        timeout_s: Seconds that a call may take, and the start.
        lock: The file of accepted definitions, which `tachograph mcp accept` writes.

    Raises:
        ToolError: The definitions have not been accepted, or a tool cannot be one of a run.
        InputError: The name is refused, not exactly one of `command` and `url` is given, or something is not text.
    """
    given = {"url": url, "env": env or {}, "headers": headers or {}, "timeout_s": timeout_s}
    try:
        listed = command if isinstance(command, str) else [*map(os.fspath, command)]
        place = convert({**given, "command": listed}, ServerPlace)
    except (TypeError, ValueError, MsgspecError) as error:
        remedy = "give the command as a list of texts, and each variable and header as a text"
        raise InputError(f"server {name!r} cannot be used: {error}", remedy=remedy) from None
    return server_at(name, place, path_of(lock, "the file of accepted definitions"))


def server_at(name: str, place: ServerPlace, lock: Path) -> McpServer:
    """Return a server with what was accepted of it. Raises ToolError or InputError as `mcp` does."""
    check_place(name, place)
    known = read_lock(lock, str(lock))
    if name not in known:
        remedy = f"look at them and accept them: tachograph mcp accept {name} {place.arguments}"
        what = f"the tools of the MCP server {name!r} have not been accepted"
        raise ToolError(what, file=str(lock), remedy=remedy)
    return McpServer(name, place, known[name], lock.name)


def accepted_tools(root: Path) -> dict[str, Tool]:
    """Return all tools that the lock file of a project holds, by name; they can be judged and not called.

    Raises:
        ToolError: The file cannot be read.
    """
    known = read_lock(root / LOCK)
    servers = [McpServer(name, ServerPlace(), offered, LOCK) for name, offered in known.items()]
    return {tool.name: tool for server in servers for tool in server.tools}


def tool_names(root: Path, sought: Collection[str] | None = None) -> set[str]:
    """Return the names of the tools of a project: modules, profiles, what was accepted of servers. Raises ToolError.

    There is none where the project has none of these, since its tools are functions in code then.

    Args:
        root: The project.
        sought: The only names that matter, if they are known. What was accepted of servers is much to read, and is left
            out where all of them are of modules and profiles.
    """
    profiles = {name for profile in profile_names(root) for name in (profile, f"to_{profile}")}
    own = {path.stem for path in (root / "tools").glob("*.py")} | profiles
    if not own or sought is None or not own.issuperset(sought):
        own |= {f"{name}__{it}" for name, offered in read_lock(root / LOCK).items() for it in offered}
    return own | {*TEAM_NAMES, DELEGATE} if own else own


def profile_names(root: Path) -> set[str]:
    """Return the names of the profiles of a project: agents that a call may start."""
    return {path.stem for path in (root / PROFILES).glob("*.yaml")}


def check_place(name: str, place: ServerPlace) -> None:
    """Raise InputError for a refused name, or where not exactly one of command and URL is given."""
    if not isinstance(name, str) or not re.fullmatch(_NAME, name):
        raise InputError(f"{name!a:.80} is not a name of a server", remedy="use letters, digits and -")
    if bool(place.command) == bool(place.url):
        raise InputError(f"server {name!r} needs either a command or a URL", remedy="give one of them")


def read_lock(path: Path, name: str = LOCK) -> dict[str, dict[str, Any]]:
    """Return the accepted definitions in a file that errors call `name`; none if there is none. Raises ToolError."""
    try:
        data = _parsed(read_plain(path, _MOST_BYTES))
        convert(data, _Lock)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, MsgspecError) as error:
        what = f"is not a list of accepted tools ({system_reason(error)})"
        raise ToolError(what, file=name, remedy=_REMEDY) from None
    return data["servers"]  # type: ignore[no-any-return]


def lock_text(servers: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text of a lock file, a few lines for each tool, so that a change of one is a change of few lines.

    Raises:
        InputError: The definitions are too large, or nested too deeply, for it to be read again.
    """
    import json  # no run writes one

    text = json.dumps({"schema": "mcp-lock/v1", "servers": servers}, indent=1, sort_keys=True) + "\n"
    try:
        parse(text)
    except NotJson as error:
        what = f"the tools of the server do not fit into {LOCK}: {error.reason}"
        raise InputError(what, remedy="use another server") from None
    return text


def changes(accepted: Mapping[str, Any], offered: Mapping[str, Any]) -> list[str]:
    """Return how what a server offers differs from what was accepted, one line for each tool."""
    found = [f"{name}: added" for name in offered if name not in accepted]
    found += [f"{name}: removed" for name in accepted if name not in offered]
    for name in accepted:
        if name in offered and accepted[name] != offered[name]:
            keys = sorted({*accepted[name], *offered[name]})
            changed = [key for key in keys if accepted[name].get(key) != offered[name].get(key)]
            found.append(f"{name}: another {', '.join(changed)}")
    return found
