"""Two policies compared by what they allow agree with the gate, asked about everything in a small world."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tachograph.fail.errors import PolicyError
from tachograph.review.compare.policy_compare import WIDENING, Comparison, Witness, compare_policies
from tachograph.runtime.core.effects import Call
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.policy.gate import Counters, Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.resources.url import parse_url
from tests.review.small_world import HOSTS, KINDS, PREFIXES, RANK, TOOLS, both

Data = dict[str, Any]
EXAMPLES = int(os.environ.get("TACHOGRAPH_EXAMPLES", "80"))

# ---- policies ------------------------------------------------------------------------------------------

NETWORKS = (
    *(
        "10.0.0.0/8",
        "10.0.0.0/9",
        "10.128.0.0/9",
        "127.0.0.0/8",
        "192.0.0.0/8",
        "fc00::/7",
        "2000::/7",
        "::/8",
    ),
    *("::1/128", "100::/8", "2001::/16"),
)
MOUNTS = ("m", "n")
NAMES = tuple(TOOLS)
SECTIONS = (
    *("cycle_detection", "loop_budget", "sandbox", "url_allowlist", "private_networks", "approval"),
    *("tool_registry", "arg_schema_enforcement"),
)


def limit(least: int) -> st.SearchStrategy[int]:
    return st.integers(least, 3)


ENTRIES = [host + prefix for host in (*HOSTS[:4], *HOSTS) for prefix in PREFIXES]


@st.composite
def policies(draw: Any, roomy: bool = False) -> Data:
    """A policy that the loader takes; a roomy one lets something through."""
    data: Data = {"schema": "policy/v1"}
    allowed = draw(st.lists(st.sampled_from([*NAMES, "read"]), min_size=1, max_size=5, unique=True))
    others = [name for name in (*NAMES, "read") if name not in allowed]
    denied = draw(st.lists(st.sampled_from(others), max_size=2, unique=True))
    data["tool_registry"] = {"allowed": allowed, "denied": denied}
    data["url_allowlist"] = draw(st.lists(st.sampled_from(ENTRIES), min_size=roomy, max_size=4, unique=True))
    data["private_networks"] = draw(st.lists(st.sampled_from(NETWORKS), max_size=3, unique=True))
    data["sandbox"] = {
        "mounts": draw(
            st.dictionaries(st.sampled_from(MOUNTS), st.sampled_from(["read", "write"]), min_size=roomy)
        )
    }
    data["arg_schema_enforcement"] = draw(st.sampled_from(["strict", "shape"]))
    data["loop_budget"] = {
        "max_iterations": draw(limit(1)),
        "max_tokens": draw(limit(1)),
        "max_tool_calls": draw(st.sampled_from([3, 2, 1, 3, 0][: 2 if roomy else 5])),
        "max_result_bytes": draw(st.sampled_from([9, 7, 3, 2, 1, 0][: 2 if roomy else 6])),
    }
    data["cycle_detection"] = {"max_repeats": draw(st.sampled_from([2, 1, 3]))}
    asked = [name for name in allowed if draw(st.integers(0, 3)) == 0]
    data["approval"] = {"required_for": asked, "timeout_s": 5}
    for section in ("loop_budget", "cycle_detection", "url_allowlist", "sandbox"):
        if not roomy and draw(st.integers(0, 19)) == 0:
            del data[section]
    return accepted(data)


def accepted(data: Data) -> Data:
    """The data without the entries that a loader refuses beside others."""
    for key in ("url_allowlist", "private_networks"):
        kept: list[str] = []
        for entry in data.get(key, ()):
            try:
                Policy.from_dict({"schema": "policy/v1", key: [*kept, entry]})
            except PolicyError:
                continue
            kept.append(entry)
        if key in data:
            data[key] = kept
    return data


@st.composite
def pairs(draw: Any) -> tuple[Data, Data]:
    """Two policies: apart, or one made of the other by taking over a few sections."""
    roomy = draw(st.integers(0, 3)) > 0
    one, other = draw(policies(roomy)), draw(policies(roomy))
    if draw(st.integers(0, 3)):
        keys = draw(st.lists(st.sampled_from(SECTIONS), min_size=1, max_size=3, unique=True))
        mixed = {**copy.deepcopy(one), **{key: other[key] for key in keys if key in other}}
        allowed = mixed["tool_registry"]["allowed"]
        asked = [name for name in mixed["approval"]["required_for"] if name in allowed]
        other = {**mixed, "approval": {"required_for": asked, "timeout_s": 5}}
    return one, other


# ---- what is held against it ---------------------------------------------------------------------------


def compared(old: Data, new: Data) -> tuple[Gate, Gate, Comparison]:
    one, other = Policy.from_dict(old), Policy.from_dict(new)
    return Gate(one, TOOLS), Gate(other, TOOLS), compare_policies(one, other, TOOLS)


def shown(gate: Gate, witness: Witness) -> int:
    """The worst that a gate says of a witness, asked from scratch."""
    used: Mapping[str, int] = witness.used
    names = ("iterations", "tokens", "tool_calls", "result_bytes")
    counters = Counters(**{name: used[name] for name in names if name in used})  # type: ignore[arg-type]
    ranks = [0 if gate.decide_step(counters) is None else 2]
    if witness.tool is not None:
        call = Call("tc_1_0", witness.tool, freeze(witness.arguments))
        counters.repeats[gate.key_of(call)] = used.get("repeats", 0)
        ranks.append(RANK[gate.decide(call, counters).decision])
    if witness.late is not None:
        ranks.append(RANK[gate.decide_late(witness.late).decision])
    if witness.result_bytes is not None:
        ranks.append(0 if gate.decide_result(witness.result_bytes, counters) is None else 2)
    return max(ranks)


def can_happen(witness: Witness) -> bool:
    """Whether a run can come to what a witness says."""
    used = witness.used
    calls, size, repeats = (used.get(name, 0) for name in ("tool_calls", "result_bytes", "repeats"))
    if not (repeats <= calls and 2 * repeats <= size and (calls or not size)):
        return False
    late = witness.late
    if late is None:
        return True
    assert witness.tool is not None
    if (late["rule"], late.get("access", "hop")) not in KINDS[witness.tool]:
        return False
    host = parse_url(late["target"]).host if "target" in late else ""
    literal = ":" in host or host.replace(".", "").isdigit()
    return not literal or late.get("address", host) == host


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(pairs())
def test_what_is_told_is_what_the_gates_do(pair: tuple[Data, Data]) -> None:
    old, new, comparison = compared(*pair)
    assert comparison.undecided == ()
    truth = both(old, new)
    for kind, found in truth.items():
        changes = [c for c in comparison.changes if (c.kind == WIDENING) == (kind == WIDENING)]
        assert bool(changes) == found.any, (kind, [c.description for c in changes], found.alone)
        for rule, name, place in found.alone:
            said = [c.description for c in changes if c.rule == rule and place in (None, c.at)]
            assert said, (kind, rule, name, place)
            # a limit is told once, not for every tool
            assert rule in ("loop_budget", "cycle_detection") or any(f"{name}" in what for what in said), said
    for change in comparison.changes:
        before, after = shown(old, change.witness), shown(new, change.witness)
        assert (after < before) == (change.kind == WIDENING) and before != after, change
        assert can_happen(change.witness), change.witness


# ---- the same policy, written otherwise ----------------------------------------------------------------


def spelled(entry: str, draw: Any) -> str:
    if entry.startswith("https://x.test"):
        return str(
            draw(
                st.sampled_from(
                    [entry, entry.replace("x.test", "X.Test:443"), entry.replace("https", "HTTPS")]
                )
            )
        )
    return entry


@st.composite
def rewritings(draw: Any) -> tuple[Data, Data]:
    one = draw(policies())
    other = copy.deepcopy(one)
    registry = other["tool_registry"]
    registry["allowed"] = draw(st.permutations(registry["allowed"]))
    registry["denied"] = [] if draw(st.booleans()) else registry["denied"]
    other["url_allowlist"] = [
        spelled(entry, draw) for entry in draw(st.permutations(other.get("url_allowlist", [])))
    ]
    nets = other.get("private_networks", [])
    halves = {"10.0.0.0/8": ["10.0.0.0/9", "10.128.0.0/9"], "fc00::/7": ["fd00::/8", "fc00::/8"]}
    other["private_networks"] = [half for net in nets for half in halves.get(net, [net])]
    other["sandbox"] = {
        "mounts": dict(draw(st.permutations(list(other.get("sandbox", {}).get("mounts", {}).items()))))
    }
    if not other["approval"]["required_for"] and draw(st.booleans()):
        del other["approval"]
    for key in ("url_allowlist", "private_networks"):
        if not other[key] and draw(st.booleans()):
            del other[key]
    if other["arg_schema_enforcement"] == "strict" and draw(st.booleans()):
        del other["arg_schema_enforcement"]
    return one, other


@settings(max_examples=EXAMPLES // 2, deadline=None, suppress_health_check=list(HealthCheck))
@given(rewritings(), st.booleans())
def test_the_same_policy_written_otherwise_is_equal(pair: tuple[Data, Data], turned: bool) -> None:
    one, other = reversed(pair) if turned else pair
    *_, comparison = compared(one, other)
    assert comparison.equal, comparison.to_dict()
