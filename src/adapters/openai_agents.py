"""A tool of the OpenAI Agents SDK as a governed tool."""

from __future__ import annotations

import copy
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ..fail.errors import ToolError
from ..runtime.formats import canonical_json
from ..runtime.tools.contract import Tool
from .common import Foreign, finished, governed, need
from .results import UNSAID

_FAILURES: Final = ("_failure_error_function", "_use_default_failure_error_function")
# what the SDK's runner asks around a call, and who asks it here
_ASKED: Final = (
    ("needs_approval", "let the policy ask: approval.required_for"),
    ("tool_input_guardrails", "let the policy or the schema say it"),
    ("tool_output_guardrails", "check the result in the function"),
)


def from_openai_agents(
    tool: Any,
    *,
    effect: str,
    idempotent: bool,
    resources: Mapping[str, str] | None = None,
    transient: Iterable[type[BaseException]] = (),
    timeout_s: float | None = None,
    name: str | None = None,
    description: str | None = None,
    returns: Any = UNSAID,
    paths: str | None = None,
    context: Any = None,
) -> Tool:
    """A `@function_tool` as a Tool; the arguments are those of `tool_from_function`.

    Its `failure_error_function` is set aside in a copy: a failure reaches retry and record. `context` is what the
    function finds in its `ToolContext`. `timeout_s` is the tool's own unless given. Refused is a tool with an
    approval or guardrails of its own, which only the SDK's runner would ask, and an agent as a tool.
    """
    agents = need("agents", "openai-agents", "agents")
    contexts = need("agents.tool_context", "openai-agents", "agents")
    if not isinstance(tool, agents.FunctionTool):
        raise ToolError(f"{type(tool).__name__} is no FunctionTool", remedy="give a @function_tool")
    called = name or tool.name
    label = f"tool {called!r}"
    own = _raising(tool, label)
    _check_asked(tool, label)
    function = getattr(tool, "__wrapped__", None)

    def call(arguments: dict[str, Any], io: Any) -> Any:
        text = canonical_json.encode(arguments)
        about = contexts.ToolContext(
            context=context, tool_name=tool.name, tool_call_id=io.idempotency_key, tool_arguments=text
        )
        return finished(lambda: own.on_invoke_tool(about, text))

    foreign = Foreign(
        name=called,
        description=description or tool.description,
        parameters=tool.params_json_schema,
        call=call,
        source=function or own.on_invoke_tool,
        returns=_returned(function) if returns is UNSAID else returns,
        resources=resources or {},
    )
    return governed(
        foreign,
        effect=effect,
        idempotent=idempotent,
        transient=transient,
        timeout_s=timeout_s if timeout_s is not None else tool.timeout_seconds,
        paths=paths,
    )


def _raising(tool: Any, label: str) -> Any:
    """A copy of a tool whose failures are raised, as the SDK has it with `failure_error_function=None`."""
    own = copy.copy(tool)
    if not all(hasattr(own, name) for name in _FAILURES):
        raise ToolError(
            "this openai-agents may turn failures into results", file=label, remedy="install 0.24 or later"
        )
    own._failure_error_function, own._use_default_failure_error_function = None, False
    return own


def _check_asked(tool: Any, label: str) -> None:
    for name, remedy in _ASKED:
        if getattr(tool, name, None):
            raise ToolError(f"has {name}, which nobody asks here", file=label, remedy=remedy)
    if tool.is_enabled is not True:
        raise ToolError("is not always enabled", file=label, remedy="leave is_enabled out, or the tool")
    if getattr(tool, "_is_agent_tool", False):
        raise ToolError(
            "is an agent, whose own calls no gate would see", file=label, remedy="give the tools it uses"
        )


def _returned(function: Any) -> Any:
    """The annotation of a tool's result, Any where there is none that can be read."""
    try:
        return typing.get_type_hints(function).get("return", Any) if function is not None else Any
    except Exception:  # noqa: BLE001 - evaluates foreign text; a result's schema may be left open
        return Any
