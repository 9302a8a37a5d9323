"""Every trap that the project knows has a test: `traps.yaml` says which, and each that it names has to be there."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.project import scenarios

HERE = Path(__file__).parent
PARTS: dict[str, list[dict[str, Any]]] = yaml.safe_load((HERE / "traps.yaml").read_text(encoding="utf-8"))
FACTS = [(fact, shown) for traps in PARTS.values() for trap in traps for fact, shown in trap.items()]
SCENARIOS = {row["name"] for row in scenarios()}


@cache
def found_in(file: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the tests of a file, and all that can be the id of a row: texts outside of tests, and functions."""
    body = ast.parse((HERE.parent / file).read_bytes()).body
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    names = {node.name for node in functions}
    bound = {target.id for node in body if isinstance(node, ast.Assign) for target in node.targets
             if isinstance(target, ast.Name)}  # fmt: skip
    tables: list[ast.AST] = [node for node in body if not isinstance(node, ast.FunctionDef)]
    tables += [decorator for node in functions for decorator in node.decorator_list]
    texts = {
        str(node.value) for table in tables for node in ast.walk(table) if isinstance(node, ast.Constant)
    }
    words = {word for text in texts for word in text.split()}  # some rows are the words of a text
    return frozenset(name for name in names | bound if name.startswith("test_")), frozenset(
        names | texts | words
    )


def missing(shown: Any) -> list[str]:
    """Return what is named and is not there; something if nothing is named."""
    named = shown if isinstance(shown, list) else [shown]
    wrong = [] if shown else ["no test"]
    for each in filter(None, named):
        if isinstance(each, dict):
            wrong += [] if each.keys() == {"scenario"} and each["scenario"] in SCENARIOS else [str(each)]
            continue
        file, _, test = each.partition("::")
        name, _, row = test.removesuffix("]").partition("[")
        tests, rows = found_in(file) if (HERE.parent / file).is_file() else ((), ())
        is_row = row in rows or all(part in rows for part in row.split("-"))
        wrong += [] if name in tests and (not row or is_row) else [each]
    return wrong


@pytest.mark.parametrize("part", PARTS)
def test_each_fact_is_shown_by_tests_that_are_there(part: str) -> None:
    found = {fact: missing(shown) for trap in PARTS[part] for fact, shown in trap.items()}
    assert {fact: wrong for fact, wrong in found.items() if wrong} == {}


def test_what_is_not_there_is_found() -> None:
    here = "tests/test_traps.py::test_what_is_not_there_is_found"
    assert missing([here, {"scenario": "denied_twice"}]) == []
    for wrong in (None, [], f"{here}_", "tests/none.py::test_x", {"scenario": "none"}, {"other": "denied_twice"},
                  "tests/tables/test_urls.py::test_a_disguise_is_denied[_userinfos]"):  # fmt: skip
        assert missing(wrong) != []
