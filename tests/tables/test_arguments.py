"""Arguments for the shipped tools: every way in which they fit a schema, or just miss it.

The label is computed: `jsonschema` judges the arguments by the tool's schema, and a URL or path is granted if it stands
in a list of those that the shipped policy means. What objects first decides.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.loader import load_tools
from tachograph.testing import decide
from tests.tables.rows import Made, roomy, rows

ROOT = Path(__file__).parents[2]
NAMES = ["search", "fetch", "read", "write", "summarize"]
TOOLS = {tool.name: tool for tool in load_tools(NAMES, ROOT).tools}
SCHEMAS = {name: tool.input_schema["properties"] for name, tool in TOOLS.items()}
EACH = [(tool, name) for tool in TOOLS for name in SCHEMAS[tool]]
Case = tuple[str, str]  # a tool, and the JSON text of an object


def policy(enforcement: str) -> dict[str, Any]:
    """Return the shipped policy, whose budgets are never used up."""
    shipped = Policy.load(ROOT / "policy" / "v1.yaml").data
    kept = {key: shipped[key] for key in ("url_allowlist", "sandbox")}
    return roomy(NAMES, **kept, arg_schema_enforcement=enforcement)


def _validator(tool: str, enforcement: str) -> Draft202012Validator:
    """Return the validator of a tool's flat schema; `shape` drops limits on values."""
    limits = ("minimum", "maximum", "minLength", "maxLength") if enforcement == "shape" else ()
    flat = {name: dict(sub) for name, sub in SCHEMAS[tool].items()}
    for sub, limit in product(flat.values(), limits):
        sub.pop(limit, None)
    return Draft202012Validator({**TOOLS[tool].input_schema, "properties": flat})


VALIDATORS = {(tool, mode): _validator(tool, mode) for tool in TOOLS for mode in ("strict", "shape")}


def _long_path(mount: str, size: int) -> str:
    path = mount
    while size - len(path) > 120:
        path += "/" + "d" * 99
    return path + "/" + "f" * (size - len(path) - 1)


GOOD_URLS = [f"https://corpus.test/{'a' * n}" for n in (2027, 2028, 2029)]
GOOD_URLS[:0] = ["https://corpus.test/op-a1.md", "https://corpus.test/", "HTTPS://CORPUS.TEST/x"]
GOOD_URLS[:0] = ["https://corpus.test:443/x", "https://corpus.test/../x?q=http://evil.test/#f"]
BAD_URLS = [
    "", "https://corpus.test\\x", "x" * 2048, "http://corpus.test/", "https://evil.test/", "corpus.test",
]  # fmt: skip
BAD_URLS += "https://corpus.test.evil.test/ //corpus.test/ https://corpus.test:8443/ file:///corpus".split()
GOOD_PATHS = {
    "path:write": ["sandbox/notes.md", "sandbox/a/b", *(_long_path("sandbox", n) for n in (511, 512, 513))],
    "path:read": ["corpus/op-a3.md", *(_long_path("corpus", n) for n in (511, 512, 513))],
}
GOOD_PATHS["path:read"] += GOOD_PATHS["path:write"]
BAD_PATHS = ["", "corpus/\x00", "a" * 512, _long_path("other", 600), "corpus\\x"]
BAD_PATHS += "../x /etc/passwd corpus corpus/ corpus/../x other/x Corpus/x ./corpus/x".split()
# what a tool that reads may have and one that writes may not
BAD = {"url": BAD_URLS, "path:read": BAD_PATHS, "path:write": [*BAD_PATHS, "corpus/op-a3.md", "corpus/x"]}
GOOD = {"url": GOOD_URLS, **GOOD_PATHS}


def label(case: Case, enforcement: str) -> tuple[str, str, str]:
    """Return the decision, the rule, and where in the schema the objection stands."""
    tool, arguments = case[0], json.loads(case[1])
    grant = "tool_registry"
    for rule, kinds in (("url_allowlist", ("url",)), ("sandbox_path", ("path:read", "path:write"))):
        for name, sub in SCHEMAS[tool].items():
            if sub.get("x-resource") in kinds and isinstance(arguments.get(name), str):
                if arguments[name] not in GOOD[sub["x-resource"]]:
                    return "deny", rule, ""
                grant = rule
    wrong = [
        ("".join(f"/{key}" for key in error.absolute_path), error.validator, [*error.absolute_schema_path])
        for error in VALIDATORS[tool, enforcement].iter_errors(arguments)
    ]
    if not wrong:
        return "allow", grant, ""
    return "deny", "arg_schema", "".join(f"/{key}" for key in min(wrong)[2])


def good(tool: str, number: int = 0) -> dict[str, Any]:
    """Return arguments that fit, with every declared property; different ones by number."""
    plain = {
        "query": ["sleep in the cab", "a", "\u00e9\u20ac\U0001f600", "x" * 100],
        "top_k": [5, 1, 20, 7],
        "url": GOOD_URLS[:4],
        "text": ["A sentence. Another.", "", "\n", "caf\u00e9"],
        "max_sentences": [3, 1, 50, 2],
        "content": ["", "text", "\x00\u2028", "# h"],
    }
    paths = GOOD_PATHS["path:write" if tool == "write" else "path:read"]
    return {name: paths[number % 2] if name == "path" else plain[name][number % 4] for name in SCHEMAS[tool]}


def _case(tool: str, arguments: Any) -> Case:
    return tool, json.dumps(arguments, ensure_ascii=False)


