"""Texts of the outside corpus, put wherever foreign text enters a run: record, report and terminal stay what
they are.

A payload is asked as the question, said by the model, proposed as a tool, sent as arguments, returned by a tool,
found as the name of a file and given by a person, all in one run. A calm word takes the same way: nothing but
words may differ. The corpus also wants U+2028 and the like escaped in the ledger; here lines are split at LF
alone and RFC 8785 leaves such characters as they are, so that is not asked for.
"""

from __future__ import annotations

import html
import io
import json
import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tachograph import Agent, Answer, LLMOutput, Policy, Tool, ToolCall, VirtualClock
from tachograph.cli.progress import Progress
from tachograph.evidence.checking.differences.drift import compare
from tachograph.evidence.files import manifest as manifests
from tachograph.evidence.files.writer import Writer
from tachograph.evidence.queries.show import show
from tachograph.runtime.policy.call_cost import MAX_TEXT
from tachograph.runtime.resources.mount_path import parse_path
from tachograph.runtime.resources.url import Malformed
from tachograph.runtime.workspace.mounts import Mount
from tests.support import ROOT, Script, well_formed

CALM = "calm"
POLICY = """\
schema: policy/v1
tool_registry: {allowed: [say, ask, look, files]}
url_allowlist: ["https://good.test/"]
sandbox: {mounts: {box: write, books: read}}
loop_budget: {max_iterations: 1000, max_tokens: 50000000, max_tool_calls: 1000, max_result_bytes: 50000000}
cycle_detection: {max_repeats: 3}
on_deny: inform
approval: {required_for: [ask], timeout_s: 60}
"""


