"""The rules of the house that no linter knows."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tachograph.fail import errors
from tests.support import ROOT, environment

SOURCES = sorted(path for folder in ("src", "tools") for path in (ROOT / folder).rglob("*.py"))
MAX_LINES = 400


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_there_are_sources() -> None:
    assert len(SOURCES) > 30


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_files_stay_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@pytest.mark.parametrize("path", sorted({*SOURCES, *(ROOT / "tests").rglob("*.py")}), ids=_name)
def test_nothing_imports_src(path: Path) -> None:
    found = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.append(node.module or "")
    assert [name for name in found if name.split(".")[0] == "src"] == []
    if _name(path).startswith("src/"):
        assert [name for name in found if name.split(".")[0] == "tachograph"] == []


# what costs time or drags a network stack along; only live export and live models may load it
HEAVY = ("grpc", "google.protobuf", "requests", "urllib3", "opentelemetry", "asyncio", "http.client", "ssl")


@pytest.mark.parametrize(
    "statement",
    [
        "import tachograph",
        "from tachograph.cli.main import main; main(['check'])",
        "from tachograph.cli.main import main; main(['policy', 'version'])",
    ],
)
def test_nothing_heavy_is_loaded(statement: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", statement],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "tachograph" in loaded
    heavy = {name for name in loaded if any(name == h or name.startswith(f"{h}.") for h in HEAVY)}
    assert heavy == set()


def _tracked() -> list[Path]:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no git, or no repository around")
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, timeout=30, check=False)
    if done.returncode != 0:
        pytest.skip("git cannot read this repository")
    return [path for name in done.stdout.split(b"\0") if name and (path := ROOT / name.decode()).is_file()]


# a path of some machine: a home, a temporary folder, this very checkout
MACHINE = re.compile(rb"/(?:home|Users|root)/[a-z]|/work/|[A-Z]:\\Users|/private/var/|/tmp/[a-z]")
ATTACKS = ("tests/corpora/", "tests/faults/")  # hostile inputs name such paths on purpose


def test_no_tracked_file_names_a_place_on_a_machine() -> None:
    here = str(ROOT).encode()
    found = []
    for path in _tracked():
        if path.is_symlink() or _name(path).startswith(ATTACKS) or path == Path(__file__):
            continue
        for number, line in enumerate(path.read_bytes().splitlines(), start=1):
            if (len(here) > 4 and here in line) or MACHINE.search(line):
                found.append(f"{_name(path)}:{number}: {line[:80]!r}")
    assert found == []


def test_the_recorded_runs_name_no_machine() -> None:
    files = [path for path in (ROOT / "runs").rglob("*") if path.is_file()]
    assert files
    for path in files:
        data = path.read_bytes()
        assert MACHINE.search(data) is None and b"localhost" not in data, _name(path)


def _public(tree: ast.Module) -> list[ast.FunctionDef | ast.ClassDef]:
    """Public functions and classes of a module. Methods are the class's matter."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [node for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")]  # type: ignore[misc]


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_what_is_public_says_what_it_does(path: Path) -> None:
    tree = ast.parse(path.read_bytes())
    if tree.body:
        assert ast.get_docstring(tree), "the module"
    assert [node.name for node in _public(tree) if not ast.get_docstring(node)] == []


def test_the_drawn_exception_tree_is_the_real_one() -> None:
    """Each line of the drawing gives a class, its depth the base."""
    drawn: dict[str, str] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"    ([│├└─ ]*)([A-Z]\w+)(?:\s{2,}|$)", line)
        if found:
            depth = len(found.group(1)) // 4
            above = [*above[:depth], found.group(2)]
            drawn[above[-1]] = above[-2] if depth else "Exception"
    real = {
        name: kind.__base__.__name__
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if kind.__module__ == errors.__name__
    }
    assert drawn == real


def test_every_exception_of_ours_says_what_to_do_on_one_line() -> None:
    error = errors.TaskError("is wrong", file="a.yaml", line=3, column=4, remedy="mend it")
    assert str(error) == "a.yaml:3:4: is wrong; mend it"
    assert str(errors.InputError("is wrong", line=3)) == "is wrong"


def test_names_that_a_user_imports_exist() -> None:
    import tachograph

    assert len(set(tachograph.__all__)) == len(tachograph.__all__) > 40
    assert [name for name in tachograph.__all__ if not hasattr(tachograph, name)] == []


def test_the_volatile_keys_are_named_in_the_docs() -> None:
    from tachograph.evidence.files.manifest import VOLATILE

    text = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    assert [key for key in VOLATILE if f"`{key}`" not in text] == []


def test_every_tool_of_the_canonical_task_is_recorded_with_its_file() -> None:
    run = json.loads((ROOT / "runs/canonical/v1/state.jsonl").read_bytes().splitlines()[0])
    assert [tool["file"] for tool in run["tools"]] == [f"tools/{tool['name']}.py" for tool in run["tools"]]
