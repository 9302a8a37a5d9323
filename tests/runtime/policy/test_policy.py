"""The policy: read strictly, merged, validated, and every key of it read by something."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachograph.fail.catalog import FailureMode, GaveUp
from tachograph.fail.errors import PolicyError, TransientModelError
from tachograph.runtime.agent import Agent
from tachograph.runtime.core.clock import VirtualClock
from tachograph.runtime.core.effects import Answer, Call
from tachograph.runtime.core.secret_kinds import KEY_KINDS, NEEDLES, PATTERNS
from tachograph.runtime.formats.canonical_json import digest, encode, freeze
from tachograph.runtime.formats.document_digest import digest_of_document
from tachograph.runtime.formats.shipped_files import shipped
from tachograph.runtime.loop.retry import Schedule
from tachograph.runtime.loop.state import RunSpec, RunState
from tachograph.runtime.models.types import LLMInput, LLMOutput, ToolCall, ToolSpec
from tachograph.runtime.policy.gate import Counters, Gate
from tachograph.runtime.policy.policy import Policy, meta_schema
from tachograph.runtime.tools.loader import collect
from tests.support import answer

FULL: dict[str, Any] = {
    "schema": "policy/v1",
    "tool_registry": {"allowed": ["search", "fetch", "read", "write", "summarize"], "denied": []},
    "url_allowlist": ["https://corpus.test/"],
    "private_networks": [],
    "sandbox": {"mounts": {"corpus": "read", "sandbox": "write"}},
    "arg_schema_enforcement": "strict",
    "loop_budget": {
        "max_iterations": 10, "max_tokens": 50000, "max_tool_calls": 40, "max_result_bytes": 1000000,
    },
    "cycle_detection": {"max_repeats": 3},
    "retry": {"max_retries": 3, "backoff_base_ms": 100, "backoff_cap_ms": 2000},
    "on_deny": "terminate",
    "on_failure": {"default": "inform", "tools": {}, "max_failures": 2},
    "approval": {"required_for": [], "timeout_s": 300},
    "redact": {"kinds": []},
}  # fmt: skip


def changed(pointer: str, value: Any) -> dict[str, Any]:
    """A copy of FULL with one place set."""
    data: dict[str, Any] = json.loads(json.dumps(FULL))
    *above, last = pointer.strip("/").split("/")
    here = data
    for key in above:
        here = here[key]
    here[last] = value
    return data


# ---- every key is read by something ------------------------------------------------------------------------

TOOLS = collect(["search", "fetch", "read", "write", "summarize"])


def _decision(data: dict[str, Any], tool: str, arguments: dict[str, Any], **used: int) -> Any:
    call = Call("tc_1_0", tool, freeze(arguments))
    counters, gate = Counters(**used), Gate(Policy.from_dict(data), TOOLS)
    counters.count_result(call, "{}", gate.key_of(call))
    found = gate.decide(call, counters)
    return found.decision, found.rule_id, found.facts


def _search(data: dict[str, Any], **used: int) -> Any:
    return _decision(data, "search", {"query": "x"}, **used)


def _step(data: dict[str, Any], **used: int) -> Any:
    return Gate(Policy.from_dict(data), TOOLS).decide_step(Counters(**used))


def _address(data: dict[str, Any]) -> Any:
    check = {"rule": "url_allowlist", "target": "https://corpus.test/", "address": "10.0.0.1"}
    return Gate(Policy.from_dict(data), TOOLS).decide_late(check).decision


def _waits(data: dict[str, Any]) -> list[int]:
    """What a run with a model that never answers waits for."""

    def overloaded(_asked: LLMInput) -> LLMOutput:
        raise TransientModelError

    agent = Agent(overloaded, [], Policy.from_dict(data))
    result = agent.run("?", run_id="r", clock=VirtualClock())
    return [a["backoff_ms"] for a in result.steps[0]["llm_attempts"] if "backoff_ms" in a]


def _ending(data: dict[str, Any]) -> str:
    """How a run ends whose model asks for what is not allowed, then answers."""

    def model(asked: LLMInput) -> LLMOutput:
        if asked.step_index == 1:
            return LLMOutput(tool_calls=[ToolCall("nothing", "{}")])
        return LLMOutput(final_answer="done")

    return Agent(model, [], Policy.from_dict(data)).run("?", run_id="r", clock=VirtualClock()).ending


def _timeout(data: dict[str, Any]) -> Any:
    data = {**data, "approval": {**data["approval"], "required_for": ["search"]}}
    return _search(data)


def _told(data: dict[str, Any]) -> list[bool]:
    """Of which of three failures of a tool the model is told."""
    spec = ToolSpec("search", "finds", "{}")
    state = RunState(RunSpec("r", "What?", 1, Gate(Policy.from_dict(data), TOOLS), Schedule(), (spec,)))
    failure = GaveUp(FailureMode.TIMEOUT)
    return [state.classify(failure, "search").ending is None for _ in range(3)]


def _offered(data: dict[str, Any]) -> Any:
    """What the model is told and offered in the last iteration."""
    policy = Policy.from_dict(data)
    spec = ToolSpec("search", "finds", "{}")
    state = RunState(RunSpec("r", "What?", 1, Gate(policy, TOOLS), Schedule(), (spec,)))
    state.counters.iterations = policy.limits["max_iterations"] - 1
    return state.notice_and_tools()


def _of_environment(data: dict[str, Any]) -> str:
    os.environ["TACHOGRAPH_TEST_VALUE"] = "a long value"
    try:
        agent = Agent(lambda asked: answer(), [], Policy.from_dict(data), known_tools=TOOLS)
        return agent.redactor()("here is a long value")
    finally:
        del os.environ["TACHOGRAPH_TEST_VALUE"]


def _listed(data: dict[str, Any]) -> Any:
    """How a value is decided that has to be on a list."""
    rules = {"search": {"arguments": {"/top_k": {"in": "counts"}}}}
    return _decision(
        {"lists": {"counts": [1, 2, 3]}, **data, "tools": rules}, "search", {"query": "x", "top_k": 3}
    )


# key of the meta-schema: (another value for it, what must differ then)
EFFECTS: dict[str, tuple[Any, Callable[[dict[str, Any]], Any]]] = {
    "/tool_registry/allowed": (["fetch"], _search),
    "/tool_registry/denied": (["absent"], lambda d: _decision(d, "absent", {})[2] and _reason(d, "absent")),
    "/url_allowlist": ([], lambda d: _decision(d, "fetch", {"url": "https://corpus.test/"})),
    "/credentials": (
        {"corpus.test": {"header": "X-Other", "from_env": "OTHER"}},
        lambda d: Policy.from_dict(d).credentials,
    ),
    "/private_networks": (["10.0.0.0/8"], _address),
    "/sandbox/mounts": (
        {"corpus": "read", "sandbox": "read"},
        lambda d: _decision(d, "write", {"path": "sandbox/x", "content": ""}),
    ),
    "/arg_schema_enforcement": ("shape", lambda d: _decision(d, "search", {"query": "x", "top_k": 999})),
    "/lists": ({"counts": [1, 2]}, _listed),
    "/principals": ({"clerk": {"tools": {}}}, _search),
    "/tools": (
        {"search": {"arguments": {"/top_k": {"maximum": 2}}}},
        lambda d: _decision(d, "search", {"query": "x", "top_k": 3}),
    ),
    "/loop_budget/max_iterations": (9, lambda d: _step(d, iterations=9)),
    "/loop_budget/max_tokens": (9, lambda d: _step(d, tokens=9)),
    "/loop_budget/max_tool_calls": (9, lambda d: _search(d, tool_calls=9)),
    "/loop_budget/max_result_bytes": (9, lambda d: _search(d, result_bytes=9)),
    "/loop_budget/max_attempts": (9, lambda d: _search(d, attempts=9)),
    "/loop_budget/wrap_up": (True, _offered),
    "/loop_budget/overdraft": ("deny", lambda d: _search(d, tokens=10**9)),
    "/cycle_detection/max_repeats": (1, _search),
    "/retry/max_retries": (1, _waits),
    "/retry/backoff_base_ms": (200, _waits),
    "/retry/backoff_cap_ms": (101, _waits),
    "/on_deny": ("inform", _ending),
    "/on_failure/default": ("terminate", _told),
    "/on_failure/tools": ({"search": "terminate"}, _told),
    "/on_failure/max_failures": (1, _told),
    "/approval/required_for": (["search"], _search),
    "/approval/timeout_s": (7, _timeout),
    "/approval/signers": (
        {"ann": f"MCowBQYDK2VwAyEA{'A' * 43}="},
        lambda d: Gate(Policy.from_dict(d), TOOLS).signer_of(Answer("allow"), ""),
    ),
    "/redact/kinds": (["email"], lambda d: Policy.from_dict(d).redactor()("a@b.test")),
    "/redact/patterns": ({"customer": "C-[0-9]{8}"}, lambda d: Policy.from_dict(d).redactor()("C-12345678")),
    "/redact/env": (["TACHOGRAPH_TEST_VALUE"], _of_environment),
    "/redact/reveal_to": (
        {"write": ["api_key"]},
        lambda d: _decision(d, "write", {"path": "sandbox/a", "content": "<secret:api_key:1>"}),
    ),
    "/redact/off": (
        True,
        lambda d: Policy.from_dict({**d, "redact": {**d["redact"], "kinds": ["jwt"]}}).warnings,
    ),
}


def _reason(data: dict[str, Any], tool: str) -> str:
    return Gate(Policy.from_dict(data), TOOLS).decide(Call("i", tool, freeze({})), Counters()).reason


def _keys(schema: dict[str, Any], pointer: str = "") -> Iterator[str]:
    """Pointers of all leaf keys that a schema of mappings declares."""
    for name, sub in schema["properties"].items():
        if "properties" in sub:
            nested = list(_keys(sub, f"{pointer}/{name}"))
            assert nested
            yield from nested
        else:
            yield f"{pointer}/{name}"


def test_every_key_has_a_known_effect() -> None:
    """A new key needs an entry in EFFECTS: a rule that nothing reads is worse than none."""
    assert set(_keys(meta_schema())) == {"/schema", *EFFECTS}


@pytest.mark.parametrize("pointer", EFFECTS)
def test_a_policy_that_differs_in_one_key_behaves_differently(pointer: str) -> None:
    value, behaviour = EFFECTS[pointer]
    assert behaviour(changed(pointer, value)) != behaviour(FULL)


def test_every_mapping_of_the_meta_schema_is_closed() -> None:
    def closed(schema: dict[str, Any]) -> bool:
        return schema["additionalProperties"] is False and all(
            closed(sub) for sub in schema["properties"].values() if "properties" in sub
        )

    assert closed(meta_schema())


def test_the_redact_kinds_of_the_meta_schema_are_those_there_are() -> None:
    assert meta_schema()["$defs"]["secret_kind"]["enum"] == sorted(PATTERNS) == sorted(NEEDLES)


def test_the_meta_schema_is_the_shipped_file() -> None:
    assert meta_schema() == json.loads(shipped("policy/v1.schema.json").read_text(encoding="utf-8"))


# ---- nothing is allowed by leaving something out -----------------------------------------------------------

CALLS = [
    ("search", {"query": "x"}),
    ("fetch", {"url": "https://corpus.test/a"}),
    ("read", {"path": "corpus/a.md"}),
    ("write", {"path": "sandbox/a.md", "content": "x"}),
]


@pytest.mark.parametrize("without", [key for key in FULL if key not in ("schema", "tool_registry")])
def test_an_absent_section_never_widens(without: str) -> None:
    less = {key: value for key, value in FULL.items() if key != without}
    for tool, arguments in CALLS:
        full, lacking = _decision(FULL, tool, arguments), _decision(less, tool, arguments)
        assert lacking[0] == "deny" or lacking[:2] == full[:2]
    assert _step(FULL) is None
    assert (_step(less) is not None) == (without == "loop_budget")


def test_the_smallest_policy_allows_nothing() -> None:
    policy = Policy.from_dict({"schema": "policy/v1"})
    gate = Gate(policy, TOOLS)
    assert all(
        gate.decide(Call("i", tool, freeze(arguments)), Counters()).decision == "deny"
        for tool, arguments in CALLS
    )
    assert gate.decide_step(Counters()) is not None
    assert gate.decide_result(1, Counters()) is not None
    assert policy.on_deny == policy.on_failure == "terminate" and not policy.informs_of_failures
    assert policy.strict_arguments
    assert policy.approval_timeout_s == 0
    assert Schedule.of(policy.section("retry")).max_retries == 0
    assert set(policy.limits.values()) == {0} and policy.max_repeats == 0


@pytest.mark.parametrize("section", ["loop_budget", "cycle_detection"])
def test_what_is_absent_denies_each_call(section: str) -> None:
    less = {key: value for key, value in FULL.items() if key != section}
    assert _search(less)[:2] == ("deny", section)


@pytest.mark.parametrize("name", ["max_iterations", "max_tokens", "max_tool_calls", "max_result_bytes"])
def test_an_absent_budget_is_none_at_all(name: str) -> None:
    data = json.loads(json.dumps(FULL))
    del data["loop_budget"][name]
    denied = _step(data) or (_search(data)[0] == "deny")
    assert denied
    assert Policy.from_dict(data).limits[name] == 0


# ---- files, marks, places ----------------------------------------------------------------------------------

BASE = """\
schema: policy/v1
tool_registry:
  allowed: [search, fetch]
  denied: [write]
