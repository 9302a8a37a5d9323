"""A tool of the OpenAI Agents SDK becomes a governed tool: same schema, and its failures are failures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("agents", reason="openai-agents is not installed: make test-adapters")

from agents import (
    Agent,
    FunctionTool,
    ToolGuardrailFunctionOutput,
    ToolOutputText,
    function_tool,
    tool_input_guardrail,
)
from agents.tool_context import ToolContext
from pydantic import BaseModel

from tachograph.adapters import from_openai_agents
from tachograph.runtime.tools.contract import Tool
from tests.adapters.kit import IO, one_call, outcome, refused


class Page(BaseModel):
    url: str
    depth: int = 1


def made(sdk_tool: Any, **more: Any) -> Tool:
    return from_openai_agents(sdk_tool, **{"effect": "network", "idempotent": True, "name": "probe", **more})


@function_tool
def crawl(pages: list[Page], note: str | None = None) -> list[str]:
    """Crawl some pages.

    Args:
        pages: The pages.
    """
    return [page.url for page in pages]


PAGES = {"/pages/*/url": "url"}


def test_the_strict_schema_is_taken_over_and_declared() -> None:
    adapted = from_openai_agents(crawl, effect="network", idempotent=True, resources=PAGES)
    assert (adapted.name, adapted.description) == ("crawl", "Crawl some pages.")
    url = {"type": "string", "title": "Url", "x-resource": "url"}
    depth = {"type": "integer", "title": "Depth", "default": 1}
    page = {
        "type": "object",
        "title": "Page",
        "properties": {"url": url, "depth": depth},
        "required": ["url", "depth"],
        "additionalProperties": False,
    }
    assert adapted.input_schema["properties"]["pages"] == {
        "type": "array",
        "title": "Pages",
        "description": "The pages.",
        "items": page,
    }
    assert adapted.input_schema["required"] == ["pages", "note"]
    assert adapted.output_schema["properties"]["result"] == {"type": "array", "items": {"type": "string"}}
    assert adapted.digest is not None and "$defs" in crawl.params_json_schema


def test_it_gets_the_url_that_the_gate_read() -> None:
    adapted = made(crawl, resources=PAGES)
    given = {"pages": [{"url": "HTTPS://GOOD.test:443/a#b", "depth": 1}], "note": None}
    assert outcome(one_call(adapted, given)) == ["https://good.test/a"]
    given["pages"][0]["url"] = "https://evil.test/"  # type: ignore[index]
    assert one_call(adapted, given).decisions[0]["rule_id"] == "url_allowlist"


class Hiccup(Exception):
    """Of some library."""


OWN: dict[str, Any] = {"failure_error_function": lambda ctx, error: "it is fine"}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "settings", [{}, {"failure_error_function": lambda ctx, error: "it is fine"}], ids=["default", "own"]
)
def test_what_the_sdk_would_turn_into_text_is_a_failure(settings: Any, is_async: bool) -> None:
    def fail(x: int) -> str:
        """Fail."""
        raise Hiccup("x")

    async def fail_later(x: int) -> str:
        """Fail."""
        raise Hiccup("x")

    sdk_tool = function_tool(fail_later if is_async else fail, **settings)
    about = ToolContext(context=None, tool_name="fail", tool_call_id="1", tool_arguments='{"x":1}')
    assert isinstance(asyncio.run(sdk_tool.on_invoke_tool(about, '{"x":1}')), str)
    ran = one_call(made(sdk_tool), {"x": 1})
    assert ran.end["failure_mode"] == "catalogued_unhandled" and outcome(ran) == "failed"
    again = one_call(made(sdk_tool, transient=[Hiccup]), {"x": 1})
    assert again.end["failure_mode"] == "retry_exhaustion"
    assert again.results[0]["attempts"][0]["fault"]["exception"] == "Hiccup"
    assert isinstance(asyncio.run(sdk_tool.on_invoke_tool(about, '{"x":1}')), str), "left as it was"


def test_a_context_an_invoker_of_ones_own_and_a_text_output() -> None:
    @function_tool
    def who(ctx: ToolContext[dict[str, str]]) -> ToolOutputText:
        """Who."""
        return ToolOutputText(text=f"{ctx.context['name']} {ctx.tool_call_id}")

    adapted = made(who, context={"name": "Ann"})
    assert adapted.run({}, IO) == {"result": {"type": "text", "text": "Ann test-run/1/0"}}

    async def invoke(ctx: Any, arguments: str) -> Any:
        if "bad" in arguments:
            raise Hiccup("x")
        return arguments

    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    own = FunctionTool(name="own", description="Own.", params_json_schema=schema, on_invoke_tool=invoke)
    assert outcome(one_call(made(own), {"q": "é"})) == '{"q":"é"}'
    assert outcome(one_call(made(own), {"q": "bad"})) == "failed"
    assert made(own).output_schema["properties"]["result"] == {}

    async def around() -> Any:
        return made(own).run({"q": "a"}, IO)

    assert asyncio.run(around()) == {"result": '{"q":"a"}'}, "a loop runs already"


def test_its_time_is_ours() -> None:
    @function_tool(timeout=0.2)
    async def wait(x: int) -> int:
        """Wait."""
        await asyncio.sleep(60)
        return x

    assert made(wait).timeout_s == 0.2 and made(wait, timeout_s=3).timeout_s == 3
    ran = one_call(made(wait, idempotent=False), {"x": 1})
    assert ran.end["failure_mode"] == "timeout"


@tool_input_guardrail
def guard(data: Any) -> ToolGuardrailFunctionOutput:
    return ToolGuardrailFunctionOutput.allow()


async def ask(ctx: Any, arguments: Any, call_id: str) -> bool:
    return False


SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"needs_approval": True}, "has needs_approval, which nothing checks here; let the policy ask"),
    ({"needs_approval": ask}, "has needs_approval"),
    ({"tool_input_guardrails": [guard]}, "has tool_input_guardrails, which nothing checks here"),
    ({"is_enabled": False}, "is not always enabled"),
    ({"is_enabled": lambda ctx, agent: True}, "is not always enabled"),
]


@pytest.mark.parametrize(("settings", "what"), SETTINGS, ids=[what for _, what in SETTINGS])
def test_what_only_the_sdks_runner_would_ask_is_refused(settings: dict[str, Any], what: str) -> None:
    @function_tool(**settings)
    def look(x: int) -> int:
        """Look."""
        return x

    assert what in refused(lambda: made(look))


def test_what_else_is_refused() -> None:
    assert "resources={'/pages/*/url': " in refused(lambda: made(crawl))
    nested = Agent(name="inner").as_tool("inner", "Ask another agent.")
    assert "is an agent, whose own calls no gate would see" in refused(lambda: made(nested))
    assert "is not a FunctionTool" in refused(lambda: made(len))
