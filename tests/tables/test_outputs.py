"""The table of texts: report, console, `show`, ledger and trace are built as with a calm text."""

from __future__ import annotations

import io
import json
import re
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tachograph.cli.progress import Progress
from tachograph.evidence.checking.differences.drift import compare
from tachograph.evidence.files.rebuild import rebuild
from tachograph.evidence.queries.show import show
from tachograph.fail.errors import InputError
from tachograph.runtime.agent import Agent
from tests.support import Script, answer, ask, perform, policy_data, probe, tool
from tests.tables import output_texts, outputs
from tests.tables.outputs import Case
from tests.tables.table import rows

MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
# cmark, which forges use, knows no code span behind more than 80 backticks
CODE = re.compile(r"(?<!`)(`{1,80})(?!`)(.+?)(?<!`)\1(?!`)")
FENCED = re.compile(r"^```mermaid\n.*?^```$", re.DOTALL | re.MULTILINE)
REFERENCE = re.compile(r"&#\d+;")
# what a forge makes live in a line of prose, beside what the parser finds; an underscore inside a word is calm
LIVE = re.compile(
    r"[\[\]<>*~|$@`&]|(?<![a-z0-9])_|_(?![a-z0-9])|\\(?=[!-/:-@\[-`{-~]|$)|#\w|://|www\.", re.IGNORECASE
)
# GFM makes a link of this in the text of a paragraph, after its character references were read
MAIL = re.compile(r"[A-Za-z0-9.+_-]+@[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+")
ARROW = re.compile(r"    (participant \w+( as [\w-]+)?|Note over \w+: .*|\w+ (->>|--x) \w+: [\w, -]+)")


AGENT = Agent(Script([]), [tool(), tool("echo")], outputs.POLICY)


def blocks(tokens: list[Token]) -> list[Any]:
    """What a Markdown reader makes of a report: blocks and what is inside of lines, without the words."""
    found: list[Any] = []
    for token in tokens:
        inside = (
            [] if token.children is None else [(t.type, t.tag, t.attrs.get("href")) for t in token.children]
        )
        merged = [
            kind for i, kind in enumerate(inside) if kind[0] != "text" or not i or inside[i - 1][0] != "text"
        ]
        found.append((token.type, token.tag, token.info, merged))
    return found


def live(report: str) -> list[str]:
    """The marks of each line that are no words, no code and no character references."""
    text = FENCED.sub("", report)
    prose = [REFERENCE.sub(" ", CODE.sub(" ", line)) for line in text.split("\n")]
    return [" ".join(LIVE.findall(line)) for line in prose]


def mails(tokens: list[Token]) -> list[str]:
    text = [t.content for token in tokens for t in token.children or () if t.type != "code_inline"]
    return MAIL.findall("\n".join(text))


def outline(text: str) -> list[Any]:
    """Of each line its indentation, its first word and where it is painted."""
    return [
        (len(line) - len(line.lstrip(" ")), *line.split()[:1], re.findall("[\ue000\ue001]", line))
        for line in text.split("\n")
    ]


def paint(text: str, _colour: str) -> str:
    return f"\ue000{text}\ue001"  # no foreign text can bring these characters


def shape(value: Any, text: str) -> Any:
    """The skeleton of JSON data; a key that is the text itself counts as a calm one.

    Which facts a decision has depends on what its rule found first, so they count as one.
    """
    if isinstance(value, dict):
        items = [(key, item if key != "facts" else "") for key, item in value.items()]
        return sorted((outputs.CALM if key == text else key, shape(item, text)) for key, item in items)
    return [shape(item, text) for item in value] if isinstance(value, list) else type(value).__name__


def strings(value: Any) -> set[str]:
    if isinstance(value, dict):
        return {*value, *(found for item in value.values() for found in strings(item))}
    if isinstance(value, list):
        return {found for item in value for found in strings(item)}
    return {value} if isinstance(value, str) else set()