url_allowlist:
  - "https://corpus.test/"
sandbox:
  mounts:
    corpus: read
loop_budget:
  max_iterations: 10
  max_tokens: 5000
"""


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_places_of_a_loaded_policy(tmp_path: Path) -> None:
    policy = Policy.load(write(tmp_path, "policy/p.yaml", BASE), root=tmp_path)
    places = {
        "": 1, "/schema": 1, "/tool_registry/allowed": 3, "/tool_registry/allowed/1": 3,
        "/tool_registry/denied/0": 4, "/url_allowlist/0": 6, "/sandbox/mounts/corpus": 9,
        "/loop_budget/max_tokens": 12, "/loop_budget/max_tool_calls": 10, "/retry/max_retries": 1,
    }  # fmt: skip
    assert {pointer: policy.at(pointer) for pointer in places} == {
        pointer: f"policy/p.yaml:{line}" for pointer, line in places.items()
    }
    assert policy.files == (("policy/p.yaml", digest_of_document(BASE.encode())),)
    remarked = Policy.load(write(tmp_path, "policy/p.yaml", f"# a remark\n{BASE}"), root=tmp_path)
    assert remarked.files == policy.files and remarked.version == policy.version


def test_a_policy_in_code_names_pointers() -> None:
    assert Policy.from_dict(FULL).at("/retry/max_retries") == "<policy>#/retry/max_retries"


def test_a_file_outside_the_root_is_named_without_its_folders(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    assert Policy.load(write(tmp_path, "p.yaml", BASE), root=root).at("/schema") == "p.yaml:1"


def test_overlays_merge_mappings_and_replace_the_rest(tmp_path: Path) -> None:
    base = write(tmp_path, "p.yaml", BASE)
    one = write(tmp_path, "one.yaml", "loop_budget:\n  max_iterations: 2\n  max_tool_calls: 4\n")
    two = write(tmp_path, "two.yaml", '\nurl_allowlist: ["https://a.test/", "https://b.test/"]\n')
    policy = Policy.load(base, [one, two], root=tmp_path)
    assert policy.data["loop_budget"] == {"max_iterations": 2, "max_tokens": 5000, "max_tool_calls": 4}
    assert policy.data["url_allowlist"] == ["https://a.test/", "https://b.test/"]
    assert policy.data["sandbox"] == {"mounts": {"corpus": "read"}}
    assert policy.at("/loop_budget/max_iterations") == "one.yaml:2"
    assert policy.at("/loop_budget/max_tool_calls") == "one.yaml:3"
    assert policy.at("/loop_budget/max_tokens") == "p.yaml:12"
    assert policy.at("/url_allowlist/1") == "two.yaml:2"
    assert policy.at("/tool_registry/denied/0") == "p.yaml:4"
    for pointer, rule in {
        "/loop_budget/max_iterations": "one.yaml#/loop_budget/max_iterations",
        "/loop_budget/max_tokens": "p.yaml#/loop_budget/max_tokens",
        "/private_networks": "p.yaml#/private_networks",  # absent: the first file is without it
        "/url_allowlist/7": "two.yaml#/url_allowlist/7",  # no such entry
        "": "p.yaml#",
    }.items():
        assert policy.rule(pointer) == rule
    entry = policy.rule("/url_allowlist/1")
    assert entry.startswith("two.yaml#/url_allowlist/http") and policy.shown(entry) == "two.yaml:2"
    for unknown in ("two.yaml#/url_allowlist/none", "p.yaml#/url_allowlist", "x", "tools/x.py#/type"):
        assert policy.shown(unknown) == unknown
    assert [name for name, _ in policy.files] == ["p.yaml", "one.yaml", "two.yaml"]


def test_the_last_overlay_wins(tmp_path: Path) -> None:
    base = write(tmp_path, "p.yaml", BASE)
    a = write(tmp_path, "a.yaml", "on_deny: inform\n")
    b = write(tmp_path, "b.yaml", "on_deny: terminate\n")
    assert Policy.load(base, [a, b], root=tmp_path).at("/on_deny") == "b.yaml:1"
    assert Policy.load(base, [a, b], root=tmp_path).rule("/on_deny") == "b.yaml#/on_deny"
    assert Policy.load(base, [b, a]).on_deny == "inform"


def test_a_shorter_list_of_an_overlay_leaves_no_old_marks(tmp_path: Path) -> None:
    base = write(tmp_path, "p.yaml", "schema: policy/v1\ntool_registry:\n  allowed:\n    - a\n    - b\n")
    overlay = write(tmp_path, "o.yaml", "tool_registry: {allowed: [c]}\n")
    policy = Policy.load(base, [overlay], root=tmp_path)
    assert policy.at("/tool_registry/allowed/0") == "o.yaml:1"
    assert policy.at("/tool_registry/allowed/1") == "o.yaml:1"


def test_an_overlay_is_validated_after_the_merge_and_at_its_own_place(tmp_path: Path) -> None:
    base = write(tmp_path, "p.yaml", BASE)
    overlay = write(tmp_path, "o.yaml", "# more\nloop_budget:\n  max_tokens: lots\n")
    with pytest.raises(PolicyError) as refused:
        Policy.load(base, [overlay], root=tmp_path)
    assert (refused.value.file, refused.value.line) == ("o.yaml", 3)
    half = write(tmp_path, "half.yaml", "retry: {max_retries: 2}\n")
    rest = write(tmp_path, "rest.yaml", "retry: {backoff_base_ms: 1, backoff_cap_ms: 2}\n")
    assert Policy.load(base, [half, rest]).data["retry"]["backoff_cap_ms"] == 2
    with pytest.raises(PolicyError):
        Policy.load(base, [half])


def test_an_overlay_changes_no_alias_of_what_it_merges_into(tmp_path: Path) -> None:
    base = write(tmp_path, "p.yaml", "schema: policy/v1\nsandbox: &none {}\nloop_budget: *none\n")
    overlay = write(tmp_path, "o.yaml", "sandbox: {mounts: {corpus: read}}\n")
    assert Policy.load(base, [overlay]).data["loop_budget"] == {}


def test_the_loaded_bytes_count(tmp_path: Path) -> None:
    path = write(tmp_path, "p.yaml", BASE)
    policy = Policy.load(path)
    before = policy.version, policy.files
    write(tmp_path, "p.yaml", BASE.replace("fetch", "read"))
    assert (policy.version, policy.files) == before
    assert "fetch" in policy.allowed


# ---- refusals ----------------------------------------------------------------------------------------------

REFUSALS: list[tuple[str, str, int, int, str]] = [
    # text after BASE or in place of it, line and column of the place, a word of the remedy
    ("unknown section", BASE + "loop_budgets: {}\n", 13, 1, "'loop_budget'"),
    ("unknown key", BASE + "  max_token: 1\n", 13, 3, "'max_tokens'"),
    ("unknown word", BASE + "on_deny: informs\n", 13, 10, "'inform'"),
    ("wrong type", BASE + "redact: email\n", 13, 9, ""),
    ("a bool for text", BASE.replace("[search, fetch]", "[search, true]"), 3, 21, "quote"),
    ("a bool for a number", BASE.replace("10\n", "true\n"), 11, 19, ""),
    ("null section", BASE + "retry:\n", 13, 1, ""),
    ("out of range", BASE.replace("max_iterations: 10", "max_iterations: 0"), 11, 19, ""),
    ("duplicate", BASE.replace("[search, fetch]", "[search, search]"), 3, 21, "remove"),
    ("both lists", BASE.replace("[write]", "[fetch]"), 4, 12, "remove"),
    ("no tool name", BASE.replace("[write]", '["*"]'), 4, 12, "wildcard"),
    ("no mount name", BASE.replace("corpus: read", "Corpus: read"), 9, 5, ""),
    ("no mount mode", BASE.replace("corpus: read", "corpus: rw"), 9, 13, ""),
    ("wildcard host", BASE.replace("https://corpus.test/", "*"), 6, 5, "scheme://"),
    ("not a network", BASE + "private_networks: [10.0.0.1/8]\n", 13, 20, "CIDR"),
    ("same entry twice", BASE.replace("sandbox:", "  - corpus.test\nsandbox:", 1), 7, 5, "remove"),
    ("cap below base", BASE + "retry: {max_retries: 1, backoff_base_ms: 9, backoff_cap_ms: 1}\n", 13, 45, "cap"),
    ("missing key", BASE + "cycle_detection: {}\n", 13, 1, "add"),
    ("approval of nobody", BASE + "approval: {required_for: [fetc], timeout_s: 1}\n", 13, 27, "'fetch'"),
    ("no schema", "tool_registry: {}\n", 1, 1, "add"),
    ("other version", "schema: policy/v2\n", 1, 9, "policy/v1"),
    ("no mapping", "- a\n", 1, 1, ""),
    ("duplicate key", BASE + "schema: policy/v1\n", 13, 1, ""),
    ("tag", BASE + "redact: !!seq []\n", 13, 9, ""),
    ("emoji key", BASE + '"\U0001f600": 1\n', 13, 1, ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "column", "remedy"), [r[1:] for r in REFUSALS], ids=[r[0] for r in REFUSALS]
)
def test_refusals_name_file_line_column_and_remedy(
    tmp_path: Path, text: str, line: int, column: int, remedy: str
) -> None:
    with pytest.raises(PolicyError) as refused:
        Policy.load(write(tmp_path, "p.yaml", text), root=tmp_path)
    error = refused.value
    assert (error.file, error.line, error.column) == ("p.yaml", line, column), str(error)
    assert str(error).startswith(f"p.yaml:{line}:{column}: ")
    assert remedy in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize("data", [b"", b"\n", b"# x\n", b"\xff", b"\x00", b"\xef\xbb\xbfschema: policy/v1\n"])
def test_what_is_no_document_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(PolicyError):
        Policy.load(write(tmp_path, "p.yaml", data))


def test_a_file_over_one_mebibyte_is_refused(tmp_path: Path) -> None:
    text = "schema: policy/v1\n"
    fits = write(tmp_path, "p.yaml", text + "#" * ((1 << 20) - len(text) - 1) + "\n")
    assert fits.stat().st_size == 1 << 20
    Policy.load(fits)
    with pytest.raises(PolicyError):
        Policy.load(write(tmp_path, "q.yaml", text + "#" * ((1 << 20) - len(text)) + "\n"))


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for path in (tmp_path / "none.yaml", tmp_path, tmp_path / "loop"):
        with pytest.raises(PolicyError) as refused:
            Policy.load(path)
        assert refused.value.remedy


@pytest.mark.parametrize(
    "data",
    [
        None, [], "schema: policy/v1", {"schema": "policy/v1", "redact": {"email"}}, {1: 2, "schema": "policy/v1"},
        {"schema": "policy/v1", "loop_budget": {"max_tokens": float("nan")}},
        {"schema": "policy/v1", "loop_budget": {"max_tokens": 2**60}},
        {"schema": "policy/v1", "url_allowlist": ["\ud800"]}, {"\U0001f600": 1},
    ],
)  # fmt: skip
def test_data_that_is_no_policy_is_refused_as_such(data: Any) -> None:
    with pytest.raises(PolicyError):
        Policy.from_dict(data)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([*FULL, "mounts", "allowed", "x"]), inner, max_size=4)
        ),
    )
)
def test_from_dict_is_total(data: Any) -> None:
    """Whatever it is given: a policy, or PolicyError."""
    try:
        Policy.from_dict(data)
    except PolicyError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("section", "data"),
    [
        ("tool_registry/allowed", changed("/tool_registry/allowed", ["serach"])),
        ("tool_registry/denied", changed("/tool_registry/denied", ["serach"])),
    ],
)
def test_a_name_that_no_tool_answers_to_is_refused(section: str, data: dict[str, Any]) -> None:
    policy = Policy.from_dict(data)
    with pytest.raises(PolicyError) as refused:
        policy.check_tools(["search", "read", "fetch", "write", "summarize"])
    assert "did you mean 'search'?" in str(refused.value)
    assert refused.value.file == f"<policy>#/{section}/0"
    policy.check_tools(["search", "serach", "read", "fetch", "write", "summarize"])


# ---- the version -------------------------------------------------------------------------------------------


def _shuffled(value: Any, random: Any) -> Any:
    if not isinstance(value, dict):
        return value
    items = [(key, _shuffled(item, random)) for key, item in value.items()]
    random.shuffle(items)
    return dict(items)


@given(st.randoms(use_true_random=False))
def test_the_version_does_not_know_the_order_of_keys(random: Any) -> None:
    policy = Policy.from_dict(_shuffled(FULL, random))
    assert policy.version == Policy.from_dict(FULL).version == digest(encode(FULL))[:12]


def test_the_version_does_not_know_the_form(tmp_path: Path) -> None:
    forms = [
        BASE,
        BASE.replace("\n", "\r\n"),
        "---\n" + BASE + "# a comment\n...\n",
        BASE.replace("[search, fetch]", "\n    - search\n    - 'fetch'"),
        json.dumps(Policy.load(write(tmp_path, "p.yaml", BASE)).data),
    ]
    versions = {Policy.load(write(tmp_path, f"{i}.yaml", text)).version for i, text in enumerate(forms)}
    assert len(versions) == 1
    split = write(tmp_path, "o.yaml", "url_allowlist:\n- https://corpus.test/\n")
    without = write(tmp_path, "w.yaml", BASE.replace('url_allowlist:\n  - "https://corpus.test/"\n', ""))
    assert {Policy.load(without, [split]).version} == versions


@pytest.mark.parametrize("pointer", EFFECTS)
def test_the_version_knows_every_key(pointer: str) -> None:
    assert Policy.from_dict(changed(pointer, EFFECTS[pointer][0])).version != Policy.from_dict(FULL).version


def test_nothing_is_filled_in() -> None:
    data = {"schema": "policy/v1"}
    assert Policy.from_dict(data).data == data
    assert Policy.from_dict(data).version != Policy.from_dict({**data, "redact": []}).version


def test_a_policy_does_not_follow_the_dict_it_was_made_from() -> None:
    data = json.loads(json.dumps(FULL))
    policy = Policy.from_dict(data)
    data["tool_registry"]["allowed"].append("shell")
    assert "shell" not in policy.allowed


# ---- size --------------------------------------------------------------------------------------------------


def test_ten_thousand_entries(tmp_path: Path) -> None:
    hosts = [f"h{i}-{j}.test" for i, j in itertools.product(range(100), range(100))]
    text = "schema: policy/v1\nurl_allowlist:\n" + "".join(f"- https://{host}/a/\n" for host in hosts)
    policy = Policy.load(write(tmp_path, "p.yaml", text), root=tmp_path)
    assert len(policy.data["url_allowlist"]) == 10_000
    assert policy.at("/url_allowlist/9999") == "p.yaml:10002"
    check = {"rule": "url_allowlist", "target": "https://h99-99.test/a/b", "hop": 0}
    assert policy.shown(Gate(policy, {}).decide_late(check).at) == "p.yaml:10002"


def test_the_shipped_policy_loads() -> None:
    policy = Policy.load(shipped("policy/v1.yaml"), root=shipped("."))
    data = {**changed("/loop_budget/overdraft", "deny"), "redact": {"kinds": [*KEY_KINDS]}}
    assert policy.data == {key: value for key, value in data.items() if key != "on_failure"}
    assert not policy.warnings
    assert policy.at("/schema").startswith("policy/v1.yaml:")
    policy.check_tools(TOOLS)


# ---- redaction ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "pointer", "words"),
    [
        ({"patterns": {"email": "x"}}, "patterns/email", "is the name of a kind"),
        ({"patterns": {"env": "x"}}, "patterns/env", "is the name of a kind"),
        ({"patterns": {"mine": "("}}, "patterns/mine", "not a regular expression"),
        ({"patterns": {"mine": "(x)"}}, "patterns/mine", "has a group"),
        ({"patterns": {"mine": "x{0,3}"}}, "patterns/mine", "matches an empty text"),
        ({"reveal_to": {"write": ["email"]}}, "reveal_to/write/0", "not a kind that this policy redacts"),
        ({"reveal_to": {"write": ["env"]}}, "reveal_to/write/0", "not a kind that this policy redacts"),
    ],
)
def test_a_redaction_that_cannot_work_is_refused(section: dict[str, Any], pointer: str, words: str) -> None:
    with pytest.raises(PolicyError, match=words) as caught:
        Policy.from_dict({**FULL, "redact": {"kinds": ["jwt"], **section}})
    assert f"/redact/{pointer}" in str(caught.value)


def test_a_tool_that_nobody_knows_gets_nothing_revealed() -> None:
    policy = Policy.from_dict({**FULL, "redact": {"kinds": ["email"], "reveal_to": {"send": ["email"]}}})
    with pytest.raises(PolicyError, match="no tool named 'send'"):
        policy.check_tools(TOOLS)


@pytest.mark.parametrize("section", [[], {"kinds": []}, {"kinds": ["jwt"], "off": True}, None])
def test_a_policy_without_redaction_says_so(section: Any) -> None:
    data = (
        {**FULL, "redact": section}
        if section is not None
        else {k: v for k, v in FULL.items() if k != "redact"}
    )
    policy = Policy.from_dict(data)
    (line,) = policy.warnings
    assert "redaction is off" in line and policy.redactor().is_noop
    assert not Policy.from_dict({**FULL, "redact": ["jwt"]}).warnings
