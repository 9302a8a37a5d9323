"""Secrets in live runs: no byte of a record holds one, and a tool is given one only if the policy says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tachograph
from tachograph import Agent, Hooks, LLMInput, LLMOutput, Piece, Policy, Tool, ToolCall, tool
from tachograph.evidence.folder import partial_of
from tachograph.fail.errors import ModelError, ToolFailure
from tachograph.runtime.log.events import Answered, Failed, ModelReplied, ToolReturned
from tachograph.runtime.log.journal import Leak
from tachograph.runtime.log.values import Withheld
from tests.project import POLICY, interrupted, merged, proved, script
from tests.tables.rows import closed

VALUE, TOKEN = "xyzzy-plugh-1234567", "ghp_" + "a1B2" * 9
HIDES = {"kinds": ["github_token"], "env": ["DESK_KEY"]}
REDACT = {**HIDES, "reveal_to": {"send": ["env"]}}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESK_KEY", VALUE)


class Model:
    """Looks for secrets, sends what it saw, and says it again. It counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, asked: LLMInput) -> LLMOutput:
        last = asked.messages[-1]["content"]
        self.asked.append(last)
        if asked.step_index == 1:
            return LLMOutput(tool_calls=[ToolCall("find", {})])
        if asked.step_index == 2:
            return LLMOutput(tool_calls=[ToolCall("send", {"text": last})])
        return LLMOutput(final_answer=f"sent {last}")

    async def ask(self, asked: LLMInput, told: Any) -> LLMOutput:
        reply = self(asked)
        for letter in f"{reply.final_answer or ''} {TOKEN} {VALUE}":
            told(letter)
        return reply


def agent_of(model: Any, sent: list[str], *more: Tool, **delta: Any) -> Agent:
    @tool(effect="read", idempotent=True)
    def find() -> str:
        """Find what is there."""
        return f"{TOKEN} and {VALUE}"

    @tool(effect="network", idempotent=True)
    def send(text: str) -> str:
        """Send a text."""
        sent.append(text)
        return text

    registry = {"allowed": ["find", "send", *(item.name for item in more)], "denied": []}
    policy = merged(merged(POLICY, {"tool_registry": registry, "redact": REDACT}), delta)
    return Agent(model, [find, send, *more], Policy.from_dict(policy))


def holds(folder: Path) -> bool:
    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "key"]
    return any(secret.encode() in data for data in files for secret in (VALUE, TOKEN))


def test_no_byte_of_a_record_holds_a_secret(tmp_path: Path) -> None:
    model, sent, out = Model(), list[str](), tmp_path / "out"
    agent = agent_of(model, sent, redact={"reveal_to": {"send": ["env", "github_token"]}})
    assert proved(agent, out, f"What is {VALUE} beside {TOKEN}?").ending == "final_answer"
    assert not holds(out) and sorted(path.name for path in out.iterdir())[0] == "manifest.json"
    assert VALUE not in "".join(model.asked) and TOKEN not in "".join(model.asked)
    assert VALUE in sent[0] and TOKEN in sent[0]  # the tool that the policy names was given both
    assert len(sent) == 1
    assert not (out / "key").exists()


@pytest.mark.parametrize(("effect", "hides"), [("pure", {}), ("write", {"redact": HIDES})])
def test_arguments_are_met_in_the_order_of_the_log(tmp_path: Path, effect: str, hides: Any) -> None:
    """A model orders keys as it likes, and placeholders, of which a denial names the first, have another order."""
    by = {"z": 1, VALUE: 1, "a": 1, TOKEN: 1}
    found = closed(names={"type": "array"})
    told = Tool("told", "Return the keys.", closed(by={"type": "object"}), found, effect, names_of)
    allowed = {"tool_registry": {"allowed": ["told"]}, "on_deny": "inform"}
    policy = Policy.from_dict(merged(POLICY, {**allowed, **hides}))
    agent = Agent(script([("told", {"by": by})], "done"), [told], policy)
    made = proved(agent, tmp_path / "out")
    assert (made.ending, len(made.denials)) == ("final_answer", effect == "write")


