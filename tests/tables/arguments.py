"""Arguments for the shipped tools: every way in which they fit a schema, or just miss it.

The label is computed: `jsonschema` judges the arguments by the plain schema of the tool's module, and a URL
or path is granted if it stands in a list of those that the shipped policy means. What objects first decides.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator

from tachograph.runtime.formats.canonical_json import encode
from tachograph.runtime.policy.call_cost import MAX_TEXT
from tests.support import ROOT

TOOLS = ("search", "fetch", "read", "write", "summarize")
_LIMITS = ("minimum", "maximum", "minLength", "maxLength")


def _schema(name: str) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location(f"_table_{name}", ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    schema: dict[str, Any] = module.INPUT_SCHEMA
    return schema


SCHEMAS = {name: _schema(name) for name in TOOLS}


def _without_limits(schema: dict[str, Any]) -> dict[str, Any]:
    """A flat schema as `arg_schema_enforcement: shape` reads it."""
    properties = {
        name: {key: value for key, value in sub.items() if key not in _LIMITS}
        for name, sub in schema["properties"].items()
    }
    return {**schema, "properties": properties}


VALIDATORS = {
    "strict": {name: Draft202012Validator(schema) for name, schema in SCHEMAS.items()},
    "shape": {name: Draft202012Validator(_without_limits(schema)) for name, schema in SCHEMAS.items()},
}


def _long_path(mount: str, size: int) -> str:
    path = mount
    while size - len(path) > 120:
        path += "/" + "d" * 99
    return path + "/" + "f" * (size - len(path) - 1)


GOOD_URLS = [
    "https://corpus.test/op-a1.md",
    "https://corpus.test/",
    "HTTPS://CORPUS.TEST/x",
    "https://corpus.test:443/x",
]
GOOD_URLS += [
    "https://corpus.test/../x?q=http://evil.test/#f",
    *(f"https://corpus.test/{'a' * n}" for n in (2027, 2028, 2029)),
]
BAD_URLS = [
    "http://corpus.test/",
    "https://evil.test/",
    "https://corpus.test.evil.test/",
    "",
    "corpus.test",
    "//corpus.test/",
]
BAD_URLS += [
    "https://corpus.test:8443/",
    "https://u@corpus.test/",
    "file:///corpus.test",
    "https://corpus.test\\x",
    "x" * 2048,
]
GOOD_PATHS = {
    "path:read": ["corpus/op-a3.md", "sandbox/notes.md", *(_long_path("corpus", n) for n in (511, 512, 513))],
    "path:write": ["sandbox/notes.md", "sandbox/a/b", *(_long_path("sandbox", n) for n in (511, 512, 513))],
}
GOOD_PATHS["path:read"] += GOOD_PATHS["path:write"]
BAD_PATHS = [
    "../x",
    "/etc/passwd",
    "corpus",
    "corpus/",
    "corpus/../x",
    "other/x",
    "",
    "Corpus/x",
    "corpus/\x00",
    "a" * 512,
]
BAD_PATHS += [_long_path("other", 600), "corpus\\x", "./corpus/x"]
# what a tool that reads may have and one that writes may not
BAD_FOR = {"url": BAD_URLS, "path:read": BAD_PATHS, "path:write": [*BAD_PATHS, "corpus/op-a3.md", "corpus/x"]}
GRANTED = {"url": {*GOOD_URLS}, **{kind: {*paths} for kind, paths in GOOD_PATHS.items()}}


@dataclass(frozen=True, slots=True)
class Case:
    """A call; `text` is the JSON text of its arguments, an object."""

    tool: str
    text: str


@dataclass(frozen=True, slots=True)
class Label:
    """What the gate has to say; pointer and keyword where the schema objects."""

    decision: str
    rule: str
    pointer: str | None = None
    keyword: str | None = None


def label(case: Case, enforcement: str) -> Label:
    arguments = json.loads(case.text)
    if len(encode(arguments)) > MAX_TEXT:
        return Label("deny", "gate_error")
    grant = "tool_registry"
    for rule, kinds in (("url_allowlist", ("url",)), ("sandbox_path", ("path:read", "path:write"))):
        for name, sub in SCHEMAS[case.tool]["properties"].items():
            if sub.get("x-resource") in kinds and isinstance(arguments.get(name), str):
                if arguments[name] not in GRANTED[sub["x-resource"]]:
                    return Label("deny", rule)
                grant = rule
    wrong = [
        ("".join(f"/{token}" for token in error.absolute_path), error.validator)
        for error in VALIDATORS[enforcement][case.tool].iter_errors(arguments)
    ]
    return Label("deny", "arg_schema", *min(wrong)) if wrong else Label("allow", grant)


def good(tool: str, number: int = 0) -> dict[str, Any]:
    """Arguments that fit, with every declared property; different ones by number."""
    plain = {
        "query": ["sleep in the cab", "a", "\u00e9\u20ac\U0001f600", "x" * 100],
        "top_k": [5, 1, 20, 7],
        "url": GOOD_URLS[:4],
        "text": ["A sentence. Another.", "", "\n", "caf\u00e9"],
        "max_sentences": [3, 1, 50, 2],
        "content": ["", "text", "\x00\u2028", "# h"],
    }
    paths = GOOD_PATHS["path:write" if tool == "write" else "path:read"]
    return {
        name: paths[number % 2] if name == "path" else plain[name][number % 4]
        for name in SCHEMAS[tool]["properties"]
    }


def _case(tool: str, arguments: Any) -> Case:
    return Case(tool, json.dumps(arguments, ensure_ascii=False))


def _each() -> Iterator[tuple[str, str]]:
    yield from ((tool, name) for tool in TOOLS for name in SCHEMAS[tool]["properties"])


def _presence() -> Iterator[Case]:
    """Every choice of declared properties."""
    for tool, number in itertools.product(TOOLS, range(8)):
        whole = good(tool, number % 4)
        for chosen in itertools.product((True, False), repeat=len(whole)):
            arguments = {name: whole[name] for name, taken in zip(whole, chosen, strict=True) if taken}
            yield _case(tool, arguments if number < 4 else {**arguments, "more": None})


def _undeclared() -> Iterator[Case]:
    names = [
        "",
        " ",
        "more",
        "Query",
        "QUERY",
        "query ",
        " url",
        "url\n",
        "path\x00",
        "urls",
        "uri",
        "file",
        "$ref",
        "*",
        "0",
    ]
    names += [
        "x-resource",
        "__proto__",
        "__class__",
        "constructor",
        "self",
        "io",
        "args",
        "/",
        "~",
        "top-k",
        "p\u0430th",
        "\u0000",
    ]
    for tool, name, value in itertools.product(TOOLS, names, ("https://evil.test/", {"path": "../x"}, None)):
        yield _case(tool, {**good(tool), name: value})


_VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    1.5,
    -0.5,
    1e-300,
    "",
    "1",
    "true",
    "null",
    "text",
    [],
    [1],
    ["a"],
    {},
]
_VALUES += [[None], {"$ref": "#"}, {"a": {"b": []}}, {"length": 5}, [[["a"]]]]


def _types() -> Iterator[Case]:
    for (tool, name), value in itertools.product(_each(), _VALUES):
        yield _case(tool, {**good(tool), name: value})


def _limits() -> Iterator[Case]:
    for tool, name in _each():
        sub = SCHEMAS[tool]["properties"][name]
        if sub["type"] == "integer":
            for bound, step in itertools.product((sub["minimum"], sub["maximum"]), (-1, -0.5, 0, 0.5, 1)):
                for form in ("{}", "{}e0", "{}E+00"):
                    number = form.format(bound + step if step % 1 else f"{bound + int(step)}")
                    yield Case(tool, json.dumps({**good(tool), name: "@"}).replace('"@"', number))
            yield from (
                _case(tool, {**good(tool), name: n}) for n in (2**53 - 1, 1 - 2**53, 1e15, -1e15, 0.1)
            )
        elif "x-resource" not in sub:
            small = sub["maxLength"] < 100_000
            letters = ("a", "\u00e9", "\U0001f600", "\x00") if small else ("a", "\U0001f600")
            for bound, step, letter in itertools.product(
                (sub.get("minLength", 0), sub["maxLength"]), (-1, 0, 1), letters
            ):
                if bound + step >= 0:
                    yield _case(tool, {**good(tool), name: letter * (bound + step)})
        else:
            values = GRANTED[sub["x-resource"]] | {""}
            yield from (_case(tool, {**good(tool), name: value}) for value in sorted(values))


def _nested() -> Iterator[Case]:
    """Arguments one level too deep, and values in a wrapping."""
    for tool, name in _each():
        arguments = good(tool)
        value = arguments[name]
        wrapped = [
            [value],
            {"value": value},
            {name: value},
            {"0": value},
            json.dumps({name: value}),
            [[value]],
            [value, value],
        ]
        if not isinstance(value, str):
            wrapped.append(str(value))
        yield from (_case(tool, {**arguments, name: item}) for item in wrapped)
    for tool, key in itertools.product(
        TOOLS, ("arguments", "args", "input", "parameters", "0", "query", "url", "path")
    ):
        yield _case(tool, {key: good(tool)})
        yield _case(tool, {**good(tool), key: [good(tool)]})


def _resources() -> Iterator[Case]:
    """URLs and paths, good and bad, beside arguments that are wrong in another way too."""
    for tool, name in _each():
        kind = SCHEMAS[tool]["properties"][name].get("x-resource", "none")
        if kind == "none":
            continue
        values = GOOD_URLS if kind == "url" else GOOD_PATHS[kind]
        for value in (*values, *BAD_FOR[kind]):
            yield _case(tool, {**good(tool), name: value})
            yield _case(tool, {name: value})
            yield _case(tool, {**good(tool), name: value, "more": 1})
            yield _case(tool, {name: value, "content": 1})


CLASSES: dict[str, Callable[[], Iterator[Case]]] = {
    "presence": _presence, "undeclared": _undeclared, "types": _types, "limits": _limits, "nested": _nested,
    "resources": _resources,
}  # fmt: skip


def spellings() -> Iterator[tuple[str, tuple[str, ...]]]:
    """(tool, texts that mean one and the same): order, white space, escapes, whole numbers as floats."""
    draw = random.Random(3)
    for tool, number, more in itertools.product(
        TOOLS, range(4), ({}, {"more": [1, {"b": 2, "a": 1}]}, {"x": -0.5})
    ):
        arguments = {**good(tool, number), **more}
        texts = [
            json.dumps(arguments),
            json.dumps(arguments, indent=3),
            json.dumps(arguments, ensure_ascii=False),
        ]
        for _ in range(4):
            keys = draw.sample(sorted(arguments), len(arguments))
            shuffled = {key: arguments[key] for key in keys}
            parts = []
            for key, value in shuffled.items():
                name = '"' + "".join(f"\\u{ord(c):04x}" if draw.random() < 0.5 else c for c in key) + '"'
                written = json.dumps(value)
                if isinstance(value, int):
                    written = draw.choice([f"{value}.0", f"{value}e0", f"{value}0e-1", f"{value}.000E+0"])
                parts.append(f"{draw.choice(['', ' ', chr(10)])}{name} : {written}")
            texts.append("{" + ",".join(parts) + "}")
        yield tool, tuple(texts)
