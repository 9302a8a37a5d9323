"""Tasks for live models through the command line: recorded at a service, and made again without it."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Capsys, exit_code, output_of
from tests.project import edit, make_project, rewrite
from tests.providers.service import LANGUAGES, SECRET, answer, whole
from tests.servers import unused_port

# only the processes that run these tests import them
pytestmark = pytest.mark.skipif(
    not all(map(find_spec, ["openai", "anthropic"])),
    reason="the package openai or anthropic is not installed",
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    models = {"live": [language.name for language in LANGUAGES]}
    root = make_project(tmp_path / "p", [{"name": "live", "turns": [], "expect": {}, "llm": models}])
    monkeypatch.chdir(root)
    return root


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_way_of_a_live_run(project: Path, serve: Any, language: Any, capsys: Capsys) -> None:
    call = whole(language, language.call(0, "look", '{"path": "book/a.txt"}'), stop="tool_calls")
    service = serve(answer(call), answer(whole(language, language.said("it is ", "alpha\n" + "beta-" * 999))))
    url, setting = ("--base-url", service.url), ("--llm-option", "max_tokens=77")
    told = output_of(capsys, "run", "s/live", "--llm", language.name, *url, *setting).out
    assert "the model answered: it is alpha" in told and "\n" + "beta-" * 999 in told  # as a whole, too
    assert len(service.requests) == 2
    for command in ("check", "verify", "replay", "explain", "ls"):
        assert exit_code(command) == 0, capsys.readouterr()
    assert len(service.requests) == 2  # none of them asks the model
    for path in (project / "runs/s/live").iterdir():
        assert SECRET not in path.read_text() and str(project) not in path.read_text()
    log = (project / "runs/s/live/state.jsonl").read_text()
    assert '"options":{"max_tokens":77}' in log
    assert exit_code("run") == 0  # all that have a script: this one stays as it is
    assert (project / "runs/s/live/state.jsonl").read_text() == log
    (project / "book/a.txt").write_text("beta")
    assert exit_code("check") == 1


def test_a_live_run_that_died_goes_on(project: Path, serve: Any, capsys: Capsys) -> None:
    language = LANGUAGES[1]
    call = whole(language, language.call(0, "look", '{"path": "book/a.txt"}'), stop="tool_calls")
    service = serve(answer(call), answer(whole(language, language.said("alpha"))))
    given = ("--llm", language.name, "--base-url", service.url)
    (told,) = json.loads(output_of(capsys, "run", "s/live", *given, "--json").out)
    assert (told["ending"], told["answer"]) == ("final_answer", "alpha")
    log = project / "runs/s/live/state.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    (project / "runs/s/live").rename(project / "runs/s/live.partial")
    (project / "runs/s/live.partial/state.jsonl").write_bytes(b"".join(lines[:3]))
    assert exit_code("resume", "s/live", "--base-url", service.url) == 0
    assert len(service.requests) == 3
    assert log.read_bytes().splitlines(keepends=True)[:3] == lines[:3]
    assert exit_code("check") == exit_code("replay") == 0


def test_a_fallback_replies_in_a_live_run(
    project: Path, serve: Any, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    task, (other, language) = project / "tasks/s/live.yaml", LANGUAGES
    rewrite(task, llm={"live": [other.name], "fallback": [language.name]})
    service = serve(answer(b"{}", status=401), answer(whole(language, language.said("alpha"))))
    for variable in ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.setenv(variable, service.url)
    assert "fallback 1 answered: alpha" in output_of(capsys, "run", "s/live").out
    for command in ("check", "verify", "replay", "explain"):
        assert exit_code(command) == 0, capsys.readouterr()
    rewrite(task, llm={"live": [other.name]})
    assert "fallback" in output_of(capsys, "check", code=2).out


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_profile_is_asked_and_starts_one_with_a_model_of_its_own(
    project: Path, serve: Any, language: Any, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    own = LANGUAGES[0]
    (project / "profiles/looker.yaml").write_text((project / "profiles/reader.yaml").read_text())
    agents = {"agents": ["reader", "looker"], "plan": None}
    for name, more in (("planner", agents), ("reader", {"model": own.name}), ("looker", {})):
        rewrite(project / f"profiles/{name}.yaml", **more, hand_over_to=[], hooks=[])
    edit(project / "policy/planner.yaml", '"to_reader"', '"reader", "looker"')
    started = [language.call(0, name, '{"task": "read"}') for name in ("reader", "looker")]
    first, second = (whole(language, call, stop="tool_calls") for call in started)
    beta, end = (whole(language, language.said(text)) for text in ("beta", "it says alpha"))
    service = serve(*map(answer, [first, whole(own, own.said("alpha")), second, beta, end]))
    for variable in ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.setenv(variable, service.url)
    asked = ("run", "--profile", "planner", "--llm", language.name, "--llm-option", "max_tokens=77")
    with monkeypatch.context() as patch:
        for variable in ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"):
            patch.setenv(variable, f"http://127.0.0.1:{unused_port()}")
        (told,) = json.loads(output_of(capsys, *asked, "And without a service?", "--json", code=1).out)
        assert "found failure_mode_terminal" in told["problems"][0]
    assert not [*project.glob("tasks/asked/*")]  # a check would miss its run
    assert exit_code(*asked, "What says http://a//b/ ?") == 0, capsys.readouterr()
    assert "http://a//b/ ?" in (project / "tasks/asked/planner_1.yaml").read_text()
    for command in ("check", "verify", "replay", "explain"):
        assert exit_code(command, "asked/planner_1") == 0, capsys.readouterr()
    assert len(service.requests) == 5  # none of them asks a model
    log = (project / "runs/asked/planner_1/state.jsonl").read_text().splitlines()
    reader, looker = [line for line in log if '"event":"agent_started"' in line]
    for head, model, most in ((reader, own, 8192), (looker, language, 77)):
        assert f'"name":"{model.name.partition(":")[2]}"' in head and f'"max_tokens":{most}' in head


BAD = [
    (("run", "s/live"), "choose one by --llm"),
    (("run", "s/live", "--llm", "openai:other"), "openai:other"),
    (("run", "s/live", "--llm", "nobody:gpt"), "nobody:gpt"),
    (("run", "s/live", "--llm", "openai:gpt", "--llm-option", "x"), "NAME=VALUE"),
    (("run", "s/live", "--llm", "openai:gpt", "--llm-option", "temprature=1"), "temperature"),
    (("resume", "s/live"), "no such run"),
]


@pytest.mark.parametrize(("words", "said"), BAD)
def test_bad_input_is_one_line_and_leaves_nothing(
    project: Path, words: tuple[str, ...], said: str, capsys: Capsys
) -> None:
    (line,) = output_of(capsys, *words, code=2).err.splitlines()
    assert said in line
    assert not (project / "runs").exists()


def test_a_scripted_run_is_none_of_a_task_for_live_models(project: Path) -> None:
    """The place of a run decides how it is made again, never its record."""
    rewrite(project / "tasks/s/live.yaml", llm={"stub": {"turns": [{"answer": "done"}]}})
    assert exit_code("run", "s/live") == 0
    assert exit_code("run", "s/live", "--llm", "openai:gpt") == 2
    rewrite(project / "tasks/s/live.yaml", llm={"live": ["openai:gpt"]})
    assert exit_code("check") == exit_code("replay") == 2