class Shown:
    """Everything that one case leaves or prints."""

    def __init__(self, case: Case, folder: Path) -> None:
        stream = io.StringIO()
        self.state = outputs.record(case, Progress(stream, paint, width=100))
        self.console = stream.getvalue()
        self.files = rebuild(self.state, "state.jsonl")
        self.report = self.files["run_report.md"].decode()
        (folder / "state.jsonl").write_bytes(self.state)
        self.shown = show(folder, as_json=False, paint=paint)
        self.lines = [json.loads(line) for line in self.state.decode().split("\n") if line]
        tokens = MARKDOWN.parse(self.report)
        self.structure = {
            "ledger": [shape(line, case.text) for line in self.lines],
            "trace": [shape(json.loads(self.files["trace.json"]), ""), self.files["trace.json"].count(b"\n")],
            "manifest": shape(json.loads(self.files["manifest.json"]), ""),
            "console": outline(self.console),
            "show": outline(self.shown),
            "blocks": blocks(tokens),
            "live": live(self.report),
            "mails": mails(tokens),
        }


@cache
def _calm(case: Case, folder: Path) -> Shown:
    return Shown(case, folder)


def problems(case: Case, folder: Path) -> list[str]:
    """What a text changed that a calm one does not."""
    calm, got = _calm(outputs.calm(case), folder), Shown(case, folder)
    found = [name for name in got.structure if got.structure[name] != calm.structure[name]]
    for name in ("console", "shown", "report"):
        bare = re.sub("[\ue000\ue001]", "", getattr(got, name))
        if [c for c in bare if c != "\n" and not c.isprintable()]:
            found.append(f"{name} is not printable")
    drift = compare(calm.lines, got.lines)
    if not all(str(one).isprintable() for one in (drift.first, drift.gravest) if one is not None):
        found.append("drift is not printable")
    diagram = got.report.partition("sequenceDiagram\n")[2].partition("\n```")[0]
    if not all(map(ARROW.fullmatch, diagram.split("\n"))):
        found.append("diagram")
    if not kept(case, got):
        found.append("the text was changed in the ledger")
    return found


def kept(case: Case, got: Shown) -> bool:
    """Whether the ledger holds the text as it came."""
    text = case.text
    if case.place == "exception":
        text = text.replace("\0", "0")
    if case.place in ("tool", "model of a reply"):
        text = text[:200]  # names are cut there
    if case.place == "key of a result":
        return True  # a result that does not fit is not kept
    return any(text in found for found in strings(got.lines))


@pytest.mark.parametrize("name", output_texts.TEXTS)
def test_no_text_changes_more_than_words(name: str, tmp_path: Path) -> None:
    found = [
        (case.place, case.text[:60], what)
        for case in rows(outputs.cases(name))
        if (what := problems(case, tmp_path))
    ]
    assert found == []


def test_a_run_is_called_by_a_plain_name() -> None:
    """No text of the table becomes a name, and the refusal shows none of it live."""
    found = []
    for text in rows(
        text for name in output_texts.TEXTS for text in islice(output_texts.TEXTS[name](), 0, None, 9)
    ):
        try:
            AGENT.configure_run("What now?", run_id=text)
        except InputError as refused:
            if not str(refused).isprintable():
                found.append(text)
        else:
            if not re.fullmatch(r"[A-Za-z0-9._-]+", text):
                found.append(text)
    assert found == []


def test_no_tool_is_called_like_a_word_of_the_diagram() -> None:
    """Else the forge shows an error in its place."""
    words = {word.lower() for word in output_texts.DIAGRAM_WORDS}
    found = []
    for name in rows(
        form(word) for word in output_texts.DIAGRAM_WORDS for form in (str.lower, str.upper, str.title)
    ):
        policy = policy_data(tool_registry={"allowed": [name]})
        report = rebuild(perform([ask(probe(name)), answer()], [tool(name)], policy).state, "x")[
            "run_report.md"
        ].decode()
        names = re.findall(r"^    (?:participant |gate ->> )(\w+)", report, re.MULTILINE)
        assert len(names) == 5
        found += [name for name in names if name.lower() in words]
    assert found == []
