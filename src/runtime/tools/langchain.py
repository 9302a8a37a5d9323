"""Tools of LangChain as tools of a run. Nothing of LangChain is imported: a tool of it is known by what it has."""

from __future__ import annotations

from typing import Any

from ...fail.errors import ToolError
from ..schema.python_types import closed_schema, result_schema, written
from .contract import Tool


def is_of_langchain(value: Any) -> bool:
    """Return whether a value is a tool of LangChain."""
    return all(hasattr(value, name) for name in ("name", "description", "tool_call_schema", "ainvoke"))


def from_langchain(tool: Any, *, effect: str = "external", idempotent: bool = False) -> Tool:
    """Return a tool of LangChain as one of a run.

    Args:
        tool: The tool, such as a function under `langchain_core.tools.tool`.
        effect: Its effect. What is not `external` may not act beside `io`, which no tool of LangChain is given: such a
            tool is `pure`.
        idempotent: Whether a repeated call does no harm.

    Raises:
        ToolError: It cannot be one of a run.
    """
    try:
        given = tool.tool_call_schema
        closed = closed_schema(given if isinstance(given, dict) else given.model_json_schema())
    except Exception as error:  # noqa: BLE001 - the schema is foreign
        what = f"the tool {getattr(tool, 'name', tool)!r} has no plain schema ({error})"
        raise ToolError(what, remedy="give it types") from None

    async def run(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
        return {"result": written(await tool.ainvoke(arguments))}

    result, _ = result_schema(Any, "serialization", [])
    return Tool(tool.name, tool.description or tool.name, closed, result, effect, run, idempotent=idempotent)
