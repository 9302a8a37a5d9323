"""A governed agent runtime: a policy gate before every tool call, and a record that a stranger can re-derive."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cli.approval import approve_at_terminal as approve_at_terminal
    from .evidence.agent_runs import acheck as acheck
    from .evidence.agent_runs import arecord as arecord
    from .evidence.agent_runs import aresume as aresume
    from .evidence.agent_runs import check as check
    from .evidence.agent_runs import record as record
    from .evidence.agent_runs import replay as replay
    from .evidence.agent_runs import resume as resume
    from .evidence.sessions import Session as Session
    from .evidence.sessions import SyncSession as SyncSession
    from .evidence.sessions import Turn as Turn
    from .runtime.agent import Agent as Agent
    from .runtime.driver import InDoubt as InDoubt
    from .runtime.effects import AskPerson as AskPerson
    from .runtime.graphs import Graph as Graph
    from .runtime.graphs import loop_until as loop_until
    from .runtime.graphs import parallel as parallel
    from .runtime.graphs import route as route
    from .runtime.graphs import sequence as sequence
    from .runtime.log.journal import Diverged as Diverged
    from .runtime.log.values import WindowLimits as WindowLimits
    from .runtime.loop.hooks import Hooks as Hooks
    from .runtime.mcp.server import mcp as mcp
    from .runtime.models.fallback import Fallback as Fallback
    from .runtime.models.langchain import LangChainModel as LangChainModel
    from .runtime.models.providers import model_of as model_of
    from .runtime.models.types import LLMInput as LLMInput
    from .runtime.models.types import LLMOutput as LLMOutput
    from .runtime.models.types import Piece as Piece
    from .runtime.models.types import ToolCall as ToolCall
    from .runtime.policy.policy import Policy as Policy
    from .runtime.run_result import RunResult as RunResult
    from .runtime.schema.python_types import AnyText as AnyText
    from .runtime.schema.python_types import ReadPath as ReadPath
    from .runtime.schema.python_types import Text as Text
    from .runtime.schema.python_types import Url as Url
    from .runtime.schema.python_types import WritePath as WritePath
    from .runtime.tools.agents import delegate as delegate
    from .runtime.tools.contract import Tool as Tool
    from .runtime.tools.functions import Context as Context
    from .runtime.tools.functions import tool as tool
    from .runtime.tools.langchain import from_langchain as from_langchain
    from .runtime.world.people import Answer as Answer

# imported when they are asked for: the command line starts without what it does not need
_PLACES = {
    "Agent": "runtime.agent",
    "RunResult": "runtime.run_result",
    "Hooks": "runtime.loop.hooks",
    **dict.fromkeys(("Graph", "loop_until", "parallel", "route", "sequence"), "runtime.graphs"),
    "mcp": "runtime.mcp.server",
    "Fallback": "runtime.models.fallback",
    "model_of": "runtime.models.providers",
    "LangChainModel": "runtime.models.langchain",
    "from_langchain": "runtime.tools.langchain",
    **dict.fromkeys(("LLMInput", "LLMOutput", "Piece", "ToolCall"), "runtime.models.types"),
    "Policy": "runtime.policy.policy",
    "Tool": "runtime.tools.contract",
    "delegate": "runtime.tools.agents",
    **dict.fromkeys(("Context", "tool"), "runtime.tools.functions"),
    **dict.fromkeys(("AnyText", "ReadPath", "Text", "Url", "WritePath"), "runtime.schema.python_types"),
    "Answer": "runtime.world.people",
    "AskPerson": "runtime.effects",
    "Diverged": "runtime.log.journal",
    "InDoubt": "runtime.driver",
    "approve_at_terminal": "cli.approval",
    "WindowLimits": "runtime.log.values",
    **dict.fromkeys(("Session", "SyncSession", "Turn"), "evidence.sessions"),
    **dict.fromkeys(
        ("acheck", "arecord", "aresume", "check", "record", "replay", "resume"), "evidence.agent_runs"
    ),
}
__all__ = [*_PLACES]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_PLACES[name]}", __name__), name)
