"""Files that miss their schema: the first mistake by place, in words of ours, in bounded time."""

from __future__ import annotations

import copy
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tachograph.evidence.tasks import task as tasks
from tachograph.evidence.tasks.task import load_task
from tachograph.fail.errors import InputError, PolicyError
from tachograph.runtime.formats.strict_yaml import load as load_yaml
from tachograph.runtime.policy.policy import Policy, meta_schema
from tachograph.runtime.schema.schema_errors import DocumentValidator, did_you_mean, first_problem
from tachograph.runtime.schema.validator import SchemaValidator
from tests.support import ROOT

QUIET = settings(deadline=None, database=None)
TASK_SCHEMA = json.loads(tasks._SCHEMA.read_text(encoding="utf-8"))
POLICY_TEXT = (ROOT / "policy" / "v1.yaml").read_text(encoding="utf-8")
TASK_TEXT = (ROOT / "tasks" / "canonical" / "v1.yaml").read_text(encoding="utf-8")
SCHEMA = "schema: policy/v1\n"


def refusal(folder: Path, text: str, *overlays: str) -> PolicyError:
    """How a policy is refused."""
    files = []
    for i, each in enumerate((text, *overlays)):
        files.append(folder / f"{'base' if i == 0 else f'over{i}'}.yaml")
        files[-1].write_text(each, encoding="utf-8")
    with pytest.raises(PolicyError) as refused:
        Policy.load(files[0], files[1:], root=folder)
    return refused.value


