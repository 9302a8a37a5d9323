"""What a scenario expects is what a part of the code is for: without that part, a scenario turns red.

One rule of the gate or one path of redaction is switched off at a time. A scenario is red if it misses what it expects,
or if its record holds what may not be there. What `verify` finds is switched off by damage, see test_log.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from msgspec import structs

from tachograph.evidence.record import record
from tachograph.evidence.record_files import read_files
from tachograph.evidence.tasks import Task
from tachograph.fail.errors import TachographError
from tachograph.runtime.log import events as log
from tachograph.runtime.log import values
from tachograph.runtime.loop.state import RunSpec
from tachograph.runtime.policy.gate import Gate, Judged
from tachograph.runtime.policy.leaf import Leaves, Question, Rule
from tachograph.runtime.policy.rules import RULES
from tachograph.runtime.redaction.redactor import Redactor
from tachograph.runtime.tools.contract import Tool
from tests.project import PLANTED, ROWS, SCENARIOS, make_project, task_of_row

REDACTED = {name: row for name, row in ROWS.items() if "redact" in row.get("policy", {})}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scenarios, which are recorded otherwise here."""
    return make_project(tmp_path_factory.mktemp("ablation") / "p", SCENARIOS)


def is_red(project: Path, folder: Path, name: str) -> bool:
    """Whether a scenario does not come to what it expects now, or its record holds what may not be there."""
    try:
        record(task_of_row(project, name), folder / name)
    except (TachographError, KeyError):  # KeyError: without its rule, a tool that the run lacks is looked up
        return True
    contents = read_files(folder / name, name).values()
    return any(planted in content for planted in PLANTED for content in contents)


class Lenient(Gate):
    """A gate that lets pass what one rule objects to in one kind of question."""

    off: tuple[str, type]

    def judge_by(self, rule: Rule, leaves: Leaves, question: Question, tool: Tool | None) -> Judged | None:
        judged = super().judge_by(rule, leaves, question, tool)
        is_off = judged is not None and (rule.id, type(question.about)) == self.off
        return structs.replace(judged, allowed=True) if is_off else judged


def without(rule: str, kind: type, spec: RunSpec) -> RunSpec:
    """Return a run without what a rule says of one kind of question."""
    gate = Lenient(spec.gates.own.policy, spec.gates.own.tools.values())
    gate.off = rule, kind
    return structs.replace(spec, gates=structs.replace(spec.gates, own=gate))


JUDGES: dict[tuple[str, str], Callable[[RunSpec], RunSpec]] = {
    (rule.id, kind.__name__): partial(without, rule.id, kind) for rule in RULES for kind in rule.judges
} | {("hook", ""): lambda spec: structs.replace(spec, hooks=())}


@pytest.mark.parametrize("part", JUDGES, ids=" ".join)
def test_without_a_rule(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: Any) -> None:
    denied = [name for name, row in ROWS.items() if f"deny:{part[0]}" in str(row["expect"])]
    run_spec = Task.run_spec
    monkeypatch.setattr(Task, "run_spec", lambda task: JUDGES[part](run_spec(task)))
    assert any(is_red(project, tmp_path, name) for name in denied)


# Into these no scenario can put a secret. They hold addresses, words of ours and names of mounts; a script names no
# model, has no `raw` and no words of a service, for which see test_redacted_runs.py; and a URL is decided by the same
# line as a path.
SAFE = {
    "StopAsked": ["scope", "why"], "Stopped": ["why"], "ModelReplied": ["finish", "problem", "model", "raw"],
    "Failed": ["said", "wrote"], "ToolReturned": ["wrote"], "Reach": ["url", "method", "address"],
    "Touch": ["access", "found"], "Withheld": ["placeholder"],
}  # fmt: skip
_NO_TEXT = (int, bool, int | None, values.Usage)


def but_field(kind: type, field: str, redact: Any, self: Redactor, value: Any) -> Any:
    """Redact a struct but for one field of one kind."""
    redacted = redact(self, value)
    return structs.replace(redacted, **{field: getattr(value, field)}) if type(value) is kind else redacted


def but_text(is_off: Callable[[dict[str, Any], str], bool], redact: Any, self: Redactor, text: str) -> Any:
    """Redact a text but for one of some kind."""
    return text if any(is_off(row, text) for row in REDACTED.values()) else redact(self, text)


# by its name, the method of the redactor that a path takes, and what stands in its place
PATHS: dict[str, tuple[str, Callable[..., Any]]] = {
    f"{kind.__name__} {field}": ("struct", partial(but_field, kind, field))
    for kind in (*get_args(log.AnyEvent), *get_args(values.Fact))
    if not issubclass(kind, log.Made)
    for field, hint in get_type_hints(kind).items()
    if field not in ("at", *SAFE.get(kind.__name__, ()))
    and hint not in _NO_TEXT
    and get_origin(hint) is not Literal
} | {
    "question": ("text", partial(but_text, lambda row, text: text == row.get("question"))),
    "instructions": ("text", partial(but_text, lambda row, text: text == row.get("instructions"))),
    "name of an input": ("text", partial(but_text, lambda row, text: text.startswith("book/"))),
    "given to a tool": ("reveal", lambda redact, self, data, kinds: data),
}


@pytest.mark.parametrize("path", PATHS)
def test_without_a_path_of_redaction(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    method, instead = PATHS[path]
    redact = getattr(Redactor, method)
    monkeypatch.setattr(Redactor, method, lambda *given: instead(redact, *given))
    assert any(is_red(project, tmp_path, name) for name in REDACTED)
