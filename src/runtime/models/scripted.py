"""Answer from a script, by step; answers can refer to the run's actual tool results.

A script is a list of turns: `{say, calls: [{tool, arguments | arguments_text}], answer, usage, finish_reason}`.
Inside `arguments` and `answer`, `{$result: N, at: POINTER}` stands for a value of the N-th tool result so far
(from 0), `{$join: [...]}` for the texts and whole numbers in the list put together. A script that runs out or
a pointer to nothing is an error: the stub never invents a reply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import json

from ...fail.errors import InputError, TaskError
from ..formats import json_pointer, strict_json
from ..log.values import ModelName
from .failure_messages import SUMMARIZE
from .types import LLMInput, LLMOutput, ToolCall

# the keys of the message that a model gets in place of the result of a denied call
_DENIAL = {"error", "rule", "reason", "executed", "retryable"}
_TURN = {"say", "calls", "answer", "usage", "finish_reason", "summary"}
_CALL = {"tool", "arguments", "arguments_text"}
_KEYS = 8  # keys of a result that are named
_MAX_DENIAL = 300  # characters of a rule and its reason
# makes an error from (JSON Pointer within the turns, message, remedy)
MakeError = Callable[[str, str, str], InputError]


def _plain_error(pointer: str, message: str, remedy: str) -> TaskError:
    return TaskError(f"{message} (at {pointer or '/'})", file="<script>", remedy=remedy)


class Script:
    """A model callable over a script. Indexed by step, so that asking again gives the same reply.

    Args:
        turns: The turns.
        error: Makes an error at a place of the script.
        name: The name of the model that it stands for.
    """

    def __init__(
        self, turns: Sequence[dict[str, Any]], error: MakeError = _plain_error, name: str = "script"
    ) -> None:
        self._turns = list(turns)
        self._error = error
        self.name = ModelName("stub", name, "stub")
        self._check_keys()

    def _check_keys(self) -> None:
        """Raise TaskError for a turn or a call with an unknown key, which would be passed over."""
        for index, turn in enumerate(self._turns):
            parts = [(f"/{index}", "turn", turn, set[str](), _TURN)]
            if isinstance(turn, dict):
                calls = enumerate(turn.get("calls", ()))
                parts += [(f"/{index}/calls/{i}", "call", call, {"tool"}, _CALL) for i, call in calls]
            for where, what, part, needed, known in parts:
                if not isinstance(part, dict) or not needed <= part.keys() <= known:
                    remedy = f"a {what} is a dict with keys of {', '.join(sorted(known))}"
                    raise self._error(where, f"is no {what} of a script", remedy)

    def __call__(self, model_input: LLMInput) -> LLMOutput:
        """Return the reply of the step. Raises TaskError where the script has none."""
        index = model_input.step_index - 1
        if index >= len(self._turns):
            has = "1 turn" if len(self._turns) == 1 else f"{len(self._turns)} turns"
            what = f"the script has {has} and turn {index + 1} is asked for"
            last = f"/{len(self._turns) - 1}" if self._turns else ""
            raise self._error(last, what, "add a turn, or end the script with an answer")
        turn = self._turns[index]
        if str(model_input.messages[-1].get("content")).startswith(SUMMARIZE):
            if "summary" not in turn:
                raise self._error(f"/{index}", "the script has no summary here", "add summary to the turn")
            return LLMOutput(final_answer=turn["summary"], usage=turn.get("usage"), model="stub")
        where = f"/{index}"
        calls = []
        for i, call in enumerate(turn.get("calls", ())):
            arguments = call.get("arguments_text")
            if "arguments_text" not in call:
                arguments = self._fill(call.get("arguments", {}), model_input, f"{where}/calls/{i}/arguments")
                if not isinstance(arguments, dict):
                    arguments = strict_json.canonical(arguments).decode()
            calls.append(ToolCall(call["tool"], arguments))
        answer = turn.get("answer")
        if answer is not None:
            answer = self._fill(answer, model_input, f"{where}/answer")
            if not isinstance(answer, str):
                remedy = "point at a string or use $join"
                raise self._error(f"{where}/answer", "the answer must be text", remedy)
        return LLMOutput(
            text=turn.get("say"),
            tool_calls=calls,
            final_answer=answer,
            usage=turn.get("usage"),
            finish_reason=turn.get("finish_reason", "tool_calls" if calls else "stop"),
            model="stub",
        )

    def _fill(self, value: Any, model_input: LLMInput, where: str) -> Any:
        if isinstance(value, list):
            return [self._fill(item, model_input, f"{where}/{i}") for i, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        if "$result" in value:
            return self._point(value, model_input, where)
        if "$join" in value:
            parts = self._fill(value["$join"], model_input, f"{where}/$join")
            if not isinstance(parts, list) or not all(type(part) in (str, int) for part in parts):
                raise self._error(where, "$join takes a list of texts and whole numbers", "point at such")
            return "".join(map(str, parts))
        return {key: self._fill(item, model_input, f"{where}/{key}") for key, item in value.items()}

    def _point(self, value: dict[str, Any], model_input: LLMInput, where: str) -> Any:
        number, pointer = value["$result"], value.get("at", "")
        results = [message for message in model_input.messages if message["role"] == "tool"]
        if type(number) is not int or not 0 <= number < len(results):
            what = f"$result {number} does not exist, there are {len(results)} so far"
            raise self._error(where, what, "count from 0")
        if type(pointer) is not str:
            raise self._error(where, "at is not a JSON Pointer", "write one, such as /hits/0/id")
        result = json.decode(results[number]["content"])
        try:
            return json_pointer.get(result, pointer)
        except (KeyError, IndexError, ValueError, TypeError):
            raise self._error(where, *_nothing_at(pointer, number, result)) from None


def _nothing_at(pointer: str, number: int, result: Any) -> tuple[str, str]:
    """Return message and remedy for a pointer that finds nothing: a refused call has no result."""
    nothing = f"pointer {pointer!r} finds nothing in result {number}"
    if isinstance(result, dict) and result.get("error") == "tool_failed":
        words = ", ".join(str(result[key]) for key in ("kind", "exception", "reason") if key in result)
        what = f"{nothing}, since the call failed: {words[:_MAX_DENIAL]}"
        return what, "fix what the tool met, or the script"
    if isinstance(result, dict) and result.keys() == _DENIAL and result["error"] == "policy_denied":
        denial = f"{result['rule']}: {result['reason']}"[:_MAX_DENIAL]
        return f"{nothing}, which is a denial by {denial}", "fix the policy, or what the script does then"
    has = ", ".join(map(str, list(result)[:_KEYS])) if isinstance(result, dict) else "no keys"
    return nothing, f"the result has {has}"
