"""Tachograph: a governed agent runtime that leaves a record a stranger can trust.

from tachograph import Agent, LLMOutput, Policy, ToolCall, record

agent = Agent(llm=my_model, tools=["search", "read"], policy=Policy.load("policy/v1.yaml"))
result = agent.run("What must a driver do when the recorder fails?")
record(agent, "What must a driver do when the recorder fails?", out="my-runs/first")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .evidence.record import record
    from .evidence.replay import replay
    from .evidence.resume import resume
    from .fail.errors import (
        Cancelled,
        CorpusError,
        EffectInDoubt,
        ExpectationError,
        InputError,
        InvalidModelOutput,
        ModelError,
        OutputError,
        PolicyError,
        RecordError,
        ReplayError,
        Suspended,
        TachographError,
        TaskError,
        ToolError,
        TransientModelError,
    )
    from .runtime.agent import Agent
    from .runtime.clock import SystemClock, VirtualClock
    from .runtime.effects import Answer, AskHuman, AskModel, Call, Decided, Invoke, Outcome, Wait
    from .runtime.gate import Counters, Decision, decide
    from .runtime.listeners import Notice
    from .runtime.llm import LLMInput, LLMOutput, ToolCall, ToolSpec
    from .runtime.policy import Policy
    from .runtime.setting import RunResult
    from .runtime.stub import Stub
    from .runtime.tools import Tool, load_module
    from .runtime.workspace import Host, Mount

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "Answer",
    "AskHuman",
    "AskModel",
    "Call",
    "Cancelled",
    "CorpusError",
    "Counters",
    "Decided",
    "Decision",
    "EffectInDoubt",
    "ExpectationError",
    "Host",
    "InputError",
    "InvalidModelOutput",
    "Invoke",
    "LLMInput",
    "LLMOutput",
    "ModelError",
    "Mount",
    "Notice",
    "Outcome",
    "OutputError",
    "Policy",
    "PolicyError",
    "RecordError",
    "ReplayError",
    "RunResult",
    "Stub",
    "Suspended",
    "SystemClock",
    "TachographError",
    "TaskError",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolSpec",
    "TransientModelError",
    "VirtualClock",
    "Wait",
    "__version__",
    "decide",
    "load_module",
    "record",
    "replay",
    "resume",
]

_NAMES = {
    "evidence.record": "record",
    "evidence.replay": "replay",
    "evidence.resume": "resume",
    "fail.errors": (
        "Cancelled CorpusError EffectInDoubt ExpectationError InputError InvalidModelOutput "
        "ModelError OutputError PolicyError RecordError ReplayError Suspended TachographError "
        "TaskError ToolError TransientModelError"
    ),
    "runtime.agent": "Agent",
    "runtime.clock": "SystemClock VirtualClock",
    "runtime.effects": "Answer AskHuman AskModel Call Decided Invoke Outcome Wait",
    "runtime.gate": "Counters Decision decide",
    "runtime.listeners": "Notice",
    "runtime.llm": "LLMInput LLMOutput ToolCall ToolSpec",
    "runtime.policy": "Policy",
    "runtime.setting": "RunResult",
    "runtime.stub": "Stub",
    "runtime.tools": "Tool load_module",
    "runtime.workspace": "Host Mount",
}
_PLACES = {name: module for module, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:  # a type checker reads the imports above

    def __getattr__(name: str) -> Any:
        """A name of the package, loaded when it is first asked for: a command needs few of them."""
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f".{_PLACES[name]}", __name__), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_PLACES})
