"""What one policy lets through that another refuses, entry by entry."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

from ...runtime.policy.gate import Counters, Gate
from ...runtime.resources.mount_path import parse_path
from ...runtime.resources.url import Malformed, Target, parse_url
from ..queries.address_ranges import Reachable
from ..queries.witness import RANK, Event, Witness, witnessed
from .reachability import CAN, CANNOT, UNSURE, Caller, Grants, path_texts, target_of, targets_of, url_texts

_NAMED: Final = 4  # tools that a line names
_STEPS: Final = ("max_iterations", "max_tokens")


@dataclass(frozen=True, slots=True)
class Opening:
    """An entry of a policy, with an event that it decides better than the other policy does."""

    rule: str
    what: str
    at: str
    witness: Witness


class Openings:
    """What NEW opens (`widening`), or what OLD does: what NEW shuts, that is."""

    def __init__(self, old: Gate, new: Gate, *, widening: bool) -> None:
        self.old, self.new, self.widening = old, new, widening
        self.less, self.more = (old, new) if widening else (new, old)
        self.untold: list[str] = []
        self._asked: dict[Target, tuple[dict[str, Any] | None, dict[str, Any]]] = {}
        grants = Grants([self.more.policy])
        self.callers = [
            Caller(self.more.tools[name], [self.more], grants)
            for name in self.more.policy.allowed
            if name in self.more.tools
        ]

    def all(self) -> Iterator[Opening]:
        """Every opening, by rule and in the order of the policy that opens."""
        if self.more.decide_step(Counters()) is not None:
            return  # nothing is ever asked there
        if self.less.policy.data == self.more.policy.data:
            return
        for part in (
            self.tools, self.urls, self.networks, self.mounts, self.forms, self.limits, self.approvals,
        ):  # fmt: skip
            yield from part()

    # ---- helpers ---------------------------------------------------------------------------------------

    def opening(self, rule: str, what: str, pointer: str, event: Event, gate: Gate | None = None) -> Opening:
        """An opening whose event has been shown to both gates."""
        witness = witnessed(self.old, self.new, event)
        less, more = (witness.before, witness.after) if self.widening else (witness.after, witness.before)
        if RANK[more["decision"]] >= RANK[less["decision"]]:
            raise RuntimeError(f"no witness of a change of {rule}: {witness.to_dict()}")
        return Opening(rule, what, (gate or self.more).policy.at(pointer), witness)

    def may(self, names: Iterable[str], what: str) -> str:
        """`a and b may ...`, or `may no longer ...`."""
        known = list(names)
        shown = ", ".join(known[:_NAMED]) + (
            f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
        )
        return f"{shown} may {'' if self.widening else 'no longer '}{what}"

    def able(self, callers: Iterable[Caller], about: str, kind: str = "") -> list[Caller]:
        """Those that can be called; of those that nobody can tell of, a word is said."""
        found = []
        for caller in callers:
            if caller.state == CAN:
                found.append(caller)
            elif caller.state == UNSURE:
                self.unsure(caller.tool.name, about)
        # what shows best what an entry is about: a tool that both policies allow, and whose arguments name it
        known = self.less.policy.allowed
        return sorted(found, key=lambda c: (c.tool.name not in known, bool(kind) and not c.places(kind)))

    def unsure(self, name: str, about: str) -> None:
        side = "NEW" if self.widening else "OLD"
        what = "gives it" if self.widening else "takes from it"
        self.untold.append(
            f"{name}: no arguments were found that fit its schema and that {side} does not deny, "
            f"so what {about} {what} is not known"
        )

    # ---- the rules -------------------------------------------------------------------------------------

    def tools(self) -> Iterator[Opening]:
        callers = [caller for caller in self.callers if caller.tool.name not in self.less.policy.allowed]
        for caller in self.able(callers, "tool_registry"):
            name = caller.tool.name
            asks = " with a person's approval" if name in self.more.policy.approval_for else ""
            pointer = f"/tool_registry/allowed/{self.more.policy.allowed[name]}"
            yield self.opening(
                "tool_registry", self.may([name], f"be called{asks}"), pointer, Event(name, caller.arguments)
            )

    def urls(self) -> Iterator[Opening]:
        allowed = self.less.policy.allowlist
        same = frozenset(self.less.policy.data.get("url_allowlist", ()))
        texts = self.more.policy.data.get("url_allowlist", ())
        found = ((i, target_of(text)) for i, text in enumerate(texts) if text not in same)
        opened = [(i, target) for i, target in found if allowed.match(target) is None]
        if not opened:
            return
        able = self.able((c for c in self.callers if c.asks_hosts), "url_allowlist", "url")
        others = [c for c in self.callers if not c.asks_hosts and c.places("url")]
        others = self.able(others, "url_allowlist")
        for i, target in opened:
            holding: dict[str, dict[str, Any]] = {}
            for caller in [*others, *able[:1]]:
                arguments, sure = caller.holding(
                    "url", partial(url_texts, target), i, self.entry_of, thorough=caller in others
                )
                if arguments is not None:
                    holding[caller.tool.name] = arguments
                elif not sure and caller in others:
                    self.unsure(caller.tool.name, "url_allowlist")
            names = [c.tool.name for c in able] + [c.tool.name for c in others if c.tool.name in holding]
            if names:
                event = self.url_event(able, holding, names[0], target)
                what = self.may(names, f"reach {target.url}")
                yield self.opening("url_allowlist", what, f"/url_allowlist/{i}", event)

    def url_event(
        self, able: list[Caller], holding: dict[str, dict[str, Any]], name: str, target: Target
    ) -> Event:
        if name in holding:
            return Event(name, holding[name])
        caller = next(c for c in able if c.tool.name == name)
        hop = 1 if caller.places("url") else 0
        return Event(name, caller.arguments, late=_hop(target, hop))

    def entry_of(self, text: str) -> int | None:
        """The entry that a text is allowed by, if the other policy allows it by none."""
        try:
            target = parse_url(text)
        except Malformed:
            return None
        return (
            None
            if self.less.policy.allowlist.match(target) is not None
            else self.more.policy.allowlist.match(target)
        )

    def networks(self) -> Iterator[Opening]:
        mine, others = (gate.policy.data.get("private_networks", ()) for gate in (self.more, self.less))
        if not mine or set(mine) <= set(others):
            return
        here, there = Reachable(mine), Reachable(others)
        opened = [(i, address) for i in range(len(mine)) if (address := here.not_in(i, there)) is not None]
        if not opened:
            return
        targets = targets_of(self.more.policy)
        if not targets:
            return
        able = self.able((c for c in self.callers if c.asks_hosts), "private_networks", "url")
        if not able:
            return
        named = [target for target in targets if not _is_literal(target.host)]
        found: list[tuple[int, str, Target]] = []
        if named:
            known = (t for t in named if self.less.policy.allowlist.match(t) is not None)
            target = next(known, named[0])
            found = [(i, address, target) for i, address in opened]
        else:
            found = self.literal_openings(targets, here, there)
        for i, address, target in found:
            event = self.address_event(able[0], target, address)
            what = self.may(
                [c.tool.name for c in able], f"connect to addresses in {mine[i]}, such as {address}"
            )
            yield self.opening("url_allowlist", what, f"/private_networks/{i}", event)

    def literal_openings(
        self, targets: Sequence[Target], here: Reachable, there: Reachable
    ) -> list[tuple[int, str, Target]]:
        """Where every URL names its address, that very address has to be opened."""
        out: dict[int, tuple[int, str, Target]] = {}
        for target in targets:
            entry = here.opened_by(target.host, there)
            if entry is not None and entry not in out:
                out[entry] = (entry, target.host, target)
        return sorted(out.values(), key=lambda item: item[0])

    def address_event(self, caller: Caller, target: Target, address: str) -> Event:
        if target not in self._asked:
            index = self.more.policy.allowlist.match(target)
            texts = partial(url_texts, target)
            found, _ = caller.holding("url", texts, index, self.more_entry_of, thorough=False)
            hop = 0 if found is not None or not caller.places("url") else 1
            self._asked[target] = (caller.arguments if found is None else found, _hop(target, hop))
        arguments, late = self._asked[target]
        return Event(caller.tool.name, arguments, late={**late, "address": address})

    def more_entry_of(self, text: str) -> int | None:
        try:
            return self.more.policy.allowlist.match(parse_url(text))
        except Malformed:
            return None

    def mounts(self) -> Iterator[Opening]:
        mine, others = self.more.policy.mounts, self.less.policy.mounts
        for mount, mode in mine.items():
            gained = [
                access
                for access in ("write", "read")
                if (mode == "write" or access == "read")
                and not (others.get(mount) == "write" or (access == "read" and mount in others))
            ]
            words: list[str] = []
            event = None
            for access in gained:
                names, shown = self.mount_event(mount, access)
                if shown is not None:
                    words.append(self.may(names, f"{access} below {mount}/"))
                    event = event or shown
            if event is not None:
                yield self.opening("sandbox_path", "; ".join(words), f"/sandbox/mounts/{mount}", event)

    def mount_event(self, mount: str, access: str) -> tuple[list[str], Event | None]:
        """The tools that may come to a mount, and an event with one of them."""
        kind = f"path:{access}"
        able = self.able((c for c in self.callers if c.touches(access)), "sandbox.mounts", kind)
        others = [c for c in self.callers if not c.touches(access) and c.places(kind)]
        names, event = [caller.tool.name for caller in able], None
        if able:
            arguments, _ = able[0].holding(kind, partial(path_texts, mount), mount, _mount_of, thorough=False)
            late = {"rule": "sandbox_path", "path": f"{mount}/x", "access": access}
            event = (
                Event(names[0], able[0].arguments, late=late)
                if arguments is None
                else Event(names[0], arguments)
            )
        for caller in self.able(others, "sandbox.mounts"):
            arguments, sure = caller.holding(kind, partial(path_texts, mount), mount, _mount_of)
            if arguments is not None:
                names.append(caller.tool.name)
                event = event or Event(caller.tool.name, arguments)
            elif not sure:
                self.unsure(caller.tool.name, "sandbox.mounts")
        return names, event

    def forms(self) -> Iterator[Opening]:
        """Arguments beyond the limits of a schema, where its shape alone is asked."""
        if self.more.policy.strict_arguments or not self.less.policy.strict_arguments:
            return
        found: list[tuple[Caller, dict[str, Any]]] = []
        for caller in self.callers:
            if caller.state == CANNOT or not caller.has_limits:
                continue
            arguments = caller.beyond_limits()
            if arguments is not None:
                found.append((caller, arguments))
            else:
                self.untold.append(
                    f"{caller.tool.name}: no arguments were found that break a limit of its schema and nothing else; "
                    "what arg_schema_enforcement does to it is not known"
                )
        if found:
            found.sort(key=lambda pair: pair[0].tool.name not in self.less.policy.allowed)
            names = [caller.tool.name for caller, _ in found]
            caller, arguments = found[0]
            what = self.may(names, "be called with values beyond the limits of their schemas")
            yield self.opening(
                "arg_schema", what, "/arg_schema_enforcement", Event(caller.tool.name, arguments)
            )

    def limits(self) -> Iterator[Opening]:
        mine, others = self.more.policy.limits, self.less.policy.limits
        raised = [name for name in mine if mine[name] > others[name]]
        for name in (name for name in raised if name in _STEPS):
            used = {name.removeprefix("max_"): others[name]}
            yield self.opening(
                "loop_budget",
                self.is_now(name, mine[name], others[name]),
                f"/loop_budget/{name}",
                Event(used=used),
            )
        more, less = self.more.policy.max_repeats, self.less.policy.max_repeats
        calls = [name for name in raised if name not in _STEPS]
        repeats = more > less and mine["max_tool_calls"] > less and mine["max_result_bytes"] > 2 * less
        if not calls and not repeats:
            return
        shown = self.anyone("loop_budget" if calls else "cycle_detection")
        if shown is None:
            return
        tool, arguments = shown.tool.name, shown.arguments
        for name in calls:
            was = others[name]
            if name == "max_tool_calls":
                event = Event(tool, arguments, used={"tool_calls": was})
            else:
                event = Event(tool, arguments, result_bytes=was + 1 if was else None)
            yield self.opening(
                "loop_budget", self.is_now(name, mine[name], was), f"/loop_budget/{name}", event
            )
        if repeats:
            # each repeat was a call, and brought an object
            used = {"tool_calls": less, "result_bytes": 2 * less, "repeats": less}
            what = self.is_now("max_repeats", more, less)
            yield self.opening(
                "cycle_detection", what, "/cycle_detection/max_repeats", Event(tool, arguments, used=used)
            )

    def anyone(self, about: str) -> Caller | None:
        """A tool that can be called; one that both policies allow, if there is one."""
        known = sorted(self.callers, key=lambda caller: caller.tool.name not in self.less.policy.allowed)
        found = next((caller for caller in known if caller.state == CAN), None)
        if found is None:
            self.able(known, about)  # says so of those that nobody can tell of
        return found

    def is_now(self, name: str, more: int, less: int) -> str:
        now, was = (more, less) if self.widening else (less, more)
        return f"{name} is {now}, was {was}"

    def approvals(self) -> Iterator[Opening]:
        mine, others = self.more.policy.approval_for, self.less.policy.approval_for
        for caller in self.callers:
            name = caller.tool.name
            if name not in others or name in mine:
                continue
            both = self.both(name)
            if both.state == UNSURE:
                self.unsure(name, "approval")
            if both.state != CAN:
                continue
            what = (
                f"{name} is called without a person's approval"
                if self.widening
                else f"{name} needs a person's approval"
            )
            pointer = "/approval/required_for" + ("" if self.widening else f"/{others[name]}")
            yield self.opening("approval", what, pointer, Event(name, both.arguments), self.new)

    def both(self, name: str) -> Caller:
        """A tool with arguments that neither policy denies."""
        return Caller(self.more.tools[name], [self.less, self.more], self.shared)

    @cached_property
    def shared(self) -> Grants:
        return Grants([self.less.policy, self.more.policy])

    def asks_under_both(self) -> bool:
        """Whether there is a call that both policies ask a person about, or may be."""
        if any(gate.decide_step(Counters()) is not None for gate in (self.less, self.more)):
            return False
        names = [
            name
            for name in self.more.policy.approval_for
            if name in self.less.policy.approval_for and name in self.more.tools
        ]
        return any(self.both(name).state != CANNOT for name in names)


def _hop(target: Target, hop: int) -> dict[str, Any]:
    return {"rule": "url_allowlist", "target": target.url, "hop": hop}


def _mount_of(text: str) -> str | None:
    try:
        return parse_path(text).mount
    except Malformed:
        return None


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
