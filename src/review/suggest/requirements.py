"""What the calls of a recorded run need of a policy, no more: gathered question by question, as the gate asks.

Where the record does not say what a call needed, the recorded policy is kept, and a word says so.
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
from ...runtime.policy.policy import Policy, meta_schema
from ...runtime.policy.usage import Counters
from ...runtime.resources.mount_path import parse_path
from ...runtime.resources.networks import Networks
from ...runtime.resources.url import Malformed, parse_entry
from ...runtime.tools.contract import Tool
from ..queries.recorded_queries import Asked, Question
from ..remedy.minimal_edit import Smallest, Wanted, smallest, uncovered
from .required_limits import COUNTED, Used, budget, line_of

Data = dict[str, Any]

_WHOLE: Final = "the whole host: no entry names less"
_PLACEHOLDER: Final = re.compile(rb"<secret:([a-z_]+):[1-9][0-9]*>")


@dataclass
class Needs:
    """The sections of a policy that a run needs, with what a reader has to know of them.

    `beside` has a comment by the pointer of its line; `passed` are the refused questions that the policy lets pass,
    `stuck` those that no policy does, with the reason; `extra` says how many more calls were made before each
    question than in the record.
    """

    data: Data
    beside: dict[str, str] = field(default_factory=dict)
    passed: list[Asked] = field(default_factory=list)
    stuck: list[tuple[Asked, str]] = field(default_factory=list)
    extra: list[int] = field(default_factory=list)


class Gathering:
    """One run's needs. `policy` is the one that it was recorded under, None where that cannot be had any more."""

    def __init__(
        self, recorded: Recorded, tools: Mapping[str, Tool], policy: Policy | None, asked: Sequence[Asked]
    ) -> None:
        self.recorded, self.run, self.tools = recorded, recorded.run, tools
        self.steps = recorded.lines[1:-1]
        self.policy = policy
        self.asked = asked
        self.limits: Mapping[str, int] = self.run["policy"]["limits"]
        self.needs = Needs({"schema": "policy/v1"})

    def gather(self) -> Needs:
        """Everything, as data that a policy can be made of."""
        self._entries()
        self._notes()
        self._budgets()
        self._settings()
        beside = self.needs.beside
        self.needs.beside = {key: beside[key] for key in beside if _is_there(self.needs.data, key)}
        return self.needs

    # ---- tools, URLs, mounts, networks ----------------------------------------------------------------------

    def _entries(self) -> None:
        """The entries that each question asks for; budgets leave any amount of room meanwhile."""
        policy = _roomy(tuple(self.tools))
        wanted, allowed, extra = Wanted(), dict[str, None](), 0
        for item in self.asked:
            self.needs.extra.append(extra)
            if item.question.call is None and item.question.check is None:
                continue
            if item.call is not None and item.call.name in self.tools:
                allowed[item.call.name] = None
            found = smallest(policy, self.tools, item.question)
            # what stays refused is refused by the same rule again: the run goes on, or ends, by that
            wanted.also(found.wanted or Wanted())
            if found.why_not is not None:
                self.needs.stuck.append((item, found.why_not))
            elif item.refused:
                self.needs.passed.append(item)
                extra += item.question.call is not None
                self._mark(item, found)
        for path in (path for line in self.steps for path in _written(line)):
            check = {"rule": "sandbox_path", "path": path, "access": "write"}
            wanted.also(smallest(policy, self.tools, Question(check=check)).wanted or Wanted())
        self.needs.data.update(_sections(wanted, list(allowed)))

    def _mark(self, item: Asked, found: Smallest) -> None:
        """A word beside each line that the recorded policy does not have."""
        edits = found.edits
        if self.policy is None and item.entry is not None and item.entry["rule_id"] == "tool_registry":
            assert item.call is not None
            self.needs.beside.setdefault(f"/tool_registry/allowed={item.call.name}", _refused(item))
        if self.policy is not None:
            edits = smallest(self.policy, self.tools, item.question, may_ask=True).edits
        for change in edits:
            pointer = change.pointer
            if pointer.startswith("/url_allowlist/"):
                pointer = "/url_allowlist/-"  # a wider entry takes a narrower one's place
            if change.value is not None:
                self.needs.beside.setdefault(_line_of(pointer, change.value), _refused(item))

    def _notes(self) -> None:
        """What the record does not hold of what calls reached, and what the run is set up with."""
        self._mounts()
        self._addresses()
        for entry in self.needs.data.get("url_allowlist", ()):
            if parse_entry(entry).prefix == "/":
                self.needs.beside.setdefault(f"/url_allowlist={entry}", _WHOLE)
        hidden = {
            item.call.name for item in self.asked if item.call is not None and self._is_hidden(item)
        } - self._noted()
        for name in sorted(hidden):
            effect = self.tools[name].effect
            what = (
                "the record does not say what it reached"
                if effect == "network"
                else "the record notes no file of it"
            )
            if effect == "network":
                self._keep("url_allowlist", name, what)
            else:
                for mount, bound in self.run["mounts"].items():
                    if bound["source"] is None:
                        self._mount(mount, "write", f"{name} ran, and {what}")
        if self._reached_out():
            self._keep("private_networks", "the network", "the record has no allowed address")

    def _keep(self, section: str, who: str, why: str) -> None:
        held = [] if self.policy is None else self.policy.data.get(section, [])
        here = self.needs.data.setdefault(section, [])
        for entry in held:
            with contextlib.suppress(PolicyError):
                Policy.from_dict({"schema": "policy/v1", section: [*here, entry]})
                here.append(entry)
                self.needs.beside[f"/{section}={entry}"] = f"kept: {who}, {why}"
        if not here:
            del self.needs.data[section]

    def _noted(self) -> set[str]:
        """Tools with a file noted; each file is noted once in a run."""
        return {
            result["name"]
            for line in self.steps
            for result in line["tool_results"]
            if any(attempt.get("reads") or attempt.get("writes") for attempt in result["attempts"])
        }

    def _is_hidden(self, item: Asked) -> bool:
        """Whether a call ran whose reach neither its arguments nor its record name."""
        call = item.question.call
        if call is None:
            return False
        line = self.steps[item.step - 1]
        result = line["tool_results"][int(item.position[1:])]
        tool = self.tools.get(call.name)
        if tool is None or not result["attempts"] or call.arguments is None:
            return False
        kinds = {"network": ("url",), "read": ("path",), "write": ("path",)}.get(tool.effect, ())
        named = [
            text
            for resource in tool.resources
            if resource.kind.startswith(kinds)
            for _, text in resource.find(call.arguments.value())
        ]
        return bool(kinds) and not named

    def _reached_out(self) -> bool:
        """Whether a call went to a host that no folder answers for, as far as entries tell."""
        hosts = set(self.run["hosts"])
        entries = self.needs.data.get("url_allowlist", ())
        new = {key for key, word in self.needs.beside.items() if word != _WHOLE}
        return any(
            parse_entry(entry).host not in hosts and f"/url_allowlist={entry}" not in new for entry in entries
        )

    def _addresses(self) -> None:
        """An entry for an address that is not public decides nothing without its network."""
        for entry in self.needs.data.get("url_allowlist", ()):
            host = parse_entry(entry).host
            with contextlib.suppress(ValueError):
                address = ipaddress.ip_address(host)
                named = self.needs.data.get("private_networks", [])
                if host not in self.run["hosts"] and not Networks(named).allows(host):
                    network = f"{address}/{address.max_prefixlen}"
                    self.needs.data["private_networks"] = [*named, network]
                    self.needs.beside[f"/private_networks={network}"] = f"for {entry}"

    def _mounts(self) -> None:
        for name, bound in self.run["mounts"].items():
            mounts = self.needs.data.get("sandbox", {}).get("mounts", {})
            if bound["source"] is not None and name not in mounts:
                self._mount(name, "read", "the run binds a folder to it")
            elif bound["source"] is None and mounts.get(name) == "read":
                self._mount(name, "write", "a folder of the run's own takes a mount for writing")
        for name in self._set_up():
            if self.needs.data.get("sandbox", {}).get("mounts", {}).get(name) != "write":
                self._mount(name, "write", "the task puts files there")

    def _mount(self, name: str, access: str, why: str) -> None:
        self.needs.data.setdefault("sandbox", {}).setdefault("mounts", {})[name] = access
        self.needs.beside.setdefault(f"/sandbox/mounts/{name}", why)

    def _set_up(self) -> list[str]:
        """Mounts that the run's task puts files into."""
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

    def _budgets(self) -> None:
        stuck = {id(item) for item, _ in self.needs.stuck}
        asked = zip(self.asked, self.needs.extra, strict=True)
        used = Used.by((item, extra) for item, extra in asked if id(item) not in stuck)
        for item in used.refused:
            if item.question.call is None:
                self.needs.passed.append(item)
            self.needs.beside[line_of(item)] = _refused(item)
        wrap_up = any(line.get("notice") == "last" for line in self.steps)
        if self.policy is not None:
            wrap_up = self.policy.wrap_up
        self.needs.data["loop_budget"] = budget(used, self.steps, self.limits, wrap_up, self.needs.beside)
        if used.tool_calls:
            self.needs.data["cycle_detection"] = {"max_repeats": used.repeats}

    # ---- what is as recorded --------------------------------------------------------------------------------

    def _settings(self) -> None:
        data, recorded = self.needs.data, self.run["policy"]
        data.setdefault("arg_schema_enforcement", "strict")
        names = ("max_retries", "backoff_base_ms", "backoff_cap_ms")
        if all(name in self.limits for name in names):
            data["retry"] = {name: self.limits[name] for name in names}
        data["on_deny"] = recorded["on_deny"]
        self._approval()
        if self.policy is not None:
            redact = list(self.policy.redact)
        else:
            known = set(meta_schema()["properties"]["redact"]["items"]["enum"])
            met = {kind.decode() for kind in _PLACEHOLDER.findall(self.recorded.files[STATE])}
            redact = sorted(met & known)
            self.needs.beside["/redact"] = "the recorded policy is gone: only the kinds that the record shows"
        if redact or self.policy is None:
            data["redact"] = redact

    def _approval(self) -> None:
        """Who was asked is asked again; so is who would have been, had the call got so far."""
        allowed = self.needs.data.get("tool_registry", {}).get("allowed", ())
        asked, timeout = [], 1
        for item in self.asked:
            entry = item.entry
            if entry is not None and entry["rule_id"] == "approval" and item.call is not None:
                asked.append(item.call.name)
                timeout = entry["facts"]["timeout_s"]
        if self.policy is not None:
            asked += self.policy.approval_for
            timeout = self.policy.approval_timeout_s or timeout
        kept = [name for name in allowed if name in asked]
        if kept:
            self.needs.data["approval"] = {"required_for": kept, "timeout_s": timeout}


