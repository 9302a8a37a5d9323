"""Quick looks at the whole project: does what is said agree with what is there?

`tree`: page of capabilities, policy, tasks, runs and index. `traces`: every `trace.json` against the OTLP definitions
and the span tree. `tools`: each tool driven through an agent with a good and a bad call. Each returns one
line for each problem, and each has something to say when its subject is empty.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from dev import docs
from tachograph.evidence.checking.check import runs_below
from tachograph.evidence.checking.differences.drift import counted
from tachograph.evidence.files.manifest import TRACE
from tachograph.evidence.recording import index
from tachograph.evidence.tasks.task import build, load_task
from tachograph.fail.errors import InputError, TachographError
from tachograph.runtime.agent import Agent
from tachograph.runtime.formats.escape import escape_terminal
from tachograph.runtime.models.scripted import Stub
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools import examples
from tachograph.runtime.tools.contract import Tool
from tachograph.runtime.tools.loader import load_named
from tachograph.runtime.workspace.mounts import Host, Mount

_CORPUS: Final = "data/corpus/v1"


def tree(root: Path) -> list[str]:
    """Hold the page of capabilities, policy, tasks, runs and index against each other."""
    out = index.problems(root)
    try:
        out += docs.stale(root)
    except InputError as error:
        out.append(str(error))
    listed = listed_capabilities(root)
    if not listed:
        out.append(f"{docs.CAPABILITIES}: lists no run")
    for folder, wanted in listed.items():
        try:
            found = span_counts(root / folder)
        except (OSError, ValueError, KeyError, IndexError, TypeError, RecursionError):
            out.append(f"{docs.CAPABILITIES}: names {folder}, where there is no trace")
            continue
        if found != wanted:
            out.append(f"{docs.CAPABILITIES}: {folder} has other spans than it says")
    out += [
        f"{docs.CAPABILITIES}: {name} is not listed"
        for name in sorted({run.relative_to(root).as_posix() for run in runs_below(root)} - set(listed))
    ]
    tasks = sorted((root / "tasks").glob("*/*.yaml"))
    if not tasks:
        out.append("tasks/: holds no task")
    for path in tasks:
        try:
            task = load_task(path, root=root)
            if task.is_scripted:
                build(task)
        except InputError as error:
            out.append(str(error))
            continue
        if "-".join((path.parent.name, path.stem)) != task.id:
            out.append(f"{task.file}: its id {task.id!r} is not its place")
    policy = root / "policy" / "v1.yaml"
    for overlays in ([], *([path] for path in sorted((root / "policy" / "overlays").glob("*.yaml")))):
        try:
            Policy.load(policy, overlays, root=root)
        except InputError as error:
            out.append(str(error))
    return list(dict.fromkeys(out))


def listed_capabilities(root: Path) -> dict[str, Counter[str]]:
    """Return run folder -> span counts, as the page of capabilities says."""
    try:
        text = (root / docs.CAPABILITIES).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    out = {}
    for folder, signature in re.findall(r"^  \[`\w+`\]\(\.\./(runs/[^)]+)\)\n  (.*)$", text, re.M):
        out[folder] = Counter({name: int(n) for n, name in re.findall(r"(\d+) (\w+)", signature)})
    return out


def span_counts(run: Path) -> Counter[str]:
    """Return span name -> how many of them a run's trace holds."""
    return Counter(str(span["name"]) for span in _spans(json.loads((run / TRACE).read_bytes())))


def _spans(document: Any) -> list[dict[str, Any]]:
    spans: list[dict[str, Any]] = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return spans


# what each span must carry beside agent.run_id
ATTRIBUTES: Final[dict[str, set[str]]] = {
    "agent_run": {"gen_ai.operation.name", "agent.terminal_reason", "agent.policy.version"},
    "agent_step": {"agent.step_index"},
    "llm_call": {"gen_ai.operation.name", "gen_ai.request.model", "agent.llm.execution_path"},
    "policy_check": {
        "agent.policy.decision",
        "agent.policy.rule_id",
        "agent.policy.version",
        "agent.policy.phase",
    },
    "tool_call": {"gen_ai.operation.name", "gen_ai.tool.name", "agent.tool_name"},
    "retry_attempt": {"agent.retry.attempt", "agent.retry.outcome", "agent.retry.backoff_ms"},
    "hook": {"agent.hook.name", "agent.hook.event"},
}
PARENTS: Final[dict[str, set[str | None]]] = {
    "agent_run": {None},
    "agent_step": {"agent_run"},
    "llm_call": {"agent_step"},
    "policy_check": {"agent_step", "tool_call", "retry_attempt"},
    "tool_call": {"agent_step"},
    "retry_attempt": {"llm_call", "tool_call"},
    "hook": {"agent_step"},
}


