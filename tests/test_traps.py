"""Every trap that the project knows has a test: `traps.yaml` says which, and each that it names has to be there."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
import yaml

from tests.project import ROWS

HERE = Path(__file__).parent
PARTS = yaml.safe_load((HERE / "traps.yaml").read_text(encoding="utf-8"))


@cache
def found_in(file: str) -> tuple[set[str], set[str]]:
    """Return the names at the top of a file, and all that can be the id of a row: names, texts and their words."""
    body = ast.parse((HERE.parent / file).read_bytes()).body if (HERE.parent / file).is_file() else []
    functions = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    tables = [node for node in body if node not in functions]
    inside = [
        part
        for node in (*tables, *(d for f in functions for d in f.decorator_list))
        for part in ast.walk(node)
    ]
    names = {node.name for node in functions}
    names |= {part.id for part in inside if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    texts = [str(part.value) for part in inside if isinstance(part, ast.Constant)]
    return names, {*names, *texts, *" ".join(texts).split()}


def is_there(shown: str) -> bool:
    """Return whether there is a test, a row of a test, or a scenario of a name."""
    if shown.startswith("scenario:"):
        return shown.removeprefix("scenario:") in ROWS
    file, _, test = shown.removesuffix("]").partition("::")
    name, _, row = test.partition("[")
    names, rows = found_in(file)
    return name in names and name.startswith("test_") and (not row or row in rows)


def missing(shown: str | list[str] | None) -> list[str]:
    """Return what is named and is not there; something if nothing is named."""
    named = [shown] if isinstance(shown, str) else shown or [""]
    return [each or "no test" for each in named if not is_there(each)]


@pytest.mark.parametrize("part", PARTS)
def test_each_fact_is_shown_by_tests_that_are_there(part: str) -> None:
    found = {fact: missing(shown) for trap in PARTS[part] for fact, shown in trap.items()}
    assert {fact: wrong for fact, wrong in found.items() if wrong} == {}


def test_what_is_not_there_is_found() -> None:
    here, row = (
        "tests/test_traps.py::test_what_is_not_there_is_found",
        "tests/test_log.py::test_no_byte_is_free[",
    )
    assert missing([here, "scenario:denied_twice"]) == []
    for wrong in (None, [], f"{here}s", "tests/none.py::test_x", "scenario:none", f"{row}none]", here[:-5]):
        assert missing(wrong) != []
