"""An agent whose model is a plain function over OpenAI's chat completions, here of a server on this machine.

    python live/agent.py ADDRESS

Prints each line of the run as it happens, records it in `.live/run`, and replays it without the model. A model this
small chooses badly, which suits a gate.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

from tachograph import Agent, LLMInput, LLMOutput, Policy, ToolCall, record, replay
from tachograph.evidence.show import words
from tachograph.runtime.log.events import Event

ROOT = Path(__file__).resolve().parent.parent
OUT = ".live/run"
QUESTION = "What must a driver do when the recorder fails on the road?"
# decoding that repeats itself, and for which a small model does not say the same thing twice
OPTIONS = {"temperature": 0, "seed": 7, "cache_prompt": False, "presence_penalty": 2, "repeat_last_n": 200}


class SmallModel:
    """A model behind chat completions. The server holds it to the grammar of a call until it has read something."""

    __name__ = "smollm2-135m"

    def __init__(self, address: str) -> None:
        self._url = f"{address}/v1/chat/completions"

    def __call__(self, asked: LLMInput) -> LLMOutput:
        """Ask the server once."""
        has_read = any(message["role"] == "tool" and message["name"] == "read" for message in asked.messages)
        tools = [] if has_read else [_tool(offer) for offer in asked.tools]
        body: dict[str, Any] = {
            **OPTIONS,
            "model": "smollm2-135m",
            "messages": [_message(message) for message in asked.messages],
            "max_tokens": min(asked.max_output_tokens, 400),
        }
        if tools:
            body |= {"tools": tools, "tool_choice": "required"}
        request = urllib.request.Request(
            self._url, json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            reply = json.load(answer)
        said, used = reply["choices"][0]["message"], reply["usage"]
        calls = [
            ToolCall(call["function"]["name"], call["function"]["arguments"])
            for call in said.get("tool_calls") or ()
        ]
        text = said.get("content") or ""
        return LLMOutput(
            text=text if calls else None,
            tool_calls=calls,
            final_answer=None if calls else text,
            usage={"input_tokens": used["prompt_tokens"], "output_tokens": used["completion_tokens"]},
            finish_reason="tool_calls" if calls else "stop",
        )


def _tool(offer: Any) -> dict[str, Any]:
    function = {"name": offer.name, "description": offer.description, "parameters": offer.input_schema}
    return {"type": "function", "function": function}


def _message(message: dict[str, Any]) -> dict[str, Any]:
    if "tool_calls" not in message:
        return message
    calls = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": call["arguments"]},
        }
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def tell(event: Event) -> None:
    """Print a line of the run."""
    print(f"{event.at:>10}  {words(event)[:160]}", flush=True)


def main(address: str) -> int:
    """Run the agent; 1 where no call was decided or the run did not come to a known end."""
    agent = Agent(
        SmallModel(address),
        ["search", "read"],
        Policy.load(ROOT / "policy" / "live_demo.yaml"),
        mounts={"corpus": "data/corpus/v1"},
        root=ROOT,
    )
    result = record(agent, QUESTION, out=OUT, replace=True, listen=tell)
    print(f"live-demo: {result.ending} after {result.steps} steps, recorded in {OUT}")
    lines = len(replay(agent, OUT).events)
    print(f"live-demo: replayed without the model, {lines} lines are the same")
    return 0 if result.ending == "final_answer" else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
