"""What the calls of a recorded run require of a policy, collected question by question as the gate was asked.

Where the record does not say what a call required, the recorded policy's entries are kept, with a comment.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

from ...evidence.files.manifest import STATE
from ...evidence.recording.recorded import Recorded, task_of
from ...evidence.tasks.task import load_task
from ...fail.errors import PolicyError, TaskError
from ...runtime.core.secret_kinds import PATTERNS
from ...runtime.policy.policy import Policy, meta_schema
from ...runtime.resources.http_methods import url_text
from ...runtime.resources.mount_path import parse_path
from ...runtime.resources.networks import Networks
from ...runtime.resources.url import Allowlist, Malformed, parse_entry, parse_url
from ...runtime.tools.contract import Tool
from ..queries.recorded_queries import GateQuestion, RecordedQuestion
from ..remedy.minimal_edit import EditPlan, MinimalEdit, find_minimal_edit, url_entries
from .kept_rules import rules_of, rules_that_apply
from .required_limits import COUNTED, Usage, limit_pointer, required_budget

Data = dict[str, Any]

# what a tool of an effect kind may reach without a trace in the record
_REACHES: Final = {"read": ("path",), "write": ("path",), "network": ("url",), "external": ("url", "path")}
_WHOLE: Final = "the whole host: no entry names less"
_PLACEHOLDER: Final = re.compile(rb"<secret:([a-z_]+):[1-9][0-9]*>")


@dataclass
class Requirements:
    """The sections of a policy that a run requires.

    Attributes:
        data: The policy.
        line_comments: A comment by the pointer of its line, see `policy_writer.policy_text`.
        now_allowed: Questions refused in the record that the policy allows.
        never_allowed: Questions that no policy allows, with the reason.
        extra_calls: For each question, how many more calls were made before it than in the record.
    """

    data: Data
    line_comments: dict[str, str] = field(default_factory=dict)
    now_allowed: list[RecordedQuestion] = field(default_factory=list)
    never_allowed: list[tuple[RecordedQuestion, str]] = field(default_factory=list)
    extra_calls: list[int] = field(default_factory=list)


class RequirementCollector:
    """Collects what one run requires.

    Args:
        recorded: The run.
        tools: Its tools by name.
        policy: The policy that it was recorded under, None if that is no longer available.
        questions: What its gate was asked, in order.
    """

    def __init__(
        self,
        recorded: Recorded,
        tools: Mapping[str, Tool],
        policy: Policy | None,
        questions: Sequence[RecordedQuestion],
    ) -> None:
        self.recorded, self.run, self.tools = recorded, recorded.run, tools
        self.steps = recorded.lines[1:-1]
        self.policy = policy
        self.questions = questions
        self.limits: Mapping[str, int] = self.run["policy"]["limits"]
        self.required = Requirements({"schema": "policy/v1"})

    def collect(self) -> Requirements:
        """Return everything that the run requires."""
        self._collect_entries()
        self._collect_unrecorded()
        self._collect_limits()
        self._collect_settings()
        if "tools" in self.required.data:
            self.required.data["tools"] = rules_that_apply(self.required.data)
        comments = self.required.line_comments
        self.required.line_comments = {
            line: comments[line] for line in comments if _has_line(self.required.data, line)
        }
        return self.required

    # ---- tools, URLs, mounts, networks ----------------------------------------------------------------------

    def _collect_entries(self) -> None:
        """Collect the entries that each question requires, under limits as high as a policy allows.

        The recorded conditions on arguments stay: what one of them refused is refused by the draft.
        """
        policy = _policy_with_highest_limits(tuple(self.tools))
        rules = {} if self.policy is None else rules_of(self.policy, self.tools)
        if rules:
            approval = {"approval": {"required_for": [], "timeout_s": 1}}  # for conditions that ask
            policy = Policy.from_dict({**policy.data, **approval, **rules})
        plan, allowed, extra_calls = EditPlan(), dict[str, None](), 0
        for item in self.questions:
            self.required.extra_calls.append(extra_calls)
            if item.question.call is None and item.question.check is None:
                continue
            if item.call is not None and item.call.name in self.tools:
                allowed[item.call.name] = None
            minimal = find_minimal_edit(policy, self.tools, item.question, allow_escalation=True)
            # what stays refused is refused by the same rule again: the run goes on, or ends, by that
            plan.merge(minimal.plan or EditPlan())
            if minimal.why_not is not None:
                self.required.never_allowed.append((item, minimal.why_not))
            elif item.refused:
                self.required.now_allowed.append(item)
                extra_calls += item.question.call is not None
                self._comment_new_lines(item, minimal)
        for path in (path for line in self.steps for path in _written(line)):
            check = {"rule": "sandbox_path", "path": path, "access": "write"}
            plan.merge(find_minimal_edit(policy, self.tools, GateQuestion(check=check)).plan or EditPlan())
        self.required.data.update(_sections(plan, list(allowed)))
        if self.policy is not None:
            self.required.data.update(rules_of(self.policy, allowed))

    def _comment_new_lines(self, item: RecordedQuestion, minimal: MinimalEdit) -> None:
        """Comment each line that the recorded policy does not have."""
        edits = minimal.edits
        if self.policy is None and item.entry is not None and item.entry["rule_id"] == "tool_registry":
            assert item.call is not None
            self.required.line_comments.setdefault(f"/tool_registry/allowed={item.call.name}", _refused(item))
        if self.policy is not None:
            edits = find_minimal_edit(self.policy, self.tools, item.question, allow_escalation=True).edits
        for change in edits:
            pointer = change.pointer
            if pointer.startswith("/url_allowlist/"):
                pointer = "/url_allowlist/-"  # a wider entry takes a narrower one's place
            if change.value is not None:
                self.required.line_comments.setdefault(_line_of(pointer, change.value), _refused(item))

    def _collect_unrecorded(self) -> None:
        """Collect what calls may have reached without a trace in the record, and what the run is set up with."""
        self._collect_mounts()
        self._collect_addresses()
        for entry in self.required.data.get("url_allowlist", ()):
            if parse_entry(url_text(entry)).prefix == "/":
                self.required.line_comments.setdefault(f"/url_allowlist={url_text(entry)}", _WHOLE)
        hidden = {
            item.call.name for item in self.questions if item.call is not None and self._is_hidden(item)
        } - self._tools_with_recorded_files()
        for name in sorted(hidden):
            reaches = _REACHES[self.tools[name].effect]
            if "url" in reaches:
                self._keep("url_allowlist", name, "the record does not say what it reached")
            if "path" in reaches:
                for mount, bound in self.run["mounts"].items():
                    if bound["source"] is None:
                        self._mount(mount, "write", f"{name} ran, and the record notes no file of it")
        if self._reached_out():
            self._keep("private_networks", "the network", "the record has no allowed address")

    def _keep(self, section: str, who: str, why: str) -> None:
        """Keep the recorded policy's entries of a section that do not contradict what is required."""
        recorded_entries = [] if self.policy is None else self.policy.data.get(section, [])
        entries = self.required.data.setdefault(section, [])
        for entry in recorded_entries:
            with contextlib.suppress(PolicyError):
                Policy.from_dict({"schema": "policy/v1", section: [*entries, entry]})
                entries.append(entry)
                self.required.line_comments[_line_of(f"/{section}/-", entry)] = f"kept: {who}, {why}"
        if not entries:
            del self.required.data[section]

    def _tools_with_recorded_files(self) -> set[str]:
        """Return the tools of which the record names a file; it names each file once."""
        return {
            result["name"]
            for line in self.steps
            for result in line["tool_results"]
            if any(attempt.get("reads") or attempt.get("writes") for attempt in result["attempts"])
        }

    def _is_hidden(self, item: RecordedQuestion) -> bool:
        """Return whether a call ran of which neither arguments nor record say what it reached."""
        call = item.question.call
        if call is None or item.is_overruled:
            return False
        line = self.steps[item.step - 1]
        result = line["tool_results"][int(item.position[1:].partition(".")[0])]
        tool = self.tools.get(call.name)
        if tool is None or not result["attempts"] or call.arguments is None:
            return False
        if result["status"] == "cancelled":
            return False  # nothing came of it, so the run goes the same whatever it had reached
        kinds = _REACHES.get(tool.effect, ())
        named = [
            text
            for resource in tool.resources
            if resource.kind.startswith(kinds)
            for _, text in resource.find(call.arguments.value())
        ]
        return bool(kinds) and not named

    def _reached_out(self) -> bool:
        """Return whether a call went to a host that no folder answers for, as far as entries tell."""
        hosts = set(self.run["hosts"])
        entries = self.required.data.get("url_allowlist", ())
        new = {key for key, word in self.required.line_comments.items() if word != _WHOLE}
        return any(
            parse_entry(url_text(entry)).host not in hosts and f"/url_allowlist={url_text(entry)}" not in new
            for entry in entries
        )

    def _collect_addresses(self) -> None:
        """Add the network of each entry for an address that is not public: without it the entry is unused."""
        for entry in self.required.data.get("url_allowlist", ()):
            host = parse_entry(url_text(entry)).host
            with contextlib.suppress(ValueError):
                address = ipaddress.ip_address(host)
                named = self.required.data.get("private_networks", [])
                if host not in self.run["hosts"] and not Networks(named).allows(host):
                    network = f"{address}/{address.max_prefixlen}"
                    self.required.data["private_networks"] = [*named, network]
                    self.required.line_comments[f"/private_networks={network}"] = f"for {entry}"

    def _collect_mounts(self) -> None:
        for name, bound in self.run["mounts"].items():
            mounts = self.required.data.get("sandbox", {}).get("mounts", {})
            if bound["source"] is not None and name not in mounts:
                self._mount(name, "read", "the run binds a folder to it")
            elif bound["source"] is None and mounts.get(name) == "read":
                self._mount(name, "write", "a folder of the run's own takes a mount for writing")
        for name in self._mounts_with_setup():
            if self.required.data.get("sandbox", {}).get("mounts", {}).get(name) != "write":
                self._mount(name, "write", "the task puts files there")

    def _mount(self, name: str, access: str, why: str) -> None:
        self.required.data.setdefault("sandbox", {}).setdefault("mounts", {})[name] = access
        self.required.line_comments.setdefault(f"/sandbox/mounts/{name}", why)

    def _mounts_with_setup(self) -> list[str]:
        """Return the mounts that the run's task puts files into."""
        if self.run["task"] is None:
            return []
        recorded = self.recorded
        try:
            place = task_of(recorded.folder, recorded.base, recorded.name)
            setup = load_task(recorded.base / place, root=recorded.base).data.get("setup", ())
            return sorted({parse_path(item["path"]).mount for item in setup})
        except (TaskError, Malformed):
            return []

    # ---- limits ---------------------------------------------------------------------------------------------

    def _collect_limits(self) -> None:
        refused = {id(item) for item, _ in self.required.never_allowed}
        counted = zip(self.questions, self.required.extra_calls, strict=True)
        used = Usage.of((item, extra) for item, extra in counted if id(item) not in refused)
        for item in used.refused:
            if item.question.call is None:
                self.required.now_allowed.append(item)
            self.required.line_comments[limit_pointer(item)] = _refused(item)
        wrap_up = any(line.get("notice") == "last" for line in self.steps)
        if self.policy is not None:
            wrap_up = self.policy.wrap_up
        self.required.data["loop_budget"] = required_budget(
            used, self.steps, self.limits, wrap_up, self.required.line_comments
        )
        if used.tool_calls:
            self.required.data["cycle_detection"] = {"max_repeats": used.repeats}

    # ---- what is as recorded --------------------------------------------------------------------------------

    def _collect_settings(self) -> None:
        data, recorded = self.required.data, self.run["policy"]
        data.setdefault("arg_schema_enforcement", "strict")
        names = ("max_retries", "backoff_base_ms", "backoff_cap_ms")
        if all(name in self.limits for name in names):
            data["retry"] = {name: self.limits[name] for name in names}
        data["on_deny"] = recorded["on_deny"]
        if "on_failure" in recorded:
            data["on_failure"] = {key: value for key, value in recorded["on_failure"].items() if value != {}}
        self._collect_approval()
        if self.policy is not None:
            redact = self.policy.data.get("redact", [])
        else:
            known = set(PATTERNS)
            kinds = {kind.decode() for kind in _PLACEHOLDER.findall(self.recorded.files[STATE])}
            redact = sorted(kinds & known)
            self.required.line_comments["/redact"] = (
                "the recorded policy is gone: only the kinds that the record shows"
            )
        if redact or self.policy is None:
            data["redact"] = redact
        credentials = {} if self.policy is None else self.policy.data.get("credentials", {})
        hosts = Allowlist(data.get("url_allowlist", ()))
        kept = {key: item for key, item in credentials.items() if hosts.knows(parse_url(f"https://{key}"))}
        if kept:
            data["credentials"] = kept

    def _collect_approval(self) -> None:
        """Require approval for tools that were asked about, or would have been had the call got so far."""
        allowed = self.required.data.get("tool_registry", {}).get("allowed", ())
        conditional = {
            name for name, rules in self.required.data.get("tools", {}).items() if "ask_if" in rules
        }
        asked_about, timeout = [], 1
        for item in self.questions:
            entry = item.entry
            if entry is not None and entry["rule_id"] == "approval" and item.call is not None:
                asked_about.append(item.call.name)
                timeout = entry["facts"]["timeout_s"]
        if self.policy is not None:
            asked_about += self.policy.approval_for
            timeout = self.policy.approval_timeout_s or timeout
        required = [name for name in allowed if name in asked_about and name not in conditional]
        if required or conditional:
            kept = {} if self.policy is None or not self.policy.signers else {"signers": self.policy.signers}
            self.required.data["approval"] = {"required_for": required, "timeout_s": timeout, **kept}


