"""A model of pydantic-ai as the model of an agent: Gemini, Bedrock, Groq, Mistral and whatever else it speaks to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...fail.errors import InvalidModelOutput, ModelError, TransientModelError
from ..log.values import ModelName
from .providers.failures import is_transient
from .types import LLMInput, LLMOutput, ToolCall

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model

_KEY: Final = "pydantic_ai"  # of what a reply holds that has to be sent back, such as signatures of thoughts
_FINISHED: Final = {
    "stop": "stop",
    "length": "length",
    "content_filter": "refusal",
    "tool_call": "tool_calls",
}


class PydanticAiModel:
    """A model of pydantic-ai, to be given to an agent. No attempt is repeated here: retries are recorded.

    Args:
        model: The model, such as `GoogleModel("gemini-2.5-flash")`.
        **settings: Its `ModelSettings`, such as `temperature=0.0`.

    Attributes:
        name: What a record calls it.
        options: The settings.
    """

    def __init__(self, model: Model, **settings: Any) -> None:
        self._model, self.options = model, settings
        self.name = ModelName(model.system, model.model_name)

    async def __call__(self, asked: LLMInput) -> LLMOutput:
        """Ask the model once.

        Raises:
            TransientModelError: The service is busy, or could not be reached.
            InvalidModelOutput: The reply cannot be used.
            ModelError: Anything else that failed.
        """
        from pydantic_ai.direct import model_request
        from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UnexpectedModelBehavior
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.tools import ToolDefinition

        tools = [
            ToolDefinition(
                name=tool.name, description=tool.description, parameters_json_schema=tool.input_schema
            )
            for tool in asked.tools
        ]
        limit = max(1, min(asked.max_output_tokens, self.options.get("max_tokens", asked.max_output_tokens)))
        settings: Any = {**self.options, "max_tokens": limit}
        parameters = ModelRequestParameters(function_tools=tools)
        try:
            response = await model_request(
                self._model, _sent(asked), model_settings=settings, model_request_parameters=parameters
            )
        except ModelHTTPError as error:
            kind = TransientModelError if is_transient(error.status_code) else ModelError
            raise kind(
                f"{self.name.provider} answered {error.status_code}", status=error.status_code
            ) from error
        except ModelAPIError as error:
            raise TransientModelError(f"{self.name.provider} could not be reached") from error
        except UnexpectedModelBehavior as error:
            raise InvalidModelOutput(f"{self.name.provider} sent no usable reply") from error
        return _read(response)


def _sent(asked: LLMInput) -> list[ModelMessage]:
    """Return the conversation in the types of pydantic-ai."""
    from pydantic_ai.messages import (
        ModelMessagesTypeAdapter,
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )

    found: list[Any] = []
    if asked.instructions:
        found.append(ModelRequest(parts=[SystemPromptPart(asked.instructions)]))
    for message in asked.messages:
        content = message["content"]
        if message["role"] == "user":
            found.append(ModelRequest(parts=[UserPromptPart(content)]))
        elif message["role"] == "tool":
            part = ToolReturnPart(message["name"], content, message["tool_call_id"])
            found.append(ModelRequest(parts=[part]))
        elif isinstance(kept := message.get("raw"), dict) and _KEY in kept:
            (response,) = ModelMessagesTypeAdapter.validate_python([kept[_KEY]])
            calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
            for proposed, call in zip(calls, message.get("tool_calls", ()), strict=True):
                proposed.tool_call_id = call["id"]  # ids are ours
            found.append(response)
        else:
            parts: list[Any] = [TextPart(content)] if content else []
            parts += [
                ToolCallPart(it["name"], it["arguments"], it["id"]) for it in message.get("tool_calls", ())
            ]
            found.append(ModelResponse(parts=parts))
    return found


def _read(response: Any) -> LLMOutput:
    from pydantic_ai.messages import ModelMessagesTypeAdapter, TextPart, ToolCallPart

    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
    (kept,) = ModelMessagesTypeAdapter.dump_python([response], mode="json")
    used = response.usage
    usage = {
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "cached_tokens": used.cache_read_tokens,
        "cache_write_tokens": used.cache_write_tokens,
        "reasoning_tokens": used.details.get("reasoning_tokens", 0),
    }
    return LLMOutput(
        text=text if calls else None,
        tool_calls=[ToolCall(part.tool_name, {} if part.args is None else part.args) for part in calls],
        final_answer=None if calls else text,
        usage=usage,
        finish_reason=_FINISHED.get(response.finish_reason or "", "other")
        if response.finish_reason
        else None,
        model=response.model_name,
        raw={_KEY: kept}
        if any(part.part_kind not in ("text", "tool-call") for part in response.parts)
        else None,
    )
