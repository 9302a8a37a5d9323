"""What a model says, in the words of OpenAI's chat completions, which Ollama speaks too, and Anthropic's messages.

`WHOLE` and `STREAM` make the same reply in one piece and in many. Ids and dates differ every time, as a real
service's do.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Turn:
    """What the model says: text, calls as (name, arguments as text), thinking before them.

    `finish` is the service's own word for how it ended, where it is not the usual one.
    """

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    thinking: str = ""
    refusal: str = ""
    usage: tuple[int, int] | None = (11, 7)
    cached: int = 0
    finish: str | None = None


def error_event(provider: str, word: str) -> bytes:
    error = {"type": word, "message": "something about sk-ant-REQUEST-SECRET"}
    if provider != "anthropic":
        return _data({"error": error | {"code": None}})
    return b"event: error\n" + _data({"type": "error", "error": error})


def _data(value: Any) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def _pieces(text: str) -> Iterator[str]:
    """A text in pieces that respect no boundary of words or of JSON."""
    for i in range(0, len(text), 3):
        yield text[i : i + 3]


# ---- OpenAI --------------------------------------------------------------------------------------------


def _openai_usage(turn: Turn) -> dict[str, Any] | None:
    if turn.usage is None:
        return None
    read, written = turn.usage
    details = {"prompt_tokens_details": {"cached_tokens": turn.cached}}
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written, **details}


def _openai_head(kind: str, model: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{uuid.uuid4()}", "object": kind, "created": int(time.time()), "model": model}


def openai_whole(turn: Turn, model: str) -> dict[str, Any]:
    calls = [
        {"id": f"call_{uuid.uuid4()}", "type": "function", "function": {"name": name, "arguments": text}}
        for name, text in turn.calls
    ]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": turn.text or None,
        "refusal": turn.refusal or None,
    }
    if calls:
        message["tool_calls"] = calls
    if turn.thinking:
        message["reasoning_content"] = turn.thinking
    finish = turn.finish or ("tool_calls" if calls else "stop")
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    return _openai_head("chat.completion", model) | {"choices": [choice], "usage": _openai_usage(turn)}


def openai_stream(turn: Turn) -> Iterator[bytes]:
    head = _openai_head("chat.completion.chunk", "model-as-served")

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return _data(
            head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": None}
        )

    yield chunk({"role": "assistant", "content": ""})
    for name, text in (
        ("reasoning_content", turn.thinking),
        ("content", turn.text),
        ("refusal", turn.refusal),
    ):
        for piece in _pieces(text):
            yield chunk({name: piece})
    for i, (name, text) in enumerate(turn.calls):
        begun = {"index": i, "id": f"call_{uuid.uuid4()}", "type": "function"}
        yield chunk({"tool_calls": [begun | {"function": {"name": name, "arguments": ""}}]})
        for piece in _pieces(text):
            yield chunk({"tool_calls": [{"index": i, "function": {"arguments": piece}}]})
    yield chunk({}, turn.finish or ("tool_calls" if turn.calls else "stop"))
    if turn.usage is not None:
        yield _data(head | {"choices": [], "usage": _openai_usage(turn)})
    yield b"data: [DONE]\n\n"


# ---- Anthropic -----------------------------------------------------------------------------------------


def _anthropic_blocks(turn: Turn) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if turn.thinking:
        blocks.append(
            {"type": "thinking", "thinking": turn.thinking, "signature": f"sig-{len(turn.thinking)}=="}
        )
    if turn.text or turn.refusal:
        blocks.append({"type": "text", "text": turn.text or turn.refusal})
    for name, text in turn.calls:
        blocks.append({"type": "tool_use", "id": f"toolu_{uuid.uuid4()}", "name": name, "input": text})
    return blocks


def _anthropic_message(turn: Turn, model: str) -> dict[str, Any]:
    message: dict[str, Any] = {
        "id": f"msg_{uuid.uuid4()}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }
    if turn.usage is not None:
        read = {"input_tokens": turn.usage[0] - turn.cached, "cache_read_input_tokens": turn.cached}
        message["usage"] = read | {"cache_creation_input_tokens": None, "output_tokens": 1}
    return message


def _anthropic_stop(turn: Turn) -> str:
    usual = "tool_use" if turn.calls else "refusal" if turn.refusal else "end_turn"
    return turn.finish or usual


def anthropic_whole(turn: Turn, model: str) -> dict[str, Any]:
    message = _anthropic_message(turn, model)
    message["content"] = [
        block | {"input": json.loads(block["input"])} if block["type"] == "tool_use" else block
        for block in _anthropic_blocks(turn)
    ]
    message["stop_reason"] = _anthropic_stop(turn)
    if turn.usage is not None:
        message["usage"]["output_tokens"] = turn.usage[1]
    return message


def anthropic_stream(turn: Turn) -> Iterator[bytes]:
    def event(kind: str, **fields: Any) -> bytes:
        return f"event: {kind}\n".encode() + _data({"type": kind, **fields})

    yield event("message_start", message=_anthropic_message(turn, "model-as-served"))
    yield event("ping")
    for i, block in enumerate(_anthropic_blocks(turn)):
        if block["type"] == "tool_use":
            yield event("content_block_start", index=i, content_block=block | {"input": {}})
            deltas = [
                {"type": "input_json_delta", "partial_json": piece} for piece in _pieces(block["input"])
            ]
        elif block["type"] == "thinking":
            yield event(
                "content_block_start", index=i, content_block=block | {"thinking": "", "signature": ""}
            )
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        else:
            yield event("content_block_start", index=i, content_block={"type": "text", "text": ""})
            deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
        for delta in deltas:
            yield event("content_block_delta", index=i, delta=delta)
        yield event("content_block_stop", index=i)
    usage = {"output_tokens": turn.usage[1] if turn.usage else None}
    yield event(
        "message_delta", delta={"stop_reason": _anthropic_stop(turn), "stop_sequence": None}, usage=usage
    )
    yield event("message_stop")


WHOLE = {"openai": openai_whole, "anthropic": anthropic_whole, "ollama": openai_whole}
STREAM = {"openai": openai_stream, "anthropic": anthropic_stream, "ollama": openai_stream}
