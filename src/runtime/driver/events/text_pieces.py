"""Pieces of the text of a reply, from the model to who listens while it is written."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...core.effects import AskModel
from ...core.redacted_pieces import RedactedPieces

if TYPE_CHECKING:
    import asyncio

OnText = Callable[[AskModel, str], None]


class TextPieces:
    """Takes the pieces of one reply, from any thread, until it is closed.

    Args:
        effect: The attempt that the pieces belong to.
        pieces: Takes secrets out of the text, also of one that is split over pieces.
        on_text: Gets each piece; one at a time.
        loop: The event loop in whose thread it gets them, None for the thread that a piece comes from.
    """

    def __init__(
        self,
        effect: AskModel,
        pieces: RedactedPieces,
        on_text: OnText,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._effect = effect
        self._pieces = pieces
        self._on_text = on_text
        self._loop = loop
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._is_open = True

    def __call__(self, text: str) -> None:
        """Take the next piece. One that comes too late is dropped."""
        if not isinstance(text, str):
            raise TypeError(f"on_text takes text, not {type(text).__name__}")
        text = text.encode("utf-8", "replace").decode("utf-8")  # no half of a surrogate pair
        if not text:
            return
        if self._loop is None or threading.get_ident() == self._thread:
            self._hand_on(text)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._hand_on, text)

    def end(self) -> None:
        """Hand on what is left of a text that is whole. What is left of one that broke off is never handed on."""
        with self._lock:
            if self._is_open and (text := self._pieces.rest()):
                self._on_text(self._effect, text)

    def close(self) -> None:
        """Take no more; nothing is handed on after this returns."""
        with self._lock:
            self._is_open = False

    def _hand_on(self, text: str) -> None:
        with self._lock:
            if self._is_open and (text := self._pieces.add(text)):
                self._on_text(self._effect, text)
