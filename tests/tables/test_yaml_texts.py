"""The table of policy files: refused in one line with its place, or the same policy in other words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tachograph.fail.errors import PolicyError
from tachograph.runtime.policy.policy import Policy
from tests.tables import yaml_same, yaml_texts, yaml_values
from tests.tables.table import rows

LINE = re.compile(r"case\.yaml:(\d+):(\d+): (.+)")


def load(folder: Path, data: bytes) -> tuple[str, str]:
    """(version, nothing) of a file that the loader takes, or (nothing, what it says against it)."""
    path = folder / "case.yaml"
    path.write_bytes(data)
    try:
        return Policy.load(path, root=folder).version, ""
    except PolicyError as refused:
        return "", str(refused)


def wrong(case: yaml_texts.Case, said: str) -> str:
    """What is wrong with a refusal; nothing where it is as it has to be."""
    found = LINE.fullmatch(said)
    if found is None or not said.isprintable():
        return "no one-line refusal with a place"
    line, column = int(found[1]), int(found[2])
    if case.line not in (0, line) or case.column not in (0, column):
        return f"not at {case.line}:{case.column}"
    return "" if case.says in found[3] else f"does not say {case.says!r}"


@pytest.mark.parametrize("name", yaml_texts.REFUSED)
def test_refused_with_its_place(name: str, tmp_path: Path) -> None:
    found = []
    for case in rows(yaml_texts.REFUSED[name]()):
        _, said = load(tmp_path, case.data)
        if problem := wrong(case, said):
            found.append((problem, said, case.data[-300:]))
    assert found == []


@pytest.mark.parametrize("name", yaml_values.REFUSED)
def test_values_that_decide_nothing_are_refused(name: str, tmp_path: Path) -> None:
    found = []
    for case in rows(yaml_values.REFUSED[name]()):
        _, said = load(tmp_path, case.data)
        if problem := wrong(case, said):
            found.append((problem, said, case.data[-300:]))
    assert found == []


@pytest.mark.parametrize("name", yaml_values.JUDGED)
def test_values_are_judged_as_the_schema_judges_them(name: str, tmp_path: Path) -> None:
    found = []
    cases = rows(yaml_values.JUDGED[name]())
    for case in cases:
        version, said = load(tmp_path, case.data)
        if case.version is not None:
            right = version == case.version
        else:
            place = LINE.fullmatch(said)
            right = place is not None and (not case.at or (int(place[1]), int(place[2])) in case.at)
        if not right:
            found.append((case.version, sorted(case.at), said, case.data[-300:]))
    assert found == []
    assert len([case for case in cases if case.version is not None]) > 16


@pytest.mark.parametrize("name", yaml_same.SAME)
def test_the_same_in_other_words_has_the_same_version(name: str, tmp_path: Path) -> None:
    wanted = yaml_values.version(yaml_values.DATA)
    found = []
    for text in rows(yaml_same.SAME[name]()):
        version, said = load(tmp_path, text.encode())
        if version != wanted:
            found.append((said, text[-300:]))
    assert found == []


def test_a_policy_cut_in_two_has_the_same_version(tmp_path: Path) -> None:
    base, over = tmp_path / "base.yaml", tmp_path / "over.yaml"
    wanted = yaml_values.version(yaml.safe_load(yaml_texts.SHIPPED))
    for one, other in rows(yaml_same.splits()):
        base.write_text(one)
        over.write_text(other)
        assert Policy.load(base, [over]).version == wanted
