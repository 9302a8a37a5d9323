"""The gate decides a call of an adapted tool as it decides that of a tool module with the same schema."""

from __future__ import annotations

import importlib
import json
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.adapters import from_langchain, from_openai_agents, tool_from_function
from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.models.types import read_call
from tachograph.runtime.policy.gate import Counters, Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.contract import Tool
from tachograph.runtime.tools.loader import from_module
from tests.support import policy_data


def work(url: str, path: str, n: int = 1, mode: Literal["a", "b"] = "a", note: str | None = None) -> str:
    """Work."""
    return url


TERMS: dict[str, Any] = {
    "effect": "network",
    "idempotent": True,
    "name": "probe",
    "resources": {"url": "url", "path": "path:read"},
    "paths": "text",
}


def _module() -> Tool:
    module = types.ModuleType("probe")
    text = {"type": "string"}
    properties = {
        "url": {**text, "x-resource": "url"},
        "path": {**text, "x-resource": "path:read"},
        "n": {"type": "integer"},
        "mode": {**text, "enum": ["a", "b"]},
        "note": {"anyOf": [text, {"type": "null"}]},
    }
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": ["url", "path"],
    }
    vars(module).update(
        DESCRIPTION="Work.",
        INPUT_SCHEMA=schema,
        OUTPUT_SCHEMA={"type": "object", "additionalProperties": False},
        EFFECT="network",
        IDEMPOTENT=True,
        TRANSIENT=(),
        run=lambda args, io: {},
    )
    return from_module(module)


def _of_langchain() -> Tool:
    tools = importlib.import_module("langchain_core.tools")
    return from_langchain(tools.StructuredTool.from_function(work), **TERMS)


def _of_agents() -> Tool:
    agents = importlib.import_module("agents")
    return from_openai_agents(agents.function_tool(work, strict_mode=False), **TERMS)


MADE: dict[str, tuple[str, Callable[[], Tool]]] = {
    "function": ("json", lambda: tool_from_function(work, **TERMS)),
    "langchain": ("langchain_core", _of_langchain),
    "openai_agents": ("agents", _of_agents),
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
URLS = st.sampled_from(
    [
        "https://good.test/",
        "HTTPS://good.test:443/x",
        "https://good.test@evil.test/",
        "https://evil.test/",
        "x",
    ]
)
PATHS = st.sampled_from(["books/a.md", "box/a.md", "books/../box/a", "/etc/passwd", "none/a", "books"])
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "url": URLS | JSON,
        "path": PATHS | JSON,
        "n": st.integers(-5, 5) | JSON,
        "mode": st.sampled_from(["a", "b", "c"]) | JSON,
        "note": st.text(max_size=3) | JSON,
        "more": JSON,
    },
)
SOUND = st.fixed_dictionaries({"url": URLS, "path": PATHS}, optional={"n": st.integers(-5, 5)})


@pytest.mark.parametrize("enforcement", ["strict", "shape"])
@pytest.mark.parametrize("kind", MADE)
def test_the_decision_is_the_same(kind: str, enforcement: str) -> None:
    needed, make = MADE[kind]
    pytest.importorskip(needed, reason=f"{needed} is not installed: make test-adapters")
    policy = Policy.from_dict(policy_data(arg_schema_enforcement=enforcement))
    adapted, module = Gate(policy, {"probe": make()}), Gate(policy, {"probe": _module()})
    seen: set[str] = set()

    @settings(max_examples=150, deadline=None)
    @given(ARGUMENTS | SOUND)
    def same(arguments: dict[str, Any]) -> None:
        call = read_call("tc_1_0", "probe", json.dumps(arguments), Redactor([]))
        decision = adapted.decide(call, Counters())
        expected = module.decide(call, Counters())
        # a refused argument names the schema of the tool, and the module's is a file
        assert decision.at.partition("#")[2] == expected.at.partition("#")[2]
        assert decision == replace(expected, at=decision.at)
        seen.add(decision.rule_id)

    same()
    assert seen >= {"url_allowlist", "sandbox_path", "arg_schema"}
