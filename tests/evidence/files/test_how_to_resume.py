"""What resumes an unfinished run: the command for files, a call in code for a run that only code describes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, InputError, LLMOutput, Policy, ToolCall, record, resume
from tachograph.cli import main as cli
from tachograph.evidence.files.words.how_to_resume import made_in_code, resumed_by
from tachograph.fail.errors import OutputError

IN_CODE = "go on with `tachograph.resume(agent, 'my-runs/first')` in code"


class Model:
    """Proposes a call, lacks its key once, and answers."""

    def __init__(self, provider: str | None = None) -> None:
        self.has_key = False
        if provider is not None:
            self.identity = {"provider": provider, "name": "m"}

    def __call__(self, asked: Any) -> LLMOutput:
        if asked.step_index == 1:
            return LLMOutput(tool_calls=[ToolCall("search", {"query": "rest"})])
        if not self.has_key:
            raise InputError("the key is missing")
        return LLMOutput(final_answer="At the depot.")


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """An agent in code whose run in `my-runs/first` is unfinished."""
    monkeypatch.chdir(tmp_path)
    return _stopped(Model())


def _stopped(model: Model) -> Agent:
    agent = Agent(model, ["search"], Policy.shipped(), mounts={"corpus": "."})
    with pytest.raises(InputError, match="the key is missing"):
        record(agent, "Where may a driver sleep?", "my-runs/first")
    assert Path("my-runs/first.partial/journal.jsonl").is_file()
    return agent


@pytest.mark.parametrize(
    "words", [("ls", "my-runs"), ("show", "my-runs/first"), ("resume", "my-runs/first")], ids=lambda w: w[0]
)
def test_commands_name_the_call_in_code(stopped: Agent, words: tuple[str, ...], capsys: Any) -> None:
    code = cli.main(list(words))
    said = capsys.readouterr()
    assert IN_CODE in said.out + said.err
    if words[0] == "resume":
        assert code == 2
        assert said.err == (
            f"tachograph: my-runs/first: its model was made in code and is in no file; {IN_CODE}\n"
        )
    stopped.llm.has_key = True  # type: ignore[attr-defined]
    assert resume(stopped, "my-runs/first").answer == "At the depot."


def test_a_view_of_it_names_the_call_in_code(stopped: Agent) -> None:
    from tachograph.views.model import run_of

    assert run_of(Path("my-runs/first.partial")).open[-1] == IN_CODE


def test_recording_over_it_names_the_call_in_code(stopped: Agent) -> None:
    with pytest.raises(OutputError) as caught:
        record(stopped, "Where may a driver sleep?", "my-runs/first")
    assert IN_CODE in str(caught.value)


def test_a_named_model_and_files_are_resumed_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _stopped(Model("openai"))
    assert resumed_by("my-runs/first", Path("my-runs/first.partial")) == "`tachograph resume my-runs/first`"


def _run(**changed: Any) -> dict[str, Any]:
    files = [{"path": "policy/v1.yaml"}]
    tools = [{"name": "search", "file": "tools/search.py"}]
    model = {"execution_path": "live", "provider": "openai"}
    return {"task": None, "policy": {"files": files}, "tools": tools, "model": model, **changed}


@pytest.mark.parametrize(
    ("run", "what"),
    [
        (_run, None),
        (lambda: _run(task={"path": "tasks/a/b.yaml"}, model={}), None),
        (lambda: _run(policy={"files": []}), "its policy"),
        (lambda: _run(model={"execution_path": "live", "provider": "callable"}), "its model"),
        (lambda: _run(model={"execution_path": "stub", "provider": "stub"}), "its model"),
        (lambda: _run(tools=[{"name": "pay", "file": None}]), "its tool 'pay'"),
    ],
)
def test_what_is_in_no_file(run: Callable[[], dict[str, Any]], what: str | None) -> None:
    assert made_in_code(run()) == what
    if what == "its model":
        assert made_in_code(run(), model_given=True) is None


def test_an_unreadable_journal_leads_to_the_command(tmp_path: Path) -> None:
    for text in ("", "{", "[]", '{"entry": {"run": 3}}'):
        (tmp_path / "journal.jsonl").write_text(text)
        assert resumed_by("a\x1bb", tmp_path) == r"`tachograph resume a\u{1b}b`"