def task_refusal(folder: Path, text: str) -> InputError:
    (folder / "task.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as refused:
        load_task(folder / "task.yaml", root=folder)
    return refused.value


# ---- places ------------------------------------------------------------------------------------------------

PLACES: list[tuple[str, int, int, str]] = [
    # a wrong value is found at itself, in flow and in block style
    (SCHEMA + "redact: email\n", 2, 9, "redact must be of type list or mapping, not string"),
    (SCHEMA + "redact:\n\n  email\n", 4, 3, "must be of type list"),
    (SCHEMA + "loop_budget: {max_tokens: lots}\n", 2, 27, "loop_budget.max_tokens must be of type integer"),
    (SCHEMA + "loop_budget:\n  max_tokens: 0\n", 3, 15, "must be at least 1"),
    (SCHEMA + "loop_budget: &x\n  - 1\n", 2, 14, "must be of type mapping, not list"),
    (SCHEMA + "retry: &x {max_retries: 1, backoff_base_ms: *y}\n", 2, 45, "not defined"),
    (SCHEMA + "sandbox: &x {}\ntool_registry: {allowed: *x}\n", 3, 26, "must be of type list"),
    (SCHEMA + "sandbox: {mounts: {a: rw}}\n", 2, 23, "must be one of read, write"),
    (SCHEMA + "on_deny: 'no'\n", 2, 10, "must be one of terminate, inform"),
    ("schema: policy/v2\n", 1, 9, "schema must be policy/v1"),
    # where nothing is written as a value, at its key
    (SCHEMA + "retry:\n", 2, 1, "retry must be of type mapping, not null"),
    # an unknown key and a bad name at themselves, a mapping that lacks a key at its own
    (SCHEMA + "loop_budget: {max_tokens: 1, lots: 2}\n", 2, 30, "unknown key 'lots'"),
    (SCHEMA + "sandbox: {mounts: {a: read, B: read}}\n", 2, 29, "'B' is not a valid name"),
    (SCHEMA + "\n  # c\ncycle_detection: {}\n", 4, 1, "cycle_detection lacks the key 'max_repeats'"),
    # what is twice in a list, where it is for the second time
    (SCHEMA + "redact: [jwt, email, jwt, email, jwt]\n", 2, 22, "'jwt' is listed twice"),
    # the first of several, by place: in a list, in a mapping, in the file; a lacking key last
    (SCHEMA + f"redact: [{'email, ' * 2}{'x, ' * 9}1]\n", 2, 17, "'email' is listed twice"),
    (SCHEMA + "redact: [email, jwt, a, email, a, 1]\n", 2, 22, "redact.2 must be one of"),
    (SCHEMA + "zz: 1\naa: 1\n", 2, 1, "unknown key 'zz'"),
    (SCHEMA + "redact: 1\naa: 1\n", 2, 9, "redact must be"),
    ("retry: {max_retry: 1, backoff_base_ms: x}\n", 1, 9, "'max_retry'; did you mean 'max_retries'?"),
    (SCHEMA + "sandbox: {mounts: {b: rw, a: rw}}\n", 2, 23, "sandbox.mounts.b"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "column", "part"), PLACES)
def test_places(tmp_path: Path, text: str, line: int, column: int, part: str) -> None:
    error = refusal(tmp_path, text)
    assert (error.file, error.line, error.column) == ("base.yaml", line, column), str(error)
    assert part in str(error)


def test_items_are_ordered_as_numbers(tmp_path: Path) -> None:
    """The 2nd, 10th and 100th of a list are wrong: text would say 10, 100, 2."""
    names = [f"t{i}" for i in range(120)]
    for wrong in (1, 9, 99):
        names[wrong] = f"{wrong}x"
    listed = "\n".join(f"    - {name}" for name in names)
    error = refusal(tmp_path, f"{SCHEMA}tool_registry:\n  allowed:\n{listed}\n")
    assert (error.line, error.message) == (5, "'1x' is not a valid name")
    data = {"schema": "policy/v1", "tool_registry": {"denied": ["1x"], "allowed": names}}
    with pytest.raises(PolicyError, match="'1x' is not a valid name") as refused:
        Policy.from_dict(data)
    assert refused.value.file == "<policy>#/tool_registry/allowed/1"


def test_indices_come_as_numbers_before_names_without_places() -> None:
    validator = DocumentValidator({"additionalProperties": {"type": "string"}})
    data: dict[str, Any] = {"10": 1, "9": 1, "a": 1, "9" * 5000: 1}
    found = first_problem(validator, {"10": 1, "9": 1}, "it")
    assert found is not None and found.pointer == "/9"
    assert first_problem(validator, data, "it") is not None


def test_the_first_of_several_files_comes_first(tmp_path: Path) -> None:
    wrong = "loop_budget: {max_tokens: x}\n"
    error = refusal(tmp_path, SCHEMA + "\n\n\n\nredact: 1\n", wrong)
    assert (error.file, error.line) == ("base.yaml", 6)
    error = refusal(tmp_path, SCHEMA + "\n\n\n\nredact: []\n", wrong, "redact: 1\n")
    assert (error.file, error.line, error.column) == ("over1.yaml", 1, 27)
    error = refusal(tmp_path, SCHEMA + wrong, "loop_budget: {max_tokens: y}\n", "# c\nloop_budget:\n")
    assert (error.file, error.line, error.column) == ("over2.yaml", 2, 1)


TASK_PLACES: list[tuple[str, str, str, str]] = [
    # a piece of the canonical task, what stands instead, where the mistake is in it, what is said
    ("seed:", "seed: ten #", "ten", "seed must be of type integer, not string"),
    ("title:", "titel: x\ntitle:", "titel", "unknown key 'titel'; did you mean 'title'?"),
    ("title:", "turns: []\ntitle:", "turns", "it belongs under llm.stub"),
    ("title:", "text: x\ntitle:", "text", "it belongs under setup"),
    ("title:", "folder: x\ntitle:", "folder", "it belongs under hosts"),
    ("title:", "call: 0\ntitle:", "call", "it belongs under approvals or under approvals.given_to or under faults"),
    ("title:", "expected: {spans: {tool_call: -1}}\ntitle:", "-1", "spans.tool_call must be at least 0"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "blamed", "part"), TASK_PLACES)
def test_places_in_tasks(tmp_path: Path, old: str, new: str, blamed: str, part: str) -> None:
    text = TASK_TEXT.split("\nexpected:")[0] + "\n" if "expected" in new else TASK_TEXT
    at = text.index(f"\n{old}") + 1
    text = text[:at] + new + text[at + len(old) :]
    wrong = text.index(blamed, at)
    error = task_refusal(tmp_path, text)
    place = text.count("\n", 0, wrong) + 1, wrong - text.rfind("\n", 0, wrong)
    assert (error.line, error.column) == place, str(error)
    assert part in str(error)


# ---- words -------------------------------------------------------------------------------------------------

HINTS: list[tuple[str, str]] = [
    ("max_iterations: 3\n", "it belongs under loop_budget"),
    ("allowed: [x]\n", "it belongs under tool_registry"),
    ("mounts: {}\n", "it belongs under sandbox"),
    ("loop_budget: {max_retries: 1}\n", "it belongs under retry, or did you mean 'max_"),
    ("sandbox: {mounts: {}, redact: []}\n", "it belongs at the top"),
    ("Redact: []\n", "did you mean 'redact'?"),
    ("x: 1\n", "known keys here: schema, tool_registry,"),
    (
        "retry: {max_retries: 1, backoff_base_ms: 1, cap: 1}\n",
        "known keys here: max_retries, backoff_base_ms",
    ),
]


@pytest.mark.parametrize(("text", "hint"), HINTS)
def test_unknown_keys_are_told_where_they_belong(tmp_path: Path, text: str, hint: str) -> None:
    error = refusal(tmp_path, SCHEMA + text)
    assert error.message.startswith("unknown key ") and hint in (error.remedy or ""), str(error)


def test_a_look_alike_letter_is_seen(tmp_path: Path) -> None:
    error = refusal(tmp_path, SCHEMA + "s\u0441hema: policy/v1\n")
    assert error.message == r"unknown key 's\u0441hema'"
    assert error.remedy == "did you mean 'schema'?"
    error = refusal(tmp_path, SCHEMA + "sandbox: {mounts: {\u0430: read}}\n")
    assert error.message == r"'\u0430' is not a valid name"
    assert r"sandbox.mounts.\u0430 must" in str(
        first_problem(DocumentValidator(meta_schema()), {"sandbox": {"mounts": {"\u0430": 1}}}, "it")
    ).replace("\\\\", "\\")


FORMS = [
    "{}: 1\n", "sandbox: {{mounts: {{{}: read}}}}\n", "sandbox: {{mounts: {{{}: [x]}}}}\n", "on_deny: {}\n",
    "tool_registry: {{allowed: [{}]}}\n", "redact: [{0}, {0}]\n", "url_allowlist: [{0}, {0}]\n",
    "private_networks: [{}]\n", "loop_budget: {{max_tokens: {}}}\n", "loop_budget: {{{}: 1}}\n",
    "approval: {{required_for: [{}], timeout_s: 1}}\n", "schema: {}\n", "{0}: 1\n{0}: 2\n", "a: *{}\n",
]  # fmt: skip
FOREIGN = st.text(min_size=1, max_size=12) | st.builds(
    lambda c, n: c * n, st.sampled_from("a\u0441\U0001f600'\"\\/~. "), st.sampled_from([80, 5000])
)


@QUIET
@given(st.sampled_from(FORMS), FOREIGN)
def test_foreign_text_stands_cut_and_in_ascii(
    tmp_path_factory: pytest.TempPathFactory, form: str, text: str
) -> None:
    folder = tmp_path_factory.mktemp("p")
    try:
        text.encode()
    except UnicodeEncodeError:
        text = "x"
    quoted = '"' + "".join(f"\\U{ord(c):08x}" for c in text) + '"'
    (folder / "p.yaml").write_text(SCHEMA * ("schema" not in form) + form.format(quoted), encoding="utf-8")
    try:
        Policy.load(folder / "p.yaml", root=folder)
    except PolicyError as error:
        said = str(error)
        assert said.isascii() and said.isprintable() and len(said) < 420, said
        assert error.line is not None and error.column is not None


def test_the_nearest_word_is_found_in_time() -> None:
    assert did_you_mean("serch", ["fetch", "search"]) == "did you mean 'search'?"
    assert did_you_mean("\u0455earch", ["search"]) == "did you mean 'search'?"
    assert did_you_mean("zzz", ["search"]) is None
    assert did_you_mean("search" * 200_000, ["search" * 200_000]) is None


# ---- the library's verdict, in bounded time ----------------------------------------------------------------

JSON = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.0, -1, 2.5, "", "a", "read", "email", "x y", 10**9]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("ab-A"), inner, max_size=3),
    max_leaves=6,
)


