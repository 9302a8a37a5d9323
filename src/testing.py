"""Ask the gate and the strict readers from tests, and run scripted agents: public and stable.

`decide` takes calls in order as those of one run, and nothing is executed; `decide_fact` asks about what a tool meets
while it runs; `parse` reads text as the runtime does; `run` takes a question to its ending.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from .evidence.task_file import TaskFile
from .fail.errors import InputError, PolicyError, TaskError, listed
from .runtime.agent import Agent
from .runtime.formats import strict_json
from .runtime.formats.documents import parse_document, read_text
from .runtime.log.events import Answered
from .runtime.log.values import Call, Reach, Touch
from .runtime.models.scripted import Script
from .runtime.models.types import LLMOutput, Model, ToolCall, clean_text, read_call, read_reply
from .runtime.policy.consistency import check_mounts
from .runtime.policy.gate import Gate
from .runtime.policy.leaf import Question
from .runtime.policy.policy import Policy
from .runtime.policy.sections import PolicyFile
from .runtime.redaction.redactor import scripted_key
from .runtime.resources.mount_path import parse_path
from .runtime.resources.url import Malformed, parse_entry, parse_url
from .runtime.run import head_of, make_run
from .runtime.run_result import RunResult
from .runtime.tools.agents import with_those_below
from .runtime.tools.contract import CLOSED, Tool, call_key
from .runtime.world.virtual import Virtual, run_now


class Decision(Struct, frozen=True):
    """What the gate said.

    Attributes:
        decision: `allow`, `deny` or `escalate`.
        rule_id: The rule that gave the answer.
        at: The entry it rests on, as document and JSON Pointer.
        reason: One line.
    """

    decision: str
    rule_id: str
    at: str
    reason: str


class Refused(ValueError):
    """Text that the runtime refuses.

    Attributes:
        place: Where, as `file:line:column` or a JSON Pointer; "" for the text as a whole.
        reason: Why, and what to do where that is known.
    """

    def __init__(self, reason: str, place: str = "") -> None:
        self.place, self.reason = place, reason
        super().__init__(f"{place}: {reason}" if place else reason)


def _policy(policy: Mapping[str, Any] | str | Path) -> Policy:
    return Policy.load(policy) if isinstance(policy, str | Path) else Policy.from_dict(policy)


def _values(given: object, what: str, *keys: str, **others: Any) -> list[Any]:
    """Return what a mapping has at some keys, and at others if it has them.

    Keys of the caller's own are passed over. Raises InputError for no such mapping, and for a misspelt key.
    """
    if not isinstance(given, Mapping) or not {*keys} <= given.keys():
        remedy = f"give a mapping with {' and '.join(keys)}"
        raise InputError(f"{what} is given in another way", remedy=remedy)
    for odd in sorted(map(str, given.keys() - {*keys, *others})):
        if likely := get_close_matches(odd, [*keys, *others], 1, 0.8):  # not `filename` for `name`
            raise InputError(f"{what} has an unknown key {odd!r}", remedy=f"did you mean {likely[0]!r}?")
    return [*({**others, **given}[key] for key in (*keys, *others))]


def _tool(tool: Tool | Mapping[str, Any]) -> Tool:
    if isinstance(tool, Tool):
        return tool
    about = _values(tool, "a tool", "name", input_schema=CLOSED, effect="read", output_schema=None)
    name, schema, effect, _ = about  # results are empty
    return Tool(name, "", schema, CLOSED, effect, lambda arguments, io: {})


def decide(
    policy: Mapping[str, Any] | str | Path,
    tools: Iterable[Tool | Mapping[str, Any]],
    calls: Iterable[Mapping[str, Any]],
    *,
    mounts: Mapping[str, str | Path] | None = None,
) -> list[Decision]:
    """Return what the gate says of some calls, taken in order as those of one minute of a run.

    Links are not looked at.

    Args:
        policy: A policy as data, or the path of its file.
        tools: Tools, or mappings with `name`, `input_schema` and `effect`.
        calls: Mappings with `name` and `arguments`, a mapping or JSON text.
        mounts: Folders for mounts, as an agent takes them; the policy has to declare each.

    Raises:
        InputError: The policy, a tool, a call or a mount is refused.
    """
    gate = Gate(_policy(policy), with_those_below(map(_tool, listed(tools, "the tools"))))
    check_mounts(gate.policy, listed(mounts or (), "the mounts"))
    made, repeats = Counter[str](), Counter[str]()
    found = []
    for number, proposed in enumerate(listed(calls, "the calls")):
        name, arguments = _values(proposed, "a call", "name", "arguments")
        call = gate.policy.as_in_a_run(read_call(f"tc_1_{number}", clean_text(name), arguments))
        key = call_key(call, gate.tools.get(call.name))
        times = {"calls": made[call.name], "per_minute": made[call.name]}
        verdict = gate.ask(Question(call, call.name, {"tool_calls": made.total(), **times}, repeats[key]))
        if verdict.decision == "allow":
            made[call.name] += 1
            repeats[key] += 1
        found.append(Decision(*structs.astuple(verdict)))
    return found


def decide_fact(
    policy: Mapping[str, Any] | str | Path,
    fact: Mapping[str, Any],
    tool: Tool | Mapping[str, Any] | None = None,
) -> Decision:
    """Return what the gate says of a fact that a tool meets while it runs; one of another `rule` is denied.

    Args:
        policy: A policy as data, or the path of its file.
        fact: `{"rule": "url_allowlist", "target": URL, "hop": n}`, the same with `address` and `method`, or
            `{"rule": "sandbox_path", "path": P, "access": "read" or "write", "found": KIND}`.
        tool: The tool that meets it; None for one that the policy does not name.

    Raises:
        InputError: The policy, the fact or the tool is refused.
    """
    about: Reach | Touch | Call
    (rule,) = _values(fact, "a fact", "rule")
    if rule == "url_allowlist":
        about = Reach(*_values(fact, "a fact", "rule", "target", method="GET", address="", hop=0)[1:])
    elif rule == "sandbox_path":
        about = Touch(*_values(fact, "a fact", "rule", "path", access="", found="")[1:])
    else:
        return Decision("deny", "gate_error", "", "a fact of an unknown kind")
    met_by = _tool({"name": "some_tool"} if tool is None else tool)
    return Decision(*structs.astuple(Gate(_policy(policy), [met_by]).ask(Question(about, met_by.name))))


def run(
    policy: Mapping[str, Any] | str | Path,
    tools: Iterable[Tool | Mapping[str, Any]],
    script: Sequence[dict[str, Any]] | Model,
    question: str = "What is there?",
    *,
    mounts: Mapping[str, str | Path] | None = None,
    hosts: Mapping[str, str | Path] | None = None,
    approvals: Mapping[str, Literal["allow", "deny"]] | None = None,
) -> RunResult:
    """Take a question from start to ending in memory, on a virtual clock and without a network.

    Args:
        policy: A policy as data, or the path of its file.
        tools: Tools, or mappings with `name`, `input_schema` and `effect`, whose results are empty.
        script: The turns of the model, written as in a task, or a model.
        question: The question.
        mounts: Folders for mounts, as an agent takes them.
        hosts: Folders that answer for hosts.
        approvals: What a person says of a call, by its address: `2.c0` is the first call of step 2. Nobody answers
            about a call that is not named.

    Returns:
        What the run came to, with its log.

    Raises:
        InputError: The policy, a tool, a mount, a host or the script is refused, or the script runs out.
    """
    model = script if callable(script) else Script(listed(script, "a script"))
    agent = Agent(model, map(_tool, listed(tools, "the tools")), _policy(policy), mounts=mounts, hosts=hosts)
    spec = agent.spec(question, run_id="test-run", key=scripted_key("test-run"))

    def answer(at: str) -> Answered | None:
        said = (approvals or {}).get(at.removesuffix(".p"))
        return None if said is None else Answered(at=at, answer=said)

    with agent.workspace() as workspace:
        workspace.network = False
        return agent.result_of(run_now(make_run(spec, head_of(spec), Virtual(workspace, answers=answer))))


def parse(kind: str, text: str | bytes) -> Any:
    """Read text as the runtime does.

    Args:
        kind: `url`, `url_entry`, `path`, `json`, `yaml`, `policy`, `task`, or `reply`: JSON of an LLMOutput.
        text: The text.

    Returns:
        The canonical text of a URL, entry or path; the data of the others.

    Raises:
        Refused: The text is refused.
    """
    if not isinstance(text, str | bytes):
        raise Refused("is neither a str nor bytes")
    plain = text if isinstance(text, str) else text.decode("utf-8", "surrogateescape")
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    try:
        match kind:
            case "url":
                return parse_url(plain).url
            case "url_entry":
                return parse_entry(plain).url
            case "path":
                return parse_path(plain).text
            case "json":
                return strict_json.parse(plain)
            case "yaml":
                return parse_document(data, "<text>", InputError).data
            case "policy":
                return Policy(read_text(data, "<text>", PolicyFile, PolicyError)).data
            case "task":
                return read_text(data, "<text>", TaskFile, TaskError).data
            case "reply":
                return _reply(strict_json.parse(plain))
    except (Malformed, strict_json.NotJson) as error:
        raise Refused(error.reason) from None
    except InputError as error:
        place = ":".join(str(part) for part in (error.file, error.line, error.column) if part is not None)
        reason = f"{error.message}; {error.remedy}" if error.remedy else error.message
        raise Refused(reason, place) from None
    raise ValueError(f"unknown kind {kind!r}")


def _reply(data: Any) -> Any:
    if not isinstance(data, dict) or data.keys() - {*LLMOutput.__struct_fields__}:
        raise Refused("a reply is an object with the fields of LLMOutput")
    proposed = data.get("tool_calls", [])
    items = proposed if isinstance(proposed, list) else [None]
    if any(not isinstance(it, dict) or it.keys() != {"name", "arguments"} for it in items):
        raise Refused("tool_calls is not a list of objects with name and arguments", "/tool_calls")
    calls = [ToolCall(**call) for call in proposed]
    reply = read_reply(LLMOutput(**{**data, "tool_calls": calls}), "1.m1", 1, 0)
    if reply.problem:
        raise Refused(reply.problem)
    return data
