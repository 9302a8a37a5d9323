"""Tools from files: what the contract lacks is named in one line, and what a tool imports is an input."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tachograph.fail.errors import ToolError
from tachograph.runtime.formats.strict_json import digest
from tachograph.runtime.tools.loader import load_tools
from tests.tables.rows import closed

SOURCE = """
DESCRIPTION = "says what it is told"
INPUT_SCHEMA = {
    "type": "object", "additionalProperties": False,
    "properties": {"path": {"type": "string", "x-resource": "path:read", "maxLength": 5}},
}
OUTPUT_SCHEMA = {"type": "object", "additionalProperties": False, "properties": {}}
EFFECT = "pure"
IDEMPOTENT = True
TRANSIENT = (TimeoutError,)
def run(args, io):
    return {}
"""


def project(root: Path, source: str | bytes = SOURCE, name: str = "say") -> Path:
    (root / "tools").mkdir(exist_ok=True)
    (root / "tools" / f"{name}.py").write_bytes(source.encode() if isinstance(source, str) else source)
    return root


def refused(root: Path, name: str = "say") -> ToolError:
    with pytest.raises(ToolError) as raised:
        load_tools([name], root)
    text = str(raised.value)
    assert text.startswith("tools") and text.isprintable() and raised.value.remedy
    assert "secret" not in text and str(root) not in text
    return raised.value


def test_a_module_becomes_a_tool(tmp_path: Path) -> None:
    loaded = load_tools(["say"], project(tmp_path))
    (tool,) = loaded.tools
    assert (tool.name, tool.effect, tool.idempotent, tool.file) == ("say", "pure", True, "tools/say.py")
    assert (tool.transient, tool.digest, tool.run({}, None)) == ((TimeoutError,), digest(SOURCE), {})
    assert [place.kind for place in tool.places] == ["path:read"]
    assert loaded.modules == {"say": {}}
    assert not list(tmp_path.glob("**/*.pyc")) and "tachograph_tool_say" not in sys.modules


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('DESCRIPTION = "says what it is told"', "DESCRIPTION = 1"),
        ("IDEMPOTENT = True", "IDEMPOTENT = 1"),
        ('EFFECT = "pure"', 'EFFECT = "reed"'),
        ("TRANSIENT = (TimeoutError,)", "TRANSIENT = [TimeoutError]"),
        ("TRANSIENT = (TimeoutError,)", "TRANSIENT = TimeoutError"),
        ("TRANSIENT = (TimeoutError,)", "TRANSIENT = (KeyboardInterrupt,)"),
        ("TRANSIENT = (TimeoutError,)", "TRANSIENT = ('TimeoutError',)"),
        ("TRANSIENT = (TimeoutError,)", "class Mine(Exception): pass\nTRANSIENT = (Mine,)"),
        ("TRANSIENT = (TimeoutError,)", "TIMEOUT_S = '20'"),
        ("TRANSIENT = (TimeoutError,)", "TIMEOUT_S = True"),
        ("TRANSIENT = (TimeoutError,)", "probe = 1"),
        ("def run(args, io)", "def walk(args, io)"),
        ('"path:read"', '"path"'),
        ('"maxLength": 5', '"maxLength": -5'),
        ('"maxLength": 5', '"pattern": "("'),
        ('"maxLength": 5', '"$ref": "#/$defs/none"'),
        ('"maxLength": 5', '"default": float("nan")'),
        ('"maxLength": 5', '"default": {1, 2}'),
        ('INPUT_SCHEMA = {\n    "type": "object"', 'INPUT_SCHEMA = {\n    "type": "array"'),
        ('"type": "object", "additionalProperties": False,\n', '"type": "object",\n'),
        ('OUTPUT_SCHEMA = {"type": "object", "additionalProperties": False', 'OUTPUT_SCHEMA = {"type": "object"'),
        ('"properties": {}}', '"properties": {"a": {"$ref": "#/$defs/none"}}}'),
        ("def run", "raise RuntimeError('secret')\ndef run"),
        ("def run", "raise SystemExit('secret')\ndef run"),
        ("def run", "raise GeneratorExit\ndef run"),
        ("def run", "class Odd(BaseException): pass\nraise Odd\ndef run"),
        ("def run", "def run("),
        ("def run", "import nothing_of_this_name\ndef run"),
        ("def run", "x = '\0'\ndef run"),
    ],
)  # fmt: skip
def test_what_the_contract_lacks_is_named(tmp_path: Path, old: str, new: str) -> None:
    assert SOURCE.count(old) == 1
    refused(project(tmp_path, SOURCE.replace(old, new)))


def test_all_that_is_missing_is_told_at_once(tmp_path: Path) -> None:
    lacking = "IDEMPOTENT = 'yes'\nTRANSIENT = []\n"
    names = "DESCRIPTION|INPUT_SCHEMA|OUTPUT_SCHEMA|EFFECT|IDEMPOTENT|TRANSIENT|run"
    odd = "EFFECT = 'reads'\nINPUT_SCHEMA = {'type': 'object'}\nTIMEOUT_S = 0\ndef run(args): pass\n"
    odd += f"OUTPUT_SCHEMA = {closed() | {'patternProperties': {'(': {}}}}\n"
    words = 'OUTPUT_SCHEMA is a schema that cannot be compiled: "(" is not a "regex"'
    words += "|DESCRIPTION|INPUT_SCHEMA must|EFFECT is 'reads'|TIMEOUT_S|(args, io)"
    for source, parts in ((lacking, names), (odd, words)):
        said = str(refused(project(tmp_path, source)))
        assert [part for part in parts.split("|") if part not in said] == []


def test_a_syntax_error_names_its_line(tmp_path: Path) -> None:
    assert refused(project(tmp_path, "x = 1\ny = = 2\n")).line == 2


def test_ctrl_c_while_a_tool_is_imported_is_not_the_tools(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        load_tools(["say"], project(tmp_path, f"raise KeyboardInterrupt\n{SOURCE}"))


ODD = ["a b", "1a", "a.b", "\u00e4", "x" * 65, "_a"]


@pytest.mark.parametrize("name", ["", "a\0b", "a\nb", *ODD, *"../outside /outside sub/say ..".split()])
def test_an_odd_name_is_refused_and_no_file_outside_is_run(tmp_path: Path, name: str) -> None:
    root = project(tmp_path)
    marker = tmp_path / "was run"
    (tmp_path / "outside.py").write_text(f"open({str(marker)!r}, 'w')\n{SOURCE}")
    for odd in ODD:
        project(tmp_path, name=odd)
    refused(root, name)
    assert not marker.exists()


def test_what_is_no_readable_module_is_refused(tmp_path: Path) -> None:
    root = project(tmp_path, SOURCE + "#" * (1 << 20))
    refused(root)
    refused(root, "none")
    (root / "tools" / "folder.py").mkdir()
    refused(root, "folder")
    with pytest.raises(ToolError, match="twice"):
        load_tools(["say", "say"], project(tmp_path))


def test_the_bytes_that_are_digested_are_those_that_run(tmp_path: Path) -> None:
    """Cached bytecode is matched by second and size, and an edit can keep both."""
    answers = []
    for word in ("one", "two"):
        source = SOURCE.replace("return {}", f"return {{'{word}': 1}}")
        (tool,) = load_tools(["say"], project(tmp_path, source)).tools
        answers.append((tool.digest, tool.run({}, None)))
    assert [answer for _, answer in answers] == [{"one": 1}, {"two": 1}] and answers[0][0] != answers[1][0]


FILES = {
    "helpers_of_say.py": "import pack_of_say.deep\n",
    "pack_of_say/__init__.py": "from . import near\n",
    "pack_of_say/near.py": "from .deep import X\ndef f():\n    from .. import beyond\n",
    "pack_of_say/deep.py": "X = 1\nimport helpers_of_say\n",
    "pack_of_say/unused.py": "",
    "lazy_of_say.py": "def (\n",
    "space_of_say/part.py": "import msgspec\n",
    "space_of_say/json.py": "",
    "site-packages/installed_of_say.py": "",
}  # fmt: skip
PACK = ["pack_of_say/__init__.py", "pack_of_say/deep.py", "pack_of_say/near.py"]


@pytest.mark.filterwarnings("ignore", "error:::<unknown>")  # only the import itself may warn
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("import json, os.path", []),
        ("import msgspec, yaml", []),
        ("import helpers_of_say; '\\d'", ["helpers_of_say.py", *PACK]),
        ("from helpers_of_say import pack_of_say as other", ["helpers_of_say.py", *PACK]),
        ("from pack_of_say import deep", ["helpers_of_say.py", *PACK]),
        ("import pack_of_say.deep as deep", ["helpers_of_say.py", *PACK]),
        ("from space_of_say import part", ["space_of_say/part.py"]),
        ("from space_of_say \\\nimport json", ["space_of_say/json.py"]),
        ("from space_of_say import (\n    part\n)", ["space_of_say/part.py"]),
        ("import json; from space_of_say import part", ["space_of_say/part.py"]),
        ("import json, space_of_say.part", ["space_of_say/part.py"]),
        ("from \\\nspace_of_say import part", ["space_of_say/part.py"]),
        ("import json\rimport space_of_say.part", ["space_of_say/part.py"]),
        ("import installed_of_say", []),
        ("def later():\n    import lazy_of_say", ["lazy_of_say.py"]),
        ("def later():\n    import nothing_of_say.at_all", []),
        ("def later():\n    from tachograph import cli", []),
    ],
)
def test_modules_of_the_project_are_inputs(
    tmp_path: Path, line: str, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    try:
        modules = load_tools(["say"], project(tmp_path, f"{line}\n{SOURCE}")).modules
    finally:
        for name in set(sys.modules) - before:
            del sys.modules[name]
    assert modules == {"say": {name: digest((tmp_path / name).read_bytes()) for name in found}}