def corpus_rows() -> list[dict[str, Any]]:
    """The rows of the corpus; skips where it is not at hand."""
    root = os.environ.get("TACHOGRAPH_CORPORA")
    if not root:
        pytest.skip("TACHOGRAPH_CORPORA is not set: the outside corpus of texts is not at hand")
    text = (Path(root) / "7-output" / "output_injection.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.split("\n") if line]
    assert len(rows) > 400
    return rows


def clean(text: str) -> str:
    """What a record can hold of a text: lone surrogates are no text."""
    return text.encode("utf-8", "replace").decode()


def print_table(table: dict[str, Counter[str]], columns: tuple[str, ...]) -> None:
    """Counts by class."""
    print("\n" + f"{'class':24}" + "".join(f"{column:>18}" for column in columns))
    for name, count in sorted(table.items()):
        print(f"{name:24}" + "".join(f"{count[column]:>18}" for column in columns))


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    """A policy with lines, so that a report has links of its own."""
    folder = tmp_path_factory.mktemp("output")
    (folder / "policy").mkdir()
    (folder / "policy" / "v1.yaml").write_text(POLICY)
    return Policy.load(folder / "policy" / "v1.yaml", root=folder)


# ---- one payload through everything ------------------------------------------------------------------------


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


TEXT = {"type": "string"}
BY_NAME = {"type": "object", "additionalProperties": {"type": "string", "x-resource": "none"}}
SAID = _object(said=TEXT, names={"type": "array", "items": TEXT}, more=BY_NAME)
USAGE = {"input_tokens": 1, "output_tokens": 1}


def _keyed(text: str) -> dict[str, str]:
    """The text as a key too, where a record can hold it as one and the arguments are short enough to be judged."""
    return {text: text} if 3 * len(text) < MAX_TEXT and all(c <= "\uffff" for c in text) else {}


def _tools(text: str) -> list[Tool]:
    def say(args: dict[str, Any], io: Any) -> Any:
        return {"said": text, "more": _keyed(text)}

    def look(args: dict[str, Any], io: Any) -> Any:
        return {"said": io.read(f"{text}/..")}

    def files(args: dict[str, Any], io: Any) -> Any:
        names = io.list("books")
        return {"names": names, "said": "".join(io.read(name) for name in names)}

    path, url = ({"type": "string", "x-resource": kind} for kind in ("path:read", "url"))
    made: list[tuple[str, dict[str, Any], Any]] = [
        ("say", {**_object(text=TEXT, more=BY_NAME), "required": ["text"]}, say),
        ("ask", _object(text=TEXT), say),
        ("look", _object(path=path, url=url), look),
        ("files", _object(), files),
    ]
    return [Tool(name, "", schema, SAID, "read", True, run) for name, schema, run in made]


def _answer(text: str) -> str:
    """The text as an answer: a blank one is none, and such a run ends otherwise."""
    return text if text.strip() else CALM


def _script(text: str) -> list[LLMOutput]:
    calls = [
        ToolCall("say", {"text": text, "more": _keyed(text)}),
        ToolCall(text, {"text": text}),
        ToolCall("say", text),
        ToolCall("look", {"path": f"../{text}"}),
        ToolCall("look", {"url": f"https://evil.test/{text}"}),
        ToolCall("ask", {"text": text}),
        ToolCall("look", {}),
        ToolCall("files", {}),
    ]
    return [
        LLMOutput(text=text, tool_calls=calls, model=text, raw={"as": text}, usage=USAGE),
        LLMOutput(text=text, final_answer=_answer(text), model=text, usage=USAGE),
    ]


class _Ran:
    """A run with `text` everywhere, its four files in memory, and what a person saw of it."""

    def __init__(self, text: str, policy: Policy, books: Path) -> None:
        self.text = text
        self.file = self._put_file(books)
        agent = Agent(Script(_script(text)), _tools(text), policy, mounts={"books": Mount(books, "books")})
        config = agent.configure_run(
            text, run_id="test-run", clock=VirtualClock(), approve=lambda _: Answer("allow", text, text)
        )
        screen = io.StringIO()
        writer = Writer(None)
        self.result = agent.execute(
            config, on_line=writer.line, listeners=[Progress(screen, lambda text, _: text, 100)]
        )
        self.manifest = manifests.render(writer.finish(()))
        files = writer.contents()
        self.state, self.trace = files["state.jsonl"], files["trace.json"]
        self.report = files["run_report.md"].decode()
        self.screen = screen.getvalue()
        self.lines, self.spans = well_formed(self.state)

    def _put_file(self, books: Path) -> str:
        """The only file of the mount, holding the text; named as the text where a path can name that."""
        for old in books.iterdir():
            old.unlink()
        try:
            parts = parse_path(f"books/{self.text}").parts
        except Malformed:
            parts = ()
        file = books / (parts[0] if len(parts) == 1 else CALM)
        file.write_text(self.text, encoding="utf-8", newline="")
        return file.name


class _Runs(NamedTuple):
    calm: _Ran
    of: dict[str, tuple[dict[str, Any], _Ran]]


@pytest.fixture(scope="module")
def runs(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> _Runs:
    """A run for each payload of the corpus, and a calm one. None of them raises."""
    rows = {clean(row["payload"]): row for row in corpus_rows()}
    books = tmp_path_factory.mktemp("books")
    made = {text: (row, _Ran(text, policy, books)) for text, row in rows.items()}
    return _Runs(_Ran(CALM, policy, books), made)


def _misses(runs: _Runs, look: Callable[[_Ran, _Ran], list[str]]) -> list[tuple[str, str]]:
    """What `look` complains of in any run; it has nothing to say against the calm one."""
    assert look(runs.calm, runs.calm) == []
    return [(row["id"], line) for row, ran in runs.of.values() for line in look(ran, runs.calm)]


# ---- ledger and trace --------------------------------------------------------------------------------------


def _round_trip(ran: _Ran, calm: _Ran) -> list[str]:
    """Every place gives the payload back as it was, and nothing else differs from the calm run."""
    run, step, last, end = ran.lines
    output, calls, results = step["llm_output"], step["intended_tool_calls"], step["tool_results"]
    approved = next(d for d in step["policy_decisions"] if "approval" in d)["approval"]
    there = {
        "question": run["question"],
        "text": output["text"],
        "raw": output["raw"]["as"],
        "model": output["model"] + ran.text[200:],
        "argument": calls[0]["arguments"]["text"],
        "tool name": calls[1]["name"] + ran.text[200:],
        "result": results[0]["result"]["said"],
        "approved by": approved["by"],
        "approved why": approved["why"],
        "late path": results[6]["attempts"][0]["checks"][0]["path"].removesuffix("/.."),
        "file": results[7]["result"]["said"],
    }
    answers = {
        "last reply": last["llm_output"]["final_answer"],
        "answer": end["final_answer"],
        "returned": ran.result.answer,
    }
    out = [f"{place}: {value!r:.80}" for place, value in there.items() if value != ran.text]
    out += [f"{place}: {value!r:.80}" for place, value in answers.items() if value != _answer(ran.text)]
    if not calls[0]["arguments"]["more"] == results[0]["result"]["more"] == _keyed(ran.text):
        out.append("keys")
    if results[7]["result"]["names"] != [f"books/{ran.file}"]:
        out.append("file name")
    said, calm_said = (
        [(d["decision"], d["rule_id"]) for d in each.lines[1]["policy_decisions"]] for each in (ran, calm)
    )
    if said != calm_said or ran.state.count(b"\n") != calm.state.count(b"\n"):
        out.append("other decisions, or other lines")
    return out


def _trace(ran: _Ran, calm: _Ran) -> list[str]:
    spans, calm_spans = (
        json.loads(each.trace)["resourceSpans"][0]["scopeSpans"][0]["spans"] for each in (ran, calm)
    )
    out = []
    if [span["name"] for span in spans] != [span["name"] for span in calm_spans]:
        out.append("other spans")
    if ran.trace.count(b"\n") != calm.trace.count(b"\n"):
        out.append("other lines")
    places = []
    for span, calm_span in zip(spans, calm_spans, strict=False):
        for item, calm_item in zip(span["attributes"], calm_span["attributes"], strict=True):
            if CALM in str(calm_item["value"].get("stringValue", "")):
                places.append(item["key"])
                exact = calm_item["value"]["stringValue"] == CALM
                if exact and item["value"]["stringValue"] not in (ran.text, ran.text[:200]):
                    out.append(item["key"])
    if places.count("gen_ai.response.model") != 2 or "agent.tool_name" not in places:
        out.append("no payload in the trace")
    manifest, calm_manifest = json.loads(ran.manifest), json.loads(calm.manifest)
    return out if manifest.keys() == calm_manifest.keys() else [*out, "manifest"]


def test_ledger_and_trace_give_every_payload_back(runs: _Runs) -> None:
    table: dict[str, Counter[str]] = {}
    for row, ran in runs.of.values():
        count = table.setdefault(row["class"], Counter())
        count["payloads"] += 1
        count["as a file name"] += ran.file == ran.text
    print_table(table, ("payloads", "as a file name"))
    assert sum(count["payloads"] for count in table.values()) > 400
    assert not _misses(runs, _round_trip)
    assert not _misses(runs, _trace)


# ---- the report --------------------------------------------------------------------------------------------

DIAGRAM = re.compile(r"```mermaid\n.*?\n```\n", re.S)
CODE = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)")
# a rule with its policy; ` ` is what is left of the rule once code is taken out
OUR_LINK = re.compile(r"\[(?: |`policy/v1\.yaml#[a-z_/]+`)\]\(\.\./\.\./\.\./policy/v1\.yaml\)")
# links, images, markup, footnotes, formulas and addresses, as they are written
ALIVE = re.compile(r"\]\(|\]\[|!\[|\[\^|<[A-Za-z/!?]|://|www\.|@|\$|&(?!#\d+;)")
# forges look for mail addresses after character references are read
MAIL = re.compile(r"[\w.+-]@[\w-]")


def alive(report: str) -> list[str]:
    """What a forge would bring to life in a report, but for its own links to the policy."""
    prose = OUR_LINK.sub("", CODE.sub(" ", DIAGRAM.sub("", report)))
    return ALIVE.findall(prose) + MAIL.findall(html.unescape(prose))


def raw(text: str) -> str:
    """The characters of a text that a terminal would not print as they are, line feeds aside."""
    return ascii("".join(sorted({c for c in text if c != "\n" and not c.isprintable()})))[1:-1]


def _blocks(report: str) -> list[str]:
    """What each line begins; lines of a quote or of a diagram count as one."""
    found = [
        f"row {line.count('|')}"
        if line.startswith("|")
        else re.match(r"#+ .*|- Step \d+, `\w+`|\S+| *", line).group()  # type: ignore[union-attr]
        for line in DIAGRAM.sub("diagram\n", report).split("\n")
    ]
    return [item for i, item in enumerate(found) if item != ">" or found[i - 1] != ">"]


def _shape(ran: _Ran, calm: _Ran) -> list[str]:
    out = [] if _blocks(ran.report) == _blocks(calm.report) else ["blocks of the report"]
    drawn, calm_drawn = (DIAGRAM.findall(each.report) for each in (ran, calm))
    if len(drawn) != 1 or drawn[0].count("\n") != calm_drawn[0].count("\n"):
        out.append("the diagram")
    return [*out, raw(ran.report)] if raw(ran.report) else out


def test_the_report_keeps_its_shape(runs: _Runs) -> None:
    assert not _misses(runs, _shape)


def test_nothing_in_the_report_comes_alive(runs: _Runs) -> None:
    assert not _misses(runs, lambda ran, calm: alive(ran.report))


def test_a_page_shows_every_payload_as_text(runs: _Runs) -> None:
    from tachograph.views.model import _run
    from tachograph.views.page import run_page
    from tests.views.reading import must_be_sound

    for _row, ran in runs.of.values():
        page = run_page(_run("runs/output/corpus", ran.lines, "0" * 64, [], ROOT))
        assert must_be_sound(page).all("script") == [{}]


def test_a_markdown_parser_sees_the_same_blocks(runs: _Runs) -> None:
    parser = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table")

    def parsed(report: str) -> list[Any]:
        """The tree without words; what a quote holds must be plain paragraphs."""
        out: list[Any] = []
        quoted = 0
        for token in parser.parse(report):
            inside = [
                c.type for c in token.children or () if c.type not in ("text", "text_special", "softbreak")
            ]
            quoted -= token.type == "blockquote_close"
            if not quoted:
                out.append((token.type, inside))
            elif inside or token.type not in ("paragraph_open", "inline", "paragraph_close"):
                out.append(f"quoted {token.type} {inside}")
            quoted += token.type == "blockquote_open"
        return out

    wanted = parsed(runs.calm.report)
    assert (
        sum(inside.count("link_open") for _, inside in wanted) == len(OUR_LINK.findall(runs.calm.report)) > 5
    )
    assert not _misses(runs, lambda ran, calm: [] if parsed(ran.report) == wanted else ["another tree"])


# ---- terminals ---------------------------------------------------------------------------------------------


def test_no_payload_reaches_a_terminal_raw(runs: _Runs, tmp_path: Path) -> None:
    def plain(text: str, _colour: str) -> str:
        return text

    def shown(ran: _Ran) -> str:
        (tmp_path / "state.jsonl").write_bytes(ran.state)
        assert json.loads(show(tmp_path, as_json=True, paint=plain)) == ran.lines
        return show(tmp_path, as_json=False, paint=plain)

    def look(ran: _Ran, calm: _Ran) -> list[str]:
        text = shown(ran)
        out = [] if text.count("\n") == calm_lines else ["lines of show"]
        if ran.screen.count("\n") != calm.screen.count("\n"):
            out.append("lines of progress")
        drift = str(compare(calm.lines, ran.lines).first)
        out += ["lines of a drift"] * drift.count("\n")
        return [*out, *filter(None, map(raw, (text, ran.screen, drift)))]

    calm_lines = shown(runs.calm).count("\n")
    assert not _misses(runs, look)
