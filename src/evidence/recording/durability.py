"""Decide what must be on the disk before a run goes on, and what a signal does to the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ...fail.errors import InputError
from ...runtime.agent import Agent
from ...runtime.journal.journal import DURABILITY
from ...runtime.setup.run_config import RunConfig
from ...runtime.tools.contract import Tool
from ...runtime.workspace.mounts import Mount

OFF: Final = "off"
SUSPEND: Final = "suspend"
CANCEL: Final = "cancel"
ON_SIGNAL: Final = (SUSPEND, CANCEL)


def needs_journal(tools: Iterable[Tool], mounts: Mapping[str, Mount]) -> str | None:
    """Return why a run cannot simply be made again, or None if it can.

    Args:
        tools: The tools that the run offers to its model.
        mounts: Its mounts by name; one without a source is a private folder of the run.
    """
    for tool in tools:
        if tool.is_external:
            return f"it offers the external tool {tool.name!r}"
    for name, mount in mounts.items():
        if mount.mode == "write" and mount.source is not None:
            return f"it may write to the folder behind mount {name!r}"
    return None


def durability_of(agent: Agent, config: RunConfig, asked: str | None) -> str:
    """Return the durability of a run: what was asked for, else what the run needs.

    Raises:
        InputError: There is no such durability, or `off` was asked for a run that cannot be made again.
    """
    policy = agent.policy
    offered = (
        t
        for t in agent.gate.tools.values()
        if t.name in policy.allowed
        and t.name not in policy.denied
        and not (t.is_external and config.answers is not None)  # answered from a record, it does nothing
    )
    why = needs_journal(offered, agent.mounts)
    if asked is None:
        return OFF if why is None and config.clock.kind == "virtual" else "effect"
    if asked not in DURABILITY:
        raise InputError(f"durability {asked!r} is unknown", remedy=f"one of {', '.join(DURABILITY)}")
    if asked == OFF and why is not None:
        raise InputError(
            f"the run must be kept in a journal, since {why}", remedy="choose durability step or effect"
        )
    return asked


def suspends(on_signal: str) -> bool:
    """Return whether a signal suspends a run that is kept in a journal. Raises InputError for an unknown word."""
    if on_signal not in ON_SIGNAL:
        raise InputError(f"on_signal {on_signal!r} is unknown", remedy=f"one of {', '.join(ON_SIGNAL)}")
    return on_signal == SUSPEND
