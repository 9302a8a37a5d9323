"""Whatever a run hands to a person can be named in that person's annotations."""

from __future__ import annotations

import inspect
import re
import typing
from typing import Any

import tachograph
from tests.support import ROOT

# what a run hands out: its result, its events, what models, people, hooks and tools are given
HANDED_OUT = ("RunResult", "StepView", "RunEvent", "AgentEvent", "Decision", "LLMInput", "AskHuman", "IO")
# values that are read as text, by a method, or in code of ours alone
NOT_NAMED = {
    "ApprovalAnswer",  # a str
    "DecisionKind",  # a str
    "Fragment",  # `arguments.value()` is plain data
    "FaultKind",  # a str
    "Messages",  # a sequence of dicts
    "StepProgress",  # heard as an AgentEvent
    "ReadClock",  # answered by the driver: nobody hears it
    "RunInput",  # a dict of a manifest
    "OutputType",  # read through `result.output`
}


def _types_in(annotation: object) -> set[type]:
    """The classes of ours in an annotation."""
    if isinstance(annotation, list):
        return {found for part in annotation for found in _types_in(part)}
    found = {part for argument in typing.get_args(annotation) for part in _types_in(argument)}
    bare = typing.get_origin(annotation) or annotation
    return found | {bare} if inspect.isclass(bare) and bare.__module__.startswith("tachograph.") else found


def _handed_by(kind: type) -> set[type]:
    """The classes of what its attributes, properties and public methods give."""
    given: list[Any] = [t for name, t in typing.get_type_hints(kind).items() if not name.startswith("_")]
    ours = [base for base in kind.__mro__ if base.__module__.startswith("tachograph")]
    for name, member in ((name, member) for base in ours for name, member in vars(base).items()):
        function = member.fget if isinstance(member, property) else member
        if not name.startswith("_") and name != "to_dict" and inspect.isfunction(function):
            given.append(typing.get_type_hints(function).get("return"))
    return {found for annotation in given for found in _types_in(annotation)}


def test_what_a_run_hands_out_is_exported() -> None:
    left = [getattr(tachograph, name) for name in HANDED_OUT]
    seen: set[type] = set()
    while left:
        kind = left.pop()
        if kind not in seen and kind.__name__ not in NOT_NAMED:
            seen.add(kind)
            left += () if typing.is_typeddict(kind) else _handed_by(kind)  # entries are read by key
    missing = {kind.__name__ for kind in seen} - set(tachograph.__all__)
    assert missing == set()
    assert {"RunResult", "StepView", "ToolResultEntry", "Outcome", "Fault", "HttpResult"} <= {
        kind.__name__ for kind in seen
    }


def test_every_name_is_there_and_documented() -> None:
    text = (ROOT / "docs/code.md").read_text(encoding="utf-8")
    section = text[text.index("## All names") :]
    listed = re.findall(r"`([A-Za-z_]+)`", section)
    names = [name for name in tachograph.__all__ if name != "__version__"]
    assert sorted(set(listed) - {"tachograph"}) == sorted(names)
    for name in names:
        assert getattr(tachograph, name) is not None and name in dir(tachograph)
