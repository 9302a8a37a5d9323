"""The pictures in the docstrings of the loop, of tool calls and of the gate: their order is that of the code."""

from __future__ import annotations

import ast
import inspect
import re
from types import ModuleType

import pytest

from tachograph.runtime.loop import loop, tool_calls
from tachograph.runtime.policy import gate
from tachograph.runtime.policy.policy import Policy
from tests.support import ROOT, policy_data

_ROW = re.compile(r"( {4,})(\w+)(?: {2,}\S.*)?")


def _picture(module: ModuleType) -> dict[str, list[str]]:
    """Return the names in the picture of a module's docstring: each name with those drawn below it, in order."""
    rows = [match for line in (module.__doc__ or "").splitlines() if (match := _ROW.fullmatch(line))]
    children: dict[str, list[str]] = {}
    path: list[tuple[int, str]] = []
    for row in rows:
        indent, name = len(row[1]), row[2]
        while path and path[-1][0] >= indent:
            path.pop()
        if path:
            children.setdefault(path[-1][1], []).append(name)
        path.append((indent, name))
    return children


def _names_in_order(module: ModuleType, name: str) -> list[str]:
    """Return the names that a function, or a class when it is called, uses, in the order in which each stands last."""
    tree = ast.parse(inspect.getsource(module))
    body = next(n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == name)
    if isinstance(body, ast.ClassDef):
        body = next(n for n in body.body if isinstance(n, ast.FunctionDef) and n.name == "__call__")
    used = [n for n in ast.walk(body) if isinstance(n, ast.Name | ast.Attribute)]
    # an attribute stands where its own name does, behind what it is an attribute of
    used.sort(key=lambda n: (n.end_lineno, n.end_col_offset))
    names = [n.id if isinstance(n, ast.Name) else n.attr for n in used]
    return list(dict.fromkeys(reversed(names)))[::-1]


@pytest.mark.parametrize(
    ("module", "drawn"),
    [
        (loop, {"run_loop": 1, "_step": 6}),
        (
            tool_calls,
            {
                "process_tool_call": 3,
                "decide_call": 3,
                "execute_call": 4,
                "_OutcomeJudge": 5,
                "conclude_call": 3,
            },
        ),
    ],
    ids=["loop", "tool_calls"],
)
def test_a_picture_has_the_order_of_the_code(module: ModuleType, drawn: dict[str, int]) -> None:
    picture = _picture(module)
    assert {name: len(picture[name]) for name in drawn} == drawn
    for name in drawn:
        names = _names_in_order(module, name)
        assert [n for n in names if n in picture[name]] == picture[name], name


def test_the_gate_lists_its_rules_in_the_order_in_which_they_are_asked() -> None:
    listed = [
        m[1] for line in (gate.__doc__ or "").splitlines() if (m := re.fullmatch(r"    (\w+) {2,}\S.*", line))
    ]
    rules = {
        "send": {
            "arguments": {"/amount": {"maximum": 1}},
            "limits": {"calls": 1},
            "between": {"zone": "UTC"},
        }
    }
    policy = Policy(
        policy_data(tool_registry={"allowed": ["send"]}, tools=rules, principals={"a": {"tools": {}}})
    )
    assert listed == [str(rule) for rule, _ in gate.Gate(policy, {}).rules]


def test_the_page_on_policies_lists_the_rules_in_the_order_of_the_gate() -> None:
    page = (ROOT / "docs/policy.md").read_text(encoding="utf-8")
    drawn = re.findall(r"^    (\w+) {2,}\S", gate.__doc__ or "", re.M)
    numbered = re.findall(r"^(\d+)\. `(\w+)`: ", page, re.M)
    assert numbered == [(str(number), name) for number, name in enumerate(drawn, 1)]