def names_of(arguments: Any, io: Any) -> Any:
    return {"names": [*arguments["by"]]}


def test_a_secret_in_the_name_of_a_file_that_is_read_again(tmp_path: Path) -> None:
    @tool(effect="read")
    def count(io) -> int:
        """Count the letters of all files."""
        return sum(len(io.read(path)) for path in io.list("book"))

    (tmp_path / "book").mkdir()
    (tmp_path / f"book/{TOKEN}.txt").write_text("alpha")
    delta = {"tool_registry": {"allowed": ["count"]}, "redact": {"kinds": ["github_token"]}}
    policy, mounts = Policy.from_dict(merged(POLICY, delta)), {"book": tmp_path / "book"}
    agent = Agent(script([("count", {})], "5"), [count], policy, mounts=mounts)
    assert proved(agent, tmp_path / "out").ending == "final_answer"
    assert not holds(tmp_path / "out")


def test_a_fork_of_a_conversation_that_was_closed_with_its_key(tmp_path: Path) -> None:
    agent = agent_of(script(*["done"] * 3), [])
    agent.instructions = f"It is {TOKEN}."
    with tachograph.SyncSession(agent, tmp_path / "one") as session:
        session.ask(f"Send it to {TOKEN}.")
        session.close()
        with session.fork(1, tmp_path / "two") as other:
            other.ask(f"Is it {TOKEN}?")
            other.ask(f"Send it to {TOKEN[:-1]}3.")  # another one, in the words of the record
            made = other.close()
    assert tachograph.check(agent, tmp_path / "two") == [] and not holds(tmp_path)
    assert len({it["content"] for it in made.messages if it["role"] == "user"}) == 3


def test_a_tool_that_is_not_named_is_denied_the_placeholder(tmp_path: Path) -> None:
    sent: list[str] = []
    result = agent_of(Model(), sent).run("?")
    assert (result.ending, sent) == ("policy_denial_terminal", [])
    assert result.events[-2].at == "2.e"


async def test_a_stream_that_breaks_off_shows_nothing_that_was_held_back() -> None:
    class Breaks(Model):
        async def ask(self, asked: LLMInput, told: Any) -> LLMOutput:
            for letter in f"I send {TOKEN}":
                told(letter)
            raise ModelError

    stream = agent_of(Breaks(), []).stream("?")
    assert "".join([item.text async for item in stream if isinstance(item, Piece)]) == "I send "