def _pointers(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(p for key, value in inner for p in _pointers(value, (*path, key)))]


SUBJECTS = [
    (meta_schema(), load_yaml(POLICY_TEXT.encode(), "p").data),
    (TASK_SCHEMA, load_yaml(TASK_TEXT.encode(), "t").data),
]


@settings(QUIET, max_examples=250)
@given(st.data(), st.sampled_from([0, 1]), st.integers(0, 2))
def test_the_verdict_is_the_librarys(data: st.DataObject, which: int, changes: int) -> None:
    schema, whole = SUBJECTS[which][0], copy.deepcopy(SUBJECTS[which][1])
    for _ in range(changes):
        *way, last = data.draw(st.sampled_from(_pointers(whole)[1:]))
        here = whole
        for key in way:
            here = here[key]
        here[last] = data.draw(JSON)
        if isinstance(here, list) and data.draw(st.booleans()):
            here.append(copy.deepcopy(here[0]))
    validator = DocumentValidator(schema)
    found = first_problem(validator, whole, "it")
    library = list(Draft202012Validator(schema).iter_errors(whole))
    assert validator.accepts(whole) == (found is None) == (not library)


def _same(one: Any, other: Any) -> bool:
    """JSON Schema's equality: a number is no boolean, 1 is 1.0, also inside lists and mappings."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return isinstance(one, bool) == isinstance(other, bool) and one == other


@settings(QUIET, max_examples=300)
@given(st.lists(JSON, max_size=6))
@example([1, "1", True, "true", 1.0])
@example([[1], [True], [1.0]])
@example([{"a": 1, "b": 2}, {"b": 2.0, "a": 1}])
def test_items_are_equal_as_json_schema_says(items: list[Any]) -> None:
    found = first_problem(DocumentValidator({"type": "array", "uniqueItems": True}), items, "it")
    twice = (i for i, item in enumerate(items) if any(_same(item, earlier) for earlier in items[:i]))
    first = next(twice, None)
    assert (found and found.pointer) == (None if first is None else f"/{first}")


def test_no_more_errors_are_made_than_are_needed() -> None:
    text = {"type": "string"}
    wrong = list(range(1000))
    for schema, data, most in (
        ({"items": text}, wrong, 1),
        ({"items": text, "maxItems": 999}, wrong, 1),
        ({"uniqueItems": True, "maxItems": 9}, [1] * 10, 1),
        ({"additionalProperties": text}, {str(i): i for i in wrong}, 100),
        ({"additionalProperties": text, "maxProperties": 9}, {str(i): i for i in wrong}, 1),
        ({"propertyNames": {"pattern": "^a"}}, {str(i): i for i in wrong}, 100),
    ):
        errors = list(DocumentValidator(schema).iter_errors(data))
        assert len(errors) == most, schema
    (error,) = DocumentValidator({"items": text, "maxItems": 999}).iter_errors(wrong)
    assert error.validator == "maxItems"


MANY = 40_000
LARGE: list[tuple[str, str]] = [
    ("numbers and texts", "url_allowlist: [" + ",".join(f"{i},a{i}" for i in range(9900)) + "]\n"),
    ("more than may be", "url_allowlist: [" + ",".join(f"{i},a{i}" for i in range(MANY)) + "]\n"),
    ("lists", "url_allowlist: [" + ",".join(f"[{i}]" for i in range(19_000)) + "]\n"),
    ("mappings", "redact: [" + ",".join(f"{{a: {i}}}" for i in range(MANY)) + "]\n"),
    ("words of no kind", "redact: [" + ",".join(f"a{i}" for i in range(MANY)) + "]\n"),
    ("no names", "tool_registry: {allowed: [" + ",".join(f"1{i}x" for i in range(MANY)) + "]}\n"),
    ("mounts", "sandbox: {mounts: {" + ",".join(f"M{i}: rw" for i in range(MANY)) + "}}\n"),
    ("unknown keys", "".join(f"k{i}: 1\n" for i in range(MANY))),
    ("a key", f"? {'tool_registry' * 70_000}\n: 1\n"),
    ("a word", f"on_deny: {'inform' * 150_000}\n"),
    ("twice a text", f"redact: ['{'x' * 400_000}', '{'x' * 400_000}']\n"),
    ("a mapping for a word", "on_deny: {" + ",".join(f"k{i}: 1" for i in range(MANY)) + "}\n"),
]


@pytest.mark.parametrize(("name", "text"), LARGE, ids=[name for name, _ in LARGE])
def test_large_files_are_refused_soon(tmp_path: Path, name: str, text: str) -> None:
    assert 60_000 < len(text) < 1 << 20
    started = time.process_time()
    error = refusal(tmp_path, SCHEMA + text)
    assert time.process_time() - started < 4, "about a second at most on an idle machine"
    assert len(str(error)) < 420
    assert (error.line, error.column) > (1, 1)


def test_large_tasks_are_refused_soon(tmp_path: Path) -> None:
    """A task has no bound on the size of its lists: the first wrong entry ends the look at one."""
    for text in (
        "mounts: {" + ",".join(f"m{i}: 1" for i in range(MANY)) + "}\n",
        "expected: {modes: [" + ",".join(f"{i}" for i in range(MANY)) + "]}\n",
        "hosts: {" + ",".join(f"m{i}: {{a: 1}}" for i in range(MANY // 2)) + "}\n",
        "tools: [" + ",".join(f"{i},a{i}" for i in range(MANY)) + "]\n",
    ):
        started = time.process_time()
        task_refusal(tmp_path, "schema: task/v1\n" + text)
        assert time.process_time() - started < 4


# ---- patterns of our own schemas ---------------------------------------------------------------------------


def _patterns(schema: Any) -> set[str]:
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    found = set().union(*map(_patterns, inner))
    pattern = schema.get("pattern") if isinstance(schema, dict) else None
    return found | ({pattern} if isinstance(pattern, str) else set())


OWN_PATTERNS = sorted(
    _patterns(
        [json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "src").rglob("*.schema.json")]
    )
    | _patterns(meta_schema())
)


@pytest.mark.parametrize("pattern", OWN_PATTERNS)
def test_a_pattern_of_a_schema_of_ours_is_read_as_that_of_a_tool(pattern: str) -> None:
    ours, a_tools = DocumentValidator({"pattern": pattern}), SchemaValidator({"pattern": pattern})

    @QUIET
    @given(st.data())
    def reads_alike(data: st.DataObject) -> None:
        text = data.draw(st.from_regex(pattern))
        tail = data.draw(st.sampled_from(["", "\n", "-", "_", " ", "é", "٣", "x" * 100]))
        for each in (text, text + tail, tail + text, text.strip()):
            assert ours.accepts(each) == a_tools.accepts(each)

    reads_alike()
    assert not ours.accepts("a\n") or "\\s" in pattern
