"""All of AgentDojo's ground-truth calls, read from the published suites, under both policies of each suite.

`make agentdojo` installs the suites into an environment of their own and runs these tests; without it they are skipped.
docs/corpora.md shows the tables that are computed here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.corpora.agentdojo_policies import LISTS, SUITES
from tests.corpora.agentdojo_replay import arguments_of, count, gate_of, replay, table

ROOT = Path(__file__).parents[2]
PYTHON = Path(sys.executable).parent.parent / "agentdojo" / "bin" / "python"
EXPORT = Path(__file__).with_name("agentdojo_export.py")

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason="the suites of AgentDojo are not at hand: `make agentdojo`"
)


@cache
def exported() -> dict[str, Any]:
    done = subprocess.run([PYTHON, EXPORT], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_the_suites_are_those_of_the_page() -> None:
    suites = exported().values()
    injected = [calls for suite in suites for calls in suite["injection"].values()]
    assert sum(len(suite["benign"]) for suite in suites) == 97
    assert (len(injected), sum(not calls for calls in injected)) == (35, 9)


def test_the_lists_hold_what_the_accounts_held_before() -> None:
    for suite in ("workspace", "travel"):
        origins = exported()[suite]["origins"]
        assert LISTS[suite] == {"people": sorted({who for found in origins.values() for who in found})}
    origins = exported()["banking"]["origins"]
    payees = LISTS["banking"]["payees"]
    assert {*origins["transactions"]} <= {*payees}
    for payee in {*payees} - {*origins["transactions"]}:
        named = [text for text in (*origins["subjects"], *origins["files"]) if payee in text]
        assert len(named) == 1, payee
    assert {*LISTS} == {name for name, known in SUITES.items() if known.values}


def test_what_both_policies_stop_stands_on_the_page() -> None:
    plain, lists = counted(lists=False), counted(lists=True)
    rows = table(plain, lists)
    print("\n" + rows)
    assert rows in (ROOT / "docs/corpora.md").read_text(encoding="utf-8")
    assert plain.keys() == {*SUITES} and sum(plain.values(), Counter())["denied"] == 0


def counted(*, lists: bool) -> dict[str, Counter[str]]:
    out = {}
    for suite, known in exported().items():
        injected = [calls for calls in known["injection"].values() if calls]
        out[suite] = count(
            gate_of(suite, known["tools"], lists=lists), suite, known["benign"].values(), injected
        )
    return out


def test_benign_calls_that_lists_refuse_name_somebody_new() -> None:
    """A person has to add whom the user's accounts do not know yet; nothing else is refused."""
    for suite, known in exported().items():
        gate, world = gate_of(suite, known["tools"], lists=True), json.dumps(known["origins"])
        for calls in known["benign"].values():
            for call, found in zip(calls, replay(gate, suite, calls), strict=True):
                if found.decision != "allow":
                    assert found.rule_id == "arguments", found
                    values = [value for value in _texts(arguments_of(suite, call)) if value not in world]
                    assert values, call


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in inner for text in _texts(item)]
