"""The to-do board of a run: what its agents have to do, in which order, and who does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field


class _Todo(Struct):
    """Something to do.

    Attributes:
        title: What.
        after: The names of what has to be done before.
        by: The place of the agent that does it; None while nobody does.
        is_done: Whether it is done.
        asked: The places of agents that wanted to do it before it could be done.
    """

    title: str
    after: Sequence[str]
    by: str | None = None
    is_done: bool = False
    asked: list[str] = field(default_factory=list)


class Board:
    """What there is to do, by name. Whatever is refused changes nothing, and the reason is returned."""

    def __init__(self) -> None:
        self._todos: dict[str, _Todo] = {}

    def create(self, name: str, title: str, after: Sequence[str]) -> str:
        """Add something to do, also after what is added later. Returns why that is refused, "" where it is not."""
        if name in self._todos:
            return f"{name} is on the board"
        waiting, seen = [*after], set()
        while waiting:
            if (other := waiting.pop()) == name:
                return f"{name} would have to be done before itself"
            if other not in seen and (todo := self._todos.get(other)) is not None:
                waiting += todo.after
            seen.add(other)
        self._todos[name] = _Todo(title, [*after])
        return ""

    def _before(self, todo: _Todo) -> list[str]:
        """Return what still has to be done before something."""
        return [name for name in todo.after if name not in self._todos or not self._todos[name].is_done]

    def free(self) -> list[str]:
        """Return the names of what can be done and nobody does, in the order in which it was added."""
        open_ = [(name, it) for name, it in self._todos.items() if it.by is None and not it.is_done]
        return [name for name, it in open_ if not self._before(it)]

    def claim(self, name: str, place: str) -> str:
        """Let an agent do something. Returns why that is refused, "" where it is not."""
        todo = self._todos.get(name)
        if todo is None:
            return f"{name} is not on the board" if name else "nothing is free"
        if todo.is_done or todo.by is not None:
            return f"{name} is done" if todo.is_done else f"{name} is claimed"
        if before := self._before(todo):
            todo.asked += [place] if place not in todo.asked else []
            return f"{name} waits for {', '.join(before)}; you get a message when it is free"
        todo.by = place
        return ""

    def complete(self, name: str, place: str) -> tuple[str, dict[str, list[str]]]:
        """Note that an agent has done what it claimed.

        Returns:
            Why that is refused, "" where it is not; and what becomes free, each with the agents that wanted it.
        """
        todo = self._todos.get(name)
        if todo is None or todo.by != place or todo.is_done:
            return f"{name} is not what you have claimed", {}
        before = {*self.free()}
        todo.is_done = True
        return "", {it: self._todos[it].asked for it in self.free() if it not in before}

    def release(self, place: str) -> None:
        """Let others do what an agent has claimed that is at work no more."""
        for todo in self._todos.values():
            todo.by = todo.by if todo.is_done or todo.by != place else None

    def listed(self) -> list[dict[str, Any]]:
        """Return all of it, as agents read it."""
        states = dict.fromkeys(self._todos, "waits") | dict.fromkeys(self.free(), "free")
        taken = {name: it for name, it in self._todos.items() if it.by is not None}
        states |= {name: "done" if it.is_done else "claimed" for name, it in taken.items()}
        about = ((name, it.title, it.after, states[name]) for name, it in self._todos.items())
        return [dict(zip(("todo", "title", "after", "state"), it, strict=True)) for it in about]
