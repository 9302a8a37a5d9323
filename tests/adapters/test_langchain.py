"""A LangChain tool becomes a governed tool: same schema, same arguments, and its failures are failures."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest

pytest.importorskip("langchain_core", reason="langchain-core is not installed: make test-adapters")

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import ToolMessage
from langchain_core.runnables.config import ensure_config, var_child_runnable_config
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool, ToolException, tool
from langchain_core.tools import Tool as OneText
from pydantic import BaseModel, Field, ValidationError

from tachograph.adapters import from_langchain
from tachograph.runtime.tools.contract import Tool
from tests.adapters.kit import IO, one_call, outcome, refused


class Page(BaseModel):
    url: str
    depth: int = 1


class Crawl(BaseModel):
    """What to crawl."""

    pages: list[Page]
    spare: Page | None = None
    mode: Literal["fast", "slow"] = "fast"
    note: str | None = Field(default=None, description="A remark.")


@tool(args_schema=Crawl)
def crawl(
    pages: list[Page], spare: Page | None = None, mode: str = "fast", note: str | None = None
) -> list[str]:
    """Crawl some pages.

    Politely.
    """
    return [page.url for page in pages]


def made(lc_tool: Any, **more: Any) -> Tool:
    return from_langchain(lc_tool, **{"effect": "network", "idempotent": True, "name": "probe", **more})


PAGES = {"/pages/*/url": "url", "/spare/url": "url"}


def test_the_schema_is_taken_over_closed_and_declared() -> None:
    adapted = from_langchain(crawl, effect="network", idempotent=True, resources=PAGES)
    assert adapted.name == "crawl" and adapted.description == "Crawl some pages.\n\nPolitely."
    url = {"type": "string", "title": "Url", "x-resource": "url"}
    page = {
        "type": "object",
        "title": "Page",
        "properties": {"url": url, "depth": {"type": "integer", "title": "Depth", "default": 1}},
        "required": ["url"],
        "additionalProperties": False,
    }
    assert adapted.input_schema == {
        "type": "object",
        "additionalProperties": False,
        "required": ["pages"],
        "properties": {
            "pages": {"type": "array", "title": "Pages", "items": page},
            "spare": {"anyOf": [page, {"type": "null"}], "default": None},
            "mode": {"type": "string", "title": "Mode", "enum": ["fast", "slow"], "default": "fast"},
            "note": {
                "anyOf": [{"type": "string"}, {"type": "null"}],
                "title": "Note",
                "default": None,
                "description": "A remark.",
            },
        },
    }
    assert adapted.output_schema["properties"]["result"] == {"type": "array", "items": {"type": "string"}}
    assert crawl.tool_call_schema.model_json_schema()["$defs"]  # type: ignore[union-attr]  # ours is a copy


def test_a_shared_definition_is_declared_only_where_it_was_said() -> None:
    line = refused(lambda: made(crawl, resources={"/pages/*/url": "url"}))
    assert "/spare/url looks like a resource" in line


def test_it_gets_the_url_that_the_gate_read() -> None:
    ran = one_call(made(crawl, resources=PAGES), {"pages": [{"url": "HTTPS://GOOD.test:443/a#b"}]})
    assert outcome(ran) == ["https://good.test/a"]
    denied = one_call(made(crawl, resources=PAGES), {"pages": [{"url": "https://evil.test/"}]})
    assert denied.decisions[0]["rule_id"] == "url_allowlist" and not denied.results[0]["attempts"]
    more = one_call(made(crawl, resources=PAGES), {"pages": [{"url": "https://good.test/", "x": 1}]})
    assert more.decisions[0]["rule_id"] == "arg_schema"


# ---- failures are failures -----------------------------------------------------------------------------


class Hiccup(Exception):
    """Of some library."""


def _failing(error: Exception, **settings: Any) -> Any:
    def fail(x: int) -> str:
        """Fail."""
        raise error

    return StructuredTool.from_function(fail, **settings)


@pytest.mark.parametrize(
    "handler", [True, "it is fine", lambda error: "it is fine"], ids=["true", "text", "function"]
)
def test_what_langchain_would_turn_into_text_is_a_failure(handler: Any) -> None:
    lc_tool = _failing(ToolException("x"), handle_tool_error=handler, handle_validation_error=handler)
    assert isinstance(lc_tool.invoke({"x": 1}), str)
    ran = one_call(made(lc_tool), {"x": 1})
    assert ran.end["failure_mode"] == "catalogued_unhandled" and outcome(ran) == "failed"
    again = one_call(made(lc_tool, transient=[ToolException]), {"x": 1})
    assert again.end["failure_mode"] == "retry_exhaustion" and len(again.results[0]["attempts"]) == 3
    assert lc_tool.handle_tool_error is handler, "the tool itself is left as it was"


def test_what_its_own_validators_refuse_is_a_failure() -> None:
    class Even(BaseModel):
        x: int

        def model_post_init(self, _context: Any) -> None:
            if self.x % 2:
                raise ValueError("odd")

    @tool(args_schema=Even)
    def half(x: int) -> int:
        """Halve."""
        return x // 2

    half.handle_validation_error = True
    assert outcome(one_call(made(half), {"x": 4})) == 2
    assert one_call(made(half), {"x": 3}).end["failure_mode"] == "catalogued_unhandled"


def test_a_message_that_says_that_it_failed_is_a_failure() -> None:
    def send(status: str) -> Any:
        """Send."""
        return ToolMessage("the text", tool_call_id="1", status=status)

    adapted = made(StructuredTool.from_function(send))
    assert outcome(one_call(adapted, {"status": "success"})) == "the text"
    assert outcome(one_call(adapted, {"status": "error"})) == "failed"


# ---- kinds of tools ------------------------------------------------------------------------------------


def test_a_coroutine_alone_an_artifact_and_one_text() -> None:
    async def wait(x: int) -> tuple[str, object]:
        """Wait."""
        return f"waited {x}", object()

    own = StructuredTool.from_function(coroutine=wait, response_format="content_and_artifact")
    adapted = made(own)
    assert outcome(one_call(adapted, {"x": 2})) == "waited 2"
    assert adapted.output_schema["properties"]["result"] == {"type": "string"}
    one = OneText(name="one", func=lambda text: text.upper(), description="Shout.")
    assert made(one).run({"tool_input": "a"}, IO) == {"result": "A"}
    assert set(made(one).input_schema["properties"]) == {"tool_input"}


def test_a_class_and_a_schema_that_is_a_dict() -> None:
    class Twice(BaseTool):
        name: str = "twice"
        description: str = "Double."

        def _run(self, x: int) -> int:
            return 2 * x

    assert made(Twice()).run({"x": 4}, IO) == {"result": 8}
    assert made(Twice()).digest is not None
    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    remote = StructuredTool(
        name="remote", description="Ask.", args_schema=schema, func=lambda q: {"said": q}, metadata=None
    )
    assert made(remote).run({"q": "a"}, IO) == {"result": {"said": "a"}}
    assert made(remote).input_schema == {**schema, "additionalProperties": False}
    wide = remote.model_copy(update={"args_schema": {**schema, "additionalProperties": True}})
    assert "must be an object schema with additionalProperties: false" in refused(lambda: made(wide))


def test_arguments_that_look_like_a_call_are_arguments() -> None:
    class Echo(BaseModel):
        type: str
        args: list[int]
        id: str

    def echo(**given: Any) -> str:
        """Echo."""
        return str(sorted(given))

    lc_tool = StructuredTool.from_function(echo, args_schema=Echo)
    given = {"type": "tool_call", "args": [1], "id": "i"}
    assert outcome(one_call(made(lc_tool), given)) == "['args', 'id', 'type']"
    with pytest.raises(ValidationError):  # takes what is in `args` for all of them
        lc_tool.invoke(given)


def test_objects_in_a_result_are_invalid() -> None:
    def give(x: int) -> Any:
        """Give."""
        return {"object": object()}

    ran = one_call(made(StructuredTool.from_function(give)), {"x": 1})
    assert ran.end["failure_mode"] == "tool_output_invalid" and b"0x" not in ran.state


# ---- what is refused -----------------------------------------------------------------------------------


def test_what_is_refused() -> None:
    @tool
    def held(x: int, state: Annotated[dict[str, int], InjectedToolArg]) -> int:
        """Look."""
        return x

    @tool
    def bag(data: dict[str, Any]) -> str:
        """Take."""
        return ""

    assert "'state' is injected by LangChain" in refused(lambda: made(held))
    assert "lets undeclared" in refused(lambda: made(bag)) or "any text" in refused(lambda: made(bag))
    assert "resources={'/pages/*/url': " in refused(lambda: made(crawl))
    assert "is not a LangChain tool" in refused(lambda: made(len))
    assert made(bag, resources={"data": "none"}).resources == ()


# ---- nothing leaks -------------------------------------------------------------------------------------


class Listener(BaseCallbackHandler):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_tool_start(self, serialized: Any, input_str: str, **kwargs: Any) -> None:
        self.heard.append(input_str)


def test_no_tracing_of_the_environment_and_no_inherited_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    import langsmith.utils

    seen: list[object] = []

    @tool
    def look(x: int) -> int:
        """Look."""
        seen.append((langsmith.utils.tracing_is_enabled(), ensure_config()["tags"]))
        return x

    monkeypatch.setenv("LANGSMITH_TRACING", "true")
    monkeypatch.setenv("LANGSMITH_ENDPOINT", "http://127.0.0.1:9")
    langsmith.utils.get_env_var.cache_clear()
    assert langsmith.utils.tracing_is_enabled()
    listener = Listener()
    token = var_child_runnable_config.set({"callbacks": [listener], "tags": ["outer"]})
    try:
        assert made(look).run({"x": 1}, IO) == {"result": 1}
    finally:
        var_child_runnable_config.reset(token)
        langsmith.utils.get_env_var.cache_clear()
    assert seen == [(False, [])] and listener.heard == []
    own = look.model_copy(update={"callbacks": [listener]})
    made(own).run({"x": 2}, IO)
    assert listener.heard == ["{'x': 2}"], "what is set on the tool itself is called"
