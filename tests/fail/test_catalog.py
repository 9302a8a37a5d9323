"""The catalog against the table of the contract, and the exception tree against its drawing."""

from __future__ import annotations

import inspect
import re

import pytest

from tachograph.fail import catalog, errors
from tachograph.fail.catalog import BROKEN, ENDINGS, MODES, RULES, happenings, verdict
from tachograph.fail.errors import InputError, Interrupted

# what happened: (mode, ending under terminate, ending under inform); None: the run goes on
EXPECTED = {
    "answered": (None, "final_answer", "final_answer"),
    **{
        f"deny:{rule}": (None, "policy_denial_terminal", None)
        for rule in ("tool_registry", "url_allowlist", "sandbox_path")
    },
    "deny:arg_schema": ("schema_mismatch", "failure_mode_terminal", None),
    "deny:cycle_detection": ("cycle_detection", "policy_denial_terminal", "policy_denial_terminal"),
    **{
        f"deny:{what}": (None, "policy_denial_terminal", "policy_denial_terminal")
        for what in ("gate_error", "again")
    },
    "deny:loop_budget": (None, "loop_budget", "loop_budget"),
    "approval:refused": (None, "approval_refused", None),
    "recovered": ("tool_call_failure", None, None),
    "exhausted": ("retry_exhaustion", "failure_mode_terminal", "failure_mode_terminal"),
    "timeout": ("timeout", "failure_mode_terminal", "failure_mode_terminal"),
    "deadline": ("timeout", "failure_mode_terminal", "failure_mode_terminal"),
    "unhandled": ("catalogued_unhandled", "failure_mode_terminal", "failure_mode_terminal"),
    **{
        what: (what, "failure_mode_terminal", "failure_mode_terminal")
        for what in ("llm_failure", "llm_invalid_output", "tool_output_invalid")
    },
    **{what: (what, "cancelled", "cancelled") for what in ("cancelled", "interrupted")},
}


def test_the_table_is_the_contracts() -> None:
    found = {}
    for what in happenings():
        terminate, inform = verdict(what, "terminate"), verdict(what, "inform")
        assert terminate.mode == inform.mode
        found[what] = (terminate.mode, terminate.ending, inform.ending)
    assert found == EXPECTED


@pytest.mark.parametrize("on_deny", ["terminate", "inform"])
@pytest.mark.parametrize("what", happenings())
def test_every_verdict_is_of_the_catalog(what: str, on_deny: str) -> None:
    found = verdict(what, on_deny)
    assert found.mode is None or found.mode in MODES
    assert found.ending is None or found.ending in ENDINGS
    assert found.mode not in BROKEN or found.ending == "failure_mode_terminal"


def test_nothing_of_the_catalog_is_out_of_reach() -> None:
    found = [verdict(what, how) for what in happenings() for how in ("terminate", "inform")]
    assert {v.mode for v in found} == {None, *MODES}
    assert {v.ending for v in found} == {None, *ENDINGS}
    assert set(MODES) > BROKEN


def test_each_rule_that_denies_has_its_row() -> None:
    denials = {what.removeprefix("deny:") for what in happenings() if what.startswith("deny:")}
    assert denials == {rule for rule in RULES if rule != "approval"} | {"again"}


def test_what_nobody_foresaw_is_a_mistake_and_no_ending() -> None:
    with pytest.raises(KeyError):
        verdict("deny:approval", "terminate")


def test_being_told_never_ends_what_terminating_lets_go_on() -> None:
    for what in happenings():
        if verdict(what, "terminate").ending is None:
            assert verdict(what, "inform").ending is None


def test_the_constants_are_the_endings() -> None:
    constants = {value for name, value in vars(catalog).items() if name.isupper() and isinstance(value, str)}
    assert constants == set(ENDINGS)


# ---- the exception tree ------------------------------------------------------------------------------------


def _drawn() -> dict[str, str]:
    """Class -> parent, as the drawing at the top of errors.py has it."""
    out: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"([ │├└─]*)([A-Z][A-Za-z]+)(?:\s|$)", line)
        if found is None or not line.startswith("    "):
            continue
        depth = len(found[1])
        while above and above[-1][0] >= depth:
            above.pop()
        out[found[2]] = above[-1][1] if above else "Exception"
        above.append((depth, found[2]))
    return out


def test_the_exception_tree_is_as_drawn() -> None:
    classes = {
        name: cls
        for name, cls in inspect.getmembers(errors, inspect.isclass)
        if cls.__module__ == errors.__name__
    }
    assert _drawn() == {name: cls.__bases__[0].__name__ for name, cls in classes.items()}
    assert all(cls.__doc__ for cls in classes.values())


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ({}, "wrong"),
        ({"file": "a.yaml"}, "a.yaml: wrong"),
        ({"file": "a.yaml", "line": 3}, "a.yaml:3: wrong"),
        ({"file": "a.yaml", "line": 3, "column": 4}, "a.yaml:3:4: wrong"),
        ({"file": "a.yaml", "column": 4, "remedy": "mend it"}, "a.yaml:4: wrong; mend it"),
        ({"line": 3, "remedy": "mend it"}, "wrong; mend it"),
    ],
)
def test_an_input_error_is_one_line(place: dict[str, object], text: str) -> None:
    assert str(InputError("wrong", **place)) == text  # type: ignore[arg-type]


def test_an_interruption_knows_its_signal() -> None:
    assert Interrupted(15).signum == 15
