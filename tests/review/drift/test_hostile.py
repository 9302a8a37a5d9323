"""Whatever models, tools and names say, drift is told in the same shape: at a terminal, on a page, to a forge."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import islice
from typing import Any

import pytest

from tachograph.evidence.checking.differences.compare import Findings, note_drift
from tachograph.evidence.checking.differences.found_cause import GUESS, FoundCause
from tachograph.pages.render import MARK
from tachograph.review.drift.annotations import commands, summary
from tachograph.review.drift.page import drift_page
from tachograph.review.drift.report import DriftReport, drift_report
from tachograph.review.drift.text import lines
from tests.corpora.test_output_corpus import alive, raw
from tests.support import ROOT
from tests.tables.output_texts import TEXTS

CALM = "calm"
DECLARED = ["doctype html", MARK.removeprefix("<!--").removesuffix("-->")]
# what a build service would take for a command, wherever it stands
SERVICE = re.compile(r"##\w*\[")
SERVICES = [
    "::error::x",
    "x\n::add-mask::y",
    "  ::stop-commands::x",
    "##[command]x",
    "##vso[task.setvariable]x",
    "%0A::error::x",
    ",title=x::y",
    "%25",
    "%",
]
# every third, since each goes through everything
TABLE = [*(text for made in TEXTS.values() for text in islice(made(), 0, None, 3)), *SERVICES]


def _step(text: str, side: str) -> dict[str, Any]:
    call = {"id": text, "name": text, "arguments": {text: text, "side": side}}
    decision = {"id": text, "decision": text, "rule_id": f"{text}{side}", "at": text, "reason": text}
    return {
        "type": "step",
        "step_index": 1,
        "intended_tool_calls": [call],
        "policy_decisions": [decision],
        "tool_results": [
            {"id": text, "attempts": [], "result": {"text": f"{'x' * 90}{text}{side}", text: side}}
        ],
        "llm_output": {"text": text, "final_answer": f"{text}{side}"},
        text: side,
    }


def told(text: str) -> DriftReport:
    """A check of two runs in which everything says `text`."""
    found = []
    for number in (1, 2):
        item = Findings(
            f"runs/{text}/{number}", moved={text: "is new"}, missed=[text], accept=f"tachograph accept {text}"
        )
        note_drift(
            item, [{"type": "run", "question": text}, _step(text, "")], [{"type": "run"}, _step(text, "!")]
        )
        item.lines += [f"said: {text}", f"input moved: {text}"]
        item.causes = [FoundCause((text,), GUESS, (f"-{text}", f"+{text}"))]
        found.append(item)
    return drift_report(found, ROOT, index=[f"runs: {text}"], secrets=[f"{text}: line 1"], given_root=text)


@pytest.fixture(scope="module")
def reviews() -> dict[str, DriftReport]:
    assert len(TABLE) > 500
    return {text: told(text) for text in dict.fromkeys(TABLE)}


def test_a_terminal(reviews: dict[str, DriftReport]) -> None:
    odd = []
    ours = re.compile(r"check: |[A-Za-z-]+  |  |accept it: |accept takes |nothing ")
    for text, item in reviews.items():
        shown = list(lines(item, lambda word, _colour: word))
        whole = "\n".join(shown)
        if raw(whole) or SERVICE.search(whole) or any(line.lstrip().startswith("::") for line in shown):
            odd.append(text)
        if any(not ours.match(line) or "\n" in line for line in shown):
            odd.append(text)
    assert odd == []


class Tree(HTMLParser):
    """The elements of a page outside of what is shown side by side, and every attribute there is."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: set[tuple[str, str | None]] = set()
        self.declared: list[str] = []
        self.text = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("del", "ins", "span"):
            self.tags.append(tag)
        self.attributes.update(attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("del", "ins", "span"):
            self.tags.append(f"/{tag}")

    def handle_decl(self, decl: str) -> None:
        self.declared.append(decl)

    def handle_comment(self, data: str) -> None:
        self.declared.append(data)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page(reviews: dict[str, DriftReport]) -> None:
    calm = Tree(drift_page(told(CALM)))
    assert calm.tags.count("article") == 4 and calm.declared == DECLARED
    odd = []
    for text, item in reviews.items():
        made = drift_page(item)
        tree = Tree(made)
        same = (tree.tags, tree.attributes, tree.declared) == (calm.tags, calm.attributes, calm.declared)
        if not same or raw(made) or "<script" in made:
            odd.append(text)
    assert odd == []


def test_a_page_holds_the_policy_for_itself_and_can_be_used_by_keyboard() -> None:
    made = drift_page(told(CALM))
    tree = Tree(made)
    policy = dict(tree.attributes)["content"]
    contents = [value for name, value in tree.attributes if name == "content"]
    (policy,) = [value for value in contents if value and value.startswith("default-src")]
    style = made.partition("<style>")[2].partition("</style>")[0]
    import base64
    import hashlib

    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    links = {value for name, value in tree.attributes if name == "href"}
    ids = {value for name, value in tree.attributes if name == "id"}
    assert links == {"#run-1", "#run-2"} and {str(link)[1:] for link in links} == ids
    names = {name for name, _ in tree.attributes}
    assert names == {
        "lang",
        "charset",
        "http-equiv",
        "content",
        "name",
        "href",
        "id",
        "class",
        "tabindex",
        "aria-label",
    }
    assert not re.search(r"url\(|@import|https?:|//", made.replace("</", ""))
    assert made.count("<pre ") == made.count('<pre tabindex="0" aria-label=')
    assert "prefers-color-scheme: dark" in style and "color-scheme: light dark" in style


COMMAND = re.compile(r"::error ([^:]*)::(.*)")


def _decoded(text: str) -> str:
    """As the runner reads it: `%25` last."""
    pairs = (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%"))
    for code, character in pairs:
        text = text.replace(code, character)
    return text


def test_annotations(reviews: dict[str, DriftReport]) -> None:
    odd = []
    for text, item in reviews.items():
        for line in commands(item, "sub/"):
            match = COMMAND.fullmatch(line)
            if match is None or raw(line) or re.search("%(?!25|0A|3A|2C)", line):
                odd.append(text)
                continue
            named = [entry.partition("=") for entry in match[1].split(",")]
            if [key for key, _, _ in named] not in (["title"], ["file", "line", "title"]):
                odd.append(text)
    assert odd == []
    first = COMMAND.fullmatch(commands(told("100%, a:b"))[0])
    assert first is not None
    assert _decoded(first[1].split(",")[0]) == "file=runs/100%, a:b/1/state.jsonl"
    assert "call: 100%, a:b " in _decoded(first[2])


def test_at_most_ten_annotations_and_the_last_says_how_many_more() -> None:
    item = told(CALM)
    many = DriftReport(40, item.runs * 20, item.causes, item.index, item.secrets)
    found = commands(many)
    assert len(found) == 10
    assert found[-1].startswith("::error title=and 33 more::33 more findings stand in the log")
    assert len(commands(item)) == 4


def test_a_summary(reviews: dict[str, DriftReport]) -> None:
    parser = pytest.importorskip("markdown_it").MarkdownIt("commonmark", {"html": True}).enable("table")

    def parsed(text: str) -> list[Any]:
        shown = ("text", "text_special", "softbreak", "code_inline")
        return [
            (token.type, token.content if token.type == "html_block" else "") for token in parser.parse(text)
        ] + [
            child.type
            for token in parser.parse(text)
            for child in token.children or ()
            if child.type not in shown
        ]

    def without_rows(text: str) -> str:
        # texts of several lines have a row for each line, which is what they are shown by
        return re.sub(r"(?m)^  - (then|now): .*\n", "", text)

    def blocks(text: str) -> list[Any]:
        kept = [item for item in parsed(without_rows(text)) if not (isinstance(item, tuple) and item[1])]
        return kept

    wanted = blocks(summary(told(CALM)))
    odd = []
    for text, item in reviews.items():
        made = summary(item)
        ours = re.sub(r"<details><summary>|</summary>|</details>", "", made)
        if blocks(made) != wanted or alive(ours) or raw(made):
            odd.append(text)
    assert odd == []
