"""Redaction in whole runs: writes that hold placeholders, hidden verdicts, secrets known by their text."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, AgentEvent, Answer, EventListener, Policy
from tachograph.fail.errors import InputError, ModelError
from tachograph.runtime.core import known_secrets
from tachograph.runtime.core.clock import VirtualClock
from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.driver.live_executor import LiveExecutor
from tachograph.runtime.journal.ledger import Totals
from tachograph.runtime.loop.retry import MAX_SERVICE_TEXT
from tachograph.runtime.models.providers import open_model
from tachograph.runtime.models.types import LLMInput, LLMOutput, ToolCall
from tachograph.runtime.policy.gate import Gate
from tachograph.runtime.tools.contract import Tool
from tachograph.runtime.workspace.workspace import Workspace
from tests.support import OUTPUT, answer, ask, perform, policy_data, probe, tool

MAIL = "someone@mail.test"
NAME = "TACHOGRAPH_TEST_SECRET"


@pytest.fixture(autouse=True)
def _nothing_registered() -> Iterator[None]:
    known_secrets.forget_all()
    yield
    known_secrets.forget_all()


def _sends(
    text: str, redact: Any, *, effect: str = "write", on_deny: str = "terminate"
) -> tuple[Any, list[str]]:
    """A run in which the model reads a mail address and then sends `text` with a tool."""
    sent: list[str] = []

    def send(args: dict[str, Any], io: Any) -> dict[str, str]:
        sent.append(args["text"])
        return {"said": f"sent to {args['text']}"}

    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"text": {"type": "string", "x-resource": "none"}},
    }
    sender = Tool("probe", "sends", schema, OUTPUT, effect, True, send)
    tools = [tool("echo", lambda args, io: {"said": MAIL}), sender]
    done = perform(
        [ask(ToolCall("echo", {})), ask(probe(text=text)), answer()],
        tools,
        policy_data(redact=redact, on_deny=on_deny),
    )
    return done, sent


@pytest.mark.parametrize("effect", ["write", "network", "external"])
def test_a_write_that_holds_a_placeholder_is_denied(effect: str) -> None:
    done, sent = _sends("to <secret:email:1>", ["email"], effect=effect)
    assert sent == [] and done.result.ending == "policy_denial_terminal"
    last = done.decisions[-1]
    assert (last["decision"], last["rule_id"]) == ("deny", "redact")
    assert last["facts"] == {"kind": "email", "known": True} and "reveal_to" in last["reason"]


def test_the_model_is_told_of_such_a_denial_and_goes_on() -> None:
    done, sent = _sends("to <secret:email:1>", ["email"], on_deny="inform")
    assert sent == [] and done.result.ok
    assert done.steps[1]["tool_results"][0]["told"]["rule"] == "redact"


@pytest.mark.parametrize("effect", ["pure", "read"])
def test_what_writes_nothing_may_read_a_placeholder(effect: str) -> None:
    done, sent = _sends("to <secret:email:1>", ["email"], effect=effect)
    assert sent == ["to <secret:email:1>"] and done.result.ok


def test_a_tool_gets_what_the_policy_reveals_to_it_and_the_record_does_not() -> None:
    done, sent = _sends("to <secret:email:1>", {"kinds": ["email"], "reveal_to": {"probe": ["email"]}})
    assert sent == [f"to {MAIL}"] and done.result.ok
    assert MAIL.encode() not in done.state
    assert done.steps[1]["tool_results"][0]["result"] == {"said": "sent to to <secret:email:1>"}


def test_another_kind_is_not_revealed() -> None:
    done, sent = _sends("<secret:email:1>", {"kinds": ["email", "jwt"], "reveal_to": {"probe": ["jwt"]}})
    assert sent == [] and done.decisions[-1]["rule_id"] == "redact"


@pytest.mark.parametrize("text", ["<secret:email:2>", "<secret:jwt:1>", "<secret::email:1>"])
def test_a_placeholder_that_the_run_did_not_give_out_denies(text: str) -> None:
    done, sent = _sends(text, {"kinds": ["email", "jwt"], "reveal_to": {"probe": ["email", "jwt"]}})
    assert sent == [] and done.decisions[-1]["facts"]["known"] is False


def test_a_verdict_on_a_hidden_value_stands_and_is_counted() -> None:
    gate = Gate(Policy.from_dict(policy_data(url_allowlist=[f"https://good.test/{MAIL}"])), {})
    executor = LiveExecutor(Wrapped("x"), gate, Workspace({}, {}), VirtualClock(), Redactor(["email"]))
    check = {"rule": "url_allowlist", "target": f"https://good.test/{MAIL}", "hop": 1}
    assert gate.decide_late(check).decision == "allow"
    decision, shown = executor._decide_late(check, "probe")
    assert shown == {**check, "target": "https://good.test/<secret:email:1>", "hidden": "allow"}
    assert (decision.decision, decision.facts) == ("allow", {"hidden": True})
    assert gate.decide_late(shown) == decision, "a replay takes it as recorded"
    done = perform([ask(probe()), answer()])
    (step, *_), totals = done.steps, Totals()
    step["tool_results"][0]["attempts"][0]["checks"] = [shown, check]
    totals.add(step)
    assert totals.to_dict()["hidden_verdicts"] == 1


def test_a_verdict_that_the_placeholder_gives_too_is_no_hidden_one(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("a page")

    def read(args: dict[str, Any], io: Any) -> dict[str, str]:
        return {"said": io.read(f"cellar/{MAIL}")}

    done = perform(
        [ask(probe()), answer()], [tool(run=read)], policy_data(redact=["email"]), mounts={"books": tmp_path}
    )
    assert done.decisions[-1]["rule_id"] == "sandbox_path" and done.decisions[-1]["decision"] == "deny"
    assert "hidden_verdicts" not in done.end["totals"] and MAIL.encode() not in done.state


@pytest.mark.parametrize("verdict", ["escalate", "", None, 1])
def test_a_hidden_verdict_that_is_none_denies(verdict: Any) -> None:
    gate = Gate(Policy.from_dict(policy_data()), {})
    found = gate.decide_late({"rule": "sandbox_path", "path": "books/a", "access": "read", "hidden": verdict})
    assert (found.decision, found.rule_id) == ("deny", "gate_error")


# ---- secrets known by their text --------------------------------------------------------------------------------


class Wrapped:
    """A live model that says what it is given, and knows nothing of keys."""

    def __init__(self, said: str, path: str = "live") -> None:
        self.said = said
        self.identity = {"execution_path": path, "provider": "x", "name": "x", "script_digest": None}

    def __call__(self, asked: LLMInput) -> LLMOutput:
        return answer(self.said)


def _lines(model: Any, redact: Any) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    agent = Agent(model, [tool(), tool("echo")], Policy.from_dict(policy_data(redact=redact)))
    config = agent.configure_run("What?", run_id="r", clock=VirtualClock())
    agent.execute(config, on_line=lambda line, _text: lines.append(line))
    return lines


def test_a_wrapped_model_keeps_the_redaction_of_the_model_in_it() -> None:
    known_secrets.register([("api_key", "a-long-key"), ("api_key", "EMPTY")])
    lines = _lines(Wrapped("it is a-long-key, EMPTY"), ["jwt"])
    assert lines[-1]["final_answer"] == "it is <secret:api_key:1>, EMPTY"
    assert lines[0]["policy"]["redact"] == {"values": ["model:api_key"]}


def test_a_key_is_known_from_when_its_model_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is wrapped around the model, and whoever asks it: the key is known in the whole process."""
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "99.0")
    monkeypatch.setenv("OPENAI_API_KEY", "0123456789abcdef.xyz")
    assert known_secrets.registered() == ()
    open_model("openai:m", base_url="http://127.0.0.1:1")
    assert known_secrets.registered() == (("api_key", "0123456789abcdef.xyz"),)
    lines = _lines(Wrapped("it is 0123456789abcdef.xyz"), [])
    assert lines[-1]["final_answer"] == "it is <secret:api_key:1>"


