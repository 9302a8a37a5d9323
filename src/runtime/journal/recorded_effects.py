"""Answers to external calls from a record: an effect outside the run's own world is performed once.

A call is the recorded one if it has the same place in the same run, the same tool and the same arguments, since
that place is what the tool's idempotency key is made from. Any other call has no answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ...fail.errors import Cancelled, EffectNotRecorded
from ...light_dataclasses import replace
from ..core.effects import Invoke, Outcome
from ..core.lines import Line
from ..formats import canonical_json
from ..formats.escape import escape_terminal
from .cassette import outcomes_of
from .decided_calls import decided_calls

_SHOWN: Final = 200  # characters of a call in a message

Place = tuple[int, str]


class RecordedEffects:
    """The attempts to execute tools in one recorded run.

    Args:
        run_id: The run.
        steps: Its step lines.
        place: What messages call the record.
        remedy: The command that performs the run's effects again.
        documents: The digests of the files that the run read, by path, which its ledger only names.
    """

    def __init__(
        self, run_id: str, steps: Iterable[Line], place: str, remedy: str, documents: Mapping[str, str]
    ) -> None:
        self._documents = documents
        self._run_id = run_id
        self.place = place
        self._remedy = remedy
        self._calls: dict[tuple[int, int], tuple[str, str | None]] = {}
        self._outcomes: dict[Place, Outcome | Cancelled] = {}
        for line in steps:
            step = line["step_index"]
            for index, call in enumerate(decided_calls(line)):
                self._calls[step, index] = (call["name"], _arguments(call))
            self._outcomes |= {(step, at): one for at, one in outcomes_of(line).items() if at[0] == "i"}

    def holds(self, effect: Invoke) -> bool:
        """Return whether the record has the outcome of this very attempt."""
        known = self._calls.get((effect.step, effect.index))
        return (
            known == _asked(effect)
            and effect.key == f"{self._run_id}/{effect.step}/{effect.index}"
            and (effect.step, effect.position) in self._outcomes
        )

    def take(self, effect: Invoke) -> Outcome:
        """Return the recorded outcome of an attempt.

        Raises EffectNotRecorded if there is none, Cancelled if the run was stopped during it.
        """
        if not self.holds(effect):
            raise self._missing(effect)
        outcome = self._outcomes[effect.step, effect.position]
        if isinstance(outcome, Cancelled):
            raise outcome
        reads = tuple((path, sha or self._documents.get(path, "")) for path, sha in outcome.reads)
        return replace(outcome, reads=reads)

    def refuse(self, effect: Invoke) -> EffectNotRecorded:
        """Return the error for an attempt whose recorded outcome says nothing under the present policy."""
        return EffectNotRecorded(
            f"step {effect.step}, call {effect.index}: {_words(_asked(effect))} was denied while it ran and now "
            "is not, so the record has no result for it",
            file=self.place,
            remedy=self._remedy,
        )

    def _missing(self, effect: Invoke) -> EffectNotRecorded:
        asked, known = _asked(effect), self._calls.get((effect.step, effect.index))
        if known == asked:
            there = f"the record has no attempt {effect.attempt} of it"
        else:
            there = (
                "the record has no call there" if known is None else f"the record has {_words(known)} there"
            )
        if known == asked and effect.key != f"{self._run_id}/{effect.step}/{effect.index}":
            there = f"the record is of the run {self._run_id[:80]}"
        return EffectNotRecorded(
            f"step {effect.step}, call {effect.index}: {_words(asked)} has no recorded result, since {there}; "
            "nothing was performed",
            file=self.place,
            remedy=self._remedy,
        )


def _arguments(call: Mapping[str, object]) -> str | None:
    given = call["arguments"]
    return None if given is None else canonical_json.encode(given)


def _asked(effect: Invoke) -> tuple[str, str | None]:
    arguments = effect.call.arguments
    return effect.call.name, None if arguments is None else arguments.text


def _words(call: tuple[str, str | None]) -> str:
    name, arguments = call
    return escape_terminal(f"{name} {arguments or ''}".rstrip(), _SHOWN)
