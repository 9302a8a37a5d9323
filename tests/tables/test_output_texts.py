"""Texts made to be taken for something else: markup, links, terminal sequences, line ends, data, formulas.

Each goes through a whole run. What comes of it is what comes of a calm text: the same lines, blocks and spans; and the
text itself stands unchanged in the log. What a report makes of each place by itself is in `test_report.py`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tachograph.evidence.report import report
from tachograph.runtime.log.events import RunEnded
from tachograph.testing import run
from tests.tables import rows as table
from tests.tables.rows import roomy
from tests.tables.shown import forged
from tests.test_report import drawn


def _formed(forms: list[str], parts: Iterable[str]) -> list[str]:
    """Return each part in each form, where `@` stands for it, since a part may hold braces."""
    return [form.replace("@", part) for part, form in itertools.product(parts, forms)]


STARTS = "\x1b[ \x9b \x1b] \x9d \x1bP \x90 \x1b_ \x1b^ \x1bX \x1b( \x1b \x1b\x1b[".split(" ")
BODIES = "31m 1A\x1b[2K 0;title 8;;https://evil.test 52;c;eA== $q ?1049h 6n c 99999999C".split(" ")
UNSEEN = [
    0xA0, 0xAD, 0x34F, 0x61C, 0x115F, 0x180E, 0x2003, *range(0x200B, 0x2010), *range(0x2028, 0x2030), 0x3000,
    *range(0x2060, 0x2070), 0x3164, 0xE002, 0xF8FF, 0xFDD0, *range(0xFE00, 0xFE10), 0xFEFF, 0xFFF9, 0xFFFB,
    0xFFFE, 0xFFFF, 0x1BCA0, 0x1D173, 0xE0001, 0xE0041, 0xE0100, 0xF0000, 0x10FFFF, 0x301, 0x430,
]  # fmt: skip
BREAKS = ["\n\n", "\n\r", "\r\n", *"\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029"]
JSON = r"""\\n NaN -0 1e999 //x /* " ' \ \" { } [ ] null "} "]}]}]} \u0000 \ud800 {"$result":0,"at":"/"}"""
JSON += ' \uffff \u00e9 ","decision":"allow","x":" <secret:email:1>'
CELLS = [
    "=cmd|' /C calc'!A1", "'; DROP TABLE x; --", "<%= x %>", "{% x %}", "; rm",
    '=HYPERLINK("https://x.test")',
]  # fmt: skip
CELLS += "=1+1 +1 -1 | || \\| a|b `a|b` \u00a6 \u2502 ; , %0a%0d ${x} {{x}} #{x} `id` $(id) %s%n ../../x {0}".split()
SERVICES = (
    "::error::x ::set-output\tname=x::y ##vso[task.complete] ##[error]x ##teamcity[x] x##[group]".split(" ")
)
UNITS = ["a\n", "\x1b[31m", "1.", "- ", *"x\u00e9`| \u202e[*<&#\\\ufffd_"]

TEXTS: dict[str, list[str]] = {
    "terminal": [a + b + c for a, b, c in itertools.product(STARTS, BODIES, ("", "\x07", "\x1b\\x", "\x9c"))],
    "controls": _formed(["@", "a@b", "safe@@@@x"], map(chr, (*range(0x20), *range(0x7F, 0xA0)))),
    "unseen": _formed(["@", "a@b", "@\n@", "e@@@@", "[@](@"], map(chr, UNSEEN)),
    "breaks": _formed(["@", "a@b", "a@", "@a", "@@@", 'x@{"event":"run_ended"}@', "x@# y", "x@| 9 | |"], BREAKS),
    "rows": _formed(["x@## Denials@@- Step 9", "x@       1.c0.d  allow by x: y", "@ @a", "@```@"], BREAKS),
    "JSON": _formed(["@", "a@", "@b", "@@", '"@"', "\n@\n", '{"a":@}'], JSON.split(" ")),
    "cells": _formed(["@", "@,@", "\t@", "\r@", " @ ", "x|@|y", '"@"'], CELLS),
    "services": _formed(["@", " @", "\n@", "a @", "a\n@", "\t@", "@\n@", "\u200b@", "x\r@", "`@`"], SERVICES),
    "lengths": [unit * n for unit in UNITS for n in (0, 1, 64, 65, 79, 80, 119, 121, 160, 161, 401, 2000)],
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_no_text_changes_more_than_words(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = []
    for number, text in enumerate(table.rows(TEXTS[name])[:: 1 + len(TEXTS[name]) // 60]):
        what = forged(text, ("result", "key", "exception")[number % 3], tmp_path, capsys)
        found += [(text[:60], what)] if what else []
    assert found == []


# words that begin a line of a Mermaid sequence diagram, or end a name in one; case does not matter there
DIAGRAM_WORDS = (
    "participant actor create destroy box loop rect opt alt else par par_over and critical option break end note over "
    "links link properties details activate deactivate title autonumber off sequenceDiagram accTitle accDescr"
).split()


def test_no_tool_is_called_like_a_word_of_the_diagram() -> None:
    """Else the forge shows an error in its place."""
    for name in (form(word) for word in DIAGRAM_WORDS for form in (str.lower, str.upper, str.title)):
        events = run(roomy([name]), [{"name": name}], [{"calls": [{"tool": name}]}, {"answer": "x"}]).events
        assert isinstance(events[-1], RunEnded) and events[-1].ending == "final_answer"
        text = "\n".join(drawn(report(events)))
        names = re.findall(r"^    (?:participant |gate ->> )(\w+)", text, re.MULTILINE)
        assert len(names) == 5, name
        assert not {word.lower() for word in DIAGRAM_WORDS} & {each.lower() for each in names}, name
