"""Effects that had begun when the process ended: a tool may tell by its `probe` whether one of them happened."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ..fail.errors import asks_to_end
from ..runtime.clock import in_time
from ..runtime.driver import Word
from ..runtime.effects import Invoke
from ..runtime.io.tool_io import ToolIO
from ..runtime.io.workspace import Workspace
from ..runtime.log.events import Event
from ..runtime.log.steps import CallView, steps_of
from ..runtime.log.values import Fact
from ..runtime.loop.state import RunSpec
from ..runtime.policy.leaf import Question, Verdict
from ..runtime.tools.contract import Run, Tool
from ..runtime.world.perform import given

# seconds that a probe has, after which it has told nothing
_LIMIT: Final = 30.0


def probed(
    places: Iterable[str], record: Sequence[Event], spec: RunSpec, workspace: Workspace
) -> dict[str, Word]:
    """Ask the tools of effects in doubt, and return what those say that know; only two clear answers count.

    Args:
        places: The addresses of the effects.
        record: The log so far.
        spec: What the run is made with; its redactor has taken in the log.
        workspace: What it may touch.
    """
    # not those of agents that calls started, whose policies nobody would ask
    calls = {call.at: call for step in steps_of(record) for call in step.calls}
    words: dict[str, Word] = {}
    for at in places:
        call = calls.get(at.rpartition(".")[0])
        tool = None if call is None else spec.gates.own.tools.get(call.call.name)
        if call is not None and tool is not None and tool.probe is not None:
            answer = _asked(tool, tool.probe, call, spec, workspace)
            if answer == "done" or answer == "not_done":
                words[at] = answer
    return words


def _asked(tool: Tool, probe: Run, call: CallView, spec: RunSpec, workspace: Workspace) -> object:
    """Return what a probe answers, None if it or the disk fails, it is denied anything, lacks a secret, or is slow."""

    def decide(fact: Fact) -> Verdict:
        return spec.gates.own.ask(Question(fact, tool.name))

    reveals = spec.gates.own.policy.reveals(tool.name).kinds
    effect = Invoke(call.call, tool, decide, call.at, 0, spec.redactor, reveals, is_once=False)
    arguments, withheld = given(effect)
    if withheld:
        return None
    io, answer = ToolIO(workspace, tool, decide, call.at), None
    try:
        answer = in_time(probe, (arguments, io), _LIMIT)
    except BaseException as error:
        if asks_to_end(error):
            raise
    finally:
        io.close()
    return None if io.denied or io.storage_error is not None else answer