def test_values_of_the_environment_are_hidden_in_live_runs_and_their_names_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(NAME, "a long value")
    lines = _lines(Wrapped("it is a long value"), {"env": [NAME, "TACHOGRAPH_TEST_UNSET"]})
    assert lines[-1]["final_answer"] == "it is <secret:env:1>"
    assert lines[0]["policy"]["redact"] == {"values": [f"env:{NAME}"]}


def test_a_scripted_run_never_changes_by_them(monkeypatch: pytest.MonkeyPatch) -> None:
    model, redact = Wrapped("it is a long value", "stub"), {"env": [NAME]}
    before = _lines(model, redact)
    monkeypatch.setenv(NAME, "a long value")
    known_secrets.register([("api_key", "a long value")])
    assert _lines(model, redact) == before and before[-1]["final_answer"] == "it is a long value"
    monkeypatch.setenv(NAME, "short")
    assert _lines(model, redact) == before


def test_a_short_value_of_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, "seven77")
    with pytest.raises(InputError, match=f"the value of {NAME}.*fewer than 8"):
        _lines(Wrapped("x"), {"env": [NAME]})


@pytest.mark.parametrize("redact", [[], {"kinds": ["email"], "off": True}])
def test_the_record_says_that_redaction_was_off(redact: Any) -> None:
    done = perform([answer(MAIL)], policy=policy_data(redact=redact))
    assert done.lines[0]["policy"]["redact"] == {"off": True} and done.result.answer == MAIL


