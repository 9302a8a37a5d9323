"""The documents name what is there."""

from __future__ import annotations

import ast
import doctest
import json
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import tachograph

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")


def _rooms() -> list[Path]:
    return sorted(path.parent for path in (ROOT / "src").rglob("__init__.py") if path.parent != ROOT / "src")


@pytest.mark.parametrize("room", _rooms(), ids=lambda room: room.relative_to(ROOT / "src").as_posix())
def test_each_room_lists_its_files(room: Path) -> None:
    if "commands" in room.parts or room.name in (
        "providers",
        "adapters",
    ):  # one module a command, a provider, ...
        return
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or ""
    listed = re.findall(r"^- `(\w+)`: \S", text, re.M)
    assert sorted(listed) == sorted(path.stem for path in room.glob("*.py") if path.name != "__init__.py")


def test_each_room_is_on_the_page() -> None:
    for room in _rooms():
        path = room.relative_to(ROOT / "src").as_posix()
        named = f"`{path}/" in ARCHITECTURE or f"`{room.name}/`" in ARCHITECTURE
        assert named or path.startswith(("cli/", "runtime/models/")), path


def test_the_wheel_lists_every_room() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"][
        "packages"
    ]
    rooms = {".".join(("tachograph", *room.relative_to(ROOT / "src").parts)) for room in _rooms()}
    assert {name for name in listed if "._shipped" not in name} == {"tachograph", *rooms}


def test_every_decision_on_file_is_linked_and_numbered() -> None:
    files = sorted(path.name for path in (ROOT / "docs/adr").glob("*.md"))
    numbers = [int(name[:4]) for name in files]
    assert len(set(numbers)) == len(numbers), "two decisions have one number"
    for name in files:
        text = (ROOT / "docs/adr" / name).read_text(encoding="utf-8")
        assert text.startswith(f"# {int(name[:4])}. ")
        assert "**Decision.**" in text and "**Rejected.**" in text
        assert f"(adr/{name})" in ARCHITECTURE


def test_links_of_the_documents_lead_somewhere() -> None:
    for path in [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md"), ROOT / "data/corpus/README.md"]:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (path.parent / target).exists(), (path.name, target)


def test_the_code_on_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/code.md").read_text(encoding="utf-8"), re.S)
    assert len(blocks) == 6
    page = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", page)  # where a class looks for what its annotations mean
    exec(compile("\n".join(blocks), "docs/code.md", "exec"), page.__dict__)


def test_every_key_of_a_task_is_described() -> None:
    schema = json.loads((ROOT / "src/evidence/tasks/task.v1.schema.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs/tasks.md").read_text(encoding="utf-8")
    for key in schema["properties"]:
        assert f"`{key}" in page, key


def test_every_section_of_a_policy_is_described() -> None:
    schema = json.loads((ROOT / "policy/v1.schema.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs/policy.md").read_text(encoding="utf-8")
    for key, section in schema["properties"].items():
        assert f"| `{key}` |" in page, key
        for inner in section.get("properties", {}):
            assert f"`{inner}`" in page, (key, inner)


def test_decisions_are_listed_in_order() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").partition("## Decisions on file")[2]
    listed = re.findall(r"^- \[(\d+) [^]]+\]\(adr/([^)]+)\)$", page, re.M)
    assert [file for _, file in listed] == sorted(path.name for path in (ROOT / "docs/adr").glob("*.md"))
    assert all(file.startswith(f"{int(number):04}-") for number, file in listed)


@pytest.mark.parametrize(
    "documented",
    [
        tachograph.Agent,
        tachograph.Policy,
        tachograph.Tool,
        tachograph.record,
        tachograph.replay,
        tachograph.resume,
    ],
)
def test_the_example_in_a_docstring_runs(
    documented: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = doctest.DocTestFinder(recurse=False).find(documented, globs={})
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0
