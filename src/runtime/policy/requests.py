"""A proposed call as the gate and the loop see it."""

from __future__ import annotations

from typing import Any

from ..core.effects import Call
from ..tools.contract import Tool
from .usage import Counters, call_key, key_of_reading


class GateRequest:
    """One call as the gate and the loop see it, read once.

    `tool` is None for a call of a tool that is not part of the run. Arguments and key are worked out when they are
    first asked for, which is inside a decision: what breaks there denies.
    """

    __slots__ = ("_arguments", "_key", "call", "counters", "is_costly", "tool")

    def __init__(self, call: Call, counters: Counters, tool: Tool | None) -> None:
        self.call = call
        self.counters = counters
        self.tool = tool
        self.is_costly = False  # whether it is denied for what judging it would cost
        self._arguments: Any = None
        self._key: bytes | None = None

    @property
    def arguments(self) -> Any:
        """The decoded arguments, None for a call without; not to be changed."""
        if self._arguments is None and self.call.arguments is not None:
            self._arguments = self.call.arguments.value()
        return self._arguments

    @property
    def text(self) -> str:
        """The arguments as canonical JSON, empty for a call without."""
        return "" if self.call.arguments is None else self.call.arguments.text

    @property
    def key(self) -> bytes:
        """The call's identity: its tool and canonical arguments as they are read, with URLs and defaults alike."""
        if self._key is None:
            if self.tool is None or self.is_costly:
                self._key = call_key(self.call)
            else:
                self._key = key_of_reading(self.call, self.tool)
        return self._key
