"""Hooks: functions of a project that are asked at four events of a run, and load them from a file.

A hook gets plain data and returns plain data; it gets no `io`, and what it changes in its data changes nothing:

- `before_model(data)` with `messages`; may return `{"stop": REASON}`
- `before_call(data)` with `call`; may return `{"deny": REASON}`, `{"escalate": REASON}` or `{"arguments": {...}}`
- `after_call(data)` with `call` and `result`; may return `{"deny": REASON}` or `{"result": {...}}`
- `on_stop(data)` with `answer`; may return `{"send_back": MESSAGE}`

`data` also holds `event`, `run_id` and `step`. None says nothing. A file holds functions of these names, and
optionally `TIMEOUT_S` and `IMPORTS`, which mean what they mean in a tool (`contract`).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from ...fail.errors import InputError
from ...light_dataclasses import dataclass
from ..formats import canonical_json
from . import source_scan
from .coroutines import run_coroutine
from .source_module import module_of

Hook = Callable[[dict[str, Any]], Any]

EVENTS: Final = ("before_model", "before_call", "after_call", "on_stop")
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}\Z")


@dataclass(frozen=True)
class Hooks:
    """Functions that are asked at events of a run; they may tighten what the gate allows, and never widen it.

    Attributes:
        before_model: Asked before the model is; may end the run.
        before_call: Asked after the gate and before a person; may deny, escalate or give other arguments.
        after_call: Asked about a result; may deny it or give another.
        on_stop: Asked about the final answer; may send the agent back.
        name: What decisions and records call these hooks.
        timeout_s: Seconds that a hook may take, None for no limit.
        file: What messages and records call their file, None for hooks made in code.
        digest: SHA-256 of their file.
        modules: Modules of the project that the file needs: path and SHA-256.

    Example:
        >>> from tachograph import Agent, Hooks, Policy, Stub
        >>> def keep_short(data):
        ...     return {"send_back": "In one word, please."} if " " in data["answer"] else None
        >>> model = Stub([{"answer": "At the depot."}, {"answer": "Depot."}])
        >>> agent = Agent(model, ["search"], Policy.shipped(), hooks=Hooks(on_stop=keep_short))
        >>> agent.run("Where may a driver sleep?").answer
        'Depot.'
    """

    before_model: Hook | None = None
    before_call: Hook | None = None
    after_call: Hook | None = None
    on_stop: Hook | None = None
    name: str = "hooks"
    timeout_s: float | None = None
    file: str | None = None
    digest: str | None = None
    modules: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.match(self.name):
            raise InputError(
                "the name of hooks is invalid", remedy="use letters, digits, '-' and '_'", file=self.file
            )
        for event in EVENTS:
            function = getattr(self, event)
            if function is not None and not callable(function):
                raise InputError(
                    f"{event} is no function", remedy="give a function that gets a dict", file=self.file
                )
        if not self.events:
            raise InputError(
                "these hooks have no function", remedy=f"give one of {', '.join(EVENTS)}", file=self.file
            )
        limit = self.timeout_s
        if limit is not None and (type(limit) not in (int, float) or not 0 < limit < 1e6):
            raise InputError(
                "the time limit of hooks is no number of seconds",
                remedy="give a number above 0",
                file=self.file,
            )

    @property
    def events(self) -> tuple[str, ...]:
        """The events at which these hooks are asked."""
        return tuple(event for event in EVENTS if getattr(self, event) is not None)

    def ask(self, event: str, data: Mapping[str, Any]) -> Any:
        """Return what the hook of an event says; an `async` one is run in a loop of its own."""
        said = getattr(self, event)(data)
        if not hasattr(said, "__await__"):
            return said
        return run_coroutine(lambda: _within(self.timeout_s, said))


async def _within(timeout_s: float | None, said: Awaitable[Any]) -> Any:
    """Return what an awaitable gives, in time: no alarm ends one that waits in a thread."""
    import asyncio

    async with asyncio.timeout(timeout_s):
        return await said


def load_hooks(path: Path, file: str) -> Hooks:
    """Return the hooks in a file; their name is the file's stem.

    Args:
        path: The file.
        file: What messages and records call it.

    Raises:
        InputError: The file cannot be read or imported, or holds no hook.
    """
    module, source = module_of(path, file, "tachograph_hooks", InputError, "name a file with hooks")
    imports = getattr(module, "IMPORTS", ())
    if not isinstance(imports, tuple) or not all(isinstance(name, str) for name in imports):
        raise InputError("IMPORTS must be a tuple of names of modules", file=file, remedy='write ("json",)')
    return Hooks(
        **{event: getattr(module, event, None) for event in EVENTS},
        name=path.stem,
        timeout_s=getattr(module, "TIMEOUT_S", None),
        file=file,
        digest=canonical_json.digest(source),
        modules=source_scan.scan(source, file, imports, file=str(path), package=None),
    )


def collect_hooks(given: Hooks | Iterable[Hooks]) -> tuple[Hooks, ...]:
    """Return hooks in the order in which they are asked. Raises InputError for two of one name, or other objects."""
    hooks = tuple(given) if isinstance(given, Iterable) else (given,)
    for item in hooks:
        if not isinstance(item, Hooks):
            raise InputError(
                f"{type(item).__name__} is not Hooks", remedy="give Hooks(before_call=...) or a list of them"
            )
    names = [item.name for item in hooks]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two hooks are named {name!r}", remedy="give each a name: Hooks(..., name=...)")
    return hooks
