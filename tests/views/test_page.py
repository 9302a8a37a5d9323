"""A run, and two, as pages: what stands in them, and that nothing else ever does."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tachograph.fail.errors import InputError, RecordError
from tachograph.pages.render import ASSETS, TEMPLATES, printed, render, text_block
from tachograph.views.charts import budgets
from tachograph.views.compare_page import compare_page, compared
from tachograph.views.index_page import entry_of, index_page
from tachograph.views.model import Run, of_known_shape, run_of
from tachograph.views.model import _run as view
from tachograph.views.page import GROUP, run_page
from tachograph.views.terminal import _foot
from tests.faults.kept import Case, Disk
from tests.support import ROOT, cli, one_line
from tests.views.reading import (
    Page,
    folder_of,
    harmless,
    hostile_texts,
    lines_of,
    must_be_sound,
    must_lead_somewhere,
    retold,
)

RUNS = sorted(path.parent.relative_to(ROOT / "runs").as_posix() for path in ROOT.glob("runs/*/*/state.jsonl"))


def _run(name: str) -> Run:
    return run_of(ROOT / "runs" / name)


# ---- templates ---------------------------------------------------------------------------------------------


def test_a_template_prints_text_and_nothing_else() -> None:
    text = "<a href='x'>&\"\x1b[31m\u202e\u2028\n{{ 7 * 7 }}{% raw %}"
    page = render("base.html", title=text, style="page.css")
    assert (
        "<title>&lt;a href=&#39;x&#39;&gt;&amp;&#34;\\u{1b}[31m\\u{202e}\\u{2028}\\u{a}{{ 7 * 7 }}{% raw %}</title>"
        in page
    )
    assert "script-src" not in page and "<script" not in page
    assert (printed(None), printed(7), printed("a\tb")) == ("", "7", "a\\u{9}b")


def test_lines_of_a_text_stay_lines() -> None:
    # a parser drops the line feed that begins a `pre`, so one is put before the text
    assert text_block("\na\r\nb\tc\rd<\n") == "\n\na\nb\tc\\u{d}d&lt;\n"


def test_no_template_turns_the_escaping_off() -> None:
    """Whatever a template prints passes `printed` and the escaping: none may call text markup, or take either off."""
    for path in TEMPLATES.iterdir():
        source = path.read_text(encoding="utf-8")
        assert not re.search(r"\|\s*(safe|forceescape)|autoescape|Markup|=\{\{|='\{\{", source), path.name


def test_a_template_that_asks_for_what_is_not_there_says_so() -> None:
    with pytest.raises(KeyError, match="home"):
        render("layout.html", title="x", style="page.css", kind="run", skip="x", places=())


def test_without_jinja2_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from tachograph.pages import render as module

    monkeypatch.setitem(sys.modules, "jinja2", None)
    module._environment.cache_clear()
    with pytest.raises(InputError, match=r"pip install 'tachograph\[desk\]'"):
        run_page(_run("canonical/v1"))


def test_what_scripts_and_style_are_ends_no_element() -> None:
    for path in ASSETS.iterdir():
        assert "</" not in path.read_text(encoding="utf-8"), path.name


# ---- a run -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
def test_a_page_tells_the_whole_run(name: str) -> None:
    run = _run(name)
    page = must_be_sound(run_page(run))
    must_lead_somewhere(page)
    ids = {attributes.get("id") for _, attributes in page.found}
    said = " ".join(page.text.split())
    for step in run.steps:
        assert f"step-{step.index}" in ids
        for decision in step.line["policy_decisions"]:
            assert decision["reason"] in page.text and run.places.shown(decision["at"]) in page.text
        for call in step.calls:
            assert call.id in ids
            for attempt in call.attempts:
                assert f"attempt {attempt['attempt']}: {attempt['outcome'].replace('_', ' ')}" in said
                if "backoff_ms" in attempt:
                    assert f"then a wait of {attempt['backoff_ms']} ms" in said
            assert _leaves(call.arguments) <= set(_words(page)) | {""}
            assert call.result is None or _found(_leaves(call.result), page.text)
    assert run.end is not None
    assert run.end["terminal_reason"] in page.text
    assert _found({run.end["final_answer"] or "", run.run["question"]}, page.text)


def _words(page: Page) -> list[str]:
    return [words.removeprefix("\n") for _, words in page.words] + [page.text]


def _leaves(value: Any) -> set[str]:
    """Texts of one line in a value: those that stand in a page as they are."""
    if isinstance(value, dict):
        return set().union(*map(_leaves, value.values()))
    if isinstance(value, list):
        return set().union(*map(_leaves, value))
    return {value} if isinstance(value, str) and "\n" not in value and '"' not in value else set()


def _found(texts: set[str], whole: str) -> bool:
    return all(line in whole for words in texts for line in words.split("\n"))


def test_the_policy_line_stands_beside_the_decision() -> None:
    page = Page(run_page(_run("policy_gates/one_of_several_denied")))
    assert (
        'url_allowlist policy/v1.yaml:6 url_allowlist:"https://news.example" is not in url_allowlist'
        in page.text
    )
    assert "sandbox_path policy/v1.yaml:11 corpus: read" in page.text
    assert {"href": "#p0-L6", "class": "at"} in page.all("a")
    assert {"id": "p0-L6", "class": "used"} in page.all("li") and {"id": "p0-L5"} in page.all("li")


def test_the_line_of_another_policy_is_not_shown(tmp_path: Path) -> None:
    """The file of today is not the one that decided: its lines would lie."""
    for part in ("policy", "runs/policy_gates", "tasks"):
        shutil.copytree(ROOT / part, tmp_path / part)
    folder = tmp_path / "runs/policy_gates/pg1_off_allowlist_url"
    policy = tmp_path / "policy/v1.yaml"
    assert ">url_allowlist:<" in run_page(run_of(folder))
    policy.write_text("# a word\n" + policy.read_text())
    remarked = run_page(run_of(folder))
    assert "policy/v1.yaml:7" in remarked and ">url_allowlist:<" in remarked
    policy.write_text(policy.read_text().replace("max_repeats: 3", "max_repeats: 4"))
    changed = run_page(run_of(folder))
    assert "policy/v1.yaml#/url_allowlist" in changed and ">url_allowlist:<" not in changed
    assert "the policy has moved on since the run" in changed
    policy.unlink()
    assert "the policy files of the run are not at hand" in run_page(run_of(folder))


def test_a_policy_outside_the_project_is_not_opened(tmp_path: Path) -> None:
    lines = lines_of("policy_gates/pg1_off_allowlist_url")
    lines[0]["policy"]["files"][0]["path"] = "../secret.yaml"
    (tmp_path / "project/policy").mkdir(parents=True)
    (tmp_path / "secret.yaml").write_bytes((ROOT / "policy/v1.yaml").read_bytes())
    run = run_of(folder_of(lines, tmp_path / "project/runs/a/b"), tmp_path / "project")
    assert "a policy file of the run lies outside the project" in run_page(run)


def test_spans_nest_and_waits_lie_between_attempts() -> None:
    rows = [
        (row.depth, f"{row.name} {row.detail}")
        for row in _run("failure_modes/tool_call_failure").steps[0].rows
    ]
    assert rows == [
        (0, "agent_step 1"),
        (1, "llm_call script"),
        (1, "policy_check allow, url_allowlist"),
        (1, "tool_call fetch"),
        (2, "retry_attempt 1, transient_failure"),
        (2, "wait "),
        (2, "retry_attempt 2, transient_failure"),
        (2, "wait "),
        (2, "retry_attempt 3, success"),
    ]
    late = [(row.depth, row.detail) for row in _run("policy_gates/pg1_redirect_off_allowlist").steps[0].rows]
    assert late[-1] == (3, "deny, url_allowlist")
    people = [row.name for row in _run("policy_gates/approval_given").steps[0].rows]
    assert people[2:4] == ["policy_check", "person"]


def test_budgets_grow_to_the_totals() -> None:
    run = _run("policy_gates/pg3_loop_budget")
    assert run.end is not None
    totals = run.end["totals"]
    assert [step.used[0] for step in run.steps] == [1, 2, 3, 3]
    assert run.steps[-1].used == (
        3, totals["input_tokens"] + totals["output_tokens"], totals["tool_calls"], totals["result_bytes"],
        totals["attempts"],
    )  # fmt: skip
    assert "3 of 3 (100 %) used up" in Page(run_page(run)).text


def test_a_long_run_is_read_when_its_page_stands() -> None:
    lines = lines_of("failure_modes/tool_call_failure")
    steps = [json.loads(json.dumps(lines[1])) for _ in range(3 * GROUP)]
    for number, step in enumerate(steps, start=1):
        step["step_index"] = number
        step["intended_tool_calls"][0]["id"] = step["tool_results"][0]["id"] = f"tc_{number}_0"
        step["policy_decisions"][0]["id"] = f"tc_{number}_0"
    page = must_be_sound(run_page(view("long", [lines[0], *steps, lines[-1]], "0" * 64, [], ROOT)))
    must_lead_somewhere(page)
    assert len(page.all("noscript")) == 2
    assert sum("step-" in attributes.get("id", "") for attributes in page.all("details")) == 3 * GROUP
    assert not any("open" in attributes for attributes in page.all("details"))


# ---- two runs ------------------------------------------------------------------------------------------------


def test_two_runs_part_where_the_decision_differs() -> None:
    both = compared(_run("policy_gates/approval_given"), _run("policy_gates/approval_refused"))
    assert both.first is not None and (both.first.step, both.first.kind) == (1, "VERDICT")
    page = must_be_sound(compare_page(both))
    must_lead_somewhere(page)
    steps = {a["id"]: ("open" in a, a["class"]) for a in page.all("details") if "id" in a}
    assert steps == {"step-1": (True, "step bad"), "step-2": (False, "step follows")}
    assert "first divergence" in page.text and "only in A: downstream" in page.text


def test_a_run_and_itself_part_nowhere() -> None:
    page = must_be_sound(compare_page(compared(_run("canonical/v1"), _run("canonical/v1"))))
    assert "Both runs went the same way" in page.text and "downstream" not in page.text


def test_real_clocks_are_not_compared() -> None:
    run = _run("live/smollm")
    later = json.loads(json.dumps(run.lines))
    for line in later[1:-1]:
        line["stamps"] = {at: [a + 1, b + 1] for at, (a, b) in line["stamps"].items()}
    both = compared(run, view("later", later, "0" * 64, [], ROOT))
    assert both.first is None and not both.timed
    assert "Times are not compared" in compare_page(both)


# ---- hostile texts -------------------------------------------------------------------------------------------

BASES = ("policy_gates/one_of_several_denied", "failure_modes/tool_call_failure", "policy_gates/approval_given",
         "failure_modes/llm_invalid_output", "policy_gates/pg1_redirect_off_allowlist")  # fmt: skip


def _pair(base: str, texts: Iterator[str]) -> tuple[Run, Run, int]:
    """A run with texts in every place, one of the same shape that says nothing, and how many texts it took."""
    said: list[str] = []

    def say(_: str) -> str:
        said.append(next(texts))
        return said[-1]

    bad = retold(lines_of(base), say)
    again = iter(said)
    calm = retold(lines_of(base), lambda _: harmless(next(again)))
    return view("bad", bad, "0" * 64, [], ROOT), view("calm", calm, "0" * 64, [], ROOT), len(said)


def _pairs() -> list[tuple[Run, Run]]:
    """Every hostile text in some place of a run."""
    texts = [words.encode("utf-8", "replace").decode() for words in hostile_texts()]
    at = 0
    out = []
    bases = itertools.cycle(BASES)
    while at < len(texts):
        bad, calm, took = _pair(next(bases), itertools.cycle(texts[at:] + texts[:at]))
        out.append((bad, calm))
        at += took
    return out


@pytest.fixture(scope="module")
def pairs() -> list[tuple[Run, Run]]:
    return _pairs()


def test_no_text_of_a_run_is_markup(pairs: list[tuple[Run, Run]]) -> None:
    assert len(pairs) > 20
    for bad, calm in pairs:
        assert must_be_sound(run_page(bad)).shape == must_be_sound(run_page(calm)).shape


def test_no_text_of_a_run_is_markup_beside_another(pairs: list[tuple[Run, Run]]) -> None:
    for bad, calm in pairs[::7]:
        other = _run("canonical/v1")
        shapes = [must_be_sound(compare_page(compared(run, other))).shape for run in (bad, calm)]
        assert set(shapes[0]) == set(shapes[1])


def test_no_text_of_a_run_is_markup_in_an_index(pairs: list[tuple[Run, Run]]) -> None:
    def page(runs: list[Run], names: list[str]) -> Page:
        return must_be_sound(
            index_page([entry_of(run, name, "runs/x.html") for run, name in zip(runs, names, strict=True)])
        )

    names = [words for words in list(hostile_texts())[: len(pairs)] if words]
    chosen = pairs[: len(names)]
    bad = page([bad for bad, _ in chosen], names)
    calm = page([calm for _, calm in chosen], [re.sub("[^/]", "x", name) for name in names])
    assert set(bad.shape) == set(calm.shape)


def test_a_huge_result_is_folded() -> None:
    lines = lines_of("policy_gates/pg2_sandbox_link")
    lines[1]["tool_results"][0]["result"]["text"] = "<script>\u202e" * 80_000
    whole = run_page(view("huge", lines, "0" * 64, [], ROOT))
    page = must_be_sound(whole)
    assert "the rest: " in page.text and page.text.count("<script>\\u{202e}") > 79_990


# ---- unfinished and broken runs --------------------------------------------------------------------------------


def test_a_run_under_way_has_a_page(tmp_path: Path) -> None:
    case = Case(tmp_path, (["look", "put"], ["pay", "look!"], ["look"]))
    assert case.begin(Disk(20)) is None
    run = run_of(case.partial)
    page = must_be_sound(run_page(run))
    must_lead_somewhere(page)
    assert run.end is None and "unfinished" in page.text and "tachograph.resume(agent, " in page.text
    assert run.steps[0].calls and run.steps[0].calls[0].name in page.text
    assert page.all("div") and "None yet." in page.text
    must_be_sound(compare_page(compared(run, _run("canonical/v1"))))


def test_a_broken_record_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(ROOT / "runs/canonical/v1", folder)
    state = folder / "state.jsonl"
    state.write_bytes(state.read_bytes().replace(b"op-a4", b"op-a5", 1))
    page = tmp_path / "page.html"
    done = cli("show", str(folder), "--html", str(page), cwd=ROOT)
    assert done.returncode == 2 and "does not follow from the line before" in one_line(done)
    assert not page.exists()
    lines = lines_of("canonical/v1")
    del lines[1]["usage"]
    with pytest.raises(RecordError, match="unknown shape"):
        run_of(folder_of(lines, tmp_path / "other"))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(holder, key) of every value within a value."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        if isinstance(item, dict | list):
            yield from _places(item)


@pytest.mark.parametrize("base", ["failure_modes/tool_call_failure", "policy_gates/approval_given"])
def test_a_record_of_another_shape_is_refused_or_shown(base: str, tmp_path: Path) -> None:
    """Whoever chains a ledger anew can put anything anywhere; it never ends in anything but a page or a refusal."""
    lines = lines_of(base)
    spoilt = itertools.cycle((None, [], {}, "x", 7, [["x"]], -1, 1e300, "\ud83d"))
    refused = shown = 0
    for holder, key in list(_places(lines))[::2]:
        before = holder[key]
        holder[key] = next(spoilt)
        try:
            with of_known_shape("x"):
                run = view("x", lines, "0" * 64, [], ROOT)
            must_be_sound(run_page(run))
            shown += 1
        except RecordError:
            refused += 1
        holder[key] = before
    assert refused > 20 and shown > 20


# ---- the file ------------------------------------------------------------------------------------------------


def test_show_writes_a_page(tmp_path: Path) -> None:
    one, two = tmp_path / "one.html", tmp_path / "two.html"
    done = cli("show", "runs/canonical/v1", "--html", str(one), cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert one.read_text(encoding="utf-8") == run_page(_run("canonical/v1"))
    given = ("show", "runs/policy_gates/approval_given", "runs/policy_gates/approval_refused", "--json")
    done = cli(*given, "--html", str(two), cwd=ROOT)
    assert done.returncode == 1
    assert json.loads(done.stdout)["runs"] == [
        "runs/policy_gates/approval_given",
        "runs/policy_gates/approval_refused",
    ]
    assert "Two runs compared" in two.read_text(encoding="utf-8")


def test_a_page_takes_the_place_of_none_but_a_page(tmp_path: Path) -> None:
    def show(file: Path) -> str:
        done = cli("show", "runs/canonical/v1", "--html", str(file), cwd=ROOT)
        return one_line(done) if done.returncode == 2 else done.stdout

    mine = tmp_path / "mine.html"
    mine.write_text("<p>mine</p>")
    assert "is not a page of ours" in show(mine)
    assert "cannot be written" in show(tmp_path)
    assert "cannot be written" in show(tmp_path / "none" / "x.html")
    assert mine.read_text() == "<p>mine</p>"
    page = tmp_path / "page.html"
    page.write_text(run_page(_run("failure_modes/timeout")), encoding="utf-8")
    assert show(page).startswith("page ")
    assert page.read_text(encoding="utf-8") == run_page(_run("canonical/v1"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.html", "page.html"]


def test_the_budget_of_attempts_is_shown_where_the_policy_has_one() -> None:
    limited, unlimited = _run("tool_rules/attempts_used_up"), _run("canonical/v1")
    assert [(budget.name, budget.words) for budget in budgets(limited)][-1] == ("attempts", "3 of 3 (100 %)")
    assert "attempts" not in [budget.name for budget in budgets(unlimited)]
    assert "attempts3 of 3 (100 %) used up" in "".join(Page(run_page(limited)).text.splitlines())
    grid: Any = next(_foot(limited, 20))
    assert [len(list(column.cells)) for column in grid.columns] == [5, 5, 5]
