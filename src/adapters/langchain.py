"""A LangChain tool as a governed tool."""

from __future__ import annotations

import contextvars
import inspect
import typing
from collections.abc import Callable
from typing import Any, Unpack

from ..fail.errors import ToolError
from ..runtime.schema.subschemas import JsonSchema
from ..runtime.tools.contract import Tool
from ..runtime.tools.coroutines import run_coroutine
from .common import Foreign, ToolOptions, checked_options, govern
from .schemas import require_module


def from_langchain(tool: Any, **options: Unpack[ToolOptions]) -> Tool:
    """Return a LangChain tool (`@tool`, StructuredTool, any BaseTool) as a Tool.

    Its own `handle_tool_error` and `handle_validation_error` are set aside in a copy: a failure reaches retry and
    record. Nothing is traced, and no handler but those set on the tool itself is called. An artifact beside the
    content is left behind.

    Args:
        tool: The tool; it is not changed.
        **options: See ToolOptions.

    Raises:
        ToolError: The tool cannot be governed, in one line.
        InputError: langchain-core is not installed.
    """
    tools = require_module("langchain_core.tools", "langchain-core", "langchain")
    if not isinstance(tool, tools.BaseTool):
        raise ToolError(
            f"{type(tool).__name__} is not a LangChain tool", remedy="give a BaseTool, such as @tool"
        )
    said = checked_options(options)
    name = said.get("name") or tool.name
    label = f"tool {name!r}"
    if injected := _injected(tool):
        raise ToolError(
            f"{injected[0]!r} is injected by LangChain, which does not run here",
            file=label,
            remedy="bind it beforehand, or give the tool without it",
        )
    own = tool.model_copy(update={"handle_tool_error": False, "handle_validation_error": False})
    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
    is_async = getattr(tool, "func", None) is None and getattr(tool, "coroutine", None) is not None

    def call(arguments: dict[str, Any], _io: Any) -> Any:
        # `invoke` would take arguments with a `type` of their own for a whole call
        if is_async:
            return _content(call_untraced(lambda: run_coroutine(lambda: own.arun(arguments))))
        return _content(call_untraced(lambda: own.run(arguments)))

    foreign = Foreign(
        name=name,
        description=inspect.cleandoc(tool.description),
        parameters=_parameters(tool, tools.Tool, label),
        call=call,
        source=function or type(tool),
        returns=_returned(function or tool._run, tool.response_format),
    )
    return govern(foreign, said)


def _parameters(tool: Any, of_one_text: Any, label: str) -> JsonSchema:
    if isinstance(tool, of_one_text) and tool.args_schema is None:
        return {"type": "object", "properties": dict(tool.args), "required": list(tool.args)}
    schema = tool.tool_call_schema
    if isinstance(schema, dict):
        return schema
    try:
        made: JsonSchema = schema.model_json_schema()
    except Exception as error:  # noqa: BLE001 - of pydantic, for a type that has no JSON Schema
        raise ToolError(
            f"has an argument without a JSON Schema ({type(error).__name__})",
            file=label,
            remedy="give it an args_schema of JSON types",
        ) from None
    return made


def _injected(tool: Any) -> list[str]:
    """Return the names of arguments that LangChain injects: not offered to a model, or known to the function alone."""
    names = set(getattr(tool, "_injected_args_keys", ()))
    if not isinstance(tool.tool_call_schema, dict):
        whole, offered = tool.get_input_schema(), tool.tool_call_schema
        names |= set(getattr(whole, "model_fields", ())) - set(getattr(offered, "model_fields", ()))
    return sorted(names)


def _returned(function: Callable[..., Any], form: str) -> Any:
    """Return the annotation of a tool's content, Any if there is none that can be resolved."""
    try:
        annotation = typing.get_type_hints(function).get("return", Any)
    except Exception:  # noqa: BLE001 - evaluates foreign text; a result's schema may be left open
        return Any
    if form == "content_and_artifact":
        args = typing.get_args(annotation)
        return args[0] if typing.get_origin(annotation) is tuple and args else Any
    return annotation


def _content(output: Any) -> Any:
    """Return what the model is to read of a tool's output. Raises RuntimeError for a message with status `error`."""
    if getattr(output, "type", None) != "tool" or not hasattr(output, "tool_call_id"):
        return output
    if getattr(output, "status", "success") == "error":
        raise RuntimeError("the tool returned an error")
    return output.content


def call_untraced(work: Callable[[], Any]) -> Any:
    """Call LangChain without tracing, whatever the environment says, and without inherited handlers."""
    langsmith = require_module("langsmith", "langchain-core", "langchain")
    inherited = require_module(
        "langchain_core.runnables.config", "langchain-core", "langchain"
    ).var_child_runnable_config
    traced = require_module(
        "langchain_core.tracers.context", "langchain-core", "langchain"
    ).tracing_v2_callback_var

    def within() -> Any:
        inherited.set(None)
        traced.set(None)
        with langsmith.tracing_context(enabled=False, parent=False):
            return work()

    return contextvars.copy_context().run(within)
