"""Who answers an effect when a recorded run is checked: the world, again, or the record.

model, person, hook         again if they are scripted, else the record
tool pure, read, write      again
tool network                again if folders answer for all hosts of the run
tool external               the record; likewise a tool of a server of which the policy says that it only reads
what timed out, was stopped, or in doubt and happened by a person's word: the record
what may read a file that a call wrote which the record answers: likewise, since the file is not there
what was under way beside a call that writes there: likewise, since nobody knows which of them was first
what holds a placeholder of a live key, likewise
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from posixpath import normpath

import msgspec

from ..fail.errors import NotRecorded
from ..runtime.branches import Pending
from ..runtime.effects import AskHook, AskModel, AskPerson, Invoke
from ..runtime.log.events import Event, Failed, Settled, Stopped, ToolReturned
from ..runtime.log.steps import all_steps, steps_of
from ..runtime.log.values import Call
from ..runtime.redaction.redactor import placeholders


def without_failures(record: Sequence[Event], is_feigned: Callable[[str], object]) -> list[Event]:
    """Return the lines of a record but for the failures of calls that came to no result.

    What failed may have been mended since, or may have acted all the same, so that somebody has to decide. What was
    denied is denied again, and what the task itself feigns, given the address of an attempt, fails again.
    """
    attempts = (call.attempts for step in all_steps(steps_of(record)) for call in step.calls)
    last = [its[-1].outcome for its in attempts if its and not is_feigned(its[-1].at)]
    failed = {it.at for it in last if isinstance(it, Failed) and it.error != "PermissionError"}
    return [event for event in record if event.at not in failed]


def earlier_effects(
    record: Sequence[Event], task: str, taken: set[str]
) -> Callable[[str, Call], ToolReturned | Failed]:
    """Return what answers for external effects, which are not repeated when a run is recorded anew.

    Args:
        record: The lines of the earlier run.
        task: The name of the task.
        taken: Is given the address of each call for which the record answers.

    Raises:
        NotRecorded: By what is returned: the earlier run holds no outcome of this call at this address.
    """
    calls = (call for step in all_steps(steps_of(record)) for call in step.calls)
    held = {it.at: (call.call, it.outcome) for call in calls for it in call.attempts}

    def answer(at: str, call: Call) -> ToolReturned | Failed:
        earlier, outcome = held.get(at, (None, None))
        if earlier != call or not isinstance(outcome, ToolReturned | Failed):
            raise NotRecorded(at, task)
        taken.add(at.rpartition(".")[0])
        return outcome

    return answer


def is_performed_again(
    record: Sequence[Event], *, is_offline: bool, is_scripted: bool = True
) -> Callable[[Pending, Iterable[Pending]], bool]:
    """Return what says of an effect, and of all that are under way, whether a check performs it again.

    Args:
        record: The recorded lines.
        is_offline: Whether folders answer for all hosts.
        is_scripted: Whether model and people follow a script.

    Raises:
        NotRecorded: By what is returned: only the record can answer the effect, and it holds another call there.
    """
    answered = {event.at for event in record if isinstance(event, Stopped)}  # by the record, as told above
    answered |= {it.at.rpartition(".")[0] for it in record if isinstance(it, Settled) and it.happened}
    wrote = {it.at: it.wrote for it in record if isinstance(it, ToolReturned | Failed)}
    unseen = {*answered}  # nobody knows where these wrote
    answered |= {event.at for event in record if isinstance(event, Failed) and event.kind == "timeout"}
    # what holds a placeholder of a live key cannot be made again
    marked = {it.at for it in record if not is_scripted and placeholders(msgspec.to_builtins(it))}
    calls = {call.at: call.call for step in all_steps(steps_of(record)) for call in step.calls}
    not_there: set[tuple[str, ...]] = set()  # mounts that lack what was written there

    def paths(at: str, effect: Invoke, kind: str) -> set[tuple[str, ...]]:
        """Return the paths, as their parts, that a call may touch, or write where that is the kind; () is all paths."""
        tool = effect.tool
        texts = [text for it, text in tool.texts(effect.call.arguments) if it.startswith(kind)]
        is_any = tool.effect == "write" or (kind == "path:" and "read" in tool.uses)
        found = {tuple(normpath(text).split("/")) for text in texts} or ({()} if is_any else set())
        if at in unseen and "write" in tool.uses and not tool.is_foreign:
            found.add(())
        return found | {(mount,) for mount in wrote.get(at, ())}

    def again(pending: Pending, under_way: Iterable[Pending]) -> bool:
        at, effect = pending.at, pending.effect
        if isinstance(effect, AskModel | AskPerson | AskHook):
            return is_scripted
        if not isinstance(effect, Invoke):
            return False
        tool = effect.tool
        performed = not tool.acts_beside_io and (tool.effect != "network" or is_offline)
        is_marked = not is_scripted and (at in marked or bool(placeholders(effect.call.arguments)))
        touched, written = paths(at, effect, "path:"), paths(at, effect, "path:write")
        others = {it.at: it.effect for it in under_way if isinstance(it.effect, Invoke) and it.at != at}
        answered.update(it for it in others if _meet(written, paths(it, others[it], "path:")))
        is_beside = any(_meet(touched, paths(it, others[it], "path:write")) for it in others)
        is_known = not is_beside and not _meet(touched, not_there)
        if performed and at not in answered and is_known and not is_marked:
            return True
        not_there.update(path[:1] for path in written)
        if calls.get(at.rpartition(".")[0]) != effect.call:
            raise NotRecorded(at)
        return False

    return again


def _meet(some: set[tuple[str, ...]], others: set[tuple[str, ...]]) -> bool:
    """Return whether one of some paths is one of others, or above or below it."""
    return any(one[: len(other)] == other[: len(one)] for one in some for other in others)
