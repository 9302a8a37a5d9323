"""Texts of the outside corpus as names of runs, as a tool's advice to the model, and all in one record on disk;
and the few texts that are none, with lone surrogates in them.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Answer, InputError, OutputError, Policy, ToolCall, record
from tachograph.evidence.checking.verify import verify
from tachograph.evidence.files.rebuild import rebuild
from tachograph.evidence.queries.show import show
from tachograph.runtime.formats.canonical_json import encode
from tachograph.runtime.setup import run_line
from tests.corpora.test_output_corpus import clean, corpus_rows, print_table
from tests.support import FILES, Ran, Script, answer, ask, perform, policy_data, probe, tool, tree

CLEAN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
ROOMY = {"max_iterations": 1000, "max_tokens": 10**8, "max_tool_calls": 1000, "max_result_bytes": 10**8}


def _agent(*replies: Any, tools: Any = (), **sections: Any) -> Agent:
    return Agent(
        Script(replies), [tool("echo"), *(tools or [tool()])], Policy.from_dict(policy_data(**sections))
    )


# ---- names of runs -----------------------------------------------------------------------------------------


def test_a_run_goes_by_a_clean_name_or_is_refused() -> None:
    table: dict[str, Counter[str]] = {}
    unclean = []
    for row in corpus_rows():
        if "run_id" not in row["sinks"]:
            continue
        count = table.setdefault(row["class"], Counter())
        count["names"] += 1
        try:
            result = _agent(answer()).run("What now?", run_id=row["payload"])
        except InputError as error:
            count["refused"] += 1
            assert "\n" not in str(error), row["id"]
            continue
        count["accepted"] += 1
        if not CLEAN_NAME.fullmatch(result.run_id):
            count["unclean"] += 1
            unclean.append((row["id"], result.run_id[:40]))
    print_table(table, ("names", "accepted", "refused", "unclean"))
    assert sum(count["names"] for count in table.values()) > 300
    assert sum(count["accepted"] for count in table.values()) > 20
    assert not unclean


def test_no_name_of_a_run_leads_out_of_its_folder(tmp_path: Path) -> None:
    for number, row in enumerate(row for row in corpus_rows() if row["class"] == "run-id"):
        here = tmp_path / str(number)
        out = here / "runs" / "one"
        try:
            record(_agent(answer()), "What now?", out, run_id=row["payload"])
        except InputError:
            assert not out.exists(), row["id"]
        found = set(tree(here)) if here.exists() else set()
        assert found <= {"runs", "runs/one", *(f"runs/one/{file}" for file in FILES)}, row["id"]


def test_a_record_in_place_is_not_overwritten_by_a_run_of_another_name(tmp_path: Path) -> None:
    record(_agent(answer("first")), "What now?", tmp_path / "one", run_id="latest")
    before = tree(tmp_path)
    for name in ("other", "Latest", "latest.1"):
        with pytest.raises(OutputError):
            record(_agent(answer("second")), "What now?", tmp_path / "one", run_id=name)
    assert tree(tmp_path) == before


# ---- a tool's result is data ---------------------------------------------------------------------------------


def _after(said: str) -> Ran:
    """A run whose first result is `said`, and then calls of which some are denied."""
    replies = [
        ask(probe()),
        ask(probe("echo", n=1), probe("write", path="box/x"), probe("rm"), probe(url="https://evil.test/")),
        ask(
            probe(path="../x"), probe(n=10), probe(target="books/x"), probe("echo", url="https://good.test/")
        ),
        answer(),
    ]
    sections: dict[str, Any] = {
        "on_deny": "inform",
        "loop_budget": ROOMY,
        "approval": {"required_for": ["echo"], "timeout_s": 9},
    }
    return perform(
        replies,
        [tool(run=lambda args, io: {"said": said})],
        policy_data(**sections),
        approve=lambda asked: Answer("allow" if asked.call.arguments.value() == {"n": 1} else "deny"),
    )


def test_decisions_do_not_depend_on_what_a_tool_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_line, "new_nonce", lambda: "0" * 32)  # part of a question to a person
    calm = _after("calm")
    wanted = encode([step["policy_decisions"] for step in calm.steps])
    assert len({d["rule_id"] for d in calm.decisions}) >= 5
    rows = [row for row in corpus_rows() if row["class"] == "prompt-injection"]
    assert len(rows) > 20
    for row in rows:
        ran = _after(row["payload"])
        assert encode([step["policy_decisions"] for step in ran.steps]) == wanted, row["id"]
        # what a tool said stands as its result and nowhere else, so that a reader knows where it came from
        assert ran.results[0]["result"] == {"said": row["payload"]}
        ran.results[0]["result"] = calm.results[0]["result"]
        assert row["payload"].strip() not in str(ran.lines), row["id"]


# ---- all in one record on disk -----------------------------------------------------------------------------


def test_one_record_of_all_payloads(tmp_path: Path) -> None:
    texts = sorted({clean(row["payload"]) for row in corpus_rows()})
    left = list(texts)
    usage = {"input_tokens": 1, "output_tokens": 1}
    replies = [ask(probe(), text=text, usage=usage) for text in texts]
    said = tool(run=lambda args, io: {"said": left.pop(0)})
    out = tmp_path / "runs" / "texts"
    result = record(_agent(*replies, answer(), tools=[said], loop_budget=ROOMY), "All?", out, run_id="all")
    assert result.ok and sorted(path.name for path in out.iterdir()) == sorted(FILES)
    state = (out / "state.jsonl").read_bytes()
    assert state.count(b"\n") == len(texts) + 3
    assert state.decode("utf-8").count("\n") == len(texts) + 3
    assert verify(out, tmp_path) == []
    shown = show(out, as_json=False, paint=lambda text, _colour: text)
    assert shown.count("\n") + 1 == 2 + 4 * len(texts) + 1 + 3
    assert all(c == "\n" or c.isprintable() for c in shown)


# ---- what is no text -----------------------------------------------------------------------------------------


def test_lone_surrogates_end_in_a_record_wherever_they_come_from() -> None:
    payloads = [row["payload"] for row in corpus_rows() if clean(row["payload"]) != row["payload"]]
    assert len(payloads) >= 3
    for text in payloads:
        with pytest.raises(InputError):
            _agent(answer()).run(text)
        for reply, ending in (
            (answer(raw={"as": text}), ("failure_mode_terminal", "llm_invalid_output")),
            (ask(ToolCall("probe", {"n": text})), ("failure_mode_terminal", "schema_mismatch")),
            (ask(ToolCall("probe", {text: 1})), ("failure_mode_terminal", "schema_mismatch")),
            (ask(ToolCall("probe", text)), ("failure_mode_terminal", "schema_mismatch")),
            (ask(ToolCall(text, {})), ("policy_denial_terminal", None)),
        ):
            ran = perform([reply])
            assert (ran.result.ending, ran.result.mode) == ending
        assert perform([answer(text)]).result.answer == clean(text)
        ran = perform([ask(probe())], [tool(run=lambda args, io, text=text: {"said": text})])
        assert ran.result.mode == "tool_output_invalid"


class _Text(str):
    """Text with more to it than its characters, as some libraries hand it out."""


@pytest.mark.parametrize("way", ["read", "write", "list", "get"])
@pytest.mark.parametrize(
    "text", ["\ud83d", "box/\udca9", "https://good.test/\ud800", _Text("nowhere/x")], ids=ascii
)
def test_what_a_tool_asks_its_io_for_ends_in_a_record(way: str, text: str) -> None:
    """What a tool read may hold an escaped surrogate, and lead it to a path or a URL with one."""
    more = ("x",) if way == "write" else ()
    led = tool(run=lambda args, io: {"said": str(getattr(io, way)(text, *more))})
    ran = perform([ask(probe()), answer()], [led])
    assert not ran.result.ok and ran.results[0]["status"] in ("denied", "failed")


# what begins a statement of a sequence diagram, in any case of letters
DIAGRAM_WORDS = (
    "alt and accTitle activate actor autonumber box break create critical deactivate destroy details else End "
    "LOOP link links Note opt option over par participant properties rect sequenceDiagram title"
).split()


def test_a_tool_named_like_a_word_of_the_diagram_is_drawn_under_another() -> None:
    for word in DIAGRAM_WORDS:
        ran = perform([ask(probe(word))])
        report = rebuild(ran.state, "state.jsonl")["run_report.md"].decode()
        drawn = re.findall(r"^    participant (\w+)( as [\w-]+)?$", report, re.M)
        assert len(drawn) == report.count("    participant ") == 4
        assert drawn[-1][0].lower() != word.lower()
