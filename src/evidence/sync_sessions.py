"""The conversations of sessions.py for code without an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar

from ..fail.errors import InputError
from ..runtime.agent import Agent
from ..runtime.clock import begin
from ..runtime.run_result import RunResult, Turn
from ..runtime.world.real import Tell
from .sessions import Session, opened_before

Made = TypeVar("Made")


class SyncSession:
    """The same as Session for code without an event loop: a context manager with plain methods.

    Args:
        agent: As of Session.
        path: Likewise.
        **rest: Likewise; `listen` is called from another thread.

    Attributes:
        turns: The turns so far, also those that were taken back.
    """

    def __init__(self, agent: Agent, path: str | Path, **rest: Any) -> None:
        self._session = Session(agent, path, **rest)
        self.turns = self._session.turns
        self._thread = threading.Thread(target=self._drive, name="tachograph-session", daemon=True)

    def __enter__(self) -> Self:
        if self._thread.ident is not None:
            raise opened_before()
        self._loop = asyncio.new_event_loop()
        begin(self._thread, self._loop.close)
        try:
            self._do(self._session.__aenter__())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *about: object) -> None:
        try:
            self._do(self._session.__aexit__(*about))
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _drive(self) -> None:
        """Run the loop to the end, also where foreign code breaks it off, which is told to whoever waits for that."""
        # a runner ends what an interrupt has left behind
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            while True:
                with contextlib.suppress(KeyboardInterrupt, SystemExit):
                    runner.get_loop().run_forever()
                    return

    def _do(self, coroutine: Coroutine[Any, Any, Made]) -> Made:
        if not self._thread.is_alive():
            coroutine.close()
            raise InputError("the conversation is not open", remedy="use `with SyncSession(...)`")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def ask(self, text: str, *, tell: Tell | None = None) -> Turn:
        """Do as Session.ask does; `tell` is called from another thread."""
        return self._do(self._session.ask(text, tell=tell))

    def interrupt(self, text: str = "") -> Turn | None:
        """Do as Session.interrupt does; from another thread than that which asks."""
        return self._do(self._session.interrupt(text))

    def compact(self, focus: str = "") -> None:
        """Do as Session.compact does."""
        self._session.compact(focus)

    def plan(self) -> None:
        """Do as Session.plan does."""
        self._session.plan()

    def undo(self) -> None:
        """Do as Session.undo does."""
        self._session.undo()

    def fork(self, turn: int, path: str | Path) -> SyncSession:
        """Do as Session.fork does."""
        self._session.fork(turn, path)
        return SyncSession(self._session._agent, path, listen=self._session._listen, **self._session._options)

    def close(self) -> RunResult:
        """Do as Session.close does."""
        return self._do(self._session.close())