TOKEN = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"


def test_what_is_logged_of_an_exception_holds_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    def fail(args: dict[str, Any], io: Any) -> Any:
        try:
            raise KeyError(TOKEN)
        except KeyError as cause:
            error = ValueError(f"refused {TOKEN}")
            error.add_note(f"noted {TOKEN}")
            raise error from cause

    with caplog.at_level("INFO", "tachograph"):
        done = perform(
            [ask(probe()), answer()],
            [tool(run=fail)],
            policy_data(redact=["github_token"], on_failure="inform"),
        )
    assert done.result.ok and TOKEN not in caplog.text
    assert "tool probe raised" in caplog.text and "ValueError: refused <secret:github_token:1>" in caplog.text
    assert "noted <secret:" in caplog.text and "KeyError: '<secret:" in caplog.text
    assert b"<secret:" not in done.state, "what is logged gives out no number of the run"


def test_a_long_name_of_a_model_is_cut_behind_its_secrets() -> None:
    done = perform([answer(model="m" * 170 + "/" + TOKEN + "x")], policy=policy_data(redact=["github_token"]))
    assert b"ghp_" not in done.state and b"/<secret:github_token:1>" in done.state


def test_pieces_of_a_text_are_heard_without_a_secret_that_is_split_over_them() -> None:
    def model(asked: LLMInput) -> LLMOutput:
        text = f"The token is {TOKEN}, as I said before, and so I will say again."
        for letter in text if asked.on_text is not None else ():
            asked.on_text(letter)
        return LLMOutput(final_answer=text, usage={"input_tokens": 1, "output_tokens": 1})

    heard: list[str] = []

    def hear(event: AgentEvent) -> None:
        if event.what == "text_delta":
            heard.append(event.data["text"])

    policy = Policy.from_dict(policy_data(redact=["github_token"]))
    result = Agent(model, [tool(), tool("echo")], policy, mounts={"books": "."}).run(
        "?", listeners=[EventListener(hear)]
    )
    assert "".join(heard) == result.answer and TOKEN not in "".join(heard) and len(heard) > 3


def test_a_signature_that_is_none_is_kept_without_a_secret() -> None:
    kept: list[Any] = []

    def approve(question: Any) -> Answer:
        return Answer("allow", signature=TOKEN)

    def hear(notice: Any) -> None:
        if notice.outcome is not None and notice.outcome.answer is not None:
            kept.append(notice.outcome.answer.signature)

    perform(
        [ask(probe()), answer()],
        [tool()],
        policy_data(redact=["github_token"], approval={"required_for": ["probe"], "timeout_s": 5}),
        approve=approve,
        listeners=[hear],
    )
    assert kept == ["<secret:github_token:1>"]


def test_a_message_of_a_service_is_cut_behind_a_word_and_never_in_a_secret() -> None:
    most = 4 * MAX_SERVICE_TEXT
    key = f"-----BEGIN PRIVATE KEY-----\n{'A' * (most - 200)}\n-----END PRIVATE KEY-----"
    said = f"{key} {'so ' * 40}"[: most - 20] + f" {TOKEN} is refused"
    done = perform(
        [ModelError("refused", service_text=said), answer()],
        policy=policy_data(redact=["github_token", "private_key"]),
    )
    text = done.steps[0]["llm_attempts"][0]["fault"]["text"]
    assert text.startswith("<secret:private_key:1> so so") and "ghp" not in text
    whole = perform([ModelError("refused", service_text="x" * 9 * most), answer()])
    assert whole.steps[0]["llm_attempts"][0]["fault"]["text"] == "x" * MAX_SERVICE_TEXT


@pytest.mark.parametrize("given", ["run_id", "principal"])
def test_a_name_of_a_run_that_is_a_secret_is_refused_and_not_shown(given: str, tmp_path: Path) -> None:
    agent = Agent(
        Wrapped("x"),
        [tool(), tool("echo")],
        Policy.from_dict(policy_data(redact=["github_token"])),
        mounts={},
    )
    names: dict[str, Any] = {given: TOKEN}
    with pytest.raises(InputError, match="github_token") as refused:
        agent.run("?", ledger=tmp_path / "ledger", **names)
    assert TOKEN not in str(refused.value)
    ledger = tmp_path / "ledger"
    assert not ledger.exists() or TOKEN not in ledger.read_text(encoding="utf-8")
