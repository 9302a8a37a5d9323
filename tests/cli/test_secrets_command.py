"""`tachograph secrets`, and the search for secrets that `check RUN` and `verify` make as well."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