def traces(root: Path) -> list[str]:
    """Every trace against `opentelemetry-proto`, and its tree and attributes against the documented shape."""
    folders = runs_below(root)
    if not folders:
        return ["runs/: holds no recorded run"]
    out = []
    seen: dict[str, str] = {}
    for folder in folders:
        name = (folder / TRACE).relative_to(root).as_posix()
        try:
            document = json.loads((folder / TRACE).read_bytes())
            _parse_proto(document)
            spans = _spans(document)
            out += [f"{name}: {problem}" for problem in tree_problems(spans)]
            trace_ids = {span["traceId"] for span in spans}
        except (
            OSError,
            ValueError,
            KeyError,
            IndexError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            out.append(f"{name}: is not an OTLP/JSON trace ({type(error).__name__})")
            continue
        for trace_id in sorted(trace_ids):
            if trace_id in seen:
                out.append(f"{name}: has the trace id of {seen[trace_id]}")
            seen[trace_id] = name
    return out


def _parse_proto(document: Any) -> None:
    from google.protobuf.json_format import ParseDict, ParseError
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    # protobuf's JSON mapping reads bytes as base64, OTLP/JSON writes ids in hex
    copy = json.loads(json.dumps(document))
    for span in _spans(copy):
        for key, digits in (("traceId", 32), ("spanId", 16), ("parentSpanId", 16)):
            if key in span:
                if not re.fullmatch(f"(?!0+$)[0-9a-f]{{{digits}}}", span[key]):
                    raise ValueError("an id that is not in lower-case hex")
                span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    try:
        ParseDict(copy, TracesData())
    except ParseError as error:
        raise ValueError("not TracesData") from error


def tree_problems(spans: list[dict[str, Any]]) -> list[str]:
    """Return what is wrong with a span tree; `spans` are OTLP/JSON objects."""
    if not spans:
        return ["holds no span"]
    by_id = {span["spanId"]: span for span in spans}
    out = []
    if len(by_id) != len(spans):
        out.append("has a span id twice")
    if sum("parentSpanId" not in span for span in spans) != 1:
        out.append("has not exactly one root")
    if len({span["traceId"] for span in spans}) != 1:
        out.append("has more than one trace id")
    for span in spans:
        out += [
            f"span {span['spanId']} ({span['name']}) {problem}" for problem in _span_problems(span, by_id)
        ]
    return out


def _span_problems(span: dict[str, Any], by_id: dict[str, dict[str, Any]]) -> list[str]:
    out = []
    name = span["name"]
    if name not in ATTRIBUTES:
        return ["has an unknown name"]
    start, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
    if start >= end:
        out.append("does not last")
    parent = by_id.get(span["parentSpanId"]) if "parentSpanId" in span else None
    if "parentSpanId" in span and parent is None:
        out.append("has a parent that is not there")
    if (parent["name"] if parent else None) not in PARENTS[name]:
        out.append("stands under the wrong parent")
    if parent and not (int(parent["startTimeUnixNano"]) <= start and end <= int(parent["endTimeUnixNano"])):
        out.append("reaches beyond its parent")
    keys = {attribute["key"] for attribute in span["attributes"]}
    missing = sorted((ATTRIBUTES[name] | {"agent.run_id"}) - keys)
    if missing:
        out.append(f"lacks {', '.join(missing)}")
    return out


def tools(root: Path) -> list[str]:
    """Each tool through an agent under the shipped policy: a good call succeeds, a bad one is denied."""
    names = sorted(path.stem for path in (root / "tools").glob("*.py"))
    if not names:
        return ["tools/: holds no tool"]
    policy = Policy.load(root / "policy" / "v1.yaml", root=root)
    out = [
        f"tools/{name}.py: is gone, and policy/v1.yaml names it"
        for name in sorted(set(policy.allowed) - set(names))
    ]
    for name in names:
        tool = load_named(name, root / "tools")
        wrong = examples.problems(tool)
        out += [f"tools/{name}.py: {problem}" for problem in wrong]
        if tool.examples is None:
            continue
        if _drive(root, policy, tool, tool.examples["good"]) != ("ok", "allow"):
            out.append(f"tools/{name}.py: its good call does not succeed")
        if _drive(root, policy, tool, tool.examples["bad"]) != ("denied", "deny"):
            out.append(f"tools/{name}.py: its bad call is not denied")
    return out


def _drive(root: Path, policy: Policy, tool: Tool, arguments: Mapping[str, Any]) -> tuple[str, str]:
    model = Stub([{"calls": [{"tool": tool.name, "arguments": arguments}]}, {"answer": "done"}])
    agent = Agent(
        model,
        [tool],
        policy,
        mounts={"corpus": Mount(root / _CORPUS, _CORPUS)},
        hosts={"corpus.test": Host(root / _CORPUS, _CORPUS)},
    )
    step = agent.run("smoke", run_id="smoke").steps[0]
    if not step["tool_results"]:
        return "not asked", step["policy_decisions"][0]["decision"]
    return step["tool_results"][0]["status"], step["policy_decisions"][0]["decision"]


KINDS: Final[dict[str, Callable[[Path], list[str]]]] = {
    "smoke": tree,
    "trace-smoke": traces,
    "tool-smoke": tools,
}


def main(kind: str, root: Path) -> int:
    """Print the problems and one closing line; returns the exit code: 1 with problems, 2 for an unknown kind."""
    if kind not in KINDS:
        print(
            f"tachograph: there is no {escape_terminal(kind)!r}; one of {', '.join(KINDS)}", file=sys.stderr
        )
        return 2
    try:
        found = KINDS[kind](root)
    except TachographError as error:
        found = [str(error)]
    for line in found:
        print(escape_terminal(line.replace(f"{root}/", "")))
    closing = counted(len(found), "problem") if found else "all is as it says"
    print(f"{kind}: {closing}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:]), Path.cwd()))
