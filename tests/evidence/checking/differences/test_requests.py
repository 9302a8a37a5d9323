"""What a live model is asked with is part of the record: a change is named, and not accepted without the model."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tachograph.cli import main as command_line
from tachograph.evidence.checking.check import examine
from tachograph.evidence.checking.differences.cause import causes, in_words
from tachograph.evidence.checking.differences.compare import Findings
from tachograph.evidence.checking.differences.drift import compare
from tachograph.evidence.checking.differences.requests import moved_parts
from tachograph.evidence.checking.replay import replayed
from tachograph.evidence.queries.counterfactual import under
from tachograph.evidence.recording import index
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.tasks.task import build, load_task
from tachograph.fail.errors import ReplayError
from tachograph.runtime.core.effects import AskModel
from tachograph.runtime.journal.cassette import Cassette
from tachograph.runtime.models.types import History, LLMInput, LLMOutput
from tachograph.runtime.policy.policy import Policy
from tests.evidence.project import copy_inputs, live_task, replaced, tachograph
from tests.support import ROOT

LIVE, SCRIPTED = "runs/live/smollm", "runs/canonical/v1"
TOOL = "tools/search.py"
DESCRIPTION = ("Search the document corpus", "Search the corpus")
SCHEMA = ('"maxLength": 400', '"maxLength": 401')
MOVED = "what the model is asked with moved: "
V1 = ROOT / "tests/data/v1"


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = [run.removeprefix("runs/") for run in (LIVE, SCRIPTED)]
    return copy_inputs(tmp_path_factory.mktemp("asked") / "project", runs)


@pytest.fixture
def project(shipped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(shipped, tmp_path / "project"))


def lines_of(run: Path) -> list[Any]:
    return [json.loads(text) for text in (run / "state.jsonl").read_text(encoding="utf-8").splitlines()]


def state_of(project: Path) -> dict[str, bytes]:
    return {path.as_posix(): path.read_bytes() for path in sorted((project / "runs").rglob("*.*"))}


@pytest.mark.parametrize(
    ("edit", "words"),
    [(DESCRIPTION, "tools: description of `search`"), (SCHEMA, "tools: input schema of `search`")],
    ids=["description", "schema"],
)
def test_a_live_model_that_would_be_asked_otherwise_is_not_accepted_without_it(
    edit: tuple[str, str],
    words: str,
    project: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CI", raising=False)
    replaced(project / TOOL, *edit)
    found = examine(project / LIVE, root=project)
    assert found.kind == "ASKED" and MOVED + words in found.lines
    assert found.drift is not None and found.drift.parts == (words,)
    assert found.drift.first is not None and found.drift.first.pointer.startswith("/request_parts/tools/0/")
    assert in_words(causes([found])) == f"{TOOL} moved (1 of them)"
    assert found.accept is not None and found.accept.startswith(
        "tachograph run tasks/live/smollm.yaml --llm "
    )
    before = state_of(project)
    code, out = tachograph(project, capsys, monkeypatch, "check", LIVE)
    assert code == 1 and f"ASKED  {LIVE}" in out and words in out
    assert "tachograph accept" not in out.splitlines()[-1]
    code, out = tachograph(project, capsys, monkeypatch, "accept", "--all", "--reason", "as it should be")
    assert code == 1 and f"asked with something else ({words}); record it with `tachograph run" in out
    after = state_of(project)
    assert {name for name in before if LIVE in name and before[name] != after[name]} == set()


class _Live:
    identity: ClassVar = {
        "execution_path": "live", "provider": "openai", "name": "some", "script_digest": None,
    }  # fmt: skip

    def __call__(self, asked: LLMInput) -> LLMOutput:
        return LLMOutput(final_answer="done")


def test_a_live_model_with_other_instructions_is_not_accepted_without_it(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    task, run = project / live_task(project, "told"), "runs/live/told"
    with task.open("a") as file:
        file.write("instructions: Be short.\n")
    record_run(*build(load_task(task, root=project), model=_Live()), project / run)
    index.update(project)
    assert examine(project / run, root=project).ok
    replaced(task, "Be short.", "Be kind.")
    found = examine(project / run, root=project)
    assert found.kind == "ASKED" and f"{MOVED}instructions: the text" in found.lines
    before = state_of(project)
    assert command_line.main(["accept", run, "--reason", "so", "--root", str(project)]) == 2
    assert "asked with something else (instructions: the text)" in capsys.readouterr().err
    assert state_of(project) == before


@pytest.mark.parametrize("place", ["run", "step"])
@pytest.mark.parametrize("kind", ["tools", "instructions", "options"])
def test_every_part_of_a_request_is_asked_of_a_live_model_and_a_digest_of_a_script(
    kind: str, place: str
) -> None:
    for run, expected in ((LIVE, "ASKED"), (SCRIPTED, "DIGEST-ONLY")):
        before = lines_of(ROOT / run)
        after = copy.deepcopy(before)
        if place == "run":
            key = "text" if kind == "instructions" else kind
            after[0]["request_parts"][kind] = [{"digest": "1" * 64, key: "other"}]
        else:
            after[1]["llm_input"][kind] = "1" * 64
        drift = compare(before, after)
        assert drift.kind == expected, drift.first


def test_a_graver_difference_beside_it_does_not_hide_what_is_asked() -> None:
    before = lines_of(ROOT / LIVE)
    after = copy.deepcopy(before)
    after[0]["request_parts"]["tools"][0]["tools"].pop()
    after[1]["policy_decisions"][0]["decision"] = "deny"
    found = Findings(LIVE, ["x"], drift=compare(before, after))
    assert found.kind == "VERDICT" and found.asked_otherwise


def test_a_scripted_run_is_made_again_as_before(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    replaced(project / TOOL, *DESCRIPTION)
    found = examine(project / SCRIPTED, root=project)
    assert found.kind == "DIGEST-ONLY" and f"{MOVED}tools: description of `search`" in found.lines
    code, _ = tachograph(project, capsys, monkeypatch, "accept", SCRIPTED, "--reason", "shorter")
    assert code == 0 and examine(project / SCRIPTED, root=project).ok


def test_a_replay_compares_every_part(project: Path) -> None:
    replaced(project / TOOL, *DESCRIPTION)
    lines = replayed(project / LIVE, root=project).lines
    assert lines[0] == "input differs at step 1: the tools that the model is offered differ"
    assert f"{MOVED}tools: description of `search`" in lines


def test_another_policy_that_offers_other_tools_is_no_frontier_by_itself(project: Path) -> None:
    policy = (project / "policy/v1.yaml").read_text(encoding="utf-8")
    other = policy.replace("[search, fetch, read, write, summarize]", "[search, fetch, read, summarize]")
    other = other.replace("max_tokens: 50000", "max_tokens: 49000")
    assert other != policy
    (project / "policy/other.yaml").write_text(other, encoding="utf-8")
    found = under(project / SCRIPTED, Policy.load(project / "policy/other.yaml", root=project), root=project)
    assert found.is_same and found.same == 4, found.why


# ---- which parts are compared ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "compared"),
    [
        ({}, {"messages", "digest", "instructions", "tools", "options", "max_output_tokens"}),
        ({"parts": False}, {"messages", "digest", "max_output_tokens"}),
        ({"counterfactual": True}, {"messages", "digest", "instructions"}),
    ],
    ids=["replay", "check", "another policy"],
)
def test_the_parts_that_a_cassette_compares(how: dict[str, bool], compared: set[str]) -> None:
    _, step, *_ = lines_of(ROOT / SCRIPTED)
    entry = {**step["llm_input"], "instructions": "1" * 64, "options": "2" * 64}
    for key in entry:
        then = copy.deepcopy(step)
        then["llm_input"] = {**entry, key: "other"}
        cassette = Cassette.of([then], **how)
        if key in compared:
            with pytest.raises(ReplayError, match="input differs at step 1"):
                cassette.take(_asking(entry))
        else:
            assert cassette.take(_asking(entry)).reply is not None


def _asking(entry: dict[str, Any]) -> AskModel:
    """Return a request for the first step whose ledger entry is `entry`."""
    history = History()
    for _ in range(entry["messages"]):
        history.add({"role": "user", "content": "What now?"})
    request = LLMInput("r", 1, history.window(), (), entry["max_output_tokens"])
    parts = {key: entry[key] for key in ("tools", "instructions", "options") if key in entry}
    return AskModel(1, 1, request, entry["digest"], parts)


def test_a_record_of_v1_is_compared_in_what_it_holds() -> None:
    step = lines_of(V1 / "canonical/v1")[1]
    entry = step["llm_input"]
    assert "tools" not in entry
    asked = {**entry, "tools": "1" * 64, "options": "2" * 64}
    assert Cassette.of([step]).take(_asking(asked)).reply is not None
    with pytest.raises(ReplayError, match="the messages differ"):
        Cassette.of([step]).take(_asking({**asked, "digest": "0" * 64}))


# ---- the words -----------------------------------------------------------------------------------------------


def _change(change: Callable[[dict[str, Any]], object]) -> tuple[str, ...]:
    before = lines_of(ROOT / LIVE)
    after = copy.deepcopy(before)
    change(after[0]["request_parts"])
    return moved_parts(before, after)


def _reverse(parts: dict[str, Any]) -> None:
    parts["tools"][0]["tools"].reverse()


def _drop(parts: dict[str, Any]) -> None:
    parts["tools"][0]["tools"].pop(0)


def _add(parts: dict[str, Any]) -> None:
    parts["tools"][0]["tools"].append({"name": "write", "description": "", "input_schema": {}})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_reverse, ("tools: their order",)),
        (_drop, ("tools: `search` is no longer offered",)),
        (_add, ("tools: `write` is new",)),
        (lambda parts: parts["options"][0]["options"].update(temperature=1), ("options: `temperature`",)),
        (lambda parts: parts["options"][0]["options"].pop("seed"), ("options: `seed`",)),
        (lambda parts: parts.pop("options"), None),
        (lambda parts: parts.update(instructions=[{"digest": "", "text": "Be short."}]), ("instructions: the text",)),
        (lambda parts: None, ()),
    ],
    ids=["order", "a tool less", "a tool more", "an option", "an option less", "no options", "instructions", "nothing"],
)  # fmt: skip
def test_the_part_that_moved_is_named(change: Any, words: tuple[str, ...] | None) -> None:
    found = _change(change)
    if words is None:
        options = lines_of(ROOT / LIVE)[0]["request_parts"]["options"][0]["options"]
        words = tuple(f"options: `{key}`" for key in sorted(options))
    assert found == words


def test_a_set_that_one_run_alone_offers_later_is_seen() -> None:
    before = lines_of(ROOT / LIVE)
    after = copy.deepcopy(before)
    after[2]["request_parts"] = {"tools": [{"digest": "", "tools": [{"name": "late", "description": ""}]}]}
    assert moved_parts(before, after) == ("tools: `late` is new",)


# ---- records of v1 -------------------------------------------------------------------------------------------


def _as_v1(lines: list[Any]) -> list[Any]:
    """Return lines without what a record of v1 does not hold, as the reader of v1 gives them."""
    old = copy.deepcopy(lines)
    old[0]["schema"] = "ledger/v1"
    old[0]["request_parts"].pop("tools")
    for line in old[1:-1]:
        (line["llm_input"] or {}).pop("tools", None)
    return old


def test_a_live_run_of_v1_moves_on_only_if_its_tools_and_policy_stand() -> None:
    present = lines_of(ROOT / LIVE)
    before = _as_v1(present)
    assert compare(before, present).kind == "DIGEST-ONLY"
    for change in (
        lambda run: run["tools"][0].update(schema_digest="0" * 64),
        lambda run: run["tools"].pop(),
        lambda run: run["policy"].update(version="0" * 12),
        lambda run: run["request_parts"]["options"][0]["options"].update(seed=8),
    ):
        after = copy.deepcopy(present)
        change(after[0])  # type: ignore[no-untyped-call]
        assert compare(before, after).counts["ASKED"] > 0


def test_a_project_with_a_live_run_of_v1_is_told_what_to_do(project: Path) -> None:
    shutil.rmtree(project / LIVE)
    shutil.copytree(V1 / "live/smollm", project / LIVE)
    index.update(project)
    found = examine(project / LIVE, root=project)
    assert not found.ok and found.accept is not None
