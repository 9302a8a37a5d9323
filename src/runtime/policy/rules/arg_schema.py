"""`arg_schema`: the arguments of a call fit the input schema of its tool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec import Struct, json

from ...formats.escape import quote_untrusted
from ...log.values import Call
from ...schema.validator import VALUE_LIMITS, Mismatch, shape_of
from ...tools.contract import Tool
from ..leaf import Instead, Leaf, Leaves, Policy, Question, Rule, Sample, Unreadable
from .arguments import KEYWORDS, examples

# values that a limit on values is likely to exclude
_EXTREMES: Final[tuple[Any, ...]] = ("?", "x" * 10_000, [], ["?"] * 1_000, {}, -1_000_000, 1_000_000)


class ArgumentsPoint(Struct, frozen=True):
    """The arguments of a call.

    Attributes:
        arguments: The arguments.
        tool: The tool whose schema they have to fit.
        found: What they were found to be by each mode: a verdict names it, and a schema may be slow.
    """

    arguments: dict[str, Any]
    tool: Tool
    found: dict[str, Mismatch | None] = {}


class Enforcement(Leaf[ArgumentsPoint]):
    """How strictly arguments are held to their schema.

    Args:
        mode: `strict`, or `shape`, which drops limits on values and nothing else.
    """

    def __init__(self, mode: str = "strict") -> None:
        self.mode = mode

    def mismatch(self, point: ArgumentsPoint) -> Mismatch | None:
        """Return where arguments do not fit, None where they do."""
        # without limits, `not` and `oneOf` may refuse what fits with them
        for mode in dict.fromkeys(("strict", self.mode)):
            if mode not in point.found:
                validator = point.tool.input_validator(strict=mode == "strict")
                point.found[mode] = validator.first_mismatch(point.arguments)
            if point.found[mode] is None:
                return None
        return point.found[self.mode]

    def allows(self, point: ArgumentsPoint) -> bool:
        return self.mismatch(point) is None

    def beyond(self, old: Enforcement) -> Iterator[tuple[str, None]]:
        if self.mode == "shape" and old.mode == "strict":
            yield Instead("", "shape", "strict"), None

    def larger(self, point: ArgumentsPoint) -> Enforcement | None:
        shape = Enforcement("shape")
        return shape if shape.allows(point) else None

    def changes(self) -> Iterator[tuple[str, Enforcement]]:
        other = "shape" if self.mode == "strict" else "strict"
        yield f"{other} instead of {self.mode}", Enforcement(other)

    def data(self) -> str:
        return self.mode


class ArgSchemaRule(Rule):
    """Judges the arguments of a proposed call."""

    id = "arg_schema"

    def leaves(self, policy: Policy, tool: str) -> Iterable[tuple[str, Enforcement]]:
        return [("/arg_schema_enforcement", policy.enforcement)]

    def compared(self, policy: Policy, tool: Tool | None) -> Iterable[tuple[str, Enforcement]]:
        is_limited = tool is not None and shape_of(tool.input_schema) != tool.input_schema
        yield "/arg_schema_enforcement", policy.enforcement if is_limited else Enforcement()

    def points(
        self, question: Question, tool: Tool | None, leaves: Leaves
    ) -> list[ArgumentsPoint | Unreadable]:
        if not isinstance(question.about, Call) or tool is None:
            return []
        if question.about.arguments is None:
            return [Unreadable(f"the arguments are not a JSON object: {question.about.problem}")]
        return [ArgumentsPoint(question.about.arguments, tool)]

    def place(self, policy: Policy, pointer: str, leaf: Enforcement, point: Any, tool: Tool | None) -> str:
        """Name the keyword of the schema: it says more than the policy, which only says that schemas count."""
        if tool is None:
            return policy.place(pointer)
        wrong = None if isinstance(point, Unreadable) else leaf.mismatch(point)
        return f"{tool.file}#/INPUT_SCHEMA{'/type' if wrong is None else wrong.place}"

    def reason(self, point: Any, leaf: Enforcement, *, allowed: bool) -> str:
        wrong = leaf.mismatch(point)
        if wrong is None:
            return "the arguments fit the schema"
        place, names = quote_untrusted(wrong.pointer or "/"), ""
        if wrong.keyword in ("additionalProperties", "required") and wrong.limit.startswith("["):
            names = ", ".join(map(quote_untrusted, json.decode(wrong.limit)))
        if wrong.keyword == "additionalProperties" and names:
            return f"there is no argument {names} in {place}"
        if wrong.keyword == "required":
            return f"an argument that is required is missing{f' (required: {names})' if names else ''}"
        said = wrong.limit.strip('"')
        return f"argument {place} violates {wrong.keyword}" + (f" ({quote_untrusted(said)})" if said else "")

    def questions(self, point: ArgumentsPoint | None, sample: Sample) -> Iterator[Question]:
        for name, schema in sample.declared.items():
            if not isinstance(schema, dict) or VALUE_LIMITS.isdisjoint(schema):
                continue
            limits = {key: schema[key] for key in KEYWORDS.keys() & VALUE_LIMITS & schema.keys()}
            for value in (*examples(limits), *_EXTREMES):
                yield from sample.with_arguments({name: value})