def _presence() -> Iterator[Case]:
    """Every choice of declared properties."""
    for tool, number in product(TOOLS, range(8)):
        whole = good(tool, number % 4)
        for chosen in product((True, False), repeat=len(whole)):
            arguments = dict(itertools.compress(whole.items(), chosen))
            yield _case(tool, arguments if number < 4 else {**arguments, "more": None})


def _types() -> Iterator[Case]:
    """Values of each type, and those that fit in a wrapping."""
    values: list[Any] = [None, True, False, 0, 1, -1, 1.5, -0.5, 1e-300, "", "1", "true", "null", [], [1], {}]
    values += [[None], ["a"], {"$ref": "#"}, {"a": {"b": []}}, {"length": 5}, [[["a"]]]]
    for tool, name in EACH:
        value = good(tool)[name]
        wrapped = [
            [value], {"value": value}, {name: value}, json.dumps({name: value}), [[value]], {"0": value},
        ]  # fmt: skip
        wrapped += [] if isinstance(value, str) else [str(value)]
        yield from (_case(tool, {**good(tool), name: item}) for item in [*values, *wrapped])
        yield from (_case(tool, {**good(tool), key: good(tool)}) for key in (name, "arguments", "input"))


def _limits() -> Iterator[Case]:
    for tool, name in EACH:
        sub, values = SCHEMAS[tool][name], list[Any]()
        if sub["type"] == "integer":
            numbers = [sub[key] + step for key in ("minimum", "maximum") for step in (-1, -0.5, 0, 0.5, 1)]
            texts = [f"{number}{exponent}" for number in numbers for exponent in ("", "e0", "E+00")]
            text = json.dumps({**good(tool), name: "@"})
            yield from ((tool, text.replace('"@"', each)) for each in texts)
            values = [2**53 - 1, 1 - 2**53, 1e15, -1e15, 0.1]
        elif "x-resource" in sub:
            values = ["", *GOOD[sub["x-resource"]]]
        else:
            sizes = [sub.get(key, 1) + step for key in ("minLength", "maxLength") for step in (-1, 0, 1)]
            values = [letter * size for letter in ("a", "\U0001f600") for size in sizes]
        yield from (_case(tool, {**good(tool), name: value}) for value in values)


def _resources() -> Iterator[Case]:
    """URLs and paths, good and bad, beside arguments that are wrong in another way too."""
    for tool, name in EACH:
        kind = SCHEMAS[tool][name].get("x-resource")
        for value in [*GOOD[kind], *BAD[kind]] if kind else []:
            for wrong in ({**good(tool)}, {}, {**good(tool), "more": 1}, {"content": 1}):
                yield _case(tool, {**wrong, name: value})


CLASSES = [_presence, _types, _limits, _resources]


def decided(cases: list[Case], enforcement: str) -> list[tuple[str, str, str]]:
    """Return what the gate says of each case, in the words of `label`."""
    calls = [{"name": tool, "arguments": text} for tool, text in cases]
    found = decide(policy(enforcement), TOOLS.values(), calls)
    denied = [each.at.partition("#/INPUT_SCHEMA")[2] if each.decision == "deny" else "" for each in found]
    return [(each.decision, each.rule_id, place) for each, place in zip(found, denied, strict=True)]


@pytest.mark.parametrize("enforcement", ["strict", "shape"])
@pytest.mark.parametrize("made", CLASSES)
def test_decided_as_schema_and_resources_say(made: Made, enforcement: str) -> None:
    cases = rows(made())
    labels = [label(case, enforcement) for case in cases]
    compared = zip(cases, labels, decided(cases, enforcement), strict=True)
    assert [(case[0], case[1][:200], *pair) for case, *pair in compared if pair[0] != pair[1]] == []
    # a class that one answer fits proves little
    assert {decision for decision, *_ in labels} == {"allow", "deny"}


def _spellings() -> Iterator[tuple[str, tuple[str, ...]]]:
    """A tool, and texts that mean one and the same: order, white space, escapes, whole numbers as floats."""
    for tool, number, more in product(TOOLS, range(4), ({}, {"x": [1, {"b": -0.5}]}, {"y": 7})):
        plain = {**good(tool, number), **more}
        turned = dict(reversed(plain.items()))
        keys = {key: "".join(f"\\u{ord(c):04x}" for c in key) for key in plain}
        escaped = ", ".join(f'"{keys[key]}" : {json.dumps(value)}' for key, value in plain.items())
        texts = [json.dumps(plain, indent=3), json.dumps(turned, ensure_ascii=False), f"{{{escaped}}}"]
        whole = re.compile(r"(: -?\d+)(?=[,}])")
        floats = [whole.sub(rf"\g<1>{tail}", json.dumps(turned)) for tail in (".0", "e0", "0E-1")]
        yield tool, (json.dumps(plain), *texts, *floats)


def test_how_arguments_are_written_decides_nothing() -> None:
    """One spelling after the other is decided alike, until the same call was allowed twice."""
    twice = {**policy("strict"), "cycle_detection": {"max_repeats": 2}}
    for tool, texts in rows(_spellings()):
        found = decide(twice, TOOLS.values(), [{"name": tool, "arguments": text} for text in texts])
        if found[0].decision == "allow":
            assert {each.rule_id for each in found[2:]} == {"cycle_detection"}, texts
            found = found[:2]
        assert len(set(map(repr, found))) == 1, texts


def test_no_other_tool_takes_them() -> None:
    """Arguments of one tool under the name of another, or of none."""
    texts = [text for _, text in rows(_presence())]
    for name in ("shell", "Search", "search ", "", "fetch\n", "../read", "*", "\ud800"):
        assert set(decided([(name, text) for text in texts], "strict")) == {("deny", "tool_registry", "")}
