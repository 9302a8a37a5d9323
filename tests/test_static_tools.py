"""Tools as their text says: the same as a loader finds where all is literal, left out where not, and never run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tachograph.review.static_tools import tools_beside
from tachograph.runtime.tools.agents import TEAM_NAMES
from tachograph.runtime.tools.loader import load_tools

HERE = Path(__file__).parent
OBJECT = '"type": "object", "additionalProperties": False'
SOURCE = f"""
LONGEST: int = 7
PATTERN = "[a-z]+"
DESCRIPTION = "says what it is told"
INPUT_SCHEMA: dict = {{
    {OBJECT},
    "properties": {{"a": {{"type": "string", "maxLength": LONGEST, "pattern": PATTERN, "x-resource": "url"}}}},
}}
OUTPUT_SCHEMA = {{{OBJECT}}}
EFFECT = "network"
IDEMPOTENT = True
def run(args, io):
    return {{}}
"""


def project(root: Path, source: str) -> Path:
    for folder in ("policy", "tools"):
        (root / folder).mkdir()
    (root / "tools" / "say.py").write_text(source)
    return root / "policy" / "v1.yaml"


def same_as_loaded(root: Path) -> None:
    loaded = load_tools(sorted(path.stem for path in (root / "tools").glob("*.py")), root).tools
    found = tools_beside(root / "policy" / "any.yaml")
    files = [name for name in found if "__" not in name and found[name].agent is found[name].answer is None]
    assert files == [tool.name for tool in loaded] != []
    for tool in loaded:
        read = found[tool.name]
        for part in ("name", "effect", "places", "input_schema", "output_schema", "file"):
            assert getattr(read, part) == getattr(tool, part)
        assert read.description in (tool.description, "")
        with pytest.raises(RuntimeError):
            read.run({}, None)


def test_the_shipped_tools_are_read_as_they_are_loaded() -> None:
    same_as_loaded(HERE.parent)
    tools = tools_beside(HERE.parent / "policy/v1.yaml")
    assert "everything__echo" in tools  # accepted of a server
    marks = {name: [place.kind for place in tools[name].places] for name in ("fetch", "read", "write")}
    assert marks == {"fetch": ["url"], "read": ["path:read"], "write": ["path:write"]}


def test_tools_of_all_effects_are_read_as_they_are_loaded(tmp_path: Path) -> None:
    project(tmp_path, SOURCE)
    shutil.copytree(HERE / "kit" / "tools", tmp_path / "tools", dirs_exist_ok=True)
    same_as_loaded(tmp_path)


def test_nothing_runs(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    policy = project(tmp_path, f"import sys\nopen({str(canary)!r}, 'w').close()\n{SOURCE}")
    assert tools_beside(policy)["say"].description == "says what it is told"
    assert not canary.exists()
    load_tools(["say"], tmp_path)
    assert canary.exists()


def test_without_a_project_there_is_none(tmp_path: Path) -> None:
    assert tools_beside(tmp_path / "policy.yaml") == {}


LONG = "LONG = '" + "a" * 100_000 + "'\n"
LEFT_OUT = {
    "computed": ('EFFECT = "network"', 'EFFECT = "net" + "work"'),
    "imported": ('EFFECT = "network"', "from os import sep as EFFECT"),
    "none": ('EFFECT = "network"', ""),
    "no text": ('EFFECT = "network"', "EFFECT = 7"),
    "no effect": ('EFFECT = "network"', 'EFFECT = "all"'),
    "assigned twice": ("def run", 'if 1 > 0: EFFECT = "pure"\ndef run'),
    "assigned in a function": ("def run", 'def f():\n    global EFFECT\n    EFFECT = "pure"\nf()\ndef run'),
    "deleted": ("def run", "del EFFECT\ndef run"),
    "assigned nowhere": ('EFFECT = "network"', "EFFECT: str"),
    "changed by key": ("def run", 'INPUT_SCHEMA["properties"] = {}\ndef run'),
    "changed by a method": ("def run", "INPUT_SCHEMA.clear()\ndef run"),
    "a constant that changes": ("LONGEST: int = 7", "LONGEST = 7\nLONGEST += 1"),
    "a constant that comes later": ("LONGEST: int = 7", ""),
    "no schema": ('"maxLength": LONGEST', '"maxLength": -1'),
    "no mapping": (f"OUTPUT_SCHEMA = {{{OBJECT}}}", "OUTPUT_SCHEMA = [1]"),
    "unhashable": (f"OUTPUT_SCHEMA = {{{OBJECT}}}", "OUTPUT_SCHEMA = {[]: 1}"),
    "grows": ('"maxLength": LONGEST', f'"enum": [{"LONG, " * 9}]'),
    "no Python": ("def run", "def run("),
    "deep": ("LONGEST: int = 7", "LONGEST = " + "-" * 50_000 + "7"),
    "deep parentheses": ("LONGEST: int = 7", "LONGEST = " + "(" * 5_000 + "7" + ")" * 5_000),
    "deep chain": ("LONGEST: int = 7", "LONGEST = 7" + " + 7" * 50_000),
    "a number that is too long": ("LONGEST: int = 7", "LONGEST = 0x" + "f" * 50_000),
    "no character": ("LONGEST: int = 7", "LONGEST = 7\0"),
    "large": ("def run", "#" * (1 << 20) + "\ndef run"),
}


@pytest.mark.parametrize("case", LEFT_OUT)
def test_what_is_left_out(tmp_path: Path, case: str) -> None:
    policy = project(tmp_path, SOURCE + "'\\d'")  # about which Python warns
    (tmp_path / "tools" / "folder.py").mkdir()
    assert [name for name in tools_beside(policy) if name not in TEAM_NAMES] == ["say"]
    old, new = LEFT_OUT[case]
    assert SOURCE.count(old) == 1
    (tmp_path / "tools" / "say.py").write_text(LONG * (case == "grows") + SOURCE.replace(old, new))
    shutil.copy(HERE.parent / "tools" / "read.py", tmp_path / "tools" / "tail.py")
    assert [name for name in tools_beside(policy) if name not in TEAM_NAMES] == ["tail"]
