"""Who answers an effect when a recorded run is checked: the world, again, or the record.

model                       again, as it is scripted
tool pure, read, write      again
tool network                again if folders answer for all hosts of the run
tool external               the record
what timed out              the record
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..runtime.effects import AskModel, Effect, Invoke
from ..runtime.log.events import Event, Failed


def is_performed_again(record: Iterable[Event], *, is_offline: bool) -> Callable[[str, Effect], bool]:
    """Return what says of an effect and its address whether a check performs it again.

    Args:
        record: The recorded lines.
        is_offline: Whether folders answer for all hosts.
    """
    timed_out = {event.at for event in record if isinstance(event, Failed) and event.kind == "timeout"}

    def again(at: str, effect: Effect) -> bool:
        if isinstance(effect, AskModel):
            return True
        if not isinstance(effect, Invoke) or at in timed_out:
            return False
        return effect.tool.effect != "external" and (effect.tool.effect != "network" or is_offline)

    return again
