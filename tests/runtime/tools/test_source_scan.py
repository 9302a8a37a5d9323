"""What the source of a tool may import and use, by its effect kind."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

import pytest

from tachograph import Tool
from tachograph.fail.errors import ToolError
from tachograph.runtime.tools import source_scan
from tachograph.runtime.tools.loader import from_module, load_module

BODY = '''
DESCRIPTION = "Do it."
INPUT_SCHEMA = {"type": "object", "additionalProperties": False, "properties": {}}
OUTPUT_SCHEMA = {"type": "object", "additionalProperties": False, "properties": {}}
IDEMPOTENT = True
TRANSIENT = ()


def run(args, io):
    """Do it."""
    return {}
'''


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "project"
    for folder in ("policy", "tools", "src/own/part"):
        (place / folder).mkdir(parents=True)
    (place / "src" / "own" / "__init__.py").write_text("")
    (place / "src" / "own" / "part" / "__init__.py").write_text("import json\n")
    monkeypatch.syspath_prepend(str(place / "src"))
    for name in [name for name in sys.modules if name.partition(".")[0] == "own"]:
        monkeypatch.delitem(sys.modules, name)
    return place


def load(project: Path, head: str, effect: str = "read") -> Tool:
    path = project / "tools" / "one.py"
    path.write_text(f'{head}\nEFFECT = "{effect}"\n{BODY}')
    return load_module(path, file="tools/one.py")


FINE = {
    "listed": "import json\nfrom collections import Counter\nimport collections.abc\nfrom urllib.parse import quote",
    "from a listed package": "from urllib import parse",
    "in several lines": "from collections import (\n    Counter,\n    deque,\n)",
    "with a comment": "import json  # for texts",
    "named": 'import os\nIMPORTS = ("os",)',
    "a part of what is named": 'import os.path\nfrom os import sep\nIMPORTS = ("os",)',
    "beside letters of all scripts": "import json\nNAME = 'é'",
    "a name of its own": "def open(path):\n    return path\n\n\nopen('x')",
    "a word in a text": "TEXT = 'open the import'",
}


@pytest.mark.parametrize("name", FINE)
def test_what_is_covered_is_loaded(name: str, project: Path) -> None:
    tool = load(project, FINE[name])
    assert tool.modules == () and not tool.is_declared


REFUSED = {
    "a process": ("import subprocess", 1, "imports 'subprocess'"),
    "a socket, later": ("import json\nimport socket as json", 2, "imports 'socket'"),
    "two at once": ("import json, os", 1, "imports 'os'"),
    "after a semicolon": ("import json; import os", 1, "imports 'os'"),
    "a part of a package": ("from urllib import request", 1, "imports 'urllib.request'"),
    "within a function": ("def f():\n    import requests", 2, "imports 'requests'"),
    "everything of it": ("from os import *", 1, "imports 'os'"),
    "over two lines": ("from os \\\n    import path", 1, "imports 'os.path'"),
    "ours": ("from tachograph import Policy", 1, "imports 'tachograph.Policy'"),
    "what is not there": (
        "try:\n    import no_such_thing\nexcept ImportError:\n    pass",
        2,
        "imports 'no_such_thing'",
    ),
    "another than is named": ('import os\nIMPORTS = ("osx",)', 1, "imports 'os'"),
    "open": ("TEXT = open('/etc/hostname').read()", 1, "uses open"),
    "eval": ("import json\nONE = eval('1')", 2, "uses eval"),
    "a hidden import": ("__import__('os')", 1, "uses __import__"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("effect", ["pure", "read", "write", "network"])
def test_what_reaches_past_io_is_refused_with_its_line(name: str, effect: str, project: Path) -> None:
    head, line, message = REFUSED[name]
    with pytest.raises(ToolError) as caught:
        load(project, head, effect)
    assert message in caught.value.message
    assert (caught.value.file, caught.value.line) == ("tools/one.py", line)
    assert 'EFFECT = "external"' in (caught.value.remedy or "")


def test_an_external_tool_may_import_anything(project: Path) -> None:
    tool = load(project, "import subprocess\nWHERE = open", "external")
    assert tool.is_external and not tool.is_declared and tool.modules is None


def test_nothing_is_executed_before_it_was_looked_through(project: Path, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="uses open"):
        load(project, f"open({str(tmp_path / 'made')!r}, 'w').close()")
    assert not (tmp_path / "made").exists()


def test_an_effect_that_is_computed_is_looked_through_as_well(project: Path) -> None:
    path = project / "tools" / "one.py"
    path.write_text(f'import subprocess\nEFFECT = "re" + "ad"\n{BODY}')
    with pytest.raises(ToolError, match="imports 'subprocess'"):
        load_module(path)


@pytest.mark.parametrize("value", ["['os']", "'os'", "('os', 3)", "('',)", "('a b',)"])
def test_imports_is_a_tuple_of_names(value: str, project: Path) -> None:
    with pytest.raises(ToolError, match="IMPORTS must be a tuple"):
        load(project, f"IMPORTS = {value}")


def test_modules_of_the_project_are_looked_through_and_named_with_their_digests(project: Path) -> None:
    (project / "src" / "own" / "one.py").write_text("from .part import more\n\n\ndef f():\n    pass\n")
    (project / "src" / "own" / "part" / "more.py").write_text("from ..one import f\n")
    tool = load(project, "def g():\n    from own.one import f\n    f()")
    names = ["src/own/__init__.py", "src/own/one.py", "src/own/part/__init__.py", "src/own/part/more.py"]
    assert tool.modules == tuple(
        (name, hashlib.sha256((project / name).read_bytes()).hexdigest()) for name in names
    )


def test_what_a_module_of_the_project_imports_is_refused_there(project: Path) -> None:
    (project / "src" / "own" / "one.py").write_text("import json\nimport requests\n")
    with pytest.raises(ToolError, match="imports 'requests'") as caught:
        load(project, "from own import one")
    assert (caught.value.file, caught.value.line) == ("src/own/one.py", 2)
    (project / "src" / "own" / "one.py").write_text("import os\n")
    assert load(project, 'from own import one\nIMPORTS = ("os",)').imports == ("os",)


def test_a_module_outside_the_project_is_to_be_named(project: Path, tmp_path: Path) -> None:
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "stray_module.py").write_text("")
    sys.path.insert(0, str(tmp_path / "beside"))
    try:
        with pytest.raises(ToolError, match="imports 'stray_module'"):
            load(project, "import stray_module")
        assert load(project, 'import stray_module\nIMPORTS = ("stray_module",)').modules == ()
    finally:
        sys.path.remove(str(tmp_path / "beside"))
        sys.modules.pop("stray_module", None)


def test_an_imported_module_is_looked_through_as_well(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "src" / "own" / "tool.py").write_text(f'from . import part\nEFFECT = "pure"\n{BODY}')
    import importlib

    tool = from_module(importlib.import_module("own.tool"))
    assert [name for name, _ in tool.modules or ()] == ["src/own/__init__.py", "src/own/part/__init__.py"]


def test_a_tool_made_in_code_is_declared() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    tool = Tool("one", "One.", schema, schema, "read", True, lambda args, io: {})
    assert tool.is_declared


def test_most_tools_need_no_closer_look() -> None:
    for name in ("search", "fetch", "read", "write", "summarize"):
        source = (Path(__file__).parents[3] / "tools" / f"{name}.py").read_bytes()
        assert source_scan._is_plain(source, ("sqlite3",)), name


def test_the_listed_modules_are_there() -> None:
    assert {name.partition(".")[0] for name in source_scan.STANDARD} <= sys.stdlib_module_names


def test_the_page_on_tools_lists_the_modules() -> None:
    page = (Path(__file__).parents[3] / "tools" / "README.md").read_text()
    assert set(re.findall(r"`([\w.]+)`[,.]", page)) >= source_scan.STANDARD
