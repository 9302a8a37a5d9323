"""`policy diff` shown: whatever text a policy, a tool or a run brings, it forges nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from markdown_it import MarkdownIt

from tachograph.evidence.queries.flips import Counterfactual, Flip
from tachograph.evidence.queries.wrap import columns
from tachograph.review.compare.policy_compare import Change, Comparison, Setting, Witness
from tachograph.review.plan.markdown import MOST, markdown_of
from tachograph.review.plan.plan import GROUPS, Plan, RunChange
from tachograph.review.plan.text import AT_A_TERMINAL, event_of, lines_of, place_of
from tachograph.runtime.formats.escape import escape_terminal
from tests.tables.output_texts import TEXTS

CALM = "calm"
MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def _plan(text: str) -> Any:
    """A plan with a foreign text wherever one can stand."""
    side = {"decision": "deny", "rule_id": text, "reason": text, "at": text, "facts": {"x": text}}
    other = {**side, "decision": "allow"}
    witness = Witness(text, {"x": text}, {text: 1}, {"target": text}, 7, side, other)
    changes = [
        Change(kind, text, text, text, witness) for kind in ("widening", "tightening", "needs approval")
    ]
    setting = Setting(text, text, [text], text, text)
    runs = []
    for group in GROUPS:
        flip = Flip(group, 3, text, text, side, None)
        found = Counterfactual(text, text, text, 2, flip, None, 5)
        if group == "goes another way":
            found = Counterfactual(text, text, text, 2, None, text, 5)
        elif group == "cannot tell":
            found = Counterfactual(text, text, text, undecided=text)
        runs.append(RunChange(text, group, None if group == "not under this policy" else found))
    again = f"tachograph policy diff {text}"
    return Plan(text, text, (text, text), Comparison(tuple(changes), (setting,), (text,)), runs, again)


def _outline(text: str) -> list[Any]:
    """What a Markdown reader makes of it, without the words."""
    found: list[Any] = []
    for token in MARKDOWN.parse(text):
        inside = [(t.type, t.tag, t.attrs.get("href")) for t in token.children or ()]
        kept = [
            kind for i, kind in enumerate(inside) if kind[0] != "text" or not i or inside[i - 1][0] != "text"
        ]
        html = token.content if token.type == "html_block" else ""
        found.append((token.type, token.tag, html, kept))
    return found


def _texts(name: str) -> Iterator[str]:
    every = [
        text for text in dict.fromkeys(TEXTS[name]()) if not any("\ud800" <= c <= "\udfff" for c in text)
    ]
    yield from every[:: max(len(every) // 25, 1)]


@pytest.mark.parametrize("name", TEXTS)
def test_no_text_forges_anything_in_a_comment(name: str) -> None:
    calm = markdown_of(_plan(CALM))
    wanted, fences = _outline(calm), calm.count("\n")
    for text in _texts(name):
        if not text.strip():
            continue
        made = markdown_of(_plan(text))
        assert made.count("\n") == fences, text
        assert _outline(made) == wanted, text
        assert escape_terminal(made.replace("\n", "")) == made.replace("\n", ""), text


@pytest.mark.parametrize("name", TEXTS)
def test_no_text_forges_anything_at_a_terminal(name: str) -> None:
    for width in (80, 40):
        for text in _texts(name):
            lines = list(lines_of(_plan(text), width, lambda words, _colour: words))
            assert all(sum(map(columns, line)) <= width for line in lines), text
            assert all(escape_terminal(line) == line for line in lines), text
            heads = [line for line in lines if line and not line.startswith(" ")]
            assert heads[0].startswith("policy diff: 1 widening, 1 needs"), text
            # a line of foreign text is never at the margin
            assert all(head.split("  ")[0].split(":")[0] in _HEADS for head in heads[1:] if head), (
                text,
                heads,
            )


@pytest.mark.parametrize("text", ["::error::x", "##[command]x", "##vso[task.setvariable]x"])
def test_no_text_is_a_command_to_a_build_service(text: str) -> None:
    for width in (200, 40):
        lines = list(lines_of(_plan(text), width, lambda words, _colour: words))
        assert not any(line.lstrip().startswith("::") or re.search(r"##\w*\[", line) for line in lines)


_HEADS = {
    *("widening", "tightening", "needs approval", "goes another way", "cannot tell", "not under this policy"),
    *("settings that decide no call", "untold", "recorded runs", "1 run the same"),
    *("whether anything else is widened cannot be told; that counts as if it were",),
}


def test_a_comment_stays_below_what_a_forge_takes() -> None:
    few = _plan("|" * 500)
    runs = [RunChange(f"runs/x/{i}", "same") for i in range(5000)]
    many = Plan(few.old, few.new, few.versions, few.comparison, few.runs * 800 + runs)
    text = markdown_of(many)
    assert len(text) <= MOST and "more" in text and text.count("<details>") == text.count("</details>")
    assert text.startswith("### Policy diff: 1 widening")


def _many(kind: str, number: int) -> Plan:
    side = {"decision": "deny", "rule_id": "url_allowlist", "at": "policy/v1.yaml:6"}
    changes = [
        Change(
            kind,
            "url_allowlist",
            f"fetch may reach https://h{i}.test/",
            f"policy/v1.yaml:{i}",
            Witness(
                "fetch", {"url": f"https://h{i}.test/"}, {}, None, None, side, {**side, "decision": "allow"}
            ),
        )
        for i in range(number)
    ]
    settings = [Setting(f"retry/{i}", 1, 2, "policy/v1.yaml:30", None) for i in range(number)]
    untold = [f"untold {i}" for i in range(number)]
    runs = [
        RunChange(f"runs/x/{i}", "cannot tell", Counterfactual(f"runs/x/{i}", "", "", undecided="gone"))
        for i in range(number)
    ]
    return Plan("a", "b", ("x", "y"), Comparison(tuple(changes), tuple(settings), tuple(untold)), runs)


@pytest.mark.parametrize("kind", ["widening", "tightening", "needs approval"])
def test_of_thousands_of_entries_a_few_are_shown_and_the_others_counted(kind: str) -> None:
    plan = _many(kind, 2000)
    shown = list(lines_of(plan, 80, lambda words, _colour: words, AT_A_TERMINAL))
    named = kind if kind == "needs approval" else f"{kind}s"
    for what in (named, "settings", "untold", "runs"):
        assert f"and 1980 more {what}, --json has all" in shown
    assert sum(line.startswith(f"{kind}  url_allowlist") for line in shown) == AT_A_TERMINAL
    assert len("\n".join(shown)) < 10_000
    piped = "\n".join(lines_of(plan, 100, lambda words, _colour: words))
    assert f"and 1800 more {named}, --json has all" in piped and len(piped) < 65_000
    text = markdown_of(plan)
    assert len(text) < 65_000 and len(text.encode()) < 65_000 and "more, `--json` has all" in text
    assert len(plan.to_dict()["policies"]["changes"]) == 2000


def test_all_are_shown_where_there_are_few() -> None:
    shown = "\n".join(
        lines_of(_many("widening", AT_A_TERMINAL), 80, lambda words, _colour: words, AT_A_TERMINAL)
    )
    assert " more " not in shown and f"h{AT_A_TERMINAL - 1}.test" in shown


def test_a_budget_is_asked_before_the_model_is() -> None:
    assert (
        place_of(Flip("tightening", 2, "d", None, None, None)) == "step 2, before the model is asked: budget"
    )
    assert place_of(Flip("tightening", 4, "d0", "fetch", None, None)) == "step 4 d0 fetch"


@pytest.mark.parametrize(("size", "said"), [(1, "a result of 1 byte"), (2, "a result of 2 bytes")])
def test_one_byte_is_no_plural(size: int, said: str) -> None:
    assert event_of(Witness("fetch", {}, {}, None, size, None, {})).endswith(said)


@pytest.mark.parametrize(
    ("group", "code", "equal"),
    [
        *(("same", 0, True), ("not under this policy", 0, True), ("tightening", 0, False)),
        *(("goes another way", 0, False), ("needs approval", 0, False)),
        *(("widening", 1, False), ("cannot tell", 1, False)),
    ],
)
def test_what_one_run_decides(group: str, code: int, equal: bool) -> None:
    """The two policies look alike: a run with overlays of its own may yet show what they open."""
    plan = Plan("a", "b", ("x", "y"), Comparison((), (), ()), [RunChange("r", group)])
    assert (plan.code, plan.is_equal) == (code, equal)
    assert (plan.closing is not None) == (group == "cannot tell")
    untold = Plan("a", "b", ("x", "y"), Comparison((), (), ("who knows",)))
    assert untold.code == 1 and untold.closing is not None and not untold.is_equal
