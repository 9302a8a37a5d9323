"""Logs made by hand, line by line, as the loop writes them. A model takes 200 ns, an attempt 20 ns, a wait 5 ms."""

from __future__ import annotations

from typing import Any

from tachograph.runtime.log.events import (
    Decided,
    Event,
    Failed,
    ModelReplied,
    Outcome,
    RunEnded,
    RunStarted,
    StepEnded,
    Stopped,
    ToolReturned,
    Waited,
)
from tachograph.runtime.log.values import Call, Fact, ModelName, PolicyHead, Usage

BEGAN = 1_767_225_600_000_000_000
LIMITS = {"max_iterations": 10, "max_tokens": 500, "max_tool_calls": 40, "max_result_bytes": 1000}


class Log:
    """A log under way: each method writes the line it is called after.

    Args:
        head: Fields of the head that differ.
    """

    def __init__(self, **head: Any) -> None:
        fields: dict[str, Any] = {
            "run_id": "kind-name-s7",
            "question": "What is there?",
            "model": ModelName("stub", "script", "stub"),
            "policy": PolicyHead("policy/v1.yaml", "0123456789ab", "inform", LIMITS),
            "task": "tasks/kind/name.yaml",
            "began": BEGAN,
        }
        self.events: list[Event] = [RunStarted(at="0", **{**fields, **head})]
        self._step, self._time = 1, 0

    def at(self, key: str) -> str:
        return f"{self._step}.{key}"

    def _outcome(self, kind: type[Outcome], key: str, took: int, fields: dict[str, Any]) -> Log:
        self._time += took
        self.events.append(kind(at=self.at(key), t=self._time, took=took, **fields))
        return self

    def replied(self, *calls: Call, attempt: int = 1, **fields: Any) -> Log:
        named = [
            Call(f"tc_{self._step}_{n}", c.name, c.arguments, c.text, c.problem) for n, c in enumerate(calls)
        ]
        fields = {"usage": Usage(30, 4), "finish": "tool_calls" if calls else "stop", **fields}
        return self._outcome(ModelReplied, f"m{attempt}", 200, {"calls": named, **fields})

    def decided(self, key: str, decision: str = "allow", rule: str = "tool_registry", **fields: Any) -> Log:
        said = {"place": f"policy/v1.yaml#/{rule}", "reason": "so it is written", **fields}
        self.events.append(Decided(at=self.at(key), decision=decision, rule=rule, **said))  # type: ignore[arg-type]
        return self

    def returned(self, key: str, met: list[Fact] | None = None, size: int = 10) -> Log:
        return self._outcome(
            ToolReturned, key, 20, {"result": {"said": "ok"}, "size": size, "met": met or []}
        )

    def failed(self, key: str, error: str = "ConnectionError", kind: str = "transient", **fields: Any) -> Log:
        return self._outcome(Failed, key, 20, {"error": error, "kind": kind, **fields})

    def waited(self, key: str) -> Log:
        return self._outcome(Waited, key, 5_000_000, {})

    def stopped(self, key: str, took: int = 7) -> Log:
        return self._outcome(Stopped, key, took, {"why": "cancelled"})

    def stepped(self, mode: str = "") -> Log:
        self.events.append(StepEnded(at=self.at("e"), added="0" * 12, mode=mode))
        self._step, self._time = self._step + 1, 0
        return self

    def ended(self, ending: str = "final_answer", answer: str | None = None, mode: str = "") -> list[Event]:
        self.events.append(RunEnded(at="end", ending=ending, answer=answer, mode=mode, sha256="0" * 64))
        return self.events

    def gave_up(self, mode: str, ending: str = "failure_mode_terminal") -> list[Event]:
        return self.stepped(mode).ended(ending, mode=mode)

    def answered(self, answer: str = "It is there.") -> list[Event]:
        return self.replied(answer=answer).stepped().ended(answer=answer)


def call(name: str = "probe", **arguments: Any) -> Call:
    """Return a call without its id, which `Log.replied` gives."""
    return Call("", name, arguments)
