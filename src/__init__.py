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
    from .adapters.functions import tool, tool_from_function
    from .evidence.checking.replay import replay
    from .evidence.recording.async_record import arecord, record_stream
    from .evidence.recording.record import record
    from .evidence.recording.resume import resume
    from .fail.catalog import Ending, FailureMode, Rule
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
    from .runtime.core.clock import Clock, SystemClock, VirtualClock
    from .runtime.core.effects import (
        Answer,
        AskHook,
        AskHuman,
        AskModel,
        Call,
        Decided,
        Fault,
        Invoke,
        Outcome,
        Reply,
        StepEnded,
        Wait,
    )
    from .runtime.core.lines import DecisionEntry, StepLine, ToolResultEntry, UsageEntry
    from .runtime.driver.ports import RunEvent
    from .runtime.driver.stopping.scopes import Scope
    from .runtime.events import AgentEvent, EventListener, events_of
    from .runtime.models.providers import open_model
    from .runtime.models.scripted import Stub
    from .runtime.models.types import LLMInput, LLMOutput, Message, ToolCall, ToolSpec
    from .runtime.policy.gate import Counters, Decision, decide
    from .runtime.policy.policy import Policy
    from .runtime.setup.run_config import RunResult, StepLines, StepView
    from .runtime.tools.contract import Tool
    from .runtime.tools.hooks import Hooks
    from .runtime.tools.loader import load_module
    from .runtime.workspace.mounts import Host, Mount
    from .runtime.workspace.tool_io import IO, HttpResult

__version__ = "0.1.0"

__all__ = [
    "IO",
    "Agent",
    "AgentEvent",
    "Answer",
    "AskHook",
    "AskHuman",
    "AskModel",
    "Call",
    "Cancelled",
    "Clock",
    "CorpusError",
    "Counters",
    "Decided",
    "Decision",
    "DecisionEntry",
    "EffectInDoubt",
    "Ending",
    "EventListener",
    "ExpectationError",
    "FailureMode",
    "Fault",
    "Hooks",
    "Host",
    "HttpResult",
    "InputError",
    "InvalidModelOutput",
    "Invoke",
    "LLMInput",
    "LLMOutput",
    "Message",
    "ModelError",
    "Mount",
    "Outcome",
    "OutputError",
    "Policy",
    "PolicyError",
    "RecordError",
    "ReplayError",
    "Reply",
    "Rule",
    "RunEvent",
    "RunResult",
    "Scope",
    "StepEnded",
    "StepLine",
    "StepLines",
    "StepView",
    "Stub",
    "Suspended",
    "SystemClock",
    "TachographError",
    "TaskError",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolResultEntry",
    "ToolSpec",
    "TransientModelError",
    "UsageEntry",
    "VirtualClock",
    "Wait",
    "__version__",
    "arecord",
    "decide",
    "events_of",
    "load_module",
    "open_model",
    "record",
    "record_stream",
    "replay",
    "resume",
    "tool",
    "tool_from_function",
]

_NAMES = {
    "evidence.recording.async_record": "arecord record_stream",
    "evidence.recording.record": "record",
    "evidence.checking.replay": "replay",
    "evidence.recording.resume": "resume",
    "fail.catalog": "Ending FailureMode Rule",
    "fail.errors": (
        "Cancelled CorpusError EffectInDoubt ExpectationError InputError InvalidModelOutput "
        "ModelError OutputError PolicyError RecordError ReplayError Suspended TachographError "
        "TaskError ToolError TransientModelError"
    ),
    "runtime.agent": "Agent",
    "runtime.core.clock": "Clock SystemClock VirtualClock",
    "runtime.core.effects": (
        "Answer AskHook AskHuman AskModel Call Decided Fault Invoke Outcome Reply StepEnded Wait"
    ),
    "runtime.core.lines": "DecisionEntry StepLine ToolResultEntry UsageEntry",
    "runtime.policy.gate": "Counters Decision decide",
    "runtime.driver.ports": "RunEvent",
    "runtime.events": "AgentEvent EventListener events_of",
    "runtime.driver.stopping.scopes": "Scope",
    "runtime.models.types": "LLMInput LLMOutput Message ToolCall ToolSpec",
    "runtime.policy.policy": "Policy",
    "runtime.setup.run_config": "RunResult StepLines StepView",
    "runtime.models.scripted": "Stub",
    "runtime.tools.contract": "Tool",
    "runtime.tools.hooks": "Hooks",
    "runtime.tools.loader": "load_module",
    "runtime.workspace.mounts": "Host Mount",
    "runtime.workspace.tool_io": "HttpResult IO",
    "runtime.models.providers": "open_model",
    "adapters.functions": "tool tool_from_function",
}
_PLACES = {name: module for module, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:  # a type checker reads the imports above

    def __getattr__(name: str) -> Any:
        """Load a name of the package when it is first asked for: a command needs few of them."""
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f".{_PLACES[name]}", __name__), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_PLACES})
