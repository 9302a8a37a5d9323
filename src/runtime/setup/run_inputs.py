"""What a run rests on beside its ledger: policy files, task, modules of the tools called, hooks, documents read.

Policy and task count by what they say: their digest is that of the parsed document in canonical JSON, so that a comment
changes none. Of modules and documents it is that of the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..formats.document_digest import RunInput
from ..journal.ledger import Totals
from ..policy.policy import Policy
from ..tools.contract import Tool
from ..tools.project_modules import project_modules

if TYPE_CHECKING:
    from ..tools.hooks import Hooks


def inputs_of(
    policy: Policy,
    task: Mapping[str, str] | None,
    tools: Iterable[Tool],
    documents: Mapping[str, str],
    modules: Iterable[Mapping[str, str]] = (),
    hooks: Iterable[Hooks] = (),
) -> list[RunInput]:
    """Return the inputs of a run, sorted by path: `path`, `sha256`, and `canonical` where that is of parsed data.

    Args:
        policy: The run's policy.
        task: Path and canonical digest of the run's task, None without one.
        tools: The tools that count.
        documents: Path of each document that was read -> SHA-256.
        modules: Path and digest of each source of an agent in code, and of the files with instructions and schema.
        hooks: The hooks of the run.
    """
    found: dict[str, RunInput] = {}
    for path, sha in policy.files:
        found[path] = {"path": path, "sha256": sha, "canonical": True}
    if task is not None:
        found[task["path"]] = {"path": task["path"], "sha256": task["sha256"], "canonical": True}
    found.update({item["path"]: {"path": item["path"], "sha256": item["sha256"]} for item in modules})
    for tool in tools:
        if tool.digest is not None:
            path = tool.file or f"<tool {tool.name}>"
            found[path] = {"path": path, "sha256": tool.digest}
        for path, sha in project_modules(tool).items():
            found.setdefault(path, {"path": path, "sha256": sha})
    for item in hooks:
        if item.file is not None and item.digest is not None:
            found[item.file] = {"path": item.file, "sha256": item.digest}
        for path, sha in item.modules:
            found.setdefault(path, {"path": path, "sha256": sha})
    for path, sha in documents.items():
        found.setdefault(path, {"path": path, "sha256": sha})
    return [found[path] for path in sorted(found)]


def paths_of(run: Mapping[str, Any], totals: Totals) -> set[str]:
    """Return the paths of the inputs that a ledger names; modules that tools import are not among them."""
    paths = {str(item["path"]) for item in run["policy"]["files"]} | set(totals.documents)
    paths |= {str(item["path"]) for item in run.get("modules", ())}
    paths |= {str(run["instructions"]["file"])} if "file" in run.get("instructions", ()) else set()
    paths |= {str(run["output"]["file"])} if "file" in run.get("output", ()) else set()
    paths |= {str(item["file"]) for item in run.get("hooks", ()) if item["file"] is not None}
    if run["task"] is not None:
        paths.add(str(run["task"]["path"]))
    return paths


def files_of_called(run: Mapping[str, Any], totals: Totals) -> set[str]:
    """Return the files of the tools that were called, as far as the ledger names them."""
    return {str(tool["file"]) for tool in run["tools"] if tool["file"] and tool["name"] in totals.called}
