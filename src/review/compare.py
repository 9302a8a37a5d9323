"""Compare two policies by the order of their leaves: what one allows and the other does not.

Where nothing is told, nothing is wider. A widening that is told may be none, since no leaf knows what another one
denies; where it has an example, both gates have decided it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice, product
from typing import Any, Final, Literal

from msgspec import Struct, field, structs

from ..fail.errors import PolicyError
from ..runtime.formats.json_pointer import get, join, parse
from ..runtime.formats.strict_json import canonical
from ..runtime.log.values import Call
from ..runtime.policy.consistency import check_tool_rules
from ..runtime.policy.gate import Gate
from ..runtime.policy.leaf import Question, Rule, Sample, Verdict
from ..runtime.policy.policy import Policy
from ..runtime.policy.prices import Price, in_words
from ..runtime.tools.contract import Tool, not_run
from .examples import sample_call

Calls = Mapping[str, Sequence[Call]]
"""Calls that are known of each tool, to make examples from."""

_ORDER: Final = ("allow", "escalate", "deny")
# what follows from a decision or a failure decides nothing itself
_NOTES: Final = ("/on_deny", "/on_failure", "/retry", "/approval/timeout_s")
_TRIES: Final = 8  # tools with which an example is tried, and examples of each


class Example(Struct, frozen=True):
    """A question that two gates answer differently."""

    question: Question
    was: Verdict
    now: Verdict


class Change(Struct, rename={"words": "change"}):
    """How a policy differs from an earlier one.

    Attributes:
        kind: `WIDER` or `TIGHTER`; `EXPOSURE` for less redaction; `NOTE` for what decides no call.
        rule: The rule that judges it, or "" for a note.
        place: The JSON Pointer of what is compared.
        words: What differs; `change` where it is written as data.
        tools: The tools that it concerns; none where it concerns the run.
        example: A question that shows it.
    """

    kind: Literal["WIDER", "TIGHTER", "EXPOSURE", "NOTE"]
    rule: str
    place: str
    words: str
    tools: list[str] = field(default_factory=list)
    example: Example | None = None


def diff(old: Policy, new: Policy, tools: Mapping[str, Tool]) -> list[Change]:
    """Return how a policy differs from an earlier one, what is graver first.

    Args:
        old: The earlier one.
        new: The policy.
        tools: The tools that are known, by name; for another one a stand-in is made.
    """
    before, after = gates(old, new, tools)
    exposed = [it for it in old.hides if it not in new.hides]
    hidden = [it for it in new.hides if it not in old.hides]
    changes = [Change("EXPOSURE", "redact", "/redact", f"{it} is redacted no more") for it in exposed]
    changes += wider(before, after, {})
    for name in before.tools:
        was, now = (policy.tool_rules(name).effect or "external" for policy in (old, new))
        # it decides no call; but what only reads may happen twice, and leaves no line before it
        if was != now:
            kind: Literal["WIDER", "TIGHTER"] = "WIDER" if now == "read" else "TIGHTER"
            place = join(["tools", name, "effect"])
            changes.append(Change(kind, "", place, f"{now} instead of {was}", [name]))
    for tighter in wider(after, before, {}):
        words = getattr(tighter.words, "reverse", tighter.words)
        shown = tighter.example
        example = shown and Example(shown.question, shown.now, shown.was)
        changes.append(structs.replace(tighter, kind="TIGHTER", words=words, example=example))
    changes += [Change("TIGHTER", "redact", "/redact", f"{it} is redacted") for it in hidden]
    changes += _prices(old, new)
    for place in _NOTES:
        was, now = get(old.in_force, place), get(new.in_force, place)
        if was != now:
            words = f"{canonical(now).decode()} instead of {canonical(was).decode()}"
            changes.append(Change("NOTE", "", place, words))
    return changes


def _prices(old: Policy, new: Policy) -> list[Change]:
    """Return which tokens cost less, so that a budget of money reaches further, and which cost more."""
    found = []
    is_held = all("max_cost" in it.limits.limits for it in (old, new))  # else a price bounds nothing
    for model in sorted(old.prices.keys() | new.prices.keys()):
        was, now = old.prices.get(model), new.prices.get(model)
        # a model without a price has no run under such a budget
        if was is None or now is None:
            words = "has a price" if was is None else "has no price"
            found.append((was is None, model, words))
            continue
        parts = structs.astuple(was), structs.astuple(now)
        for part, then, today in zip(Price.__struct_fields__, *parts, strict=True):
            if then != today:
                found.append((today < then, model, f"{part}: {in_words(today)} instead of {in_words(then)}"))
    rule = "loop_budget" if is_held else ""
    return [
        Change(("WIDER" if less else "TIGHTER") if is_held else "NOTE", rule, join(["prices", model]), words)
        for less, model, words in found
    ]


def gates(old: Policy, new: Policy, tools: Mapping[str, Tool]) -> tuple[Gate, Gate]:
    """Return the gates of two policies, over all tools that these name."""
    names = dict.fromkeys(name for policy in (old, new) for _, name in policy.tools_named())
    known = [_fitting(name, old, new, tools) for name in names]
    return Gate(old, known), Gate(new, known)


def _fitting(name: str, old: Policy, new: Policy, tools: Mapping[str, Tool]) -> Tool:
    """Return a tool that fits what both policies say of it: the known one, or a stand-in."""
    tool = tools.get(name)
    if tool is not None:
        with suppress(PolicyError):  # one of the policies may be of a time when the tool was another one
            for policy in (old, new):
                check_tool_rules(policy, [tool])
            return tool
    rules = [policy.tool_rules(name) for policy in (old, new)]
    resources = {pointer for it in rules for pointer in it.resources.kinds}
    is_foreign = any(it.effect for it in rules)
    conditions = {it for rule in rules for leaf in (rule.arguments, rule.ask_if) for it in leaf.conditions}
    # its schema limits values, as that of any tool may
    text = {"type": "string", "maxLength": 1_000_000}
    if "/*" not in resources:  # which says of this text too what it is
        text["x-resource"] = "any"
    properties: dict[str, Any] = {"text": text}
    for pointer in resources | conditions:
        properties[parse(pointer)[0]] = {}
    schema = {"type": "object", "additionalProperties": False, "properties": properties}
    effect = "external" if resources or is_foreign else "network"
    return Tool(name, "", schema, schema, effect, not_run, is_foreign=is_foreign)


def wider(old: Gate, new: Gate, calls: Calls) -> list[Change]:
    """Return what a gate allows and an earlier one over the same tools does not."""

    @cache
    def sample(name: str) -> Sample:
        tool = new.tools.get(name)
        call = sample_call(new, tool, calls.get(name, ())) if tool is not None else None
        declared = tool.input_schema.get("properties", {}) if tool is not None else {}
        return Sample(new.policy, name, declared, call)

    # what an earlier policy does not let be called is told by its name, and what is not called at all meets nothing
    called = [name for name in new.policy.names.allowed if _may_be_called(new, name)]
    shared = [name for name in called if old.policy.names.allows(name)]
    found: dict[tuple[Any, ...], list[tuple[Change, list[Any]]]] = {}
    held: list[Any] = []  # what has been compared, so that no other leaf gets its identity
    for rule in new.rules:
        for name in [""] if rule.is_of_run else shared:
            tool = new.tools.get(name)
            then, now = [*rule.compared(old.policy, tool)], [*rule.compared(new.policy, tool)]
            held += (then, now)
            for (place, was), (_, leaf) in zip(then, now, strict=True):
                pair = rule.id, place, id(was), id(leaf)
                if pair not in found:
                    points: dict[str, list[Any]] = {}
                    for words, point in leaf.beyond(was):
                        points.setdefault(words, []).append(point)
                    tools: list[str] = []  # one list for all of them: it may be long
                    where = _place(place, name, old.policy, new.policy)
                    found[pair] = [
                        (Change("WIDER", rule.id, where, words, tools), some)
                        for words, some in points.items()
                    ]
                for number, (change, some) in enumerate(found[pair]):
                    if number == 0 and name:
                        change.tools.append(name)
                    if change.example is None and len(change.tools) <= _TRIES:
                        named = rule.tool_of(some[0])
                        names = [named] if named else [name] if name else shared[:_TRIES] or [name]
                        change.example = _example(old, new, rule, some, [*map(sample, names)])
    told: dict[tuple[str, str], Change] = {}
    for change in (change for changes in found.values() for change, _ in changes):
        # two rules may judge the same entry, such as one of `ask_if`, and two tools have it by leaves of their own
        first = told.get((change.place, change.words), change)
        if first.tools is not change.tools:
            first.tools = change.tools = [*dict.fromkeys(first.tools + change.tools)]
        told[change.place, change.words] = change if change.example is not None else first
    return [*told.values()]


def _place(place: str, tool: str, old: Policy, new: Policy) -> str:
    """Return what to name as the place of a change: what is said of one tool, where that alone has changed."""
    section = parse(place)[0]
    is_narrowed = section in ("url_allowlist", "private_networks", "sandbox")
    is_the_same = old.in_force[section] == new.in_force[section]
    return join(["tools", tool]) if is_narrowed and is_the_same else place


def _may_be_called(gate: Gate, name: str) -> bool:
    limits = gate.policy.tool_rules(name).limits
    return gate.policy.names.allows(name) and all(most > 0 for most in limits.limits.values())


def _example(
    old: Gate, new: Gate, rule: Rule, points: Iterable[Any], samples: Sequence[Sample]
) -> Example | None:
    """Return a question that the new gate answers more freely than the old one; None where none is found."""
    for point, sample in product(points, samples):
        for question in islice(rule.questions(point, sample), 2 * _TRIES):
            example = Example(question, old.ask(question), new.ask(question))
            if _ORDER.index(example.now.decision) < _ORDER.index(example.was.decision):
                return example
    return None