@cache
def _policy_with_highest_limits(tools: tuple[str, ...]) -> Policy:
    """Return a policy that allows tools to be called, has no other entries, and the highest valid limits."""
    sections = meta_schema()["properties"]
    most = {
        section: {
            name: schema["maximum"]
            for name, schema in sections[section]["properties"].items()
            if "maximum" in schema
        }
        for section in COUNTED
    }
    return Policy.from_dict({"schema": "policy/v1", "tool_registry": {"allowed": list(tools)}, **most})


def _sections(plan: EditPlan, tools: list[str]) -> Data:
    """Return a plan as sections of a policy; those that would be empty are left out."""
    mounts = {
        pointer.removeprefix("/sandbox/mounts/"): access
        for pointer, access in plan.scalars.items()
        if pointer.startswith("/sandbox/mounts/")
    }
    sections: Data = {
        "tool_registry": {"allowed": tools} if tools else {},
        "url_allowlist": url_entries(plan),
        "private_networks": plan.networks,
        "sandbox": {"mounts": mounts} if mounts else {},
        "arg_schema_enforcement": plan.scalars.get("/arg_schema_enforcement"),
    }
    return {key: value for key, value in sections.items() if value}


def _line_of(pointer: str, value: Any) -> str:
    """Return the key of a comment: an entry of a list is named by its value, since its place may change."""
    if not pointer.endswith("/-"):
        return pointer
    return f"{pointer[:-2]}={url_text(value) if isinstance(value, Mapping) else value}"


