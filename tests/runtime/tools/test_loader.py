"""The tool contract: what a module must say, and that each lack of it is named."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tachograph.fail.errors import ToolError
from tachograph.runtime.formats import canonical_json
from tachograph.runtime.formats.shipped_files import shipped
from tachograph.runtime.tools.contract import SHIPPED, Tool
from tachograph.runtime.tools.loader import collect, from_module, load_module, load_named

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


def module(tmp_path: Path, source: str = SOURCE, name: str = "say.py") -> Path:
    path = tmp_path / name
    path.write_text(source, encoding="utf-8")
    return path


def test_a_module_becomes_a_tool(tmp_path: Path) -> None:
    tool = load_module(module(tmp_path), file="tools/say.py")
    assert (tool.name, tool.effect, tool.idempotent, tool.file) == ("say", "pure", True, "tools/say.py")
    assert tool.transient == (TimeoutError,)
    assert tool.digest == canonical_json.digest(SOURCE)
    assert [(r.path, r.kind) for r in tool.resources] == [(("path",), "path:read")]
    assert tool.run({}, None) == {}
    assert "x-resource" not in tool.offered_schema
    assert json.loads(tool.offered_schema)["properties"]["path"]["maxLength"] == 5
    assert not list(tmp_path.glob("**/*.pyc"))


def test_the_schema_digest_knows_both_schemas(tmp_path: Path) -> None:
    digests = {
        load_module(module(tmp_path, source)).schema_digest
        for source in (
            SOURCE,
            SOURCE.replace('"maxLength": 5', '"maxLength": 6'),
            SOURCE.replace('"properties": {}}', '"properties": {"a": {}}}'),
        )
    }
    assert len(digests) == 3
    same = load_module(module(tmp_path, SOURCE + "# more\n"))
    assert same.schema_digest in digests and same.digest != canonical_json.digest(SOURCE)


def test_tools_with_equal_schemas_share_their_validators(tmp_path: Path) -> None:
    one, same = (load_module(module(tmp_path)) for _ in range(2))
    other = load_module(module(tmp_path, SOURCE.replace('"maxLength": 5', '"maxLength": 6')))
    assert one.input_validator is same.input_validator is not one.output_validator
    assert [tool.input_validator.accepts({"path": "123456"}) for tool in (one, other)] == [False, True]
    assert [tool.output_validator.accepts({"path": "1"}) for tool in (one, other)] == [False, False]
    assert one.offered_schema != other.offered_schema


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('DESCRIPTION = "says what it is told"', "DESCRIPTION = 1"),
        ("IDEMPOTENT = True", "IDEMPOTENT = 1"),
        ("IDEMPOTENT = True", ""),
        ('EFFECT = "pure"', 'EFFECT = "reed"'),
        ("TRANSIENT = (TimeoutError,)", "TRANSIENT = [TimeoutError]"),
        ("TRANSIENT = (TimeoutError,)", "TRANSIENT = (KeyboardInterrupt,)"),
        ("TRANSIENT = (TimeoutError,)", "TRANSIENT = ('TimeoutError',)"),
        (
            "TRANSIENT = (TimeoutError,)",
            "class Mine(Exception): pass\nTRANSIENT = (Mine,)",
        ),
        ("def run(args, io)", "def walk(args, io)"),
        ('"x-resource": "path:read", ', ""),
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
        ("def run", "raise GeneratorExit\ndef run"),
        ("def run", "class Odd(BaseException): pass\nraise Odd\ndef run"),
        ("def run", "def run("),
        ("def run", "import nothing_of_this_name\ndef run"),
    ],
)  # fmt: skip
def test_what_the_contract_lacks_is_named(tmp_path: Path, old: str, new: str) -> None:
    assert SOURCE.count(old) == 1
    with pytest.raises(ToolError) as refused:
        load_module(module(tmp_path, SOURCE.replace(old, new)), file="tools/say.py")
    text = str(refused.value)
    assert text.startswith("tools/say.py") and "\n" not in text
    assert "secret" not in text and str(tmp_path) not in text
    assert refused.value.remedy


def test_ctrl_c_while_a_tool_is_imported_is_not_the_tools(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        load_module(module(tmp_path, f"raise KeyboardInterrupt\n{SOURCE}"))


def test_a_syntax_error_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(ToolError) as refused:
        load_module(module(tmp_path, "x = 1\ny = = 2\n"), file="t.py")
    assert refused.value.line == 2


@pytest.mark.parametrize("name", ["a b.py", "1a.py", "a.b.py", "ä.py", "x" * 65 + ".py"])
def test_odd_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ToolError):
        load_module(module(tmp_path, name=name))


def test_a_missing_module_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.py", tmp_path):
        with pytest.raises(ToolError):
            load_module(path)


def test_the_shipped_tools_load_with_what_they_touch() -> None:
    tools = collect(SHIPPED)
    kinds = {name: sorted(r.kind for r in tool.resources) for name, tool in tools.items()}
    assert kinds == {
        "search": [],
        "fetch": ["url"],
        "read": ["path:read"],
        "write": ["path:write"],
        "summarize": [],
    }
    assert sorted(p.stem for p in shipped("tools").glob("*.py")) == sorted(SHIPPED)
    assert all(tool.digest and tool.file == f"tools/{name}.py" for name, tool in tools.items())


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(ToolError) as refused:
        load_named("serch")
    assert "did you mean 'search'?" in str(refused.value)
    with pytest.raises(ToolError):
        load_named("../tools/search")


def test_modules_tools_and_names_are_collected(tmp_path: Path) -> None:
    made = ModuleType("pack.say")
    exec(SOURCE, made.__dict__)
    tool = load_module(module(tmp_path, name="other.py"))
    assert sorted(collect([made, tool, "search"])) == ["other", "say", "search"]
    assert from_module(made).digest is None
    with pytest.raises(ToolError) as refused:
        collect([made, load_module(module(tmp_path))])
    assert "'say'" in str(refused.value)


def test_a_tool_made_in_code_is_held_to_the_same_rules() -> None:
    def make(**schema: Any) -> Tool:
        closed = {"type": "object", "additionalProperties": False}
        return Tool("t", "", {**closed, **schema}, closed, "pure", True, lambda args, io: {})

    assert make(properties={"q": {"type": "string"}}).digest is None
    with pytest.raises(ToolError) as refused:
        make(properties={"url": {"type": "string"}})
    assert "tool 't'" in str(refused.value)


def test_the_shape_of_a_tool_drops_limits_only(tmp_path: Path) -> None:
    tool = load_module(module(tmp_path))
    long, wrong = {"path": "corpus/long.md"}, {"path": 1}
    assert not tool.input_validator.accepts(long) and tool.shape_validator.accepts(long)
    assert not tool.shape_validator.accepts(wrong)
    assert not tool.shape_validator.accepts({"more": 1})
    assert tool.output_validator.accepts({})


def test_examples_hold_the_arguments_of_two_calls(tmp_path: Path) -> None:
    two = 'EXAMPLES = {"good": {"path": "a/b"}, "bad": {"path": 7}}\n'
    tool = load_module(module(tmp_path, SOURCE + two))
    assert tool.examples == {"good": {"path": "a/b"}, "bad": {"path": 7}}
    assert tool.schema_digest == load_module(module(tmp_path)).schema_digest
    for odd in ("[]", "{}", '{"good": {}}', '{"good": {}, "bad": []}', '{"good": {}, "bad": {}, "ugly": {}}'):
        with pytest.raises(ToolError, match="EXAMPLES must hold the arguments of two calls"):
            load_module(module(tmp_path, f"{SOURCE}EXAMPLES = {odd}\n"))


def test_changing_a_schema_after_a_tool_was_made_changes_nothing() -> None:
    given = {
        "type": "object", "additionalProperties": False,
        "properties": {"amount": {"type": "integer", "maximum": 100}},
    }  # fmt: skip
    tool = Tool("pay", "Pay.", given, given, "pure", True, lambda arguments, io: {})
    given["properties"]["amount"]["maximum"] = 1_000_000  # type: ignore[index]
    too_much = {"amount": 101}
    assert tool.input_schema["properties"]["amount"]["maximum"] == 100
    assert not tool.input_validator.accepts(too_much)
    assert tool.output_schema == tool.input_schema
    tool.input_schema["properties"].clear()
    assert tool.shape_validator.accepts({"amount": 1})
