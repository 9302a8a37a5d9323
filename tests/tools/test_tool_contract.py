"""Every module in tools/ meets the contract that tools/README.md states."""

import ast
import copy
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

FILES = sorted((Path(__file__).resolve().parents[2] / "tools").glob("*.py"))
NAMES = [path.stem for path in FILES]

BANNED_MODULES = {"os", "socket", "subprocess", "pathlib", "io"}
BANNED_CALLS = {"open", "exec", "eval", "compile", "__import__"}
RESOURCES = {"url", "path:read", "path:write", "none"}
RESOURCE_WORDS = ("url", "uri", "path", "file", "folder", "directory", "host", "address")


def schema_faults(schema, at="$"):
    """List the places of a schema that leave something unbounded."""
    faults = []
    kind = schema.get("type")
    if kind == "object":
        if schema.get("additionalProperties") is not False:
            faults.append(f"{at}: additionalProperties is not false")
        if not set(schema.get("required", ())) <= set(schema.get("properties", {})):
            faults.append(f"{at}: a required property is not described")
        for name, part in schema.get("properties", {}).items():
            faults += schema_faults(part, f"{at}.{name}")
    elif kind == "array":
        if "maxItems" not in schema:
            faults.append(f"{at}: no maxItems")
        faults += schema_faults(schema["items"], f"{at}[]") if "items" in schema else [f"{at}: no items"]
    elif kind == "string":
        if "maxLength" not in schema and "enum" not in schema:
            faults.append(f"{at}: no maxLength")
    elif kind == "integer":
        if "minimum" not in schema or "maximum" not in schema:
            faults.append(f"{at}: no minimum or no maximum")
    elif kind != "boolean":
        faults.append(f"{at}: type {kind!r} is not one of object, array, string, integer, boolean")
    return faults


def resource_faults(schema, at="$"):
    """List the string properties whose name looks like a resource and that do not say which."""
    faults = []
    for name, part in schema.get("properties", {}).items():
        declared = part.get("x-resource")
        if declared is not None and declared not in RESOURCES:
            faults.append(f"{at}.{name}: unknown x-resource {declared!r}")
        if part.get("type") == "string" and declared is None and any(word in name for word in RESOURCE_WORDS):
            faults.append(f"{at}.{name}: no x-resource")
        faults += resource_faults(part, f"{at}.{name}")
    return faults


def source_faults(source):
    """List the imports and calls by which a tool would reach past ``io``."""
    faults = []
    for node in ast.walk(ast.parse(source)):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = ["." if node.level else node.module]
        elif isinstance(node, ast.Name) and node.id in BANNED_CALLS:
            faults.append(f"line {node.lineno}: {node.id}")
        for module in modules:
            top = module.split(".")[0]
            if top in BANNED_MODULES or top not in sys.stdlib_module_names:
                faults.append(f"line {node.lineno}: import of {module}")
    return faults