def _has_line(data: Any, line: str) -> bool:
    """Return whether a commented line is in the policy: a wider entry may have taken its place."""
    place, mark, entry = line.partition("=")
    for part in place.split("/")[1:]:
        data = data.get(part, {}) if isinstance(data, dict) else {}
    if mark and isinstance(data, list):
        return entry in [url_text(item) if isinstance(item, Mapping) else str(item) for item in data]
    return bool(data != {})


def _refused(item: RecordedQuestion) -> str:
    """Return the comment for a line that allows what was refused."""
    assert item.entry is not None
    name = "" if item.call is None else f" {item.call.name[:64]}"
    late = ", while it ran" if item.question.check is not None else ""
    return f"was refused: step {item.step}{name} ({item.entry['rule_id']}{late})"


def _written(line: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths that the calls of a step wrote."""
    for result in line["tool_results"]:
        for attempt in result["attempts"]:
            yield from (path for path, _ in attempt.get("writes", ()))


# ---- asked again ------------------------------------------------------------------------------------------------


def with_extra_calls(question: GateQuestion, extra_calls: int) -> GateQuestion:
    """Return a question as if more calls had been made before it."""
    used = question.counters
    if used is None or not extra_calls:
        return question
    return replace(question, counters=replace(used, tool_calls=used.tool_calls + extra_calls))
