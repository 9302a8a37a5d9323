"""`tachograph secrets`, and the search for secrets that `check RUN` and `verify` make as well."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tachograph.evidence.canary.marks import WAYS
from tests.cli_project import GIVEN, RUN, Say
from tests.cli_project import project as project
from tests.cli_project import say as say
from tests.cli_project import shared as shared

TOKEN = "ghp_" + "abcdefghijklmnopqrstuvwxyz0123456789"
FOUND = f"{RUN}/notes.txt: line 1 holds what looks like a secret (github_token); "


@pytest.fixture
def leaked(project: Path) -> Path:
    """A project in which a file beside the four of a run holds a token."""
    (project / RUN / "notes.txt").write_text(TOKEN, encoding="utf-8")
    return project


def test_nothing_is_found_in_what_is_clean(project: Path, say: Say) -> None:
    code, out, _ = say("secrets")
    assert (code, out) == (0, "secrets: none found in 4 runs\n")
    assert say("secrets", "canonical/v1")[:2] == (0, f"secrets: none found in {RUN}\n")
    assert json.loads(say("secrets", "--json")[1]) == {"runs": 4, "secrets": []}


@pytest.mark.parametrize("words", [(), ("canonical/v1",), (RUN,)])
def test_what_is_found_is_named_and_not_shown(leaked: Path, say: Say, words: tuple[str, ...]) -> None:
    code, out, err = say("secrets", *words)
    assert code == 1 and f"secret  {FOUND}" in out and TOKEN not in out + err
    assert "secrets: 1 place in " in out
    code, out, _ = say("secrets", "--json", *words)
    assert code == 1 and [line.startswith(FOUND) for line in json.loads(out)["secrets"]] == [True]


@pytest.mark.parametrize("command", ["check", "verify"])
@pytest.mark.parametrize("words", [(), (RUN,)])
def test_check_and_verify_search_what_they_look_at(
    leaked: Path, say: Say, command: str, words: tuple[str, ...]
) -> None:
    code, out, _ = say(command, *words)
    assert code == 1 and out.count(FOUND) == 1 and TOKEN not in out
    code, out, _ = say(command, "--json", *words)
    assert code == 1 and TOKEN not in out and out.count(FOUND) == 1


@pytest.mark.parametrize("command", ["check", "verify", "secrets"])
def test_runs_that_are_not_named_are_not_searched(leaked: Path, say: Say, command: str) -> None:
    assert say(command, f"runs/{GIVEN}")[0] == 0


def test_the_name_of_a_file_is_searched_and_not_shown(project: Path, say: Say) -> None:
    (project / RUN / f"{TOKEN}.txt").write_text("nothing", encoding="utf-8")
    code, out, _ = say("secrets")
    assert code == 1 and TOKEN not in out
    assert f"{RUN}/<secret>.txt: its name holds what looks like a secret (github_token); " in out


def test_a_word_that_is_close_is_meant(say: Say) -> None:
    assert "did you mean `secrets`?" in say("secret")[2]
    assert "canonical/v1" in say("secrets", "canonical/v2")[2]
    assert "canonical/v1" in say("completion", "--words", "secrets", "cano")[1]


def test_the_canary_finds_nothing_under_the_policy_of_the_project(project: Path, say: Say) -> None:
    before = sorted(path for path in project.rglob("*"))
    code, out, err = say("secrets", "--canary")
    assert (code, err) == (0, "")
    *ways, last = out.splitlines()
    assert [line.split("  ", 1) for line in ways] == [["kept out", what] for what in WAYS.values()]
    assert last.startswith(f"secrets: none of {len(WAYS)} marked values in ")
    assert last.endswith(" bytes that 6 runs wrote, under policy/v1.yaml")
    assert sorted(path for path in project.rglob("*")) == before


def test_the_canary_finds_what_a_policy_without_redaction_lets_in(project: Path, say: Say) -> None:
    policy = project / "policy/v1.yaml"
    text = policy.read_text(encoding="utf-8")
    policy.write_text(text[: text.index("redact:")] + "redact: [jwt]\n", encoding="utf-8")
    code, out, _ = say("secrets", "--canary")
    assert code == 1 and "found     the name of an argument: in " in out
    assert "kept out  a key of the usage of a reply\n" in out, "which nobody records"
    code, out, _ = say("secrets", "--canary", "canonical/v1", "--json")
    (trials,) = json.loads(out).values()
    assert code == 1 and len(trials) == 6
    for name, trial in trials.items():
        assert "runs/canary/trial/state.jsonl" in trial["found"]["question"], name
        assert trial["ending"] == "final_answer" and trial["not_tried"] == []


def test_a_task_that_is_not_there_is_refused(say: Say) -> None:
    code, out, err = say("secrets", "--canary", "canonical/v2")
    assert (code, out) == (2, "") and "canonical/v2" in err