@cache
def _roomy(tools: tuple[str, ...]) -> Policy:
    """A policy that lets tools be called, without other entries, with as much room as a policy can leave."""
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


def _sections(wanted: Wanted, tools: list[str]) -> Data:
    """What is wanted, as sections of a policy; those that would be empty are left out."""
    mounts = {
        pointer.removeprefix("/sandbox/mounts/"): access
        for pointer, access in wanted.scalars.items()
        if pointer.startswith("/sandbox/mounts/")
    }
    found: Data = {
        "tool_registry": {"allowed": tools} if tools else {},
        "url_allowlist": uncovered(wanted.urls),
        "private_networks": wanted.networks,
        "sandbox": {"mounts": mounts} if mounts else {},
        "arg_schema_enforcement": wanted.scalars.get("/arg_schema_enforcement"),
    }
    return {key: value for key, value in found.items() if value}


def _line_of(pointer: str, value: Any) -> str:
    """Where a comment belongs: behind an entry of a list by its value, since its place may change."""
    return f"{pointer[:-2]}={value}" if pointer.endswith("/-") else pointer


def _is_there(data: Any, line: str) -> bool:
    """Whether a line that a comment is for came into the policy: a wider entry may have taken its place."""
    place, mark, entry = line.partition("=")
    for part in place.split("/")[1:]:
        data = data.get(part, {}) if isinstance(data, dict) else {}
    return entry in map(str, data) if mark and isinstance(data, list) else data != {}


def _refused(item: Asked) -> str:
    assert item.entry is not None
    name = "" if item.call is None else f" {item.call.name[:64]}"
    late = ", while it ran" if item.question.check is not None else ""
    return f"was refused: step {item.step}{name} ({item.entry['rule_id']}{late})"


def _written(line: Data) -> Iterator[str]:
    for result in line["tool_results"]:
        for attempt in result["attempts"]:
            yield from (path for path, _ in attempt.get("writes", ()))


# ---- asked again ------------------------------------------------------------------------------------------------


def shifted(question: Question, extra: int) -> Question:
    """A question with as many more calls made before it."""
    used = question.counters
    if used is None or not extra:
        return question
    more = Counters(used.iterations, used.tokens, used.tool_calls + extra, used.result_bytes, used.repeats)
    return replace(question, counters=more)
