"""What one policy allows and another refuses, entry by entry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ...fail.catalog import Rule
from ...runtime.policy.gate import Counters, Gate
from ...runtime.resources.http_methods import SAFE_METHODS, UrlEntry, methods_of, url_text
from ...runtime.resources.mount_path import parse_path
from ...runtime.resources.url import Malformed, Target, parse_url
from ..queries.address_ranges import AddressSet, is_address
from ..queries.witness import RANK, Arguments, Event, Witness, witnessed
from .attempt_limits import more_attempts
from .by_principal import Sides
from .grants import Grants, is_narrowed, path_texts, target_of, url_texts
from .reachability import Reachable, ToolReach, hop_to, senders_of
from .time_windows import ALWAYS, moment_of

_NAMED: Final = 4  # tools that a line names
_STEP_LIMITS: Final = ("max_iterations", "max_tokens")


@dataclass(frozen=True, slots=True)
class Widening:
    """An entry of a policy, with an event that it decides more permissively than the other policy does."""

    rule: str
    description: str
    at: str
    witness: Witness


class Widenings:
    """What NEW allows and OLD does not or, unless `widening`, what OLD allows and NEW does not.

    `undecided` collects, in words, what could not be decided.
    """

    def __init__(self, sides: Sides, *, widening: bool) -> None:
        old, new, self.sides = sides.old, sides.new, sides
        self.old, self.new, self.widening = old, new, widening
        self.stricter, self.looser = (old, new) if widening else (new, old)
        self.undecided: list[str] = []
        self._first_events: dict[Target, tuple[Arguments | None, Arguments]] = {}
        self._known_grants: dict[tuple[tuple[int, ...], str], Grants] = {}
        self.tools = [
            ToolReach(self.looser.tools[name], [self.looser], self._grants_of(name, [self.looser]))
            for name in self.looser.policy.allowed
            if name in self.looser.tools
        ]
        # those without rules of their own on what they may reach; the others are compared one by one
        self.alike = [
            tool
            for tool in self.tools
            if not any(is_narrowed(gate.policy, tool.name) for gate in (self.looser, self.stricter))
        ]

    def all(self) -> Iterator[Widening]:
        """Yield every widening, by rule and in the order of the looser policy."""
        if self.looser.decide_step(Counters()) is not None:
            return  # no step is ever taken there
        if self.stricter.policy.data == self.looser.policy.data:
            return
        for part in (
            self._registry, self._urls, self._networks, self._mounts, self._forms, self._limits,
        ):  # fmt: skip
            yield from part()

    # ---- helpers ---------------------------------------------------------------------------------------

    def _widening(
        self, rule: str, description: str, pointer: str, event: Event, gate: Gate | None = None
    ) -> Widening:
        """Return a widening whose event both gates have been asked about."""
        if event.tool is not None:
            times = event.local_times or self._moment(event.tool)
            event = replace(event, principal=self.sides.principal, local_times=times)
        witness = witnessed(*self.sides.gates, event)
        stricter, looser = witness.before, witness.after
        if not self.widening:
            stricter, looser = looser, stricter
        if RANK[looser["decision"]] >= RANK[stricter["decision"]]:
            raise RuntimeError(f"no witness of a change of {rule}: {witness.to_dict()}")
        if stricter["rule_id"] == Rule.PRINCIPAL:
            place = self.sides.place_of(stricter["at"], widening=self.widening)
            return Widening(Rule.PRINCIPAL, description, place, witness)
        return Widening(rule, description, (gate or self.looser).policy.at(pointer), witness)

    def _moment(self, name: str) -> dict[str, str]:
        """Return a time at which a tool may be called, under both policies if there is one."""
        both = (self.looser.policy, self.stricter.policy)
        return moment_of(both, name) or moment_of(both[:1], name) or ALWAYS

    def _sentence(self, names: Sequence[str], predicate: str) -> str:
        """Return `a and b may ...`, or `may no longer ...`."""
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"{', '.join(names[:_NAMED])}{more} may {'' if self.widening else 'no longer '}{predicate}"

    def _callable(self, tools: Iterable[ToolReach], about: str, kind: str = "") -> list[ToolReach]:
        """Return the tools that can be called; note those of which that cannot be told."""
        callable_tools = []
        for tool in tools:
            if tool.callable == Reachable.YES:
                callable_tools.append(tool)
            elif tool.callable == Reachable.UNKNOWN:
                self._note_undecided(tool.name, about)
        # the best example of an entry is a tool that both policies allow, and whose arguments name the resource
        known = self.stricter.policy.allowed
        return sorted(
            callable_tools, key=lambda tool: (tool.name not in known, bool(kind) and not tool.places(kind))
        )

    def _note_undecided(self, name: str, about: str) -> None:
        side, verb = ("NEW", "gives it") if self.widening else ("OLD", "takes from it")
        self.undecided.append(
            f"{name}: no arguments were found that fit its schema and that {side} does not deny, "
            f"so what {about} {verb} is not known"
        )

    # ---- the rules -------------------------------------------------------------------------------------

    def _registry(self) -> Iterator[Widening]:
        added = [tool for tool in self.tools if tool.name not in self.stricter.policy.allowed]
        for tool in self._callable(added, "tool_registry"):
            asks = " with a person's approval" if tool.name in self.looser.policy.approval_for else ""
            pointer = f"/tool_registry/allowed/{self.looser.policy.allowed[tool.name]}"
            description = self._sentence([tool.name], f"be called{asks}")
            yield self._widening("tool_registry", description, pointer, Event(tool.name, tool.arguments))

    def _urls(self) -> Iterator[Widening]:
        allowed = self.stricter.policy.allowlist
        held = self.stricter.policy.data.get("url_allowlist", ())
        same = frozenset(item for item in held if isinstance(item, str))
        items = self.looser.policy.data.get("url_allowlist", ())
        targets = [
            (i, target_of(url_text(item)))
            for i, item in enumerate(items)
            if not (isinstance(item, str) and item in same)
        ]
        yield from self._methods(
            items, [(i, target) for i, target in targets if allowed.match(target) is not None]
        )
        opened = [(i, target) for i, target in targets if allowed.match(target) is None]
        if not opened:
            return
        all_following = self._callable((t for t in self.alike if t.follows_hosts), "url_allowlist", "url")
        others = [tool for tool in self.alike if not tool.follows_hosts and tool.places("url")]
        others = self._callable(others, "url_allowlist")
        for i, target in opened:
            methods = methods_of(items[i])
            following = [tool for tool in all_following if "GET" in methods or tool.method_of(methods)]
            naming = [*others, *(tool for tool in all_following if tool not in following)]
            spellings = partial(url_texts, target)
            arguments: dict[str, Arguments] = {}
            for tool in [*naming, *following[:1]]:
                # a tool that follows hosts can be redirected there, whatever its arguments may name
                thorough = tool in naming
                answer, example = tool.naming("url", spellings, i, self._new_entry_of)
                if example is not None:
                    arguments[tool.name] = example
                elif answer == Reachable.UNKNOWN and thorough:
                    self._note_undecided(tool.name, "url_allowlist")
            names = [tool.name for tool in following]
            names += [tool.name for tool in naming if tool.name in arguments]
            if names:
                if names[0] in arguments:
                    event = Event(names[0], arguments[names[0]])
                else:
                    late = hop_to(following[0], target)
                    if "GET" not in methods:
                        late |= {"hop": 0, "method": following[0].method_of(methods)}
                    event = Event(names[0], following[0].arguments, late=late)
                how = "" if methods == SAFE_METHODS else f" with {', '.join(methods)}"
                description = self._sentence(names, f"reach {target.url}{how}")
                yield self._widening("url_allowlist", description, f"/url_allowlist/{i}", event)

    def _methods(self, items: Sequence[UrlEntry], known: Iterable[tuple[int, Target]]) -> Iterator[Widening]:
        """Yield the methods that entries allow for URLs that the stricter policy allows with others."""
        for i, target in known:
            allowed = self.stricter.policy.allowlist
            gained = [method for method in methods_of(items[i]) if allowed.match(target, method) is None]
            able = self._callable((t for t in self.alike if t.method_of(gained)), "url_allowlist", "url")
            if not able:
                continue
            tool, method = able[0], able[0].method_of(gained)
            _, example = tool.naming("url", partial(url_texts, target), i, self._entry_of)
            arguments = tool.arguments if example is None else example
            event = Event(tool.name, arguments, late={**hop_to(tool, target, 0), "method": method})
            description = self._sentence([t.name for t in able], f"send {', '.join(gained)} to {target.url}")
            yield self._widening("url_allowlist", description, f"/url_allowlist/{i}", event)

    def _new_entry_of(self, text: str) -> int | None:
        """Return the looser policy's entry that allows a text, if the stricter one has none."""
        try:
            if self.stricter.policy.allowlist.match(parse_url(text)) is not None:
                return None
        except Malformed:
            return None
        return self._entry_of(text)

    def _entry_of(self, text: str) -> int | None:
        """Return the looser policy's entry that allows a text."""
        try:
            return self.looser.policy.allowlist.match(parse_url(text))
        except Malformed:
            return None

    def _networks(self) -> Iterator[Widening]:
        mine, others = (gate.policy.data.get("private_networks", ()) for gate in (self.looser, self.stricter))
        if set(mine) <= set(others):
            return
        open_here, open_there = AddressSet(mine), AddressSet(others)
        opened = [(i, open_here.not_in(i, open_there)) for i in range(len(mine))]
        if not self.looser.policy.data.get("url_allowlist") or not any(address for _, address in opened):
            return
        connecting = self._callable((t for t in self.tools if t.follows_hosts), "private_networks", "url")
        senders = senders_of(self.looser.policy, connecting)
        if not senders:
            return
        named = [target for target in senders if not is_address(target.host)]
        examples: dict[int, tuple[str, Target]] = {}
        if named:
            known = (t for t in named if self.stricter.policy.allowlist.match(t) is not None)
            target = next(known, named[0])
            examples = {i: (address, target) for i, address in opened if address is not None}
        else:
            # where every URL names its address, that very address has to be opened
            for target in senders:
                entry = open_here.opened_by(target.host, open_there)
                if entry is not None:
                    examples.setdefault(entry, (target.host, target))
        for i, (address, target) in sorted(examples.items(), key=lambda item: item[0]):
            tool, method = senders[target]
            event = self._address_event(tool, method, target, address)
            description = f"connect to addresses in {mine[i]}, such as {address}"
            description = self._sentence([tool.name for tool in connecting], description)
            yield self._widening("url_allowlist", description, f"/private_networks/{i}", event)

    def _address_event(self, tool: ToolReach, method: str | None, target: Target, address: str) -> Event:
        if target not in self._first_events:
            entry = self.looser.policy.allowlist.match(target)
            spellings = partial(url_texts, target)
            _, example = tool.naming("url", spellings, entry, self._entry_of)
            late = hop_to(tool, target, 0 if method else None) if example is None else hop_to(tool, target, 0)
            late |= {"method": method} if method else {}
            self._first_events[target] = (tool.arguments if example is None else example, late)
        arguments, late = self._first_events[target]
        return Event(tool.name, arguments, late={**late, "address": address})

    def _mounts(self) -> Iterator[Widening]:
        mine, others = self.looser.policy.mounts, self.stricter.policy.mounts
        for mount, mode in mine.items():
            gained = [
                access
                for access in ("write", "read")
                if (mode == "write" or access == "read")
                and not (others.get(mount) == "write" or (access == "read" and mount in others))
            ]
            sentences: list[str] = []
            events: list[Event] = []
            for access in gained:
                names, event = self._mount_event(mount, access, self.alike)
                if event is not None:
                    sentences.append(self._sentence(names, f"{access} below {mount}/"))
                    events.append(event)
            if events:
                yield self._widening(
                    "sandbox_path", "; ".join(sentences), f"/sandbox/mounts/{mount}", events[0]
                )

    def _mount_event(
        self, mount: str, access: str, tools: Sequence[ToolReach]
    ) -> tuple[list[str], Event | None]:
        """Return the names of those of some tools that may reach a mount, and an event with one of them."""
        kind, texts = f"path:{access}", partial(path_texts, mount)
        touching = self._callable((t for t in tools if t.touches(access)), "sandbox.mounts", kind)
        names, event = [tool.name for tool in touching], None
        if touching:
            tool = touching[0]
            _, arguments = tool.naming(kind, texts, mount, _mount_of)
            late = {"rule": "sandbox_path", "path": f"{mount}/x", "access": access}
            event = (
                Event(tool.name, tool.arguments, late=late)
                if arguments is None
                else Event(tool.name, arguments)
            )
        others = (tool for tool in tools if not tool.touches(access) and tool.places(kind))
        for tool in self._callable(others, "sandbox.mounts"):
            answer, arguments = tool.naming(kind, texts, mount, _mount_of)
            if arguments is not None:
                names.append(tool.name)
                event = event or Event(tool.name, arguments)
            elif answer == Reachable.UNKNOWN:
                self._note_undecided(tool.name, "sandbox.mounts")
        return names, event

    def _forms(self) -> Iterator[Widening]:
        """Yield the arguments beyond the limits of schemas, where only the shape of arguments is checked."""
        if self.looser.policy.strict_arguments or not self.stricter.policy.strict_arguments:
            return
        examples: list[tuple[str, Arguments]] = []
        for tool in self.tools:
            answer, arguments = tool.beyond_limits
            if arguments is not None:
                examples.append((tool.name, arguments))
            elif answer == Reachable.UNKNOWN:
                self.undecided.append(
                    f"{tool.name}: no arguments were found that break a limit of its schema and nothing else; "
                    "what arg_schema_enforcement does to it is not known"
                )
        if examples:
            examples.sort(key=lambda pair: pair[0] not in self.stricter.policy.allowed)
            description = "be called with values beyond the limits of their schemas"
            description = self._sentence([name for name, _ in examples], description)
            yield self._widening("arg_schema", description, "/arg_schema_enforcement", Event(*examples[0]))

    def _limits(self) -> Iterator[Widening]:
        mine, others = self.looser.policy.limits, self.stricter.policy.limits
        raised = [name for name in mine if name != "max_attempts" and mine[name] > others[name]]
        for name in (name for name in raised if name in _STEP_LIMITS):
            yield self._limit(name, Event(used={name.removeprefix("max_"): others[name]}))
        repeats, fewer = self.looser.policy.max_repeats, self.stricter.policy.max_repeats
        raised = [name for name in raised if name not in _STEP_LIMITS]
        # each repeat was a call, and its result was an object: two bytes
        repeatable = repeats > fewer < mine["max_tool_calls"] and mine["max_result_bytes"] > 2 * fewer
        overdraws = self.stricter.policy.denies_overdraft and not self.looser.policy.denies_overdraft
        attempts = more_attempts(self.looser.policy, self.stricter.policy)
        about = "loop_budget" if raised or overdraws or attempts else "cycle_detection"
        shown = self._any_tool(about) if repeatable or about == "loop_budget" else None
        if shown is None:
            return
        if attempts:
            event = Event(shown.name, shown.arguments, used=attempts.used)
            what = self._value_change("max_attempts", *attempts.limits)
            yield self._widening("loop_budget", what, "/loop_budget/max_attempts", event)
        if overdraws:
            event = Event(shown.name, shown.arguments, used={"tokens": others["max_tokens"] + 1})
            now, before = ("allow", "deny") if self.widening else ("deny", "allow")
            what = f"overdraft is {now}, was {before}"
            yield self._widening("loop_budget", what, "/loop_budget/overdraft", event)
        for name in raised:
            limit = others[name]
            if name == "max_tool_calls":
                event = Event(shown.name, shown.arguments, used={"tool_calls": limit})
            else:
                event = Event(shown.name, shown.arguments, result_bytes=limit + 1 if limit else None)
            yield self._limit(name, event)
        if repeatable:
            used = {"tool_calls": fewer, "result_bytes": 2 * fewer, "repeats": fewer}
            description = self._value_change("max_repeats", repeats, fewer)
            event = Event(shown.name, shown.arguments, used=used)
            yield self._widening("cycle_detection", description, "/cycle_detection/max_repeats", event)

    def _limit(self, name: str, event: Event) -> Widening:
        limits = (gate.policy.limits[name] for gate in (self.looser, self.stricter))
        return self._widening("loop_budget", self._value_change(name, *limits), f"/loop_budget/{name}", event)

    def _value_change(self, name: str, higher: int | str, lower: int | str) -> str:
        after, before = (higher, lower) if self.widening else (lower, higher)
        return f"{name} is {after}, was {before}"

    def _any_tool(self, about: str) -> ToolReach | None:
        """Return a tool that can be called; one that both policies allow, if there is one."""
        known = sorted(self.tools, key=lambda tool: tool.name not in self.stricter.policy.allowed)
        example = next((tool for tool in known if tool.callable == Reachable.YES), None)
        if example is None:
            self._callable(known, about)  # notes the tools of which that cannot be told
        return example

    def _grants_of(self, name: str, gates: Sequence[Gate]) -> Grants:
        """Return what the policies of some gates allow a tool to reach."""
        policies = [gate.policy for gate in gates]
        key = (
            tuple(map(id, policies)),
            name if any(is_narrowed(policy, name) for policy in policies) else "",
        )
        if key not in self._known_grants:
            self._known_grants[key] = Grants(policies, key[1])
        return self._known_grants[key]


def _mount_of(text: str) -> str | None:
    try:
        return parse_path(text).mount
    except Malformed:
        return None
