"""Tools and models of other frameworks, governed: a Python function, a LangChain tool, an OpenAI Agents SDK tool.

from tachograph.adapters import LangChainModel, from_langchain, from_openai_agents, resource, tool_from_function

Nothing of a framework is imported before one of its things is given to us. See docs/adapters.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .functions import tool, tool_from_function
    from .langchain import from_langchain
    from .langchain_model import LangChainModel
    from .openai_agents import from_openai_agents
    from .schemas import resource

__all__ = ["LangChainModel", "from_langchain", "from_openai_agents", "resource", "tool", "tool_from_function"]

_PLACES: Final = {
    "LangChainModel": ".langchain_model",
    "from_langchain": ".langchain",
    "from_openai_agents": ".openai_agents",
    "resource": ".schemas",
    "tool": ".functions",
    "tool_from_function": ".functions",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name], __name__), name)
