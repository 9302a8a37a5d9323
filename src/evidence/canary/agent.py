"""An agent that meets a marked value in every way in: its model, its tools, its hooks and who answers its questions."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from ...fail.errors import InputError, TransientModelError
from ...light_dataclasses import dataclass, field
from ...runtime.agent import Agent
from ...runtime.core.effects import Answer, AskHuman
from ...runtime.models.types import LLMInput, LLMOutput, ToolCall
from ...runtime.policy.policy import Policy
from ...runtime.tools.contract import Tool
from ...runtime.tools.hooks import Hooks
from .loopback import ask

VARIABLE: Final = "TACHOGRAPH_CANARY"  # the environment variable that holds a marked value
_DENIED_HOST: Final = "http://denied.test/"
_FIRST_ANSWER: Final = '{"said":"nothing"}'
_WHAT: Final = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"what": {"type": "string", "maxLength": 400}},
}
_URL: Final = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"url": {"type": "string", "x-resource": "url"}},
}
_SAID: Final = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"said": {"type": ["string", "array", "object"]}},
}


def policy_for(redact: Any, address: str) -> Policy:
    """Return a policy that lets the agent do what it is to do.

    Args:
        redact: The section `redact` of the policy that is tried; None where it has none.
        address: HOST:PORT of the loopback server.
    """
    data: dict[str, Any] = {
        "schema": "policy/v1",
        "tool_registry": {"allowed": ["peek", "fetch", "request", "keep", "fail", "ask"], "denied": []},
        "url_allowlist": [f"http://{address}/"],
        "private_networks": ["127.0.0.1/32"],
        "sandbox": {"mounts": {"box": "write"}},
        "loop_budget": {
            "max_iterations": 60,
            "max_tokens": 500_000,
            "max_tool_calls": 90,
            "max_result_bytes": 100_000,
        },
        "cycle_detection": {"max_repeats": 3},
        "retry": {"max_retries": 1, "backoff_base_ms": 1, "backoff_cap_ms": 1},
        "on_deny": "inform",
        "on_failure": {"default": "inform"},
        "approval": {"required_for": ["ask"], "timeout_s": 60},
    }
    if redact is not None:
        data["redact"] = redact
    return Policy.from_dict(data)


def turns_of(values: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return what the model replies, by step; each way in comes in by one of the turns or by what it calls."""

    def call(tool: str, arguments: Any) -> dict[str, Any]:
        return {"tool": tool, "arguments": arguments}

    looks = ("tool_result", "tool_result_name", "environment", "hook_reason", "hook_arguments", "hook_result")
    first: list[Any] = [
        {
            "error": {"message": f"the key {values['model_error']} is refused"},
            "text": f"I look: {values['reply']} is what I was told, and so I go on.",
            "model": f"model-{values['reply_model']}",
            "finish_reason": values["reply_finish"],
            "usage": {"input_tokens": 1, "output_tokens": 1, values["reply_usage"]: 1},
            "raw": {"kept": values["reply_raw"]},
            "calls": [call(values["tool_name"], {}), call("peek", {values["argument_name"]: "x"})],
        },
        {
            "calls": [
                call("peek", {"what": values["argument"]}),
                call("peek", f"no {values['argument_text']}"),
            ]
        },
        # calls that run together, and number their secrets in the order of the reply
        {"calls": [call("peek", {"what": what}) for what in (*looks, "hook_error")]},
    ]
    then: list[Any] = [
        *({"calls": [call("fail", {"what": what})]} for what in ("tool_error", "tool_error_note")),
        {"calls": [call("fail", {"what": "tool_error_class"})]},
        *(
            {"calls": [call("request", {"what": what})]}
            for what in (
                "url",
                "request_header",
                "redirect",
                "redirect_denied",
                "response_header",
                "response_body",
            )
        ),
        {"calls": [call("fetch", {"url": f"{_DENIED_HOST}{values['url_denied']}"})]},
        *({"calls": [call("keep", {"what": what})]} for what in ("file_name", "file_denied", "file_text")),
        {"calls": [call("ask", {"what": "may I?"})]},
        {"answer": json.dumps({values["answer_misfit"]: 1})},
        {"answer": _FIRST_ANSWER},
        {"answer": json.dumps({"said": f"It was {values['answer']}, as asked."})},
    ]
    return first + then


def pages_of(values: Mapping[str, str]) -> dict[str, tuple[int, Mapping[str, str], str]]:
    """Return the pages that the tools ask for: path -> (status, headers, body)."""
    return {
        f"/{values['url']}": (200, {}, "a page"),
        "/request_header": (200, {}, "a page"),
        "/redirect": (302, {"Location": f"/{values['redirect']}"}, ""),
        f"/{values['redirect']}": (200, {}, "a page"),
        "/redirect_denied": (302, {"Location": f"{_DENIED_HOST}{values['redirect_denied']}"}, ""),
        "/response_header": (200, {"X-Token": values["response_header"]}, "a page"),
        "/response_body": (200, {}, f"token: {values['response_body']}"),
    }