@pytest.mark.parametrize("is_redacted", [True, False])
def test_classes_notes_and_ids_hold_no_secret_either(
    tmp_path: Path, is_redacted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With redaction off the same search finds them, but for messages and notes, which no record has."""
    monkeypatch.setenv("DESK_KEY", "Xyzzy_plugh_1234567")

    def fails(*_: Any) -> Any:
        error = type("Xyzzy_plugh_1234567", (Exception,), {})(f"a message with {TOKEN}")
        error.add_note(f"a note with {TOKEN}")
        raise error

    fail = Tool("fail", "Fail.", closed(), closed(), "pure", fails)
    call = {"id": "Xyzzy_plugh_1234567", "name": "fail", "arguments": "{}"}
    history = [{"role": "assistant", "content": "", "tool_calls": [call]}]
    history += [{"role": "tool", "tool_call_id": call["id"], "name": "fail", "content": "{}"}]
    delta: dict[str, Any] = {"on_failure": "inform", **({} if is_redacted else {"redact": None})}
    asked: list[Any] = []

    def model(request: LLMInput) -> LLMOutput:
        asked.append(str([*request.messages]))
        calls = [ToolCall("fail", {})] if request.step_index == 1 else []
        return LLMOutput(tool_calls=calls) if calls else fails()  # type: ignore[no-any-return]

    result = tachograph.record(agent_of(model, [], fail, **delta), "?", out=tmp_path / "out", history=history)
    seen = [*asked, *((tmp_path / "out" / name).read_text() for name in ("state.jsonl", "trace.json"))]
    assert result.mode == "llm_failure" and len(asked) == 2
    assert [("Xyzzy_plugh" in text) for text in seen] == [not is_redacted] * 4
    assert not any("ghp_" in text for text in seen)


def test_what_looks_like_a_placeholder_in_a_history_is_escaped_once() -> None:
    runs = [agent_of(Model(), []).run(f"{TOKEN} and <secret:email:0123ab>")]
    for _ in range(2):
        runs.append(agent_of(Model(), []).run("?", history=runs[-1].messages))
    first, second, third = (run.messages[0]["content"] for run in runs)
    assert "<secret::email:0123ab>" in first and "<secret:github_token:" in first
    assert second == third and second.count("<secret::") == 2


def test_what_is_not_known_any_more_after_a_death_is_not_sent(tmp_path: Path) -> None:
    """The value of the environment is known again, the token that was found before is not."""
    sent: list[str] = []
    reveals = {"redact": {"reveal_to": {"send": ["env", "github_token"]}}, "on_deny": "inform"}
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        tachograph.record(agent_of(interrupted(Model()), sent, **reveals), "?", out=out)
    assert (partial_of(out) / "key").stat().st_mode & 0o777 == 0o600
    assert not holds(partial_of(out))
    agent = agent_of(Model(), sent, **reveals)
    result = tachograph.resume(agent, out)
    (withheld,) = [fact for event in result.events if isinstance(event, Failed) for fact in event.met]
    assert isinstance(withheld, Withheld) and (withheld.why, sent) == ("unknown", [])
    assert result.ending == "final_answer"
    assert tachograph.replay(agent, out).events == result.events
    assert not holds(out) and not (out / "key").exists()


def test_the_same_placeholder_after_a_death(tmp_path: Path) -> None:
    out, sent = tmp_path / "out", list[str]()
    with pytest.raises(KeyboardInterrupt):
        tachograph.record(agent_of(interrupted(Model()), sent), f"What is {VALUE}?", out=out)
    head = (partial_of(out) / "state.jsonl").read_bytes().split(b"\n")[0]
    tachograph.resume(agent_of(Model(), sent), out)
    assert (out / "state.jsonl").read_bytes().split(b"\n")[0] == head


def test_a_line_that_would_hold_a_secret_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of tools and models are not redacted: the search before a line is written finds them."""
    monkeypatch.setenv("DESK_KEY", "a_model_of_ours")
    model = script("done")
    model.__name__ = "a_model_of_ours"
    agent = agent_of(model, [], redact={"env": ["DESK_KEY"]})
    out = tmp_path / "out"
    with pytest.raises(Leak, match="DESK_KEY"):
        tachograph.record(agent, "?", out=out)
    assert not out.exists() and not partial_of(out).exists()


def test_a_value_that_would_change_a_path_is_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESK_KEY", "ordinary/../../elsewhere")
    seen: list[str] = []

    @tool(effect="read", idempotent=True)
    def peek(path: tachograph.ReadPath) -> str:
        """Look at a file."""
        seen.append(path)
        return "ok"

    model = script([("peek", {"path": "book/ordinary/../../elsewhere"})], "done")
    result = agent_of(model, [], peek, redact={"reveal_to": {"peek": ["env"]}}, on_deny="inform").run("?")
    assert seen == []
    assert not any(isinstance(event, ToolReturned) for event in result.events)


def test_a_secret_in_a_history_or_in_what_a_service_wants_back() -> None:
    asked: list[Any] = []

    def model(seen: LLMInput) -> LLMOutput:
        asked.extend(seen.messages)
        return LLMOutput(final_answer="done", model=TOKEN, raw={"signed": TOKEN})

    result = agent_of(model, []).run("?", history=[{"role": "user", "content": f"It is {TOKEN}"}])
    assert [event.raw for event in result.events if isinstance(event, ModelReplied)] == [None]
    assert TOKEN not in repr((result.events, asked)) and "<secret:github_token:" in repr(asked)


@pytest.mark.parametrize("before", [0, 200, 250, 280, 295, 299])
def test_what_a_service_says_is_cut_after_its_secrets_are_replaced(
    before: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    phrase = "xyzzy plugh 1234567"  # of which a cut at a word would leave a part
    monkeypatch.setenv("DESK_KEY", phrase)

    def model(asked: LLMInput) -> LLMOutput:
        raise ModelError(f"refused {phrase}", service_text="x" * before + f" {TOKEN} {phrase} and more")

    result = agent_of(model, []).run("?")
    assert result.mode == "llm_failure"
    for text in (repr(result.events), caplog.text):
        assert TOKEN[:12] not in text and "xyzzy" not in text


def test_why_a_hook_failed_is_told_without_its_secrets(caplog: pytest.LogCaptureFixture) -> None:
    def hook(about: dict[str, Any]) -> None:
        raise KeyError(f"no such entry: {TOKEN}")

    agent = agent_of(lambda asked: LLMOutput(final_answer="done"), [])
    agent.hooks = [Hooks(on_stop=hook)]
    result = agent.run("?")
    assert result.ending == "policy_denial_terminal"
    assert "the hook on_stop failed: KeyError: 'no such entry: " in caplog.text
    assert TOKEN[:12] not in caplog.text and "no such entry" not in repr(result.events)


def test_the_model_reads_why_a_tool_failed_without_its_secrets() -> None:
    @tool(effect="pure")
    def look() -> None:
        """Look."""
        raise ToolFailure(f"no entry of {TOKEN}")

    def model(asked: LLMInput) -> LLMOutput:
        told.append(asked.messages[-1]["content"])
        return LLMOutput(final_answer="done") if told[1:] else LLMOutput(tool_calls=[ToolCall("look", {})])

    told: list[Any] = []
    result = agent_of(model, [], look, on_failure="inform").run("?")
    assert result.ending == "final_answer" and "no entry of <secret:" in str(told[1])
    assert TOKEN[:12] not in f"{told}{result.events}"


@pytest.mark.parametrize("before", [470, 490, 498])
def test_what_a_person_says_is_cut_after_its_secrets_are_replaced(before: int) -> None:
    def approve(question: tachograph.AskPerson) -> tachograph.Answer:
        return tachograph.Answer("allow", by=f"{'x' * before} {TOKEN}", why=f"{'x' * before} {VALUE}")

    delta = {"approval": {"required_for": ["find"], "timeout_s": 60}}
    agent = agent_of(Model(), [], **delta)
    agent.approve = approve
    (answer,) = [event for event in agent.run("?").events if isinstance(event, Answered)]
    assert max(len(answer.by), len(answer.why)) <= 500 and "<" in answer.by and "<" in answer.why
    assert "gh" not in answer.by and "xyz" not in answer.why


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_tool_gives_back_of_what_it_was_given_is_hidden(tmp_path: Path, fails: bool) -> None:
    """Nothing but the word before the value tells that it is a secret."""

    @tool(effect="network", idempotent=True)
    def login(text: str) -> str:
        """Log in."""
        if fails:
            raise ToolFailure(f"wrong: {text}")
        return text + text

    def model(asked: LLMInput) -> LLMOutput:
        last = asked.messages[-1]["content"]
        call = ToolCall("login", {"text": last.removeprefix("password: ")})
        return LLMOutput(final_answer=last) if asked.step_index > 1 else LLMOutput(tool_calls=[call])

    redact = {"kinds": ["service_token"], "reveal_to": {"login": ["service_token"]}}
    agent, out = agent_of(model, [], login, redact=redact, on_failure="inform"), tmp_path / "out"
    result = proved(agent, out, "password: plover-xyzzy-9876543")
    assert "<secret:" in f"{result.answer}" and "plover" not in "".join(map(Path.read_text, out.iterdir()))