@pytest.mark.parametrize("name", NAMES)
def test_the_good_example_fits_and_the_bad_one_does_not(load_tool, name):
    tool = load_tool(name)
    assert tool.EXAMPLES.keys() == {"good", "bad"}
    validator = Draft202012Validator(tool.INPUT_SCHEMA)
    assert validator.is_valid(tool.EXAMPLES["good"])
    assert not validator.is_valid(tool.EXAMPLES["bad"])


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_a_tool_imports_nothing_that_reaches_out(path):
    assert source_faults(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_attributes_have_their_form(load_tool, name):
    tool = load_tool(name)
    assert isinstance(tool.DESCRIPTION, str) and tool.DESCRIPTION.strip() == tool.DESCRIPTION != ""
    assert tool.EFFECT in {"pure", "read", "write", "network"}
    assert isinstance(tool.IDEMPOTENT, bool)
    assert isinstance(tool.TRANSIENT, tuple)
    assert all(issubclass(kind, Exception) and kind.__module__ == "builtins" for kind in tool.TRANSIENT)
    assert callable(tool.run)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("attribute", ["INPUT_SCHEMA", "OUTPUT_SCHEMA"])
def test_the_schemas_are_valid_and_bounded(load_tool, name, attribute):
    schema = getattr(load_tool(name), attribute)
    Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    assert schema_faults(schema) == []


@pytest.mark.parametrize("name", NAMES)
def test_resources_are_declared_and_fit_the_effect(load_tool, name):
    tool = load_tool(name)
    assert resource_faults(tool.INPUT_SCHEMA) == []
    declared = {part.get("x-resource", "none") for part in tool.INPUT_SCHEMA["properties"].values()} - {
        "none"
    }
    allowed = {"pure": set(), "read": {"path:read"}, "write": {"path:read", "path:write"}}
    assert declared <= allowed.get(tool.EFFECT, RESOURCES)


@pytest.mark.parametrize("name", NAMES)
def test_the_good_example_keeps_to_both_schemas(load_tool, fake_io, name):
    tool = load_tool(name)
    args = copy.deepcopy(tool.EXAMPLES["good"])
    Draft202012Validator(tool.INPUT_SCHEMA).validate(args)

    def call():
        io = fake_io(
            files={"corpus/op-a1.md": "# First\n\nFirst words.\n"},
            pages={"https://corpus.test/op-a1.md": "# First\n"},
        )
        return tool.run(args, io), [kind for kind, _ in io.calls]

    result, calls = call()
    Draft202012Validator(tool.OUTPUT_SCHEMA).validate(result)
    assert args == tool.EXAMPLES["good"]
    assert call() == (result, calls)
    reach = {"pure": set(), "read": {"read", "list"}, "write": {"read", "list", "write"}, "network": {"get"}}
    assert set(calls) <= reach[tool.EFFECT]


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_argument_is_refused_by_the_schema(load_tool, name):
    tool = load_tool(name)
    validator = Draft202012Validator(tool.INPUT_SCHEMA)
    assert not validator.is_valid({**tool.EXAMPLES["good"], "extra": 1})
    assert not validator.is_valid({})


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("search", {"top_k": 0}),
        ("search", {"top_k": 21}),
        ("search", {"query": "a" * 401}),
        ("summarize", {"max_sentences": 0}),
        ("fetch", {"url": ""}),
        ("read", {"path": "a" * 513}),
        ("write", {"content": 5}),
    ],
)
def test_values_outside_the_bounds_are_refused_by_the_schema(load_tool, name, change):
    tool = load_tool(name)
    assert not Draft202012Validator(tool.INPUT_SCHEMA).is_valid({**tool.EXAMPLES["good"], **change})


# The checks above are worth something only if they can find a fault.
@pytest.mark.parametrize(
    "source",
    [
        "import os",
        "import os.path",
        "from pathlib import Path",
        "import io",
        "from io import StringIO",
        "import tachograph",
        "from . import search",
        "def run(args, io):\n    return open('x')",
        "reader = open",
        "__import__('os')",
    ],
)
def test_the_source_check_finds(source):
    assert len(source_faults(source)) == 1


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {}},
        {"type": "string"},
        {"type": "array", "items": {"type": "boolean"}},
        {"type": "integer", "minimum": 0},
        {"type": "number"},
        {"type": "object", "additionalProperties": False, "properties": {"a": {"type": "string"}}},
        {"type": "object", "additionalProperties": False, "required": ["a"]},
    ],
)
def test_the_schema_check_finds(schema):
    assert len(schema_faults(schema)) == 1


def test_the_resource_check_finds():
    assert resource_faults({"properties": {"source_url": {"type": "string"}}})
    assert resource_faults({"properties": {"text": {"type": "string", "x-resource": "paths"}}})
    assert not resource_faults({"properties": {"source_url": {"type": "string", "x-resource": "none"}}})
