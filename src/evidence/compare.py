"""Compare a recorded run with the run made again: how grave each difference is, and on which moved input it rests."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from itertools import accumulate
from typing import Any, Final, NamedTuple

import msgspec

from ..fail.catalog import Rule
from ..runtime.formats.strict_json import canonical
from ..runtime.log import events as log
from ..runtime.log.steps import all_steps, steps_of
from ..runtime.log.values import Call, ToolOffer
from ..runtime.policy.policy import Policy
from ..runtime.redaction.redactor import PLACEHOLDER
from .manifest import MANIFEST

Events = Sequence[log.Event]
GRAVEST_FIRST: Final = ("DAMAGE", "EXPOSURE", "VERDICT", "EFFECT", "ASKED", "ENDING", "OTHER", "INPUT")
CHANGED: Final = "has changed"
# what of a head a live model is asked with
_ASKED: Final = "question instructions history tools model options fallbacks output_schema".split()
# the call that an address belongs to, the innermost one of agents that calls started
_CALL: Final = re.compile(r"(?:.*/)?[0-9]+\.c[0-9]+(?:\.g[0-9]+)?")
_MOST: Final = 80  # characters of a value
_LEAD: Final = 20  # of these, before the first that differs


class Difference(msgspec.Struct, frozen=True):
    """What differs between a record and the run made again.

    Attributes:
        kind: One of GRAVEST_FIRST: DAMAGE, EXPOSURE (what the record hides is shown), VERDICT (a decision, or a
            person's), EFFECT (what a tool or hook did), ASKED (what the model is asked or replies), ENDING, OTHER, and
            INPUT (a file that the run is made from).
        at: The address, or the file.
        words: What differs, one line.
        rests_on: Of a line: the inputs that have moved and may be the reason.
    """

    kind: str
    at: str
    words: str
    rests_on: tuple[str, ...] = ()


class Origin(NamedTuple):
    """Which inputs each part of a run is read from.

    Attributes:
        policy: The files of the policy.
        task: The task and its hooks.
        tools: By tool, its file and the modules that it imports.
    """

    policy: Set[str]
    task: Set[str]
    tools: Mapping[str, Set[str]]


class Comparison:
    """Compares the lines of two runs.

    Args:
        origin: What both were made from.
        record: The recorded lines.
        made: The lines that were made again.
        moved: The inputs that have moved, each with how.
        policy: The policy whose variables no line may show; None where it is not known.
    """

    def __init__(
        self, origin: Origin, record: Events, made: Events, moved: Mapping[str, str], policy: Policy | None
    ) -> None:
        self._origin, self._record, self._made, self._moved = origin, record, made, moved
        self._shows = _shows(policy)
        parts = (re.findall(r"[./]?[^./]+", event.at) for event in made)
        self._reached = {scope for it in parts for scope in accumulate(it)}
        self._calls = [_calls_of(record), _calls_of(made)]

    def differences(self, *, is_cut_off: bool) -> list[Difference]:
        """Return what differs, by address; where the run was cut off, lines that it did not come to are left out."""
        old = {event.at: event for event in self._record}
        new = {event.at: event for event in self._made}
        found = []
        for at in {**old, **new}:
            was, now = old.get(at), new.get(at)
            if now is not None and (variable := self._shows(now)) is not None:
                words = f"shows the value of {variable}"
                found.append(Difference("EXPOSURE", at, words, self.rests_on("EXPOSURE", was, now)))
            elif was != now and not (is_cut_off and now is None):
                found += self._compared(at, was, now)
        places = zip((at for at in old if at in new), new, strict=False)
        if not found and (at := next((was for was, now in places if was != now), "")):
            found.append(Difference("OTHER", at, "stands elsewhere in the log", self.rests_on("OTHER")))
        return found

    def _compared(self, at: str, old: log.Event | None, new: log.Event | None) -> list[Difference]:
        if old is None or new is None or type(old) is not type(new):
            kind = self._kind(old, new)
            was, now = (_name(event) if event else "" for event in (old, new))
            gone = f"{was} is not made any more"
            words = f"was {was}, is {now}" if was and now else f"{now} is new" if now else gone
            return [Difference(kind, at, words, self.rests_on(kind, old, new))]
        # the digest in the last line follows from the lines before it
        leaves = [it for it in _leaves(*map(msgspec.to_builtins, (old, new))) if it[0] != "/sha256"]
        if not leaves:
            return []
        kind, words = self._kind(old, new), ""
        if shown := [place for place, was, now in leaves if _is_shown(place, was, now)]:
            kind, words = "EXPOSURE", f"a secret stood hidden at {', '.join(shown)}, and does not any more"
        elif kind == "VERDICT" and isinstance(new, log.Decided):
            words = f"was {_name(old)}, is {_name(new)}: {new.reason} ({new.place})"
        elif isinstance(old, log.RunStarted) and isinstance(new, log.RunStarted):
            if shown := [it for it in old.policy.hides if it not in new.policy.hides]:
                kind, words = "EXPOSURE", f"the policy does not hide {', '.join(shown)} any more"
            leaves.sort(key=lambda leaf: kind == "ASKED" and leaf[0].split("/")[1] not in _ASKED)
        if not words:
            place, was, now = leaves[0]
            more = f", and {len(leaves) - 1} more" if leaves[1:] else ""
            words = f"{place[1:]} was {_short(was, now)}, is {_short(now, was)}{more}"
        return [Difference(kind, at, words, self.rests_on(kind, old, new))]

    def _kind(self, old: log.Event | None, new: log.Event | None) -> str:
        """Return how grave it is that one line stands in the place of another, or none."""
        event = old or new
        assert event is not None
        if isinstance(event, log.Decided):
            if isinstance(old, log.Decided) and isinstance(new, log.Decided):
                is_other = (old.decision, old.rule) != (new.decision, new.rule)
            else:  # nothing is granted where the run does not come any more
                is_other = event.at.rpartition(".d")[0] in self._reached
            return "VERDICT" if is_other else "OTHER"
        if isinstance(event, log.Answered):
            return "VERDICT"
        if isinstance(event, log.ToolReturned | log.Failed | log.HookAnswered):
            return "EFFECT"
        if isinstance(event, log.RunStarted | log.AgentStarted):
            is_asked = any(getattr(old, field, None) != getattr(new, field, None) for field in _ASKED)
            return "ASKED" if is_asked else "OTHER"
        if isinstance(old, log.StepEnded) and isinstance(new, log.StepEnded) and old.added == new.added:
            return "OTHER"  # the price of what was said, or a mode that follows from other lines
        if isinstance(event, log.ModelReplied | log.StepEnded | log.Received | log.CallEnded | log.Compacted):
            return "ASKED"
        return "ENDING" if isinstance(event, log.Ended) else "OTHER"

    def rests_on(
        self, kind: str, old: log.Event | None = None, new: log.Event | None = None
    ) -> tuple[str, ...]:
        """Return which of the moved inputs concern a difference; all of them where nothing tells."""
        event = old or new
        match = _CALL.match(event.at) if event else None
        calls = [held.get(match[0] if match else "") for held in self._calls]
        tools = {file for files in self._origin.tools.values() for file in files}
        named = {it.name for it in calls if it} | _changed_offers(old, new)
        of_named = {file for name in named for file in self._origin.tools.get(name, ())}
        own = of_named or tools
        policy = {*self._origin.policy}
        near = {*self._moved}
        if calls[0] != calls[1]:
            pass  # another call: what is said of it and what it does may rest on anything before
        elif kind == "VERDICT":
            rules = [getattr(it, "rule", "") for it in (old, new)]
            is_of_task = isinstance(event, log.Answered) or Rule.HOOK in rules
            near = {*self._origin.task} if is_of_task else policy | own
        elif kind == "OTHER" and isinstance(event, log.RunStarted):
            near -= tools - of_named
        elif kind == "EXPOSURE":
            near -= tools - own
        elif kind in ("EFFECT", "ASKED"):
            near -= (tools - own) | policy
        near = near & {*self._moved} or {*self._moved}
        # that other inputs are read, or not any more, mostly follows, and of tools always does
        return tuple(sorted({path for path in near if self._moved[path] == CHANGED} or near - tools))


def _shows(policy: Policy | None) -> Callable[[log.Event], str | None]:
    """Return what says of a line which variable's value it shows, though the policy hides it; a script knows none."""
    if policy is None or not policy.secret_names:
        return lambda event: None
    from ..runtime.agent import live_redactor  # needs an event loop

    redactor = live_redactor(policy, b"")
    return lambda event: redactor.holds(canonical(event))


def moved_inputs(recorded: Mapping[str, str], read: Mapping[str, str], *, is_all: bool) -> dict[str, str]:
    """Return which of the inputs of two runs have moved, each with how.

    Args:
        recorded: Path and digest of each input of the record.
        read: The same of the run made again.
        is_all: Whether these are all that it read.
    """
    moved = {}
    for path in sorted({*recorded, *read}):
        if path not in recorded:
            moved[path] = "is read now, and was not"
        elif path not in read and is_all:
            moved[path] = "was read, and is not any more"
        elif path in read and recorded[path] != read[path]:
            moved[path] = CHANGED
    return moved


def moved_offers(files: Mapping[str, str], old: Events, new: Events) -> dict[str, str]:
    """Return which files of tools hold something else that a model is offered, given two logs; `files` are by tool."""
    was, now = _offers(*old), _offers(*new)
    return {files[name]: CHANGED for name in now if name in files and was.get(name, now[name]) != now[name]}


def _offers(*heads: log.Event | None) -> dict[str, ToolOffer]:
    """Return what models are offered, by the name of the tool; other lines than first ones of agents hold nothing."""
    return {offer.name: offer for head in heads for offer in getattr(head, "tools", ())}


def with_inputs(moved: Mapping[str, str], found: list[Difference]) -> list[Difference]:
    """Return the inputs that have moved, then what else differs; of a run that differs in nothing else, that too."""
    if moved and not found:
        found = [Difference("OTHER", MANIFEST, "names other inputs; all lines are the same", (*moved,))]
    return [Difference("INPUT", path, words) for path, words in moved.items()] + found


def _changed_offers(old: log.Event | None, new: log.Event | None) -> set[str]:
    """Return the tools that the model of an agent is offered otherwise, given two first lines of it."""
    was, now = _offers(old), _offers(new)
    return {name for name in was.keys() | now.keys() if was.get(name) != now.get(name)}


def _calls_of(events: Events) -> dict[str, Call]:
    return {call.at: call.call for step in all_steps(steps_of(events)) for call in step.calls}


def _name(event: log.Event) -> str:
    """Return what a line is called, without any text of models and tools."""
    if isinstance(event, log.Decided):
        return f"{event.decision} by {event.rule}"
    if isinstance(event, log.Failed):
        return f"failed ({event.error})"
    return str(msgspec.to_builtins(event)["event"])


def _leaves(old: Any, new: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the innermost places at which two values differ, with both; None where nothing stands."""
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        old, new = ({_key(n, item): item for n, item in enumerate(items)} for items in (old, new))
    if not isinstance(old, dict) or not isinstance(new, dict):
        yield place, old, new
        return
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            yield from _leaves(old.get(key), new.get(key), f"{place}/{key}")


def _key(n: int, item: Any) -> str:
    """Return what an item of a list is called: a tool, and not its place."""
    return f"{n}:{item['name']}" if isinstance(item, dict) and isinstance(item.get("name"), str) else str(n)


def _is_shown(place: str, old: Any, new: Any) -> bool:
    """Return whether a placeholder has gone from where it stood, and something stands there."""
    hidden, left = (len(PLACEHOLDER.findall(canonical(value).decode())) for value in (old, new))
    return hidden > left if new is not None else PLACEHOLDER.search(place) is not None


def _short(value: Any, other: Any) -> str:
    """Return a value as JSON, cut around the place where it begins to differ from another."""
    text, beside = (canonical(it).decode() for it in (value, other))
    if len(text) <= _MOST:
        return text
    same = next((n for n, pair in enumerate(zip(text, beside, strict=False)) if pair[0] != pair[1]), 0)
    start = max(same - _LEAD, 0)
    before, after = "..." if start else "", "..." if len(text) > start + _MOST else ""
    return f"{before}{text[start : start + _MOST]}{after}"
