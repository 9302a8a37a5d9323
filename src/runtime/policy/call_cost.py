"""The ceiling on the work of one decision: counted from the sizes of a call before its arguments are judged.

No time is taken, so that every machine decides alike. A call beyond the ceiling is denied as `gate_error`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...fail.catalog import Rule
from ..core.effects import Decision, DecisionKind
from ..core.redaction import MARK
from ..formats.json_units import count_units
from ..schema.resource_places import Resource
from ..schema.validator import SchemaValidator
from ..schema.work import MAX_WORK, SchemaWork, sizes_by_name
from ..tools.contract import Tool
from .per_tool.argument_rules import ArgumentRules
from .policy import Policy
from .requests import GateRequest

# characters of the arguments as canonical JSON; they are decoded up to three times, and digested
MAX_TEXT: Final = 2_000_000
# in steps, as in schema/work.py
_PER_CHARACTER: Final = 8
_PER_VALUE: Final = 500  # decoding and counting, as `count_units` counts
_PER_STEP_TO_RESOURCE: Final = 600
# reading a URL or a path, finding its entry, and reading it again for the call's key; one that is longer is refused
_PER_RESOURCE: Final = 6_000
_PER_CHARACTER_OF_RESOURCE: Final = 180
_LONGEST_RESOURCE: Final = 2_048
_PER_PLACEHOLDER: Final = 12_000


class TooCostly(Exception):
    """Judging a call would cost more than a decision may. The text says why; `facts` are for the record."""

    def __init__(self, what: str, used: int, limit: int) -> None:
        self.facts = {"used": used, "limit": limit}
        super().__init__(f"{what.format(f'{used:,}')}; at most {limit:,} are judged")


class CallCost:
    """The steps of judging calls of one tool under one policy.

    Args:
        tool: The tool.
        validators: What its arguments are held against.
        conditions: How many conditions are searched for placeholders.
    """

    __slots__ = ("_conditions", "_densest", "_named", "_resources", "_works")

    def __init__(self, tool: Tool, validators: tuple[SchemaValidator, ...], conditions: int) -> None:
        self._works: tuple[SchemaWork, ...] = tuple(validator.work for validator in validators)
        self._resources: tuple[Resource, ...] = tool.resources
        self._conditions = conditions
        self._named = frozenset(name for work in self._works for name in work.properties)
        self._named |= {resource.path[0] for resource in tool.resources}
        self._densest = (
            sum(work.densest() for work in self._works)
            + _PER_CHARACTER
            + _PER_VALUE * (1 + conditions)
            + (_PER_RESOURCE + _PER_CHARACTER_OF_RESOURCE if tool.resources else 0)
            + _PER_STEP_TO_RESOURCE * len(tool.resources)
            + _PER_PLACEHOLDER // len(MARK)
        )

    def check(self, request: GateRequest) -> None:
        """Raise TooCostly for a call that takes more than MAX_WORK steps, or has more than MAX_TEXT characters."""
        length = len(request.text)
        if self._densest * (length + 1) <= MAX_WORK:
            return  # whatever the arguments are
        if length > MAX_TEXT:
            raise TooCostly("the arguments have {} characters", length, MAX_TEXT)
        steps = self.steps(request)
        if steps > MAX_WORK:
            raise TooCostly("the arguments may take {} steps to judge", steps, MAX_WORK)

    def steps(self, request: GateRequest) -> int:
        """Return how many steps the decision takes at most. Counting ends where they are too many."""
        text = request.text
        steps = _PER_CHARACTER * len(text) + _PER_VALUE * count_units(text, MAX_WORK // _PER_VALUE)
        if steps > MAX_WORK:  # decoding them would take too long
            return steps
        arguments = request.arguments
        if not isinstance(arguments, dict):
            return steps
        sizes = sizes_by_name(arguments, self._named)
        marks = text.count(MARK)
        steps += _PER_PLACEHOLDER * marks
        steps += sum(work.steps(sizes) for work in self._works)
        if marks:
            values = sum(size.values + size.names for size in sizes.values())
            steps += _PER_VALUE * self._conditions * values
        for resource in self._resources:
            size = sizes.get(resource.path[0])
            steps += _PER_STEP_TO_RESOURCE * (
                len(resource.path) if "*" not in resource.path or size is None else size.values
            )
        if steps > MAX_WORK:
            return steps
        texts = (text for resource in self._resources for _, text in resource.find(arguments))
        return steps + sum(
            _PER_RESOURCE + _PER_CHARACTER_OF_RESOURCE * min(len(text), _LONGEST_RESOURCE) for text in texts
        )


class Ceiling:
    """What denies the calls of a run that would cost too much to judge.

    Args:
        policy: The policy.
        rules: Its conditions on arguments.
    """

    def __init__(self, policy: Policy, rules: ArgumentRules) -> None:
        self._policy, self._rules = policy, rules
        self._costs: dict[str, CallCost] = {}

    def prepare(self, tools: Iterable[Tool]) -> None:
        """Compile what calls of these tools are held against, before the first of them."""
        for tool in tools:
            self._cost_of(tool)

    def decide(self, request: GateRequest) -> Decision | None:
        """Return the denial of a call of a tool of the run that would cost too much to judge, else None."""
        assert request.tool is not None
        try:
            self._cost_of(request.tool).check(request)
        except TooCostly as error:
            request.is_costly = True
            place = self._policy.rule("")
            return Decision(DecisionKind.DENY, Rule.GATE_ERROR, str(error), place, error.facts)
        return None

    def _cost_of(self, tool: Tool) -> CallCost:
        known = self._costs.get(tool.name)
        if known is None:
            judge = tool.input_validator if self._policy.strict_arguments else tool.shape_validator
            judges = (judge, *(one for one in self._rules.validators_of(tool) if one is not None))
            known = self._costs[tool.name] = CallCost(tool, judges, self._rules.count_of(tool))
        return known
