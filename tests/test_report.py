"""`run_report.md`: what it tells of each kind of run, and that no foreign text becomes more than words in it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tachograph.evidence.report import MAX_ANSWER, report
from tachograph.runtime.formats.escape import escape_markdown, truncate
from tachograph.runtime.log.events import Event
from tachograph.runtime.log.lines import read_log
from tachograph.runtime.log.values import Call, ModelName
from tests.logs import Log, call

CANONICAL = Path(__file__).parents[1] / "runs/canonical/v1/state.jsonl"
MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
ARROW = re.compile(r"    (participant \w+( as [\w-]+)?|Note over \w+: .*|\w+ (->>|--x) \w+: [\w, -]+)")


def cells(text: str, heading: str) -> list[list[str]]:
    """Return the rows of the table below a heading, as a Markdown reader finds them."""
    tokens = MARKDOWN.parse(text.split(f"\n## {heading}\n")[1].split("\n## ")[0])
    rows: list[list[str]] = []
    for token, inner in itertools.pairwise(tokens):
        if token.type == "tr_open":
            rows.append([])
        elif token.type in ("td_open", "th_open"):
            rows[-1].append("".join(child.content for child in inner.children or ()))
    return rows[1:]


def steps(events: list[Event]) -> list[tuple[str, str, str, str]]:
    """Return step, decision, attempts and mode of each row of the table of steps."""
    return [(row[0], row[2], row[4], row[5]) for row in cells(report(events), "Steps")]


def items(events: list[Event], heading: str) -> int:
    """Return how many items the list below a heading has."""
    below = report(events).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return sum(token.type == "list_item_open" for token in MARKDOWN.parse(below))


def counts(events: list[Event]) -> list[int]:
    """Return the numbers of steps, calls, attempts, retries and denials."""
    return [int(number) for number in re.findall(r"\d+", report(events).split("\n")[3])]


# ---- what it tells ---------------------------------------------------------------------------------------------------


def test_the_canonical_run() -> None:
    text = report([line.event for line in read_log(CANONICAL.read_bytes())])
    assert text == CANONICAL.with_name("run_report.md").read_text(encoding="utf-8")
    assert "\nSteps: 5 · Tool calls: 4 · Attempts: 4 · Retries: 0 · Denials: 0\n" in text
    assert "`tachograph run tasks/canonical/v1.yaml`" in text
    used = [row[1:] for row in cells(text, "Budgets")]
    assert used == [["5", "10"], ["6130", "50000"], ["4", "40"], ["3273", "1000000"]]


def test_calls_that_were_not_reached_are_shown() -> None:
    log = Log().replied(call("a"), call("b"), call("c")).decided("c0.d").returned("c0.i1")
    events = log.decided("c1.d", "deny", "url_allowlist").stepped().ended("policy_denial_terminal")
    assert steps(events) == [
        ("1", "allow, tool_registry", "1 (success)", ""),
        ("1", "deny, url_allowlist", "none", ""),
        ("1", "", "not reached", ""),
    ]
    assert counts(events) == [1, 1, 1, 0, 1]
    assert items(events, "Denials") == 1


def test_each_call_has_its_own_mode() -> None:
    log = Log().replied(call("a"), call("b"), call("c"), call("d"))
    log.decided("c0.d").failed("c0.i1").waited("c0.i1.w").returned("c0.i2")
    log.decided("c1.d").returned("c1.i1").decided("c2.d", "deny", "url_allowlist")
    events = log.decided("c3.d").returned("c3.i1").stepped("tool_call_failure").answered()
    assert [row[3] for row in steps(events)] == ["tool_call_failure", "", "", "", ""]
    assert counts(events) == [2, 3, 4, 1, 1]
    assert items(events, "Failures") == 1
    log = Log().replied(call("a"), call("b")).decided("c0.d", "deny", "arg_schema")
    log.decided("c1.d").returned("c1.i1")
    assert [row[3] for row in steps(log.stepped("schema_mismatch").answered())] == ["schema_mismatch", "", ""]


def test_a_late_denial_stands_in_the_row_and_in_the_list() -> None:
    log = Log().replied(call()).decided("c0.d").returned("c0.i1").decided("c0.i1.d1", "deny", "loop_budget")
    events = log.stepped().ended("loop_budget")
    assert steps(events) == [("1", "deny, loop_budget", "1 (denied)", "")]
    assert (counts(events)[4], items(events, "Denials")) == (1, 1)


def test_a_refused_step_has_a_row() -> None:
    events = Log().decided("d", "deny", "loop_budget").stepped().ended("loop_budget")
    assert [row[:3] for row in steps(events)] == [("1", "deny, loop_budget", "")]
    assert items(events, "Denials") == 1
    assert cells(report(events), "Budgets")[0][1:] == ["0", "10"]


def test_stops_are_shown() -> None:
    log = Log().replied(call(), call()).decided("c0.d").decided("c1.d").stopped("c0.i1").stopped("c1", 0)
    events = log.gave_up("cancelled", "cancelled")
    assert [row[2:] for row in steps(events)] == [("1 (cancelled)", "cancelled"), ("stopped", "cancelled")]
    assert items(events, "Failures") == 1


def test_calls_of_a_reply_that_cannot_be_used_are_shown() -> None:
    events = Log().replied(call("a"), call("b"), problem="cut off").gave_up("llm_invalid_output")
    said = [row[2:] for row in steps(events)]
    assert said == [("1", "llm_invalid_output"), ("not reached", ""), ("not reached", "")]
    assert items(events, "Failures") == 1


def test_a_model_that_cannot_be_asked_has_a_row() -> None:
    log = Log().failed("m1", "TransientModelError").waited("m1.w").failed("m2", "ModelError", "other")
    events = log.gave_up("llm_failure")
    assert [row[2:] for row in steps(events)] == [("2", "llm_failure")]
    assert items(events, "Failures") == 2


def test_a_refusal_is_no_answer() -> None:
    refused = Log().replied(text="no", finish="refusal").gave_up("llm_refusal", "refused")
    assert "->> user" in report(Log().answered()) and "->> user" not in report(refused)


def test_only_a_scripted_run_names_the_command_that_makes_it() -> None:
    live = report(Log(model=ModelName("maker", "model-1")).answered())
    assert "tachograph run" in report(Log().answered())
    assert "tachograph run" not in live and "tachograph replay" in live
    assert "`tachograph" not in report(Log(task="").answered())


def test_a_long_run_is_drawn_in_part() -> None:
    log = Log()
    for _ in range(60):
        log.replied(call()).decided("c0.d").returned("c0.i1").stepped()
    events = log.answered()
    text = report(events)
    assert len(steps(events)) == 61
    assert text.count("model ->> gate") == 40 and "Note over gate" in text


# ---- foreign text ----------------------------------------------------------------------------------------------------


def scene(text: str, place: str) -> list[Event]:
    """Return a run with a foreign text at a place, and a calm call beside it to be confused with."""
    calls = {
        "name of a tool": call(text),
        "value": call("echo", x=text),
        "key": call("echo", **{text: 1}),
        "no JSON": Call("", "echo", None, text, "not JSON"),
    }
    head: dict[str, Any] = {"question": text} if place == "question" else {}
    if place == "model":
        head["model"] = ModelName(text, text)
    if place == "file of a task":
        head["task"] = f"tasks/{text}"
    log = Log(**head).replied(call("probe"), calls.get(place, call("echo")), call("probe"), text=text)
    log.decided("c0.d").returned("c0.i1")
    said = {"reason": {"reason": text}, "entry of a policy": {"place": f"policy/v1.yaml#/{text}"}}
    log.decided("c1.d", "deny", "url_allowlist", **said.get(place, {}))
    failed = {"exception": {"error": text}, "place of a failure": {"place": text}}
    log.decided("c2.d").failed("c2.i1", **{"kind": "other", **failed.get(place, {})}).stepped()
    if place == "problem":
        log.replied(problem=f"<{text}").stepped("llm_invalid_output")
    return log.answered(text if place == "answer" else "It is there.")


PLACES = [
    *"question answer said model reason exception problem value key".split(),
    *("name of a tool", "no JSON", "entry of a policy", "place of a failure", "file of a task"),
]


def formed(parts: list[str], *forms: str) -> list[str]:
    """Return each part in each form, where `@` stands for it."""
    return [form.replace("@", part) for part, form in itertools.product(parts, forms)]


LINE_STARTS = [
    "# ", "- ", "1. ", "> ", "```", "    ", "| ", "---", "===", "<!-- ", "<details>", "- [ ] ", "[^1]: ",
]  # fmt: skip
PAIRS = ["`", "``", "```", "*", "**", "_", "~~", "$", "|", "[", "]", "<", ">", "&", "\\", "![", "](x)"]
LINKS = "https://evil.test/x //evil.test www.evil.test driver@evil.test javascript:alert(1) #1 user/repo#1".split()
BREAKS = ["\n", "\r", "\r\n", "\n\n", "\x0b", "\x0c", "\x85", "\u2028", "\u2029"]
UNSEEN = [
    "\u202e", "\u200b", "\u00ad", "\ufeff", "\ue000", "\U000e0041", "\x00", "\x7f", "\x9b31m", "\x1b[31m",
]  # fmt: skip
DIAGRAM = [
    "end", "participant x", "note over gate: x", "%%{init: {}}%%", "gate ->> t1: allow", "loop", ";", "as",
]  # fmt: skip
HOSTILE: dict[str, list[str]] = {
    "markup": formed(LINE_STARTS, "@x", "x\n@y", "x @", "@"),
    "pairs": formed(PAIRS, "@x@", "@", "x @ y", "`@x@`", "@x\n@y"),
    "links": formed(
        LINKS, "@", "[a](@)", "![a](@)", "<@>", "`@", "[a]: @\n\n[a]", "<a href=@>x</a>", "x@\n@"
    ),
    "breaks": formed(
        BREAKS, "a@b", "x@| 9 | `f` | allow | | 1 (success) | |", "x@## Denials@@- Step 9", "@```@# x"
    ),
    "unseen": formed(UNSEEN, "@", "a@b", "@\n@", "e@@@@"),
    "diagram": formed(DIAGRAM, "@", "x\n    @", "```\n```mermaid\n@", "@: x"),
    "lengths": [
        unit * count
        for unit in ("x", "`", "|", " ", "a\n", "[")
        for count in (0, 1, 64, 65, 160, 161, 30_000)
    ],
}


def blocks(text: str) -> list[Any]:
    """Return what a Markdown reader makes of a report: blocks and what stands inside of lines, without the words."""

    def inside(token: Token) -> list[tuple[str, Any]]:
        kinds = [(child.type, child.attrs.get("href")) for child in token.children or ()]
        return [kind for kind, _ in itertools.groupby(kinds)]

    return [(token.type, token.tag, token.info, inside(token)) for token in MARKDOWN.parse(text)]


def live(text: str) -> list[str]:
    """Return what a forge makes live in a line of prose beside what the parser finds."""
    prose = re.sub(r"^```mermaid\n.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"(?<!`)(`{1,80})(?!`)(.+?)(?<!`)\1(?!`)", " ", prose)
    prose = re.sub(r"&#58;//|&#\d+;", " ", prose)  # behind its colon // begins no address
    return [
        " ".join(re.findall(r"[\[\]<>*~|$@`&]|#\w|//|www\.", line, re.IGNORECASE))
        for line in prose.split("\n")
    ]


def drawn(text: str) -> list[str]:
    """Return the lines of the diagram."""
    return text.partition("sequenceDiagram\n")[2].partition("\n```")[0].split("\n")


def calm(text: str, place: str) -> str:
    """Return a harmless text of the same shape: a question and an answer are shown in as many lines as they have."""
    if place not in ("question", "answer"):
        return "calm" if text else ""
    lines = truncate(text, MAX_ANSWER).replace("\r\n", "\n").split("\n")
    return "\n".join("x" if line.strip(" ") else "" for line in lines)


@cache
def seen(text: str, place: str) -> tuple[str, list[Any], list[str], list[str]]:
    shown = report(scene(text, place))
    # the name of a tool is a label there
    return shown, blocks(shown), live(shown), [] if place == "name of a tool" else drawn(shown)


def forged(text: str, place: str) -> str:
    """Return what a text changes in a report that a calm one does not; "" if nothing."""
    shown, *found = seen(text, place)
    if not shown.replace("\n", "").isprintable():
        return "not printable"
    if not all(map(ARROW.fullmatch, drawn(shown))):
        return "a line of the diagram"
    pairs = zip(("blocks", "live", "diagram"), found, seen(calm(text, place), place)[1:], strict=True)
    return ", ".join(what for what, got, expected in pairs if got != expected)


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_changes_more_than_words(name: str) -> None:
    found = [
        (place, text[:60], what)
        for number, text in enumerate(HOSTILE[name])
        for place in PLACES[number % 3 :: 3]  # each text in a third of the places
        if (what := forged(text, place))
    ]
    assert found == []


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(
        st.sampled_from([*LINE_STARTS, *PAIRS, *LINKS, *BREAKS, *UNSEEN, *DIAGRAM, "x", " "]), max_size=9
    )
)
def test_no_mixture_changes_more_than_words(parts: list[str]) -> None:
    assert [(place, what) for place in PLACES if (what := forged("".join(parts), place))] == []


def test_letters_that_not_each_python_knows_are_none() -> None:
    assert "_" not in "".join(escape_markdown(f"a_{it}_b") for it in "\u1c8a\ua7cb\U00020bb7\U00031350")


def test_the_report_would_be_forged_without_escapes() -> None:
    """The comparison above sees a forgery: a text that stands in a report as it came is found."""
    text = report(scene("calm", "reason"))
    forms: list[Callable[[str], str]] = [
        lambda t: t.replace("calm", "**x**"),
        lambda t: t.replace("calm", "[a](https://evil.test)"),
        lambda t: t.replace("calm", "x\n\n## Denials"),
    ]
    assert all(blocks(form(text)) != blocks(text) for form in forms)


def test_words_of_another_version_are_shown() -> None:
    events = Log().replied(call()).decided("c0.d", "deny", "new_rule").stepped().ended("new_ending")
    assert steps(events) == [("1", "deny, new_rule", "none", "")]
    assert "new_ending" in report(events)
