"""The catalog against the table of the contract, and the exception tree against its drawing."""

from __future__ import annotations

import inspect
import re

import pytest

from tachograph.fail import errors
from tachograph.fail.catalog import (
    BROKEN,
    ENDINGS,
    MODES,
    RULES,
    Answered,
    ApprovalRefused,
    CallStopped,
    Denied,
    Ending,
    FailureMode,
    GaveUp,
    Happening,
    Refused,
    ResultLost,
    Rule,
    Stopped,
    StoppedByHook,
    StopReason,
    Succeeded,
    classify,
    happenings,
    key_of,
)
from tachograph.fail.errors import InputError, Interrupted

DENIAL, FAILURE = Ending.POLICY_DENIAL, Ending.FAILURE
# what happened: (mode, ending under terminate, ending under inform); None: the run goes on
EXPECTED: dict[Happening, tuple[str | None, str | None, str | None]] = {
    Answered(): (None, "final_answer", "final_answer"),
    Refused(): ("llm_refusal", "refused", "refused"),
    Succeeded(): (None, None, None),
    ResultLost(): (None, None, None),
    Succeeded(recovered=True): ("tool_call_failure", None, None),
    ResultLost(recovered=True): ("tool_call_failure", None, None),
    Denied(Rule.TOOL_REGISTRY): (None, DENIAL, None),
    Denied(Rule.URL_ALLOWLIST): (None, DENIAL, None),
    Denied(Rule.SANDBOX_PATH): (None, DENIAL, None),
    Denied(Rule.REDACT): (None, DENIAL, None),
    Denied(Rule.ARGUMENTS): (None, DENIAL, None),
    Denied(Rule.TIME_WINDOW): (None, DENIAL, None),
    Denied(Rule.TOOL_LIMITS): (None, DENIAL, None),
    Denied(Rule.PRINCIPAL): (None, DENIAL, None),
    Denied(Rule.ARG_SCHEMA): ("schema_mismatch", FAILURE, None),
    Denied(Rule.CYCLE_DETECTION): ("cycle_detection", DENIAL, DENIAL),
    Denied(Rule.GATE_ERROR): (None, DENIAL, DENIAL),
    Denied(Rule.HOOK): (None, DENIAL, None),
    StoppedByHook(): (None, DENIAL, DENIAL),
    Denied(Rule.LOOP_BUDGET): (None, "loop_budget", "loop_budget"),
    **{Denied(rule, repeated=True): (None, DENIAL, DENIAL) for rule in Rule},
    ApprovalRefused(): (None, "approval_refused", None),
    CallStopped(): (None, None, None),
    **{GaveUp(mode): (mode, FAILURE, FAILURE if mode == "llm_failure" else None) for mode in BROKEN},
    Stopped(StopReason.DEADLINE): ("timeout", FAILURE, FAILURE),
    Stopped(StopReason.CANCELLED): ("cancelled", "cancelled", "cancelled"),
    Stopped(StopReason.INTERRUPTED): ("interrupted", "cancelled", "cancelled"),
}
BROKEN_MODES = {
    *("retry_exhaustion", "timeout", "catalogued_unhandled"),
    *("llm_failure", "llm_invalid_output", "tool_output_invalid", "output_mismatch"),
}


def test_the_table_is_the_contracts() -> None:
    found = {}
    for happening in happenings():
        terminate, inform = (classify(happening, word, word) for word in ("terminate", "inform"))
        assert terminate.mode == inform.mode
        for on_deny, on_failure in (("terminate", "inform"), ("inform", "terminate")):
            own = on_deny if key_of(happening) == "on_deny" else on_failure
            wanted = inform if own == "inform" else terminate
            assert classify(happening, on_deny, on_failure) == wanted
        found[happening] = (terminate.mode, terminate.ending, inform.ending)
    assert found == EXPECTED and BROKEN == BROKEN_MODES


@pytest.mark.parametrize("on_deny", ["terminate", "inform"])
@pytest.mark.parametrize("happening", happenings(), ids=repr)
def test_every_classification_is_of_the_catalog(happening: Happening, on_deny: str) -> None:
    found = classify(happening, on_deny)
    assert found.mode is None or found.mode in MODES
    assert found.ending is None or found.ending in ENDINGS
    assert found.mode not in BROKEN or found.ending == "failure_mode_terminal"


def test_nothing_of_the_catalog_is_out_of_reach() -> None:
    found = [classify(happening, how) for happening in happenings() for how in ("terminate", "inform")]
    assert {v.mode for v in found} == {None, *FailureMode} and set(MODES) == set(FailureMode)
    assert {v.ending for v in found} == {None, *Ending} and set(ENDINGS) == set(Ending)
    assert set(MODES) > BROKEN


def test_each_rule_that_denies_has_its_row() -> None:
    denials = {it.rule for it in happenings() if isinstance(it, Denied) and not it.repeated}
    assert denials == set(RULES) - {"approval"}


@pytest.mark.parametrize("happening", [Denied(Rule.APPROVAL), GaveUp(FailureMode.SCHEMA_MISMATCH)], ids=repr)
def test_what_nobody_foresaw_is_a_mistake_and_no_ending(happening: Happening) -> None:
    with pytest.raises(KeyError):
        classify(happening, "terminate")


def test_being_told_never_ends_what_terminating_lets_go_on() -> None:
    for happening in happenings():
        if classify(happening, "terminate").ending is None:
            assert classify(happening, "inform").ending is None


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