@dataclass
class Model:
    """A model that replies turn by turn: out of a script, or over loopback, whole or in pieces.

    Attributes:
        turns: What it replies, by step from 0.
        address: HOST:PORT of the loopback server for a live model; None for a scripted one.
        streams: Whether its text comes in pieces.
        on_text: Gets the pieces too, beside whoever listens to the run.
        cut_at: The step at which the run dies, None for none.
    """

    turns: Sequence[Mapping[str, Any]]
    address: str | None
    streams: bool
    exception: str
    on_text: Callable[[str], None] | None = None
    cut_at: int | None = None
    _asked: dict[int, int] = field(default_factory=dict)

    @property
    def identity(self) -> dict[str, Any]:
        """What a record says of the model."""
        path = "stub" if self.address is None else "live"
        return {"execution_path": path, "provider": "canary", "name": "canary", "script_digest": None}

    def __call__(self, asked: LLMInput) -> LLMOutput:
        """Return the reply of the step; its first attempt fails where the turn says so."""
        step = asked.step_index - 1
        if step == self.cut_at:
            raise InputError("the run is cut off here, to be resumed")
        self._asked[step] = attempt = self._asked.get(step, 0) + 1

        def piece(text: str) -> None:
            for listener in (asked.on_text, self.on_text):
                if listener is not None:
                    listener(text)

        turn: Mapping[str, Any] = self.turns[step]
        failed = attempt == 1 and "error" in turn
        if self.address is not None:
            status, turn = ask(self.address, step, attempt, piece if self.streams else None)
            failed = status != 200
        if failed:
            said = turn["error"]["message"]
            raise TransientModelError(f"it broke off: {self.exception}", status=503, service_text=said)
        return LLMOutput(
            text=turn.get("text"),
            tool_calls=[ToolCall(call["tool"], call["arguments"]) for call in turn.get("calls", ())],
            final_answer=turn.get("answer"),
            usage=turn.get("usage"),
            finish_reason=turn.get("finish_reason", "tool_calls" if "calls" in turn else "stop"),
            model=turn.get("model"),
            raw=turn.get("raw"),
        )


def agent_of(model: Model, policy: Policy, values: Mapping[str, str], url: str) -> Agent:
    """Return the agent: `url` is that of the loopback server."""
    return Agent(
        model,
        _tools(values, url),
        policy,
        output_type=_SAID,
        instructions=f"Be careful with {values['instructions']} and {{variable}}.",
        hooks=Hooks(
            before_call=lambda data: _before_call(data, values),
            after_call=lambda data: _after_call(data, values),
            on_stop=lambda data: _on_stop(data, values),
            name="canary",
        ),
    )


def history_of(values: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the messages before the question."""
    called = values["history_call_id"]
    return [
        {"role": "user", "content": f"Before: {values['history']}"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": called, "name": "peek", "arguments": "{}"}],
        },
        {"role": "tool", "tool_call_id": called, "name": "peek", "content": "{}"},
        {"role": "assistant", "content": "Done."},
    ]


def approver(values: Mapping[str, str]) -> Callable[[AskHuman], Answer]:
    """Return who answers the questions of the run."""

    def approve(_question: AskHuman) -> Answer:
        by, why = values["approval_name"], values["approval_reason"]
        return Answer("allow", by=by, why=why, signature=values["approval_signature"])

    return approve


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Hold a marked value in an environment variable for a while."""
    os.environ[VARIABLE] = values["environment"]
    try:
        yield
    finally:
        del os.environ[VARIABLE]


def _tools(values: Mapping[str, str], url: str) -> list[Tool]:
    def peek(arguments: dict[str, Any], _io: Any) -> dict[str, Any]:
        what = arguments.get("what", "")
        said = {
            "tool_result": values["tool_result"],
            "tool_result_name": {values["tool_result_name"]: "x"},
            "environment": os.environ[VARIABLE],
        }
        return {"said": said.get(what, what)}

    def fail(arguments: dict[str, Any], _io: Any) -> dict[str, Any]:
        what = arguments["what"]
        if what == "tool_error_class":
            raise type(f"Refused_{values[what]}", (Exception,), {})("no")
        error = ValueError(values[what] if what == "tool_error" else "no")
        if what == "tool_error_note":
            error.add_note(values[what])
        raise error

    def fetch(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
        return {"said": io.get(arguments["url"]).text}

    def request(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
        what = arguments["what"]
        sent = {"X-Token": values[what]} if what == "request_header" else {}
        answer = io.request("GET", f"{url}/{values['url'] if what == 'url' else what}", sent)
        return {"said": {"headers": dict(answer.headers), "text": answer.text, "url": answer.url}}

    def keep(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
        what = arguments["what"]
        if what == "file_denied":
            return {"said": io.read(f"elsewhere/{values[what]}.txt")}
        path = f"box/{values['file_name']}.txt"
        if what == "file_name":
            io.write(path, values["file_text"])
            return {"said": io.list("box")}
        return {"said": io.read(path)}

    def ask_person(_arguments: dict[str, Any], _io: Any) -> dict[str, Any]:
        return {"said": "allowed"}

    known = (
        ("peek", "pure", _WHAT, peek),
        ("fail", "pure", _WHAT, fail),
        ("fetch", "network", _URL, fetch),
        ("request", "network", _WHAT, request),
        ("keep", "write", _WHAT, keep),
        ("ask", "pure", _WHAT, ask_person),
    )
    return [
        Tool(name, f"The tool {name} of the trial.", schema, _SAID, effect, True, run)
        for name, effect, schema, run in known
    ]


def _before_call(data: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any] | None:
    arguments = data["call"]["arguments"] or {}
    what = arguments.get("what") if isinstance(arguments, dict) else None
    if what == "hook_reason":
        return {"deny": f"because of {values[what]}"}
    if what == "hook_arguments":
        return {"arguments": {"what": f"rather {values[what]}"}}
    if what == "hook_error":
        raise ValueError(values[what])
    return None


def _after_call(data: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any] | None:
    arguments = data["call"]["arguments"] or {}
    what = arguments.get("what") if isinstance(arguments, dict) else None
    return {"result": {"said": values[what]}} if what == "hook_result" else None


def _on_stop(data: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any] | None:
    is_first = data["answer"] == _FIRST_ANSWER
    return {"send_back": f"Say more of {values['hook_message']}."} if is_first else None
