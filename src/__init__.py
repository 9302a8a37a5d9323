"""A governed agent runtime: a policy gate before every tool call, and a record that a stranger can re-derive.

`__all__` names all that is public, and `help(tachograph.NAME)` describes a name. Begin with `Agent`, `Policy`, `tool`
and `record`. `tachograph.testing` asks the gate from tests.
"""

from importlib import import_module

# Type checkers know this name. `typing` is not imported here, so that a command does so after `cli/__init__.py` has
# raised the threshold of the garbage collector.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .cli.approval import approve_at_terminal
    from .evidence.agent_runs import acheck, arecord, aresume, check, record, replay, resume
    from .evidence.sessions import Session
    from .evidence.sync_sessions import SyncSession
    from .fail.errors import InputError, ToolFailure, TransientModelError
    from .runtime.agent import Agent
    from .runtime.driver import InDoubt
    from .runtime.effects import AskPerson
    from .runtime.graphs import Graph, loop_until, parallel, route, sequence
    from .runtime.log.journal import Diverged
    from .runtime.log.values import WindowLimits
    from .runtime.loop.hooks import Hooks
    from .runtime.mcp.server import mcp
    from .runtime.models.fallback import Fallback
    from .runtime.models.langchain import LangChainModel
    from .runtime.models.providers import model_of
    from .runtime.models.types import LLMInput, LLMOutput, Piece, ToolCall
    from .runtime.policy.policy import Policy
    from .runtime.run_result import RunResult, Turn
    from .runtime.schema.answer_type import AnswerMismatch
    from .runtime.schema.python_types import AnyText, ReadPath, Text, Url, WritePath
    from .runtime.tools.agents import delegate
    from .runtime.tools.contract import Tool
    from .runtime.tools.functions import Context, tool
    from .runtime.tools.langchain import from_langchain
    from .runtime.world.people import Answer

__all__ = [
    "Agent", "Answer", "AnswerMismatch", "AnyText", "AskPerson", "Context", "Diverged", "Fallback", "Graph",
    "Hooks", "InDoubt", "InputError", "LLMInput", "LLMOutput", "LangChainModel", "Piece", "Policy",
    "ReadPath", "RunResult", "Session", "SyncSession", "Text", "Tool", "ToolCall", "ToolFailure",
    "TransientModelError", "Turn", "Url", "WindowLimits", "WritePath", "acheck", "approve_at_terminal",
    "arecord", "aresume", "check", "delegate", "from_langchain", "loop_until", "mcp", "model_of",
    "parallel", "record", "replay", "resume", "route", "sequence", "tool",
]  # fmt: skip
# imported when they are asked for: the command line starts without what it does not need
_PLACES = {
    "cli.approval": "approve_at_terminal",
    "evidence.agent_runs": "acheck arecord aresume check record replay resume",
    "evidence.sessions": "Session",
    "evidence.sync_sessions": "SyncSession",
    "fail.errors": "InputError ToolFailure TransientModelError",
    "runtime.agent": "Agent",
    "runtime.driver": "InDoubt",
    "runtime.effects": "AskPerson",
    "runtime.graphs": "Graph loop_until parallel route sequence",
    "runtime.log.journal": "Diverged",
    "runtime.log.values": "WindowLimits",
    "runtime.loop.hooks": "Hooks",
    "runtime.mcp.server": "mcp",
    "runtime.models.fallback": "Fallback",
    "runtime.models.langchain": "LangChainModel",
    "runtime.models.providers": "model_of",
    "runtime.models.types": "LLMInput LLMOutput Piece ToolCall",
    "runtime.policy.policy": "Policy",
    "runtime.run_result": "RunResult Turn",
    "runtime.schema.answer_type": "AnswerMismatch",
    "runtime.schema.python_types": "AnyText ReadPath Text Url WritePath",
    "runtime.tools.agents": "delegate",
    "runtime.tools.contract": "Tool",
    "runtime.tools.functions": "Context tool",
    "runtime.tools.langchain": "from_langchain",
    "runtime.world.people": "Answer",
}

if not TYPE_CHECKING:  # or every name that there is not would be Any to whoever checks types

    def __getattr__(name: str) -> object:
        for place, names in _PLACES.items():
            if name in names.split():
                return getattr(import_module(f".{place}", __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return [*globals(), *__all__]
