"""Incidents of other agents and tools: each that applies here has a test under its id, in one of the files beside.

`incident` marks such a test. The list of incidents is an outside corpus; where it is at hand, none may be missing.
"""

from __future__ import annotations

import importlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

FILES = ("paths", "network", "programs", "gate", "records")
# incidents whose mechanism has no counterpart here, each with the reason
NOT_APPLICABLE: dict[str, str] = {}


def incident(*ids: str) -> pytest.MarkDecorator:
    """Mark a test as the one of incidents, by id; the test takes the id as `incident`."""
    return pytest.mark.parametrize("incident", [pytest.param(each, id=each) for each in ids])


def _tested() -> Counter[str]:
    """How many tests each incident has."""
    found: Counter[str] = Counter()
    for name in FILES:
        module = importlib.import_module(f"tests.corpora.test_incidents_{name}")
        for item in vars(module).values():
            for mark in getattr(item, "pytestmark", ()):
                if mark.name == "parametrize" and mark.args[0] == "incident":
                    found.update(param.id for param in mark.args[1])
    return found


def test_there_are_tests_of_incidents() -> None:
    assert len(_tested()) > 30


def test_no_incident_is_without_a_test_or_a_reason() -> None:
    root = os.environ.get("TACHOGRAPH_CORPORA")
    if not root:
        pytest.skip("TACHOGRAPH_CORPORA is not set: the outside list of incidents is not at hand")
    text = (Path(root) / "common" / "incidents.jsonl").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = [json.loads(line) for line in text.split("\n") if line]
    tested = _tested()
    print(f"\n{'tests':>5}  incident")
    for row in rows:
        print(f"{tested[row['id']]:>5}  {row['id']}: {NOT_APPLICABLE.get(row['id'], row['mechanism'])}")
    known = {row["id"] for row in rows}
    assert len(known) > 30
    assert known - tested.keys() - NOT_APPLICABLE.keys() == set()
    assert NOT_APPLICABLE.keys() & tested.keys() == set()
    assert (tested.keys() | NOT_APPLICABLE.keys()) - known == set()
