"""The loop: every row of the table of endings, driven by hand and through an agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tachograph.fail.catalog import (
    BROKEN,
    Answered,
    ApprovalRefused,
    CallStopped,
    Denied,
    Ending,
    FailureMode,
    GaveUp,
    Happening,
    ResultLost,
    Rule,
    StoppedByHook,
    Succeeded,
    classify,
    happenings,
)
from tachograph.fail.errors import (
    Cancelled,
    Interrupted,
    InvalidModelOutput,
    ModelError,
    TransientModelError,
)
from tachograph.runtime.agent import Agent
from tachograph.runtime.core.effects import (
    Answer,
    AskHuman,
    AskModel,
    Decided,
    Fault,
    Invoke,
    Outcome,
    RunEnded,
    StepEnded,
    StepProgress,
    Wait,
)
from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.formats.canonical_json import freeze
from tachograph.runtime.loop.loop import run_loop
from tachograph.runtime.loop.retry import MAX_SERVICE_TEXT, Schedule
from tachograph.runtime.loop.state import RunSpec
from tachograph.runtime.models.types import MOST_TOKENS, LLMOutput, ToolCall, read_reply
from tachograph.runtime.policy.gate import Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.contract import Tool
from tachograph.runtime.workspace.mounts import Host
from tests.support import URL, answer, ask, failing, perform, policy_data, probe, tool

TERMINATE, INFORM = "terminate", "inform"


@dataclass(frozen=True)
class Row:
    """A happening: how it comes about, its mode, and how the run ends under each `on_deny`.

    `inform` None: the model is told, and answers. `ran` are the calls that reach their tool before anything
    ends, by tool name.
    """

    name: str
    mode: str | None
    terminate: str | None
    inform: str | None
    rule: str | None = None
    first: LLMOutput | Callable[[], Any] = field(default_factory=LLMOutput)
    run: Callable[..., Any] = lambda args, io: {"said": "ok"}
    errors: tuple[type[BaseException], ...] = ()
    tools: dict[str, Any] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)
    approve: Callable[[Any], Any] | None = None
    before: Callable[[Agent], None] = lambda agent: None
    ran: tuple[str, ...] = ()


class _Unusable:
    def mismatch_of_result(self, data: Any) -> Any:
        raise RecursionError


def _output_schema_fails(agent: Agent) -> None:
    """No schema that was loaded is known to do so; the library may."""
    made = agent.gate.tools["probe"]
    made.__dict__.update(output_validator=_Unusable())


def _get(args: dict[str, Any], io: Any) -> dict[str, str]:
    return {"said": io.get(args["url"]).text}


def _swallow(args: dict[str, Any], io: Any) -> dict[str, str]:
    try:
        return _get(args, io)
    except PermissionError:
        return {"said": "nothing to see"}


def _read(args: dict[str, Any], io: Any) -> dict[str, str]:
    return {"said": io.read(args["path"])}


def _break_gate(agent: Agent) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    agent.gate.rules = (("cycle_detection", broken),)


def _raiser(error: Callable[[], BaseException]) -> Callable[..., Any]:
    def run(*_: Any) -> Any:
        raise error()

    return run


DENIAL, FAILURE, BUDGET, REFUSED, CANCELLED = (
    Ending.POLICY_DENIAL,
    Ending.FAILURE,
    Ending.LOOP_BUDGET,
    Ending.APPROVAL_REFUSED,
    Ending.CANCELLED,
)
ECHO = probe("echo")
NEEDS = {"approval": {"required_for": ["probe"], "timeout_s": 30}}


def _denied(
    name: str, rule: str, call: ToolCall, mode: str | None = None, ending: str = DENIAL, **more: Any
) -> Row:
    return Row(name, mode, ending, None, rule, ask(call, ECHO), **more)


def _failed(name: str, mode: str, *errors: type[BaseException], **more: Any) -> Row:
    call = ask(probe(), ECHO)
    return Row(name, mode, FAILURE, FAILURE, None, call, errors=errors, ran=("probe",), **more)


def _model(name: str, mode: str, reply: Any) -> Row:
    return Row(name, mode, FAILURE, FAILURE, None, reply)


def _budget(name: str, calls: LLMOutput, ran: tuple[str, ...], **limits: int | str) -> Row:
    return Row(name, None, BUDGET, BUDGET, "loop_budget", calls, policy={"loop_budget": limits}, ran=ran)


ROWS = [
    _denied("unknown tool", "tool_registry", probe("nope")),
    _denied("denied tool", "tool_registry", probe("write")),
    _denied("foreign URL", "url_allowlist", probe(url="https://evil.test/")),
    _denied("malformed URL", "url_allowlist", probe(url="https://good.test@evil.test/")),
    _denied("unknown mount", "sandbox_path", probe(path="private/x")),
    _denied("write to a read mount", "sandbox_path", probe(target="books/x")),
    _denied("late: redirect", "url_allowlist", probe(url="https://good.test/away"), run=_get, ran=("probe",)),
    _denied(
        "late: redirect, swallowed",
        "url_allowlist",
        probe(url="https://good.test/away"),
        run=_swallow,
        ran=("probe",),
    ),
    _denied("late: link", "sandbox_path", probe(path="books/link.md"), run=_read, ran=("probe",)),
    _denied("a placeholder in a write", "redact", probe(url="https://good.test/<secret:email:1>")),
    _denied("value over its limit", "arg_schema", probe(n=10), "schema_mismatch", FAILURE),
    _denied("arguments that are no JSON", "arg_schema", ToolCall("probe", "{"), "schema_mismatch", FAILURE),
    _denied(
        "arguments with a double key",
        "arg_schema",
        ToolCall("probe", '{"n":1,"n":2}'),
        "schema_mismatch",
        FAILURE,
    ),
    Row(
        "cycle",
        "cycle_detection",
        DENIAL,
        DENIAL,
        "cycle_detection",
        ask(probe(n=1), probe(n=1), ECHO),
        policy={"cycle_detection": {"max_repeats": 1}},
        ran=("probe",),
    ),
    Row(
        "no cycle section allows no call",
        "cycle_detection",
        DENIAL,
        DENIAL,
        "cycle_detection",
        ask(probe(), ECHO),
        policy={"cycle_detection": None},
    ),
    Row("gate error", None, DENIAL, DENIAL, "gate_error", ask(probe(), ECHO), before=_break_gate),
    Row("refused call again", None, DENIAL, DENIAL, "tool_registry", ask(probe("nope"), probe("nope"), ECHO)),
    Row(
        "late refused call again",
        None,
        DENIAL,
        DENIAL,
        "sandbox_path",
        ask(probe(path="books/link.md"), probe(path="books/link.md"), ECHO),
        run=_read,
        ran=("probe",),
    ),
    _budget("calls used up", ask(probe(), probe(n=1), ECHO), ("probe",), max_tool_calls=1),
    _budget(
        "a reply that overdraws the tokens",
        ask(probe(), ECHO, usage={"input_tokens": 60, "output_tokens": 31}),
        (),
        max_tokens=90,
        overdraft="deny",
    ),
    _budget("result over the byte budget", ask(probe(), ECHO), ("probe",), max_result_bytes=5),
    Row(
        "approval refused",
        None,
        REFUSED,
        None,
        "approval",
        ask(probe(), ECHO),
        policy=NEEDS,
        approve=lambda asked: Answer("deny", "bob", "too risky"),
    ),
    Row(
        "approval: silence",
        None,
        REFUSED,
        None,
        "approval",
        ask(probe(), ECHO),
        policy=NEEDS,
        approve=lambda asked: None,
    ),
    Row("approval: nobody to ask", None, REFUSED, None, "approval", ask(probe(), ECHO), policy=NEEDS),
    Row(
        "approval: asking fails",
        None,
        REFUSED,
        None,
        "approval",
        ask(probe(), ECHO),
        policy=NEEDS,
        approve=_raiser(OSError),
    ),
    Row(
        "approval: no usable answer",
        None,
        REFUSED,
        None,
        "approval",
        ask(probe(), ECHO),
        policy=NEEDS,
        approve=lambda asked: "yes",
    ),
    Row(
        "approval refused, then again",
        None,
        REFUSED,
        DENIAL,
        "approval",
        ask(probe(), probe(), ECHO),
        policy=NEEDS,
        approve=lambda asked: False,
    ),
    _failed("retries used up", "retry_exhaustion", *[ConnectionError] * 9),
    _failed(
        "transient, not to be repeated",
        "retry_exhaustion",
        ConnectionError,
        tools={"idempotent": False, "effect": "write"},
    ),
    _failed("idempotent time-out, used up", "retry_exhaustion", *[TimeoutError] * 9),
    _failed(
        "time-out, not to be repeated",
        "timeout",
        TimeoutError,
        tools={"idempotent": False, "effect": "write"},
    ),
    _failed("unforeseen", "catalogued_unhandled", KeyError),
    _failed("a tool's SystemExit", "catalogued_unhandled", SystemExit),
    _failed("a tool's MemoryError", "catalogued_unhandled", MemoryError),
    *(
        _failed(f"output: {name}", "tool_output_invalid", run=lambda args, io, value=value: value)
        for name, value in {
            "bytes": b"x",
            "NaN": {"said": float("nan")},
            "None": None,
            "a set": {"said": {1}},
            "key that is no string": {1: "x"},
            "wrong type": {"said": 1},
            "undeclared property": {"other": "x"},
            "lone surrogate": {"said": "\ud800"},
            "too deep": {"said": eval("[" * 150 + "]" * 150)},
        }.items()
    ),
    _failed(
        "output schema that cannot be applied",
        "tool_output_invalid",
        run=lambda args, io: {"said": "x"},
        before=_output_schema_fails,
    ),
    _model("model raises", "llm_failure", _raiser(ValueError)),
    _model("model raises SystemExit", "llm_failure", _raiser(SystemExit)),
    _model("adapter finds no reply", "llm_invalid_output", _raiser(InvalidModelOutput)),
    _model("no LLMOutput", "llm_invalid_output", lambda asked: {"final_answer": "x"}),
    _model("both answer and calls", "llm_invalid_output", ask(ECHO, final_answer="x")),
    _model("neither answer nor calls", "llm_invalid_output", LLMOutput(text="hm")),
    _model("length with calls", "llm_invalid_output", ask(ECHO, finish_reason="length")),
    _model("answer that is no text", "llm_invalid_output", LLMOutput(final_answer=3)),  # type: ignore[arg-type]
    _model("call without a name", "llm_invalid_output", LLMOutput(tool_calls=[ToolCall(3, "{}")])),  # type: ignore[arg-type]
    _model("calls that are no list", "llm_invalid_output", LLMOutput(tool_calls={"a": 1})),  # type: ignore[arg-type]
    _model("an empty answer", "llm_invalid_output", answer("")),
    _model("an answer of blanks", "llm_invalid_output", answer(" \n\t")),
    *(
        Row(f"refusal: {name}", "llm_refusal", Ending.REFUSED, Ending.REFUSED, None, reply)
        for name, reply in {
            "with words": answer("I will not.", finish_reason="refusal"),
            "without words": LLMOutput(final_answer="", finish_reason="refusal"),
            "without an answer": LLMOutput(finish_reason="refusal"),
            "with calls": ask(ECHO, finish_reason="refusal"),
        }.items()
    ),
    _model("raw that is no JSON", "llm_invalid_output", answer(raw={1})),
    Row(
        "cancelled",
        "cancelled",
        CANCELLED,
        CANCELLED,
        None,
        ask(probe(), ECHO),
        run=_raiser(Cancelled),
        ran=("probe",),
    ),
    Row(
        "interrupted",
        "interrupted",
        CANCELLED,
        CANCELLED,
        None,
        ask(probe(), ECHO),
        run=_raiser(KeyboardInterrupt),
        ran=("probe",),
    ),
]


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("books")
    (folder / "page.md").write_text("a page")
    (folder / "link.md").symlink_to("page.md")
    return folder


@pytest.mark.parametrize("on_deny", [TERMINATE, INFORM])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_happening_has_its_mode_and_ending(row: Row, on_deny: str, books: Path) -> None:
    ran: list[str] = []

    def noting(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def noted(args: dict[str, Any], io: Any) -> Any:
            if not ran or ran[-1] != name or name == "echo":
                ran.append(name)
            return run(args, io)

        return noted

    run = failing(*(error() for error in row.errors)) if row.errors else row.run
    tools: list[Tool] = [
        tool(run=noting("probe", run), **row.tools),
        tool("echo", noting("echo", lambda args, io: {"said": "echo"})),
    ]
    host = Host(books, "books", {"/away": "https://evil.test/"})
    done = perform(
        [row.first, answer()],
        tools,
        policy_data(**row.policy, on_deny=on_deny),
        approve=row.approve,
        before=row.before,
        mounts={"books": books},
        hosts={"good.test": host, "evil.test": host},
    )
    ending = row.terminate if on_deny == TERMINATE else row.inform
    goes_on = ending is None
    assert done.result.ending == (ending or Ending.FINAL_ANSWER)
    assert done.steps[0]["failure_mode"] == row.mode
    assert done.end["failure_mode"] == (None if goes_on else row.mode)
    assert [span for span in done.named("agent_step") if "error.type" in span.attributes] == (
        done.named("agent_step") if row.mode in BROKEN else []
    )
    if row.rule is not None:
        last = [d for d in done.steps[0]["policy_decisions"] if d["decision"] == "deny"][-1]
        assert last["rule_id"] == row.rule
        assert last["at"].startswith(("<policy>#", "<tool probe>#"))
    assert tuple(ran) == (*row.ran, "echo") if goes_on else tuple(ran) == row.ran
    reached = [result["status"] for result in done.steps[0]["tool_results"]]
    if goes_on:
        assert reached == ["denied", "ok"]
        told = done.steps[0]["tool_results"][0]["told"]
        assert told["error"] == "policy_denied" and told["rule"] == row.rule
        assert told["retryable"] is False and told["executed"] is bool(row.ran)
        assert done.model is not None
        assert freeze(told).text == done.model.told()[0]["content"]
    elif len(reached) > 1:
        assert reached[-1] == "not_reached"
        later = done.steps[0]["tool_results"][-1]["id"]
        assert not [d for d in done.decisions if d["id"] == later]
        assert len(done.steps) == 1


def test_the_table_of_the_catalog_is_covered() -> None:
    # what no row ends in: the answer itself, results that an earlier process lost, and, as no row asks for a schema,
    # has hooks or conditions on arguments, what comes of these (tests/runtime/setup/test_output_type.py, test_hooks.py,
    # tests/runtime/policy/)
    seen: set[Happening] = {Answered(), Succeeded(), Succeeded(True), ResultLost(), ResultLost(True)}
    seen |= {GaveUp(FailureMode.OUTPUT_MISMATCH), Denied(Rule.HOOK), Denied(Rule.ARGUMENTS), StoppedByHook()}
    seen |= {Denied(Rule.TOOL_LIMITS)}  # tests/runtime/policy/test_tool_limits.py
    seen |= {Denied(Rule.PRINCIPAL)}  # tests/runtime/policy/test_principals.py
    seen |= {Denied(Rule.TIME_WINDOW)}  # tests/runtime/policy/test_time_windows.py
    seen.add(CallStopped())  # tests/runtime/driver/test_cancelled_calls.py
    for row in ROWS:
        if row.rule is not None:
            seen.add(ApprovalRefused() if row.rule == Rule.APPROVAL else Denied(Rule(row.rule)))
        if row.name.endswith("again"):
            seen |= {it for it in happenings() if isinstance(it, Denied) and it.repeated}
        seen |= {it for it in happenings() if row.mode and classify(it, TERMINATE).mode == row.mode}
    assert seen == set(happenings())


def test_budgets_are_asked_before_a_step_and_a_refused_step_asks_no_model() -> None:
    done = perform([ask(probe())], policy=policy_data(loop_budget={"max_iterations": 1}))
    refused = done.steps[1]
    assert done.result.ending == BUDGET and done.result.mode is None
    assert refused["llm_attempts"] == [] and refused["llm_output"] is None and refused["llm_input"] is None
    assert [(d["phase"], d["decision"], d["rule_id"]) for d in refused["policy_decisions"]] == [
        ("step", "deny", "loop_budget")
    ]
    under = {span.name for span in done.spans if span.parent_id == done.named("agent_step")[1].span_id}
    assert under == {"policy_check"}


def test_tokens_end_a_run_and_what_is_left_is_offered() -> None:
    heard: list[int] = []

    def model(asked: Any) -> LLMOutput:
        heard.append(asked.max_output_tokens)
        return ask(probe(n=asked.step_index), usage={"input_tokens": 30, "output_tokens": 20})

    done = perform(model, policy=policy_data(loop_budget={"max_tokens": 90}))
    assert heard == [90, 40]
    assert done.result.ending == BUDGET
    assert done.decisions[-1]["facts"] == {"budget": "max_tokens", "used": 100, "limit": 90}


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"input_tokens": 1},
        {"input_tokens": -1, "output_tokens": 1},
        {"input_tokens": True, "output_tokens": 1},
        {"input_tokens": 1.5, "output_tokens": 1},
        {"input_tokens": "1", "output_tokens": 1},
        ["many"],
    ],
    ids=repr,
)
def test_missing_or_impossible_usage_is_counted_in_bytes(usage: Any) -> None:
    done = perform([answer("né", usage=usage)])
    said = done.steps[0]["usage"]
    assert said["estimated"] is True and said["output_tokens"] == 3
    assert said["input_tokens"] >= len("What now?")
    assert perform([answer(usage={"input_tokens": 5, "output_tokens": 7})]).steps[0]["usage"] == {
        "input_tokens": 5,
        "output_tokens": 7,
        "estimated": False,
    }


@pytest.mark.parametrize("reported", [100_000_001, 10**30])
def test_an_absurd_usage_ends_the_budget_for_tokens(reported: int) -> None:
    usage = {"input_tokens": reported, "output_tokens": 1}
    done = perform(
        [ask(probe(), usage=usage), answer()], policy=policy_data(loop_budget={"overdraft": "deny"})
    )
    assert done.steps[0]["usage"]["input_tokens"] == min(reported, MOST_TOKENS)
    assert done.steps[0]["usage"]["estimated"] is False
    assert [(d["decision"], d["facts"].get("budget")) for d in done.decisions] == [("deny", "max_tokens")]
    assert len(done.steps) == 1


def test_calls_of_an_unusable_reply_stay_recorded_and_never_run() -> None:
    done = perform([ask(probe(), ECHO, final_answer="x")])
    assert [result["status"] for result in done.results] == ["not_reached", "not_reached"]
    assert done.decisions == []


def test_what_a_service_answered_is_recorded_without_its_secrets() -> None:
    key = "sk-" + "ant-" + "Ab1" * 8
    said = f"{'x' * (MAX_SERVICE_TEXT - 20)} the key {key} is not valid"
    done = perform(
        [ModelError("refused", status=401, service_text=said)], policy=policy_data(redact=["anthropic_key"])
    )
    (attempt,) = done.steps[0]["llm_attempts"]
    assert attempt["fault"]["status"] == 401
    shown = f"{said.partition(' the ')[0]} the key <secret:anthropic_key:1> is not valid"
    assert attempt["fault"]["text"] == shown[:MAX_SERVICE_TEXT] != shown
    assert done.steps[0]["errors"][0]["status"] == 401
    assert b"Ab1" not in done.state


def test_a_fault_without_a_service_has_neither_status_nor_text() -> None:
    done = perform([ValueError("secret words")])
    assert done.steps[0]["llm_attempts"][0]["fault"] == {"exception": "ValueError", "kind": "other"}


def test_a_redirect_hop_is_a_late_decision_under_its_attempt(books: Path) -> None:
    hosts = {"good.test": Host(books, "books", {"/here": "/page.md"})}
    done = perform(
        [ask(probe(url="https://good.test/here")), answer()],
        [tool(run=_get)],
        hosts=hosts,
        mounts={"books": books},
    )
    assert done.result.answer == "done"
    late = [d for d in done.decisions if d["phase"] == "execution"]
    assert [(d["decision"], d["rule_id"], d["facts"]["hop"], d["facts"]["target"]) for d in late] == [
        ("allow", "url_allowlist", 1, URL)
    ]
    (attempt,) = done.named("retry_attempt")
    (check,) = [s for s in done.named("policy_check") if s.attributes["agent.policy.phase"] == "execution"]
    assert check.parent_id == attempt.span_id
    assert attempt.attributes["agent.retry.outcome"] == "success"


def test_a_result_over_the_byte_budget_is_decided_under_its_tool_call() -> None:
    done = perform([ask(probe())], policy=policy_data(loop_budget={"max_result_bytes": 5}))
    (call,) = done.named("tool_call")
    late = [s for s in done.named("policy_check") if s.attributes["agent.policy.phase"] == "execution"]
    assert [(s.parent_id, s.attributes["agent.policy.rule_id"]) for s in late] == [
        (call.span_id, "loop_budget")
    ]
    assert done.results[0]["result"] is None and done.end["totals"]["result_bytes"] == 0
    assert done.named("retry_attempt")[0].attributes["agent.retry.outcome"] == "denied"


def test_a_late_denial_touches_nothing_further_and_is_not_retried(books: Path) -> None:
    touched: list[str] = []

    def run(args: dict[str, Any], io: Any) -> Any:
        for act in (
            lambda: io.read("books/link.md"),
            lambda: io.write("box/x", "y"),
            lambda: io.list("books"),
        ):
            try:
                act()
                touched.append("!")
            except PermissionError:
                pass
        raise ConnectionError

    done = perform([ask(probe())], [tool(run=run)], mounts={"books": books})
    assert touched == []
    (attempt,) = done.results[0]["attempts"]
    assert attempt["outcome"] == "denied" and not {"fault", "invalid"} & set(attempt)
    assert done.result.ending == DENIAL


# ---- retry ---------------------------------------------------------------------------------------------


def _outcomes(done: Any) -> list[str]:
    return [attempt["outcome"] for attempt in done.results[0]["attempts"]]


def test_a_transient_failure_recovers_and_the_run_goes_on() -> None:
    done = perform([ask(probe()), answer()], [tool(run=failing(ConnectionError(), TimeoutError()))])
    assert done.result.ending == Ending.FINAL_ANSWER
    assert done.steps[0]["failure_mode"] == "tool_call_failure"
    assert _outcomes(done) == ["transient_failure", "transient_failure", "success"]
    waits = [attempt.get("backoff_ms") for attempt in done.results[0]["attempts"]]
    assert 80 <= waits[0] <= 120 and 160 <= waits[1] <= 240 and waits[2] is None
    attempts = done.named("retry_attempt")
    gaps = [b.start_ns - a.end_ns for a, b in pairwise(attempts)]
    assert [gap // 1_000_000 for gap in gaps] == waits[:2]
    assert done.end["totals"]["retries"] == 2


def test_used_up_retries_end_with_one_attempt_more_than_retries() -> None:
    done = perform([ask(probe())], [tool(run=failing(*[ConnectionError()] * 9))])
    assert _outcomes(done) == ["transient_failure", "transient_failure", "exhausted"]


def test_a_policy_without_retry_tries_once() -> None:
    done = perform([ask(probe())], [tool(run=failing(ConnectionError()))], policy_data(retry=None))
    assert _outcomes(done) == ["exhausted"] and done.result.mode == "retry_exhaustion"


@pytest.mark.parametrize(
    ("error", "outcomes"),
    [
        (ConnectionError(), ["exhausted"]),
        (ConnectionResetError(), ["exhausted"]),
        (TimeoutError(), ["failed"]),
        (ConnectionRefusedError(), ["transient_failure", "success"]),
        (KeyError(), ["failed"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_idempotent_is_repeated_only_where_nothing_happened(
    error: Exception, outcomes: list[str]
) -> None:
    writer = tool(run=failing(error), idempotent=False, effect="write")
    assert _outcomes(perform([ask(probe()), answer()], [writer])) == outcomes


def test_attempts_of_a_call_share_their_key_and_get_fresh_arguments() -> None:
    seen: list[tuple[str, dict[str, Any]]] = []

    def run(args: dict[str, Any], io: Any) -> Any:
        seen.append((io.idempotency_key, dict(args)))
        args["n"] = 99
        args.clear()
        if len(seen) < 3:
            raise ConnectionError
        return {"said": "ok"}

    done = perform([ask(probe(n=4), probe(n=5)), answer()], [tool(run=run)])
    assert [args for _, args in seen] == [{"n": 4}] * 3 + [{"n": 5}]
    assert len({key for key, _ in seen[:3]}) == 1 and seen[3][0] != seen[0][0]
    assert done.steps[0]["intended_tool_calls"][0]["arguments"] == {"n": 4}


@pytest.mark.parametrize(
    ("errors", "outcomes", "ending"),
    [
        ([TransientModelError()], ["transient_failure", "success"], Ending.FINAL_ANSWER),
        ([TimeoutError(), ConnectionError()], ["transient_failure"] * 2 + ["success"], Ending.FINAL_ANSWER),
        ([TransientModelError()] * 3, ["transient_failure"] * 2 + ["exhausted"], FAILURE),
        ([RuntimeError()], ["failed"], FAILURE),
    ],
)
def test_the_model_is_asked_again_by_the_same_rules(
    errors: list[Exception], outcomes: list[str], ending: str
) -> None:
    done = perform([*errors, answer()])
    assert [attempt["outcome"] for attempt in done.steps[0]["llm_attempts"]] == outcomes
    assert done.result.ending == ending
    inner = [s for s in done.named("retry_attempt") if s.parent_id == done.named("llm_call")[0].span_id]
    assert len(inner) == (len(outcomes) if len(outcomes) > 1 else 0)


@pytest.mark.parametrize(("asked", "waited"), [(700, 700), (0, 0), (60_000, 2000)])
def test_retry_after_counts_up_to_the_cap(asked: int, waited: int) -> None:
    done = perform([TransientModelError(retry_after_ms=asked), answer()])
    assert done.steps[0]["llm_attempts"][0]["backoff_ms"] == waited


# ---- people --------------------------------------------------------------------------------------------


def test_an_allowed_escalation_runs_and_names_who_allowed_it() -> None:
    asked: list[AskHuman] = []

    def approve(effect: AskHuman) -> Answer:
        asked.append(effect)
        return Answer("allow", "ann\ud800", "fine")

    done = perform([ask(probe(n=1)), answer()], policy=policy_data(**NEEDS), approve=approve)
    assert [(e.step, e.index, e.call.name, e.timeout_s) for e in asked] == [(1, 0, "probe", 30)]
    (decision,) = done.decisions
    assert (decision["decision"], decision["rule_id"]) == ("allow", "approval")
    (question,) = asked
    said = {"answer": "allow", "by": "ann?", "why": "fine", "digest": question.digest}
    assert decision["approval"] == said
    (check,) = done.named("policy_check")
    stamps = done.steps[0]["stamps"]
    assert check.end_ns - check.start_ns == stamps["h0"][1] - stamps["d0"][0]


def test_silence_takes_its_time_out_on_the_virtual_clock() -> None:
    done = perform([ask(probe())], policy=policy_data(**NEEDS))
    begun, ended = done.steps[0]["stamps"]["h0"]
    assert ended - begun == 30_000_000_000
    assert done.decisions[0]["approval"]["answer"] == "silence"


def test_a_person_is_asked_once_about_a_refused_call() -> None:
    asked: list[AskHuman] = []

    def approve(effect: AskHuman) -> bool:
        asked.append(effect)
        return False

    policy = policy_data(**NEEDS, on_deny=INFORM)
    done = perform([ask(probe(n=1)), ask(probe(n=2)), ask(probe(n=1))], policy=policy, approve=approve)
    assert [effect.step for effect in asked] == [1, 2]
    assert done.result.ending == DENIAL


# ---- by hand -------------------------------------------------------------------------------------------


def _loop(**sections: Any) -> Any:
    policy = Policy.from_dict(policy_data(**sections))
    gate = Gate(policy, {"probe": tool(), "echo": tool("echo")})
    return run_loop(RunSpec("r", "What now?", 0, gate, Schedule.of(policy.section("retry")), ()))


def _reply(output: LLMOutput, step: int = 1) -> Outcome:
    return Outcome(reply=read_reply(output, step, Redactor(())))


RESULT = Outcome(result=freeze({"said": "ok"}))


def _drive(loop: Any, outcomes: list[Any]) -> tuple[list[Any], RunEnded]:
    """Every item that the loop yields, answering effects from the list; an exception in it is thrown."""
    items: list[Any] = []
    left = list(outcomes)
    try:
        item = next(loop)
        while True:
            if not isinstance(item, StepProgress):  # says nothing that the line of the step does not say
                items.append(item)
            if isinstance(item, Decided | StepProgress | StepEnded):
                item = next(loop)
            else:
                outcome = left.pop(0)
                thrown = isinstance(outcome, BaseException)
                item = loop.throw(outcome) if thrown else loop.send(outcome)
    except StopIteration as stop:
        assert left == []
        return items, stop.value


WHOLE = [
    _reply(ask(probe(n=1), ECHO)),
    Outcome(fault=Fault("ConnectionError", "transient")),
    Outcome(),
    RESULT,
    RESULT,
    Outcome(fault=Fault("TimeoutError", "timeout")),
    Outcome(),
    _reply(answer(), 2),
]


def test_the_loop_yields_effects_and_events_in_the_order_of_a_run() -> None:
    items, ending = _drive(_loop(), WHOLE)
    assert [getattr(item, "position", "end") for item in items] == [
        *("m.1", "d0", "i0.1", "w0.1", "i0.2", "d1", "i1.1", "end"),
        *("m.1", "wm.1", "m.2", "end"),
    ]
    assert ending == RunEnded(Ending.FINAL_ANSWER, "done", None)


def test_nothing_is_invoked_after_a_denial() -> None:
    items, ending = _drive(_loop(), [_reply(ask(ECHO, probe("nope"), ECHO)), RESULT])
    assert [type(item).__name__ for item in items] == [
        "AskModel",
        "Decided",
        "Invoke",
        "Decided",
        "StepEnded",
    ]
    assert ending.reason == DENIAL


@pytest.mark.parametrize("error", [Cancelled(), Interrupted(2)], ids=["cancelled", "interrupted"])
@pytest.mark.parametrize("place", range(len(WHOLE)))
def test_a_cancellation_at_any_effect_closes_the_step_and_the_run(place: int, error: Cancelled) -> None:
    items, ending = _drive(_loop(), [*WHOLE[:place], error])
    mode = "interrupted" if isinstance(error, Interrupted) else "cancelled"
    assert ending == RunEnded(CANCELLED, None, mode)
    last = items[-1]
    assert isinstance(last, StepEnded) and last.line["failure_mode"] == mode
    assert isinstance(items[-2], AskModel | Invoke | Wait)
    results = last.line["tool_results"]
    assert len(results) == len(last.line["intended_tool_calls"])
    if isinstance(items[-2], Invoke | Wait) and items[-2].index is not None:
        reached = items[-2].index
        assert [result["status"] for result in results[reached:]] == [
            "cancelled",
            *["not_reached"] * (len(results) - reached - 1),
        ]


def test_a_cancelled_question_to_a_person_allows_nothing() -> None:
    items, ending = _drive(_loop(**NEEDS), [_reply(ask(probe(), ECHO)), Cancelled()])
    assert isinstance(items[-2], AskHuman) and ending.reason == CANCELLED
    assert [d["decision"] for d in items[-1].line["policy_decisions"]] == ["deny"]
    assert [r["status"] for r in items[-1].line["tool_results"]] == ["not_reached"] * 2
