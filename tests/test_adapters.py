"""Models of pydantic-ai and tools of LangChain, as an agent takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tachograph import Agent, Policy, PydanticAiModel, check, from_langchain, record, replay
from tachograph.fail.errors import ToolError
from tachograph.runtime.log.events import Failed, ModelReplied

POLICY: dict[str, Any] = {
    "schema": "policy/v1",
    "tool_registry": {"allowed": ["add", "say"]},
    "url_allowlist": [],
    "loop_budget": dict.fromkeys(
        ("max_iterations", "max_tokens", "max_tool_calls", "max_result_bytes"), 9_999
    ),
    "cycle_detection": {"max_repeats": 3},
    "retry": {"max_retries": 1, "backoff_base_ms": 0, "backoff_cap_ms": 0},
    "on_deny": "inform",
    "tools": {"say": {"resources": {"/text": "text"}}},
}


class Numbers(BaseModel):
    a: int
    b: int = 2


class Text(BaseModel):
    text: str


class OfLangChain:
    """What a tool of LangChain has, as `langchain_core.tools.StructuredTool` has it."""

    def __init__(self, name: str, schema: type[BaseModel]) -> None:
        self.name, self.description, self.tool_call_schema = name, f"{name} it.", schema

    async def ainvoke(self, arguments: dict[str, Any]) -> Any:
        read = self.tool_call_schema.model_validate(arguments)
        return read.a + read.b if isinstance(read, Numbers) else arguments["text"]


add, say = OfLangChain("add", Numbers), OfLangChain("say", Text)


class Asked:
    """A model that proposes two calls, then one for a URL, then answers; it keeps what it is asked."""

    def __init__(self) -> None:
        self.seen: list[tuple[list[ModelMessage], AgentInfo]] = []

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.seen.append((messages, info))
        if len(self.seen) == 1:
            calls = [ToolCallPart("add", {"a": 1}, "their id"), ToolCallPart("say", '{"text": "hi"}')]
            return ModelResponse(parts=[ThinkingPart("hm", signature="s"), TextPart("I add."), *calls])
        if len(self.seen) == 2:
            return ModelResponse(parts=[ToolCallPart("say", {"text": "https://evil.test/"})])
        return ModelResponse(parts=[TextPart("3")])


def test_a_model_and_tools_of_others(tmp_path: Path) -> None:
    asked = Asked()
    agent = Agent(
        PydanticAiModel(FunctionModel(asked), temperature=0.5),
        [add, say],
        Policy.from_dict(POLICY),
        instructions="Be short.",
    )
    made = record(agent, "What is 1 and 2?", out=tmp_path / "run")
    assert (made.ending, made.answer) == ("final_answer", "3")
    assert check(agent, tmp_path / "run") == []
    assert replay(agent, tmp_path / "run").answer == "3"
    assert len(asked.seen) == 3
    messages, info = asked.seen[1]
    system, question, reply, first, second = messages
    assert [part.content for it in (system, question) for part in it.parts] == [
        "Be short.",
        "What is 1 and 2?",
    ]
    thought, said, *calls = reply.parts
    assert isinstance(thought, ThinkingPart)
    assert isinstance(said, TextPart)
    assert (thought.signature, said.content) == ("s", "I add.")
    assert [getattr(part, "tool_call_id", "") for part in calls] == ["tc_1_0", "tc_1_1"]
    assert [part.content for it in (first, second) for part in it.parts] == [
        '{"result":3}',
        '{"result":"hi"}',
    ]
    assert "url_allowlist" in str(asked.seen[2][0][-1])
    assert [tool.name for tool in info.function_tools] == ["add", "say"]
    assert (info.model_settings or {})["temperature"] == 0.5
    assert (info.model_settings or {})["max_tokens"] < 9_999
    replied = next(event for event in made.events if isinstance(event, ModelReplied))
    assert replied.usage.input_tokens > 0
    assert made.events[0].model.name == "function:Asked:"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("error", "kind", "asked"),
    [
        (ModelHTTPError(429, "m"), "transient", 2),
        (ModelHTTPError(503, "m"), "transient", 2),
        (ModelHTTPError(400, "m"), "other", 1),
        (ModelAPIError("m", "gone"), "transient", 2),
        (UnexpectedModelBehavior("odd"), "invalid", 1),
    ],
)
def test_what_fails(error: Exception, kind: str, asked: int) -> None:
    def fail(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise error

    made = Agent(PydanticAiModel(FunctionModel(fail)), [], Policy.from_dict(POLICY)).run("What?")
    failed = [event for event in made.events if isinstance(event, Failed)]
    assert [event.kind for event in failed] == [kind] * asked


def test_a_tool_of_langchain_is_closed_and_external() -> None:
    made = from_langchain(add)
    assert made.effect == "external"
    assert made.input_schema["additionalProperties"] is False
    assert from_langchain(add, effect="pure").effect == "pure"
    with pytest.raises(ToolError, match="EFFECT"):
        from_langchain(add, effect="odd")
