"""Policy tests: what they may ask and expect, how they fail, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.fail.errors import InputError
from tachograph.review.testing import answers as policy_answers
from tachograph.review.testing.answers import ANSWERS, KINDS, answer
from tachograph.review.testing.policy_tests import load_suite, run_suite
from tachograph.runtime.loop.retry import Schedule
from tachograph.runtime.policy.gate import Gate
from tachograph.runtime.policy.policy import Policy
from tests.review.small_policy import FETCH, GOOD, results, small_project, written


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_project(tmp_path_factory.mktemp("project"))


# ---- what may be expected: (the question, what is so, what is not so and how it is told) -----------------------

WRITE = "call: {tool: write, arguments: {path: box/a, content: x}}"
SEARCH = "call: {tool: search, arguments: {query: x}}"
CASES: list[tuple[str, str, str, str]] = [
    (FETCH, "expect: allow", "expect: deny", "expected deny, got allow by url_allowlist (policy/v1.yaml:6)"),
    (
        FETCH,
        "expect: allow, rule: url_allowlist",
        "expect: deny, rule: url_allowlist",
        "expected deny by url_allowlist, got allow by url_allowlist (policy/v1.yaml:6)",
    ),
    (
        FETCH,
        "expect: allow, at: 6",
        "expect: allow, at: 7",
        "expected allow at 7, got allow by url_allowlist (policy/v1.yaml:6)",
    ),
    (
        FETCH,
        'expect: allow, at: "policy/v1.yaml:6"',
        'expect: allow, at: "policy/v2.yaml:6"',
        "expected allow at policy/v2.yaml:6, got allow by url_allowlist (policy/v1.yaml:6)",
    ),
    (
        'call: {tool: fetch, arguments: {url: "https://a.test/x/y"}}',
        "expect: allow, at: 7",
        "expect: allow, rule: tool_registry",
        "expected allow by tool_registry, got allow by url_allowlist (policy/v1.yaml:7)",
    ),
    (
        'call: {tool: fetch, arguments: {url: "https://a.test/y"}}',
        "expect: deny, rule: url_allowlist, then: ends",
        "expect: deny, then: goes_on",
        "expected deny then=goes_on, got deny by url_allowlist then=ends (policy/v1.yaml:5)",
    ),
    (
        "call: {tool: summarize, arguments: {}}",
        "expect: deny, rule: tool_registry, at: 4",
        "expect: allow",
        "expected allow, got deny by tool_registry (policy/v1.yaml:4)",
    ),
    (
        "call: {tool: write, arguments: {path: corpus/a, content: x}}",
        "expect: deny, rule: sandbox_path",
        "expect: escalate, rule: approval",
        "expected escalate by approval, got deny by sandbox_path (policy/v1.yaml:10)",
    ),
    (
        WRITE,
        "expect: escalate, rule: approval, timeout_s: 9, then: ends",
        "expect: escalate, timeout_s: 10",
        "expected escalate timeout_s=10, got escalate by approval timeout_s=9 (policy/v1.yaml:14)",
    ),
    (
        'call: {tool: search, arguments: "{\\"query\\": \\"x\\"}"}',
        "expect: allow",
        "expect: deny, rule: arg_schema",
        "expected deny by arg_schema, got allow by tool_registry (policy/v1.yaml:3)",
    ),
    (
        "call: {tool: search, arguments: not json}",
        "expect: deny, rule: arg_schema",
        "expect: allow",
        "expected allow, got deny by arg_schema (tools/search.py#/type)",
    ),
    (
        f"{SEARCH}, used: {{repeats: 1}}",
        "expect: allow",
        "expect: deny",
        "expected deny, got allow by tool_registry (policy/v1.yaml:3)",
    ),
    (
        f"{SEARCH}, used: {{repeats: 2}}",
        "expect: deny, rule: cycle_detection, then: ends",
        "expect: allow",
        "expected allow, got deny by cycle_detection (policy/v1.yaml:12)",
    ),
    (
        f"{SEARCH}, used: {{tool_calls: 4, iterations: 1, tokens: 1}}",
        "expect: deny, rule: loop_budget",
        "expect: allow",
        "expected allow, got deny by loop_budget (policy/v1.yaml:11)",
    ),
    (
        'late: {target: "https://corpus.test/", hop: 2}',
        "expect: allow",
        "expect: deny",
        "expected deny, got allow by url_allowlist (policy/v1.yaml:6)",
    ),
    (
        'late: {target: "https://corpus.test/", address: 10.1.2.3}',
        "expect: allow",
        "expect: deny",
        "expected deny, got allow by url_allowlist (policy/v1.yaml:6)",
    ),
    (
        'late: {target: "https://corpus.test/", address: 10.2.2.3}',
        "expect: deny, rule: url_allowlist, at: 8, then: ends",
        "expect: allow",
        "expected allow, got deny by url_allowlist (policy/v1.yaml:8)",
    ),
    (
        "late: {path: box/a, access: write}",
        "expect: allow, rule: sandbox_path",
        "expect: deny",
        "expected deny, got allow by sandbox_path (policy/v1.yaml:10)",
    ),
    (
        "late: {path: box/a, access: read, found: link}",
        "expect: deny",
        "expect: allow",
        "expected allow, got deny by sandbox_path (policy/v1.yaml:10)",
    ),
    (
        "result_bytes: 50",
        "expect: allow, rule: loop_budget",
        "expect: deny",
        "expected deny, got allow by loop_budget (policy/v1.yaml:11)",
    ),
    (
        "result_bytes: 1, used: {result_bytes: 50}",
        "expect: deny, rule: loop_budget, then: ends",
        "expect: allow",
        "expected allow, got deny by loop_budget (policy/v1.yaml:11)",
    ),
    (
        "step: true, used: {iterations: 1}",
        "expect: allow, tools: true",
        "expect: allow, tools: false",
        "expected allow tools=false, got allow by loop_budget tools=true (policy/v1.yaml:11)",
    ),
    (
        "step: true, used: {iterations: 2}",
        "expect: allow, tools: false",
        "expect: allow, tools: true",
        "expected allow tools=true, got allow by loop_budget tools=false (policy/v1.yaml:11)",
    ),
    (
        "step: true, used: {tokens: 100}",
        "expect: deny, rule: loop_budget, then: ends",
        "expect: deny, tools: true",
        "expected deny tools=true, got deny by loop_budget tools=null (policy/v1.yaml:11)",
    ),
    (
        "retry: {attempt: 2}",
        "expect: retry, wait_ms: [160, 240]",
        "expect: retry, wait_ms: [160, 241]",
        "expected retry wait_ms=[160, 241], got retry wait_ms=[160, 240] (policy/v1.yaml:13)",
    ),
    (
        "retry: {attempt: 1, retry_after_ms: 5000}",
        "expect: retry, wait_ms: [300, 300]",
        "expect: give_up",
        "expected give_up, got retry (policy/v1.yaml:13)",
    ),
    (
        "retry: {attempt: 3}",
        "expect: give_up",
        "expect: retry",
        "expected retry, got give_up (policy/v1.yaml:13)",
    ),
    (
        "failure: {tool: read}, used: {failures: 1}",
        "expect: goes_on, at: 16",
        "expect: ends",
        "expected ends, got goes_on (policy/v1.yaml:16)",
    ),
    (
        "failure: {tool: read}, used: {failures: 2}",
        "expect: ends",
        "expect: goes_on",
        "expected goes_on, got ends (policy/v1.yaml:16)",
    ),
    (
        "failure: {}",
        "expect: ends",
        "expect: goes_on",
        "expected goes_on, got ends (policy/v1.yaml:16)",
    ),
    (
        "text: mail a@b.test now",
        'expect: "mail <secret:email:1> now", at: 15',
        "expect: mail a@b.test now",
        'expected "mail a@b.test now", got "mail <secret:email:1> now" (policy/v1.yaml:15)',
    ),
]


@pytest.mark.parametrize(("question", "so", "not_so", "told"), CASES, ids=range(len(CASES)))
def test_each_expectation_passes_where_it_is_so_and_fails_where_not(
    root: Path, question: str, so: str, not_so: str, told: str
) -> None:
    right, wrong = results(root, f"{question}, {so}", f"{question}, {not_so}")
    assert (right.ok, right.problem) == (True, "")
    assert (wrong.ok, wrong.problem) == (False, told)


def test_every_kind_of_question_and_every_answer_is_tried_above() -> None:
    told = " ".join(f"{question}, {so}, {not_so}" for question, so, not_so, _ in CASES)
    for kind, more in KINDS.items():
        assert f"{kind}: " in told
        for key in more:
            assert f"{key}: " in told
    for answers in ANSWERS.values():
        assert all(f"expect: {word}" in told for word in answers)


def test_overlays_that_a_file_names_are_merged(root: Path) -> None:
    head = "schema: policy-tests/v1\npolicy: {file: policy/v1.yaml, overlays: [policy/inform.yaml]}"
    found = results(
        root,
        "call: {tool: shell, arguments: {}}, expect: deny, then: goes_on",
        f"{WRITE}, expect: escalate, then: goes_on",
        f"{SEARCH}, used: {{repeats: 2}}, expect: deny, then: ends",
        "text: a@b.test, expect: a@b.test",
        head=head,
    )
    assert [result.problem for result in found] == [""] * 4


def test_base_and_overlays_that_are_given_take_their_place(root: Path) -> None:
    head = "schema: policy-tests/v1\npolicy: {overlays: [policy/inform.yaml]}"
    path = written(root, "text: a@b.test, expect: a@b.test", head=head)
    other = root / "policy/other.yaml"
    other.write_text("schema: policy/v1\n", encoding="utf-8")
    more = root / "policy/more.yaml"
    more.write_text("redact: [email]\n", encoding="utf-8")
    suite = load_suite(path, root, other, [more])
    assert suite.stack == (other, root / "policy/inform.yaml", more)
    policy, (result,) = run_suite(suite, root)
    assert policy.data == {"schema": "policy/v1", "on_deny": "inform", "redact": ["email"]}
    assert not result.ok


# ---- the waits -------------------------------------------------------------------------------------------------


def test_the_shortest_and_the_longest_wait_are_just_that() -> None:
    schedule = Schedule(5, 1000, 10**9)
    least, most = (schedule.backoff_ms(1, name) for name in (policy_answers._LEAST, policy_answers._MOST))
    assert (least, most) == (800, 1200)


@settings(max_examples=50, deadline=None)
@given(
    retries=st.integers(0, 20),
    base=st.integers(1, 1000),
    cap=st.integers(1000, 5000),
    attempt=st.integers(1, 21),
    name=st.text(max_size=9),
)
def test_every_wait_lies_between_them(retries: int, base: int, cap: int, attempt: int, name: str) -> None:
    section = {"max_retries": retries, "backoff_base_ms": base, "backoff_cap_ms": cap}
    found = answer(
        {"retry": {"attempt": attempt}}, Gate(Policy.from_dict({"schema": "policy/v1", "retry": section}), {})
    )
    assert (found.expect == "retry") == (attempt <= retries)
    if found.expect == "retry":
        low, high = found.more["wait_ms"]
        assert low <= Schedule.of(section).backoff_ms(attempt, name) <= high


# ---- what is refused -------------------------------------------------------------------------------------------

REFUSED: list[tuple[str, str]] = [
    (f"{GOOD}, rul: approval", "3:62: unknown key 'rul'; did you mean 'rule'?"),
    (
        "call: {tool: x, argument: {}}, expect: deny",
        "3:32: unknown key 'argument'; did you mean 'arguments'?",
    ),
    ("call: {tool: x}, expect: deny", "tests.0.call lacks the key 'arguments'; add it"),
    ("call: {tool: 7, arguments: {}}, expect: deny", "must be of type string, not integer; quote the value"),
    ("call: {tool: x, arguments: [1]}, expect: deny", "must be of type mapping or string, not list;"),
    (
        "expect: deny",
        "3:5: the test 't0' asks nothing; give one of call, late, result_bytes, step, retry, failure, text",
    ),
    (f"step: true, {GOOD}", "3:5: the test 't0' asks call and step; give one of"),
    ("step: true, expect: maybe", "3:36: step is answered with one of allow, deny; choose one of them"),
    ("step: true, expect: alow", "3:36: step is answered with one of allow, deny; did you mean 'allow'?"),
    ("late: {path: a/b, access: read}, expect: escalate", "late is answered with one of allow, deny;"),
    ("step: false, expect: deny", "3:22: step can only be true; write true, or ask something else"),
    (
        "step: true, expect: deny, used: {repeats: 1}",
        "step does not depend on repeats; give iterations, tokens",
    ),
    ("result_bytes: 1, expect: deny, used: {tokens: 1}", "result_bytes does not depend on tokens;"),
    ("text: x, expect: x, used: {tokens: 1}", "used does not apply to a test of text; it has at"),
    ("text: x, expect: x, rule: approval", "rule does not apply to a test of text; it has at"),
    (
        f"{GOOD}, wait_ms: [1, 2]",
        "wait_ms does not apply to a test of call; it has rule, at, then, timeout_s, used",
    ),
    (f"{GOOD}, rule: url_allow_list", "there is no rule 'url_allow_list'; did you mean 'url_allowlist'?"),
    (
        f"{GOOD}, rule: x",
        "there is no rule 'x'; one of tool_registry, principal, time_window, url_allowlist,",
    ),
    (f"{GOOD}, then: end", "must be one of ends, goes_on; did you mean 'ends'?"),
    ("late: {hop: 1}, expect: deny", "this is not a fact that a running tool can meet; give target with hop"),
    (
        'late: {target: x, hop: 1, address: "::1"}, expect: deny',
        "this is not a fact that a running tool can meet",
    ),
    ("late: {path: a/b}, expect: deny", "this is not a fact that a running tool can meet"),
    ("late: {path: a/b, access: execute}, expect: deny", "must be one of read, write; choose one of them"),
    ("result_bytes: -1, expect: deny", "must be at least 0; fix the value"),
    ("retry: {attempt: 0}, expect: retry", "must be at least 1; fix the value"),
    ("retry: {attempt: 1}, expect: retry, wait_ms: [1]", "must have at least 2 entries; fix the value"),
    ("step: true, expect: allow, principal: ann", "principal does not apply to a test of step"),
    (f"{GOOD}, principal: an n", "'an n' is not a valid name"),
    (f"{GOOD}, expect: deny", "the key 'expect' stands at 3:"),
]


@pytest.mark.parametrize(("test", "said"), REFUSED, ids=range(len(REFUSED)))
def test_a_file_that_is_wrong_is_refused_in_one_line(root: Path, test: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        load_suite(written(root, test), root)
    line = str(caught.value)
    assert re.match(r"policy/tests/some\.yaml:3:\d+: ", line) and said in line and "\n" not in line


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (
            "schema: policy-tests/v2",
            "1:9: schema must be policy-tests/v1; fix the value",
        ),
        ("shema: policy-tests/v1", "1:1: unknown key 'shema'; did you mean 'schema'?"),
        (
            "schema: policy-tests/v1\npolicy: {file: policy/v9.yaml}",
            "2:16: there is no policy file 'policy/v9.yaml'",
        ),
        (
            "schema: policy-tests/v1\npolicy: {overlays: [../x.yaml]}",
            "2:21: leads out of the project; use a path",
        ),
        ('schema: policy-tests/v1\npolicy: {file: "a\\0b"}', "2:16: is not a usable path; use a path below"),
        (
            "schema: policy-tests/v1\npolicy: {overlay: [x]}",
            "2:10: unknown key 'overlay'; did you mean 'overlays'?",
        ),
        (
            "schema: policy-tests/v1\npolicy: {overlays: []}",
            "2:20: policy.overlays must have at least 1 entry;",
        ),
    ],
)
def test_a_head_that_is_wrong_is_refused_in_one_line(root: Path, head: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        load_suite(written(root, GOOD, head=head), root)
    assert str(caught.value).startswith(f"policy/tests/some.yaml:{said}")


def test_two_tests_of_one_name_are_refused(root: Path) -> None:
    path = written(root, GOOD, GOOD, GOOD)
    path.write_text(path.read_text(encoding="utf-8").replace("name: t2", "name: t0"), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_suite(path, root)
    said = "policy/tests/some.yaml:5:12: 't0' is the test at line 3 too; rename one of them"
    assert str(caught.value) == said


@pytest.mark.parametrize(
    "text", ["", "schema: policy-tests/v1\n", "[]\n", "a: b: c\n", "schema: policy-tests/v1\ntests: []\n"]
)
def test_what_is_no_file_of_tests_is_refused(root: Path, text: str) -> None:
    path = root / "policy/tests/some.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_suite(path, root)
    assert str(caught.value).startswith("policy/tests/some.yaml:") and "\n" not in str(caught.value)


def test_a_folder_or_nothing_is_no_file_of_tests(root: Path) -> None:
    with pytest.raises(InputError, match="is not a regular file; name a YAML file"):
        load_suite(root / "policy/tests", root)
    with pytest.raises(InputError, match="no such file of policy tests; name a file such as"):
        load_suite(root / "policy/tests/none.yaml", root)
