"""Hostile text in every place of a ledger, as it was, as it is now, in both: each way to tell drift stays inert."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tachograph.evidence.checking.differences.compare import Findings, note_drift
from tachograph.evidence.files.accepted import ACCEPTED, line_of
from tachograph.review.drift.annotations import commands, summary
from tachograph.review.drift.page import drift_page
from tachograph.review.drift.report import DriftReport, drift_report
from tachograph.review.drift.text import lines
from tachograph.runtime.journal import ledger as ledgers
from tests.corpora.test_output_corpus import CODE, alive, raw
from tests.evidence.project import DENIED, RETRIED, copy_inputs, edit_lines, edit_manifest
from tests.evidence.project import tachograph as command
from tests.review.drift.test_hostile import COMMAND, DECLARED, SERVICE, Tree
from tests.review.drift.test_mutation import at, leaves, put
from tests.review.drift_changes import GIVEN, INFORMED
from tests.support import ROOT

# what a terminal, a build service, a page and a forge would each take for their own, in one text
EVIL = (
    "\x1b[2J\x1b]0;x\x07\r\n::error file=x,title=y::z\n##[command]q\u202e\u200b<script>alert(1)</script>"
    "</pre></details>\n# head\n| a | b |\n[a](https://evil.test) `` @user %0A::warning::x"
)
LEDGERS = (DENIED, GIVEN, INFORMED, "runs/failure_modes/tool_output_invalid")
SIDES = ("then", "now", "both")
OURS = re.compile(r"check: |[A-Za-z-]+  |  |accept it: |accept takes |nothing ")


def ledger(run: str) -> list[dict[str, Any]]:
    return list(ledgers.read((ROOT / run / "state.jsonl").read_bytes(), "state.jsonl"))


def _keys(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all keys, whatever they hold."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        if isinstance(key, str):
            yield (*path, key)
        yield from _keys(item, (*path, key))


def _told(before: list[dict[str, Any]], after: list[dict[str, Any]], root: Path) -> DriftReport:
    """Two runs that drifted so: one alone, and both, which may be folded into one."""
    found = []
    for name in ("runs/a/b", "runs/a/c"):
        item = Findings(name, moved={"policy/v1.yaml": "is new"}, accept=f"tachograph accept {name}")
        note_drift(item, before, after)
        item.lines.append("more")
        item.fresh = {}
        found.append(item)
    return drift_report(found, root)


def _wrong(told: DriftReport) -> list[str]:
    """What is not inert in any of the ways in which drift is told."""
    shown = list(lines(told, lambda text, _colour: text))
    folded = list(lines(told, lambda text, _colour: text, 80))
    made, text, notes = drift_page(told), summary(told), commands(told)
    data = json.dumps(told.to_dict(), sort_keys=True)
    tree = Tree(made)
    ours = re.sub(r"</?details>|</?summary>", "", text)
    wrong = {
        "lines": raw("".join(line for run in told.runs for line in run.lines)),
        "raw": any(map(raw, ["\n".join(shown), "\n".join(folded), made, text, "\n".join(notes), data])),
        "encoded": [part for part in (made, text, *shown, *notes) if "\\ud8" in ascii(part)],
        "terminal": [line for line in shown + folded if "\n" in line or SERVICE.search(line)],
        "commands": [line for line in shown + folded if line.lstrip().startswith("::")],
        "margin": [line for line in shown + folded if not OURS.match(line)],
        "wide": [line for line in folded if len(line) > 80],
        "page": "script" in tree.tags or "<script" in made or tree.declared != DECLARED,
        "elements": [tag for tag in tree.tags if tag.lstrip("/") not in _TAGS],
        "closed": tree.tags.count("pre") != tree.tags.count("/pre"),
        "notes": [line for line in notes if not COMMAND.fullmatch(line) or "\n" in line],
        "summary": alive(ours),
        "heads": [line for line in text.split("\n") if line.startswith("#")][1:],
        "details": (prose := CODE.sub(" ", text)).count("<details>") - prose.count("</details>"),
    }
    return [name for name, found in wrong.items() if found]


_TAGS = set(
    "html head meta title style body main h1 h2 h3 h4 ul ol li nav a article p dl dt dd div pre span".split()
)


@pytest.mark.parametrize("run", LEDGERS)
def test_a_text_in_each_place(run: str) -> None:
    lines_of = ledger(run)
    odd = []
    for number, line in enumerate(lines_of):
        for index, path in enumerate(leaves(line)):
            for side in SIDES if run == DENIED else (SIDES[index % 2], SIDES[2]):
                then, now = copy.deepcopy(lines_of), copy.deepcopy(lines_of)
                changed = {"then": (then,), "now": (now,), "both": (then, now)}[side]
                for i, one in enumerate(changed):
                    put(one[number], path, EVIL + "!" * i)
                wrong = _wrong(_told(then, now, ROOT))
                if wrong:
                    odd.append((number, path, side, wrong))
    assert odd == []


def test_a_name_in_each_place() -> None:
    lines_of = ledger(GIVEN)
    odd = []
    for number, line in enumerate(lines_of):
        for path in _keys(line):
            other = copy.deepcopy(lines_of)
            inside = at(other[number], path[:-1])
            inside[EVIL] = inside.pop(path[-1])
            for pair in ((lines_of, other), (other, lines_of)):
                wrong = _wrong(_told(*pair, ROOT))
                if wrong:
                    odd.append((number, path, wrong))
    assert odd == []


def test_lines_that_are_no_lines_of_a_run() -> None:
    lines_of = ledger(DENIED)
    for other in ([], [{EVIL: EVIL}], [{"type": EVIL}], [{"type": "step", "step_index": EVIL}] * 3):
        assert _wrong(_told(lines_of, other, ROOT)) == [] == _wrong(_told(other, lines_of, ROOT))


def test_policy_lines_that_are_hostile(tmp_path: Path) -> None:
    """What a policy says is shown beside what moved, and a rule may have any name."""
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy/v1.yaml").write_text(f"tool_registry: {json.dumps(EVIL)}\n", encoding="utf-8")
    before = ledger(RETRIED)
    for rule in ("policy/v1.yaml#/tool_registry", f"{EVIL}#/x", f"policy/v1.yaml#/{EVIL}", EVIL):
        after = copy.deepcopy(before)
        for line in after[1:-1]:
            for entry in line["policy_decisions"]:
                entry["at"] = rule
        told = _told(before, after, tmp_path)
        shown = {name for run in told.runs for item in run.differences for name, _ in item.facts}
        assert ("rule now" in shown) == rule.startswith("policy/v1.yaml#/") and _wrong(told) == []


def test_accepted_changes_that_are_hostile(tmp_path: Path) -> None:
    """Why nothing can be accepted is told with what stands in the file."""
    (tmp_path / "runs").mkdir()
    for key in (EVIL, "##[command]x", "|<b>x</b> [a](https://evil.test)", "::error::x"):
        (tmp_path / ACCEPTED).write_text(line_of({key: "", "run": EVIL}), encoding="utf-8")
        told = _told(ledger(DENIED), ledger(RETRIED), tmp_path)
        assert told.blocked is not None and "has an unknown key" in told.blocked and _wrong(told) == []


def test_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that was edited, and its manifest too, in each form that `check` has."""
    project = copy_inputs(tmp_path / "project", (name.removeprefix("runs/") for name in (DENIED, RETRIED)))

    def forge(found: list[dict[str, Any]]) -> None:
        found[0]["question"] = found[0][EVIL] = EVIL
        found[1]["intended_tool_calls"][0].update(name=EVIL, arguments={EVIL: EVIL})
        found[1]["policy_decisions"][0].update(at=EVIL, reason=EVIL, rule_id=EVIL)
        found[-1]["final_answer"] = EVIL

    for run in (DENIED, RETRIED):
        edit_lines(project / run, forge, chain=True)
        edit_manifest(project / run, lambda manifest: manifest["inputs"][0].update(path=EVIL))
    place = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(place))
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    code, out = command(project, capsys, monkeypatch, "check", "--github", "--html", str(tmp_path / "p.html"))
    notes, told = (
        [line for line in out.splitlines() if line.startswith("::error ") is here] for here in (True, False)
    )
    assert code == 1 and len(notes) == 4 and all(map(COMMAND.fullmatch, notes))
    assert not raw(out) and not SERVICE.search("\n".join(told))
    assert not any(line.lstrip().startswith("::") for line in told) and "\\u{1b}" in out
    made = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert not raw(made) and "<script" not in made and "&lt;script&gt;" in made
    text = place.read_text(encoding="utf-8")
    assert not raw(text) and alive(re.sub(r"</?details>|</?summary>", "", text)) == []
    code, out = command(project, capsys, monkeypatch, "check", "--json")
    assert code == 1 and not raw(out) and json.loads(out)["findings"][0]["edited_by_hand"]
