"""URLs and mounts that one policy allows to a single tool by rules of its own, and another policy does not."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...runtime.policy.gate import Gate
from ...runtime.policy.per_tool.request_rules import PARTS, request_schema
from ...runtime.resources.http_methods import METHODS, SAFE_METHODS
from ...runtime.resources.url import Allowlist, Malformed, Target, parse_url
from ..queries.witness import Event
from .grants import ToolPolicy, is_narrowed, url_texts
from .reachability import Reachable, ToolReach, hop_to
from .schema_algebra import canonical, is_empty, less
from .widenings import Widening, Widenings


class ReachWidenings(Widenings):
    """The widenings of all sections but those on single calls, with the rules on what single tools may reach."""

    def _own_reach(self) -> Iterator[Widening]:
        """Yield what tools may reach more of, each of which has rules on that in one of the policies."""
        for tool in self.tools:
            if tool in self.alike or tool.name not in self.stricter.policy.allowed:
                continue  # compared with all others, or not callable at all before
            strict, loose = (ToolPolicy(gate.policy, tool.name) for gate in (self.stricter, self.looser))
            for target in dict.fromkeys(loose.targets()):
                gained = [m for m in METHODS if loose.allows(target, m) and not strict.allows(target, m)]
                if gained:
                    yield from self._own_url(tool, target, gained, loose, strict)
            for mount in self.looser.policy.mounts:
                yield from self._own_mount(tool, mount, loose.mode(mount), strict.mode(mount))

    def _own_url(
        self, tool: ToolReach, target: Target, gained: list[str], loose: ToolPolicy, strict: ToolPolicy
    ) -> Iterator[Widening]:
        """Yield that a tool may reach a target with some methods, given what either policy lets it reach."""
        is_new = not strict.allows(target, None)
        sent = [method for method in gained if method == "GET" or tool.method_of([method])]
        sends = tool.follows_hosts and bool(sent)
        if not (sends or (is_new and tool.places("url"))) or not self._callable([tool], "tools", "url"):
            return
        top = Allowlist([target.url])

        def named(text: str) -> str | None:
            """Return the URL of the target for a text that names something below it that is gained alike."""
            try:
                found = parse_url(text)
            except Malformed:
                return None
            reached = loose.allows(found, None) and strict.allows(found, None) != is_new
            return target.url if reached and top.match(found) is not None else None

        answer, example = tool.naming("url", partial(url_texts, target), target.url, named)
        if not sends and answer == Reachable.UNKNOWN:
            self._note_undecided(tool.name, "tools")
        if not sends and example is None:
            return
        late = None
        if not is_new or example is None:
            late = hop_to(tool, target, None if example is None else 0)
            late |= {} if "GET" in sent else {"hop": 0, "method": sent[0]}
        how = "" if tuple(sent) == SAFE_METHODS or not sends else f" with {', '.join(sent)}"
        place, gate = self._place(tool, "urls", "methods")
        what = self._sentence([tool.name], f"reach {target.url}{how}")
        event = Event(tool.name, tool.arguments if example is None else example, late=late)
        yield self._widening("url_allowlist", what, place, event, gate)

    def _own_mount(
        self, tool: ToolReach, mount: str, mode: str | None, before: str | None
    ) -> Iterator[Widening]:
        """Yield that a tool may read or write below a mount, given its mode for the tool under both policies."""
        for access in ("write", "read"):
            may = mode == "write" or (access == "read" and mode is not None)
            could = before == "write" or (access == "read" and before is not None)
            if not may or could:
                continue
            names, event = self._mount_event(mount, access, [tool])
            if event is not None:
                place, gate = self._place(tool, "mounts")
                what = self._sentence(names, f"{access} below {mount}/")
                yield self._widening("sandbox_path", what, place, event, gate)
                return

    def note_requests(self) -> None:
        """Note rules on requests that may let more through: no event that is compared holds what is sent."""
        for tool in self.tools if self.widening else ():
            for part in PARTS:
                strict, loose = (
                    request_schema(gate.policy, tool.name, part) for gate in (self.stricter, self.looser)
                )
                if tool.name not in self.stricter.policy.allowed or strict == loose:
                    continue
                if not is_empty(less(canonical(loose), canonical(strict))):
                    self.undecided.append(
                        f"{tool.name}: tools.{tool.name}.{part} differs, and may let requests through that the other "
                        "policy denies"
                    )

    def note_signers(self) -> None:
        """Note whose answers count that did not: no event that is compared holds a signature."""
        strict, loose = self.stricter.policy.signers, self.looser.policy.signers
        gained = sorted(name for name, key in loose.items() if key not in strict.values())
        if self.widening and strict and (gained or not loose):
            whose = (
                f"answers that {', '.join(gained)} signed count"
                if loose
                else "answers count without a signature"
            )
            self.undecided.append(f"approval.signers: {whose}, and which calls they allow is not known")

    def _place(self, tool: ToolReach, *keys: str) -> tuple[str, Gate]:
        """Return the pointer of what narrows a tool, and the policy that has it: the looser one if both have."""
        for gate in (self.looser, self.stricter):
            rules = gate.policy.tool_rules.get(tool.name, {})
            for key in keys:
                if key in rules:
                    return f"/tools/{tool.name}/{key}", gate
        assert is_narrowed(self.looser.policy, tool.name) or is_narrowed(self.stricter.policy, tool.name)
        section = "sandbox/mounts" if "mounts" in keys else "url_allowlist"
        return f"/{section}", self.looser
