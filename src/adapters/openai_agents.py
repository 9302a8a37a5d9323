"""A tool of the OpenAI Agents SDK as a governed tool."""

from __future__ import annotations

import copy
import typing
from typing import Any, Final, Unpack

from ..fail.errors import ToolError
from ..runtime.formats import canonical_json
from ..runtime.tools.contract import Tool
from ..runtime.tools.coroutines import run_coroutine
from .common import Foreign, ToolOptions, checked_options, govern
from .schemas import require_module

_FAILURES: Final = ("_failure_error_function", "_use_default_failure_error_function")
# what only the SDK's runner would check around a call, and what to use instead
_RUNNER_CHECKS: Final = (
    ("needs_approval", "let the policy ask: approval.required_for"),
    ("tool_input_guardrails", "let the policy or the schema say it"),
    ("tool_output_guardrails", "check the result in the function"),
)


def from_openai_agents(tool: Any, *, context: Any = None, **options: Unpack[ToolOptions]) -> Tool:
    """Return a `@function_tool` of the SDK as a Tool.

    Its `failure_error_function` is set aside in a copy: a failure reaches retry and record. `timeout_s` is the
    tool's own unless given.

    Args:
        tool: The FunctionTool; it is not changed.
        context: What the function finds in its `ToolContext`.
        **options: See ToolOptions.

    Raises:
        ToolError: The tool cannot be governed, in one line. So is an agent as a tool, and a tool with an approval
            or guardrails of its own, which only the SDK's runner would ask.
        InputError: openai-agents is not installed.
    """
    agents = require_module("agents", "openai-agents", "agents")
    contexts = require_module("agents.tool_context", "openai-agents", "agents")
    if not isinstance(tool, agents.FunctionTool):
        raise ToolError(f"{type(tool).__name__} is not a FunctionTool", remedy="give a @function_tool")
    said = checked_options(options)
    name = said.get("name") or tool.name
    label = f"tool {name!r}"
    own = _raising(tool, label)
    _check_runner_settings(tool, label)
    function = getattr(tool, "__wrapped__", None)

    def call(arguments: dict[str, Any], io: Any) -> Any:
        text = canonical_json.encode(arguments)
        about = contexts.ToolContext(
            context=context, tool_name=tool.name, tool_call_id=io.idempotency_key, tool_arguments=text
        )
        return run_coroutine(lambda: own.on_invoke_tool(about, text))

    foreign = Foreign(
        name=name,
        description=tool.description,
        parameters=tool.params_json_schema,
        call=call,
        source=function or own.on_invoke_tool,
        returns=_returned(function),
    )
    if said.get("timeout_s") is None:
        said["timeout_s"] = tool.timeout_seconds
    return govern(foreign, said)


def _raising(tool: Any, label: str) -> Any:
    """Return a copy of a tool that raises its failures, as with `failure_error_function=None`."""
    own = copy.copy(tool)
    if not all(hasattr(own, name) for name in _FAILURES):
        raise ToolError(
            "this openai-agents may turn failures into results", file=label, remedy="install 0.24 or later"
        )
    own._failure_error_function, own._use_default_failure_error_function = None, False
    return own


def _check_runner_settings(tool: Any, label: str) -> None:
    for name, remedy in _RUNNER_CHECKS:
        if getattr(tool, name, None):
            raise ToolError(f"has {name}, which nothing checks here", file=label, remedy=remedy)
    if tool.is_enabled is not True:
        raise ToolError("is not always enabled", file=label, remedy="leave is_enabled out, or the tool")
    if getattr(tool, "_is_agent_tool", False):
        raise ToolError(
            "is an agent, whose own calls no gate would see", file=label, remedy="give the tools it uses"
        )


def _returned(function: Any) -> Any:
    """Return the annotation of a tool's result, Any if there is none that can be resolved."""
    try:
        return typing.get_type_hints(function).get("return", Any) if function is not None else Any
    except Exception:  # noqa: BLE001 - evaluates foreign text; a result's schema may be left open
        return Any
